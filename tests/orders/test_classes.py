"""Test the classes into which scores are divided, and their encoding in the flags of links."""

import math

from hypothesis import given
from hypothesis import strategies as st

from crawler.orders.classes import LEAST, NEUTRAL, WORST, class_in, class_of, score_of, with_class
from crawler.records import Link, LinkFlag
from crawler.splitter.wire import decode_entry, encode_entries


@given(st.floats(LEAST, 1.0), st.floats(LEAST, 1.0))
def test_classes_are_monotone_and_round_to_half_a_class(one: float, other: float) -> None:
    assert one > other or class_of(one) >= class_of(other)
    assert abs(math.log2(score_of(class_of(one)) / one)) <= 1 / 16 + 1e-9


def test_edges() -> None:
    assert [class_of(score) for score in (2.0, 1.0, 0.5, 0.0, -1.0, math.nan)] == [
        0,
        0,
        8,
        WORST,
        WORST,
        WORST,
    ]
    assert score_of(NEUTRAL) == 2.0**-16
    assert all(class_of(score_of(place)) == place for place in range(WORST + 1))


@given(st.integers(0, 0xFFFF), st.integers(0, WORST), st.integers(0, WORST))
def test_flags_carry_a_class_beside_the_link_flags(flags: int, place: int, other: int) -> None:
    packed = with_class(with_class(flags, other), place)
    assert class_in(packed) == place and packed & 0xFFFF == flags
    [(entry, _)] = encode_entries([Link(1, "http://a/", flags=packed)], 1000)
    assert class_in(decode_entry(entry)[0].flags) == place


def test_a_link_without_a_score_is_encoded_without_a_class() -> None:
    assert with_class(LinkFlag.SEED, NEUTRAL) == LinkFlag.SEED
    flags = [flag for name, flag in vars(LinkFlag).items() if name.isupper()]
    assert all(flag < 1 << 16 or flag >= 1 << 24 for flag in flags)
