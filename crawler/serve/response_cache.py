"""A cache of ready answers: the most recently used ones, up to a number of bytes."""

from collections import OrderedDict
from collections.abc import Hashable

import msgspec

from crawler.records import Capture, PageRecord
from crawler.serve.representation import Representation


class CachedResponse(msgspec.Struct):
    """A copy and its representation, valid while the URL's stored record is `proof`.

    `record` is None if the client requested another instant than now.
    """

    proof: bytes
    record: PageRecord | None
    capture: Capture
    ready: Representation


class ResponseCache:
    """An LRU cache of answers; an answer larger than an eighth of the cache is not stored.

    `hits` counts answers served from it, `misses` answers that had to be built.
    """

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self.hits = 0
        self.misses = 0
        self._kept: OrderedDict[Hashable, CachedResponse] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Hashable, proof: bytes) -> CachedResponse | None:
        """Return the answer under `key` if it is cached and was built from the record `proof`."""
        shown = self._kept.get(key)
        if shown is None or shown.proof != proof:
            return None
        self._kept.move_to_end(key)
        self.hits += 1
        return shown

    def put(self, key: Hashable, shown: CachedResponse) -> None:
        """Store an answer whose body is in memory; replace the one under `key`."""
        self.misses += 1
        if (old := self._kept.pop(key, None)) is not None:
            self.bytes -= old.ready.size
        if shown.ready.body is None or shown.ready.size > self.bytes_max // 8:
            return
        self._kept[key] = shown
        self.bytes += shown.ready.size
        while self.bytes > self.bytes_max:
            _, gone = self._kept.popitem(last=False)
            self.bytes -= gone.ready.size

    def _check(self) -> None:
        """Assert every invariant."""
        assert self.bytes == sum(shown.ready.size for shown in self._kept.values()) <= self.bytes_max
