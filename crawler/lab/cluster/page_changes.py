"""Changes of pages of a synthetic web as pages of real sites changed (`lab/league/histories.py`)."""

from collections.abc import Sequence

import numpy as np

from crawler.errors import UsageError
from crawler.lab.league.histories import SiteHistory


class RealChanges:
    """The last `seconds` of some histories, played from the start of a web.

    A host is given a site, a page one of the site's pages that lived all that time, each in
    turn: so hosts keep what their pages have in common.

    Raises:
        UsageError: no page of these histories lived so long.
    """

    def __init__(self, histories: Sequence[SiteHistory], seconds: float) -> None:
        sites = [_times(history, seconds) for history in histories]
        self._sites = [pages for pages in sites if pages]
        if not self._sites:
            raise UsageError(f"no page of these histories lives in their last {seconds / 86_400:g} days")

    def __call__(self, host: int, place: int) -> list[float]:
        """Seconds from the start of each change, ascending."""
        pages = self._sites[host % len(self._sites)]
        return pages[place % len(pages)]

    @property
    def pages(self) -> int:
        """How many different pages there are."""
        return sum(map(len, self._sites))

    @property
    def changes(self) -> int:
        """How often they change, all together."""
        return sum(len(times) for pages in self._sites for times in pages)

    def __repr__(self) -> str:
        return f"RealChanges({len(self._sites)} sites, {self.pages} pages, {self.changes} changes)"


def _times(history: SiteHistory, seconds: float) -> list[list[float]]:
    """The changes of each page that lived through the last `seconds` of a site, from the begin of these."""
    end = history.end
    begin = end - seconds
    lived = (history.born <= begin) & ((history.died == 0) | (history.died >= end))
    order = np.lexsort((history.time, history.page))
    page, time = history.page[order], history.time[order]
    inside = time > begin
    page, time = page[inside], time[inside] - begin
    bounds = np.searchsorted(page, np.arange(len(history.born) + 1))
    return [time[bounds[each] : bounds[each + 1]].astype(float).tolist() for each in np.flatnonzero(lived)]
