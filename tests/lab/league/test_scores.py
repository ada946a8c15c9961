"""Test the jackknife and the tables of scores."""

import math

import numpy as np
import pytest

from crawler.lab.league import scores
from crawler.lab.league.scores import Game, error_of, rows_of, tables


def _game(current: list[float], there: list[float], policy: str = "a", budget: float = 1.0) -> Game:
    return Game("none", policy, budget, np.array(current), np.array(there), 10, 5, 1, 0)


def test_the_jackknife_of_equal_sites_is_the_error_of_the_mean() -> None:
    """For a mean, the error by the jackknife is exactly s/sqrt(n) (Efron and Stein 1981)."""
    values = np.random.default_rng(1).random(35)
    game = _game(values.tolist(), [1.0] * 35)
    assert game.score == pytest.approx(values.mean())
    assert error_of(game.without()) == pytest.approx(values.std(ddof=1) / math.sqrt(35))


def test_the_jackknife_of_a_ratio_computed_by_hand() -> None:
    """The sites score 1 of 2, 3 of 4 and 0 of 1.

    If one site at a time is left out, the scores are 3/5, 1/3 and 4/6.
    """
    game = _game([1.0, 3.0, 0.0], [2.0, 4.0, 1.0])
    left = [3 / 5, 1 / 3, 4 / 6]
    assert game.score == pytest.approx(4 / 7)
    assert game.without().tolist() == pytest.approx(left)
    mean = sum(left) / 3
    assert error_of(game.without()) == pytest.approx(math.sqrt(2 / 3 * sum((t - mean) ** 2 for t in left)))


def test_the_jackknife_agrees_with_the_spread_of_many_draws() -> None:
    """Over 300 draws of 40 sites, the mean of the estimated error is within 15 % of the spread of the scores."""
    rng = np.random.default_rng(2)
    found, errors = [], []
    for _ in range(300):
        there = rng.uniform(1.0, 3.0, 40)
        game = _game((there * rng.beta(4.0, 2.0, 40)).tolist(), there.tolist())
        found.append(game.score)
        errors.append(error_of(game.without()))
    assert np.mean(errors) == pytest.approx(np.std(found), rel=0.15)


def test_policies_are_paired() -> None:
    """If one policy scores 0.01 more than another on every site, the difference has no error, even if sites vary."""
    values = np.random.default_rng(3).random(20) * 0.9
    games = [_game(values.tolist(), [1.0] * 20), _game((values + 0.01).tolist(), [1.0] * 20, "b")]
    rows = rows_of(games)
    assert rows[0].difference == rows[0].difference_error == 0.0
    assert rows[1].difference == pytest.approx(0.01)
    assert rows[1].difference_error == pytest.approx(0.0, abs=1e-12)
    assert rows[1].error == pytest.approx(rows[0].error) and rows[0].error > 0.01


def test_a_single_site_has_no_error() -> None:
    rows = rows_of([_game([1.0], [2.0])])
    assert math.isnan(rows[0].error)
    assert "-" in tables(rows, ["a"], ["none"], [1.0])


def test_the_table_has_a_line_per_policy() -> None:
    games = [
        _game([1.0, 2.0], [2.0, 3.0], policy, budget) for policy in ("a", "longer") for budget in (1.0, 0.3)
    ]
    lines = tables(rows_of(games), ["a", "longer"], ["none"], [1.0, 0.3]).splitlines()
    assert lines[0].split() == ["none", "1x", "error", "0.3x", "error", "minus", "a"]
    assert [line.split()[0] for line in lines[1:3]] == ["a", "longer"]
    assert lines[2].split()[1:] == ["0.600", "0.083", "0.600", "0.083", "+0.000", "+0.000"]
    assert scores.Row.__struct_fields__[:3] == ("arm", "policy", "budget")
