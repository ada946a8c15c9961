"""Test that the cache of scripts and style sheets, which pages share, follows the rules of RFC 9111."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.records import Fetch, Outcome
from crawler.render.shared_cache import SharedCache, fresh_for

NOW = 1_795_000_000.0
DAY, HOUR = 86_400.0, 3600.0


def answer(content: bytes = b"x", **fields: str) -> Fetch:
    headers = tuple((name.replace("_", "-").encode(), value.encode()) for name, value in fields.items())
    return Fetch("http://a.test/x.js", Outcome.FETCHED, status=200, headers=headers, content=content)


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ({}, HOUR),
        ({"cache_control": "max-age=60"}, 60.0),
        ({"cache_control": "Public, Max-Age=60"}, 60.0),
        ({"cache_control": "max-age=60, s-maxage=120"}, 120.0),
        ({"cache_control": "max-age=60", "age": "45"}, 15.0),
        ({"cache_control": "max-age=60", "age": "90"}, 0.0),
        ({"cache_control": "max-age=99999999999999999999"}, 7 * DAY),
        ({"cache_control": "immutable"}, 7 * DAY),
        ({"cache_control": "max-age=31536000, immutable"}, 7 * DAY),
        ({"cache_control": "no-store"}, 0.0),
        ({"cache_control": "no-cache"}, 0.0),
        ({"cache_control": "private, max-age=60"}, 0.0),
        ({"cache_control": "max-age=-5"}, 0.0),
        ({"cache_control": "max-age=junk"}, 0.0),
        ({"expires": "0"}, 0.0),
        ({"expires": "Thu, 01 Jan 1970 00:00:00 GMT"}, 0.0),
        ({"expires": "Fri, 01 Jan 2100 00:00:00 GMT"}, 7 * DAY),
        ({"cache_control": "max-age=60", "expires": "0"}, 60.0),
        ({"date": "Thu, 01 Jan 1970 01:00:00 GMT", "expires": "Thu, 01 Jan 1970 01:10:00 GMT"}, 600.0),
        ({"vary": "Accept-Encoding"}, HOUR),
        ({"vary": "Cookie"}, 0.0),
        ({"vary": "*"}, 0.0),
        ({"vary": "Origin"}, 0.0),
        ({"vary": "Origin", "access_control_allow_origin": "http://a.test"}, 0.0),
        ({"vary": "Accept-Encoding, Origin", "access_control_allow_origin": "*"}, HOUR),
    ],
)
def test_an_answer_is_fresh_as_long_as_its_header_says(fields: dict[str, str], seconds: float) -> None:
    assert fresh_for(answer(**fields), NOW) == seconds


def test_failures_are_not_kept() -> None:
    assert fresh_for(Fetch("http://a.test/", Outcome.GONE, status=404), NOW) == 0.0
    assert fresh_for(Fetch("http://a.test/", Outcome.TRUNCATED, status=200, content=b"x"), NOW) == 0.0


def test_repeated_fields_count_as_one_list() -> None:
    fields = ((b"Cache-Control", b"max-age=60"), (b"cache-control", b"no-store"))
    assert fresh_for(Fetch("http://a.test/", Outcome.FETCHED, status=200, headers=fields), NOW) == 0.0


@pytest.mark.parametrize("age", [0, 50, 60])
def test_an_answer_is_used_until_it_is_stale(age: int) -> None:
    cache = SharedCache(1000)
    cache.add("u", answer(cache_control="max-age=60"), NOW, NOW - age)
    assert (cache.get("u", NOW + 59 - age) is not None) is (age < 60)
    assert cache.get("u", NOW + 60 - age) is None


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 400), st.booleans()), max_size=60))
def test_the_size_of_the_cache_is_bounded(steps: list[tuple[int, int, bool]]) -> None:
    cache = SharedCache(1000)
    for name, size, reads in steps:
        if reads:
            cache.get(str(name), NOW)
        else:
            cache.add(str(name), answer(b"x" * size), NOW)
        cache._check()


def test_the_least_recently_used_answer_is_evicted_first() -> None:
    cache = SharedCache(1000)
    for name in "abcd":
        cache.add(name, answer(b"x" * 250), NOW)
    assert cache.get("a", NOW) is not None
    cache.add("e", answer(b"x" * 250), NOW)
    assert [name for name in "abcde" if cache.get(name, NOW)] == ["a", "c", "d", "e"]
