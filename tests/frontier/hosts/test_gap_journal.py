"""Test the gap journal, and that no gap is shortened by a kill at any write to the journal or to the store."""

import random
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any

import pytest

from crawler.frontier.hosts.gap_journal import GapJournal, Note, journal_bytes
from crawler.records import Blame, Fetch, FetchTask, Outcome
from crawler.storage.files import mapped_file
from crawler.storage.kv import MemoryStore
from tests.frontier.model import Crawl, Request, config, fetched, link

CELL = 32


class KilledError(Exception):
    """The process was killed."""


class Countdown:
    """Permits `writes` writes, and raises KilledError at the next one."""

    def __init__(self, writes: int) -> None:
        self.left = writes

    def step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise KilledError


class KilledMemory(bytearray):
    """Memory of a process that is killed during a write; `torn` bytes of this write reach the memory."""

    def __init__(self, size: int, countdown: Countdown, torn: int = 0) -> None:
        super().__init__(size)
        self._countdown, self._torn = countdown, torn
        self.killed = False

    def __setitem__(self, place: Any, data: Any) -> None:
        try:
            self._countdown.step()
        except KilledError:
            self.killed = True
            super().__setitem__(slice(place.start, place.start + self._torn), data[: self._torn])
            raise
        super().__setitem__(place, data)


class KilledStore(MemoryStore):
    """A store that counts its writes in a `Countdown`."""

    def __init__(self, countdown: Countdown) -> None:
        super().__init__()
        self._countdown = countdown

    def write(self, batch: Any) -> None:
        self._countdown.step()
        super().write(batch)


def answer(fetch_task: FetchTask, now: float) -> Fetch:
    """Return an answer that takes 0.2 s times the number of the page; page 2 of b.org asks for a long rest at first."""
    number = int(fetch_task.url.rsplit("/", 1)[1])
    if fetch_task.url == "https://b.org/2" and now < 1_000_030.0:
        return Fetch(fetch_task.url, Outcome.HOST_BUSY, Blame.HOST, 429, took=0.2, retry_after=300.0)
    return fetched(fetch_task.url, took=0.2 * number)


LINKS = [link(f"https://{name}.org/{number}") for name in "abc" for number in range(1, 5)]
# These settings let all hosts get their first request at once. So at each kill, every host waits for its gap or
# has a request under way.
SETTINGS = config(politeness={"address_delay_share": 0.0, "domain_rate": 0.0, "delay_max": 4.0})


def gap(request: Request) -> float:
    """Return the gap that `answer` requires after a request that ended, or that a kill cut off."""
    if request.outcome is Outcome.HOST_BUSY:
        return 300.0
    return max(1.0, min(10.0 * (request.ended - request.began), 4.0))


def killed_at(writes: int, torn: int = 0) -> tuple[list[Request], bool]:
    """Crawl with a kill at a write, and to the end; return the requests, and whether the kill came."""
    countdown = Countdown(1)  # allows the first write of the frontier, which comes before any request
    memory, store = KilledMemory(journal_bytes(3), countdown, torn), KilledStore(countdown)
    crawl = Crawl(SETTINGS, store=store, answer=answer, journal=GapJournal(memory))
    crawl.checking, countdown.left = False, writes
    try:
        crawl.add(LINKS)
        crawl.run()
        return crawl.requests, False
    except KilledError:
        if memory.killed and crawl.requests and crawl.requests[-1].ended == crawl.now:
            # the kill came before the journal had noted the last answer
            crawl.requests[-1] = crawl.requests[-1]._replace(outcome=Outcome.RESET)
    again = Crawl(
        SETTINGS, store=MemoryStore(store._data), answer=answer, now=crawl.now + 0.05, clean=False,
        journal=GapJournal(bytearray(memory)),
    )  # fmt: skip
    if not again.frontier.views.counters()["todo"] and not crawl.done:
        again.add(LINKS)  # the kill came before the links were stored
    assert again.run() == "done"
    return [*crawl.requests, *crawl.cut_off(), *again.requests], True


@pytest.mark.parametrize("torn", [0, 4, 16, 31])
def test_a_kill_at_any_write_shortens_no_gap(torn: int) -> None:
    killed, writes = True, 0
    while killed:
        requests, killed = killed_at(writes, torn)
        writes += 1
        hosts: dict[str, list[Request]] = {}
        for request in sorted(requests, key=lambda request: request.began):
            hosts.setdefault(request.host, []).append(request)
        assert len(hosts) == 3
        for before, after in (pair for each in hosts.values() for pair in pairwise(each)):
            assert after.began - before.ended >= gap(before) - 1e-6, (writes, before, after)
    assert writes > 40


def test_a_new_journal_finds_what_an_earlier_one_noted() -> None:
    memory = bytearray(journal_bytes(1))
    journal = GapJournal(memory)
    journal.begin(1, 10.0)
    journal.begin(1, 11.0)  # the request under way goes on
    journal.begin(2, 12.0)
    journal.end(2, 20.0, 7.5)
    assert sorted(GapJournal(memory).found()) == [(1, 10.0, -1.0), (2, 20.0, 7.5)]
    journal.begin(2, 21.0)
    assert sorted(GapJournal(memory).found()) == [(1, 10.0, -1.0), (2, 21.0, -1.0)]


def test_the_host_whose_request_ended_first_loses_its_cell_and_none_under_way() -> None:
    memory = bytearray(4 * CELL)
    journal = GapJournal(memory)
    for key in (1, 2, 3, 4):
        journal.begin(key, float(key))
    journal.begin(5, 5.0)  # no cell is left
    journal.end(3, 9.0, 1.0)
    journal.end(1, 9.0, 1.0)
    journal.end(3, 9.5, 1.0)
    journal.begin(6, 6.0)
    journal._check()
    assert {note.key for note in GapJournal(memory).found()} == {2, 3, 4, 6}


@pytest.mark.parametrize("opened_again", [False, True])
@pytest.mark.parametrize("torn", range(CELL - 3))  # the last three bytes are the same before and after
def test_a_torn_note_counts_as_a_request_under_way(torn: int, opened_again: bool) -> None:
    memory = KilledMemory(4 * CELL, Countdown(1), torn)
    journal = GapJournal(memory)
    journal.begin(7, 10.0)
    if opened_again:
        journal = GapJournal(memory)
    with pytest.raises(KilledError):
        journal.end(7, 100.0, 90.0)
    expected = Note(7, -inf, -1.0) if torn else Note(7, 10.0, -1.0)
    assert list(GapJournal(bytearray(memory)).found()) == [expected]


def test_the_second_cell_with_the_same_host_is_free() -> None:
    memory = bytearray(2 * CELL)
    GapJournal(memory).begin(7, 10.0)
    memory[:] = 2 * (memory[:CELL] if any(memory[:CELL]) else memory[CELL:])
    journal = GapJournal(memory)
    assert list(journal.found()) == [(7, 10.0, -1.0)]
    journal._check()
    journal.begin(8, 11.0)
    assert {note.key for note in GapJournal(memory).found()} == {7, 8}


def test_any_sequence_of_notes_is_found_again() -> None:
    rng = random.Random(5)
    memory = bytearray(8 * CELL)
    journal = GapJournal(memory)
    expected: dict[int, tuple[float, float]] = {}
    for step in range(3000):
        key = rng.randrange(1, 7)
        if rng.random() < 0.5:
            if expected.get(key, (0.0, 0.0))[1] >= 0.0:
                expected[key] = (float(step), -1.0)
            journal.begin(key, float(step))
        else:
            expected[key] = (step + 2.0, 2.0)
            journal.end(key, step + 2.0, 2.0)
        journal._check()
        if rng.random() < 0.05:
            journal = GapJournal(memory)
            found = {note.key: (note.at, note.gap) for note in journal.found()}
            assert found == expected
            for key in found:
                expected[key] = (1.0, 0.5)
                journal.end(key, 1.0, 0.5)


def test_a_mapped_file_keeps_its_bytes_and_only_grows(tmp_path: Path) -> None:
    memory = mapped_file(tmp_path / "gaps", journal_bytes(1))
    GapJournal(memory).begin(3, 1.0)
    for concurrency in (2, 1):
        longer = mapped_file(tmp_path / "gaps", journal_bytes(concurrency))
        assert len(longer) == (tmp_path / "gaps").stat().st_size == journal_bytes(2)
        assert [note.key for note in GapJournal(longer).found()] == [3]


def test_a_host_that_the_store_lacks_waits_when_it_is_found_again() -> None:
    memory = bytearray(journal_bytes(3))
    first = Crawl(SETTINGS, journal=GapJournal(memory), answer=lambda task, now: fetched(task.url, took=0.35))
    first.add(["https://a.org/1"], commit_after=1000.0)
    first.run(requests=1)
    again = Crawl(SETTINGS, now=first.now, clean=False, journal=GapJournal(memory))
    again.run(1.0)
    again.add(["https://a.org/1"])
    again.run()
    assert again.requests[0].began - first.requests[0].ended >= 3.5


def test_an_answer_that_was_under_way_at_a_kill_may_have_needed_the_largest_factor() -> None:
    settings = config(
        politeness={"delay_factor": 1.0, "address_delay_share": 0.0},
        override=[{"match": "b.org", "delay_factor": 20.0}],
    )
    memory = bytearray(journal_bytes(3))
    first = Crawl(settings, journal=GapJournal(memory), answer=lambda task, now: fetched(task.url, took=60.0))
    first.add(["https://a.org/1"])
    first.run(1.0)
    again = Crawl(settings, store=first.store, now=first.now + 1.0, clean=False, journal=GapJournal(memory))
    again.run(requests=1)
    assert again.requests[0].began - first.now >= 20.0
