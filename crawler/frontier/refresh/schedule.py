# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False, initializedcheck=False
"""The known page to ask next.

The best page is the one of the greatest crawl value. For a level (the value
of the marginal page) a page has one deadline: the instant at which its value
reaches the level. The deadline stands until the page's next crawl or signal, so
waiting pages cost no work; the page of the earliest deadline is taken.

    tables.py       what is kept of pages, directories, hosts
    steering.py     the common level, and those of saturated hosts
    deadlines.py    values against the level; the neighbourhood's offsets; signals
    queues.py       heaps of hosts, of their directories, of their pages: who is first
    exploration.py  the page longest unvisited, now and then
        overview.py     queries that change nothing; what a store keeps

Call `look`, `hold`, then `settle` or `give_back`. Work is bounded: later calls process
signals that come in bulk, in slices; `queues.py` says the rest.

Sources: Busa-Fekete et al., Algorithm 1 and section 5.2; Mercator's and
BUbiNG's host queues.
"""

from collections import deque
from typing import Any

import cython
import numpy as np
from cython.cimports.libc.math import isfinite

from crawler.freshness.columns import rows_of
from crawler.freshness.params import PageParameters
from crawler.frontier.refresh.settings import Settings

if cython.compiled:
    from cython.cimports.crawler.freshness.learning import Learning
    from cython.cimports.crawler.frontier.refresh.deadlines import BY_INTERVAL, BY_VALUE, Deadlines
    from cython.cimports.crawler.frontier.refresh.exploration import Exploration
    from cython.cimports.crawler.frontier.refresh.overview import Overview
    from cython.cimports.crawler.frontier.refresh.queues import CHECKS_MAX, Queues
    from cython.cimports.crawler.frontier.refresh.steering import RATIO_MAX, Steering
    from cython.cimports.crawler.frontier.refresh.tables import (
        AWAY,
        DOUBLING,
        EXPLORED,
        FAILED,
        HELD,
        JUMPED,
        WITHHELD,
        Tables,
    )
else:
    from math import isfinite

    from crawler.freshness.learning import Learning
    from crawler.frontier.refresh.deadlines import BY_INTERVAL, BY_VALUE, Deadlines
    from crawler.frontier.refresh.exploration import Exploration
    from crawler.frontier.refresh.overview import Overview
    from crawler.frontier.refresh.queues import CHECKS_MAX, Queues
    from crawler.frontier.refresh.steering import RATIO_MAX, Steering
    from crawler.frontier.refresh.tables import (
        AWAY,
        DOUBLING,
        EXPLORED,
        FAILED,
        HELD,
        JUMPED,
        WITHHELD,
        Tables,
    )

_INFINITY = cython.declare(cython.double, float("inf"))
_SLICE = cython.declare(cython.Py_ssize_t, 64)  # bulk signals worked off beside another call
_WORK_SLICE = cython.declare(cython.Py_ssize_t, 256)  # and by `work`
_SWEEP_ROWS = cython.declare(cython.Py_ssize_t, 4)  # keys made anew beside a look, while a sweep lasts
_SIGNAL_MAX = cython.declare(cython.uint, 15)  # of one source: four bits
_SIGNALS_MAX = cython.declare(cython.uint, 0xFFFFFFFF)  # of all, where they are one count
_FIRST_TAKES = cython.declare(
    cython.Py_ssize_t, 8
)  # after which a measured rate says enough for a first level
_GONE_DOUBLINGS = cython.declare(cython.int, 4)
_GONE_SHARE = cython.declare(cython.double, 0.01)  # most of the fetches that pages which are away get
_DOUBLINGS_MAX = cython.declare(cython.int, 7)
_NUTCH_SHORTER = cython.declare(cython.double, 0.8)  # Nutch's AdaptiveFetchSchedule, its defaults
_NUTCH_LONGER = cython.declare(cython.double, 1.4)
_VALUED = ("ncis", "greedy", "cis")

DEFAULTS = Settings()


@cython.cclass
class Schedule(Overview):
    """The pages of one process that are asked again.

    Args:
        level: where the level starts; 0 takes half the ceiling of the first page.
        seed: of the heaps' random paths, which change no decision.
        track: remember which pages signals touch, for `signalled`.
    """

    _discard: cython.double
    _away: cython.Py_ssize_t

    def __init__(
        self, settings: Settings = DEFAULTS, *, level: float = 0.0, seed: int = 1, track: bool = False
    ) -> None:
        if not 0.0 <= level < _INFINITY:
            raise ValueError(f"level {level}")
        clocked = settings.neighbourhood and settings.policy in _VALUED
        kind = settings.policy if settings.policy in _VALUED else "greedy"
        first_interval = settings.first_interval if settings.policy == "interval" else 0.0
        self.settings = settings
        self._learning = Learning(kind, neighbourhood=clocked, scale=settings.clock_min)
        self._tables = Tables(self._learning, settings.min_age, settings.max_age, first_interval, seed)
        self._steering = Steering(self._tables, level, settings.gain, settings.clock_min, settings.clock_max)
        self._deadlines = Deadlines(self._tables, self._steering, self._learning, settings)
        self._queues = Queues(
            self._tables, self._steering, self._deadlines, settings.retry_age, settings.gone_age
        )
        self._exploration = Exploration(
            self._tables, self._steering, self._deadlines, self._queues, settings.explore
        )
        self._held: dict = {}
        self._touched: Any = set() if track else None
        self._backlog: Any = deque()
        self._discard = settings.discard_window
        self._away = 0
        self.takes = self.waiting_signals = 0

    # -- pages come and go

    def add(
        self,
        fingerprint: int,
        host_key: int,
        directory_key: int,
        crawled_at: float,
        now: float,
        importance: float = 1.0,
    ) -> int:
        """Put in a page that was crawled at `crawled_at`; return its number.

        One never crawled is no refresh decision and has no place here.
        """
        self._instant(now)
        self._instant(crawled_at)
        _weight(importance)
        if self._tables.pages.find(fingerprint) >= 0:
            raise RuntimeError(f"page {fingerprint:016x} is in {self!r}")
        page = self._tables.new_page(fingerprint, host_key, directory_key)
        self._tables.crawled[page] = crawled_at
        self._tables.set_importance(page, importance)
        self._steering.set_scale()
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
        """`add` for arrays (n,), with what was learned of them before; the numbers of the pages, int32 (n,).

        About 3 us a page: whoever must not be held up adds a thousand at a time.
        """
        self._instant(now)
        size = len(fingerprints)
        columns = [
            np.ascontiguousarray(np.broadcast_to(np.asarray(column), (size,)), dtype=kind)
            for column, kind in (
                (fingerprints, "u8"), (host_keys, "u8"), (directory_keys, "u8"), (crawled_at, "f8"),
                (importance, "f8"), (changes, "f8"), (watched, "f8"), (signals, "u4"), (states, "u1"),
            )
        ]  # fmt: skip
        for column in columns[3:7]:
            if not np.isfinite(column).all():
                raise ValueError("add_many: numbers must be finite")
        for column in columns[4:7]:
            if (column < 0.0).any():
                raise ValueError("add_many: numbers must not be negative")
        numbers = np.full(size, -1, np.int32)
        self._add_all([rows_of(column) for column in columns], rows_of(numbers), now)
        return numbers

    @cython.cfunc
    def _add_all(self, columns: list, numbers: cython.int[::1], now: cython.double) -> cython.void:
        """First all pages, from which the crawl learns, then their deadlines."""
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

    @cython.cfunc
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
                raise RuntimeError(f"page {fingerprints[i]:016x} is in {self!r}")
            page = self._tables.new_page(fingerprints[i], host_keys[i], directory_keys[i])
            self._tables.crawled[page] = crawled[i]
            self._tables.set_importance(page, importance[i])
            self._tables.rows[page].changes = changes[i]
            self._tables.rows[page].watched = watched[i]
            self._tables.rows[page].signals = signals[i]
            self._tables.states[page] = states[i] if states[i] & (AWAY | FAILED) else 0
            self._tables.states[page] &= AWAY | FAILED | (7 * DOUBLING)
            self._away += self._tables.states[page] & AWAY != 0
            numbers[i] = page
            if changes[i] > 0.0 or watched[i] > 0.0:
                host = self._tables.owner(page)
                self._learning.rates.observe(host, 0.0, 0.0, watched[i], changes[i])
        self._steering.set_scale()
        return len(numbers)

    def remove(self, page: int) -> None:
        """Forget a page, also while it is in flight (its host stays busy until `settle`)."""
        self._require(page)
        state = self._tables.states[page]
        if state & HELD:
            signals = self._held[page][0]
            self._held[page] = (signals, True)
            self._tables.pages.remove(page)
            return
        now = self._steering.previous if isfinite(self._steering.previous) else 0.0
        self._queues.leave(page, now)
        self._tables.pages.remove(page)
        self._free(page)

    @cython.cfunc
    def _free(self, page: cython.int) -> cython.void:
        """Give up the row of a page that is in no heap and has no fingerprint any more."""
        self._away -= self._tables.states[page] & AWAY != 0
        self._tables.free(page)
        self._steering.set_scale()

    # -- what is told of pages and hosts

    def host(self, host_key: int) -> int:
        """The host's number, made if it is new."""
        return self._tables.host(host_key)

    def weigh(self, page: int, importance: float, now: float) -> None:
        """Give a page a new importance; the level goes with the importance of all pages."""
        self._require(page)
        self._instant(now)
        _weight(importance)
        roots: cython.double = self._tables.roots
        self._tables.set_importance(page, importance)
        self._steering.follow(roots, self._tables.roots)
        if self._tables.owned:
            self._tables.own[page].importance = importance
        self._queues.reschedule(page, now)

    def set_page(self, page: int, parameters: PageParameters, now: float) -> None:
        """Give a page parameters of its own, which nothing it shows will change."""
        self._require(page)
        self._instant(now)
        p = parameters
        numbers = (p.importance, p.change_rate, p.silent_rate, p.signal_rate, p.false_rate)
        if not all(0.0 <= number < _INFINITY for number in numbers):
            raise ValueError(f"{parameters}: rates must be finite and not negative")
        self._tables.set_own(page, parameters)
        self._queues.reschedule(page, now)

    def bound_ages(self, page: int, min_age: float, max_age: float) -> None:
        """Bounds of this page's age in place of the settings'; it follows them from its next crawl on.

        Raises:
            ValueError: more than 255 different pairs, or bounds that exclude each other.
        """
        self._require(page)
        if not 0.0 <= min_age <= max_age or min_age == _INFINITY or not max_age > 0.0:
            raise ValueError(f"ages {min_age} .. {max_age}")
        self._tables.bound_ages(page, float(min_age), float(max_age))

    def show(self, page: int, found: float, now: float) -> None:
        """Credit a page with `found` new pages whose URLs it was the first to show, when it was asked again."""
        self._require(page)
        self._instant(now)
        if not 0.0 <= found < _INFINITY:
            raise ValueError(f"found {found}")
        if found > 0.0:
            host: cython.int = self._tables.owner(page)
            directory: cython.int = self._tables.page_heaps.nodes[page].owner
            watched: cython.double = self._tables.rows[page].watched
            shown: cython.bint = self._tables.hubs.row_of(page) >= 0
            row: cython.int = self._tables.hubs.make(page, watched)
            self._tables.hubs.rows[row].found += found
            self._learning.discovery.credit(host, directory, found, now, shown)
            self._queues.reschedule(page, now)

    def block(self, host: int, until: float) -> None:
        """Do not ask this host before `until` (infinite: until told otherwise)."""
        self._require_host(host)
        if until != until:
            raise ValueError(f"until {until}")
        self._tables.host_rows[host].ready = until
        self._queues.place_host(host, self._steering.previous)

    # -- signals

    def signal(self, page: int, now: float, source: int = 0) -> None:
        """A signal from one of SOURCES sources that the page has changed."""
        self._require(page)
        self._instant(now)
        if not 0 <= source < 8:
            raise ValueError(f"source {source}")
        self._signal(page, now, source)

    def signal_many(self, fingerprints: np.ndarray, now: float, source: int = 0) -> None:
        """Signals for all these pages, uint64 (n,): kept, not copied, and worked off in slices by later calls."""
        self._instant(now)
        if not 0 <= source < 8:
            raise ValueError(f"source {source}")
        if (
            not isinstance(fingerprints, np.ndarray)
            or fingerprints.dtype != np.uint64
            or fingerprints.ndim != 1
        ):
            raise ValueError("signal_many: fingerprints must be an array of uint64 (n,)")
        if len(fingerprints):
            self._backlog.append((np.ascontiguousarray(fingerprints), source))
            self.waiting_signals += len(fingerprints)
        self._work_off(_SLICE, now)

    def signalled(self) -> list[int]:
        """Pages that signals have touched since the last call, for the store; only with `track`."""
        touched = [page for page in self._touched or () if not self._is_free(page)]
        if self._touched is not None:
            self._touched.clear()
        return touched

    def work(self, now: float) -> int:
        """Work off a slice of the signals that came in bulk; return how many still wait."""
        self._instant(now)
        self._work_off(_WORK_SLICE, now)
        self._queues.sweep(_WORK_SLICE, now)
        return self.waiting_signals

    @cython.cfunc
    def _work_off(self, most: cython.Py_ssize_t, now: cython.double) -> cython.void:
        i: cython.Py_ssize_t
        page: cython.int
        keys: cython.const[cython.ulonglong][::1]
        while most > 0 and self._backlog:
            fingerprints, source = self._backlog[0]
            keys = rows_of(fingerprints)
            share: cython.Py_ssize_t = min(most, len(keys))
            kind: cython.uint = source
            for i in range(share):
                page = self._tables.pages.find(keys[i])
                if page >= 0:
                    self._signal(page, now, kind)
            most -= share
            self.waiting_signals -= share
            if share < len(keys):
                self._backlog[0] = (fingerprints[share:], source)
            else:
                self._backlog.popleft()

    @cython.cfunc
    def _signal(self, page: cython.int, now: cython.double, source: cython.uint) -> cython.void:
        state: cython.uint = self._tables.states[page]
        if not state & HELD and now - self._tables.crawled[page] < self._discard:
            return
        if self._deadlines.policy != BY_VALUE:
            return
        host: cython.int = self._tables.directory_heaps.nodes[self._tables.page_heaps.nodes[page].owner].owner
        if not self._deadlines.plain:
            self._learning.quality.hear(host, source)
        before: cython.uint = self._tables.rows[page].signals
        after: cython.uint
        if self._deadlines.plain:
            after = before + 1 if before < _SIGNALS_MAX else before
        else:
            after = before + (cython.cast(cython.uint, 1) << 4 * source)
            if before >> 4 * source & _SIGNAL_MAX == _SIGNAL_MAX:
                return
        if self._touched is not None:
            self._touched.add(page)
        if state & (HELD | WITHHELD | EXPLORED):
            self._tables.rows[page].signals = after
            return
        self._deadlines.assign(page, host)
        n: cython.double = self._deadlines.signals_of(host, before)
        self._tables.rows[page].signals = after
        beta: cython.double = self._deadlines.page.signal_time
        if beta == 0.0:
            return
        more: cython.double = self._deadlines.signals_of(host, after)
        key: cython.double = self._tables.page_heaps.nodes[page].key
        if beta < _INFINITY and key - (more - n) * beta > now:
            key -= (
                more - n
            ) * beta  # if offsets make it due already, its value tells when it comes to the top
        else:
            offset: cython.double = self._deadlines.offset(page, host, now)
            if key - offset > now:
                self._tables.states[page] |= JUMPED
            key = min(key, self._deadlines.key(page, host, more, offset, now))
        self._queues.move(page, key, now)

    # -- the choice

    @cython.ccall
    def look(self, now: cython.double) -> cython.int:
        """The best page of all hosts that may be asked now; -1 if there is none. Decides nothing.

        Work conserving: if no page is due, it is the one due next.
        """
        self._instant(now)
        if self._backlog:
            self._work_off(_SLICE, now)
        self._queues.release(now)
        if (
            self._steering.unknown
            and (self._steering.rate > 0.0 or self.takes >= _FIRST_TAKES)
            and self._tables.pages.size > 0
            and self._deadlines.policy != BY_INTERVAL
        ):
            self._steering.unknown = False
            self._deadlines.sample_level(now)
        self._queues.sweep(_SWEEP_ROWS, now)
        hub: cython.int = self._tables.hubs.turn()
        if hub >= 0:
            self._queues.reschedule(hub, now)
        return self._queues.first(now)

    @cython.ccall
    def best(self, host: cython.int, now: cython.double) -> cython.int:
        """The best page of this host, whether or not it may be asked now; -1 if it has none. Decides nothing."""
        _step: cython.Py_ssize_t
        page: cython.int
        self._instant(now)
        self._require_host(host)
        self._queues.release(now)
        for _step in range(CHECKS_MAX):
            if self._tables.host_rows[host].root < 0:
                return -1
            page = self._queues.stand(host, now)
            if page >= 0:
                return page
        return self._queues.top_of(host)

    @cython.ccall
    def take(self, now: cython.double) -> cython.int:
        """`look` and `hold`."""
        page: cython.int = self.look(now)
        if page >= 0:
            self._hold(page, now)
        return page

    def hold(self, page: int, now: float) -> None:
        """The page is in flight from now on, and its host busy, until `settle` or `give_back`."""
        self._require(page)
        self._instant(now)
        if self._tables.states[page] & (HELD | WITHHELD):
            raise RuntimeError(f"page {page} cannot be held in {self!r}")
        self._hold(page, now)

    @cython.cfunc
    def _hold(self, page: cython.int, now: cython.double) -> cython.void:
        host: cython.int = self._tables.owner(page)
        if self._tables.host_rows[host].busy:
            raise RuntimeError(f"host {host} is busy in {self!r}")
        self._steer(page, host, now)
        self._queues.leave(page, now)
        if self._tables.states[page] & EXPLORED:
            self._tables.host_rows[host].exploring = 0
            self._tables.states[page] &= ~EXPLORED & 0xFF
        self._held[page] = (self._tables.rows[page].signals, False)
        self._tables.rows[page].signals = 0
        self._tables.states[page] |= HELD
        self._tables.host_rows[host].busy = 1
        self._queues.place_host(host, now)
        self.takes += 1
        self._exploration.note_take(now)

    @cython.cfunc
    def _steer(self, page: cython.int, host: cython.int, now: cython.double) -> cython.void:
        """Move the levels by what the page taken at `now` says of them; exploration and retries say nothing."""
        state: cython.uint = self._tables.states[page]
        self._deadlines.note_take(page, host, now)
        tick: cython.double = now - self._steering.previous
        gap: cython.double = now - self._tables.host_rows[host].previous
        self._steering.note_take(host, now, self.takes)
        if state & (EXPLORED | AWAY | FAILED):
            return
        offset: cython.double = self._deadlines.offset(page, host, now)
        deadline: cython.double = self._tables.page_heaps.nodes[page].key - offset
        worth: cython.double = self._deadlines.worth(page, host, now)
        self._steering.judge(host, deadline, worth, state & JUMPED != 0, tick, gap, now)

    # -- the end of a flight, and what is learned

    def give_back(self, page: int, now: float, ready: float = 0.0) -> None:
        """The page held was not asked: it is due as before, and its host may be asked from `ready` on."""
        signals, removed = self._end_flight(page, now, ready)
        if removed:
            self._free(page)
        else:
            self._tables.rows[page].signals = self._deadlines.summed(signals, self._tables.rows[page].signals)
            self._queues.place(page, now)
        self._queues.place_host(self._tables.owner(page), now)

    def settle(self, page: int, now: float, result: int, ready: float = 0.0) -> None:
        """The page held was asked, with this `Result`; its host may be asked from `ready` on.

        What came is learned from, and the page has a new deadline. Signals
        that came since `hold` count for the next interval.
        """
        if not 0 <= result <= 5:
            raise ValueError(f"result {result}")
        signals, removed = self._end_flight(page, now, ready)
        host: cython.int = self._tables.owner(page)
        if removed:
            self._free(page)
        elif result <= 1:
            self._learn(page, host, signals, result == 1, now)
            if self._tables.rows[page].signals:
                self._tables.states[page] |= JUMPED
            self._queues.place(page, now)
        else:
            self._put_off(page, host, signals, result == 2, now)
        self._queues.place_host(host, now)

    def _end_flight(self, page: int, now: float, ready: float) -> tuple[int, bool]:
        self._instant(now)
        if ready != ready:
            raise ValueError(f"ready {ready}")
        if page not in self._held:
            raise RuntimeError(f"page {page} is not held in {self!r}")
        held: tuple[int, bool] = self._held.pop(page)
        host: cython.int = self._tables.owner(page)
        self._tables.host_rows[host].busy = 0
        self._tables.host_rows[host].ready = ready
        self._tables.states[page] &= ~HELD & 0xFF
        return held

    @cython.cfunc
    def _learn(
        self,
        page: cython.int,
        host: cython.int,
        signals: cython.uint,
        changed: cython.bint,
        now: cython.double,
    ) -> cython.void:
        """Learn from what a crawl found; the page is as fresh as can be."""
        elapsed: cython.double = now - self._tables.crawled[page]
        directory: cython.int = self._tables.page_heaps.nodes[page].owner
        if elapsed > 0.0:
            self._deadlines.unpack(signals)
            self._tables.rows[page].changes = self._learning.observe(
                host, directory, self._tables.rows[page].changes, self._tables.rows[page].watched, elapsed, now,
                self._deadlines.counts, changed,
            )  # fmt: skip
            self._tables.rows[page].watched += self._learning.observed_clock
            shown: cython.bint = self._tables.hubs.row_of(page) >= 0
            self._tables.hubs.crawled(page, elapsed)
            self._learning.discovery.watch(host, directory, elapsed, now, shown)
            self._learning.renew(host)
            self._learning.renew_crawl()
        if self._deadlines.policy == BY_INTERVAL:
            self._tables.intervals[page] *= _NUTCH_SHORTER if changed else _NUTCH_LONGER
        self._tables.crawled[page] = now
        self._away -= self._tables.states[page] & AWAY != 0
        self._tables.states[page] = 0

    def renew(self) -> None:
        """Sum up what crawl and hosts have shown, and make all keys anew, in slices; after a bulk load."""
        host: cython.Py_ssize_t
        self._learning.renew_crawl()
        for host in range(self._tables.hosts.rows):
            self._learning.renew(host)
        self._queues.swept, self._queues.swept_level = 0, self._steering.level

    @cython.cfunc
    def _put_off(
        self,
        page: cython.int,
        host: cython.int,
        signals: cython.uint,
        failed: cython.bint,
        now: cython.double,
    ) -> cython.void:
        """A page that failed or is away: it may not be asked for a while, each time twice as long.

        Pages that are away wait so long at least that all of them get `_GONE_SHARE` of the fetches: few come back,
        .4 % in each doubling of the time since they went.
        """
        state: cython.uint = self._tables.states[page]
        wanted: cython.uint = FAILED if failed else AWAY
        times: cython.int = state // DOUBLING if state & wanted else 0
        wait: cython.double
        self._away += (not failed) - (state & AWAY != 0)
        if failed:
            self._tables.rows[page].signals = self._deadlines.summed(signals, self._tables.rows[page].signals)
            wait = self._queues.retry_age * (1 << times)
        else:
            self._tables.crawled[page] = now
            wait = self._queues.gone_age * (1 << min(times, _GONE_DOUBLINGS))
            if self.rate > 0.0:
                wait = max(wait, self._away / (_GONE_SHARE * self.rate))
        self._tables.states[page] = wanted | DOUBLING * min(times + 1, _DOUBLINGS_MAX)
        self._queues.withhold(page, now + wait)

    # -- the level

    @property
    def level(self) -> float:
        """The crawl value of the marginal page, per unit of importance over rate."""
        return self._steering.level

    @level.setter
    def level(self, level: float) -> None:
        if not 0.0 < level < _INFINITY:
            raise ValueError(f"level {level}")
        self._steering.level = self._queues.swept_level = level
        self._steering.unknown, self._queues.swept = False, 0  # keys follow row by row

    @property
    def rate(self) -> float:
        """Fetches per time, as it was set or else measured; 0 if neither."""
        return self._steering.fetch_rate()

    @rate.setter
    def rate(self, rate: float) -> None:
        if not 0.0 <= rate < _INFINITY:
            raise ValueError(f"rate {rate}")
        self._steering.rate = rate
        self._steering.set_scale()

    @property
    def revisit(self) -> float:
        """The mean time between two crawls of a page; 0 as long as no rate is known."""
        return self._steering.revisit if self._steering.fetch_rate() > 0.0 else 0.0

    @revisit.setter
    def revisit(self, revisit: float) -> None:
        if not 0.0 < revisit < _INFINITY:
            raise ValueError(f"revisit {revisit}")
        self._steering.set_revisit(revisit)

    def price(self, now: float) -> float:
        """What one more fetch gains now: the level, or the value of the next page if it waits far above it."""
        page: cython.int = self.look(now)
        if page < 0 or self._tables.states[page] & (EXPLORED | AWAY | FAILED | JUMPED):
            return self._steering.level
        return self._steering.level * max(self._deadlines.worth(page, self._tables.owner(page), now), 1.0)

    # -- what a store kept

    def restore_site(self, host_key: int, numbers: np.ndarray) -> None:
        """Put back what `site_state` gave."""
        _finite(numbers)
        host: cython.int = self._tables.host(host_key)
        self._learning.sites.restore(host, *numbers[:3])
        self._learning.quality.restore(host, numbers[3:21])
        self._tables.host_rows[host].boost = min(max(numbers[21], 1.0), RATIO_MAX)
        self._learning.credence.restore(host, *numbers[22:25])
        self._learning.discovery.restore_site(host, *numbers[25:28])

    def restore_hub(self, page: int, found: float, watched: float) -> None:
        """Put back what `hub_state` gave."""
        self._require(page)
        _finite(np.array([found, watched]))
        self._tables.hubs.restore(page, found, watched)

    def restore_directory(
        self, directory_key: int, host_key: int, counts: tuple[float, ...], news: tuple[float, ...]
    ) -> None:
        """Put back what `directory_state` gave, before any page of the directory."""
        _finite(np.array(counts))
        _finite(np.array(news))
        directory: cython.int = self._tables.directories.find(directory_key)
        if directory < 0:
            directory = self._tables.new_directory(directory_key, self._tables.host(host_key))
        self._learning.directories.restore(directory, *counts)
        self._learning.discovery.restore_directory(directory, *news)


def _weight(importance: float) -> None:
    if not 0.0 <= importance < float("inf"):
        raise ValueError(f"importance {importance}")


def _finite(numbers: np.ndarray) -> None:
    if not np.isfinite(numbers).all() or (numbers[:2] < 0.0).any():
        raise ValueError("counts must be finite and not negative")
