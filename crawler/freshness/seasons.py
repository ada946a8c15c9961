# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""Learns the weekly rhythm of a site's changes, and computes a clock that runs faster in working hours than at night.

Many sites change only while their editors are at work. If the pages of such a site are visited about daily or more
often, their change rate is not constant between two visits. So the site's time runs at the speed

    s(t) = f + (1 - f) a[day of the week] b[hour of the day],   f = 0.05

in which the factors a (7) and b (24) have the mean 1. The mean of s over a week is then 1, apart from
rounding, so change rates keep their meaning. In predictions, the length of an interval on this clock replaces
its plain length. (Crawl values use plain time, see `freshness/README.md`, "Learning".)

Learning works as follows. With the hazard x_j in hour j of an interval (x in total), the gradient of the log
likelihood of the result with respect to log s_j is

    g_j = x_j (1 / (1 - exp(-x)) - 1)   if the page changed,    -x_j   if not

and each crawl multiplies the factors of its hours and days by 1 + eta sum g_j. This is a stochastic form of
the EM algorithm for Poisson rates. The step size eta falls from 1/`_FIRST` to 1/`_LAST` as the number of
changes grows. Nothing is learned from intervals of more than half a week, because they cover all hours of the
day. A site uses its rhythm only while the rhythm is the better model. The predictions with the rhythm are
compared with those at a constant speed by their log scores. Each crawl multiplies the earlier scores by
0.998, and reduces the score of the rhythm by a constant. Only visits that follow each other within half a
week show the rhythm. A site with few such visits has no state; each other site needs `COLUMNS` numbers.

Hours and days are counted from the start of the clock. The time zone of a site need not be known: the
learned rhythm is that of the site's local time, merely shifted.

In a simulation, all pages changed only from 9 to 17 o'clock on five days of seven. The gain of a schedule that
knows the true mean rate of each page is taken as 1. Schedules that learn the rates gain 0.5 to 0.7 without the
rhythm, and 1.0 to 1.3 with it. A schedule that is told the hours with changes gains 1.3.

A process with a varying rate becomes one with a constant rate if its time runs at a speed proportional to the
rate: Daley and Vere-Jones, *An Introduction to the Theory of Point Processes*, section 7.4.
"""

from collections.abc import Sequence

import cython
import numpy as np
from cython.cimports.libc.math import expm1, floor, log

from crawler.freshness.columns import Column, rows_of

_HOURS = cython.declare(cython.Py_ssize_t, 24)
_DAYS = cython.declare(cython.Py_ssize_t, 7)
_WEEK_HOURS = cython.declare(cython.Py_ssize_t, 168)
COLUMNS = 33  # hours (24), days (7), changes, score
_CHANGES = cython.declare(cython.Py_ssize_t, 31)
_SCORE = cython.declare(cython.Py_ssize_t, 32)
_SLOWEST = cython.declare(cython.double, 0.05)  # f: the minimum speed of the clock
_FACTOR_MIN = cython.declare(cython.double, 0.03)
_FACTOR_MAX = cython.declare(cython.double, 24.0)
# At first, 1/eta is `_FIRST` for all factors. After many changes, 1/eta is `_LAST` for the factors of hours,
# and `_DAY` times `_LAST` for the factors of days.
_FIRST = cython.declare(cython.double, 3.0)
_LAST = cython.declare(cython.double, 50.0)
_DAY = cython.declare(cython.double, 4.0)
_CHANGES_MAX = cython.declare(cython.double, 2000.0)
_STEP_MAX = cython.declare(cython.double, 0.5)  # the maximum change of a factor by one crawl
_CRAWLS = cython.declare(cython.int, 50)  # a site's rhythm is learned only after this number of crawls
_SCORE_KEPT = cython.declare(cython.double, 0.998)
_SCORE_CHARGE = cython.declare(cython.double, 0.01)
_SCORE_MAX = cython.declare(cython.double, 20.0)
_ADOPT = cython.declare(cython.double, 6.0)  # a rhythm is used once its score reaches this, in nats
_DROP = cython.declare(cython.double, 2.0)  # a rhythm is no longer used once its score is below this, in nats
_SURE = cython.declare(cython.double, 1e-6)


@cython.cclass
class Seasons:
    """The weekly rhythms of changes, for all sites.

    Sites are numbered as they are added; `used[site]` tells whether a rhythm is in use.

    Args:
        unit: length of a day in the caller's unit of time.
    """

    def __init__(self, unit: float) -> None:
        self.size = self.kept = 0
        self.hour, self.week = unit / 24.0, 7.0 * unit
        self._columns = [Column("i4"), Column("u1"), Column("f8", COLUMNS)]
        self._grow()
        self.rhythms = self._columns[2].grow(1)
        self._steps = rows_of(np.zeros(31))

    def add(self) -> cython.Py_ssize_t:
        """Add a site without a rhythm; return its number."""
        if self.size == self.used.shape[0]:
            self._grow()
        self.size += 1
        return self.size - 1

    def _grow(self) -> cython.void:
        # release the memory maps before they grow
        self.rows, self.used = np.zeros(0, np.int32), np.zeros(0, np.uint8)
        self.rows, self.used = self._columns[0].grow(self.size + 1), self._columns[1].grow(self.size + 1)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _speed(self, row: cython.Py_ssize_t, hour: cython.Py_ssize_t) -> cython.double:
        """Return s in this hour of the week."""
        rhythm: cython.double[::1] = self.rhythms[row]
        return _SLOWEST + (1.0 - _SLOWEST) * rhythm[_HOURS + hour // _HOURS] * rhythm[hour % _HOURS]

    def span(self, site: cython.Py_ssize_t, begin: cython.double, end: cython.double) -> cython.double:
        """Return the time between two instants on the site's clock, or plain time if no rhythm is in use."""
        if not self.used[site]:
            return end - begin
        return self._span(self.rows[site] - 1, begin, end)

    def _span(self, row: cython.Py_ssize_t, begin: cython.double, end: cython.double) -> cython.double:
        return self._reading(row, end) - self._reading(row, begin)

    def _reading(self, row: cython.Py_ssize_t, at: cython.double) -> cython.double:
        """Return the integral of s from 0 to the instant."""
        rhythm: cython.double[::1] = self.rhythms[row]
        weeks: cython.double = floor(at / self.week)
        hours: cython.double = (at - weeks * self.week) / self.hour
        hour: cython.Py_ssize_t = min(cython.cast(cython.Py_ssize_t, floor(hours)), _WEEK_HOURS - 1)
        day: cython.Py_ssize_t = hour // _HOURS
        i: cython.Py_ssize_t
        days: cython.double = 0.0
        within: cython.double = 0.0
        for i in range(day):
            days += rhythm[_HOURS + i]
        for i in range(hour - day * _HOURS):
            within += rhythm[i]
        within += rhythm[hour - day * _HOURS] * (hours - hour)
        paced: cython.double = weeks * _WEEK_HOURS + days * _HOURS + rhythm[_HOURS + day] * within
        return _SLOWEST * at + (1.0 - _SLOWEST) * paced * self.hour

    def learns(self, site: cython.Py_ssize_t, elapsed: cython.double) -> cython.bint:
        """Return whether the rhythm learns from a crawl that comes `elapsed` after the previous one.

        If the site has no rhythm yet, count the crawl.
        """
        if elapsed > 0.5 * self.week or elapsed <= 0.0:
            return False
        if self.rows[site] <= 0:
            self.rows[site] -= 1
            if self.rows[site] > -_CRAWLS:
                return False
            self._keep(site)
        return True

    def _keep(self, site: cython.Py_ssize_t) -> cython.void:
        """Give the site a rhythm that has, at first, a constant speed."""
        i: cython.Py_ssize_t
        if self.kept == self.rhythms.shape[0]:
            self.rhythms = np.zeros((0, COLUMNS))
            self.rhythms = self._columns[2].grow(self.kept + 1)
        for i in range(_CHANGES):
            self.rhythms[self.kept, i] = 1.0
        self.kept += 1
        self.rows[site] = cython.cast(cython.int, self.kept)

    def trial(self, site: cython.Py_ssize_t, begin: cython.double, end: cython.double) -> cython.double:
        """Return the time between two instants on the clock of the site's rhythm, even if this clock is not in use."""
        return self._span(self.rows[site] - 1, begin, end)

    def observe(
        self,
        site: cython.Py_ssize_t,
        begin: cython.double,
        end: cython.double,
        hazard: cython.double,
        plain: cython.double,
        paced: cython.double,
        changed: cython.bint,
    ) -> cython.void:
        """Learn from a crawl at `end` that followed one at `begin`. `learns` must have returned True for this crawl.

        `plain` is the probability of a change by plain time, and `paced` is that by the clock of the rhythm.
        `hazard` is the expected number of changes by the clock of the rhythm.
        """
        row: cython.Py_ssize_t = self.rows[site] - 1
        rhythm: cython.double[::1] = self.rhythms[row]
        plain = min(max(plain, _SURE), 1.0 - _SURE)
        paced = min(max(paced, _SURE), 1.0 - _SURE)
        better: cython.double = log(paced / plain) if changed else log((1.0 - paced) / (1.0 - plain))
        score: cython.double = _SCORE_KEPT * rhythm[_SCORE] + better - _SCORE_CHARGE
        rhythm[_SCORE] = min(max(score, -_SCORE_MAX), _SCORE_MAX)
        self.used[site] = rhythm[_SCORE] > (_DROP if self.used[site] else _ADOPT)
        if hazard <= 0.0:
            return
        surprise: cython.double = 1.0 / max(-expm1(-hazard), _SURE) - 1.0 if changed else -1.0
        if changed:
            rhythm[_CHANGES] = min(rhythm[_CHANGES] + 1.0, _CHANGES_MAX)
        self._learn(row, begin, end, hazard / self._span(row, begin, end) * surprise)

    def _learn(
        self, row: cython.Py_ssize_t, begin: cython.double, end: cython.double, push: cython.double
    ) -> cython.void:
        """Change the factors of the hours and days in the interval. `push` is the gradient per unit of site time."""
        rhythm: cython.double[::1] = self.rhythms[row]
        steps: cython.double[::1] = self._steps
        i: cython.Py_ssize_t
        for i in range(_CHANGES):
            steps[i] = 0.0
        at: cython.double = begin - floor(begin / self.week) * self.week
        hour: cython.Py_ssize_t = min(cython.cast(cython.Py_ssize_t, floor(at / self.hour)), _WEEK_HOURS - 1)
        time: cython.double = (hour + 1) * self.hour - at
        left: cython.double = end - begin
        while left > 0.0:
            time = min(time, left)
            g: cython.double = push * self._speed(row, hour) * time
            steps[hour % _HOURS] += g
            steps[_HOURS + hour // _HOURS] += g
            left -= time
            hour = hour + 1 if hour + 1 < _WEEK_HOURS else 0
            time = self.hour
        eta: cython.double = 1.0 / min(_FIRST + rhythm[_CHANGES] / _HOURS, _LAST)
        for i in range(_CHANGES):
            if i == _HOURS:
                eta = 1.0 / min(_FIRST + rhythm[_CHANGES] / _DAYS, _DAY * _LAST)
            step: cython.double = min(max(eta * steps[i], -_STEP_MAX), _STEP_MAX)
            rhythm[i] = min(max(rhythm[i] * (1.0 + step), _FACTOR_MIN), _FACTOR_MAX)
        _even(rhythm, 0, _HOURS)
        _even(rhythm, _HOURS, _CHANGES)

    def state(self, site: int) -> list[float]:
        """Return the numbers to store. For a site without a rhythm, the list is empty."""
        row = self.rows[site]
        return [float(each) for each in self.rhythms[row - 1]] if row > 0 else []

    def restore(self, site: int, numbers: Sequence[float]) -> None:
        """Restore what `state` returned."""
        if not len(numbers):
            return
        if self.rows[site] <= 0:
            self._keep(site)
        row: cython.Py_ssize_t = self.rows[site] - 1
        i: cython.Py_ssize_t
        for i in range(COLUMNS):
            self.rhythms[row, i] = numbers[i]
        for i in range(_CHANGES):
            self.rhythms[row, i] = min(max(self.rhythms[row, i], _FACTOR_MIN), _FACTOR_MAX)
        _even(self.rhythms[row], 0, _HOURS)
        _even(self.rhythms[row], _HOURS, _CHANGES)
        self.used[site] = self.rhythms[row, _SCORE] > _DROP

    def _check(self) -> None:
        rows = np.asarray(self.rows)[: self.size]
        rhythms = np.asarray(self.rhythms)[: self.kept]
        assert sorted(rows[rows > 0].tolist()) == list(range(1, self.kept + 1))
        assert np.allclose(rhythms[:, :24].mean(axis=1), 1.0) and np.allclose(
            rhythms[:, 24:31].mean(axis=1), 1.0
        )
        assert not np.asarray(self.used)[: self.size][rows <= 0].any()

    def __repr__(self) -> str:
        return f"Seasons({self.size} sites, {self.kept} with a rhythm)"


@cython.cfunc
@cython.exceptval(check=False)
def _even(rhythm: cython.double[::1], first: cython.Py_ssize_t, end: cython.Py_ssize_t) -> cython.void:
    """Scale the factors from `first` to `end`, so that their mean is 1."""
    i: cython.Py_ssize_t
    total: cython.double = 0.0
    for i in range(first, end):
        total += rhythm[i]
    for i in range(first, end):
        rhythm[i] *= (end - first) / total
