"""Step 1: settings under the names that they have now.

A key that is renamed keeps its value; one that is gone is dropped, with a line in the
log that says what stands in for it. So a crawl goes on under what it was begun with,
and a configuration file of an earlier version is read.
"""

import copy
import logging
from collections.abc import Mapping
from typing import Any

from crawler.config import convert
from crawler.crawl.directory import CrawlDirectory
from crawler.urls.canonical import canonical

log = logging.getLogger("crawler")

RENAMED: Mapping[str, str] = {}
# crawl.toml holds every setting, so a default that did harm would stay with the crawl.
FORMER_DEFAULTS: Mapping[str, object] = {"refresh.clock_min": 604_800.0}
DROPPED: Mapping[str, str] = {
    "fetch.large_body_bytes": "fetch.held_bytes_max bounds all bodies together",
    "fetch.large_bodies_max": "fetch.held_bytes_max bounds all bodies together",
    "hooks.sink_errors": "`on_error` of the Python API says what an error does",
}


def renewed(tree: Mapping[str, Any], where: str) -> dict[str, Any]:
    """A nested mapping of settings with the present keys; a line of the log for each that is gone from `where`."""
    made = copy.deepcopy(dict(tree))
    for former, now in RENAMED.items():
        if (value := _taken(made, former)) is not None:
            section, _, key = now.partition(".")
            made.setdefault(section, {}).setdefault(key, value)
    for former, instead in DROPPED.items():
        if _taken(made, former) is not None:
            log.warning("%s: %s is no setting any more and is left out: %s", where, former, instead)
    return made


def _without_bad_seeds(tree: dict[str, Any], where: str) -> dict[str, Any]:
    """A crawl could begin with seeds that are no URLs, and passed them over."""
    seeds = [url for url in tree.get("seeds", ()) if canonical(url) is not None]
    for url in set(tree.get("seeds", ())) - set(seeds):
        log.warning("%s: seeds: %r is no http(s) URL and is left out", where, url)
    return tree | {"seeds": seeds}


def _taken(tree: dict[str, Any], path: str) -> Any:
    """Take the value at `section.key` out of the tree; None if it is not there."""
    section, _, key = path.partition(".")
    values = tree.get(section)
    return values.pop(key, None) if isinstance(values, dict) else None


def renew_settings(directory: CrawlDirectory) -> None:
    """Write crawl.toml anew.

    Raises:
        ConfigError: a value is none of its key: somebody has edited the file.
        DamageError: the file is cut short or missing.
        StoreError: the disk failed; the old file is still there.
    """
    if directory.config_file.exists():
        name = directory.config_file.name
        tree = renewed(directory.former_config(), name)
        for path, former in FORMER_DEFAULTS.items():
            if (value := _taken(tree, path)) is not None and value != former:
                section, _, key = path.partition(".")
                tree[section][key] = value
        directory.save_config(convert(_without_bad_seeds(tree, name)))
