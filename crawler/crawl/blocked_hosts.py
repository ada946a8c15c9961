"""The hosts that the operator has blocked, in a file beside the stores.

    DIR/blocked.json    {"hosts": ["a.example", "b.example"], "crc32": ...}

The record of a host in the store says that the host is blocked, too. When a process opens, a host that is blocked
in one of the two places is blocked in both. So a block outlives a store that is lost, rebuilt or restored from an
earlier backup, and a file that is lost or damaged. One file holds the blocked hosts of all processes.

The file is changed before the store. If a command is killed between the two changes, the host is blocked.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from zlib import crc32

import msgspec

from crawler.storage.files import Lock, atomic_write

FILE = "blocked.json"


class _Content(msgspec.Struct):
    hosts: list[str]
    crc32: int  # the checksum of `hosts` as JSON; with a flipped bit, the name of a host may be that of another host


def load_blocked(directory: Path) -> set[str]:
    """Return the blocked hosts of a crawl directory. A file that is missing or cannot be read counts as empty."""
    try:
        content = msgspec.json.decode((directory / FILE).read_bytes(), type=_Content)
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return set()
    return set(content.hosts) if content.crc32 == _checksum(content.hosts) else set()


def add_blocked(directory: Path, hosts: Iterable[str]) -> None:
    """Add hosts to the file.

    Raises:
        StoreError: the disk failed.
    """
    _change(directory, lambda blocked: blocked | set(hosts))


def remove_blocked(directory: Path, host: str) -> None:
    """Remove a host from the file.

    Raises:
        StoreError: the disk failed.
    """
    _change(directory, lambda blocked: blocked - {host})


def _change(directory: Path, changed: Callable[[set[str]], set[str]]) -> None:
    with Lock(directory / "blocked.lock", "block", brief=True):
        before = load_blocked(directory)
        if (after := changed(before)) != before:
            hosts = sorted(after)
            content = msgspec.json.encode(_Content(hosts, _checksum(hosts)))
            atomic_write(directory / FILE, content + b"\n", mode=0o600)


def _checksum(hosts: list[str]) -> int:
    return crc32(msgspec.json.encode(hosts))
