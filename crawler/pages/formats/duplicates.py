"""Copies of pages, exact and near.

`simhash` maps a text to 64 bits such that texts that share most of their
three-word phrases differ in few of them (Charikar 2002; Manku, Jain, Das Sarma
2007, who take 3 bits for 8e9 web pages). `Originals` finds the first page that
another is a copy of: by digest, else within 3 bits by Manku's tables: of four
16-bit blocks at least one is equal, so only pages that share a block are
compared.
"""

import re

import mmh3
import numpy as np

DISTANCE_MAX = 3  # bits
WORDS_MIN = 20  # a shorter text says too little: "not found" is near "not found, sorry"
WORDS_MAX = 20_000  # of a text, which bounds its time
BLOCK_PAGES_MAX = 2_000  # pages compared for one block; beyond it the oldest are forgotten

_WORD = re.compile(r"\w+")
_WORDS_CACHED_MAX = 1 << 17
_PHRASE = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)
_hashes: dict[str, int] = {}


def simhash(text: str) -> int | None:
    """The 64-bit fingerprint of a text; None if it has fewer than WORDS_MIN words."""
    words = _WORD.findall(text.lower())[:WORDS_MAX]
    if len(words) < WORDS_MIN:
        return None
    hashes = np.array([_hashes.get(word) or _hash(word) for word in words], np.uint64)
    phrases = hashes[:-2] * _PHRASE[0] + hashes[1:-1] * _PHRASE[1] + hashes[2:] * _PHRASE[2]
    phrases ^= phrases >> np.uint64(29)  # products are weak in their low bits
    phrases *= _PHRASE[1]
    bits = np.unpackbits(phrases.view(np.uint8).reshape(-1, 8), axis=1)
    ones = bits.sum(axis=0, dtype=np.int64) * 2 > len(phrases)
    return int.from_bytes(np.packbits(ones).tobytes(), "little")


def _hash(word: str) -> int:
    if len(_hashes) >= _WORDS_CACHED_MAX:
        _hashes.clear()
    found = _hashes[word] = mmh3.hash64(word, signed=False)[0]
    return found


class Originals:
    """Pages seen so far, to tell of which one the next is a copy. Some 400 bytes a page."""

    def __init__(self) -> None:
        self._urls: list[str] = []
        self._hashes: list[int] = []
        self._by_digest: dict[str, int] = {}
        self._blocks: list[dict[int, list[int]]] = [{}, {}, {}, {}]

    def add(self, url: str, digest: str, fingerprint: int | None) -> str:
        """The URL of the first page with this content, "" if there is none so far; the page is remembered."""
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
