"""Test the simulator on small instances: expected accuracies, and runs that differ from the model."""

import numpy as np
import pytest

from crawler.errors import UsageError
from crawler.lab.refresh.simulate import (
    ExperimentSetting,
    check_policy,
    corrupted,
    experiment,
    mean_and_error,
    real_world_pages,
    standard_pages,
)

SMALL = ExperimentSetting(bandwidth=((0.0, 5.0),), horizon=60.0, bins=20)


def _one(names: list[str], signals: str = "noisy", size: int = 20, **more: object) -> dict:
    setting = ExperimentSetting(bandwidth=((0.0, 5.0),), horizon=60.0, bins=20, **more)  # type: ignore[arg-type]
    return experiment(names, lambda rng: standard_pages(rng, size, signals), setting, 1, 7)[0]


def test_signal_free_policies_reach_the_continuous_optimum() -> None:
    found = _one(["baseline", "lds", "greedy", "azar", "random"], "none")
    base = found["baseline"].settled
    assert found["greedy"].settled == pytest.approx(base, abs=0.006)
    assert found["lds"].settled == pytest.approx(base, abs=0.006)
    assert found["random"].settled < found["azar"].settled - 0.02
    assert found["greedy"].rates.sum() == pytest.approx(5.0)


def test_ncis_is_cis_if_no_signal_is_false() -> None:
    """Both policies make the same choices, so their accuracies are equal to the last bit."""
    found = _one(["cis", "ncis", "cis-nu0"], "perfect")
    assert found["cis"].accuracy == found["ncis"].accuracy == found["cis-nu0"].accuracy


def test_without_signals_all_values_are_greedy() -> None:
    found = _one(["greedy", "cis", "ncis", "approx-1", "cis+"], "none")
    assert len({result.accuracy for result in found.values()}) == 1


def test_signals_help_and_greedy_comes_close_to_the_optimum() -> None:
    found = _one(["baseline", "optimum", "ncis"], size=10)
    assert found["ncis"].settled > found["baseline"].settled + 0.02
    assert found["ncis"].settled == pytest.approx(found["optimum"].settled, abs=0.06)


def test_bandwidth_can_change() -> None:
    setting = ExperimentSetting(bandwidth=((0.0, 2.0), (30.0, 8.0)), horizon=60.0, bins=20)
    ticks = setting.ticks()
    assert len(ticks) == 60 + 240 and ticks[0] == 0.5 and ticks[60] == 30.125
    found = experiment(["greedy", "baseline"], lambda rng: standard_pages(rng, 20, "none"), setting, 1, 7)[0]
    for result in found.values():
        assert result.by_bin[13:].mean() > result.by_bin[5:10].mean() + 0.1


def test_delayed_signals_hurt_a_little() -> None:
    prompt, late = _one(["ncis"]), _one(["ncis", "ncis-d"], delay=6.0)
    assert late["ncis"].settled < prompt["ncis"].settled
    assert late["ncis-d"].settled == pytest.approx(late["ncis"].settled, abs=0.05)


def test_corruption_mixes_noise_into_assumed_parameters() -> None:
    rng = np.random.default_rng(1)
    pages = real_world_pages(rng, 500)
    assert corrupted(rng, pages, 0.0) is pages
    believed = corrupted(rng, pages, 0.2)
    assert np.abs(believed.recall - pages.recall).max() <= 0.2
    assert believed.change_rate == pytest.approx(pages.change_rate)


def test_stand_in_for_the_public_data_set() -> None:
    pages = real_world_pages(np.random.default_rng(1), 20_000)
    assert np.median(pages.change_rate) == pytest.approx(0.1, rel=0.1)
    assert pages.change_rate.min() >= 0.0005 and pages.change_rate.max() <= 7.0
    good = pages.recall > np.quantile(pages.recall, 0.949)
    assert pages.importance[good].sum() / pages.importance.sum() == pytest.approx(0.264, abs=0.02)


def test_the_same_seed_gives_the_same_result() -> None:
    assert _one(["ncis"])["ncis"].accuracy == _one(["ncis"])["ncis"].accuracy


def test_names_are_checked() -> None:
    check_policy("approx-7")
    with pytest.raises(UsageError, match="'approx-0' is not one of baseline, "):
        check_policy("approx-0")


def test_mean_and_error() -> None:
    assert mean_and_error([1.0]) == (1.0, 0.0)
    assert mean_and_error([1.0, 3.0]) == (2.0, pytest.approx(1.0))
