"""Checks that are made before a crawl starts. `crawler config check` makes the same checks for a configuration file.

`config/checks.py` checks every value when the configuration is read. The checks here concern things outside
of the configuration, such as files that it names and packages that it needs.
"""

import resource
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from crawler.config import Config
from crawler.config.checks import check_values
from crawler.errors import ConfigError, StoreError, UsageError, bad_setting
from crawler.fetcher.connector import check_proxy
from crawler.fetcher.cookies import load_cookies
from crawler.fetcher.fetchers import FETCHERS, named_fetchers
from crawler.frontier.refresh.importance import read_values
from crawler.signing.key_file import OFF, key_path, read_keys
from crawler.splitter.partition import Partition
from crawler.splitter.peers import tls_contexts
from crawler.splitter.secret import read_secret
from crawler.storage.engines import chosen
from crawler.storage.object_store import ObjectStore
from crawler.threads_needed import check_threads

# Descriptors of a process for logs, WARC segments, runs, pipes, listeners and peers. A crawl of 600 pages used 30.
_OTHER_DESCRIPTORS = 96

HOOK_GROUPS = {
    "url_filter": "crawler.filters",
    "link_extractor": "crawler.extractors",
    "page_sink": "crawler.sinks",
}


def check_start(config: Config, directory: Path | None = None) -> None:
    """Check that a crawl can start with this configuration and, if `directory` is given, in this directory.

    Raises:
        ConfigError: a value is meaningless, or it names something that does not exist or cannot be read.
        StoreError: the system allows too few open files or threads for a crawl in `directory`.
    """
    check_values(config)
    named_fetchers(FETCHERS, config)
    for key, use in _OUTSIDE:
        if value := _value(config, key):
            _try(key, use, value)
    if directory is not None:
        _check_descriptors(config)
        check_threads()
        if config.identity.signature != OFF:
            read_keys(key_path(config, directory))
    splitter = config.splitter
    if splitter.tls_certificate:
        _try("splitter.tls_certificate", tls_contexts, splitter)
    for name, group in HOOK_GROUPS.items():
        if hook := getattr(config.hooks, name):
            _try(f"hooks.{name}", partial(find_entry_point, group), hook)


def _check_descriptors(config: Config) -> None:
    """Check that each process may open the files that it needs, because a crawl cannot go on without descriptors."""
    needed = _OTHER_DESCRIPTORS + config.store.tables_max + config.crawl.concurrency
    needed += needed // 3  # idle connections get a quarter of all descriptors (`fetcher/client.py`)
    _, allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed not in (resource.RLIM_INFINITY, -1) and allowed < needed:
        raise StoreError(
            f"a process may open only {allowed:,} files (ulimit -n), but crawl.concurrency = "
            f"{config.crawl.concurrency:,} needs {needed:,}; raise the limit, or lower crawl.concurrency"
        )


def find_entry_point(group: str, name: str) -> Any:
    """Return the entry point that an installed package provides as `name` in `group`.

    Raises:
        ConfigError: no installed package provides this entry point.
    """
    from importlib import metadata  # imported only here because the import is slow and rarely needed

    found = metadata.entry_points(group=group, name=name)
    if not found:
        raise ConfigError(f"no entry point {name!r} in group {group!r} is installed")
    return next(iter(found))


def _try(key: str, use: Callable[[Any], object], value: Any) -> None:
    try:
        use(value)
    except UsageError as error:
        if isinstance(error, ConfigError) and error.key:
            raise
        raise bad_setting(key, str(error).removeprefix(key).lstrip(" :")) from error


def _value(config: Config, path: str) -> Any:
    section, _, name = path.partition(".")
    return getattr(getattr(config, section), name)


# Pairs: a key, and the first function to which a crawl passes the value of this key.
_OUTSIDE: tuple[tuple[str, Callable[[Any], object]], ...] = (
    ("fetch.proxy", check_proxy),
    ("fetch.cookies_file", lambda path: load_cookies(path, now=0.0)),
    ("identity.key_file", lambda path: read_keys(Path(path))),
    ("refresh.importance_file", lambda path: read_values(path, hash)),
    ("splitter.secret_file", lambda path: read_secret(Path(path))),
    ("splitter.table_file", lambda path: Partition.read(Path(path))),
    ("store.engine", chosen),
    ("pages.ship", ObjectStore),
)
