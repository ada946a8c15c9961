"""Corrects the model's P[fresh] by what crawls have found. Users get the corrected P[fresh].

Every crawl tests the P[fresh] that was predicted before it. The model's hazard is H = -ln P, and the
corrected hazard is

    H' = H exp(a + b min(f, 0) + b' max(f, 0) + c [told] + d [unsaid] + e [new] / (1 + H) + g ln(haste)),
    f = ln(H / H0)

with seven coefficients for the whole crawl. The coefficient a corrects for changes that are faster or slower
than expected. The coefficients b and b' correct hazards that are estimated too far from their centre H0. If b
is negative, small hazards are increased, because fresh pages were predicted as too fresh. If b' is negative,
large hazards are reduced, because stale pages were predicted as too stale. The coefficient c applies to pages
with signals since their last crawl. The coefficient d applies to pages without such a signal, if a source of
signals is in use on their site. The coefficient e applies to new pages, that is, pages that appeared while
the crawl was watching their site and that were never fetched again. Pages change more often while they are
new. The coefficient e does not apply if a source of signals is in use on the site. The haste of a page is the
ratio of the neighbourhood clock to the elapsed time, but at least 1. Changes of neighbours say less about a
page than the clock assumes, so g is negative. Let h be the geometric mean of the hazards that pages have when
they are crawled. H0 is h/2, because the age of a copy at a random time is on average half its age at the next
crawl.

Crawls are not an even sample of the copies: a site that is changing may get eighty crawls in a week, and a
quiet site two. So a plain average over crawls mainly describes the sites that are changing. But users may ask
about any copy at any time. So each crawl has a weight for the time that it represents: the time since the
last crawl of its *site*, divided by the mean of these times, but at most `WEIGHT_MAX`.

The coefficients are learned by Newton's method, one step per crawl. Old crawls are gradually forgotten: the
weight of what was learned falls by a factor of e while crawls with a total weight of `MEMORY` are added. The
weights of the priors of b' and g are so large that these coefficients hardly change. They cannot be learned
from crawls, because the schedule prefers pages whose hazards are overestimated, and pages whose neighbours
have changed. The order of pages does not depend on this correction, so schedules do not use it.

`lab/league/README.md` lists the errors of the corrected P[fresh].

Source: van Houwelingen, *Validation, calibration, revision and combination of prognostic survival models*
(Statistics in Medicine 2000): revision of the cumulative hazard. Weights: Horvitz and Thompson (1952).
"""

import math
from collections.abc import Sequence
from enum import IntEnum

import numpy as np

COEFFICIENTS = 7
PRIOR = np.array((0.0, -0.45, -0.05, 0.0, 0.0, 1.25, -0.35))
# the precision of each coefficient in the prior
PRECISION = np.array((20.0, 100.0, 1e6, 0.3, 0.3, 10.0, 1e6))
MEMORY = 2000.0
WEIGHT_MAX = 10.0
# a hazard outside of this range is corrected by the factor of the nearer bound
HAZARD_LOW, HAZARD_HIGH = 1e-3, 6.0
# with b at least -.65 and e at most 1.4, a greater hazard always has a greater corrected hazard
LOW = np.array((-2.0, -0.65, -0.65, -5.0, -5.0, -2.0, -1.0))
HIGH = np.array((2.0, 1.0, 1.0, 5.0, 5.0, 1.4, 1.0))
_SURE = 1e-300
_HALF = math.log(0.5)
_SIZE = COEFFICIENTS + COEFFICIENTS * COEFFICIENTS + 2


class Hearing(IntEnum):
    """The signals of a page since its last crawl."""

    NONE = 0  # no source that is in use reports on the page's site
    UNSAID = 1  # sources report on the page's site, but sent no signal for the page
    TOLD = 2


class Recalibration:
    """The state of the correction: the coefficients, their precision, and the centre H0.

    The argument `numbers` restores a stored state.
    """

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
        """The coefficients a, b, b', c, d, e, g."""
        return tuple(self._coefficients.tolist())

    def observe(
        self,
        fresh: float,
        hearing: Hearing,
        weight: float,
        changed: bool,
        new: bool = False,
        haste: float = 1.0,
    ) -> None:
        """Learn from a crawl of a page whose copy was fresh with probability `fresh` according to the model.

        Args:
            weight: the time since the last crawl of the page's site, over the mean of that time.
            new: the page appeared while the crawl was watching, and this was the first time that it was fetched again.
            haste: the neighbourhood clock divided by the elapsed time, at least 1.
        """
        weight = min(max(weight, 0.0), WEIGHT_MAX)
        said = -math.log(max(fresh, _SURE))
        self._weight = min(self._weight + weight, MEMORY)
        if self._weight > 0.0:
            self._centre += weight / self._weight * (_log(said) + _HALF - self._centre)
        hazard = max(self._corrected(said, hearing, new, haste), 1e-12)
        unchanged = math.exp(-hazard)
        ratio = hazard * unchanged / -math.expm1(-hazard)
        x = self._features(said, hearing, new, haste)
        faded = -math.expm1(-weight / MEMORY)
        prior = faded * PRECISION
        self._precision *= 1.0 - faded
        self._precision += np.diag(prior) + weight * hazard * ratio * np.outer(x, x)
        gradient = weight * (ratio if changed else -hazard) * x - prior * (self._coefficients - PRIOR)
        step = np.linalg.solve(self._precision, gradient)
        self._coefficients = np.clip(self._coefficients + step, LOW, HIGH)

    def corrected(self, fresh: float, hearing: Hearing, new: bool = False, haste: float = 1.0) -> float:
        """Return the corrected P[fresh] of a page for which the model predicts `fresh`.

        `new`: the page appeared while the crawl was watching, and was never fetched again.
        """
        if not 0.0 < fresh < 1.0:
            return fresh
        return math.exp(-self._corrected(-math.log(fresh), hearing, new, haste))

    def _corrected(self, hazard: float, hearing: Hearing, new: bool, haste: float) -> float:
        return hazard * math.exp(float(self._features(hazard, hearing, new, haste) @ self._coefficients))

    def _features(self, hazard: float, hearing: Hearing, new: bool, haste: float) -> np.ndarray:
        log = _log(hazard)
        far = log - self._centre if self._weight > 0.0 else 0.0
        told, unsaid = float(hearing is Hearing.TOLD), float(hearing is Hearing.UNSAID)
        fresher = 1.0 / (1.0 + math.exp(log)) if new and hearing is Hearing.NONE else 0.0
        return np.array((1.0, min(far, 0.0), max(far, 0.0), told, unsaid, fresher, math.log(max(haste, 1.0))))

    def __repr__(self) -> str:
        return f"Recalibration({', '.join(f'{each:.2f}' for each in self.coefficients)})"


def _log(hazard: float) -> float:
    return math.log(min(max(hazard, HAZARD_LOW), HAZARD_HIGH))
