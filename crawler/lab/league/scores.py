"""Computes the scores of the league and their standard errors, by a jackknife over sites.

The scores of two policies are compared site by site.

A score is a ratio of sums over sites: the weighted page time in which copies were current, divided by page
time. For each of the S sites, the score t_s is the score of all sites except site s. The standard error of
the score is computed from the S scores t_s:

    error^2 = (S - 1)/S sum (t_s - mean t)^2                     (Quenouille 1956; Tukey 1958)

The sample is the set of sites, so the error shows how much the score could differ for other sites. The scores
of two policies are results for the same sites, so the error of their difference is computed from the
differences t_s - t'_s. The error of the difference is much smaller than the errors of the two scores.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from crawler.lab.league.world import GameResult, World


class Game(msgspec.Struct, frozen=True):
    """The result of a policy in an arm with a budget.

    `there` and `current` have one number per site. `there` is the time for which the pages of the site
    existed, and `current` is the time for which their copies were current. Both weight each page by its
    importance.
    """

    arm: str
    policy: str
    budget: float
    current: np.ndarray
    there: np.ndarray
    fetches: int
    changed: int
    gone: int
    idle: int

    @property
    def score(self) -> float:
        return float(self.current.sum() / self.there.sum())

    def without(self) -> np.ndarray:
        """For each site, return the score that results from all other sites, (sites,)."""
        there = self.there.sum() - self.there
        return np.divide(
            self.current.sum() - self.current, there, out=np.full(len(there), self.score), where=there > 0.0
        )


def game_of(arm: str, policy: str, budget: float, world: World, result: GameResult) -> Game:
    """Return the result of a policy, summed by site."""
    counts = (result.fetches, result.changed, result.gone, result.idle)
    return Game(arm, policy, budget, *result.by_site(world), *counts)


def undecided(games: Iterable[Game]) -> list[tuple[str, float, int]]:
    """Return (arm, budget, maximum number of fetches per game) for the comparisons in which all scores are equal.

    The scores are equal if there are very few fetches or changes.
    """
    met: dict[tuple[str, float], list[Game]] = {}
    for game in games:
        met.setdefault((game.arm, game.budget), []).append(game)
    return [
        (arm, budget, max(game.fetches for game in several))
        for (arm, budget), several in met.items()
        if len(several) > 1 and all(np.array_equal(game.current, several[0].current) for game in several)
    ]


def error_of(without: np.ndarray) -> float:
    """Compute the jackknife standard error from the values that leave out one site each; nan for a single site."""
    count = len(without)
    if count < 2:
        return math.nan
    return math.sqrt((count - 1) / count * float(((without - without.mean()) ** 2).sum()))


class Row(msgspec.Struct, frozen=True):
    """A line of the table. `difference` is the score minus that of the first policy with the same arm and budget."""

    arm: str
    policy: str
    budget: float
    score: float
    error: float
    difference: float
    difference_error: float
    fetches: int
    changed: int
    gone: int
    idle: int


def rows_of(games: Sequence[Game]) -> list[Row]:
    """Return one row per game, in the order of the games.

    Each game is compared with the first policy of its arm and budget.
    """
    first: dict[tuple[str, float], Game] = {}
    rows = []
    for game in games:
        base = first.setdefault((game.arm, game.budget), game)
        score = (game.score, error_of(game.without()))
        difference = (game.score - base.score, error_of(game.without() - base.without()))
        counts = (game.fetches, game.changed, game.gone, game.idle)
        rows.append(Row(game.arm, game.policy, game.budget, *score, *difference, *counts))
    return rows


def by_place(rows: Sequence[Row]) -> Mapping[tuple[str, str, float], Row]:
    return {(row.arm, row.policy, row.budget): row for row in rows}


def tables(
    rows: Sequence[Row], policies: Sequence[str], arms: Sequence[str], budgets: Sequence[float]
) -> str:
    """Return a block of text per arm.

    For each budget, a line shows the score of a policy and its error. The differences between policies
    follow.
    """
    found = by_place(rows)
    width = max(map(len, policies)) + 2
    lines = []
    for arm in arms:
        first = policies[0]
        heads = "".join(f"{f'{budget:g}x':>8} {'error':>6}" for budget in budgets)
        lines.append(f"{arm:<{width}}{heads}   minus {first}")
        for policy in policies:
            places = [found[arm, policy, budget] for budget in budgets]
            cells = "".join(f"{row.score:8.3f} {_error(row.error)}" for row in places)
            more = "".join(f" {row.difference:+.3f}" for row in places) if policy != first else ""
            lines.append(f"{policy:<{width}}{cells}  {more}")
        lines.append("")
    return "\n".join(lines)


def _error(error: float) -> str:
    return "     -" if math.isnan(error) else f"{error:6.3f}"
