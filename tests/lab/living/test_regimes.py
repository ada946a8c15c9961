"""Test worlds whose regime changes: they do what their names say, and the schedule follows the change."""

import math
from typing import Any

import msgspec
import numpy as np
import pytest

from crawler.frontier.refresh import RefreshOutcome
from crawler.lab.copies import Copies
from crawler.lab.league.shipped import Shipped
from crawler.lab.living import gains
from crawler.lab.living.course import BACKOFF_FIRST, BACKOFF_MAX, Course, Spell, SpellKind, Waits
from crawler.lab.living.playing import TRUE, UNIFORM, make, play, played
from crawler.lab.living.regimes import CHANGING, EVERY, HALF, REGIMES, drawn
from crawler.lab.living.worlds import DAY, DrawnWorld, HostKind, WorldSpec

SEEDS = (1, 2)


def small(regime: str, **more: object) -> DrawnWorld:
    hosts = (HostKind(20, EVERY),) * 4
    more = {"rounds": 20.0, "warm_up": HALF, **more}
    return drawn(WorldSpec("small", hosts, regime=regime, **more), 1)  # type: ignore[arg-type]


@pytest.mark.parametrize("regime", REGIMES)
def test_every_policy_plays_every_regime(regime: str) -> None:
    """All instants of the course are used: pages fetched are alive, and freshness is a share in each twentieth."""
    spec = CHANGING[f"{regime}-1x"]
    world = drawn(msgspec.structs.replace(spec, rounds=6.0), 1)
    for name in (UNIFORM, TRUE, "ncis"):
        run = played(name, world)
        assert 0.0 < run.freshness < 1.0 and len(run.course) == 20
        assert all(0.0 <= share <= 1.0 for share in run.course)


def test_equal_seeds_draw_equal_regimes() -> None:
    for regime in REGIMES:
        spec = msgspec.structs.replace(CHANGING[f"{regime}-3x"], rounds=6.0)
        one, same = drawn(spec, 3), drawn(spec, 3)
        assert one.changes == same.changes and (one.told_at == same.told_at).all()


@pytest.mark.parametrize(
    ("regime", "before", "after"), [("warmer", 1.0, 10.0), ("cooler", 10.0, 1.0), ("wakes", 0.01, 1.0)]
)
def test_the_rates_of_one_host_change_at_half_time(regime: str, before: float, after: float) -> None:
    world = small(regime, rounds=400.0)
    half, first = HALF * world.horizon, world.site == 0
    base = world.course.eras[0].rates / np.where(first, after, 1.0)
    for times, begin, end in ((before, 0.0, half), (after, half, world.horizon)):
        counts = np.array([sum(begin <= at < end for at in each) for each in world.changes])
        expected = base * half
        assert counts[first].sum() == pytest.approx(
            times * expected[first].sum(), rel=0.1, abs=3 * math.sqrt(expected[first].sum() * times)
        )
        assert counts[~first].sum() == pytest.approx(expected[~first].sum(), rel=0.1)


def test_a_redesign_changes_all_pages_of_a_site_at_once() -> None:
    world = small("redesign", rounds=40.0)
    at = np.concatenate(world.changes)
    times, counts = np.unique(at, return_counts=True)
    events = times[counts > 1]
    assert (counts[counts > 1] == 20).all() and np.allclose(np.diff(events), 60 * DAY)


def test_a_pause_and_a_budget_set_the_instants_of_the_fetches() -> None:
    world = small("pause-30")
    at = world.course.instants(world.spec.rate, world.spec.fetches)
    begin = HALF * world.horizon
    assert np.diff(at).max() == pytest.approx(30 * DAY, abs=1.0 / world.spec.rate)
    assert not ((at >= begin) & (at < begin + 30 * DAY)).any()
    for regime, times in (("budget-up", 10.0), ("budget-down", 0.1)):
        world = small(regime)
        at = world.course.instants(world.spec.rate, world.spec.fetches)
        late = at >= HALF * world.horizon
        assert late.sum() / (~late).sum() == pytest.approx(times, rel=0.01)
        assert (np.diff(at) > 0.0).all() and at[-1] < world.horizon


def test_a_failing_host_is_asked_seldom_and_then_caught_up() -> None:
    """During the outage, every fetch fails, and the host waits ever longer. Afterwards, all pages are fetched soon."""
    world = small("outage", visits=10.0, rounds=120.0)
    spell, policy = world.course.spells[0], make("ncis", world)
    failed, after = list[float](), dict[int, float]()
    absence, outcome = policy.record_absence, policy.record_outcome

    def note_absence(page: int, now: float, result: RefreshOutcome) -> None:
        assert world.site[page] == 0 and now in spell and result is RefreshOutcome.FAILED
        failed.append(now)
        absence(page, now, result)

    def note_outcome(page: int, now: float, changed: bool) -> None:
        assert world.site[page] or now not in spell
        if not world.site[page] and now >= spell.end:
            after.setdefault(page, now - spell.end)
        outcome(page, now, changed)

    policy.record_absence, policy.record_outcome = note_absence, note_outcome  # type: ignore[method-assign]
    play(world, policy)
    assert 8 <= len(failed) <= 9 + 2 * DAY / BACKOFF_MAX
    assert np.sort(list(after.values()))[:15].max() < 2.5 * DAY


def test_a_refusing_host_is_not_asked_before_its_retry_after() -> None:
    spell = Spell(0, 100.0, 200.0, SpellKind.REFUSING)
    assert Waits(1, 5.0).until(0, spell, 110.0) == 200.0
    waits, failing = Waits(1, 5.0), Spell(0, 0.0, 1e9, SpellKind.FAILING)
    found = [waits.until(0, failing, 0.0) for _ in range(12)]
    assert found[:3] == [BACKOFF_FIRST, 2 * BACKOFF_FIRST, 4 * BACKOFF_FIRST] and found[-1] == BACKOFF_MAX
    assert waits.until(0, None, 0.0) == 5.0 and waits.until(0, failing, 0.0) == BACKOFF_FIRST
    assert waits.until(0, Spell(0, 0.0, 1e9, SpellKind.SLOW), 0.0) == 15.0


def test_pages_that_are_not_born_or_gone_do_not_count() -> None:
    """A host of gone pages costs no freshness: with all pages of the others fetched at each tick, it stays nearly 1."""
    world = small("leaves", visits=100.0, rounds=1500.0)
    assert played("ncis", world).freshness > 0.97
    joined = small("joins", visits=10.0, rounds=60.0)
    assert (joined.course.born > 0.0).sum() == 20
    assert played("ncis", joined).freshness > 0.8


def test_the_same_content_makes_a_copy_current_again() -> None:
    """A soft outage from 10 to 20: a copy from before it is current from 20 on, and a copy of the error until 20."""
    copies = Copies([[10.0, 20.0, 30.0]], 0.0, [100.0], [[0, -1, 0, 1]])
    copies.keep(0, 5.0)
    assert copies.count_until(25.0) == [5.0 + 5.0]
    assert not copies.keep(0, 25.0)
    assert copies.end() == [5.0]
    other = Copies([[10.0, 20.0, 30.0]], 0.0, [100.0], [[0, -1, 0, 1]])
    other.keep(0, 5.0)
    assert other.keep(0, 15.0) and other.keep(0, 21.0) and not other.keep(0, 22.0)
    assert other.end() == [5.0 + 5.0 + 9.0]


def test_a_soft_outage_shows_one_text_on_all_pages_of_a_host() -> None:
    world = small("soft-outage")
    for times, contents, site in zip(world.changes, world.course.contents, world.site.tolist(), strict=True):
        assert len(contents) == len(times) + 1 and times == sorted(times)
        assert contents.count(-1) == (site == 0)


def test_alternating_answers_look_like_changes_but_leave_copies_current() -> None:
    world = msgspec.structs.replace(
        small("alternating"),
        changes=[[] for _ in range(80)],
        course=Course(alternating=np.ones(80, dtype=bool)),
    )
    found, returns = list[bool](), list[int]()
    for name in (UNIFORM, "ncis"):
        policy = make(name, world)
        found.clear()
        returns.clear()
        outcome, returned = policy.record_outcome, policy.record_return

        def note(page: int, now: float, changed: bool, outcome: Any = outcome) -> None:
            found.append(changed)
            outcome(page, now, changed)

        def note_return(page: int, now: float, returned: Any = returned) -> None:
            returns.append(page)
            returned(page, now)

        policy.record_outcome, policy.record_return = note, note_return  # type: ignore[method-assign]
        assert play(world, policy).freshness == pytest.approx(1.0)
        if name == UNIFORM:  # for which a return is a change
            assert np.mean(found) == pytest.approx(0.5, abs=0.05)
            assert sum(found) - len(returns) <= len(world)
        else:  # every page shows its second version once
            assert sum(found) <= len(world)
            assert len(returns) / (len(found) + len(returns)) == pytest.approx(0.5, abs=0.08)


def test_a_return_is_no_evidence_for_the_crawlers_schedule() -> None:
    world = small("alternating")
    policy = make("ncis", world)
    assert isinstance(policy, Shipped)
    policy.add(0, 0.0)
    for day in range(1, 30):
        assert policy.claim_next(day * DAY) == 0
        before = policy.schedule.overview.page(0, day * DAY)
        policy.record_return(0, day * DAY)
        after = policy.schedule.overview.page(0, day * DAY)
        assert (after.changes, after.watched) == (before.changes, before.watched)
        assert after.crawled_at == day * DAY


def test_signals_change_their_quality_at_half_time() -> None:
    for regime, early, late in (
        ("lies-later", 0.95, 20.0),
        ("dies-later", 0.95, 0.0),
        ("honest-later", 20.0, 0.95),
    ):
        world = small(regime, rounds=100.0)
        half, changes = HALF * world.horizon, np.concatenate(world.changes)
        for share, begin, end in ((early, 0.0, half), (late, half, world.horizon)):
            told = ((world.told_at >= begin) & (world.told_at < end)).sum()
            changed = ((changes >= begin) & (changes < end)).sum()
            assert told == pytest.approx(share * changed, rel=0.1) if share <= 1.0 else told > 5 * changed


def test_importances_of_an_era_weigh_its_freshness() -> None:
    """Only the pages that are important in the second era change; so freshness falls when the era begins."""
    world = small("readers", importance="equal")
    moved = np.where(world.site == 0, 1.0, 0.0)
    begun = msgspec.structs.replace(world.course.eras[0], at=0.75 * world.horizon, importance=moved + 1e-9)
    changes = [
        np.arange(0.0, world.horizon, 3600.0).tolist() if not site else [] for site in world.site.tolist()
    ]
    world = msgspec.structs.replace(
        world, changes=changes, importance=1.0 - moved + 1e-9, course=Course(eras=(begun,))
    )
    course = played(UNIFORM, world).course
    assert min(course[:10]) > 0.999 and max(course[10:]) < 0.1


@pytest.mark.parametrize("name", ["slower-3x", "slower-10x"])
def test_the_schedule_follows_a_change_of_rates(name: str) -> None:
    """Without `freshness/rate_turns.py`, the gains on these webs are 0.35 and 0.31."""
    worlds = [drawn(CHANGING[name], seed) for seed in SEEDS]
    runs = {policy: [played(policy, world) for world in worlds] for policy in (UNIFORM, TRUE, "ncis")}
    assert gains.gains(name, runs)[-1].gain > 0.6


def test_the_schedule_follows_signals_that_turn() -> None:
    """Without `freshness/source_turns.py`, the gain on this web is 0.60."""
    name = "honest-later-0.3x"
    world = drawn(CHANGING[name], 1)
    runs = {policy: [played(policy, world)] for policy in (UNIFORM, TRUE, "ncis")}
    assert gains.gains(name, runs)[-1].gain > 0.8
