"""Finds exact and near copies of pages: `Originals` names the first page with the same content.

Copies have equal digests, or simhashes (`simhash.py`) that differ in at most 3 bits, the bound of Manku, Jain
and Das Sarma (2007) for 8e9 web pages. If at most 3 bits differ, at least one of the four 16-bit blocks is
equal, so only pages that share a block are compared, as in that paper.
"""

DISTANCE_MAX = 3  # bits
BLOCK_PAGES_MAX = 2_000  # pages remembered per value of a block; beyond that the oldest are dropped


class Originals:
    """Remembers the pages seen so far, and finds copies of them. Takes about 400 bytes per page."""

    def __init__(self) -> None:
        self._urls: list[str] = []
        self._hashes: list[int] = []
        self._by_digest: dict[str, int] = {}
        self._blocks: list[dict[int, list[int]]] = [{}, {}, {}, {}]

    def add(self, url: str, digest: str, fingerprint: int | None) -> str:
        """Remember a page; return the URL of the first page with its content, "" if it is that page."""
        number = self._by_digest.get(digest) if digest else None
        if number is None and fingerprint is not None:
            number = self._near(fingerprint)
        if number is not None:
            return self._urls[number]
        self._remember(url, digest, fingerprint)
        return ""

    def _near(self, fingerprint: int) -> int | None:
        candidates = (
            number
            for block, table in enumerate(self._blocks)
            for number in table.get(fingerprint >> 16 * block & 0xFFFF, ())
            if (self._hashes[number] ^ fingerprint).bit_count() <= DISTANCE_MAX
        )
        return min(candidates, default=None)

    def _remember(self, url: str, digest: str, fingerprint: int | None) -> None:
        number = len(self._urls)
        self._urls.append(url)
        self._hashes.append(fingerprint or 0)
        if digest:
            self._by_digest[digest] = number
        if fingerprint is None:
            return
        for block, table in enumerate(self._blocks):
            pages = table.setdefault(fingerprint >> 16 * block & 0xFFFF, [])
            pages.append(number)
            if len(pages) > BLOCK_PAGES_MAX:
                del pages[0]
