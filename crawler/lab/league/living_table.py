"""Makes the table of the living league: scores with their errors, delays from birth to copy, fetches of hubs.

Errors are computed as in `scores.py`, by a jackknife over sites. Differences from the first policy are paired
by site.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from crawler.lab.league import scores
from crawler.lab.league.living import LivingResult
from crawler.lab.league.world import DAY


class LivingRow(msgspec.Struct, frozen=True):
    """A line of the table. `difference` is the score minus that of the first policy with the same rule and budget.

    hubs_fresh: the share of the hubs' time in which their copies were current. delay_*: days from the birth
    of a page to its first copy, for the fetched pages that were born after the warm-up. never: the share of all
    pages born after the warm-up that were never fetched. *_share: shares of the fetches.
    """

    rule: str
    policy: str
    budget: float
    score: float
    error: float
    difference: float
    difference_error: float
    hubs_fresh: float
    delay_median: float
    delay_p90: float
    delay_mean: float
    never: float
    hub_share: float
    new_share: float
    fetches: int


def rows_of(games: Sequence[tuple[scores.Game, LivingResult]]) -> list[LivingRow]:
    """Return one row per game, in the order of the games."""
    rows = []
    for (_, result), row in zip(games, scores.rows_of([game for game, _ in games]), strict=True):
        delays = result.delays / DAY if len(result.delays) else np.array([np.nan])
        rows.append(
            LivingRow(
                rule=row.arm,
                policy=row.policy,
                budget=row.budget,
                score=row.score,
                error=row.error,
                difference=row.difference,
                difference_error=row.difference_error,
                hubs_fresh=result.hubs_fresh,
                delay_median=float(np.median(delays)),
                delay_p90=float(np.quantile(delays, 0.9)),
                delay_mean=float(delays.mean()),
                never=1.0 - len(result.delays) / max(result.born, 1),
                hub_share=result.hub_fetches / max(row.fetches, 1),
                new_share=result.new_fetches / max(row.fetches, 1),
                fetches=row.fetches,
            )
        )
    return rows


def table(rows: Sequence[LivingRow]) -> str:
    """Return the table: a heading and one line per row."""
    width = max((len(row.policy) for row in rows), default=6) + 1
    lines = [
        f"{'hubs':<7}{'budget':>6} {'policy':<{width}}{'score':>6} {'error':>5} {'- first':>7} {'error':>5} "
        f"{'own':>5} {'p50':>5} {'p90':>5} {'mean':>5} {'never':>5} {'hubs':>5} {'new':>5}"
    ]
    for row in rows:
        lines.append(
            f"{row.rule:<7}{f'{row.budget:g}x':>6} {row.policy:<{width}}{row.score:6.3f} {row.error:5.3f} "
            f"{row.difference:+7.3f} {row.difference_error:5.3f} {row.hubs_fresh:5.3f} {row.delay_median:5.1f} "
            f"{row.delay_p90:5.0f} {row.delay_mean:5.1f} {row.never:5.3f} {row.hub_share:5.2f} {row.new_share:5.2f}"
        )
    return "\n".join(lines)
