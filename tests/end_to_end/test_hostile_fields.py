"""Test hostile header fields in every interface, for running and ended crawls, with one and three processes.

No record contains credentials that the crawl sends or receives. No text reaches a terminal unescaped. The
page server passes on only the header fields in its list, whichever process owns the page.
"""

import re
import zlib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest

from crawler.admin import control_client
from crawler.serve.header_fields import PASSED
from tests.end_to_end.test_hostile_text import EVIL
from tests.end_to_end.test_live import Running, ask, serving
from tests.end_to_end.web import run, served
from tests.test_printable import is_hidden

HOSTS, PROCESSES = 12, (1, 3)
SECRET = "s3cr3t"
AUTHORIZATION = f"Bearer {SECRET}-token"
PASS = {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Language": "en",
    "Cache-Control": "max-age=60",
    "X-Robots-Tag": "noimageindex",
}
DROPPED = {
    "No-Vary-Search": "params",
    "Use-As-Dictionary": 'match="/*"',
    "Set-Login": "logged-in",
    "Origin-Trial": "token",
    "Refresh": "0;url=http://evil.example/",
    "Clear-Site-Data": '"*"',
    "Service-Worker-Allowed": "/",
    "Access-Control-Allow-Origin": "*",
    "Link": "</x>; rel=preload",
    "Set-Cookie": f"sid={SECRET}; Path=/",
    "X-Said": EVIL,
}
OURS = {
    "accept-ranges", "age", "connection", "content-length", "content-location", "content-security-policy",
    "cross-origin-resource-policy", "date", "etag", "last-modified", "link", "memento-datetime", "referrer-policy",
    "vary", "x-changed-at", "x-consent", "x-content-type-options", "x-crawled-at", "x-fresh-probability",
}  # fmt: skip
VARYING = {
    "age",
    "connection",
    "content-location",
    "date",
    "last-modified",
    "memento-datetime",
    "x-changed-at",
    "x-consent",
    "x-crawled-at",
    "x-fresh-probability",
    "link",
}
SAID = (
    ("status", "-v"),
    ("status", "--json"),
    ("why", "{url}"),
    ("get", "{url}", "--headers"),
    ("top", "--count", "1"),
)
CHANGING = (
    ("seed", f"http://{EVIL}/"), ("signal", f"{{url}}{EVIL}"), ("retire", EVIL), ("block", EVIL), ("set", f"{EVIL}=1"),
    ("reshard", "--to", EVIL), ("recover", EVIL),
)  # fmt: skip
AT_REST = (
    ("report",), ("report", "--format", "csv"), ("export", "--format", "crawl-log"), ("export", "--format", "links"),
    ("check",), ("config", "show"),
)  # fmt: skip


class Hostile(BaseHTTPRequestHandler):
    """Serves `/`, `/in` and `/odd` on any host, with all hostile header fields.

    The server records the credentials of each request.
    """

    protocol_version = "HTTP/1.1"
    brought: list[tuple[str, str, str]]

    def do_GET(self) -> None:
        asked = self.headers
        self.brought.append((self.path, asked.get("Cookie", ""), asked.get("Authorization", "")))
        status = "404" if self.path == "/robots.txt" else "200"
        body = f"<title>{EVIL}</title>{self.headers['Host']}<a href=/in>{EVIL}</a><a href=/odd>o</a>".encode()
        head = "HTTP/1.1 " + (f"{EVIL} odd" if self.path == "/odd" else f"{status} Said {EVIL}")
        fields = {**PASS, **DROPPED, "Content-Length": len(body), "Connection": "close"}
        lines = [head, *(f"{name}: {value}" for name, value in fields.items()), "", ""]
        self.wfile.write("\r\n".join(lines).replace("\u0085", "").encode() + body)
        self.close_connection = True

    def log_message(self, *_: object) -> None:
        pass


class Told(NamedTuple):
    """The results of a crawl of the hostile hosts: directory, URLs, terminal texts, answers of the page server."""

    directory: Path
    urls: list[str]
    texts: dict[str, str]
    live: dict[str, dict[str, str]]
    at_rest: dict[str, dict[str, str]]
    bodies: bytes
    owners: set[str]


def passed(port: int, url: str) -> dict[str, str]:
    """Return the header fields of the page server's answer for a URL, by their names in lower case."""
    status, fields, _ = ask(port, f"/page?url={quote(url, safe='')}")
    assert status == 200, (status, fields)
    return {name.lower(): value for name, value in fields.items()}


def serve_at_rest(directory: Path, urls: list[str]) -> dict[str, dict[str, str]]:
    with serving(directory) as port:
        return {url: passed(port, url) for url in urls}


def crawl_and_ask(folder: Path, processes: int, port: int) -> Told:
    urls = [f"http://h{n}.localhost:{port}/" for n in range(HOSTS)]
    pages = [url + path for url in urls for path in ("", "in")]
    flags = (
        "--processes", str(processes), "--delay", "0", "--set", "fetch.cookies=true", "--set", "pages.gzip_level=0",
        "--header", f"Authorization: {AUTHORIZATION}", "-v", "--set", "splitter.heartbeat=0.2",
        "--set", "splitter.backoff_max=0.3", "--set", "refresh.min_age=100000000", "--set", "refresh.explore=0",
        "--set", "frontier.retry_delays=[0.05]",
    )  # fmt: skip
    texts: dict[str, str] = {}

    def told(running: Running, when: str, *commands: tuple[str, ...]) -> None:
        for command in commands:
            words = (word.replace("{url}", urls[0]) for word in command)
            ran = run(*words, "--dir", running.folder)
            texts[f"{when} {' '.join(command)}"] = ran.out.decode("utf-8", "surrogateescape") + ran.err

    first = Running(folder, urls, *flags)
    out, err = first.process.communicate(timeout=60)
    texts["crawl"] = (out + err).decode()
    with Running(folder, [], *flags, command="refresh") as running:
        running.until(lambda: running.status().get("refreshing", {}).get("pages") == len(pages))
        live = {url: passed(running.serve, url) for url in pages}
        told(running, "live", *SAID, *CHANGING)
        first_process = running.folder / "p0"
        owners = {control_client.ask(first_process, "why", url=url).get("owner", "p0") for url in urls}
        looks = [
            f"/why?url={quote(urls[0])}",
            "/hosts/h0.localhost",
            "/bot/ledger?host=h0.localhost",
            "/status",
        ]
        bodies = b"".join(ask(running.admin, look)[2] for look in [*looks, "/metrics", "/history"])
        bodies += ask(running.serve, f"/timemap/link/{urls[0]}")[2]
    told(running, "at rest", *SAID, *CHANGING, *AT_REST)
    for form in ("warc", "wacz", "jsonl", "crawl-log", "cdxj"):
        assert (
            run("export", "--format", form, "--output", folder / f"{form}.out", "--dir", running.folder).code
            == 0
        )
    return Told(folder, pages, texts, live, serve_at_rest(running.folder, pages), bodies, owners)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, Told]]:
    Hostile.brought = []
    with served(Hostile) as port:
        yield {
            processes: crawl_and_ask(tmp_path_factory.mktemp(f"of_{processes}"), processes, port)
            for processes in PROCESSES
        }


def test_three_processes_share_the_pages(told: dict[int, Told]) -> None:
    """If one process owned all pages, the test of three processes would be meaningless."""
    assert told[1].owners == {"p0"} and len(told[3].owners) > 1
    paths = {path for path, cookie, key in Hostile.brought if SECRET in cookie and key == AUTHORIZATION}
    assert "/in" in paths, "cookie and Authorization were sent"


@pytest.mark.parametrize("processes", PROCESSES)
def test_credentials_are_in_no_record(told: dict[int, Told], processes: int) -> None:
    """The values of Cookie, Set-Cookie and Authorization are hidden everywhere.

    This holds for both servers, archives, exports, logs, rows and terminals.
    """
    crawl = told[processes]
    for entrance, text in crawl.texts.items():
        assert SECRET not in text, entrance
    assert SECRET.encode() not in crawl.bodies
    assert not [
        url for told_by in (crawl.live, crawl.at_rest) for url in told_by if SECRET in str(told_by[url])
    ]
    files = [each for each in crawl.directory.rglob("*") if each.is_file()]
    holding = {each.name for each in files if SECRET.encode() in plain(each.read_bytes())}
    assert holding == {"credentials"}
    for each in crawl.directory.glob("crawl/p*/warc/*.warc.gz*"):
        records = plain(each.read_bytes())
        if b"\r\nCookie: " in records:
            assert set(re.findall(rb"\r\nCookie: (.*)\r\n", records)) == {b"[redacted]"}
        assert set(re.findall(rb"\r\nAuthorization: (.*)\r\n", records)) == {b"[redacted]"}
        assert set(re.findall(rb"\r\nSet-Cookie: (.*)\r\n", records)) == {b"sid=[redacted]"}


@pytest.mark.parametrize("processes", PROCESSES)
def test_no_output_controls_the_terminal(told: dict[int, Told], processes: int) -> None:
    """The test checks the output of each command, during the crawl and afterwards, and the crawl's output and log."""
    crawl = told[processes]
    for entrance, text in crawl.texts.items():
        assert not {each for each in text if each not in "\t\n" and is_hidden(each)}, entrance
    assert "\\u001b]0;owned" in crawl.texts["live get {url} --headers"]
    log = (crawl.directory / "crawl" / "crawler.log").read_text(encoding="utf-8")
    assert not {each for each in log if each != "\n" and is_hidden(each)}


def test_only_listed_fields_are_served(told: dict[int, Told]) -> None:
    """A page is served with the same fields during the crawl and afterwards, whichever process owns the page."""
    seen = [told_by for crawl in told.values() for told_by in (crawl.live, crawl.at_rest)]
    for told_by in seen:
        for url, fields in told_by.items():
            stored = {name: value for name, value in fields.items() if name not in OURS}
            assert stored == {name.lower(): value for name, value in PASS.items()}, url
            assert {name.encode() for name in stored} <= PASSED.keys()
            assert fields["referrer-policy"] == "no-referrer" and "preload" not in fields.get("link", "")
        for url, fields in _lasting(told_by).items():
            assert fields == _lasting(seen[0])[url]


def _lasting(told_by: dict[str, dict[str, str]]) -> dict[str, dict[str, Any]]:
    """Return the answers without the fields that differ between crawls."""
    return {
        url: {name: value for name, value in fields.items() if name not in VARYING}
        for url, fields in told_by.items()
    }


def plain(data: bytes) -> bytes:
    """Return the content of a file with its gzip members decompressed, including those of files inside a zip file."""
    out, rest = data, data
    while (at := rest.find(b"\x1f\x8b\x08")) >= 0:
        member = zlib.decompressobj(31)
        try:
            out += member.decompress(rest[at:])
            rest = member.unused_data if member.eof else b""
        except zlib.error:
            rest = rest[at + 1 :]
    return out
