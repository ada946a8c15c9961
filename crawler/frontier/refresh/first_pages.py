# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False, initializedcheck=False
"""Finds the page of a directory that is due first, and the page that is worth most if none is due.

The heap of a directory is ordered by base deadline. While the directory is changing or quiet, its clock makes
the deadline of a page earlier by

    offset x (1 - (1 + age/Ts) exp(-age/Ts))

(`neighbourhood.lead_of`). An offset below 0 makes the deadline later. A page that was crawled long ago gets
the whole offset, and a page that was just crawled gets nothing. So the first page of the heap need not
be the page that is due first.

The page that is due first is found by branch and bound. No deadline is earlier than the base deadline minus
the whole offset, if the offset is above 0, or than the base deadline otherwise. The search visits a page only
if this bound is earlier than the best deadline found so far. All pages below a page in the heap have a later
bound, so they can be left out with it.

The search uses base deadlines and the clock. It computes no value and changes no heap. So it finds the right
page after each rise or fall of the offset.

*If no page is due*, the page that is due first may be worth almost nothing: in a changing directory, the
clock of a page that was just crawled may reach its wait soon. `progress` is the share of the wait that a
clock has reached. The value of a page grows about as the square of this share. `find_ripest` finds the page
with the greatest share.
"""

import cython
import numpy as np
from cython.cimports.crawler.freshness.learning import Learning
from cython.cimports.crawler.freshness.neighbourhood import clock_of, lead_of, offset_of
from cython.cimports.crawler.frontier.refresh.offsets import Offsets
from cython.cimports.crawler.frontier.refresh.tables import AWAY, EXPLORED, FAILED, Tables
from cython.cimports.libc.math import exp, expm1

from crawler.freshness.columns import rows_of

_INFINITY = cython.declare(cython.double, float("inf"))
# maximum number of pages that a search visits; each costs about 50 ns
_VISITS_MAX = cython.declare(cython.int, 32)
# Error of the result relative to the age of the page, and the number of steps after which a larger error is accepted
_PRECISION = cython.declare(cython.double, 0.01)
_STEPS_MAX = cython.declare(cython.int, 12)
_SHORT_STEPS = cython.declare(cython.int, 4)
# The clock runs at least at 1/20 of its normal speed (`freshness/neighbourhood.py`).
_LONGEST = cython.declare(cython.double, 20.0)
# A page that is not due steps aside if its clock has reached less than this share of its wait. A value grows as the
# square of this share.
_RIPE = cython.declare(cython.double, 0.7)
# Pages whose clocks have reached less than this share of their waits are all treated as if they had reached it.
_SHARE_LEAST = cython.declare(cython.double, 0.01)


@cython.cclass
class FirstPages:
    """Searches for the first pages of directories.

    `due` is the deadline of the page found last. `cut` is whether the last search visited
    as many pages as it may; `last` is the page among these with the latest deadline.
    """

    def __init__(self, tables: Tables, learning: Learning, offsets: Offsets) -> None:
        self.tables, self.learning, self.offsets = tables, learning, offsets
        self.due, self.cut, self.last = _INFINITY, False, -1
        self._stack = rows_of(np.zeros(2 * _VISITS_MAX + 2, np.int32))

    def find(self, directory: cython.int, now: cython.double) -> cython.int:
        """Return the page of a directory that is due first; -1 if the directory has no page in its heap."""
        page: cython.int = self.tables.directory_rows[directory].root
        self.due, self.cut = _INFINITY, False
        if page < 0:
            return -1
        host: cython.int = self.tables.directory_heaps.nodes[directory].owner
        scale: cython.double = self.learning.scale
        excess: cython.double = self.learning.excess(host, directory, now) if self.offsets.clocked else 0.0
        full: cython.double = offset_of(excess, scale)
        # no deadline is earlier than the key by more than this
        most: cython.double = max(full, 0.0)
        if self.offsets.is_bounded(page, host):
            most = max(self.offsets.of_old(directory, host, now), 0.0)
            full = max(full, 0.0)
        if full == 0.0:
            self.due = self.tables.page_heaps.nodes[page].key - most
            return page
        found: cython.int = -1
        late: cython.int = -1
        later: cython.int = -1
        due: cython.double = _INFINITY
        first: cython.double = _INFINITY
        second: cython.double = _INFINITY
        key: cython.double
        at: cython.double
        worst: cython.double = -_INFINITY
        visits: cython.int = 0
        depth: cython.Py_ssize_t = 1
        self._stack[0] = page
        while depth > 0:
            depth -= 1
            page = self._stack[depth]
            key = self.tables.page_heaps.nodes[page].key
            if key - most >= min(due, second):
                continue
            if visits == _VISITS_MAX:
                self.cut = True
                break
            visits += 1
            crawled: cython.double = self.tables.crawled[page]
            lead: cython.double = lead_of(max(now - crawled, 0.0), full, scale)
            at = min(key - lead, crawled + _LONGEST * (key - crawled))
            if at <= now or key <= crawled:
                if at < due:
                    found, due = page, at
            elif found < 0:
                if at > worst:
                    self.last, worst = page, at
                at = self._due_later(page, full, at, now, second)
                if at < first:
                    later, second = late, first
                    late, first = page, at
                elif at < second:
                    later, second = page, at
            depth = self._push_children(page, depth)
        if found >= 0:
            self.due = due
            return found
        # the results for `late` and `later` assume that the excess does not fall
        self.due = self._reached(late, directory, host, first, now)
        if later >= 0 and second < self.due:
            second = self._reached(later, directory, host, second, now)
            if second < self.due:
                late, self.due = later, second
        return late

    def find_ripest(self, directory: cython.int, revisit: cython.double, now: cython.double) -> cython.int:
        """Return the page of a directory that comes first by value. No page is due. Return -1 if the heap is empty.

        `due` becomes the instant at which a page that has reached the same share of its wait in `revisit`, the mean
        interval, would be due. It is not earlier than the base deadline minus the offset.
        """
        page: cython.int = self.tables.directory_rows[directory].root
        self.due = _INFINITY
        if page < 0:
            return -1
        host: cython.int = self.tables.directory_heaps.nodes[directory].owner
        most: cython.double = max(self.offsets.of_old(directory, host, now), 0.0)
        found: cython.int = page
        visits: cython.int = 0
        depth: cython.Py_ssize_t = 1
        self._stack[0] = page
        while depth > 0 and visits < _VISITS_MAX:
            depth -= 1
            page = self._stack[depth]
            earliest: cython.double = self.tables.page_heaps.nodes[page].key - most
            if earliest >= self.due:
                continue
            visits += 1
            share: cython.double = max(self.progress(page, directory, host, now), _SHARE_LEAST)
            at: cython.double = max(now + revisit * (1.0 / share - 1.0), earliest)
            if at < self.due:
                found, self.due = page, at
            depth = self._push_children(page, depth)
        return found

    def is_unripe(
        self, page: cython.int, directory: cython.int, host: cython.int, now: cython.double
    ) -> cython.bint:
        """Return whether the value of a page that is not due is less than about half of the level."""
        if self.tables.states[page] & (EXPLORED | FAILED | AWAY):
            return False
        return self.progress(page, directory, host, now) < _RIPE

    def progress(
        self, page: cython.int, directory: cython.int, host: cython.int, now: cython.double
    ) -> cython.double:
        """Return the share of a page's wait that its clock has reached."""
        crawled: cython.double = self.tables.crawled[page]
        wait: cython.double = self.tables.page_heaps.nodes[page].key - crawled
        if not wait > 0.0:
            return 1.0
        return 1.0 + self._lead(crawled, wait, directory, host, now) / wait

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _push_children(self, page: cython.int, depth: cython.Py_ssize_t) -> cython.Py_ssize_t:
        """Put the pages directly below a page in the heap on the stack; return the new depth of the stack."""
        left: cython.int = self.tables.page_heaps.nodes[page].left
        right: cython.int = self.tables.page_heaps.nodes[page].right
        if left >= 0:
            self._stack[depth] = left
            depth += 1
        if right >= 0:
            self._stack[depth] = right
            depth += 1
        return depth

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _due_later(
        self,
        page: cython.int,
        full: cython.double,
        at: cython.double,
        now: cython.double,
        bound: cython.double,
    ) -> cython.double:
        """Return when a page that is not due is due by its clock; the result may be too early.

        `at` is the deadline for the present offset, which is `full`. A result that is not below `bound` is less exact.
        """
        if self.tables.hubs.row_of(page) >= 0:
            return max(at, now)  # the time at which a hub is due hardly depends on the clock
        key: cython.double = self.tables.page_heaps.nodes[page].key
        crawled: cython.double = self.tables.crawled[page]
        if full < 0.0:
            return self._delayed(key, crawled, full, at, now)
        # two steps, none of which leads beyond the instant at which the clock reaches the wait
        at = now + (at - now) / self._fastest(now - crawled, full)
        if at < bound:
            lead: cython.double = lead_of(max(at - crawled, 0.0), full, self.learning.scale)
            at += (key - lead - at) / self._fastest(at - crawled, full)
        return at

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _reached(
        self, page: cython.int, directory: cython.int, host: cython.int, at: cython.double, now: cython.double
    ) -> cython.double:
        """Return when a page is due by its clock.

        For a hub, this is `at`, because the deadline of a hub hardly depends on the clock.
        """
        return at if self.tables.hubs.row_of(page) >= 0 else self.reached_at(page, directory, host, at, now)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _delayed(
        self,
        key: cython.double,
        crawled: cython.double,
        full: cython.double,
        at: cython.double,
        now: cython.double,
    ) -> cython.double:
        """Return when a page of a directory with an offset below 0 is due by its clock; the result may be too early.

        `at` is the deadline for the present offset, which is `full`.
        """
        scale: cython.double = self.learning.scale
        then: cython.double = max(key, now)
        early: cython.double = key + full * exp((now - then) / scale) * expm1(
            min(crawled - then, 0.0) / scale
        )
        then = max(early, now)
        late: cython.double = key + full * exp((now - then) / scale) * expm1(min(crawled - then, 0.0) / scale)
        return max(min(at, early, late), key)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _fastest(self, elapsed: cython.double, full: cython.double) -> cython.double:
        """Return the greatest speed that the clock of a page has from an age of `elapsed` on.

        `full` is the offset, which must be above 0. The clock of a page is fastest at an age of Ts.
        """
        age: cython.double = max(elapsed / self.learning.scale, 1.0)
        return 1.0 + full / self.learning.scale * age * exp(-age)

    def reached_at(
        self, page: cython.int, directory: cython.int, host: cython.int, at: cython.double, now: cython.double
    ) -> cython.double:
        """Return when the clock of a page reaches its key. `at` estimates the result, and is at least `now`.

        The excess decays meanwhile, so the clock may reach the key twice. A step of Newton's method at a fixed excess
        above 0 is never too long, so a few steps find the first time, if it is near. Otherwise, the Illinois
        method finds the last time.
        """
        scale: cython.double = self.learning.scale
        crawled: cython.double = self.tables.crawled[page]
        wait: cython.double = self.tables.page_heaps.nodes[page].key - crawled
        low: cython.double = at
        high: cython.double = at
        below: cython.double = self._lead(crawled, wait, directory, host, at)
        _step: cython.int
        for _step in range(_SHORT_STEPS):
            excess: cython.double = self.learning.excess(host, directory, low)
            if below >= -_PRECISION * wait or excess <= 0.0:
                break
            low -= below / self._fastest(low - crawled, offset_of(excess, scale))
            below = self._lead(crawled, wait, directory, host, low)
        if -_PRECISION * wait <= below <= _PRECISION * wait:
            return low
        above: cython.double = below
        if above >= 0.0:
            high = low
            low = now
            below = self._lead(crawled, wait, directory, host, low)
            if below >= 0.0:
                return low
        else:
            high = crawled + wait
            if high > low:
                above = self._lead(crawled, wait, directory, host, high)
            if above < 0.0:
                high = crawled + _LONGEST * wait
                above = self._lead(crawled, wait, directory, host, high)
        side: cython.int = 0
        for _step in range(_STEPS_MAX):
            if high - low <= _PRECISION * (high - crawled):
                break
            at = low + (high - low) * below / (below - above)
            lead: cython.double = self._lead(crawled, wait, directory, host, at)
            if lead < 0.0:
                low, below = at, lead
                if side < 0:
                    above *= 0.5
                side = -1
            else:
                high, above = at, lead
                if side > 0:
                    below *= 0.5
                side = 1
        return low

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _lead(
        self,
        crawled: cython.double,
        wait: cython.double,
        directory: cython.int,
        host: cython.int,
        at: cython.double,
    ) -> cython.double:
        """Return by how much the clock of a page is ahead of its wait at a later instant; below 0 if it is behind."""
        return clock_of(at - crawled, self.learning.excess(host, directory, at), self.learning.scale) - wait
