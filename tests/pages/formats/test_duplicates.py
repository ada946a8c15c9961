"""Test the search for near and exact duplicates of pages."""

import random

import pytest

from crawler.pages.formats.duplicates import BANDS, EQUAL_MIN, Originals
from crawler.pages.formats.simhash import MINHASH_BYTES, minhash, simhash


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


def _equal(a: list[str], b: list[str]) -> int:
    left, right = minhash(" ".join(a)), minhash(" ".join(b))
    assert left is not None and right is not None
    return sum(one == other for one, other in zip(left, right, strict=True))


def _likeness(a: list[str], b: list[str]) -> float:
    one, other = (set(zip(text, text[1:], text[2:], strict=False)) for text in (a, b))
    return len(one & other) / len(one | other)


def test_similar_texts_have_similar_simhashes() -> None:
    """If one word in 400 changes (a date, a counter), few bits change.

    Different texts differ in about half of the bits.
    """
    near = [_distance(_text(seed), _near(_text(seed), 1)) for seed in range(50)]
    far = [_distance(_text(seed), _text(seed + 1000)) for seed in range(50)]
    assert sum(distance <= 3 for distance in near) >= 45
    assert min(far) > 12
    assert 28 <= sum(far) / len(far) <= 36


@pytest.mark.parametrize("words", [30, 400])
@pytest.mark.parametrize("changes", [0, 1, 4, 12, 40])
def test_equal_bytes_of_minhashes_estimate_the_share_of_common_phrases(words: int, changes: int) -> None:
    texts = [(_text(seed, words), _near(_text(seed, words), changes)) for seed in range(100)]
    estimate = sum(_equal(*pair) for pair in texts) / len(texts) / MINHASH_BYTES
    assert estimate == pytest.approx(sum(_likeness(*pair) for pair in texts) / len(texts), abs=0.03)


def test_texts_with_one_word_in_a_hundred_replaced_are_copies() -> None:
    """Of 200 such texts, nearly all are found. No two different texts are taken for copies."""
    originals, found = Originals(), 0
    for seed in range(200):
        assert originals.add(f"a{seed}", "", minhash(" ".join(_text(seed)))) == ""
    for seed in range(200):
        found += originals.add("b", "", minhash(" ".join(_near(_text(seed), 4)))) == f"a{seed}"
    assert found >= 196


def test_case_and_punctuation_do_not_change_the_signatures() -> None:
    assert simhash("A b, c " * 20) == simhash("a B c " * 20)
    assert minhash("A b, c " * 20) == minhash("a B c " * 20)


def test_short_texts_have_no_signatures() -> None:
    for text in ("page not found", ""):
        assert simhash(text) is None and minhash(text) is None


@pytest.mark.parametrize("seed", range(5))
def test_originals_agree_with_a_plain_search(seed: int) -> None:
    """A page is a copy of the first original that has an equal band and enough equal bytes."""
    source = random.Random(seed)
    originals = Originals()
    kept: list[tuple[str, bytes]] = []
    for number in range(300):
        value = bytearray(source.randbytes(MINHASH_BYTES))
        if kept and source.random() < 0.5:
            value = bytearray(source.choice(kept)[1])
            for _ in range(source.randrange(16)):
                value[source.randrange(MINHASH_BYTES)] = source.randrange(256)
        expected = next((url for url, other in kept if _is_copy(value, other)), "")
        assert originals.add(f"u{number}", "", bytes(value)) == expected
        if not expected:
            kept.append((f"u{number}", bytes(value)))


def _is_copy(one: bytes, other: bytes) -> bool:
    if sum(a == b for a, b in zip(one, other, strict=True)) < EQUAL_MIN:
        return False
    return any(one[4 * band : 4 * band + 4] == other[4 * band : 4 * band + 4] for band in range(BANDS))


def test_the_number_of_compared_pages_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the newest `COMPARED_MAX` pages with equal bands are compared, so a copy of an older one is not found."""
    monkeypatch.setattr("crawler.pages.formats.duplicates.COMPARED_MAX", 3)
    originals, source = Originals(), random.Random(1)
    same = bytes(4 * BANDS)
    values = [same + source.randbytes(MINHASH_BYTES - len(same)) for _ in range(5)]
    assert [originals.add(f"u{n}", "", value) for n, value in enumerate(values)] == [""] * 5
    assert originals.add("v", "", values[2]) == "u2"
    assert originals.add("w", "", values[1]) == ""


def test_equal_bytes_are_copies_even_without_text() -> None:
    originals = Originals()
    assert originals.add("a", "sha1:X", None) == ""
    assert originals.add("b", "sha1:X", None) == "a"
    assert originals.add("c", "sha1:Y", None) == ""
    assert originals.add("d", "", None) == ""
