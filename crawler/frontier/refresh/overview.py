# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False, initializedcheck=False
"""Read-only views of a schedule: pages, hosts, hubs, sizes."""

import cython
import numpy as np
from cython.cimports.crawler.freshness.discovery import hub_value
from cython.cimports.crawler.freshness.learning import Learning
from cython.cimports.crawler.frontier.refresh.deadlines import Deadlines
from cython.cimports.crawler.frontier.refresh.exploration import Exploration
from cython.cimports.crawler.frontier.refresh.flights import Flights, check_instant
from cython.cimports.crawler.frontier.refresh.level_controller import LevelController
from cython.cimports.crawler.frontier.refresh.queues import Queues
from cython.cimports.crawler.frontier.refresh.tables import (
    AWAY,
    EXPLORED,
    FAILED,
    HELD,
    NEW,
    WITHHELD,
    Tables,
)
from cython.cimports.libc.math import exp

from crawler.freshness.recalibration import Hearing, SiteSlope
from crawler.frontier.refresh.settings import DAY, HostView, PageView

_INFINITY = cython.declare(cython.double, float("inf"))
_HUB_SAMPLE = 1000  # size of the sample of hubs from which a sum over all hubs is estimated


class Overview:
    """Read-only views of the parts of a schedule."""

    def __init__(
        self,
        tables: Tables,
        controller: LevelController,
        deadlines: Deadlines,
        queues: Queues,
        exploration: Exploration,
        learning: Learning,
        flights: Flights,
    ) -> None:
        self.tables, self.controller, self.deadlines, self.queues = tables, controller, deadlines, queues
        self.exploration, self.learning, self.flights = exploration, learning, flights

    @property
    def takes(self) -> int:
        """The number of pages taken."""
        return self.flights.takes

    @property
    def checks(self) -> int:
        """The number of keys checked in searches for the next page."""
        return self.queues.checks

    @property
    def explored(self) -> int:
        """The number of pages made due by exploration."""
        return self.exploration.explored

    @property
    def copies(self) -> int:
        """The number of pages that have a current or former copy: all pages that are not away."""
        states = np.asarray(self.tables.states)[: self.tables.pages.rows]
        return int(self.tables.pages.size) - int(np.count_nonzero(states & AWAY))

    @property
    def bytes_held(self) -> int:
        """The size of all tables in bytes."""
        return self.tables.bytes_held()

    @property
    def sweeping(self) -> bool:
        """True while keys are recomputed after a move of the level; `peek` and `work` continue this sweep."""
        return self.queues.swept < self.tables.pages.rows

    @property
    def mean_rate(self) -> float:
        """The mean change rate of a page over the crawl, per unit of time."""
        return self.learning.rates.crawl_mean

    def due_at(self, page: int, now: float) -> float:
        """Return the instant at which the page's value reaches the present level of its host; infinite if never."""
        self.flights.require_page(page)
        check_instant(now)
        host: cython.int = self.tables.owner(page)
        if self.tables.states[page] & WITHHELD:
            return self.tables.page_heaps.nodes[page].key
        self.deadlines.assign(page, host, now)
        n = self.deadlines.signals_of(host, self.tables.rows[page].signals)
        if self.deadlines.wait(page, host, n, now) == _INFINITY:
            return self.tables.crawled[page] + self.tables.max_age(page)
        return self.deadlines.due(page, host, n, max(now - self.tables.crawled[page], 0.0), now)

    def page(self, page: int, now: float, fetched: float = _INFINITY) -> PageView:
        """Return all that is known of a page at `now`; a schedule rebuilt from the store would return the same.

        `fetched` is the time at which the stored copy was made. If this was before the last crawl, `clock`
        and `fresh` describe the stored copy.
        """
        self.flights.require_page(page)
        host: cython.int = self.tables.owner(page)
        self.learning.renew_crawl()
        self.learning.renew(host)
        due = self.due_at(page, now)
        elapsed = max(now - self.tables.crawled[page], 0.0)
        self.deadlines.assign(page, host, now)
        level = self.controller.level * self.tables.host_rows[host].boost
        n = self.deadlines.signals_of(host, self.tables.rows[page].signals)
        self.deadlines.unpack(self.tables.rows[page].signals)
        directory = self.tables.page_heaps.nodes[page].owner
        importance = self.tables.importance(page)
        state: cython.uint = self.tables.states[page]
        trust = self.tables.trust(page)
        clock = plain = max(elapsed, now - fetched)
        rhythm = bool(self.deadlines.clocked and self.learning.seasons.used[host])
        if self.deadlines.clocked:
            clock = self.learning.paced_clock(host, directory, clock, now)
        stated = None
        if self.deadlines.plain:
            fresh = self._fresh(clock, n)
        else:
            changes, watched = self.tables.rows[page].changes, self.tables.rows[page].watched
            restless = self.learning.restless.chance(changes, self.tables.unrest(page), elapsed)
            fresh = 1.0 - self.learning.expected(
                host, changes, watched, clock, self.deadlines.counts, trust, restless
            )
            if self.learning.rates.is_unlearned():
                stated = 1.0 - self.learning.with_long_prior(
                    host, changes, watched, clock, self.deadlines.counts, trust, restless
                )
        return PageView(
            fingerprint=self.tables.pages.key_of(page),
            host=host,
            directory=directory,
            crawled_at=self.tables.crawled[page],
            importance=importance,
            changes=abs(self.tables.rows[page].changes),
            watched=self.tables.rows[page].watched,
            signals=(self.tables.rows[page].signals,)
            if self.deadlines.plain
            else tuple(int(count) for count in self.deadlines.counts),
            rate=importance / self.deadlines.page.ceiling if self.deadlines.page.ceiling > 0.0 else 0.0,
            clock=clock,
            fresh=fresh,
            stated=stated,
            hearing=self._hearing(host, n),
            new=bool(state & NEW and not state & (AWAY | FAILED)),
            haste=1.0 if rhythm or plain <= 0.0 else max(clock / plain, 1.0),
            rhythm=rhythm,
            reliability=self.learning.kinds.reliability(host, trust),
            stands_for=self._stands_for(host, now),
            idle_weeks=self._idle(host, now) / self.learning.seasons.week,
            site=SiteSlope(self.tables.host_rows[host].slope, self.tables.host_rows[host].slope_precision),
            value=self.deadlines.ratio(page, host, elapsed, n, now) * level,
            ceiling=self.deadlines.page.ceiling,
            level=level,
            deadline=due,
            state=_word(state, elapsed < self.tables.min_age(page)),
            away=state & AWAY != 0,
        )

    def _hearing(self, host: cython.int, signals: cython.double) -> Hearing:
        """Return the state of signals (`Hearing`) for a page of this host that has received this many signals."""
        if signals > 0.0:
            return Hearing.TOLD
        return Hearing.UNSAID if self.learning.quality.recalls[host] > 0.0 else Hearing.NONE

    def _stands_for(self, host: cython.int, now: cython.double) -> float:
        """Return the time since the host's last crawl, divided by the mean time between its crawls; 1 if it had none."""
        idle = self._idle(host, now)
        return (
            1.0 if idle == _INFINITY else idle * self.tables.host_rows[host].pages / self.controller.revisit
        )

    def _idle(self, host: cython.int, now: cython.double) -> float:
        """Return the time since the host's last crawl; infinite if it had none."""
        idle: cython.double = now - self.tables.host_rows[host].previous
        return idle if idle >= 0.0 else _INFINITY

    def _fresh(self, clock: cython.double, n: cython.double) -> cython.double:
        """Return exp(-u), the probability that the copy is current, for the page in `deadlines.page`.

        If there are no signals (n = 0), their weight is not used. The weight may be infinite, and 0 times
        infinity has no value.
        """
        staleness: cython.double = self.deadlines.page.silent_rate * clock
        if n > 0.0 and self.deadlines.page.signal_time > 0.0:
            staleness += n * self.deadlines.page.signal_weight
        return exp(-staleness)

    def first_withheld(self) -> int:
        """Return the withheld page that is released first; -1 if no page is withheld, or if another page is not."""
        if len(self.flights.held) or self.queues.eligible >= 0 or self.queues.waiting >= 0:
            return -1
        return self.queues.withheld

    def host(self, host: int) -> HostView:
        """Return all that is known of a host."""
        self.flights.require_host(host)
        deadline = (
            self.tables.directory_heaps.nodes[self.tables.host_rows[host].root].key
            - self.tables.host_rows[host].shift
            if self.tables.host_rows[host].root >= 0
            else _INFINITY
        )
        return HostView(
            key=self.tables.hosts.key_of(host),
            pages=self.tables.host_rows[host].pages,
            ready=self.tables.host_rows[host].ready,
            busy=bool(self.tables.host_rows[host].busy),
            level=self.controller.level * self.tables.host_rows[host].boost,
            boost=self.tables.host_rows[host].boost,
            deadline=deadline,
        )

    def quality(self, host: int) -> tuple[list[float], list[float], float]:
        """Return a host's signal quality: (signals judged, precision) by source, and the recall over all sources."""
        self.flights.require_host(host)
        sources = self.learning.quality.sources
        heard = [float(each) for each in sources.all_signals[host]]
        precisions = [sources.precision(host, source) for source in range(len(heard))]
        return heard, precisions, self.learning.quality.recalls[host]

    def used_precision(self, host: int, source: int) -> float:
        """Return the precision of a source's signals on a host; 0 if the schedule ignores signals of this source."""
        self.flights.require_host(host)
        sources = self.learning.quality.sources
        if sources.all_signals[host, source] > 0.0 and not sources.used(host, source):
            return 0.0
        return float(sources.precision(host, source))

    def heard_hosts(self) -> list[int]:
        """Return the numbers of the hosts whose pages ever had a signal."""
        counts = np.asarray(self.learning.quality.sources.all_signals)[: self.tables.hosts.rows]
        found: list[int] = np.flatnonzero(counts.any(axis=1)).tolist()
        return found

    def hub(self, page: int, now: float) -> dict[str, float]:
        """Return a page's state as a hub (new pages per day, value); {} if the page is not a hub."""
        self.flights.require_page(page)
        check_instant(now)
        row: cython.int = self.tables.hubs.row_of(page)
        if row < 0:
            return {}
        host: cython.int = self.tables.owner(page)
        elapsed = max(now - self.tables.crawled[page], 0.0)
        discovery = self.learning.discovery
        directory: cython.int = self.tables.page_heaps.nodes[page].owner
        found: cython.double = self.tables.hubs.rows[row].found
        watched: cython.double = self.tables.hubs.rows[row].watched
        links: cython.double = self.tables.hubs.rows[row].links
        theta = discovery.theta(host, directory, found, watched, elapsed, now, links)
        error = discovery.error(host, directory, found, watched, elapsed, now, links)
        return {
            "pages_per_day": theta * DAY,
            "error": error * DAY,
            "unfound": theta * elapsed,
            "value": hub_value(self.deadlines.pace(page, host, now), elapsed),
        }

    def hubs(self, now: float) -> dict[str, float]:
        """Return the number of hubs, and an estimate of the number of pages that exist but have not been found."""
        pages = self.tables.hubs.pages()
        step = max(1, len(pages) // _HUB_SAMPLE)
        unfound = sum(self.hub(page, now)["unfound"] for page in pages[::step].tolist())
        return {"hubs": len(pages), "unfound": round(step * unfound, 1)}


def _word(state: int, young: bool) -> str:
    """Return the state of a page in words. `young` says whether the page has not reached its minimum age."""
    for bit, word in ((HELD, "in flight"), (AWAY, "away"), (FAILED, "failed")):
        if state & bit:
            return word
    if state & WITHHELD and young:
        return "too young"
    return "explored" if state & EXPLORED else "waits"
