"""Implements the content-seen test (Heydon, Najork 1999, 3.4), which counts pages of a host with the same content.

The test finds traps that show one page under endless URLs. The test also finds hosts that answer 200 for
missing pages (soft 404; Bar-Yossef et al. 2004, section 3). A soft 404 page often contains the requested URL,
so contents are compared without the URL. If pages of different hosts have the same content, the content is
stored only once (`page_cache.py`), but the links of each page are followed.
"""

import mmap
import re

import mmh3

# The path of a page is removed because an error page may contain it. The path is removed only from pages up
# to this length, because error pages are short.
COMPARED_BYTES_MAX = 64 << 10
PATH_CHARS_MIN = 4  # a path with fewer characters than this could occur in any text by chance
_ESCAPED = re.compile(r"[&<>\"']")  # characters that `html.escape` replaces


def digest_without_url(content: bytes, path: str, digest: bytes) -> bytes:
    """Return the digest (16 bytes) of the content without the page's path, or `digest` if the path does not occur."""
    if not PATH_CHARS_MIN <= len(path) <= len(content) <= COMPARED_BYTES_MAX:
        return digest
    own = path.encode("ascii", "replace")
    forms = [own]
    if _ESCAPED.search(path):
        import html  # imported here, because few paths contain such characters

        forms.append(html.escape(path).encode("ascii", "replace"))
    if not any(form in content for form in forms):
        return digest
    for form in forms:
        content = content.replace(form, b"")
    return mmh3.mmh3_x64_128_digest(content)


class RepeatedContent:
    """Counts the pages with the same host and content, for the most recent pairs of host and content.

    The table has `slots` entries (a power of two). Each pair has one possible slot. A new pair replaces the
    pair in its slot, because a large crawl has more pairs than the table can hold. A slot takes 12 bytes.
    """

    def __init__(self, slots: int = 1 << 18) -> None:
        assert slots & (slots - 1) == 0, slots
        # memory that the kernel fills with zeros when it is first used, so a small crawl takes little of it
        self._pairs = memoryview(mmap.mmap(-1, 8 * slots, flags=mmap.MAP_PRIVATE)).cast("Q")
        self._counts = memoryview(mmap.mmap(-1, 4 * slots, flags=mmap.MAP_PRIVATE)).cast("I")
        self._mask = slots - 1

    def count(self, host: int, digest: bytes) -> int:
        """Count one more page; return the number of pages counted for this host and content."""
        pair: int = mmh3.hash64(digest, host & 0xFFFFFFFF, signed=False)[0] ^ (host >> 32)
        slot = pair & self._mask
        n = self._counts[slot] + 1 if self._pairs[slot] == pair else 1
        self._pairs[slot], self._counts[slot] = pair, n
        return n
