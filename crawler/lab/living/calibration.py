"""Calibration: for each decile of the stated probability that a copy is current, the share of copies that are current.

At instants spread over a run, an even sample of pages is drawn. For each page, there are two estimates of the
probability that its copy is current. `said` is the schedule's own estimate. `told` is the estimate that users
see, which `freshness/recalibration.py` corrects. The world knows whether each copy was current.

The method `fresh(page, now)` of a policy, such as `Shipped`, returns both estimates as (said, told). Both are
nan for an unknown page.
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
LEAST_SHARE = 0.01  # the search for the worst decile ignores deciles with less than this share of the copies


class Stating(Protocol):
    """A policy that states the probability that a copy is current."""

    def fresh(self, page: int, now: float) -> tuple[float, float]:
        """Return two estimates of P[the copy is current]: the schedule's own estimate, and the estimate for users."""


class Decile(msgspec.Struct, frozen=True):
    """Copies with about the same stated probability.

    `stated` is the mean of these probabilities, and `true` the share of the copies that were current.
    """

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
        """If a sample is due, compare stated probabilities with the truth.

        The copy of page k contains the first `seen[k]` changes of the page.
        """
        if now < self._next:
            return
        self._next += self._step
        for page in range(0, len(self._changes), max(1, len(self._changes) // SAMPLE)):
            stated = self._policy.fresh(page, now)
            if not stated[0] >= 0.0 or self._died is not None and now >= self._died[page]:
                continue
            current = bisect_right(self._changes[page], now, seen[page]) == seen[page]
            self.note(stated, current)

    def note(self, stated: tuple[float, float], current: bool) -> None:
        """Add a copy: its stated probabilities, and whether it was current."""
        for sums, fresh in zip(self.sums, stated, strict=True):
            sums[min(int(DECILES * fresh), DECILES - 1)] += (1.0, fresh, current)


def deciles(sums: Iterable[np.ndarray]) -> list[Decile]:
    """Combine the sums of several runs into one list of deciles, without empty deciles."""
    whole = np.sum(list(sums), axis=0)
    return [
        Decile(kind, number, int(n), stated / n, true / n)
        for kind, rows in zip(KINDS, whole, strict=True)
        for number, (n, stated, true) in enumerate(rows.tolist())
        if n
    ]


def worst(rows: Iterable[Decile], kind: str) -> float:
    """Return the largest error of a decile; 0 if there are no deciles.

    Deciles with less than a hundredth of the copies are ignored.
    """
    own = [row for row in rows if row.kind == kind]
    least = LEAST_SHARE * sum(row.copies for row in own)
    return max((abs(row.off) for row in own if row.copies >= least), default=0.0)


def table(rows: Iterable[Decile]) -> str:
    """Return a table with a line per decile, followed by the worst difference of each kind of estimate."""
    rows = list(rows)
    lines = [f"{'stated by':<10} {'decile':>6} {'copies':>9} {'stated':>7} {'true':>7} {'off':>7}"]
    lines += [
        f"{row.kind:<10} {row.decile:6} {row.copies:9,} {row.stated:7.3f} {row.true:7.3f} {row.off:+7.3f}"
        for row in rows
    ]
    lines += [f"{kind:<10} worst decile off by {worst(rows, kind):.3f}" for kind in KINDS]
    return "\n".join(lines)
