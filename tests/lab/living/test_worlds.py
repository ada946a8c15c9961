"""Test drawn worlds: changes agree with the specification, and equal seeds yield equal worlds."""

import numpy as np
import pytest

from crawler.lab.living.worlds import (
    DAY,
    HOUR,
    IMPORTANCES,
    PROCESSES,
    QUICK,
    SIGNALS,
    WEEK,
    WORLDS,
    HostKind,
    WorldSpec,
    draw,
)


def spec(process: str = "poisson", **more: object) -> WorldSpec:
    return WorldSpec("made", (HostKind(200, DAY, process),) * 2, **{"rounds": 60.0, **more})  # type: ignore[arg-type]


@pytest.mark.parametrize("process", PROCESSES)
def test_pages_change_as_often_as_their_rates_say(process: str) -> None:
    """The number of changes, about 48,000, agrees with the rates.

    The numbers for the fast and for the slow half of the pages agree, too.
    """
    world = draw(spec(process, visits=0.5), 1)
    counts = np.array([len(times) for times in world.changes])
    expected = world.rates * world.horizon
    assert counts.sum() == pytest.approx(expected.sum(), rel=0.05)
    fast = world.rates > np.median(world.rates)
    assert counts[fast].sum() == pytest.approx(expected[fast].sum(), rel=0.05)
    for times in world.changes:
        assert times == sorted(times) and all(0.0 <= at < world.horizon for at in times)


def test_equal_seeds_draw_equal_worlds() -> None:
    one, same, other = (draw(spec(signals="noisy"), seed) for seed in (1, 1, 2))
    assert one.changes == same.changes and (one.told_at == same.told_at).all()
    assert one.changes != other.changes


def test_seasonal_changes_come_in_working_hours() -> None:
    world = draw(spec("seasonal"), 1)
    at = np.concatenate(world.changes)
    hour, day = at % DAY / HOUR, at % WEEK // DAY
    assert (hour >= 9.0).all() and (hour < 17.0).all() and (day < 5).all()


@pytest.mark.parametrize("rounds", [10.0, 13.0, 24.0, 40.0, 38.0 + 14.0 / 24.0])
def test_seasonal_changes_last_until_the_end(rounds: float) -> None:
    """A run of one fetch per change and day ends after `rounds` days: at night, at a weekend or in working hours."""
    world = draw(spec("seasonal", visits=1.0, rounds=rounds), 3)
    at = np.sort(np.concatenate(world.changes))
    hours = np.arange(0.0, world.horizon, HOUR)
    assert at[-1] < world.horizon
    working = hours[(hours % DAY >= 9 * HOUR) & (hours % DAY < 17 * HOUR) & (hours % WEEK < 5 * DAY)]
    last = working[-8:]
    found = np.searchsorted(at, last + HOUR) - np.searchsorted(at, last)
    mean = len(at) / len(working)
    assert found.sum() == pytest.approx(8 * mean, abs=4 * np.sqrt(8 * mean))


def test_pages_of_a_directory_change_together() -> None:
    """Two pages of one directory often change at the same instant. Two pages of different directories never do."""
    world = draw(spec("together"), 1)
    shared: dict[float, set[int]] = {}
    for page, times in enumerate(world.changes):
        for at in times:
            shared.setdefault(at, set()).add(int(world.directory[page]))
    counts = [len([1 for times in world.changes if at in times]) for at in list(shared)[:300]]
    assert np.mean(np.array(counts) > 1) > 0.05 and max(counts) > 2
    assert all(len(directories) == 1 for directories in shared.values())


@pytest.mark.parametrize("kind", SIGNALS)
def test_signals_have_the_specified_precision_and_recall(kind: str) -> None:
    world = draw(spec(signals=kind), 1)
    true = np.array(
        [at in world.changes[page] for at, page in zip(world.told_at, world.told_of, strict=True)], dtype=bool
    )
    assert true.sum() == pytest.approx((world.recall * world.rates).sum() * world.horizon, rel=0.1, abs=1)
    assert (~true).sum() == pytest.approx(world.false_rate.sum() * world.horizon, rel=0.1, abs=1)
    assert (np.diff(world.told_at) >= 0.0).all()


@pytest.mark.parametrize("kind", IMPORTANCES)
def test_importances_vary_unless_they_are_equal(kind: str) -> None:
    drawn = draw(spec(importance=kind), 1).importance
    assert (drawn > 0.0).all()
    assert (drawn.max() / drawn.min() > 10.0) == (kind != "equal")


def test_quick_names_are_listed_worlds() -> None:
    assert set(QUICK) <= set(WORLDS)
    for name, made in WORLDS.items():
        assert made.name == name
        assert made.fetches <= 200_000
        assert made.fetches / made.visits < 3_000_000


@pytest.mark.parametrize(
    "wrong", [{"importance": "odd"}, {"signals": "odd"}, {"visits": 0.0}, {"rounds": 1.0}, {"warm_up": 1.0}]
)
def test_invalid_worlds_are_rejected(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        spec(**wrong)


def test_a_restless_page_changes_between_any_two_fetches() -> None:
    """All other pages change as often as their rates say."""
    world = draw(spec(visits=0.5, restless=0.25), 1)
    restless = world.rates == world.spec.rate
    assert 0.15 < restless.mean() < 0.35
    instants = (np.arange(world.spec.fetches) + 0.5) / world.spec.rate
    for page in np.flatnonzero(restless)[:5]:
        assert (np.diff(np.searchsorted(world.changes[page], instants)) > 0).all()
    counts = np.array([len(times) for times in world.changes])
    expected = world.rates * world.horizon
    assert counts[~restless].sum() == pytest.approx(expected[~restless].sum(), rel=0.05)
    with pytest.raises(ValueError, match="restless"):
        spec(restless=1.5)
