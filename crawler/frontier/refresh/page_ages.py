"""Sets the minimum and maximum ages of single pages, from an override or from the reading interval of a source.

A source is a page whose content is signals about other pages: a sitemap or a feed (`sources.py`). The age of
a source is bounded by its reading interval, unless the user has set bounds for this page.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from crawler.config import Overrides, RefreshConfig
from crawler.frontier.refresh.arms import Arms
from crawler.frontier.refresh.schedule import Schedule
from crawler.frontier.refresh.settings import BY_LEVEL
from crawler.frontier.refresh.site_clock import SiteClock
from crawler.frontier.refresh.sources import TOLD_MAX, Announced, Readings, ages
from crawler.records import LinkFlag, PageRecord
from crawler.storage.kv import Batch, KeyValue
from crawler.urls.canonical import hostname

_SOURCES = LinkFlag.SITEMAP | LinkFlag.FEED


def is_source(record: PageRecord) -> bool:
    """Return whether a page is a sitemap or a feed, which signals changes of other pages."""
    return bool(record.flags & _SOURCES)


@dataclass(eq=False, repr=False)
class PageAges:
    """Sets the age bounds of pages in the schedule."""

    schedule: Schedule | Arms
    clock: SiteClock
    config: RefreshConfig
    overrides: Overrides
    record: Callable[[int], PageRecord | None]

    def __post_init__(self) -> None:
        self.readings = Readings()
        self._by_value = all(policy in BY_LEVEL for policy in self.config.arms or (self.config.policy,))
        self._has_bounds = any(
            table.min_age is not None or table.max_age is not None for table in self.overrides.tables
        )

    def open(
        self,
        store: KeyValue,
        stored: Callable[[], Iterable[tuple[int, Callable[[], PageRecord]]]],
        now: float,
    ) -> None:
        """Set the age bounds of the pages of a schedule rebuilt from the store."""
        self._reopen_sources(store, now)
        if self._has_bounds:
            for fingerprint, read in stored():
                if (page := self.schedule.find(fingerprint)) >= 0:
                    self._apply_override(page, read().url, now)

    def bound_new(self, page: int, record: PageRecord, now: float, batch: Batch) -> None:
        """Set the age bounds, if any, of a page that was fetched for the first time."""
        if self._has_bounds:
            self._apply_override(page, record.url, now)
        if is_source(record) and self._by_value:
            self._meet_source(page, record, self.clock.at(now), batch)

    def is_read_by_value(self, record: PageRecord) -> bool:
        """Return whether the page is a source whose reading interval depends on the worth of its signals."""
        return is_source(record) and self._by_value

    def heed_source(
        self, fingerprint: int, news: Sequence[int], source: int, now: float, batch: Batch
    ) -> None:
        """Set the reading interval of a source from the pages that its latest reading listed.

        If reading it gains nothing, treat it like any other page.
        """
        page = self.schedule.find(fingerprint)
        record = self.record(fingerprint) if page >= 0 else None
        if record is None or not self.is_read_by_value(record):
            return
        then, overview = self.clock.at(now), self.schedule.overview
        own = overview.page(page, then)
        looked = [overview.page(each, then) for each in news[:: 1 + len(news) // TOLD_MAX]]
        told = Announced([each.importance for each in looked], [each.rate for each in looked], len(news))
        precision = overview.used_precision(own.host, source)
        self._read_every(self.readings.hear(fingerprint, told, own.level, precision), page, record.url, then)
        self.readings.stage(fingerprint, batch)

    def _meet_source(self, page: int, record: PageRecord, then: float, batch: Batch) -> None:
        """Set the interval at which a new source is read at first, assuming that half of its signals are right."""
        own = self.schedule.overview.page(page, then)
        interval = self.readings.begin(own.fingerprint, record.links, own.rate, own.level / own.importance)
        self._read_every(interval, page, record.url, then)
        self.readings.stage(own.fingerprint, batch)

    def _reopen_sources(self, store: KeyValue, now: float) -> None:
        then = self.clock.at(now)
        for fingerprint in self.readings.open(store):
            page, record = self.schedule.find(fingerprint), self.record(fingerprint)
            if page >= 0 and record is not None and self._by_value:
                level = self.schedule.overview.page(page, then).level
                self._read_every(self.readings.interval(fingerprint, level), page, record.url, then)

    def _read_every(self, interval: float, page: int, url: str, then: float) -> None:
        """Bound the age of a source by its reading interval and the configuration, unless an override bounds it."""
        own = self.overrides.for_url(url, hostname(url)) if self._has_bounds else None
        if own is not None and (own.min_age is not None or own.max_age is not None):
            return
        self._bound(page, *ages(interval, self.config.min_age, self.config.max_age or math.inf), then)

    def _apply_override(self, page: int, url: str, now: float) -> None:
        """Set a page's minimum and maximum age from its override, if there is one."""
        own = self.overrides.for_url(url, hostname(url))
        if own.min_age is None and own.max_age is None:
            return
        least = self.config.min_age if own.min_age is None else own.min_age
        most = self.config.max_age if own.max_age is None else own.max_age
        self._bound(page, least, most or math.inf, self.clock.at(now))

    def _bound(self, page: int, least: float, most: float, then: float) -> None:
        self.schedule.facts.bound_ages(page, least, most)
        self.schedule.facts.set_importance(page, self.schedule.records.page_state(page)[7], then)
