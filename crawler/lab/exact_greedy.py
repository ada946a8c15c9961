# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""Algorithm 1 of Busa-Fekete et al. to the letter: at each tick the page of the greatest value.

The reference that cheaper schedulers are measured against, and the simulator's
work-horse, so it avoids evaluating all m values at each tick without changing
the choice. It keeps a `level` below the recent winners. A page can only win
after its value crossed the level; the crossing time is known in advance and
moves only with the page's own crawl and signals. So:

    waiting      heap by crossing time
    candidates   pages that have crossed; each with the value, slope and
                 interval of its last evaluation

At a tick the crossed pages join the candidates. V only grows, and
V(iota + s) <= V + s mu alpha exp(-alpha iota) (psi + s), so a candidate is
evaluated again only if that bound beats the best value known. If the winner is
below the level, the level was too high: it is lowered, all crossings are made
anew, and the tick is done again. When scanning candidates has cost more than
making all crossings anew, the level is raised to just below recent winners.
Equal values: the smallest page number. Works for every value of `KINDS`.

Cython pure-Python mode (see `freshness/value_kernel.py`).
"""

import cython
import numpy as np
from cython.cimports.libc.math import exp

from crawler.freshness.crawl_value import kind_of
from crawler.freshness.params import Page, Pages
from crawler.freshness.value_kernel import KINDS

if cython.compiled:
    from cython.cimports.crawler.freshness.indexed_heap import IndexedHeap
    from cython.cimports.crawler.freshness.value_kernel import (
        interval_of,
        plain_kind,
        threshold_of,
        value_of,
    )
else:
    from crawler.freshness.indexed_heap import IndexedHeap
    from crawler.freshness.value_kernel import interval_of, plain_kind, threshold_of, value_of

GREEDY = cython.declare(cython.Py_ssize_t, KINDS["greedy"])
CIS_NU0 = cython.declare(cython.Py_ssize_t, KINDS["cis-nu0"])
NCIS = cython.declare(cython.Py_ssize_t, KINDS["ncis"])
INFINITY = cython.declare(cython.double, float("inf"))


@cython.cclass
class ExactGreedy:
    """The exact greedy scheduler of `pages` by the value called `by`.

    `discard_window`: signals that come so soon after a page's crawl are
    dropped. Calls: `signal`, then `take` and `settle` at each tick.
    """

    mu: cython.double[::1]
    delta: cython.double[::1]
    alpha: cython.double[::1]
    gamma: cython.double[::1]
    nu: cython.double[::1]
    b: cython.double[::1]
    kinds: cython.int[::1]
    last: cython.double[::1]
    counts: cython.longlong[::1]
    thresholds: cython.double[::1]
    values: cython.double[::1]
    slopes: cython.double[::1]
    bends: cython.double[::1]
    when: cython.double[::1]
    candidates: cython.int[::1]
    place: cython.int[::1]
    waiting: IndexedHeap
    terms: cython.Py_ssize_t
    crossed: cython.Py_ssize_t
    scanned: cython.double
    lowest: cython.double
    discard_window: cython.double
    level = cython.declare(cython.double, visibility="readonly")
    evaluations = cython.declare(cython.Py_ssize_t, visibility="readonly")
    rebuilds = cython.declare(cython.Py_ssize_t, visibility="readonly")

    def __init__(self, pages: Pages, by: str = "ncis", *, discard_window: float = 0.0) -> None:
        size = len(pages)
        kind, self.terms = kind_of(by)
        self.mu, self.delta = pages.importance.copy(), pages.change_rate.copy()
        self.alpha, self.gamma = pages.silent_rate.copy(), pages.signal_rate.copy()
        self.nu, self.b = pages.false_rate.copy(), pages.signal_weight.copy()
        self.kinds = np.array(
            [plain_kind(kind, self.delta[i], self.alpha[i], self.gamma[i], self.b[i]) for i in range(size)],
            dtype=np.int32,
        )
        self.last = np.zeros(size)
        self.counts = np.zeros(size, dtype=np.int64)
        self.thresholds = np.zeros(size)
        self.values, self.slopes, self.bends, self.when = np.zeros((4, size))
        self.candidates = np.zeros(size, dtype=np.int32)
        self.place = np.full(size, -1, dtype=np.int32)
        self.waiting = IndexedHeap(size)
        self.crossed = 0
        self.scanned = 0.0
        self.lowest = INFINITY
        self.discard_window = discard_window
        self.level = 0.0
        self.evaluations = 0
        self.rebuilds = 0
        self._rebuild(0.0, 0.0)

    def change(self, number: int, page: Page, now: float) -> None:
        """Believe other parameters of a page from now on."""
        self.mu[number], self.delta[number] = page.importance, page.change_rate
        self.alpha[number], self.gamma[number] = page.silent_rate, page.signal_rate
        self.nu[number], self.b[number] = page.false_rate, page.signal_weight
        self.thresholds[number] = 0.0
        self._leave(number)
        self._place(number, now)

    @cython.ccall
    def signal(self, number: cython.Py_ssize_t, now: cython.double) -> cython.void:
        """A change-indicating signal for the page came."""
        if self.kinds[number] == GREEDY or now - self.last[number] < self.discard_window:
            return
        self.counts[number] += 1
        if self.place[number] >= 0:
            self.when[number] = -1.0  # its value jumped: evaluate
            return
        key: cython.double = self._crossing(number)
        if key < self.waiting.key_of(number):
            self.waiting.put(number, key)

    @cython.ccall
    def take(self, now: cython.double) -> cython.Py_ssize_t:
        """The page of the greatest value at `now`."""
        best: cython.Py_ssize_t
        while True:
            while self.waiting.first_key() <= now:
                best = self.waiting.first()
                self.waiting.drop(best)
                self._join(best)
            best = self._best(now)
            if best >= 0 and self.values[best] >= self.level:
                break
            if self.level <= 0.0:
                return best if best >= 0 else self.waiting.first()
            top: cython.double = self.values[best] if best >= 0 else 0.9 * self.level
            self._rebuild(min(0.98 * top, 0.98 * self.level), now)
        self.lowest = min(self.lowest, self.values[best])
        self.scanned += self.crossed
        if self.scanned > 100.0 * len(self.mu) and self.crossed > 16:
            if 0.97 * self.lowest > 1.005 * self.level:
                self._rebuild(0.97 * self.lowest, now)
            self.scanned = 0.0
            self.lowest = INFINITY
        return best

    @cython.ccall
    def settle(self, number: cython.Py_ssize_t, now: cython.double) -> cython.void:
        """The page was crawled at `now`."""
        self._leave(number)
        self.last[number] = now
        self.counts[number] = 0
        self.waiting.put(number, self._crossing(number))

    @cython.cfunc
    def _best(self, now: cython.double) -> cython.Py_ssize_t:
        """The candidate of the greatest value, evaluating only those whose bound reaches it; -1 if none."""
        k: cython.Py_ssize_t
        i: cython.Py_ssize_t
        best: cython.Py_ssize_t = -1
        known: cython.double = -1.0
        for k in range(self.crossed):
            known = max(known, self.values[self.candidates[k]])
        for k in range(self.crossed):
            i = self.candidates[k]
            wait: cython.double = now - self.when[i]
            bound: cython.double = self.values[i] + wait * self.slopes[i] * (self.bends[i] + wait)
            if self.when[i] >= 0.0 and bound < known:
                continue
            if self.when[i] < now:
                self._evaluate(i, now)
            if self.values[i] > known:
                known = self.values[i]
            ahead: cython.double = self.values[i] - self.values[best] if best >= 0 else 1.0
            if ahead > 0.0 or (ahead == 0.0 and i < best):
                best = i
        return best

    @cython.cfunc
    def _evaluate(self, i: cython.Py_ssize_t, now: cython.double) -> cython.void:
        kind: cython.Py_ssize_t = self.kinds[i]
        elapsed: cython.double = now - self.last[i]
        n: cython.Py_ssize_t = self.counts[i]
        self.evaluations += 1
        self.when[i] = now
        self.values[i] = value_of(
            kind,
            self.terms,
            self.mu[i],
            self.delta[i],
            self.alpha[i],
            self.gamma[i],
            self.nu[i],
            self.b[i],
            elapsed,
            n,
        )
        self._bound_growth(i, kind, elapsed, n)

    @cython.cfunc
    def _bound_growth(
        self, i: cython.Py_ssize_t, kind: cython.Py_ssize_t, elapsed: cython.double, n: cython.Py_ssize_t
    ) -> cython.void:
        """Set slope and bend so that V(t + s) <= V(t) + s slope (bend + s)."""
        alpha: cython.double = self.alpha[i]
        gamma: cython.double = self.gamma[i]
        b: cython.double = self.b[i]
        interval: cython.double = elapsed
        at: cython.double = elapsed
        if kind == GREEDY or b < 1e-9 or gamma <= 0.0:
            alpha = self.delta[i]
        elif n > 0 and (kind != NCIS or b > 700.0):
            alpha = 0.0  # it stands at the ceiling
        elif kind == NCIS and alpha >= 1e-9 * gamma:
            at = elapsed + n * (b / alpha) if n > 0 else elapsed
            interval = interval_of(self.terms, alpha, gamma, self.nu[i], b, at)
        self.slopes[i] = self.mu[i] * alpha * exp(-alpha * at)
        self.bends[i] = interval

    @cython.cfunc
    def _crossing(self, i: cython.Py_ssize_t) -> cython.double:
        """When the value reaches the level, as things stand; it may be past."""
        n: cython.Py_ssize_t = self.counts[i]
        at: cython.double = self.thresholds[i]
        b: cython.double = self.b[i]
        if n > 0 and self.kinds[i] != NCIS or n > 0 and b > 700.0:
            return self.last[i] if self.mu[i] >= self.level * self.delta[i] else INFINITY
        if self.kinds[i] == NCIS and b >= 1e-9:
            if self.alpha[i] < 1e-9 * self.gamma[i]:
                return self.last[i] if n >= at else INFINITY
            if n > 0:
                return self.last[i] + at - n * (b / self.alpha[i])
        return self.last[i] + at

    @cython.cfunc
    def _place(self, i: cython.Py_ssize_t, now: cython.double) -> cython.void:
        """Solve the page's threshold a hair below the level and put it where it belongs."""
        self.thresholds[i] = threshold_of(
            self.kinds[i],
            self.terms,
            self.mu[i],
            self.delta[i],
            self.alpha[i],
            self.gamma[i],
            self.nu[i],
            self.b[i],
            self.level * (1.0 - 1e-4),
            self.thresholds[i],
            1e-6,
        )
        self.waiting.put(i, self._crossing(i))

    @cython.cfunc
    def _rebuild(self, level: cython.double, now: cython.double) -> cython.void:
        """Make all crossings anew for another level."""
        i: cython.Py_ssize_t
        self.level = level if level > 1e-300 else 0.0
        self.rebuilds += 1
        for i in range(len(self.mu)):
            if self.place[i] >= 0:
                self._leave(i)
            self._place(i, now)

    @cython.cfunc
    def _join(self, i: cython.Py_ssize_t) -> cython.void:
        self.place[i] = self.crossed
        self.candidates[self.crossed] = i
        self.crossed += 1
        self.when[i] = -1.0
        self.values[i] = 0.0

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
        return f"ExactGreedy({len(self.mu)} pages, {self.crossed} candidates, level {self.level:.4g})"
