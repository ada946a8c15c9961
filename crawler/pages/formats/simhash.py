"""Computes the simhash of a text, a number of 64 bits, such that similar texts differ in few bits.

Texts are similar if they share most of their phrases of three words (Charikar 2002; Manku, Jain, Das Sarma
2007). Each phrase has a 64-bit hash, computed from the hashes of its words. A bit of the result is 1 if that
bit is 1 in more than half of the phrases' hashes. Words are matches of `\\w+`, in lower case.

This module is written in Cython's pure-Python mode. If it is not compiled, numpy counts the bits. The
compiled form keeps eight one-byte counters in a 64-bit number. So a phrase costs eight additions, and the
counters are emptied every 255 phrases.
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

_WORD = re.compile(r"\w+")
_WORDS_CACHED_MAX = 1 << 17
_FACTORS = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_FIRST = cython.declare(cython.ulonglong, _FACTORS[0])
_SECOND = cython.declare(cython.ulonglong, _FACTORS[1])
_THIRD = cython.declare(cython.ulonglong, _FACTORS[2])
_LANES = cython.declare(cython.ulonglong, 0x0101010101010101)
_LANE_MAX = 255
_hashes = cython.declare(dict, {})


def simhash(text: str) -> int | None:
    """Return the simhash of a text, or None if the text has fewer than WORDS_MIN words."""
    return _counted(text.lower()) if cython.compiled else _unpacked(text.lower())


def _unpacked(text: str) -> int | None:
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
    return int.from_bytes(np.packbits(ones).tobytes(), "little")


def _counted(text: str) -> int | None:
    kind: cython.int = PyUnicode_KIND(text)
    characters: cython.p_void = PyUnicode_DATA(text)
    lanes = cython.declare(cython.ulonglong[8])
    ones = cython.declare(cython.longlong[64])
    size: cython.Py_ssize_t = len(text)
    at: cython.Py_ssize_t = 0
    begin: cython.Py_ssize_t
    words: cython.Py_ssize_t = 0
    pending: cython.int = 0
    shift: cython.int
    before: cython.ulonglong = 0
    between: cython.ulonglong = 0
    phrase: cython.ulonglong
    result: cython.ulonglong = 0
    for shift in range(8):
        lanes[shift] = 0
    for shift in range(64):
        ones[shift] = 0
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
    return result


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _is_word(character: cython.Py_UCS4) -> cython.bint:
    return character == 95 or character.isalnum()


@cython.cfunc
@cython.exceptval(check=False)
def _empty(
    lanes: cython.pointer(cython.ulonglong),
    ones: cython.pointer(cython.longlong),
) -> cython.void:
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
