"""Test the limit of bytes per second: the bytes received on a fake clock, and the pauses of a connection."""

import random
from typing import Any

import pytest

from crawler.config import ByteCount
from crawler.fetcher.connection import MEMORY, RATE, Connection
from crawler.fetcher.throttle import BURST, Throttle
from crawler.records import Outcome
from tests.fetcher.scripted import Server, make_client, small


@pytest.mark.parametrize("rate", [1.0, 1000.0, 1e6])
def test_throughput_is_at_most_the_rate(rate: float) -> None:
    """A receiver that waits as long as demanded gets at most rate * time bytes, one burst and one piece."""
    rng = random.Random(1)
    throttle, now, begun, passed = Throttle(rate), 0.0, 0.0, 0
    for _ in range(2000):
        if rng.random() < 0.1:
            now += rng.random() * 3
            begun, passed = now, 0
        piece = rng.randrange(1, 70_000)
        assert passed <= rate * (now - begun + BURST) + 1
        passed += piece
        now += throttle.spend(piece, now)
        assert throttle.wait(now) < 1e-6


def test_without_a_rate_there_is_no_wait() -> None:
    throttle = Throttle(0)
    assert not throttle and throttle.spend(1 << 40, 0.0) == 0.0 == throttle.wait(0.0)


async def test_rate_limit_pauses_count_for_no_time_limit() -> None:
    """60 kB arrive at 1 MB/s, although the silence limit is 1 ms."""
    body = bytes(60_000)
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)

    async with (
        Server([answer, *(body[i : i + 10_000] for i in range(0, 60_000, 10_000))]) as server,
        make_client(small(bytes_per_second=ByteCount(1_000_000))) as client,
    ):
        got = await client.fetch(server.request())
        assert (got.outcome, len(got.body)) == (Outcome.FETCHED, 60_000)
        assert client._throttle._free_at > 0


class Transport:
    def __init__(self) -> None:
        self.reading = True

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = True


def test_a_connection_resumes_after_the_last_reason_to_pause() -> None:
    """The memory limit and the rate limit pause a connection independently. Ending a reason twice does no harm."""
    nobody: Any = None
    connection = Connection(("http", "h", 80, ""), memoryview(bytearray(10)), nobody)
    connection.transport = transport = Transport()
    connection.pause(MEMORY)
    connection.pause(RATE)
    connection.resume(MEMORY)
    assert not transport.reading
    connection.resume(MEMORY)
    assert not transport.reading
    connection.resume(RATE)
    assert transport.reading
    connection.resume(RATE)
    assert transport.reading
