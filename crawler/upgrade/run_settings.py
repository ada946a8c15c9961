"""Step 6: the settings of a run with `--spider` end with that run, and a node derives its address in each run.

Earlier versions saved the settings of a run with `--spider` in crawl.toml, so later runs without `--spider`
stored no pages.
"""

import logging
from typing import Any

from crawler.config import convert
from crawler.config.forms import named_addresses
from crawler.crawl.directory import CrawlDirectory
from crawler.upgrade.former_settings import renewed

log = logging.getLogger("crawler")

# the waits that `--spider` implied in the versions that saved them
_SPIDER_WAITS: tuple[tuple[str, str, object], ...] = (
    ("crawl", "patience", 15.0),
    ("politeness", "backoff_first", 5.0),
    ("frontier", "retry_delays", [5.0, 10.0]),
    ("robots", "unreachable_delays", [5.0, 10.0, 300.0, 1800.0, 3600.0]),
)


def drop_run_settings(directory: CrawlDirectory) -> None:
    """Rewrite crawl.toml without the settings of one run.

    Whether the user or `--spider` chose `pages.store = "none"` was not recorded. This setting is dropped in
    both cases, because pages that are not stored are lost. A line in the log tells the user how to keep the
    setting.

    Raises:
        ConfigError: a value is invalid for its key: the file was edited.
        DamageError: the file is cut short or missing.
        StoreError: the disk failed; the old file is unchanged.
    """
    if not directory.settings.file.exists():
        return
    tree = renewed(directory.settings.load_former(), directory.settings.file.name)
    if tree.get("pages", {}).get("store") == "none":
        del tree["pages"]["store"]
        _drop_spider_waits(tree)
        log.warning(
            '%s: pages.store = "none" is dropped, because a former run with --spider may have saved it. To store no '
            "pages from now on, use --set pages.store=none once",
            directory.settings.file.name,
        )
    _drop_derived_address(tree)
    directory.settings.save(convert(tree))


def _drop_spider_waits(tree: dict[str, Any]) -> None:
    """Drop the waits of `--spider` from the settings, unless the user gave another value for one of them."""
    if all(tree.get(section, {}).get(key) == wait for section, key, wait in _SPIDER_WAITS):
        for section, key, _ in _SPIDER_WAITS:
            del tree[section][key]


def _drop_derived_address(tree: dict[str, Any]) -> None:
    """Drop the address on which a node listens if the list of peers gives the node the same address."""
    splitter = tree.get("splitter", {})
    own = named_addresses(splitter.get("peers", ())).get(splitter.get("name", ""))
    if own is not None and splitter.get("listen") == f"{own[0]}:{own[1]}":
        del splitter["listen"]
