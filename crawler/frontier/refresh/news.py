"""Statistics of the new pages found by refetching known pages and by signals: their number, their hubs, and delays.

    m/news     the time at which counting began, the pages found by kind of hub, the histogram of delays

The hub that was the first to show a URL is credited when the URL becomes a page (`Schedule.credit_hub`). The
hub's process counts the page under the kind of the hub. A page that only change signals have named counts
under the kind `signal`. If the publication date of the page is known, the page's own process counts the delay
from publication to copy (`delays.py`). The publication date is the date given by the sitemap or feed that
showed the URL, or the time of the first signal (`births.py`). If there is neither, it is the page's
Last-Modified.
A page older than `NEWS_AGE_MAX` is not counted as new.

The record is written in the batch of the page that it counts, so a crash loses a count only together with the
page. When a crawl is resharded, one of the new processes gets the sums of the old ones.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from crawler.frontier.refresh.delays import bin_of, delay_within
from crawler.records import LinkFlag, PageRecord
from crawler.storage.keys import NEWS
from crawler.storage.kv import Batch, KeyValue
from crawler.storage.reshard import load, pack

NEWS_AGE_MAX = 365.0 * 86_400.0
_ROUNDING = 1.0  # dates are stated in whole seconds, and may be rounded up
_SITEMAP, _FEED = LinkFlag.SITEMAP, LinkFlag.FEED


class NewsCounts(msgspec.Struct, array_like=True):
    """The stored counts of a process. `since` is the instant at which counting began; 0 if it has not begun."""

    since: float = 0.0
    by_kind: dict[str, int] = {}
    delays: dict[int, int] = {}


class News:
    """Counts new pages; all instants are on the crawl's clock."""

    def __init__(self) -> None:
        self.counts = NewsCounts()
        self._is_stored = False

    def open(self, store: KeyValue, now: float) -> None:
        """Load the stored counts; if there are none, counting begins now.

        Raises:
            DamageError: the record is damaged.
        """
        self.counts = stored_counts(store)
        self._is_stored = self.counts.since > 0.0
        self.counts.since = min(self.counts.since, now) if self._is_stored else now

    def begin(self, batch: Batch) -> None:
        """Store the time at which counting began, if it is not stored yet."""
        if not self._is_stored:
            self._stage(batch)

    def found(self, kind: str, batch: Batch) -> None:
        """Count a page that is credited to a hub of this kind, or that a `signal` has named."""
        self.counts.by_kind[kind] = self.counts.by_kind.get(kind, 0) + 1
        self._stage(batch)

    def copied(self, born: float | None, now: float, batch: Batch) -> None:
        """Count the first copy of a page that a hub had shown. `born` is the publication date, if it is known."""
        if born is not None and -_ROUNDING <= now - born <= NEWS_AGE_MAX:
            number = bin_of(max(now - born, 0.0))
            self.counts.delays[number] = self.counts.delays.get(number, 0) + 1
            self._stage(batch)

    def _stage(self, batch: Batch) -> None:
        batch.put(NEWS, pack(self.counts))
        self._is_stored = True

    def view(self, now: float) -> dict[str, Any]:
        """Return the status section: the pages found, per day and by kind of hub, and the delays of dated pages."""
        found = sum(self.counts.by_kind.values())
        days = (now - self.counts.since) / 86_400.0
        return {
            "found": found,
            "per_day": round(found / days, 2) if days > 0.0 else None,
            "by_kind": dict(self.counts.by_kind),
            "dated": sum(self.counts.delays.values()),
            "delays": {str(number): count for number, count in sorted(self.counts.delays.items())},
            "delay_median": delay_within(self.counts.delays, 0.5),
            "delay_p90": delay_within(self.counts.delays, 0.9),
        }

    def __repr__(self) -> str:
        return f"News({sum(self.counts.by_kind.values())} found)"


def stored_counts(store: KeyValue) -> NewsCounts:
    """Return the stored counts of a process; zeros if there are none."""
    return load(store, NEWS, NewsCounts, NewsCounts())


def added(counts: Iterable[NewsCounts]) -> NewsCounts:
    """Return the sums of the counts of several processes. Counting began when it began in the first of them."""
    whole = NewsCounts()
    for each in counts:
        if each.since > 0.0:
            whole.since = min(whole.since or each.since, each.since)
        for name, count in each.by_kind.items():
            whole.by_kind[name] = whole.by_kind.get(name, 0) + count
        for number, count in each.delays.items():
            whole.delays[number] = whole.delays.get(number, 0) + count
    return whole


def kind_of(hub: PageRecord) -> str:
    """Return the kind of a hub: `sitemap`, `feed` or `page`."""
    if hub.flags & _SITEMAP:
        return "sitemap"
    return "feed" if hub.flags & _FEED else "page"
