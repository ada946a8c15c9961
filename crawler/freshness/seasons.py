# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""Learns the weekly rhythm of a site's changes, and computes a clock that runs faster in working hours than at night.

Many sites change only while their editors are at work. If the pages of such a site are visited about daily or more
often, their change rate is not constant between two visits. So the site's time runs at the speed

    s(t) = f + (1 - f) a[day of the week] b[hour of the day],   f = 0.003

in which the factors a (7) and b (24) have the mean 1. The mean of s over a week is then 1, apart from
rounding, so change rates keep their meaning. In predictions, the length of an interval on this clock replaces
its plain length. Crawl values use the same clock with f = 0.5. With this f, the values of a site's pages, and with them
the level of the schedule, vary less between day and night, and hardly any gain is lost (`freshness/README.md`,
"Learning").

Learning works as follows. Let x be the expected number of changes in the interval before a crawl, and x_i the part of x
that falls into hour i of the day. The gradient of the log likelihood of the result with respect to log b_i, and the
information about log b_i, are

    g_i = x_i e^-x / (1 - e^-x)   if the page changed,    -x_i   if not
    I_i = x_i^2 e^-x / (1 - e^-x)

D_i is the sum of I_i over all crawls of the site. Old crawls are gradually forgotten: each crawl multiplies D by
1 - e, where e is the smaller of 1/`_MEMORY` and the time since the site's last crawl in units of `_MEMORY_WEEKS`. So a
site forgets nothing within a day, even if it is crawled thousands of times a day. Let P be the precision of the prior,
under which all factors are 1 and neighbouring hours are similar. Each crawl adds to the logarithms the solution of the
equation

    (P + diag(D)) step = g - e P log(b)

The days of the week are learned by the same equation. The equation uses only the diagonal of the information. The whole
matrix would take 961 numbers, and on simulated sites, its predictions were worse (a log loss of 0.335 instead of 0.330;
0.309 is possible). Without the prior that neighbouring hours are similar, the log loss of the whole matrix was 0.357.

At the start of a crawl, the rates of a site's pages may be too low or too high on average. The rhythm must not make up
for this. Otherwise the factor of the present day would rise up to 7, and the clock would run far too fast. So x is
multiplied by the site's own bias: the number of changes found, divided by the number expected at a constant speed.
Earlier changes fade within about a week.

Nothing is learned from intervals of more than half a week, because they cover all hours of the day. A site uses its
rhythm only while the rhythm is the better model. The predictions with the rhythm are compared with those at a constant
speed by their log scores. Each crawl multiplies the earlier scores by 0.998, and reduces the score of the rhythm by a
constant. The crawls of a site on one day count as at most 500, so the score holds the evidence of a day or more.
A site with few visits that follow each other within half a week has no state; each other site needs `COLUMNS`
numbers.

While a site uses its rhythm, the time for which its pages were watched is measured on the clock of the rhythm
(`learning.py`). In plain time, a change that is found after a working day would count as one in 24 hours, and the rates
of pages would be too low.

Hours and days are counted from the start of the clock. The time zone of a site need not be known: the
learned rhythm is that of the site's local time, merely shifted.

A process with a varying rate becomes one with a constant rate if its time runs at a speed proportional to the
rate: Daley and Vere-Jones, *An Introduction to the Theory of Point Processes*, section 7.4.
"""

from collections.abc import Sequence

import cython
import numpy as np
from cython.cimports.crawler.freshness.change_rates import gain_of
from cython.cimports.libc.math import exp, expm1, floor, log, log1p

from crawler.freshness.columns import Column, rows_of

_HOURS = cython.declare(cython.Py_ssize_t, 24)
_DAYS = cython.declare(cython.Py_ssize_t, 7)
_WEEK_HOURS = cython.declare(cython.Py_ssize_t, 168)
# The factors of hours (24) and days (7), the score, the information about each factor, the changes found and expected,
# and the time of the last crawl.
COLUMNS = 66
# Earlier versions stored the factors, the number of changes, and the score; or all but the last three columns.
EARLIER_COLUMNS = (33, 63)
_FACTORS = cython.declare(cython.Py_ssize_t, 31)
_SCORE = cython.declare(cython.Py_ssize_t, 31)
_KNOWN = cython.declare(cython.Py_ssize_t, 32)  # the first of the columns with the information
_FOUND = cython.declare(cython.Py_ssize_t, 63)
_TOLD = cython.declare(cython.Py_ssize_t, 64)
_LATEST = cython.declare(cython.Py_ssize_t, 65)
_SLOWEST = cython.declare(cython.double, 0.003)  # f: the minimum speed of the clock
_SLOWEST_OF_VALUES = cython.declare(cython.double, 0.5)  # the minimum speed of the clock of crawl values
_FACTOR_MIN = cython.declare(cython.double, 0.003)
_FACTOR_MAX = cython.declare(cython.double, 24.0)
# prior precisions of the logarithms of the factors, and of the difference between two neighbouring hours
_PRIOR_HOUR = cython.declare(cython.double, 0.5)
_PRIOR_DAY = cython.declare(cython.double, 2.0)
_SMOOTH = cython.declare(cython.double, 1.0)
# A site forgets what it has learned within this number of crawls or of weeks, whichever takes longer.
_MEMORY = cython.declare(cython.double, 3000.0)
_MEMORY_WEEKS = cython.declare(cython.double, 2.0)
# The site's own bias: the weight of the prior, as a number of expected changes; the weeks that are remembered; its
# maximum; and the maximum hazard that is counted.
_BIAS_WEIGHT = cython.declare(cython.double, 5.0)
_BIAS_WEEKS = cython.declare(cython.double, 1.0)
_BIAS_MAX = cython.declare(cython.double, 10.0)
_HAZARD_MAX = cython.declare(cython.double, 4.0)
_STEP_MAX = cython.declare(cython.double, 0.5)  # the maximum change of the logarithm of a factor by one crawl
_CRAWLS = cython.declare(cython.int, 50)  # a site's rhythm is learned only after this number of crawls
_SCORE_KEPT = cython.declare(cython.double, 0.998)
# In the score, the crawls of a site on one day count as at most this number.
_SCORE_DAY = cython.declare(cython.double, 500.0)
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
        self._parts, self._steps = rows_of(np.zeros(31)), rows_of(np.zeros(31))
        self._scratch = rows_of(np.zeros((3, 24)))

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
        return self._reading(row, end, _SLOWEST) - self._reading(row, begin, _SLOWEST)

    def value_span(self, site: cython.Py_ssize_t, begin: cython.double, end: cython.double) -> cython.double:
        """Return the time between two instants on the site's clock of crawl values. Its rhythm must be in use."""
        row: cython.Py_ssize_t = self.rows[site] - 1
        return self._reading(row, end, _SLOWEST_OF_VALUES) - self._reading(row, begin, _SLOWEST_OF_VALUES)

    def value_end(self, site: cython.Py_ssize_t, begin: cython.double, wait: cython.double) -> cython.double:
        """Return the instant at which `wait` has passed since `begin` on the site's clock of crawl values.

        The rhythm of the site must be in use.
        """
        row: cython.Py_ssize_t = self.rows[site] - 1
        rhythm: cython.double[::1] = self.rhythms[row]
        least: cython.double = _SLOWEST_OF_VALUES
        left: cython.double = (self._reading(row, begin, least) + wait) / self.hour
        weeks: cython.double = floor(left / _WEEK_HOURS)
        left -= weeks * _WEEK_HOURS
        day: cython.Py_ssize_t = 0
        hour: cython.Py_ssize_t = 0
        length: cython.double = _HOURS * (least + (1.0 - least) * rhythm[_HOURS])
        while left > length and day < _DAYS - 1:
            left -= length
            day += 1
            length = _HOURS * (least + (1.0 - least) * rhythm[_HOURS + day])
        speed: cython.double = least + (1.0 - least) * rhythm[_HOURS + day] * rhythm[0]
        while left > speed and hour < _HOURS - 1:
            left -= speed
            hour += 1
            speed = least + (1.0 - least) * rhythm[_HOURS + day] * rhythm[hour]
        return weeks * self.week + (day * _HOURS + hour + left / speed) * self.hour

    def _reading(self, row: cython.Py_ssize_t, at: cython.double, least: cython.double) -> cython.double:
        """Return the integral of s from 0 to the instant. `least` is f, the minimum speed."""
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
        return least * at + (1.0 - least) * paced * self.hour

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
        for i in range(_FACTORS):
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
        if hazard <= 0.0:
            return
        passed: cython.double = (end - rhythm[_LATEST]) / self.week if rhythm[_LATEST] != 0.0 else 0.0
        passed = max(passed, 0.0)
        rhythm[_LATEST] = end
        bias: cython.double = _site_bias(rhythm, exp(-passed / _BIAS_WEEKS), plain, changed)
        plain = _put_right(plain, bias)
        paced = _put_right(paced, bias)
        better: cython.double = log(paced / plain) if changed else log((1.0 - paced) / (1.0 - plain))
        weight: cython.double = min(passed * 7.0 * _SCORE_DAY, 1.0)
        kept: cython.double = 1.0 - weight * (1.0 - _SCORE_KEPT)
        score: cython.double = kept * rhythm[_SCORE] + weight * (better - _SCORE_CHARGE)
        rhythm[_SCORE] = min(max(score, -_SCORE_MAX), _SCORE_MAX)
        self.used[site] = rhythm[_SCORE] > (_DROP if self.used[site] else _ADOPT)
        self._split(row, begin, end, bias * hazard)
        self._learn(row, bias * hazard, min(passed / _MEMORY_WEEKS, 1.0 / _MEMORY), changed)

    def _split(
        self, row: cython.Py_ssize_t, begin: cython.double, end: cython.double, hazard: cython.double
    ) -> cython.void:
        """Compute the parts x_i of the hazard that fall into each hour of the day, and into each day of the week."""
        parts: cython.double[::1] = self._parts
        i: cython.Py_ssize_t
        for i in range(_FACTORS):
            parts[i] = 0.0
        scale: cython.double = hazard / self._span(row, begin, end)
        at: cython.double = begin - floor(begin / self.week) * self.week
        hour: cython.Py_ssize_t = min(cython.cast(cython.Py_ssize_t, floor(at / self.hour)), _WEEK_HOURS - 1)
        time: cython.double = (hour + 1) * self.hour - at
        left: cython.double = end - begin
        while left > 0.0:
            time = min(time, left)
            # the part at the minimum speed does not depend on the factors
            x: cython.double = scale * (self._speed(row, hour) - _SLOWEST) * time
            parts[hour % _HOURS] += x
            parts[_HOURS + hour // _HOURS] += x
            left -= time
            hour = hour + 1 if hour + 1 < _WEEK_HOURS else 0
            time = self.hour

    def _learn(
        self, row: cython.Py_ssize_t, hazard: cython.double, faded: cython.double, changed: cython.bint
    ) -> cython.void:
        """Change the factors by what the crawl found. `_split` has computed the parts of the hazard.

        `faded` is the share of earlier crawls that is forgotten.
        """
        rhythm: cython.double[::1] = self.rhythms[row]
        parts: cython.double[::1] = self._parts
        steps: cython.double[::1] = self._steps
        i: cython.Py_ssize_t
        odds: cython.double = 1.0 / expm1(max(hazard, _SURE))
        for i in range(_FACTORS):
            kept: cython.double = rhythm[_KNOWN + i] * (1.0 - faded)
            rhythm[_KNOWN + i] = kept + parts[i] * parts[i] * odds
            prior: cython.double = _PRIOR_HOUR if i < _HOURS else _PRIOR_DAY
            steps[i] = (odds if changed else -1.0) * parts[i] - prior * log(rhythm[i]) * faded
        for i in range(_HOURS):
            after: cython.Py_ssize_t = i + 1 if i + 1 < _HOURS else 0
            pull: cython.double = _SMOOTH * log(rhythm[i] / rhythm[after]) * faded
            steps[i] -= pull
            steps[after] += pull
        _smooth(rhythm, steps, self._scratch)
        for i in range(_HOURS, _FACTORS):
            steps[i] /= _PRIOR_DAY + rhythm[_KNOWN + i]
        most: cython.double = _STEP_MAX
        for i in range(_FACTORS):
            most = max(most, abs(steps[i]))
        for i in range(_FACTORS):
            rhythm[i] = _bounded(rhythm[i] * exp(steps[i] * _STEP_MAX / most))
        _even(rhythm, 0, _HOURS)
        _even(rhythm, _HOURS, _FACTORS)

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
        if len(numbers) == EARLIER_COLUMNS[0]:
            # Each change shows the factor of one hour and one day, if intervals are short.
            shares = [each / (_HOURS if i < _HOURS else _DAYS) for i, each in enumerate(numbers[:_FACTORS])]
            known = [share * numbers[_FACTORS] for share in shares]
            numbers = [*numbers[:_FACTORS], numbers[_FACTORS + 1], *known]
        for i in range(COLUMNS):
            self.rhythms[row, i] = numbers[i] if i < len(numbers) else 0.0
        for i in range(_FACTORS):
            self.rhythms[row, i] = _bounded(self.rhythms[row, i])
        _even(self.rhythms[row], 0, _HOURS)
        _even(self.rhythms[row], _HOURS, _FACTORS)
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
def _site_bias(
    rhythm: cython.double[::1], kept: cython.double, plain: cython.double, changed: cython.bint
) -> cython.double:
    """Return the site's own bias before a crawl, and update it by what the crawl found.

    `plain` is the probability of a change at a constant speed. `kept` is the share of earlier crawls that is kept.
    """
    bias: cython.double = (_BIAS_WEIGHT + rhythm[_FOUND]) / (_BIAS_WEIGHT + rhythm[_TOLD])
    bias = min(max(bias, 1.0 / _BIAS_MAX), _BIAS_MAX)
    hazard: cython.double = min(-log1p(-min(plain, 1.0 - _SURE)), _HAZARD_MAX)
    rhythm[_TOLD] = kept * rhythm[_TOLD] + hazard
    rhythm[_FOUND] = kept * rhythm[_FOUND] + (gain_of(bias * hazard) if changed else 0.0)
    return bias


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _put_right(expected: cython.double, bias: cython.double) -> cython.double:
    """Correct `expected`, the probability of a change: multiply its hazard by `bias`. Return neither 0 nor 1."""
    right: cython.double = -expm1(bias * log1p(-min(expected, 1.0 - _SURE)))
    return min(max(right, _SURE), 1.0 - _SURE)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _bounded(factor: cython.double) -> cython.double:
    return min(max(factor, _FACTOR_MIN), _FACTOR_MAX)


@cython.cfunc
@cython.exceptval(check=False)
def _smooth(
    rhythm: cython.double[::1], steps: cython.double[::1], scratch: cython.double[:, ::1]
) -> cython.void:
    """Solve (P0 + diag(D)) x = steps for the hours of the day; x replaces `steps`.

    The matrix is tridiagonal, with two more entries that join the last hour of the day to the first. With these two
    moved into a matrix of rank one, the system is solved by elimination and the Sherman-Morrison formula (Press et al.,
    *Numerical Recipes*, section 2.7).
    """
    diagonal: cython.double[::1] = scratch[0]
    ratios: cython.double[::1] = scratch[1]
    other: cython.double[::1] = scratch[2]
    i: cython.Py_ssize_t
    for i in range(_HOURS):
        diagonal[i] = _PRIOR_HOUR + 2.0 * _SMOOTH + rhythm[_KNOWN + i]
        other[i] = 0.0
    corner: cython.double = -diagonal[0]
    other[0] = corner
    other[_HOURS - 1] = -_SMOOTH
    diagonal[0] -= corner
    diagonal[_HOURS - 1] -= _SMOOTH * _SMOOTH / corner
    pivot: cython.double = diagonal[0]
    steps[0] /= pivot
    other[0] /= pivot
    for i in range(1, _HOURS):
        ratios[i] = -_SMOOTH / pivot
        pivot = diagonal[i] + _SMOOTH * ratios[i]
        steps[i] = (steps[i] + _SMOOTH * steps[i - 1]) / pivot
        other[i] = (other[i] + _SMOOTH * other[i - 1]) / pivot
    for i in range(_HOURS - 2, -1, -1):
        steps[i] -= ratios[i + 1] * steps[i + 1]
        other[i] -= ratios[i + 1] * other[i + 1]
    last: cython.Py_ssize_t = _HOURS - 1
    shown: cython.double = steps[0] - _SMOOTH * steps[last] / corner
    scale: cython.double = shown / (1.0 + other[0] - _SMOOTH * other[last] / corner)
    for i in range(_HOURS):
        steps[i] -= scale * other[i]


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
