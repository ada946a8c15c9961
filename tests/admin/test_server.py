"""Test the admin server over real sockets. The data of the server comes from simulated processes."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from crawler.admin import server
from crawler.admin.server import AdminServer
from crawler.admin.status_source import Answers
from crawler.config import Config
from crawler.errors import CrawlerError, UsageError
from crawler.serve.listening_socket import listen
from tests.admin.test_metrics import status
from tests.serve.support import Response


def _hosts(name: str, *ranks: float) -> dict[str, Any]:
    """Return a process's answer to the command `hosts`."""
    rows = [{"host": f"{name}-{k}", "rank": rank, "cause": ""} for k, rank in enumerate(ranks)]
    return {"hosts": 2, "matched": 2, "failing": 0, "unsearched": 0, "rows": rows}


class Processes:
    """Two simulated processes that record the requests they receive."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.why = ""
        self.slow: asyncio.Event | None = None  # until this event is set, no process answers
        self.gone: tuple[str, ...] = ()
        self.stops = False  # if True, the processes do not answer after `stop`
        self.owners = ["p0", "p1"]  # the processes that answer the command `why`

    async def ask(self, request: Mapping[str, Any], *, first: bool = False, patient: bool = False) -> Answers:
        answers = Answers(await self._answers(request))
        answers.missing = self.gone
        return answers

    async def _answers(self, request: Mapping[str, Any]) -> list[Any]:
        self.asked.append(dict(request))
        if self.slow is not None:
            await self.slow.wait()
        if self.stops and {"command": "stop"} in self.asked[:-1]:
            raise CrawlerError("no process answers")
        if request["command"] == "status":
            return [status("p0"), status("p1")]
        if request["command"] == "hosts":
            return [_hosts("p0", 8.0, 2.0), _hosts("p1", 9.0, 7.0)]
        if request["command"] == "host":
            return [{"host": request["host"], "state": "unknown"}]
        if request["command"] == "why":
            return [{"process": name, "owner": "p1", "url": request["url"]} for name in self.owners]
        if request["command"] == "retire":
            raise UsageError("no regular expression")
        return [{}]

    def not_ready(self) -> str:
        return self.why


class Watched:
    def __init__(self, folder: Path) -> None:
        self.source = Processes()
        self.server = AdminServer(self.source, Config(), folder, lambda: 100.0)
        self.port = 0

    async def __aenter__(self) -> "Watched":
        await self.server.start_on(listen("127.0.0.1", 0, "admin.address"))
        self.port = self.server.listener.address[1]
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.server.close()

    async def ask(self, target: str, *lines: str, method: str = "GET", body: bytes = b"") -> Response:
        host = [] if any(line.startswith("Host:") for line in lines) else [f"Host: 127.0.0.1:{self.port}"]
        length = [f"Content-Length: {len(body)}"] if body else []
        head = [f"{method} {target} HTTP/1.1", *host, *lines, *length, "Connection: close", "", ""]
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write("\r\n".join(head).encode() + body)
        data = await reader.read()
        writer.close()
        return Response(data)

    async def events(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Ask for the stream of events."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(f"GET /events HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\n\r\n".encode())
        return reader, writer

    async def do(self, command: dict[str, Any], *lines: str) -> Response:
        return await self.ask(
            "/do", "Content-Type: application/json", *lines, method="POST", body=msgspec.json.encode(command)
        )


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


async def test_each_readable_address_is_served(watched: Watched) -> None:
    async with watched:
        page = await watched.ask("/")
        assert page.status == 200 and b"<title>crawler</title>" in page.body
        policy = page.fields["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy
        for name, kind in (("page.js", "text/javascript"), ("dashboard.css", "text/css")):
            file = await watched.ask(f"/static/{name}")
            assert file.status == 200 and file.fields["content-type"].startswith(kind)
        assert b'crawler_urls_todo{process="p1"} 7.0' in (await watched.ask("/metrics")).body
        assert (await watched.ask("/status")).json["frontier"]["todo"] == 14
        assert (await watched.ask("/why?url=http://a.example/")).json["process"] == "p1"
        assert (await watched.ask("/healthz")).status == (await watched.ask("/readyz")).status == 200
        watched.source.why = "p1 did not answer"
        assert (await watched.ask("/readyz")).status == 503
        assert b"User-agent: crawler" in (await watched.ask("/bot")).body
        assert (await watched.ask("/bot/ledger?host=a.example")).json["requests"] == 0
        assert (await watched.ask("/hosts/nowhere.example")).status == 404
        assert set((await watched.ask("/history")).json) >= {"times", "pages", "todo"}


@pytest.mark.parametrize(
    ("target", "code"),
    [
        ("/static/../admin-token", 404),
        ("/static/%2e%2e/admin-token", 404),
        ("/static/", 404),
        ("/admin-token", 404),
        ("/why", 400),
        ("/why?url=", 400),
        ("/hosts/", 400),
        ("/hosts/%00", 400),
        ("/bot/ledger", 400),
        ("/bot/ledger?host=../../etc/passwd", 400),
        ("/bot/ledger?host=a.example&format=csv", 400),
        ("/consent?format=csv", 400),
        ("/log?level=INFO", 400),
        ("/hosts?limit=-1", 400),
        ("/hosts?limit=100000", 400),
        ("/do", 405),
    ],
)
async def test_unknown_addresses_and_invalid_requests_are_rejected(
    watched: Watched, target: str, code: int
) -> None:
    async with watched:
        assert (await watched.ask(target)).status == code


async def test_changes_need_the_token(watched: Watched) -> None:
    async with watched:
        token = f"X-Admin-Token: {watched.server.token}"
        for command in ("pause", "resume", "stop"):
            assert (await watched.do({"command": command})).status == 401
            assert (await watched.do({"command": command}, "X-Admin-Token: 0")).status == 403
            assert (
                await watched.do({"command": command}, token, "Origin: http://evil.example")
            ).status == 403
            assert (await watched.do({"command": command}, token, "Host: evil.example")).status == 421
            assert (await watched.ask(f"/do?command={command}&token={watched.server.token}")).status == 405
        assert all(request["command"] == "status" for request in watched.source.asked)
        assert (await watched.do({"command": "pause"}, token)).status == 200
        assert {"command": "pause"} in watched.source.asked
        assert (await watched.do({"command": "retire", "pattern": "("}, token)).status == 400
        assert (await watched.ask("/", "Host: rebound.example")).status == 421
        for path in ("/", "/status", "/why?url=x", "/events", "/hosts/a.example", "/static/page.js"):
            for method in ("DELETE", "POST", "OPTIONS", "PROPFIND"):
                refusal = await watched.ask(path, method=method)
                assert (refusal.status, refusal.fields["allow"]) == (405, "GET, HEAD"), (path, method)
        refusal = await watched.ask("/do")
        assert (refusal.status, refusal.fields["allow"]) == (405, "POST")
        for method in ("GET", "POST", "DELETE"):
            assert (await watched.ask("/nothing", method=method)).status == 404
        for path in ("/", "/do", "/nothing"):
            assert (await watched.ask(path, method="BREW")).status == 501


async def test_stop_is_confirmed_although_the_processes_end_at_once(watched: Watched) -> None:
    async with watched:
        watched.source.stops = True
        done = await watched.do({"command": "stop"}, f"X-Admin-Token: {watched.server.token}")
        assert done.status == 200 and done.json["done"] == "stop"


async def test_events_come_each_second(watched: Watched) -> None:
    """A stream sends its first event immediately, and ends when the server ends.

    The number of streams is bounded.
    """
    async with watched:
        streams = []
        for _ in range(17):
            reader, writer = await watched.events()
            streams.append((await reader.readuntil(b"\r\n\r\n"), reader, writer))
        codes = [Response(head).status for head, _, _ in streams]
        assert codes.count(200) == 16 and codes[-1] == 503
        reader = streams[0][1]
        assert b"retry: " in await reader.readuntil(b"\n\n")
        event = msgspec.json.decode((await reader.readuntil(b"\n\n")).partition(b"data: ")[2])
        assert set(event) == {"at", "point", "status"}
        for _, _, writer in streams:
            writer.close()


async def _next_event(reader: asyncio.StreamReader) -> tuple[str, dict[str, Any]]:
    """Return the kind and data of the next event of a stream."""
    while True:
        lines = (await reader.readuntil(b"\n\n")).split(b"\n")
        fields = dict(line.split(b": ", 1) for line in lines if b": " in line)
        if b"data" in fields:
            return fields.get(b"event", b"message").decode(), msgspec.json.decode(fields[b"data"])


@pytest.mark.parametrize(("failure", "state"), [("", "stopped"), ("the disk is full", "failed")])
async def test_a_stream_sends_heartbeats_and_reports_how_the_crawl_ended(
    watched: Watched, monkeypatch: pytest.MonkeyPatch, failure: str, state: str
) -> None:
    """Regression: the dashboard could not distinguish a slow process, a lost connection and the end of the crawl."""
    monkeypatch.setattr(server, "BEAT", 0.02)

    async with watched:
        reader, writer = await watched.events()
        await reader.readuntil(b"\r\n\r\n")
        while (await _next_event(reader))[0] != "message":
            pass
        watched.source.slow = asyncio.Event()  # this event is never set, so no process answers
        kinds = set()
        for _ in range(5):
            kind, data = await _next_event(reader)
            kinds.add(kind)
            assert kind == "message" or set(data) == {"now", "at"}
        assert "beat" in kinds
        closing = asyncio.create_task(watched.server.close(failure))
        while (found := await _next_event(reader))[0] != "end":
            pass
        assert found[1] == {"state": state, "why": failure, "at": 100.0}
        await closing
        writer.close()


async def test_an_idle_limit_does_not_end_a_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The idle time limit applies to clients that have not sent a request yet, but not to readers of events."""
    monkeypatch.setattr(server, "TIMEOUT", 0.05)
    monkeypatch.setattr(server, "BEAT", 0.02)
    monkeypatch.setattr("crawler.serve.http_server.SWEEP_INTERVAL", 0.01)

    async with Watched(tmp_path) as watched:
        reader, writer = await watched.events()
        kinds = [(await _next_event(reader))[0] for _ in range(40)]
        assert kinds.count("beat") >= 20
        writer.close()


async def test_lists_of_hosts_fetches_and_log_lines(watched: Watched, tmp_path: Path) -> None:
    """The server lists hosts, latest fetches and latest log lines of all processes, and names the crawl's directory."""
    async with watched:
        found = (await watched.ask("/hosts?order=failing&limit=3&search=a&cause=reset")).json
        assert [row["host"] for row in found["rows"]] == ["p1-0", "p0-0", "p1-1"]
        wanted = {"command": "hosts", "limit": 3, "order": "failing", "search": "a", "cause": "reset"}
        assert wanted in watched.source.asked
        assert (await watched.ask("/hosts?limit=x")).status == 400
        (tmp_path / "pages.jsonl").write_text('{"url":"http://a.org/","outcome":"gone"}\n')
        assert (await watched.ask("/fetches?outcome=gone&text=a.org")).json["rows"][0]["outcome"] == "gone"
        assert (await watched.ask("/fetches?outcome=reset")).json["rows"] == []
        (tmp_path / "crawler.log").write_text("2026-11-24 00:00:01,000 ERROR crawler: no\n")
        assert (await watched.ask("/log?level=warning")).json["rows"][0]["level"] == "error"
        assert (await watched.ask("/log?level=loud")).status == 400
        assert (await watched.ask("/status")).json["crawl"]["directory"] == str(tmp_path)


async def test_data_of_a_missing_process_is_reported_as_missing(watched: Watched) -> None:
    """Hosts and URLs of a stopped process were once reported as unknown, or a wrong process described them."""
    async with watched:
        assert (await watched.ask("/hosts/a.example")).status == 404
        watched.source.gone = ("p1",)
        host = await watched.ask("/hosts/a.example")
        assert (host.status, host.json["missing"]) == (503, ["p1"])
        assert (await watched.ask("/bot/ledger?host=a.example")).json["missing"] == ["p1"]
        watched.source.owners = ["p0"]
        why = await watched.ask("/why?url=http://a.example/")
        assert (why.status, why.json["missing"]) == (503, ["p1"]) and "p1" in why.json["why"]


async def test_a_parameter_that_a_path_does_not_have_is_refused(watched: Watched) -> None:
    """`/why?url=U?a=1&b=2` explained `U?a=1`, and a misspelt `/hosts?limt=5` had no effect."""
    async with watched:
        assert (await watched.ask("/why?url=http://a.example/?a=1%26b=2")).json[
            "url"
        ] == "http://a.example/?a=1&b=2"
        for target in (
            "/why?url=http://a.example/?a=1&b=2",
            "/why?url=http://a.example/&url=http://b.example/",
        ):
            refused = await watched.ask(target)
            assert refused.status == 400 and "percent-encoded" in refused.json["why"], target
        for path in ("/hosts", "/log", "/fetches", "/consent", "/bot/ledger"):
            refused = await watched.ask(f"{path}?limt=5")
            assert refused.status == 400 and "limt" in refused.json["why"], path
        for path in ("/metrics", "/status", "/healthz"):
            assert (await watched.ask(f"{path}?cache=1")).status == 200, path
