"""Finds exact and near copies of pages: `Originals` returns the first page with the same content.

Two pages are copies if their digests are equal, or if their simhashes (`simhash.py`) differ in at most 3
bits. Manku, Jain and Das Sarma (2007) found this bound for 8e9 web pages. A simhash has four blocks of 16
bits. If at most 3 bits differ, at least one block is equal. So, as in that paper, only pages that share a
block are compared.
"""

DISTANCE_MAX = 3  # bits
BLOCK_PAGES_MAX = 2_000  # number of pages remembered per value of a block; further pages replace the oldest


class Originals:
    """Remembers the pages seen so far, and finds copies of them. A page takes about 400 bytes."""

    def __init__(self) -> None:
        self._urls: list[str] = []
        self._hashes: list[int] = []
        self._by_digest: dict[str, int] = {}
        self._blocks: list[dict[int, list[int]]] = [{}, {}, {}, {}]

    def add(self, url: str, digest: str, fingerprint: int | None) -> str:
        """Return the URL of the first page with this content. If no page had it, remember this page and return ""."""
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
