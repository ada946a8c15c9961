"""Simulated webs whose regime changes while they are crawled.

    WorldSpec --draw(seed)--> DrawnWorld --REGIMES[spec.regime]--> DrawnWorld with a `Course`

The regime changes at half time, and freshness is measured from then on. So a schedule knows the old regime well, and
must learn the new one. The pages of these webs change every 10 days on average, except where noted. An outage
of some days then lasts longer or shorter than the mean time between two fetches of a page, which depends on the
budget. `true` learns of a new regime at once. It does not know of outages, nor that pages will be gone.

    faster, slower          the pages of one of four hosts begin to change 240 times as often, hourly; or end to
    warmer, cooler          the same, but 10 times as often
    wakes                   the pages of one of four hosts begin to change, 100 times as often as before
    redesign                all pages of one of ten sites change at once, every 60 days, each time of another site
    outage                  one of four hosts fails for 2 days
    refused                 one of four hosts answers 429 for a day, with a Retry-After
    slow                    one of four hosts needs three times as long for each answer in the second half
    joins                   a site of 1,000 pages joins ten sites of 40 pages
    turnover                5 % of the pages of a site are replaced by new ones each week
    leaves                  all pages of one of four hosts are gone
    moves                   all pages of one of four hosts redirect to a new host
    pause-1, -7, -30        the crawl is stopped for 1, 7 or 30 days
    budget-up, -down        the budget becomes 10 times as large or as small
    readers                 importances are drawn anew: readers request other pages
    counters                5 % of the pages differ at each visit
    alternating             the answers of 5 % of the pages alternate at random between two versions
    soft-outage             one of four hosts answers 200 with the same text for all pages for a day
    lies-later              an honest sitemap begins to give all pages a new date each day
    dies-later              an honest feed announces nothing more
    honest-later            a sitemap that gave all pages a new date each day becomes honest
"""

import math
from collections.abc import Callable

import msgspec
import numpy as np

from crawler.lab.living.course import Course, Era, Spell, SpellKind
from crawler.lab.living.worlds import DAY, HOUR, DrawnWorld, HostKind, WorldSpec, draw

EVERY = 10 * DAY
HALF = 0.5
HOURLY, OFTEN, QUIET = EVERY / HOUR, 10.0, 0.01
REDESIGN = 60 * DAY
OUTAGE, REFUSAL = 2 * DAY, DAY
WEEK, REPLACED, INHABITED = 7 * DAY, 0.05, 100
NEWCOMER = 1000
BUDGET = 10.0
COUNTERS = ALTERNATING = 0.05
SOFT_OUTAGE = DAY
HONEST = 0.95
# Fetches per change -> fetches per page. A run with a long pause must be longer.
VISITS = {0.3: 40.0, 1.0: 40.0, 3.0: 40.0, 10.0: 60.0}
LONG = {0.3: 40.0, 1.0: 40.0, 3.0: 80.0, 10.0: 200.0}

Regime = Callable[[DrawnWorld, np.random.Generator], DrawnWorld]


def drawn(spec: WorldSpec, seed: int) -> DrawnWorld:
    """Draw the world of a seed, with its change of regime if it has one. Equal arguments yield equal worlds."""
    world = draw(spec, seed)
    if not spec.regime:
        return world
    return REGIMES[spec.regime](world, np.random.default_rng([seed, len(spec.regime), len(world)]))


def _half(world: DrawnWorld) -> float:
    return HALF * world.horizon


def _with(world: DrawnWorld, **more: object) -> DrawnWorld:
    return msgspec.structs.replace(world, **more)


def _era(world: DrawnWorld, **more: object) -> Era:
    """Return an era that begins at half time; whatever is not given stays as it was."""
    era = Era(_half(world), world.spec.rate, world.importance, world.rates, world.recall, world.false_rate)
    return msgspec.structs.replace(era, **more)


def _events(rng: np.random.Generator, rate: np.ndarray, begin: float, end: float) -> list[list[float]]:
    """Draw Poisson events of each page in this time; return their sorted instants."""
    return [
        np.sort(begin + rng.random(count) * (end - begin)).tolist()
        for count in rng.poisson(rate * (end - begin))
    ]


# -- rates


def _rates_from(before: float, after: float) -> Regime:
    """Return the regime in which the rates of the first host change at half time, from and to these multiples."""

    def regime(world: DrawnWorld, rng: np.random.Generator) -> DrawnWorld:
        half, first = _half(world), world.site == 0
        old, new = (np.where(first, world.rates * times, world.rates) for times in (before, after))
        parts = zip(_events(rng, old, 0.0, half), _events(rng, new, half, world.horizon), strict=True)
        course = Course(eras=(_era(world, rates=new),))
        return _with(world, rates=old, changes=[a + b for a, b in parts], course=course)

    return regime


def _redesign(world: DrawnWorld, rng: np.random.Generator) -> DrawnWorld:
    at = np.arange(0.5 * REDESIGN, world.horizon, REDESIGN)
    site = rng.permutation(len(world.sites) * math.ceil(len(at) / len(world.sites)))[: len(at)] % len(
        world.sites
    )
    changes = [
        sorted(times + at[site == own].tolist())
        for times, own in zip(world.changes, world.site.tolist(), strict=True)
    ]
    return _with(world, changes=changes)


# -- hosts


def _spell(kind: SpellKind, length: float) -> Regime:
    def regime(world: DrawnWorld, _rng: np.random.Generator) -> DrawnWorld:
        return _with(world, course=Course(spells=(Spell(0, _half(world), _half(world) + length, kind),)))

    return regime


def _leaves(world: DrawnWorld, _rng: np.random.Generator) -> DrawnWorld:
    return _with(world, course=Course(died=np.where(world.site == 0, _half(world), np.inf)))


def _moves(world: DrawnWorld, _rng: np.random.Generator) -> DrawnWorld:
    """The pages of the last host exist from half time on, and are those of the first host."""
    half, last = _half(world), len(world.sites) - 1
    moved = Course(
        born=np.where(world.site == last, half, 0.0),
        died=np.where(world.site == 0, half, np.inf),
        spells=(Spell(0, half, np.inf, SpellKind.MOVED),),
    )
    return _with(world, course=moved)


# -- pages


def _joins(world: DrawnWorld, _rng: np.random.Generator) -> DrawnWorld:
    """The pages of the last host exist from half time on."""
    return _with(world, course=Course(born=np.where(world.site == len(world.sites) - 1, _half(world), 0.0)))


def _turnover(world: DrawnWorld, rng: np.random.Generator) -> DrawnWorld:
    """The pages of the first host live from and to the end of a week. At each such instant, 5 % are replaced."""
    own = np.flatnonzero(world.site == 0)
    born, died = np.zeros(len(world)), np.full(len(world), np.inf)
    alive, waiting = own[:INHABITED].tolist(), own[INHABITED:].tolist()
    born[waiting] = np.inf
    for at in np.arange(_half(world), world.horizon, WEEK):
        for place in rng.permutation(len(alive))[: round(REPLACED * len(alive))].tolist():
            if waiting:  # else the site has no more new pages
                died[alive[place]] = at
                alive[place] = waiting.pop()
                born[alive[place]] = at
    return _with(world, course=Course(born=born, died=died))


# -- the crawl


def _pause(days: float) -> Regime:
    def regime(world: DrawnWorld, _rng: np.random.Generator) -> DrawnWorld:
        return _with(world, course=Course(pauses=((_half(world), _half(world) + days * DAY),)))

    return regime


def _budget(times: float) -> Regime:
    def regime(world: DrawnWorld, _rng: np.random.Generator) -> DrawnWorld:
        return _with(world, course=Course(eras=(_era(world, rate=times * world.spec.rate),)))

    return regime


def _readers(world: DrawnWorld, rng: np.random.Generator) -> DrawnWorld:
    return _with(world, course=Course(eras=(_era(world, importance=rng.permutation(world.importance)),)))


# -- answers


def _alternating(world: DrawnWorld, rng: np.random.Generator) -> DrawnWorld:
    return _with(world, course=Course(alternating=rng.random(len(world)) < ALTERNATING))


def _soft_outage(world: DrawnWorld, _rng: np.random.Generator) -> DrawnWorld:
    """Two more changes: to the content -1, which all pages share, and back."""
    begin, end = _half(world), _half(world) + SOFT_OUTAGE
    changes, contents = [], []
    for times, site in zip(world.changes, world.site.tolist(), strict=True):
        if site:
            changes.append(times)
            contents.append(list(range(len(times) + 1)))
            continue
        during = sum(begin <= at < end for at in times)
        before = sum(at < begin for at in times)
        later = [at for at in times if at >= end]
        changes.append([at for at in times if at < begin] + [begin, end] + later)
        contents.append([*range(before + 1), -1, *range(before + during, len(times) + 1)])
    return _with(world, changes=changes, course=Course(contents=contents))


# -- signals


def _signals(
    world: DrawnWorld, rng: np.random.Generator, old: tuple[float, bool], new: tuple[float, bool]
) -> DrawnWorld:
    """Draw signals with a recall and perhaps a new date of all pages each day: before and after half time."""
    half, at, of = _half(world), [], []
    for (recall, lies), begin, end in ((old, 0.0, half), (new, half, world.horizon)):
        days = np.arange(begin, end, DAY) if lies else np.zeros(0)
        at.append(np.repeat(days, len(world)))
        of.append(np.tile(np.arange(len(world)), len(days)))
        for page, times in enumerate(world.changes):
            told = [each for each in times if begin <= each < end and rng.random() < recall]
            at.append(np.array(told))
            of.append(np.full(len(told), page))
    told_at, told_of = np.concatenate(at), np.concatenate(of).astype(np.int64)
    order = np.argsort(told_at, kind="stable")
    before, after = (
        {"recall": np.full(len(world), recall), "false_rate": np.full(len(world), lies / DAY)}
        for recall, lies in (old, new)
    )
    course = Course(eras=(_era(world, **after),))
    return _with(world, told_at=told_at[order], told_of=told_of[order], course=course, **before)


def _told(old: tuple[float, bool], new: tuple[float, bool]) -> Regime:
    return lambda world, rng: _signals(world, rng, old, new)


REGIMES: dict[str, Regime] = {
    "faster": _rates_from(1.0, HOURLY),
    "slower": _rates_from(HOURLY, 1.0),
    "warmer": _rates_from(1.0, OFTEN),
    "cooler": _rates_from(OFTEN, 1.0),
    "wakes": _rates_from(QUIET, 1.0),
    "redesign": _redesign,
    "outage": _spell(SpellKind.FAILING, OUTAGE),
    "refused": _spell(SpellKind.REFUSING, REFUSAL),
    "slow": _spell(SpellKind.SLOW, math.inf),
    "joins": _joins,
    "turnover": _turnover,
    "leaves": _leaves,
    "moves": _moves,
    "pause-1": _pause(1.0),
    "pause-7": _pause(7.0),
    "pause-30": _pause(30.0),
    "budget-up": _budget(BUDGET),
    "budget-down": _budget(1.0 / BUDGET),
    "readers": _readers,
    "counters": lambda world, _rng: world,
    "alternating": _alternating,
    "soft-outage": _soft_outage,
    "lies-later": _told((HONEST, False), (0.0, True)),
    "dies-later": _told((HONEST, False), (0.0, False)),
    "honest-later": _told((0.0, True), (HONEST, False)),
}


def _hosts(regime: str) -> tuple[HostKind, ...]:
    four, ten = (HostKind(100, EVERY),) * 4, (HostKind(40, EVERY),) * 10
    special: dict[str, tuple[HostKind, ...]] = {
        "redesign": ten,
        "joins": (*ten, HostKind(NEWCOMER, EVERY)),
        "moves": (*four, HostKind(100, EVERY)),
        "turnover": (HostKind(400, EVERY), *four[1:]),
    }
    return special.get(regime, four)


def _list() -> dict[str, WorldSpec]:
    found = [
        WorldSpec(
            f"{regime}-{visits:g}x",
            _hosts(regime),
            visits=visits,
            rounds=rounds,
            warm_up=HALF,
            regime=regime,
            restless=COUNTERS if regime == "counters" else 0.0,
            polite=regime == "slow",
        )
        for regime in REGIMES
        for visits, rounds in (LONG if regime == "pause-30" else VISITS).items()
    ]
    return {spec.name: spec for spec in found}


CHANGING = _list()
