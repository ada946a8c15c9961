"""Test the time limits, pauses and end of one connection, with a fake clock and a transport that records calls."""

import asyncio
import socket
import struct
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from crawler.config import FetchConfig
from crawler.fetcher import connection
from crawler.fetcher.answer import Answer, AnswerState
from crawler.fetcher.connection import MEMORY, RATE, REST_BYTES, SHORT_BYTES, Connection
from crawler.records import Outcome

LIMITS = msgspec.structs.replace(FetchConfig(), header_timeout=5.0, silence_timeout=3.0, total_timeout=20.0)
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"
WHOLE = HEAD % 5 + b"hello"


class Wire:
    """A transport that records calls."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.written = b""
        self.peer: tuple[str, int] | None = ("192.0.2.1", 80)
        self.closing = False

    def get_extra_info(self, name: str) -> Any:
        assert name == "peername"
        return self.peer

    def is_closing(self) -> bool:
        return self.closing

    def write(self, data: bytes) -> None:
        self.written += data

    def pause_reading(self) -> None:
        self.said.append("pause")

    def resume_reading(self) -> None:
        self.said.append("resume")

    def abort(self) -> None:
        self.said.append("abort")


class World:
    """A connection, its clock, its owner and its fetch slot. `asks` begins an exchange."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.cpu = 100.0, 0.0
        clock = SimpleNamespace(monotonic=lambda: self.now, thread_time=self._spend)
        monkeypatch.setattr(connection, "time", clock)
        self.has_time = lambda: True
        self.told: list[tuple[str, Any]] = []
        self.needed, self.given = False, 0
        self.wire = Wire()
        self.connection = Connection(("http", "a.test", 80, ""), memoryview(bytearray(1 << 20)), self)  # type: ignore[arg-type]
        self.connection.connection_made(self.wire)
        self.answer = Answer(LIMITS)

    def _spend(self) -> float:
        self.cpu += 0.25
        return self.cpu

    # -- the owner

    def spent(self, seconds: float) -> None:
        self.told.append(("spent", seconds))

    def rests(self, which: Connection) -> None:
        assert which is self.connection
        self.told.append(("rests", None))

    def parts(self, which: Connection, transport: Any) -> None:
        assert which is self.connection and transport is self.wire
        self.told.append(("parts", None))

    def grew(self, which: Connection, nbytes: int) -> None:
        assert which is self.connection
        self.told.append(("grew", nbytes))

    def received(self, which: Connection, nbytes: int) -> None:
        assert which is self.connection
        self.told.append(("received", nbytes))

    # -- the fetch slot

    def is_needed(self) -> bool:
        return self.needed

    def give(self) -> None:
        self.given += 1

    async def asks(self) -> "asyncio.Future[None]":
        """Begin an exchange with a total time limit of 20 s; return its task."""
        exchange = self.connection.exchange(b"GET", self.answer, LIMITS, self.now + 20.0, self)
        task = asyncio.ensure_future(exchange)
        await asyncio.sleep(0)
        return task

    def come(self, data: bytes) -> None:
        """Let bytes arrive."""
        self.connection.get_buffer(-1)[: len(data)] = data
        self.connection.buffer_updated(len(data))

    def of(self, name: str) -> list[Any]:
        """Return all values that the connection has reported to its owner under this name."""
        return [value for what, value in self.told if what == name]


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


async def test_an_answer_in_pieces(world: World) -> None:
    """The owner learns of every read, of the bytes held while more bytes are expected, and of the time spent reading."""
    task = await world.asks()
    assert world.wire.written == b"GET"
    for after, piece in ((1.0, HEAD % 9), (0.5, b"abc"), (0.25, b"def")):
        world.now += after
        world.come(piece)
        await asyncio.sleep(0)
        assert not task.done() and sum(world.of("grew")) == world.answer.held_bytes
    assert world.answer.held_bytes > 0 and len(world.of("grew")) == 2
    world.now += 0.25
    world.come(b"ghi")
    await task
    assert (world.answer.content, world.answer.reusable) == (b"abcdefghi", True)
    assert world.connection.took == 2.0 and world.connection.read_time == 0.75
    assert world.of("spent") == [0.0, *[0.25] * 3] and world.of("received") == [len(HEAD % 9), 3, 3, 3]
    assert not world.wire.said and not world.connection.lost
    world.answer, world.cpu = Answer(LIMITS), 0.0
    again = await world.asks()
    world.come(WHOLE)
    await again
    assert (world.connection.took, world.connection.read_time) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("pieces", "last", "needed", "error"),
    [
        ([], 5.0, False, "no header block within 5 s"),
        ([b"HTTP/1.1 200"], 5.0, False, "no header block within 5 s"),
        ([HEAD % 5], 3.0, False, "silent for 3 s"),
        ([HEAD % 5, b"a"], 4.5, False, "silent for 3 s"),
        ([HEAD % 50, *[b"a"] * 12], 20.0, False, "not complete within 20 s"),
        ([HEAD % 5], 0.0, True, "not complete when its fetch slot was needed"),
    ],
)
async def test_time_limits(world: World, pieces: list[bytes], last: float, needed: bool, error: str) -> None:
    """The first piece arrives at once, the next ones every 1.5 s. The exchange ends at `last`, not earlier."""
    task = await world.asks()
    begun = world.now
    for number, piece in enumerate(pieces):
        world.now = begun + 1.5 * number
        world.come(piece)
    if not needed:
        world.connection.check(begun + last - 0.001)
        await asyncio.sleep(0)
        assert not task.done()
    world.needed = needed
    world.now = begun + last
    world.connection.check(begun + last)
    await task
    assert world.answer.error == error and world.answer.state is AnswerState.DONE
    assert world.answer.failure == (Outcome.HEADER_TIMEOUT if "header" in error else None)
    world.connection.check(begun + 1000.0)  # this does nothing, because no request is in progress


async def test_time_limits_exclude_the_time_in_which_the_process_was_stopped(world: World) -> None:
    task = await world.asks()
    for _ in range(2):
        world.now += 600.0
        world.connection.excuse(600.0)
        world.connection.check(world.now)
    world.connection.check(world.now + 4.999)
    await asyncio.sleep(0)
    assert not task.done()
    world.connection.check(world.now + 5.001)
    await task
    assert world.answer.failure is Outcome.HEADER_TIMEOUT and world.connection.took == 0.0


async def test_a_pause_and_a_stop_are_not_both_excluded(world: World) -> None:
    task = await world.asks()
    world.connection.pause()
    world.now += 600.0
    world.connection.excuse(600.0)
    world.connection.resume()
    world.connection.check(world.now + 5.001)
    await task
    assert world.answer.failure is Outcome.HEADER_TIMEOUT


async def test_time_limits_exclude_pauses(world: World) -> None:
    task = await world.asks()
    world.now += 4.0
    world.connection.pause()
    world.now += 1000.0
    world.connection.check(world.now)
    world.connection.resume()
    assert world.given == 1 and world.wire.said == ["pause", "resume"]
    world.connection.check(world.now + 0.999)
    assert not task.done()
    world.come(HEAD % 5)
    world.now += 2.9
    world.connection.pause(RATE)
    world.now += 100.0
    world.connection.resume(RATE)
    assert world.given == 1, "only a request that waits for memory releases its slot"
    world.connection.check(world.now + 2.999)  # the silence limit is measured from the end of the pause
    await asyncio.sleep(0)
    assert not task.done()
    for _ in range(4):
        world.now += 2.9
        world.come(b"a")
    world.connection.check(world.now + 1.499)  # 4 + 2.9 + 4 * 2.9 s of the total limit of 20 s have passed
    await asyncio.sleep(0)
    assert not task.done()
    world.connection.check(world.now + 1.501)
    await task
    assert world.answer.error == "not complete within 20 s"


async def test_reading_resumes_after_the_last_reason_to_pause(world: World) -> None:
    """Reading resumes when the last reason to pause has ended. Ending a reason that is not active has no effect."""
    task, one = await world.asks(), world.connection
    one.resume(RATE)
    assert world.wire.said == []
    one.pause(RATE)
    one.pause(MEMORY)
    assert (world.wire.said, world.given) == (["pause"], 1)
    world.now += 50.0
    one.resume(RATE)
    assert world.wire.said == ["pause"]
    one.check(world.now)
    one.resume(MEMORY)
    assert world.wire.said == ["pause", "resume"]
    one.check(world.now + 4.9)
    one.resume(MEMORY)
    assert world.wire.said == ["pause", "resume"]
    world.come(WHOLE)
    await task
    assert one.took == 0.0


async def test_time_limits_run_during_a_rest(world: World) -> None:
    task, one = await world.asks(), world.connection
    head = HEAD % (4 * REST_BYTES)
    world.come(head + bytes(REST_BYTES - len(head) - 1))
    assert world.wire.said == [] and not world.of("rests")
    world.come(b"a")
    assert world.wire.said == ["pause"] and len(world.of("rests")) == 1
    world.come(b"a")  # this piece was read before the pause began
    assert world.wire.said == ["pause"] and len(world.of("rests")) == 1
    one.go_on()
    assert world.wire.said == ["pause", "resume"]
    world.come(bytes(REST_BYTES - 1))
    assert world.wire.said == ["pause", "resume"], "the count starts again at 0"
    world.come(b"a")
    assert len(world.of("rests")) == 2
    world.now += 3.0
    one.check(world.now)
    await task
    assert world.answer.error == "silent for 3 s"


async def test_rests_and_pauses_wait_for_each_other(world: World) -> None:
    task, one = await world.asks(), world.connection
    world.come(HEAD % (4 * REST_BYTES) + bytes(REST_BYTES))
    one.pause()
    assert world.wire.said == ["pause", "pause"]
    one.go_on()
    assert world.wire.said == ["pause", "pause"], "it still waits for memory"
    one.resume()
    assert world.wire.said == ["pause", "pause", "resume"]
    world.come(bytes(REST_BYTES))
    one.pause()
    one.resume()
    assert world.wire.said[3:] == ["pause", "pause"], "it still rests"
    one.go_on()
    assert world.wire.said[5:] == ["resume"]
    one.close()
    await task
    for harmless in (one.go_on, one.pause, one.resume, one.close):
        harmless()
    assert world.wire.said[6:] == ["abort"]


async def test_reads_are_short_and_followed_by_rests_in_a_long_turn(world: World) -> None:
    task = await world.asks()
    assert len(world.connection.get_buffer(-1)) == 1 << 20
    world.has_time = lambda: False
    assert len(world.connection.get_buffer(-1)) == SHORT_BYTES
    world.come(HEAD % 5)
    assert world.wire.said == ["pause"] and len(world.of("rests")) == 1
    world.connection.go_on()
    world.come(b"hello")  # the answer is complete, so it does not rest
    await task
    assert len(world.of("rests")) == 1


async def test_a_lost_connection_is_not_used_again(world: World) -> None:
    world.connection.close()
    await world.connection.exchange(b"GET", world.answer, LIMITS, world.now + 20.0)
    assert (world.answer.failure, world.answer.error) == (Outcome.RESET, "connection lost")
    assert world.wire.written == b""


async def test_a_bug_in_reading_ends_the_exchange_and_not_the_loop(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first error in reading is raised. An error that occurs when the exchange ends is raised, too."""

    def buggy(*_: object) -> None:
        raise KeyError("first")

    task = await world.asks()
    monkeypatch.setattr(world, "received", buggy)
    world.come(WHOLE)
    world.connection.fail(ValueError("second"))
    with pytest.raises(KeyError, match="first"):
        await task
    monkeypatch.undo()


async def test_a_bug_while_ending_an_answer_is_raised_too(world: World) -> None:
    class Buggy(Answer):
        def end(self, error: str = "") -> None:
            raise KeyError("ending")

    world.answer = Buggy(LIMITS)
    task = await world.asks()
    world.connection.connection_lost(None)
    with pytest.raises(KeyError, match="ending"):
        await task


def test_a_connection_before_it_is_open(world: World) -> None:
    """The pool and the client read these attributes of every connection, even if the connection never opens."""
    one = Connection(("http", "a.test", 80, ""), memoryview(b""), world)  # type: ignore[arg-type]
    assert (one.address, one.opened, one.tls_ok, one.lost) == ("", "plain", True, False)
    assert (one.took, one.read_time, one.idle_until) == (0.0, 0.0, 0.0)
    assert one.is_quiet() and repr(one) == "Connection(, idle, None)"
    one.close()
    assert one.lost and world.told == []


def test_the_address_of_a_connection(world: World) -> None:
    assert world.connection.address == "192.0.2.1" and not world.connection.lost
    world.wire.peer, world.wire.closing = None, True
    world.connection.connection_made(world.wire)
    assert world.connection.address == "" and world.connection.lost


class Kernel:
    """Replaces a socket.

    `sent` and `received` are the milliseconds since data was last sent and received, as in TCP_INFO.
    """

    def __init__(self, sent: int = 0, received: int = 0, fails: bool = False) -> None:
        self.fails, self.options, self.asked = fails, list[tuple[int, int, int]](), 0
        self._info = struct.pack("=44x I 4x I", sent, received)

    def setsockopt(self, *option: int) -> None:
        self.options.append(option)  # type: ignore[arg-type]
        if self.fails:
            raise OSError("closed")

    def getsockopt(self, level: int, name: int, size: int) -> bytes:
        assert (level, name, size) == (socket.IPPROTO_TCP, socket.TCP_INFO, len(self._info))
        self.asked += 1
        if self.fails:
            raise OSError("closed")
        return self._info


@pytest.mark.parametrize(
    ("seen", "kernel", "took"),
    [
        (1.0, Kernel(900, 300), 0.61),  # our event loop was 0.4 s late, or a tick less
        (1.0, Kernel(998, 5), 1.0),  # a lag of less than a tick is ignored
        (1.0, Kernel(300, 900), 0.0),  # the time is never below 0
        (1.0, Kernel(fails=True), 1.0),
        (0.015, Kernel(900, 899), 0.015),  # the exchange was too short for a query to the kernel
        (0.03, Kernel(1, 0), 0.011),
    ],
)
async def test_the_time_of_an_exchange_is_that_of_server_and_network(
    world: World, seen: float, kernel: Kernel, took: float
) -> None:
    """For each request, acknowledgements at once are turned on in the kernel. A closed socket does no harm."""
    world.connection.sock = kernel  # type: ignore[assignment]
    world.now = 0.0
    task = await world.asks()
    assert kernel.options == [(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)]
    world.now = seen
    world.come(WHOLE)
    await task
    assert world.connection.took == pytest.approx(took, abs=1e-9) and kernel.asked == (seen > 0.02)
