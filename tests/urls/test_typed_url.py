"""Test how URLs that users type are judged."""

import pytest

from crawler.errors import UsageError
from crawler.urls.typed_url import not_a_url, typed_host, typed_url, whole_host


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
        # a misspelt scheme is not the name of a host
        ("htp//x.test", "not an http(s) URL"),
        ("htp:/x.test", "not an http(s) URL"),
        ("https//x.test", "not an http(s) URL"),
        ("page", "not an http(s) URL"),
        ("page/a", "not an http(s) URL"),
    ],
)
def test_other_texts_are_explained(text: str, said: str) -> None:
    assert not_a_url(text) == said


def test_host_names_are_read_from_names_and_urls() -> None:
    assert typed_host("EXAMPLE.org") == typed_host("https://example.org/x") == "example.org"
    assert typed_host("no host!") == typed_host("") == typed_host("/example.org/") == ""


@pytest.mark.parametrize(
    "text", ["Example.org", "http://example.org", "https://example.org/", "example.org:80"]
)
def test_a_whole_host(text: str) -> None:
    assert whole_host(text, "a block") == "example.org"


@pytest.mark.parametrize("text", ["*", "*.example.org", "http://*.example.org/"])
def test_all_hosts_of_a_domain_are_no_host(text: str) -> None:
    """`crawler block '*.example.org'` once said that it is blocked, and blocked nothing."""
    with pytest.raises(UsageError, match="is not a host name; a block applies to one host"):
        whole_host(text, "a block")


@pytest.mark.parametrize(
    "text", ["example.org/a", "http://example.org/?q", "example.org:8080", "https://example.org:80"]
)
def test_a_part_of_a_host_is_not_taken_for_the_whole_host(text: str) -> None:
    with pytest.raises(UsageError, match="a block applies to all URLs of a host, such as example.org"):
        whole_host(text, "a block")


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("example.org", "http://example.org/"),
        ("example.org/a", "http://example.org/a"),
        ("localhost", "http://localhost/"),
        ("LOCALHOST/a", "http://localhost/a"),
        ("wiki:80/a", "http://wiki/a"),
        ("[::1]/a", "http://[::1]/a"),
        ("http://wiki", "http://wiki/"),
        ("http:/example.org", "http://example.org/"),
        ("htp:/example.org", None),
        ("nothing", None),
        ("nothing/at?all", None),
        ("nothing?a=b.c", None),
        ("localhosts", None),
        ("/example.org", None),
        ("", None),
    ],
)
def test_a_single_word_is_not_a_url(text: str, url: str | None) -> None:
    """Once, `crawler withdraw nothing` left a rule for `http://nothing/`."""
    assert typed_url(text) == url


@pytest.mark.parametrize("text", ["wiki", "WIKI", "http://wiki", "wiki:80", "ｗiki"])
def test_a_single_word_may_be_the_name_of_a_host(text: str) -> None:
    assert whole_host(text, "a block") == typed_host(text) == "wiki"
