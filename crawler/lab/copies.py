"""The copies that a crawl has of pages, and the time in which each copy was current."""

import math
from bisect import bisect_right
from collections.abc import Sequence


def fresh_time(changes: Sequence[float], version: int, begin: float, end: float) -> float:
    """Return the time from `begin` to `end` in which a copy that contains the first `version` changes was current."""
    stale = changes[version] if version < len(changes) else math.inf
    return max(0.0, min(stale, end) - begin)


class Copies:
    """The latest copy of each page, and the time in which the copies were current.

    Args:
        changes: the sorted instants of each page's changes.
        begin: time before this instant does not count.
        ends: for each page, time after this instant does not count.
    """

    def __init__(self, changes: Sequence[Sequence[float]], begin: float, ends: Sequence[float]) -> None:
        self._changes, self._begin, self._ends = changes, begin, ends
        self.last = [math.inf] * len(ends)  # the instant of each copy; infinite if there is none
        self.seen = [0] * len(ends)  # the number of changes that each copy contains
        self.current = [0.0] * len(ends)

    def keep(self, page: int, now: float) -> bool:
        """Copy a page; return whether it has changed since the last copy."""
        self._count(page, now)
        place = bisect_right(self._changes[page], now, self.seen[page])
        changed = place > self.seen[page]
        self.seen[page], self.last[page] = place, now
        return changed

    def end(self) -> list[float]:
        """End the copies of all pages; return the time in which each page's copy was current."""
        for page, until in enumerate(self._ends):
            self._count(page, until)
        return self.current

    def _count(self, page: int, until: float) -> None:
        begin = max(self.last[page], self._begin)
        self.current[page] += fresh_time(
            self._changes[page], self.seen[page], begin, min(until, self._ends[page])
        )
