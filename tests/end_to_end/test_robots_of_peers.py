"""Test the gaps of a host to whose robots.txt the hosts of other processes redirect, as the server sees them."""

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
from crawler.urls.fingerprint import fingerprinter_of
from tests.end_to_end.web import Answer, ReceivedRequest, Web, page

DELAY = 0.3
SLACK = 0.001  # the server and the crawler read the clock at different times
HOSTS = [f"h{number}.localhost" for number in range(24)]
SHARED = "shared.localhost"
PAGES = [f"/q{number}" for number in range(4)]
RULES = "User-agent: *\nDisallow: /no\n"
FLAGS = (
    "--processes", "3", "--admin", "off", "--scope", "any", "--allow-network", "127.0.0.0/8", "--progress", "none",
    "--delay", str(DELAY), "--delay-factor", "0", "--set", "due.max_wait=0.05",
)  # fmt: skip


class SharedRobots(Web):
    """A web of `HOSTS`, whose robots.txt redirect to that of SHARED. `times` lists begin and end of its requests.

    `on_request` is called with the number of requests to SHARED so far.
    """

    def __init__(self) -> None:
        super().__init__({"/robots.txt": self._robots, "/p": page("/no"), "/no": page(text="no")})
        links = [self.url("/p", host) for host in HOSTS] + [self.url(path, SHARED) for path in PAGES]
        self.routes |= {"localhost/": page(*links), "localhost/robots.txt": (404, {}, "")}
        self.routes |= {f"{SHARED}/robots.txt": self._timed, **{SHARED + path: self._timed for path in PAGES}}
        self.times: list[tuple[float, float]] = []
        self.on_request: Callable[[int], None] = lambda count: None
        self._lock = threading.Lock()

    def _robots(self, _: ReceivedRequest) -> Answer:
        return 302, {"Location": self.url("/robots.txt", SHARED)}, ""

    def _timed(self, asked: ReceivedRequest) -> Answer:
        began = time.monotonic()
        robots = asked.path == "/robots.txt"
        answer = (200, {"Content-Type": "text/plain"}, RULES) if robots else page(text=asked.path)
        with self._lock:
            self.times.append((began, time.monotonic()))
            self.on_request(len(self.times))
        return answer

    def shortest_gap(self) -> float:
        times = sorted(self.times)
        return min(later[0] - earlier[1] for earlier, later in pairwise(times))


def crawl(web: SharedRobots, folder: Path) -> "subprocess.Popen[str]":
    words = [sys.executable, "-m", "crawler", "crawl", "--dir", str(folder), *FLAGS, web.url()]
    return subprocess.Popen(words, stderr=subprocess.PIPE, text=True)


def owner_of_shared(folder: Path) -> str:
    directory = CrawlDirectory(folder)
    config = directory.settings.config()
    key = fingerprinter_of(config.urls, directory.seed()).host_key(SHARED)
    return topology(config, folder, "p0").partition.owner(key)


@pytest.mark.parametrize("kills", [0, 1])
def test_a_robots_txt_on_a_host_of_another_process_is_requested_by_its_owner(
    tmp_path: Path, kills: int
) -> None:
    """All gaps are kept, although two processes of three need the file and a third fetches pages of the host.

    If the owner is killed, the others wait for its next start, or try again. No page is lost, and no page that
    the rules forbid is fetched.
    """
    folder, left = tmp_path / "c", [kills]

    def kill_owner(count: int) -> None:
        if left[0] and count == 6:
            left[0] -= 1
            lock = folder / owner_of_shared(folder) / "node.lock"
            os.kill(int(lock.read_text().split()[1]), signal.SIGKILL)

    with SharedRobots() as web:
        web.on_request = kill_owner
        program = crawl(web, folder)
        _, err = program.communicate(timeout=240)
        assert program.returncode == 0, err
        assert web.shortest_gap() >= DELAY - SLACK
        assert len(web.times) >= len(HOSTS) + len(PAGES) + 1 and left == [0]
        assert {host for host in HOSTS if web.paths(host) != ["/p"]} == set()
        assert set(web.paths(SHARED)) == set(PAGES)
    report = msgspec.json.decode((folder / "report.json").read_bytes())
    assert report["conservation"] == "holds" and report["pages"]["fetched"] == 1 + len(HOSTS) + len(PAGES)
