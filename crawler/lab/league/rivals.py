"""The rules of other crawlers, and two reference policies, as policies of the league.

`lab/league/README.md`, "Players" lists the policies and the sources of their rules. After each fetch, a rule
decides when the page is due again. If no page is due, the page that will be due next is fetched, so all policies
spend the same budget. Only `believe` reads signals.
"""

import heapq
import math
from collections.abc import Callable

import numpy as np

from crawler.freshness.params import Pages
from crawler.lab.league.world import DAY, Policy, World
from crawler.lab.refresh.crawl_value import crawl_values
from crawler.lab.refresh.policies import deterministic_optimum

MINUTE = 60.0
NEVER = float("inf")


class DueFirst(Policy):
    """Takes the page with the earliest due time, even if this time has not come yet.

    A rule decides when a page is due again. If the game blocks sites, each site has its own queue.
    """

    def __init__(self, world: World, rate: float) -> None:
        super().__init__(world, rate)
        self._queues: list[list[tuple[float, int]]] = [
            [] for _ in range(len(world.sites) if self._apart else 1)
        ]
        self._key = [NEVER] * len(world)  # page -> its key in the queue; an entry with another key is stale
        self._taken = NEVER  # the queue key of the page taken last

    def due(self, page: int, now: float, changed: bool | None) -> float:
        """Return the time at which a page is due again after a fetch at `now`.

        After the first fetch of the page, `changed` is None.
        """
        raise NotImplementedError

    def add(self, page: int, now: float) -> None:
        self._put(page, self.due(page, now, None))

    def record_outcome(self, page: int, now: float, changed: bool) -> None:
        self._put(page, self.due(page, now, changed))

    def claim_next(self, now: float) -> int:
        ready = [
            queue[0]
            for site, queue in enumerate(self._queues)
            if self._clean(queue) and (not self._apart or self._until[site] <= now)
        ]
        if not ready:
            return -1
        self._taken, page = min(ready)
        self.drop(page)
        return page

    def drop(self, page: int) -> None:
        """Remove the page from its queue. A later call may put it back."""
        self._key[page] = NEVER

    def _put(self, page: int, key: float) -> None:
        self._key[page] = key
        if key < NEVER:
            heapq.heappush(self._queues[self._site[page] if self._apart else 0], (key, page))

    def _clean(self, queue: list[tuple[float, int]]) -> bool:
        """Drop stale entries from the top of the queue. Return whether the queue still has a page."""
        while queue and self._key[queue[0][1]] != queue[0][0]:
            heapq.heappop(queue)
        return bool(queue)


class RoundRobin(DueFirst):
    """Takes the page whose last fetch is the longest ago."""

    def due(self, page: int, now: float, changed: bool | None) -> float:
        return now


class Believe(DueFirst):
    """Believes every signal.

    Signalled pages go first, in the order of their last fetches; then the others follow by round robin.
    """

    SIGNALLED = 1e12  # seconds subtracted from the keys of signalled pages, so that they come first

    def __init__(self, world: World, rate: float) -> None:
        super().__init__(world, rate)
        self._last = [NEVER] * len(world)

    def due(self, page: int, now: float, changed: bool | None) -> float:
        self._last[page] = now
        return now

    def note_change(self, page: int, source: str, at: float, now: float) -> None:
        if at > self._last[page] and self._key[page] >= 0.0:
            self._put(page, self._last[page] - self.SIGNALLED)

    def remove(self, page: int, now: float) -> None:
        self._last[page] = NEVER


class Adaptive(DueFirst):
    """Has an interval for each page, which a subclass shortens after a change and lengthens without one."""

    FIRST = DAY  # the first interval of a page

    def __init__(self, world: World, rate: float) -> None:
        super().__init__(world, rate)
        self._interval = [self.FIRST] * len(world)


class Nutch(Adaptive):
    """The schedule of Nutch 1.x: `AdaptiveFetchSchedule.setFetchSchedule` with the defaults of nutch-default.xml.

    If the page is unmodified, the interval is multiplied by 1.4. If it is modified, the interval is
    multiplied by 0.8. Let delta be the time since the last modification that was seen. The interval is at
    least delta, and between a minute and a year. The next fetch is at now - 0.3 delta + interval.
    """

    FIRST, LEAST, MOST = 30 * DAY, MINUTE, 365 * DAY
    INCREASE, DECREASE, SYNC = 0.4, 0.2, 0.3

    def __init__(self, world: World, rate: float) -> None:
        super().__init__(world, rate)
        self._modified = [0.0] * len(world)

    def due(self, page: int, now: float, changed: bool | None) -> float:
        if changed is None:
            self._modified[page] = now
            return now + self._interval[page]
        if changed:
            self._modified[page] = now
        interval = self._interval[page] * (1.0 - self.DECREASE if changed else 1.0 + self.INCREASE)
        delta = now - self._modified[page]
        interval = min(max(interval, delta, self.LEAST), self.MOST)
        self._interval[page] = interval
        return now - self.SYNC * delta + interval


class StormCrawler(Adaptive):
    """The schedule of StormCrawler: `AdaptiveScheduler.schedule` with its default settings.

    After a change, the new interval is the mean of the interval and the minimum. Without a change, the
    interval is multiplied by 1.5, up to two weeks. The first interval is a day, the minimum an hour.
    """

    LEAST, MOST = 60 * MINUTE, 20160 * MINUTE
    INCREASE, DECREASE = 0.5, 0.5

    def due(self, page: int, now: float, changed: bool | None) -> float:
        interval = self._interval[page]
        if changed:
            interval = (1.0 - self.DECREASE) * interval + self.DECREASE * self.LEAST
        elif changed is not None:
            interval = min(interval * (1.0 + self.INCREASE), self.MOST)
        self._interval[page] = interval
        return now + interval


class Heritrix(Adaptive):
    """Heritrix 1.x, `WaitEvaluator`, which divides or multiplies the wait by 1.5.

    The first wait is a day; waits are between an hour and four weeks.
    """

    LEAST, MOST, FACTOR = 3600.0, 28 * DAY, 1.5

    def due(self, page: int, now: float, changed: bool | None) -> float:
        if changed is not None:
            wait = self._interval[page] * (1.0 / self.FACTOR if changed else self.FACTOR)
            self._interval[page] = min(max(wait, self.LEAST), self.MOST)
        return now + self._interval[page]


def estimated_rate(visits: int, unchanged: int, watched: float) -> float:
    """Estimate a change rate as Cho and Garcia-Molina do in *Estimating frequency of change* (TOIT 2003), Eq. 4.

    With n visits, of which X found no change, and the mean time I between two visits, the rate per unit of
    `watched` is -ln((X + 0.5) / (n + 0.5)) / I. The rate is 0 if no visit found a change.
    """
    return -math.log((unchanged + 0.5) / (visits + 0.5)) * visits / watched if watched > 0.0 else 0.0


class Cho(DueFirst):
    """Visits pages at the rates that are optimal for their estimated change rates.

    The estimates and the optimal rates are computed every 30 days. A page is due one interval after its last
    fetch; intervals are at least a day. A page that was fetched only once has no estimate and goes first. A
    page that was never seen to change has rate 0, as in the published estimate. Such pages are fetched when
    no other page is due, the one with the oldest copy first.
    """

    SOLVED_EVERY = 30 * DAY
    UNKNOWN = 1e12  # seconds subtracted from the key of a page without an estimate, so that it comes first

    def __init__(self, world: World, rate: float) -> None:
        super().__init__(world, rate)
        size = len(world)
        self._rate, self._importance = rate, world.importance
        self._visits, self._unchanged, self._watched = [0] * size, [0] * size, [0.0] * size
        self._last = [NEVER] * size
        self._interval = np.full(size, NEVER)
        self._solve_at = 0.0
        self._rest = RoundRobin(world, rate)

    def due(self, page: int, now: float, changed: bool | None) -> float:
        if changed is not None:
            self._visits[page] += 1
            self._unchanged[page] += not changed
            self._watched[page] += now - self._last[page]
        self._last[page] = now
        self._rest.record_outcome(page, now, False)
        if not self._visits[page]:
            return now - self.UNKNOWN
        return now + float(self._interval[page])

    def remove(self, page: int, now: float) -> None:
        self._last[page] = NEVER

    def block(self, site: int, until: float) -> None:
        super().block(site, until)
        self._rest.block(site, until)

    def claim_next(self, now: float) -> int:
        if now >= self._solve_at:
            self._solve_at = now + self.SOLVED_EVERY
            self._solve()
        page = super().claim_next(now)
        if page >= 0 and self._taken <= now:
            self._rest.drop(page)
            return page
        if page >= 0:
            self._put(page, self._taken)
        page = self._rest.claim_next(now)
        if page >= 0:
            self.drop(page)
        return page

    def _solve(self) -> None:
        known = [page for page, at in enumerate(self._last) if at < NEVER and self._visits[page]]
        rates = np.array(
            [estimated_rate(self._visits[k], self._unchanged[k], self._watched[k]) for k in known]
        )
        moving = np.flatnonzero(rates > 0.0)
        if not len(moving):
            return
        chosen = np.array(known)[moving]
        self._interval[known] = NEVER
        with np.errstate(divide="ignore"):
            best = deterministic_optimum(self._importance[chosen], rates[moving], self._rate).rates
            self._interval[chosen] = np.maximum(1.0 / best, DAY)
        for page in known:
            self._put(page, self._last[page] + float(self._interval[page]))


class Ranked(Policy):
    """Takes pages in the order of their values, which are computed once a day."""

    def __init__(self, world: World, rate: float) -> None:
        super().__init__(world, rate)
        self.present = np.zeros(len(world), dtype=bool)
        self.last = np.zeros(len(world))
        self._day = -1.0
        self._order: list[int] = []

    def values(self, now: float) -> np.ndarray:
        """Return the value of each page (n,); pages with a value of 0 are not fetched."""
        raise NotImplementedError

    def add(self, page: int, now: float) -> None:
        self.present[page] = True
        self.last[page] = now

    def record_outcome(self, page: int, now: float, changed: bool) -> None:
        self.last[page] = now

    def remove(self, page: int, now: float) -> None:
        self.present[page] = False

    def claim_next(self, now: float) -> int:
        if now >= self._day + DAY:
            self._day = now // DAY * DAY
            self._rank(now)
        for place in reversed(range(len(self._order))):
            if self._free(self._order[place], now):
                return self._order.pop(place)
        return -1

    def _rank(self, now: float) -> None:
        values = np.where(self.present, self.values(now), 0.0)
        order = np.argsort(values, kind="stable")
        self._order = order[values[order] > 0.0].tolist()


class Exploring(Ranked):
    """Spends the share `EXPLORE` of its fetches on the page with the oldest copy."""

    EXPLORE = 0.05  # the default of the schedule

    def __init__(self, world: World, rate: float) -> None:
        super().__init__(world, rate)
        self._where, self._explore = world.site, 0.0

    def claim_next(self, now: float) -> int:
        self._explore += self.EXPLORE
        if self._explore < 1.0:
            return super().claim_next(now)
        self._explore -= 1.0
        free = self.present & (np.array(self._until) <= now)[self._where]
        page = int(np.where(free, self.last, np.inf).argmin())
        return page if free[page] else -1


class Oracle(Ranked):
    """GREEDY with the true rate of each page: the number of its changes divided by the time it existed."""

    def __init__(self, world: World, rate: float) -> None:
        super().__init__(world, rate)
        span = np.minimum(world.died, world.horizon) - world.born
        counts = np.array([len(times) for times in world.changes])
        self._pages = Pages(world.importance, counts / np.maximum(span, DAY))

    def values(self, now: float) -> np.ndarray:
        return crawl_values(self._pages, np.maximum(now - self.last, 0.0), by="greedy")


class Clairvoyant(Policy):
    """Takes the stale page whose new copy will be current for the longest time, weighted by importance.

    If no page is stale, it takes none.
    """

    def __init__(self, world: World, rate: float) -> None:
        super().__init__(world, rate)
        self._world = world
        self._stale = np.zeros(len(world), dtype=bool)
        self._ends = np.minimum(world.died, world.horizon)
        self._next = np.array(
            [min([end, *times[:1]]) for end, times in zip(self._ends, world.changes, strict=True)]
        )
        self._seen = [0] * len(world)
        self._coming = sorted((at, page) for page, times in enumerate(world.changes) for at in times)
        self._happened = 0

    def record_outcome(self, page: int, now: float, changed: bool) -> None:
        self._stale[page] = False

    def claim_next(self, now: float) -> int:
        while self._happened < len(self._coming) and self._coming[self._happened][0] <= now:
            self._change(self._coming[self._happened][1])
            self._happened += 1
        gain = np.where(self._stale, self._world.importance * (self._next - now), 0.0)
        if self._apart:
            gain *= (np.array(self._until) <= now)[self._world.site]
        page = int(gain.argmax())
        return page if gain[page] > 0.0 else -1

    def _change(self, page: int) -> None:
        self._stale[page] = True
        self._seen[page] += 1
        times, seen = self._world.changes[page], self._seen[page]
        self._next[page] = times[seen] if seen < len(times) else self._ends[page]


RIVALS: dict[str, Callable[[World, float], Policy]] = {
    "round-robin": RoundRobin,
    "believe": Believe,
    "nutch": Nutch,
    "stormcrawler": StormCrawler,
    "heritrix": Heritrix,
    "cho": Cho,
    "oracle": Oracle,
    "clairvoyant": Clairvoyant,
}
