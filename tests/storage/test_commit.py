"""Test commits: one batch makes a group valid, nothing is acknowledged before that batch, and groups keep their order."""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from threading import Timer
from typing import Any

import pytest

from crawler.errors import StoreError
from crawler.records import Link
from crawler.storage.commit import Change, CommitPoint, Making, load_counters
from crawler.storage.kv import MemoryStore


class Recorder:
    """Replaces the page cache and the DUE, and records every step in one list."""

    def __init__(self, name: str, steps: list[str]) -> None:
        self.name = name
        self.steps = steps

    def write(self, items: Sequence[Any]) -> int:
        self.steps.append(f"{self.name} write {list(items)}")
        return 0

    def append(self, links: Sequence[Link]) -> None:
        self.steps.append(f"{self.name} append {[link.url for link in links]}")

    def sync(self) -> None:
        self.steps.append(f"{self.name} sync")

    def stage(self, batch: Any) -> None:
        self.steps.append(f"{self.name} stage")
        batch.put(self.name.encode(), b"")

    def committed(self) -> None:
        self.steps.append(f"{self.name} committed")


class Store(MemoryStore):
    def __init__(self, steps: list[str]) -> None:
        super().__init__(keep_durable=True)
        self.steps = steps
        self.full = False

    def write(self, batch: Any) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        self.steps.append("batch")
        super().write(batch)


def make(group_entries_max: int = 10, sync: bool = True) -> tuple[CommitPoint, Store, list[str]]:
    steps: list[str] = []
    store = Store(steps)
    point = CommitPoint(
        store,
        pages=Recorder("pages", steps),
        due=Recorder("due", steps),
        group_entries_max=group_entries_max,
        sync=sync,
    )
    return point, store, steps


def change(name: str, steps: list[str]) -> Change:
    made = Change()
    made.captures.append(name)
    made.links.append(Link(1, name))
    made.put(name.encode(), b"1")
    made.count("pages.fetched")
    made.after.append(lambda: steps.append(f"after {name}"))
    return made


def test_files_are_synced_before_the_batch_and_acknowledged_after_it() -> None:
    point, store, steps = make()
    for name in "ab":
        point.add(change(name, steps))
    group = point.take()
    point.write(group)
    point.committed(group)
    assert steps == [
        "pages write ['a', 'b']",
        "due append ['a', 'b']",
        "due sync",
        "pages stage",
        "due stage",
        "batch",
        "pages committed",
        "due committed",
        "after a",
        "after b",
    ]
    assert {b"a", b"b", b"pages", b"due"} <= store.durable.keys()
    assert load_counters(store) == {"pages.fetched": 2}


def test_groups_are_bounded_and_first_in_first_out() -> None:
    point, _, steps = make(group_entries_max=2)
    for name in "abcde":
        point.add(change(name, steps))
    taken = [[made.captures[0] for made in point.take()] for _ in range(4)]
    assert taken == [["a", "b"], ["c", "d"], ["e"], []]


def test_functions_that_make_changes_run_in_queue_order() -> None:
    """The functions run in queue order. No function runs before its group is taken or `make` is called."""
    point, _, steps = make(group_entries_max=2)
    made: list[str] = []

    def maker(name: str) -> Callable[[], Change]:
        def make_change() -> Change:
            made.append(name)
            return change(name, steps)

        return make_change

    point.add(maker("a"))
    point.add(change("b", steps))
    point.add(maker("c"))
    assert made == []
    assert [taken.captures[0] for taken in point.take()] == ["a", "b"]
    assert made == ["a"]
    point.add(maker("d"))
    point.make()
    assert made == ["a", "c", "d"]
    assert [taken.captures[0] for taken in point.take()] == ["c", "d"]
    assert made == ["a", "c", "d"]


def test_counters_continue_after_reopening() -> None:
    point, store, steps = make()
    point.add(change("a", steps))
    point.write(point.take())
    again = CommitPoint(store, pages=Recorder("p", []), due=Recorder("d", []), group_entries_max=1, sync=True)
    assert again.counters == {"pages.fetched": 1}


def test_a_failed_write_acknowledges_nothing() -> None:
    point, store, steps = make()
    store.full = True
    point.add(change("a", steps))
    with pytest.raises(StoreError, match="No space left"):
        point.write(point.take())
    assert store.durable == {}
    assert not any(step.startswith("after") for step in steps)


def test_later_operations_of_a_change_win() -> None:
    point, store, _ = make()
    made = Change()
    made.put(b"k", b"1")
    made.delete(b"k")
    made.put(b"k", b"2")
    made.put(b"gone", b"1")
    made.delete(b"gone")
    point.add(made)
    point.write(point.take())
    assert store.get(b"k") == b"2"
    assert store.get(b"gone") is None


def test_a_group_writes_each_key_once_with_the_value_of_the_last_change() -> None:
    """A key may be put and deleted by several changes; only the last operation of the group is written."""
    point, store, _ = make()
    written: list[tuple[bytes, bytes | None]] = []
    write = store.write
    store.write = lambda batch: (written.extend(batch.operations), write(batch))[1]  # type: ignore[method-assign]
    for operations in (
        {b"host": b"1", b"back": None, b"gone": b"1"},
        {b"host": b"2", b"back": b"2", b"gone": None},
        {b"other": b"3"},
    ):
        each = Change()
        each.operations.extend(operations.items())
        point.add(each)
    point.write(point.take())
    assert [item for item in written if item[0] in (b"host", b"back", b"gone", b"other")] == [
        (b"host", b"2"),
        (b"back", b"2"),
        (b"gone", None),
        (b"other", b"3"),
    ]
    assert (store.get(b"host"), store.get(b"back"), store.get(b"gone")) == (b"2", b"2", None)


def test_a_change_made_in_steps_keeps_its_place_in_the_queue() -> None:
    """Changes that are queued while another change pauses never overtake that change.

    A group contains only complete changes.
    """
    point, _, _ = make(group_entries_max=2)
    seen: list[str] = []

    def made_by(name: str, pauses: int) -> Callable[[], Making]:
        def making() -> Making:
            for n in range(pauses):
                seen.append(f"{name}{n}")
                yield
            seen.append(name)
            return change(name, [])

        return making

    point.add(made_by("a", 2))
    point.add(made_by("b", 1))
    assert point.step() and seen == ["a0"] and len(point) == 2
    point.add(change("c", []))
    assert point.step() and point.step() and seen == ["a0", "a1", "a"]
    assert len(point.take()) == 2 and seen == ["a0", "a1", "a", "b0", "b"]
    assert len(point) == 1 and point.step() and not point.step()
    assert len(point.take()) == 1 and point.take() == []


def test_heavy_changes_run_last_and_one_at_a_time() -> None:
    """Light changes do not wait for heavy ones. Neither `make()` nor `step(heavy=False)` starts a heavy change."""
    point, _, _ = make(group_entries_max=9)
    seen: list[str] = []

    def made_by(name: str, pauses: int = 0) -> Callable[[], Making]:
        def making() -> Making:
            for _ in range(pauses):
                yield
            seen.append(name)
            return change(name, [])

        return making

    for name in ("long 1", "long 2", "long 3"):
        point.add_heavy(made_by(name, 2))
    point.add(made_by("short 1"))
    assert (len(point), point.light, point.unmade, point.unmade_light) == (4, 1, 4, 1)
    assert point.step() and point.step() and seen == ["short 1"]
    point.add(made_by("short 2"))
    while point.step(heavy=False):
        pass
    assert seen == ["short 1", "long 1", "short 2"]
    point.make()
    assert len(seen) == 3 and len(point) == 5
    assert [len(made.captures) for made in point.take_made()] == [1, 1, 1]
    assert point.step() and len(list(point.making())) == 2 and seen[3:] == ["long 2"]
    point.drop_heavy()
    assert (len(point), point.unmade) == (1, 0) and not point.step()


@pytest.mark.parametrize("left", [0.0, 60.0])
def test_a_change_that_waits_for_a_thread_goes_on_when_its_wait_is_over(left: float) -> None:
    """`wait` shows the wait to the commit loop. A caller without a loop blocks in `step` until the wait is over."""

    class Waiting:
        def __init__(self) -> None:
            self.ended: Future[None] = Future()

        def left(self) -> float:
            """End the wait as soon as somebody waits."""
            if left:
                Timer(0.0, self.ended.set_result, [None]).start()
            return left

    point, _, _ = make(group_entries_max=9)
    wait = Waiting()

    def making() -> Making:
        yield wait
        return change("waits", [])

    point.add(making)
    assert point.wait is None and point.step() and point.wait is wait and point.made == 0
    assert point.step() and point.wait is None and point.made == 1
    assert wait.ended.done() == bool(left)
