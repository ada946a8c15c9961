"""Test the parsing of Content-Signal with the forms that contentsignals.org and real sites use, and with random input."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.consent.content_signal import read_signal_header, read_signal_rules
from crawler.consent.statements import ALLOW, LINES_MAX, NOTHING_SAID, REFUSE, UNKNOWN, Preferences
from crawler.robots.rules import STATEMENT_OCTETS_MAX
from tests.robots.support import parse

SAID = {"y": ALLOW, "n": REFUSE, "?": UNKNOWN}


def _preferences(letters: str) -> Preferences:
    return Preferences(*(SAID[letter] for letter in letters))


@pytest.mark.parametrize(
    ("value", "letters"),
    [
        ("search=yes, ai-input=yes, ai-train=no", "yyn"),
        ("search=yes,ai-train=no,use=reference", "y?n"),  # a managed robots.txt
        ("ai=n", "?nn"),
        ("ai=yes, ai-train=no", "?yn"),
        ("Search = YES; AI-Train = No", "y?n"),
        ("search=yes ai-train=no", "y?n"),
        ('ai-train="no"', "??n"),
        ("ai-train=no, ai-train=yes", "??n"),
        ("ai-train=maybe, search=y", "y??"),
        ("ai-train=not", "???"),
        ("ai-train=no-way", "???"),
        ("my-ai-train=no", "???"),
        ("ai-train", "???"),
        ("", "???"),
    ],
)
def test_the_value_of_a_signal(value: str, letters: str) -> None:
    assert read_signal_header([value.encode()]).preferences == _preferences(letters)
    assert read_signal_rules([value], "/x").preferences == _preferences(letters)


def test_a_path_limits_a_signal() -> None:
    lines = ["search=yes, ai-train=no", "/open/ ai-train=yes"]
    assert read_signal_rules(lines, "/open/x").preferences == _preferences("??y")
    assert read_signal_rules(lines, "/x").preferences == _preferences("y?n")


def test_signals_before_the_first_group_apply_too() -> None:
    robots = b"Content-Signal: ai-train=no\nUser-agent: *\nContent-Signal: search=yes\nAllow: /\n"
    assert read_signal_rules(parse(robots, "crawler").parsed.signals, "/").preferences == _preferences("y?n")


def test_a_long_name_takes_linear_time() -> None:
    """Lines of 8,192 letters took 0.3 s each, and a robots.txt may have 64 of them."""
    began = time.thread_time()
    for letter in "abcdefgh":
        read_signal_rules([letter * STATEMENT_OCTETS_MAX], "/")
    assert time.thread_time() - began < 0.5


def test_too_many_lines_state_nothing() -> None:
    assert read_signal_header([b"search=yes"] * (LINES_MAX + 1)).preferences == NOTHING_SAID
    assert read_signal_rules(["search=yes"] * (LINES_MAX + 1), "/").preferences == NOTHING_SAID


NEARLY = st.text(alphabet="searchinputtrain-=yesno,; /", max_size=60)


@given(st.lists(st.text(max_size=60) | NEARLY, max_size=4))
def test_no_input_raises_and_more_lines_never_allow_more(lines: list[str]) -> None:
    """If one field refuses a use, the use is refused, whatever the other fields say."""
    values = [line.encode() for line in lines]
    read_signal_rules(lines, "/x")
    before = read_signal_header(values).preferences
    after = read_signal_header([*values, b"search=yes, ai=yes"]).preferences
    for use in ("search", "ai_input", "train_ai"):
        assert getattr(after, use) is (REFUSE if getattr(before, use) is REFUSE else ALLOW)
