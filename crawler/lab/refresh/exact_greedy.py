# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""Algorithm 1 of Busa-Fekete et al., computed exactly. At each tick, it crawls the page with the greatest value.

Cheaper schedulers are compared with this one, and the simulator uses it more than any other. Therefore, it
avoids evaluating all m values at each tick, but its choices are the same as if it evaluated them. It keeps a
`level` that is lower than the values of the recent winners. A page can win only after its value has crossed
the level. The crossing time is known in advance, and changes only when the page itself is crawled or receives
a signal:

    waiting      heap by crossing time
    candidates   pages that have crossed; each with bounds of its value, and with its
                 slope and interval, at the instant when it crossed or was last evaluated

At each tick, the pages that have crossed join the candidates. V never falls between crawls, and because
V' = mu alpha exp(-alpha iota) psi(iota) and psi' <= 1,

    V(iota + s) <= V + mu alpha exp(-alpha iota) int_0^s (psi + u) exp(-alpha u) du,

A candidate is therefore evaluated again only if this bound exceeds the best known value. In the bound,
exp(-alpha u) is replaced by the first three terms of its series, whose sum is never smaller. A signal
increases the effective elapsed time iota by beta, so the bound after a signal is that for s = beta. For most
candidates, no bound is computed. Every `_STRIDE` ticks, the candidates are sorted by the value that they can
reach until the next sorting. A tick examines only the candidates that can exceed the best known value, and
those that have crossed the level or received a signal since the sorting. If the winner is below the level,
the level was too high. It is then lowered, all crossings are computed again, and the tick is repeated. When
scanning the candidates costs more than computing all crossings, the level is raised to just below the recent
winners. Among equal values, the smallest page number wins. The scheduler works for every value of `KINDS`.

Cython pure-Python mode (see `freshness/value_kernel.py`).
"""

import cython
import numpy as np
from cython.cimports.libc.math import exp

from crawler.freshness.params import PageParameters, Pages
from crawler.freshness.value_kernel import CERTAIN as CERTAIN_FORM
from crawler.freshness.value_kernel import GREEDY as GREEDY_FORM
from crawler.freshness.value_kernel import SIGNALS_ONLY as SIGNALS_ONLY_FORM
from crawler.lab.refresh.crawl_value import parameters_of

if cython.compiled:
    from cython.cimports.crawler.freshness.value_kernel import Parameters
    from cython.cimports.crawler.lab.refresh.indexed_heap import IndexedHeap
else:
    from crawler.freshness.value_kernel import Parameters
    from crawler.lab.refresh.indexed_heap import IndexedHeap

GREEDY = cython.declare(cython.Py_ssize_t, GREEDY_FORM)
CERTAIN = cython.declare(cython.Py_ssize_t, CERTAIN_FORM)
SIGNALS_ONLY = cython.declare(cython.Py_ssize_t, SIGNALS_ONLY_FORM)
INFINITY = cython.declare(cython.double, float("inf"))

# bounds are multiplied by this factor, so that rounding does not hide an equal value
_BIT_MORE = cython.declare(cython.double, 1.0 + 1e-12)
_STRIDE = cython.declare(cython.double, 64.0)  # ticks between two sortings of the candidates
# largest number of crossings and signals between two sortings
_RECENT = cython.declare(cython.Py_ssize_t, 256)
# The level is raised once the number of sorted candidates exceeds this number times the number of pages.
# Sorting them costs as much as recomputing all crossings.
_PATIENCE = cython.declare(cython.double, 20.0)

# The columns of a page's row. A row fits into one cache line.
LOW = cython.declare(cython.Py_ssize_t, 0)  # a lower bound of the value
HIGH = cython.declare(cython.Py_ssize_t, 1)  # an upper bound of the value at the instant SINCE
# the instant to which HIGH, SLOPE and INTERVAL refer; -inf if the value must be evaluated
SINCE = cython.declare(cython.Py_ssize_t, 2)
SLOPE = cython.declare(cython.Py_ssize_t, 3)  # mu alpha exp(-alpha iota) at SINCE
INTERVAL = cython.declare(cython.Py_ssize_t, 4)  # psi(iota) at SINCE
DECAY = cython.declare(cython.Py_ssize_t, 5)  # alpha, or 0 while the value is at its maximum
# SLOPE and INTERVAL at the instant at which the page's value reaches the level
CROSS_SLOPE = cython.declare(cython.Py_ssize_t, 6)
CROSS_INTERVAL = cython.declare(cython.Py_ssize_t, 7)
COLUMNS = cython.declare(cython.Py_ssize_t, 8)


@cython.cclass
class ExactGreedy:
    """The exact greedy scheduler of `pages`; `by` is the name of the crawl value that it compares.

    Signals that arrive within `discard_window` after a crawl of the page are
    dropped. Call `note_change` for signals, and `claim_next` and `record_outcome` at each tick.
    """

    parameters: list  # one `Parameters` object per page
    by: str
    last: cython.double[::1]
    counts: cython.longlong[::1]
    thresholds: cython.double[::1]
    rows: cython.double[:, ::1]
    candidates: cython.int[::1]
    place: cython.int[::1]
    order: cython.Py_ssize_t[::1]
    reach: cython.double[::1]
    ordered: cython.Py_ssize_t
    recent: cython.int[::1]
    recents: cython.Py_ssize_t
    until: cython.double
    previous: cython.double
    waiting: IndexedHeap
    crossed: cython.Py_ssize_t
    scanned: cython.double
    lowest: cython.double
    discard_window: cython.double
    level = cython.declare(cython.double, visibility="readonly")
    evaluations = cython.declare(cython.Py_ssize_t, visibility="readonly")
    rebuilds = cython.declare(cython.Py_ssize_t, visibility="readonly")

    def __init__(self, pages: Pages, by: str = "ncis", *, discard_window: float = 0.0) -> None:
        size = len(pages)
        self.by = by
        self.parameters = [parameters_of(pages[number], by=by) for number in range(size)]
        self.last = np.zeros(size)
        self.counts = np.zeros(size, dtype=np.int64)
        self.thresholds = np.zeros(size)
        self.rows = np.zeros((size, COLUMNS))
        self.candidates = np.zeros(size, dtype=np.int32)
        self.place = np.full(size, -1, dtype=np.int32)
        self.order = np.zeros(size, dtype=np.intp)
        self.reach = np.zeros(size)
        self.ordered = self.recents = 0
        self.recent = np.zeros(_RECENT, dtype=np.int32)
        self.until = self.previous = -INFINITY
        self.waiting = IndexedHeap(size)
        self.crossed = 0
        self.scanned = 0.0
        self.lowest = INFINITY
        self.discard_window = discard_window
        self.level = 0.0
        self.evaluations = 0
        self.rebuilds = 0
        self._rebuild(0.0, 0.0)

    def change(self, number: int, page: PageParameters, now: float) -> None:
        """Change the parameters of a page from `now` on."""
        self.parameters[number] = parameters_of(page, by=self.by)
        self.thresholds[number] = 0.0
        self._leave(number)
        self._place(number, now)

    @cython.ccall
    def note_change(self, number: cython.Py_ssize_t, now: cython.double) -> cython.void:
        """Record a signal that the page has changed."""
        if self._of(number).form == GREEDY or now - self.last[number] < self.discard_window:
            return
        self.counts[number] += 1
        if self.place[number] >= 0:
            self.rows[number, SINCE] -= self._of(number).signal_time
            self._note(number)
            return
        key: cython.double = self._crossing(number)
        if key < self.waiting.key_of(number):
            self.waiting.put(number, key)

    @cython.ccall
    def claim_next(self, now: cython.double) -> cython.Py_ssize_t:
        """Return the page with the greatest value at `now`."""
        best: cython.Py_ssize_t
        while True:
            while self.waiting.first_key() <= now:
                best = self.waiting.first()
                crossed: cython.double = self.waiting.first_key()
                self.waiting.drop(best)
                self._join(best, crossed)
            best = self._best(now)
            if best >= 0 and self.rows[best, LOW] >= self.level:
                break
            if self.level <= 0.0:
                return best if best >= 0 else self.waiting.first()
            top: cython.double = self.rows[best, LOW] if best >= 0 else 0.9 * self.level
            self._rebuild(min(0.98 * top, 0.98 * self.level), now)
        self.lowest = min(self.lowest, self.rows[best, LOW])
        self.previous = now
        if self.scanned > _PATIENCE * len(self.parameters) and self.crossed > 16:
            if 0.97 * self.lowest > 1.005 * self.level:
                self._rebuild(0.97 * self.lowest, now)
            self.scanned = 0.0
            self.lowest = INFINITY
        return best

    @cython.ccall
    def record_outcome(self, number: cython.Py_ssize_t, now: cython.double) -> cython.void:
        """Record that the page was crawled at `now`."""
        self._leave(number)
        self.last[number] = now
        self.counts[number] = 0
        self.waiting.put(number, self._crossing(number))

    @cython.cfunc
    def _best(self, now: cython.double) -> cython.Py_ssize_t:
        """Return the candidate with the greatest value, or -1.

        A candidate is evaluated only if its upper bound reaches the greatest value known so far.
        """
        k: cython.Py_ssize_t
        if not now <= self.until:
            self._sort(now)
        known: cython.double = -1.0
        for k in range(self.recents):
            known = max(known, self._low(self.recent[k]))
        for k in range(self.ordered):
            if self.reach[k] * _BIT_MORE < known:
                break
            known = max(known, self._low(self.order[k]))
        best: cython.Py_ssize_t = -1
        for k in range(self.recents):
            best = self._better(self.recent[k], best, known, now)
        for k in range(self.ordered):
            if self.reach[k] * _BIT_MORE < (known if best < 0 else max(known, self.rows[best, LOW])):
                break
            best = self._better(self.order[k], best, known, now)
        return best

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _low(self, i: cython.Py_ssize_t) -> cython.double:
        return self.rows[i, LOW] if self.place[i] >= 0 else -1.0

    @cython.cfunc
    @cython.inline
    def _better(
        self, i: cython.Py_ssize_t, best: cython.Py_ssize_t, known: cython.double, now: cython.double
    ) -> cython.Py_ssize_t:
        """Return the better of the candidates `i` and `best`.

        The value of `best` is already known. If `best` is -1, there is no such candidate.
        """
        top: cython.double = self.rows[best, LOW] if best >= 0 else -1.0
        if self.place[i] < 0 or self._bound(i, now) * _BIT_MORE < max(known, top):
            return best
        if self.rows[i, SINCE] != now or self.rows[i, HIGH] > self.rows[i, LOW]:
            self._evaluate(i, now)
        value: cython.double = self.rows[i, LOW]
        return i if value > top or (value == top and i < best) else best

    @cython.cfunc
    def _sort(self, now: cython.double) -> cython.void:
        """Sort the candidates by the values that they can reach in the next ticks, greatest first."""
        k: cython.Py_ssize_t
        tick: cython.double = now - self.previous
        self.until = now + _STRIDE * tick if tick < INFINITY else now
        self.ordered = self.crossed
        self.recents = 0
        self.scanned += self.crossed
        bounds = np.empty(self.crossed)
        keys: cython.double[::1] = bounds
        for k in range(self.crossed):
            keys[k] = self._bound(self.candidates[k], self.until)
        sorting: cython.Py_ssize_t[::1] = np.argsort(-bounds)
        for k in range(self.crossed):
            self.order[k] = self.candidates[sorting[k]]
            self.reach[k] = keys[sorting[k]]

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _note(self, i: cython.Py_ssize_t) -> cython.void:
        """Record that, since the last sorting, the value that the candidate can reach has changed."""
        if self.recents == _RECENT:
            self.until = -INFINITY
            return
        self.recent[self.recents] = i
        self.recents += 1

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _bound(self, i: cython.Py_ssize_t, now: cython.double) -> cython.double:
        """Return an upper bound of the candidate's value at `now`."""
        row: cython.double[::1] = self.rows[i]
        s: cython.double = now - row[SINCE]
        if s == INFINITY:
            return INFINITY
        x: cython.double = row[DECAY] * s
        steps: cython.double = row[INTERVAL] * (1.0 + x * (x * (1.0 / 6.0) - 0.5))
        return row[HIGH] + row[SLOPE] * s * (steps + s * (0.5 + x * (x * 0.125 - 1.0 / 3.0)))

    @cython.cfunc
    @cython.inline
    def _of(self, i: cython.Py_ssize_t) -> Parameters:
        return self.parameters[i]

    @cython.cfunc
    def _evaluate(self, i: cython.Py_ssize_t, now: cython.double) -> cython.void:
        elapsed: cython.double = now - self.last[i]
        n: cython.Py_ssize_t = self.counts[i]
        page: Parameters = self._of(i)
        value: cython.double = page.value(elapsed, n)
        self.evaluations += 1
        row: cython.double[::1] = self.rows[i]
        row[LOW] = row[HIGH] = value
        row[SINCE] = now
        row[DECAY] = self._decay(i, n)
        at: cython.double = elapsed + n * page.signal_time if n > 0 and row[DECAY] > 0.0 else elapsed
        row[SLOPE] = page.importance * row[DECAY] * exp(-row[DECAY] * at)
        row[INTERVAL] = self._interval(i, at)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _decay(self, i: cython.Py_ssize_t, n: cython.Py_ssize_t) -> cython.double:
        """Return alpha if the value still grows with time after `n` signals, else 0."""
        page: Parameters = self._of(i)
        if page.form == SIGNALS_ONLY or page.form == CERTAIN and n > 0:
            return 0.0
        return page.silent_rate

    @cython.cfunc
    @cython.exceptval(check=False)
    def _interval(self, i: cython.Py_ssize_t, at: cython.double) -> cython.double:
        """Return psi at the threshold `at`.

        If the value does not depend on time, psi does not matter, and `at` is returned.
        """
        page: Parameters = self._of(i)
        return at if page.form == SIGNALS_ONLY or at == INFINITY else page.interval(at)

    @cython.cfunc
    def _crossing(self, i: cython.Py_ssize_t) -> cython.double:
        """Return the instant at which the value reaches the level without further signals. It may be in the past."""
        page: Parameters = self._of(i)
        n: cython.Py_ssize_t = self.counts[i]
        at: cython.double = self.thresholds[i]
        if page.form == SIGNALS_ONLY:
            return self.last[i] if n >= at else INFINITY
        if n == 0 or page.form == GREEDY:
            return self.last[i] + at
        if page.form == CERTAIN:
            return self.last[i] if page.ceiling >= self.level else INFINITY
        return self.last[i] + at - n * page.signal_time

    @cython.cfunc
    def _place(self, i: cython.Py_ssize_t, now: cython.double) -> cython.void:
        """Compute the threshold at which the page's value is just below the level. Put the page into the heap."""
        page: Parameters = self._of(i)
        self.thresholds[i] = page.threshold(self.level * (1.0 - 1e-4), self.thresholds[i], 1e-6)
        at: cython.double = self.thresholds[i]
        decay: cython.double = self._decay(i, 0)
        self.rows[i, CROSS_SLOPE] = page.importance * decay * exp(-decay * at) if at < INFINITY else 0.0
        self.rows[i, CROSS_INTERVAL] = self._interval(i, at)
        self.waiting.put(i, self._crossing(i))

    @cython.cfunc
    def _rebuild(self, level: cython.double, now: cython.double) -> cython.void:
        """Recompute all crossings for another level."""
        i: cython.Py_ssize_t
        self.level = level if level > 1e-300 else 0.0
        self.rebuilds += 1
        for i in range(len(self.parameters)):
            if self.place[i] >= 0:
                self._leave(i)
            self._place(i, now)

    @cython.cfunc
    def _join(self, i: cython.Py_ssize_t, crossed: cython.double) -> cython.void:
        """Add the page to the candidates. The page's value at the instant `crossed` must be at most the level."""
        self.place[i] = self.crossed
        self.candidates[self.crossed] = i
        self.crossed += 1
        row: cython.double[::1] = self.rows[i]
        row[LOW] = 0.0
        row[HIGH] = self.level
        row[SINCE] = crossed
        row[DECAY] = self._decay(i, self.counts[i])
        row[SLOPE] = row[CROSS_SLOPE]
        row[INTERVAL] = row[CROSS_INTERVAL]
        if self.counts[i] > 0 and self._of(i).signal_time == INFINITY:
            row[SINCE] = -INFINITY
        self._note(i)

    @cython.cfunc
    def _leave(self, i: cython.Py_ssize_t) -> cython.void:
        place: cython.Py_ssize_t = self.place[i]
        if place < 0:
            return
        self.crossed -= 1
        moved: cython.int = self.candidates[self.crossed]
        self.candidates[place] = moved
        self.place[moved] = place
        self.place[i] = -1

    def __repr__(self) -> str:
        return f"ExactGreedy({len(self.parameters)} pages, {self.crossed} candidates, level {self.level:.4g})"
