# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False, initializedcheck=False
"""Which known page to ask again now: deadlines under two levels, hosts and politeness.

The best page is the one of the greatest crawl value. For a level (the value
of the marginal page) a page has one deadline: the instant at which its value
reaches the level. Between a page's crawls and signals its deadline stands, so
nothing is computed; the page of the earliest deadline is taken.

    global heap of hosts that may be asked      by first deadline of the host
      host: heap of its directories             by first deadline of the directory
        directory: heap of its pages            by base deadline

*Two levels.* The common level finds itself: if the page taken was not due, the
level is too high for the bandwidth and sinks; if it was late though its host
was free, it is too low and rises. Values are held against the common level for
this, whatever the host's own.
A host that is hardly ever idle, as politeness keeps it from taking its due
pages, has a level of its own above the common one: else its pages would be
taken round robin. It follows the value of the pages that host gets to, up in
small steps and down at once, and a host above the common level goes before the
others as soon as it may be asked. So no level of its own can keep a host from
its turn, which would raise it further.

*The neighbourhood clock.* A page's clock runs faster while its directory and
site are changing. Its base deadline leaves that out: last crawl + V^-1(level).
The bonus is the same for all pages of a directory that were not crawled just
now, at most `6 Ts c`; so it is an offset of the directory in its host's heap
and of the host in the global heap, and no page is touched when a neighbour
changes. Offsets fall as time passes. So keys are optimistic: the key of what
comes to the top is computed anew, the value of its first page is checked, and
the page is put back with the right key if it is not due.

*Bounded work.* No call corrects more than CHECKS_MAX keys, lets go more than
RELEASES_MAX hosts or pages that waited, works off more than SLICE signals that
came in bulk: what is left waits for the next call. Tables grow in place
(`columns.py`), heaps have no bad sequences (`heaps.py`).

*Signals.* A signal moves a deadline forward by its signal time. A page that it
makes due stands in the queue from then on, before those that are due by less:
by how far its value is above the level, at the rate at which values grow with
lateness. It is not late for the level, which signals would drive too high.

*Exploration.* A share of the fetches goes to the page longest unvisited: a
hand goes around the table and makes the oldest of the next HAND_ROWS pages due.

Pages, directories and hosts are numbers of rows. A page is in exactly one of:
its directory's heap, the heap of those that may not be asked yet (failed,
gone, too young), in flight. Memory: 62 bytes a page, 70 a directory, 148 a host.
Sources: Busa-Fekete et al., Algorithm 1 and section 5.2; Mercator's and
BUbiNG's host queues.
"""

from collections import deque
from typing import Any

import cython
import numpy as np
from cython.cimports.libc.math import exp, isfinite, log, sqrt

from crawler.freshness.params import PageParameters
from crawler.frontier.refresh.columns import Column
from crawler.frontier.refresh.settings import HostView, PageView, Settings

if cython.compiled:
    from cython.cimports.crawler.freshness.learning import Learning
    from cython.cimports.crawler.freshness.neighbourhood import elapsed_of, offset_of
    from cython.cimports.crawler.freshness.value_kernel import Parameters
    from cython.cimports.crawler.frontier.refresh.heaps import Heaps
    from cython.cimports.crawler.frontier.refresh.numbering import Numbering
else:
    from math import exp, isfinite, log, sqrt

    from crawler.freshness.learning import Learning
    from crawler.freshness.neighbourhood import elapsed_of, offset_of
    from crawler.freshness.value_kernel import Parameters
    from crawler.frontier.refresh.heaps import Heaps
    from crawler.frontier.refresh.numbering import Numbering

    PageRow = DirectoryRow = HostRow = OwnRow = cython.double  # C structs, declared in `schedule.pxd`

INFINITY = cython.declare(cython.double, float("inf"))

# Bounds of one call's work.
CHECKS_MAX = cython.declare(cython.Py_ssize_t, 64)  # keys made anew by one look; each costs about 2 us
RELEASES_MAX = cython.declare(cython.Py_ssize_t, 64)  # hosts or pages whose wait is over
SLICE = cython.declare(cython.Py_ssize_t, 64)  # bulk signals worked off beside another call
WORK_SLICE = cython.declare(cython.Py_ssize_t, 256)  # and by `work`
HAND_ROWS = cython.declare(cython.Py_ssize_t, 256)  # pages of which exploration takes the oldest

SAMPLE = cython.declare(cython.Py_ssize_t, 64)  # pages a first level is found from
SAMPLE_STEPS = cython.declare(cython.int, 40)  # bisections of 1e18 to 1e-3

SWEEP_ROWS = cython.declare(cython.Py_ssize_t, 4)  # keys made anew beside a look, while a sweep lasts
SWEEP_FROM = cython.declare(cython.double, 0.7)  # ratio of levels from which on keys are swept

STANDS = cython.declare(cython.double, 0.97)  # a value this near the level is due: keys are made to 1e-3
TOLERANCE = cython.declare(cython.double, 1e-3)  # of V^-1, relative
RATIO_MAX = cython.declare(cython.double, 1e4)  # values further above the level are all alike
QUIET_SHARE = cython.declare(cython.double, 0.25)  # of Ts: looked at again, where the neighbourhood is quiet
HOST_GAIN_MAX = cython.declare(cython.double, 0.05)  # step of a small host's own level
STEP_OF_ONE = cython.declare(
    cython.double, 0.25
)  # step of a level over the number of its pages, for few pages
SMALL_STEP_MAX = cython.declare(cython.double, 0.01)
STEP_MAX = cython.declare(cython.double, 0.05)
FAR = cython.declare(cython.double, 20.0)  # steps for a page whose value is e times the level, or 1/e
HOST_STEP_MAX = cython.declare(cython.double, 0.2)
IDLE_SHARE = cython.declare(
    cython.double, 0.25
)  # a host that is idle more than this has no use for a level of its own
FALL_MAX = cython.declare(cython.double, 0.5)  # of a host's own level, at a page that is worth less
SATURATED = cython.declare(cython.double, 0.05)  # a host is, which is idle less than this
IDLE_WEIGHT = cython.declare(
    cython.double, 1.0 / 128.0
)  # of a take, in the mean share of time a host is idle
IDLE_STEP = cython.declare(cython.double, 16.0)  # then its own level sinks so much faster
FIRST_STEP = cython.declare(cython.double, 0.02)  # of a level that nobody knows yet; halved when it is passed
TICK_TAKES = cython.declare(cython.double, 1000.0)  # over which the time between takes is averaged
PAUSE = cython.declare(cython.double, 10.0)  # a longer time between takes, in ticks, is a pause
RENEW_CRAWLS = cython.declare(cython.int, 1000)  # of a host, after which what it learned is summed up
RENEW_AGE = cython.declare(cython.double, 86_400.0)
GONE_DOUBLINGS = cython.declare(cython.int, 4)
DOUBLINGS_MAX = cython.declare(cython.int, 7)
UNIT = cython.declare(cython.uint, 32768)  # the code of importance 1
SIGNAL_MAX = cython.declare(cython.uint, 15)  # of one source: four bits
AGES_MAX = 256

# States of a page, a sum of these; doublings of its waits in the upper bits.
EXPLORED = cython.declare(cython.uint, 1)  # made due by the hand
AWAY = cython.declare(cython.uint, 2)  # gone, moved, denied: asked by its own rare schedule
FAILED = cython.declare(cython.uint, 4)
HELD = cython.declare(cython.uint, 8)  # in flight
WITHHELD = cython.declare(cython.uint, 16)  # may not be asked yet
DOUBLING = cython.declare(cython.uint, 32)
JUMPED = cython.declare(cython.uint, 32)  # due at once by a signal; only where neither failed nor away
LOW_BITS = cython.declare(cython.uint, 31)

# Places of a host.
NOWHERE = cython.declare(cython.int, 0)  # busy, or nothing to ask
ELIGIBLE = cython.declare(cython.int, 1)
WAITING = cython.declare(cython.int, 2)

# Policies.
BY_VALUE = cython.declare(cython.int, 0)  # ncis, greedy, cis
BY_AZAR = cython.declare(cython.int, 1)
BY_AGE = cython.declare(cython.int, 2)
BY_INTERVAL = cython.declare(cython.int, 3)
_POLICY = {"azar-lds": 1, "uniform": 2, "interval": 3}
_KINDS = {"ncis": 3, "greedy": 0, "cis": 1}
NUTCH_SHORTER = cython.declare(cython.double, 0.8)  # Nutch's AdaptiveFetchSchedule, its defaults
NUTCH_LONGER = cython.declare(cython.double, 1.4)
ALL_TERMS = cython.declare(cython.Py_ssize_t, 100_000)

F8, F4, U2, U1 = np.dtype("f8"), np.dtype("f4"), np.dtype("u2"), np.dtype("u1")
PAGE_KIND = np.dtype([("changes", "f4"), ("watched", "f4"), ("signals", "u4")])
DIRECTORY_KIND = np.dtype([("root", "i4"), ("pages", "i4")])
HOST_KIND = np.dtype(
    [
        ("ready", "f8"), ("previous", "f8"), ("boost", "f8"), ("idle", "f8"), ("renewed", "f8"), ("root", "i4"),
        ("pages", "i4"), ("run", "i4"), ("crawls", "i4"), ("busy", "u1"), ("place", "u1"), ("exploring", "u1"),
    ],
    align=True,
)  # fmt: skip
OWN_KIND = np.dtype([(name, "f8") for name in (
    "importance", "change_rate", "silent_rate", "signal_rate", "false_rate", "signal_weight")])  # fmt: skip


DEFAULTS = Settings()


def _empty(kind: np.dtype) -> Any:
    return np.zeros(0, kind).view(np.recarray) if kind.names else np.zeros(0, kind)


@cython.cclass
class Schedule:
    """The pages of one process that are asked again.

    Args:
        level: where the level starts; 0 takes half the ceiling of the first page.
        seed: of the heaps' random paths, which change no decision.
        track: remember which pages signals touch, for `signalled`.
    """

    _rows: PageRow[::1]
    _crawled: cython.double[::1]
    _directory_rows: DirectoryRow[::1]
    _host_rows: HostRow[::1]
    _own: OwnRow[::1]
    _intervals: cython.float[::1]
    _states: cython.uchar[::1]
    _importances: cython.ushort[::1]
    _bounds: cython.uchar[::1]
    _weighted: cython.bint
    _bounded: cython.bint
    _columns: dict
    _pages: Numbering
    _directories: Numbering
    _hosts: Numbering
    _page_heaps: Heaps
    _directory_heaps: Heaps
    _host_heaps: Heaps
    _eligible: cython.int
    _waiting: cython.int
    _withheld: cython.int
    _learning: Learning
    _page: Parameters
    _counts: cython.double[::1]
    _held: dict
    _touched: Any
    _backlog: Any
    _ages: list
    _min_ages: cython.double[::1]
    _max_ages: cython.double[::1]
    _policy: cython.int
    _plain: cython.bint
    _clocked: cython.bint
    _owned: cython.bint
    _kind: cython.Py_ssize_t
    _previous: cython.double
    _tick: cython.double
    _measured: cython.double
    _step: cython.double
    _run: cython.Py_ssize_t
    _side: cython.int
    _scale: cython.double
    _revisit: cython.double
    _hand: cython.Py_ssize_t
    _stood: cython.int
    _stood_at: cython.double
    _stood_worth: cython.double
    _swept: cython.Py_ssize_t
    _swept_level: cython.double
    _unknown: cython.bint
    _credit: cython.double
    _discard: cython.double
    _gain: cython.double
    _explore: cython.double
    _retry_age: cython.double
    _gone_age: cython.double
    _first_interval: cython.double
    _clock_min: cython.double
    _clock_max: cython.double
    _crawls: cython.Py_ssize_t
    _rate: cython.double
    _level: cython.double
    settings = cython.declare(object, visibility="readonly")
    takes = cython.declare(cython.Py_ssize_t, visibility="readonly")
    checks = cython.declare(cython.Py_ssize_t, visibility="readonly")
    explored = cython.declare(cython.Py_ssize_t, visibility="readonly")
    waiting_signals = cython.declare(cython.Py_ssize_t, visibility="readonly")

    def __init__(
        self, settings: Settings = DEFAULTS, *, level: float = 0.0, seed: int = 1, track: bool = False
    ) -> None:
        if not 0.0 <= level < INFINITY:
            raise ValueError(f"level {level}")
        self.settings = settings
        self._columns = {
            "rows": Column(PAGE_KIND), "crawled": Column(F8), "states": Column(U1), "importances": Column(U2),
            "bounds": Column(U1), "own": Column(OWN_KIND), "intervals": Column(F4),
            "directories": Column(DIRECTORY_KIND), "hosts": Column(HOST_KIND),
        }  # fmt: skip
        self._rows, self._crawled, self._states = _empty(PAGE_KIND), _empty(F8), _empty(U1)
        self._importances, self._bounds = _empty(U2), _empty(U1)
        self._directory_rows, self._host_rows = _empty(DIRECTORY_KIND), _empty(HOST_KIND)
        self._own, self._intervals = _empty(OWN_KIND), _empty(F4)
        self._pages, self._directories, self._hosts = Numbering(), Numbering(), Numbering()
        self._page_heaps, self._directory_heaps = Heaps(seed), Heaps(seed + 1)
        self._host_heaps = Heaps(seed + 2)
        self._eligible = self._waiting = self._withheld = -1
        policy = settings.policy
        self._policy = _POLICY.get(policy, 0)
        self._kind = _KINDS.get(policy, 0)
        self._plain = not settings.pooling
        self._clocked = settings.neighbourhood and self._policy == BY_VALUE
        self._owned = self._weighted = self._bounded = False
        kind = policy if policy in _KINDS else "greedy"
        self._learning = Learning(kind, neighbourhood=self._clocked, scale=settings.clock_min)
        self._page = Parameters()
        self._counts = np.zeros(8)
        self._held = {}
        self._touched = set() if track else None
        self._backlog = deque()
        self._ages = [(settings.min_age, settings.max_age)]
        self._min_ages, self._max_ages = np.zeros(AGES_MAX), np.full(AGES_MAX, INFINITY)
        self._min_ages[0], self._max_ages[0] = self._ages[0]
        self._previous, self._tick, self._measured = -INFINITY, 0.0, 0.0
        self._step, self._run, self._side = (settings.gain if level > 0.0 else FIRST_STEP), 0, 0
        self._scale, self._revisit = settings.clock_min, settings.clock_min
        self._hand, self._credit = 0, 0.0
        self._stood, self._stood_at, self._stood_worth = -1, 0.0, 0.0
        self._swept, self._swept_level, self._unknown = 0, level, level <= 0.0
        self._discard, self._gain, self._explore = settings.discard_window, settings.gain, settings.explore
        self._retry_age, self._gone_age = settings.retry_age, settings.gone_age
        self._first_interval = settings.first_interval
        self._clock_min, self._clock_max = settings.clock_min, settings.clock_max
        self._crawls = 0
        self._rate, self._level = 0.0, level
        self.takes = self.checks = self.explored = self.waiting_signals = 0

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
        self._weight(importance)
        if self._pages.find(fingerprint) >= 0:
            raise RuntimeError(f"page {fingerprint:016x} is in {self!r}")
        page = self._new_page(fingerprint, host_key, directory_key)
        self._crawled[page] = crawled_at
        self._set_importance(page, importance)
        self._set_scale()
        self._find_level(page)
        self._schedule(page, now)
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
        self._add_all(columns, numbers, now)
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
                    self._find_level(page)
                    self._schedule(page, now)

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
            if self._pages.find(fingerprints[i]) >= 0:
                raise RuntimeError(f"page {fingerprints[i]:016x} is in {self!r}")
            page = self._new_page(fingerprints[i], host_keys[i], directory_keys[i])
            self._crawled[page] = crawled[i]
            self._set_importance(page, importance[i])
            self._rows[page].changes = changes[i]
            self._rows[page].watched = watched[i]
            self._rows[page].signals = signals[i]
            self._states[page] = states[i] if states[i] & (AWAY | FAILED) else 0
            self._states[page] &= AWAY | FAILED | (7 * DOUBLING)
            numbers[i] = page
            if changes[i] > 0.0 or watched[i] > 0.0:
                host = self._owner(page)
                self._learning.rates.observe(host, 0.0, 0.0, watched[i], changes[i])
        self._set_scale()
        return len(numbers)

    @cython.cfunc
    def _new_page(
        self, fingerprint: cython.ulonglong, host_key: cython.ulonglong, directory_key: cython.ulonglong
    ) -> cython.int:
        host: cython.int = self._host(host_key)
        directory: cython.int = self._directories.find(directory_key)
        if directory < 0:
            directory = self._new_directory(directory_key, host)
        elif self._directory_heaps.nodes[directory].owner != host:
            raise RuntimeError(f"directory {directory_key:016x} is of another host")
        page: cython.int = self._pages.insert(fingerprint)
        if page >= len(self._rows):
            self._grow()
            self._page_heaps.grow(len(self._rows))
        self._page_heaps.clear(page, directory)
        self._rows[page].changes = self._rows[page].watched = 0.0
        self._rows[page].signals = 0
        self._states[page] = 0
        if self._weighted:
            self._importances[page] = UNIT
        if self._bounded:
            self._bounds[page] = 0
        if self._owned:
            self._own[page].change_rate = -1.0
        if self._policy == BY_INTERVAL:
            self._intervals[page] = self._first_interval
        self._directory_rows[directory].pages += 1
        self._host_rows[host].pages += 1
        return page

    @cython.cfunc
    def _new_directory(self, key: cython.ulonglong, host: cython.int) -> cython.int:
        directory: cython.int = self._directories.insert(key)
        if directory >= len(self._directory_rows):
            self._directory_rows = _empty(DIRECTORY_KIND)
            self._directory_rows = self._columns["directories"].grow(self._directories.rows)
            self._directory_heaps.grow(len(self._directory_rows))
        self._directory_rows[directory].root = -1
        self._directory_rows[directory].pages = 0
        self._directory_heaps.clear(directory, host)
        self._learning.add_directory()
        return directory

    @cython.cfunc
    @cython.exceptval(-2, check=True)
    def _host(self, key: cython.ulonglong) -> cython.int:
        host: cython.int = self._hosts.find(key)
        if host >= 0:
            return host
        host = self._hosts.insert(key)
        if host >= len(self._host_rows):
            self._host_rows = _empty(HOST_KIND)
            self._host_rows = self._columns["hosts"].grow(self._hosts.rows)
            self._host_heaps.grow(len(self._host_rows))
        self._host_rows[host].ready = self._host_rows[host].previous = -INFINITY
        self._host_rows[host].boost = self._host_rows[host].idle = 1.0
        self._host_rows[host].renewed = -INFINITY
        self._host_rows[host].root = -1
        self._host_heaps.clear(host, 0)
        self._learning.add_site()
        return host

    @cython.cfunc
    def _grow(self) -> cython.void:
        """Lengthen the columns of pages; those that few crawls need are there from the first need on."""
        rows = self._pages.rows
        columns = self._columns
        self._rows, self._crawled, self._states = _empty(PAGE_KIND), _empty(F8), _empty(U1)
        self._rows, self._crawled = columns["rows"].grow(rows), columns["crawled"].grow(rows)
        self._states = columns["states"].grow(rows)
        if self._weighted:
            self._importances = _empty(U2)
            self._importances = columns["importances"].grow(rows)
        if self._bounded:
            self._bounds = _empty(U1)
            self._bounds = columns["bounds"].grow(rows)
        if self._owned:
            self._own = _empty(OWN_KIND)
            self._own = columns["own"].grow(rows)
        if self._policy == BY_INTERVAL:
            self._intervals = _empty(F4)
            self._intervals = columns["intervals"].grow(rows)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _importance(self, page: cython.int) -> cython.double:
        if self._owned and self._own[page].change_rate >= 0.0:
            return self._own[page].importance
        return _importance_of(self._importances[page]) if self._weighted else 1.0

    @cython.cfunc
    def _set_importance(self, page: cython.int, importance: cython.double) -> cython.void:
        row: cython.Py_ssize_t
        if importance == 1.0 and not self._weighted:
            return
        if not self._weighted:
            self._weighted = True
            self._grow()
            for row in range(self._pages.rows):
                self._importances[row] = UNIT
        self._importances[page] = _code_of(importance)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _min_age(self, page: cython.int) -> cython.double:
        return self._min_ages[self._bounds[page] if self._bounded else 0]

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _max_age(self, page: cython.int) -> cython.double:
        return self._max_ages[self._bounds[page] if self._bounded else 0]

    @cython.cfunc
    @cython.exceptval(check=False)
    def _set_scale(self) -> cython.void:
        rate: cython.double = self._rate
        if rate <= 0.0 and self._tick > 0.0:
            rate = 1.0 / self._tick
        if rate > 0.0:
            self._revisit = max(self._pages.size, 1) / rate
            self._scale = min(max(0.25 * self._revisit, self._clock_min), self._clock_max)
            self._learning.scale = self._scale

    def remove(self, page: int) -> None:
        """Forget a page, also while it is in flight (its host stays busy until `settle`)."""
        self._require(page)
        state = self._states[page]
        if state & HELD:
            signals = self._held[page][0]
            self._held[page] = (signals, True)
            self._pages.remove(page)
            return
        now = self._previous if isfinite(self._previous) else 0.0
        self._leave(page, now)
        self._pages.remove(page)
        self._forget(page, now)

    @cython.cfunc
    def _forget(self, page: cython.int, now: cython.double) -> cython.void:
        """Free the row of a page that is in no heap and has no fingerprint any more."""
        directory: cython.int = self._page_heaps.nodes[page].owner
        host: cython.int = self._directory_heaps.nodes[directory].owner
        if self._states[page] & EXPLORED:
            self._host_rows[host].exploring = 0
        self._states[page] = HELD  # a free row takes part in nothing
        self._directory_rows[directory].pages -= 1
        self._host_rows[host].pages -= 1
        self._learning.rates.forget(host, self._rows[page].changes, self._rows[page].watched)
        self._pages.recycle(page)
        self._set_scale()

    def find(self, fingerprint: int) -> int:
        """The page's number; -1 if it is not in."""
        return self._pages.find(fingerprint)

    def __contains__(self, fingerprint: int) -> bool:
        return self._pages.find(fingerprint) >= 0

    def __len__(self) -> int:
        return self._pages.size

    def host(self, host_key: int) -> int:
        """The host's number, made if it is new."""
        return self._host(host_key)

    def host_of(self, page: int) -> int:
        self._require(page)
        return self._directory_heaps.nodes[self._page_heaps.nodes[page].owner].owner

    # -- what is told of pages and hosts

    def weigh(self, page: int, importance: float, now: float) -> None:
        """Give a page a new importance."""
        self._require(page)
        self._instant(now)
        self._weight(importance)
        self._set_importance(page, importance)
        if self._owned:
            self._own[page].importance = importance
        self._reschedule(page, now)

    def set_page(self, page: int, parameters: PageParameters, now: float) -> None:
        """Give a page parameters of its own, which nothing it shows will change."""
        self._require(page)
        self._instant(now)
        p = parameters
        numbers = (p.importance, p.change_rate, p.silent_rate, p.signal_rate, p.false_rate)
        if not all(0.0 <= number < INFINITY for number in numbers):
            raise ValueError(f"{parameters}: rates must be finite and not negative")
        if not self._owned:
            self._owned = True
            self._grow()
            for row in range(self._pages.rows):
                self._own[row].change_rate = -1.0
        self._own[page].importance, self._own[page].change_rate = p.importance, p.change_rate
        self._own[page].silent_rate, self._own[page].signal_rate = p.silent_rate, p.signal_rate
        self._own[page].false_rate, self._own[page].signal_weight = p.false_rate, p.signal_weight
        self._set_importance(page, p.importance)
        self._reschedule(page, now)

    def bound_ages(self, page: int, min_age: float, max_age: float) -> None:
        """Bounds of this page's age in place of the settings'; it follows them from its next crawl on.

        Raises:
            ValueError: more than 255 different pairs, or bounds that exclude each other.
        """
        self._require(page)
        if not 0.0 <= min_age <= max_age or min_age == INFINITY or not max_age > 0.0:
            raise ValueError(f"ages {min_age} .. {max_age}")
        pair = (float(min_age), float(max_age))
        if pair not in self._ages:
            if len(self._ages) == AGES_MAX:
                raise ValueError(f"more than {AGES_MAX - 1} different bounds of ages")
            self._min_ages[len(self._ages)], self._max_ages[len(self._ages)] = pair
            self._ages.append(pair)
        if not self._bounded:
            self._bounded = True
            self._grow()
        self._bounds[page] = self._ages.index(pair)

    def block(self, host: int, until: float) -> None:
        """Do not ask this host before `until` (infinite: until told otherwise)."""
        self._require_host(host)
        if until != until:
            raise ValueError(f"until {until}")
        self._host_rows[host].ready = until
        self._place_host(host, self._previous)

    @cython.cfunc
    def _reschedule(self, page: cython.int, now: cython.double) -> cython.void:
        """Make the deadline of a page anew that waits for it."""
        state: cython.uint = self._states[page]
        if state & (HELD | WITHHELD | EXPLORED | FAILED | AWAY):
            return
        if now - self._crawled[page] < self._min_age(page):  # as its bounds were changed
            self._leave(page, now)
            self._schedule(page, now)
            return
        host: cython.int = self._owner(page)
        self._assign(page, host)
        n: cython.double = self._signals_of(host, self._rows[page].signals)
        self._move(page, self._key(page, host, n, self._offset(page, host, now), now), now)

    @property
    def sweeping(self) -> bool:
        """Whether keys are being made anew after the level has moved; `look` and `work` go on with it."""
        return self._swept < self._pages.rows

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
        self._work_off(SLICE, now)

    def signalled(self) -> list[int]:
        """Pages that signals have touched since the last call, for the store; only with `track`."""
        touched = [page for page in self._touched or () if not self._is_free(page)]
        if self._touched is not None:
            self._touched.clear()
        return touched

    def work(self, now: float) -> int:
        """Work off a slice of the signals that came in bulk; return how many still wait."""
        self._instant(now)
        self._work_off(WORK_SLICE, now)
        self._sweep(WORK_SLICE, now)
        return self.waiting_signals

    @cython.cfunc
    def _work_off(self, most: cython.Py_ssize_t, now: cython.double) -> cython.void:
        i: cython.Py_ssize_t
        page: cython.int
        keys: cython.const[cython.ulonglong][::1]
        while most > 0 and self._backlog:
            fingerprints, source = self._backlog[0]
            keys = fingerprints
            share: cython.Py_ssize_t = min(most, len(keys))
            kind: cython.uint = source
            for i in range(share):
                page = self._pages.find(keys[i])
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
        state: cython.uint = self._states[page]
        if not state & HELD and now - self._crawled[page] < self._discard:
            return
        if self._policy != BY_VALUE:
            return
        host: cython.int = self._directory_heaps.nodes[self._page_heaps.nodes[page].owner].owner
        if not self._plain:
            self._learning.quality.hear(host, source)
        before: cython.uint = self._rows[page].signals
        after: cython.uint
        if self._plain:
            after = before + 1 if before < 0xFFFFFFFF else before
        else:
            after = before + (cython.cast(cython.uint, 1) << 4 * source)
            if before >> 4 * source & SIGNAL_MAX == SIGNAL_MAX:
                return
        if self._touched is not None:
            self._touched.add(page)
        if state & (HELD | WITHHELD | EXPLORED):
            self._rows[page].signals = after
            return
        self._assign(page, host)
        n: cython.double = self._signals_of(host, before)
        self._rows[page].signals = after
        beta: cython.double = self._page.signal_time
        if beta == 0.0:
            return
        more: cython.double = self._signals_of(host, after)
        key: cython.double = self._page_heaps.nodes[page].key
        if beta < INFINITY and key - (more - n) * beta > now:
            key -= (
                more - n
            ) * beta  # if offsets make it due already, its value tells when it comes to the top
        else:
            offset: cython.double = self._offset(page, host, now)
            if key - offset > now:
                self._states[page] |= JUMPED
            key = min(key, self._key(page, host, more, offset, now))
        self._move(page, key, now)

    # -- the choice

    @cython.ccall
    def look(self, now: cython.double) -> cython.int:
        """The best page of all hosts that may be asked now; -1 if there is none. Decides nothing.

        Work conserving: if no page is due, it is the one due next.
        """
        self._instant(now)
        if self._backlog:
            self._work_off(SLICE, now)
        self._release(now)
        if self._unknown and self._rate > 0.0 and self._pages.size > 0 and self._policy != BY_INTERVAL:
            self._unknown = False
            self._sample_level()
        self._sweep(SWEEP_ROWS, now)
        return self._first(now)

    @cython.ccall
    def best(self, host: cython.int, now: cython.double) -> cython.int:
        """The best page of this host, whether or not it may be asked now; -1 if it has none. Decides nothing."""
        _step: cython.Py_ssize_t
        page: cython.int
        self._instant(now)
        self._require_host(host)
        self._release(now)
        for _step in range(CHECKS_MAX):
            if self._host_rows[host].root < 0:
                return -1
            page = self._stand(host, now)
            if page >= 0:
                return page
        return self._top_of(host)

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
        if self._states[page] & (HELD | WITHHELD):
            raise RuntimeError(f"page {page} cannot be held in {self!r}")
        self._hold(page, now)

    @cython.cfunc
    def _hold(self, page: cython.int, now: cython.double) -> cython.void:
        host: cython.int = self._directory_heaps.nodes[self._page_heaps.nodes[page].owner].owner
        if self._host_rows[host].busy:
            raise RuntimeError(f"host {host} is busy in {self!r}")
        self._steer(page, host, now)
        self._leave(page, now)
        if self._states[page] & EXPLORED:
            self._host_rows[host].exploring = 0
            self._states[page] &= ~EXPLORED & 0xFF
        self._held[page] = (self._rows[page].signals, False)
        self._rows[page].signals = 0
        self._states[page] |= HELD
        self._host_rows[host].busy = 1
        self._place_host(host, now)
        self.takes += 1
        if self._explore > 0.0:
            self._credit += self._explore
            if self._credit >= 1.0:
                self._turn_hand(now)

    def give_back(self, page: int, now: float, ready: float = 0.0) -> None:
        """The page held was not asked: it is due as before, and its host may be asked from `ready` on."""
        signals, removed = self._end_flight(page, now, ready)
        if removed:
            self._forget(page, now)
        else:
            self._rows[page].signals = self._sum(signals, self._rows[page].signals)
            self._schedule(page, now)
        self._place_host(self._owner(page), now)

    def settle(self, page: int, now: float, result: int, ready: float = 0.0) -> None:
        """The page held was asked, with this `RefreshOutcome`; its host may be asked from `ready` on.

        What came is learned from, and the page has a new deadline. Signals
        that came since `hold` count for the next interval.
        """
        if not 0 <= result <= 5:
            raise ValueError(f"result {result}")
        signals, removed = self._end_flight(page, now, ready)
        host: cython.int = self._owner(page)
        if removed:
            self._forget(page, now)
        elif result <= 1:
            self._learn(page, host, signals, result == 1, now)
            if self._rows[page].signals:
                self._states[page] |= JUMPED
            self._schedule(page, now)
        else:
            self._put_off(page, host, signals, result == 2, now)
        self._place_host(host, now)

    def _end_flight(self, page: int, now: float, ready: float) -> tuple[int, bool]:
        self._instant(now)
        if ready != ready:
            raise ValueError(f"ready {ready}")
        if page not in self._held:
            raise RuntimeError(f"page {page} is not held in {self!r}")
        held: tuple[int, bool] = self._held.pop(page)
        host: cython.int = self._owner(page)
        self._host_rows[host].busy = 0
        self._host_rows[host].ready = ready
        self._states[page] &= ~HELD & 0xFF
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
        elapsed: cython.double = now - self._crawled[page]
        directory: cython.int = self._page_heaps.nodes[page].owner
        if elapsed > 0.0:
            self._unpack(signals)
            self._rows[page].changes = self._learning.observe(
                host, directory, self._rows[page].changes, self._rows[page].watched, elapsed, now,
                self._counts, changed,
            )  # fmt: skip
            self._rows[page].watched += self._learning.observed_clock
            self._renew(host, now)
        if self._policy == BY_INTERVAL:
            self._intervals[page] *= NUTCH_SHORTER if changed else NUTCH_LONGER
        self._crawled[page] = now
        self._states[page] = 0

    @cython.cfunc
    def _renew(self, host: cython.int, now: cython.double) -> cython.void:
        """Sum up what the host and the crawl have shown, now and then."""
        self._host_rows[host].crawls += 1
        self._crawls += 1
        crawls: cython.int = self._host_rows[host].crawls
        often: cython.int = min(RENEW_CRAWLS, max(4, self._host_rows[host].pages >> 3))
        if crawls >= often or now - self._host_rows[host].renewed > RENEW_AGE:
            self._learning.renew(host)
            self._host_rows[host].crawls = 0
            self._host_rows[host].renewed = now
        if self._crawls >= min(RENEW_CRAWLS, max(4, self._pages.size >> 3)):
            self._learning.renew_crawl()
            self._crawls = 0

    def renew(self) -> None:
        """Sum up what crawl and hosts have shown, and make all keys anew, in slices; after a bulk load."""
        host: cython.Py_ssize_t
        self._learning.renew_crawl()
        for host in range(self._hosts.rows):
            self._learning.renew(host)
        self._swept, self._swept_level = 0, self._level

    @cython.cfunc
    def _put_off(
        self,
        page: cython.int,
        host: cython.int,
        signals: cython.uint,
        failed: cython.bint,
        now: cython.double,
    ) -> cython.void:
        """A page that failed or is away: it may not be asked for a while, each time twice as long."""
        state: cython.uint = self._states[page]
        wanted: cython.uint = FAILED if failed else AWAY
        times: cython.int = state // DOUBLING if state & wanted else 0
        wait: cython.double
        if failed:
            self._rows[page].signals = self._sum(signals, self._rows[page].signals)
            wait = self._retry_age * (1 << times)
        else:
            self._crawled[page] = now
            wait = self._gone_age * (1 << min(times, GONE_DOUBLINGS))
        self._states[page] = wanted | DOUBLING * min(times + 1, DOUBLINGS_MAX)
        self._withhold(page, now + wait)

    @cython.ccall
    def next_wakeup(self, now: cython.double) -> cython.double:
        """When a page may be due; it may be past, and infinite if none ever is. `take` need not wait for it."""
        found: cython.double = INFINITY
        if self._backlog:
            return now
        if self._eligible >= 0:
            found = self._host_heaps.nodes[self._eligible].key
        if self._waiting >= 0:
            found = min(found, self._host_heaps.nodes[self._waiting].key)
        if self._withheld >= 0:
            found = min(found, self._page_heaps.nodes[self._withheld].key)
        return found

    # -- the level

    @property
    def level(self) -> float:
        """The crawl value of the marginal page, per unit of importance over rate."""
        return self._level

    @level.setter
    def level(self, level: float) -> None:
        if not 0.0 < level < INFINITY:
            raise ValueError(f"level {level}")
        self._level = self._swept_level = level
        self._unknown, self._swept, self._step = False, 0, self._gain  # keys follow row by row

    @property
    def rate(self) -> float:
        """Fetches per time, as it was set or else measured; 0 if neither."""
        if self._rate > 0.0:
            return self._rate
        return 1.0 / self._tick if self._tick > 0.0 else 0.0

    @rate.setter
    def rate(self, rate: float) -> None:
        if not 0.0 <= rate < INFINITY:
            raise ValueError(f"rate {rate}")
        self._rate = rate
        self._set_scale()

    def price(self, now: float) -> float:
        """What one more fetch gains now: the level, or the value of the next page if it waits far above it."""
        page: cython.int = self.look(now)
        if page < 0 or self._states[page] & (EXPLORED | AWAY | FAILED | JUMPED):
            return self._level
        return self._level * max(self._worth(page, self._owner(page), now), 1.0)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _find_level(self, page: cython.int) -> cython.void:
        """Without a level: half the page's ceiling, until the first look."""
        if self._level > 0.0:
            return
        self._assign(page, self._owner(page))
        high: cython.double = self._page.ceiling
        if self._policy == BY_AGE:
            self._level = self._revisit
        elif self._policy == BY_INTERVAL or not 0.0 < high < INFINITY:
            self._level = 1.0
        else:
            self._level = 0.5 * high

    @cython.cfunc
    @cython.exceptval(check=False)
    def _sample_level(self) -> cython.void:
        """The level at which SAMPLE pages, with no signals, would take their share of the rate."""
        low: cython.double = 1e-9 * self._level
        high: cython.double = 1e9 * self._level
        _step: cython.Py_ssize_t
        k: cython.Py_ssize_t
        page: cython.int
        rows: cython.Py_ssize_t = self._pages.rows
        size: cython.Py_ssize_t = min(SAMPLE, rows)
        wanted: cython.double = self._rate * size / max(self._pages.size, 1)
        for _step in range(SAMPLE_STEPS):
            self._level = sqrt(low * high)
            total: cython.double = 0.0
            for k in range(size):
                page = cython.cast(cython.int, k * (rows // size))
                if not self._states[page] & HELD:
                    self._assign(page, self._owner(page))
                    total += 1.0 / self._wait(page, self._owner(page), 0.0)
            if total > wanted:
                low = self._level
            else:
                high = self._level

    @cython.cfunc
    @cython.exceptval(check=False)
    def _steer(self, page: cython.int, host: cython.int, now: cython.double) -> cython.void:
        """Move the levels by what the page taken at `now` says of them."""
        tick: cython.double = now - self._previous
        gap: cython.double = now - self._host_rows[host].previous
        if self._previous > -INFINITY:
            self._measure(tick)
        self._previous = max(now, self._previous)
        self._host_rows[host].previous = now
        if self._states[page] & (EXPLORED | AWAY | FAILED):
            return
        ready: cython.double = self._host_rows[host].ready
        deadline: cython.double = self._page_heaps.nodes[page].key - self._offset(page, host, now)
        late: cython.bint = not self._states[page] & JUMPED
        worth: cython.double = self._worth(page, host, now)  # over the host's own level
        above: cython.double = worth * self._host_rows[host].boost  # over the common one
        if deadline > now:
            if above < 1.0:  # else its key is from before the level sank
                self._turn(-1, above)
        elif late and now - max(deadline, ready) > tick and above >= STANDS:
            self._turn(1, above)
        idle: cython.double = min(max((now - ready) / gap, 0.0), 1.0) if 0.0 < gap < INFINITY else 1.0
        idle = self._host_rows[host].idle + IDLE_WEIGHT * (idle - self._host_rows[host].idle)
        self._host_rows[host].idle = idle
        if late and deadline < ready and worth > 1.0 and idle < SATURATED:
            self._boost(host, 1, 1.0)
        elif self._host_rows[host].boost > 1.0:
            self._boost(host, -1, IDLE_STEP if idle > IDLE_SHARE else 1.0)
            if worth < 1.0:
                self._host_rows[host].boost = max(1.0, self._host_rows[host].boost * max(worth, FALL_MAX))

    @cython.cfunc
    @cython.exceptval(check=False)
    def _turn(self, side: cython.int, worth: cython.double) -> cython.void:
        """A step of the level to one side, after a page whose value over the level is `worth`.

        It grows with how far off that page shows the level to be, and with every
        64 takes (or a quarter of the pages) on one side, up to sixteenfold:
        more would overshoot, as most keys follow the level only at their next
        crawl. A level that was never passed takes larger steps.
        """
        if side != self._side:
            if self._side != 0:
                self._step = max(0.5 * self._step, self._gain)
            self._side = side
            self._run = 0
        self._run += 1
        step: cython.double = max(self._step, min(STEP_OF_ONE / max(self._pages.size, 1), SMALL_STEP_MAX))
        if self._step <= self._gain:
            far: cython.double = FAR * abs(log(max(worth, 1.0 / RATIO_MAX)))
            step *= max(1 << min(self._run // max(64, self._pages.size >> 2), 4), min(max(far, 1.0), 16.0))
        self._level *= 1.0 + side * min(step, STEP_MAX)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _boost(self, host: cython.int, side: cython.int, pace: cython.double) -> cython.void:
        """A step of the host's own level; of the order of one over the crawls until its keys have followed."""
        run: cython.int = self._host_rows[host].run
        run = run + side if run * side > 0 else side
        self._host_rows[host].run = run
        pages: cython.int = max(self._host_rows[host].pages, 1)
        step: cython.double = min(max(STEP_OF_ONE / pages, self._gain), HOST_GAIN_MAX)
        step *= pace * (1 << min(abs(run) // max(16, pages >> 2), 4))
        step = min(step, HOST_STEP_MAX)
        self._host_rows[host].boost = min(
            max(self._host_rows[host].boost * (1.0 + side * step), 1.0), RATIO_MAX
        )

    @cython.cfunc
    @cython.exceptval(check=False)
    def _measure(self, tick: cython.double) -> cython.void:
        """The mean time between takes, pauses left out."""
        if tick < 0.0:
            return
        if self._tick > 0.0:
            tick = min(tick, PAUSE * self._tick)
        self._measured = min(self._measured + 1.0, TICK_TAKES)
        self._tick += (tick - self._tick) / self._measured
        if self.takes & 63 == 0:
            self._set_scale()

    # -- keys: a page's base deadline, less the offsets of its directory and host

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _owner(self, page: cython.int) -> cython.int:
        """The host of a page."""
        return self._directory_heaps.nodes[self._page_heaps.nodes[page].owner].owner

    @cython.cfunc
    @cython.exceptval(check=False)
    def _directory_offset(self, directory: cython.int, now: cython.double) -> cython.double:
        if not self._clocked:
            return 0.0
        return max(
            offset_of(self._learning.directories.excess(directory, now, self._scale), self._scale), 0.0
        )

    @cython.cfunc
    @cython.exceptval(check=False)
    def _host_offset(self, host: cython.int, now: cython.double) -> cython.double:
        if not self._clocked:
            return 0.0
        return max(offset_of(self._learning.sites.excess(host, now, self._scale), self._scale), 0.0)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _offset(self, page: cython.int, host: cython.int, now: cython.double) -> cython.double:
        if not self._clocked:
            return 0.0
        return self._directory_offset(self._page_heaps.nodes[page].owner, now) + self._host_offset(host, now)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _assign(self, page: cython.int, host: cython.int) -> cython.void:
        """Make `_page` the parameters of this page."""
        if self._owned and self._own[page].change_rate >= 0.0:
            self._page.assign(
                self._kind, ALL_TERMS, self._own[page].importance, self._own[page].change_rate,
                self._own[page].silent_rate, self._own[page].signal_rate, self._own[page].false_rate,
                self._own[page].signal_weight,
            )  # fmt: skip
        else:
            self._learning.assign(
                self._page, host, self._rows[page].changes, self._rows[page].watched,
                self._importance(page),
            )  # fmt: skip

    @cython.cfunc
    @cython.exceptval(check=False)
    def _unpack(self, signals: cython.uint) -> cython.void:
        """Signals by source into `_counts`."""
        source: cython.Py_ssize_t
        if self._plain:
            self._counts[0] = signals
            return
        for source in range(8):
            self._counts[source] = signals >> 4 * source & SIGNAL_MAX

    @cython.cfunc
    @cython.exceptval(check=False)
    def _signals_of(self, host: cython.int, signals: cython.uint) -> cython.double:
        """The effective number of signals for the value of `_page`."""
        if signals == 0:
            return 0.0
        if self._plain:
            return signals
        self._unpack(signals)
        return self._learning.signals(host, self._counts)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _sum(self, one: cython.uint, other: cython.uint) -> cython.uint:
        """The signals of two spans of time."""
        total: cython.uint = 0
        shift: cython.int
        if self._plain:
            return one + other
        for shift in range(0, 32, 4):
            total |= min((one >> shift & SIGNAL_MAX) + (other >> shift & SIGNAL_MAX), SIGNAL_MAX) << shift
        return total

    @cython.cfunc
    @cython.exceptval(check=False)
    def _ratio(
        self, page: cython.int, host: cython.int, elapsed: cython.double, n: cython.double, now: cython.double
    ) -> cython.double:
        """The value of `_page` over its host's level."""
        level: cython.double = self._level * self._host_rows[host].boost
        if self._policy == BY_AGE:
            return elapsed / level
        if self._policy == BY_INTERVAL:
            return elapsed / self._intervals[page]
        if self._policy == BY_AZAR:
            return self._azar_value(elapsed) / level
        clock: cython.double = elapsed
        if self._clocked:
            clock = self._learning.clock(host, self._page_heaps.nodes[page].owner, elapsed, now)
        return self._page.value(clock, n) / level

    @cython.cfunc
    @cython.exceptval(check=False)
    def _wait(self, page: cython.int, host: cython.int, n: cython.double) -> cython.double:
        """The time, by the page's clock, from its last crawl until its value reaches the level."""
        level: cython.double = self._level * self._host_rows[host].boost
        if self._policy == BY_AGE:
            return level
        if self._policy == BY_INTERVAL:
            return self._intervals[page]
        if self._policy == BY_AZAR:
            return self._azar_wait(level)
        return self._page.wait(level, n, 0.0, TOLERANCE)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _worth(self, page: cython.int, host: cython.int, now: cython.double) -> cython.double:
        """The page's value over its host's level."""
        if page == self._stood and now == self._stood_at:
            return self._stood_worth
        self._assign(page, host)
        n: cython.double = self._signals_of(host, self._rows[page].signals)
        return self._ratio(page, host, max(now - self._crawled[page], 0.0), n, now)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _azar_value(self, elapsed: cython.double) -> cython.double:
        """dF/drho of F = mu rho/(rho + Delta) at rho = 1/elapsed (Azar et al., problem 2)."""
        ceiling: cython.double = self._page.ceiling
        if elapsed <= 0.0 or ceiling <= 0.0:
            return 0.0
        importance: cython.double = self._page.importance
        change_rate: cython.double = importance / ceiling
        share: cython.double = 1.0 / elapsed + change_rate
        return importance * change_rate / (share * share)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _azar_wait(self, level: cython.double) -> cython.double:
        """1/rho with rho = sqrt(mu Delta / level) - Delta; infinite where that is not positive."""
        ceiling: cython.double = self._page.ceiling
        if ceiling <= level:
            return INFINITY
        importance: cython.double = self._page.importance
        change_rate: cython.double = importance / ceiling
        return 1.0 / (sqrt(importance * change_rate / level) - change_rate)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _key(
        self, page: cython.int, host: cython.int, n: cython.double, offset: cython.double, now: cython.double
    ) -> cython.double:
        """The key of a page whose parameters are assigned."""
        crawled: cython.double = self._crawled[page]
        latest: cython.double = crawled + self._max_age(page) + offset
        if n > 0.0:
            ratio: cython.double = self._ratio(page, host, max(now - crawled, 0.0), n, now)
            if ratio >= 1.0:
                return min(now - 0.5 * self._revisit * (min(ratio, RATIO_MAX) - 1.0) + offset, latest)
        wait: cython.double = self._wait(page, host, n)
        if wait == INFINITY:  # not worth a crawl: looked at again, as the level may have sunk
            return min(self._again(crawled, host, now) + offset, latest)
        return min(crawled + wait, latest)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _again(self, crawled: cython.double, host: cython.int, now: cython.double) -> cython.double:
        """When to look again at `_page`, which is not worth a crawl at this level: the old and nearly worth it first."""
        above: cython.double = RATIO_MAX
        if self._page.ceiling > 0.0:
            above = min(self._level * self._host_rows[host].boost / self._page.ceiling, RATIO_MAX)
        return max(crawled + 2.0 * self._revisit * above, now + 0.25 * self._revisit)

    @cython.cfunc
    @cython.exceptval(check=False)
    def _due(
        self, page: cython.int, host: cython.int, n: cython.double, elapsed: cython.double, now: cython.double
    ) -> cython.double:
        """When `_page` is due, as its neighbourhood stands now; optimistic."""
        crawled: cython.double = self._crawled[page]
        wait: cython.double = self._wait(page, host, n)
        due: cython.double = crawled + wait
        if wait == INFINITY:
            due = self._again(crawled, host, now)
        elif self._clocked:
            excess: cython.double = self._learning.excess(host, self._page_heaps.nodes[page].owner, now)
            due = crawled + elapsed_of(wait, excess, self._scale)
            if excess < 0.0:  # a quiet neighbourhood may wake, which no offset would show
                due = min(due, now + QUIET_SHARE * self._scale)
        return min(due, crawled + self._max_age(page))

    # -- where pages, directories and hosts stand

    @cython.cfunc
    def _schedule(self, page: cython.int, now: cython.double) -> cython.void:
        """Give a page that is in no heap its place."""
        host: cython.int = self._owner(page)
        crawled: cython.double = self._crawled[page]
        state: cython.uint = self._states[page]
        if state & (FAILED | AWAY):
            times: cython.int = state // DOUBLING
            self._withhold(
                page, crawled + (self._retry_age if state & FAILED else self._gone_age) * (1 << times >> 1)
            )
            return
        if now - crawled < self._min_age(page):
            self._withhold(page, crawled + self._min_age(page))
            return
        self._assign(page, host)
        n: cython.double = self._signals_of(host, self._rows[page].signals)
        self._enter(page, self._key(page, host, n, self._offset(page, host, now), now), now)

    @cython.cfunc
    def _withhold(self, page: cython.int, until: cython.double) -> cython.void:
        self._states[page] |= WITHHELD
        self._withheld = self._page_heaps.insert(self._withheld, page, until)

    @cython.cfunc
    def _enter(self, page: cython.int, key: cython.double, now: cython.double) -> cython.void:
        """Put a page into its directory's heap."""
        directory: cython.int = self._page_heaps.nodes[page].owner
        root: cython.int = self._directory_rows[directory].root
        self._directory_rows[directory].root = self._page_heaps.insert(root, page, key)
        if self._directory_rows[directory].root == page:
            self._place_directory(directory, now)

    @cython.cfunc
    def _leave(self, page: cython.int, now: cython.double) -> cython.void:
        """Take a page out of the heap it is in."""
        directory: cython.int = self._page_heaps.nodes[page].owner
        root: cython.int
        if self._states[page] & WITHHELD:
            self._withheld = self._page_heaps.remove(self._withheld, page)
            self._states[page] &= ~WITHHELD & 0xFF
            return
        root = self._directory_rows[directory].root
        self._directory_rows[directory].root = self._page_heaps.remove(root, page)
        if root == page:
            self._place_directory(directory, now)

    @cython.cfunc
    def _move(self, page: cython.int, key: cython.double, now: cython.double) -> cython.void:
        """Give a page of its directory's heap a new key."""
        directory: cython.int = self._page_heaps.nodes[page].owner
        root: cython.int = self._directory_rows[directory].root
        first: cython.int = self._page_heaps.move(root, page, key)
        self._directory_rows[directory].root = first
        if root == page or first == page:
            self._place_directory(directory, now)

    @cython.cfunc
    def _place_directory(self, directory: cython.int, now: cython.double) -> cython.void:
        """Bring a directory's key up to date, and its host's."""
        host: cython.int = self._directory_heaps.nodes[directory].owner
        first: cython.int = self._directory_rows[directory].root
        root: cython.int = self._host_rows[host].root
        held: cython.bint = self._directory_heaps.holds(directory)
        if first < 0:
            if held:
                root = self._directory_heaps.remove(root, directory)
        else:
            key: cython.double = self._page_heaps.nodes[first].key - self._directory_offset(directory, now)
            if held:
                root = self._directory_heaps.move(root, directory, key)
            else:
                root = self._directory_heaps.insert(root, directory, key)
        self._host_rows[host].root = root
        self._place_host(host, now)

    @cython.cfunc
    def _place_host(self, host: cython.int, now: cython.double) -> cython.void:
        """Put a host where it belongs: among those that may be asked, those that wait, or neither."""
        root: cython.int = self._host_rows[host].root
        place: cython.int = NOWHERE
        key: cython.double = 0.0
        if root >= 0 and not self._host_rows[host].busy:
            if self._host_rows[host].ready > now:
                place = WAITING
                key = self._host_rows[host].ready
            else:
                place = ELIGIBLE
                key = self._directory_heaps.nodes[root].key - self._host_offset(host, now)
                boost: cython.double = self._host_rows[host].boost
                if boost > 1.0:  # its first page is worth so much more than the level: it goes first
                    ready: cython.double = self._host_rows[host].ready
                    key = min(key, ready) - 0.5 * self._revisit * (boost - 1.0)
        was: cython.int = self._host_rows[host].place
        if was == place:
            if place == ELIGIBLE:
                self._eligible = self._host_heaps.move(self._eligible, host, key)
            elif place == WAITING:
                self._waiting = self._host_heaps.move(self._waiting, host, key)
            return
        if was == ELIGIBLE:
            self._eligible = self._host_heaps.remove(self._eligible, host)
        elif was == WAITING:
            self._waiting = self._host_heaps.remove(self._waiting, host)
        if place == ELIGIBLE:
            self._eligible = self._host_heaps.insert(self._eligible, host, key)
        elif place == WAITING:
            self._waiting = self._host_heaps.insert(self._waiting, host, key)
        self._host_rows[host].place = place

    @cython.cfunc
    def _release(self, now: cython.double) -> cython.void:
        """Let hosts and pages go whose wait is over."""
        _step: cython.Py_ssize_t
        page: cython.int
        for _step in range(RELEASES_MAX):
            if self._waiting < 0 or self._host_heaps.nodes[self._waiting].key > now:
                break
            self._place_host(self._waiting, now)
        for _step in range(RELEASES_MAX):
            page = self._withheld
            if page < 0 or self._page_heaps.nodes[page].key > now:
                break
            self._leave(page, now)
            if self._states[page] & (FAILED | AWAY):
                self._enter(page, now + self._offset(page, self._owner(page), now), now)
            else:
                self._schedule(page, now)

    @cython.cfunc
    @cython.exceptval(-2, check=True)
    def _first(self, now: cython.double) -> cython.int:
        """The first page of the first host, after keys at the top were made anew."""
        _step: cython.Py_ssize_t
        host: cython.int
        page: cython.int
        for _step in range(CHECKS_MAX):
            host = self._eligible
            if host < 0:
                return -1
            if self._host_rows[host].ready > now:  # the clock was set back
                self._place_host(host, now)
                continue
            page = self._stand(host, now)
            if page >= 0 and self._eligible == host:
                return page
        return self._top_of(self._eligible) if self._eligible >= 0 else -1

    @cython.cfunc
    @cython.exceptval(check=False)
    def _top_of(self, host: cython.int) -> cython.int:
        """The first page of a host as keys stand; -1 if it has none."""
        root: cython.int = self._host_rows[host].root
        return self._directory_rows[root].root if root >= 0 else -1

    @cython.cfunc
    @cython.exceptval(-2, check=True)
    def _stand(self, host: cython.int, now: cython.double) -> cython.int:
        """The first page of a host if its keys are right; else -1, with one key made anew."""
        self.checks += 1
        directory: cython.int = self._host_rows[host].root
        if self._clocked:
            self._place_directory(directory, now)
            if self._host_rows[host].root != directory:
                return -1
        page: cython.int = self._directory_rows[directory].root
        crawled: cython.double = self._crawled[page]
        elapsed: cython.double = max(now - crawled, 0.0)
        if self._states[page] & (EXPLORED | FAILED | AWAY):
            return page
        if elapsed >= self._max_age(page):
            return page
        self._assign(page, host)
        n: cython.double = self._signals_of(host, self._rows[page].signals)
        self._stood, self._stood_at = page, now
        self._stood_worth = self._ratio(page, host, elapsed, n, now)
        if self._stood_worth >= STANDS:
            return page
        offset: cython.double = self._offset(page, host, now)
        deadline: cython.double = self._page_heaps.nodes[page].key - offset
        due: cython.double = self._due(page, host, n, elapsed, now)
        if due <= deadline + 1e-3 * (deadline - crawled):
            return page
        self._move(page, due + offset, now)
        return -1

    @cython.cfunc
    def _sweep(self, rows: cython.Py_ssize_t, now: cython.double) -> cython.void:
        """Make keys anew, row by row, after the level has moved far from that of most keys."""
        _step: cython.Py_ssize_t
        if self._swept >= self._pages.rows:
            if self._swept_level <= 0.0:
                self._swept_level = self._level
            if self._level < SWEEP_FROM * self._swept_level or self._swept_level < SWEEP_FROM * self._level:
                self._swept = 0
                self._swept_level = self._level
            return
        for _step in range(min(rows, self._pages.rows - self._swept)):
            self._reschedule(cython.cast(cython.int, self._swept), now)
            self._swept += 1

    @cython.cfunc
    def _turn_hand(self, now: cython.double) -> cython.void:
        """Make the page longest unvisited due: the oldest of the next HAND_ROWS."""
        _step: cython.Py_ssize_t
        page: cython.int
        oldest: cython.int = -1
        host: cython.int
        rows: cython.Py_ssize_t = self._pages.rows
        for _step in range(min(HAND_ROWS, rows)):
            self._hand = self._hand + 1 if self._hand + 1 < rows else 0
            page = cython.cast(cython.int, self._hand)
            if self._states[page] & LOW_BITS:
                continue
            if oldest >= 0 and self._crawled[page] >= self._crawled[oldest]:
                continue
            if now - self._crawled[page] < self._min_age(page):
                continue
            if not self._host_rows[self._owner(page)].exploring:
                oldest = page
        if oldest < 0:
            self._credit = min(self._credit, 1.0)
            return
        self._credit -= 1.0
        self.explored += 1
        host = self._owner(oldest)
        self._host_rows[host].exploring = 1
        self._states[oldest] |= EXPLORED
        key: cython.double = now - self._revisit + self._offset(oldest, host, now)
        self._move(oldest, min(key, self._page_heaps.nodes[oldest].key), now)

    # -- refusals

    @cython.cfunc
    def _instant(self, now: cython.double) -> cython.void:
        if not isfinite(now):
            raise ValueError(f"instant {now}")

    @cython.cfunc
    def _weight(self, importance: cython.double) -> cython.void:
        if not 0.0 <= importance < INFINITY:
            raise ValueError(f"importance {importance}")

    @cython.cfunc
    def _require(self, page: cython.Py_ssize_t) -> cython.void:
        """Raise unless this is the number of a page."""
        if not 0 <= page < self._pages.rows or self._is_free(cython.cast(cython.int, page)):
            raise RuntimeError(f"page {page} is not in {self!r}")

    @cython.cfunc
    def _is_free(self, page: cython.int) -> cython.bint:
        if not self._states[page] & HELD:
            return False
        held = self._held.get(page)
        return held is None or held[1]

    @cython.cfunc
    def _require_host(self, host: cython.Py_ssize_t) -> cython.void:
        if not 0 <= host < self._hosts.rows:
            raise RuntimeError(f"host {host} is not in {self!r}")

    # -- what is known

    def due_at(self, page: int, now: float) -> float:
        """When the page's value reaches the level of its host, as things stand; infinite if never."""
        self._require(page)
        self._instant(now)
        host: cython.int = self._owner(page)
        if self._states[page] & WITHHELD:
            return self._page_heaps.nodes[page].key
        self._assign(page, host)
        n = self._signals_of(host, self._rows[page].signals)
        if self._wait(page, host, n) == INFINITY:
            return self._crawled[page] + self._max_age(page)
        return self._due(page, host, n, max(now - self._crawled[page], 0.0), now)

    def page(self, page: int, now: float) -> PageView:
        """All that is known of a page."""
        due = self.due_at(page, now)
        host: cython.int = self._owner(page)
        elapsed = max(now - self._crawled[page], 0.0)
        self._assign(page, host)
        level = self._level * self._host_rows[host].boost
        n = self._signals_of(host, self._rows[page].signals)
        self._unpack(self._rows[page].signals)
        directory = self._page_heaps.nodes[page].owner
        importance = self._importance(page)
        return PageView(
            fingerprint=int(self._pages.keys[page]),
            host=host,
            directory=directory,
            crawled_at=self._crawled[page],
            importance=importance,
            changes=self._rows[page].changes,
            watched=self._rows[page].watched,
            signals=(self._rows[page].signals,)
            if self._plain
            else tuple(int(count) for count in self._counts),
            rate=importance / self._page.ceiling if self._page.ceiling > 0.0 else 0.0,
            clock=self._learning.clock(host, directory, elapsed, now) if self._clocked else elapsed,
            value=self._ratio(page, host, elapsed, n, now) * level,
            ceiling=self._page.ceiling,
            level=level,
            deadline=due,
            state=_word(self._states[page]),
        )

    def host_view(self, host: int) -> HostView:
        """All that is known of a host."""
        self._require_host(host)
        deadline = (
            self._directory_heaps.nodes[self._host_rows[host].root].key
            if self._host_rows[host].root >= 0
            else INFINITY
        )
        return HostView(
            key=int(self._hosts.keys[host]),
            pages=self._host_rows[host].pages,
            ready=self._host_rows[host].ready,
            busy=bool(self._host_rows[host].busy),
            level=self._level * self._host_rows[host].boost,
            boost=self._host_rows[host].boost,
            deadline=deadline,
        )

    # -- what a store keeps

    def page_state(self, page: int) -> tuple[int, int, int, float, float, float, int, float, int]:
        """Fingerprint, keys of host and directory, last crawl, k, T, signals, importance, state."""
        self._require(page)
        directory: cython.int = self._page_heaps.nodes[page].owner
        signals: cython.uint = self._rows[page].signals
        if page in self._held:
            signals = self._sum(self._held[page][0], signals)
        state: cython.uint = self._states[page] if self._states[page] & (AWAY | FAILED) else 0
        return (
            int(self._pages.keys[page]),
            int(self._hosts.keys[self._owner(page)]),
            int(self._directories.keys[directory]),
            self._crawled[page],
            self._rows[page].changes,
            self._rows[page].watched,
            signals,
            self._importance(page),
            state & (AWAY | FAILED | 7 * DOUBLING),
        )

    def site_state(self, host: int) -> tuple[int, list[float]]:
        """The host's key; its neighbourhood counts (3), sums of its signals' quality (18), boost."""
        self._require_host(host)
        sites = self._learning.sites
        counts = [sites.observed_counts[host], sites.expected_counts[host], sites.instants[host]]
        sums = self._learning.quality.sums_of(host).tolist()
        return int(self._hosts.keys[host]), [*counts, *sums, self._host_rows[host].boost]

    def directory_state(self, page: int) -> tuple[int, tuple[float, float, float]]:
        """Key and neighbourhood counts of the page's directory."""
        self._require(page)
        number: cython.int = self._page_heaps.nodes[page].owner
        groups = self._learning.directories
        counts = (groups.observed_counts[number], groups.expected_counts[number], groups.instants[number])
        return int(self._directories.keys[number]), counts

    def restore_site(self, host_key: int, numbers: np.ndarray) -> None:
        """Put back what `site_state` gave."""
        _finite(numbers)
        host: cython.int = self._host(host_key)
        self._learning.sites.restore(host, *numbers[:3])
        self._learning.quality.restore(host, numbers[3:21])
        self._host_rows[host].boost = min(max(numbers[21], 1.0), RATIO_MAX)

    def restore_directory(
        self, directory_key: int, host_key: int, observed: float, expected: float, at: float
    ) -> None:
        """Put back what `directory_state` gave, before any page of the directory."""
        _finite(np.array([observed, expected, at]))
        directory: cython.int = self._directories.find(directory_key)
        if directory < 0:
            directory = self._new_directory(directory_key, self._host(host_key))
        self._learning.directories.restore(directory, observed, expected, at)

    @property
    def bytes_held(self) -> int:
        """Bytes of all tables."""
        pages, directories, hosts = self._pages.rows, self._directories.rows, self._hosts.rows
        a_page = 24 + PAGE_KIND.itemsize + 9 + (OWN_KIND.itemsize if self._owned else 0)
        a_page += 2 * self._weighted + self._bounded + 4 * (self._policy == BY_INTERVAL)
        total = pages * a_page + directories * (24 + 24 + DIRECTORY_KIND.itemsize)
        total += hosts * (24 + HOST_KIND.itemsize)
        return total + sum(table.bytes_held() for table in (self._pages, self._directories, self._hosts))

    def _check(self) -> None:
        """Assert all invariants."""
        pages, directories = set(self._pages._check()), set(self._directories._check())
        hosts = set(self._hosts._check())
        flying = {page for page, (_, removed) in self._held.items() if not removed}
        withheld = set(self._page_heaps._check(self._withheld))
        standing: set[int] = set()
        for directory in directories:
            found = self._page_heaps._check(self._directory_rows[directory].root)
            assert all(self._page_heaps.nodes[page].owner == directory for page in found)
            assert not standing & set(found)
            standing |= set(found)
            first = self._directory_rows[directory].root
            assert self._directory_heaps.holds(directory) == (first >= 0), directory
        assert standing | withheld | flying == pages
        assert len(standing) + len(withheld) + len(flying) == len(pages)
        for page in pages:
            state = self._states[page]
            assert bool(state & WITHHELD) == (page in withheld), page
            assert bool(state & HELD) == (page in flying), page
            assert self._page_heaps.holds(page) == (page not in flying), page
        for host in hosts:
            found = self._directory_heaps._check(self._host_rows[host].root)
            assert all(self._directory_heaps.nodes[directory].owner == host for directory in found)
            busy = sum(1 for page in self._held if self._owner(page) == host)
            assert busy == self._host_rows[host].busy <= 1
            explored = [p for p in standing if self._owner(p) == host and self._states[p] & EXPLORED]
            assert len(explored) == self._host_rows[host].exploring, host
            assert self._host_rows[host].boost >= 1.0 and self._host_rows[host].pages == sum(
                1 for p in pages if self._owner(p) == host
            ) + sum(1 for p, (_, removed) in self._held.items() if removed and self._owner(p) == host)
        eligible, waiting = self._host_heaps._check(self._eligible), self._host_heaps._check(self._waiting)
        assert all(self._host_rows[host].place == ELIGIBLE for host in eligible)
        assert all(self._host_rows[host].place == WAITING for host in waiting)
        for host in hosts:
            placed = host in eligible or host in waiting
            assert placed == (self._host_rows[host].root >= 0 and not self._host_rows[host].busy), host
            assert placed == (self._host_rows[host].place != NOWHERE)
        assert self.waiting_signals == sum(len(keys) for keys, _ in self._backlog)
        assert 0.0 <= self._level < INFINITY
        self._learning._check()

    def __repr__(self) -> str:
        return (
            f"Schedule({self._pages.size} pages, {self._hosts.size} hosts, {len(self._held)} in flight, "
            f"level {self._level:.4g})"
        )


@cython.cfunc
@cython.exceptval(check=False)
def _importance_of(code: cython.uint) -> cython.double:
    """The importance a 16-bit code stands for: 0, or a power of 2^(1/512); within .07 %."""
    return exp((cython.cast(cython.double, code) - 32768.0) * (0.6931471805599453 / 512.0)) if code else 0.0


@cython.cfunc
@cython.exceptval(check=False)
def _code_of(importance: cython.double) -> cython.uint:
    if importance <= 0.0:
        return 0
    code: cython.double = log(importance) * (512.0 / 0.6931471805599453) + 32768.5
    return cython.cast(cython.uint, min(max(code, 1.0), 65535.0))


def _finite(numbers: np.ndarray) -> None:
    if not np.isfinite(numbers).all() or (numbers[:2] < 0.0).any():
        raise ValueError("counts must be finite and not negative")


def _word(state: int) -> str:
    """The state of a page in words."""
    for bit, word in ((HELD, "in flight"), (AWAY, "away"), (FAILED, "failed"), (WITHHELD, "too young")):
        if state & bit:
            return word
    return "explored" if state & EXPLORED else "waits"
