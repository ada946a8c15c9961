"""Test which copies are rewritten: those in which the crawl itself finds the links of a page."""

import pytest

from crawler.config import Config, ExtractConfig
from crawler.extract.links import extract_page
from crawler.extract.page_rules import PageRules
from crawler.serve.rewriting import rewriter
from crawler.urls.page_urls import resolved

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


@pytest.mark.parametrize(
    "field", ["0; url=h", "0; url=/h?\u044b", "0; url=//b.example/\xe9", "9", "0; url=mailto:h", "x"]
)
@pytest.mark.parametrize("charset", ["utf-8", "windows-1251"])
def test_a_refresh_leads_where_the_crawl_follows_it(field: str, charset: str) -> None:
    """The target of a header field is relative to the page, and the target of a meta element to its base."""
    url, kind = "http://a.example/d/e", f"text/html; charset={charset}".encode()
    page = b"<base href=/base/><meta http-equiv=refresh content='0; url=m'><p>page"
    context = PageRules(Config()).context(url, [(b"Refresh", field.encode())], "text/html", charset)
    found = extract_page(page, context, ExtractConfig())
    (followed,) = resolved(found, [found.refresh])
    rewrite = rewriter()
    assert rewrite is not None
    changed = rewrite(page, kind, url, field.encode())
    assert changed is not None and f">{followed}</a>".encode() in changed


def test_the_query_of_a_refresh_field_is_in_the_encoding_of_the_page() -> None:
    rewrite = rewriter()
    assert rewrite is not None
    changed = rewrite(
        b"<p>page", b"text/html; charset=windows-1251", "http://a.example/", "0; url=/b?\u044b".encode()
    )
    assert changed is not None and b"http://a.example/b?%FB" in changed
