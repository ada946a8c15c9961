"""Test every accepted notation of SURT prefixes, and the URLs that each notation must match."""

import doctest

import pytest

from crawler.urls import surt_prefix as module
from crawler.urls.surt_prefix import surt_of, surt_prefix


def test_examples() -> None:
    assert doctest.testmod(module) == (0, 2)


@pytest.mark.parametrize(
    ("prefix", "within", "without"),
    [
        ("http://(org,example,)/docs/", "https://example.org/docs/a", "http://www.example.org/docs/a"),
        ("org,example)/docs", "http://example.org/docs/a", "http://example.org/"),
        ("(org,example,", "http://www.example.org/", "http://example.com/"),
        ("https://(org,", "http://example.org/", "http://example.com/"),
        ("http://(org,example,:8080)/", "http://example.org:8080/", "http://example.org/"),
        ("http://(127.0.0.1)/", "http://127.0.0.1/a", "http://1.0.0.127/a"),
        ("http://(1,0,0,127,)/", "http://127.0.0.1/a", "http://1.0.0.127/a"),
        ("1,0,0,127)/docs", "http://127.0.0.1/docs", "http://127.0.0.1/"),
        ("http://(1,0,0,127:8080)/", "http://127.0.0.1:8080/", "http://127.0.0.1/"),
        ("http://([::1])/", "http://[::1]/a", "http://[::2]/a"),
    ],
)
def test_a_prefix_matches_the_urls_below_it(prefix: str, within: str, without: str) -> None:
    begun = surt_prefix(prefix)
    assert surt_of(within).startswith(begun)
    assert not surt_of(without).startswith(begun)
    assert surt_prefix(begun) == begun


@pytest.mark.parametrize(
    "text",
    [
        "", "example.org", "http://example.org/", "http://()/", "http://(org example)", "(org,a/b",
        "http://(example.org)/", "http://(example.org", "http://(org,a,)/b c", "http://(org,a,)/b/../c",
        "http://(org,a,:99999)/", "http://(org,a:b", "http://(org,é,", "http://(org,é,)/",
    ],
)  # fmt: skip
def test_texts_that_are_not_prefixes(text: str) -> None:
    assert surt_prefix(text) == ""
