"""Test files of many megabytes: they are stored completely, can be resumed, and need little memory."""

import hashlib
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import msgspec
import pytest
from warcio.archiveiterator import ArchiveIterator

from tests.end_to_end.web import FAST, Web, crawl, run, served

MB = 1 << 20
BLOCK = os.urandom(MB)
PAGE = b"<title>Files</title><a href=/file.bin>file</a>"

# Runs a command, then prints the peak resident memory of the command's process, in KiB.
MEASURED = """
import re, sys
from crawler.cli import main
code = main(sys.argv[1:])
print(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
sys.exit(code)
"""


class Files(BaseHTTPRequestHandler):
    """Serves a link to /file.bin of `size` bytes.

    The server closes each connection after `cut` bytes. `hold` delays the close.
    """

    protocol_version = "HTTP/1.1"
    size = 0
    cut = 0
    etag = '"v1"'
    ranges: list[str]
    hold: threading.Event | None = None

    def do_GET(self) -> None:
        if self.path != "/file.bin":
            return self._head(PAGE if self.path == "/" else b"")
        asked = self.headers.get("Range", "")
        self.ranges.append(asked)
        resumed = bool(asked) and self.headers.get("If-Range") == self.etag
        first = int(re.findall(r"\d+", asked)[0]) if resumed else 0
        self.send_response(206 if resumed else 200)
        if resumed:
            self.send_header("Content-Range", f"bytes {first}-{self.size - 1}/{self.size}")
        if self.etag:
            self.send_header("ETag", self.etag)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(self.size - first))
        self.end_headers()
        self._send(first, min(self.size, first + self.cut) if self.cut else self.size)

    def _head(self, body: bytes) -> None:
        self.send_response(200 if body else 404)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _send(self, at: int, end: int) -> None:
        while at < end:
            piece = BLOCK[at % MB :][: end - at]
            self.wfile.write(piece)
            at += len(piece)
        if end < self.size:
            if self.hold is not None:
                self.wfile.flush()
                self.hold.wait(30)
            self.close_connection = True

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def files(size: int, **changes: Any) -> Iterator[tuple[str, list[str]]]:
    """Serve the file. Yield the URL of the page that links to the file, and a list of the received Range fields."""
    ranges: list[str] = []
    with served(type("TheseFiles", (Files,), {"size": size, "ranges": ranges, **changes})) as port:
        yield f"http://127.0.0.1:{port}/", ranges


def expected(size: int) -> bytes:
    return BLOCK * (size // MB) + BLOCK[: size % MB]


def responses(directory: Path) -> dict[str, bytes]:
    """Return the payload of each response record, by path.

    The records are read by warcio, which checks the digests.
    """
    found: dict[str, bytes] = {}
    for path in sorted(directory.glob("*/warc/*.warc.gz")):
        with path.open("rb") as file:
            for record in ArchiveIterator(file, check_digests="raise"):
                if record.rec_type == "response":
                    name = "/" + record.rec_headers["WARC-Target-URI"].split("/", 3)[3]
                    assert name not in found, "a body was stored twice"
                    found[name] = record.content_stream().read()
    return found


def _measured(*arguments: object) -> int:
    """Crawl in a separate process, and return the peak resident memory of that process in bytes."""
    command = [sys.executable, "-c", MEASURED, "crawl", "-q", *map(str, (*FAST, *arguments))]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return int(out.split()[-1]) << 10


def test_a_file_of_100_mb_takes_little_memory(tmp_path: Path) -> None:
    """The mirror, `check` and exports also read the file in pieces."""
    with files(1000) as (url, _):
        small = _measured("--dir", tmp_path / "small", url + "file.bin")
    with files(100 * MB) as (url, _):
        large = _measured("--dir", tmp_path / "large", url + "file.bin", "--mirror")
    assert large - small < 50 * MB, (small, large)
    (mirrored,) = (tmp_path / "large" / "mirror").rglob("file.bin")
    with mirrored.open("rb") as file:
        digest = hashlib.file_digest(file, "sha1").digest()
    assert digest == hashlib.sha1(expected(100 * MB)).digest()
    assert run("check", "--dir", tmp_path / "large").code == 0


def test_get_prints_a_large_file_in_pieces(tmp_path: Path) -> None:
    """`crawler get URL > FILE` replaces `wget -O`. It once refused files of more than 256 MiB."""
    size, directory, peaks = 60 * MB + 5, tmp_path / "crawl", {}
    with files(size) as (url, _):
        crawl(directory, url, f"{url}file.bin")
        for name in ("", "file.bin"):
            get = ["get", f"{url}{name}", "--dir", str(directory), "-o", str(tmp_path / f"got{name}")]
            command = [sys.executable, "-c", MEASURED, *get]
            peaks[name] = int(subprocess.run(command, check=True, capture_output=True).stdout) << 10
        head = run("get", f"{url}file.bin", "--dir", directory, "--headers").text
    assert peaks["file.bin"] - peaks[""] < 30 * MB
    assert (tmp_path / "got").read_bytes() == PAGE
    assert (tmp_path / "gotfile.bin").read_bytes() == expected(size)
    assert head.startswith("HTTP 200 OK\n") and f"Content-Length: {size}\n" in head


def test_seeds_and_wanted_files_are_complete_but_other_links_are_cut(tmp_path: Path) -> None:
    with files(12 * MB) as (url, _):
        crawl(tmp_path / "linked", url)
        assert len(responses(tmp_path / "linked")["/file.bin"]) == 10 * MB
        crawl(tmp_path / "seed", url + "file.bin")
        assert responses(tmp_path / "seed")["/file.bin"] == expected(12 * MB)
        crawl(tmp_path / "mirror", url, "--mirror")
        assert responses(tmp_path / "mirror")["/file.bin"] == expected(12 * MB)
        crawl(tmp_path / "accept", url, "--accept", "bin")
        assert responses(tmp_path / "accept")["/file.bin"] == expected(12 * MB)


@pytest.mark.parametrize(
    ("media_type", "stored", "code"),
    [
        ("text/html", 10 * MB, 0),  # pages are cut by default, because they are parsed for links in memory
        ("text/plain", 12 * MB, 16),
        ("image/png", 12 * MB, 16),
    ],
)
def test_a_limit_applies_to_pages_and_none_to_files_that_are_asked_for(
    tmp_path: Path, media_type: str, stored: int, code: int
) -> None:
    """A limit that the user sets applies to pages and files.

    Only a truncated file affects the exit code, because pages are often truncated.
    """
    limits = ("--set", f"fetch.file_bytes_max={5 * MB}", "--set", f"fetch.body_bytes_max={5 * MB}")
    with Web({"/it": (200, {"Content-Type": media_type}, expected(12 * MB))}) as web:
        crawl(tmp_path / "shipped", web.url("/it"))
        crawl(tmp_path / "limited", web.url("/it"), *limits, code=code)
    assert len(responses(tmp_path / "shipped")["/it"]) == stored
    assert len(responses(tmp_path / "limited")["/it"]) == 5 * MB


def test_a_file_that_breaks_off_is_resumed_in_the_same_run(tmp_path: Path) -> None:
    with files(10 * MB, cut=4 * MB) as (url, ranges):
        report = crawl(tmp_path, url, "--mirror")
    assert ranges == ["", f"bytes={4 * MB}-", f"bytes={8 * MB}-"]
    assert report["bytes"]["wire"] > 10 * MB, "the bytes of all three answers count"
    assert sum(report["connections"].values()) == 5  # robots.txt, the page, and three for the file
    assert responses(tmp_path)["/file.bin"] == expected(10 * MB)
    (mirrored,) = (tmp_path / "mirror").rglob("file.bin")
    assert mirrored.read_bytes() == expected(10 * MB)
    assert not list(tmp_path.glob("*/parts/*"))


def test_a_file_that_stays_incomplete_gives_an_exit_code(tmp_path: Path) -> None:
    """The server sends no validator, so the file cannot be resumed.

    The part that arrived is stored, and the exit code is 16.
    """
    with files(10 * MB, cut=4 * MB, etag="") as (url, ranges):
        crawl(tmp_path, url + "file.bin", code=16)
    assert set(ranges) == {""}
    assert responses(tmp_path)["/file.bin"] == expected(4 * MB)


def test_a_file_that_waits_for_its_next_try_gives_an_exit_code(tmp_path: Path) -> None:
    """The run ends before the file is complete, because the patience of the run is exceeded.

    The output reports this.
    """
    with files(10 * MB, cut=2 * MB) as (url, _):
        late = ("--set", "frontier.retry_delays=[60]", "--patience", "1")
        arguments = (url + "file.bin", "--set", "fetch.resumes_max=1", *late, "-q")
        ran = run("crawl", "--dir", tmp_path, *FAST, *arguments)
    assert ran.code == 16 and "transfers of files that broke off: 1" in ran.err
    assert list(tmp_path.glob("*/parts/*.part"))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_the_next_run_resumes_a_file(tmp_path: Path, number: signal.Signals) -> None:
    """If a run is killed or stopped in the middle of a file, the next run resumes the file.

    No byte is requested twice, and one copy is stored.
    """
    hold = threading.Event()
    with files(10 * MB, cut=6 * MB, hold=hold) as (url, ranges):
        command = [sys.executable, "-m", "crawler", "crawl", "-q", "--dir", str(tmp_path), *FAST]
        process = subprocess.Popen([*command, url + "file.bin"])
        try:
            _wait_for(tmp_path, 6 * MB)
            process.send_signal(number)
            process.wait(120)
        finally:
            process.kill()
            hold.set()
        crawl(tmp_path)
    assert ranges == ["", f"bytes={6 * MB}-"]
    assert responses(tmp_path) == {"/file.bin": expected(10 * MB), "/robots.txt": b""} or responses(
        tmp_path
    ) == {"/file.bin": expected(10 * MB)}
    assert not list(tmp_path.glob("*/parts/*"))
    lines = [msgspec.json.decode(line) for line in (tmp_path / "pages.jsonl").read_bytes().splitlines()]
    assert [line["bytes"] for line in lines if line["decision"] == "done"] == [10 * MB]


def _wait_for(directory: Path, size: int) -> None:
    """Wait until a partially fetched file has `size` bytes."""
    pause = threading.Event()
    for _ in range(3000):
        if any(path.stat().st_size >= size for path in directory.glob("*/parts/*.part")):
            return
        pause.wait(0.01)
    raise AssertionError("no part")
