"""Simulated webs for refresh policies on a virtual clock: their parameters, and a list of webs.

    WorldSpec --draw(seed)--> DrawnWorld --playing.play(policy)--> WorldRun

A host has directories of pages. Each page has a change rate, which is log-normal about the mean of its host.
The pages of a world change by one of these processes:

    poisson    independently, at the page's rate
    bursty     in bursts of 5 changes on average, spread over a quarter of the mean gap
    together   half of the changes with the page's directory: at an event of the directory
               each of its pages changes with probability 1/2; all pages of a directory have one rate
    seasonal   only in working hours: 9 to 17, five days of seven

All pages are equally important (`equal`), or their importance is 1/(rank + 10) with random ranks (`zipf`), or
it has a Pareto distribution of the shape 1.5 and is at least 1 (`pareto`). Signals arrive at once. The
quality of signals is the same for all pages, or differs within a host:

    honest     recall 0.95, one false signal in 20
    noisy      recall 0.6, two false signals per change
    uneven     half of the pages of every host are honest; the others signal none of their changes
               and send three false signals per change

A share of the pages may be `restless`: they differ at every visit, as pages with a counter or a clock do.

`visits` is the budget of a world, in fetches per change. At the start, every page is fetched once, in random
order; then the policy decides. Freshness is measured from `warm_up` on. Times are in seconds.
"""

import math

import msgspec
import numpy as np

from crawler.lab.league.world import DAY, ZIPF_OFFSET, WorldPages
from crawler.lab.living.course import STATIONARY, Course

HOUR = 3600.0
MONTH, YEAR = 30 * DAY, 365 * DAY
WEEK = 7 * DAY
WORK_BEGIN, WORK_END, WORK_DAYS = 9 * HOUR, 17 * HOUR, 5
# The mean number of changes per burst, and the length of a burst as a share of the mean gap between changes.
BURST, BURST_SPAN = 5.0, 0.25
# `SHARED` is the share of the changes that occur as events of a directory. In an event, each page of the
# directory changes with the probability `JOINS`.
SHARED, JOINS = 0.5, 0.5
PARETO_SHAPE = 1.5
DIRECTORY_PAGES = 10
PROCESSES = ("poisson", "bursty", "together", "seasonal")
IMPORTANCES = ("equal", "zipf", "pareto")
# Maps a kind of signals to two pairs (recall, false signals per change): for pages with even and with odd
# numbers.
SIGNALS: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {
    "none": ((0.0, 0.0), (0.0, 0.0)),
    "honest": ((0.95, 0.05), (0.95, 0.05)),
    "noisy": ((0.6, 2.0), (0.6, 2.0)),
    "uneven": ((0.95, 0.0), (0.0, 3.0)),
}
CHANGES_MAX = 20_000_000


class HostKind(msgspec.Struct, frozen=True):
    """A kind of host.

    `every` is the mean time between two changes of a page, and `spread` the sigma of the log of the rates.
    """

    pages: int
    every: float
    process: str = "poisson"
    spread: float = 1.0

    @property
    def directories(self) -> int:
        return max(1, self.pages // DIRECTORY_PAGES)


class WorldSpec(msgspec.Struct, frozen=True):
    """The parameters of a world.

    visits: fetches per change.
    rounds: mean fetches per page over the whole time.
    polite: the request rate of a host is at most 1.5 times its equal share of the whole rate.
    latency: the number of further fetches that start before the answer to a fetch arrives; until then, the
        host is busy.
    rest: the time after an answer in which the host must not be fetched, in units of the time between two
        fetches. With a rest, the policy also looks for the next page after every event, as a crawl does.
    warm_up: the share of the time that is not measured.
    restless: the share of the pages that differ at every visit.
    regime: the change of regime at half time (`regimes.py`); "" if there is none.
    """

    name: str
    hosts: tuple[HostKind, ...]
    visits: float = 1.0
    importance: str = "pareto"
    signals: str = "none"
    rounds: float = 40.0
    polite: bool = False
    latency: int = 0
    rest: float = 0.0
    warm_up: float = 0.2
    restless: float = 0.0
    regime: str = ""

    def __post_init__(self) -> None:
        known = {host.process for host in self.hosts} <= set(PROCESSES)
        if not known or self.importance not in IMPORTANCES or self.signals not in SIGNALS:
            raise ValueError(f"{self.name}: unknown process, importance or kind of signals")
        if not self.hosts or not 0.0 < self.visits < math.inf or not 2.0 <= self.rounds < math.inf:
            raise ValueError(f"{self.name}: hosts are needed, visits above 0 and rounds of at least 2")
        if not 0.0 <= self.restless <= 1.0:
            raise ValueError(f"{self.name}: restless must be within 0 .. 1")
        if not 0.0 <= self.warm_up < 1.0 or self.latency < 0 or not 0.0 <= self.rest <= 1.0:
            raise ValueError(f"{self.name}: warm_up and rest must be within 0 .. 1, latency at least 0")

    @property
    def pages(self) -> int:
        return sum(host.pages for host in self.hosts)

    @property
    def change_rate(self) -> float:
        """The number of changes per second of all pages together."""
        return sum(host.pages / host.every for host in self.hosts)

    @property
    def rate(self) -> float:
        """The number of fetches per second."""
        return self.visits * self.change_rate

    @property
    def fetches(self) -> int:
        return math.ceil(self.rounds * self.pages)


class DrawnWorld(WorldPages, frozen=True, kw_only=True):
    """A world of n pages that was drawn at random.

    `told_at[j]` is the instant of a signal about page `told_of[j]`. `order` is the order of the first fetches.
    """

    spec: WorldSpec
    seed: int
    rates: np.ndarray
    recall: np.ndarray
    false_rate: np.ndarray
    told_at: np.ndarray
    told_of: np.ndarray
    order: np.ndarray
    course: Course = STATIONARY

    @property
    def blocks(self) -> bool:
        return self.polite or bool(self.course.spells)

    @property
    def horizon(self) -> float:
        return self.spec.fetches / self.spec.rate

    def __repr__(self) -> str:
        return f"DrawnWorld({self.spec.name}, seed {self.seed}: {len(self.sites)} hosts, {len(self)} pages)"


# -- drawing


def draw(spec: WorldSpec, seed: int) -> DrawnWorld:
    """Draw the world of a seed. Equal arguments yield equal worlds."""
    horizon = spec.fetches / spec.rate
    if not spec.change_rate * horizon < CHANGES_MAX:
        raise ValueError(f"{spec.name}: more than {CHANGES_MAX:,} changes; use fewer rounds or more visits")
    rng = np.random.default_rng(seed)
    rates, at, of, directories = [], [], [], []
    first = folders = 0
    for host in spec.hosts:
        own = np.arange(host.pages) * host.directories // host.pages
        rate = _rates(rng, host, own)
        times, pages = _CHANGES[host.process](rng, rate, own, horizon)
        rates.append(rate)
        at.append(times)
        of.append(pages + first)
        directories.append(own + folders)
        first, folders = first + host.pages, folders + host.directories
    rate, times, pages = np.concatenate(rates), np.concatenate(at), np.concatenate(of)
    if spec.restless:
        times, pages = _with_restless(rng, spec, rate, times, pages)
    order = np.lexsort((times, pages))
    times, pages = times[order], pages[order]
    recall, false_rate = _quality(spec, rate)
    told_at, told_of = _told(rng, times, pages, recall, false_rate, horizon)
    edges = np.searchsorted(pages, np.arange(first + 1)).tolist()
    return DrawnWorld(
        spec=spec,
        seed=seed,
        polite=spec.polite,
        sites=tuple(f"h{number}" for number in range(len(spec.hosts))),
        site=np.repeat(np.arange(len(spec.hosts)), [host.pages for host in spec.hosts]),
        directory=np.concatenate(directories),
        importance=_importance(rng, spec.importance, first),
        rates=rate,
        recall=recall,
        false_rate=false_rate,
        changes=[times[a:b].tolist() for a, b in zip(edges[:-1], edges[1:], strict=True)],
        told_at=told_at,
        told_of=told_of,
        order=rng.permutation(first),
        sources=("sitemap",) * len(spec.hosts),
    )


def _rates(rng: np.random.Generator, host: HostKind, directory: np.ndarray) -> np.ndarray:
    """Return each page's changes per second (n,).

    Their mean is the change rate of the host. With `together`, all pages of a directory have the same rate.
    """
    drawn = rng.lognormal(0.0, host.spread, host.pages)
    if host.process == "together":
        drawn = drawn[np.searchsorted(directory, directory)]
    return drawn / (drawn.mean() * host.every)


def _with_restless(
    rng: np.random.Generator, spec: WorldSpec, rate: np.ndarray, at: np.ndarray, of: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the changes of all pages if some pages are restless. Set the rates of these pages.

    A restless page changes between any two fetches of the crawl.
    """
    restless = rng.random(len(rate)) < spec.restless
    rows, times = np.flatnonzero(restless), np.arange(spec.fetches) / spec.rate
    rate[rows] = spec.rate
    kept = ~restless[of]
    return np.append(at[kept], np.tile(times, len(rows))), np.append(of[kept], np.repeat(rows, len(times)))


def _importance(rng: np.random.Generator, kind: str, size: int) -> np.ndarray:
    if kind == "zipf":
        return 1.0 / (rng.permutation(size) + ZIPF_OFFSET)
    return rng.pareto(PARETO_SHAPE, size) + 1.0 if kind == "pareto" else np.ones(size)


def _poisson(
    rng: np.random.Generator, rate: np.ndarray, _directory: np.ndarray, horizon: float
) -> tuple[np.ndarray, np.ndarray]:
    """Draw events of Poisson processes with these rates. Return the instant and row of each event, ordered by row."""
    counts = rng.poisson(rate * horizon)
    return rng.random(counts.sum()) * horizon, np.repeat(np.arange(len(rate)), counts)


def _bursty(
    rng: np.random.Generator, rate: np.ndarray, directory: np.ndarray, horizon: float
) -> tuple[np.ndarray, np.ndarray]:
    begins, pages = _poisson(rng, rate / BURST, directory, horizon)
    more = rng.geometric(1.0 / BURST, len(begins)) - 1
    later = np.repeat(begins, more) + rng.random(more.sum()) * BURST_SPAN / np.repeat(rate[pages], more)
    at, of = np.append(begins, later), np.append(pages, np.repeat(pages, more))
    return at[at < horizon], of[at < horizon]


def _together(
    rng: np.random.Generator, rate: np.ndarray, directory: np.ndarray, horizon: float
) -> tuple[np.ndarray, np.ndarray]:
    own_at, own_of = _poisson(rng, rate * (1.0 - SHARED), directory, horizon)
    firsts = np.flatnonzero(np.diff(directory, prepend=-1))
    sizes = np.diff(np.append(firsts, len(directory)))
    at, folder = _poisson(rng, rate[firsts] * SHARED / JOINS, directory, horizon)
    members = sizes[folder]
    offset = np.arange(members.sum()) - np.repeat(np.cumsum(members) - members, members)
    joins = rng.random(len(offset)) < JOINS
    shared_of = (np.repeat(firsts[folder], members) + offset)[joins]
    return np.append(own_at, np.repeat(at, members)[joins]), np.append(own_of, shared_of)


def _seasonal(
    rng: np.random.Generator, rate: np.ndarray, directory: np.ndarray, horizon: float
) -> tuple[np.ndarray, np.ndarray]:
    """Draw changes on a clock that runs only in working hours. Map their times to the working hours of real weeks."""
    worked = WORK_DAYS * (WORK_END - WORK_BEGIN)
    at, of = _poisson(rng, rate * WEEK / worked, directory, _worked(horizon))
    week, within = np.divmod(at, worked)
    day, hours = np.divmod(within, WORK_END - WORK_BEGIN)
    return week * WEEK + day * DAY + WORK_BEGIN + hours, of


def _worked(until: float) -> float:
    """Return the working hours, in seconds, from time 0, which is the midnight before a Monday."""
    weeks, rest = divmod(until, WEEK)
    days, hours = divmod(rest, DAY)
    full = weeks * WORK_DAYS + min(days, WORK_DAYS)
    part = min(max(hours - WORK_BEGIN, 0.0), WORK_END - WORK_BEGIN) if days < WORK_DAYS else 0.0
    return full * (WORK_END - WORK_BEGIN) + part


_CHANGES = {"poisson": _poisson, "bursty": _bursty, "together": _together, "seasonal": _seasonal}


def _quality(spec: WorldSpec, rate: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the recall of each page's signals (n,), and the rate of each page's false signals (n,)."""
    recalls, noises = np.array(SIGNALS[spec.signals]).T
    odd = np.arange(len(rate)) % 2
    return recalls[odd], noises[odd] * rate


def _told(
    rng: np.random.Generator,
    at: np.ndarray,
    of: np.ndarray,
    recall: np.ndarray,
    false_rate: np.ndarray,
    horizon: float,
) -> tuple[np.ndarray, np.ndarray]:
    told = rng.random(len(at)) < recall[of]
    false_at, false_of = _poisson(rng, false_rate, of, horizon)
    times, pages = np.append(at[told], false_at), np.append(of[told], false_of)
    order = np.argsort(times, kind="stable")
    return times[order], pages[order]


# -- the list


def _hosts(count: int, pages: int, every: float, process: str = "poisson") -> tuple[HostKind, ...]:
    return (HostKind(pages, every, process),) * count


def _list() -> dict[str, WorldSpec]:
    times = {"hour": HOUR, "day": DAY, "month": MONTH, "year": YEAR}
    # With many visits per change, a game must have many rounds to see enough changes.
    rounds = {0.1: 40.0, 0.3: 40.0, 1.0: 40.0, 3.0: 60.0, 10.0: 100.0, 100.0: 300.0}
    found = [
        WorldSpec("issue", _hosts(4, 100, DAY), visits=1.5, rounds=15.0, warm_up=0.5),
        WorldSpec("issue-busy", _hosts(4, 100, DAY), visits=1.5, rounds=15.0, warm_up=0.5, latency=2),
        WorldSpec("issue-crawl", _hosts(4, 100, DAY), visits=1.5, rounds=15.0, warm_up=0.5, rest=0.3),
        WorldSpec("mixed-crawl", _mixed(), rest=0.3),
    ]
    for word, every in times.items():
        found.append(WorldSpec(f"{word}-crawl", _hosts(4, 100, every), rest=0.3))
        found += [
            WorldSpec(f"{word}-{visits:g}x", _hosts(4, 100, every), visits=visits, rounds=rounds[visits])
            for visits in rounds
        ]
    for word, every in (("day", DAY), ("month", MONTH)):
        found += [
            WorldSpec(f"{word}-bursty", _hosts(4, 100, every, "bursty")),
            WorldSpec(f"{word}-together", _hosts(4, 100, every, "together")),
            WorldSpec(f"{word}-together-3x", _hosts(4, 100, every, "together"), visits=3.0, rounds=60.0),
            WorldSpec(f"{word}-together-0.3x", _hosts(4, 100, every, "together"), visits=0.3),
            WorldSpec(f"{word}-equal", _hosts(4, 100, every), importance="equal"),
            WorldSpec(f"{word}-restless", _hosts(4, 100, every), restless=0.1),
            WorldSpec(f"{word}-equal-restless", _hosts(4, 100, every), importance="equal", restless=0.1),
            WorldSpec(f"{word}-zipf", _hosts(4, 100, every), importance="zipf"),
            WorldSpec(f"{word}-tiny", _hosts(40, 10, every)),
            WorldSpec(f"{word}-large", _hosts(4, 1000, every), rounds=20.0),
            WorldSpec(f"{word}-huge", _hosts(1, 10_000, every), rounds=15.0),
            WorldSpec(f"{word}-polite", _hosts(8, 50, every), polite=True),
            WorldSpec(f"{word}-honest", _hosts(4, 100, every), signals="honest"),
            WorldSpec(f"{word}-noisy", _hosts(4, 100, every), signals="noisy"),
            WorldSpec(f"{word}-uneven", _hosts(4, 100, every), signals="uneven"),
            WorldSpec(f"{word}-uneven-0.3x", _hosts(4, 100, every), signals="uneven", visits=0.3),
        ]
    found += [
        # two weeks, so that the rhythm of a week can be learned in the first and used in the second
        WorldSpec("hour-seasonal", _hosts(4, 100, HOUR, "seasonal"), rounds=336.0, warm_up=0.5),
        WorldSpec("day-seasonal", _hosts(4, 100, DAY, "seasonal")),
        WorldSpec("day-seasonal-3x", _hosts(4, 100, DAY, "seasonal"), visits=3.0, rounds=60.0),
        WorldSpec("mixed", _mixed(), rounds=40.0),
        WorldSpec("mixed-slow", _mixed(slow=True), visits=0.3),
        WorldSpec("mixed-polite", _mixed(), polite=True),
        WorldSpec("sizes", tuple(HostKind(pages, DAY) for pages in (10, 30, 100, 300, 1000)), rounds=30.0),
    ]
    return {spec.name: spec for spec in found}


def _mixed(slow: bool = False) -> tuple[HostKind, ...]:
    """Return hosts with all change processes and rates, from news sites to manuals."""
    fast = MONTH if slow else 6 * HOUR
    return (
        HostKind(50, fast, "seasonal"),
        HostKind(100, 4 * fast, "poisson"),
        HostKind(100, 30 * fast, "together"),
        HostKind(200, 30 * fast, "bursty"),
        HostKind(200, 200 * fast, "poisson"),
    )


WORLDS = _list()
QUICK = (
    "issue", "issue-crawl", "month-crawl", "hour-1x", "hour-100x", "hour-seasonal", "day-0.3x", "day-1x",
    "day-10x", "day-together", "day-bursty", "day-seasonal-3x", "day-tiny", "day-uneven", "day-polite",
    "day-restless", "month-0.3x", "month-1x", "month-together", "year-1x", "mixed",
)  # fmt: skip
