"""Test how the URLs on a page are resolved."""

import pytest

from crawler.records import Extracted
from crawler.urls.page_urls import base_url, resolved


@pytest.mark.parametrize(
    ("href", "base"),
    [
        ("/b/", "http://a.org/b/"),
        ("//b.org/?x", "http://b.org/?x"),
        ("", "http://a.org/p"),
        ("mailto:x@y", ""),
        ("http://[", ""),
    ],
)
def test_a_base_url_is_an_http_url(href: str, base: str) -> None:
    assert base_url("http://a.org/p", href) == base


def test_urls_are_resolved_in_the_encoding_of_the_page() -> None:
    page = Extracted("http://a.org/b/", "windows-1251")
    found = resolved(page, ["x?\u044b", "mailto:x", "\u044b", "x?%FB#y"])
    assert found == ["http://a.org/b/x?%FB", "http://a.org/b/%D1%8B"]
