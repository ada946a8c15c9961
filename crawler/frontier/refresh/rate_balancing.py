"""Makes the levels of all processes equal by moving the rate of refreshes to where it gains most.

The level of a process is the least crawl value at which it fetches a page. A higher rate gains more in a process
with a high level. So the processes send each other a `LevelReport` of a few bytes with each heartbeat, and divide
the rate by their *weights* w (`frontier/refresh/README.md`, "Many processes"):

    w_i = pages_i tilt_i,    tilt_i' = tilt_i exp(step (ln L_i - mean ln L)),    share_i = w_i / sum w

L_i is the level of process i, and tilt_i' is its new tilt. The mean of ln L is weighted by the weights w.
Changing the tilts in this way is the method of multiplicative weights. Only the process itself changes its
weight. When pages are added, the weights change immediately with the numbers of pages, but the tilts, which
are learned, are kept. After `reshard`, all tilts are 1 again. A process is idle if everything that it could
request must wait. An idle process is treated as if its level were far below the mean. A silent process keeps
its last weight, because it may still run.

`step` is small, because levels follow a change of the rate only slowly, within about the mean time between
two crawls of a page.
"""

import math
from collections.abc import Mapping

import msgspec

STEP = 0.25  # part of a difference between levels that is corrected within the mean time between two crawls
STEP_MAX = 0.05  # maximum step per exchange
IDLE = -1.0  # logarithm of the level of an idle process, relative to the mean
AHEAD_MAX = 4.0  # maximum difference between the logarithm of a level and the mean
# The tilt is kept between 1 / TILT_MAX and TILT_MAX. From both bounds, the tilt can still return to an
# average value.
TILT_MAX = 1e3
SMOOTHING = 0.02  # the reported level is averaged over this part of the mean time between two crawls


class LevelReport(msgspec.Struct, frozen=True, array_like=True):
    """The message of a process to its peers. `busy` is True if the process has work that need not wait."""

    level: float
    weight: float
    busy: bool = True


class Balance:
    """The state of one process: its smoothed level and its tilt; `name` is the key of the process in the reports."""

    def __init__(self, name: str, tilt: float = 1.0) -> None:
        self.name = name
        self.tilt = _bounded(tilt)
        self._told = 0.0  # the smoothed logarithm of the level
        self._known = False
        self._at = -math.inf

    def report(self, level: float, pages: int, busy: bool, now: float, revisit: float) -> LevelReport:
        """Return the report for the other processes; `revisit` is the mean time between two crawls of a page here."""
        if not (pages and 0.0 < level < math.inf):
            return LevelReport(0.0, 0.0, False)
        weight = 1.0 if not self._known else -math.expm1(-max(now - self._at, 0.0) / (SMOOTHING * revisit))
        self._told += weight * (math.log(level) - self._told)
        self._known, self._at = True, now
        return LevelReport(math.exp(self._told), pages * self.tilt, busy)

    def renew(self, reports: Mapping[str, LevelReport], elapsed: float, revisit: float) -> float:
        """Return the new tilt, given the `reports` of all processes, including that of this process.

        `elapsed` is the time since the last exchange.
        """
        usable = {name: report for name, report in reports.items() if _sane(report)}
        if self.name in usable and len(usable) > 1:
            step = min(STEP * max(elapsed, 0.0) / revisit, STEP_MAX)
            self.tilt = _bounded(self.tilt * math.exp(step * lead(usable, self.name)))
        return self.tilt


def lead(reports: Mapping[str, LevelReport], name: str) -> float:
    """Return ln(level) of the process `name` minus the mean over the busy processes; IDLE if it is not busy."""
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
    """Return the parts of the whole rate that a process gets: (for new pages, for known pages).

    Args:
        discovery: the part, 0 to 1, that the process gets of the total rate for new pages.
        refresh: the part, 0 to 1, that the process gets of the total rate for known pages.
        share: share of the whole rate that is for known pages if some process has new pages, too.
        work: whether any process has new pages to fetch.
        pages: whether any process has known pages.
    """
    known = 0.0 if not pages else share if work else 1.0
    return (1.0 - known) * discovery, known * refresh


def _bounded(tilt: float) -> float:
    return min(max(tilt, 1.0 / TILT_MAX), TILT_MAX) if tilt == tilt else 1.0


def _sane(report: LevelReport) -> bool:
    return 0.0 < report.level < math.inf and 0.0 < report.weight < math.inf
