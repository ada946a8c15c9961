"""Test the header fields Refresh and Link."""

import json
from pathlib import Path

import pytest

from crawler.extract.headers import link_headers, refresh

CASES = json.loads(
    (Path(__file__).parent.parent / "data/meta_refresh/wpt-meta-refresh.part.json").read_text()
)


@pytest.mark.parametrize("case", CASES, ids=lambda case: repr(case["content"]))
def test_wpt_refresh(case: dict) -> None:
    """The expected values are from web-platform-tests for parsing meta refresh; all must match."""
    expected = None if case["seconds"] is None else (case["seconds"], case["url"] or "")
    assert refresh(case["content"]) == expected


def test_refresh_with_blank_url() -> None:
    assert refresh("5; url=") == (5, "")
    assert refresh("5; url='") == (5, "")


def test_absurd_times() -> None:
    assert refresh("9" * 5000 + ";a") == (999_999_999, "a")


@pytest.mark.parametrize(
    ("value", "links"),
    [
        # RFC 8288, section 3.5
        ('<http://example.com/TheBook/chapter2>; rel="previous"; title="previous chapter"',
         [("http://example.com/TheBook/chapter2", {"previous"})]),
        ('</>; rel="http://example.net/foo"', [("/", {"http://example.net/foo"})]),
        ('</terms>; rel="copyright"; anchor="#foo"', []),
        ('</TheBook/chapter2>; rel="previous"; title*=UTF-8\'de\'letztes%20Kapitel, '
         '</TheBook/chapter4>; rel="next"; title*=UTF-8\'de\'n%c3%a4chstes%20Kapitel',
         [("/TheBook/chapter2", {"previous"}), ("/TheBook/chapter4", {"next"})]),
        ('<http://example.org/>; rel="start http://example.net/relation/other"',
         [("http://example.org/", {"start", "http://example.net/relation/other"})]),
        ("<a,b>;rel=next", [("a,b", {"next"})]),
        ('<a>; title="x, <b>; rel=prev"; rel=next', [("a", {"next"})]),
        ('<a>; rel="NEXT"; rel=prev', [("a", {"next"})]),  # if a parameter is repeated, the first one is used
        ("<a>;;rel=next ,, <b> ; rel = \"prev\"", [("a", {"next"}), ("b", {"prev"})]),
        (r'<a>; rel="n\ext"', [("a", {"next"})]),
        ("a; rel=next", []),
        ("<a", []),
        ('<a>; rel="next', [("a", set())]),
    ],
)  # fmt: skip
def test_link_header(value: str, links: list[tuple[str, set[str]]]) -> None:
    assert [(raw_url, set(relations)) for raw_url, relations in link_headers([value])] == links
