"""Answers kept ready: those asked for last, up to a number of bytes."""

from collections import OrderedDict
from collections.abc import Hashable

from crawler.serve.answers import Ready


class Shelf:
    """Least recently asked for goes first; an answer larger than an eighth of the shelf is not kept."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self.hits = 0
        self.misses = 0
        self._kept: OrderedDict[Hashable, Ready] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: Hashable) -> Ready | None:
        """The answer under `key`, None if it is not here."""
        ready = self._kept.get(key)
        if ready is None:
            self.misses += 1
            return None
        self._kept.move_to_end(key)
        self.hits += 1
        return ready

    def put(self, key: Hashable, ready: Ready) -> None:
        """Keep an answer whose body is held."""
        if ready.body is None or ready.size > self.bytes_max // 8:
            return
        if (old := self._kept.pop(key, None)) is not None:
            self.bytes -= old.size
        self._kept[key] = ready
        self.bytes += ready.size
        while self.bytes > self.bytes_max:
            _, gone = self._kept.popitem(last=False)
            self.bytes -= gone.size

    def _check(self) -> None:
        """Assert what always holds."""
        assert self.bytes == sum(ready.size for ready in self._kept.values()) <= self.bytes_max
