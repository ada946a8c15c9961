"""Test the portions of long lists of links."""

from hypothesis import given
from hypothesis import strategies as st

from crawler.process.committing.portions import PORTION_CHARS, PORTION_LINKS, portions


@given(st.lists(st.integers(0, 3 * PORTION_CHARS), max_size=20), st.integers(0, 3 * PORTION_LINKS))
def test_portions_are_bounded_and_whole(lengths: list[int], short: int) -> None:
    """Only the last link of a portion may exceed the limit of characters."""
    hrefs = ["x" * length for length in lengths] + ["y"] * short
    parts = list(portions(hrefs))
    assert [href for part in parts for href in part] == hrefs
    for part in parts:
        assert 0 < len(part) <= PORTION_LINKS
        assert sum(map(len, part[:-1])) < PORTION_CHARS
