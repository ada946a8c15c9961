"""Test the content-seen test, which counts the pages with the same host and content digest."""

import random

from crawler.pages.repeated_content import RepeatedContent


def test_pages_are_counted_by_host_and_content() -> None:
    same = RepeatedContent()
    assert [same.count(1, b"x") for _ in range(3)] == [1, 2, 3]
    assert [same.count(2, b"x"), same.count(1, b"y"), same.count(1, b"x")] == [1, 1, 4]


def test_all_bits_of_the_host_key_count() -> None:
    same = RepeatedContent()
    assert [same.count(host, b"x") for host in (1, 1 << 40, 1 << 63, 0)] == [1, 1, 1, 1]


def test_a_displaced_pair_starts_again_at_one() -> None:
    """A pair of host and content never gets the count of another pair.

    Pairs that were not displaced keep their counts.
    """
    rng, same, model = random.Random(1), RepeatedContent(slots=8), {}
    for _ in range(2000):
        host, digest = rng.randrange(6), bytes([rng.randrange(3)])
        n = same.count(host, digest)
        assert n == 1 or n == model[host, digest] + 1
        model[host, digest] = n


def test_few_recent_pairs_are_displaced() -> None:
    """If the number of pairs is a sixteenth of the table's slots, about 6 % of the pairs are displaced."""
    same = RepeatedContent(slots=1 << 12)
    for host in range(256):
        same.count(host, b"x")
    again = [same.count(host, b"x") for host in range(256)]
    assert again.count(2) > 220 and set(again) <= {1, 2}
