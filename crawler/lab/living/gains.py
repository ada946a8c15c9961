"""Computes the gains of policies over uniform refreshing and the errors of the gains, and prints both as a table.

    gain = (policy - uniform) / (true - uniform)

`true` is NCIS with the world's own parameters. All policies are measured on the same worlds, one for each
seed, so their gains can be compared seed by seed. The gain is a ratio of means over the seeds. The error of
the gain is computed by a jackknife over seeds.
"""

import math
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from crawler.lab.league.scores import error_of
from crawler.lab.living.playing import TRUE, UNIFORM, WorldRun

# the gain of a policy may be below that of uniform, or below the aim, by this many standard errors
ERRORS = 2.0


class Gain(msgspec.Struct, frozen=True):
    """The gain of a policy in a world. If only one seed was played, the errors are nan.

    possible: freshness of `true` minus freshness of uniform. difference: freshness of the policy minus freshness of
    uniform.
    largest, span: the means over seeds of these fields of `WorldRun`.
    """

    world: str
    policy: str
    freshness: float
    possible: float
    difference: float
    difference_error: float
    gain: float
    gain_error: float
    largest: float
    span: float
    fetches: float
    idle: float

    @property
    def loses(self) -> bool:
        """True if the difference from uniform is negative, by more than twice its error."""
        return self.difference < -ERRORS * _known(self.difference_error)

    def falls_short(self, aim: float) -> bool:
        """Return whether the gain is below the aim by more than twice its error."""
        return self.gain < aim - ERRORS * _known(self.gain_error)


class Lag(msgspec.Struct, frozen=True):
    """The gain of a reference minus the gain of a policy, and the standard error of this difference."""

    gain: float
    error: float

    @property
    def behind(self) -> bool:
        """True if the policy is below the reference, by more than twice the error."""
        return self.gain > ERRORS * _known(self.error)


def gains(world: str, runs: Mapping[str, Sequence[WorldRun]]) -> list[Gain]:
    """Return one row per policy.

    `runs` maps the name of each policy to one run per seed. It must include `UNIFORM` and `TRUE`.
    """
    fresh = {name: np.array([run.freshness for run in several]) for name, several in runs.items()}
    possible = fresh[TRUE] - fresh[UNIFORM]
    rows = []
    for name, several in runs.items():
        more = fresh[name] - fresh[UNIFORM]
        rows.append(
            Gain(
                world=world,
                policy=name,
                freshness=float(fresh[name].mean()),
                possible=float(possible.mean()),
                difference=float(more.mean()),
                difference_error=error_of(_without(more)),
                gain=float(more.sum() / possible.sum()),
                gain_error=error_of(_without(more) / _without(possible)) if len(more) > 1 else math.nan,
                largest=_mean(run.largest for run in several),
                span=_mean(run.span for run in several),
                fetches=_mean(run.fetches for run in several),
                idle=_mean(run.idle for run in several),
            )
        )
    return rows


def lag(runs: Mapping[str, Sequence[WorldRun]], policy: str, reference: str) -> Lag:
    """Compare the gains of two policies in a world. `runs` has the same form as in `gains`."""
    fresh = {name: np.array([run.freshness for run in several]) for name, several in runs.items()}
    possible, less = fresh[TRUE] - fresh[UNIFORM], fresh[reference] - fresh[policy]
    error = error_of(_without(less) / _without(possible)) if len(less) > 1 else math.nan
    return Lag(float(less.sum() / possible.sum()), error)


def verdict(row: Gain, aim: float, behind: Lag | None) -> str:
    """Say whether the gain reaches the aim. `behind` is the lag behind a reference that must learn the rates, too."""
    if row.gain >= aim:
        return "met"
    if not row.falls_short(aim):
        return "met within its error"
    if behind is None:
        return "not met"
    return "below the reference" if behind.behind else "at the reference"


def table(rows: Sequence[Gain]) -> str:
    """Return a table with one line per row.

    A line holds freshness, difference from uniform, gain, errors, and the shares of the most fetched host.
    """
    width = max(map(len, (row.world for row in rows)), default=5) + 1
    own = max(map(len, (row.policy for row in rows)), default=6) + 1
    lines = [
        f"{'world':<{width}}{'policy':<{own}}{'fresh':>7}{'- unif':>8} {'error':>6}{'gain':>8} {'error':>6}"
        f"{'host':>6}{'span':>6}"
    ]
    for row in rows:
        mark = " LOSES" if row.loses else ""
        lines.append(
            f"{row.world:<{width}}{row.policy:<{own}}{row.freshness:7.4f}{row.difference:+8.4f} "
            f"{row.difference_error:6.4f}{row.gain:+8.3f} {row.gain_error:6.3f}{row.largest:6.2f}{row.span:6.2f}{mark}"
        )
    return "\n".join(lines)


def course_table(world: str, runs: Mapping[str, Sequence[WorldRun]]) -> str:
    """Return a table of the freshness of each policy in each twentieth of the counted time, in percent.

    A line has the means over the seeds. `runs` has the same form as in `gains`.
    """
    width = max(map(len, runs)) + 1
    lines = [f"{world}: freshness in each twentieth of the counted time, in percent"]
    for name, several in runs.items():
        mean = 100.0 * np.mean([run.course for run in several if run.course] or [(math.nan,)], axis=0)
        lines.append(f"{name:<{width}}" + "".join(f"{share:5.1f}" for share in mean))
    return "\n".join(lines)


def _without(values: np.ndarray) -> np.ndarray:
    """Return, for each value, the mean of the other values. Return a single value unchanged."""
    return (values.sum() - values) / (len(values) - 1) if len(values) > 1 else values


def _mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def _known(error: float) -> float:
    return 0.0 if math.isnan(error) else error
