"""The crawl directory: the files in it, and the identity of the crawl.

    DIR/crawl.toml      the configuration in force, without credentials; the hosts of the seeds (`relaxed_settings.py`)
    DIR/cached          exists if the crawl uses answers of earlier ones (`export/cached_runs.py`)
    DIR/credentials     headers with credentials, a proxy's password; readable by the user only (mode 0600)
    DIR/signing.key     the private keys that sign requests, mode 0600 (`signing/key_file.py`)
    DIR/seed            16 secret random bytes in hex, mode 0600: the key of all fingerprints
    DIR/format          the number of the storage format (`upgrade/README.md`)
    DIR/journal.json    exists while a command changes the crawl at rest (`journal.py`)
    DIR/withdrawn.json  the withdrawals in force (`pages/withdrawals.py`)
    DIR/report.json     summary of the last run
    DIR/pages.jsonl     one line per fetch; former files are .1, .2 ... (`storage/rotating_file.py`)
    DIR/crawler.log     the log; rotated likewise
    DIR/p0.begun        exists once p0 has started, so that the loss of its folder is noticed; the number of its state
    DIR/p0/ ...         one folder per process: store/ due/ links/ warc/ trace/ node.lock control.sock

The crawl's id is a hash of the secret seed. So no two directories have the same id by accident, and the id
does not reveal the seed.
"""

import errno
import hashlib
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from zlib import crc32

import msgspec
from msgspec import structs

from crawler.config import Config, convert, read_file, to_toml
from crawler.config.credentials import add_credentials, credentials_of, without_credentials
from crawler.crawl.plain_files import strange_entry
from crawler.errors import ConfigError, DamageError, DirectoryError, StoreError
from crawler.records import UNDECODABLE
from crawler.storage.engines import AUTO, another_engine, chosen, engine_of
from crawler.storage.files import atomic_write, rename, sync_directory

SEED_BYTES = 16
FORMAT = 4  # number of the current storage format; `upgrade/` has a step from each earlier format to the next
BEGUN = ".begun"
# A comment of the configuration names the hosts of the seeds for which the user gave looser settings. Because it
# is a comment, these settings do not apply if another crawl uses this file as its configuration.
_PLACES = "# Looser settings were given for the seeds at: "
_HEAD = "# Written by crawler, up to the line that says so; `--set` and flags change it, or an editor."
_END = "# The end."
_NOT_OURS = (errno.EACCES, errno.EPERM, errno.EROFS)  # no permission to write, but the disk works


class CrawlDirectory:
    """Paths and identity of one crawl directory."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._is_plain = False  # True once `strange_entry` has examined the files

    @property
    def config_file(self) -> Path:
        return self.path / "crawl.toml"

    @property
    def credentials_file(self) -> Path:
        return self.path / "credentials"

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
            DirectoryError: the directory contains a link, pipe or device where a crawl has files.
        """
        self._require_plain()
        return (self.path / "seed").exists()

    def _require_plain(self) -> None:
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
        """Allow a process whose folder is lost to start again.

        Before this call, the other processes must have queued the links of the lost process for it again.
        """
        self.path.joinpath(name + BEGUN).unlink(missing_ok=True)

    def note_state(self, name: str, state: int) -> None:
        """Record how often a process was opened or closed cleanly.

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
            DirectoryError: the directory cannot be created, or it has a different seed.
            StoreError: the disk is full or fails.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DirectoryError(f"{self.path}: cannot be created: {error.strerror}") from error
        if not os.access(self.path, os.W_OK):
            raise DirectoryError(f"{self.path}: no permission to write there")
        if not self.exists():
            self._write_seed(seed or os.urandom(SEED_BYTES))
        if seed and self.seed() != seed:
            raise DirectoryError(f"{self.path}: the crawl in it was started with a different secret")

    def _write_seed(self, seed: bytes) -> None:
        try:
            # if there are processes already, the format is not noted, because they may come from a directory
            # of another format
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
            raise DirectoryError(f"{self.path / 'seed'}: cannot be read: {error}") from error
        if len(seed) != SEED_BYTES:
            raise DirectoryError(f"{self.path / 'seed'}: {len(seed)} bytes; expected {SEED_BYTES}")
        return seed

    def crawl_id(self) -> str:
        return hashlib.blake2b(self.seed(), digest_size=8, person=b"crawl id").hexdigest()

    def save_config(self, config: Config) -> None:
        """Save `config` as the configuration in force, without the limits of the run but with the engine of the stores.

        Raises:
            DirectoryError: the existing stores use another engine.
        """
        config = self._with_engine(config)
        if found := credentials_of(config):
            atomic_write(self.credentials_file, msgspec.json.encode(found) + b"\n", mode=0o600)
        else:
            self.credentials_file.unlink(missing_ok=True)
        self.write_config(config, self.seed_places())

    def _with_engine(self, config: Config) -> Config:
        engine = config.store.engine
        found = {engine_of(self.process(name) / "store") for name in self.process_names()} - {None}
        if found and engine not in (AUTO, *found):
            raise another_engine(self.path, str(found.pop()), engine)
        engine = found.pop() or engine if found else chosen(engine)
        return structs.replace(config, store=structs.replace(config.store, engine=engine))

    def config_text(self, config: Config) -> str:
        """Return the text of crawl.toml with the hosts of the seeds, but without credentials and limits of a run."""
        return _config_text(config, self.seed_places())

    def write_config(self, config: Config, places: Iterable[str]) -> None:
        """Write crawl.toml: settings without credentials and limits of a run, and the hosts of the seeds."""
        atomic_write(self.config_file, _config_text(config, places).encode())

    def renew_config(self) -> str:
        """Replace a lost configuration by the defaults; return what was done, or "" if the configuration is intact.

        A file that cannot be read is kept under another name, so that the user can look at it.
        """
        kept = ""
        if not self._config_problem():
            try:
                convert(self._read_tree())
                return ""
            except ConfigError:
                damaged = self.config_file.with_suffix(".damaged")
                rename(self.config_file, damaged)
                kept = f"; the unreadable file is kept as {damaged.name}"
        count = max(1, len(self.process_names()), len([*self.path.glob(f"*{BEGUN}")]))
        self.write_config(self._with_engine(convert({"crawl": {"processes": count}})), ())
        return f"{self.config_file.name} has the defaults; give the crawl's settings again when you continue it{kept}"

    def _config_problem(self) -> str:
        """Return what is wrong with the configuration file, or "".

        Before a run has ended, a missing file is not a problem.
        """
        if not self.config_file.exists():
            return "missing" if self.report_file.exists() else ""
        lines = self.config_file.read_bytes().splitlines()
        return "cut short" if lines[:1] == [_HEAD.encode()] and lines[-1] != _END.encode() else ""

    def seed_places(self) -> list[str]:
        """Return the places of the crawl's seeds, in the form that `relaxed_settings.slot_of` returns."""
        if self._config_problem() or not self.config_file.exists():
            return []
        for line in self.config_file.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith(_PLACES):
                try:
                    return msgspec.json.decode(line.removeprefix(_PLACES), type=list[str])
                except UNDECODABLE:
                    return []
        return []

    def note_places(self, places: Iterable[str]) -> None:
        """Save the hosts of the seeds."""
        self.write_config(convert(self.saved_config()), places)

    def _config_tree(self) -> dict[str, Any]:
        if self.exists() and (number := self.format()) < FORMAT:
            raise DirectoryError(
                f"{self.path}: is stored in format {number}, and was not upgraded to {FORMAT}"
            )
        return self._read_tree()

    def _read_tree(self) -> dict[str, Any]:
        self._require_plain()
        if problem := self._config_problem():
            raise DamageError(
                f"{self.config_file} is {problem}, and the crawl's settings are lost; `crawler check --repair` "
                "replaces them by the defaults; then give your settings again"
            )
        return read_file(self.config_file) if self.config_file.exists() else {}

    def save_report(self, report: Mapping[str, Any]) -> None:
        atomic_write(self.report_file, msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")

    def saved_config(self) -> dict[str, Any]:
        """Return the configuration of the last run as a nested mapping; {} if there is none.

        Raises:
            DirectoryError: the directory has an earlier format, because `upgrade.ready` was not called before.
        """
        return self._with_credentials(self._config_tree())

    def former_config(self) -> dict[str, Any]:
        """Return the saved configuration of a directory of any format, with the keys of that format."""
        return self._with_credentials(self._read_tree())

    def _with_credentials(self, tree: dict[str, Any]) -> dict[str, Any]:
        try:
            add_credentials(tree, msgspec.json.decode(self.credentials_file.read_bytes()))
        except (FileNotFoundError, PermissionError):
            pass  # there are no credentials, or this user lacks permission to read them
        except (OSError, ValueError) as error:
            raise DirectoryError(f"{self.credentials_file}: cannot be read: {error}") from error
        return tree


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


def _config_text(config: Config, places: Iterable[str]) -> str:
    settings = to_toml(without_credentials(config), skip_run_keys=True)
    return "\n".join([_HEAD, settings, _PLACES + msgspec.json.encode(list(places)).decode(), _END, ""])
