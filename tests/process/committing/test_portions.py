"""Tests of the portions of long lists of links."""

import pytest

from crawler.process.committing.portions import PORTION_CHARS, PORTION_LINKS, portions


@pytest.mark.parametrize("length", [1, 300, 2048, PORTION_CHARS + 1])
@pytest.mark.parametrize("count", [0, 1, PORTION_LINKS, 2 * PORTION_LINKS + 1])
def test_portions_are_bounded_and_complete(count: int, length: int) -> None:
    """Only the last link of a portion may exceed the limit of characters."""
    hrefs = [f"{n}".ljust(length, "a") for n in range(count)]
    found = list(portions(hrefs))
    assert [href for portion in found for href in portion] == hrefs
    for portion in found:
        assert 0 < len(portion) <= PORTION_LINKS
        assert sum(map(len, portion[:-1])) < PORTION_CHARS
