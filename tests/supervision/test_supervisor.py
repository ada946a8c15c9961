"""Test the supervisor: the end of a crawl, the merged report, and children that do not stop."""

import asyncio
import logging
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from crawler.admin.control_client import NOBODY, ask
from crawler.admin.status import Status
from crawler.config import convert
from crawler.errors import CrawlerError, NoSeedError, StoreError, UsageError
from crawler.records import SplitterCounts
from crawler.storage.engines import open_store
from crawler.storage.files import Lock
from crawler.supervision import supervisor as supervision
from crawler.supervision.supervisor import Supervisor, merged_report
from tests.admin.test_status import report
from tests.end_to_end.web import SETTINGS, Web, page
from tests.waiting import WAIT_MAX

TWO = {"crawl": {"processes": 2}, "identity": {"contact": "x@example.org"}}

KILLED = "p0: ended with signal 9 (SIGKILL, perhaps by the kernel because memory ran out)"

ABORTED = "p0: ended with signal 6 (SIGABRT, perhaps because memory ran out)"


class Two:
    """A supervisor of two processes that were never started. Use it in an event loop."""

    def __init__(self, folder: Path) -> None:
        self.supervisor = Supervisor(convert(TWO), folder, ["http://a.org/"])
        self.supervisor.directory.create()
        self.p0, self.p1 = self.supervisor._children
        self.told: list[dict[str, Any]] = []
        self.p1.tell = self.told.append  # type: ignore[method-assign,assignment]


@pytest.fixture
def two(tmp_path: Path) -> Iterator[Two]:
    made = Two(tmp_path)
    yield made
    if made.supervisor._stopping is not None:
        made.supervisor._stopping.cancel()


@pytest.fixture
def supervisor(tmp_path: Path) -> Supervisor:
    """Return a supervisor without seeds, which was not started."""
    made = Supervisor(convert(TWO), tmp_path, [])
    made.directory.create()
    return made


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
async def test_a_process_that_reaches_a_limit_stops_the_others(
    two: Two, stopped_by: str, told: list[dict[str, Any]]
) -> None:
    two.p0.report = report(stopped_by=stopped_by)
    two.p0._ended(0)
    assert two.told == told and two.supervisor.failure is None


@pytest.mark.parametrize(
    ("code", "kind", "exit_code"),
    [(3, CrawlerError, 3), (StoreError.exit_code, StoreError, StoreError.exit_code), (-11, CrawlerError, 1)],
)
async def test_a_process_that_fails_for_good_fails_the_crawl_with_its_code(
    two: Two, code: int, kind: type[CrawlerError], exit_code: int
) -> None:
    two.p0._ended(code)
    failure = two.supervisor.failure
    assert isinstance(failure, kind) and failure.exit_code == exit_code
    assert two.told == [{"stop": "error"}] and two.supervisor.stopped_by == "error"


async def test_a_process_that_the_supervisor_killed_is_no_failure(two: Two) -> None:
    two.supervisor.stop("signal")
    two.p0._ended(-signal.SIGKILL)
    assert two.supervisor.failure is None


async def test_all_are_told_once_that_the_crawl_has_ended(two: Two) -> None:
    two.supervisor.learn_end()
    two.supervisor.learn_end()
    assert two.told == [{"ended": True}] and two.supervisor.start_of("p0").ended


def test_reports_are_added_up_with_the_time_of_the_supervisor(supervisor: Supervisor) -> None:
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


def test_at_the_end_all_sent_links_must_have_been_applied(supervisor: Supervisor) -> None:
    parts = [report(splitter=SplitterCounts(sent=2)), report(splitter=SplitterCounts(applied=1))]
    assert merged_report(parts, supervisor).problems == [], "links may be on their way before the end"
    supervisor.ended = True
    assert merged_report(parts, supervisor).problems == ["sent = applied: 2 != 1"]
    assert merged_report(parts[:1], supervisor).problems == [], "only one process has reported"
    parts[1] = report(splitter=SplitterCounts(applied=1, recoveries=1))
    assert merged_report(parts, supervisor).problems == [], "a process has lost its counts"


def test_a_process_that_had_a_store_open_forks_no_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A forked child would lack LevelDB's background thread, and could never close its store."""
    open_store(tmp_path / "store").close()
    monkeypatch.setattr(supervision, "fork_children", lambda *_: pytest.fail("forked"))
    Supervisor(convert(TWO), tmp_path / "crawl", []).fork()


def test_processes_are_forked_if_possible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The modules that all processes need are imported before the fork."""
    done: list[Any] = []

    def fork_children(work: Any, count: int) -> list[str]:
        done.append((work, count))
        return ["one", "two"]

    monkeypatch.setattr(supervision.DiskStore, "opened", False)
    monkeypatch.setattr(supervision, "warm_up", lambda: done.append("warm"))
    monkeypatch.setattr(supervision, "fork_children", fork_children)
    supervisor = Supervisor(convert(TWO), tmp_path / "crawl", [])
    monkeypatch.setattr(supervision, "can_fork", lambda: False)
    supervisor.fork()
    assert not done
    monkeypatch.setattr(supervision, "can_fork", lambda: True)
    supervisor.fork()
    assert done == ["warm", (supervision.work, 2)]
    assert [child._waiting for child in supervisor._children] == ["one", "two"]


# -- a complete crawl with real processes


QUICK = (
    TWO | SETTINGS | {"crawl": {"processes": 2, "drain_max": 1.0, "shutdown_step_max": 0.5, "patience": 5}}
)


@pytest.fixture
def web() -> Iterator[Web]:
    """Serve two hosts: one has two pages, and the other has endlessly many."""
    with Web(
        {"/": page("/a"), "/a": page()}, address="0.0.0.0", other=lambda asked: page(asked.path + "x")
    ) as web:
        yield web


class Supervised:
    """A supervisor with two real processes that crawl; `act` is called once they have fetched a page."""

    def __init__(
        self, folder: Path, seed: str, act: Callable[["Supervised"], Awaitable[None]], **limits: float
    ) -> None:
        config = convert(QUICK | {"crawl": QUICK["crawl"] | limits})
        self.supervisor = Supervisor(config, folder, [seed], status_interval=0.05)
        self._act = act
        self.pids: dict[str, int] = {}

    async def run(self) -> Any:
        """Return the report, or the error with which the crawl ended."""
        running = asyncio.create_task(self.supervisor.run())
        try:
            await self.until(lambda: len(self.supervisor.ports) == 2 and self.fetched() > 0, running)
            self.pids = self.now()
            await self._act(self)
            (ended,) = await asyncio.gather(running, return_exceptions=True)
            return ended
        finally:
            for child in self.supervisor._children:
                supervision._Child.kill(child)
                if child._process is not None:
                    await child._process.wait()
                if child._writer is not None:
                    child._writer.close()
            await asyncio.sleep(0)

    async def until(self, found: Callable[[], object], running: Any = None) -> None:
        async with asyncio.timeout(120):
            while not found() and not (running is not None and running.done()):
                await asyncio.sleep(0.01)

    def fetched(self) -> int:
        return self.supervisor.status().counters.get("pages.fetched", 0)

    def now(self) -> dict[str, int]:
        return {
            each.name: each._process.pid for each in self.supervisor._children if each._process is not None
        }


async def _wait(_: Supervised) -> None:
    """Let the crawl end by itself."""


def test_a_crawl_from_its_seeds_to_the_report(tmp_path: Path, web: Web) -> None:
    web._other = (404, {}, "")
    supervised = Supervised(tmp_path / "crawl", web.url("/", "127.0.0.2"), _wait)
    ended, supervisor = asyncio.run(supervised.run()), supervised.supervisor
    assert ended == supervisor.report and ended["pages"] == {"fetched": 2} and ended["processes"] == 2
    directory = supervisor.directory
    assert msgspec.json.decode(directory.report_file.read_bytes()) == ended
    assert not (directory.path / "seeds.run").exists() and directory.settings.places() == ["127.0.0.2"]
    assert convert(directory.settings.load()).crawl.processes == 2
    assert supervisor.ended and supervisor.failure is None
    with Lock(directory.path / "supervisor.lock", "supervisor"):
        pass  # the supervisor has released its lock
    assert 0.0 <= ended["seconds"] < 60.0


def test_settings_that_no_process_accepts_are_not_saved(tmp_path: Path, web: Web) -> None:
    """Once, they were saved, and every later command on the directory refused them."""
    web._other = (404, {}, "")
    seed = web.url("/", "127.0.0.2")
    supervised = Supervised(tmp_path / "crawl", seed, _wait)
    asyncio.run(supervised.run())
    settings = supervised.supervisor.directory.settings
    before = settings.file.read_bytes()
    with_login = QUICK | {
        "urls": {"fingerprint": "blake2b"},
        "fetch": {"proxy": "http://u:secret@127.0.0.1:9/"},
    }
    again = Supervisor(convert(with_login), tmp_path / "crawl", [seed])
    with pytest.raises(CrawlerError, match="urls.fingerprint is"):
        asyncio.run(again.run())
    assert settings.file.read_bytes() == before and not settings.credentials_file.exists()


async def deaths(folder: Path) -> set[str]:
    """Return the processes whose deaths are in the status that the process in `folder` gives."""
    answer = await asyncio.to_thread(ask, folder, "status")
    if answer is NOBODY:
        return set()
    status = Status.of(answer)
    died = {each["message"].partition(":")[0] for each in status.errors if each.get("died")}
    assert ("deaths" in {problem.rule for problem in status.health.problems}) == bool(died)
    return died


def test_a_killed_process_is_restarted_without_the_planted_fault(
    tmp_path: Path, web: Web, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each process is killed at its first start only. A stop then ends the crawl in time.

    The deaths are in the status that a process gives to `crawler status` and to all other views.
    """
    monkeypatch.setenv("CRAWLER_FAULT", "committed:1")
    monkeypatch.setattr(logging.getLogger("crawler"), "propagate", True)

    async def act(crawl: Supervised) -> None:
        async with asyncio.timeout(WAIT_MAX):  # signals from a terminal reach only the supervisor
            while os.getsid(crawl.pids["p0"]) == os.getsid(0):  # the process is between fork and setsid
                await asyncio.sleep(0.01)
        assert os.readlink(f"/proc/{crawl.pids['p0']}/fd/0") == "/dev/null"
        async with asyncio.timeout(WAIT_MAX):
            while await deaths(tmp_path / "crawl" / "p0") != {"p0", "p1"}:
                await asyncio.sleep(0.01)
        crawl.supervisor.stop("signal")

    supervised = Supervised(tmp_path / "crawl", web.url("/x", "127.0.0.1"), act)
    ended = asyncio.run(supervised.run())
    assert ended["stopped_by"] == "signal" and supervised.supervisor.failure is None
    assert ended["run"]["pages"] == ended["pages"], "what was counted before the kills belongs to the run"
    assert f"{KILLED}; restarting it in 0.2 s" in caplog.text and "0.4 s" not in caplog.text
    stopping = supervised.supervisor._stopping
    assert stopping is not None and stopping.cancelled(), "all processes have ended in time"


@pytest.mark.parametrize("immortal", [False, True])
def test_processes_that_do_not_stop_are_killed(
    tmp_path: Path, web: Web, monkeypatch: pytest.MonkeyPatch, immortal: bool
) -> None:
    """Once, the supervisor waited for its children without a limit, so it hung if a child was suspended.

    Processes that survive a kill are reported.
    """
    monkeypatch.setattr(supervision, "STOP_GRACE", 0.0)
    monkeypatch.setattr(supervision, "SHUTDOWN_STEPS", int(immortal))

    async def act(crawl: Supervised) -> None:
        os.kill(crawl.pids["p0"], signal.SIGSTOP)
        if immortal:
            crawl.supervisor._children[0].kill = lambda: None  # type: ignore[method-assign]
        crawl.supervisor.stop("signal")

    # On a busy machine, a killed process may end late, so the limit is long. If the process cannot be killed,
    # the test waits for the whole limit, so the limit is short.
    step = 0.5 if immortal else 60.0
    supervised = Supervised(tmp_path / "crawl", web.url("/x", "127.0.0.1"), act, shutdown_step_max=step)
    ended = asyncio.run(supervised.run())
    assert supervised.supervisor.directory.report_file.exists(), "the report of what is known is written"
    if immortal:
        assert isinstance(ended, CrawlerError) and "did not end" in str(ended)
    else:
        assert ended["stopped_by"] == "signal" and supervised.supervisor.failure is None


@pytest.mark.parametrize("check", ["check_start", "check_processes", "topology"])
def test_an_impossible_crawl_is_rejected_before_it_creates_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, check: str
) -> None:
    def refuse(*_: object) -> None:
        raise UsageError("not so")

    monkeypatch.setattr(supervision, check, refuse)
    with pytest.raises(UsageError, match="not so"):
        asyncio.run(Supervisor(convert(QUICK), tmp_path / "crawl", []).run())
    assert not (tmp_path / "crawl").exists()


@pytest.mark.parametrize(
    ("code", "said", "message", "exit_code"),
    [
        (3, "the store is missing", "p0: the store is missing", 3),
        (127, "", "p0: ended with exit code 127", 127),
        (-9, "", KILLED, 1),
        (128, "", "p0: ended with exit code 128", 1),
        (75, "disk full", "p0: the store failed (disk full); start again when the cause is removed", 75),
        (75, "", "p0: the store failed; start again when the cause is removed", 75),
        (-6, "", f"{ABORTED}; start again when the cause is removed", 75),
    ],
)
def test_the_error_of_a_process_is_that_of_the_crawl(
    code: int, said: str, message: str, exit_code: int
) -> None:
    failure = supervision._failure("p0", code, said)
    assert str(failure) == message and failure.exit_code == exit_code


def test_the_supervisor_adds_only_its_time_to_the_report(supervisor: Supervisor) -> None:
    nothing = supervision._nothing(supervisor)
    assert (nothing.processes, nothing.cpu_seconds, nothing.peak_rss_bytes) == (0, 0.0, 0)
    assert nothing.started == supervisor.started <= nothing.ended and nothing.problems == []
    assert supervision._on_the_way(None) == []


def listen(two: Two, *lines: object) -> Any:
    reader = asyncio.StreamReader()
    for line in lines:
        reader.feed_data(msgspec.json.encode(line) + b"\n")
    reader.feed_eof()
    return two.p0._listen(reader)


async def test_messages_of_a_child_are_kept_or_passed_to_the_others(two: Two) -> None:
    status = Status(processes=[])
    await listen(two, {"port": 7}, {"status": status}, {"report": report(stopped_by="max_pages")})
    assert two.told == [{"addresses": {"p0": 7}}] and two.p0.status == status
    assert two.p0.report is not None and two.p0.report.stopped_by == "max_pages"
    assert not two.supervisor.ended


@pytest.mark.parametrize("reason", ["done", "patience"])
async def test_a_child_that_reports_the_end_informs_all_others(two: Two, reason: str) -> None:
    await listen(two, {"report": report(stopped_by=reason)})
    assert two.told == [{"ended": True}]


def test_the_instructions_to_a_child(tmp_path: Path) -> None:
    """A child gets the loopback address, a free port, the file with the seeds, and the current live settings."""
    settings = TWO | {"splitter": {"backoff_max": 60}, "seeds": ["http://a.org/"]}
    supervisor = Supervisor(
        convert(settings), tmp_path, ["http://a.org/"], status_interval=2.0, json_log=True
    )
    supervisor.directory.create()
    supervisor.directory.settings.save(convert(TWO | {"politeness": {"delay": 9}}))
    supervisor.listening("p1", 5)
    start = supervisor.start_of("p0")
    config = convert(start.config)
    assert (config.splitter.listen, config.splitter.backoff_max, config.seeds) == ("127.0.0.1:0", 1.0, ())
    assert config.politeness.delay == 9 and config.crawl.processes == 2
    assert (start.name, start.ports, start.supervisor) == ("p0", {"p1": 5}, os.getpid())
    assert (start.crawl, start.directory) == (supervisor.directory.crawl_id(), str(tmp_path))
    assert (start.seeds_file, start.ended) == (str(tmp_path / "seeds.run"), False)
    assert (start.status_interval, start.json_log, start.level) == (2.0, True, 30)
    assert start.run == supervisor.start_of("p1").run != ""
    assert supervisor.folders() == {"p0": tmp_path / "p0", "p1": tmp_path / "p1"}
    assert supervisor.process_count == 2


async def test_all_children_are_told_to_stop_and_get_time_for_it(
    two: Two, caplog: pytest.LogCaptureFixture
) -> None:
    crawl = convert(TWO).crawl
    limit = 2.5 + crawl.drain_max + 10 * crawl.shutdown_step_max

    supervisor, loop = two.supervisor, asyncio.get_running_loop()
    supervisor.stop("signal")
    first = supervisor._stopping
    supervisor.stop("again")
    assert two.told == [{"stop": "signal"}, {"stop": "again"}] and supervisor.stopped_by == "signal"
    assert first is not None and supervisor._stopping is first
    assert first.when() - loop.time() == pytest.approx(limit, abs=1.0)
    killed: list[str] = []
    supervisor._given_up = asyncio.Event()
    for child in (two.p0, two.p1):
        child.kill = lambda name=child.name: killed.append(name)  # type: ignore[method-assign,misc]
    supervisor._kill_stubborn()
    assert killed == ["p0", "p1"] and supervisor._stopping is not first
    first.cancel()
    assert f"did not stop within {limit:g} s; killed" in caplog.text


def test_a_crawl_without_any_page_reports_the_cause(tmp_path: Path, supervisor: Supervisor) -> None:
    (tmp_path / "seeds.run").touch()
    with pytest.raises(NoSeedError, match="no page could be fetched"):
        supervisor._finish()
    assert not (tmp_path / "seeds.run").exists() and supervisor.directory.report_file.exists()
    supervisor.stopped_by = "signal"
    assert supervisor._finish()["stopped_by"] == "signal", "no process has reported the end"
    supervisor.failure = CrawlerError("p0: ended")
    with pytest.raises(CrawlerError, match="p0: ended"):
        supervisor._finish()
