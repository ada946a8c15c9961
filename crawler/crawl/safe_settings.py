"""Defines the settings that may change while a crawl runs, and records such changes.

A setting is safe if every decision reads its current value, and if neither a format on disk nor another
process depends on it.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from crawler.config import Config, convert, set_key
from crawler.config.schema import RenderWhen
from crawler.config.units import shown
from crawler.crawl.directory import CrawlDirectory
from crawler.errors import UsageError
from crawler.records import UNDECODABLE
from crawler.storage.files import Lock
from crawler.wording import not_one_of, wrong_field

LIVE = (
    "politeness.delay",
    "politeness.delay_factor",
    "politeness.delay_max",
    "politeness.crawl_delay_max",
    "politeness.backoff_first",
    "politeness.backoff_max",
    "crawl.rate",
    "crawl.concurrency",
    "refresh.share",
)
# A setting that determines, for parts of the web, whether a browser renders their pages. The value is a JSON
# object {"match of an [[override]]": "never", ...}
PARTS = "override.render"
LOG_LEVEL = "log.level"  # a setting of the running processes, not a key of the configuration
LEVELS = ("debug", "info", "warning", "error")


def parse(texts: list[str]) -> dict[str, str]:
    """Parse KEY=VALUE texts: ["politeness.delay=5"] gives {"politeness.delay": "5"}.

    Raises:
        UsageError: a text is not KEY=VALUE, or a key is given twice.
    """
    settings = {}
    for text in texts:
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals or not key:
            raise UsageError(f"{shown(text)}: expected section.key=value")
        if key in settings:
            raise UsageError(f"{key} is given twice")
        settings[key] = value.strip()
    return settings


def changed(config: Config, settings: Mapping[str, str]) -> Config:
    """Return a copy of `config` in which these settings are changed.

    Raises:
        UsageError: a setting may not change while the crawl runs.
        ConfigError: a value is invalid for its key.
    """
    tree = msgspec.to_builtins(config, enc_hook=lambda value: value + 0)
    for key, value in settings.items():
        if key == PARTS:
            tree["override"] = _with_parts(tree["override"], _decoded_parts(value))
        elif key != LOG_LEVEL:
            set_key(tree, key, value)
        elif value not in LEVELS:
            raise UsageError(f"{LOG_LEVEL}: {not_one_of(shown(value), LEVELS)}")
    made = convert(tree)
    for key in settings.keys() - {LOG_LEVEL, PARTS, *LIVE}:
        known = ", ".join((*LIVE, LOG_LEVEL))
        raise UsageError(f"{key}: cannot change while the crawl runs; these can: {known}")
    return made


def _decoded_parts(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, RenderWhen])
    except UNDECODABLE as error:
        raise UsageError(f"{PARTS}: {wrong_field(str(error))}") from error


def _with_parts(tables: Iterable[Mapping[str, Any]], parts: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the `[[override]]` tables, after adding or replacing tables as `parts` demands."""
    kept = [table for table in tables if not (_is_part(table) and table["match"] in parts)]
    return kept + [{"match": match, "render": when} for match, when in parts.items()]


def _is_part(table: Mapping[str, Any]) -> bool:
    """Return whether `render` is the only setting of a table."""
    return {key for key, value in table.items() if value is not None} == {"match", "render"}


def record(directory: CrawlDirectory, settings: Mapping[str, str]) -> None:
    """Save the settings in crawl.toml, so that they apply when the crawl is continued."""
    with Lock(directory.path / "settings.lock", "set", brief=True):
        directory.settings.save(changed(directory.settings.config(), settings))


def with_live_changes(config: Config, before: Mapping[str, Any], saved: Mapping[str, Any]) -> Config:
    """Return `config` with the safe settings that changed during the run, for a process that is restarted.

    `before` is the configuration that was saved at the start of the run, and `saved` is the one that is saved
    now.
    """
    tree = msgspec.to_builtins(config, enc_hook=lambda value: value + 0)
    for path in LIVE:
        now = _value(saved, path)
        if now is not None and now != _value(before, path):
            set_key(tree, path, now)
    tables = saved.get("override", ())
    parts = {table["match"]: table["render"] for table in tables if _is_part(table)}
    tree["override"] = _with_parts(tree["override"], parts)
    return convert(tree)


def _value(saved: Mapping[str, Any], path: str) -> object:
    """Return the value of a key of a saved configuration, which an editor may have damaged; None if there is none."""
    section, _, key = path.partition(".")
    values = saved.get(section)
    return values.get(key) if isinstance(values, Mapping) else None
