"""Plays one policy on one drawn world, event by event on a virtual clock.

Events of the same instant are processed in this order: signals, answers, the fetch. The first pass over all
pages is the same for every policy. A copy is current from its fetch to the next change of the page. Freshness
is not sampled, but integrated exactly over the time of every page.

The policy `true` is the crawler's schedule, with the true rate, recall and noise of each page instead of
learned values. The policy `bayes` knows only the distribution of the rates, and `bayes-gamma` only its mean (`bayes.py`).
The policy `reopened` is the crawler's schedule, rebuilt from its store after each pause (`reopened.py`).
"""

from collections import deque

import msgspec
import numpy as np

from crawler.frontier.refresh import RefreshOutcome, Settings
from crawler.lab.copies import Copies
from crawler.lab.league import rivals
from crawler.lab.league.shipped import SHIPPED, Shipped
from crawler.lab.league.truth import TrueParameters
from crawler.lab.league.world import Policy
from crawler.lab.living.bayes import Bayes
from crawler.lab.living.calibration import Calibration
from crawler.lab.living.course import SpellKind, Waits, edges
from crawler.lab.living.reopened import Reopened
from crawler.lab.living.worlds import DrawnWorld

UNIFORM, TRUE = "round-robin", "true"
BAYES, BAYES_GAMMA, REOPENED = "bayes", "bayes-gamma", "reopened"
PLAYERS = (UNIFORM, "nutch", "stormcrawler", *SHIPPED, TRUE, BAYES, BAYES_GAMMA, REOPENED)
STATING = (*SHIPPED, TRUE)  # the policies that state how likely a copy is current
# the counted time is divided into this many equal parts, and the hosts' shares are computed in each
SPANS = 20

Version = tuple[int, bool]


def make(name: str, world: DrawnWorld, *, judged: bool = False) -> Policy:
    """Return the policy `name`, ready to play the world. `judged` has the same meaning as in `Shipped`."""
    if name == TRUE:
        truth = np.stack([world.rates, world.recall, world.false_rate], axis=1)
        return TrueParameters(world, world.spec.rate, truth, judged=judged)
    if name in (BAYES, BAYES_GAMMA):
        return Bayes(world, gamma=name == BAYES_GAMMA)
    if name == REOPENED:
        return Reopened(world, Settings())
    if name in SHIPPED:
        settings = Settings(**SHIPPED[name])
        return Shipped(world, world.spec.rate, settings, judged=judged)
    return rivals.RIVALS[name](world, world.spec.rate)  # type: ignore[arg-type]


class WorldRun(msgspec.Struct, frozen=True):
    """The result of a run after the warm-up.

    freshness: share of page time in which the copy was current, weighted by importance.
    largest: share of the fetches that went to the host with the most fetches. span: the largest such share in
        any twentieth of the time.
    course: the freshness in each twentieth of the time.
    """

    freshness: float
    fetches: int
    idle: int
    largest: float
    span: float
    course: tuple[float, ...] = ()


def play(world: DrawnWorld, policy: Policy, calibration: Calibration | None = None) -> WorldRun:
    """Let the policy spend the world's budget; return the result."""
    return WorldGame(world, policy, calibration).run()


class WorldGame:
    """A policy plays a world. The world's course has the instants of the fetches.

    While pages are waiting for their first fetch after their birth, they get every second fetch.
    """

    def __init__(self, world: DrawnWorld, policy: Policy, calibration: Calibration | None) -> None:
        spec, course = world.spec, world.course
        self._world, self._policy, self._calibration = world, policy, calibration
        self._horizon, size = world.horizon, len(world)
        born = course.born if len(course.born) else np.zeros(size)
        self._order = world.order[born[world.order] <= 0.0].tolist()
        self._begin = max(spec.warm_up * self._horizon, (len(self._order) + 0.5) / spec.rate)
        died = np.minimum(course.died, self._horizon) if len(course.died) else np.full(size, self._horizon)
        self._copies = Copies(world.changes, self._begin, died.tolist(), course.contents)
        self._waits = Waits(len(world.sites), world.gap(spec.rate))
        self._known = [False] * size
        self._sites = world.site.tolist()
        self._rng = np.random.default_rng(world.seed)
        self._freshness = Freshness(world, self._begin, died)
        self._coming = deque(sorted((at, page) for page, at in enumerate(born.tolist()) if at > 0.0))
        self._new: deque[int] = deque()
        self._fetched: list[tuple[float, int]] = []
        self._idle = 0
        # Of each page that alternates: the latest version that was fetched, and the version before it.
        self._versions: dict[int, tuple[Version, Version]] = {}

    def run(self) -> WorldRun:
        world, policy, spec = self._world, self._policy, self._world.spec
        told_at, told_of = [*world.told_at.tolist(), np.inf], world.told_of.tolist()
        flying: deque[tuple[int, int, float]] = deque()  # (tick of the answer, page, instant of the fetch)
        eras, pauses, told = deque(world.course.eras), deque(world.course.pauses), 0
        for tick, now in enumerate(world.course.instants(spec.rate, spec.fetches).tolist()):
            while eras and eras[0].at <= now:
                policy.begin_era(eras.popleft(), now)
            while pauses and pauses[0][1] <= now:
                policy.resume(pauses.popleft()[1])
            while told_at[told] <= now:
                page = told_of[told]
                if self._known[page]:
                    policy.note_change(page, "sitemap", told_at[told], told_at[told])
                told += 1
            while flying and flying[0][0] <= tick:
                _, page, at = flying.popleft()
                self._answer(page, at, now)
            self._freshness.count(self._copies, now)
            while self._coming and self._coming[0][0] <= now:
                self._new.append(self._coming.popleft()[1])
            if tick < len(self._order):
                self._discover(self._order[tick], now)
                continue
            if self._new and tick % 2:
                self._discover(self._new.popleft(), now)
                continue
            if self._calibration is not None:
                self._calibration.sample(self._copies.seen, now)
            page = policy.claim_next(now)
            if page < 0:
                self._idle += 1
                continue
            if now >= self._begin:
                self._fetched.append((now, page))
            if spec.latency:
                flying.append((tick + spec.latency, page, now))
            else:
                self._answer(page, now, now)
            self._block(page, now)
        for _, page, at in flying:
            self._answer(page, at, self._horizon)
        policy.close()
        return self._result()

    def _discover(self, page: int, now: float) -> None:
        """Fetch a page for the first time."""
        self._known[page] = True
        self._copies.keep(page, now)
        self._versions[page] = (version := self._version(page), version)
        self._policy.add(page, now)
        self._rest(page, now)

    def _answer(self, page: int, at: float, now: float) -> None:
        """Let the policy learn of the answer to a fetch that was made at `at`."""
        result = self._absence(page, at)
        if result is not None:
            self._policy.record_absence(page, now, result)
        else:
            changed = self._copies.keep(page, at)
            if len(self._world.course.alternating) and self._world.course.alternating[page]:
                self._compare(page, now)
            else:
                self._policy.record_outcome(page, now, changed)
        self._rest(page, now)

    def _version(self, page: int) -> Version:
        """Return the version of an answer: the changes that it contains, and at random one of the two that alternate."""
        return self._copies.seen[page], bool(self._rng.random() < 0.5)

    def _compare(self, page: int, now: float) -> None:
        """Let the policy learn of an answer of a page that alternates. The answer is compared as in a crawl."""
        version, (last, earlier) = self._version(page), self._versions[page]
        if version == earlier != last:
            self._policy.record_return(page, now)
        else:
            self._policy.record_outcome(page, now, version != last)
        if version != last:
            self._versions[page] = version, last

    def _absence(self, page: int, at: float) -> RefreshOutcome | None:
        """Return the result of a fetch that finds no page, or None."""
        course = self._world.course
        if len(course.died) and course.died[page] <= at:
            moved = any(spell.kind is SpellKind.MOVED for spell in course.spells)
            return RefreshOutcome.MOVED if moved else RefreshOutcome.GONE
        spell = course.spell(self._sites[page], at)
        if spell is not None and spell.kind in (SpellKind.FAILING, SpellKind.REFUSING):
            return RefreshOutcome.FAILED
        return None

    def _rest(self, page: int, now: float) -> None:
        """Let the host of an answer rest, and let the policy look for the next page, as a crawl does."""
        spec = self._world.spec
        if spec.rest:
            self._policy.block(self._sites[page], now + spec.rest / spec.rate)
            self._policy.peek(now)

    def _block(self, page: int, now: float) -> None:
        """Block the host of a page that was fetched."""
        if self._world.blocks:
            site = self._sites[page]
            until = self._waits.until(site, self._world.course.spell(site, now), now)
            self._policy.block(site, until)

    def _result(self) -> WorldRun:
        self._freshness.count(self._copies, np.inf)
        at, of = np.array([row[0] for row in self._fetched]), np.array([row[1] for row in self._fetched], int)
        return run_of(
            self._world, self._freshness.mean(), at, self._world.site[of], self._begin, self._horizon, self._idle,
            self._freshness.course(),
        )  # fmt: skip


class Freshness:
    """The freshness of the copies after the warm-up, by spans of time.

    The time is divided into twenty equal spans, and a span in which an era begins is divided there, so that importances
    are constant in each span.
    """

    def __init__(self, world: DrawnWorld, begin: float, died: np.ndarray) -> None:
        eras = world.course.eras
        self._edges = edges(begin, world.horizon, eras, SPANS)
        self._begin, self._horizon = begin, world.horizon
        self._from = begin
        self._eras = [(0.0, world.importance), *((era.at, era.importance) for era in eras)]
        self._born = world.course.born if len(world.course.born) else np.zeros(len(world))
        self._died = died
        self._spans: list[tuple[float, float, float]] = []  # (middle of the span, current, there)

    def count(self, copies: Copies, now: float) -> None:
        """Count the spans that have ended at `now`."""
        while self._edges and self._edges[0] <= now:
            end = min(self._edges.pop(0), self._horizon)
            current = np.array(copies.count_until(end))
            there = np.maximum(np.minimum(self._died, end) - np.maximum(self._born, self._from), 0.0)
            importance = [each for at, each in self._eras if at <= self._from][-1]
            self._spans.append(
                (0.5 * (self._from + end), float(importance @ current), float(importance @ there))
            )
            self._from = end

    def mean(self) -> float:
        _, current, there = np.array(self._spans).T
        return float(current.sum() / there.sum())

    def course(self) -> tuple[float, ...]:
        middle, current, there = np.array(self._spans).T
        span = ((middle - self._begin) / (self._horizon - self._begin) * SPANS).astype(np.int64)
        sums = (np.bincount(span, weights=values, minlength=SPANS) for values in (current, there))
        return tuple((next(sums) / next(sums)).tolist())


def run_of(
    world: DrawnWorld,
    freshness: float,
    at: np.ndarray,
    site: np.ndarray,
    begin: float,
    horizon: float,
    idle: int = 0,
    course: tuple[float, ...] = (),
) -> WorldRun:
    """Return the result of a run. `at` and `site` are the times and hosts of the fetches."""
    span = np.minimum((at - begin) / (horizon - begin) * SPANS, SPANS - 1).astype(np.int64)
    hosts = np.zeros((SPANS, len(world.sites)), dtype=np.int64)
    np.add.at(hosts, (span, site), 1)
    counts = hosts.sum(axis=1)
    return WorldRun(
        freshness=freshness,
        fetches=int(counts.sum()),
        idle=idle,
        largest=float(hosts.sum(axis=0).max() / max(counts.sum(), 1)),
        span=float((hosts.max(axis=1) / np.maximum(counts, 1)).max()),
        course=course,
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
