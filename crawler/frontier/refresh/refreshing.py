"""The refresh side of a crawl: the schedule, joined to frontier, pages and store.

    look --> hold --> the page's host, as for any URL --> ended (or give_back)
      ^                                                      |
      +------- add (first fetch)                     schedule learns; f/ s/ n/ into the page's change

The frontier asks `look` for the best page; the page's host does the rest:
robots.txt, addresses, gap, place. A host that must wait is blocked in the
schedule until its instant. Decisions are made in the order of the commit
queue, so the stored state never contradicts the records of pages.

The schedule runs on the clock of the sites: that of the crawl times `refresh.speed`.
"""

import math
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Literal

import msgspec
import numpy as np

from crawler.change_signals import NAMES, source_number
from crawler.config import Overrides, RefreshConfig
from crawler.frontier.hosts.front_host import Refetch
from crawler.frontier.refresh import state
from crawler.frontier.refresh.arms import Arms
from crawler.frontier.refresh.births import Births
from crawler.frontier.refresh.expectation import BY_LEVEL, Expectation
from crawler.frontier.refresh.importance import Importance
from crawler.frontier.refresh.levels import Balance, LevelReport
from crawler.frontier.refresh.news import News, kind_of
from crawler.frontier.refresh.schedule import Schedule
from crawler.frontier.refresh.settings import DAY, HostView, PageView, RefreshOutcome, Settings
from crawler.frontier.refresh.sources import TOLD_MAX, Announced, Readings, ages
from crawler.frontier.refresh.validators import Validators
from crawler.frontier.share import Share
from crawler.records import Errand, LinkFlag, Outcome, PageRecord, PageState
from crawler.storage.kv import Batch, KeyValue
from crawler.urls.canonical import authority, hostname, target

_REFRESH = int(LinkFlag.REFRESH)
_OWN_WAY = int(LinkFlag.OWN_WAY)
_LOW_48 = (1 << 48) - 1
_SOURCES = int(LinkFlag.SITEMAP | LinkFlag.FEED)
FEED_TYPES = frozenset(
    {"application/rss+xml", "application/atom+xml", "application/rdf+xml", "application/xml", "text/xml"}
)
_ADOPTED_AT_ONCE = 1024
HEARD_MAX = 100_000  # (host, source) pairs whose delays are kept
_HOPS_MAX = 20  # redirects between a hub and the page that it showed
AHEAD_MAX = 1000  # pages asked for out of turn
AHEAD_LOOKS = 8  # of them looked at by one call
FRESH_DIGITS = 9  # of a probability; the order in which a schedule was summed up shows in the sixteenth
BUSY_SHARE = 0.8  # of the time, in which a process whose rate keeps it from asking more is busy
_BUSY_SMOOTHING = 20.0  # seconds over which that is averaged
_SHOWN = (Outcome.FETCHED, Outcome.EMPTY, Outcome.UNCHANGED)
_FAILURES = frozenset(
    {
        Outcome.TEMPORARY, Outcome.HOST_BUSY, Outcome.TRUNCATED, Outcome.FRAMING, Outcome.HEADER_TIMEOUT,
        Outcome.DNS_ERROR, Outcome.CONNECT_ERROR, Outcome.TLS_ERROR, Outcome.RESET, Outcome.PROXY_ERROR,
        Outcome.INTERNAL_ERROR,
    }
)  # fmt: skip


def settings_of(config: RefreshConfig, policy: str = "") -> Settings:
    """The schedule's part of the configuration; of an arm, with its `policy`."""
    same = (
        "neighbourhood", "pooling", "explore", "min_age", "discard_window", "clock_min",
        "clock_max", "first_interval", "retry_age", "gone_age", "new_page_weight", "discovery_share_max",
    )  # fmt: skip
    return Settings(
        policy=policy or config.policy,
        max_age=config.max_age or math.inf,
        **{name: getattr(config, name) for name in same},
    )


def result_of(outcome: Outcome, *, unchanged: bool, stored: bool = True) -> RefreshOutcome:
    """What an outcome says of a page; `stored`: its copy is kept (no noarchive)."""
    if outcome in _SHOWN:
        if not stored:
            return RefreshOutcome.DENIED
        return RefreshOutcome.UNCHANGED if unchanged else RefreshOutcome.CHANGED
    if outcome in (Outcome.REDIRECT, Outcome.BAD_REDIRECT):
        return RefreshOutcome.MOVED
    if outcome is Outcome.ROBOTS_DENIED:
        return RefreshOutcome.DENIED
    return RefreshOutcome.FAILED if outcome in _FAILURES else RefreshOutcome.GONE


def share_of(config: RefreshConfig) -> float | Literal["auto"]:
    """Return how fetches are divided; a crawl that is there for freshness divides them by worth where nothing is set."""
    return "auto" if config.endless and not config.share else config.share


class Refresh:
    """See the module's picture.

    Args:
        config: share, policy, bounds.
        record: what is known of a page by its fingerprint, None if nothing is.
        hash: keyed hash of bytes, 64 bits.
        fingerprint: that of a URL in request form.
        host_key: (host name, fingerprint of one of its URLs) -> key of the host.
        importance: of pages, in requests a day; what the configuration says where none is given.
        overrides: least and greatest ages of a part of the web.
        rate: fetches a second of this process that are all for refresh; 0 = not known.
        name: of this process among those that share the rate.
    """

    def __init__(
        self,
        config: RefreshConfig,
        *,
        record: Callable[[int], PageRecord | None],
        hash: Callable[[bytes], int],
        host_key: Callable[[str, int], int],
        fingerprint: Callable[[str], int],
        importance: Importance | None = None,
        overrides: Overrides | None = None,
        rate: float = 0.0,
        name: str = "p0",
        seed: int = 1,
    ) -> None:
        self.config = config
        self.schedule: Schedule | Arms
        if config.arms:
            self.schedule = Arms(
                [settings_of(config, policy) for policy in config.arms], seed=seed, track=True
            )
        else:
            self.schedule = Schedule(settings_of(config), seed=seed, track=True)
        self._speed = config.speed
        self.share = Share(share_of(config))
        self.portion = 1.0  # of what all processes spend on known pages
        self.endless = config.endless
        self._record = record
        self._hash = hash
        self._host_key = host_key
        self._fingerprint = fingerprint
        self._overrides = overrides or Overrides(())
        self._has_bounds = any(
            table.min_age is not None or table.max_age is not None for table in self._overrides.tables
        )
        self._held: dict[int, PageView] = {}  # by fingerprint: a page under way, as it stood before
        self._shut: set[int] = set()  # keys of hosts that are blocked until the frontier says otherwise
        self._ahead: deque[int] = deque()  # fingerprints of pages asked for out of turn
        self._wanted: set[int] = set()
        self.validators = Validators(config)
        self.readings = Readings()
        self._by_value = all(policy in BY_LEVEL for policy in config.arms or (config.policy,))
        self.importance = importance or Importance(config)
        self.expectation = Expectation(self.schedule, self._speed)
        self.balance = Balance(name)
        self.news = News()
        self.births = Births()
        self._busy, self._waited = 1.0, 0.0  # share of the time that the rate holds this process back
        self._levelled_at = -math.inf
        self._delays: dict[
            tuple[int, str], list[float]
        ] = {}  # (host, source) -> signals with a date, their delays
        self.set_rate(rate)

    def __len__(self) -> int:
        return len(self.schedule)

    def __contains__(self, fingerprint: int) -> bool:
        return fingerprint in self.schedule

    # -- opening -----------------------------------------------------------------

    def open(
        self,
        store: KeyValue,
        stored: Callable[[], Iterable[tuple[int, Callable[[], PageRecord]]]],
        now: float,
    ) -> None:
        """Rebuild the schedule; take up pages of `stored` (fingerprint, its record) that it does not know.

        Raises:
            DamageError: a record is not whole.
        """
        state.load(self.schedule, store, self._sites(now))
        self.balance.tilt = state.stored_tilt(store)
        self.expectation.hazard = state.stored_hazard(store)
        self.validators.open(store)
        self.births.open(store)
        new = (
            (fingerprint, record)
            for fingerprint, read in stored()
            if fingerprint not in self.schedule and _is_fit(record := read())
        )
        while chunk := list(islice(new, _ADOPTED_AT_ONCE)):
            fingerprints = np.array([fingerprint for fingerprint, _ in chunk], np.uint64)
            keys = [self._keys(fingerprint, record.url) for fingerprint, record in chunk]
            hosts, directories = np.array(keys, np.uint64).T
            crawled = self._speed * np.minimum([record.fetched_at for _, record in chunk], now)
            weights = np.array(
                [self.importance.of(fingerprint, record, now) for fingerprint, record in chunk]
            )
            self.schedule.add_many(fingerprints, hosts, directories, crawled, weights, self._sites(now))
        self._take_up_sources(store, now)
        if self._has_bounds:
            for fingerprint, read in stored():
                if (page := self.schedule.find(fingerprint)) >= 0:
                    self._bound_ages(page, read().url, now)

    def _bound_ages(self, page: int, url: str, now: float) -> None:
        """Give a page the least and greatest age that an override has for it."""
        own = self._overrides.for_url(url, hostname(url))
        if own.min_age is None and own.max_age is None:
            return
        least = self.config.min_age if own.min_age is None else own.min_age
        most = self.config.max_age if own.max_age is None else own.max_age
        self.schedule.bound_ages(page, least, most or math.inf)
        self.schedule.weigh(page, self.schedule.page_state(page)[7], self._sites(now))  # a new deadline

    def _sites(self, instant: float) -> float:
        """An instant on the clock of the sites, which is the schedule's."""
        return instant * self._speed

    def _keys(self, fingerprint: int, url: str) -> tuple[int, int]:
        """Keys of a URL's host and directory; both begin with its bucket."""
        site = authority(url)
        folder = f"{site}{target(url).partition('?')[0].rpartition('/')[0]}/"
        name = site.partition("://")[2]
        host, colon, port = name.rpartition(":")
        name = host if colon and port.isdigit() else name
        bucket = fingerprint & ~_LOW_48
        return self._host_key(name, fingerprint), bucket | self._hash(folder.encode()) & _LOW_48

    # -- what the frontier asks ----------------------------------------------------

    def look(self, now: float) -> Refetch | None:
        """The page that is worth most, of all whose hosts are not blocked; None if there is none."""
        for _ in range(min(AHEAD_LOOKS, len(self._ahead))):
            fingerprint = self._ahead[0]
            page = self.schedule.find(fingerprint)
            known = self.schedule.page(page, self._sites(now)) if page >= 0 else None
            if known is None or known.state not in ("waits", "explored"):
                self._ahead.popleft()
                self._wanted.discard(fingerprint)
                continue
            host = self.schedule.host_view(known.host)
            if (
                not host.busy
                and host.ready <= self._sites(now)
                and (found := self._refetch(page)) is not None
            ):
                return found
            self._ahead.rotate(-1)
        while (page := self.schedule.look(self._sites(now))) >= 0:
            if (found := self._refetch(page)) is not None:
                return found
        return None

    def _refetch(self, page: int) -> Refetch | None:
        """What to ask for a page; one without a record leaves the schedule."""
        fingerprint = self.schedule.page_state(page)[0]
        record = self._record(fingerprint)
        if record is None:
            self.schedule.remove(page)
            return None
        flags = record.flags & ~_REFRESH | _REFRESH
        return Refetch(page, fingerprint, record.url, record.depth, record.via, record.redirects, flags)

    def host_key(self, refetch: Refetch) -> int:
        return int(self.schedule.host_view(self.schedule.host_of(refetch.page)).key)

    def hold(self, refetch: Refetch, now: float) -> None:
        """The page is under way, and its host busy, until `ended` or `give_back`."""
        self._held[refetch.fingerprint] = self.schedule.page(refetch.page, self._sites(now))
        self.schedule.hold(refetch.page, self._sites(now))
        if refetch.fingerprint in self._wanted:
            self._wanted.discard(refetch.fingerprint)
            self._ahead.remove(refetch.fingerprint)

    def give_back(self, refetch: Refetch, now: float, ready: float) -> None:
        """The page was not asked; its host may be from `ready` on."""
        if self._held.pop(refetch.fingerprint, None) is not None:
            self.schedule.give_back(refetch.page, self._sites(now), self._sites(ready))

    def block(self, refetch: Refetch, until: float) -> None:
        """The page's host may not be asked before `until`."""
        self.schedule.block(self.schedule.host_of(refetch.page), self._sites(until))

    def shut(self, refetch: Refetch) -> None:
        """The page's host may not be asked before `reopen`."""
        self._shut.add(self.host_key(refetch))
        self.block(refetch, math.inf)

    def reopen(self, host_key: int, ready: float) -> None:
        """A host that was shut may be asked from `ready` on; harmless for others."""
        if host_key in self._shut:
            self._shut.discard(host_key)
            self.schedule.block(self.schedule.host(host_key), self._sites(ready))

    def next_wakeup(self, now: float) -> float:
        """The next instant at which `look` may give a page; infinite if none ever may."""
        then = self._sites(now)
        if self.schedule.look(then) >= 0:
            return now
        return max(self.schedule.next_wakeup(then) / self._speed, now)

    # -- what is learned -------------------------------------------------------------

    def add(
        self,
        fingerprint: int,
        record: PageRecord,
        crawled_at: float,
        now: float,
        batch: Batch,
        *,
        news: bool = False,
    ) -> None:
        """A page was fetched for the first time: nothing is learned of its site or directory by that.

        `news`: a known page that was asked again had shown it, and it is a page of its own.
        """
        born = self.births.take(fingerprint, batch)
        if news:
            self.news.copied(born, record, now)
        if not _is_fit(record):
            return
        page = self.schedule.find(fingerprint)
        if page < 0:
            host, directory = self._keys(fingerprint, record.url)
            then = self._sites(now)
            page = self.schedule.add(
                fingerprint, host, directory, min(self._sites(crawled_at), then), then,
                self.importance.of(fingerprint, record, now),
            )  # fmt: skip
            if self._has_bounds:
                self._bound_ages(page, record.url, now)
            if is_source(record) and self._by_value:
                self._meet_source(page, record, then, batch)
            if host in self._shut:
                self.schedule.block(self.schedule.host_of(page), math.inf)
        state.stage_page(self.schedule, page, batch)
        self.stage_signals(batch)

    def ended(
        self,
        errand: Errand,
        result: RefreshOutcome,
        before: PageRecord | None,
        after: PageRecord,
        until: float,
        now: float,
        batch: Batch,
    ) -> None:
        """A page was asked again at `now`, its record was `before`; its host may be asked from `until` on."""
        changed = result is RefreshOutcome.CHANGED
        if self.validators.answered(errand.fingerprint, errand.host, before, after, changed, now, batch):
            self.expectation.results["validator_lies"] += 1
        known = self._held.pop(errand.fingerprint, None)
        if known is None:
            return
        page = self.schedule.find(errand.fingerprint)
        self.expectation.ended(known, result, self._sites(now))
        self.schedule.weigh(page, self.importance.of(errand.fingerprint, after, now), self._sites(now))
        told = changed and is_source(after) and self._by_value
        learned = RefreshOutcome.UNCHANGED if told else result  # a source changes with every page it names
        self.schedule.settle(page, self._sites(now), learned, self._sites(until))
        if is_source(after):
            self.readings.pass_time(errand.fingerprint, self._sites(now) - known.crawled_at)
            if result is RefreshOutcome.UNCHANGED:
                self._heed_source(errand.fingerprint, [], 0, now, batch)
        self._stage(page, batch)

    def conditions(self, errand: Errand, now: float) -> tuple[str, str]:
        """(ETag, Last-Modified) to ask a page with, each "" if there is none to use."""
        known = self._held.get(errand.fingerprint)
        signalled = known is not None and any(known.signals)
        record = self._record(errand.fingerprint)
        return self.validators.conditions(errand.fingerprint, errand.host, record, now, signalled=signalled)

    def _stage(self, page: int, batch: Batch) -> None:
        state.stage(self.schedule, page, batch)
        state.stage_hazard(self.expectation.hazard, batch)
        if self.balance.tilt != 1.0:
            state.stage_tilt(self.balance.tilt, batch)
        self.stage_signals(batch)

    def stage_signals(self, batch: Batch) -> None:
        """Let the batch hold what signals have touched since the last one."""
        if touched := self.schedule.signalled():
            state.stage_signalled(self.schedule, touched, batch)

    # -- what others say ---------------------------------------------------------------

    def ask(self, fingerprint: int) -> bool:
        """Let a known page be asked as soon as its host may be; False if it is not here, or too many wait."""
        if fingerprint in self._wanted or fingerprint in self._held:
            return True
        if fingerprint not in self.schedule or len(self._ahead) >= AHEAD_MAX:
            return False
        self._wanted.add(fingerprint)
        self._ahead.append(fingerprint)
        return True

    def weigh(self, fingerprints: Iterable[int], now: float, batch: Batch) -> int:
        """Give pages the importance that requests for them have now; how many are here. Stored with `batch`."""
        weighed = 0
        for fingerprint in fingerprints:
            page = self.schedule.find(fingerprint)
            record = self._record(fingerprint) if page >= 0 else None
            if record is None:
                continue
            self.schedule.weigh(page, self.importance.of(fingerprint, record, now), self._sites(now))
            state.stage_page(self.schedule, page, batch)
            weighed += 1
        return weighed

    def signal(self, fingerprints: Sequence[int], source: int, now: float) -> int:
        """Somebody says that pages have changed; how many of them are here."""
        known = [fingerprint for fingerprint in fingerprints if fingerprint in self.schedule]
        if known:
            self.schedule.signal_many(np.array(known, np.uint64), self._sites(now), source)
            while self.schedule.work(self._sites(now)) and len(known) <= _ADOPTED_AT_ONCE:
                pass
        return len(known)

    def hear(
        self, told_by: int, dated: Iterable[tuple[str, float]], source: str, now: float, batch: Batch
    ) -> int:
        """A page that tells of others says when these (request forms) changed; how many it says anything new about.

        A change before a page's last crawl has been seen then. `told_by` is the fingerprint of the
        page that told: how often it is read goes with what its news are worth (`sources.py`).
        """
        changed, pages = [], []
        for url, changed_at in dated:
            fingerprint = self._fingerprint(url)
            page = self.schedule.find(fingerprint)
            if page < 0:
                if fingerprint not in self.births and self._record(fingerprint) is None:
                    self.births.tell(fingerprint, changed_at, batch)
                continue
            pages.append(page)
            if self._sites(_latest(changed_at)) > self.schedule.page_state(page)[3]:
                changed.append(fingerprint)
                self._note_delay(page, source, now - changed_at)
        number = source_number(source)
        self._heed_source(told_by, pages, number, now, batch)
        return self.signal(changed, number, now)

    def shown_by(self, via: int) -> int:
        """Follow redirects back from `via`, as far as they are here, to the page that showed the first URL."""
        for _ in range(_HOPS_MAX):
            hub = self._record(via)
            if hub is None or hub.state is not PageState.REDIRECTED:
                break
            via = hub.via
        return via

    def credit(self, fingerprint: int, now: float, batch: Batch) -> bool:
        """Credit a page that showed a URL when it was asked again with the page that the URL became.

        False if it is not here.
        """
        hub, page = self._record(fingerprint), self.schedule.find(fingerprint)
        if hub is None or page < 0:
            return False
        self.news.found(kind_of(hub, is_feed=hub.content_type in FEED_TYPES), now)
        self.schedule.show(page, 1.0, self._sites(now))
        state.stage(self.schedule, page, batch)
        return True

    def _meet_source(self, page: int, record: PageRecord, then: float, batch: Batch) -> None:
        """Let a source that was read for the first time be read as one that is right half of the time."""
        own = self.schedule.page(page, then)
        interval = self.readings.begin(own.fingerprint, record.links, own.rate, own.level / own.importance)
        self._read_every(interval, page, record.url, then)
        self.readings.stage(own.fingerprint, batch)

    def _heed_source(
        self, fingerprint: int, news: Sequence[int], source: int, now: float, batch: Batch
    ) -> None:
        """Let a source be read at the interval at which that pays, given the pages it told of; else as a page."""
        page = self.schedule.find(fingerprint)
        record = self._record(fingerprint) if page >= 0 else None
        if record is None or not is_source(record) or not self._by_value:
            return
        then = self._sites(now)
        own = self.schedule.page(page, then)
        looked = [self.schedule.page(each, then) for each in news[:: 1 + len(news) // TOLD_MAX]]
        told = Announced([each.importance for each in looked], [each.rate for each in looked], len(news))
        precision = self.schedule.quality(own.host)[1][source]
        self._read_every(self.readings.hear(fingerprint, told, own.level, precision), page, record.url, then)
        self.readings.stage(fingerprint, batch)

    def _read_every(self, interval: float, page: int, url: str, then: float) -> None:
        """Bound the ages of a source, unless the user has; the bounds of the configuration hold."""
        own = self._overrides.for_url(url, hostname(url)) if self._has_bounds else None
        if own is not None and (own.min_age is not None or own.max_age is not None):
            return
        bounds = ages(interval, self.config.min_age, self.config.max_age or math.inf)
        self.schedule.bound_ages(page, *bounds)
        self.schedule.weigh(page, self.schedule.page_state(page)[7], then)  # a new deadline

    def _take_up_sources(self, store: KeyValue, now: float) -> None:
        for fingerprint in self.readings.open(store):
            page, record = self.schedule.find(fingerprint), self._record(fingerprint)
            if page >= 0 and record is not None and self._by_value:
                level = self.schedule.page(page, self._sites(now)).level
                interval = self.readings.interval(fingerprint, level)
                self._read_every(interval, page, record.url, self._sites(now))

    def _note_delay(self, page: int, source: str, delay: float) -> None:
        sums = self._delays.setdefault((self.schedule.host_of(page), source), [0.0, 0.0])
        sums[0] += 1.0
        sums[1] += max(delay, 0.0)
        if len(self._delays) > HEARD_MAX:
            del self._delays[next(iter(self._delays))]

    # -- the rate, and the levels of other processes ---------------------------------------

    def set_rate(self, rate: float) -> None:
        """All of this process's rate, for a crawl that is there for known pages; 0 = none set."""
        if self.endless and rate:
            self.schedule.rate = rate / self._speed

    def level(self, reports: Mapping[str, LevelReport], waited: float, now: float) -> LevelReport:
        """Learn from what all processes said of their levels; what this one says now.

        `waited`: seconds so far in which the rate alone kept this process from asking.
        """
        elapsed = now - self._levelled_at if self._levelled_at > -math.inf else 0.0
        if elapsed > 0.0:
            share = min((waited - self._waited) / elapsed, 1.0)
            self._busy += (share - self._busy) * -math.expm1(-elapsed / _BUSY_SMOOTHING)
        self._levelled_at, self._waited = now, waited
        pages, rate = len(self.schedule), self.schedule.rate
        revisit = pages / rate if pages and rate else self.config.clock_max
        then, price = self._sites(now), self.price(now)
        own = self.balance.report(price, pages, self._busy >= BUSY_SHARE, then, revisit)
        self.balance.renew({**reports, self.balance.name: own}, self._sites(elapsed), revisit)
        return own

    def price(self, now: float) -> float:
        """The value of the page that is next: what more rate would gain here; 0 without pages."""
        return self.schedule.price(self._sites(now)) if len(self.schedule) else 0.0

    def new_value(self, importance: float) -> float:
        """Return what it is worth to fetch a URL for the first time: its importance over the mean change rate.

        That is the ceiling of a page of mean rate: no copy is as stale as the one that is not there. `importance`
        is that of the URL over a known page's, 0 .. 1.
        """
        rate = self.schedule.mean_rate
        weight = self.config.new_page_weight or 1.0
        return importance * weight * self.importance.prior / rate if rate > 0.0 else 0.0

    def set_portion(self, discovery: float, known: float, rate: float) -> None:
        """The parts of the whole `rate` that this process has for new and for known pages."""
        self.portion = known
        if discovery + known > 0.0 and not self.share.auto:
            self.share.refresh = known / (discovery + known)
        if known > 0.0:
            self.set_rate(known * rate)

    # -- what is shown -------------------------------------------------------------------

    def probability(self, fingerprint: int, fetched_at: float, now: float) -> float | None:
        """The probability that a page's copy of `fetched_at` is current; None if the page is not here.

        A later answer that is not committed yet says nothing of that copy: its age and the page's rate do.
        """
        page = self.schedule.find(fingerprint)
        if page < 0:
            return None
        known = self.schedule.page(page, self._sites(now))
        if known.crawled_at > self._sites(fetched_at):
            age = max(self._sites(now) - self._sites(fetched_at), 0.0)
            return round(math.exp(-known.rate * age), FRESH_DIGITS)
        return self._fresh(known)

    def _fresh(self, known: PageView) -> float:
        return round(self.expectation.hazard.corrected(known.fresh), FRESH_DIGITS)

    def explain(self, fingerprint: int, now: float) -> dict[str, Any]:
        """Rate and its error, clock, signals, value and deadline of a page, what it waits for; {} if it is not here.

        Instants are ours; rates, clock and watched time are those of the sites.
        """
        page = self.schedule.find(fingerprint)
        if page < 0:
            return {}
        known = self.schedule.page(page, self._sites(now))
        plain: dict[str, Any] = msgspec.to_builtins(known)
        for name in ("fingerprint", "host", "directory"):
            del plain[name]
        host = self.schedule.host_view(known.host)
        told = dict(zip(NAMES, known.signals, strict=False))
        return plain | {
            "fresh": self._fresh(known),
            "rate_error": known.rate / math.sqrt(1.0 + known.changes),
            "signals_by_source": {source: n for source, n in told.items() if n},
            "crawled_at": known.crawled_at / self._speed,
            "deadline": _finite(known.deadline / self._speed),
            "host_ready": _finite(host.ready / self._speed),
            "host_level": host.level,
            "waits_for": self._waits_for(known, host, now),
            "hub": self.schedule.hub(page, self._sites(now)),
        }

    def _waits_for(self, known: PageView, host: HostView, now: float) -> str:
        """In a few words."""
        then = self._sites(now)
        if known.state == "in flight":
            return "its answer"
        if known.state in ("away", "failed", "too young"):
            return {"away": "its own rare schedule", "failed": "its retry", "too young": "refresh.min_age"}[
                known.state
            ]
        if known.fingerprint in self._wanted:
            return "its host: it was asked for"
        if host.busy or host.ready > then:
            return "its host"
        return "its turn: it is due" if known.deadline <= then else "its value to reach the level"

    def view(self, now: float) -> dict[str, Any]:
        """What a status says of it."""
        seen = self.expectation.view(self._sites(now))
        return seen | {
            "in_flight": len(self._held),
            "ahead": len(self._ahead),
            "share": round(self.portion, 4),
            "known_share": round(self.share.refresh, 3),
            "news": self.news.view(now) | self.schedule.hubs_view(self._sites(now)),
            "busy": round(self._busy, 3),
        }

    def by_host(self, now: float) -> dict[int, tuple[int, float]]:
        """Key of a host -> (pages, expected freshness), of hosts whose pages a sample meets."""
        return self.expectation.by_host(self._sites(now))

    def heard(self) -> list[dict[str, Any]]:
        """By host and source: signals judged, measured precision, recall of all of the host's, delay (None: no dates)."""
        rows = []
        for host in self.schedule.heard_hosts():
            signals, precisions, recall = self.schedule.quality(host)
            for number, source in enumerate(NAMES):
                if signals[number] > 0.0:
                    n, delays = self._delays.get((host, source), (0.0, 0.0))
                    rows.append(
                        {
                            "host_key": self.schedule.host_view(host).key,
                            "source": source,
                            "signals": round(signals[number], 1),
                            "precision": round(precisions[number], 3),
                            "recall": round(recall, 3),
                            "delay": round(delays / n, 1) if n else None,
                        }
                    )
        return rows

    def _check(self) -> None:
        """Assert what holds between any two calls."""
        self.schedule._check()
        assert set(self._ahead) == self._wanted
        assert len(self._held) <= len(self.schedule)
        assert 0.0 <= self._busy <= 1.0

    def __repr__(self) -> str:
        return f"Refresh({len(self.schedule)} pages, {len(self._held)} in flight, {self.share!r})"


def is_source(record: PageRecord) -> bool:
    """Whether a page's content is signals about others: a sitemap or a feed."""
    return bool(record.flags & _SOURCES) or record.content_type in FEED_TYPES


def _latest(changed_at: float) -> float:
    """The last instant that a date may mean: midnight is a day without a time."""
    return changed_at + DAY - 1.0 if changed_at % DAY == 0.0 else changed_at


def _finite(value: float) -> float | None:
    return value if abs(value) < math.inf else None


def _is_fit(record: PageRecord) -> bool:
    """Whether there is a copy to keep fresh, and a plain GET gives it."""
    return record.state is PageState.STORED and not record.noarchive and not record.flags & _OWN_WAY
