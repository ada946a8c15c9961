"""Test the search for near and exact duplicates of pages."""

import random

import pytest

from crawler.pages.formats.duplicates import DISTANCE_MAX, Originals
from crawler.pages.formats.simhash import simhash


def _text(seed: int, words: int = 400) -> list[str]:
    source = random.Random(seed)
    return [f"word{source.randrange(3000)}" for _ in range(words)]


def _near(text: list[str], changes: int) -> list[str]:
    changed = list(text)
    for place in range(changes):
        changed[place * 37 % len(text)] = f"other{place}"
    return changed


def _distance(a: list[str], b: list[str]) -> int:
    left, right = simhash(" ".join(a)), simhash(" ".join(b))
    assert left is not None and right is not None
    return (left ^ right).bit_count()


def test_similar_texts_have_similar_simhashes() -> None:
    """If one word in 400 changes (a date, a counter), few bits change.

    Different texts differ in about half of the bits.
    """
    near = [_distance(_text(seed), _near(_text(seed), 1)) for seed in range(50)]
    far = [_distance(_text(seed), _text(seed + 1000)) for seed in range(50)]
    assert sum(distance <= DISTANCE_MAX for distance in near) >= 45
    assert min(far) > 4 * DISTANCE_MAX
    assert 28 <= sum(far) / len(far) <= 36


def test_case_and_punctuation_do_not_change_the_simhash() -> None:
    assert simhash("A b, c " * 20) == simhash("a B c " * 20)


def test_short_texts_have_no_simhash() -> None:
    assert simhash("page not found") is None
    assert simhash("") is None


@pytest.mark.parametrize("seed", range(5))
def test_originals_agree_with_a_plain_search(seed: int) -> None:
    """A page is found to be a copy exactly if it is within 3 bits of an earlier original."""
    source = random.Random(seed)
    originals = Originals()
    kept: list[tuple[str, int]] = []
    for number in range(300):
        value = source.getrandbits(64)
        if kept and source.random() < 0.5:
            value = source.choice(kept)[1]
            for _ in range(source.randrange(6)):
                value ^= 1 << source.randrange(64)
        expected = next((url for url, other in kept if (other ^ value).bit_count() <= DISTANCE_MAX), "")
        assert originals.add(f"u{number}", "", value) == expected
        if not expected:
            kept.append((f"u{number}", value))


def test_equal_bytes_are_copies_even_without_text() -> None:
    originals = Originals()
    assert originals.add("a", "sha1:X", None) == ""
    assert originals.add("b", "sha1:X", None) == "a"
    assert originals.add("c", "sha1:Y", None) == ""
    assert originals.add("d", "", None) == ""
