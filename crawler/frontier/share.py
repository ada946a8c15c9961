"""Who starts next, discovery or refresh, while both have work.

A fixed share: fetches are counted, not time. An idle side saves up a claim to at most one fetch, so no burst follows
a pause, a restart or a jump of the clock. `hosts/rate.py` says when fetches start.

`auto`: the side whose next fetch is worth more, in the units of the crawl value (`frontier/README.md`, "One price").
Each side gets at least `LEAST` of the fetches, so that neither starves.
"""

from enum import Enum
from typing import Literal

from crawler.errors import UsageError

LEAST = 0.05
_MEMORY = 64.0  # contended fetches over which the share that came out is averaged


class Side(Enum):
    DISCOVERY = "discovery"
    REFRESH = "refresh"


class Share:
    """`refresh` (0 .. 1) of the fetches go to refresh, the rest to discovery; either takes what the other leaves.

    With `auto`, `refresh` is the share that came out lately.
    """

    def __init__(self, refresh: float | Literal["auto"]) -> None:
        self._credit = 0.5  # fetches that refresh is owed, -1 .. 1
        self.set(refresh)

    def set(self, refresh: float | Literal["auto"]) -> None:
        """Divide fetches so from now on.

        Raises:
            UsageError: not within 0 .. 1.
        """
        self.auto = refresh == "auto"
        self.refresh = 0.5 if refresh == "auto" else refresh
        if not 0.0 <= self.refresh <= 1.0:
            raise UsageError(f"refresh_share {refresh} is not within 0 .. 1")

    def first(self, *, discovery: bool, refresh: bool, new: float = 0.0, known: float = 0.0) -> Side | None:
        """Return whose turn it is, of the sides that have work; None if neither has. Decides nothing.

        `new` and `known` are what the next fetch of each side is worth; only `auto` looks at them.
        """
        if not (discovery and refresh):
            return Side.DISCOVERY if discovery else Side.REFRESH if refresh else None
        if not self.auto:
            return Side.REFRESH if self._credit + self.refresh >= 1.0 else Side.DISCOVERY
        if self.refresh < LEAST:
            return Side.REFRESH
        if self.refresh > 1.0 - LEAST:
            return Side.DISCOVERY
        return Side.REFRESH if known > new else Side.DISCOVERY

    def spend(self, side: Side, *, contended: bool) -> None:
        """A fetch of `side` starts; only one for which both had work (`contended`) counts."""
        if not contended:
            return
        if self.auto:
            self.refresh += ((side is Side.REFRESH) - self.refresh) / _MEMORY
        else:
            self._credit += self.refresh - (side is Side.REFRESH)
            self._credit = min(max(self._credit, -1.0), 1.0)

    def __repr__(self) -> str:
        if self.auto:
            return f"Share(auto, {self.refresh:.2f} to refresh lately)"
        return f"Share({self.refresh:g} to refresh, owed {self._credit:+.2f})"
