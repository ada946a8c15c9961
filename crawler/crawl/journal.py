"""The journal of a command that changes a crawl at rest: what a kill must not make it forget.

    DIR/journal.json    {"command": "repair", "facts": {"p0": ...}}

`check --repair`, `recover` and `reshard` note there, durably, what they are about to
do before they do it, and remove the file when all is done. So after a kill every
command knows that the crawl is between two states: the one that was cut off goes on
where it stopped, and all others refuse the directory. (An upgrade needs no journal:
`DIR/format` says how far it is.)

What a reshard builds before it writes the journal lies in `DIR/.reshard`; without a journal it
is a leftover, and the next command removes it.
"""

import logging
import shutil
from pathlib import Path
from typing import Any

import msgspec

from crawler.errors import BusyError, DamageError, DirectoryError, StoreError
from crawler.storage.files import Lock, atomic_write, sync_directory

log = logging.getLogger("crawler")

JOURNAL = "journal.json"
BUILT = ".reshard"
# Command -> how it goes on; {subject} is the process that it was given.
_REMEDIES = {
    "repair": "`crawler check --repair` goes on with it",
    "recover": "`crawler recover {subject}` goes on with it",
    "reshard": "`crawler reshard` with the same --to finishes it",
}


class Journal(msgspec.Struct, forbid_unknown_fields=True):
    """`command` is at work; `facts` are its own, by name."""

    command: str
    subject: str = ""
    facts: dict[str, Any] = {}


def load_journal(directory: Path) -> Journal | None:
    """The journal in a crawl directory; None if nothing is under way.

    Raises:
        DamageError: it is not what was written.
    """
    path = directory / JOURNAL
    try:
        return msgspec.json.decode(path.read_bytes(), type=Journal)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise DamageError(f"{path}: cannot be read: {error}") from error


def keep_journal(directory: Path, journal: Journal) -> None:
    """Note what is under way; durable on return.

    Raises:
        StoreError: the disk failed.
    """
    atomic_write(directory / JOURNAL, msgspec.json.encode(journal))


def end_journal(directory: Path) -> None:
    """All is done.

    Raises:
        StoreError: the disk failed.
    """
    try:
        (directory / JOURNAL).unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"{directory / JOURNAL}: cannot be removed: {error.strerror}") from error
    sync_directory(directory)


def refuse_cut_off(directory: Path, finishing: str = "", subject: str = "") -> None:
    """Refuse a crawl that a command is changing, unless `finishing` is that command, for the same `subject`.

    Raises:
        DirectoryError: it is under way, or was cut off.
    """
    journal = load_journal(directory)
    if journal is None or (journal.command, journal.subject) == (finishing, subject):
        return
    name = f"{journal.command} {journal.subject}".strip()
    remedy = _REMEDIES.get(journal.command, "the crawler that began it goes on with it")
    raise DirectoryError(
        f"{directory}: a {name} is under way or was cut off; {remedy.format(subject=journal.subject)}"
    )


def drop_unfinished(directory: Path) -> None:
    """Remove what a reshard built and did not decide upon, unless one is at work; name it if that is impossible."""
    built = directory / BUILT
    if not built.exists() or load_journal(directory) is not None:
        return
    try:
        with Lock(directory / "supervisor.lock", "clean-up", brief=True):
            if load_journal(directory) is None:
                shutil.rmtree(built)
    except BusyError:
        return  # it is being built
    except (DirectoryError, OSError) as error:
        log.warning("%s was left by a reshard that was cut off, and cannot be removed: %s", built, error)
