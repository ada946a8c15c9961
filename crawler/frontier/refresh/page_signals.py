# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False, initializedcheck=False
"""Processes change signals. Each signal makes the deadline of its page earlier, because it adds the signal
time to the age of the page. Signals arrive one by one (`note_change`) or in bulk: `enqueue_changes` keeps an
array of fingerprints, and later calls of the schedule process it in slices (`work_off`). Signals of a page in
flight count for its next interval. A signal about a page that is gone, moved or denied shortens the wait of
the page, because the page may be available again.
"""

from collections import deque
from typing import Any

import cython
import numpy as np
from cython.cimports.crawler.freshness.learning import Learning
from cython.cimports.crawler.frontier.refresh.deadlines import BY_VALUE, Deadlines
from cython.cimports.crawler.frontier.refresh.flights import Flights, check_instant
from cython.cimports.crawler.frontier.refresh.queues import Queues
from cython.cimports.crawler.frontier.refresh.tables import (
    AWAY,
    DOUBLING,
    EXPLORED,
    FAILED,
    HELD,
    JUMPED,
    RECALLED,
    WITHHELD,
    Tables,
)

from crawler.change_signals import COUNTER_BITS, SOURCES
from crawler.freshness.columns import rows_of

_INFINITY = cython.declare(cython.double, float("inf"))
# A call of `Schedule.peek`, or of a similar method, processes at most this many queued changes.
SLICE = cython.declare(cython.Py_ssize_t, 64)
_BITS = cython.declare(cython.uint, COUNTER_BITS)  # number of bits of the counter of each source
_SIGNAL_MAX = cython.declare(cython.uint, (1 << COUNTER_BITS) - 1)  # maximum count per source
_SIGNALS_MAX = cython.declare(cython.uint, 0xFFFFFFFF)  # maximum count if all sources share one counter


class Signals:
    """Records change signals of pages.

    `waiting` is the number of bulk changes that are not processed yet.

    Args:
        discard_window: signals that arrive within this time after a crawl are ignored, because the crawl has
            seen the change.
    """

    def __init__(
        self,
        tables: Tables,
        deadlines: Deadlines,
        queues: Queues,
        learning: Learning,
        flights: Flights,
        discard_window: float,
    ) -> None:
        self.tables, self.deadlines, self.queues = tables, deadlines, queues
        self.learning, self.flights = learning, flights
        self._discard = discard_window
        self._backlog: Any = deque()
        self.waiting = 0

    def note_change(self, page: int, now: float, source: int = 0) -> None:
        """Record a signal, from one of SOURCES sources, that the page has changed."""
        self.flights.require_page(page)
        check_instant(now)
        _check_source(source)
        self._note(page, now, source)

    def enqueue_changes(self, fingerprints: np.ndarray, now: float, source: int = 0) -> None:
        """Queue signals for all these pages, uint64 (n,); the array is not copied, and is processed later, in slices."""
        check_instant(now)
        _check_source(source)
        if (
            not isinstance(fingerprints, np.ndarray)
            or fingerprints.dtype != np.uint64
            or fingerprints.ndim != 1
        ):
            raise ValueError("enqueue_changes: fingerprints must be an array of uint64 (n,)")
        if len(fingerprints):
            self._backlog.append((np.ascontiguousarray(fingerprints), source))
            self.waiting += len(fingerprints)
        self.work_off(SLICE, now)

    def pop_touched(self) -> list[int]:
        """Return the pages touched by signals or recalls since the last call, so that they can be stored.

        The schedule must have been created with `track`.
        """
        touched = [page for page in self.tables.touched or () if not self.flights.is_free(page)]
        if self.tables.touched is not None:
            self.tables.touched.clear()
        return touched

    def work_off(self, most: cython.Py_ssize_t, now: cython.double) -> cython.void:
        """Process up to `most` of the queued changes."""
        i: cython.Py_ssize_t
        page: cython.int
        keys: cython.const[cython.ulonglong][::1]
        while most > 0 and self._backlog:
            fingerprints, source = self._backlog[0]
            keys = rows_of(fingerprints)
            share: cython.Py_ssize_t = min(most, len(keys))
            kind: cython.uint = source
            for i in range(share):
                page = self.tables.pages.find(keys[i])
                if page >= 0:
                    self._note(page, now, kind)
            most -= share
            self.waiting -= share
            if share < len(keys):
                self._backlog[0] = (fingerprints[share:], source)
            else:
                self._backlog.popleft()

    def _note(self, page: cython.int, now: cython.double, source: cython.uint) -> cython.void:
        state: cython.uint = self.tables.states[page]
        if not state & HELD and now - self.tables.crawled[page] < self._discard:
            return
        if self.deadlines.policy != BY_VALUE:
            return
        host: cython.int = self.tables.directory_heaps.nodes[self.tables.page_heaps.nodes[page].owner].owner
        if not self.deadlines.plain:
            self.learning.quality.note_signal(host, source)
        before: cython.uint = self.tables.rows[page].signals
        after: cython.uint
        if self.deadlines.plain:
            after = before + 1 if before < _SIGNALS_MAX else before
        else:
            after = before + (cython.cast(cython.uint, 1) << _BITS * source)
            if before >> _BITS * source & _SIGNAL_MAX == _SIGNAL_MAX:
                return
        self.tables.touch(page)
        if state & (HELD | WITHHELD | EXPLORED | AWAY | FAILED):
            self.tables.rows[page].signals = after
            if state & AWAY:
                if state & WITHHELD:
                    self._recall(page, host, now, source)
            elif state & WITHHELD and not state & FAILED:
                self.queues.reschedule(page, now)
                if not self.tables.states[page] & WITHHELD:
                    self.tables.states[page] |= JUMPED
            return
        self.deadlines.assign(page, host, now)
        n: cython.double = self.deadlines.signals_of(host, before)
        self.tables.rows[page].signals = after
        beta: cython.double = self.deadlines.page.signal_time
        if beta == 0.0:
            return
        more: cython.double = self.deadlines.signals_of(host, after)
        key: cython.double = self.tables.page_heaps.nodes[page].key
        paced: cython.bint = self.deadlines.is_paced(page, host)
        if beta < _INFINITY and not paced and key - (more - n) * beta > now:
            # If the new key minus the offsets of directory and host is in the past, the page may be due. The
            # exact deadline of the page is computed when the page is at the top of its heap.
            key -= (more - n) * beta
        else:
            if key - self.deadlines.offsets.of_page(page, host, now) > now:
                self.tables.states[page] |= JUMPED
            key = min(key, self.deadlines.key(page, host, more, now))
        self.queues.move(page, key, now)

    def _recall(
        self, page: cython.int, host: cython.int, now: cython.double, source: cython.uint
    ) -> cython.void:
        """Recall a page that is away, because of a signal.

        This is done only if the schedule uses signals of this source. The page is recalled as early as after a
        failed fetch, and its wait doubles each time. A page that is away shows nothing about the precision of the
        source, so only the budget of such fetches protects against signals that are wrong.
        """
        times: cython.int = self.tables.states[page] // DOUBLING
        due: cython.double = max(now, self.tables.crawled[page] + self.queues.retry_age * (1 << times))
        if self.deadlines.plain or not self.learning.quality.sources.used(host, source):
            return
        if due < self.tables.page_heaps.nodes[page].key:
            self.queues.leave(page, now)
            self.tables.states[page] |= RECALLED
            self.queues.withhold(page, due)

    def _check(self) -> None:
        assert self.waiting == sum(len(keys) for keys, _ in self._backlog)


def _check_source(source: int) -> None:
    if not 0 <= source < SOURCES:
        raise ValueError(f"source {source}")
