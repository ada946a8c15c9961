"""Lets the pages of a synthetic web change as pages of real sites did (`lab/league/histories.py`)."""

from collections.abc import Sequence

import numpy as np

from crawler.errors import UsageError
from crawler.lab.league.histories import SiteHistory


class RealChanges:
    """Replays the last `seconds` of some histories. The replay of the changes begins when the simulated web starts.

    Each host replays one of the sites, and each page of the host replays one page of this site. Sites and
    pages are used in rotation. So the changes of a host's pages are correlated as on the real site. Only
    pages that existed throughout these seconds are used.

    Raises:
        UsageError: no page of these histories existed that long.
    """

    def __init__(self, histories: Sequence[SiteHistory], seconds: float) -> None:
        sites = [_times(history, seconds) for history in histories]
        self._sites = [pages for pages in sites if pages]
        if not self._sites:
            raise UsageError(
                f"no page of these histories exists throughout their last {seconds / 86_400:g} days"
            )

    def __call__(self, host: int, place: int) -> list[float]:
        pages = self._sites[host % len(self._sites)]
        return pages[place % len(pages)]

    @property
    def pages(self) -> int:
        """The number of distinct pages."""
        return sum(map(len, self._sites))

    @property
    def changes(self) -> int:
        """The number of changes of all pages together."""
        return sum(len(times) for pages in self._sites for times in pages)

    def __repr__(self) -> str:
        return f"RealChanges({len(self._sites)} sites, {self.pages} pages, {self.changes} changes)"


def _times(history: SiteHistory, seconds: float) -> list[list[float]]:
    """Return the changes of each page in the last `seconds` of a site's history.

    Only pages that existed during the whole of this time are included. A change is given in seconds from the
    start of this time.
    """
    end = history.end
    begin = end - seconds
    lived = (history.born <= begin) & ((history.died == 0) | (history.died >= end))
    order = np.lexsort((history.time, history.page))
    page, time = history.page[order], history.time[order]
    inside = time > begin
    page, time = page[inside], time[inside] - begin
    bounds = np.searchsorted(page, np.arange(len(history.born) + 1))
    return [time[bounds[each] : bounds[each + 1]].astype(float).tolist() for each in np.flatnonzero(lived)]
