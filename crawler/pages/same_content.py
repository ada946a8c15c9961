"""The content-seen test (Heydon, Najork 1999, section 3.4), host by host: how many pages had these bytes.

It stops traps that show one page under endless URLs, and hosts that answer 200
for what is missing (soft 404; Bar-Yossef et al. 2004, section 3). Such a page often names the URL that
was asked for, so contents are compared without it. Equal pages of different
hosts are stored once anyway (`page_cache.py`), and their links are followed.
"""

import html
from collections import OrderedDict

import mmh3

COMPARED_BYTES_MAX = 64 << 10  # longer pages are compared as they are: no page of errors is so long
PATH_CHARS_MIN = 4  # a shorter path stands in any text


def digest_without_url(content: bytes, path: str, digest: bytes) -> bytes:
    """16 bytes, equal for pages that differ only in their own path; `digest`, that of the content, without one."""
    if not PATH_CHARS_MIN <= len(path) <= len(content) <= COMPARED_BYTES_MAX:
        return digest
    own = path.encode("ascii", "replace")
    escaped = html.escape(path).encode("ascii", "replace")
    if own not in content and escaped not in content:
        return digest
    return mmh3.mmh3_x64_128_digest(content.replace(own, b"").replace(escaped, b""))


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
