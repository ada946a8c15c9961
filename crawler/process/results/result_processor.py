"""Turns the end of a fetch into one `Change` for the commit point, without waiting.

    Fetch + Extracted --> the frontier's decision: whether the URL is done, when its host may be fetched from again
                      --> capture and page record
                      --> links: `link_policy.py` selects them, `admission.py` queues them
                      --> counts (`process/committing/counters.py`), the line of pages.jsonl

A *refresh* (a fetch task with the flag REFRESH, for a known page) differs in two ways. A refresh is counted
separately, under `refresh.`, because its URL is already counted as done. A fetch of a known page that was
queued again (AGAIN) is also counted under `refresh.`. If a refresh finds that the content of the page is
unchanged, the links of the page are not followed again (`EarlierCopies.shows_news`).

A change is built in one step, or by a generator that pauses between portions of the links
(`process/committing/portions.py`). The commit point builds one change at a time. If the content of a page
causes an exception, the exception is counted, and the page is recorded without its answer or without some of
its links.
"""

from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING

import msgspec

from crawler import http_dates
from crawler.clock import Clock
from crawler.consent.stamping import Stamping
from crawler.errors import StoreError, Unexpected
from crawler.extract.directives import NAMES, header_directives
from crawler.frontier.frontier import Frontier
from crawler.frontier.outcome_policy import Decision, End
from crawler.frontier.refresh.validators import Validators
from crawler.pages.captures import is_answer
from crawler.pages.change_detection import SUCCESSES
from crawler.pages.page_cache import Capturing, PageCache
from crawler.process.committing import counters
from crawler.process.results.admission import Counted
from crawler.process.results.link_policy import LinkPolicy
from crawler.process.results.page_log_line import page_line
from crawler.process.results.trap_watch import TrapWatch
from crawler.records import (
    MESSAGE,
    NO_PAGE,
    Blame,
    Extracted,
    Fetch,
    FetchTask,
    LinkFlag,
    Outcome,
    PageRecord,
    PageState,
    Rendering,
    TaskKind,
)
from crawler.robots.cache import RobotsCache
from crawler.storage.commit import Change, Making, Pause
from crawler.urlfilter.kept_verdicts import KeptVerdicts
from crawler.urls.canonical import authority

if TYPE_CHECKING:
    from crawler.frontier.refresh.refreshing import Refresh

_REFRESH = LinkFlag.REFRESH
_AGAIN = LinkFlag.AGAIN
_NEWS = LinkFlag.NEWS
_NOT_SHOWN = NO_PAGE | MESSAGE | LinkFlag.REDIRECT
_KNOWN = _REFRESH | _AGAIN
_EXTERNAL = LinkFlag.EXTERNAL
# Minimum number of seconds between two captures with the same fingerprint. The key of a capture contains the
# time in milliseconds, and no two captures may have the same key.
_APART = 0.002
# Tasks of these kinds fetch the files in which a site says how its pages may be used. These answers get no
# receipt.
_ABOUT_SITES = (TaskKind.ROBOTS, TaskKind.SITE_FILE)
Pauses = Generator[Pause, None, None]
# Arguments: the change, the page's fetch task, the extracted content, now.
Hear = Callable[[Change, FetchTask, Extracted, float], None]
# Arguments: the change, the page that led to a new page, the new page, now.
Credit = Callable[[Change, int, int, float], None]
# Arguments: the change, the name of the host, the record of a URL that was queued again, its record before.
Retried = Callable[[Change, str, PageRecord, PageRecord | None], None]


class ResultProcessor:
    """Builds the changes of one process, as the picture in the module docstring shows."""

    def __init__(
        self,
        clock: Clock,
        frontier: Frontier,
        pages: PageCache,
        robots: RobotsCache,
        following: LinkPolicy,
        *,
        refresh: "Refresh | None",
        hear: Hear,
        credit: Credit,
        retried: Retried,
        verdicts: KeptVerdicts | None,
        validators: Validators,
        token: str,
        stamping: Stamping,
        trap_watch: TrapWatch,
    ) -> None:
        self._token = token
        self._stamping = stamping
        self._trap_watch = trap_watch
        self._validators = validators
        self.unexpected = Unexpected()
        self._clock = clock
        self._frontier = frontier
        self._pages = pages
        self._robots = robots
        self._link_policy = following
        self._refresh = refresh
        self._hear = hear
        self._credit = credit
        self._retried = retried
        self.verdicts = verdicts

    # -- pages -----------------------------------------------------------------

    def note_site(self, fetch: Fetch) -> None:
        """Add to `fetch` a digest of what its site now says about the use of the site's pages."""
        fetch.site = self._stamping.book.note(authority(fetch.url))

    def site_files(self, fetch: Fetch, extracted: Extracted | None, now: float) -> list[str]:
        """Return the URLs of the files that must be fetched from a page's site: tdmrep.json and licence documents."""
        return self._stamping.wanted_files(fetch, extracted, now) if fetch.outcome in SUCCESSES else []

    def site_file(self, page: Fetch, url: str, fetch: Fetch, now: float) -> Callable[[], Change]:
        """Learn what a file of a site says. Return the function that builds the `Change` for the answer."""
        item = self._stamping.book.learn(authority(page.url), url, fetch, now)

        def make() -> Change:
            change = Change()
            change.put(*item)
            if fetch.status:
                task = FetchTask(TaskKind.SITE_FILE, 0, "", fetch.url)
                counters.count_kept(change, self._capture(change, fetch, task, None, now))
            counters.count_request(change, "site_files", fetch)
            return change

        return make

    def judging(self, fetch_task: FetchTask, extracted: Extracted) -> Iterator[None]:
        """Let the user's URL filter judge the links of a page in advance, one by one; see `LinkPolicy.judging`."""
        if self.verdicts is not None:
            with self.verdicts.of_page():
                yield from self._link_policy.judging(
                    fetch_task, extracted, _is_first(self._before(fetch_task))
                )

    def page(self, fetch_task: FetchTask, fetch: Fetch, extracted: Extracted | None, now: float) -> Making:
        """Build the `Change` for the fetch of a page. The fetch may be final, or may be repeated later."""
        change = Change()
        decision = self._settle(fetch_task, fetch, now)
        # The decision is staged before the links are followed, because the links may move URLs of the same
        # host.
        self._frontier.stage(decision, change)
        fetch.final = decision.end is End.DONE
        before = self._before(fetch_task)
        is_first = _is_first(before)
        final = decision.end is End.DONE
        capturing = self._capture(change, fetch, fetch_task, extracted, now, final=final, before=before)
        if fetch.earlier:
            self._keep_earlier(change, fetch_task, fetch, now, final=decision.end is End.DONE)
        counters.count_kept(change, capturing)
        if fetch.rendering is not None:
            self._keep_rendering(change, fetch.rendering, now)
        if fetch.held_back:
            change.count("rendered.held_back")
        if self._refresh is not None and decision.end is End.DONE:
            self._schedule(change, capturing, before, decision, now)
            if extracted is not None and extracted.told_by and fetch_task.flags & _REFRESH:
                self._hear(change, fetch_task, extracted, now)
        if fetch_task.flags & _AGAIN and capturing.record is not None:
            changed = not capturing.unchanged
            self._validators.answered(
                fetch_task.fingerprint, fetch_task.host, before, capturing.record, changed, now, change
            )
            self._retried(change, fetch_task.hostname, capturing.record, before)
        if decision.end is End.DONE and not (fetch_task.flags & _KNOWN and capturing.unchanged):
            yield from self._follow(change, capturing, extracted, is_first)
            if extracted is not None and not fetch_task.flags & _KNOWN:
                self._trap_watch.note(change, fetch_task)
            if self._refresh is not None and is_first:
                shown = change.links + [link for _, sent in change.foreign for link in sent]
                count = sum(not link.flags & _NOT_SHOWN for link in shown)
                self._refresh.outcomes.expect_news(
                    fetch_task.fingerprint, count, now, change, of_site=_lists_site(fetch_task, extracted)
                )
        if fetch_task.flags & _KNOWN:
            counters.count_refresh(change, capturing, decision.end, is_first=is_first)
            change.count("urls.done", bool(fetch_task.flags & _AGAIN and decision.end is End.DONE))
        else:
            counters.count_page(change, fetch, decision.end)
        change.line = page_line(fetch_task, fetch, extracted, decision.end)
        self._release_after(change, decision)
        return change

    def _keep_earlier(
        self, change: Change, fetch_task: FetchTask, fetch: Fetch, now: float, *, final: bool
    ) -> None:
        """Store the earlier answers of a redirect chain under the fingerprint of the chain's first request.

        Each answer is stored with a time of its own.
        """
        hops, next_at = [], fetch.began or now
        for hop in reversed(fetch.earlier):
            next_at = hop.began = min(hop.began, next_at - _APART)
            hops.append(hop)
        for hop in reversed(hops):
            task = msgspec.structs.replace(fetch_task, kind=TaskKind.HOP, url=hop.url)
            counters.count_kept(change, self._capture(change, hop, task, None, now, final=final))

    def _keep_rendering(self, change: Change, rendering: Rendering, now: float) -> None:
        """Store the answers that the rendering of a page needed, and count the cost of the rendering."""
        for fetch in rendering.subresources:
            task = FetchTask(TaskKind.SUBRESOURCE, 0, "", fetch.url)
            counters.count_kept(change, self._capture(change, fetch, task, None, now))
        counters.count_rendering(change, rendering)

    def _before(self, fetch_task: FetchTask) -> PageRecord | None:
        """Return the record of a page before this fetch; None if this is its first fetch."""
        return self._pages.record(fetch_task.fingerprint) if fetch_task.flags & _KNOWN else None

    def _schedule(
        self, change: Change, capturing: Capturing, before: PageRecord | None, decision: Decision, now: float
    ) -> None:
        """Add a new page to the refresh schedule, or let the schedule learn from a refetched page.

        If this is the first copy of a page whose URL a refetch had shown, credit the hub and count the delay.
        """
        assert self._refresh is not None and capturing.record is not None
        fetch_task, record, outcomes = capturing.fetch_task, capturing.record, self._refresh.outcomes
        is_first = _is_first(before)
        is_page = record.state is PageState.STORED and not capturing.profile
        news = is_first and is_page and bool(fetch_task.flags & _NEWS)
        if news:
            modified = http_dates.instant(capturing.fetch.header(b"last-modified").decode("latin-1"))
            outcomes.count_delay(fetch_task.fingerprint, record, modified, now, change)
            self._credit(change, fetch_task.via, fetch_task.fingerprint, now)
        if fetch_task.flags & _REFRESH:
            result = outcomes.result_of(
                capturing.fetch.outcome,
                unchanged=capturing.unchanged,
                silent=capturing.new_form or capturing.returned,
                stored=not record.noarchive,
            )
            outcomes.record_refresh(
                fetch_task, result, before, record, decision.until, min(capturing.instant, now), change
            )
        else:
            outcomes.record_first(fetch_task.fingerprint, record, capturing.instant, now, change, news=news)

    def _follow(
        self, change: Change, capturing: Capturing, extracted: Extracted | None, is_first: bool
    ) -> Pauses:
        """Follow the links of a page and note their number in its record. After a failure, keep the earlier number."""
        fetch_task, fetch = capturing.fetch_task, capturing.fetch
        if fetch.outcome is Outcome.INTERNAL_ERROR:
            extracted = None
        following = self._link_policy.page(
            change, fetch_task, fetch, extracted, capturing.digest, is_first=is_first
        )
        links = yield from self._as_far_as_possible(change, fetch_task, following)
        record = capturing.record
        if record is not None and (fetch.outcome in SUCCESSES or record.state is not PageState.STORED):
            record.links = links

    def _as_far_as_possible(self, change: Change, fetch_task: FetchTask, following: Counted) -> Counted:
        """Follow links. After an exception, keep the links handled so far, because the caches already contain them."""
        try:
            return (yield from following)
        except StoreError:
            raise
        except Exception as error:
            self.unexpected.note(error, f"links of {fetch_task.url}; some of them are lost")
            change.count("pages.links_lost")
            return 0

    def denied(self, fetch_task: FetchTask, now: float) -> Fetch:
        """Return a result for a URL that is not requested, because robots.txt or a withdrawal forbids it."""
        withdrawn = self._pages.withdrawals.stops(fetch_task.url)
        outcome = Outcome.WITHDRAWN if withdrawn else Outcome.ROBOTS_DENIED
        return Fetch(url=fetch_task.url, outcome=outcome, began=now)

    # -- hosts -----------------------------------------------------------------

    def robots(self, fetch_task: FetchTask, fetch: Fetch, now: float) -> Making:
        """Build the `Change` for the answer to a robots.txt request, at the end of its redirects."""
        change = yield from self.hop_robots(fetch_task, fetch, now)
        yield from self._as_far_as_possible(change, fetch_task, self._link_policy.robots(change, fetch_task))
        self._release(change, self._settle(fetch_task, fetch, now))
        return change

    def hop_robots(self, fetch_task: FetchTask, fetch: Fetch, now: float) -> Making:
        """Build the `Change` for a robots.txt that was fetched outside of the queues.

        Do not change the state of its host.
        """
        change = Change()
        ignored, rules_ignored = self._robots.sitemaps_ignored, self._robots.rules_ignored
        yield from self._read_robots(change, fetch_task, fetch, now)
        change.count("robots.sitemaps_ignored", self._robots.sitemaps_ignored - ignored)
        change.count("robots.rules_ignored", self._robots.rules_ignored - rules_ignored)
        if fetch.status:
            counters.count_kept(change, self._capture(change, fetch, fetch_task, None, now))
        counters.count_request(change, "robots", fetch)
        return change

    def _read_robots(self, change: Change, fetch_task: FetchTask, fetch: Fetch, now: float) -> Pauses:
        """Pass the answer to the robots cache. If parsing raises an exception, the robots.txt counts as unavailable."""
        try:
            yield from self._record_robots(change, fetch_task, fetch, now)
        except StoreError:
            raise
        except Exception as error:
            self._make_internal_error(fetch, error, f"reading {fetch_task.url}")
            yield from self._record_robots(change, fetch_task, fetch, now)

    def _record_robots(self, change: Change, fetch_task: FetchTask, fetch: Fetch, now: float) -> Pauses:
        """Pass the answer to the robots cache. If the rules have changed, recall the pages that they may have denied."""
        site = authority(fetch_task.url)
        before = self._robots.copy(site).parsed
        yield from self._robots.recording(
            site,
            status=fetch.status,
            outcome=Outcome.FRAMING if _is_unreadable(fetch) else fetch.outcome,
            body=fetch.content,
            complete=fetch.truncated in ("", "length"),
            now=now,
            batch=change,
            url=fetch.url,
            asked_at=fetch.began,
        )
        after = self._robots.copy(site).parsed
        is_changed = before is not None and after is not None and before.rules != after.rules
        if is_changed and self._refresh is not None and fetch_task.host:
            self._refresh.claims.note_new_rules(fetch_task.host)

    def unresolved(self, fetch_task: FetchTask, failure: Fetch, now: float) -> Change:
        """Build the `Change` for a host whose addresses could not be found."""
        change = Change()
        change.count(f"hosts.{failure.outcome}")
        self._release(change, self._settle(fetch_task, failure, now))
        return change

    # -- parts -------------------------------------------------------------------

    def _settle(self, fetch_task: FetchTask, fetch: Fetch, now: float) -> Decision:
        """Return the frontier's decision. If the frontier raises an exception, treat the fetch as an internal error."""
        try:
            return self._frontier.record_outcome(fetch_task, fetch, now)
        except StoreError:
            raise
        except Exception as error:
            self._make_internal_error(fetch, error, f"deciding about {fetch_task.url or fetch_task.hostname}")
            return self._frontier.record_outcome(fetch_task, fetch, now)

    def _capture(
        self,
        change: Change,
        fetch: Fetch,
        fetch_task: FetchTask,
        extracted: Extracted | None,
        now: float,
        *,
        final: bool = True,
        before: PageRecord | None = None,
    ) -> Capturing:
        """Capture a fetch, with its receipt, for storage. After an exception, capture only that a fetch was made.

        `before` is the record of a page that is fetched again.
        """
        try:
            tags = header_directives(fetch.headers, self._token) if fetch.has_any(NAMES) else None
            capturing = self._pages.capture(fetch, fetch_task, extracted, now, final=final, tags=tags)
            has_receipt = fetch_task.kind not in _ABOUT_SITES and not fetch_task.flags & _EXTERNAL
            if final and has_receipt and (is_answer(fetch) or fetch.outcome is Outcome.NOT_RENDERED):
                self._stamp(change, capturing, extracted, before)
            return capturing
        except StoreError:
            raise
        except Exception as error:
            self._make_internal_error(fetch, error, f"storing {fetch_task.url}")
            return self._pages.capture(fetch, fetch_task, None, now, final=final)

    def _stamp(
        self, change: Change, capturing: Capturing, extracted: Extracted | None, before: PageRecord | None
    ) -> None:
        """Attach a consent receipt to an answer.

        The record of a stored page keeps the receipt of the last successful fetch. If no browser could show the
        page, what its answer forbids is added to this receipt.
        """
        fetch, record = capturing.fetch, capturing.record
        adds = fetch.outcome is Outcome.NOT_RENDERED
        known = None
        if before is not None and (adds or (extracted is None and capturing.unchanged)):
            known = before.receipt
        stamp = self._stamping.stamp(fetch, capturing.fingerprint, extracted, known, change)
        capturing.stamp = stamp
        if record is not None and (
            fetch.outcome in SUCCESSES or adds or record.state is not PageState.STORED
        ):
            record.receipt = stamp.digest

    def _make_internal_error(self, fetch: Fetch, error: Exception, where: str) -> None:
        """Turn the object `fetch` into an internal error, without any content."""
        failed = Fetch(
            url=fetch.url,
            outcome=Outcome.INTERNAL_ERROR,
            blame=Blame.URL,
            began=fetch.began,
            took=fetch.took,
            error=self.unexpected.note(error, where),
            final=fetch.final,
        )
        for name in Fetch.__struct_fields__:
            setattr(fetch, name, getattr(failed, name))

    def _release(self, change: Change, decision: Decision) -> None:
        """Add the frontier's decision to the change. When the change is durable, release what the fetch task holds."""
        self._frontier.stage(decision, change)
        self._release_after(change, decision)

    def _release_after(self, change: Change, decision: Decision) -> None:
        change.after.append(lambda: self._frontier.release(decision, self._clock.now()))


def _is_first(before: PageRecord | None) -> bool:
    """Return whether no earlier fetch has found a page at the URL; `before` is the record before this fetch."""
    return before is None or not before.was_found


def _lists_site(fetch_task: FetchTask, extracted: Extracted | None) -> bool:
    """Return whether the page lists a whole site: it is a front page, a sitemap or a feed."""
    path = fetch_task.url.partition("://")[2].partition("/")[2]
    return not path or (extracted is not None and extracted.told_by in ("sitemap", "feed"))


def _is_unreadable(fetch: Fetch) -> bool:
    return fetch.undecoded or bool(fetch.body and not fetch.content)
