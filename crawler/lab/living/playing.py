"""Plays one policy on one drawn world, event by event on a virtual clock.

Events of the same instant are processed in this order: signals, answers, the fetch. The first pass over all
pages is the same for every policy. A copy is current from its fetch to the next change of the page. Freshness
is not sampled, but integrated exactly over the time of every page.

The policy `true` is the crawler's schedule, with the true rate, recall and noise of each page instead of
learned values. The policy `bayes` knows only the distribution of the rates, and `bayes-gamma` only its mean (`bayes.py`).
"""

from collections import deque

import msgspec
import numpy as np

from crawler.freshness.params import PageParameters
from crawler.frontier.refresh import Settings
from crawler.lab.copies import Copies
from crawler.lab.league import rivals
from crawler.lab.league.shipped import SHIPPED, Shipped
from crawler.lab.league.world import Policy
from crawler.lab.living.bayes import Bayes
from crawler.lab.living.calibration import Calibration
from crawler.lab.living.worlds import DrawnWorld

UNIFORM, TRUE = "round-robin", "true"
BAYES, BAYES_GAMMA = "bayes", "bayes-gamma"
PLAYERS = (UNIFORM, "nutch", "stormcrawler", *SHIPPED, TRUE, BAYES, BAYES_GAMMA)
STATING = (*SHIPPED, TRUE)  # the policies that state how likely a copy is current
# the counted time is divided into this many equal parts, and the hosts' shares are computed in each
SPANS = 20


class TrueRates(Shipped):
    """NCIS with the true parameters of the world."""

    def __init__(self, world: DrawnWorld, rate: float, *, judged: bool = False) -> None:
        super().__init__(world, rate, Settings(neighbourhood=False, pooling=False), judged=judged)
        others = (each.tolist() for each in (world.rates, world.recall, world.false_rate))
        self._truth = list(map(PageParameters, self._importance, *others))

    def add(self, page: int, now: float) -> None:
        super().add(page, now)
        self.schedule.facts.set_page(self._number[page], self._truth[page], now)


def make(name: str, world: DrawnWorld, *, judged: bool = False) -> Policy:
    """Return the policy `name`, ready to play the world. `judged` has the same meaning as in `Shipped`."""
    if name == TRUE:
        return TrueRates(world, world.spec.rate, judged=judged)
    if name in (BAYES, BAYES_GAMMA):
        return Bayes(world, gamma=name == BAYES_GAMMA)
    if name in SHIPPED:
        settings = Settings(**SHIPPED[name])
        return Shipped(world, world.spec.rate, settings, judged=judged)
    return rivals.RIVALS[name](world, world.spec.rate)  # type: ignore[arg-type]


class WorldRun(msgspec.Struct, frozen=True):
    """The result of a run after the warm-up.

    freshness: share of page time in which the copy was current, weighted by importance.
    largest: share of the fetches that went to the host with the most fetches. span: the largest such share in
        any twentieth of the time.
    """

    freshness: float
    fetches: int
    idle: int
    largest: float
    span: float


def play(world: DrawnWorld, policy: Policy, calibration: Calibration | None = None) -> WorldRun:
    """Let the policy spend the world's budget; return the result."""
    spec, changes, horizon = world.spec, world.changes, world.horizon
    rate, size, total = spec.rate, len(world), spec.fetches
    begin = max(spec.warm_up * horizon, (size + 0.5) / rate)
    gap, sites = world.gap(rate), world.site.tolist()
    copies = Copies(changes, begin, [horizon] * size)
    told_at, told_of = [*world.told_at.tolist(), np.inf], world.told_of.tolist()
    known = [False] * size
    flying: deque[tuple[int, int, float]] = deque()  # (tick of the answer, page, instant of the fetch)
    fetched_at, fetched_of = list[float](), list[int]()
    told = idle = 0

    def answer(page: int, at: float, now: float) -> None:
        policy.record_outcome(page, now, copies.keep(page, at))
        rest(page, now)

    def rest(page: int, now: float) -> None:
        """Let the host of an answer rest, and let the policy look for the next page, as a crawl does."""
        if spec.rest:
            policy.block(sites[page], now + spec.rest / rate)
            policy.peek(now)

    for tick in range(total):
        now = (tick + 0.5) / rate
        while told_at[told] <= now:
            page = told_of[told]
            if known[page]:
                policy.note_change(page, "sitemap", told_at[told], told_at[told])
            told += 1
        while flying and flying[0][0] <= tick:
            _, page, at = flying.popleft()
            answer(page, at, now)
        if tick < size:
            page = int(world.order[tick])
            known[page] = True
            copies.keep(page, now)
            policy.add(page, now)
            rest(page, now)
            continue
        if calibration is not None:
            calibration.sample(copies.seen, now)
        page = policy.claim_next(now)
        if page < 0:
            idle += 1
            continue
        if now >= begin:
            fetched_at.append(now)
            fetched_of.append(page)
        if spec.latency:
            flying.append((tick + spec.latency, page, now))
        else:
            answer(page, now, now)
        if gap:
            policy.block(sites[page], now + gap)
    for _, page, at in flying:
        answer(page, at, horizon)
    asked = np.array(fetched_of, dtype=np.int64)
    return run_of(
        world, np.array(copies.end()), np.array(fetched_at), world.site[asked], begin, horizon, idle
    )


def run_of(
    world: DrawnWorld,
    current: np.ndarray,
    at: np.ndarray,
    site: np.ndarray,
    begin: float,
    horizon: float,
    idle: int = 0,
) -> WorldRun:
    """Return the result of a run.

    `current` holds, for each page, the seconds since `begin` in which its copy was current. `at` and `site`
    are the times and hosts of the fetches.
    """
    span = np.minimum((at - begin) / (horizon - begin) * SPANS, SPANS - 1).astype(np.int64)
    hosts = np.zeros((SPANS, len(world.sites)), dtype=np.int64)
    np.add.at(hosts, (span, site), 1)
    counts = hosts.sum(axis=1)
    return WorldRun(
        freshness=float(world.importance @ current / world.importance.sum()) / (horizon - begin),
        fetches=int(counts.sum()),
        idle=idle,
        largest=float(hosts.sum(axis=0).max() / max(counts.sum(), 1)),
        span=float((hosts.max(axis=1) / np.maximum(counts, 1)).max()),
    )


def played(name: str, world: DrawnWorld) -> WorldRun:
    """Play the policy `name` on the world; return the result."""
    return play(world, make(name, world))


def judged(name: str, world: DrawnWorld) -> np.ndarray:
    """Compare the stated probabilities of a policy with the truth; return the sums that `calibration.deciles` needs."""
    policy = make(name, world, judged=True)
    assert isinstance(policy, Shipped)
    horizon = world.horizon
    seen = Calibration(policy.fresh, world.changes, world.site, world.spec.warm_up * horizon, horizon)
    play(world, policy, seen)
    return seen.sums
