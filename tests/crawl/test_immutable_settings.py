"""Test the settings that must not change, because stored data depends on them."""

from typing import Any

import pytest

from crawler.config import Config, convert
from crawler.crawl.immutable_settings import (
    check_immutable,
    immutable_settings,
    keep_immutable,
    load_immutable,
)
from crawler.errors import DirectoryError
from crawler.storage.kv import MemoryStore


def config_of(key: str, value: Any, **refresh: Any) -> Config:
    section, _, name = key.partition(".")
    tables: dict[str, dict[str, Any]] = {"refresh": refresh}
    tables.setdefault(section, {})[name] = value
    return convert(tables)


@pytest.mark.parametrize(
    ("key", "value"),
    [("urls.partition", "host"), ("urls.fingerprint", "blake2b"), ("urls.strip_session_ids", False)],
)
def test_a_process_keeps_its_first_settings(key: str, value: Any) -> None:
    store = MemoryStore()
    for _ in range(2):
        keep_immutable(store, Config())
    with pytest.raises(DirectoryError) as raised:
        keep_immutable(store, config_of(key, value))
    assert str(raised.value).startswith(f"{key} is ")
    assert load_immutable(store) == immutable_settings(Config())
    keep_immutable(MemoryStore(), config_of(key, value))


def test_the_refresh_speed_is_fixed_by_the_first_refresh() -> None:
    store = MemoryStore()
    keep_immutable(store, config_of("refresh.speed", 5))
    keep_immutable(store, Config())
    for _ in range(2):
        keep_immutable(store, config_of("refresh.speed", 60, share=0.2))
    for share in (0.2, 0.4):
        with pytest.raises(DirectoryError, match=r"refresh\.speed is 1\.0, but .* with 60\.0"):
            keep_immutable(store, config_of("refresh.speed", 1, share=share))
    keep_immutable(store, Config())


def test_stores_without_saved_settings_are_accepted() -> None:
    check_immutable({}, Config())
    check_immutable({"of.another.version": 1}, Config())
