"""Test outages over HTTP, by reading the server's log: a site answers 404 for a while, and the crawl is killed."""

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from crawler.lab.changing.server import LOOPBACK
from tests.end_to_end.web import Answer, ReceivedRequest, Web, page, run

PAGES = 12
LONG = 60.0
CONFIG = f"""{LOOPBACK}
[refresh]
min_age = 0.0
retry_age = 2.0
gone_age = 60.0
"""


class Site:
    """The pages of a site; while `down` is True, each answer is a 404. `log` lists (path, status) for each answer."""

    def __init__(self) -> None:
        self.down = False
        self.log: list[tuple[str, int]] = []

    def answer(self, asked: ReceivedRequest) -> Answer:
        if asked.path == "/robots.txt":
            return 404, {}, ""
        self.log.append((asked.path, 404 if self.down else 200))
        if self.down:
            return 404, {}, "not found"
        links = [f"/{number}" for number in range(1, PAGES)] if asked.path == "/" else []
        return page(*links, text=f"request {len(self.log)}")

    def since(self, begin: int, status: int) -> Counter[str]:
        return Counter(path for path, each in self.log[begin:] if each == status)


def until(happened: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + LONG
    while not happened():
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.01)


@contextmanager
def refreshing(*flags: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run `crawler refresh` in a process of its own, and kill it at the end."""
    process = subprocess.Popen(
        [sys.executable, "-m", "crawler", "refresh", "-q", *flags],
        env=dict(os.environ),
        stdout=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()


def test_after_an_outage_and_a_kill_all_pages_are_fetched_again(tmp_path: Path) -> None:
    """The crawl is killed after all pages have gone away. The next run asks for few of them until the site is back."""
    site, config = Site(), tmp_path / "config.toml"
    config.write_text(CONFIG)
    with Web({}, other=site.answer) as web:
        flags = ("--dir", str(tmp_path / "crawl"), "--config", str(config))
        assert run("crawl", web.url("/"), "-q", *flags).code == 0
        with refreshing(*flags) as process:
            until(lambda: len(site.since(0, 200)) == PAGES and len(site.log) > 3 * PAGES, process)
            site.down, began = True, len(site.log)
            until(lambda: len(site.since(began, 404)) == PAGES, process)
        with refreshing(*flags) as process:
            until(lambda: site.since(began, 404).total() > PAGES, process)
            site.down, ended = False, len(site.log)
            until(lambda: len(site.since(ended, 200)) == PAGES, process)
        assert PAGES < site.since(began, 404).total() <= PAGES + 8
        assert run("check", "--dir", tmp_path / "crawl").code == 0
