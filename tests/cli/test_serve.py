"""Test that `crawler serve` answers requests without long pauses, also during a withdrawal."""

import gc
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from crawler.cli import serve
from crawler.config import convert
from crawler.crawl.directory import CrawlDirectory
from crawler.pages.captures import record_key
from crawler.process.lifecycle.garbage_collection import _freeze_survivors
from crawler.storage.commit import Change
from tests.process.opening.test_stages import URL, fetched, opened


def test_collections_are_short_and_ignore_survivors_while_pages_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full collection of all cached answers blocks requests for 90 ms."""
    directory, seen = CrawlDirectory(tmp_path), []
    directory.create(bytes(16))
    directory.settings.save(convert({}))
    opened(tmp_path).close()
    thresholds = gc.get_threshold()

    async def served(*_: Any) -> None:
        seen.append((_freeze_survivors in gc.callbacks, gc.get_threshold()))

    monkeypatch.setattr(serve, "_serve", served)
    try:
        assert serve.main("serve", ["--dir", str(tmp_path), "--quiet", "127.0.0.1:0"]) == 0
    finally:
        gc.set_threshold(*thresholds)
    assert seen == [(True, (2_000, 2, 2))] and _freeze_survivors not in gc.callbacks


async def test_another_thread_writes_the_changes_of_a_withdrawal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer of a step is sent when its changes are durable, but no request waits for the disk meanwhile."""
    stages, threads = opened(tmp_path), []
    fingerprint = fetched(stages, URL)
    write = stages.point.write

    def noted(group: Sequence[Change]) -> None:
        threads.append(threading.current_thread() is threading.main_thread())
        write(group)

    monkeypatch.setattr(stages.point, "write", noted)
    answer = serve._controls(CrawlDirectory(tmp_path), {"p0": stages})[0]._handler
    rule = {"at": 1.0, "prefix": URL.partition("//")[2]}
    begin: dict[str, str] = {}
    while True:
        request = {"command": "withdraw", "step": "erase", "rule": rule, "begin": begin, "entries": 20_000}
        found = await answer(request)
        assert not len(stages.point)
        begin = {"p0": found["next"]}
        if not found["next"]:
            break
    assert stages.store.get(record_key(fingerprint)) is None
    assert threads and not any(threads)
    stages.close()
