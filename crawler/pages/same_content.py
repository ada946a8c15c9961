"""The content-seen test (Heydon, Najork 1999, section 3.4), host by host: how many pages had these bytes.

It stops traps that show one page under endless URLs. Equal pages of different
hosts are stored once anyway (`page_cache.py`), and their links are followed.
"""

from collections import OrderedDict


class SameContent:
    """Counts the pages of a host with the same content, for the latest `entries_max` pairs of both."""

    def __init__(self, entries_max: int = 100_000) -> None:
        self._counts: OrderedDict[tuple[int, bytes], int] = OrderedDict()
        self._entries_max = entries_max

    def count(self, host: int, digest: bytes) -> int:
        """Count one more page and return how many there have been."""
        key = (host, digest)
        n = self._counts.pop(key, 0) + 1
        self._counts[key] = n
        if len(self._counts) > self._entries_max:
            self._counts.popitem(last=False)
        return n
