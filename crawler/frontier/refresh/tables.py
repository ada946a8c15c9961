# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False, initializedcheck=False
"""The tables of the schedule, which have one row per page, directory and host.

A row of a page names its owner, a directory; a row of a directory names its owner, a host.

    pages        fingerprint, last crawl, k, T, signals since, trust in signals, evidence that the page is
                 restless, state; owner: a directory
    directories  key, number of pages; owner: a host
    hosts        key, ready time, level relative to the common one

Pages, directories and hosts are identified by row numbers. Columns that few crawls need (importance, age bounds,
a page's own parameters, intervals) are created when first needed. Tables grow in place
(`freshness/columns.py`). The links of the heaps are tables too; `queues.py` describes the heaps.
The tables need 62 bytes of memory per page, 1 more if pages have signals, and 1 more if their first crawls found them
changed. They need 95 per directory and 173 per host.
"""

from typing import Any

import cython
import numpy as np
from cython.cimports.crawler.freshness.learning import Learning
from cython.cimports.crawler.frontier.refresh.heaps import Heaps
from cython.cimports.crawler.frontier.refresh.hubs import Hubs
from cython.cimports.crawler.frontier.refresh.numbering import Numbering
from cython.cimports.libc.math import exp, floor, log, sqrt

from crawler.freshness.columns import Column, rows_of
from crawler.freshness.params import PageParameters

_INFINITY = cython.declare(cython.double, float("inf"))
_TRUST_UNIT = cython.declare(cython.double, 1.0 / 16.0)
_UNREST_UNIT = cython.declare(cython.double, 1.0 / 16.0)
_UNIT = cython.declare(cython.uint, 32768)  # the number that stands for the importance 1
AGES_MAX = 256

# The state of a page is a sum of these flags. The upper bits of a page that failed or is away count its waits.
EXPLORED = 1  # exploration made the page due
AWAY = 2  # gone, moved or denied (`absences.py`)
FAILED = 4
RECALLED = AWAY | FAILED  # away, but perhaps back: due now
HELD = 8  # in flight; also set for a free row
WITHHELD = 16  # must not be fetched yet
DOUBLING = 32
# The following flags are never set for a page that failed or is away.
JUMPED = 32  # made due by a signal
NEW = 64  # appeared while the crawl was watching its site, and was never fetched again
UNSTEADY = 128  # the page was away until its last fetch
LOW_BITS = 31

# The heap that holds a host.
NOWHERE = 0  # the host is in no heap, because it is busy or has nothing to fetch
ELIGIBLE = 1
WAITING = 2

F8, F4, U2, U1, I1 = (np.dtype(name) for name in ("f8", "f4", "u2", "u1", "i1"))
PAGE_KIND = np.dtype([("changes", "f4"), ("watched", "f4"), ("signals", "u4")])
DIRECTORY_KIND = np.dtype([("root", "i4"), ("pages", "i4"), ("bounded", "i4")])
HOST_KIND = np.dtype(
    [
        ("ready", "f8"), ("previous", "f8"), ("boost", "f8"), ("idle", "f8"), ("weight", "f8"), ("probed", "f8"),
        ("absent_since", "f8"),
        ("discovery_share", "f8"), ("restraint", "f8"), ("shift", "f8"), ("mark", "f8"), ("marked_at", "f8"),
        ("slope", "f4"), ("slope_precision", "f4"), ("root", "i4"),
        ("pages", "i4"), ("run", "i4"), ("busy", "u1"), ("place", "u1"), ("exploring", "u1"), ("bounded", "u1"),
        ("credit", "u1"), ("away_rung", "u1"), ("failed_rung", "u1"), ("absences", "u1"),
    ],
    align=True,
)  # fmt: skip
OWN_KIND = np.dtype([(name, "f8") for name in (
    "importance", "change_rate", "silent_rate", "signal_rate", "false_rate", "signal_weight")])  # fmt: skip


def _empty(kind: np.dtype) -> Any:
    return np.zeros(0, kind).view(np.recarray) if kind.names else np.zeros(0, kind)


@cython.cclass
class Tables:
    """The rows of pages, directories and hosts.

    Args:
        learning: the estimators. They number directories as these tables do, and a site has the number of its
            host.
        min_age, max_age: the age bounds of all pages without bounds of their own.
        first_interval: the first interval under the policy `interval`; 0 under all other policies.
        seed: the seed of the random paths in the heaps; they affect no decision.

    `touched` is the set of pages that signals or recalls have changed, or None if these pages are not recorded.
    """

    def __init__(
        self, learning: Learning, min_age: float, max_age: float, first_interval: float, seed: int
    ) -> None:
        self.learning = learning
        self._columns = {
            "rows": Column(PAGE_KIND), "crawled": Column(F8), "states": Column(U1), "trusts": Column(I1),
            "unrests": Column(I1),
            "importances": Column(U2), "bounds": Column(U1), "own": Column(OWN_KIND), "intervals": Column(F4),
            "directories": Column(DIRECTORY_KIND), "hosts": Column(HOST_KIND),
        }  # fmt: skip
        self.rows, self.crawled, self.states = _empty(PAGE_KIND), _empty(F8), _empty(U1)
        self.trusts, self.importances, self.bounds = _empty(I1), _empty(U2), _empty(U1)
        self.unrests = _empty(I1)
        self.directory_rows, self.host_rows = _empty(DIRECTORY_KIND), _empty(HOST_KIND)
        self.own, self.intervals = _empty(OWN_KIND), _empty(F4)
        self.pages, self.directories, self.hosts = Numbering(), Numbering(), Numbering()
        self.page_heaps, self.directory_heaps = Heaps(seed), Heaps(seed + 1)
        self.host_heaps, self.wake_heaps = Heaps(seed + 2), Heaps(seed + 3)
        self.hubs = Hubs()
        self.owned = self.weighted = self.bounded = False
        self.roots = 0.0  # sum of the square roots of all pages' importances
        self.first_interval = first_interval
        self.touched: Any = None
        self._ages = [(min_age, max_age)]
        self._min_ages = rows_of(np.zeros(AGES_MAX))
        self._max_ages = rows_of(np.full(AGES_MAX, _INFINITY))
        self._min_ages[0], self._max_ages[0] = min_age, max_age

    def new_page(
        self, fingerprint: cython.ulonglong, host_key: cython.ulonglong, directory_key: cython.ulonglong
    ) -> cython.int:
        """Return the number of a new page; raise RuntimeError if its directory belongs to another host."""
        host: cython.int = self.host(host_key)
        directory: cython.int = self.directories.find(directory_key)
        if directory < 0:
            directory = self.new_directory(directory_key, host)
        elif self.directory_heaps.nodes[directory].owner != host:
            raise RuntimeError(f"directory {directory_key:016x} belongs to another host")
        page: cython.int = self.pages.insert(fingerprint)
        if page >= len(self.rows):
            self.grow()
            self.page_heaps.grow(len(self.rows))
        self.page_heaps.clear(page, directory)
        self.rows[page].changes = self.rows[page].watched = 0.0
        self.rows[page].signals = 0
        self.states[page] = 0
        self.set_trust(page, 0.0)
        self.set_unrest(page, 0.0)
        self.roots += 1.0
        if self.weighted:
            self.importances[page] = _UNIT
        if self.bounded:
            self.bounds[page] = 0
        if self.owned:
            self.own[page].change_rate = -1.0
        if self.first_interval > 0.0:
            self.intervals[page] = self.first_interval
        self.directory_rows[directory].pages += 1
        self.host_rows[host].pages += 1
        self.host_rows[host].weight += 1.0
        return page

    def new_directory(self, key: cython.ulonglong, host: cython.int) -> cython.int:
        directory: cython.int = self.directories.insert(key)
        if directory >= len(self.directory_rows):
            self.directory_rows = _empty(DIRECTORY_KIND)
            self.directory_rows = self._columns["directories"].grow(self.directories.rows)
            self.directory_heaps.grow(len(self.directory_rows))
            self.wake_heaps.grow(len(self.directory_rows))
        self.directory_rows[directory].root = -1
        self.directory_rows[directory].bounded = self._ages[0][1] < _INFINITY
        self.directory_rows[directory].pages = 0
        self.directory_heaps.clear(directory, host)
        self.wake_heaps.clear(directory, host)
        self.learning.add_directory()
        return directory

    def host(self, key: cython.ulonglong) -> cython.int:
        """Return the number of the host; add the host if it is new."""
        host: cython.int = self.hosts.find(key)
        if host >= 0:
            return host
        host = self.hosts.insert(key)
        if host >= len(self.host_rows):
            self.host_rows = _empty(HOST_KIND)
            self.host_rows = self._columns["hosts"].grow(self.hosts.rows)
            self.host_heaps.grow(len(self.host_rows))
        self.host_rows[host].ready = self.host_rows[host].previous = self.host_rows[host].probed = -_INFINITY
        self.host_rows[host].credit = self.host_rows[host].away_rung = self.host_rows[host].failed_rung = 0
        self.host_rows[host].boost = self.host_rows[host].idle = 1.0
        self.host_rows[host].absent_since = 0.0
        self.host_rows[host].absences = 0
        self.host_rows[host].weight = self.host_rows[host].discovery_share = 0.0
        self.host_rows[host].restraint = 1.0
        self.host_rows[host].slope = self.host_rows[host].slope_precision = 0.0
        self.host_rows[host].shift = self.host_rows[host].mark = self.host_rows[host].marked_at = 0.0
        self.host_rows[host].root = -1
        self.host_rows[host].bounded = self._ages[0][1] < _INFINITY
        self.host_heaps.clear(host, 0)
        self.learning.add_site()
        return host

    def grow(self) -> cython.void:
        """Lengthen the columns of pages, including the optional columns that have been created."""
        rows = self.pages.rows
        columns = self._columns
        self.rows, self.crawled, self.states = _empty(PAGE_KIND), _empty(F8), _empty(U1)
        self.trusts = _empty(I1)
        self.trusts = columns["trusts"].grow(rows)
        self.unrests = _empty(I1)
        self.unrests = columns["unrests"].grow(rows)
        self.rows, self.crawled = columns["rows"].grow(rows), columns["crawled"].grow(rows)
        self.states = columns["states"].grow(rows)
        if self.weighted:
            self.importances = _empty(U2)
            self.importances = columns["importances"].grow(rows)
        if self.bounded:
            self.bounds = _empty(U1)
            self.bounds = columns["bounds"].grow(rows)
        if self.owned:
            self.own = _empty(OWN_KIND)
            self.own = columns["own"].grow(rows)
        if self.first_interval > 0.0:
            self.intervals = _empty(F4)
            self.intervals = columns["intervals"].grow(rows)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def owner(self, page: cython.int) -> cython.int:
        """Return the host of a page."""
        return self.directory_heaps.nodes[self.page_heaps.nodes[page].owner].owner

    def first_of(self, host: cython.int) -> cython.int:
        """Return the first page of a host by the present keys; -1 if it has none."""
        root: cython.int = self.host_rows[host].root
        return self.directory_rows[root].root if root >= 0 else -1

    def insert(self, page: cython.int, key: cython.double) -> cython.void:
        """Insert a page that is in no heap into the heap of its directory."""
        directory: cython.int = self.page_heaps.nodes[page].owner
        root: cython.int = self.directory_rows[directory].root
        self.directory_rows[directory].root = self.page_heaps.insert(root, page, key)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def importance(self, page: cython.int) -> cython.double:
        if self.owned and self.own[page].change_rate >= 0.0:
            return self.own[page].importance
        return _importance_of(self.importances[page]) if self.weighted else 1.0

    def touch(self, page: cython.int) -> cython.void:
        """Record that a signal or a recall has changed a page."""
        if self.touched is not None:
            self.touched.add(page)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def trust(self, page: cython.int) -> cython.double:
        """Return the evidence, in nats, that the page's signals are as good as those of its site."""
        return self.trusts[page] * _TRUST_UNIT

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def set_trust(self, page: cython.int, trust: cython.double) -> cython.void:
        """Set the evidence that `trust` returns. An unchanged value is not written to memory."""
        code: cython.int = cython.cast(cython.int, floor(trust / _TRUST_UNIT + 0.5))
        if self.trusts[page] != code:
            self.trusts[page] = code

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def unrest(self, page: cython.int) -> cython.double:
        """Return the evidence, in nats, that a page is restless; for a page with k above 0, that its rate has turned."""
        return self.unrests[page] * _UNREST_UNIT

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def set_unrest(self, page: cython.int, unrest: cython.double) -> cython.void:
        """Set the evidence that `unrest` returns. An unchanged value is not written to memory."""
        code: cython.int = cython.cast(
            cython.int, min(max(floor(unrest / _UNREST_UNIT + 0.5), -127.0), 127.0)
        )
        if self.unrests[page] != code:
            self.unrests[page] = code

    def set_importance(self, page: cython.int, importance: cython.double) -> cython.void:
        row: cython.Py_ssize_t
        if importance == 1.0 and not self.weighted:
            return
        if not self.weighted:
            self.weighted = True
            self.grow()
            for row in range(self.pages.rows):
                self.importances[row] = _UNIT
        host: cython.int = self.owner(page)
        before: cython.double = _importance_of(self.importances[page])
        self.importances[page] = _code_of(importance)
        after: cython.double = _importance_of(self.importances[page])
        self.roots += sqrt(after) - sqrt(before)
        self.host_rows[host].weight += after - before

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def min_age(self, page: cython.int) -> cython.double:
        return self._min_ages[self.bounds[page] if self.bounded else 0]

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def max_age(self, page: cython.int) -> cython.double:
        return self._max_ages[self.bounds[page] if self.bounded else 0]

    def free(self, page: cython.int) -> cython.void:
        """Free the row of a page that is in no heap and has no fingerprint."""
        directory: cython.int = self.page_heaps.nodes[page].owner
        host: cython.int = self.directory_heaps.nodes[directory].owner
        if self.states[page] & EXPLORED:
            self.host_rows[host].exploring = 0
        self.states[page] = HELD  # because of this state, all operations ignore the free row
        weight: cython.double = _importance_of(self.importances[page]) if self.weighted else 1.0
        self.roots -= sqrt(weight)
        self.host_rows[host].weight -= weight
        self.hubs.forget(page)
        self.directory_rows[directory].pages -= 1
        self.host_rows[host].pages -= 1
        self.learning.rates.forget(host, self.rows[page].changes, self.rows[page].watched)
        self.pages.recycle(page)

    def set_own(self, page: cython.int, parameters: PageParameters) -> cython.void:
        """Set a page's own parameters."""
        row: cython.Py_ssize_t
        p = parameters
        if not self.owned:
            self.owned = True
            self.grow()
            for row in range(self.pages.rows):
                self.own[row].change_rate = -1.0
        self.own[page].importance, self.own[page].change_rate = p.importance, p.change_rate
        self.own[page].silent_rate, self.own[page].signal_rate = p.silent_rate, p.signal_rate
        self.own[page].false_rate, self.own[page].signal_weight = p.false_rate, p.signal_weight
        self.set_importance(page, p.importance)

    def bound_ages(self, page: int, min_age: float, max_age: float) -> None:
        """Set a page's own age bounds; raise ValueError if there would be more than 255 different pairs."""
        pair = (min_age, max_age)
        if pair not in self._ages:
            if len(self._ages) == AGES_MAX:
                raise ValueError(f"more than {AGES_MAX - 1} different age bounds")
            self._min_ages[len(self._ages)], self._max_ages[len(self._ages)] = pair
            self._ages.append(pair)
        if not self.bounded:
            self.bounded = True
            self.grow()
        self.bounds[page] = self._ages.index(pair)
        if max_age < _INFINITY:
            directory: cython.int = self.page_heaps.nodes[page].owner
            self.directory_rows[directory].bounded = 1
            self.host_rows[self.directory_heaps.nodes[directory].owner].bounded = 1

    def bytes_held(self) -> int:
        """The size of all rows, links and keys in bytes."""
        pages, directories, hosts = self.pages.rows, self.directories.rows, self.hosts.rows
        a_page = 24 + PAGE_KIND.itemsize + 10 + (OWN_KIND.itemsize if self.owned else 0)
        a_page += 2 * self.weighted + self.bounded + 4 * (self.first_interval > 0.0)
        total: int = pages * a_page + directories * (24 + 24 + 24 + DIRECTORY_KIND.itemsize)
        total += hosts * (24 + HOST_KIND.itemsize)
        total += self.hubs.bytes_held(pages)
        return total + sum(table.bytes_held() for table in (self.pages, self.directories, self.hosts))


@cython.cfunc
@cython.exceptval(check=False)
def _importance_of(code: cython.uint) -> cython.double:
    """Return the importance that a 16-bit code stands for: 0, or a power of 2^(1/512), exact to 0.07 %."""
    return exp((cython.cast(cython.double, code) - 32768.0) * (0.6931471805599453 / 512.0)) if code else 0.0


@cython.cfunc
@cython.exceptval(check=False)
def _code_of(importance: cython.double) -> cython.uint:
    if importance <= 0.0:
        return 0
    code: cython.double = log(importance) * (512.0 / 0.6931471805599453) + 32768.5
    return cython.cast(cython.uint, min(max(code, 1.0), 65535.0))
