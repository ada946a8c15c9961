"""The refresh side of a crawl: the schedule, joined to frontier, pages and store.

    look --> hold --> the page's host, as for any URL --> ended (or give_back)
      ^                                                      |
      +------- add (first fetch)                     schedule learns; f/ s/ n/ into the page's change

The frontier asks `look` for the best page, and lets its host do the rest:
robots.txt, addresses, gap, place. A host that may not be asked now is blocked
in the schedule until it may. Decisions are made in the order of the commit
queue, so what is stored never contradicts the records of pages.

The schedule runs on the clock of the sites: that of the crawl times `refresh.speed`.
"""

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

import msgspec
import numpy as np

from crawler.config import RefreshConfig
from crawler.frontier.hosts.front_host import Refetch
from crawler.frontier.refresh import state
from crawler.frontier.refresh.schedule import Schedule
from crawler.frontier.refresh.settings import RefreshOutcome, Settings
from crawler.frontier.refresh.validators import Validators
from crawler.frontier.share import Share
from crawler.records import Errand, LinkFlag, Outcome, PageRecord, PageState
from crawler.storage.kv import Batch, KeyValue
from crawler.urls.canonical import authority, target

# Numbers under which the schedule counts signals; any other source is the last one, 7.
SIGNAL_SOURCES = {
    "sitemap": 0,
    "feed": 1,
    "indexnow": 2,
    "websub": 3,
    "signal": 4,
    "headers": 5,
    "listing": 6,
}
_REFRESH = int(LinkFlag.REFRESH)
_OWN_WAY = int(LinkFlag.OWN_WAY)
_LOW_48 = (1 << 48) - 1
_ADOPTED_AT_ONCE = 1024
_SAMPLE = 1000  # pages looked at for the expected freshness
ENDLESS_SHARE = 0.9  # of a crawl that is there for freshness, where none is set
AHEAD_MAX = 1000  # pages asked for out of turn
AHEAD_LOOKS = 8  # of them looked at by one call
DECILES = 10
_SHOWN = (Outcome.FETCHED, Outcome.EMPTY, Outcome.UNCHANGED)
_FAILURES = frozenset(
    {
        Outcome.TEMPORARY, Outcome.HOST_BUSY, Outcome.TRUNCATED, Outcome.FRAMING, Outcome.HEADER_TIMEOUT,
        Outcome.DNS_ERROR, Outcome.CONNECT_ERROR, Outcome.TLS_ERROR, Outcome.RESET, Outcome.PROXY_ERROR,
        Outcome.INTERNAL_ERROR,
    }
)  # fmt: skip


def settings_of(config: RefreshConfig) -> Settings:
    """The schedule's part of the configuration."""
    same = (
        "policy", "neighbourhood", "pooling", "explore", "min_age", "discard_window", "clock_min",
        "clock_max", "first_interval", "retry_age", "gone_age",
    )  # fmt: skip
    return Settings(max_age=config.max_age or math.inf, **{name: getattr(config, name) for name in same})


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


class Refresh:
    """See the module's picture.

    Args:
        config: share, policy, bounds.
        record: what is known of a page by its fingerprint, None if nothing is.
        hash: keyed hash of bytes, 64 bits.
        fingerprint: that of a URL in request form.
        host_key: (host name, fingerprint of one of its URLs) -> key of the host.
        rate: fetches a second of this process that are all for refresh; 0 = not known.
    """

    def __init__(
        self,
        config: RefreshConfig,
        *,
        record: Callable[[int], PageRecord | None],
        hash: Callable[[bytes], int],
        host_key: Callable[[str, int], int],
        fingerprint: Callable[[str], int],
        rate: float = 0.0,
        seed: int = 1,
    ) -> None:
        self.config = config
        self.schedule = Schedule(settings_of(config), seed=seed, track=True)
        self._speed = config.speed
        self.share = Share(config.share or ENDLESS_SHARE)
        self.endless = config.endless
        self._record = record
        self._hash = hash
        self._host_key = host_key
        self._fingerprint = fingerprint
        self._held: dict[int, int] = {}  # fingerprint -> page
        self._shut: set[int] = set()  # keys of hosts that are blocked until the frontier says otherwise
        self._ahead: deque[int] = deque()  # fingerprints of pages asked for out of turn
        self._wanted: set[int] = set()
        self.validators = Validators(config)
        self._predicted = np.zeros((DECILES, 3))  # by decile: refreshes, changes predicted, changes found
        self.results: Counter[str] = Counter()
        if config.endless and rate:
            self.schedule.rate = rate / self._speed

    def __len__(self) -> int:
        return len(self.schedule)

    # -- opening -----------------------------------------------------------------

    def open(
        self, store: KeyValue, stored: Iterable[tuple[int, Callable[[], PageRecord]]], now: float
    ) -> None:
        """Rebuild the schedule; take up pages of `stored` (fingerprint, its record) that it does not know.

        Raises:
            DamageError: a record is not whole.
        """
        state.load(self.schedule, store, self._sites(now))
        new = (
            (fingerprint, record)
            for fingerprint, read in stored
            if fingerprint not in self.schedule and _is_fit(record := read())
        )
        while chunk := list(islice(new, _ADOPTED_AT_ONCE)):
            fingerprints = np.array([fingerprint for fingerprint, _ in chunk], np.uint64)
            keys = [self._keys(fingerprint, record.url) for fingerprint, record in chunk]
            hosts, directories = np.array(keys, np.uint64).T
            crawled = self._speed * np.minimum([record.fetched_at for _, record in chunk], now)
            self.schedule.add_many(fingerprints, hosts, directories, crawled, 1.0, self._sites(now))

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
        self.schedule.hold(refetch.page, self._sites(now))
        self._held[refetch.fingerprint] = refetch.page
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
        return (
            now if self.schedule.look(then) >= 0 else max(self.schedule.next_wakeup(then) / self._speed, now)
        )

    # -- what is learned -------------------------------------------------------------

    def add(self, fingerprint: int, record: PageRecord, crawled_at: float, now: float, batch: Batch) -> None:
        """A page was fetched for the first time."""
        if not _is_fit(record):
            return
        page = self.schedule.find(fingerprint)
        if page < 0:
            host, directory = self._keys(fingerprint, record.url)
            then = self._sites(now)
            page = self.schedule.add(fingerprint, host, directory, min(self._sites(crawled_at), then), then)
            if host in self._shut:
                self.schedule.block(self.schedule.host_of(page), math.inf)
        self._stage(page, batch)

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
        """A page was asked again, its record was `before`; its host may be asked from `until` on."""
        changed = result is RefreshOutcome.CHANGED
        if self.validators.answered(errand.fingerprint, errand.host, before, after, changed, now):
            self.results["validator_lies"] += 1
        page = self._held.pop(errand.fingerprint, None)
        if page is None:
            return
        if result <= RefreshOutcome.CHANGED:
            self._note_prediction(page, result is RefreshOutcome.CHANGED, now)
        self.results[result.name.lower()] += 1
        self.schedule.settle(page, self._sites(now), result, self._sites(until))
        self._stage(page, batch)

    def conditions(self, errand: Errand, now: float) -> tuple[str, str]:
        """(ETag, Last-Modified) to ask a page with, each "" if there is none to use."""
        page = self._held.get(errand.fingerprint)
        signalled = page is not None and any(self.schedule.page_state(page)[6:7])
        record = self._record(errand.fingerprint)
        return self.validators.conditions(errand.fingerprint, errand.host, record, now, signalled=signalled)

    def _stage(self, page: int, batch: Batch) -> None:
        state.stage(self.schedule, page, batch)
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

    def weigh(self, fingerprint: int, importance: float, now: float) -> bool:
        """Set a page's importance, requests a time; False if it is not here."""
        page = self.schedule.find(fingerprint)
        if page >= 0:
            self.schedule.weigh(page, importance, self._sites(now))
        return page >= 0

    def signal(self, fingerprints: Sequence[int], source: int, now: float) -> int:
        """Somebody says that pages have changed; how many of them are here."""
        known = [fingerprint for fingerprint in fingerprints if fingerprint in self.schedule]
        if known:
            self.schedule.signal_many(np.array(known, np.uint64), self._sites(now), source)
            while self.schedule.work(self._sites(now)) and len(known) <= _ADOPTED_AT_ONCE:
                pass
        return len(known)

    def hear(self, dated: Iterable[tuple[str, float]], source: str, now: float) -> int:
        """A sitemap or feed says when pages (request forms) changed; how many it says anything new about.

        A change before the page's last crawl has been seen then.
        """
        changed = []
        for url, changed_at in dated:
            fingerprint = self._fingerprint(url)
            page = self.schedule.find(fingerprint)
            if page >= 0 and self._sites(changed_at) > self.schedule.page_state(page)[3]:
                changed.append(fingerprint)
        return self.signal(changed, SIGNAL_SOURCES[source], now)

    # -- what is shown -------------------------------------------------------------------

    def probability(self, fingerprint: int, now: float) -> float | None:
        """The probability that a page's copy is current; None if it is not here."""
        page = self.schedule.find(fingerprint)
        return None if page < 0 else self._fresh(page, now)

    def _fresh(self, page: int, now: float) -> float:
        known = self.schedule.page(page, self._sites(now))
        return math.exp(-min(known.rate * max(known.clock, 0.0), 700.0))

    def _note_prediction(self, page: int, changed: bool, now: float) -> None:
        chance = 1.0 - self._fresh(page, now)
        self._predicted[min(int(DECILES * chance), DECILES - 1)] += (1.0, chance, changed)

    def explain(self, fingerprint: int, now: float) -> dict[str, Any]:
        """Rate, clock, signals, value and deadline of a page; {} if it is not here."""
        page = self.schedule.find(fingerprint)
        if page < 0:
            return {}
        known = self.schedule.page(page, self._sites(now))
        plain: dict[str, Any] = msgspec.to_builtins(known)
        for name in ("fingerprint", "host", "directory"):
            del plain[name]
        host = self.schedule.host_view(known.host)
        return plain | {
            "fresh": round(self._fresh(page, now), 4),
            "host_ready": host.ready if host.ready < math.inf else None,
            "host_level": host.level,
        }

    def view(self, now: float) -> dict[str, Any]:
        """What a status says of it."""
        fresh = self._sampled(now)
        return {
            "pages": len(self.schedule),
            "in_flight": len(self._held),
            "ahead": len(self._ahead),
            "expected_freshness": round(float(np.mean(fresh)), 4) if fresh else None,
            "level": self.schedule.level,
            "rate": self.schedule.rate * self._speed,
            "results": dict(self.results),
            "calibration": [
                {"refreshes": int(n), "predicted": round(predicted / n, 3), "found": round(found / n, 3)}
                for n, predicted, found in self._predicted.tolist()
                if n
            ],
        }

    def _sampled(self, now: float) -> list[float]:
        """The probability of being current, of pages spread evenly over the schedule."""
        size = len(self.schedule)
        fresh = []
        for page in range(0, size, max(1, size // _SAMPLE)):
            try:
                fresh.append(self._fresh(page, now))
            except RuntimeError:  # a page that left
                continue
        return fresh

    def _check(self) -> None:
        """Assert what holds between any two calls."""
        self.schedule._check()
        assert set(self._ahead) == self._wanted
        assert len(self._held) <= len(self.schedule)

    def __repr__(self) -> str:
        return f"Refresh({len(self.schedule)} pages, {len(self._held)} in flight, {self.share!r})"


def _is_fit(record: PageRecord) -> bool:
    """Whether there is a copy to keep fresh, and a plain GET gives it."""
    return record.state is PageState.STORED and not record.noarchive and not record.flags & _OWN_WAY
