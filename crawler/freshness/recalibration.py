"""Corrects the model's P[fresh] by what crawls have found. Users get the corrected P[fresh].

Every crawl tests the P[fresh] that was predicted before it. The model's hazard is H = -ln P, and the
corrected hazard is

    H' = H exp(a + b min(f, 0) + (b' + s) max(f, 0) + c told + d unsaid + e [new] / (1 + H) + g ln(haste)
               + h told max(ln H, 0)),    f = ln(H / H0)

with eight coefficients for the whole crawl, and the coefficient s of the page's site. The coefficient a
corrects for changes that are faster or slower than expected. The coefficients b and b' correct hazards that
are estimated too far from their centre H0. If b is negative, small hazards are increased, because fresh pages
were predicted as too fresh. If b' is negative, large hazards are reduced, because stale pages were predicted
as too stale. H0 is the geometric mean of the hazards that pages have when they are crawled, times a constant.

Sites differ in how much their pages change together. If a site changes all of its pages at each release, its
copies stay fresh between two releases, however long that is, so large hazards are too large there. On a site
whose pages change independently, large hazards are about right. So each site has a coefficient s of its own,
which is learned from the crawls of the site. Its prior is 0, so a site with few crawls uses b' alone. In four
drawings of the league without signals, at one fetch per change, the largest error of a decile was .031; it
was .094 without s and with a `beyond` of .6.

The coefficients c and h apply to pages with signals since their last crawl: if h is negative, such pages are
less often stale than their many signals say. The coefficient d applies to pages without a signal since their
last crawl, if a source of signals is in use on their site. Within a site, the signals of some pages may be
worthless (`page_kinds.py`). What crawls show about good signals says nothing about these pages: a page with
good signals is crawled as soon as a signal arrives, so most crawls of pages with signals find a change.
Therefore `told` and `unsaid` are not 1, but the probability that the page's signals are good (its
`reliability`). On simulated sites of which half of the pages have worthless signals, this reduces the largest
error of a decile from .078 to .037.

The coefficient e applies to new pages, that is, pages that appeared while the crawl was watching their site
and that were never fetched again. Pages change more often while they are new. The coefficient e does not
apply if a source of signals is in use on the site. The haste of a page is the ratio of the neighbourhood
clock to the elapsed time, but at least 1. Changes of neighbours say less about a page than the clock assumes,
so g is negative.

Crawls are not an even sample of the copies: a site that is changing may get eighty crawls in a week, and a
quiet site two. So a plain average over crawls mainly describes the sites that are changing. But users may ask
about any copy at any time. So each crawl has a weight for the time that it represents: the time since the
last crawl of its *site*, divided by the mean of these times, but at most `WEIGHT_MAX`.

On sites whose weekly rhythm is in use (`seasons.py`), the correction of the crawl does not apply, and their crawls do
not change it. At night, the hazards of these pages are tiny, and no straight line fits such hazards and those of a
working day. Only the site's own coefficient is used, for hazards above `RHYTHM_CENTRE`:

    H' = H exp(s max(ln(H / RHYTHM_CENTRE), 0))

It follows the crawls of about four weeks, because an error that is learned in the morning does not hold at
night. On simulated sites with a change per day and one fetch per change, the largest error of a decile is .037 with this
correction, and .058 without any. With the correction of the crawl, it was .157 on sites with a change per hour.

If the model's predictions are right, a correction can only harm. So each crawl is predicted twice, before
the coefficients learn from it: by the model, and by the corrected hazard. A log score adds up by how much the
corrected prediction is better, with the weights of the crawls. The exponent is multiplied by the score
divided by `SCORE_NEEDED`, limited to 0 to 1. So the correction is used only as far as it has improved
predictions. The first score is `SCORE_FIRST`, because the correction improves them on the sites of the league.
On simulated webs whose pages change as the model assumes, the score reduces the largest error of a decile
from .043 to .021 (a change per day, 0.3 fetches per change) and from .038 to .018 (noisy signals).

The coefficients are learned by Newton's method, one step per crawl. Old crawls are gradually forgotten: the
weight of what was learned falls by a factor of e while crawls with a total weight of `memory` are added.
Crawls show only a part of some errors. For example, the hazards of stale pages are too large, but a stale
page is often crawled just after its neighbours have changed. Therefore, the correction moves some
coefficients further from their priors than crawls have shown (`beyond`). Within a site, the correction keeps
the order of pages that are alike in signals, birth and haste. Schedules do not use the correction.

The constants were fitted to drawings of the league and to simulated webs (`scripts/bench/recalibration.py`).
`lab/league/CALIBRATION.md` lists the errors of the corrected P[fresh] on other drawings.

Source: van Houwelingen, *Validation, calibration, revision and combination of prognostic survival models*
(Statistics in Medicine 2000): revision of the cumulative hazard. Weights: Horvitz and Thompson (1952). Own
coefficients of sites: Laird and Ware, *Random-effects models for longitudinal data* (Biometrics 1982).
"""

import math
from collections.abc import Sequence
from enum import IntEnum
from operator import mul
from typing import NamedTuple

import msgspec

from crawler.freshness.newton_fit import NewtonFit

COEFFICIENTS = 8
_ABOVE, _TOLD, _NEW, _MANY = 2, 3, 5, 7  # the places of some coefficients and features: b', c, e, h
# Numbers of coefficients in the records of earlier versions, which end without a score. Records of seven have
# no h. Records of nine have another coefficient at the end, which is ignored.
_EARLIER = (7, 9)


class Constants(msgspec.Struct, frozen=True):
    """The constants of the correction.

    prior, precision: the value of each coefficient before the first crawl, and the precision of this value.
    memory: the total weight of crawls after which what was learned has lost a factor of e of its weight.
    centre: H0, over the geometric mean of the hazards at crawls.
    beyond: for each coefficient, the part that crawls do not show, over the part that they show.
    site_precision: the precision of the prior of a site's own coefficient, which is 0.
    site_memory: like `memory`, for the crawls of one site.
    """

    prior: tuple[float, ...]
    precision: tuple[float, ...]
    memory: float
    centre: float
    beyond: tuple[float, ...]
    site_precision: float
    site_memory: float


FITTED = Constants(
    prior=(0.0, -0.2, 0.07, 0.0, 0.0, 0.84, -0.33, 0.0),
    precision=(30.0, 100.0, 12.0, 0.9, 0.9, 4.0, 1.5, 35.0),
    memory=2000.0,
    centre=0.8,
    beyond=(0.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0),
    site_precision=20.0,
    site_memory=200.0,
)
WEIGHT_MAX = 10.0
# a hazard outside of this range is corrected by the factor of the nearer bound
HAZARD_LOW, HAZARD_HIGH = 1e-3, 6.0
# Within these bounds and that of `_slope_above`, a greater hazard always has a greater corrected hazard. The
# steepest slope of e / (1 + H) is -e/4, and b - e/4 is above -1.
LOW = (-2.0, -0.55, -0.55, -5.0, -5.0, -2.0, -1.0, -0.4)
HIGH = (2.0, 1.0, 1.0, 5.0, 5.0, 1.4, 1.0, 0.5)
SLOPE_LEAST = -0.95  # the least slope of ln(H'/H) over ln H
OWN_MAX = 1.5  # bound of a site's own coefficient
SCORE_NEEDED = 4.0  # score, in nats, from which on the whole correction is used
SCORE_FIRST = 4.0  # the score before the first crawl: the whole correction is used
SCORE_MAX = 20.0  # bound of the score, so that it soon follows a change
# On sites with a weekly rhythm: the hazard above which the site's own coefficient applies, the weeks for which it
# remembers crawls, and the precision of its prior.
RHYTHM_CENTRE = 0.1
RHYTHM_WEEKS = 4.0
RHYTHM_PRECISION = 100.0
_SURE = 1e-300


class Hearing(IntEnum):
    """The signals of a page since its last crawl."""

    NONE = 0  # no source that is in use reports on the page's site
    UNSAID = 1  # sources report on the page's site, but sent no signal for the page
    TOLD = 2


class SiteSlope(NamedTuple):
    """A site's own coefficient s, and the precision with which the site's crawls have shown it."""

    slope: float = 0.0
    precision: float = 0.0


UNKNOWN = SiteSlope()


class Recalibration:
    """The state of the correction: the coefficients, their precision, the centre H0, and the score.

    The argument `numbers` restores a stored state, which may have been stored by an earlier version.
    """

    def __init__(self, numbers: Sequence[float] = (), constants: Constants = FITTED) -> None:
        self._constants = constants
        self._fit = NewtonFit(constants.prior, constants.precision, LOW, HIGH)
        self._centre, self._weight = 0.0, 0.0  # ln H0, and the weight of the crawls that determined it
        self._score = SCORE_FIRST
        kept = list(numbers) if all(map(math.isfinite, numbers)) else []
        if len(kept) == COEFFICIENTS + COEFFICIENTS**2 + 3:
            self._score = min(max(kept.pop(), -SCORE_MAX), SCORE_MAX)
        for size in (COEFFICIENTS, *_EARLIER):
            if len(kept) == size + size * size + 2:
                self._fit.restore(kept[:size], kept[size:-2])
                self._centre, self._weight = kept[-2:]
        self._coefficients = self._fit.coefficients
        # the coefficients of the corrected P[fresh]; empty until they are needed
        self._told: list[float] = []

    @property
    def numbers(self) -> list[float]:
        """Return the state to store."""
        return [*self._coefficients, *self._fit.matrix, self._centre, self._weight, self._score]

    @property
    def coefficients(self) -> tuple[float, ...]:
        """The coefficients a, b, b', c, d, e, g, h as crawls have shown them."""
        return tuple(self._coefficients)

    @property
    def share(self) -> float:
        """The share of the correction that is used, from 0 to 1."""
        return min(max(self._score / SCORE_NEEDED, 0.0), 1.0)

    def observe(
        self,
        fresh: float,
        hearing: Hearing,
        weight: float,
        changed: bool,
        new: bool = False,
        haste: float = 1.0,
        reliability: float = 1.0,
        site: SiteSlope = UNKNOWN,
    ) -> SiteSlope:
        """Learn from a crawl of a page whose copy was fresh with probability `fresh` according to the model.

        Return the new coefficient of the page's site; `site` is the one before the crawl.

        Args:
            weight: the time since the last crawl of the page's site, over the mean of that time.
            new: the page appeared while the crawl was watching, and this was the first time that it was fetched again.
            haste: the neighbourhood clock divided by the elapsed time, at least 1.
            reliability: the probability that the page's signals are good.
        """
        constants = self._constants
        weight = min(max(weight, 0.0), WEIGHT_MAX)
        said = -math.log(max(fresh, _SURE))
        self._weight = min(self._weight + weight, constants.memory)
        if self._weight > 0.0:
            share = weight / self._weight
            self._centre += share * (_log(said) + math.log(constants.centre) - self._centre)
        x = self._features(said, hearing, new, haste, reliability)
        hazard = max(said * math.exp(_exponent(self._coefficients, x, site.slope)), 1e-12)
        unchanged = math.exp(-hazard)
        ratio = hazard * unchanged / -math.expm1(-hazard)
        faded = -math.expm1(-weight / constants.memory)
        better = _log_chance(hazard, changed) - _log_chance(said, changed)
        self._score = min(max((1.0 - faded) * self._score + weight * better, -SCORE_MAX), SCORE_MAX)
        score = weight * (ratio if changed else -hazard)
        self._fit.observe(x, score, weight * hazard * ratio, faded)
        self._coefficients, self._told = self._fit.coefficients, []
        faded = -math.expm1(-weight / constants.site_memory)
        curvature = weight * hazard * ratio
        return _learned(site, x[_ABOVE], score, curvature, faded, constants.site_precision)

    def corrected(
        self,
        fresh: float,
        hearing: Hearing,
        new: bool = False,
        haste: float = 1.0,
        reliability: float = 1.0,
        site: SiteSlope = UNKNOWN,
    ) -> float:
        """Return the corrected P[fresh] of a page for which the model predicts `fresh`.

        `new`: the page appeared while the crawl was watching, and was never fetched again. `haste` and `reliability`:
        see `observe`. `site` is the coefficient of the page's site.
        """
        if not 0.0 < fresh < 1.0:
            return fresh
        said = -math.log(fresh)
        x = self._features(said, hearing, new, haste, reliability)
        self._told = self._told or self._beyond()
        return math.exp(-said * math.exp(self.share * _exponent(self._told, x, site.slope)))

    def observe_in_rhythm(
        self, fresh: float, weight: float, weeks: float, changed: bool, site: SiteSlope
    ) -> SiteSlope:
        """Learn from a crawl on a site whose weekly rhythm is in use; return the site's new coefficient.

        `weeks` is the time since the last crawl of the site. See `observe` for the other arguments.
        """
        weight = min(max(weight, 0.0), WEIGHT_MAX)
        said = -math.log(max(fresh, _SURE))
        above = _above_centre(said)
        hazard = max(said * math.exp(max(site.slope, SLOPE_LEAST) * above), 1e-12)
        ratio = hazard * math.exp(-hazard) / -math.expm1(-hazard)
        score = weight * (ratio if changed else -hazard)
        faded = min(-math.expm1(-weight / self._constants.site_memory), max(weeks, 0.0) / RHYTHM_WEEKS)
        return _learned(site, above, score, weight * hazard * ratio, faded, RHYTHM_PRECISION)

    def corrected_in_rhythm(self, fresh: float, site: SiteSlope) -> float:
        """Return the corrected P[fresh] of a page on a site whose weekly rhythm is in use."""
        if not 0.0 < fresh < 1.0:
            return fresh
        said = -math.log(fresh)
        return math.exp(-said * math.exp(max(site.slope, SLOPE_LEAST) * _above_centre(said)))

    def _beyond(self) -> list[float]:
        """Return the coefficients of the corrected P[fresh], which go beyond those that crawls have shown."""
        constants = self._constants
        return [
            min(max(shown + beyond * (shown - prior), low), high)
            for shown, beyond, prior, low, high in zip(
                self._coefficients, constants.beyond, constants.prior, LOW, HIGH, strict=True
            )
        ]

    def _features(
        self, hazard: float, hearing: Hearing, new: bool, haste: float, reliability: float
    ) -> tuple[float, ...]:
        log = _log(hazard)
        far = log - self._centre if self._weight > 0.0 else 0.0
        below, above = min(far, 0.0), max(far, 0.0)
        told = reliability if hearing is Hearing.TOLD else 0.0
        unsaid = reliability if hearing is Hearing.UNSAID else 0.0
        fresher = 1.0 / (1.0 + math.exp(log)) if new and hearing is Hearing.NONE else 0.0
        hurry = math.log(max(haste, 1.0))
        return 1.0, below, above, told, unsaid, fresher, hurry, told * max(log, 0.0)

    def __repr__(self) -> str:
        return f"Recalibration({', '.join(f'{each:.2f}' for each in self.coefficients)})"


def _exponent(coefficients: Sequence[float], x: Sequence[float], slope: float) -> float:
    """Return ln(H'/H) for the features x of a page; `slope` is the coefficient of its site."""
    own = _slope_above(coefficients, x, slope) - coefficients[_ABOVE]
    return sum(map(mul, coefficients, x)) + own * x[_ABOVE]


def _slope_above(coefficients: Sequence[float], x: Sequence[float], slope: float) -> float:
    """Return b' + s, but at least so much that a greater hazard has a greater corrected hazard."""
    least = SLOPE_LEAST - min(coefficients[_MANY], 0.0) * x[_TOLD]
    if x[_NEW] > 0.0:
        least += max(coefficients[_NEW], 0.0) / 4.0
    return min(max(coefficients[_ABOVE] + slope, least), HIGH[_ABOVE])


def _learned(
    site: SiteSlope, above: float, score: float, curvature: float, faded: float, precision: float
) -> SiteSlope:
    """Return the coefficient of a site after a crawl, by one Newton step.

    The part `faded` of what was learned is forgotten. `precision` is that of the prior; `newton_fit.py` defines
    `score` and `curvature`.
    """
    shown = site.precision * (1.0 - faded) + curvature * above * above
    pull = score * above - faded * precision * site.slope
    slope = site.slope + pull / (precision + shown)
    return SiteSlope(min(max(slope, -OWN_MAX), OWN_MAX), shown)


def _above_centre(hazard: float) -> float:
    return max(_log(hazard) - math.log(RHYTHM_CENTRE), 0.0)


def _log_chance(hazard: float, changed: bool) -> float:
    """Return the log of the probability that a crawl finds a change or, if `changed` is False, no change."""
    hazard = min(max(hazard, HAZARD_LOW), HAZARD_HIGH)
    return math.log(-math.expm1(-hazard)) if changed else -hazard


def _log(hazard: float) -> float:
    return math.log(min(max(hazard, HAZARD_LOW), HAZARD_HIGH))
