"""Equal levels in all processes: how the rate of refreshes moves to where it gains most.

The best schedule has one level (value of the marginal page) everywhere. Each
process finds the level of its own pages for its own rate; where the level is
high, more rate gains more. So processes tell each other a `LevelReport` of a few
bytes with each heartbeat. A process's part of the rate is its *weight* among all,

    w_i = pages_i tilt_i,    tilt_i' = tilt_i exp(step (ln L_i - mean ln L)),    share_i = w_i / sum w

(multiplicative weights; the mean is weighted by w). Only the process itself changes
its weight. Added pages, and pages that `reshard` moved, count at once; the tilt that
was learned stays. An idle process (all it could ask must wait) counts as one with a
far lower level. A silent process keeps its last weight: it may well be running.

The step is small against the time in which levels follow a rate, the mean time
between two crawls of a page.
"""

import math
from collections.abc import Mapping

import msgspec

STEP = 0.25  # of the difference, in a mean time between two crawls
STEP_MAX = 0.05  # at one exchange
IDLE = -1.0  # what an idle process's ln level counts against the mean
AHEAD_MAX = 4.0  # of ln level, against the mean
TILT_MAX = 1e3  # either way: from there a process can come back
SMOOTHING = 0.02  # of the mean time between two crawls, over which the told level is averaged


class LevelReport(msgspec.Struct, frozen=True, array_like=True):
    """What a process tells the others; `busy`: it has work that need not wait."""

    level: float
    weight: float
    busy: bool = True


class Balance:
    """One process's part: its level, averaged, and its tilt. `name` is its key among the reports."""

    def __init__(self, name: str, tilt: float = 1.0) -> None:
        self.name = name
        self.tilt = _bounded(tilt)
        self._told = 0.0  # smoothed ln level
        self._known = False
        self._at = -math.inf

    def report(self, level: float, pages: int, busy: bool, now: float, revisit: float) -> LevelReport:
        """What to tell the others now; `revisit` is the mean time between two crawls of a page here."""
        if not (pages and 0.0 < level < math.inf):
            return LevelReport(0.0, 0.0, False)
        weight = 1.0 if not self._known else -math.expm1(-max(now - self._at, 0.0) / (SMOOTHING * revisit))
        self._told += weight * (math.log(level) - self._told)
        self._known, self._at = True, now
        return LevelReport(math.exp(self._told), pages * self.tilt, busy)

    def renew(self, reports: Mapping[str, LevelReport], elapsed: float, revisit: float) -> float:
        """The tilt after an exchange of `reports` (this process's own among them), `elapsed` after the last."""
        usable = {name: report for name, report in reports.items() if _sane(report)}
        if self.name in usable and len(usable) > 1:
            step = min(STEP * max(elapsed, 0.0) / revisit, STEP_MAX)
            self.tilt = _bounded(self.tilt * math.exp(step * lead(usable, self.name)))
        return self.tilt


def lead(reports: Mapping[str, LevelReport], name: str) -> float:
    """By how much the ln level of `name` is above the mean of those that are busy; IDLE if it is not."""
    own = reports[name]
    if not own.busy:
        return IDLE
    busy = [report for report in reports.values() if report.busy]
    whole = sum(report.weight for report in busy)
    mean = sum(report.weight * math.log(report.level) for report in busy) / whole
    return max(-AHEAD_MAX, min(math.log(own.level) - mean, AHEAD_MAX))


def portions(
    discovery: float, refresh: float, share: float, *, work: bool, pages: bool
) -> tuple[float, float]:
    """The parts of the whole rate that a process has for new and for known pages.

    Args:
        discovery, refresh: its parts, 0 to 1, of what all processes spend on either.
        share: of the rate for known pages, where some process has new ones too.
        work, pages: whether any process has new pages to ask; known ones.
    """
    known = 0.0 if not pages else share if work else 1.0
    return (1.0 - known) * discovery, known * refresh


def _bounded(tilt: float) -> float:
    return min(max(tilt, 1.0 / TILT_MAX), TILT_MAX) if tilt == tilt else 1.0


def _sane(report: LevelReport) -> bool:
    """Whether a peer's numbers can be used."""
    return 0.0 < report.level < math.inf and 0.0 < report.weight < math.inf
