"""Estimates, for users, the freshness of the copies, the gain from a higher rate, and which arm is best.

    expected freshness   mean probability that a copy is current, weighted by importance: overall, per host, per arm
    price of the rate    the level is the gain of one more fetch: dF/dR = level / sum of importance
    calibration          changes predicted and found by refreshes, by decile of the prediction
    arms                 for each policy also the share of its pages' time with a fresh copy, by its refreshes

All probabilities are corrected by the results of refreshes (`freshness/recalibration.py`).

A sample of `SAMPLE` pages, spread evenly over the schedule, represents the schedule. A sample is reused for
the time `SAMPLE_AGE`. If a refresh finds a copy unchanged, the copy was fresh since the last crawl. If a
refresh finds a copy changed, the copy was fresh until the page first changed; `fresh_part` estimates when
this change happened. Errors are standard errors.
"""

import math
from collections import Counter
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from crawler.freshness.recalibration import Hearing, Recalibration
from crawler.frontier.refresh.arms import Arms
from crawler.frontier.refresh.schedule import Schedule
from crawler.frontier.refresh.settings import BY_LEVEL, PageView, RefreshOutcome, policies_of

SAMPLE = 1000  # pages in the sample for the expected freshness
SAMPLE_AGE = 2.0  # seconds for which a sample is reused; a new one takes about 10 ms
DECILES = 10
MORE_RATE = 0.1  # the gain of a higher rate is computed for (1 + MORE_RATE) times the present rate


class _Arm(msgspec.Struct):
    """The sums of one arm of a comparison, over its refreshes.

    The span of a refresh is its interval times the importance of the page. `spans` adds up the spans, and
    `fresh` adds up their fresh parts. The other three sums are of products of these two.
    """

    refreshes: int = 0
    changed: int = 0
    spans: float = 0.0
    fresh: float = 0.0
    spans_spans: float = 0.0
    fresh_fresh: float = 0.0
    fresh_spans: float = 0.0

    def note(self, span: float, part: float, changed: bool) -> None:
        """Add a refresh.

        `span` is the time since the previous refresh of the page, times the page's importance. The copy was
        current for the share `part` of the span.
        """
        fresh = span * part
        self.refreshes += 1
        self.changed += changed
        self.spans += span
        self.fresh += fresh
        self.spans_spans += span * span
        self.fresh_fresh += fresh * fresh
        self.fresh_spans += fresh * span

    def seen(self) -> tuple[float, float]:
        """Return the share of time with a fresh copy, and its standard error (that of a ratio; Cochran 1977, 6.4)."""
        ratio = self.fresh / self.spans
        left = self.fresh_fresh - 2.0 * ratio * self.fresh_spans + ratio * ratio * self.spans_spans
        return ratio, math.sqrt(max(left, 0.0)) / self.spans


class Expectation:
    """Collects the results of refreshes and describes the state of a schedule; `speed` is the setting `refresh.speed`."""

    def __init__(self, schedule: Schedule | Arms, speed: float) -> None:
        self._schedule = schedule
        self._schedules: list[Schedule] = getattr(schedule, "schedules", None) or [schedule]
        self._speed = speed
        # One row per decile of the prediction. Its columns are the numbers of refreshes, of predicted changes,
        # and of changes found.
        self._predicted = np.zeros((DECILES, 3))
        self._arms = [_Arm() for _ in getattr(schedule, "schedules", ())]
        self._sample: list[PageView] = []
        self._away: Counter[int] = Counter()  # host -> number of pages that the sample leaves out
        self._sampled_at = -math.inf
        self.results: Counter[str] = Counter()
        self.recalibration = Recalibration()

    def ended(self, known: PageView, result: RefreshOutcome, then: float) -> None:
        """Record the refresh of a page at `then` (on the schedule's clock); `known` is the page before the refresh."""
        self.results[result.name.lower()] += 1
        if result > RefreshOutcome.CHANGED or known.away:
            return
        changed = result is RefreshOutcome.CHANGED
        fresh = self.fresh(known)
        learn(self.recalibration, self._schedule, known, changed)
        chance = 1.0 - fresh
        self._predicted[min(int(DECILES * chance), DECILES - 1)] += (1.0, chance, changed)
        if isinstance(self._schedule, Arms):
            span = max(then - known.crawled_at, 0.0) * known.importance
            part = fresh_part(-math.log(max(fresh, 1e-300))) if changed else 1.0
            self._arms[self._schedule.numbers.arm_of(known.fingerprint)].note(span, part, changed)

    def fresh(self, known: PageView) -> float:
        """Return the probability that a page's copy is current, as it is shown to users.

        It is corrected, unless the crawl has not learned yet how often pages change (`freshness/change_rates.py`).
        """
        return corrected(self.recalibration, known) if known.stated is None else known.stated

    def view(self, then: float) -> dict[str, Any]:
        """Return the sections of a status, as `{name: value}`."""
        sample = self._renewed(then)
        weights = np.array([page.importance for page in sample])
        fresh = np.array([page.fresh for page in sample])
        copies = self._schedule.overview.copies
        importance = _importance(weights, copies)
        return {
            "pages": copies,
            "importance": importance,
            "expected_freshness": _round(_mean(fresh, weights)),
            "level": self._schedule.pace.level,
            "rate": self._schedule.pace.rate * self._speed,
            "more_rate": self._gain_of_more(importance),
            "ages": self._ages(sample, then),
            "results": dict(self.results),
            "calibration": self._calibration(),
            "arms": self._arms_view(sample),
        }

    def _renewed(self, then: float) -> list[PageView]:
        """Return the sample; take a new sample if it is too old or empty."""
        if then - self._sampled_at > SAMPLE_AGE * self._speed or not self._sample:
            self._sample = self._sampled(then)
            self._sampled_at = then
        return self._sample

    def _sampled(self, then: float) -> list[PageView]:
        """Return pages spread evenly over the schedule and its arms, except for pages that are away.

        Count in `_away` the pages that are left out.
        """
        found = []
        self._away.clear()
        for schedule in self._schedules:
            size = len(schedule)
            for page in range(0, size, max(1, size * len(self._schedules) // SAMPLE)):
                try:
                    known = schedule.overview.page(page, then)
                    if known.away:
                        self._away[known.host] += 1
                    else:
                        found.append(replace(known, fresh=self.fresh(known)))
                except RuntimeError:  # the page with this number was removed
                    continue
        return found

    def _gain_of_more(self, whole: float) -> dict[str, float]:
        """Return how much the freshness would rise if the rate rose by the share `MORE_RATE`; {} if this is not known.

        `whole` is the sum of the importances of all pages.
        """
        policies = policies_of(self._schedule.settings)
        pace = self._schedule.pace
        if not (
            whole and pace.rate and pace.level_is_known and all(policy in BY_LEVEL for policy in policies)
        ):
            return {}
        gain = MORE_RATE * pace.rate * pace.level / whole
        return {"share": MORE_RATE, "gain": round(min(gain, 1.0), 5)}

    def _ages(self, sample: list[PageView], then: float) -> dict[str, float]:
        """Return the ages of the copies in seconds of real time: median, 90th percentile and oldest."""
        ages = sorted(max(then - page.crawled_at, 0.0) / self._speed for page in sample)
        if not ages:
            return {}
        shares = {"median": 0.5, "p90": 0.9, "oldest": 1.0}
        # `np.quantile` would import numpy.ma, which takes a tenth of the CPU time of `crawler status`.
        return {name: round(ages[math.ceil(share * len(ages)) - 1], 1) for name, share in shares.items()}

    def _calibration(self) -> list[dict[str, float]]:
        return [
            {
                "decile": decile,
                "refreshes": int(n),
                "predicted": round(predicted / n, 3),
                "found": round(found / n, 3),
            }
            for decile, (n, predicted, found) in enumerate(self._predicted.tolist())
            if n
        ]

    def _arms_view(self, sample: list[PageView]) -> list[dict[str, Any]]:
        if not isinstance(self._schedule, Arms):
            return []
        pages: list[list[PageView]] = [[] for _ in self._arms]
        for page in sample:
            pages[self._schedule.numbers.arm_of(page.fingerprint)].append(page)
        return [
            _arm_view(schedule.settings.policy, schedule.overview.copies, arm, own)
            for schedule, arm, own in zip(self._schedule.schedules, self._arms, pages, strict=True)
        ]

    def by_host(self, then: float) -> dict[int, tuple[int, float]]:
        """Return host key -> (pages, expected freshness) for the hosts in the sample.

        Pages that are away are not counted. Their number is estimated if the sample does not contain all pages.
        """
        pages: dict[int, list[PageView]] = {}
        for page in self._renewed(then):
            pages.setdefault(page.host, []).append(page)
        found = {}
        for host, own in pages.items():
            views = [schedule.overview.host(host) for schedule in self._schedules]
            mean = _mean(np.array([page.fresh for page in own]), np.array([page.importance for page in own]))
            known = sum(view.pages for view in views)
            found[views[0].key] = (round(known * len(own) / (len(own) + self._away[host])), mean or 0.0)
        return found


def crawl_of(known: PageView, changed: bool) -> tuple[float, Hearing, float, bool, bool, float, float]:
    """Return the arguments of `Recalibration.observe` for the crawl of a page; `known` is the page before the crawl."""
    return (known.fresh, known.hearing, known.stands_for, changed, known.new, known.haste, known.reliability)


def learn(recalibration: Recalibration, schedule: Schedule | Arms, known: PageView, changed: bool) -> None:
    """Learn the correction of P[fresh] from the crawl of a page; `known` is the page before the crawl."""
    if known.rhythm:
        slope = recalibration.observe_in_rhythm(
            known.fresh, known.stands_for, known.idle_weeks, changed, known.site
        )
    else:
        slope = recalibration.observe(*crawl_of(known, changed), site=known.site)
    schedule.facts.set_slope(known.host, slope)


def corrected(recalibration: Recalibration, known: PageView) -> float:
    """Return the corrected probability that a page's copy is current."""
    if known.rhythm:
        return recalibration.corrected_in_rhythm(known.fresh, known.site)
    return recalibration.corrected(
        known.fresh, known.hearing, known.new, known.haste, known.reliability, known.site
    )


def fresh_part(staleness: float) -> float:
    """Return the expected share of an interval that lies before the first change in it.

    The interval is known to contain at least one change. For a Poisson process with the expected number of
    changes x = `staleness`, the result is 1/x - 1/(e^x - 1). This is one half if changes are rare, and about
    1/x if there are many.
    """
    x = min(staleness, 700.0)
    return 0.5 - x / 12.0 if x < 1e-3 else 1.0 / x - 1.0 / math.expm1(x)


def _importance(weights: np.ndarray, pages: int) -> float:
    """Estimate the sum of the importances of `pages` pages from those of a sample."""
    return float(weights.mean()) * pages if len(weights) else 0.0


def _arm_view(policy: str, size: int, arm: _Arm, pages: list[PageView]) -> dict[str, Any]:
    """Return the row of one arm, with the present expectation for its pages and the results of its refreshes."""
    view: dict[str, Any] = {
        "policy": policy,
        "pages": size,
        "refreshes": arm.refreshes,
        "changed": arm.changed,
    }
    if pages:
        fresh = np.array([page.fresh for page in pages])
        weights = np.array([page.importance for page in pages])
        view["importance"] = _importance(weights, size)
        view["expected"] = _round(_mean(fresh, weights))
        view["expected_error"] = _round(float(fresh.std()) / math.sqrt(len(pages)))
    if arm.spans:
        view["spans"] = arm.spans
        view["seen"], view["seen_error"] = map(_round, arm.seen())
    return view


def _mean(values: np.ndarray, weights: np.ndarray) -> float | None:
    """Return the weighted mean; None if there are no values."""
    whole = float(weights.sum()) if len(weights) else 0.0
    return float((values * weights).sum()) / whole if whole else None


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
