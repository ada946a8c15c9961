"""The intake of change signals: hints that a known page has changed, with or without the time of the change."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from crawler.change_signals import NAMES, Fate, source_number
from crawler.frontier.refresh import state
from crawler.frontier.refresh.arms import Arms
from crawler.frontier.refresh.births import Births
from crawler.frontier.refresh.page_ages import PageAges
from crawler.frontier.refresh.schedule import Schedule
from crawler.frontier.refresh.settings import DAY
from crawler.frontier.refresh.site_clock import SiteClock
from crawler.records import PageRecord
from crawler.storage.kv import Batch

HEARD_MAX = 100_000  # maximum number of (host, source) pairs whose delays are kept
_NOTED_AT_ONCE = 1024


@dataclass(eq=False, repr=False)
class ChangeIntake:
    """Passes change signals to the schedule.

    `fingerprint` maps a URL in request form to its fingerprint. Dates of pages that were never fetched are
    passed to `births`. `may_have_appeared` returns whether the record is that of a URL without a copy that may have
    one by now. `add_absent` adds such a URL to the schedule.
    """

    schedule: Schedule | Arms
    clock: SiteClock
    fingerprint: Callable[[str], int]
    ages: PageAges
    births: Births
    record: Callable[[int], PageRecord | None]
    may_have_appeared: Callable[[PageRecord], bool]
    add_absent: Callable[[int, PageRecord, float, Batch], None]

    fate: ClassVar[Fate] = Fate.NOTED

    def __post_init__(self) -> None:
        self._delays: dict[tuple[int, str], list[float]] = {}

    def has(self, fingerprint: int) -> bool:
        """Return whether a page is kept fresh."""
        return fingerprint in self.schedule

    def accepts(self, fingerprint: int, record: PageRecord) -> bool:
        """Return whether signals of a known URL are used. They are if it is kept fresh, or may have appeared by now."""
        return fingerprint in self.schedule or self.may_have_appeared(record)

    def take(self, fingerprints: Sequence[int], source: int, now: float, batch: Batch) -> None:
        """Record signals about URLs that `accepts` has accepted, and put the state of their pages into `batch`."""
        self.admit(fingerprints, now, batch)
        self.note_changes(fingerprints, source, now)
        self.stage(batch)

    def is_news(self, fingerprint: int, at: float) -> bool:
        """Return whether a signal of the time `at` counts: its page is kept fresh, and was not fetched after it."""
        page = self.schedule.find(fingerprint)
        if page < 0:
            return False
        since = self.clock.at(at) - self.schedule.records.page_state(page)[3]
        return since >= self.ages.config.discard_window

    def admit(self, fingerprints: Iterable[int], now: float, batch: Batch) -> None:
        """Add those URLs to the schedule that have no copy, but may have one by now."""
        for fingerprint in fingerprints:
            if fingerprint not in self.schedule:
                record = self.record(fingerprint)
                if record is not None and self.may_have_appeared(record):
                    self.add_absent(fingerprint, record, now, batch)

    def note_changes(self, fingerprints: Sequence[int], source: int, now: float) -> int:
        """Record signals that pages have changed; return the number of these pages that are in the schedule."""
        known = [fingerprint for fingerprint in fingerprints if fingerprint in self.schedule]
        if known:
            then = self.clock.at(now)
            self.schedule.signals.enqueue_changes(np.array(known, np.uint64), then, source)
            while self.schedule.work(then) and len(known) <= _NOTED_AT_ONCE:
                pass
        return len(known)

    def without_copy(self, dated: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
        """Return those of the first dates that a sitemap or listing gives which are news, for URLs in request form.

        The first date of a page that is kept fresh does not say that the page has changed. But if there is no copy,
        the date may be the publication date.
        """
        return [(url, at) for url, at in dated if self._lacks_copy(self.fingerprint(url))]

    def _lacks_copy(self, fingerprint: int) -> bool:
        """Return whether a URL is not in the schedule, or no fetch of it has found a page."""
        page = self.schedule.find(fingerprint)
        if page < 0:
            return True
        record = self.record(fingerprint) if self.schedule.records.is_away(page) else None
        return record is not None and not record.was_found

    def note_dated(
        self, told_by: int, dated: Iterable[tuple[str, float]], source: str, now: float, batch: Batch
    ) -> int:
        """Record the change dates that a page lists for other pages. Return the number of new changes.

        The URLs of these pages are in request form. A change before a page's last crawl does not count,
        because that crawl has already seen it. `told_by` is the fingerprint of the page that lists the
        others. The more the signals of this page are worth, the more often the page is read (`sources.py`).
        """
        changed, pages = [], []
        for url, changed_at in dated:
            fingerprint = self.fingerprint(url)
            page = self.schedule.find(fingerprint)
            if page < 0:
                page = self._find_unscheduled(fingerprint, changed_at, now, batch)
            elif self._lacks_copy(fingerprint):
                self.births.tell(fingerprint, changed_at, batch)
            if page < 0:
                continue
            pages.append(page)
            if self.clock.at(_latest(changed_at)) > self.schedule.records.page_state(page)[3]:
                changed.append(fingerprint)
                self._note_delay(page, source, now - changed_at)
        number = source_number(source)
        self.ages.heed_source(told_by, pages, number, now, batch)
        return self.note_changes(changed, number, now)

    def _find_unscheduled(self, fingerprint: int, changed_at: float, now: float, batch: Batch) -> int:
        """Use the date of a page that is not in the schedule. Return the page's number if it is now, else -1.

        The page is added to the schedule if it may have appeared, and if the date is later than its last fetch.
        """
        record = None if fingerprint in self.births else self.record(fingerprint)
        if record is None:
            self.births.tell(fingerprint, changed_at, batch)
        elif _latest(changed_at) > record.tried_at and self.may_have_appeared(record):
            self.add_absent(fingerprint, record, now, batch)
            self.births.tell(fingerprint, changed_at, batch)
        return self.schedule.find(fingerprint)

    def _note_delay(self, page: int, source: str, delay: float) -> None:
        sums = self._delays.setdefault((self.schedule.host_of(page), source), [0.0, 0.0])
        sums[0] += 1.0
        sums[1] += max(delay, 0.0)
        if len(self._delays) > HEARD_MAX:
            del self._delays[next(iter(self._delays))]

    def stage(self, batch: Batch) -> None:
        """Put the state of pages that received signals since the last batch into `batch`."""
        if touched := self.schedule.signals.pop_touched():
            state.stage_signalled(self.schedule, touched, batch)

    def heard(self) -> list[dict[str, Any]]:
        """Return, for each host and source: number of signals, precision, mean delay, and the host's recall.

        The delay is None if no signal has a date.
        """
        rows = []
        overview = self.schedule.overview
        for host in overview.heard_hosts():
            signals, precisions, recall = overview.quality(host)
            for number, source in enumerate(NAMES):
                if signals[number] > 0.0:
                    n, delays = self._delays.get((host, source), (0.0, 0.0))
                    rows.append(
                        {
                            "host_key": overview.host(host).key,
                            "source": source,
                            "signals": round(signals[number], 1),
                            "precision": round(precisions[number], 3),
                            "recall": round(recall, 3),
                            "delay": round(delays / n, 1) if n else None,
                        }
                    )
        return rows


def _latest(changed_at: float) -> float:
    """Return the latest time that a date may mean. A date at midnight may mean any time of that day."""
    return changed_at + DAY - 1.0 if changed_at % DAY == 0.0 else changed_at
