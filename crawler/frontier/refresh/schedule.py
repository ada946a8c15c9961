# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False, initializedcheck=False
"""The schedule of refetches: chooses the known page to fetch next.

The best page is the one with the greatest crawl value. For a given *level*, that is, the crawl value
above which a page is fetched, a page has one deadline: the instant at which its value reaches the level.
The deadline does not change until the page's next crawl or signal, so waiting pages need no computation; the
page with the earliest deadline is taken.

    tables.py            the rows of pages, directories, hosts
    level_controller.py  the common level, and the levels of saturated hosts
    offsets.py           by how much changing or quiet neighbourhoods move deadlines
    deadlines.py         values relative to the level; when a page is due by its clock
    queues.py            heaps of hosts, of their directories, of their pages; the first page
    exploration.py       occasional fetches of pages that are not due
    absences.py          when pages that are gone, moved or denied are fetched again
    flights.py           pages in flight, and the effects of their results
    page_facts.py        facts about pages besides their fetches          `Schedule.facts`
    page_signals.py      change signals make deadlines earlier            `Schedule.signals`
    overview.py          queries that change nothing                      `Schedule.overview`
    pace.py              the rate of fetches, and the level               `Schedule.pace`
    schedule_records.py  the stored state of a schedule                   `Schedule.records`

Call `peek`, `acquire`, then `record_outcome` or `give_back`. The work of each call is bounded: bulk signals
are processed in slices by later calls, and `queues.py` describes the other bounds.

Sources: Busa-Fekete et al., Algorithm 1 and section 5.2; Mercator's and
BUbiNG's host queues.
"""

from typing import Any

import cython
import numpy as np
from cython.cimports.crawler.freshness.learning import Learning
from cython.cimports.crawler.frontier.refresh.absences import Absences
from cython.cimports.crawler.frontier.refresh.deadlines import BY_INTERVAL, Deadlines
from cython.cimports.crawler.frontier.refresh.exploration import Exploration
from cython.cimports.crawler.frontier.refresh.flights import Flights, check_instant
from cython.cimports.crawler.frontier.refresh.level_controller import LevelController
from cython.cimports.crawler.frontier.refresh.overview import Overview
from cython.cimports.crawler.frontier.refresh.pace import Pace
from cython.cimports.crawler.frontier.refresh.page_facts import Facts, check_importance
from cython.cimports.crawler.frontier.refresh.page_signals import SLICE, Signals
from cython.cimports.crawler.frontier.refresh.queues import Queues
from cython.cimports.crawler.frontier.refresh.schedule_records import Records
from cython.cimports.crawler.frontier.refresh.tables import (
    AWAY,
    DOUBLING,
    EXPLORED,
    FAILED,
    JUMPED,
    NEW,
    UNSTEADY,
    Tables,
)

from crawler.freshness.columns import rows_of
from crawler.frontier.refresh.settings import BY_LEVEL, Settings

_INFINITY = cython.declare(cython.double, float("inf"))
# One call of `work` processes at most this many bulk signals, and recomputes at most this many keys.
_WORK_SLICE = cython.declare(cython.Py_ssize_t, 256)
# number of keys that each search for the best page recomputes during a sweep
_SWEEP_ROWS = cython.declare(cython.Py_ssize_t, 4)
# Number of fetches after which the measured rate is precise enough for a first level.
_FIRST_TAKES = cython.declare(cython.Py_ssize_t, 8)

DEFAULTS = Settings()


class Schedule:
    """The pages of one process that are refetched.

    The attribute `set_back` is the latest run whose clock was behind (`clock_repair.py`), or None.

    Args:
        level: the initial level; 0 uses half the ceiling of the first page.
        seed: the seed of the random paths in the heaps; they affect no decision.
        track: record which pages signals and recalls touch, for `Signals.pop_touched`.
    """

    def __init__(
        self, settings: Settings = DEFAULTS, *, level: float = 0.0, seed: int = 1, track: bool = False
    ) -> None:
        if not 0.0 <= level < _INFINITY:
            raise ValueError(f"level {level}")
        clocked = settings.neighbourhood and settings.policy in BY_LEVEL
        kind = settings.policy if settings.policy in BY_LEVEL else "greedy"
        first_interval = settings.first_interval if settings.policy == "interval" else 0.0
        self.settings = settings
        self.set_back = None
        self._learning = Learning(kind, neighbourhood=clocked, scale=settings.clock_min)
        self._tables = Tables(self._learning, settings.min_age, settings.max_age, first_interval, seed)
        self._tables.touched = set() if track else None
        self._controller = LevelController(
            self._tables, level, settings.gain, settings.clock_min, settings.clock_max
        )
        self._deadlines = Deadlines(self._tables, self._controller, self._learning, settings)
        self._absences = Absences(self._tables, settings.retry_age, settings.gone_age)
        self._queues = Queues(
            self._tables, self._controller, self._deadlines, self._absences, settings.retry_age
        )
        self._exploration = Exploration(
            self._tables, self._controller, self._deadlines, self._queues, settings.explore
        )
        self._flights = Flights(
            self._tables, self._controller, self._deadlines, self._queues, self._exploration, self._learning
        )
        self.signals = Signals(
            self._tables, self._deadlines, self._queues, self._learning, self._flights,
            settings.discard_window,
        )  # fmt: skip
        self.overview = Overview(
            self._tables, self._controller, self._deadlines, self._queues, self._exploration, self._learning,
            self._flights,
        )  # fmt: skip
        self.facts = Facts(self._tables, self._controller, self._queues, self._learning, self._flights)
        self.pace = Pace(self._controller, self._queues)
        self.records = Records(self._tables, self._learning, self._flights)

    # -- adding and removing pages

    def add(
        self,
        fingerprint: int,
        host_key: int,
        directory_key: int,
        crawled_at: float,
        now: float,
        importance: float = 1.0,
        *,
        away: bool = False,
        absence: float = 0.0,
    ) -> int:
        """Add a page that was crawled at `crawled_at`; return its number.

        Pages that were never crawled do not belong here; the discovery frontier schedules them. If `away` is
        true, that crawl found no page. The page then begins with the first wait that is at least `absence` seconds
        long, or with the longest one (`absences.py`).
        """
        check_instant(now)
        check_instant(crawled_at)
        check_importance(importance)
        if self._tables.pages.find(fingerprint) >= 0:
            raise RuntimeError(f"page {fingerprint:016x} is already in {self!r}")
        page = self._tables.new_page(fingerprint, host_key, directory_key)
        self._tables.crawled[page] = crawled_at
        self._tables.set_importance(page, importance)
        if away:
            self._tables.states[page] = AWAY | DOUBLING * self._absences.rung_of(absence)
        self._controller.set_scale()
        self._deadlines.find_level(page)
        self._queues.place(page, now)
        return page

    def add_many(
        self,
        fingerprints: np.ndarray,
        host_keys: np.ndarray,
        directory_keys: np.ndarray,
        crawled_at: np.ndarray,
        importance: Any,
        now: float,
        *,
        changes: Any = 0.0,
        watched: Any = 0.0,
        signals: Any = 0,
        states: Any = 0,
    ) -> np.ndarray:
        """Add pages as `add` does, from arrays (n,) that include their learned state; return their numbers, int32 (n,).

        This takes about 3 us per page; callers that must not block add a thousand pages at a time.
        """
        check_instant(now)
        size = len(fingerprints)
        columns = [
            np.require(np.broadcast_to(np.asarray(column), (size,)), kind, ("C", "ALIGNED"))
            for column, kind in (
                (fingerprints, "u8"), (host_keys, "u8"), (directory_keys, "u8"), (crawled_at, "f8"),
                (importance, "f8"), (changes, "f8"), (watched, "f8"), (signals, "u4"), (states, "u1"),
            )
        ]  # fmt: skip
        for column in columns[3:7]:
            if not np.isfinite(column).all():
                raise ValueError("add_many: numbers must be finite")
        for column in (columns[4], columns[6]):
            if (column < 0.0).any():
                raise ValueError("add_many: numbers must not be negative")
        numbers = np.full(size, -1, np.int32)
        self._add_all([rows_of(column) for column in columns], rows_of(numbers), now)
        return numbers

    def _add_all(self, columns: list, numbers: cython.int[::1], now: cython.double) -> cython.void:
        """Add all pages first, so that the crawl learns from all of them; then compute their deadlines."""
        i: cython.Py_ssize_t
        page: cython.int
        try:
            self._put_rows(columns, numbers)
        finally:
            for i in range(len(numbers)):
                page = numbers[i]
                if page >= 0:
                    self._deadlines.find_level(page)
                    self._queues.place(page, now)

    def _put_rows(self, columns: list, numbers: cython.int[::1]) -> cython.Py_ssize_t:
        fingerprints: cython.const[cython.ulonglong][::1] = columns[0]
        host_keys: cython.const[cython.ulonglong][::1] = columns[1]
        directory_keys: cython.const[cython.ulonglong][::1] = columns[2]
        crawled: cython.const[cython.double][::1] = columns[3]
        importance: cython.const[cython.double][::1] = columns[4]
        changes: cython.const[cython.double][::1] = columns[5]
        watched: cython.const[cython.double][::1] = columns[6]
        signals: cython.const[cython.uint][::1] = columns[7]
        states: cython.const[cython.uchar][::1] = columns[8]
        i: cython.Py_ssize_t
        page: cython.int
        host: cython.int
        for i in range(len(numbers)):
            if self._tables.pages.find(fingerprints[i]) >= 0:
                raise RuntimeError(f"page {fingerprints[i]:016x} is already in {self!r}")
            page = self._tables.new_page(fingerprints[i], host_keys[i], directory_keys[i])
            self._tables.crawled[page] = crawled[i]
            self._tables.set_importance(page, importance[i])
            self._tables.rows[page].changes = changes[i]
            self._tables.rows[page].watched = watched[i]
            self._tables.rows[page].signals = signals[i]
            self._tables.states[page] = states[i] & (
                AWAY | FAILED | (7 * DOUBLING) if states[i] & (AWAY | FAILED) else NEW | UNSTEADY
            )
            numbers[i] = page
            if changes[i] != 0.0 or watched[i] > 0.0:
                host = self._tables.owner(page)
                self._learning.rates.observe(host, 0.0, 0.0, watched[i], abs(changes[i]))
        self._controller.set_scale()
        return len(numbers)

    def remove(self, page: int) -> None:
        """Remove a page; if the page is in flight, its host stays busy until `record_outcome`."""
        self._flights.remove(page)

    def find(self, fingerprint: int) -> int:
        """Return the page's number; -1 if it is not in the schedule."""
        return self._tables.pages.find(fingerprint)

    def __contains__(self, fingerprint: int) -> bool:
        return self._tables.pages.find(fingerprint) >= 0

    def __len__(self) -> int:
        return self._tables.pages.size

    # -- properties of pages and hosts

    def host_of(self, page: int) -> int:
        self._flights.require_page(page)
        return self._tables.owner(page)

    def host(self, host_key: int) -> int:
        """Return the host's number, adding the host if it is new."""
        return self._tables.host(host_key)

    def block(self, host: int, until: float) -> None:
        """Request no page of this host before `until` (infinite: until another call)."""
        self._flights.require_host(host)
        if until != until:
            raise ValueError(f"until {until}")
        self._tables.host_rows[host].ready = until
        self._queues.place_host(host, self._controller.previous)

    # -- the choice

    def peek(self, now: cython.double) -> cython.int:
        """Return the best page of all hosts that may be requested now; -1 if there is none. Changes nothing.

        The choice never wastes a fetch: if no page is due, the page that is due next is returned.
        """
        check_instant(now)
        if self.signals.waiting:
            self.signals.work_off(SLICE, now)
        if self._absences.unseen:
            self._queues.recall(now)
        self._queues.release(now)
        if (
            self._controller.unknown
            and (self._controller.rate > 0.0 or self._flights.takes >= _FIRST_TAKES)
            and self._tables.pages.size > 0
            and self._deadlines.policy != BY_INTERVAL
        ):
            self._controller.unknown = False
            self._deadlines.sample_level(now)
        self._queues.sweep(_SWEEP_ROWS, now)
        hub: cython.int = self._tables.hubs.turn()
        if hub >= 0:
            self._queues.reschedule(hub, now)
        return self._queues.first(now)

    def claim_next(self, now: cython.double) -> cython.int:
        """Acquire the page that `peek` returns, and return it; -1 if there is none."""
        page: cython.int = self.peek(now)
        if page >= 0:
            self._flights.begin(page, now)
        return page

    def acquire(self, page: int, now: float) -> None:
        """Mark a page as in flight. The page's host is busy until `record_outcome` or `give_back`."""
        self._flights.require_page(page)
        self._queues.release_young(page, now)
        self._flights.begin(page, now)

    def give_back(self, page: int, now: float, ready: float = 0.0) -> None:
        """Note that a page was not fetched. The page remains due, and its host is free from `ready` on."""
        self._flights.cancel(page, now, ready)

    def record_outcome(self, page: int, now: float, result: int, ready: float = 0.0) -> None:
        """Record the result of a page's fetch, as a `RefreshOutcome`; its host may be requested from `ready` on.

        The result updates the estimators, and the page gets a new deadline. Signals received
        since `acquire` count for the next interval.
        """
        if not 0 <= result <= 6:
            raise ValueError(f"result {result}")
        self._flights.finish(page, now, result, ready)

    def work(self, now: float) -> int:
        """Process a slice of the bulk signals, and return the number of signals still queued."""
        check_instant(now)
        self.signals.work_off(_WORK_SLICE, now)
        self._queues.sweep(_WORK_SLICE, now)
        return self.signals.waiting

    def renew(self) -> None:
        """Update the sums over the crawl and its hosts after a bulk load, and start to recompute all keys in slices."""
        host: cython.Py_ssize_t
        self._learning.renew_crawl()
        for host in range(self._tables.hosts.rows):
            self._learning.renew(host)
        self._queues.swept, self._queues.swept_level = 0, self._controller.level

    def next_wakeup(self, now: cython.double) -> cython.double:
        """Return the instant, perhaps in the past, at which the next page may be due; infinite if there is none.

        A page may also be fetched earlier.
        """
        found: cython.double = _INFINITY
        if self.signals.waiting or self._absences.unseen:
            return now
        if self._queues.eligible >= 0:
            found = self._tables.host_heaps.nodes[self._queues.eligible].key
        if self._queues.waiting >= 0:
            found = min(found, self._tables.host_heaps.nodes[self._queues.waiting].key)
        if self._queues.withheld >= 0:
            found = min(found, self._tables.page_heaps.nodes[self._queues.withheld].key)
        return found

    def marginal_value(self, now: float) -> float:
        """Return the gain of one more fetch now.

        This is the value of the next page, or the level if the level is higher. If the next page is not
        fetched for its value, but for another reason, the gain is the level.
        """
        page: cython.int = self.peek(now)
        if page < 0 or self._tables.states[page] & (EXPLORED | AWAY | FAILED | JUMPED):
            return self._controller.level
        return self._controller.level * max(self._deadlines.worth(page, self._tables.owner(page), now), 1.0)

    def _check(self) -> None:
        """Assert all invariants."""
        self._queues._check(self._flights.held)
        self._tables.hubs._check(set(self._tables.pages._check()))
        self.signals._check()
        self._absences._check()
        assert 0.0 <= self._controller.level < _INFINITY
        self._learning._check()

    def __repr__(self) -> str:
        return (
            f"Schedule({self._tables.pages.size} pages, {self._tables.hosts.size} hosts, "
            f"{len(self._flights.held)} in flight, "
            f"level {self._controller.level:.4g})"
        )
