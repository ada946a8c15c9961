"""Calibration: for each decile of the stated probability that a copy is current, the share of copies that are current.

At instants spread over a run, an even sample of pages is drawn. For each page, there are two estimates of the
probability that its copy is current. `said` is the schedule's own estimate. `told` is the estimate that users
see, which `freshness/recalibration.py` corrects. The world knows whether each copy was current.

A policy such as `Shipped` returns both estimates as (said, told); both are nan for an unknown page.

Even a perfectly calibrated policy shows errors, because a sample is finite and the pages of a site change
together. `chance` estimates the errors of a perfectly calibrated policy with a bootstrap over sites.

Source: Cameron, Gelbach and Miller, *Bootstrap-based improvements for inference with clustered errors* (Review
of Economics and Statistics 2008): the wild cluster bootstrap.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence

import msgspec
import numpy as np

DECILES = 10
LOOKS = 40  # samples per run
SAMPLE = 500  # pages per sample
KINDS = ("said", "told")
LEAST_SHARE = 0.01  # the search for the worst decile ignores deciles with less than this share of the copies
AIM = 0.03  # the error of a decile that the project accepts
DRAWINGS = 2000  # drawings of the bootstrap


class Decile(msgspec.Struct, frozen=True):
    """Copies with about the same stated probability.

    `stated` is the mean of these probabilities, and `true` the share of the copies that were current. `error` is
    the standard error of their difference (jackknife over sites); it is nan if all copies are of one site.
    """

    kind: str
    decile: int
    copies: int
    stated: float
    true: float
    error: float

    @property
    def off(self) -> float:
        return self.stated - self.true


class Calibration:
    """Samples the probabilities that a policy states during a run, and keeps sums by site and decile.

    Args:
        fresh: returns both estimates for a page and an instant.
        changes: the sorted change times of each page.
        site: the number of each page's site.
        begin, end: the samples are spread evenly between these instants.
        died: the time at which each page is deleted; None: never.
    """

    def __init__(
        self,
        fresh: Callable[[int, float], tuple[float, float]],
        changes: Sequence[Sequence[float]],
        site: np.ndarray,
        begin: float,
        end: float,
        died: np.ndarray | None = None,
    ) -> None:
        self._fresh, self._changes, self._died = fresh, changes, died
        self._site = site.tolist()
        self._next, self._step = begin, (end - begin) / LOOKS
        # for each site, kind and decile: the numbers of copies and of current copies, and the sum of stated probabilities
        self.sums = np.zeros((int(site.max()) + 1, len(KINDS), DECILES, 3))

    def sample(self, seen: Sequence[int], now: float) -> None:
        """If a sample is due, compare stated probabilities with the truth.

        The copy of page k contains the first `seen[k]` changes of the page.
        """
        if now < self._next:
            return
        self._next += self._step
        for page in range(0, len(self._changes), max(1, len(self._changes) // SAMPLE)):
            stated = self._fresh(page, now)
            if not stated[0] >= 0.0 or self._died is not None and now >= self._died[page]:
                continue
            current = bisect_right(self._changes[page], now, seen[page]) == seen[page]
            self.note(page, stated, current)

    def note(self, page: int, stated: tuple[float, float], current: bool) -> None:
        """Add a copy of a page: its stated probabilities, and whether it was current."""
        for sums, fresh in zip(self.sums[self._site[page]], stated, strict=True):
            sums[min(int(DECILES * fresh), DECILES - 1)] += (1.0, fresh, current)


def deciles(sums: np.ndarray) -> list[Decile]:
    """Return the deciles with at least one copy.

    `sums` has the same axes as `Calibration.sums`. The sums of several runs are added if the runs have the
    same sites, and concatenated otherwise.
    """
    found = []
    for kind, name in enumerate(KINDS[: sums.shape[1]]):
        whole, changes = sums[:, kind].sum(axis=0), _left_out(sums, kind)
        errors = np.sqrt((changes**2).sum(axis=0))
        for number, ((n, stated, true), error) in enumerate(
            zip(whole.tolist(), errors.tolist(), strict=True)
        ):
            if n:
                found.append(Decile(name, number, int(n), stated / n, true / n, error))
    return found


def _left_out(sums: np.ndarray, kind: int) -> np.ndarray:
    """Return the change of each decile's error if one site is left out: the terms of the jackknife, (sites, deciles).

    All entries of a decile are nan if its copies are of one site.
    """
    count, stated, true = np.moveaxis(sums[:, kind], -1, 0)
    whole = np.maximum(count.sum(axis=0), 1.0)
    others = np.where(count < whole, whole - count, np.nan)
    return np.asarray(((stated - true) - count * (stated - true).sum(axis=0) / whole) / others)


def worst(rows: Iterable[Decile], kind: str) -> float:
    """Return the largest error of a decile; 0 if there are no deciles.

    Deciles with less than a hundredth of the copies are ignored.
    """
    return max((abs(row.off) for row in _counted(rows, kind)), default=0.0)


def beyond_aim(rows: Iterable[Decile], kind: str) -> int:
    """Return the number of deciles whose error is more than two standard errors above `AIM`."""
    return sum(abs(row.off) > AIM + 2.0 * row.error for row in _counted(rows, kind))


def _counted(rows: Iterable[Decile], kind: str) -> list[Decile]:
    own = [row for row in rows if row.kind == kind]
    least = LEAST_SHARE * sum(row.copies for row in own)
    return [row for row in own if row.copies >= least]


def chance(sums: np.ndarray, kind: str) -> tuple[float, float]:
    """Return the worst decile that a perfectly calibrated policy would show: its mean and its 95th percentile.

    What the sites contribute to the errors gets random signs. Deciles with copies of only one site are left
    out; both results are nan if no other decile counts.
    """
    place = KINDS.index(kind)
    count, changes = sums[:, place, :, 0].sum(axis=0), _left_out(sums, place)
    known = (count >= max(LEAST_SHARE * count.sum(), 1.0)) & ~np.isnan(changes).any(axis=0)
    if not known.any():
        return math.nan, math.nan
    signs = np.random.default_rng(1).choice((-1.0, 1.0), (DRAWINGS, len(sums)))
    errors = np.abs(signs @ changes[:, known]).max(axis=1)
    return float(errors.mean()), float(np.quantile(errors, 0.95))


def table(sums: np.ndarray) -> str:
    """Return a table with a line per decile, followed by the worst error of each kind of estimate."""
    rows = deciles(sums)
    lines = [
        f"{'stated by':<10} {'decile':>6} {'copies':>9} {'stated':>7} {'true':>7} {'off':>7} {'error':>7}"
    ]
    lines += [
        f"{row.kind:<10} {row.decile:6} {row.copies:9,} {row.stated:7.3f} {row.true:7.3f} {row.off:+7.3f} "
        f"{row.error:7.3f}"
        for row in rows
    ]
    for kind in KINDS:
        mean, most = chance(sums, kind)
        lines.append(
            f"{kind:<10} worst decile off by {worst(rows, kind):.3f}, by chance alone {mean:.3f} (95 %: below "
            f"{most:.3f}); {beyond_aim(rows, kind)} off by more than {AIM} plus two errors"
        )
    return "\n".join(lines)
