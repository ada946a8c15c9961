# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False, initializedcheck=False
"""Computes deadlines.

A page is due when its value, computed from its clock, reaches the *level*, that is, the value of the page
that is only just worth a fetch. For a given level, a page has one deadline: the instant at which its value
reaches the level. The deadline does not change until the page's next crawl or signal.

    base deadline   last crawl + V^-1(level of its host)
    key             base deadline; for a due page with signals: by how far its value exceeds the level
    offset          how far the neighbourhood clock is ahead of plain time

On a site with a weekly rhythm, V^-1 is a time on the clock of its rhythm (`is_paced`).

The base deadline does not take into account that a page's clock runs faster while its neighbours change. The
offsets in `offsets.py` add the effect of the neighbours. A page that was crawled lately has only a part of the
offset (`first_pages.py`).

*Signals.* A signal makes a deadline earlier, because it adds its signal time to the age of the page. Pages
that are due because of signals are ordered by the excess of their values over the level. The excess of a
value over the level is expressed as a duration: the delay after which a page without signals would have the
same excess.

Source: Busa-Fekete et al., Algorithm 1 and section 5.2.
"""

import cython
import numpy as np
from cython.cimports.crawler.freshness.discovery import hub_value, hub_wait
from cython.cimports.crawler.freshness.learning import Learning
from cython.cimports.crawler.freshness.neighbourhood import elapsed_of
from cython.cimports.crawler.freshness.value_kernel import Parameters
from cython.cimports.crawler.frontier.refresh.level_controller import (
    IDLE_SHARE,
    RATIO_MAX,
    STANDS,
    LevelController,
)
from cython.cimports.crawler.frontier.refresh.offsets import Offsets
from cython.cimports.crawler.frontier.refresh.tables import AWAY, EXPLORED, FAILED, HELD, Tables
from cython.cimports.libc.math import sqrt

from crawler.change_signals import COUNTER_BITS, SOURCES
from crawler.freshness.columns import rows_of
from crawler.freshness.value_kernel import ALL_TERMS
from crawler.frontier.refresh.settings import Settings

_INFINITY = cython.declare(cython.double, float("inf"))
# allowed relative error of V^-1, the inverse of the crawl value
_TOLERANCE = cython.declare(cython.double, 1e-3)
# time between two checks of a page in a quiet neighbourhood, in units of Ts
_QUIET_SHARE = cython.declare(cython.double, 0.25)
_SOURCES = cython.declare(cython.Py_ssize_t, SOURCES)
_BITS = cython.declare(cython.Py_ssize_t, COUNTER_BITS)  # number of bits of the counter of each source
# time between two checks of a page whose ceiling is just below the level, in mean revisit intervals
_AGAIN_SHARE = cython.declare(cython.double, 0.25)
_SIGNAL_MAX = cython.declare(cython.uint, (1 << COUNTER_BITS) - 1)  # maximum count per source
_SIGNALS_MAX = cython.declare(cython.uint, 0xFFFFFFFF)  # maximum count if all sources share a counter
# weight of the latest fetch in the mean share of hubs
_SHARE_STEP = cython.declare(cython.double, 1.0 / 32.0)
# While hubs get more than their share of the fetches, the worth of all hubs is multiplied by this factor at
# each fetch.
_RESTRAIN = cython.declare(cython.double, 0.9)
_RESTRAINT_LEAST = cython.declare(cython.double, 1e-9)
# size of the sample of pages for which the first level is computed
_SAMPLE = cython.declare(cython.Py_ssize_t, 64)
# Number of bisections in the search for the first level. The ratio between the bounds of the search is 1e36 at
# first, and differs from 1 by less than 1e-9 at the end.
_SAMPLE_STEPS = cython.declare(cython.int, 40)
_ALL_TERMS = cython.declare(cython.Py_ssize_t, ALL_TERMS)

# Policies.
BY_VALUE = 0  # ncis, greedy, cis
BY_AZAR = 1
BY_AGE = 2
BY_INTERVAL = 3
_POLICY = {"azar-lds": 1, "uniform": 2, "interval": 3}
_KINDS = {"ncis": 3, "greedy": 0, "cis": 1}


class Deadlines:
    """Computes values and deadlines of pages under a policy. `page` holds the parameters that `assign` set last."""

    def __init__(
        self, tables: Tables, controller: LevelController, learning: Learning, settings: Settings
    ) -> None:
        self.tables, self.controller, self.learning = tables, controller, learning
        self.policy = _POLICY.get(settings.policy, 0)
        self.plain = not settings.pooling
        self.clocked = settings.neighbourhood and self.policy == BY_VALUE
        self.offsets = Offsets(tables, learning, self.clocked)
        self._kind = _KINDS.get(settings.policy, 0)
        self._new_page_weight = settings.new_page_weight if self.policy == BY_VALUE else 0.0
        self._discovery_share_max = settings.discovery_share_max
        self.page = Parameters()
        self.counts = rows_of(np.zeros(SOURCES))
        self.stood, self.stood_at, self.stood_worth = -1, 0.0, 0.0

    def assign(self, page: cython.int, host: cython.int, now: cython.double) -> cython.void:
        """Load the parameters of this page into `page`, as they are at `now`.

        If the page may be restless, its value also rises because the probability of this falls. The deadline ignores
        this, so such a page is due a little later than its value reaches the level. A page that is not worth a fetch
        is checked again (`_again`).
        """
        if self.tables.owned and self.tables.own[page].change_rate >= 0.0:
            self.page.assign(
                self._kind, _ALL_TERMS, self.tables.own[page].importance, self.tables.own[page].change_rate,
                self.tables.own[page].silent_rate, self.tables.own[page].signal_rate, self.tables.own[page].false_rate,
                self.tables.own[page].signal_weight,
            )  # fmt: skip
        else:
            changes: cython.double = self.tables.rows[page].changes
            watched: cython.double = self.tables.rows[page].watched
            if self.policy == BY_VALUE and not self.plain:
                trust: cython.double = self.tables.trust(page)
                seen: cython.double = self.learning.quality.interim_watched(host, trust)
                if seen > 0.0:  # until the next crawl, announced changes count as changes of the page
                    self.unpack(self.tables.rows[page].signals)
                    told: cython.double = self.learning.quality.interim_changes(host, self.counts, trust)
                    changes += told if changes >= 0.0 else -told
                    watched += seen * max(self.controller.previous - self.tables.crawled[page], 0.0)
            self.learning.assign(
                self.page, host, changes, watched, self.tables.importance(page), self.tables.trust(page),
                self.learning.restless.chance(
                    self.tables.rows[page].changes, self.tables.unrest(page), max(now - self.tables.crawled[page], 0.0)
                ),
            )  # fmt: skip

    def unpack(self, signals: cython.uint) -> cython.void:
        """Unpack the signals by source into `counts`."""
        source: cython.Py_ssize_t
        if self.plain:
            self.counts[0] = signals
            return
        for source in range(_SOURCES):
            self.counts[source] = signals >> _BITS * source & _SIGNAL_MAX

    def signals_of(self, host: cython.int, signals: cython.uint) -> cython.double:
        """Return the effective number of signals that the value of `page` depends on."""
        if signals == 0:
            return 0.0
        if self.plain:
            return signals
        self.unpack(signals)
        return self.learning.signals(host, self.counts)

    def summed(self, one: cython.uint, other: cython.uint) -> cython.uint:
        """Return the combined signals of two time spans."""
        total: cython.uint = 0
        source: cython.Py_ssize_t
        shift: cython.Py_ssize_t
        if self.plain:
            return one + min(other, _SIGNALS_MAX - one)
        for source in range(_SOURCES):
            shift = _BITS * source
            total |= min((one >> shift & _SIGNAL_MAX) + (other >> shift & _SIGNAL_MAX), _SIGNAL_MAX) << shift
        return total

    def ratio(
        self, page: cython.int, host: cython.int, elapsed: cython.double, n: cython.double, now: cython.double
    ) -> cython.double:
        """Return the value of `page` divided by its host's level."""
        level: cython.double = self.controller.level * self.tables.host_rows[host].boost
        if self.policy == BY_AGE:
            return elapsed / level
        if self.policy == BY_INTERVAL:
            return elapsed / self.tables.intervals[page]
        if self.policy == BY_AZAR:
            return self._azar_value(elapsed) / level
        clock: cython.double = elapsed
        if self.is_paced(page, host):
            clock = self.learning.seasons.value_span(host, now - elapsed, now)
        elif self.clocked:
            clock = self.learning.clock(host, self.tables.page_heaps.nodes[page].owner, elapsed, now)
        return (self.page.value(clock, n) + hub_value(self.pace(page, host, now), elapsed)) / level

    def pace(self, page: cython.int, host: cython.int, now: cython.double) -> cython.double:
        """Return nu theta, the importance of the new pages that a page shows per unit of time; 0 if it is not a hub.

        The importance of a new page is `new_page_weight` times the mean importance of the host's pages, times
        a factor of at most 1. This factor keeps the host's hubs within their share of the fetches
        (`note_take`).
        """
        row: cython.int = self.tables.hubs.row_of(page)
        if row < 0 or self._new_page_weight <= 0.0:
            return 0.0
        theta: cython.double = self.learning.discovery.theta(
            host, self.tables.page_heaps.nodes[page].owner, self.tables.hubs.rows[row].found,
            self.tables.hubs.rows[row].watched, now - self.tables.crawled[page], now,
            self.tables.hubs.rows[row].links,
        )  # fmt: skip
        nu: cython.double = self._new_page_weight * self.tables.host_rows[host].weight
        nu /= max(self.tables.host_rows[host].pages, 1)
        return nu * theta * self.tables.host_rows[host].restraint

    def note_take(self, page: cython.int, host: cython.int, now: cython.double) -> cython.void:
        """Record that a page is taken, and keep the share of hubs in the host's refreshes within its bound.

        Endless new pages, such as those of a calendar, would otherwise take all fetches. While the share of
        hubs exceeds the bound, each page taken lowers the worth of new pages on the host; below the bound,
        each page taken raises it again.
        """
        row_share: cython.double = self.tables.host_rows[host].discovery_share
        if row_share == 0.0 and self.tables.hubs.row_of(page) < 0:
            return
        row_share += _SHARE_STEP * (self.hub_part(page, host, now) - row_share)
        restraint: cython.double = self.tables.host_rows[host].restraint
        restraint *= _RESTRAIN if row_share > self._discovery_share_max else 1.0 / _RESTRAIN
        self.tables.host_rows[host].discovery_share = row_share
        self.tables.host_rows[host].restraint = min(max(restraint, _RESTRAINT_LEAST), 1.0)

    def hub_part(self, page: cython.int, host: cython.int, now: cython.double) -> cython.double:
        """Return the part (0 to 1) of a page's value that is due to the new pages that it would show."""
        pace: cython.double = self.pace(page, host, now)
        if pace <= 0.0:
            return 0.0
        elapsed: cython.double = max(now - self.tables.crawled[page], 0.0)
        shown: cython.double = hub_value(pace, elapsed)
        level: cython.double = self.controller.level * self.tables.host_rows[host].boost
        return min(shown / max(self.worth(page, host, now) * level, shown), 1.0) if shown > 0.0 else 0.0

    def worth(self, page: cython.int, host: cython.int, now: cython.double) -> cython.double:
        """Return the page's value divided by its host's level."""
        if page == self.stood and now == self.stood_at:
            return self.stood_worth
        self.assign(page, host, now)
        n: cython.double = self.signals_of(host, self.tables.rows[page].signals)
        return self.ratio(page, host, max(now - self.tables.crawled[page], 0.0), n, now)

    def _azar_value(self, elapsed: cython.double) -> cython.double:
        """Return dF/drho of F = mu rho/(rho + Delta) at rho = 1/elapsed (Azar et al., problem 2)."""
        ceiling: cython.double = self.page.ceiling
        if elapsed <= 0.0 or ceiling <= 0.0:
            return 0.0
        importance: cython.double = self.page.importance
        change_rate: cython.double = importance / ceiling
        share: cython.double = 1.0 / elapsed + change_rate
        return importance * change_rate / (share * share)

    def wait(self, page: cython.int, host: cython.int, n: cython.double, now: cython.double) -> cython.double:
        """Return the time on the page's clock from its last crawl until its value reaches the level."""
        level: cython.double = self.controller.level * self.tables.host_rows[host].boost
        if self.policy == BY_AGE:
            return level
        if self.policy == BY_INTERVAL:
            return self.tables.intervals[page]
        if self.policy == BY_AZAR:
            return self._azar_wait(level)
        pace: cython.double = self.pace(page, host, now)
        if pace > 0.0:
            return hub_wait(self.page, level, n, pace, 0.0, self.controller.scale, _TOLERANCE)
        return self.page.wait(level, n, 0.0, _TOLERANCE)

    def _azar_wait(self, level: cython.double) -> cython.double:
        """Return 1/rho with rho = sqrt(mu Delta / level) - Delta; infinite if rho is not positive."""
        ceiling: cython.double = self.page.ceiling
        if ceiling <= level:
            return _INFINITY
        importance: cython.double = self.page.importance
        change_rate: cython.double = importance / ceiling
        return 1.0 / (sqrt(importance * change_rate / level) - change_rate)

    def key(self, page: cython.int, host: cython.int, n: cython.double, now: cython.double) -> cython.double:
        """Return the key of a page whose parameters `assign` has just loaded."""
        offset: cython.double
        crawled: cython.double = self.tables.crawled[page]
        latest: cython.double = crawled + self.tables.max_age(page)
        if n > 0.0 or self.tables.hubs.row_of(page) >= 0:
            ratio: cython.double = self.ratio(page, host, max(now - crawled, 0.0), n, now)
            if ratio >= 1.0:
                return min(self.due_by_worth(ratio, now) + self.offsets.of_page(page, host, now), latest)
        wait: cython.double = self.wait(page, host, n, now)
        # The page is not worth a crawl at this level; it is checked again later, because the level may fall.
        if wait == _INFINITY:
            return min(self.parked_key(page, host, self._again(host, now), now), latest)
        if self.clocked and self.tables.hubs.row_of(page) < 0:
            return min(self._reach(page, host, wait, 0.0, now), latest)
        # A hub is crawled for the new pages that it shows. The number of new pages does not depend on the
        # neighbourhood clock, so the offset must not delay the hub.
        offset = self.offsets.of_page(page, host, now)
        if offset < 0.0:
            return min(self.due(page, host, n, max(now - crawled, 0.0), now) + offset, latest)
        return min(crawled + wait, latest)

    def key_at(self, page: cython.int, host: cython.int, now: cython.double) -> cython.double:
        """Load the parameters of a page, and return its key."""
        self.assign(page, host, now)
        n: cython.double = self.signals_of(host, self.tables.rows[page].signals)
        return self.key(page, host, n, now)

    def parked_key(
        self, page: cython.int, host: cython.int, due: cython.double, now: cython.double
    ) -> cython.double:
        """Return the key of a page that was checked at `now` and is expected to be due at `due`."""
        offset: cython.double = self.offsets.of_page(page, host, now)
        if due > now and (offset > 0.0 or self.tables.hubs.row_of(page) < 0):
            offset = self.offsets.of_page(page, host, due)
        return due + offset

    def due_by_worth(self, worth: cython.double, now: cython.double) -> cython.double:
        """Return a deadline that orders late pages by value. The page is worth `worth` times the level.

        Near the level, a value grows as the square of the age. So if a page is late by x times its interval,
        it is worth about 1 + 2 x times the level. The result is computed with the mean interval of all pages
        instead of the page's own, so that pages are ordered by value.
        """
        return now - 0.5 * self.controller.revisit * max(min(worth, RATIO_MAX) - 1.0, 0.0)

    def early_by_worth(self, page: cython.int, host: cython.int, now: cython.double) -> cython.double:
        """Return a key that orders a hub by its value even before the hub is due; -inf for any other page.

        As in `due_by_worth`, a hub's value is assumed to grow as the square of its age, and the mean interval
        of all pages is used.
        """
        if self.tables.hubs.row_of(page) < 0 or self.tables.states[page] & (EXPLORED | FAILED | AWAY):
            return -_INFINITY
        worth: cython.double = self.worth(page, host, now)
        if worth >= STANDS or now - self.tables.crawled[page] >= self.tables.max_age(page):
            return -_INFINITY
        return self.parked_key(page, host, now + self.controller.revisit * (1.0 - sqrt(worth)), now)

    def _again(self, host: cython.int, now: cython.double) -> cython.double:
        """Return when to check `page` again.

        The page is not worth a crawl now, but the level or the learned rates may fall. The check is sooner if
        the page's ceiling is near the level.
        """
        above: cython.double = RATIO_MAX
        if self.page.ceiling > 0.0:
            above = min(
                self.controller.level * self.tables.host_rows[host].boost / self.page.ceiling, RATIO_MAX
            )
        return now + _AGAIN_SHARE * self.controller.revisit * sqrt(above)

    def due(
        self, page: cython.int, host: cython.int, n: cython.double, elapsed: cython.double, now: cython.double
    ) -> cython.double:
        """Return an optimistic estimate of when `page` is due, given the present state of its neighbourhood."""
        crawled: cython.double = self.tables.crawled[page]
        pace: cython.double = self.pace(page, host, now)
        excess: cython.double = 0.0
        if self.clocked:
            excess = self.learning.excess(host, self.tables.page_heaps.nodes[page].owner, now)
        wait: cython.double
        due: cython.double
        if pace > 0.0:
            level: cython.double = self.controller.level * self.tables.host_rows[host].boost
            return min(
                crawled + hub_wait(self.page, level, n, pace, excess, self.controller.scale, _TOLERANCE),
                crawled + self.tables.max_age(page),
            )
        wait = self.wait(page, host, n, now)
        due = crawled + wait
        if wait == _INFINITY:
            due = self._again(host, now)
        elif self.clocked:
            due = self._reach(page, host, wait, excess, now)
            # If a quiet neighbourhood becomes active, the page should be due earlier than computed here. A
            # bounded offset cannot make the page due earlier, because it is never negative. So check the page
            # again soon.
            if excess < 0.0 and self.offsets.is_bounded(page, host):
                due = min(due, now + _QUIET_SHARE * self.controller.scale)
        return min(due, crawled + self.tables.max_age(page))

    def _reach(
        self,
        page: cython.int,
        host: cython.int,
        wait: cython.double,
        excess: cython.double,
        now: cython.double,
    ) -> cython.double:
        """Return when the clock of `page` reaches `wait`. `excess` is the present excess of its neighbourhood.

        An excess below 0 rises towards 0 until then, so the page is due earlier than at the present excess.
        """
        crawled: cython.double = self.tables.crawled[page]
        if self.is_paced(page, host):
            return self.learning.seasons.value_end(host, crawled, wait)
        scale: cython.double = self.controller.scale
        late: cython.double = crawled + elapsed_of(wait, excess, scale)
        if excess >= 0.0 or late <= now:
            return late
        directory: cython.int = self.tables.page_heaps.nodes[page].owner
        early: cython.double = crawled + elapsed_of(wait, self.learning.excess(host, directory, late), scale)
        early = max(early, now)
        again: cython.double = crawled + elapsed_of(wait, self.learning.excess(host, directory, early), scale)
        # one step of the secant method between both ends
        share: cython.double = (late - early) + (again - early)
        if share <= 0.0:
            return late
        return max(late - (late - early) * (late - early) / share, now)

    def is_paced(self, page: cython.int, host: cython.int) -> cython.bint:
        """Return whether the value of a page follows the weekly rhythm of its site.

        It does not on a host that is rarely idle: by day, more of its pages would be due than may be requested. The
        values of hubs do not follow the rhythm either, because they depend on new pages.
        """
        return (
            self.clocked
            and self.learning.seasons.used[host]
            and self.tables.host_rows[host].idle > IDLE_SHARE
            and self.tables.hubs.row_of(page) < 0
        )

    def find_level(self, page: cython.int) -> cython.void:
        """Set a provisional level, half the page's ceiling, if there is no level yet. `sample_level` replaces it."""
        if self.controller.level > 0.0:
            return
        self.assign(page, self.tables.owner(page), self.tables.crawled[page])
        high: cython.double = self.page.ceiling
        if self.policy == BY_AGE:
            self.controller.level = self.controller.revisit
        elif self.policy == BY_INTERVAL or not 0.0 < high < _INFINITY:
            self.controller.level = 1.0
        else:
            self.controller.level = 0.5 * high

    def sample_level(self, now: cython.double) -> cython.void:
        """Set the level at which a sample of pages needs exactly its share of the rate.

        The sample has at most _SAMPLE pages. Their signals are ignored.
        """
        low: cython.double = 1e-18 * self.controller.level
        high: cython.double = 1e18 * self.controller.level
        _step: cython.Py_ssize_t
        k: cython.Py_ssize_t
        page: cython.int
        rows: cython.Py_ssize_t = self.tables.pages.rows
        size: cython.Py_ssize_t = min(_SAMPLE, rows)
        wanted: cython.double = self.controller.fetch_rate() * size / max(self.tables.pages.size, 1)
        for _step in range(_SAMPLE_STEPS):
            self.controller.level = sqrt(low * high)
            total: cython.double = 0.0
            for k in range(size):
                page = cython.cast(cython.int, k * (rows // size))
                if not self.tables.states[page] & HELD:
                    self.assign(page, self.tables.owner(page), now)
                    total += 1.0 / self.wait(page, self.tables.owner(page), 0.0, now)
            if total > wanted:
                low = self.controller.level
            else:
                high = self.controller.level
