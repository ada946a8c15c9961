"""Test TLS: verifying, recording, resuming, and the time limit of the handshake.

The behaviour is described in `fetcher/README.md`, "Cookies, credentials and TLS".
"""

import asyncio
import gc
import ssl
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from crawler.config import ByteCount, Seconds
from crawler.fetcher.connection import Connection
from crawler.fetcher.fetch_request import FetchRequest
from crawler.fetcher.tls import ResumingContext
from crawler.fetcher.tls_transport import Handshakes, TlsTransport
from crawler.records import Blame, Fetch, Outcome
from tests.fetcher.scripted import OK, Do, Server, make_client, run, silent_port, small

DATA = Path(__file__).parent.parent / "data" / "fetcher"


def server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(DATA / "host.test.pem")
    return context


@pytest.fixture()
def trusted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Add the test authority to the system's root certificates."""
    monkeypatch.setenv("SSL_CERT_FILE", str(DATA / "authority.pem"))


async def _get(
    server: Server, host: str = "host.test", times: int = 1, keep_alive: float = 0.0, **options: object
) -> list[Fetch]:
    async with make_client(small(**options)) as client:
        request = server.request(host=host, scheme="https", keep_alive=keep_alive)
        return [await client.fetch(request) for _ in range(times)]


@pytest.mark.usefixtures("trusted")
async def test_handshakes_are_verified_and_resumed() -> None:
    context = server_context()
    async with Server([OK], context=context) as server:
        fetches = await _get(server, times=3)
        assert [(got.outcome, got.tls_ok, got.content) for got in fetches] == [
            (Outcome.FETCHED, True, b"hello")
        ] * 3
        assert server.connections == 3
    assert context.session_stats()["hits"] == 2, "the second and third handshake resumed the session"


@pytest.mark.usefixtures("trusted")
async def test_connections_are_kept_alive_over_tls() -> None:
    async with Server([OK], context=server_context()) as server:
        await _get(server, times=3, keep_alive=5.0)
        assert server.connections == 1


@pytest.mark.usefixtures("trusted")
def test_nothing_of_a_connection_is_left_for_the_garbage_collector() -> None:
    """All memory of a connection is freed at once, even after a refusal, a cancellation or a close by the server."""

    async def play() -> None:
        async with make_client() as client, make_client(small(tls_timeout=Seconds(0.2))) as hasty:
            async with Server([OK], context=server_context()) as server:
                request = server.request(scheme="https", keep_alive=5.0)
                for keep_alive in (5.0, 0.0):
                    request.keep_alive = keep_alive
                    assert (await client.fetch(request)).outcome is Outcome.FETCHED
                request.url = server.url(host="other.test", scheme="https")
                assert (await client.fetch(request)).outcome is Outcome.CERTIFICATE_MISMATCH
            async with Server([OK], [Do.CLOSE], context=server_context()) as server:
                request.url = server.url(scheme="https")
                await client.fetch(request)
                await client.fetch(request)
            with silent_port() as port:
                request.url = f"https://host.test:{port}/"
                assert (await hasty.fetch(request)).outcome is Outcome.TLS_ERROR
            await asyncio.sleep(0.05)

            assert left() == before

    def left() -> int:
        return sum(isinstance(thing, TlsTransport | Connection) for thing in gc.get_objects())

    gc.collect()
    before = left()
    gc.disable()
    try:
        run(play())
    finally:
        gc.enable()


@pytest.mark.usefixtures("trusted")
async def test_a_session_is_copied_once_per_full_handshake() -> None:
    """A session is not copied for each answer, and not copied again as long as it is young."""
    copies = 0

    class Counting(ResumingContext):
        def keep(self, hostname: str, ssl_object: ssl.SSLObject, now: float) -> None:
            nonlocal copies
            before = self._sessions.get(hostname)
            super().keep(hostname, ssl_object, now)
            copies += self._sessions.get(hostname) is not before

    async with Server([OK], context=server_context()) as server, make_client() as client:
        client._connector._context(True).__class__ = Counting
        carried = []
        for keep_alive in (5.0, 5.0, 0.0, 5.0, 0.0, 0.0):
            request = server.request(scheme="https", keep_alive=keep_alive)
            carried.append((await client.fetch(request)).connection)
        assert carried == ["full", "reused", "reused", "resumed", "reused", "resumed"]
        assert copies == 1


async def test_sessions_of_the_most_recent_hosts_are_kept() -> None:
    """When a session is resumed, it becomes the most recent session, although it is not copied again."""
    async with make_client(small(tls="record")) as client:
        client._connector._context(False).sessions_max = 2
        carried = []
        async with Server([OK], context=server_context()) as server:
            for host in ("a.test", "b.test", "a.test", "c.test", "a.test", "b.test"):
                request = server.request(host=host, scheme="https", keep_alive=0.0)
                carried.append((await client.fetch(request)).connection)
        assert carried == ["full", "full", "resumed", "full", "resumed", "full"]


@pytest.mark.usefixtures("trusted")
async def test_a_large_body_over_tls_pauses_and_is_received_in_full() -> None:
    """One read receives many TLS records, and reading pauses in the middle of them."""
    body = bytes(range(256)) * 4000

    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    async with (
        make_client(small(held_bytes_max=ByteCount(50_000), tls="record")) as client,
        Server([answer], context=server_context()) as server,
    ):
        requests = [server.request(host=f"h{number}.test", scheme="https") for number in range(4)]
        fetches = await asyncio.gather(*map(client.fetch, requests))
        assert all(got.body == body for got in fetches)
        client.account._check()


@pytest.mark.usefixtures("trusted")
async def test_close_delimited_body_over_tls() -> None:
    async with Server([b"HTTP/1.1 200 OK\r\n\r\nhello", Do.CLOSE], context=server_context()) as server:
        (got,) = await _get(server)
        assert (got.outcome, got.content) == (Outcome.FETCHED, b"hello")


@pytest.mark.parametrize("host", ["host.test", "other.test"])
async def test_bad_certificate_is_refused_or_recorded(host: str) -> None:
    """An untrusted certificate or one of another name is an error with "verify", and only a flag with "record"."""
    async with Server([OK], context=server_context()) as server:
        (got,) = await _get(server, host)
        assert (got.outcome, got.blame, got.status) == (Outcome.CERTIFICATE_UNTRUSTED, Blame.HOST, 0)
        assert "certificate" in got.error
        assert not server.requests
        first, second = await _get(server, host, times=2, tls="record")
        assert (first.outcome, first.tls_ok, first.content) == (Outcome.FETCHED, False, b"hello")
        assert second.tls_ok is False
        assert len(server.requests) == 2


@pytest.mark.usefixtures("trusted")
async def test_recording_a_host_that_verifies_is_not_flagged() -> None:
    async with Server([OK], context=server_context()) as server:
        (got,) = await _get(server, tls="record")
        assert (got.outcome, got.tls_ok) == (Outcome.FETCHED, True)


@pytest.mark.usefixtures("trusted")
async def test_a_certificate_for_another_name_is_named_as_such() -> None:
    async with Server([OK], context=server_context()) as server:
        (got,) = await _get(server, "other.test")
    assert (got.outcome, got.blame) == (Outcome.CERTIFICATE_MISMATCH, Blame.HOST)


async def test_an_expired_certificate_is_named_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    """The certificate is self-signed, and is trusted here; it ended on 2020-01-02."""
    monkeypatch.setenv("SSL_CERT_FILE", str(DATA / "expired.pem"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(DATA / "expired.pem")
    async with Server([OK], context=context) as server:
        (got,) = await _get(server)
    assert (got.outcome, got.blame) == (Outcome.CERTIFICATE_EXPIRED, Blame.HOST)


async def test_legacy_handshake_only_when_recording() -> None:
    """The server speaks TLS 1.0 with weak ciphers."""
    with pytest.warns(DeprecationWarning):
        context = server_context()
        context.set_ciphers("ALL:@SECLEVEL=0")
        context.minimum_version = ssl.TLSVersion.TLSv1
        context.maximum_version = ssl.TLSVersion.TLSv1
        async with Server([OK], context=context) as server:
            assert (await _get(server))[0].outcome is Outcome.TLS_ERROR
            (got,) = await _get(server, tls="record")
            assert (got.outcome, got.tls_ok) == (Outcome.FETCHED, False)


async def test_plain_text_on_the_tls_port() -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        await reader.read()
        writer.close()

    raw = await asyncio.start_server(speak, "127.0.0.1", 0)
    server = Server([OK])
    server.port = raw.sockets[0].getsockname()[1]
    assert (await _get(server))[0].outcome is Outcome.TLS_ERROR
    raw.close()


async def test_handshake_has_its_own_time_limit() -> None:
    """The server accepts the connection and sends nothing, so the handshake limit applies, not the connection limit."""
    server = Server([OK])
    loop = asyncio.get_running_loop()
    with silent_port() as server.port:
        for connect, handshake in ((5.0, 0.1), (0.5, 1.0)):
            before = loop.time()
            (got,) = await _get(server, connect_timeout=Seconds(connect), tls_timeout=Seconds(handshake))
            assert (got.outcome, got.error) == (Outcome.TLS_ERROR, "no TLS handshake in time")
            assert handshake <= loop.time() - before + 0.005 < 4.0


def test_handshakes_are_limited_to_a_share_of_each_turn() -> None:
    """Steps run in order of arrival until the share of a turn is used up. A step that fails stops no other."""
    now, taken, turn = 0.0, [], 0

    def step(number: int) -> None:
        nonlocal now
        now += 1.0
        taken.append((turn, number))
        if number == 4:
            raise RuntimeError("a step that fails")

    async def play() -> None:
        nonlocal turn
        asyncio.get_running_loop().set_exception_handler(lambda _loop, _context: None)
        handshakes = Handshakes(2.5, clock=lambda: now)
        for number in range(10):
            handshakes.step(partial(step, number))
        while handshakes:
            turn += 1
            await asyncio.sleep(0)
        turn += 1
        await asyncio.sleep(0)
        handshakes.step(partial(step, 10))

    run(play())
    assert [number for _, number in taken] == list(range(11))
    turns = Counter(turn for turn, _ in taken)
    assert max(turns.values()) == 3, "the step that exceeds the share is the last one of its turn"
    assert len(turns) >= 4


@pytest.mark.usefixtures("trusted")
async def test_a_handshake_that_waited_for_its_turn_ends_like_any_other() -> None:
    """Bytes that the server sent before it closed are still read, and they determine the error."""

    async def ends(share: float) -> list[tuple[Outcome, bytes, str]]:
        async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read(1)
            writer.write(b"HTTP/1.1 400 this is no TLS\r\n\r\n")
            writer.close()

        raw = await asyncio.start_server(speak, "127.0.0.1", 0)
        plain = f"https://host.test:{raw.sockets[0].getsockname()[1]}/"
        async with make_client(small()) as client:
            client._connector.handshakes = Handshakes(share)
            async with Server([OK], context=server_context()) as server:
                good, bad = server.url(scheme="https"), server.url(host="other.test", scheme="https")
                asked = [client.fetch(FetchRequest(url, ("127.0.0.1",))) for url in [good, bad, plain] * 5]
                fetches = await asyncio.gather(*asked)
        raw.close()
        return [(fetch.outcome, fetch.content, fetch.error) for fetch in fetches]

    long, short = await ends(60.0), await ends(1e-9)
    assert short == long
    assert [outcome for outcome, _, _ in short[:3]] == [
        Outcome.FETCHED,
        Outcome.CERTIFICATE_MISMATCH,
        Outcome.TLS_ERROR,
    ]
    assert "WRONG_VERSION_NUMBER" in short[2][2].upper().replace(" ", "_")
