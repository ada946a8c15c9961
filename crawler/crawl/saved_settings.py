"""The settings of a crawl, as its directory keeps them: `crawl.toml`, and `credentials` for its secrets.

`crawl/README.md` states which settings belong to the crawl, and which only to one run: the keys in `RUN_KEYS`, and
values that another argument of the run implies (`Layers.set_for_run`). The settings of a run are not saved.
`crawl.toml` also names the hosts of the seeds for which the user gave looser settings (`relaxed_settings.py`).
"""

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec
from msgspec import structs

from crawler.config import Config, Layers, convert, read_file, to_toml
from crawler.config.credentials import add_credentials, credentials_of, without_credentials
from crawler.crawl.plain_files import WHOLE_BYTES_MAX
from crawler.crawl.relaxed_settings import SeedPlaces, inherited
from crawler.errors import ConfigError, DamageError, DirectoryError, UsageError, reason_of
from crawler.records import UNDECODABLE
from crawler.storage.engines import AUTO, another_engine, chosen, engine_of
from crawler.storage.files import atomic_write, rename

# limits of one run, and the ways in which it uses the answers of earlier runs
RUN_KEYS = (
    "crawl.max_pages",
    "crawl.max_time",
    "crawl.max_bytes",
    "crawl.timestamping",
    "crawl.answers_from",
)
# If the user gave looser settings for some seeds, a comment in the configuration names the hosts of these
# seeds. Because the line is a comment, it has no effect if another crawl uses this file as its configuration.
_PLACES = "# Looser settings were given for the seeds at: "
_HEAD = "# Written by crawler, up to the line that says so; `--set` and flags change it, or an editor."
_END = "# The end."


class Directory(Protocol):
    """The part of `CrawlDirectory` that the settings need."""

    path: Path

    @property
    def report_file(self) -> Path: ...
    def process(self, name: str) -> Path: ...
    def process_names(self) -> list[str]: ...
    def begun_names(self) -> set[str]: ...
    def require_plain(self) -> None: ...
    def require_format(self) -> None: ...


class SavedSettings:
    """The settings that `directory` keeps for its crawl."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory
        self.file = directory.path / "crawl.toml"
        self.credentials_file = directory.path / "credentials"

    def save(self, config: Config) -> None:
        """Save `config` as the configuration of the crawl, without `RUN_KEYS` but with the engine of the stores.

        Raises:
            DirectoryError: the existing stores use another engine.
        """
        config = self._with_engine(config)
        if found := credentials_of(config):
            atomic_write(self.credentials_file, msgspec.json.encode(found) + b"\n", mode=0o600)
        else:
            self.credentials_file.unlink(missing_ok=True)
        self.write(config, self.places())

    def files(self) -> dict[Path, bytes]:
        """Return the contents of those files that exist of `file` and `credentials_file`."""
        return {path: path.read_bytes() for path in (self.file, self.credentials_file) if path.exists()}

    def restore(self, files: Mapping[Path, bytes]) -> None:
        """Replace the saved settings by those that `files` returned earlier."""
        if self.credentials_file in files:
            atomic_write(self.credentials_file, files[self.credentials_file], mode=0o600)
        else:
            self.credentials_file.unlink(missing_ok=True)
        atomic_write(self.file, files[self.file])

    def _with_engine(self, config: Config) -> Config:
        engine = config.store.engine
        found = {
            engine_of(self._directory.process(name) / "store") for name in self._directory.process_names()
        } - {None}
        if found and engine not in (AUTO, *found):
            raise another_engine(self._directory.path, str(found.pop()), engine)
        engine = found.pop() or engine if found else chosen(engine)
        return structs.replace(config, store=structs.replace(config.store, engine=engine))

    def text(self, config: Config) -> str:
        """Return the text of crawl.toml: hosts of seeds, and the settings except credentials and `RUN_KEYS`."""
        return _config_text(config, self.places())

    def write(self, config: Config, places: Iterable[str]) -> None:
        """Write crawl.toml: the hosts of the seeds, and the settings except credentials and `RUN_KEYS`.

        Raises:
            UsageError: the file would be too long to be read again.
        """
        text = _config_text(config, places).encode()
        if len(text) > WHOLE_BYTES_MAX:
            raise UsageError(
                f"{self.file}: the settings take {len(text) >> 20:,} MiB, and at most {WHOLE_BYTES_MAX >> 20} MiB "
                "can be read again; give fewer overrides, or fewer lines with limits in the file of --seeds"
            )
        atomic_write(self.file, text)

    def renew(self) -> str:
        """Replace a lost configuration by the defaults; return what was done, or "" if the configuration is intact.

        A file that cannot be read is kept under another name, so that the user can look at it.
        """
        kept = ""
        if not self._problem():
            try:
                convert(self._read_tree())
                return ""
            except ConfigError:
                damaged = self.file.with_suffix(".damaged")
                rename(self.file, damaged)
                kept = f"; the unreadable file is kept as {damaged.name}"
        count = max(1, len(self._directory.process_names()), len(self._directory.begun_names()))
        self.write(self._with_engine(convert({"crawl": {"processes": count}})), ())
        return (
            f"{self.file.name} has the defaults; give the crawl's settings again when you continue it{kept}"
        )

    def _problem(self) -> str:
        """Return what is wrong with the configuration file, or "".

        The file may be missing as long as no run of the crawl has ended.
        """
        if not self.file.exists():
            return "missing" if self._directory.report_file.exists() else ""
        try:
            lines = self.file.read_bytes().splitlines()
        except OSError as error:
            raise DirectoryError(f"{self.file}: cannot be read: {error.strerror}") from error
        return "cut short" if lines[:1] == [_HEAD.encode()] and lines[-1] != _END.encode() else ""

    def places(self) -> list[str]:
        """Return the places of the crawl's seeds, in the form that `relaxed_settings.slot_of` returns."""
        if self._problem() or not self.file.exists():
            return []
        for line in self.file.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith(_PLACES):
                try:
                    return msgspec.json.decode(line.removeprefix(_PLACES), type=list[str])
                except UNDECODABLE:
                    return []
        return []

    def note_places(self, places: Iterable[str]) -> None:
        """Save the hosts of the seeds."""
        self.write(convert(self.load()), places)

    def _read_tree(self) -> dict[str, Any]:
        self._directory.require_plain()
        if problem := self._problem():
            raise DamageError(
                f"{self.file} is {problem}, and the crawl's settings are lost; `crawler check --repair` "
                "replaces them by the defaults; then give your settings again"
            )
        return read_file(self.file) if self.file.exists() else {}

    def config(self) -> Config:
        """Return the saved settings as a configuration; see `load`."""
        return convert(self.load())

    def load(self) -> dict[str, Any]:
        """Return the configuration of the crawl as a nested mapping; {} if there is none.

        Raises:
            DirectoryError: the directory has an earlier format, because `upgrade.ready` was not called before.
        """
        self._directory.require_format()
        return self._with_credentials(self._read_tree())

    def load_former(self) -> dict[str, Any]:
        """Return the saved configuration of a directory of any format, with the keys of that format."""
        return self._with_credentials(self._read_tree())

    def layers(self) -> Layers:
        """Return the saved settings as the weakest layer of a run; the settings that the caller gives are added to it."""
        made = Layers()
        made.add(str(self.file), self.load())
        return made

    def given(self, layers: Layers) -> set[str]:
        """Return the keys of `layers` whose values do not come from the directory."""
        return {key for key, source in layers.sources.items() if source != str(self.file)}

    def seed_places(self, config: Config, given: Collection[str]) -> SeedPlaces:
        """Return the places of the crawl's seeds.

        The relaxed settings of `config` apply to seeds at other places only if their keys are `given` again.
        """
        places = SeedPlaces(config.crawl.scope, inherited(config, given))
        places.restrict(self.places())
        return places

    def _with_credentials(self, tree: dict[str, Any]) -> dict[str, Any]:
        try:
            add_credentials(tree, msgspec.json.decode(self.credentials_file.read_bytes()))
        except (FileNotFoundError, PermissionError):
            pass  # there are no credentials, or this user lacks permission to read them
        except (OSError, ValueError) as error:
            raise DirectoryError(f"{self.credentials_file}: cannot be read: {reason_of(error)}") from error
        return tree


def _config_text(config: Config, places: Iterable[str]) -> str:
    settings = to_toml(without_credentials(config), skip=RUN_KEYS)
    return "\n".join([_HEAD, settings, _PLACES + msgspec.json.encode(list(places)).decode(), _END, ""])
