"""Test the Eliminator against a model: the first link to each new URL is returned once, in order."""

import errno
import math
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from crawler.config import DueConfig
from crawler.due.eliminator import Eliminator
from crawler.errors import DamageError, DirectoryError, StoreError
from crawler.records import Link
from crawler.storage.keys import DUE_FLUSHED, DUE_LINKS, DUE_RUNS
from crawler.storage.kv import MemoryStore
from tests.due import forms

LAST = 2**64 - 1
SMALL = DueConfig(buffer_entries_max=8, part_links_max=3, merge_chunk_bytes=64, log_bytes_max=400)


def link(fingerprint: int, number: int = 0) -> Link:
    return Link(fingerprint, f"http://host/{fingerprint:x}/{number}", depth=number)


class Process:
    """Uses an Eliminator as the crawl does, but step by step. The frontier is the list `handed_out`."""

    def __init__(self, directory: Path, config: DueConfig = SMALL) -> None:
        self.directory, self.store, self.config = directory, MemoryStore(), config
        self.handed_out: list[Link] = []
        self.known: set[int] = set()
        self.open()

    def open(self) -> None:
        self.due = Eliminator(self.directory, self.store, self.config, check_value=7, method="mmh3")
        self.flush = self.compaction = None

    def submit(self, links: list[Link]) -> list[Link]:
        """Submit a group of links: log those that are not pending, commit, and return them."""
        fresh = self.due.admit(np.array([link.fingerprint for link in links], np.uint64))
        appended = [link for link, is_fresh in zip(links, fresh, strict=True) if is_fresh]
        self.due.append(appended)
        self.due.sync()
        self.commit(self.due.stage)
        self.due.committed()
        return appended

    def commit(self, *stages) -> None:
        batch = self.store.batch(sync=True)
        for stage in stages:
            stage(batch)
        self.store.write(batch)

    def begin_flush(self) -> None:
        self.flush = self.due.begin_flush(0.0)
        if self.flush is not None:
            self.flush.run()

    def end_flush(self) -> None:
        self.commit(lambda batch: self.due.stage_flush(self.flush, batch))
        self.handed_out += self.flush.new_links
        self.known |= {link.fingerprint for link in self.flush.new_links}
        self.due.flushed(self.flush)
        self.flush = None

    def learn(self, numbers: Iterable[int]) -> None:
        """Submit a group of links and flush it."""
        self.submit([link(number) for number in numbers])
        self.begin_flush()
        self.end_flush()

    def begin_compaction(self) -> None:
        self.compaction = self.due.compactor.begin()
        if self.compaction is not None:
            self.compaction.run()

    def end_compaction(self) -> None:
        self.commit(lambda batch: self.due.compactor.stage(self.compaction, batch))
        self.due.compactor.committed(self.compaction)
        self.compaction = None

    def drain(self) -> list[Link]:
        """Flush and compact until no link waits; return all links that were handed out so far."""
        if self.flush is not None:
            self.end_flush()
        while self.due.pending:
            self.begin_flush()
            self.end_flush()
        if self.compaction is not None:
            self.end_compaction()
        self.begin_compaction()
        if self.compaction is not None:
            self.end_compaction()
        return self.handed_out


@pytest.fixture
def process(tmp_path: Path) -> Process:
    return Process(tmp_path)


class EliminatorMachine(RuleBasedStateMachine):
    """Run groups, flushes, compactions and crashes, overlapping in any order, with installed and interpreted kernels."""

    @initialize(
        buffer=st.sampled_from([1, 3, 8]),
        part=st.sampled_from([1, 3, 4096]),
        form=st.sampled_from(["installed", "interpreted"]),
    )
    def make(self, buffer: int, part: int, form: str) -> None:
        self.form = forms.using(form)
        self.form.__enter__()
        self.folder = tempfile.TemporaryDirectory()
        config = DueConfig(
            buffer_entries_max=buffer, part_links_max=part, merge_chunk_bytes=64, log_bytes_max=300
        )
        self.process = Process(Path(self.folder.name), config)
        self.expected: list[Link] = []
        self.seen: set[int] = set()
        self.count = 0

    def teardown(self) -> None:
        if hasattr(self, "process"):
            assert self.process.drain() == self.expected
            self.process.due._check()
            self.process.due.close()
            self.folder.cleanup()
            self.form.__exit__(None, None, None)

    def _links(self, numbers: list[int]) -> list[Link]:
        self.count += len(numbers)
        return [link(number, self.count - place) for place, number in enumerate(numbers)]

    @rule(
        numbers=st.lists(
            st.one_of(st.integers(0, 30), st.sampled_from([LAST, LAST - 1, 1 << 48])), max_size=12
        )
    )
    def submit(self, numbers: list[int]) -> None:
        links = self._links(numbers)
        for one in self.process.submit(links):
            if one.fingerprint not in self.seen:
                self.seen.add(one.fingerprint)
                self.expected.append(one)
        assert {one.fingerprint for one in links} <= self.seen, "a link was dropped that did not wait"

    @precondition(lambda self: self.process.flush is None)
    @rule()
    def begin_flush(self) -> None:
        self.process.begin_flush()

    @precondition(lambda self: self.process.flush is not None)
    @rule()
    def end_flush(self) -> None:
        self.process.end_flush()

    @precondition(lambda self: self.process.flush is not None)
    @rule()
    def flush_fails(self) -> None:
        self.process.due.flush_failed(self.process.flush, 0.0)
        self.process.flush = None

    @precondition(lambda self: self.process.compaction is None)
    @rule()
    def begin_compaction(self) -> None:
        self.process.begin_compaction()

    @precondition(lambda self: self.process.compaction is not None)
    @rule()
    def end_compaction(self) -> None:
        self.process.end_compaction()

    @precondition(lambda self: self.process.compaction is not None)
    @rule()
    def compaction_fails(self) -> None:
        self.process.due.compactor.failed(self.process.compaction)
        self.process.compaction = None

    @rule(numbers=st.lists(st.integers(0, 30), max_size=4))
    def crash(self, numbers: list[int]) -> None:
        """Crash after a group was appended and before it is committed. A flush or compaction may be in progress."""
        self.process.due.append(self._links(numbers))
        self.process.due.sync()
        self.process.due.close()
        self.process.open()

    @invariant()
    def holds(self) -> None:
        if not hasattr(self, "process"):
            return
        due = self.process.due
        due._check()
        assert self.process.handed_out == self.expected[: len(self.process.handed_out)]
        assert due.new == len(self.process.handed_out)
        assert due.links == due.pending + due.known + due.new
        assert all((number in due.known_set) == (number in self.process.known) for number in (0, 1, LAST))
        assert due.check() == []


TestEliminatorMachine = EliminatorMachine.TestCase
TestEliminatorMachine.settings = settings(max_examples=40, stateful_step_count=25)


@pytest.mark.parametrize("count", [0, 1, 8, 9])
def test_flushes_of_0_1_a_full_buffer_and_one_more(process: Process, form: str, count: int) -> None:
    process.submit([link(number) for number in range(count)])
    assert (process.due.begin_flush(0.0) is None) == (count == 0)
    if process.due._flush is not None:
        process.due.flush_failed(process.due._flush, 0.0)
    assert process.drain() == [link(number) for number in range(count)]
    assert process.due.pending == 0 and process.due.links == count


def test_a_flush_takes_at_most_one_buffer(process: Process) -> None:
    """Test which links a flush takes if groups have 5 links and the buffer has room for 8.

    Each flush takes one group. The other groups wait for the next flush.
    """
    for base in (0, 10, 20):
        process.submit([link(base + number) for number in range(5)])
    assert [process.due.pending, process.due.full] == [15, False]
    process.submit([link(90)])
    assert process.due.full
    process.begin_flush()
    assert process.flush.count == 5
    process.end_flush()
    assert process.due.pending == 11 and process.due.wants_flush(0.0)


def test_all_in_one_bucket(process: Process, form: str) -> None:
    links = [link(77 << 48 | number * number) for number in range(60)]
    for start in range(0, 60, 7):
        process.submit(links[start : start + 7])
    assert process.drain() == links
    assert sum(map(len, process.due.known_set.slice(77, 78))) == 60
    assert list(process.due.known_set.slice(0, 77)) == list(process.due.known_set.slice(78, 65_536)) == []


def test_repeated_waiting_links_are_not_appended(process: Process, form: str) -> None:
    assert len(process.submit([link(1), link(2), link(1)])) == 2
    assert len(process.submit([link(2), link(3)])) == 1
    assert process.due.repeats == 2 and process.due.links == 3
    process.drain()
    assert len(process.submit([link(1)])) == 1, "it no longer waits, so only the flush finds that it is known"
    process.drain()
    assert (process.due.known, process.due.new) == (1, 3)


def test_the_first_of_repeated_links_in_a_flush_is_returned(process: Process, form: str) -> None:
    """All links are appended without `admit`, as if the pending set had forgotten them."""
    links = [link(number, place) for place, number in enumerate([5, 3, 5, LAST, 3, 5, 0])]
    process.due.append(links)
    process.commit(process.due.stage)
    process.due.committed()
    assert process.drain() == [links[0], links[1], links[3], links[6]]
    assert (process.due.known, process.due.new) == (3, 4)


def test_a_large_flush_goes_in_parts(tmp_path: Path) -> None:
    """Each part of the flush is committed separately, and its counts include all links before its end."""
    process = Process(tmp_path, DueConfig(buffer_entries_max=100, part_links_max=3))
    process.submit([link(90), link(91)])
    process.drain()
    for number in range(0, 12, 2):
        process.submit([link(number), link(90), link(number + 1)])
    sizes = []
    while process.due.pending:
        assert process.due.wants_flush(0.0, dry=True)
        process.begin_flush()
        assert not process.due.wants_flush(0.0, dry=True), "a flush of a part is in progress"
        sizes.append(len(process.flush.new_links))
        process.end_flush()
        assert process.due.links == process.due.pending + process.due.known + process.due.new
    assert sizes == [4, 4, 4]
    assert [one.fingerprint for one in process.handed_out] == [90, 91, *range(12)]
    assert process.due.next_wakeup() == math.inf


def test_a_part_that_fails_leaves_the_rest_waiting(tmp_path: Path) -> None:
    process = Process(tmp_path, DueConfig(buffer_entries_max=100, part_links_max=2))
    for number in range(0, 8, 2):
        process.submit([link(number), link(number + 1)])
    process.begin_flush()
    process.end_flush()
    plan = process.due.begin_flush(0.0)
    process.due.flush_failed(plan, 0.0)
    assert (process.due.pending, process.due.new) == (6, 2)
    assert process.due.waits(5) and not process.due.waits(1)
    assert process.drain() == [link(number) for number in range(8)]


def test_conditions_for_a_flush(process: Process) -> None:
    due = process.due
    assert not due.wants_flush(0.0, dry=True) and due.next_wakeup() == math.inf
    process.submit([link(1)])
    assert due.next_wakeup() <= 100.0
    assert not due.wants_flush(100.0) and due.wants_flush(100.0, dry=True)
    assert due.next_wakeup() == 105.0 and due.wants_flush(105.0)
    process.submit([link(number) for number in range(2, 9)])
    assert due.wants_flush(100.0), "the buffer is full"
    process.begin_flush()
    assert not due.wants_flush(200.0, dry=True) and due.next_wakeup() == math.inf
    process.end_flush()
    assert not due.wants_flush(200.0, dry=True)


def test_a_failed_flush_is_tried_again(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    process.submit([link(1), link(2)])
    flush = process.due.begin_flush(10.0)
    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(StoreError):
            flush.run()
    process.due.flush_failed(flush, 10.0)
    assert process.due.pending == 2
    assert not process.due.wants_flush(12.0, dry=True) and process.due.next_wakeup() == 15.0
    assert process.due.wants_flush(15.0, dry=True)
    assert process.drain() == [link(1), link(2)]


def test_a_compaction_that_a_flush_overtakes_replaces_exactly_its_inputs(
    tmp_path: Path, process: Process
) -> None:
    process.learn(range(4))
    process.learn(range(10, 14))
    process.begin_compaction()
    process.learn([3, 30])
    process.end_compaction()
    assert [run.count for run in process.due.known_set.runs] == [8, 1]
    process.due._check()
    process.due.close()
    process.open()
    assert [run.count for run in process.due.known_set.runs] == [8, 1] and process.due.new == 9
    assert len(list((tmp_path / "due").iterdir())) == 2


def test_a_join_under_way_when_its_runs_are_merged_and_unlinked(process: Process) -> None:
    process.learn(range(4))
    process.learn(range(10, 14))
    process.submit([link(0), link(13), link(40)])
    flush = process.due.begin_flush(0.0)
    process.begin_compaction()
    process.end_compaction()
    flush.run()
    assert flush.new_links == [link(40)]


def test_the_next_flush_frees_what_a_compaction_replaced(process: Process) -> None:
    """The flush unmaps the files, because unmapping takes too long for the event loop.

    A file that is still being read is kept.
    """
    process.learn(range(4))
    process.learn(range(10, 14))
    first, second = process.due.known_set.runs
    maps = [first._data, second._data]
    del second
    process.begin_compaction()
    process.end_compaction()
    assert not any(mapped.closed for mapped in maps)
    process.submit([link(100)])
    process.begin_flush()
    assert [mapped.closed for mapped in maps] == [False, True]
    assert first.read(0, 4).tolist() == [0, 1, 2, 3]


def test_consumed_logs_are_unlinked_by_the_next_flush(tmp_path: Path) -> None:
    process = Process(tmp_path, DueConfig(buffer_entries_max=8, log_bytes_max=1))
    for number in range(4):
        process.learn([number])
        assert len(list((tmp_path / "links").iterdir())) <= 2


@pytest.mark.parametrize(("check_value", "method"), [(8, "mmh3"), (7, "blake2b")])
def test_another_seed_or_method_is_refused(
    tmp_path: Path, process: Process, check_value: int, method: str
) -> None:
    process.submit([link(1)])
    process.due.close()
    with pytest.raises(DirectoryError, match="another fingerprint seed or method"):
        Eliminator(tmp_path, process.store, SMALL, check_value=check_value, method=method)


@pytest.mark.parametrize("key", [DUE_RUNS, DUE_LINKS, DUE_FLUSHED])
@pytest.mark.parametrize("damage", ["flipped", "other", "lost"])
def test_damaged_store_values_are_named(process: Process, key: bytes, damage: str) -> None:
    for number in range(3):
        process.learn([number])
    value = bytearray(process.store.get(key))
    value[-1] ^= 1
    batch = process.store.batch()
    if damage == "lost":
        batch.delete(key)
    else:
        batch.put(key, bytes(value) if damage == "flipped" else b"\1\x43\xb4\xcc\xd3\x91\xc0")
    process.store.write(batch)
    process.due.close()
    with pytest.raises(DamageError):
        process.open()


def test_check_reports_damaged_files(tmp_path: Path, process: Process) -> None:
    """One flipped bit in a run and one in the links log are reported, each with the name of its file."""
    process.learn(range(8))
    process.submit([link(100)])
    (run,) = (tmp_path / "due").iterdir()
    logs = sorted((tmp_path / "links").iterdir())
    for path, place in ((run, 20), (logs[-1], -3)):
        data = bytearray(path.read_bytes())
        data[place] ^= 1
        path.write_bytes(data)
    problems = process.due.check()
    assert any(run.name in problem and "checksum" in problem for problem in problems)
    assert any(logs[-1].name in problem and "checksum" in problem for problem in problems)


def test_contains_and_waits(process: Process) -> None:
    process.submit([link(5)])
    assert process.due.waits(5) and 5 not in process.due.known_set
    process.begin_flush()
    assert process.due.waits(5), "the link is in the flush in progress"
    process.end_flush()
    assert 5 in process.due.known_set and not process.due.waits(5) and 6 not in process.due.known_set


def test_thousands_of_links_in_one_group(tmp_path: Path) -> None:
    """A long list of seeds fills several blocks of the log, and each flush takes one buffer."""
    config = DueConfig(buffer_entries_max=2000)
    process = Process(tmp_path, config)
    links = [link(number * 7919 % 2**64, number) for number in range(5000)]
    process.submit(links)
    process.due.close()
    process.open()
    assert process.drain() == links
