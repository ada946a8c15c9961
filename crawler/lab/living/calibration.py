"""Calibration: compares stated probabilities that copies are current with the truth, by decile of the probability.

At instants spread over a run, an even sample of pages is drawn. For each page, there are two statements of
the probability that its copy is current: the schedule's own estimate (`said`), and the estimate that users
see (`told`), which is corrected by `freshness/recalibration.py`. The world knows whether each copy was
current.

A policy states both with the method `fresh(page, now) -> (said, told)`, which `Shipped` has; they are nan for
an unknown page.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec
import numpy as np

DECILES = 10
LOOKS = 40  # samples per run
SAMPLE = 500  # pages per sample
KINDS = ("said", "told")
LEAST_SHARE = 0.01  # a decile with a smaller share of the copies is ignored in the search for the worst


class Stating(Protocol):
    """A policy that states how likely copies are current."""

    def fresh(self, page: int, now: float) -> tuple[float, float]:
        """Return two estimates of P[the copy is current]: the schedule's own, and the one for users."""


class Decile(msgspec.Struct, frozen=True):
    """Copies with about the same stated probability: the mean of the probabilities, and the share that was current."""

    kind: str
    decile: int
    copies: int
    stated: float
    true: float

    @property
    def off(self) -> float:
        return self.stated - self.true


class Calibration:
    """Samples the probabilities that a policy states during a run, and keeps sums by decile.

    Args:
        changes: the sorted change times of each page.
        begin, end: the samples are spread evenly between these instants.
        died: the time at which each page is deleted; None: never.
    """

    def __init__(
        self,
        policy: Stating,
        changes: Sequence[Sequence[float]],
        begin: float,
        end: float,
        died: np.ndarray | None = None,
    ) -> None:
        self._policy, self._changes, self._died = policy, changes, died
        self._next, self._step = begin, (end - begin) / LOOKS
        # for each decile: the number of copies, the sum of stated probabilities, the number of current copies
        self.sums = np.zeros((len(KINDS), DECILES, 3))

    def sample(self, seen: Sequence[int], now: float) -> None:
        """Compare stated probabilities with the truth if a sample is due; page k's copy has `seen[k]` changes."""
        if now < self._next:
            return
        self._next += self._step
        for page in range(0, len(self._changes), max(1, len(self._changes) // SAMPLE)):
            stated = self._policy.fresh(page, now)
            if not stated[0] >= 0.0 or self._died is not None and now >= self._died[page]:
                continue
            current = bisect_right(self._changes[page], now, seen[page]) == seen[page]
            for sums, fresh in zip(self.sums, stated, strict=True):
                sums[min(int(DECILES * fresh), DECILES - 1)] += (1.0, fresh, current)


def deciles(sums: Iterable[np.ndarray]) -> list[Decile]:
    """Combine the sums of several runs into one table, without empty deciles."""
    whole = np.sum(list(sums), axis=0)
    return [
        Decile(kind, number, int(n), stated / n, true / n)
        for kind, rows in zip(KINDS, whole, strict=True)
        for number, (n, stated, true) in enumerate(rows.tolist())
        if n
    ]


def worst(rows: Iterable[Decile], kind: str) -> float:
    """Return the largest error of a decile with at least a hundredth of the copies; 0 if there is no such decile."""
    own = [row for row in rows if row.kind == kind]
    least = LEAST_SHARE * sum(row.copies for row in own)
    return max((abs(row.off) for row in own if row.copies >= least), default=0.0)


def table(rows: Iterable[Decile]) -> str:
    """Return a line per decile (copies, stated probability, truth, difference), then each kind's worst difference."""
    rows = list(rows)
    lines = [f"{'stated by':<10} {'decile':>6} {'copies':>9} {'stated':>7} {'true':>7} {'off':>7}"]
    lines += [
        f"{row.kind:<10} {row.decile:6} {row.copies:9,} {row.stated:7.3f} {row.true:7.3f} {row.off:+7.3f}"
        for row in rows
    ]
    lines += [f"{kind:<10} worst decile off by {worst(rows, kind):.3f}" for kind in KINDS]
    return "\n".join(lines)
