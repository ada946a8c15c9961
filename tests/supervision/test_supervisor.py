"""Test the supervisor: the end of a crawl, the merged report, and children that do not stop."""

import asyncio
import os
import signal
import socket
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from crawler.admin.status import Status
from crawler.config import convert
from crawler.errors import CrawlerError, NoSeedError, StoreError, UsageError
from crawler.records import SplitterCounts
from crawler.storage.engines import open_store
from crawler.storage.files import Lock
from crawler.supervision import supervisor as supervision
from crawler.supervision.child import Start
from crawler.supervision.supervisor import Supervisor, merged_report
from tests.admin.test_status import report

TWO = {"crawl": {"processes": 2}, "identity": {"contact": "x@example.org"}}

KILLED = "p0: ended with signal 9 (SIGKILL, perhaps by the kernel because memory ran out)"


class Two:
    """A supervisor of two processes that were never started. Use it in an event loop."""

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
async def test_a_process_that_reaches_a_limit_stops_the_others(
    tmp_path: Path, stopped_by: str, told: list[dict[str, Any]]
) -> None:
    with Two(tmp_path) as two:
        two.p0.report = report(stopped_by=stopped_by)
        two.p0._ended(0)
        assert two.told == told and two.supervisor.failure is None


@pytest.mark.parametrize(
    ("code", "kind", "exit_code"),
    [(3, CrawlerError, 3), (StoreError.exit_code, StoreError, StoreError.exit_code), (-11, CrawlerError, 1)],
)
async def test_a_process_that_fails_for_good_fails_the_crawl_with_its_code(
    tmp_path: Path, code: int, kind: type[CrawlerError], exit_code: int
) -> None:
    with Two(tmp_path) as two:
        two.p0._ended(code)
        failure = two.supervisor.failure
        assert isinstance(failure, kind) and failure.exit_code == exit_code
        assert two.told == [{"stop": "error"}] and two.supervisor.stopped_by == "error"


async def test_a_process_that_the_supervisor_killed_is_no_failure(tmp_path: Path) -> None:
    with Two(tmp_path) as two:
        two.supervisor.stop("signal")
        two.p0._ended(-signal.SIGKILL)
        assert two.supervisor.failure is None


async def test_all_are_told_once_that_the_crawl_has_ended(tmp_path: Path) -> None:
    with Two(tmp_path) as two:
        two.supervisor.learn_end()
        two.supervisor.learn_end()
        assert two.told == [{"ended": True}] and two.supervisor.start_of("p0").ended


def test_reports_are_added_up_with_the_time_of_the_supervisor(tmp_path: Path) -> None:
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


def test_at_the_end_all_sent_links_must_have_been_applied(tmp_path: Path) -> None:
    supervisor = Supervisor(convert(TWO), tmp_path, [])
    supervisor.directory.create()
    parts = [report(splitter=SplitterCounts(sent=2)), report(splitter=SplitterCounts(applied=1))]
    assert merged_report(parts, supervisor).problems == [], "links may be on their way before the end"
    supervisor.ended = True
    assert merged_report(parts, supervisor).problems == ["sent = applied: 2 != 1"]
    assert merged_report(parts[:1], supervisor).problems == [], "only one process has reported"


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


# -- a complete crawl with simulated processes


class Canned:
    """Replaces a forked process.

    It sends its port, and then its report: immediately if `at_once`, else when asked to stop.
    """

    pid = 0

    def __init__(
        self, port: int, *, at_once: str = "", stubborn: bool = False, immortal: bool = False
    ) -> None:
        self.link, self._theirs = socket.socketpair()
        self._port, self._at_once, self._stubborn, self._immortal = port, at_once, stubborn, immortal
        self.returncode: int | None = None
        self.heard: list[Any] = []
        self.seeds = ""
        self._over = asyncio.Event()

    async def live(self) -> None:
        reader, self._writer = await asyncio.open_connection(sock=self._theirs)
        writer = self._writer
        self.start = msgspec.json.decode(await reader.readline(), type=Start)
        self.seeds = Path(self.start.seeds_file).read_text()

        def say(message: object) -> None:
            writer.write(msgspec.json.encode(message) + b"\n")

        say({"port": self._port})
        if self._at_once:
            counters = {"pages.fetched": 1}
            say({"report": report(stopped_by=self._at_once, counters=counters, started=1e12, ended=0.0)})
        while not self._at_once and (line := await reader.readline()):
            self.heard.append(msgspec.json.decode(line))
            if "stop" in self.heard[-1] and not (self._stubborn or self._immortal):
                say({"report": report(stopped_by=self.heard[-1]["stop"])})
                break
        if not self._immortal:
            self._end(0)

    def _end(self, code: int) -> None:
        if self.returncode is None:
            self.returncode = code
            self._over.set()
            self._writer.close()

    def kill(self) -> None:
        if not self._immortal:
            self._end(-9)

    async def wait(self) -> int:
        await self._over.wait()
        assert self.returncode is not None
        return self.returncode


QUICK = TWO | {"crawl": {"processes": 2, "drain_max": 0.01, "shutdown_step_max": 0.01}}


def crawled(folder: Path, *, stop: str = "", **canned: Any) -> tuple[Supervisor, list[Canned], Any]:
    """Run a crawl of two `Canned` processes; return the supervisor, these processes, and the report or the error."""

    async def play() -> tuple[Supervisor, list[Canned], Any]:
        supervisor = Supervisor(convert(QUICK), folder, ["http://127.0.0.1:9/"])
        processes = [Canned(port, **canned) for port in (5, 6)]
        for child, process in zip(supervisor._children, processes, strict=True):
            child.adopt(process)  # type: ignore[arg-type]
        lives = [asyncio.create_task(process.live()) for process in processes]
        running = asyncio.create_task(supervisor.run())
        for _ in range(5000):
            if not stop or len(supervisor.ports) == 2 or running.done():
                break
            await asyncio.sleep(0.001)
        if stop:
            supervisor.stop(stop)
        (ended,) = await asyncio.gather(running, return_exceptions=True)
        for life in lives:
            life.cancel()
        await asyncio.gather(*lives, return_exceptions=True)
        for writer in (
            *(each._writer for each in processes),
            *(each._writer for each in supervisor._children),
        ):
            if writer is not None:
                writer.close()
        await asyncio.sleep(0)
        return supervisor, processes, ended

    return asyncio.run(play())


def test_a_crawl_from_its_seeds_to_the_report(tmp_path: Path) -> None:
    supervisor, processes, ended = crawled(tmp_path / "crawl", at_once="done")
    assert [each.start.name for each in processes] == ["p0", "p1"]
    assert [each.seeds for each in processes] == ["http://127.0.0.1:9/\n"] * 2
    assert ended == supervisor.report and ended["pages"] == {"fetched": 2} and ended["processes"] == 2
    directory = supervisor.directory
    assert msgspec.json.decode(directory.report_file.read_bytes()) == ended
    assert not (directory.path / "seeds.run").exists() and directory.seed_places() == ["127.0.0.1"]
    assert convert(directory.saved_config()).crawl.processes == 2
    assert supervisor.ports == {"p0": 5, "p1": 6} and supervisor.ended and supervisor.failure is None
    with Lock(directory.path / "supervisor.lock", "supervisor"):
        pass  # the supervisor has released its lock
    assert 0.0 <= ended["seconds"] < 60.0


def test_a_stopped_crawl_reports_what_it_has_done(tmp_path: Path) -> None:
    supervisor, processes, ended = crawled(tmp_path / "crawl", stop="signal")
    assert ended["stopped_by"] == "signal" and supervisor._stopping is not None
    assert supervisor._stopping.cancelled(), "all processes have ended in time"
    for each in processes:
        assert {"stop": "signal"} in each.heard and {"addresses": {"p0": 5, "p1": 6}} in each.heard
        assert each.returncode == 0


def test_processes_that_do_not_stop_are_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression: the supervisor waited for its children without a limit, so it hung if a child was suspended."""
    monkeypatch.setattr(supervision, "STOP_GRACE", 0.0)
    supervisor, processes, ended = crawled(tmp_path / "crawl", stop="signal", stubborn=True)
    assert [each.returncode for each in processes] == [-9, -9]
    assert ended["stopped_by"] == "signal" and supervisor.failure is None, "the supervisor killed them itself"


def test_processes_that_survive_a_kill_are_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervision, "STOP_GRACE", 0.0)
    supervisor, _, ended = crawled(tmp_path / "crawl", stop="signal", immortal=True)
    assert isinstance(ended, CrawlerError) and "did not end" in str(ended)
    assert supervisor.directory.report_file.exists(), "the report of what is known is written"


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


async def test_a_child_is_restarted_as_a_new_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The child inherits one end of a socket pair, and no other file.

    A planted fault affects only the first start of a child.
    """
    asked: list[tuple[tuple[Any, ...], dict[str, Any]]] = []

    async def create(*argv: Any, **named: Any) -> Any:
        (number,) = named["pass_fds"]
        assert os.fstat(number) and argv[-1] == str(number)
        asked.append((argv, named))
        return "process"

    monkeypatch.setattr(supervision.asyncio, "create_subprocess_exec", create)
    monkeypatch.setenv("CRAWLER_FAULT", "x")
    child = Supervisor(convert(TWO), tmp_path, [])._children[0]

    for process in (None, "before"):
        child._process = process  # type: ignore[assignment]
        started, ours = await child._start()
        assert started == "process"  # type: ignore[comparison-overlap]
        ours.close()
    (argv, first), (_, second) = asked
    assert argv[:3] == (sys.executable, "-m", "crawler.supervision")
    assert first["env"]["CRAWLER_FAULT"] == "x" and "CRAWLER_FAULT" not in second["env"]
    assert first["start_new_session"] and first["stdin"] == asyncio.subprocess.DEVNULL


@pytest.mark.parametrize(
    ("code", "said", "message", "exit_code"),
    [
        (3, "the store is missing", "p0: the store is missing", 3),
        (127, "", "p0: ended with exit code 127", 127),
        (-9, "", KILLED, 1),
        (128, "", "p0: ended with exit code 128", 1),
        (75, "disk full", "p0: the store failed (disk full); start again when the disk is repaired", 75),
        (75, "", "p0: the store failed; start again when the disk is repaired", 75),
    ],
)
def test_the_error_of_a_process_is_that_of_the_crawl(
    code: int, said: str, message: str, exit_code: int
) -> None:
    failure = supervision._failure("p0", code, said)
    assert str(failure) == message and failure.exit_code == exit_code


def test_the_supervisor_adds_only_its_time_to_the_report(tmp_path: Path) -> None:
    supervisor = Supervisor(convert(TWO), tmp_path, [])
    supervisor.directory.create()
    nothing = supervision._nothing(supervisor)
    assert (nothing.processes, nothing.cpu_seconds, nothing.peak_rss_bytes) == (0, 0.0, 0)
    assert nothing.started == supervisor.started <= nothing.ended and nothing.problems == []
    assert supervision._on_the_way(None) == []


# -- one child of the supervisor, without a real process


def runs(two: Two, monkeypatch: pytest.MonkeyPatch, ends: list[tuple[int, float]]) -> list[float]:
    """Run p0 again after each of its ends; return the pauses between the starts.

    `ends` has the (exit code, seconds) of each run.
    """
    clock, naps = [0.0], []

    async def run_once() -> int:
        code, lasted = ends.pop(0)
        clock[0] += lasted
        return code

    async def nap(seconds: float) -> None:
        naps.append(seconds)

    monkeypatch.setattr(two.p0, "_run_once", run_once)
    monkeypatch.setattr(supervision, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(supervision.asyncio, "sleep", nap)
    return naps


async def test_a_child_that_dies_is_started_again_later_each_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with Two(tmp_path) as two:
        naps = runs(two, monkeypatch, [(-9, 1.0), (1, 1.0), (0, 1.0)])
        await two.p0.run()
        assert sum(naps) == pytest.approx(0.2 + 0.4) and max(naps) <= 0.2
        assert two.supervisor.failure is None and two.told == []
    assert f"{KILLED}; restarting it in 0.2 s" in caplog.text
    assert "p0: ended with exit code 1; restarting it in 0.4 s" in caplog.text


async def test_a_start_that_lasted_begins_a_new_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Two(tmp_path) as two:
        naps = runs(two, monkeypatch, [(-9, 1.0), (-9, 1.0), (-9, 60.0), (0, 0.0)])
        await two.p0.run()
        assert sum(naps) == pytest.approx(0.2 + 0.4 + 0.2)


async def test_a_child_with_a_permanent_error_fails_the_crawl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Two(tmp_path) as two:
        naps = runs(two, monkeypatch, [(3, 1.0)])
        await two.p0.run()
        failure = two.supervisor.failure
        assert failure is not None and failure.exit_code == 3 and naps == []
        assert "p0: ended with exit code 3" in str(failure)
        two.supervisor.fail(CrawlerError("later"))
        assert two.supervisor.failure is failure, "the first failure counts"


async def test_a_stop_ends_the_wait_for_a_restart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Two(tmp_path) as two:
        naps = runs(two, monkeypatch, [])
        await two.p0._wait(0.5)
        assert naps == pytest.approx([0.2, 0.2, 0.1])
        two.supervisor.stopped_by = "signal"
        await two.p0._wait(0.5)
        assert len(naps) == 3


def listen(two: Two, *lines: object) -> Any:
    reader = asyncio.StreamReader()
    for line in lines:
        reader.feed_data(msgspec.json.encode(line) + b"\n")
    reader.feed_eof()
    return two.p0._listen(reader)


async def test_messages_of_a_child_are_kept_or_passed_to_the_others(tmp_path: Path) -> None:
    with Two(tmp_path) as two:
        status = Status(processes=[])
        await listen(two, {"port": 7}, {"status": status}, {"report": report(stopped_by="max_pages")})
        assert two.told == [{"addresses": {"p0": 7}}] and two.p0.status == status
        assert two.p0.report is not None and two.p0.report.stopped_by == "max_pages"
        assert not two.supervisor.ended


@pytest.mark.parametrize("reason", ["done", "patience"])
async def test_a_child_that_reports_the_end_informs_all_others(tmp_path: Path, reason: str) -> None:
    with Two(tmp_path) as two:
        await listen(two, {"report": report(stopped_by=reason)})
        assert two.told == [{"ended": True}]


def test_the_instructions_to_a_child(tmp_path: Path) -> None:
    """A child gets the loopback address, a free port, the file with the seeds, and the current live settings."""
    settings = TWO | {"splitter": {"backoff_max": 60}, "seeds": ["http://a.org/"]}
    supervisor = Supervisor(
        convert(settings), tmp_path, ["http://a.org/"], status_interval=2.0, json_log=True
    )
    supervisor.directory.create()
    supervisor.directory.save_config(convert(TWO | {"politeness": {"delay": 9}}))
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
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    crawl = convert(TWO).crawl
    limit = 2.5 + crawl.drain_max + 10 * crawl.shutdown_step_max

    with Two(tmp_path) as two:
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


def test_a_crawl_without_any_page_reports_the_cause(tmp_path: Path) -> None:
    supervisor = Supervisor(convert(TWO), tmp_path, [])
    supervisor.directory.create()
    (tmp_path / "seeds.run").touch()
    with pytest.raises(NoSeedError, match="no page could be fetched"):
        supervisor._finish()
    assert not (tmp_path / "seeds.run").exists() and supervisor.directory.report_file.exists()
    supervisor.stopped_by = "signal"
    assert supervisor._finish()["stopped_by"] == "signal", "no process has reported the end"
    supervisor.failure = CrawlerError("p0: ended")
    with pytest.raises(CrawlerError, match="p0: ended"):
        supervisor._finish()


def test_a_child_that_is_not_running_gets_no_message(tmp_path: Path) -> None:
    supervisor = Supervisor(convert(TWO), tmp_path, [])
    child = supervisor._children[0]
    child.tell({"stop": "x"})
    child.kill()
    assert not child.runs
    lines: list[bytes] = []
    closing = [False]
    child._writer = SimpleNamespace(is_closing=lambda: closing[0], write=lines.append)  # type: ignore[assignment]
    child.tell({"stop": "x"})
    closing[0] = True
    child.tell({"stop": "y"})
    assert lines == [b'{"stop":"x"}\n']
