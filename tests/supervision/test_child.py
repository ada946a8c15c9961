"""Test how a child process reacts to messages of the supervisor, and which messages it sends."""

import asyncio
import logging
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from crawler.config import LogsConfig, convert
from crawler.errors import StoreError, UsageError
from crawler.supervision import child as module
from crawler.supervision.child import CLEAR_LIMIT, ORPHAN_GRACE, Start, _Child, _work


class Writer:
    """Replaces the stream to the supervisor, and keeps the messages that the child sends."""

    def __init__(self) -> None:
        self.said: list[Any] = []
        self.drained = 0
        self.reported: Callable[[], object] = lambda: None

    def write(self, line: bytes) -> None:
        assert line.endswith(b"\n") and line.count(b"\n") == 1
        self.said.append(msgspec.json.decode(line))
        if "report" in self.said[-1]:
            self.reported()

    async def drain(self) -> None:
        self.drained += 1

    def close(self) -> None:
        self.said.append("closed")

    async def wait_closed(self) -> None:
        self.said.append("gone")


class Crawl:
    """A fake crawl that records how it was stopped."""

    def __init__(self) -> None:
        self.stops: list[tuple[str, float | None]] = []

    def stop(self, reason: str, *, grace: float | None = None) -> None:
        self.stops.append((reason, grace))

    def status(self) -> dict[str, int]:
        return {"looks": 1}


class Exchange:
    address = ("127.0.0.1", 4711)

    def __init__(self) -> None:
        self.addresses: list[tuple[str, tuple[str, int]]] = []
        self.ends = 0

    def set_address(self, name: str, address: tuple[str, int]) -> None:
        self.addresses.append((name, address))

    def learn_end(self) -> None:
        self.ends += 1


class Made:
    """The child p1 of three children, which receives `lines` from its supervisor."""

    def __init__(self, folder: Path, lines: bytes = b"", **start: Any) -> None:
        config = msgspec.to_builtins(convert({"crawl": {"processes": 3}}), enc_hook=lambda value: value + 0)
        values = {
            "ports": {"p0": 7},
            "supervisor": 1,
            "seeds_file": str(folder / "seeds"),
            "crawl": "c",
            "run": "r",
        }
        told = Start(config=config, directory=str(folder), name="p1", **(values | start))
        self.writer, self.crawl, self.exchange = Writer(), Crawl(), Exchange()
        reader = asyncio.StreamReader()
        reader.feed_data(lines)
        reader.feed_eof()
        anything: Any = self.writer
        self.reader = reader
        self.child = _Child(told, reader, anything)
        self.child._exchange = self.exchange  # type: ignore[assignment]


@pytest.fixture(autouse=True)
def _no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crawler.cli.options.send_log", lambda *_, **__: None)


def heed(folder: Path, **message: Any) -> Made:
    async def play() -> Made:
        made = Made(folder)
        made.child._heed(made.crawl, message)  # type: ignore[arg-type]
        return made

    return asyncio.run(play())


def test_a_child_learns_the_addresses_of_its_siblings(tmp_path: Path) -> None:
    made = heed(tmp_path, addresses={"p0": 4, "p1": 5, "p2": 6})
    assert made.exchange.addresses == [("p0", ("127.0.0.1", 4)), ("p2", ("127.0.0.1", 6))]
    assert made.exchange.ends == 0 and made.crawl.stops == []
    assert made.child._addresses() == {"p0": ("127.0.0.1", 7), "p2": ("127.0.0.1", 0)}


def test_a_child_obeys_messages_to_stop_or_about_the_end(tmp_path: Path) -> None:
    made = heed(tmp_path, ended=True)
    assert made.exchange.ends == 1 and made.crawl.stops == []
    made = heed(tmp_path, stop="max_pages")
    assert made.crawl.stops == [("max_pages", None)] and made.exchange.ends == 0


@pytest.mark.parametrize("broken", [False, True])
def test_a_child_without_a_supervisor_stops_by_itself(tmp_path: Path, broken: bool) -> None:
    """The child stops when the stream ends, or when the stream breaks because the child's messages were not read."""

    async def play() -> Made:
        made = Made(tmp_path, b'{"stop": "signal"}\n{"ended": true}\n')
        if broken:
            made.child._reader.set_exception(ConnectionResetError())
        await made.child._listen(made.crawl)  # type: ignore[arg-type]
        return made

    made = asyncio.run(play())
    orphaned = ("supervisor gone", ORPHAN_GRACE)
    assert made.crawl.stops == ([orphaned] if broken else [("signal", None), orphaned])
    assert made.exchange.ends == (0 if broken else 1)


def test_a_child_without_a_supervisor_says_so_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The pipe of a killed supervisor breaks. Before, the log of its children got a traceback."""

    async def play() -> None:
        ours, theirs = socket.socketpair()
        made = Made(tmp_path)
        made.child._reader, made.child._writer = await asyncio.open_connection(sock=ours)
        theirs.close()
        made.child._writer.write(b"x" * (1 << 20))
        await made.child.hand_over({"report": {}})

    asyncio.run(play())
    assert caplog.messages == ["the supervisor has ended, so this process ends without a report to it"]


@pytest.mark.parametrize(("interval", "times"), [(0.0, 0), (0.25, 3)])
def test_a_child_reports_its_status_if_it_is_displayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, interval: float, times: int
) -> None:
    naps: list[float] = []

    async def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 3:
            raise asyncio.CancelledError

    async def play() -> Made:
        made = Made(tmp_path, status_interval=interval)
        monkeypatch.setattr(module.asyncio, "sleep", nap)
        try:
            await made.child._tell(made.crawl)  # type: ignore[arg-type]
        except asyncio.CancelledError:
            pass
        return made

    made = asyncio.run(play())
    assert made.writer.said == [{"status": {"looks": 1}}] * times and made.writer.drained == times
    assert naps == [interval] * times


def test_a_child_whose_supervisor_ends_before_the_first_message_exits() -> None:
    async def play() -> int:
        ours, theirs = socket.socketpair()
        theirs.close()
        code = await _work(ours, None)
        await asyncio.sleep(0)
        return code

    assert asyncio.run(play()) == 0


@pytest.mark.parametrize(
    ("error", "code"), [(UsageError("two\n  lines"), 2), (StoreError("two\nlines"), 75), (None, 0)]
)
def test_a_child_hands_over_its_error_in_one_line_and_exits_with_its_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: Exception | None, code: int
) -> None:
    async def run(child: _Child, parser: Any) -> None:
        if error is not None:
            raise error
        child._writer.close()

    async def play() -> tuple[int, bytes]:
        ours, theirs = socket.socketpair()
        line = {"config": {}, "directory": str(tmp_path), "name": "p0", "crawl": "c", "run": "r", "ports": {}}
        reader, writer = await asyncio.open_connection(sock=theirs)
        writer.write(msgspec.json.encode(line | {"supervisor": 5, "seeds_file": "s"}) + b"\n")
        writer.write(b'{"ended": true}\n{"reported": true}\n')
        ended = await _work(ours, None)
        heard = await reader.read()
        writer.close()
        return ended, heard

    monkeypatch.setattr("crawler.cli.options.send_log", lambda *args, **named: None)
    monkeypatch.setattr(_Child, "run", run)
    assert asyncio.run(play()) == (code, b"" if error is None else b'{"failure":"two lines"}\n')


def test_a_child_forks_its_parser_before_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(module, "use_long_slices", lambda: done.append("turns"))
    monkeypatch.setattr(module, "fork_parser", lambda: done.append("parser"))
    monkeypatch.setattr("gc.freeze", lambda: done.append("frozen"))
    monkeypatch.setattr(module.shutdown, "run", lambda work, new_loop, limit: work.close() or 75)
    link: Any = SimpleNamespace()
    assert module.work(link) == 75 and done == ["turns", "parser", "frozen"]


class Whole(Crawl):
    """A fake crawl that the child itself creates, and that runs until it is stopped."""

    made: list["Whole"] = []

    def __init__(self, *config: Any, **options: Any) -> None:
        super().__init__()
        self.config, self.options = config, options
        self.ended = asyncio.Event()
        self.process = SimpleNamespace(exchange=Exchange())
        self.final: dict[str, int] | None = None
        self.runs = 0
        self.made.append(self)

    async def __aenter__(self) -> "Whole":
        return self

    async def __aexit__(self, *_: Any) -> None:
        self.final = {"pages": 3}

    def stop(self, reason: str, *, grace: float | None = None) -> None:
        super().stop(reason, grace=grace)
        self.ended.set()

    async def run(self) -> None:
        self.runs += 1
        await self.ended.wait()


class Watched:
    """Runs a child until its supervisor stops it, and records which handlers, watchers and limits the child set."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *, told: str = "", early: bool = False):
        self.handlers: list[tuple[Any, ...]] = []
        self.parents: list[tuple[int, Any]] = []
        self.limits: list[tuple[float, str]] = []
        self.left: set[Any] = set()
        self.cancelled: list[str] = []
        Whole.made.clear()
        monkeypatch.setattr("crawler.api.Crawl", Whole)
        monkeypatch.setattr(module.early_signals, "begin", lambda: early)
        monkeypatch.setattr(module, "watch_parent", lambda *watched: self.parents.append(watched))
        monkeypatch.setattr(module.shutdown, "within", self._within)
        handled = SimpleNamespace(signal=lambda *handler: self.handlers.append(handler))
        monkeypatch.setattr(module, "signal", handled)
        asyncio.run(self._play(folder, told))
        (self.crawl,) = Whole.made

    async def _within(self, limit: float, step: str, work: Any) -> bool:
        self.limits.append((limit, step))
        await work
        return True

    async def _play(self, folder: Path, told: str) -> None:
        self.made = made = Made(folder, status_interval=1000.0)
        del made.child._exchange
        reader = made.child._reader = asyncio.StreamReader()  # this stream does not end
        made.writer.reported = lambda: reader.feed_data(b'{"ended": true}\n{"reported": true}\n')
        running = asyncio.create_task(made.child.run("parser"))  # type: ignore[arg-type]
        for _ in range(5):
            await asyncio.sleep(0)
        if told:
            made.child._reader.feed_data(told.encode() + b"\n")
        elif self.parents:
            self.parents[0][1]()
        await running
        self.left = asyncio.all_tasks() - {asyncio.current_task()}


def test_a_child_crawls_and_sends_its_port_its_status_and_its_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(tmp_path, monkeypatch, told='{"stop": "max_pages"}')
    crawl, made = watched.crawl, watched.made
    assert crawl.runs == 1 and crawl.stops == [("max_pages", None)]
    assert crawl.options["directory"] == str(tmp_path) and crawl.options["parser"] == "parser"
    assert crawl.options["seeds"].path == tmp_path / "seeds"
    member = crawl.options["member"]
    assert (member.name, member.crawl, member.run) == ("p1", "c", "r")
    assert member.addresses == {"p0": ("127.0.0.1", 7), "p2": ("127.0.0.1", 0)}
    assert member.supervised and not member.ended, "the supervisor has not announced the end"
    assert made.writer.said == [
        {"port": 4711},
        {"status": {"looks": 1}},
        {"report": {"pages": 3}},
        "closed",
        "gone",
    ]
    assert watched.limits == [
        (CLEAR_LIMIT, "report to the supervisor"),
        (CLEAR_LIMIT, "supervisor's pipe"),
    ]
    assert not watched.left


def test_a_signal_stops_a_child_even_if_it_came_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Watched(tmp_path, monkeypatch, told='{"stop": "max_pages"}')
    assert [number for number, _ in watched.handlers] == [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]
    assert watched.crawl.stops == [("max_pages", None)]
    watched.handlers[1][1](signal.SIGTERM, None)  # the loop is closed: the signal has no effect
    assert watched.crawl.stops == [("max_pages", None)]
    watched = Watched(tmp_path, monkeypatch, early=True)
    assert watched.crawl.stops[0] == ("signal", None)


def test_a_child_whose_supervisor_has_ended_stops(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The child watches the supervisor's process, so it notices the end of the process even if the pipe stays open."""
    watched = Watched(tmp_path, monkeypatch)
    ((supervisor, _),) = watched.parents
    assert supervisor == 1 and watched.crawl.stops == [("supervisor gone", ORPHAN_GRACE)]


def test_the_first_line_tells_a_child_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []

    async def run(child: _Child, parser: Any) -> None:
        told.append((child._start, parser))
        child._writer.close()

    async def play() -> int:
        ours, theirs = socket.socketpair()
        line = {"config": {}, "directory": str(tmp_path), "name": "p0", "crawl": "c", "run": "r", "ports": {}}
        with theirs:
            theirs.sendall(msgspec.json.encode(line | {"supervisor": 5, "seeds_file": "s"}) + b"\n")
            return await _work(ours, "parser")  # type: ignore[arg-type]

    logs: list[Any] = []
    monkeypatch.setattr("crawler.cli.options.send_log", lambda *args, **named: logs.append((args, named)))
    monkeypatch.setattr(_Child, "run", run)
    assert asyncio.run(play()) == 0
    ((start, parser),) = told
    assert (start.directory, start.supervisor, parser) == (str(tmp_path), 5, "parser")
    assert (start.ended, start.status_interval, start.json_log) == (False, 0.0, False)
    assert logs == [
        ((logging.WARNING, tmp_path / "crawler.log", LogsConfig()), {"json": False, "process": "p0"}),
    ]


def test_a_child_started_as_a_program_uses_the_given_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[Any] = []
    ours, theirs = socket.socketpair()

    def work(link: socket.socket) -> int:
        with link:
            done.append(link.fileno())
        return 75

    monkeypatch.setattr(module, "collect_rarely", lambda: done.append("rarely"))
    monkeypatch.setattr(module, "work", work)
    number = ours.detach()
    with theirs:
        assert module.main([str(number)]) == 75 and done == ["rarely", number]


def test_common_modules_are_imported_before_the_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr("crawler.storage.engines.chosen", lambda: done.append("engine"))
    module.warm_up()
    assert done == ["engine"]


def test_a_report_arrives_even_if_the_supervisor_sends_other_messages(tmp_path: Path) -> None:
    """Regression: a report of three processes covered only two of them, because the message of the third was lost.

    If a child closes its socket while messages are unread, the connection is reset.
    """

    async def play() -> list[bytes]:
        ours, theirs = socket.socketpair()
        made = Made(tmp_path)
        made.child._reader, made.child._writer = await asyncio.open_connection(sock=theirs)
        reader, writer = await asyncio.open_connection(sock=ours)
        writer.write(b'{"ended": true}\n')
        handing = asyncio.ensure_future(made.child._confirmed({"report": {"pages": 3}}))
        await asyncio.sleep(0)
        heard = [await reader.readline()]
        assert not handing.done(), "the child waits until the supervisor has the report"
        writer.write(b'{"reported": true}\n')
        await handing
        made.child._writer.close()
        heard.append(await reader.readline())
        writer.close()
        return heard

    assert asyncio.run(play()) == [b'{"report":{"pages":3}}\n', b""]


def test_a_child_whose_supervisor_ends_first_does_not_wait(tmp_path: Path) -> None:
    made = asyncio.run(_handed_over(tmp_path))
    assert made.writer.said == [{"report": 1}]


async def _handed_over(folder: Path) -> Made:
    made = Made(folder)  # the stream of its supervisor has ended
    await made.child._confirmed({"report": 1})
    return made
