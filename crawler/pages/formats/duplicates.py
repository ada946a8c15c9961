"""Finds exact and near copies of pages: `Originals` returns the first page with the same content.

Two pages are copies if their digests are equal, or if their minhashes (`simhash.py`) have at least EQUAL_MIN equal
bytes, which means that they share about 84 % of their phrases. A minhash has BANDS bands of four bytes. Only
pages with an equal band are compared (locality-sensitive hashing: Indyk, Motwani 1998). Two pages with a
similarity s have an equal band with the probability 1 - (1 - s^4)^BANDS, which is 0.97 for s = 0.84, and 0.9999
for s = 0.94.

With one word in a hundred replaced, two texts share about 94 % of their phrases.
"""

from typing import Any

import numpy as np

from crawler.pages.formats.simhash import MINHASH_BYTES

EQUAL_MIN = 54  # of 64 bytes
BANDS = 5
# A band is a part of the minhash. A page is compared with at most this number of pages that have the same
# band, the newest first.
COMPARED_MAX = 1_000

_NOBODY = 0xFFFFFFFF


class Originals:
    """Remembers the pages seen so far, and finds copies of them. A page takes about 650 bytes."""

    def __init__(self) -> None:
        self._urls: list[str] = []
        self._by_digest: dict[str, int] = {}
        # For each band, a map from a value to the newest page with this value. For each page, `_earlier` has
        # the page with the same value before it.
        self._newest: list[dict[int, int]] = [{} for _ in range(BANDS)]
        self._earlier = np.empty((0, BANDS), np.uint32)
        self._minhashes = np.empty((0, MINHASH_BYTES), np.uint8)

    def add(self, url: str, digest: str, minhash: bytes | None) -> str:
        """Return the URL of the first page with this content. If no page had it, remember this page and return ""."""
        number = self._by_digest.get(digest) if digest else None
        if number is None and minhash is not None:
            number = self._near(minhash)
        if number is not None:
            return self._urls[number]
        self._remember(url, digest, minhash)
        return ""

    def _near(self, minhash: bytes) -> int | None:
        candidates = set[int]()
        for band, (newest, value) in enumerate(zip(self._newest, _bands(minhash), strict=True)):
            number = newest.get(value, _NOBODY)
            for _ in range(COMPARED_MAX):
                if number == _NOBODY:
                    break
                candidates.add(number)
                number = int(self._earlier[number, band])
        if not candidates:
            return None
        numbers = np.fromiter(candidates, np.intp, len(candidates))
        equal = (self._minhashes[numbers] == np.frombuffer(minhash, np.uint8)).sum(axis=1)
        near = numbers[equal >= EQUAL_MIN]
        return int(near.min()) if len(near) else None

    def _remember(self, url: str, digest: str, minhash: bytes | None) -> None:
        number = len(self._urls)
        self._urls.append(url)
        if digest:
            self._by_digest[digest] = number
        if minhash is None:
            return
        if number >= len(self._minhashes):
            self._minhashes = _grown(self._minhashes, number)
            self._earlier = _grown(self._earlier, number)
        self._minhashes[number] = np.frombuffer(minhash, np.uint8)
        for band, (newest, value) in enumerate(zip(self._newest, _bands(minhash), strict=True)):
            self._earlier[number, band] = newest.get(value, _NOBODY)
            newest[value] = number


def _bands(minhash: bytes) -> list[int]:
    return [int.from_bytes(minhash[4 * band : 4 * band + 4], "little") for band in range(BANDS)]


def _grown(table: "np.ndarray[Any, Any]", number: int) -> "np.ndarray[Any, Any]":
    """Return a copy of a table with room for the row `number`, and for 50 % more rows than that."""
    larger = np.zeros((number + number // 2 + 64, table.shape[1]), table.dtype)
    larger[: len(table)] = table
    return larger
