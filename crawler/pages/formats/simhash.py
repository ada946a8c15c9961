"""Computes two signatures of a text: its simhash and its minhash. Similar texts have similar signatures.

Both signatures are computed from the phrases of the text, which are sequences of three words. Each phrase has
a 64-bit hash, computed from the hashes of its words. Words are matches of `\\w+`, in lower case.

    simhash    64 bits (Charikar 2002; Manku, Jain, Das Sarma 2007). A bit is 1 if that bit is 1 in more than half of
               the phrases' hashes. Texts that differ in few phrases have simhashes that differ in few bits.
    minhash    64 bytes (Broder 1997). Two texts have about the same share of equal bytes as they have of common
               phrases (the Jaccard similarity).

The minhash is computed with one hash per phrase ("one permutation hashing": Li, Owen, Zhang 2012). The first
six bits of the hash choose one of 64 bins. Of the smallest hash in each bin, one byte is kept (b-bit minwise
hashing: Li, König 2010). An empty bin takes the byte of another bin (densification: Shrivastava 2017). Each
bin has a fixed order of the other bins, and an empty bin takes the byte of the first bin in this order that
has hashes.

This module is written in Cython's pure-Python mode. If it is not compiled, numpy computes the signatures. The
compiled form keeps eight one-byte counters in a 64-bit number. So counting the 64 bits of a phrase's hash
costs eight additions. The counters are emptied every 255 phrases, before they overflow.
"""

import re

import cython
import mmh3
import numpy as np

if cython.compiled:
    from cython.cimports.cpython.unicode import PyUnicode_DATA, PyUnicode_KIND, PyUnicode_READ

COMPILED: bool = cython.compiled

WORDS_MIN = 20  # a shorter text gives no reliable result: "not found" is near "not found, sorry"
WORDS_MAX = 20_000  # further words of a text are ignored, which bounds the time

MINHASH_BYTES = 64

_WORD = re.compile(r"\w+")
_WORDS_CACHED_MAX = 1 << 17
_FACTORS = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_FIRST = cython.declare(cython.ulonglong, _FACTORS[0])
_SECOND = cython.declare(cython.ulonglong, _FACTORS[1])
_THIRD = cython.declare(cython.ulonglong, _FACTORS[2])
_LANES = cython.declare(cython.ulonglong, 0x0101010101010101)
_LANE_MAX = 255
_BIN_SHIFT = 58  # the number of a phrase's bin is its hash shifted right by this many bits
# For each bin, one byte of the smallest hash is kept: the byte that starts at this bit. A higher byte would say
# less, because the highest bits of a smallest hash are mostly 0.
_BYTE_SHIFT = 16
_STRIDE = 37
_NONE = 0xFFFFFFFFFFFFFFFF  # marks a bin as empty
_NO_HASH = cython.declare(cython.ulonglong, _NONE)
_hashes = cython.declare(dict, {})


def simhash(text: str) -> int | None:
    """Return the simhash of a text, or None if the text has fewer than WORDS_MIN words."""
    found = _counted(text.lower()) if cython.compiled else _unpacked(text.lower())
    return found[0] if found is not None else None


def minhash(text: str) -> bytes | None:
    """Return the minhash of a text, MINHASH_BYTES long, or None if the text has fewer than WORDS_MIN words."""
    found = _counted(text.lower()) if cython.compiled else _unpacked(text.lower())
    return found[1] if found is not None else None


def _unpacked(text: str) -> tuple[int, bytes] | None:
    """Return both signatures of a text, or None if the text has fewer than WORDS_MIN words.

    If this module is compiled, the faster `_counted` is used instead.
    """
    words = _WORD.findall(text)[:WORDS_MAX]
    if len(words) < WORDS_MIN:
        return None
    hashes = np.array([_hashes.get(word) or _hash(word) for word in words], np.uint64)
    first, second, third = (np.uint64(factor) for factor in _FACTORS)
    phrases = hashes[:-2] * first + hashes[1:-1] * second + hashes[2:] * third
    # after a multiplication the low bits are weak, so the high bits are mixed into them
    phrases ^= phrases >> np.uint64(29)
    phrases *= second
    bits = np.unpackbits(phrases.view(np.uint8).reshape(-1, 8), axis=1)
    ones = bits.sum(axis=0, dtype=np.int64) * 2 > len(phrases)
    least = np.full(MINHASH_BYTES, _NONE, np.uint64)
    np.minimum.at(least, (phrases >> np.uint64(_BIN_SHIFT)).astype(np.intp), phrases)
    kept = least.tolist()
    chosen = bytes(kept[_source(kept, number)] >> _BYTE_SHIFT & 255 for number in range(MINHASH_BYTES))
    return int.from_bytes(np.packbits(ones).tobytes(), "little"), chosen


def _source(least: list[int], number: int) -> int:
    """Return the number of the bin whose smallest hash is used for the bin `number`.

    A bin that has hashes uses its own. For an empty bin, the other bins are tried in an order that depends
    only on `number`. The first of them that has hashes is used.
    """
    source = number
    while least[source] == _NONE:
        source = (source + 2 * (number * _STRIDE % 32) + 1) % MINHASH_BYTES
    return source


def _counted(text: str) -> tuple[int, bytes] | None:
    """Return both signatures of a text, or None if the text has fewer than WORDS_MIN words."""
    kind: cython.int = PyUnicode_KIND(text)
    characters: cython.p_void = PyUnicode_DATA(text)
    lanes = cython.declare(cython.ulonglong[8])
    ones = cython.declare(cython.longlong[64])
    least = cython.declare(cython.ulonglong[64])
    chosen = cython.declare(cython.uchar[64])
    size: cython.Py_ssize_t = len(text)
    at: cython.Py_ssize_t = 0
    begin: cython.Py_ssize_t
    words: cython.Py_ssize_t = 0
    pending: cython.int = 0
    shift: cython.int
    source: cython.int
    before: cython.ulonglong = 0
    between: cython.ulonglong = 0
    phrase: cython.ulonglong
    result: cython.ulonglong = 0
    for shift in range(8):
        lanes[shift] = 0
    for shift in range(64):
        ones[shift] = 0
        least[shift] = _NO_HASH
    while words < WORDS_MAX:
        while at < size and not _is_word(PyUnicode_READ(kind, characters, at)):
            at += 1
        if at == size:
            break
        begin = at
        while at < size and _is_word(PyUnicode_READ(kind, characters, at)):
            at += 1
        word: str = text[begin:at]
        value: cython.ulonglong = _hashes.get(word) or _hash(word)
        words += 1
        if words > 2:
            phrase = before * _FIRST + between * _SECOND + value * _THIRD
            phrase ^= phrase >> 29
            phrase *= _SECOND
            for shift in range(8):
                lanes[shift] += (phrase >> shift) & _LANES
            pending += 1
            if phrase < least[phrase >> _BIN_SHIFT]:
                least[phrase >> _BIN_SHIFT] = phrase
        before, between = between, value
        if pending == _LANE_MAX:
            _empty(lanes, ones)
            pending = 0
    if words < WORDS_MIN:
        return None
    _empty(lanes, ones)
    for shift in range(64):
        if ones[shift] * 2 > words - 2:
            result |= cython.cast(cython.ulonglong, 1) << shift
        source = shift
        while least[source] == _NO_HASH:  # as in `_source`
            source = (source + 2 * (shift * _STRIDE % 32) + 1) % 64
        chosen[shift] = (least[source] >> _BYTE_SHIFT) & 255
    return result, cython.cast(cython.p_uchar, chosen)[:64]


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _is_word(character: cython.Py_UCS4) -> cython.bint:
    return character == 95 or character.isalnum()


@cython.cfunc
@cython.exceptval(check=False)
def _empty(lanes: cython.pointer(cython.ulonglong), ones: cython.pointer(cython.longlong)) -> cython.void:
    """Add the one-byte counters in `lanes` to `ones`, and set them to 0."""
    shift: cython.int
    lane: cython.int
    for shift in range(8):
        for lane in range(8):
            ones[8 * lane + shift] += (lanes[shift] >> (8 * lane)) & 255
        lanes[shift] = 0


def _hash(word: str) -> int:
    if len(_hashes) >= _WORDS_CACHED_MAX:
        _hashes.clear()
    found = _hashes[word] = mmh3.hash64(word, signed=False)[0]
    return found
