"""Corrects the model's P[fresh] by what crawls have found. Users get the corrected P[fresh].

Every crawl tests the P[fresh] that was predicted before it. The model's hazard is H = -ln P, and the
corrected hazard is

    H' = H exp(a + b min(f, 0) + b' max(f, 0) + c [told] + d [unsaid] + e [first]),   f = ln(H / H0)

with six coefficients for the whole crawl. The coefficient a corrects for changes that are faster or slower
than expected. The coefficients b and b' correct hazards that are estimated too far from their centre H0: if
they are negative, fresh pages were predicted as too fresh, and stale pages as too stale. The coefficient c
applies to pages with signals since their last crawl. The coefficient d applies to pages without such a
signal, if a source of signals is in use on their site. The coefficient e applies to pages that were never
fetched again: pages change more often while they are new, and only such pages have no result of their own. H0
is half the geometric mean of the hazards before crawls, because a copy is on average half as old as at its
next crawl.

Crawls are not an even sample of the copies: a site that is changing may get eighty crawls in a week, and a
quiet site two. So a plain average over crawls mainly describes the sites that are changing. But users may ask
about any copy at any time. So each crawl has a weight for the time that it represents: the time since the
last crawl of its *site*, divided by the mean of these times, but at most `WEIGHT_MAX`.

The coefficients are learned by Newton's method, one step per crawl. What was learned decays towards the prior
over `MEMORY` crawls of mean weight. In the prior, b is -.35, b' is -.15, e is .5, and the others are 0. The
weight of the prior of b' is so large that b' hardly changes, because b' cannot be learned from crawls: the
schedule prefers stale pages whose hazards are overestimated. On the histories of the league, b' is +.1 to +.3
if it is learned from crawls, but -.2 to .1 if it is learned from all copies. The coefficient b is -.2 to -.8
if it is learned from crawls, and -.5 to -.6 if it is learned from all copies. The order of pages does not
depend on this correction, so schedules do not use it.

`lab/league/README.md` lists the errors of the corrected P[fresh].

Source: van Houwelingen, *Validation, calibration, revision and combination of prognostic survival models*
(Statistics in Medicine 2000): revision of the cumulative hazard. Weights: Horvitz and Thompson (1952).
"""

import math
from collections.abc import Sequence
from enum import IntEnum

import numpy as np

COEFFICIENTS = 6
PRIOR = np.array((0.0, -0.35, -0.15, 0.0, 0.0, 0.5))
PRECISION = np.array((10.0, 50.0, 1e6, 0.3, 0.3, 5.0))  # the precision of each coefficient in the prior
MEMORY = 2000.0
WEIGHT_MAX = 10.0
# a hazard outside of this range is corrected by the factor of the nearer bound
HAZARD_LOW, HAZARD_HIGH = 1e-3, 6.0
LOW = np.array((-2.0, -0.8, -0.8, -5.0, -5.0, -2.0))
HIGH = np.array((2.0, 1.0, 1.0, 5.0, 5.0, 3.0))
_SURE = 1e-300
_HALF = math.log(0.5)
_SIZE = COEFFICIENTS + COEFFICIENTS * COEFFICIENTS + 2


class Hearing(IntEnum):
    """The signals of a page since its last crawl."""

    NONE = 0  # no source that is in use reports on the page's site
    UNSAID = 1  # sources report on the page's site, but sent no signal for the page
    TOLD = 2


class Recalibration:
    """The coefficients, their precision, and the centre. The argument `numbers` restores a stored state."""

    def __init__(self, numbers: Sequence[float] = ()) -> None:
        kept = np.array(numbers)
        self._coefficients = PRIOR.copy()
        self._precision = np.diag(PRECISION)
        self._centre, self._weight = 0.0, 0.0  # ln H0, and the weight of the crawls that determined it
        if len(kept) == _SIZE and np.isfinite(kept).all():
            self._coefficients = np.clip(kept[:COEFFICIENTS], LOW, HIGH)
            self._precision = kept[COEFFICIENTS:-2].reshape(COEFFICIENTS, COEFFICIENTS)
            self._centre, self._weight = kept[-2:].tolist()

    @property
    def numbers(self) -> list[float]:
        """Return the state to store."""
        return [*self._coefficients.tolist(), *self._precision.ravel().tolist(), self._centre, self._weight]

    @property
    def coefficients(self) -> tuple[float, ...]:
        """The coefficients a, b, b', c, d, e."""
        return tuple(self._coefficients.tolist())

    def observe(
        self, fresh: float, hearing: Hearing, weight: float, changed: bool, first: bool = False
    ) -> None:
        """Learn from a crawl of a page whose copy was fresh with probability `fresh` according to the model.

        Args:
            weight: the time since the last crawl of the page's site, over the mean of that time.
            first: this was the first time that the page was fetched again.
        """
        weight = min(max(weight, 0.0), WEIGHT_MAX)
        said = -math.log(max(fresh, _SURE))
        self._weight = min(self._weight + weight, MEMORY)
        if self._weight > 0.0:
            self._centre += weight / self._weight * (_log(said) + _HALF - self._centre)
        hazard = max(self._corrected(said, hearing, first), 1e-12)
        unchanged = math.exp(-hazard)
        ratio = hazard * unchanged / -math.expm1(-hazard)
        x = self._features(said, hearing, first)
        faded = -math.expm1(-weight / MEMORY)
        prior = faded * PRECISION
        self._precision *= 1.0 - faded
        self._precision += np.diag(prior) + weight * hazard * ratio * np.outer(x, x)
        gradient = weight * (ratio if changed else -hazard) * x - prior * (self._coefficients - PRIOR)
        step = np.linalg.solve(self._precision, gradient)
        self._coefficients = np.clip(self._coefficients + step, LOW, HIGH)

    def corrected(self, fresh: float, hearing: Hearing, first: bool = False) -> float:
        """Return the corrected P[fresh] of a page for which the model predicts `fresh`.

        `first`: the page was fetched only once so far.
        """
        if not 0.0 < fresh < 1.0:
            return fresh
        return math.exp(-self._corrected(-math.log(fresh), hearing, first))

    def _corrected(self, hazard: float, hearing: Hearing, first: bool) -> float:
        return hazard * math.exp(float(self._features(hazard, hearing, first) @ self._coefficients))

    def _features(self, hazard: float, hearing: Hearing, first: bool) -> np.ndarray:
        far = _log(hazard) - self._centre if self._weight > 0.0 else 0.0
        told, unsaid = float(hearing is Hearing.TOLD), float(hearing is Hearing.UNSAID)
        return np.array((1.0, min(far, 0.0), max(far, 0.0), told, unsaid, float(first)))

    def __repr__(self) -> str:
        return f"Recalibration({', '.join(f'{each:.2f}' for each in self.coefficients)})"


def _log(hazard: float) -> float:
    return math.log(min(max(hazard, HAZARD_LOW), HAZARD_HIGH))
