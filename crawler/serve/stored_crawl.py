"""The crawl whose pages a page server shows. It combines the stored pages of all processes of the crawl.

`StoredCrawl` shows the directory of a crawl that is not running, and only reads this directory. A running
crawl adds two functions: one asks the crawl to fetch a page before its turn, and the other counts requests.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from crawler.frontier.refresh.refreshing import Refresh
from crawler.pages.archive import Archive
from crawler.pages.page_cache import PageCache
from crawler.serve.interfaces import Ahead, AheadState, Located


class ServedProcess(NamedTuple):
    """The parts of one process that answer questions about its pages.

    `owner` returns the name of the process that owns a page; it is None if the crawl has only one process.
    `absence` returns the state of a URL without a copy, and the sentence that `crawler why` prints.
    `freshness` opens the refresh schedule.
    """

    owner: Callable[[int], str] | None
    fingerprint: Callable[[str], int]
    pages: PageCache
    absence: Callable[[str, int], tuple[str, str]]
    disallowing_line: Callable[[str], str]
    freshness: Callable[[], Refresh | None]


class StoredCrawl:
    """Serves the pages of `processes`, a mapping by name.

    A running crawl supplies `ahead(url, fingerprint)`, which lets a page be fetched soon, and
    `count(fingerprint)`. Both are None if the crawl is not running.
    """

    def __init__(
        self,
        processes: Mapping[str, ServedProcess],
        *,
        ahead: Callable[[str, int], Ahead] | None = None,
        count: Callable[[int], None] | None = None,
    ) -> None:
        self._processes = processes
        self._any = next(iter(processes.values()))
        self._ahead = ahead
        self._count = count
        self._owner_of = self._any.owner

    @property
    def archives(self) -> list[PageCache]:
        """The pages of the served processes."""
        return [process.pages for process in self._processes.values()]

    def locate(self, url: str) -> Located:
        fingerprint = self._any.fingerprint(url)
        if self._owner_of is None:
            return Located(fingerprint, self._any.pages)
        owner = self._owner_of(fingerprint)
        process = self._processes.get(owner)
        return Located(fingerprint, None if process is None else process.pages, owner)

    def others(self, fingerprint: int) -> Mapping[str, Archive]:
        if self._owner_of is None:
            return {}
        owner = self._owner_of(fingerprint)
        return {name: process.pages for name, process in self._processes.items() if name != owner}

    def _owner(self, fingerprint: int) -> ServedProcess:
        """Return the process that owns a page.

        This process must be one of the processes whose pages are served here.
        """
        return self._any if self._owner_of is None else self._processes[self._owner_of(fingerprint)]

    def missing(self, url: str, fingerprint: int) -> tuple[str, str]:
        return self._owner(fingerprint).absence(url, fingerprint)

    def disallowed(self, url: str) -> str:
        fingerprint = self._any.fingerprint(url)
        if self.locate(url).archive is None:
            return (
                ""  # the owner of the URL has answered this question before it asked this process for a file
            )
        return self._owner(fingerprint).disallowing_line(url)

    def fresh_probability(self, fingerprint: int, fetched_at: float, now: float) -> float | None:
        """Return P(fresh) from the running or stored refresh schedule; None if no page was ever refreshed."""
        refresh = self._owner(fingerprint).freshness()
        return None if refresh is None else refresh.views.probability(fingerprint, fetched_at, now)

    def request_fetch(self, url: str, fingerprint: int) -> Ahead:
        if self._ahead is None:
            return Ahead(AheadState.AT_REST, "the crawl is not running")
        return self._ahead(url, fingerprint)

    def note_request(self, fingerprint: int) -> None:
        if self._count is not None:
            self._count(fingerprint)

    def ready(self) -> str:
        return ""
