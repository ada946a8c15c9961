"""Tests both implementations of the signatures against their definitions."""

import re
from types import ModuleType

import mmh3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.pages.formats.simhash import WORDS_MAX, WORDS_MIN
from tests.forms import installed, interpreted

NAME = "crawler.pages.formats.simhash"
FORMS = [installed(NAME), interpreted(NAME)]
Signatures = tuple[int, bytes] | None
PIECES = [*"aB_9 .-\n\t", "é", "É", "ß", "İ", "²", "٣", "中文", "\u0301", "𝒳", "word ", "other "]


def by_the_definition(text: str) -> Signatures:
    """Compute both signatures as they are defined: word by word, phrase by phrase, bit by bit and bin by bin."""
    words = re.findall(r"\w+", text.lower())[:WORDS_MAX]
    if len(words) < WORDS_MIN:
        return None
    factors = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
    hashes = [mmh3.hash64(word, signed=False)[0] for word in words]
    phrases = []
    for three in zip(hashes, hashes[1:], hashes[2:], strict=False):
        value = sum(a * b for a, b in zip(three, factors, strict=True)) % 2**64
        phrases.append((value ^ value >> 29) * factors[1] % 2**64)
    ones = (sum(phrase >> bit & 1 for phrase in phrases) * 2 > len(phrases) for bit in range(64))
    bins = [min((phrase for phrase in phrases if phrase >> 58 == bin), default=None) for bin in range(64)]
    kept = []
    for bin in range(64):
        order = ((bin + step * (2 * (37 * bin % 32) + 1)) % 64 for step in range(64))
        kept.append(next(bins[each] for each in order if bins[each] is not None) >> 16 & 255)
    return sum(one << bit for bit, one in enumerate(ones)), bytes(kept)


def signatures(form: ModuleType, text: str) -> Signatures:
    found = form.simhash(text), form.minhash(text)
    return None if found == (None, None) else found


@pytest.mark.parametrize("form", FORMS)
@given(st.lists(st.sampled_from(PIECES), max_size=300).map("".join))
def test_signatures_equal_their_definitions(form: ModuleType, text: str) -> None:
    assert signatures(form, text) == by_the_definition(text)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("count", [19, 20, 21, 256, 257, 258, 512, 513, WORDS_MAX + 5])
def test_lengths_at_which_counters_are_emptied(form: ModuleType, count: int) -> None:
    """A counter of one byte can count up to 255 phrases. Words beyond WORDS_MAX are ignored."""
    text = " ".join(f"w{number * number % 97}" for number in range(count))
    assert signatures(form, text) == by_the_definition(text)
    assert signatures(form, "same " * count) == by_the_definition("same " * count)


def test_more_words_than_the_cache_holds() -> None:
    """The cache of word hashes is bounded. A text with more words than it holds still gets the right simhash."""
    for form in FORMS:
        first = form.simhash("a b c " * 20)
        for chunk in range(0, 140_000, 10_000):
            form.simhash(" ".join(str(number) for number in range(chunk, chunk + 10_000)))
        assert form.simhash("a b c " * 20) == first
