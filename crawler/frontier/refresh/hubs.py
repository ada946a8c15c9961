# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False, initializedcheck=False
"""Counts the pages found through each hub. Hubs are pages that have shown new pages, or probably will.

Any page may become a hub, but few pages do. A page gets a row here when a new page is first credited to it.
If the first copy of a page shows several URLs that the crawl did not know, the page gets its row at once. The
row has three numbers (`freshness/discovery.py`): the new pages found through the hub, the time for which the
hub was watched, and the number of URLs in the hub's first copy that the crawl did not know. The number of
pages found and the watched time decay exponentially. A column of row numbers, 4 bytes per page, is created
with the first row. A *hand* visits the rows in turn; because a schedule has few hubs, each hub is checked
often.
"""

import cython
import numpy as np
from cython.cimports.crawler.freshness.discovery import faded, watched_for

from crawler.freshness.columns import Column

if not cython.compiled:
    HubRow = None

HUB_KIND = np.dtype([("found", "f4"), ("watched", "f4"), ("links", "f4"), ("page", "i4")])
_DAY = cython.declare(cython.double, 86_400.0)


class Hubs:
    """The rows of hubs, which are found by the schedule's page numbers."""

    def __init__(self) -> None:
        self._columns = [Column(np.dtype("i4")), Column(HUB_KIND)]
        self._numbers = np.zeros(0, np.int32)  # for each page: its row + 1; 0 if it is not a hub
        self.rows = np.zeros(0, HUB_KIND).view(np.recarray)
        self._used = self._hand = 0
        self._vacant: list = []

    def __len__(self) -> int:
        return self._used - len(self._vacant)

    def row_of(self, page: cython.int) -> cython.int:
        """Return the row of a page; -1 if it is not a hub."""
        return self._numbers[page] - 1 if page < self._numbers.shape[0] else -1

    def make(self, page: cython.int, watched: cython.double) -> cython.int:
        """Return the row of a page. If the page has none, add a row with a watched time of `watched` seconds."""
        row: cython.int = self.row_of(page)
        if row >= 0:
            return row
        if page >= self._numbers.shape[0]:
            self._numbers = np.zeros(0, np.int32)  # release the memory map before it grows
            self._numbers = self._columns[0].grow(page + 1)
        if self._vacant:
            row = self._vacant.pop()
        else:
            row = cython.cast(cython.int, self._used)
            self._used += 1
            if self._used > len(self.rows):
                self.rows = np.zeros(0, HUB_KIND).view(np.recarray)
                self.rows = self._columns[1].grow(self._used)
        self.rows[row].found = 0.0
        self.rows[row].watched = watched_for(watched, _DAY)
        self.rows[row].links = 0.0
        self.rows[row].page = page
        self._numbers[page] = row + 1
        return row

    def turn(self) -> cython.int:
        """Go to the next row, in a circle; return its page, or -1 if the row is vacant or there are no rows."""
        if self._used == 0:
            return -1
        self._hand = self._hand + 1 if self._hand + 1 < self._used else 0
        return self.rows[self._hand].page

    def crawled(self, page: cython.int, elapsed: cython.double) -> cython.void:
        """Record a crawl of a page, `elapsed` seconds after its last crawl."""
        row: cython.int = self.row_of(page)
        if row >= 0:
            left: cython.double = faded(1.0, elapsed, _DAY)
            self.rows[row].found *= left
            self.rows[row].watched = self.rows[row].watched * left + watched_for(elapsed, _DAY)

    def forget(self, page: cython.int) -> cython.void:
        """Free the row of a page that leaves the schedule, if it has one."""
        row: cython.int = self.row_of(page)
        if row >= 0:
            self._numbers[page] = 0
            self.rows[row].page = -1
            self._vacant.append(int(row))

    def pages(self) -> np.ndarray:
        """Return the numbers of the pages that are hubs."""
        found: np.ndarray = np.flatnonzero(np.asarray(self._numbers))
        return found

    def has_shown(self, page: cython.int) -> cython.bint:
        """Return whether a new page was ever found through this page."""
        row: cython.int = self.row_of(page)
        return row >= 0 and self.rows[row].found > 0.0

    def links_of(self, page: cython.int) -> cython.double:
        """Return the number of URLs in the page's first copy that the crawl did not know.

        If there were fewer than `LINKS_LEAST` (`page_facts.py`), return 0.
        """
        row: cython.int = self.row_of(page)
        return self.rows[row].links if row >= 0 else 0.0

    def state(self, page: int) -> tuple[float, float, float]:
        """Return (pages found, seconds watched, `links_of`), as of the page's last crawl.

        If the page is not a hub, all three are 0.
        """
        row: cython.int = self.row_of(page)
        if row < 0:
            return 0.0, 0.0, 0.0
        return float(self.rows[row].found), float(self.rows[row].watched), float(self.rows[row].links)

    def restore(self, page: int, found: float, watched: float, links: float) -> None:
        """Restore what `state` returned."""
        if found > 0.0 or links > 0.0:
            row: cython.int = self.make(page, 0.0)
            self.rows[row].found, self.rows[row].watched, self.rows[row].links = found, watched, links

    def bytes_held(self, pages: int) -> int:
        """Return the size in bytes of all rows and of the column of row numbers, if there is one."""
        return (4 * pages + self._used * HUB_KIND.itemsize) if self._used else 0

    def _check(self, pages: set[int]) -> None:
        """Assert that every row in use belongs to one of `pages`."""
        numbers = np.asarray(self._numbers)
        hubs = np.flatnonzero(numbers)
        rows = set((numbers[hubs] - 1).tolist())
        assert len(rows) == len(hubs) == len(self)
        assert not rows & set(self._vacant) and rows | set(self._vacant) == set(range(self._used))
        assert all(self.rows[numbers[page] - 1].page == page for page in hubs)
        assert set(hubs.tolist()) <= pages, "a hub's page has left"
        assert all(self.rows[row].found >= 0.0 and self.rows[row].watched >= 0.0 for row in rows)
