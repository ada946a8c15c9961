"""Statistics of the new pages found by refetching known pages: their number, the kinds of their hubs, and delays.

The hub that was the first to show a URL is credited when the URL becomes a page (`Schedule.credit_hub`). The
hub's process counts the page under the kind of the hub. If the publication date of the page is known, the
page's own process counts the delay from publication to copy, in a histogram whose bins grow by a factor of
1.2. The publication date is the date given by the sitemap or feed that showed the URL (`births.py`) or, if
there is none, the page's Last-Modified. A page older than `NEWS_AGE_MAX` is not counted as new. All counts
start at 0 when the process opens its store.
"""

import math
from collections import Counter
from typing import Any

import numpy as np

from crawler import http_dates
from crawler.records import LinkFlag, PageRecord

NEWS_AGE_MAX = 365.0 * 86_400.0
_BINS = 128  # number of bins of the histogram, which covers delays from one second to 1.2^128 s
_GROWTH = math.log(1.2)
_SITEMAP, _FEED = LinkFlag.SITEMAP, LinkFlag.FEED


class News:
    """Collects credits from the instant `since` on; all instants are on the crawl's clock."""

    def __init__(self) -> None:
        self.since = math.inf
        self._delays = np.zeros(_BINS, np.int64)
        self.by_kind: Counter[str] = Counter()

    def found(self, kind: str) -> None:
        """Count a page that is credited to a hub of this kind."""
        self.by_kind[kind] += 1

    def copied(self, born: float | None, record: PageRecord, now: float) -> None:
        """Count the first fetch of a page that a hub had shown. `born` is the publication date, if one was given."""
        if born is None:
            born = http_dates.instant(record.last_modified)
        if born is not None and 0.0 <= now - born <= NEWS_AGE_MAX:
            self._delays[min(int(math.log(max(now - born, 1.0)) / _GROWTH), _BINS - 1)] += 1

    def delay(self, share: float) -> float | None:
        """Return the delay within which this share of the dated pages was fetched (seconds, exact to 10 %).

        Return None if there are no dated pages.
        """
        total = int(self._delays.sum())
        if not total:
            return None
        place = int(np.searchsorted(np.cumsum(self._delays), share * total))
        return round(math.exp((place + 0.5) * _GROWTH), 1)

    def view(self, now: float) -> dict[str, Any]:
        """Return the status section: the pages found, per day and by kind of hub, and the delays of dated pages."""
        found = self.by_kind.total()
        days = (now - self.since) / 86_400.0
        return {
            "found": found,
            "per_day": round(found / days, 2) if days > 0.0 else None,
            "by_kind": dict(self.by_kind),
            "dated": int(self._delays.sum()),
            "delay_median": self.delay(0.5),
            "delay_p90": self.delay(0.9),
        }

    def __repr__(self) -> str:
        return f"News({self.by_kind.total()} found)"


def kind_of(hub: PageRecord) -> str:
    """Return the kind of a hub: `sitemap`, `feed` or `page`."""
    if hub.flags & _SITEMAP:
        return "sitemap"
    return "feed" if hub.flags & _FEED else "page"
