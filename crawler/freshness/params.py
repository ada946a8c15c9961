"""The parameters of pages in the refresh model: those of one page, and those of many pages as arrays.

A page is described by four numbers. All other parameters follow from these (Busa-Fekete et al., section 3):

    importance   mu      requests per time, or any weight; only ratios matter
    change_rate  Delta   Poisson rate of content changes
    recall       lambda  probability that a change emits a change-indicating signal
    false_rate   nu      Poisson rate of signals without a change

    silent_rate   = (1 - lambda) Delta      changes without a signal
    signal_rate   = lambda Delta + nu       all signals; this rate is observed
    precision     = lambda Delta / gamma    share of signals that are true
    signal_weight = -ln(nu / gamma)         staleness that one signal adds: 0 worthless, inf certain
    signal_time   = signal_weight / silent_rate
                                            time without signals that makes a page as stale as one signal does
    ceiling       = mu / Delta              upper bound of the page's crawl value

Any unit of time may be used, but all rates must use the same unit. A page with change_rate 0 never changes.
The ceiling of a page that never changes is infinite, and its crawl value is 0.

Rates that are nan, negative or infinite, and shares outside of 0 .. 1, raise a
ValueError that names the parameter.
"""

import math
import sys
from collections.abc import Iterable

import msgspec
import numpy as np


def _refuse_rates(
    importance: np.ndarray | float,
    change_rate: np.ndarray | float,
    recall: np.ndarray | float,
    false_rate: np.ndarray | float,
) -> None:
    """Raise ValueError if a number, or any number in an array, is outside the range that the model allows."""
    for name, rates in (("importance", importance), ("change_rate", change_rate), ("false_rate", false_rate)):
        _refuse(name, rates, "from 0, and finite", 0.0, sys.float_info.max)
    _refuse("recall", recall, "from 0 to 1", 0.0, 1.0)


def _refuse_precision(precision: np.ndarray | float) -> None:
    _refuse("precision", precision, "above 0, to 1", sys.float_info.min, 1.0)


def _refuse(name: str, values: np.ndarray | float, wanted: str, low: float, high: float) -> None:
    if isinstance(values, np.ndarray):
        right = (values >= low) & (values <= high)
        if not right.all():
            index = int(np.argmin(right))
            raise ValueError(f"{name} of page {index} is {values[index]}: it must be {wanted}")
    elif not low <= values <= high:
        raise ValueError(f"{name} is {values}: it must be {wanted}")


class PageParameters(msgspec.Struct, frozen=True, gc=False):
    """The parameters of one page."""

    importance: float
    change_rate: float
    recall: float = 0.0
    false_rate: float = 0.0

    def __post_init__(self) -> None:
        _refuse_rates(self.importance, self.change_rate, self.recall, self.false_rate)

    @property
    def silent_rate(self) -> float:
        return (1.0 - self.recall) * self.change_rate

    @property
    def signal_rate(self) -> float:
        return self.recall * self.change_rate + self.false_rate

    @property
    def precision(self) -> float:
        """The share of the signals that are true; 0 if there are no signals."""
        return self.recall * self.change_rate / self.signal_rate if self.signal_rate > 0.0 else 0.0

    @property
    def signal_weight(self) -> float:
        if self.recall * self.change_rate == 0.0:
            return 0.0
        return (
            math.log1p(self.recall * self.change_rate / self.false_rate)
            if self.false_rate > 0.0
            else math.inf
        )

    @property
    def signal_time(self) -> float:
        """beta = b / alpha; 0 if signals are worthless; infinite if no signal is false or each change has a signal."""
        if self.signal_weight == 0.0:
            return 0.0
        return self.signal_weight / self.silent_rate if self.silent_rate > 0.0 else math.inf

    @property
    def ceiling(self) -> float:
        return self.importance / self.change_rate if self.change_rate > 0.0 else math.inf

    def freshness(self, elapsed: float, signals: int) -> float:
        """Return P[the copy is fresh | last crawl `elapsed` ago, `signals` since] (Busa-Fekete et al., Eq. 1)."""
        staleness = self.silent_rate * elapsed + (signals * self.signal_weight if signals else 0.0)
        return math.exp(-staleness)


class Pages:
    """The parameters of m pages. Each attribute is a separate float64 array of shape (m,).

    The arguments are copied, and derived arrays are computed once. Compiled kernels read these arrays, so the
    attributes must not be replaced.
    """

    __slots__ = (
        "ceiling",
        "change_rate",
        "false_rate",
        "importance",
        "recall",
        "signal_rate",
        "signal_weight",
        "silent_rate",
    )

    def __init__(
        self,
        importance: np.ndarray,
        change_rate: np.ndarray,
        recall: np.ndarray | float = 0.0,
        false_rate: np.ndarray | float = 0.0,
    ) -> None:
        self.importance = np.array(importance, dtype=np.float64)
        shape = self.importance.shape
        self.change_rate = np.array(np.broadcast_to(change_rate, shape), dtype=np.float64)
        self.recall = np.array(np.broadcast_to(recall, shape), dtype=np.float64)
        self.false_rate = np.array(np.broadcast_to(false_rate, shape), dtype=np.float64)
        signalled = self.recall * self.change_rate
        _refuse_rates(self.importance, self.change_rate, self.recall, self.false_rate)
        self.silent_rate = (1.0 - self.recall) * self.change_rate
        self.signal_rate = signalled + self.false_rate
        with np.errstate(divide="ignore", invalid="ignore"):
            weight = np.log1p(signalled / self.false_rate)
            self.ceiling = self.importance / self.change_rate
        self.signal_weight = np.where(signalled > 0.0, weight, 0.0)

    @classmethod
    def of(cls, pages: Iterable[PageParameters]) -> "Pages":
        rows = [(page.importance, page.change_rate, page.recall, page.false_rate) for page in pages]
        return cls(*np.array(rows, dtype=np.float64).reshape(-1, 4).T)

    @classmethod
    def from_quality(
        cls, importance: np.ndarray, change_rate: np.ndarray, precision: np.ndarray, recall: np.ndarray
    ) -> "Pages":
        """Return pages whose signals have this `precision`, in (0, 1], and `recall`, in [0, 1].

        A page with recall 0 has no signals.
        """
        _refuse_precision(precision)
        return cls(importance, change_rate, recall, recall * change_rate * (1.0 - precision) / precision)

    @property
    def precision(self) -> np.ndarray:
        signalled = self.recall * self.change_rate
        return np.divide(
            signalled, self.signal_rate, out=np.zeros_like(signalled), where=self.signal_rate > 0.0
        )

    def __len__(self) -> int:
        return len(self.importance)

    def __getitem__(self, index: int) -> PageParameters:
        return PageParameters(
            float(self.importance[index]),
            float(self.change_rate[index]),
            float(self.recall[index]),
            float(self.false_rate[index]),
        )

    def select(self, index: np.ndarray) -> "Pages":
        """Return the pages that an array of indexes or a mask selects."""
        return Pages(
            self.importance[index], self.change_rate[index], self.recall[index], self.false_rate[index]
        )

    def __repr__(self) -> str:
        return f"Pages({len(self)} pages, total change rate {self.change_rate.sum():.4g})"
