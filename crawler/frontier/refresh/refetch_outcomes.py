"""The effects of a finished refetch on the schedule, the validators, the sources and the hubs.

    record_first      a page was fetched for the first time: it enters the schedule
    count_delay       the first copy of a page that a hub had shown was made: its delay is counted
    expect_news       the first copy of a page was the first to show many URLs: it may be a hub
    record_refresh    a page was refetched: changed, unchanged, or postponed
    credit_hub        a page was fetched whose URL a refetch of the hub had shown: the hub gets the credit

Decisions are made in the order of the commit queue. Therefore, the stored state never contradicts the records
of pages.
"""

from collections.abc import Callable, Iterable
from dataclasses import KW_ONLY, dataclass

from crawler import http_dates
from crawler.frontier.later_tries import NEVER_REFRESHED, PASSING, LaterTries
from crawler.frontier.refresh import state
from crawler.frontier.refresh.arms import Arms
from crawler.frontier.refresh.births import Births
from crawler.frontier.refresh.change_intake import ChangeIntake
from crawler.frontier.refresh.expectation import Expectation
from crawler.frontier.refresh.importance import Importance
from crawler.frontier.refresh.news import News, kind_of
from crawler.frontier.refresh.page_ages import PageAges, is_source
from crawler.frontier.refresh.page_facts import LINKS_LEAST, SITE_LIST_LINKS
from crawler.frontier.refresh.page_keys import PageKeys
from crawler.frontier.refresh.portion import Portion
from crawler.frontier.refresh.refetch_claims import RefetchClaims
from crawler.frontier.refresh.schedule import Schedule
from crawler.frontier.refresh.settings import DAY, RefreshOutcome
from crawler.frontier.refresh.site_clock import SiteClock
from crawler.frontier.refresh.validators import Validators
from crawler.records import FetchTask, Outcome, PageRecord, PageState
from crawler.storage.kv import Batch

_HOPS_MAX = 20  # maximum number of redirects between a hub and the page that it showed
_SHOWN = (Outcome.FETCHED, Outcome.EMPTY, Outcome.UNCHANGED)


def is_fit(record: PageRecord) -> bool:
    """Return whether the page has a copy that should be kept fresh and can be renewed by a plain GET."""
    return record.state is PageState.STORED and not record.noarchive and not record.flags & NEVER_REFRESHED


def may_have_appeared(record: PageRecord, is_disallowed: Callable[[str], bool]) -> bool:
    """Return whether a URL that has no copy may have one by now, so that a signal lets the crawl fetch it again.

    The last fetch found the URL gone or failed, and the URL left its queue. Or robots.txt denied the URL then, but
    allows it now. `is_disallowed` returns whether the robots.txt that was fetched last forbids a URL.
    """
    if record.queued or record.flags & NEVER_REFRESHED:
        return False
    if record.state is PageState.DENIED:
        return not is_disallowed(record.url)
    return record.state in (PageState.GONE, PageState.FAILED)


@dataclass(eq=False, repr=False)
class RefetchOutcomes:
    """Passes the results of fetches to the parts of the refresh frontier."""

    schedule: Schedule | Arms
    clock: SiteClock
    record: Callable[[int], PageRecord | None]
    _: KW_ONLY
    keys: PageKeys
    claims: RefetchClaims
    ages: PageAges
    changes: ChangeIntake
    validators: Validators
    importance: Importance
    expectation: Expectation
    portion: Portion
    news: News
    births: Births
    later_tries: LaterTries

    @staticmethod
    def result_of(
        outcome: Outcome, *, unchanged: bool, silent: bool = False, stored: bool = True
    ) -> RefreshOutcome:
        """Return the result that the schedule records for the outcome of a request.

        `silent` is True if the answer does not show whether the page has changed. `stored` is True if the copy is kept,
        that is, if there is no `noarchive`.
        """
        if outcome in _SHOWN:
            if not stored:
                return RefreshOutcome.DENIED
            if silent:
                return RefreshOutcome.SILENT
            return RefreshOutcome.UNCHANGED if unchanged else RefreshOutcome.CHANGED
        if outcome in (Outcome.REDIRECT, Outcome.BAD_REDIRECT):
            return RefreshOutcome.MOVED
        if outcome in (Outcome.ROBOTS_DENIED, Outcome.WITHDRAWN):
            return RefreshOutcome.DENIED
        return RefreshOutcome.FAILED if outcome in PASSING else RefreshOutcome.GONE

    def conditions(self, fetch_task: FetchTask, record: PageRecord, now: float) -> tuple[str, str]:
        """Return (ETag, Last-Modified) for a conditional request; a value is "" if it is not to be sent.

        `record` is the page's record.
        """
        known = self.claims.held.get(fetch_task.fingerprint)
        signalled = known is not None and any(known.signals)
        return self.validators.conditions(
            fetch_task.fingerprint, fetch_task.host, record, now, signalled=signalled
        )

    def record_first(
        self,
        fingerprint: int,
        record: PageRecord,
        crawled_at: float,
        now: float,
        batch: Batch,
        *,
        news: bool = False,
    ) -> None:
        """Add a page that was fetched for the first time to the schedule. Learn nothing about its site and directory.

        In a crawl without end, a URL is added as a page that is away if it has a later try (`frontier/later_tries.py`).
        `news` is True if a refetch of a known page found the URL of the added page. It is False if the added
        page is a redirect or a duplicate.
        """
        page = self.schedule.find(fingerprint)
        if self.portion.endless and self.later_tries.has_next(record):
            if page < 0:
                self.add_absent(fingerprint, record, now, batch)
            return
        self.births.take(fingerprint, batch)
        if not is_fit(record):
            return
        if page < 0:
            page = self._enter(fingerprint, record, crawled_at, now, batch)
            if news:
                self.schedule.facts.note_birth(page)
        state.stage_page(self.schedule, page, batch)
        self.changes.stage(batch)

    def count_delay(
        self, fingerprint: int, record: PageRecord, modified: float | None, now: float, batch: Batch
    ) -> None:
        """Count the delay from publication to the first copy, for a page that was found by a refetch.

        Call this before `record_first`.

        `modified` is the Last-Modified of the answer, or None. It is the publication date if no sitemap or feed has
        stated one, or has stated only the day.
        """
        born, modified = self.births.take(fingerprint, batch), self._published(record, modified)
        is_day = (
            born is not None and modified is not None and born % DAY == 0.0 and 0.0 <= modified - born < DAY
        )
        self.news.copied(modified if born is None or is_day else born, now, batch)

    def _published(self, record: PageRecord, modified: float | None) -> float | None:
        """Return the Last-Modified of a page's first copy if it may be the publication date, or else None.

        Programs that make pages on request often send the time of the answer. A page was published before its hub
        showed it, so a date after the last fetch of the hub is not used. If the hub belongs to another process, the
        date is used only if it is a validator, that is, well before the time of the answer.
        """
        hub = self.record(self.shown_by(record.via))
        if hub is None:
            return http_dates.instant(record.last_modified)
        return modified if modified is not None and modified <= hub.fetched_at + hub.took else None

    def add_absent(self, fingerprint: int, record: PageRecord, now: float, batch: Batch) -> None:
        """Add a page that has no copy to the schedule, as a page that is away.

        The longer the URL has been without a copy, the longer is its first wait.
        """
        page = self._enter(fingerprint, record, record.tried_at, now, batch, away=True)
        state.stage_page(self.schedule, page, batch)

    def adopt_absent(self, fingerprint: int, record: PageRecord, now: float) -> None:
        """Add a URL to the schedule on opening, because an earlier run left it for a later try."""
        self._place(fingerprint, record, record.tried_at, now, away=True)

    def expect_news(
        self, fingerprint: int, links: int, now: float, batch: Batch, *, of_site: bool = False
    ) -> None:
        """Record that the first copy of a page contained `links` URLs that the crawl did not know.

        `of_site` is True if the page is a list of the whole site: its front page, a sitemap or a feed.
        """
        page = self.schedule.find(fingerprint)
        links += SITE_LIST_LINKS * of_site
        if page >= 0 and links >= LINKS_LEAST:
            self.schedule.facts.expect_news(page, links, self.clock.at(now))
            state.stage_page(self.schedule, page, batch)

    def _enter(
        self,
        fingerprint: int,
        record: PageRecord,
        crawled_at: float,
        now: float,
        batch: Batch,
        *,
        away: bool = False,
    ) -> int:
        page = self._place(fingerprint, record, crawled_at, now, away=away)
        self.ages.bound_new(page, record, now, batch)
        return page

    def _place(
        self, fingerprint: int, record: PageRecord, crawled_at: float, now: float, *, away: bool
    ) -> int:
        """Add a page to the schedule."""
        host, directory = self.keys.of(fingerprint, record.url)
        then = self.clock.at(now)
        page = self.schedule.add(
            fingerprint, host, directory, min(self.clock.at(crawled_at), then), then,
            self.importance.of(fingerprint, record, now), away=away,
            absence=self.later_tries.wait(record) * self.clock.speed if away else 0.0,
        )  # fmt: skip
        self.claims.keep_shut(page, host)
        return page

    def record_refresh(
        self,
        fetch_task: FetchTask,
        result: RefreshOutcome,
        before: PageRecord | None,
        after: PageRecord,
        until: float,
        now: float,
        batch: Batch,
    ) -> None:
        """Record a refetch, at `now`, of a page with the record `before`; its host may be requested from `until` on."""
        fingerprint, then = fetch_task.fingerprint, self.clock.at(now)
        changed = result is RefreshOutcome.CHANGED
        if self.validators.answered(fingerprint, fetch_task.host, before, after, changed, now, batch):
            self.expectation.results["validator_lies"] += 1
        known = self.claims.end(fingerprint)
        if known is None:
            return
        page = self.schedule.find(fingerprint)
        self.expectation.ended(known, result, then)
        self.schedule.facts.set_importance(page, self.importance.of(fingerprint, after, now), then)
        if self.later_tries.is_over(after):
            self.schedule.remove(page)
        self.schedule.record_outcome(
            page, then, self._learned_from(result, before, after), self.clock.at(until)
        )
        if is_source(after):
            self.ages.readings.pass_time(fingerprint, then - known.crawled_at)
            if result is RefreshOutcome.UNCHANGED:
                self.ages.heed_source(fingerprint, [], 0, now, batch)
        if fingerprint in self.schedule:
            state.stage(self.schedule, page, batch)
        else:
            state.unstage_page(fingerprint, batch)
            self.births.take(fingerprint, batch)
        self._stage_sums(batch)

    def _learned_from(
        self, result: RefreshOutcome, before: PageRecord | None, after: PageRecord
    ) -> RefreshOutcome:
        """Return the result that the schedule learns from.

        Nothing is learned from a source's own changes. If a page never had a copy, a failed fetch says that it is
        still away, so that a URL that always fails is fetched ever less often.
        """
        if result is RefreshOutcome.CHANGED and self.ages.is_read_by_value(after):
            return RefreshOutcome.UNCHANGED
        if result is RefreshOutcome.FAILED and before is not None and not before.was_found:
            return RefreshOutcome.GONE
        return result

    def shown_by(self, via: int) -> int:
        """Follow known redirects backwards from `via`, to the page that showed the first URL of the chain."""
        for _ in range(_HOPS_MAX):
            hub = self.record(via)
            if hub is None or hub.state is not PageState.REDIRECTED:
                break
            via = hub.via
        return via

    def credit_hub(self, fingerprint: int, now: float, batch: Batch) -> bool:
        """Credit a hub with a new page, because a refetch of the hub found the URL of this page.

        Return False if the hub is not known.
        """
        hub, page = self.record(fingerprint), self.schedule.find(fingerprint)
        if hub is None or page < 0:
            return False
        self.news.found(kind_of(hub), batch)
        self.schedule.facts.credit_hub(page, 1.0, self.clock.at(now))
        state.stage(self.schedule, page, batch)
        return True

    def renew_importance(self, fingerprints: Iterable[int], now: float, batch: Batch) -> int:
        """Recompute the importance of pages from users' requests, and store it; return the number of known pages."""
        weighed = 0
        for fingerprint in fingerprints:
            page = self.schedule.find(fingerprint)
            record = self.record(fingerprint) if page >= 0 else None
            if record is None:
                continue
            importance = self.importance.of(fingerprint, record, now)
            self.schedule.facts.set_importance(page, importance, self.clock.at(now))
            state.stage_page(self.schedule, page, batch)
            weighed += 1
        return weighed

    def _stage_sums(self, batch: Batch) -> None:
        """Put what is stored for the whole schedule into a batch."""
        state.stage_recalibration(self.expectation.recalibration, batch)
        if self.portion.balance.tilt != 1.0:
            state.stage_tilt(self.portion.balance.tilt, batch)
        self.changes.stage(batch)
        self.news.begin(batch)
