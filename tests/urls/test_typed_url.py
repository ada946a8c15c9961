"""Test how URLs that users type are judged."""

import pytest

from crawler.urls.typed_url import not_a_url


@pytest.mark.parametrize("text", ["http://x.test", "HTTPS://x.test/a b", "http:x.test"])
def test_urls_that_can_be_crawled(text: str) -> None:
    assert not_a_url(text) == ""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x.test", "not a URL; did you mean https://x.test/ ?"),
        ("x.test:8000/a", "not a URL; did you mean https://x.test:8000/a ?"),
        ("localhost:8000", "not a URL; did you mean http://localhost:8000/ ?"),
        ("127.0.0.1", "not a URL; did you mean http://127.0.0.1/ ?"),
        ("ftp://x.test/", "ftp is not supported; the crawler fetches http and https URLs"),
        ("file:///etc/passwd", "file is not supported; the crawler fetches http and https URLs"),
        ("mailto:me@x.test", "not an http(s) URL"),
        ("http://", "not an http(s) URL"),
        ("http://x y/", "not an http(s) URL"),
        ("", "not an http(s) URL"),
    ],
)
def test_other_texts_are_explained(text: str, said: str) -> None:
    assert not_a_url(text) == said
