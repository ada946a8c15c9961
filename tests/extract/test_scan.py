"""Test the plain scan: it takes linear time for any input, and agrees with the parser on ordinary pages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.config import ExtractConfig
from crawler.extract.collected import Context
from crawler.extract.links import extract_page
from crawler.extract.scan import SCAN_BYTES, scan, scan_utf8
from tests.extract.test_links import _tag

CONFIG = ExtractConfig()
PAGE = Context("http://h.example/dir/page", token="me")


def _hrefs(content: bytes, **more: object) -> list[str]:
    return scan(content, Context(PAGE.url, token="me", **more), CONFIG).hrefs  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("content", "hrefs"),
    [
        (b"<a href=x><A HREF='y'><area class=k href = \"z\">", ["x", "y", "z"]),
        (
            b"<iframe src=x></iframe><frame src=y><link rel=next href=z><link rel=icon href=no>",
            ["x", "y", "z"],
        ),
        (b"<!--<a href=no>--><script><a href=no></script><a href=x>", ["x"]),
        (b"<script><a href=no>", []),
        (
            b"<noembed><a href=no></noembed><noframes><a href=no></noframes><noscript><a href=x></noscript>",
            ["x"],
        ),
        (b"<!-- <a href=no>", []),
        (b"<a data-href=no href=x rel=author><abbr href=no>", ["x"]),
        (b"<a href='x?a&amp;b&copy=1'>", ["x?a&b&copy=1"]),
        (b"<a href=x rel='nofollow'>", []),
        (b"<a href=x#1><a href=x#2><a href='#'>", ["x"]),
        (b"<a <a href=x <a href=y", ["x", "y"]),
        (b"<img alt='<a href=no>'><p title=\"<a href='no'>\"></p><a href=x>", ["x"]),
        (
            b"<a title=' href=no ' href=x><a title='>' href=y><a title=\"<base href=no>\" href=z>",
            ["x", "y", "z"],
        ),
        (b"</p title='<a href=no>'><a data-x='a' href='y'title='z'>", ["y"]),
        (b"<a title='<a href=no><a href=no>", []),
        (b"<a href><a href=x>", ["x"]),
        (b"<!doctype a '<a href=no>'><![CDATA[<a href=no>]]><?php <a href=no>?><a href=x>", ["x"]),
        (b"<!--><a href=x><!-- --!><a href=y>", ["x", "y"]),
        (b"<title-card><a href=x></title-card><style-guide><a href=y>", ["x", "y"]),
    ],
)
def test_links_found_by_the_scan(content: bytes, hrefs: list[str]) -> None:
    assert _hrefs(content) == hrefs


@pytest.mark.parametrize(
    ("content", "title"),
    [
        (b"<title> A\n title &amp; more</title><title>no</title>", "A title & more"),
        (b"<!--<title>no</title>--><script>'<title>no'</script><TITLE class=x>yes</TITLE>", "yes"),
        (b"<title></title><title>second</title>", "second"),
        (b"<title>open to the end", "open to the end"),
        (b"<title", ""),
        (b"<title>" + b"x" * 2000 + b"</title>", "x" * 1000),
        (b"<a href=x>", ""),
    ],
)
def test_titles_found_by_the_scan(content: bytes, title: str) -> None:
    assert scan(content, PAGE, CONFIG).title == title


def test_the_scan_obeys_base_and_directives() -> None:
    content = b"<meta content='nofollow' name='ROBOTS'><base href=/b/><a href=x>"
    found = scan(content, PAGE, CONFIG)
    assert found.parse_limit and found.nofollow and found.hrefs == [] and found.base == "http://h.example/b/"
    assert _hrefs(content, obey_robots=False) == ["x"]
    assert _hrefs(b"", link_values=("</n>; rel=next",)) == ["/n"]
    assert scan(b"<meta http-equiv=refresh content='0;r'>", PAGE, CONFIG).refresh == "r"


@pytest.mark.parametrize(
    ("content", "base"),
    [
        (b"<svg><base href=/b/></svg>", PAGE.url),
        (b"<svg><base href=/b/></svg><base href=/c/>", "http://h.example/c/"),
        (b"<math><mrow><base href=/b/></mrow></math><BASE href=/c/><base href=/d/>", "http://h.example/c/"),
        (b"<svg><foreignObject><base href=/b/></foreignObject></svg>", "http://h.example/b/"),
        (b"<template><base href=/b/></template>", PAGE.url),
    ],
)
def test_a_base_in_svg_or_mathml_moves_no_link(content: bytes, base: str) -> None:
    """The scan once used the first `<base>` wherever it was, so all links of the page led elsewhere."""
    assert scan(content, PAGE, CONFIG).base == base == extract_page(content, PAGE, CONFIG).base


def test_only_the_first_part_is_read_in_the_loop() -> None:
    page = b"<a href=x>" + b" " * SCAN_BYTES + b"<a href=y>"
    assert _hrefs(page) == ["x"]
    assert scan_utf8(page, "utf-8", PAGE, CONFIG).hrefs == ["x", "y"], "the child scans the whole page"


def test_links_are_capped() -> None:
    content = b"".join(b"<a href=%d>" % number for number in range(50))
    assert len(scan(content, PAGE, ExtractConfig(links_max=7)).hrefs) == 7


@given(st.lists(_tag(), max_size=12))
def test_scan_and_parser_agree_on_ordinary_pages(tags: list[tuple[str, str | None]]) -> None:
    """The generator makes only ordinary pages. Scan and parser must find the same links in them."""
    content = "".join(markup for markup, _ in tags).encode()
    page = Context(PAGE.url, "utf-8")
    assert scan(content, page, CONFIG).hrefs == extract_page(content, page, CONFIG).hrefs


PIECES = [
    b"<a ",
    b"<a href=",
    b"<a href='",
    b'<a href="',
    b"<!--",
    b"<script>",
    b"<title",
    b"<",
    b"a=",
    b"href= ",
]


@pytest.mark.parametrize("piece", [*PIECES, b"&", b"<base href=x>", b"<meta "])
def test_the_scan_is_linear(piece: bytes) -> None:
    """If the scan took more than linear time, a quarter of a megabyte of one repeated piece would take minutes."""
    scan(piece * (SCAN_BYTES // 4 // len(piece)), PAGE, CONFIG)
