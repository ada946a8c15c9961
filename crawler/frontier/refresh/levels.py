"""Equal levels in all processes: how the rate of refreshes moves to where it gains most.

The best schedule has one level (value of the marginal page) everywhere. Each
process finds the level of its own pages for its own rate; where the level is
high, more rate gains more. So processes tell each other a `LevelReport` of a few
bytes now and then, and each computes from the same reports, by the same rule,
what part of the whole is its own:

    w_i' = w_i exp(step (ln L_i - mean ln L)),   share_i = w_i' / sum w'

(multiplicative weights; the mean is weighted by w). Reports that differ for a
moment make the shares' sum differ from 1 by as much, until they agree. A process that
is idle (all it could ask must wait) is as one whose level is far lower. One from which
nothing was heard keeps the share it last had: it may well go on.

The step is small against the time in which levels follow a rate, the mean time
between two crawls of a page.
"""

import math
from collections.abc import Mapping

import msgspec

from crawler.errors import UsageError

STEP = 0.25  # of the difference, in a mean time between two crawls
STEP_MAX = 0.05  # at one exchange
IDLE = -1.0  # what an idle process's ln level counts against the mean
SHARE_MIN = 1e-3  # from which a process can come back
SMOOTHING = 0.02  # of the mean time between two crawls, over which the told level is averaged


class LevelReport(msgspec.Struct, frozen=True, array_like=True):
    """What a process tells the others. `share` of the whole rate, `busy`: it has work that need not wait."""

    level: float
    share: float
    busy: bool = True


class LevelExchange:
    """One process's part. `name` is its key among the reports; `share` starts where the caller says."""

    def __init__(self, name: str, share: float) -> None:
        if not 0.0 < share <= 1.0:
            raise UsageError(f"share {share} is not within 0 .. 1")
        self.name = name
        self.share = share
        self._told = 0.0  # smoothed ln level
        self._known = False
        self._at = -math.inf

    def report(self, level: float, busy: bool, now: float, revisit: float) -> LevelReport:
        """What to tell the others now; `revisit` is the mean time between two crawls of a page here."""
        wanted = math.log(level)
        weight = 1.0 if not self._known else -math.expm1(-max(now - self._at, 0.0) / (SMOOTHING * revisit))
        self._told += weight * (wanted - self._told)
        self._known, self._at = True, now
        return LevelReport(math.exp(self._told), self.share, busy)

    def renew(self, reports: Mapping[str, LevelReport], elapsed: float, revisit: float) -> float:
        """This process's share after an exchange of `reports` (its own among them), `elapsed` after the last.

        `revisit` is the mean time between two crawls of a page over all processes.
        """
        usable = {name: report for name, report in reports.items() if _sane(report)}
        if self.name in usable and len(usable) > 1:
            step = min(STEP * max(elapsed, 0.0) / revisit, STEP_MAX)
            weights = shares_of(usable, step)
            self.share = weights[self.name]
        return self.share


def shares_of(reports: Mapping[str, LevelReport], step: float) -> dict[str, float]:
    """The shares after one step, by name; they sum to 1."""
    busy = [report for report in reports.values() if report.busy]
    whole = sum(report.share for report in busy)
    mean = sum(report.share * math.log(report.level) for report in busy) / whole if busy else 0.0
    weights = {}
    for name, report in reports.items():
        ahead = math.log(report.level) - mean if report.busy else IDLE
        weights[name] = max(report.share * math.exp(step * max(-4.0, min(ahead, 4.0))), SHARE_MIN)
    total = sum(weights.values())
    return {name: weight / total for name, weight in weights.items()}


def _sane(report: LevelReport) -> bool:
    """Whether a peer's numbers can be used."""
    return 0.0 < report.level < math.inf and 0.0 < report.share <= 1.0
