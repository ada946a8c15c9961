"""Counts the requests for each page. The refresh model uses the counts as the importance (mu) of the pages.

A request adds 1 to its page's count, and counts halve every `half_life` seconds. No pass over the counts is
needed to let them decay. Instead, a request at time t adds 2^((t - origin) / half_life), so that all counts
share one scale and decay together. The origin advances before the numbers grow large.

Memory is bounded. At most `pages_max` pages are counted exactly. When a request for one more page comes, a
quarter of the exact counts, the smallest ones, moves into a sketch. The sketch is a Count-Min of `ROWS` x
`columns` cells (Cormode, Muthukrishnan 2005) with conservative update (Estan, Varghese 2002). The sketch
never underestimates a count, and overestimates a page's count only if another page has a larger count in the
same cell of every row. When a page in the sketch is requested, it moves back to the exact counts; its count
there starts from its estimate.

`changed` returns the counts that the next commit writes. A crash loses the requests since the last commit.
"""

import math
from collections.abc import Iterable, Iterator

import msgspec
import numpy as np

from crawler.clock import past
from crawler.storage.kv import seal, unpacker

# The sketch has 4 x 65,536 doubles: 2 MiB. It is allocated when more than `pages_max` pages are requested.
ROWS = 4
COLUMNS = 1 << 16
_SCALE_MAX = 2.0**40  # when a new request has more weight than this, `_origin` is set to the present
_FORGOTTEN = 2.0**-10  # smaller counts are dropped; a single request has this count after ten half-lives
_ODD = (0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93)
_ALL_64 = (1 << 64) - 1
_unpack = unpacker(tuple[float, float])


def pack_count(count: float, then: float) -> bytes:
    """Encode a page's count at the time `then` as a value of the store."""
    return seal(msgspec.msgpack.encode((count, then)))


def unpack_count(key: bytes, value: bytes) -> tuple[int, float, float]:
    """Return the fingerprint in a `q/` key, and the count and its time in the value.

    Raises:
        DamageError: the value is damaged.
    """
    count, then = _unpack(key, value)
    return int.from_bytes(key[2:], "big"), count, then


class Demand:
    """Request counts of pages by fingerprint; `now` and `half_life` are in seconds, and `half_life` is larger than 0."""

    def __init__(self, half_life: float, pages_max: int, *, now: float, columns: int = COLUMNS) -> None:
        assert half_life > 0.0 and pages_max >= 4, (half_life, pages_max)
        self.half_life = half_life
        self.pages_max = pages_max
        self._origin = now
        self._counts: dict[int, float] = {}
        self._dirty: set[int] = set()
        self._columns = columns
        self._sketch: np.ndarray | None = None
        self.requests = 0

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, fingerprint: int, now: float) -> None:
        """Count a request."""
        weight = self._weight(now)
        count = self._counts.get(fingerprint)
        if count is None:
            if len(self._counts) >= self.pages_max:
                self._shrink()
            count = self._from_sketch(fingerprint)
        self._counts[fingerprint] = count + weight
        self._dirty.add(fingerprint)
        self.requests += 1

    def count(self, fingerprint: int, now: float) -> float:
        """Return the decayed number of requests for a page. The number may be an estimate, but is never too small."""
        count = self._counts.get(fingerprint)
        if count is None:
            count = self._from_sketch(fingerprint)
        return count / self._weight(now)

    def rate(self, fingerprint: int, now: float) -> float:
        """Return the requests per second. A steady rate r leads to the decayed count r x half_life / ln 2."""
        return self.count(fingerprint, now) * math.log(2.0) / self.half_life

    def changed(self, now: float) -> Iterator[tuple[int, float]]:
        """Yield (fingerprint, count at `now`) for each page whose count has changed since the last call.

        The count is 0 if the page has moved into the sketch.
        """
        dirty, self._dirty = self._dirty, set()
        weight = self._weight(now)
        for fingerprint in dirty:
            yield fingerprint, self._counts.get(fingerprint, 0.0) / weight

    def load(self, counts: Iterable[tuple[int, float, float]]) -> None:
        """Load stored triples (fingerprint, count, time of the count). Call this before any request is counted."""
        for fingerprint, count, then in counts:
            if len(self._counts) >= self.pages_max:
                self._shrink()
            self._counts[fingerprint] = count * self._weight_at(past(then, self._origin))

    def _weight(self, now: float) -> float:
        """Return the weight of a request at `now`; if the weight has become large, set the origin to `now`."""
        weight = self._weight_at(now)
        if weight > _SCALE_MAX:
            self._rebase(now, weight)
            return 1.0
        return weight

    def _weight_at(self, instant: float) -> float:
        return 2.0 ** min(1000.0, (instant - self._origin) / self.half_life)

    def _rebase(self, now: float, weight: float) -> None:
        self._origin = now
        counts = ((fingerprint, count / weight) for fingerprint, count in self._counts.items())
        self._counts = {fingerprint: count for fingerprint, count in counts if count >= _FORGOTTEN}
        if self._sketch is not None:
            self._sketch /= weight

    def _shrink(self) -> None:
        """Move the quarter of the pages that has the smallest counts into the sketch."""
        if self._sketch is None:
            self._sketch = np.zeros((ROWS, self._columns))
        pages = sorted(self._counts, key=self._counts.__getitem__)
        for fingerprint in pages[: max(1, len(pages) // 4)]:
            count = self._counts.pop(fingerprint)
            self._dirty.add(fingerprint)
            for row, cell in enumerate(self._cells(fingerprint)):
                self._sketch[row, cell] = max(self._sketch[row, cell], count)

    def _from_sketch(self, fingerprint: int) -> float:
        if self._sketch is None:
            return 0.0
        return float(min(self._sketch[row, cell] for row, cell in enumerate(self._cells(fingerprint))))

    def _cells(self, fingerprint: int) -> list[int]:
        """Return the page's column in each row (multiply-shift hashing of a keyed fingerprint)."""
        return [((fingerprint * odd & _ALL_64) >> 32) % self._columns for odd in _ODD]

    def _check(self) -> None:
        assert len(self._counts) <= self.pages_max, len(self._counts)
        assert all(count > 0.0 for count in self._counts.values())

    def __repr__(self) -> str:
        return f"Demand({len(self._counts)} pages, {self.requests} requests)"
