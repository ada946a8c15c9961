"""Divides the fetches between discovery and refresh while both have work.

A fixed share applies to the number of fetches, not to time. A fetch of one side while the other side is idle
does not count, and a side is never owed more than one fetch, so no burst follows a pause, a restart or a
clock jump. `hosts/rate.py` decides when fetches start.

With the share `auto`, the next fetch goes to the side whose fetch is worth more, in units of crawl value
(`frontier/README.md`, "One price"). Each side gets at least `LEAST` of the fetches, so that neither starves. This holds
from the first fetches of a run on, because a crawl may consist of many short runs.
"""

from enum import Enum
from typing import Literal

from crawler.errors import UsageError

LEAST = 0.05
# The actual share is averaged over this number of fetches. Only fetches made while both discovery and refresh
# had work are counted.
_MEMORY = 64.0


class UsualImportance:
    """The mean importance of the new URLs fetched so far; the importance of the next new URL is divided by this mean.

    The importance of a new URL falls with its depth; that of a known page does not. Dividing by the mean
    makes the two comparable: at the depth of most pages, a new page is worth as much as a known one. One URL
    of importance 1 is counted in advance, because the mean is not stored and begins anew after a restart.
    Otherwise, the first URLs after a restart would determine the mean: on an endless site, URLs that lie far
    deeper than all other pages would be worth as much as known pages.
    """

    def __init__(self) -> None:
        self._mean, self._count = 1.0, 1

    def note(self, importance: float) -> None:
        """Count a new URL that is fetched."""
        self._count += 1
        self._mean += (importance - self._mean) / self._count

    def relative(self, importance: float) -> float:
        """Return the importance as a multiple of the mean."""
        return importance / self._mean

    def __repr__(self) -> str:
        return f"UsualImportance({self._mean:.3g})"


class Side(Enum):
    DISCOVERY = "discovery"
    REFRESH = "refresh"


class Share:
    """Divides the fetches between two sides: refresh gets the share `refresh` (0 to 1), discovery gets the rest.

    If a side is idle, the other side gets its part. With `auto`, `refresh` is the recent actual share.
    `of_crawl` is the share that applies to all processes of the crawl together. The share of one process
    differs from `of_crawl` if the process fetches more or less than its part of the new pages.
    """

    def __init__(self, refresh: float | Literal["auto"]) -> None:
        self._credit = 0.5  # number of fetches by which refreshes are behind their share, from -1 to 1
        # with `auto`: number of fetches by which each side is behind the share `LEAST`, from 0 to 1
        self._owed = {Side.DISCOVERY: 0.5, Side.REFRESH: 0.5}
        self.set(refresh)

    def set(self, refresh: float | Literal["auto"]) -> None:
        """Set the share for future fetches.

        Raises:
            UsageError: `refresh` is not within 0 .. 1.
        """
        self.auto = refresh == "auto"
        self.refresh = self._fixed = 0.5 if refresh == "auto" else refresh
        if not 0.0 <= self.refresh <= 1.0:
            raise UsageError(f"refresh_share {refresh} is not within 0 .. 1")

    @property
    def of_crawl(self) -> float:
        """The share of refresh in the whole crawl."""
        return self.refresh if self.auto else self._fixed

    def first(self, *, discovery: bool, refresh: bool, new: float = 0.0, known: float = 0.0) -> Side | None:
        """Return the side that may make the next fetch, or None if neither side has work. This changes nothing.

        If only one side has work, that side is returned. `new` and `known` are the values of the next fetch
        of each side; only `auto` uses them.
        """
        if not (discovery and refresh):
            return Side.DISCOVERY if discovery else Side.REFRESH if refresh else None
        if not self.auto:
            return Side.REFRESH if self._credit + self.refresh >= 1.0 else Side.DISCOVERY
        for side, owed in self._owed.items():
            if owed >= 1.0:
                return side
        return Side.REFRESH if known > new else Side.DISCOVERY

    def spend(self, side: Side, *, contended: bool) -> None:
        """Count a fetch of `side`. The fetch changes the credit only if both sides had work (`contended`)."""
        if not contended:
            return
        if self.auto:
            self.refresh += ((side is Side.REFRESH) - self.refresh) / _MEMORY
            for each, owed in self._owed.items():
                self._owed[each] = min(max(owed + LEAST - (each is side), 0.0), 1.0)
        else:
            self._credit += self.refresh - (side is Side.REFRESH)
            self._credit = min(max(self._credit, -1.0), 1.0)

    def __repr__(self) -> str:
        if self.auto:
            return f"Share(auto, {self.refresh:.2f} to refresh lately)"
        return f"Share({self.refresh:g} to refresh, owed {self._credit:+.2f})"
