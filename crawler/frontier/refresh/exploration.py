# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False, initializedcheck=False
"""Gives a share of the fetches to the pages that were not visited for the longest time, whatever their values.

A *hand* moves around the table of pages, like the hand of a clock. At each turn, the hand examines the next
HAND_ROWS pages and makes one of them due: the page whose last visit is oldest. At most one page of a host is
explored at a time.
"""

import cython

if cython.compiled:
    from cython.cimports.crawler.frontier.refresh.deadlines import Deadlines
    from cython.cimports.crawler.frontier.refresh.level_controller import LevelController
    from cython.cimports.crawler.frontier.refresh.queues import Queues
    from cython.cimports.crawler.frontier.refresh.tables import EXPLORED, LOW_BITS, Tables
else:
    from crawler.frontier.refresh.deadlines import Deadlines
    from crawler.frontier.refresh.level_controller import LevelController
    from crawler.frontier.refresh.queues import Queues
    from crawler.frontier.refresh.tables import EXPLORED, LOW_BITS, Tables

# number of pages examined at each turn; the one whose last visit is oldest is made due
_HAND_ROWS = cython.declare(cython.Py_ssize_t, 256)


@cython.cclass
class Exploration:
    """Chooses pages for exploration in the order of the table; `share` is their share of the fetches."""

    def __init__(
        self, tables: Tables, controller: LevelController, deadlines: Deadlines, queues: Queues, share: float
    ) -> None:
        self.tables, self.controller, self.deadlines, self.queues = tables, controller, deadlines, queues
        self._share = share
        self._hand, self._credit = 0, 0.0
        self.explored = 0

    @cython.cfunc
    def note_take(self, now: cython.double) -> cython.void:
        """Count a page that was taken. If an exploration is due, choose the page to explore (`_turn`)."""
        if self._share > 0.0:
            self._credit += self._share
            if self._credit >= 1.0:
                self._turn(now)

    @cython.cfunc
    def _turn(self, now: cython.double) -> cython.void:
        """Make one of the next HAND_ROWS pages due: the page that has not been visited for the longest time."""
        _step: cython.Py_ssize_t
        page: cython.int
        oldest: cython.int = -1
        host: cython.int
        rows: cython.Py_ssize_t = self.tables.pages.rows
        for _step in range(min(_HAND_ROWS, rows)):
            self._hand = self._hand + 1 if self._hand + 1 < rows else 0
            page = cython.cast(cython.int, self._hand)
            if self.tables.states[page] & LOW_BITS:
                continue
            if oldest >= 0 and self.tables.crawled[page] >= self.tables.crawled[oldest]:
                continue
            if now - self.tables.crawled[page] < self.tables.min_age(page):
                continue
            if not self.tables.host_rows[self.tables.owner(page)].exploring:
                oldest = page
        if oldest < 0:
            self._credit = min(self._credit, 1.0)
            return
        self._credit -= 1.0
        self.explored += 1
        host = self.tables.owner(oldest)
        self.tables.host_rows[host].exploring = 1
        self.tables.states[oldest] |= EXPLORED
        key: cython.double = now - self.controller.revisit + self.deadlines.offsets.of_page(oldest, host, now)
        self.queues.move(oldest, min(key, self.tables.page_heaps.nodes[oldest].key), now)
