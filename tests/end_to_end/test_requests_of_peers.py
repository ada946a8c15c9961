"""Test the gaps of a host that pages and robots.txt of other processes' hosts need, as the server sees them."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.topology import topology
from crawler.render.browser import find_program
from crawler.render.protocol import BrowserError
from crawler.urls.fingerprint import fingerprinter_of
from tests.end_to_end.web import Answer, ReceivedRequest, Web, page, run

try:
    PROGRAM = find_program("")
except BrowserError:
    PROGRAM = ""

DELAY = 0.2
SLACK = 0.001  # the server and the crawler read the clock at different times
HOSTS = [f"h{number}.localhost" for number in range(12)]
SHARED = "shared.localhost"
PAGES = [f"/q{number}" for number in range(4)]
RULES = "User-agent: *\nDisallow: /no\n"
TEXT = {"Content-Type": "text/plain"}
FLAGS = (
    "--admin", "off", "--scope", "any", "--allow-network", "127.0.0.0/8", "--progress", "none",
    "--delay", str(DELAY), "--delay-factor", "0", "--set", "due.max_wait=0.05",
)  # fmt: skip
LICENCE = (
    '<rsl xmlns="https://rslstandard.org/rsl"><content url="/"><license>'
    '<permits type="usage">all</permits></license></content></rsl>'
)


class SharedHost(Web):
    """A web of `HOSTS`, each of which needs a file of SHARED. `times` lists begin and end of SHARED's requests.

    `need` says what needs the file: the redirect of a "robots.txt", a "licence", or the "script" of a page. The
    rules of SHARED forbid the file of the last host, unless it is a robots.txt. `on_request` is called with the
    number of requests to SHARED so far.
    """

    def __init__(self, need: str) -> None:
        super().__init__({"/robots.txt": (404, {}, ""), "/no": page(text="no")}, other=self._timed)
        self.need = need
        if need == "robots.txt":
            self.routes["/robots.txt"] = 302, {"Location": self.url("/robots.txt", SHARED)}, ""
        self.routes["/p"] = self._page
        links = [self.url("/p", host) for host in HOSTS] + [self.url(path, SHARED) for path in PAGES]
        self.routes |= {"localhost/": page(*links), "localhost/robots.txt": (404, {}, "")}
        self.routes |= {f"{SHARED}/robots.txt": self._timed, **{SHARED + path: self._timed for path in PAGES}}
        self.times: list[tuple[float, float]] = []
        self.on_request: Callable[[int], None] = lambda count: None
        self._lock = threading.Lock()

    def _page(self, asked: ReceivedRequest) -> Answer:
        file = self.url(f"/no/{asked.host}" if asked.host == HOSTS[-1] else f"/file/{asked.host}", SHARED)
        if self.need == "licence":
            link = f'<{file}>; rel="license"; type="application/rsl+xml"'
            return 200, {"Content-Type": "text/html", "Link": link}, page(text=asked.host)
        if self.need == "script":
            return f'<!doctype html><title>x</title><p>words<script src="{file}"></script>'
        return page("/no")

    def _timed(self, asked: ReceivedRequest) -> Answer:
        began = time.monotonic()
        answer: Answer = page(text=asked.path)
        if asked.path == "/robots.txt":
            answer = 200, TEXT, RULES
        elif asked.path not in PAGES:
            kind = "text/javascript" if self.need == "script" else "application/rsl+xml"
            answer = (
                200,
                {"Content-Type": kind},
                "document.title = 'shown'" if self.need == "script" else LICENCE,
            )
        with self._lock:
            self.times.append((began, time.monotonic()))
            self.on_request(len(self.times))
        return answer

    def shortest_gap(self) -> float:
        times = sorted(self.times)
        return min(later[0] - earlier[1] for earlier, later in pairwise(times))


def crawl(web: SharedHost, folder: Path, processes: int) -> "subprocess.Popen[str]":
    words = [sys.executable, "-m", "crawler", "crawl", "--dir", str(folder), *FLAGS, web.url()]
    words += ["--processes", str(processes), *(("--render", "always") if web.need == "script" else ())]
    return subprocess.Popen(words, stderr=subprocess.PIPE, text=True)


def owner_of_shared(folder: Path) -> str:
    directory = CrawlDirectory(folder)
    config = directory.settings.config()
    key = fingerprinter_of(config.urls, directory.seed()).host_key(SHARED)
    return topology(config, folder, "p0").partition.owner(key)


@pytest.mark.parametrize(
    ("need", "processes", "kills"),
    [
        ("robots.txt", 3, 1),
        ("licence", 2, 0),
        ("licence", 3, 1),
        pytest.param("script", 3, 0, marks=pytest.mark.skipif(not PROGRAM, reason="no browser")),
    ],
)
def test_a_file_on_a_host_of_another_process_is_requested_by_its_owner(
    tmp_path: Path, need: str, processes: int, kills: int
) -> None:
    """All gaps are kept, although all processes need files of a host, and its owner fetches pages of the host.

    If the owner is killed, the others wait for its next start, or try again. No page is lost, and no file that
    the rules forbid is fetched. The files are stored by the processes that needed them. `check` finds no problem,
    and a reshard moves all copies.
    """
    folder, left = tmp_path / "c", [kills]

    def kill_owner(count: int) -> None:
        if left[0] and count == 6:
            left[0] -= 1
            lock = folder / owner_of_shared(folder) / "node.lock"
            os.kill(int(lock.read_text().split()[1]), signal.SIGKILL)

    with SharedHost(need) as web:
        web.on_request = kill_owner
        program = crawl(web, folder, processes)
        _, err = program.communicate(timeout=120)
        assert program.returncode == 0, err
        assert web.shortest_gap() >= DELAY - SLACK and left == [0]
        # after a kill, the pages that were in flight are fetched again
        assert {host for host in HOSTS if set(web.paths(host)) != {"/p"}} == set()
        files = {f"/file/{host}" for host in HOSTS[:-1]} if need != "robots.txt" else set()
        assert set(web.paths(SHARED)) == {*PAGES, *files}
        assert len(web.times) >= len(PAGES) + 1 + (len(files) or len(HOSTS))
        if not kills and files:
            # the frontier and the requests of peers may fetch the rules at the same time
            assert len(web.times) <= len(PAGES) + 2 + len(files)
    report = msgspec.json.decode((folder / "report.json").read_bytes())
    assert report["conservation"] == "holds" and report["pages"]["fetched"] == 1 + len(HOSTS) + len(PAGES)
    for words in ((), ("--to", "2"), ("--to", "1")):
        assert not words or run("reshard", "--dir", folder, *words).code == 0
        ran = run("check", "--dir", folder)
        assert ran.code == 0, ran
        copies = run("export", "--dir", folder, "--format", "cdxj").text.splitlines()
        stored = {msgspec.json.decode(copy.split(" ", 2)[2])["url"] for copy in copies}
        assert {web.url(file, SHARED) for file in files} <= stored
