"""Steps 1 and 7: store settings under their current names.

A renamed key keeps its value. A removed key is dropped, and a line in the log names its replacement. So a
crawl continues under the settings with which it started, and configuration files of earlier versions can be
read.
"""

import copy
import logging
from collections.abc import Mapping
from typing import Any

from crawler.config import convert
from crawler.crawl.directory import CrawlDirectory
from crawler.urls.canonical import LENGTH_MAX, canonical

log = logging.getLogger("crawler")

RENAMED: Mapping[str, str] = {}
# crawl.toml stores every setting. Without this table, a harmful default of an earlier version would stay in
# force.
FORMER_DEFAULTS: Mapping[str, object] = {"refresh.clock_min": 604_800.0}
DROPPED: Mapping[str, str] = {
    "fetch.content_codings_max": "at most two content codings are undone",
    "due.method": "the known URLs are always in sorted runs on disk",
    "fetch.large_body_bytes": "fetch.held_bytes_max bounds all bodies together",
    "fetch.large_bodies_max": "fetch.held_bytes_max bounds all bodies together",
    "hooks.sink_errors": "`on_error` of the Python API decides the effect of an error",
}
# key -> the largest value that is still allowed
LARGEST: Mapping[str, int] = {"urls.length_max": LENGTH_MAX}
# removed key -> the value whose effect is now always in force; if a file has this value, nothing is logged
STILL_TRUE: Mapping[str, object] = {"due.method": "runs", "fetch.content_codings_max": 2}


def renewed(tree: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return nested settings with current keys, and with values that are not above the limits in `LARGEST`.

    For each removed key, a line is logged, which names the file `where`. No line is logged if the key has the
    value in `STILL_TRUE`.
    """
    made = copy.deepcopy(dict(tree))
    for former, now in RENAMED.items():
        if (value := _taken(made, former)) is not None:
            section, _, key = now.partition(".")
            made.setdefault(section, {}).setdefault(key, value)
    for former, instead in DROPPED.items():
        value = _taken(made, former)
        if value is not None and value != STILL_TRUE.get(former):
            log.warning("%s: the setting %s was removed and is ignored: %s", where, former, instead)
    for path, largest in LARGEST.items():
        section, _, key = path.partition(".")
        value = made.get(section, {}).get(key)
        if isinstance(value, int) and value > largest:
            log.warning("%s: %s is %s, but at most %s is allowed; it is lowered", where, path, value, largest)
            made[section][key] = largest
    return made


def _without_bad_seeds(tree: dict[str, Any], where: str) -> dict[str, Any]:
    """Return the settings without those seeds that are not URLs.

    Earlier versions accepted such seeds and then skipped them.
    """
    seeds = [url for url in tree.get("seeds", ()) if canonical(url) is not None]
    for url in set(tree.get("seeds", ())) - set(seeds):
        log.warning("%s: seeds: %r is not an http(s) URL and is ignored", where, url)
    return tree | {"seeds": seeds}


def _taken(tree: dict[str, Any], path: str) -> Any:
    """Remove the value at `section.key` from the tree and return it; None if it is missing."""
    section, _, key = path.partition(".")
    values = tree.get(section)
    return values.pop(key, None) if isinstance(values, dict) else None


def renew_settings(directory: CrawlDirectory) -> None:
    """Rewrite crawl.toml with current keys.

    Raises:
        ConfigError: a value is invalid for its key: the file was edited.
        DamageError: the file is cut short or missing.
        StoreError: the disk failed; the old file is unchanged.
    """
    if directory.settings.file.exists():
        name = directory.settings.file.name
        tree = renewed(directory.settings.load_former(), name)
        for path, former in FORMER_DEFAULTS.items():
            if (value := _taken(tree, path)) is not None and value != former:
                section, _, key = path.partition(".")
                tree[section][key] = value
        directory.settings.save(convert(_without_bad_seeds(tree, name)))


def renew_later_settings(directory: CrawlDirectory) -> None:
    """Rewrite crawl.toml without the keys that were removed after step 1, and with lowered values.

    Raises:
        ConfigError: a value is invalid for its key: the file was edited.
        DamageError: the file is cut short or missing.
        StoreError: the disk failed; the old file is unchanged.
    """
    if directory.settings.file.exists():
        tree = renewed(directory.settings.load_former(), directory.settings.file.name)
        directory.settings.save(convert(tree))
