"""Settings that what a crawl has stored rests on: each process keeps those that it was begun with.

With other fingerprints every URL is unknown, and pages are fetched again; with another
clock of the sites every stored instant of the refresh frontier means another one.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from crawler.config import Config
from crawler.errors import DirectoryError
from crawler.storage.keys import SETTLED
from crawler.storage.kv import KeyValue, seal
from crawler.storage.reshard import load_json


def immutable_settings(config: Config) -> dict[str, Any]:
    """The settings of `config` that a process may not change, by key; the clock of the sites once it counts."""
    held = {
        "urls.partition": config.urls.partition,
        "urls.fingerprint": config.urls.fingerprint,
        "urls.strip_session_ids": config.urls.strip_session_ids,
    }
    return held | ({"refresh.speed": float(config.refresh.speed)} if refreshes(config) else {})


def refreshes(config: Config) -> bool:
    """Whether known pages are asked again in the order of their crawl value."""
    return bool(config.refresh.share or config.refresh.endless)


def check_immutable(kept: Mapping[str, Any], config: Config) -> None:
    """Refuse a configuration under which the settings in `kept` are others.

    Raises:
        DirectoryError: one is.
    """
    for key, value in immutable_settings(config).items():
        if kept.get(key, value) != value:
            before, now = (msgspec.json.encode(each).decode() for each in (kept[key], value))
            raise DirectoryError(f"{key} is {now}, but this crawl was begun with {before} and rests on it")


def load_immutable(store: KeyValue) -> dict[str, Any]:
    """The settings that the process of `store` was begun with; none for one of before they were kept."""
    return load_json(store, SETTLED) or {}


def encode_immutable(kept: Mapping[str, Any]) -> bytes:
    """The value of `SETTLED`."""
    return seal(msgspec.json.encode(kept))


def keep_immutable(store: KeyValue, config: Config) -> None:
    """Note what a process is begun with, and what a first refresh adds.

    Raises:
        DirectoryError: it was begun with something else.
    """
    kept = load_immutable(store)
    check_immutable(kept, config)
    if immutable_settings(config).keys() <= kept.keys():
        return
    batch = store.batch(sync=True)
    batch.put(SETTLED, encode_immutable({**kept, **immutable_settings(config)}))
    store.write(batch)
