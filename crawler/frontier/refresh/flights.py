# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False, initializedcheck=False
"""Manages pages in flight. A page is in flight from the moment when it is taken until its result is processed.

    begin ──► in flight ──┬─► finish   changed or unchanged: learned, a new deadline; failed or gone: postponed
                          └─► cancel   not fetched: due as before

A host has at most one page in flight, and is in no heap meanwhile. `begin` also adjusts the levels, depending
on the page taken (`level_controller.py`). The method `_check` of the schedule also checks the state that
`Flights` keeps.
"""

import cython
from cython.cimports.crawler.freshness.learning import Learning
from cython.cimports.crawler.frontier.refresh.deadlines import BY_INTERVAL, Deadlines
from cython.cimports.crawler.frontier.refresh.exploration import Exploration
from cython.cimports.crawler.frontier.refresh.level_controller import LevelController
from cython.cimports.crawler.frontier.refresh.queues import Queues
from cython.cimports.crawler.frontier.refresh.tables import (
    AWAY,
    DOUBLING,
    EXPLORED,
    FAILED,
    HELD,
    JUMPED,
    RECALLED,
    UNSTEADY,
    WITHHELD,
    Tables,
)
from cython.cimports.libc.math import isfinite

_DOUBLINGS_MAX = cython.declare(cython.int, 7)
_NUTCH_SHORTER = cython.declare(cython.double, 0.8)  # defaults of Nutch's AdaptiveFetchSchedule
_NUTCH_LONGER = cython.declare(cython.double, 1.4)


def check_instant(now: cython.double) -> cython.void:
    """Raise `ValueError` unless `now` is a finite instant."""
    if not isfinite(now):
        raise ValueError(f"instant {now}")


class Flights:
    """The pages in flight, the effects of their results, and the rows that belong to pages.

    `held` maps a page to (its signals before the flight, whether it was removed during the flight). `takes` is the
    number of flights begun.
    """

    def __init__(
        self,
        tables: Tables,
        controller: LevelController,
        deadlines: Deadlines,
        queues: Queues,
        exploration: Exploration,
        learning: Learning,
    ) -> None:
        self.tables, self.controller, self.deadlines, self.queues = tables, controller, deadlines, queues
        self.exploration, self.learning = exploration, learning
        self.held: dict = {}
        self.takes = 0

    # -- a flight

    def begin(self, page: cython.int, now: cython.double) -> cython.void:
        """Note that a fetch of a page begins. The page's host is busy until `cancel` or `finish`."""
        self.require_page(page)
        check_instant(now)
        if self.tables.states[page] & (HELD | WITHHELD):
            raise RuntimeError(f"page {page} cannot be held in {self!r}")
        host: cython.int = self.tables.owner(page)
        if self.tables.host_rows[host].busy:
            raise RuntimeError(f"host {host} is busy in {self!r}")
        self._steer(page, host, now)
        self.tables.host_rows[host].busy = 1
        self.queues.leave(page, now)
        if self.tables.states[page] & EXPLORED:
            self.tables.host_rows[host].exploring = 0
            self.tables.states[page] &= ~EXPLORED & 0xFF
        self.held[page] = (self.tables.rows[page].signals, False)
        self.tables.rows[page].signals = 0
        self.tables.states[page] |= HELD
        self.queues.place_host(host, now)
        self.takes += 1
        self.queues.absences.note_take()
        self.exploration.note_take(now)

    def _steer(self, page: cython.int, host: cython.int, now: cython.double) -> cython.void:
        """Adjust the levels after a page is taken at `now`. Explored and retried pages have no effect on the levels."""
        state: cython.uint = self.tables.states[page]
        self.deadlines.note_take(page, host, now)
        tick: cython.double = now - self.controller.previous
        gap: cython.double = now - self.tables.host_rows[host].previous
        self.controller.note_take(host, now, self.takes)
        if state & (EXPLORED | AWAY | FAILED):
            return
        offset: cython.double = self.deadlines.offsets.of_page(page, host, now)
        deadline: cython.double = self.tables.page_heaps.nodes[page].key - offset
        worth: cython.double = self.deadlines.worth(page, host, now)
        self.controller.judge(host, deadline, worth, state & JUMPED != 0, tick, gap, now)

    def cancel(self, page: cython.int, now: cython.double, ready: cython.double) -> cython.void:
        """End a flight without a fetch. The page stays due, and its host may be requested from `ready` on."""
        signals, removed = self._end_flight(page, now, ready)
        host: cython.int = self.tables.owner(page)
        if removed:
            self.free(page)
        else:
            self.tables.rows[page].signals = self.deadlines.summed(signals, self.tables.rows[page].signals)
            self.queues.put_back(page, now)
        self._release_host(host, now)

    def finish(
        self, page: cython.int, now: cython.double, result: cython.int, ready: cython.double
    ) -> cython.void:
        """End a flight with this `RefreshOutcome`; the page's host may be requested from `ready` on.

        The result updates the estimators, and the page gets a new deadline. Signals received
        since `begin` count for the next interval.
        """
        if not 0 <= result <= 6:
            raise ValueError(f"result {result}")
        signals, removed = self._end_flight(page, now, ready)
        host: cython.int = self.tables.owner(page)
        if removed:
            self.free(page)
        elif result <= 1 or result == 6:
            if result <= 1 and not self.tables.states[page] & AWAY:
                self._learn(page, host, signals, result == 1, now)
            self._renew(page, host, now)
            if self.tables.rows[page].signals:
                self.tables.states[page] |= JUMPED
            self.queues.settle(page, now)
        else:
            self._put_off(page, host, signals, result, now)
        self._release_host(host, now)

    def _release_host(self, host: cython.int, now: cython.double) -> cython.void:
        """Put the host of a flight that has ended into the right heap."""
        self.tables.host_rows[host].busy = 0
        self.queues.place_host(host, now)

    def _end_flight(self, page: cython.int, now: float, ready: float) -> tuple[int, bool]:
        check_instant(now)
        if ready != ready:
            raise ValueError(f"ready {ready}")
        if page not in self.held:
            raise RuntimeError(f"page {page} is not held in {self!r}")
        held: tuple[int, bool] = self.held.pop(page)
        host: cython.int = self.tables.owner(page)
        self.tables.host_rows[host].ready = ready
        self.tables.states[page] &= ~HELD & 0xFF
        return held

    def _learn(
        self,
        page: cython.int,
        host: cython.int,
        signals: cython.uint,
        changed: cython.bint,
        now: cython.double,
    ) -> cython.void:
        """Update the estimators after a crawl that showed whether the page has changed."""
        elapsed: cython.double = now - self.tables.crawled[page]
        directory: cython.int = self.tables.page_heaps.nodes[page].owner
        if elapsed > 0.0:
            self.deadlines.unpack(signals)
            self.tables.rows[page].changes = self.learning.observe(
                host, directory, self.tables.rows[page].changes, self.tables.rows[page].watched, elapsed, now,
                self.deadlines.counts, changed, self.tables.trust(page), self.tables.unrest(page),
            )  # fmt: skip
            self.tables.set_trust(page, self.learning.kinds.trust)
            self.tables.set_unrest(page, self.learning.unrest)
            self.tables.rows[page].watched += self.learning.watched
            shown: cython.bint = self.tables.hubs.has_shown(page)
            self.tables.hubs.crawled(page, elapsed)
            self.learning.discovery.watch(
                host, directory, elapsed, now, shown, self.tables.hubs.links_of(page)
            )
            self.learning.renew_crawl()
            self.learning.renew(host)
            self.deadlines.offsets.note_crawl(host, now)
        if self.deadlines.policy == BY_INTERVAL:
            self.tables.intervals[page] *= _NUTCH_SHORTER if changed else _NUTCH_LONGER

    def _renew(self, page: cython.int, host: cython.int, now: cython.double) -> cython.void:
        """Record that the copy of a page was made at `now`."""
        state: cython.uint = self.tables.states[page]
        self.tables.crawled[page] = now
        self.queues.absences.note_answer(host, now)
        if state & RECALLED:
            self.queues.absences.note_return(host, state)
        self.tables.states[page] = UNSTEADY if state & AWAY else 0

    def _put_off(
        self, page: cython.int, host: cython.int, signals: cython.uint, result: cython.int, now: cython.double
    ) -> cython.void:
        """Postpone a page whose fetch failed, or that the fetch found away.

        The wait after a failure doubles each time. A failed fetch does not tell whether a page is still away.
        """
        state: cython.uint = self.tables.states[page]
        times: cython.int = state // DOUBLING if state & RECALLED else 0
        if result == 2:
            self.tables.rows[page].signals = self.deadlines.summed(signals, self.tables.rows[page].signals)
            if not state & AWAY:
                self.tables.states[page] = FAILED | DOUBLING * min(times + 1, _DOUBLINGS_MAX)
                self.queues.withhold(page, now + self.queues.retry_age * (1 << times))
                return
        else:
            self.queues.absences.note_absence(host, state, now)
            times = self.queues.absences.next_rung(state, result == 5)
            self.tables.states[page] = AWAY | DOUBLING * times
        self.tables.crawled[page] = now
        self.queues.withhold(page, now + self.queues.absences.wait(times))

    # -- the rows of pages

    def remove(self, page: cython.int) -> cython.void:
        """Remove a page. If the page is in flight, its row is freed when the flight ends."""
        self.require_page(page)
        if self.tables.states[page] & HELD:
            self.held[page] = (self.held[page][0], True)
            self.tables.pages.remove(page)
            return
        now: cython.double = self.controller.previous if isfinite(self.controller.previous) else 0.0
        self.queues.leave(page, now)
        self.tables.pages.remove(page)
        self.free(page)

    def free(self, page: cython.int) -> cython.void:
        """Free the row of a page that is in no heap and has no fingerprint."""
        self.tables.free(page)
        self.controller.set_scale()

    def signals_since_crawl(self, page: cython.int) -> cython.uint:
        """Return the signals of a page since its last crawl.

        While a fetch of the page is in flight, these include the signals from before the fetch began.
        """
        signals: cython.uint = self.tables.rows[page].signals
        if page in self.held:
            signals = self.deadlines.summed(self.held[page][0], signals)
        return signals

    def require_page(self, page: cython.Py_ssize_t) -> cython.void:
        """Raise `RuntimeError` unless `page` is the number of a page."""
        if not 0 <= page < self.tables.pages.rows or self.is_free(cython.cast(cython.int, page)):
            raise RuntimeError(f"page {page} is not in {self!r}")

    def require_host(self, host: cython.Py_ssize_t) -> cython.void:
        """Raise `RuntimeError` unless `host` is the number of a host."""
        if not 0 <= host < self.tables.hosts.rows:
            raise RuntimeError(f"host {host} is not in {self!r}")

    def is_free(self, page: cython.int) -> cython.bint:
        """Return whether the row belongs to no page. A page removed in flight keeps its row until the flight ends."""
        if not self.tables.states[page] & HELD:
            return False
        held = self.held.get(page)
        return held is None or held[1]

    def __repr__(self) -> str:
        return f"Flights({len(self.held)} of {self.tables.pages.size} pages)"
