"""Test which copies are rewritten: those in which the crawl itself finds the links of a page."""

import pytest

from crawler.serve.rewriting import rewriter

LINK = b'<a href="b">b</a>'


@pytest.mark.parametrize(
    ("kind", "start", "rewritten"),
    [
        (b"text/html", b"", True),
        (b"application/xhtml+xml; charset=utf-8", b"", True),
        (b"", b"<!doctype html>", True),
        (b"unknown/unknown", b"\n<html>", True),
        (b"", b"<?xml version='1.0'?><svg>", False),
        (b"", b"GIF89a", False),
        (b"image/svg+xml", b"<svg>", False),
        (b"text/plain", b"<html>", False),
    ],
)
def test_bodies_are_rewritten_if_they_are_read_as_pages(kind: bytes, start: bytes, rewritten: bool) -> None:
    rewrite = rewriter()
    assert rewrite is not None
    changed = rewrite(start + LINK, kind, "http://a.example/", b"")
    assert (changed is not None and b"/page?url=http://a.example/b" in changed) is rewritten


def test_the_query_of_a_refresh_field_is_in_the_encoding_of_the_page() -> None:
    rewrite = rewriter()
    assert rewrite is not None
    changed = rewrite(
        b"<p>page", b"text/html; charset=windows-1251", "http://a.example/", "0; url=/b?\u044b".encode()
    )
    assert changed is not None and b"http://a.example/b?%FB" in changed
