# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False, initializedcheck=False
"""Gives a share of the fetches to pages that are not due: those that teach most, and those longest unvisited.

A page about which little is known may be worth more than it seems, but only a fetch can show this. So at most
turns, the page is chosen whose fetch is worth most if it also counts what the fetch teaches
(`freshness/information.py`). In units of the level, the fetch is worth

    V/level + H I mu/level

The horizon H is HORIZON mean revisit intervals. On a site with trusted signals, I counts only as far as the
signals have not taught the same already. `frontier/refresh/README.md`, "Rules" (rule 6), says which page is chosen.

A page that has the probability P of being restless (`freshness/restless.py`) teaches nothing if it is restless.
So its time without a visit is multiplied by 1 - P, but at least by 1/8.

For each of the two choices, a *hand* moves around the table of pages, like the hand of a clock. At each turn,
a hand examines the next pages of the table. At most one page of a host is explored at a time.
"""

import cython
from cython.cimports.crawler.freshness.information import information
from cython.cimports.crawler.frontier.refresh.deadlines import BY_VALUE, Deadlines
from cython.cimports.crawler.frontier.refresh.level_controller import LevelController
from cython.cimports.crawler.frontier.refresh.queues import Queues
from cython.cimports.crawler.frontier.refresh.tables import EXPLORED, LOW_BITS, Tables

# the two hands: one looks for the page longest unvisited, the other for the page that teaches most
_AGE = cython.declare(cython.int, 0)
_LESSON = cython.declare(cython.int, 1)
_INFINITY = cython.declare(cython.double, float("inf"))
# number of pages examined at each turn that looks for the page longest unvisited
_AGE_ROWS = cython.declare(cython.Py_ssize_t, 256)
# number of pages examined at each turn that looks for the page that teaches most
_LESSON_ROWS = cython.declare(cython.Py_ssize_t, 32)
# one turn of this many goes to the page longest unvisited, whatever fetches of other pages would teach
_AGE_TURNS = cython.declare(cython.Py_ssize_t, 4)
# Least 1 - P of the page longest unvisited. So a restless page is still visited sometimes: it may have become steady.
_STEADY_LEAST = cython.declare(cython.double, 1.0 / 8.0)
# mean revisit intervals for which what a fetch teaches is useful
_HORIZON = cython.declare(cython.double, 16.0)


@cython.cclass
class Exploration:
    """Chooses pages for exploration in the order of the table; `share` is their share of the fetches."""

    def __init__(
        self, tables: Tables, controller: LevelController, deadlines: Deadlines, queues: Queues, share: float
    ) -> None:
        self.tables, self.controller, self.deadlines, self.queues = tables, controller, deadlines, queues
        self._share = share
        self._hands, self._turns, self._credit = [0, 0], 0, 0.0
        self.explored = 0

    def note_take(self, now: cython.double) -> cython.void:
        """Count a page that was taken. If an exploration is due, choose the page to explore (`_turn`)."""
        if self._share > 0.0:
            self._credit += self._share
            if self._credit >= 1.0:
                self._turn(now)

    def _turn(self, now: cython.double) -> cython.void:
        """Choose a page, and make it due. If no page may be explored, the turn is not lost."""
        page: cython.int = -1
        self._turns += 1
        if self._turns % _AGE_TURNS and self.deadlines.policy == BY_VALUE and not self.deadlines.plain:
            page = self._best(_LESSON, now)
        if page < 0:
            page = self._best(_AGE, now)
        if page < 0:
            self._credit = min(self._credit, 1.0)
            return
        self._credit -= 1.0
        self.explored += 1
        host: cython.int = self.tables.owner(page)
        self.tables.host_rows[host].exploring = 1
        self.tables.states[page] |= EXPLORED
        key: cython.double = now - self.controller.revisit + self.deadlines.offsets.of_page(page, host, now)
        self.queues.move(page, min(key, self.tables.page_heaps.nodes[page].key), now)

    def _best(self, hand: cython.int, now: cython.double) -> cython.int:
        """Return the best page among the next rows of a hand; -1 if none of them is good enough.

        For `_AGE`, this is the page longest unvisited; the time of a page counts as if it were multiplied by
        1 - P. For `_LESSON`, it is the page whose fetch is worth most, if the fetch is worth its price.
        """
        _step: cython.Py_ssize_t
        best: cython.int = -1
        most: cython.double = 1.0 if hand == _LESSON else -_INFINITY
        rows: cython.Py_ssize_t = self.tables.pages.rows
        for _step in range(min(_LESSON_ROWS if hand == _LESSON else _AGE_ROWS, rows)):
            self._hands[hand] = self._hands[hand] + 1 if self._hands[hand] + 1 < rows else 0
            page: cython.int = cython.cast(cython.int, self._hands[hand])
            if not self._may_explore(page, now):
                continue
            merit: cython.double = 0.0
            if hand == _AGE:
                steady: cython.double = max(1.0 - self._restless(page, now), _STEADY_LEAST)
                merit = steady * (now - self.tables.crawled[page])
            else:
                host: cython.int = self.tables.owner(page)
                merit = self.deadlines.worth(page, host, now) + self._lesson(page, host, now)
            if merit > most:
                best, most = page, merit
        return best

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _restless(self, page: cython.int, now: cython.double) -> cython.double:
        """Return P, the probability that the page is restless."""
        elapsed: cython.double = max(now - self.tables.crawled[page], 0.0)
        changes: cython.double = self.tables.rows[page].changes
        return self.deadlines.learning.restless.chance(changes, self.tables.unrest(page), elapsed)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _may_explore(self, page: cython.int, now: cython.double) -> cython.bint:
        if self.tables.states[page] & LOW_BITS:
            return False
        if now - self.tables.crawled[page] < self.tables.min_age(page):
            return False
        return not self.tables.host_rows[self.tables.owner(page)].exploring

    def _lesson(self, page: cython.int, host: cython.int, now: cython.double) -> cython.double:
        """Return the value of what a fetch of the page teaches, in units of the level."""
        elapsed: cython.double = now - self.tables.crawled[page]
        importance: cython.double = self.tables.importance(page)
        if not elapsed > 0.0 or not importance > 0.0:
            return 0.0
        price: cython.double = self.controller.level * self.tables.host_rows[host].boost / importance
        taught: cython.double = self.deadlines.learning.quality.interim_watched(host, self.tables.trust(page))
        changes: cython.double = self.tables.rows[page].changes
        watched: cython.double = self.tables.rows[page].watched
        shape: cython.double = 1.0 / self.deadlines.learning.rates.variations[host]
        more: cython.double = information(
            shape + abs(changes),
            shape / self.deadlines.learning.rates.means[host] + watched,
            elapsed,
            price,
            self.deadlines.learning.restless.suspicion(changes, self.tables.unrest(page), elapsed),
        )
        return max(1.0 - taught, 0.0) * more * _HORIZON * self.controller.revisit / price
