"""Test which answers are pages."""

import pytest

from crawler.urls.media_type import is_html, is_usable, sniff_html


@pytest.mark.parametrize(
    ("content_type", "html", "usable"),
    [
        ("text/html", True, True),
        ("application/xhtml+xml", True, True),
        ("text/plain", False, True),
        ("application/json", False, True),
        ("image/svg+xml", False, True),
        ("", False, False),
        ("html", False, False),
        ("*/*", False, False),
        ("unknown/unknown", False, False),
    ],
)
def test_content_types(content_type: str, html: bool, usable: bool) -> None:
    assert (is_html(content_type), is_usable(content_type)) == (html, usable)


@pytest.mark.parametrize(
    ("content", "html"),
    [
        (b"<!DOCTYPE html>", True),
        (b"\xef\xbb\xbf \n<HTML>", True),
        (b"<!-- x", True),
        (b"<body class=x>", True),
        (b"<a href=x>", True),
        (b"<b>", True),
        (b"<br>", True),
        (b"<bar>", False),
        (b"<?xml version='1.0'?>", False),
        (b"hello <p>", False),
        (b"", False),
        (b"\x89PNG", False),
    ],
)
def test_sniffing(content: bytes, html: bool) -> None:
    """HTML is recognized by its beginning (WHATWG MIME Sniffing, 7.1)."""
    assert sniff_html(content) == html
