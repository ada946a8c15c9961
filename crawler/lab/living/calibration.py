"""Calibration: statements about copies against the truth, by decile of the statement.

At instants spread over a run, an even sample of pages is asked how likely their copies
are current: by the schedule (`said`), and as people are told, after the correction of
`freshness/recalibration.py` (`told`). The world knows whether each copy was.

A policy says it by `fresh(page, now) -> (said, told)`, nan of a page that it does not know: `Shipped` does.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec
import numpy as np

DECILES = 10
LOOKS = 40  # instants of a run
SAMPLE = 500  # pages looked at in an instant
KINDS = ("said", "told")
LEAST_SHARE = 0.01  # of the copies, which a decile must have to count as the worst


class Stating(Protocol):
    """A policy that says how likely copies are current."""

    def fresh(self, page: int, now: float) -> tuple[float, float]:
        """The probability that the page's copy is current: as the schedule says, and as people are told."""


class Decile(msgspec.Struct, frozen=True):
    """Copies of which about the same was stated: the mean of it, and the share that was current."""

    kind: str
    decile: int
    copies: int
    stated: float
    true: float

    @property
    def off(self) -> float:
        return self.stated - self.true


class Calibration:
    """Asks a policy of a run what it says, and keeps sums by decile.

    Args:
        changes: the sorted instants of change of each page.
        begin, end: looks are spread evenly between these instants.
        died: when each page is gone; None: never.
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
        self.sums = np.zeros((len(KINDS), DECILES, 3))  # copies, sum of what was stated, copies current

    def sample(self, seen: Sequence[int], now: float) -> None:
        """Compare statements and truth, if it is time; `seen[k]` changes of page k are in its copy."""
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
    """The sums of several runs in one table; deciles that nothing was said in are left out."""
    whole = np.sum(list(sums), axis=0)
    return [
        Decile(kind, number, int(n), stated / n, true / n)
        for kind, rows in zip(KINDS, whole, strict=True)
        for number, (n, stated, true) in enumerate(rows.tolist())
        if n
    ]


def worst(rows: Iterable[Decile], kind: str) -> float:
    """The greatest difference of a decile that has at least a hundredth of the copies; 0 without any."""
    own = [row for row in rows if row.kind == kind]
    least = LEAST_SHARE * sum(row.copies for row in own)
    return max((abs(row.off) for row in own if row.copies >= least), default=0.0)


def table(rows: Iterable[Decile]) -> str:
    """A line a decile: copies, what was stated, what was true, the difference; then the greatest of these."""
    rows = list(rows)
    lines = [f"{'stated by':<10} {'decile':>6} {'copies':>9} {'stated':>7} {'true':>7} {'off':>7}"]
    lines += [
        f"{row.kind:<10} {row.decile:6} {row.copies:9,} {row.stated:7.3f} {row.true:7.3f} {row.off:+7.3f}"
        for row in rows
    ]
    lines += [f"{kind:<10} worst decile off by {worst(rows, kind):.3f}" for kind in KINDS]
    return "\n".join(lines)
