"""Merges the layers of configuration values, and writes configurations as TOML.

The layers are, from the weakest to the strongest: the defaults of `schema.py`, a TOML file,
`CRAWLER_SECTION__KEY` environment variables, and flags (including `--set section.key=value`).
The source of each value is recorded for `crawler config show`.
"""

import os
import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec

from crawler.config.checks import convert
from crawler.config.key_words import fields, keys
from crawler.config.schema import Config, Override
from crawler.config.units import from_toml
from crawler.errors import ConfigError
from crawler.input_files import read_bytes

_TABLES = "override"
# Lists whose entries may contain commas. A text is one entry of such a list. For other lists, commas separate the
# entries of a text.
_WITH_COMMAS = frozenset(
    {
        "crawl.surts",
        "crawl.answers_from",
        "identity.headers",
        "override.headers",
        "override.ignore",
        "filter.include",
        "filter.exclude",
        "pages.ignore",
        "serve.websub",
    }
)


def read_file(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file as a nested mapping."""
    try:
        return _copy(_parsed(read_bytes(path).decode()))  # type: ignore[no-any-return]
    except OSError as error:
        raise ConfigError(f"configuration {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"configuration {path}: the file is not UTF-8 text") from error
    except ValueError as error:  # invalid TOML, or a number with thousands of digits
        raise ConfigError(f"configuration {path}: {error}") from error
    except RecursionError:
        raise ConfigError(f"configuration {path}: too deeply nested") from None


@lru_cache(maxsize=4)
def _parsed(text: str) -> dict[str, Any]:
    """Parse the text of a file. A command reads the settings of its crawl several times; each parse takes 2 ms."""
    return tomllib.loads(text)


def _copy(value: Any) -> Any:
    """Copy the tables and lists of a parsed file. `copy.deepcopy` takes as long as a parse."""
    if isinstance(value, dict):
        return {key: _copy(each) for key, each in value.items()}
    return [*map(_copy, value)] if isinstance(value, list) else value


def environment_settings(environ: Mapping[str, str] = os.environ) -> Iterator[tuple[str, str, str]]:
    """Yield the environment variables `CRAWLER_SECTION__KEY=value`, each as (variable, "section.key", value)."""
    for variable, value in environ.items():
        section, underscores, key = variable.removeprefix("CRAWLER_").lower().partition("__")
        if variable.startswith("CRAWLER_") and underscores:
            yield variable, f"{section}.{key}", value
        elif right := _with_two_underscores(variable):
            raise ConfigError(f"{variable}: use two underscores after the section: {right}")


def _with_two_underscores(name: str) -> str:
    """Return the correct name of a variable `CRAWLER_SECTION_KEY`; "" if it does not name a key."""
    named = keys() if name.startswith("CRAWLER_") else ()
    right = (f"CRAWLER_{key.replace('.', '__').upper()}" for key in named)
    return next((each for each in right if each.replace("__", "_") == name), "")


def _field_type(section: str, key: str) -> Any:
    """Return the type of `section.key`, without the range that an annotation adds; None if there is no such key."""
    types = {field.name: field.type for field in fields(Config)}
    if section:
        kind = Override if section == _TABLES else types.get(section)
        if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
            return None
        types = {field.name: field.type for field in fields(kind)}
    kind = types.get(key)
    if type(None) in get_args(kind):  # a key of [[override]], which need not be set
        kind = get_args(kind)[0]
    if get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    return str if get_origin(kind) is Literal else kind


def _from_text(text: str, path: str, kind: Any) -> Any:
    """Convert `text`, which is in TOML syntax, or plain if the type is text, to a value of type `kind`.

    Blanks around the text are ignored.
    """
    text = text.strip()
    if kind is str:
        return text
    if kind == tuple[str, ...]:
        return _entries(text, path)
    return from_toml(text)


def _entries(text: str, path: str) -> list[Any]:
    """Return the entries of the list at the key `path` that a text describes: a list in TOML, or plain text.

    In a list whose entries may contain commas, a text such as `[0-9]` is an entry, because it is not a list of texts.
    """
    one = path in _WITH_COMMAS
    found = from_toml(text) if text.startswith("[") else None
    if isinstance(found, list) and (not one or all(isinstance(each, str) for each in found)):
        return found
    if not text:
        return []
    return [text] if one else [part.strip() for part in text.split(",")]


def list_of_texts(path: str, texts: Iterable[str]) -> list[Any]:
    """Return the list that the values of a repeated flag give for the key `path`. An empty value stays an entry."""
    return [entry for text in texts for entry in (_entries(text.strip(), path) or [""])]


def _tables(tables: object) -> object:
    """Return `[[override]]` tables in which each text is converted to the type of its key, as in a section."""
    if not isinstance(tables, list | tuple) or not all(isinstance(table, Mapping) for table in tables):
        return tables
    return [
        {
            key: _from_text(value, f"{_TABLES}.{key}", _field_type(_TABLES, key))
            if isinstance(value, str)
            else value
            for key, value in table.items()
        }
        for table in tables
    ]


def set_key(tree: dict[str, Any], path: str, value: object) -> None:
    """Set the key "section.key" of `tree` to `value`. A value that is text is converted to the key's type."""
    section, dot, key = path.partition(".")
    if not dot:
        section, key = "", section
    if section == _TABLES:
        raise ConfigError(f"configuration: {path}: give [[override]] tables in a file of settings", path)
    if isinstance(value, str):
        value = _from_text(value, path, _field_type(section, key))
    target = tree.setdefault(section, {}) if section else tree
    if not isinstance(target, dict):
        raise ConfigError(f"configuration: {section} is not a section")
    target[key] = value


def _set_from(source: str, tree: dict[str, Any], path: str, value: object) -> None:
    """Set a key as `set_key` does. An error names the source of the value."""
    try:
        set_key(tree, path, value)
    except ConfigError as error:
        raise ConfigError(f"{source}: {str(error).removeprefix('configuration: ')}") from None


class Layers:
    """Configuration layers, the weakest first. They are merged key by key, and the source of each value is recorded."""

    def __init__(self) -> None:
        self.tree: dict[str, Any] = {}
        self._saved: dict[str, Any] = {}  # `tree` without the settings that apply only to this run
        self.sources: dict[str, str] = {}

    def add(self, source: str, tree: Mapping[str, Any]) -> None:
        """Merge the nested mapping `tree` over the existing layers."""
        for section, value in tree.items():
            if isinstance(value, Mapping):
                if not isinstance(self.tree.get(section, {}), dict):
                    raise ConfigError(f"configuration ({source}): {section} is not a section")
                for key, inner in value.items():
                    self.set(source, f"{section}.{key}", inner)
            else:
                value = _tables(value) if section == _TABLES else value
                self.tree[section] = self._saved[section] = value
                self.sources[section] = source

    def set(self, source: str, path: str, value: object) -> None:
        _set_from(source, self._saved, path, value)
        self.set_for_run(source, path, value)

    def add_environment(self, environ: Mapping[str, str] = os.environ) -> None:
        """Set the keys that environment variables name. The source of each value is its variable."""
        for variable, path, value in environment_settings(environ):
            self.set(variable, path, value)

    def set_for_run(self, source: str, path: str, value: object) -> None:
        """Set one key for this run only; `saved_config` does not have the value."""
        _set_from(source, self.tree, path, value)
        self.sources[path] = source

    def config(self) -> Config:
        """Return the configuration of all layers.

        Raises:
            ConfigError: a value is invalid; the message names the file and line, flag or variable that set it.
        """
        with self.naming():
            return convert(self.tree)

    def saved_config(self) -> Config:
        """Return the configuration that a crawl directory keeps: all layers merged, without the settings of one run."""
        return convert(self._saved)

    @contextmanager
    def naming(self) -> Iterator[None]:
        """Add the source of the value to the message of each ConfigError that is raised in the `with` block."""
        try:
            yield
        except ConfigError as error:
            if not (source := self._source(error.key)):
                raise
            where = source if (line := line_of(Path(source), error.key)) is None else f"{source}, line {line}"
            said = str(error).removeprefix("configuration: ")
            raise ConfigError(f"{where}: {said}", error.key) from None

    def _source(self, key: str) -> str:
        """Return the source of a key, of the list or table that contains it, or of the first key of a section."""
        if source := self.sources.get(key) or self.sources.get(_table_of(key)):
            return source
        return next((source for name, source in self.sources.items() if name.startswith(f"{key}.")), "")


def _table_of(key: str) -> str:
    """Return the name under which the source of a list or table is recorded: `seeds`, `override`, `identity.headers`."""
    plain = re.sub(r"\[\d+\].*", "", key)
    return "override" if plain.startswith("override") else plain


def line_of(file: Path, key: str) -> int | None:
    """Return the line number, from 1, at which a TOML file sets `key` or starts its section; None if there is none.

    `key` may also be the name of a section. `override[2].delay` is looked up in the third [[override]] table.
    """
    try:
        lines = read_bytes(file).decode().splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    section, _, name = key.rpartition(".")
    table = re.fullmatch(r"(.+?)\[(\d+)\]", section)
    wanted, number = (table[1], int(table[2])) if table else (section, -1)
    name = re.sub(r"\[\d+\]$", "", name)
    now, count, found, is_wanted = "", -1, None, not wanted
    for at, line in enumerate(lines, 1):
        if head := re.match(r"\s*\[\[?\s*([A-Za-z0-9_.-]+)\s*\]", line):
            now = head[1]
            count += now == wanted
            is_wanted = now == wanted and number in (-1, count)
            if is_wanted or now == key:
                found = found or at
        elif (is_wanted and _sets(line, name)) or (not now and _sets(line, key)):
            return at
    return found


def _sets(line: str, name: str) -> bool:
    return re.match(rf"\s*{re.escape(name)}\s*=", line) is not None


def to_toml(config: Config, *, skip: Collection[str] = ()) -> str:
    """Return the configuration as TOML, without the keys in `skip`. `read_file` reads this text back unchanged."""
    tree = msgspec.to_builtins(config, enc_hook=lambda value: value + 0)
    overrides = tree.pop("override")
    lines = [f"seeds = {_toml_value(tree.pop('seeds'))}"]
    for section, values in tree.items():
        lines += ["", f"[{section}]"]
        kept = {key: value for key, value in values.items() if f"{section}.{key}" not in skip}
        lines += [f"{key} = {_toml_value(value)}" for key, value in kept.items()]
    for override in overrides:
        lines += ["", "[[override]]"]
        lines += [f"{key} = {_toml_value(value)}" for key, value in override.items() if value is not None]
    return "\n".join(lines) + "\n"


def _toml_value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_toml_value, value)) + "]"
    # A JSON string is also a valid TOML basic string, unless it contains the character DEL.
    return msgspec.json.encode(str(value)).decode().replace("\x7f", "\\u007f")
