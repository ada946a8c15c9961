"""The settings on which stored data depends. Each process keeps the values with which it was created.

If a setting changed the fingerprints, every URL would count as unknown and every page would be fetched again.
If a setting changed the speed of the refresh clock, every stored instant of the refresh frontier would shift.
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
    """Return the settings that a process must not change, by key.

    `refresh.speed` is one of these settings only if known pages are fetched again.
    """
    held = {
        "urls.partition": config.urls.partition,
        "urls.fingerprint": config.urls.fingerprint,
        "urls.strip_session_ids": config.urls.strip_session_ids,
    }
    return held | ({"refresh.speed": float(config.refresh.speed)} if refreshes(config) else {})


def refreshes(config: Config) -> bool:
    """Return whether known pages are fetched again. The page with the highest crawl value is fetched first."""
    return bool(config.refresh.fetch_share or config.refresh.endless)


def check_immutable(kept: Mapping[str, Any], config: Config) -> None:
    """Check that the configuration has the settings in `kept`.

    Raises:
        DirectoryError: a setting differs.
    """
    for key, value in immutable_settings(config).items():
        if kept.get(key, value) != value:
            before, now = (msgspec.json.encode(each).decode() for each in (kept[key], value))
            raise DirectoryError(
                f"{key} is {now}, but this crawl was started with {before}, and it cannot change"
            )


def load_immutable(store: KeyValue) -> dict[str, Any]:
    """Return the settings with which the process of `store` was created; {} if they were not recorded then."""
    return load_json(store, SETTLED) or {}


def encode_immutable(kept: Mapping[str, Any]) -> bytes:
    """Return the value to store under the key `SETTLED`."""
    return seal(msgspec.json.encode(kept))


def keep_immutable(store: KeyValue, config: Config) -> None:
    """Record the settings with which a process is created, and the settings that become immutable at its first refresh.

    Raises:
        DirectoryError: the process was created with different settings.
    """
    kept = load_immutable(store)
    check_immutable(kept, config)
    if immutable_settings(config).keys() <= kept.keys():
        return
    batch = store.batch(sync=True)
    batch.put(SETTLED, encode_immutable({**kept, **immutable_settings(config)}))
    store.write(batch)
