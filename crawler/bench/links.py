"""What a link costs: the same pages taken three times by filter, URL cache, DUE, frontier and store.

    new         nobody has met it: DUE, queue and their commits, as scale goes with a group of pages
    unformed    met, but not by this memo: canonical form, filter, fingerprint, URL cache
    met         the memo of its directory has it

All in one thread, the engine's own threads counted too. Between two pages a processor's caches are emptied, as by the
parsing of a page, which is not counted.
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

PAGES, LINKS, HOSTS = 400, 25, 100  # pages, each in a directory of its own; links a page
SECTIONS = 16  # directories that links of a host lead to
GROUP = 30  # pages of a commit
ELSEWHERE = 5  # one link in so many leads to another host
PATH = "word-other-time"

OTHER_WORK = bytes(2 << 20)  # copied between two pages: larger than the caches of a core

Page = tuple[str, list[str]]


class LinkCosts(NamedTuple):
    """CPU seconds: of a link that was met, more of one without a form, more of one that is new."""

    met: float
    form: float
    new: float


def link_costs() -> LinkCosts:
    """The three, means over some thousand links."""
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
    """Takes links of pages as a process does, and commits a group of pages at a time."""

    def __init__(self, stages: Stages) -> None:
        self._loader = Loader(stages)
        self._fingerprinter = stages.fingerprinter
        self.forget_forms()

    def forget_forms(self) -> None:
        """Begin with an empty memo."""
        self._links = LinkFilter(UrlFilter(Scope("any")), self._fingerprinter)

    def take(self, base: str, hrefs: list[str]) -> Change:
        """The change that a page brings."""
        found = self._links.filter_links(base, hrefs)
        return self._loader.admit(found.urls, found.fingerprints)

    def commit(self, changes: list[Change]) -> None:
        """Make a group durable, and let the DUE find what is new."""
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
    """CPU seconds a link."""
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
