"""Tests both implementations of the simhash against its definition."""

import re
from collections.abc import Callable

import mmh3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.pages.formats.simhash import WORDS_MAX, WORDS_MIN
from tests.forms import installed, interpreted

NAME = "crawler.pages.formats.simhash"
FORMS = [installed(NAME).simhash, interpreted(NAME).simhash]
PIECES = [*"aB_9 .-\n\t", "é", "É", "ß", "İ", "²", "٣", "中文", "\u0301", "𝒳", "word ", "other "]


def by_the_definition(text: str) -> int | None:
    """Compute the simhash as it is defined: word by word, phrase by phrase and bit by bit."""
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
    return sum(one << bit for bit, one in enumerate(ones))


@pytest.mark.parametrize("simhash", FORMS)
@given(st.lists(st.sampled_from(PIECES), max_size=300).map("".join))
def test_simhash_equals_its_definition(simhash: Callable[[str], int | None], text: str) -> None:
    assert simhash(text) == by_the_definition(text)


@pytest.mark.parametrize("simhash", FORMS)
@pytest.mark.parametrize("count", [19, 20, 21, 256, 257, 258, 512, 513, WORDS_MAX + 5])
def test_lengths_at_which_counters_are_emptied(simhash: Callable[[str], int | None], count: int) -> None:
    """A counter of one byte can count up to 255 phrases. Words beyond WORDS_MAX are ignored."""
    text = " ".join(f"w{number * number % 97}" for number in range(count))
    assert simhash(text) == by_the_definition(text)
    assert simhash("same " * count) == by_the_definition("same " * count)


def test_more_words_than_the_cache_holds() -> None:
    """The cache of word hashes is bounded. A text with more words than it holds still gets the right simhash."""
    for simhash in FORMS:
        first = simhash("a b c " * 20)
        for chunk in range(0, 140_000, 10_000):
            simhash(" ".join(str(number) for number in range(chunk, chunk + 10_000)))
        assert simhash("a b c " * 20) == first
