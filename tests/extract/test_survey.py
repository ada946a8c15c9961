"""Test the numbers of tags in a page against regular expressions and against counts made by hand."""

import re

from hypothesis import given
from hypothesis import strategies as st

from crawler.extract.survey import _FORMATTING_START, FORMATTING_NAMES, survey

_PIECES = [
    b"<",
    b"</",
    b"<b ",
    b"<B\n",
    b"<i/",
    b"<u>",
    b"<CODE",
    b"<str",
    b"<span ",
    b"<\xe9 ",
    b"x",
    b"\0",
    b">",
]


def test_tag_counts() -> None:
    assert survey(b"") == (0, 0, [])
    assert survey(b"<") == (1, 0, [])
    assert survey(b"<b") == (1, 0, [])
    assert survey(b"<p><b x><br></b><Font><!-- </i> --><") == (8, 2, [4, 17])


def test_every_formatting_element_is_recognised() -> None:
    for name in FORMATTING_NAMES:
        for spelling in (name, name.upper(), name.title()):
            assert survey(b"<%b class=x>" % spelling)[2] == [1], spelling


@given(st.lists(st.sampled_from(_PIECES), max_size=30).map(b"".join))
def test_survey_agrees_with_regular_expressions(content: bytes) -> None:
    tags, end_tags, formatting = survey(content)
    assert tags == len(re.findall(b"<", content))
    assert end_tags == len(re.findall(b"</", content))
    assert formatting == [match.start() + 1 for match in _FORMATTING_START.finditer(content)]
