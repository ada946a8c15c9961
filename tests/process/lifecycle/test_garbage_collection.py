"""Test the settings of the garbage collector during crawls."""

import asyncio
import gc
import resource
import weakref
from collections.abc import Iterator
from pathlib import Path

import pytest

from crawler.process.lifecycle import garbage_collection
from crawler.process.opening.environment import Environment


class Cycle:
    def __init__(self) -> None:
        self.me = self


FREEZE, UNFREEZE = gc.freeze, gc.unfreeze  # the real functions, before `tests/conftest.py` replaces them


@pytest.fixture(autouse=True)
def as_before(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Use the real functions of `gc` in the test; afterwards, restore the settings of the collector."""
    monkeypatch.setattr(gc, "freeze", FREEZE)
    monkeypatch.setattr(gc, "unfreeze", UNFREEZE)
    gc.unfreeze()
    thresholds, callbacks = gc.get_threshold(), list(gc.callbacks)
    assert garbage_collection._freeze_survivors not in callbacks, "an earlier test did not end its crawl"
    yield
    gc.set_threshold(*thresholds)
    gc.callbacks[:] = callbacks
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def test_each_collection_looks_at_what_came_since_the_last_full_one() -> None:
    """Objects that survived a full collection are not examined again, so the size of the crawl does not matter."""
    garbage_collection.collect_rarely()
    garbage_collection.freeze()
    garbage_collection.freeze()
    looked_at: list[int] = []

    def note(phase: str, collection: dict[str, int]) -> None:
        if phase == "start" and collection["generation"] == 2:
            looked_at.append(len(gc.get_objects()))

    gc.callbacks.append(note)
    kept = [[number] for number in range(600_000)]
    assert len(looked_at) >= 4 and max(looked_at) < 150_000, looked_at
    assert gc.get_freeze_count() > len(kept) // 2


def test_cycles_that_die_young_are_freed() -> None:
    """During a crawl, short-lived cycles are still freed without an explicit collection."""
    garbage_collection.collect_rarely()
    garbage_collection.freeze()
    dead = weakref.ref(Cycle())
    kept = [[number] for number in range(100_000)]
    assert dead() is None and kept


def test_after_the_last_crawl_the_collector_is_restored() -> None:
    """A crawl may run inside a program of a user. The cycles of that program must be freed again after the crawl."""
    callbacks = list(gc.callbacks)
    garbage_collection.freeze()
    garbage_collection.freeze()
    cycle = Cycle()
    dead = weakref.ref(cycle)
    gc.collect()
    del cycle
    garbage_collection.thaw()
    gc.collect()
    assert dead() is not None, "another crawl is still running"
    garbage_collection.thaw()
    gc.collect()
    assert dead() is None and gc.get_freeze_count() == 0 and gc.callbacks == callbacks


def test_a_command_that_imports_nothing_exempts_no_garbage() -> None:
    """A program that runs many commands would otherwise keep the garbage of each command."""
    dead = weakref.ref(Cycle())
    with garbage_collection.uncollected():
        assert not gc.isenabled()
    gc.collect()
    assert dead() is None and gc.get_freeze_count() == 0 and gc.isenabled()


def test_holes_in_the_heap_are_given_back() -> None:
    """Long-lived objects between freed objects prevent the heap from shrinking by itself."""
    rows = [bytearray(1000 + number % 7) for number in range(40_000)]
    spread = rows[::16]
    rows.clear()
    held = _resident()
    garbage_collection.give_back()
    assert held - _resident() > 10 << 20
    assert len(spread) == 2500


def _resident() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


async def test_a_crawl_gives_memory_back_periodically(monkeypatch: pytest.MonkeyPatch) -> None:
    given = 0

    def give_back() -> None:
        nonlocal given
        given += 1

    monkeypatch.setattr(garbage_collection, "GIVE_BACK_INTERVAL", 0.0)
    monkeypatch.setattr(garbage_collection, "give_back", give_back)
    task = asyncio.create_task(Environment().keep_heap_small())
    async with asyncio.timeout(10.0):  # the test fails if memory is never returned
        while given < 3:
            await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
