"""Test TDMRep with examples of the format, malformed files, and random input."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.consent.statements import ALLOW, LINES_MAX, REFUSE, UNKNOWN, Preference
from crawler.consent.tdmrep import (
    ENTRIES_MAX,
    FILE_OCTETS_MAX,
    TdmFile,
    TdmReservation,
    read_tdm_file,
    read_tdm_page,
    reservation_for,
)

NO_PAGE = TdmReservation()
FILE = [
    {"location": "/directory-a/", "tdm-reservation": 1, "tdm-policy": "https://provider.com/policies/1"},
    {"location": "/directory-b/html/*.html", "tdm-reservation": 1},
    {"location": "/directory-b/html/", "tdm-reservation": 0},
]


def _of_file(entries: object, target: str) -> Preference:
    return reservation_for(read_tdm_file(json.dumps(entries).encode()), NO_PAGE, target).preferences.tdm


@pytest.mark.parametrize(
    ("target", "answer"),
    [
        ("/directory-a/x", REFUSE),
        ("/directory-b/html/x.html", REFUSE),
        ("/directory-b/html/x.js", ALLOW),
        ("/", UNKNOWN),
    ],
)
def test_the_longest_location_decides(target: str, answer: Preference) -> None:
    assert _of_file(FILE, target) is answer


def test_the_policy_of_the_deciding_entry_is_kept() -> None:
    file = read_tdm_file(json.dumps(FILE).encode())
    assert reservation_for(file, NO_PAGE, "/directory-a/x").policies == ("https://provider.com/policies/1",)


def test_rights_are_reserved_if_equal_locations_disagree() -> None:
    both = [{"location": "/", "tdm-reservation": value} for value in (0, 1)]
    assert _of_file(both, "/") is _of_file(both[::-1], "/") is REFUSE


@pytest.mark.parametrize(
    ("value", "answer"),
    [(1, REFUSE), ("1", REFUSE), (0, ALLOW), ("0", ALLOW), (2, UNKNOWN), (True, UNKNOWN), (None, UNKNOWN),
     (1.0, UNKNOWN), ([1], UNKNOWN)],
)  # fmt: skip
def test_the_value_of_an_entry(value: object, answer: Preference) -> None:
    assert _of_file([{"location": "/", "tdm-reservation": value}], "/") is answer


@pytest.mark.parametrize(
    "entry", [1, "x", {}, {"location": "/"}, {"location": 1, "tdm-reservation": 1}, {"tdm-reservation": 1}]
)
def test_a_malformed_entry_is_ignored(entry: object) -> None:
    assert _of_file([entry, {"location": "/", "tdm-reservation": 1}], "/") is REFUSE


@pytest.mark.parametrize(
    "body",
    [b"", b"{}", b"nonsense", b'[{"location": "/", "tdm-reservation": 1}', b"[" * 100_000, b"\xff",
     b" " * (FILE_OCTETS_MAX + 1), json.dumps([FILE[0]] * (ENTRIES_MAX + 1)).encode()],
)  # fmt: skip
def test_an_unreadable_file_says_why(body: bytes) -> None:
    file = read_tdm_file(body)
    assert file.problem
    assert file.entries == ()


@pytest.mark.parametrize(
    ("values", "answer"),
    [
        ([b"1"], REFUSE),
        ([b" 0 "], ALLOW),
        ([b"0", b"1"], REFUSE),
        ([b"2"], UNKNOWN),
        ([b"yes"], UNKNOWN),
        ([b"1, 0"], UNKNOWN),
        ([], UNKNOWN),
        ([b"0"] * (LINES_MAX + 1), UNKNOWN),
    ],
)
def test_the_value_of_a_page_header(values: list[bytes], answer: Preference) -> None:
    assert read_tdm_page(values, []).preferences.tdm is answer


def test_the_page_overrides_the_file() -> None:
    file = read_tdm_file(json.dumps([{"location": "/", "tdm-reservation": 1, "tdm-policy": "p"}]).encode())
    page = read_tdm_page([b"0"], [b"https://x.example/policy"])
    assert reservation_for(file, page, "/") == page
    assert reservation_for(TdmFile(), NO_PAGE, "/") == NO_PAGE


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["location", "tdm-reservation", "tdm-policy", "x"]), inner, max_size=3
        )
    ),
    max_leaves=8,
)


@given(st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()), st.text(max_size=10))
def test_no_input_raises(body: bytes, target: str) -> None:
    file = read_tdm_file(body)
    reservation = reservation_for(file, NO_PAGE, f"/{target}")
    assert len(reservation.raw) <= len(file.entries)
