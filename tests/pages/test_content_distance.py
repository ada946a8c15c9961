"""Test that texts which differ in few words have simhashes which differ in few bits."""

import random

from hypothesis import given
from hypothesis import strategies as st

from crawler.pages.change_detection import distance, simhash


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_distance_is_a_metric(one: bytes, other: bytes) -> None:
    a, b = simhash(one), simhash(other)
    assert 0 <= distance(a, b) == distance(b, a) <= 64 and distance(a, a) == 0
    assert simhash(b"  ".join(one.split())) == a, "blanks are no words"


def test_the_simhash_of_one_phrase_is_its_hash_and_of_no_words_0() -> None:
    import mmh3

    assert simhash(b"a b c") == mmh3.hash64(b"a b c", signed=False)[0]
    assert simhash(b" \n") == 0


def test_similar_texts_have_similar_simhashes() -> None:
    """Texts that differ in few words have a small mean distance.

    The mean distance is 2 bits if one word in 1,000 changes, 6 bits for one in 100, and 32 bits for different
    texts.
    """
    rng = random.Random(1)
    means = {}
    for size in (100, 1000):
        far = []
        for _ in range(30):
            words = [b"%d" % rng.randrange(10**6) for _ in range(size)]
            before = simhash(b" ".join(words))
            words[rng.randrange(size)] = b"new"
            far.append(distance(before, simhash(b" ".join(words))))
        means[size] = sum(far) / len(far)
    assert 3.0 < means[100] < 9.0 and 0.7 < means[1000] < 4.0, means
    texts = [simhash(b" ".join(b"%d" % rng.randrange(10**6) for _ in range(100))) for _ in range(30)]
    others = [distance(one, other) for one, other in zip(texts, texts[1:], strict=False)]
    assert 28 < sum(others) / len(others) < 36
