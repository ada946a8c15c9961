"""Test that `Client.fetch` never raises.

A bug in a fetch closes the connection, gives an outcome, and is logged once.
"""

import asyncio
import logging
import subprocess
from pathlib import Path
from typing import Any

import pytest

from crawler.errors import PLACES_MAX, Unexpected
from crawler.fetcher import outcome, prepared_requests
from crawler.fetcher.answer import Answer
from crawler.fetcher.client import Client
from crawler.fetcher.connection import Connection
from crawler.fetcher.connector import Connector
from crawler.fetcher.cookies import CookieJar
from crawler.fetcher.fetch_request import RequestWriter
from crawler.fetcher.idle_pool import IdlePool
from crawler.records import Blame, Fetch, Outcome
from tests.fetcher.scripted import HASTY, OK, Do, Server, make_client, run, small

# The functions into which a bug is planted: each step of a fetch, and the callbacks of the event loop.
STEPS: list[tuple[Any, str]] = [
    (prepared_requests, "split"),
    (CookieJar, "header"),
    (RequestWriter, "head"),
    (IdlePool, "take"),
    (Connector, "open"),
    (Connection, "__init__"),
    (Connection, "exchange"),
    (Answer, "__init__"),
    (Answer, "receive"),
    (outcome, "conclude"),
    (outcome, "retry_after_of"),
    (outcome, "location_of"),
    (CookieJar, "store"),
    (prepared_requests.PreparedRequests, "learn"),
    (Client, "_release"),
    (IdlePool, "add"),
]


class Bug(Exception):
    """A planted exception that no code expects."""


def broken(*_: Any, **__: Any) -> Any:
    raise Bug("planted")


async def _fetch_twice(config: Any, monkeypatch: pytest.MonkeyPatch, where: Any, name: str) -> list[Fetch]:
    """Fetch once with the function `where.name` broken, then once with the original function."""
    client = make_client(config)
    await client.start()
    try:
        async with Server([OK]) as server:
            request = server.request(keep_alive=5.0)
            with monkeypatch.context() as patch:
                patch.setattr(where, name, broken)
                first = await client.fetch(request)
            assert not client._active and not len(client._idle), "the connection is closed"
            return [first, await client.fetch(request)]
    finally:
        await asyncio.wait_for(client.close(), 5.0)


@pytest.mark.parametrize(("where", "name"), STEPS, ids=lambda value: getattr(value, "__name__", value))
def test_a_bug_at_any_step_is_an_outcome(where: Any, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = run(_fetch_twice(small(cookies=True), monkeypatch, where, name))
    assert (first.outcome, first.blame) == (Outcome.INTERNAL_ERROR, Blame.URL)
    assert first.error == "Bug: planted"
    assert second.outcome is Outcome.FETCHED, "the client still works"


@pytest.mark.parametrize("name", ["end", "expire"])
def test_a_bug_in_a_callback_is_an_outcome(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this outcome, an error raised in a callback would be lost, and the fetch would hang."""

    async def play() -> Fetch:
        client = make_client(HASTY)
        await client.start()
        script = [b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhe", Do.CLOSE if name == "end" else Do.HANG]
        monkeypatch.setattr(Answer, name, broken)
        try:
            async with Server(script) as server:
                return await client.fetch(server.request())
        finally:
            await asyncio.wait_for(client.close(), 5.0)

    assert run(play()).outcome is Outcome.INTERNAL_ERROR


def own_records(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    """Return the log records of the crawler only, because asyncio may log tasks left behind by earlier tests."""
    return [record for record in caplog.records if record.name.startswith("crawler")]


def test_each_place_of_a_bug_is_logged_once_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    unexpected = Unexpected()

    def raised(error: Exception) -> Exception:
        try:
            raise error
        except Exception as caught:
            return caught

    with caplog.at_level(logging.ERROR):
        for n in range(3):
            assert unexpected.note(raised(Bug(f"number {n}")), "here") == f"Bug: number {n}"
        unexpected.note(raised(KeyError("x")), "there")
        assert [record.exc_info is not None for record in own_records(caplog)] == [True, True]
        for n in range(2 * PLACES_MAX):
            kind = type(f"Bug{n}", (Exception,), {})
            unexpected.note(raised(kind()), "everywhere")
    assert len(own_records(caplog)) == len(unexpected.counts) == PLACES_MAX


def large_certificate(directory: Path, names: int = 4200) -> Path:
    """Make a key and a certificate of `host.test`. Other names in the certificate make it some 85 kB long."""
    config, pem = directory / "openssl.cnf", directory / "large.pem"
    others = "".join(f",DNS:n{n:04}.host.test" for n in range(names))
    config.write_text(
        "[req]\ndistinguished_name=dn\nx509_extensions=v3\nprompt=no\n[dn]\nCN=host.test\n"
        f"[v3]\nsubjectAltName=DNS:host.test,DNS:localhost{others}\n"
    )
    made = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    files = ["-days", "36500", "-config", config, "-keyout", directory / "key.pem", "-out", pem]
    subprocess.run(["openssl", *made, *files], check=True, capture_output=True)
    pem.write_bytes(pem.read_bytes() + (directory / "key.pem").read_bytes())
    return pem


def test_a_session_that_cannot_be_copied_is_dropped(tmp_path: Path) -> None:
    """OpenSSL cannot write a session with a leaf certificate of 85 kB (`i2d() failed`). The page is fetched anyway."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(large_certificate(tmp_path))

    async def play() -> list[Fetch]:
        client = make_client(small(tls="record"))
        await client.start()
        try:
            async with Server([OK], context=context) as server:
                request = server.request(scheme="https")
                return [await client.fetch(request) for _ in range(2)]
        finally:
            await asyncio.wait_for(client.close(), 5.0)

    fetches = run(play())
    assert [(got.outcome, got.error) for got in fetches] == [(Outcome.FETCHED, "")] * 2
