"""Test byte ranges: the examples of RFC 9110, section 14, and invalid fields."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.serve.conditions import Unsatisfiable, allowed_by_if_range, is_single, resolve

# for each case: Range field, length of the content, and (first, end), or None for the whole
# content
CASES = [
    ("bytes=0-499", 10_000, (0, 500)),  # RFC 9110, 14.1.2
    ("bytes=500-999", 10_000, (500, 1000)),
    ("bytes=-500", 10_000, (9500, 10_000)),
    ("bytes=9500-", 10_000, (9500, 10_000)),
    ("BYTES=0-0", 10, (0, 1)),
    ("bytes=-1", 10, (9, 10)),
    ("bytes=0-99", 10, (0, 10)),
    ("bytes=-99", 10, (0, 10)),
    ("bytes=5-3", 10, None),
    ("bytes=0-1,5-6", 10, None),
    ("bytes=-", 10, None),
    ("lines=0-1", 10, None),
    ("bytes=a-b", 10, None),
    ("bytes=" + "9" * 30 + "-", 10, None),
]


@pytest.mark.parametrize(("field", "length", "span"), CASES)
def test_valid_and_ignored_ranges(field: str, length: int, span: tuple[int, int] | None) -> None:
    assert resolve(field, length) == span


@pytest.mark.parametrize(
    ("field", "length"), [("bytes=10-", 10), ("bytes=-0", 10), ("bytes=0-", 0), ("bytes=-5", 0)]
)
def test_ranges_that_contain_no_byte(field: str, length: int) -> None:
    with pytest.raises(Unsatisfiable):
        resolve(field, length)


@given(st.text("bytes=0123456789-, ", max_size=20), st.integers(0, 100))
def test_any_range_lies_within_the_content(field: str, length: int) -> None:
    try:
        span = resolve(field, length)
    except Unsatisfiable:
        return
    if span is not None:
        assert is_single(field)
        assert 0 <= span[0] < span[1] <= length


def test_if_range_conditions() -> None:
    date = "Thu, 01 Jan 1970 00:00:00 GMT"
    assert allowed_by_if_range("", '"a"', date)
    assert allowed_by_if_range('"a"', '"a"', date)
    assert not allowed_by_if_range('"b"', '"a"', date)
    assert not allowed_by_if_range('W/"a"', '"a"', date)
    assert allowed_by_if_range(date, '"a"', date)
    assert not allowed_by_if_range("Fri, 02 Jan 1970 00:00:00 GMT", '"a"', date)
