"""Who starts next, discovery or refresh: a share of the fetches while both have work.

Fetches are counted, not time: an idle side saves up a claim to at most one fetch.
So no burst follows a pause, a restart or a jump of the clock. `hosts/rate.py`
says when fetches start.
"""

from enum import Enum

from crawler.errors import UsageError


class Side(Enum):
    DISCOVERY = "discovery"
    REFRESH = "refresh"


class Share:
    """`refresh` (0 .. 1) of the fetches go to refresh, the rest to discovery; either takes what the other leaves."""

    def __init__(self, refresh: float) -> None:
        if not 0.0 <= refresh <= 1.0:
            raise UsageError(f"refresh_share {refresh} is not within 0 .. 1")
        self.refresh = refresh
        self._credit = 0.5  # fetches that refresh is owed, -1 .. 1

    def first(self, *, discovery: bool, refresh: bool) -> Side | None:
        """Whose turn it is, of the sides that have work; None if neither has. Decides nothing."""
        if discovery and refresh:
            return Side.REFRESH if self._credit + self.refresh >= 1.0 else Side.DISCOVERY
        if discovery:
            return Side.DISCOVERY
        return Side.REFRESH if refresh else None

    def spend(self, side: Side, *, contended: bool) -> None:
        """A fetch of `side` starts; only one for which both had work (`contended`) counts."""
        if contended:
            self._credit += self.refresh - (side is Side.REFRESH)
            self._credit = min(max(self._credit, -1.0), 1.0)

    def __repr__(self) -> str:
        return f"Share({self.refresh:g} to refresh, owed {self._credit:+.2f})"
