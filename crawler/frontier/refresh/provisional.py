# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""Stand-in for freshness.learning."""

import cython
import numpy as np
from cython.cimports.libc.math import exp, expm1, log1p

if cython.compiled:
    from cython.cimports.crawler.freshness.value_kernel import threshold_of, value_of
else:
    from crawler.freshness.value_kernel import threshold_of, value_of

INF = cython.declare(cython.double, float("inf"))
DAY = cython.declare(cython.double, 86400.0)


@cython.cclass
class Parameters:
    @cython.ccall
    @cython.exceptval(check=False)
    def assign(
        self,
        kind: cython.Py_ssize_t,
        terms: cython.Py_ssize_t,
        importance: cython.double,
        change_rate: cython.double,
        silent_rate: cython.double,
        signal_rate: cython.double,
        false_rate: cython.double,
        signal_weight: cython.double,
    ) -> cython.void:
        self.kind = kind
        self.terms = terms
        self.mu = importance
        self.delta = change_rate
        self.alpha = silent_rate
        self.gamma = signal_rate
        self.nu = false_rate
        self.signal_weight = signal_weight
        self.ceiling = importance / change_rate if change_rate > 0.0 else 0.0
        if signal_weight < 1e-9:
            self.beta = 0.0
        elif silent_rate < 1e-9 * signal_rate or signal_weight > 700.0:
            self.beta = INF
        else:
            self.beta = signal_weight / silent_rate

    @cython.ccall
    @cython.exceptval(check=False)
    def value(self, elapsed: cython.double, signals: cython.double) -> cython.double:
        return value_of(
            self.kind,
            self.terms,
            self.mu,
            self.delta,
            self.alpha,
            self.gamma,
            self.nu,
            self.signal_weight,
            elapsed,
            cython.cast(cython.Py_ssize_t, signals),
        )

    @cython.ccall
    @cython.exceptval(check=False)
    def wait(
        self, level: cython.double, signals: cython.double, guess: cython.double, tolerance: cython.double
    ) -> cython.double:
        if level >= self.ceiling:
            return INF
        at: cython.double = threshold_of(
            self.kind,
            self.terms,
            self.mu,
            self.delta,
            self.alpha,
            self.gamma,
            self.nu,
            self.signal_weight,
            level,
            guess,
            tolerance,
        )
        if self.beta == 0.0:
            return at
        if self.alpha < 1e-9 * self.gamma:
            return 0.0 if signals >= at else INF
        if self.beta == INF:
            return 0.0 if signals > 0.0 else at
        return max(at - signals * self.beta, 0.0)


@cython.cclass
class Learning:
    def __init__(self, kind="ncis", neighbourhood=True, pooling=True):
        self.neighbourhood = neighbourhood
        self.observed_clock = 0.0
        self.scale = 7.0 * DAY
        self.k = 0.5
        self.t = 25.0 * DAY
        self.counts = np.zeros((1 << 21, 8))
        self.kinds = {"greedy": 0, "cis": 1, "ncis": 3}[kind]

    def add_site(self):
        pass

    def add_directory(self):
        pass

    @cython.ccall
    @cython.exceptval(check=False)
    def excess(self, slot: cython.Py_ssize_t, now: cython.double, prior: cython.double) -> cython.double:
        row: cython.double[::1] = self.counts[slot]
        g: cython.double = exp(-max(now - row[2], 0.0) / self.scale)
        return (prior + row[0] * g) / (prior + row[1] * g) - 1.0

    @cython.ccall
    @cython.exceptval(check=False)
    def both(
        self, site: cython.Py_ssize_t, directory: cython.Py_ssize_t, now: cython.double
    ) -> cython.double:
        if not self.neighbourhood:
            return 0.0
        return self.excess(2 * directory, now, 1.0) + self.excess(2 * site + 1, now, 3.0)

    @cython.ccall
    @cython.exceptval(check=False)
    def clock(
        self,
        site: cython.Py_ssize_t,
        directory: cython.Py_ssize_t,
        elapsed: cython.double,
        now: cython.double,
    ) -> cython.double:
        if not self.neighbourhood:
            return elapsed
        a: cython.double = elapsed - 6.0 * self.scale * expm1(-elapsed / self.scale) * self.both(
            site, directory, now
        )
        return max(a, elapsed / 20.0)

    @cython.ccall
    @cython.exceptval(check=False)
    def assign(
        self,
        p: Parameters,
        site: cython.Py_ssize_t,
        k: cython.double,
        t: cython.double,
        importance: cython.double,
    ) -> cython.void:
        m: cython.double = self.k / self.t
        rate: cython.double = (1.0 + k) / (1.0 / m + t)
        p.assign(self.kinds, 100000, importance, rate, 0.7 * rate, 0.6 * rate, 0.3 * rate, log1p(1.0))

    @cython.ccall
    @cython.exceptval(check=False)
    def signals(self, p: Parameters, site: cython.Py_ssize_t, counts: cython.double[::1]) -> cython.double:
        i: cython.Py_ssize_t
        n: cython.double = 0.0
        for i in range(8):
            n += counts[i]
        return n

    @cython.ccall
    @cython.exceptval(check=False)
    def observe(
        self,
        site: cython.Py_ssize_t,
        directory: cython.Py_ssize_t,
        k: cython.double,
        t: cython.double,
        elapsed: cython.double,
        now: cython.double,
        counts: cython.double[::1],
        changed: cython.bint,
    ) -> cython.double:
        a: cython.double = self.clock(site, directory, elapsed, now)
        self.observed_clock = a
        m: cython.double = self.k / self.t
        e: cython.double = 1.0 - (1.0 + a / (1.0 / m + t)) ** -(1.0 + k)
        x: cython.double = (1.0 + k) / (1.0 / m + t) * a
        where: cython.Py_ssize_t
        g: cython.double
        for where in (2 * directory, 2 * site + 1):
            g = exp(-max(now - self.counts[where, 2], 0.0) / self.scale)
            self.counts[where, 0] = self.counts[where, 0] * g + changed
            self.counts[where, 1] = self.counts[where, 1] * g + e
            self.counts[where, 2] = now
        self.t += a
        if changed:
            gain: cython.double = x / -expm1(-x) if x > 0.0 else 1.0
            self.k += gain
            k += gain
        return k

    @cython.ccall
    @cython.exceptval(check=False)
    def renew(self, site: cython.Py_ssize_t) -> cython.void:
        pass

    @cython.ccall
    @cython.exceptval(check=False)
    def renew_crawl(self) -> cython.void:
        pass
