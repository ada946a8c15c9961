"""The copies that a crawl has of pages, and the time in which each copy was current."""

import math
from bisect import bisect_left, bisect_right
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
        contents: for each page, its content after 0, 1, ... changes. A copy is current while the page has the
            content of the copy. Without contents, every change makes a new content.
    """

    def __init__(
        self,
        changes: Sequence[Sequence[float]],
        begin: float,
        ends: Sequence[float],
        contents: Sequence[Sequence[int]] = (),
    ) -> None:
        self._changes, self._begin, self._ends, self._contents = changes, begin, ends, contents
        self.last = [math.inf] * len(ends)  # the instant of each copy; infinite if there is none
        self.seen = [0] * len(ends)  # the number of changes that each copy contains
        self.current = [0.0] * len(ends)

    def keep(self, page: int, now: float) -> bool:
        """Copy a page; return whether it has changed since the last copy."""
        self._count(page, now)
        place = bisect_right(self._changes[page], now, self.seen[page])
        changed = place > self.seen[page]
        if changed and self._contents:
            changed = self._contents[page][place] != self._contents[page][self.seen[page]]
        self.seen[page], self.last[page] = place, now
        return changed

    def count_until(self, now: float) -> list[float]:
        """Return the time in which each page's copy was current, up to `now`. Time before `now` then no longer counts."""
        for page, end in enumerate(self._ends):
            self._count(page, min(now, end))
        counted, self.current = self.current, [0.0] * len(self._ends)
        self._begin = max(self._begin, now)
        return counted

    def end(self) -> list[float]:
        """End the copies of all pages; return the time in which each page's copy was current."""
        for page, until in enumerate(self._ends):
            self._count(page, until)
        return self.current

    def _count(self, page: int, until: float) -> None:
        begin, end = max(self.last[page], self._begin), min(until, self._ends[page])
        changes, version = self._changes[page], self.seen[page]
        self.current[page] += fresh_time(changes, version, begin, end)
        if self._contents and begin < end:
            contents = self._contents[page]
            for later in range(version + 1, bisect_left(changes, end) + 1):
                if contents[later] == contents[version]:
                    self.current[page] += fresh_time(changes, later, max(begin, changes[later - 1]), end)
