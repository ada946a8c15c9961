"""The switch from the old processes of a crawl to the new ones, which is the last step of `crawler reshard`.

The journal (`journal.py`) describes the whole switch, so any command can complete a switch that was
interrupted: because the reshard was killed, or because the disk was full. Every step may be repeated.

    DIR/.reshard/<name>   new processes, whole and verified
    DIR/.resharded/       old processes, until they are removed
"""

import shutil

import msgspec

from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.journal import BUILT, JOURNAL, REPLACED, Journal, end_journal, load_journal
from crawler.crawl.topology import TABLE_FILE
from crawler.errors import DamageError
from crawler.storage.faults import reach
from crawler.storage.files import Lock, atomic_write, store_errors, sync_directory

COMMAND = "reshard"


class Switch(msgspec.Struct, forbid_unknown_fields=True):
    """The journal's entry for a switch: the old and the new processes, and the files that describe them."""

    old: list[str]
    new: list[str]
    config: str
    table: str


def finish(directory: CrawlDirectory) -> bool:
    """Complete an interrupted switch, if there is one. Return whether there was one.

    Raises:
        BusyError: a reshard is in progress.
        DamageError: the journal is damaged.
        DirectoryError: this user may not write there.
        StoreError: the disk failed; the next command completes the switch.
    """
    if not _is_switch(load_journal(directory.path)):
        return False
    with Lock(directory.path / "supervisor.lock", COMMAND):
        journal = load_journal(directory.path)  # another command may have completed the switch
        if journal is None or not _is_switch(journal):
            return False
        try:
            switch = msgspec.convert(journal.facts, Switch)
        except msgspec.ValidationError as error:
            raise DamageError(f"{directory.path / JOURNAL}: cannot be read: {error}") from error
        with store_errors(directory.path, "finish the reshard"):
            complete(directory, switch)
    return True


def _is_switch(journal: Journal | None) -> bool:
    return journal is not None and journal.command == COMMAND


def complete(directory: CrawlDirectory, switch: Switch) -> None:
    """Carry out the steps of a switch that are not done yet. The caller holds the lock of the supervisor."""
    built, replaced = directory.path / BUILT, directory.path / REPLACED
    replaced.mkdir(exist_ok=True)
    for name in switch.old:
        switched = name in switch.new and not (built / name).exists()
        if not switched and directory.process(name).exists():
            directory.process(name).rename(replaced / name)
            reach("reshard replaced")
    for name in switch.new:
        if (built / name).exists():
            (built / name).rename(directory.process(name))
            reach("reshard renamed")
    for name in switch.new:
        directory.note_state(name, 0)  # a new store starts with state 0
    for name in set(switch.old) - set(switch.new):
        directory.forget_begun(name)
    atomic_write(directory.path / TABLE_FILE, switch.table.encode())
    atomic_write(directory.settings.file, switch.config.encode())
    sync_directory(directory.path)
    shutil.rmtree(built, ignore_errors=True)
    shutil.rmtree(replaced, ignore_errors=True)
    end_journal(directory.path)
