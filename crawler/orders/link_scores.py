"""What URLs met lately are worth by all links to them, and which links say more than is known.

A link to a known URL is dropped by the URL cache. If it raises the URL's class by
`news` classes or more over what was passed on last, it is news and goes on all the same:

    link, score ─► worth = best score, or sum ─► class(worth) <= class told - news?  yes: news, told = worth

A table of 2^bits entries by fingerprint (16 bytes each), in which the latest link to another
URL takes an entry over: what it forgets is never raised by little sums, only by a link that
alone is better than what the queue has. The table is volatile, as the URL caches are.
"""

import numpy as np
from numpy.typing import NDArray

from crawler.orders.classes import LEAST, PER_OCTAVE

Fingerprints = NDArray[np.uint64]
Scores = NDArray[np.float64]


class LinkScores:
    """Worths of the URLs met last; `base` is the worth of each before its first link.

    Args:
        bits: 2^bits entries.
        adds: whether scores of several links add up, else the best one counts.
        news: classes that make a difference; 0: nothing is news.
    """

    def __init__(self, bits: int, *, adds: bool, base: float, news: int) -> None:
        self._mask = np.uint64((1 << bits) - 1)
        self._keys = np.zeros(1 << bits, np.uint64)
        self._worth = np.zeros(1 << bits, np.float32)
        self._told = np.zeros(1 << bits, np.float32)
        self._adds, self._base = adds, base
        self._factor = 2.0 ** ((news - 0.5) / PER_OCTAVE) if news else 2 / LEAST

    def add(self, fingerprints: Fingerprints, scores: Scores) -> tuple[Scores, Scores, NDArray[np.bool_]]:
        """(worth, what was told of it before, whether it is news), each (n,), of distinct links.

        Of a URL that is not in the table, 0 was told and nothing is news: it goes the usual way.
        """
        at = (fingerprints & self._mask).astype(np.intp)
        known = self._keys[at] == fingerprints
        before = np.where(known, self._worth[at], self._base)
        worth = before + scores if self._adds else np.maximum(before, scores)
        worth = np.clip(worth, LEAST, 1.0)
        told = np.where(known, self._told[at], 0.0)
        news = known & (worth >= told * self._factor)
        self._keys[at] = fingerprints
        self._worth[at] = worth
        self._told[at] = np.where(known & ~news, told, worth)
        return worth, told, news

    def clear(self) -> None:
        """Forget all."""
        self._keys[:] = 0
