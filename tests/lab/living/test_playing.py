"""Test policies on drawn worlds: freshness is exact, budgets are used up, and learning is never worse than uniform."""

import msgspec
import numpy as np
import pytest

from crawler.lab.living import calibration, gains
from crawler.lab.living.bayes import Bayes
from crawler.lab.living.playing import (
    BAYES,
    BAYES_GAMMA,
    PLAYERS,
    TRUE,
    UNIFORM,
    WorldRun,
    judged,
    make,
    play,
    played,
)
from crawler.lab.living.worlds import DAY, QUICK, WORLDS, HostKind, WorldSpec, draw

SEEDS = (1, 2, 3, 4)


def small(**more: object) -> WorldSpec:
    return WorldSpec("small", (HostKind(40, DAY), HostKind(40, DAY)), rounds=20.0, **more)  # type: ignore[arg-type]


def test_freshness_equals_a_scan_of_all_fetches() -> None:
    """For comparison, the fetches of the policy are recorded, and each instant of a fine grid is examined."""
    world = draw(small(warm_up=0.5), 3)
    policy = make("ncis", world)
    asked: list[tuple[float, int]] = [
        ((tick + 0.5) / world.spec.rate, page) for tick, page in enumerate(world.order.tolist())
    ]
    settle = policy.record_outcome

    def note(page: int, now: float, changed: bool) -> None:
        asked.append((now, page))
        settle(page, now, changed)

    policy.record_outcome = note  # type: ignore[method-assign]
    run = play(world, policy)
    grid = np.linspace(0.5 * world.horizon, world.horizon, 4001)[:-1]
    current = 0.0
    for page, times in enumerate(world.changes):
        fetches = np.array(sorted(at for at, asked_page in asked if asked_page == page))
        copies = fetches[np.searchsorted(fetches, grid, side="right") - 1]
        changed = np.searchsorted(times, grid, side="right") > np.searchsorted(times, copies, side="right")
        current += world.importance[page] * (~changed).mean()
    assert run.freshness == pytest.approx(current / world.importance.sum(), abs=2e-3)


@pytest.mark.parametrize("name", PLAYERS)
def test_every_policy_spends_its_budget(name: str) -> None:
    world = draw(small(signals="none" if name in (BAYES, BAYES_GAMMA) else "noisy"), 1)
    run = played(name, world)
    assert run.idle == 0 and 0.0 < run.freshness < 1.0
    assert run.fetches == pytest.approx(0.8 * world.spec.fetches, abs=2)
    assert 0.5 <= run.largest <= run.span <= 1.0


def test_a_busy_host_is_not_fetched() -> None:
    """An answer takes as long as three fetches at the crawl's rate.

    With only two hosts, a third of the fetches is then unused.
    """
    world = draw(small(latency=3), 1)
    assert played("ncis", world).idle == pytest.approx((world.spec.fetches - len(world)) / 3, abs=2)


def test_politeness_limits_the_share_of_a_host() -> None:
    hosts = (HostKind(40, DAY), HostKind(40, 100 * DAY), HostKind(40, 100 * DAY), HostKind(40, 100 * DAY))
    world = draw(WorldSpec("polite", hosts, polite=True, rounds=20.0), 1)
    assert played("ncis", world).largest <= 1.5 / 4 + 0.02
    assert played("ncis", draw(WorldSpec("free", hosts, rounds=20.0), 1)).largest > 0.5


def test_restless_pages_are_fetched_less_often_than_others() -> None:
    """All pages are equally important. Once, restless pages were fetched more often than the others."""
    spec = msgspec.structs.replace(small(importance="equal", restless=0.2), rounds=80.0)
    world = draw(spec, 1)
    policy = make("ncis", world)
    fetches = np.zeros(len(world))
    settle = policy.record_outcome

    def note(page: int, now: float, changed: bool) -> None:
        fetches[page] += 1
        settle(page, now, changed)

    policy.record_outcome = note  # type: ignore[method-assign]
    play(world, policy)
    restless = world.rates == world.spec.rate
    assert restless.sum() >= 10
    assert fetches[restless].mean() < 0.75 * fetches[~restless].mean()


def test_uniform_is_the_shipped_uniform() -> None:
    world = draw(small(), 1)
    assert played(UNIFORM, world).freshness == pytest.approx(played("uniform", world).freshness, abs=0.02)


def test_true_parameters_gain_over_uniform() -> None:
    rows = gains.gains(
        "day-1x",
        {name: [played(name, draw(WORLDS["day-1x"], seed)) for seed in SEEDS] for name in (UNIFORM, TRUE)},
    )
    assert [row.gain for row in rows] == [0.0, 1.0]
    assert rows[1].difference > 3.0 * rows[1].difference_error > 0.0
    assert not rows[0].loses and rows[0].falls_short(0.9) and not rows[1].falls_short(0.9)


def test_a_gain_below_the_aim_is_accepted_at_the_reference() -> None:
    def runs(*freshness: float) -> list[WorldRun]:
        return [WorldRun(freshness=each, fetches=1, idle=0, largest=1.0, span=1.0) for each in freshness]

    found = {UNIFORM: runs(0.0, 0.0, 0.0), TRUE: runs(1.0, 1.0, 1.0), BAYES: runs(0.8, 0.7, 0.75)}
    for fresh, verdict in (
        ((0.9, 0.92, 0.94), "met"),
        ((0.85, 0.89, 0.93), "met within its error"),
        ((0.79, 0.70, 0.74), "at the reference"),
        ((0.70, 0.60, 0.66), "below the reference"),
    ):
        found["ncis"] = runs(*fresh)
        row = gains.gains("small", found)[-1]
        assert gains.verdict(row, 0.9, gains.lag(found, "ncis", BAYES)) == verdict
    assert gains.verdict(row, 0.9, None) == "not met"
    assert gains.lag(found, "ncis", BAYES).gain == pytest.approx(0.75 - 1.96 / 3.0)


def test_with_few_fetches_per_change_the_schedule_is_as_good_as_the_reference() -> None:
    """The schedule also values what a fetch teaches, but the reference does not."""
    names = (UNIFORM, TRUE, BAYES, "ncis")
    runs = {name: [played(name, draw(WORLDS["day-0.1x"], seed)) for seed in (4, 6)] for name in names}
    assert gains.lag(runs, "ncis", BAYES).gain < 0.01


def test_the_bayesian_reference_is_the_true_schedule_where_all_rates_are_known() -> None:
    """If all rates of a host are equal, their distribution says all that is to know."""
    hosts = (HostKind(100, DAY, spread=0.0), HostKind(100, 10 * DAY, spread=0.0))
    runs = [played(name, draw(WorldSpec("known", hosts, rounds=40.0), 2)) for name in (UNIFORM, TRUE, BAYES)]
    uniform, true, bayes = (run.freshness for run in runs)
    assert bayes == pytest.approx(true, abs=0.1 * (true - uniform))


@pytest.mark.parametrize("restless", [0.0, 0.25])
def test_the_bayesian_reference_takes_the_page_with_the_greatest_value(restless: float) -> None:
    """`claim_next` skips pages whose bound is too low. The result is the same as if all values were computed."""
    world = draw(small(restless=restless), 5)
    policy = Bayes(world)
    for page in range(len(world)):
        policy.add(page, 600.0 * page)
    rng = np.random.default_rng(3)
    for now in np.cumsum(rng.exponential(900.0, 600)) + 1e5:
        page = policy.claim_next(now)
        assert page == policy._values(np.arange(len(world)), now)[0].argmax()
        policy.record_outcome(page, now, bool(rng.random() < 0.5))


def test_the_bayesian_reference_learns_rates() -> None:
    """After 50 intervals of a page, the mean of the posterior equals its integral over the log-normal prior."""
    world = draw(small(), 5)
    policy = Bayes(world)
    policy.add(0, 0.0)
    for step in range(1, 51):
        policy.record_outcome(0, step * 0.5 * DAY, step % 5 == 0)
    rate = np.exp(np.linspace(-5.0, 4.0, 20_001)) / DAY
    prior = np.exp(-0.5 * (np.log(rate * DAY) + 0.5) ** 2)
    posterior = prior * np.exp(-20 * DAY * rate) * -(np.expm1(-0.5 * DAY * rate) ** 10)
    assert policy._chances[0] @ policy._rates[0] == pytest.approx(
        (posterior * rate).sum() / posterior.sum(), rel=0.05
    )


def test_the_bayesian_reference_learns_which_pages_are_restless() -> None:
    """After eight changes, the odds are those of the prior, divided by an integral over the log-normal prior.

    If a page is found unchanged, it is not restless, and all crawls show its rate.
    """
    restless, other = draw(small(restless=0.1), 5), draw(small(), 5)
    policy, plain = Bayes(restless), Bayes(other)
    for each in (policy, plain):
        each.add(0, 0.0)
        for step in range(1, 9):
            each.record_outcome(0, step * 0.5 * DAY, True)
    rate = np.exp(np.linspace(-5.0, 5.0, 20_001))
    prior = np.exp(-0.5 * (np.log(rate) + 0.5) ** 2)
    likelihood = (prior * (-np.expm1(-0.5 * rate)) ** 8).sum() / prior.sum()
    now, page = 4.5 * DAY, np.array([0])
    steady = policy._values(page, now)[0] / restless.importance[0]
    steady /= plain._values(page, now)[0] / other.importance[0]
    assert steady == pytest.approx(0.9 * likelihood / (0.1 + 0.9 * likelihood), rel=0.05)
    for each in (policy, plain):
        each.record_outcome(0, now, False)
    later = now + DAY
    assert policy._values(page, later)[0] / restless.importance[0] == pytest.approx(
        plain._values(page, later)[0] / other.importance[0]
    )


def test_the_gamma_prior_of_the_reference_is_conjugate() -> None:
    """With this prior, the rate of a page without a change in the time t has the mean 1 / (days + t)."""
    policy = make(BAYES_GAMMA, draw(small(), 5))
    assert isinstance(policy, Bayes)
    policy.add(0, 0.0)
    for days in (0.0, 0.5, 1.0):
        policy.record_outcome(0, days * DAY, False)
        mean = policy._chances[0] @ policy._rates[0] * DAY
        assert mean == pytest.approx(1.0 / (1.0 + days), rel=0.05)


# Apart from the unit of time, these worlds equal day-1x and year-1x, which are played.
EQUAL = {"hour-1x", "month-1x"}


@pytest.mark.parametrize("name", [name for name in QUICK if name not in EQUAL])
def test_learning_never_loses_to_uniform(name: str) -> None:
    """A learning schedule never scores lower than uniform by more than twice the error of the difference."""
    spec = msgspec.structs.replace(WORLDS[name], rounds=min(WORLDS[name].rounds, 25.0))
    uniform, learned = (
        [played(policy, draw(spec, seed)) for seed in SEEDS[:3]] for policy in (UNIFORM, "ncis")
    )
    # the runs of `TRUE` only scale the gain, which is not judged here
    row = gains.gains(name, {UNIFORM: uniform, TRUE: learned, "ncis": learned})[-1]
    assert not row.loses, f"{row.difference:+.4f} +- {row.difference_error:.4f}"


# -- calibration


def test_true_parameters_are_calibrated() -> None:
    """For Poisson changes at known rates, each decile of the calibration table is within 0.03 of the prediction."""
    spec = msgspec.structs.replace(WORLDS["day-1x"], rounds=20.0)
    sums = np.concatenate([judged(TRUE, draw(spec, seed)) for seed in SEEDS[:2]])
    rows = calibration.deciles(sums)
    said = [row for row in rows if row.kind == "said" and row.copies >= 200]
    assert len(said) >= 8
    assert calibration.worst(rows, "said") == max(abs(row.off) for row in said) < 0.03
    assert calibration.table(sums).count("\n") == len(rows) + 2
    assert calibration.beyond_aim(rows, "said") == 0


def test_calibration_exposes_overconfidence() -> None:
    class Sure:
        def fresh(self, page: int, now: float) -> tuple[float, float]:
            return (0.95, 0.05) if page else (float("nan"), float("nan"))

    seen = calibration.Calibration(Sure().fresh, [[1.0], [1.0], []], np.zeros(3, int), 0.0, 4.0)
    for now in (0.0, 2.0):
        seen.sample([0, 0, 0], now)
    rows = calibration.deciles(seen.sums)
    assert [(row.kind, row.decile, row.copies, row.true) for row in rows] == [
        ("said", 9, 4, 0.75),
        ("told", 0, 4, 0.75),
    ]
    assert np.isnan([row.error for row in rows]).all(), "one site shows no variation between sites"


def test_the_error_by_chance_is_that_of_calibrated_predictions() -> None:
    """Each site is current or stale as a whole, with the stated probability. `chance` states the errors that occur."""
    rng = np.random.default_rng(4)
    stated, copies = rng.uniform(0.1, 0.9, (30, 400)), rng.integers(1, 20, (30, 400))
    worst, predicted, beyond = [], [], 0
    for number in range(80):
        sums = np.zeros((400, 2, calibration.DECILES, 3))
        row, size = stated[number % 30], copies[number % 30]
        current = rng.random(400) < row
        sums[np.arange(400), 1, (10 * row).astype(int)] = np.stack([size, size * row, size * current], axis=1)
        rows = calibration.deciles(sums)
        worst.append(calibration.worst(rows, "told"))
        predicted.append(calibration.chance(sums, "told"))
        beyond += calibration.beyond_aim(rows, "told")
    mean, most = np.mean(predicted, axis=0)
    assert mean == pytest.approx(np.mean(worst), rel=0.15)
    assert 0.85 < np.mean(np.array(worst) < most) <= 1.0
    assert beyond < 0.05 * 80 * 8


def test_a_wrong_prediction_is_beyond_the_aim() -> None:
    """All deciles are off by .2 on sites that agree, so the error by chance is small."""
    sums = np.zeros((40, 2, calibration.DECILES, 3))
    for decile in range(4, 9):
        sums[:, 1, decile] = (100.0, 10.0 * decile + 5.0, 10.0 * decile - 15.0)
        sums[::2, 1, decile, 2] += 2.0
    rows = calibration.deciles(sums)
    assert calibration.worst(rows, "told") == pytest.approx(0.19)
    assert calibration.chance(sums, "told")[1] < 0.01
    assert calibration.beyond_aim(rows, "told") == 5
