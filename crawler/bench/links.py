"""Measures the cost of a link. The same pages pass three times through link filter, cache, DUE, frontier and store.

    new         the links were never met before: DUE, queue and their commits, for a group of pages at a time
    unformed    the links were met before but are not in this memo: canonical form, filter, fingerprint, URL cache
    met         the links were met before and are in the memo of their directory

The pipeline runs in one thread. The CPU time of the storage engine's threads is also counted. Between two
pages, the benchmark overwrites the processor's caches, as the parsing of a page would do in a crawl. The time
that the benchmark takes to overwrite the caches is not counted.
"""

import tempfile
import time
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from crawler.bench.loading import Loader
from crawler.clock import VirtualClock
from crawler.config import convert
from crawler.process.opening.stages import Stages
from crawler.storage.commit import Change
from crawler.urlfilter.link_filter import LinkFilter
from crawler.urlfilter.url_filter import Scope, UrlFilter

# the number of pages (each in its own directory), the number of links per page, and the number of hosts
PAGES, LINKS, HOSTS = 400, 25, 100
SECTIONS = 16  # number of directories over which the links to a host are spread
GROUP = 30  # number of pages whose links are committed together
ELSEWHERE = 5  # one link in this many leads to another host
PATH = "word-other-time"

# bytes to write after each page, to evict the page's data from the CPU caches
OTHER_WORK = bytes(2 << 20)

Page = tuple[str, list[str]]


class LinkCosts(NamedTuple):
    """The CPU seconds of a link.

    `met` is the cost of a link whose result is in the memo of the link filter (`urlfilter/link_filter.py`).
    `form` is the additional cost of a link that is not in the memo, and `new` is the additional cost of a
    link to a new URL.
    """

    met: float
    form: float
    new: float


def link_costs() -> LinkCosts:
    """Measure the three costs of a link, each as the mean over thousands of links."""
    pages = _pages()
    config = convert({"crawl": {"scope": "any"}})
    with (
        tempfile.TemporaryDirectory(prefix="crawler-links-") as folder,
        closing(Stages(config, Path(folder, "p0"), bytes(16), clock=VirtualClock(1e9))) as stages,
    ):
        intake = LinkIntake(stages)
        new = _timed(intake, pages)
        intake.forget_forms()
        formed = _timed(intake, pages)
        met = _timed(intake, pages)
    return LinkCosts(met, max(0.0, formed - met), max(0.0, new - formed))


class LinkIntake:
    """Handles the links of pages as a crawl process does, and commits the links of a group of pages at a time."""

    def __init__(self, stages: Stages) -> None:
        self._loader = Loader(stages)
        self._fingerprinter = stages.fingerprinter
        self.forget_forms()

    def forget_forms(self) -> None:
        """Replace the memo of the link filter by an empty memo."""
        self._links = LinkFilter(UrlFilter(Scope("any")), self._fingerprinter)

    def take(self, base: str, hrefs: list[str]) -> Change:
        """Return a `Change` with the new links of a page."""
        found = self._links.filter_links(base, hrefs)
        return self._loader.admit(found.urls, found.fingerprints)

    def commit(self, changes: list[Change]) -> None:
        """Commit a group of changes durably, then let the DUE find the new links among them."""
        self._loader.commit(*changes)
        self._loader.flush(dry=True)


def _pages() -> list[Page]:
    def href(number: int) -> str:
        host = "" if number % ELSEWHERE else f"https://www.e{number // ELSEWHERE:05d}.example"
        return f"{host}/guide-{number % SECTIONS}/{PATH}-{number}.html"

    return [
        (f"https://www.d{page % HOSTS:05d}.example/section-{page}/{PATH}-{page}.html",
         [href(page * LINKS + number) for number in range(LINKS)])
        for page in range(PAGES)
    ]  # fmt: skip


def _timed(intake: LinkIntake, pages: list[Page]) -> float:
    """Pass all links of the pages through the intake and return the CPU seconds per link."""
    took, changes = 0.0, list[Change]()
    for number, (base, hrefs) in enumerate(pages, 1):
        bytearray(OTHER_WORK)
        begun = time.process_time()
        changes.append(intake.take(base, hrefs))
        if number % GROUP == 0 or number == len(pages):
            intake.commit(changes)
            changes = []
        took += time.process_time() - begun
    return took / (len(pages) * LINKS)
