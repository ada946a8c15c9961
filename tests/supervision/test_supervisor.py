"""The supervisor: whose word ends the crawl, what the reports add up to, children that do not stop."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from crawler.config import convert
from crawler.errors import CrawlerError, StoreError
from crawler.records import SplitterCounts
from crawler.storage.engines import open_store
from crawler.supervision import supervisor as supervision
from crawler.supervision.supervisor import Supervisor, merged_report
from tests.admin.test_status import report

TWO = {"crawl": {"processes": 2}, "identity": {"contact": "x@example.org"}}


class Two:
    """A supervisor of two processes that were never started, in a loop."""

    def __init__(self, folder: Path) -> None:
        self.supervisor = Supervisor(convert(TWO), folder, ["http://a.org/"])
        self.supervisor.directory.create()
        self.p0, self.p1 = self.supervisor._children
        self.told: list[dict[str, Any]] = []
        self.p1.tell = self.told.append  # type: ignore[method-assign,assignment]

    def __enter__(self) -> "Two":
        return self

    def __exit__(self, *_: object) -> None:
        if self.supervisor._stopping is not None:
            self.supervisor._stopping.cancel()


@pytest.mark.parametrize(
    ("stopped_by", "told"),
    [
        ("max_pages", [{"stop": "max_pages"}]),
        ("disk", [{"stop": "disk"}]),
        ("signal", [{"stop": "signal"}]),
        ("done", []),
        ("patience", []),
    ],
)
def test_a_process_that_ends_for_a_limit_takes_the_others_with_it(
    tmp_path: Path, stopped_by: str, told: list[dict[str, Any]]
) -> None:
    async def play() -> None:
        with Two(tmp_path) as two:
            two.p0.report = report(stopped_by=stopped_by)
            two.p0._ended(0)
            assert two.told == told and two.supervisor.failure is None

    asyncio.run(play())


@pytest.mark.parametrize(
    ("code", "kind", "exit_code"),
    [(3, CrawlerError, 3), (StoreError.exit_code, StoreError, StoreError.exit_code), (-11, CrawlerError, 1)],
)
def test_a_process_that_fails_for_good_fails_the_crawl_with_its_code(
    tmp_path: Path, code: int, kind: type[CrawlerError], exit_code: int
) -> None:
    async def play() -> None:
        with Two(tmp_path) as two:
            two.p0._ended(code)
            failure = two.supervisor.failure
            assert isinstance(failure, kind) and failure.exit_code == exit_code
            assert two.told == [{"stop": "error"}] and two.supervisor.stopped_by == "error"

    asyncio.run(play())


def test_a_process_that_was_killed_by_us_is_no_failure(tmp_path: Path) -> None:
    async def play() -> None:
        with Two(tmp_path) as two:
            two.supervisor.stop("signal")
            two.p0._ended(-signal.SIGKILL)
            assert two.supervisor.failure is None

    asyncio.run(play())


def test_all_are_told_once_that_the_crawl_has_ended(tmp_path: Path) -> None:
    async def play() -> None:
        with Two(tmp_path) as two:
            two.supervisor.learn_end()
            two.supervisor.learn_end()
            assert two.told == [{"ended": True}] and two.supervisor.start_of("p0").ended

    asyncio.run(play())


def test_reports_add_up_and_the_supervisor_s_time_counts(tmp_path: Path) -> None:
    supervisor = Supervisor(convert(TWO), tmp_path, [])
    supervisor.directory.create()
    now = supervisor.started
    parts = [
        report(counters={"pages.fetched": n}, splitter=SplitterCounts(sent=n), started=now + 1, ended=now + 2)
        for n in (1, 2)
    ]
    merged = merged_report(parts, supervisor)
    assert (merged.processes, merged.counters["pages.fetched"], merged.stopped_by) == (2, 3, "done")
    assert merged.started == now and merged.problems == []
    supervisor.stopped_by = "signal"
    assert merged_report(parts, supervisor).stopped_by == "signal"
    assert merged_report([], supervisor).plain()["frontier"]["todo"] == 0


def test_what_was_sent_must_have_been_applied_at_the_end(tmp_path: Path) -> None:
    supervisor = Supervisor(convert(TWO), tmp_path, [])
    supervisor.directory.create()
    parts = [report(splitter=SplitterCounts(sent=2)), report(splitter=SplitterCounts(applied=1))]
    assert merged_report(parts, supervisor).problems == [], "links may be on their way before the end"
    supervisor.ended = True
    assert merged_report(parts, supervisor).problems == ["sent = applied: 2 != 1"]
    assert merged_report(parts[:1], supervisor).problems == [], "one has not reported"


def test_a_process_that_does_not_stop_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The supervisor waited for its children without a limit: a stopped one held it for ever."""
    monkeypatch.setattr(supervision, "STOP_GRACE", 0.0)
    settings = TWO | {"crawl": {"processes": 2, "drain_max": 0.2, "shutdown_step_max": 0.2}}

    async def play() -> Supervisor:
        supervisor = Supervisor(convert(settings), tmp_path / "crawl", ["http://127.0.0.1:9/"])
        running = asyncio.create_task(supervisor.run())
        while not all(child.runs and child._writer is not None for child in supervisor._children):
            await asyncio.sleep(0)
        for child in supervisor._children:
            assert child._process is not None
            os.kill(child._process.pid, signal.SIGSTOP)
        supervisor.stop("signal")
        await running
        return supervisor

    supervisor = asyncio.run(play())
    assert [child._process.returncode for child in supervisor._children if child._process] == [-9, -9]
    assert supervisor.report["stopped_by"] == "signal"


def test_a_process_that_had_a_store_open_forks_no_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LevelDB's background thread would be missing in the fork, which then never closes its store."""
    open_store(tmp_path / "store").close()
    monkeypatch.setattr(supervision, "fork_children", lambda *_: pytest.fail("forked"))
    Supervisor(convert(TWO), tmp_path / "crawl", []).fork()
