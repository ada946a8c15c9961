"""Corrects instants that were stored while the clock was behind.

A machine whose clock has no battery may begin a run in 1970, and the next one in the present. Without a
correction, the next crawl of a page that was crawled in the first of these runs would seem to come fifty
years later. If this next crawl finds the page unchanged, T, the time for which the page was watched, would
grow by fifty years, and the page would hardly be fetched again.

    earlier run     stores instants up to X
    run behind      begins at `since`, before X, with `lead` = X - since; stores instants up to `last`
    later run       begins at `now`; if now - last >= lead, the clock has made up for the lead

At the start of the run whose clock is behind, it is not known which of the two clocks was wrong. The start of
the later run shows which clock was wrong. If the later run begins less than `lead` after `last`, the clock of
the earlier run was ahead, and the instants of the run behind are correct. In this case, nothing is corrected.
If the later run begins at least `lead` after `last`, the clock of the run behind was wrong. The instants from
`since` to `last` are then moved forward by `lead`. The moved instants are still too early, by the time that
passed between the earlier run and the run behind.

If the clock is already behind in the first run of a crawl, no earlier instant shows that the clock is wrong.
But a clock that shows a time before `EARLIEST` is certainly wrong, so a run that begins before `EARLIEST` has
an infinite lead. The first run that begins after `EARLIEST` replaces the infinite lead with the time from
`last` to its own start. The moved instants are then too late, by the time that passed between the two runs.
"""

import math
from typing import NamedTuple

import numpy as np

# 2025-01-01. The crawler is younger, so a clock that shows an earlier time is wrong.
EARLIEST = 1_735_689_600.0


class SetBack(NamedTuple):
    """A run that began with a clock behind the instants of earlier runs, or before `EARLIEST`.

    `since` is the time that its clock showed at the start of the run. `last` is the latest instant that the run
    stored. `lead` is the time from `since` to the latest instant of an earlier run, in seconds; it is infinite
    if there was no earlier run and the clock has not become right yet.
    """

    since: float
    last: float
    lead: float

    def has_ended(self, now: float) -> bool:
        """Return whether the clock has advanced by at least `lead` since `last`."""
        return now >= EARLIEST if math.isinf(self.lead) else now - self.last >= self.lead

    def settled(self, now: float) -> "SetBack":
        """Return the record of this run with a finite lead if the run has ended, as known when a run begins at `now`."""
        if math.isinf(self.lead) and self.has_ended(now):
            return self._replace(lead=now - self.last)
        return self

    def extended(self, instant: float) -> "SetBack":
        """Return the record of this run after the run has stored `instant`.

        If `instant` belongs to a later run, the record is unchanged.
        """
        return self if instant <= self.last or self.has_ended(instant) else self._replace(last=instant)

    def corrected(self, instants: np.ndarray) -> np.ndarray:
        """Return `instants`, (n,), after moving the instants of this run forward by the lead."""
        own = (instants >= self.since) & (instants <= self.last)
        return np.where(own, instants + self.lead, instants)


def at_start(known: SetBack | None, now: float, lead: float) -> SetBack | None:
    """Return the latest run whose clock was behind, as known when a run begins at `now`.

    `known` is the latest such run that is stored, and `lead` is the number of seconds by which stored instants
    are in the future.
    """
    if lead <= 0.0:
        return SetBack(now, now, math.inf) if known is None and now < EARLIEST else known
    if known is not None and now < known.since + known.lead:
        return known._replace(since=min(known.since, now))
    return SetBack(now, now, lead)
