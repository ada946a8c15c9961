"""A table with the scores of recently seen URLs. It decides whether a repeated link raises a URL's class.

The URL cache normally drops a link to a known URL. But a link is *news* if it improves the class of its URL
enough: the new class must be at least N classes better than the class that was last passed on. N is the
argument `news`. A link that is news is passed on although its URL is known:

    link, score ─► worth = best score, or sum ─► class(worth) <= class told - news?  yes: news, told = worth

The table has 2^bits entries of 16 bytes, indexed by fingerprint. A link to another URL with the same index
overwrites the entry. A URL that the table has forgotten begins again at the base score. The earlier small
scores of a forgotten URL are lost, so they do not contribute to a sum that would raise its class. A single
link still improves the class of a waiting URL that was forgotten, if the score of this link is above the
class of the URL. The table is lost when the process ends, like the URL caches.
"""

import numpy as np
from numpy.typing import NDArray

from crawler.orders.classes import LEAST, PER_OCTAVE

Fingerprints = NDArray[np.uint64]
Scores = NDArray[np.float64]


class LinkScores:
    """The scores of the URLs seen last. The score of a URL combines the scores of all links to it.

    Args:
        bits: the table has 2^bits entries.
        adds: True to add up the scores of several links to a URL, False to keep the best one.
        base: the score of each URL before its first link.
        counts_from: lower scores count as this score, so that small differences do not affect the order.
        news: the number of classes by which a URL must improve to be news; with 0, nothing is news.
    """

    def __init__(self, bits: int, *, adds: bool, base: float, news: int, counts_from: float = LEAST) -> None:
        self._mask = np.uint64((1 << bits) - 1)
        self._keys = np.zeros(1 << bits, np.uint64)
        self._worth = np.zeros(1 << bits, np.float32)
        self._told = np.zeros(1 << bits, np.float32)
        self._adds, self._base, self._floor = adds, base, max(counts_from, LEAST)
        self._factor = 2.0 ** ((news - 0.5) / PER_OCTAVE) if news else 2 / LEAST

    def add(self, fingerprints: Fingerprints, scores: Scores) -> tuple[Scores, Scores, NDArray[np.bool_]]:
        """Add the scores of n distinct links.

        Return the new scores, the scores last passed on, and the choice of links to pass on. The third array is
        true for each link whose score has risen so much that it must be passed on. For a URL that is not in the
        table, the score last passed on is 0. The third array is false for the link to such a URL, because this
        link goes through the DUE as usual.
        """
        at = (fingerprints & self._mask).astype(np.intp)
        known = self._keys[at] == fingerprints
        before = np.where(known, self._worth[at], self._base)
        worth = before + scores if self._adds else np.maximum(before, scores)
        worth = np.clip(worth, LEAST, 1.0)
        counted = np.maximum(worth, self._floor)
        told = np.where(known, self._told[at], 0.0)
        news = known & (counted >= told * self._factor)
        self._keys[at] = fingerprints
        self._worth[at] = worth
        self._told[at] = np.where(known & ~news, told, counted)
        return counted, told, news
