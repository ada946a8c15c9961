"""Remembers recent requests for uncached answers: a full cache stores an answer only at its second request."""

from collections.abc import Hashable

_ASKED_MAX = 8192  # number of requests for uncached answers that are remembered, by hash; they use 1 MB


class AskedBefore:
    """The hashes of the keys of recent requests."""

    def __init__(self) -> None:
        self._asked: set[int] = set()

    def before(self, key: Hashable) -> bool:
        """Return whether `key` was requested recently, and remember this request."""
        name = hash(key)
        if name in self._asked:
            self._asked.discard(name)
            return True
        if len(self._asked) >= _ASKED_MAX:
            self._asked.clear()
        self._asked.add(name)
        return False
