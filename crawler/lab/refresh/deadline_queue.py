# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""Which page to crawl now: the greedy policy as a queue of deadlines, pages alone.

The crawler's own schedule (`crawler/frontier/refresh/schedule.py`) adds hosts,
neighbourhoods and exploration; this is the policy of the paper, for comparison.

The greedy policy crawls the page of the greatest value V. For a `level`
(Lagrange multiplier, the value of the marginal page) each page has one
threshold iota = V^-1(level) that depends on its parameters only, and so one
deadline

    last crawl + iota - n beta

at which its value reaches the level. A crawl restarts it, a signal moves it forward by
beta; between such events nothing is computed. The page with the earliest deadline is
crawled. Special pages: one certain signal (nu = 0) makes a page due at once; without
silent changes (alpha = 0) it is due at the smallest n with V_n >= level.

The level finds itself. If the page taken was not due yet, the level is too
high for the bandwidth and sinks by `gain`; if it was late by more than a tick
(the time between two takes) it is too low and rises. The step doubles while
one side persists over many takes, and falls back to `gain` when it ends. A
page that a signal made due counts as due from that signal on.

    pages with ceiling mu/Delta > level   heap by deadline
    the others, never worth a crawl       heap by ceiling; looked at again when
                                          the level falls below it
    a page being crawled                  in neither, from `take` to `settle`

A crawl solves the threshold again when the level has moved by 2 % since the last
solution (or by half its distance to the ceiling), and otherwise moves it along the
slope V': V is then off by at most 0.5 %. A key made under a level that has since risen
by 3 % is computed again before its page is taken. With `max_age` every page is due that
long after its last crawl, whatever its value.

Cost, compiled: 8 microseconds a pick with its six signals, 14 at a million
pages (cache misses); 230 bytes a page. Nothing depends on other pages, so shards need
no coordination. Source: Busa-Fekete et al., Algorithm 1 and section 5.2.
"""

from typing import Any

import cython
import numpy as np
from cython.cimports.libc.math import isfinite

from crawler.freshness.crawl_value import parameters_of
from crawler.freshness.params import PageParameters, Pages
from crawler.freshness.value_kernel import ALL_TERMS, KINDS, SIGNALS_ONLY

if cython.compiled:
    from cython.cimports.crawler.freshness.value_kernel import Parameters
    from cython.cimports.crawler.lab.refresh.indexed_heap import IndexedHeap
else:
    from crawler.freshness.value_kernel import Parameters
    from crawler.lab.refresh.indexed_heap import IndexedHeap

NCIS = cython.declare(cython.Py_ssize_t, KINDS["ncis"])
TERMS = cython.declare(cython.Py_ssize_t, ALL_TERMS)
INFINITY = cython.declare(cython.double, float("inf"))

# Columns of a page's row; the first eight, one cache line, are all a signal needs.
LAST = cython.declare(cython.Py_ssize_t, 0)  # instant of the last crawl
SIGNALS = cython.declare(cython.Py_ssize_t, 1)  # counted since then
THRESHOLD = cython.declare(cython.Py_ssize_t, 2)  # iota, or a number of signals if nothing changes silently
BETA = cython.declare(cython.Py_ssize_t, 3)  # signal time: 0 worthless, infinite certain, or BY_NUMBER
KEY_LEVEL = cython.declare(cython.Py_ssize_t, 4)  # level under which the deadline was made
FLIGHT = cython.declare(cython.Py_ssize_t, 5)  # signals since `take`, or AT_REST
CEILING = cython.declare(cython.Py_ssize_t, 6)
PRESENT = cython.declare(cython.Py_ssize_t, 7)
ANCHOR_LEVEL = cython.declare(cython.Py_ssize_t, 8)  # level, threshold and slope V' of the last solution
ANCHOR = cython.declare(cython.Py_ssize_t, 9)
SLOPE = cython.declare(cython.Py_ssize_t, 10)
IMPORTANCE = cython.declare(cython.Py_ssize_t, 11)
CHANGE_RATE = cython.declare(cython.Py_ssize_t, 12)
SILENT_RATE = cython.declare(cython.Py_ssize_t, 13)
SIGNAL_RATE = cython.declare(cython.Py_ssize_t, 14)
FALSE_RATE = cython.declare(cython.Py_ssize_t, 15)
SIGNAL_WEIGHT = cython.declare(cython.Py_ssize_t, 16)
COLUMNS = cython.declare(cython.Py_ssize_t, 24)  # three cache lines

BY_NUMBER = cython.declare(
    cython.double, -1.0
)  # BETA: nothing changes silently; THRESHOLD is a number of signals
AT_REST = cython.declare(cython.double, -1.0)  # FLIGHT: the page is not being crawled
LEVEL_FELL = cython.declare(cython.double, 0.98)  # of a key's level: below it, a signal makes the key anew
KEY_HOLDS = cython.declare(
    cython.double, 0.97
)  # of the level: a key made under less is made anew before a take
UNDER_CEILING = cython.declare(cython.double, 0.99)  # of the highest ceiling: the level if no page reaches it
SLOPE_HOLDS = cython.declare(cython.double, 0.02)  # of its level: so far a solution is moved along the slope
TOLERANCE = cython.declare(cython.double, 1e-4)  # of a threshold, relative
STREAK_MIN = cython.declare(cython.Py_ssize_t, 64)  # takes on one side after which the step doubles
DOUBLINGS_MAX = cython.declare(cython.Py_ssize_t, 4)


@cython.cclass
class DeadlineQueue:
    """Pages are numbers 0 .. capacity - 1; instants and rates in one unit of time.

    Args:
        level: where to start; 0 begins at half the ceiling of the first page put in.
        gain: relative step of the level at a take.
        max_age: crawl a page this long after its last crawl in any case.
        discard_window: signals that come within this time after a page's crawl
            are dropped (NCIS-D: they may tell of a change that was seen).
    """

    _rows: cython.double[:, ::1]
    _due: IndexedHeap
    _idle: IndexedHeap
    _page: Parameters  # filled anew for each solution
    _previous: cython.double
    _run: cython.Py_ssize_t
    _present: cython.Py_ssize_t
    level = cython.declare(cython.double, visibility="public")
    gain = cython.declare(cython.double, visibility="readonly")
    max_age = cython.declare(cython.double, visibility="readonly")
    discard_window = cython.declare(cython.double, visibility="readonly")
    takes = cython.declare(cython.Py_ssize_t, visibility="readonly")
    solutions = cython.declare(cython.Py_ssize_t, visibility="readonly")

    def __init__(
        self,
        capacity: int,
        *,
        level: float = 0.0,
        gain: float = 5e-4,
        max_age: float = float("inf"),
        discard_window: float = 0.0,
    ) -> None:
        self._rows = np.zeros((max(capacity, 1), COLUMNS))
        self._due = IndexedHeap(capacity)
        self._idle = IndexedHeap(capacity)
        self._page = Parameters()
        self._previous = -INFINITY
        self._run = 0
        self._present = 0
        self.level = level
        self.gain = gain
        self.max_age = max_age
        self.discard_window = discard_window
        self.takes = 0
        self.solutions = 0

    @classmethod
    def of(cls, pages: Pages, now: float = 0.0, **settings: float) -> Any:
        """A queue of all `pages`, crawled at `now`."""
        queue = cls(len(pages), **settings)
        for number in range(len(pages)):
            queue.add(number, pages[number], now, now)
        return queue

    def grow(self, capacity: int) -> None:
        """Make room for pages up to `capacity` - 1."""
        extra = max(capacity - len(self._rows), 0)
        self._rows = np.concatenate([np.asarray(self._rows), np.zeros((extra, COLUMNS))])
        self._due.grow(capacity)
        self._idle.grow(capacity)

    # -- pages come, change and go

    def add(self, number: int, page: PageParameters, crawled_at: float, now: float, signals: int = 0) -> None:
        """Put in a page that is not in; one never crawled is no refresh decision and has no place here."""
        self._require(number, present=False)
        row = self._rows[number]
        row[LAST], row[SIGNALS], row[FLIGHT], row[PRESENT] = crawled_at, signals, AT_REST, 1.0
        self._present += 1
        self._set_page(number, page)
        if self.level <= 0.0:
            self.level = 0.5 * row[CEILING]
        self._schedule(number, now)

    def change(self, number: int, page: PageParameters, now: float) -> None:
        """Give a page new parameters; its last crawl and signals stay."""
        self._require(number, present=True)
        self._set_page(number, page)
        if self._rows[number, FLIGHT] == AT_REST:
            self._schedule(number, now)

    def remove(self, number: int) -> None:
        """Forget a page, also while it is being crawled."""
        self._require(number, present=True)
        self._rows[number, PRESENT] = 0.0
        self._present -= 1
        self._due.drop(number)
        self._idle.drop(number)

    def _require(self, number: int, *, present: bool) -> None:
        if not 0 <= number < len(self._rows) or (self._rows[number, PRESENT] > 0.0) != present:
            raise RuntimeError(f"page {number} is {'not ' if present else ''}in {self!r}")

    @cython.cfunc
    def _require_row(self, number: cython.Py_ssize_t, now: cython.double) -> cython.void:
        """Raise unless there is such a row, and such an instant."""
        if not 0 <= number < self._rows.shape[0]:
            raise RuntimeError(f"page {number} is not in {self!r}")
        if not isfinite(now):
            raise ValueError(f"instant {now}")

    def _set_page(self, number: int, page: PageParameters) -> None:
        row = self._rows[number]
        row[IMPORTANCE], row[CHANGE_RATE] = page.importance, page.change_rate
        row[SILENT_RATE], row[SIGNAL_RATE] = page.silent_rate, page.signal_rate
        row[FALSE_RATE], row[SIGNAL_WEIGHT] = page.false_rate, page.signal_weight
        row[BETA] = _signal_time(page)
        row[CEILING] = page.ceiling if page.change_rate > 0.0 else 0.0
        row[ANCHOR_LEVEL] = row[ANCHOR] = row[SLOPE] = 0.0

    # -- what happens to them

    @cython.ccall
    def signal(self, number: cython.Py_ssize_t, now: cython.double) -> cython.void:
        """A change-indicating signal for the page came; ignored if the page is not in."""
        self._require_row(number, now)
        row: cython.double[::1] = self._rows[number]
        if row[PRESENT] == 0.0:
            return
        if row[FLIGHT] != AT_REST:
            row[FLIGHT] += 1.0
            return
        if now - row[LAST] < self.discard_window:
            return
        row[SIGNALS] += 1.0
        if row[BETA] == 0.0 or row[THRESHOLD] == INFINITY:
            return
        if row[BETA] == BY_NUMBER:
            if row[SIGNALS] >= row[THRESHOLD] or self.level < LEVEL_FELL * row[KEY_LEVEL]:
                self._schedule(number, now)
            return
        key: cython.double = max(_deadline(row), now)
        if key < self._due.key_of(number):
            self._due.put(number, key)

    @cython.ccall
    def take(self, now: cython.double) -> cython.Py_ssize_t:
        """The page to crawl now; -1 if all pages are being crawled or never change.

        Work conserving: if nothing is due, it is the page due next. The page is
        out until `settle` or `give_back`.
        """
        if not isfinite(now):
            raise ValueError(f"instant {now}")
        number: cython.Py_ssize_t = self._first(now)
        if number < 0:
            return -1
        self._steer(now, self._due.first_key())
        self._due.drop(number)
        self._idle.drop(number)
        self._rows[number, FLIGHT] = 0.0
        self.takes += 1
        return number

    @cython.ccall
    def settle(self, number: cython.Py_ssize_t, now: cython.double) -> cython.void:
        """The page taken was crawled at `now`; signals that came since `take` still count."""
        self._require_row(number, now)
        row: cython.double[::1] = self._rows[number]
        if row[PRESENT] == 0.0:
            return
        row[LAST] = now
        row[SIGNALS] = row[FLIGHT]
        row[FLIGHT] = AT_REST
        self._schedule(number, now)

    @cython.ccall
    def give_back(self, number: cython.Py_ssize_t, now: cython.double) -> cython.void:
        """The page taken was not crawled; it keeps its last crawl and is due as before."""
        self._require_row(number, now)
        row: cython.double[::1] = self._rows[number]
        if row[PRESENT] == 0.0:
            return
        row[SIGNALS] += row[FLIGHT]
        row[FLIGHT] = AT_REST
        self._schedule(number, now)

    def next_wakeup(self) -> float:
        """When the next page will be due; infinite if none ever is. `take` need not wait for it."""
        return self._due.first_key()

    # -- the machinery

    @cython.cfunc
    def _first(self, now: cython.double) -> cython.Py_ssize_t:
        """The page with the earliest deadline, after all keys at the front were brought up to date."""
        number: cython.Py_ssize_t
        while True:
            number = self._idle.first()
            if number >= 0 and -self._idle.first_key() > self.level:
                self._schedule(number, now)
                continue
            if self._due.size == 0:
                if number < 0:
                    return -1
                self.level = UNDER_CEILING * -self._idle.first_key()
                continue
            number = self._due.first()
            if self._rows[number, KEY_LEVEL] >= KEY_HOLDS * self.level:
                return number
            self._schedule(number, now)

    @cython.cfunc
    def _steer(self, now: cython.double, deadline: cython.double) -> cython.void:
        """Move the level by what the page taken at `now` says of it."""
        tick: cython.double = now - self._previous
        self._previous = now
        if deadline > now:
            self._run = self._run - 1 if self._run < 0 else -1
            self.level *= 1.0 - self._step(-self._run)
        elif now - deadline > tick:
            self._run = self._run + 1 if self._run > 0 else 1
            self.level *= 1.0 + self._step(self._run)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _step(self, run: cython.Py_ssize_t) -> cython.double:
        """`gain`, doubled with every STREAK_MIN takes (or a quarter of the pages) on one side, up to sixteenfold.

        Sooner would overshoot: most keys follow the level only at their next crawl.
        """
        return self.gain * (1 << min(run // max(STREAK_MIN, self._present >> 2), DOUBLINGS_MAX))

    @cython.cfunc
    def _schedule(self, number: cython.Py_ssize_t, now: cython.double) -> cython.void:
        """Make the page's deadline anew under the present level."""
        row: cython.double[::1] = self._rows[number]
        threshold: cython.double = self._threshold(row)
        row[THRESHOLD] = threshold
        row[KEY_LEVEL] = self.level
        key: cython.double = row[LAST] + self.max_age
        if threshold == INFINITY and row[CEILING] > 0.0:
            self._idle.put(number, -row[CEILING])
        else:
            self._idle.drop(number)
        if threshold < INFINITY:
            due: cython.double = _deadline(row)
            if row[SIGNALS] > 0.0 and row[BETA] != 0.0:
                due = max(due, now)
            key = min(key, due)
        if key < INFINITY:
            self._due.put(number, key)
        else:
            self._due.drop(number)

    @cython.cfunc
    def _threshold(self, row: cython.double[::1]) -> cython.double:
        """V inverse of the level: along the slope if the last solution is near, else solved."""
        if row[CEILING] <= self.level:
            return INFINITY
        away: cython.double = self.level - row[ANCHOR_LEVEL]
        room: cython.double = min(SLOPE_HOLDS * row[ANCHOR_LEVEL], 0.5 * (row[CEILING] - row[ANCHOR_LEVEL]))
        if row[SLOPE] > 0.0 and -room <= away <= room:
            return row[ANCHOR] + away / row[SLOPE]
        self._solve(row)
        return row[ANCHOR]

    @cython.cfunc
    def _solve(self, row: cython.double[::1]) -> cython.void:
        guess: cython.double = row[ANCHOR]
        if row[SLOPE] > 0.0:
            guess += (self.level - row[ANCHOR_LEVEL]) / row[SLOPE]
            guess = min(max(guess, 0.5 * row[ANCHOR]), 2.0 * row[ANCHOR])
        self._page.assign(
            NCIS,
            TERMS,
            row[IMPORTANCE],
            row[CHANGE_RATE],
            row[SILENT_RATE],
            row[SIGNAL_RATE],
            row[FALSE_RATE],
            row[SIGNAL_WEIGHT],
        )
        at: cython.double = self._page.threshold(self.level, guess, TOLERANCE)
        self.solutions += 1
        row[ANCHOR] = at
        row[ANCHOR_LEVEL] = self.level
        row[SLOPE] = 0.0
        if row[BETA] != BY_NUMBER and at < INFINITY:
            row[SLOPE] = self._page.slope(at, 0.0)

    def __len__(self) -> int:
        return self._present

    def _check(self) -> None:
        self._due._check()
        self._idle._check()
        assert self._present == sum(1 for row in self._rows if row[PRESENT] > 0.0)
        for number, row in enumerate(self._rows):
            due, idle = self._due.holds(number), self._idle.holds(number)
            if row[PRESENT] == 0.0 or row[FLIGHT] != AT_REST:
                assert not due and not idle, number
                continue
            waits = row[CEILING] == 0.0 or row[BETA] == BY_NUMBER
            assert due or idle or waits, number
            assert idle == (row[THRESHOLD] == float("inf") and row[CEILING] > 0.0), number
            assert self._due.key_of(number) <= row[LAST] + self.max_age
            assert row[THRESHOLD] >= 0.0 and row[SIGNALS] >= 0.0

    def __repr__(self) -> str:
        return (
            f"DeadlineQueue({self._present} pages, {self._due.size} with a deadline, level {self.level:.4g})"
        )


def _signal_time(page: PageParameters) -> float:
    """The column BETA."""
    parameters = parameters_of(page)
    return BY_NUMBER if parameters.form == SIGNALS_ONLY else parameters.signal_time


@cython.cfunc
@cython.exceptval(check=False)
def _deadline(row: cython.double[::1]) -> cython.double:
    """When the value reaches the level under which THRESHOLD was made, as things stand; it may be past."""
    beta: cython.double = row[BETA]
    if beta == BY_NUMBER:
        return row[LAST] if row[SIGNALS] >= row[THRESHOLD] else INFINITY
    if beta == INFINITY:
        return row[LAST] if row[SIGNALS] > 0.0 else row[LAST] + row[THRESHOLD]
    return row[LAST] + row[THRESHOLD] - row[SIGNALS] * beta
