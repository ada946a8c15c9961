# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""Corrects the predictions of changes, by factors for the whole crawl.

Rates may be wrong on average, because their prior may not fit the pages that are crawled. The changes that
neighbours show are compared with the changes that the rates predict. An error of the rates must not be
mistaken for changing neighbours: clocks would run too fast, times watched would be too long, and rates would
fall further. So the hazards are first corrected by one factor for the whole crawl, the `bias`: changes found
over changes expected (van Houwelingen 2000). On independent pages with log-normal rates, where a clock should
show the elapsed time, the `bias` reduced the clocks from 1.75 times the elapsed time to .95.

The probability that a page has changed (`Learning.expected`) is corrected by another factor, `silent_bias`.
Pages are often crawled because a signal has announced a change, and such a change says nothing about changes
without a signal. So each crawl has a weight in `silent_bias`: the probability that none of the page's signals
was true. When one factor corrected both the hazards and this probability, the factor was 1.5 to 2.2 on sites
with good signals, and far too few copies were said to be fresh.
"""

import cython
from cython.cimports.crawler.freshness.change_rates import gain_of
from cython.cimports.libc.math import exp, expm1, log1p

# weight of the prior (that the rates are right), as a number of expected changes
_BIAS_WEIGHT = cython.declare(cython.double, 10.0)
# the maximum hazard that is counted; above it, a change is so probable that finding one says little
_HAZARD_MAX = cython.declare(cython.double, 4.0)
_BIAS_LOW = cython.declare(cython.double, 0.25)
_BIAS_HIGH = cython.declare(cython.double, 4.0)
# each crawl multiplies the sums by this factor, so they represent the last 2,000 crawls or so
_KEPT = cython.declare(cython.double, 0.9995)
# the number of expected changes that `bias` still represents after `shorten`
_SHORTENED = cython.declare(cython.double, 20.0)


@cython.cclass
class Biases:
    """The factors `bias`, for all changes, and `silent_bias`, for changes without a signal."""

    def __init__(self) -> None:
        self.bias = self.silent_bias = 1.0
        self.found = self.told = self.silent_found = self.silent_told = 0.0

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def put_right(self, expected: cython.double) -> cython.double:
        """Correct `expected`, the probability of a change: multiply its hazard, -ln(1 - expected), by `bias`."""
        return -expm1(self.bias * log1p(-expected)) if expected < 1.0 else 1.0

    def observe(
        self,
        hazard: cython.double,
        silent_hazard: cython.double,
        signalled: cython.double,
        changed: cython.bint,
    ) -> cython.void:
        """Learn from a crawl.

        `hazard` is -ln P[no change], as predicted from the page's rate alone. `silent_hazard` and `signalled` are
        -ln P[no silent change] and -ln P[no true signal].
        """
        every: cython.double = min(hazard, _HAZARD_MAX)
        silent: cython.double = min(silent_hazard, _HAZARD_MAX)
        unsaid: cython.double = exp(-signalled)
        kept: cython.double = 1.0 - (1.0 - _KEPT) * unsaid
        self.found *= _KEPT
        self.told = _KEPT * self.told + every
        self.silent_found *= kept
        self.silent_told = kept * self.silent_told + unsaid * silent
        if changed:
            self.found += gain_of(self.bias * every)
            x: cython.double = self.silent_bias * silent + signalled
            if x > 0.0:
                self.silent_found += unsaid * gain_of(x) * self.silent_bias * silent / x
        self.bias = _ratio(self.found, self.told)
        self.silent_bias = _ratio(self.silent_found, self.silent_told)

    def shorten(self) -> cython.void:
        """Reduce the weight of the crawls that `bias` represents, so that the next 50 or so replace them.

        Crawls after signals that are right raise `bias`. So it is too high when signals become worthless.
        """
        kept: cython.double = min(_SHORTENED / self.told, 1.0) if self.told > 0.0 else 1.0
        self.found *= kept
        self.told *= kept
        self.bias = _ratio(self.found, self.told)

    def sums(self) -> tuple[float, float, float, float]:
        """Return the numbers of changes found and expected, first of all changes, then of those without a signal."""
        return self.found, self.told, self.silent_found, self.silent_told

    def restore(self, found: float, told: float, silent_found: float = 0.0, silent_told: float = 0.0) -> None:
        """Restore stored sums."""
        self.found, self.told, self.silent_found, self.silent_told = found, told, silent_found, silent_told
        self.bias = _ratio(found, told)
        self.silent_bias = _ratio(silent_found, silent_told)


@cython.cfunc
@cython.exceptval(check=False)
def _ratio(found: cython.double, told: cython.double) -> cython.double:
    """Return the ratio of changes found to changes expected, shrunk towards 1 while few changes are expected."""
    return min(max((_BIAS_WEIGHT + found) / (_BIAS_WEIGHT + told), _BIAS_LOW), _BIAS_HIGH)
