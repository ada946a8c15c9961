"""The journal of a command that changes a stopped crawl.

The journal makes it safe to kill such a command at any moment.

    DIR/journal.json    {"command": "repair", "facts": {"p0": ...}}

Four commands use the journal: `check --repair`, `recover`, `reshard` and `withdraw --erase`. Each of these
commands durably records in the journal what it is about to do, and removes the journal when everything is
done. So after a kill, every command can see that the crawl is between two states. The interrupted command
continues where it stopped, and all other commands refuse the directory. A reshard has only to complete its
switch, so every command continues it (`switch.py`). (An upgrade needs no journal:
`DIR/format` records its progress.)

A reshard builds the new folders in `DIR/.reshard` before it writes the journal. If `DIR/.reshard` exists
without a journal, a killed reshard has left the folder, and the next command removes it. A reshard moves the
old folders to `DIR/.resharded` when it replaces them by the new ones. If `DIR/.resharded` exists without a
journal, the next command removes that folder, too.
"""

import logging
import shutil
from pathlib import Path
from typing import Any

import msgspec

from crawler.errors import BusyError, DamageError, DirectoryError, StoreError, reason_of
from crawler.storage.files import Lock, atomic_write, in_use, is_held, sync_directory

log = logging.getLogger("crawler")

JOURNAL = "journal.json"
BUILT = ".reshard"
REPLACED = ".resharded"
# Maps each command to the instructions for continuing it. {subject} is the process that was given to the
# command.
_REMEDIES = {
    "repair": "`crawler check --repair` continues it",
    "recover": "`crawler recover {subject}` continues it",
    "withdraw": "`crawler withdraw` continues it",
}


class Journal(msgspec.Struct, forbid_unknown_fields=True):
    """The command in progress, and the facts that it has recorded, each under a name."""

    command: str
    subject: str = ""
    facts: dict[str, Any] = {}


def load_journal(directory: Path) -> Journal | None:
    """Return the journal in a crawl directory; None if no command is in progress.

    Raises:
        DamageError: the journal is damaged.
    """
    path = directory / JOURNAL
    try:
        return msgspec.json.decode(path.read_bytes(), type=Journal)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise DamageError(f"{path}: cannot be read: {reason_of(error)}") from error


def keep_journal(directory: Path, journal: Journal) -> None:
    """Record the command in progress. The record is durable when this function returns.

    Raises:
        StoreError: the disk failed.
    """
    atomic_write(directory / JOURNAL, msgspec.json.encode(journal))


def end_journal(directory: Path) -> None:
    """Remove the journal: the command has finished.

    Raises:
        StoreError: the disk failed.
    """
    try:
        (directory / JOURNAL).unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"{directory / JOURNAL}: cannot be removed: {error.strerror}") from error
    sync_directory(directory)


def refuse_cut_off(directory: Path, finishing: str = "", subject: str = "") -> None:
    """Refuse a crawl with an interrupted command, unless `finishing` and `subject` name that command and its subject.

    Raises:
        BusyError: the command is in progress.
        DirectoryError: the command was interrupted.
    """
    journal = load_journal(directory)
    if journal is None or (journal.command, journal.subject) == (finishing, subject):
        return
    name = f"{journal.command} {journal.subject}".strip()
    if is_held(directory / "supervisor.lock"):
        raise BusyError(f"{directory}: a {name} is in progress; {in_use(directory / 'supervisor.lock')}")
    remedy = _REMEDIES.get(journal.command, "the crawler that started it continues it")
    raise DirectoryError(f"{directory}: a {name} was interrupted; {remedy.format(subject=journal.subject)}")


def drop_unfinished(directory: Path) -> None:
    """Remove the folders of an unfinished reshard, unless a reshard is in progress.

    Log a warning if removal fails.
    """
    left = [folder for folder in (directory / BUILT, directory / REPLACED) if folder.exists()]
    if not left or load_journal(directory) is not None:
        return
    try:
        with Lock(directory / "supervisor.lock", "clean-up", brief=True):
            for folder in left if load_journal(directory) is None else []:
                shutil.rmtree(folder)
    except BusyError:
        return  # a running reshard is building this folder
    except (DirectoryError, OSError) as error:
        log.warning("%s was left by an interrupted reshard and cannot be removed: %s", left[0], error)
