# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False, initializedcheck=False
"""What can be asked of a schedule without changing it: pages, hosts, what a store keeps; its invariants."""

from collections import deque

import cython
import numpy as np
from cython.cimports.libc.math import exp, isfinite

from crawler.freshness.recalibration import Hearing
from crawler.frontier.refresh.settings import DAY, HostView, PageView, Settings

if cython.compiled:
    from cython.cimports.crawler.freshness.discovery import hub_value
    from cython.cimports.crawler.freshness.learning import Learning
    from cython.cimports.crawler.frontier.refresh.deadlines import Deadlines
    from cython.cimports.crawler.frontier.refresh.exploration import Exploration
    from cython.cimports.crawler.frontier.refresh.queues import Queues
    from cython.cimports.crawler.frontier.refresh.steering import Steering
    from cython.cimports.crawler.frontier.refresh.tables import (
        AWAY,
        DOUBLING,
        EXPLORED,
        FAILED,
        HELD,
        WITHHELD,
        Tables,
    )
else:
    from math import exp, isfinite

    from crawler.freshness.discovery import hub_value
    from crawler.freshness.learning import Learning
    from crawler.frontier.refresh.deadlines import Deadlines
    from crawler.frontier.refresh.exploration import Exploration
    from crawler.frontier.refresh.queues import Queues
    from crawler.frontier.refresh.steering import Steering
    from crawler.frontier.refresh.tables import (
        AWAY,
        DOUBLING,
        EXPLORED,
        FAILED,
        HELD,
        WITHHELD,
        Tables,
    )

_INFINITY = cython.declare(cython.double, float("inf"))
_HUB_SAMPLE = 1000  # hubs that stand for all where a sum over them is asked for


@cython.cclass
class Overview:
    """The parts of a schedule, and what they show. `Schedule` makes the parts and changes them."""

    _tables: Tables
    _steering: Steering
    _deadlines: Deadlines
    _queues: Queues
    _exploration: Exploration
    _learning: Learning
    _held: dict[int, tuple[int, bool]]  # pages in flight: signals before it, and whether it was removed since
    _touched: set[int] | None
    _backlog: deque[tuple[np.ndarray, int]]  # signals that came in bulk, and their source
    settings: Settings
    takes: int
    waiting_signals: int

    def find(self, fingerprint: int) -> int:
        """The page's number; -1 if it is not in."""
        return self._tables.pages.find(fingerprint)

    @property
    def bias(self) -> tuple[float, float]:
        """Changes found by late crawls, and expected by the rates (`freshness/learning.py`)."""
        return self._learning.found, self._learning.told

    @bias.setter
    def bias(self, sums: tuple[float, float]) -> None:
        self._learning.restore_bias(*sums)

    def __contains__(self, fingerprint: int) -> bool:
        return self._tables.pages.find(fingerprint) >= 0

    def __len__(self) -> int:
        return self._tables.pages.size

    def host_of(self, page: int) -> int:
        self._require(page)
        return self._tables.owner(page)

    @property
    def sweeping(self) -> bool:
        """Whether keys are being made anew after the level has moved; `look` and `work` go on with it."""
        return self._queues.swept < self._tables.pages.rows

    def due_at(self, page: int, now: float) -> float:
        """When the page's value reaches the level of its host, as things stand; infinite if never."""
        self._require(page)
        self._instant(now)
        host: cython.int = self._tables.owner(page)
        if self._tables.states[page] & WITHHELD:
            return self._tables.page_heaps.nodes[page].key
        self._deadlines.assign(page, host)
        n = self._deadlines.signals_of(host, self._tables.rows[page].signals)
        if self._deadlines.wait(page, host, n, now) == _INFINITY:
            return self._tables.crawled[page] + self._tables.max_age(page)
        return self._deadlines.due(page, host, n, max(now - self._tables.crawled[page], 0.0), now)

    def page(self, page: int, now: float) -> PageView:
        """All that is known of a page, by means of this moment: a schedule rebuilt from the store says the same."""
        self._require(page)
        host: cython.int = self._tables.owner(page)
        self._learning.renew_crawl()
        self._learning.renew(host)
        due = self.due_at(page, now)
        elapsed = max(now - self._tables.crawled[page], 0.0)
        self._deadlines.assign(page, host)
        level = self._steering.level * self._tables.host_rows[host].boost
        n = self._deadlines.signals_of(host, self._tables.rows[page].signals)
        self._deadlines.unpack(self._tables.rows[page].signals)
        directory = self._tables.page_heaps.nodes[page].owner
        importance = self._tables.importance(page)
        clock = self._learning.clock(host, directory, elapsed, now) if self._deadlines.clocked else elapsed
        if self._deadlines.plain:
            fresh = self._fresh(clock, n)
        else:
            changes, watched = self._tables.rows[page].changes, self._tables.rows[page].watched
            fresh = 1.0 - self._learning.expected(host, changes, watched, clock, self._deadlines.counts)
        return PageView(
            fingerprint=self._tables.pages.key_of(page),
            host=host,
            directory=directory,
            crawled_at=self._tables.crawled[page],
            importance=importance,
            changes=self._tables.rows[page].changes,
            watched=self._tables.rows[page].watched,
            signals=(self._tables.rows[page].signals,)
            if self._deadlines.plain
            else tuple(int(count) for count in self._deadlines.counts),
            rate=importance / self._deadlines.page.ceiling if self._deadlines.page.ceiling > 0.0 else 0.0,
            clock=clock,
            fresh=fresh,
            hearing=self._hearing(host, n),
            stands_for=self._stands_for(host, now),
            value=self._deadlines.ratio(page, host, elapsed, n, now) * level,
            ceiling=self._deadlines.page.ceiling,
            level=level,
            deadline=due,
            state=_word(self._tables.states[page]),
        )

    def _hearing(self, host: cython.int, signals: cython.double) -> Hearing:
        """What signals said of a page of this host with so many of them."""
        if signals > 0.0:
            return Hearing.TOLD
        return Hearing.UNSAID if self._learning.quality.recall(host) > 0.0 else Hearing.NONE

    def _stands_for(self, host: cython.int, now: cython.double) -> float:
        """The time since the last crawl of this host over the mean of that time; 1 if there was none."""
        gap: cython.double = now - self._tables.host_rows[host].previous
        if not 0.0 <= gap < _INFINITY:
            return 1.0
        return gap * self._tables.host_rows[host].pages / self._steering.revisit

    @cython.cfunc
    @cython.exceptval(check=False)
    def _fresh(self, clock: cython.double, n: cython.double) -> cython.double:
        """exp(-u) of the page assigned last; a signal may be certain (of infinite weight), or none have come."""
        staleness: cython.double = self._deadlines.page.silent_rate * clock
        if n > 0.0 and self._deadlines.page.signal_time > 0.0:
            staleness += n * self._deadlines.page.signal_weight
        return exp(-staleness)

    @property
    def mean_rate(self) -> float:
        """Changes of a page per time, the mean over the crawl."""
        return self._learning.rates.crawl_mean

    def host_view(self, host: int) -> HostView:
        """All that is known of a host."""
        self._require_host(host)
        deadline = (
            self._tables.directory_heaps.nodes[self._tables.host_rows[host].root].key
            if self._tables.host_rows[host].root >= 0
            else _INFINITY
        )
        return HostView(
            key=self._tables.hosts.key_of(host),
            pages=self._tables.host_rows[host].pages,
            ready=self._tables.host_rows[host].ready,
            busy=bool(self._tables.host_rows[host].busy),
            level=self._steering.level * self._tables.host_rows[host].boost,
            boost=self._tables.host_rows[host].boost,
            deadline=deadline,
        )

    def quality(self, host: int) -> tuple[list[float], list[float], float]:
        """(signals heard and judged, precision) by source, and the recall of all; of a host's pages."""
        self._require_host(host)
        quality = self._learning.quality
        heard = [float(each) for each in quality.all_signals[host]]
        return heard, [quality.precision(host, source) for source in range(8)], quality.recall(host)

    def heard_hosts(self) -> list[int]:
        """Numbers of the hosts from whose pages signals ever came."""
        counts = np.asarray(self._learning.quality.all_signals)[: self._tables.hosts.rows]
        found: list[int] = np.flatnonzero(counts.any(axis=1)).tolist()
        return found

    def hub(self, page: int, now: float) -> dict[str, float]:
        """Return what is known of a page as a hub: new pages a day, its value; {} if it is none."""
        self._require(page)
        self._instant(now)
        row: cython.int = self._tables.hubs.row_of(page)
        if row < 0:
            return {}
        host: cython.int = self._tables.owner(page)
        elapsed = max(now - self._tables.crawled[page], 0.0)
        discovery = self._learning.discovery
        directory: cython.int = self._tables.page_heaps.nodes[page].owner
        found: cython.double = self._tables.hubs.rows[row].found
        watched: cython.double = self._tables.hubs.rows[row].watched
        theta = discovery.theta(host, directory, found, watched, elapsed, now)
        error = discovery.error(host, directory, found, watched, elapsed, now)
        return {
            "pages_per_day": theta * DAY,
            "error": error * DAY,
            "unfound": theta * elapsed,
            "value": hub_value(self._deadlines.pace(page, host, now), elapsed),
        }

    def hubs_view(self, now: float) -> dict[str, float]:
        """Return how many pages are hubs, and how many pages exist, as they let expect, that nobody has found."""
        pages = self._tables.hubs.pages()
        step = max(1, len(pages) // _HUB_SAMPLE)
        unfound = sum(self.hub(page, now)["unfound"] for page in pages[::step].tolist())
        return {"hubs": len(pages), "unfound": round(step * unfound, 1)}

    def hub_state(self, page: int) -> tuple[float, float]:
        """Pages found, and seconds watched; (0, 0) of a page that is no hub."""
        self._require(page)
        found: tuple[float, float] = self._tables.hubs.state(page)
        return found

    def page_state(self, page: int) -> tuple[int, int, int, float, float, float, int, float, int]:
        """Fingerprint, keys of host and directory, last crawl, k, T, signals, importance, state."""
        self._require(page)
        directory: cython.int = self._tables.page_heaps.nodes[page].owner
        signals: cython.uint = self._tables.rows[page].signals
        if page in self._held:
            signals = self._deadlines.summed(self._held[page][0], signals)
        state: cython.uint = self._tables.states[page] if self._tables.states[page] & (AWAY | FAILED) else 0
        return (
            self._tables.pages.key_of(page),
            self._tables.hosts.key_of(self._tables.owner(page)),
            self._tables.directories.key_of(directory),
            self._tables.crawled[page],
            self._tables.rows[page].changes,
            self._tables.rows[page].watched,
            signals,
            self._tables.importance(page),
            state & (AWAY | FAILED | 7 * DOUBLING),
        )

    def site_state(self, host: int) -> tuple[int, list[float]]:
        """The host's key, and its numbers: clock (3), signals (18), boost, credence (3), new pages (3)."""
        self._require_host(host)
        sites = self._learning.sites
        counts = [sites.observed_counts[host], sites.expected_counts[host], sites.instants[host]]
        credence = self._learning.credence
        trials = [credence.agreements[host], credence.weights[host], credence.scores[host]]
        sums = self._learning.quality.sums_of(host).tolist()
        return self._tables.hosts.key_of(host), [
            *counts,
            *sums,
            self._tables.host_rows[host].boost,
            *trials,
            *self._learning.discovery.site_state(host),
        ]

    def directory_state(self, page: int) -> tuple[int, tuple[float, ...]]:
        """Key, neighbourhood counts (3) and new pages (3) of the page's directory."""
        self._require(page)
        number: cython.int = self._tables.page_heaps.nodes[page].owner
        groups = self._learning.directories
        counts = (groups.observed_counts[number], groups.expected_counts[number], groups.instants[number])
        return self._tables.directories.key_of(number), (
            *counts,
            *self._learning.discovery.directory_state(number),
        )

    @cython.ccall
    @cython.exceptval(-1, check=True)
    def next_wakeup(self, now: cython.double) -> cython.double:
        """When a page may be due; it may be past, and infinite if none ever is. `take` need not wait for it."""
        found: cython.double = _INFINITY
        if self._backlog:
            return now
        if self._queues.eligible >= 0:
            found = self._tables.host_heaps.nodes[self._queues.eligible].key
        if self._queues.waiting >= 0:
            found = min(found, self._tables.host_heaps.nodes[self._queues.waiting].key)
        if self._queues.withheld >= 0:
            found = min(found, self._tables.page_heaps.nodes[self._queues.withheld].key)
        return found

    @cython.cfunc
    def _instant(self, now: cython.double) -> cython.void:
        if not isfinite(now):
            raise ValueError(f"instant {now}")

    @cython.cfunc
    def _require(self, page: cython.Py_ssize_t) -> cython.void:
        """Raise unless this is the number of a page."""
        if not 0 <= page < self._tables.pages.rows or self._is_free(cython.cast(cython.int, page)):
            raise RuntimeError(f"page {page} is not in {self!r}")

    @cython.cfunc
    @cython.exceptval(-1, check=True)
    def _is_free(self, page: cython.int) -> cython.bint:
        if not self._tables.states[page] & HELD:
            return False
        held = self._held.get(page)
        return held is None or held[1]

    @cython.cfunc
    def _require_host(self, host: cython.Py_ssize_t) -> cython.void:
        if not 0 <= host < self._tables.hosts.rows:
            raise RuntimeError(f"host {host} is not in {self!r}")

    def _check(self) -> None:
        """Assert all invariants."""
        self._queues._check(self._held)
        self._tables.hubs._check(set(self._tables.pages._check()))
        assert self.waiting_signals == sum(len(keys) for keys, _ in self._backlog)
        assert 0.0 <= self._steering.level < _INFINITY
        self._learning._check()

    @property
    def checks(self) -> int:
        """Keys that looks have made anew."""
        return self._queues.checks

    @property
    def explored(self) -> int:
        """Pages that were made due as the longest unvisited."""
        return self._exploration.explored

    @property
    def bytes_held(self) -> int:
        """Bytes of all tables."""
        return self._tables.bytes_held()

    def __repr__(self) -> str:
        return (
            f"Schedule({self._tables.pages.size} pages, {self._tables.hosts.size} hosts, {len(self._held)} in flight, "
            f"level {self._steering.level:.4g})"
        )


def _word(state: int) -> str:
    """The state of a page in words."""
    for bit, word in ((HELD, "in flight"), (AWAY, "away"), (FAILED, "failed"), (WITHHELD, "too young")):
        if state & bit:
            return word
    return "explored" if state & EXPLORED else "waits"
