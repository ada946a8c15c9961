"""The crawl directory: the files in it, and the identity of the crawl.

    DIR/crawl.toml      the configuration in force, without credentials; the hosts of the seeds (`relaxed_settings.py`)
    DIR/cached          exists if the crawl uses answers of earlier ones (`export/cached_runs.py`)
    DIR/credentials     headers with credentials, a proxy's password; readable by the user only (mode 0600)
    DIR/signing.key     the private keys that sign requests, mode 0600 (`signing/key_file.py`)
    DIR/seed            16 secret random bytes in hex, mode 0600: the key of all fingerprints
    DIR/format          the number of the storage format (`upgrade/README.md`)
    DIR/journal.json    exists while a command changes the crawl at rest (`journal.py`)
    DIR/blocked.json    the hosts that the operator has blocked (`blocked_hosts.py`)
    DIR/withdrawn.json  the withdrawals in force (`pages/withdrawals.py`)
    DIR/report.json     summary of the last run
    DIR/pages.jsonl     one line per fetch; former files are .1, .2 ... (`storage/rotating_file.py`)
    DIR/crawler.log     the log; rotated likewise
    DIR/p0.begun        exists once p0 has started, so that the loss of its folder is noticed; the number of its state
    DIR/p0/ ...         one folder per process: store/ due/ links/ warc/ trace/ gaps node.lock control.sock

The crawl's id is a hash of the secret seed. Because the seed is random, no two crawls have the same id by
accident. Because the id is a hash, it does not reveal the seed.
"""

import errno
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec

from crawler.crawl.plain_files import strange_entry
from crawler.crawl.saved_settings import SavedSettings
from crawler.errors import DamageError, DirectoryError, StoreError, reason_of
from crawler.storage.engines import require_utf8
from crawler.storage.files import atomic_write, sync_directory

SEED_BYTES = 16
FORMAT = 9  # number of the current storage format; `upgrade/` has a step from each earlier format to the next
BEGUN = ".begun"
_NOT_OURS = (errno.EACCES, errno.EPERM, errno.EROFS)  # no permission to write, but the disk works


class CrawlDirectory:
    """Paths and identity of one crawl directory.

    `settings` are the settings in force, as they are saved in the directory.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.settings = SavedSettings(self)
        self._is_plain = False  # True once `strange_entry` has examined the files

    @property
    def report_file(self) -> Path:
        return self.path / "report.json"

    @property
    def pages_file(self) -> Path:
        return self.path / "pages.jsonl"

    @property
    def log_file(self) -> Path:
        return self.path / "crawler.log"

    @property
    def format_file(self) -> Path:
        return self.path / "format"

    def process(self, name: str) -> Path:
        return self.path / name

    def exists(self) -> bool:
        """Return whether the directory contains a crawl.

        Raises:
            DirectoryError: the directory cannot be read, or contains a link, pipe or device where a crawl has files.
        """
        self.require_plain()
        try:
            return (self.path / "seed").exists()
        except OSError as error:
            raise DirectoryError(f"{self.path}: cannot be read: {reason_of(error)}") from error

    def require_plain(self) -> None:
        """Examine the directory once, before the first file in it is opened."""
        if not self._is_plain and (problem := strange_entry(self.path)):
            raise DirectoryError(problem)
        self._is_plain = True

    def process_names(self) -> list[str]:
        """Return the names of the crawl's processes, in ascending order."""
        names = [folder.parent.name for folder in self.path.glob("*/store")]
        return sorted(names, key=lambda name: (len(name), name))

    def has_begun(self, name: str) -> bool:
        """Return whether the process `name` has ever started in this directory, even if its folder has been lost."""
        return (self.path / f"{name}{BEGUN}").exists()

    def begun_names(self) -> set[str]:
        """Return the names of the processes that have ever started in this directory."""
        return {path.name.removesuffix(BEGUN) for path in self.path.glob(f"*{BEGUN}")}

    def forget_begun(self, name: str) -> None:
        """Let a process that has lost its folder start again.

        Before this call, every other process must have queued, in its own outbox, the links that belong to
        the lost process (`upkeep/recover.py`).
        """
        self.path.joinpath(name + BEGUN).unlink(missing_ok=True)

    def note_state(self, name: str, state: int) -> None:
        """Record `state`, which counts how often a process was opened plus how often it was closed cleanly.

        The number is in a file outside of the folder of the process. A comparison with this number shows
        whether the folder is lost, or whether its store is in an earlier state.
        """
        atomic_write(self.path / f"{name}{BEGUN}", _with_crc(state))

    def state(self, name: str) -> int:
        """Return the number that `note_state` recorded for a process; 0 if it is missing or cannot be read."""
        try:
            return _numbered((self.path / f"{name}{BEGUN}").read_bytes()) or 0
        except OSError:
            return 0

    def format(self) -> int:
        """Return the number of the crawl's storage format; 0 if the crawl was written before formats had numbers.

        Raises:
            DirectoryError: a newer crawler wrote it.
            DamageError: the number cannot be read.
        """
        try:
            data = self.format_file.read_bytes()
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise DirectoryError(f"{self.format_file}: cannot be read: {error.strerror}") from error
        if (number := _numbered(data)) is None:
            raise DamageError(f"{self.format_file} is damaged; `crawler check --repair` rewrites it")
        if number > FORMAT:
            raise DirectoryError(
                f"{self.path}: written by a newer crawler in format {number}; this one reads formats up to {FORMAT}"
            )
        return number

    def require_format(self) -> None:
        """Raise DirectoryError if the directory contains a crawl of an earlier format."""
        if self.exists() and (number := self.format()) < FORMAT:
            raise DirectoryError(
                f"{self.path}: is stored in format {number}, and was not upgraded to {FORMAT}"
            )

    def note_format(self, number: int) -> None:
        """Record the number of the format in which the whole directory is now stored."""
        atomic_write(self.format_file, _with_crc(number))

    def renew_format(self) -> str:
        """Remove an unreadable format number, so that all upgrades run again; return what was done, or "" for nothing."""
        try:
            self.format()
        except DamageError:
            self.format_file.unlink()
            sync_directory(self.path)
            return f"{self.format_file.name} is rewritten"
        return ""

    def require(self) -> None:
        """Raise DirectoryError if the directory contains no crawl."""
        if not self.exists():
            raise DirectoryError(
                f"{self.path}: no crawl here; name the directory of one, or start one with `crawler crawl`"
            )

    def create(self, seed: bytes = b"") -> None:
        """Create the directory and its secret seed, unless they exist already.

        Without `seed`, the secret seed is random.

        Raises:
            DirectoryError: the directory cannot be created, its path is not UTF-8, or it has a different seed.
            StoreError: the disk is full or fails.
        """
        require_utf8(self.path.absolute())
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DirectoryError(f"{self.path}: cannot be created: {error.strerror}") from error
        if not os.access(self.path, os.W_OK):
            if os.statvfs(self.path).f_flag & os.ST_RDONLY:
                raise StoreError(f"{self.path}: {os.strerror(errno.EROFS)}")
            raise DirectoryError(f"{self.path}: no permission to write there")
        if not self.exists():
            self._write_seed(seed or os.urandom(SEED_BYTES))
        if seed and self.seed() != seed:
            raise DirectoryError(f"{self.path}: the crawl in it was started with a different secret")

    def _write_seed(self, seed: bytes) -> None:
        try:
            # If there are processes already, the current format is not recorded, because they may come from a
            # directory of another format.
            if not self.process_names():
                self.note_format(FORMAT)
            atomic_write(self.path / "seed", seed.hex().encode() + b"\n", mode=0o600)
            sync_directory(self.path.absolute().parent)
        except StoreError as error:
            if isinstance(error.__cause__, OSError) and error.__cause__.errno in _NOT_OURS:
                raise DirectoryError(f"{self.path}: cannot be created: {error.__cause__.strerror}") from error
            raise

    def seed(self) -> bytes:
        """Return the 16 bytes that are the key of all fingerprints of this crawl."""
        try:
            seed = bytes.fromhex((self.path / "seed").read_text().strip())
        except (OSError, ValueError) as error:
            raise DirectoryError(f"{self.path / 'seed'}: cannot be read: {reason_of(error)}") from error
        if len(seed) != SEED_BYTES:
            raise DirectoryError(f"{self.path / 'seed'}: {len(seed)} bytes; expected {SEED_BYTES}")
        return seed

    def crawl_id(self) -> str:
        return hashlib.blake2b(self.seed(), digest_size=8, person=b"crawl id").hexdigest()

    def save_report(self, report: Mapping[str, Any]) -> None:
        atomic_write(self.report_file, msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")


def _with_crc(number: int) -> bytes:
    """Return a line with the number and its checksum. `_numbered` reads such lines."""
    digits = b"%d" % number
    return b"%s %08x\n" % (digits, crc32(digits))


def _numbered(data: bytes) -> int | None:
    """Return the number in a line made by `_with_crc`; None if the line is damaged."""
    try:
        digits, crc = data.split()
        return int(digits) if int(crc, 16) == crc32(digits) else None
    except ValueError:
        return None
