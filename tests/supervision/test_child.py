"""A child: what it does on the supervisor's word, and what it says."""

import asyncio
import io
import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from crawler.config import convert
from crawler.errors import StoreError, UsageError
from crawler.supervision import child as module
from crawler.supervision.child import ORPHAN_GRACE, Start, _Child, _work


class Writer:
    """The supervisor's end of what is said."""

    def __init__(self) -> None:
        self.said: list[Any] = []
        self.drained = 0

    def write(self, line: bytes) -> None:
        assert line.endswith(b"\n") and line.count(b"\n") == 1
        self.said.append(msgspec.json.decode(line))

    async def drain(self) -> None:
        self.drained += 1


class Crawl:
    """A crawl that remembers how it was stopped."""

    def __init__(self) -> None:
        self.stops: list[tuple[str, float | None]] = []

    def stop(self, reason: str, *, grace: float | None = None) -> None:
        self.stops.append((reason, grace))

    def status(self) -> dict[str, int]:
        return {"looks": 1}


class Exchange:
    def __init__(self) -> None:
        self.addresses: list[tuple[str, tuple[str, int]]] = []
        self.ends = 0

    def set_address(self, name: str, address: tuple[str, int]) -> None:
        self.addresses.append((name, address))

    def learn_end(self) -> None:
        self.ends += 1


class Made:
    """The child p1 of three, told by `lines`."""

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


def test_it_learns_where_its_siblings_listen(tmp_path: Path) -> None:
    made = heed(tmp_path, addresses={"p0": 4, "p1": 5, "p2": 6})
    assert made.exchange.addresses == [("p0", ("127.0.0.1", 4)), ("p2", ("127.0.0.1", 6))]
    assert made.exchange.ends == 0 and made.crawl.stops == []
    assert made.child._addresses() == {"p0": ("127.0.0.1", 7), "p2": ("127.0.0.1", 0)}


def test_it_stops_and_learns_of_the_end(tmp_path: Path) -> None:
    made = heed(tmp_path, ended=True)
    assert made.exchange.ends == 1 and made.crawl.stops == []
    made = heed(tmp_path, stop="max_pages")
    assert made.crawl.stops == [("max_pages", None)] and made.exchange.ends == 0


@pytest.mark.parametrize("broken", [False, True])
def test_without_a_supervisor_it_stops_by_itself(tmp_path: Path, broken: bool) -> None:
    """At the end of the stream, or when it breaks with words of ours unread."""

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


@pytest.mark.parametrize(("interval", "times"), [(0.0, 0), (0.25, 3)])
def test_it_says_how_it_goes_if_anybody_looks(
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


def test_a_supervisor_that_ends_before_a_word_leaves_nothing_to_do() -> None:
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
def test_a_child_ends_with_the_code_of_its_error_in_one_line(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None, code: int
) -> None:
    def run(work: Any, new_loop: Any, limit: float) -> int:
        work.close()
        if error is not None:
            raise error
        return 0

    done: list[str] = []
    stderr = io.StringIO()
    monkeypatch.setattr(module, "take_long_turns", lambda: done.append("turns"))
    monkeypatch.setattr(module, "fork_parser", lambda: done.append("parser"))
    monkeypatch.setattr("gc.freeze", lambda: done.append("frozen"))
    monkeypatch.setattr(module.ending, "run", run)
    monkeypatch.setattr(module.sys, "stderr", stderr)
    link: Any = SimpleNamespace()
    assert module.work(link) == code and done == ["turns", "parser", "frozen"]
    assert stderr.getvalue() == ("" if error is None else "crawler: two lines\n")
