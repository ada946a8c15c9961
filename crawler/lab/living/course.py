"""The course of a drawn world, besides changes and signals: eras, spells of hosts, births, pauses of the crawl.

A world is divided into *eras*. An era has its own rate of fetches, importances and true parameters; the first
era begins at 0. A *spell* is a time in which the pages of a host answer in another way:

    failing    with an error or not at all; the host then waits as `HostPoliteness` makes it wait
    refusing   with 429 and a Retry-After that ends with the spell
    slow       well, but the host must rest three times as long after an answer
    gone       with 404
    moved      with a redirect to a page of another host

A `Course` without contents is that of a stationary world.
"""

import math
from collections.abc import Sequence
from enum import Enum

import msgspec
import numpy as np

# The wait of a host after a failure; it doubles with each further failure (the defaults of `politeness`).
BACKOFF_FIRST, BACKOFF_MAX = 60.0, 14_400.0
SLOWER = 3.0


class SpellKind(Enum):
    """The answers of a host during a spell."""

    FAILING = "failing"
    REFUSING = "refusing"
    SLOW = "slow"
    GONE = "gone"
    MOVED = "moved"


class Era(msgspec.Struct, frozen=True):
    """The time from `at` to the next era: fetches per second, and the parameters of each page (n,)."""

    at: float
    rate: float
    importance: np.ndarray
    rates: np.ndarray
    recall: np.ndarray
    false_rate: np.ndarray


class Spell(msgspec.Struct, frozen=True):
    """A time in which a host answers in another way. `begin` is part of it, `end` is not."""

    site: int
    begin: float
    end: float
    kind: SpellKind

    def __contains__(self, now: float) -> bool:
        return self.begin <= now < self.end


class Course(msgspec.Struct, frozen=True):
    """The course of a world.

    eras: the eras after the first. A world without further eras keeps the parameters with which it was drawn.
    pauses: times (begin, end) in which the crawl is stopped.
    born: the instant of each page's birth (n,); empty if all pages exist from the start.
    died: the instant from which each page is gone (n,); empty if no page goes away for good.
    contents: for each page, the content after each number of changes. It is empty if every change makes a new content.
    alternating: whether the answers of each page alternate at random between two versions (n,); or empty.
    """

    eras: tuple[Era, ...] = ()
    spells: tuple[Spell, ...] = ()
    pauses: tuple[tuple[float, float], ...] = ()
    born: np.ndarray = np.zeros(0)
    died: np.ndarray = np.zeros(0)
    contents: Sequence[Sequence[int]] = ()
    alternating: np.ndarray = np.zeros(0, dtype=bool)

    def spell(self, site: int, now: float) -> Spell | None:
        return next((spell for spell in self.spells if spell.site == site and now in spell), None)

    def instants(self, rate: float, count: int) -> np.ndarray:
        """Return the instants of `count` fetches (n,), which begin at `rate` per second.

        During a pause, there is none. If the rate rises, the number of fetches rises, so that the time stays the same.
        """
        horizon = count / rate
        edges = [0.0, *(era.at for era in self.eras), horizon]
        parts = [
            begin + (np.arange(round((end - begin) * each)) + 0.5) / each
            for begin, end, each in zip(
                edges[:-1], edges[1:], [rate, *(era.rate for era in self.eras)], strict=True
            )
        ]
        found = np.concatenate(parts)
        for begin, end in self.pauses:
            found = found[(found < begin) | (found >= end)]
        return found


STATIONARY = Course()


class Waits:
    """The time for which each host must rest after its latest answer."""

    def __init__(self, sites: int, gap: float) -> None:
        self._gap = gap
        self._failures = [0] * sites

    def until(self, site: int, spell: Spell | None, now: float) -> float:
        """Record an answer; return the instant from which the host may be requested again."""
        kind = spell.kind if spell is not None else None
        if spell is not None and kind is SpellKind.REFUSING:
            return spell.end
        if kind is SpellKind.FAILING:
            self._failures[site] += 1
            return now + min(BACKOFF_FIRST * 2.0 ** min(self._failures[site] - 1, 60), BACKOFF_MAX)
        self._failures[site] = 0
        return now + self._gap * (SLOWER if kind is SpellKind.SLOW else 1.0)


def edges(begin: float, horizon: float, eras: Sequence[Era], spans: int) -> list[float]:
    """Return the instants that divide the time from `begin` to `horizon` into equal spans, and at the eras."""
    found = [
        *np.linspace(begin, horizon, spans + 1)[1:-1],
        *(era.at for era in eras if begin < era.at < horizon),
    ]
    return [*sorted(map(float, found)), math.inf]
