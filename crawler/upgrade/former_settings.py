"""Steps 1 and 6 to 9: store settings under their current names.

A removed key is dropped, and a line in the log names its replacement. So a crawl continues under the settings
with which it started, and configuration files of earlier versions can be read.
"""

import copy
import logging
from collections.abc import Callable, Mapping
from typing import Any

from crawler.config import convert
from crawler.config.forms import named_addresses
from crawler.crawl.directory import CrawlDirectory
from crawler.errors import ConfigError
from crawler.urls.canonical import LENGTH_MAX, canonical

log = logging.getLogger("crawler")

DROPPED: Mapping[str, str] = {
    "fetch.content_codings_max": "at most two content codings are undone",
    "due.method": "the known URLs are always in sorted runs on disk",
    "fetch.large_body_bytes": "fetch.held_bytes_max bounds all bodies together",
    "fetch.large_bodies_max": "fetch.held_bytes_max bounds all bodies together",
    "hooks.sink_errors": "`on_error` of the Python API decides the effect of an error",
}
# removed key -> the value whose effect is now always in force; if a file has this value, nothing is logged
STILL_TRUE: Mapping[str, object] = {"due.method": "runs", "fetch.content_codings_max": 2}
# key -> the largest value that is still allowed
LARGEST: Mapping[str, int] = {"urls.length_max": LENGTH_MAX}
# crawl.toml stores every setting. Without this table, a harmful default of an earlier version would stay in
# force.
_FORMER_DEFAULTS: Mapping[str, object] = {"refresh.clock_min": 604_800.0}
# the waits that `--spider` implied in the versions that saved them
_SPIDER_WAITS: Mapping[str, object] = {
    "crawl.patience": 15.0,
    "politeness.backoff_first": 5.0,
    "frontier.retry_delays": [5.0, 10.0],
    "robots.unreachable_delays": [5.0, 10.0, 300.0, 1800.0, 3600.0],
}


def renewed(tree: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Return nested settings with current keys, and with values that are not above the limits in `LARGEST`.

    For each removed key, a line is logged, which names the file `where`. No line is logged if the key has the
    value in `STILL_TRUE`.
    """
    made = copy.deepcopy(dict(tree))
    for key, instead in DROPPED.items():
        value = _value(made, key)
        if value is not None and value != STILL_TRUE.get(key):
            log.warning("%s: the setting %s was removed and is ignored: %s", where, key, instead)
        _drop(made, key)
    for key, largest in LARGEST.items():
        value = _value(made, key)
        if isinstance(value, int) and value > largest:
            log.warning("%s: %s is %s, but at most %s is allowed; it is lowered", where, key, value, largest)
            section, _, name = key.partition(".")
            made[section][name] = largest
    return made


def _drop_refused_zeros(tree: dict[str, Any], where: str) -> None:
    """Drop stored limits of 0, which earlier versions accepted although nothing was crawled with them."""
    for section, values in tree.items():
        for name, value in list(values.items()) if isinstance(values, dict) else ():
            if isinstance(value, int | float) and value == 0:
                try:
                    convert({section: {name: value}})
                except ConfigError:
                    del values[name]
                    log.warning(
                        "%s: %s.%s = 0 is ignored, because nothing would be crawled; the default is used",
                        where, section, name,
                    )  # fmt: skip


def _value(tree: Mapping[str, Any], key: str) -> Any:
    """Return the value at `section.name`; None if it is missing."""
    section, _, name = key.partition(".")
    values = tree.get(section)
    return values.get(name) if isinstance(values, dict) else None


def _drop(tree: Mapping[str, Any], key: str) -> None:
    if _value(tree, key) is not None:
        section, _, name = key.partition(".")
        del tree[section][name]


def renew_settings(
    directory: CrawlDirectory, change: Callable[[dict[str, Any], str], None] = lambda tree, where: None
) -> None:
    """Rewrite crawl.toml as `renewed` does, without limits of 0. `change(tree, where)` changes further settings.

    Raises:
        ConfigError: a value is invalid for its key: the file was edited.
        DamageError: the file is cut short or missing.
        StoreError: the disk failed; the old file is unchanged.
    """
    file = directory.settings.file
    if file.exists():
        tree = renewed(directory.settings.load_former(), file.name)
        _drop_refused_zeros(tree, file.name)
        change(tree, file.name)
        directory.settings.save(convert(tree))


def drop_former_defaults(tree: dict[str, Any], where: str) -> None:
    """Drop harmful defaults of earlier versions, and seeds that are not URLs, which earlier versions skipped."""
    for key, former in _FORMER_DEFAULTS.items():
        if _value(tree, key) == former:
            _drop(tree, key)
    seeds = tree.get("seeds", ())
    tree["seeds"] = [url for url in seeds if canonical(url) is not None]
    for url in set(seeds) - set(tree["seeds"]):
        log.warning("%s: seeds: %r is not an http(s) URL and is ignored", where, url)


def drop_former_share(tree: dict[str, Any], where: str) -> None:
    """Drop the share 0 of known pages, which was the default, and had the effect of the present default."""
    if _value(tree, "refresh.share") == 0:
        _drop(tree, "refresh.share")


def drop_run_settings(tree: dict[str, Any], where: str) -> None:
    """Drop the settings of a run with `--spider`, and the address that a node derived from its list of peers.

    Earlier versions saved these settings, so later runs without `--spider` stored no pages. Whether the user or
    `--spider` chose `pages.store = "none"` was not recorded. This setting is dropped in both cases, because pages
    that are not stored are lost. A line in the log tells the user how to keep the setting.
    """
    if _value(tree, "pages.store") == "none":
        _drop(tree, "pages.store")
        # if the user gave another value for one of the waits, `--spider` chose none of them
        if all(_value(tree, key) == wait for key, wait in _SPIDER_WAITS.items()):
            for key in _SPIDER_WAITS:
                _drop(tree, key)
        log.warning(
            '%s: pages.store = "none" is dropped, because a former run with --spider may have saved it. To store no '
            "pages from now on, use --set pages.store=none once",
            where,
        )
    splitter = tree.get("splitter", {})
    own = named_addresses(splitter.get("peers", ())).get(splitter.get("name", ""))
    if own is not None and splitter.get("listen") == f"{own[0]}:{own[1]}":
        del splitter["listen"]
