"""Test the link scanner against lexbor's tree.

The scanner gives the same result as the tree, or leaves the page to the parser.
"""

import sys
from html.entities import html5
from types import ModuleType
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from crawler import extract
from crawler.config import ExtractConfig
from crawler.extract import link_scanner
from crawler.extract.collected import Collected, Context
from crawler.extract.link_attributes import LINK_ATTRIBUTES
from crawler.extract.links import extract_page, parse, prepare, prepare_scan
from crawler.extract.parser_child import read_here
from crawler.extract.references import attribute_text, data_text
from crawler.extract.scanned import scan_page, scanned
from crawler.records import Extracted
from tests.extract.soup import soup
from tests.forms import interpreted

URL = "http://h.example/dir/page"
CONFIG = ExtractConfig()
ALL = ExtractConfig(all_attributes=True)
PAGES = [
    Context(URL, token="me", obey_nofollow=obey, obey_robots=obey, want_requisites=not obey)
    for obey in (True, False)
]
WANTED = [(PAGES[0], CONFIG), (PAGES[1], CONFIG), (PAGES[0], ALL), (PAGES[1], ALL)]


def _interpreted() -> ModuleType:
    reader = interpreted("crawler.extract.tag_reader")
    with (
        mock.patch.dict(sys.modules, {"crawler.extract.tag_reader": reader}),
        mock.patch.object(extract, "tag_reader", reader),
    ):
        return interpreted("crawler.extract.link_scanner")


FORMS = {"installed": link_scanner, "interpreted": _interpreted()}


def scan(
    content: bytes, page: Context, form: str = "installed", config: ExtractConfig = CONFIG
) -> Extracted | None:
    """Return what the installed or the interpreted scanner finds; None if it leaves the page to the parser."""
    return scan_page(content, "utf-8", page, config, FORMS[form].LinkScanner)[0]


def assert_same(content: bytes, form: str = "installed") -> bool:
    """Assert that the scanner finds the same URLs as the parser, unless it leaves the page to the parser.

    Return True if the scanner can read the page without the parser, in each configuration of `WANTED`.
    """
    results = [scan(content, page, form, config) for page, config in WANTED]
    for (page, config), found in zip(WANTED, results, strict=True):
        assert found is None or found == parse(content, "utf-8", page, config), content
    return None not in results


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<title>a &amp b</title><a href='x?a&amp;b'>y</a>",
        b"<!-- <a href=x> --!><a href=y><!--><a href=z><!---><a href=w>",
        b"<script><!-- '<a href=x>' //--></script><a href=y>",
        b"<svg viewBox='0 0 1 1'><title>x</title><a href=x><path d=z></svg><a href=y>",
        b"<svg><![CDATA[<a href=x>]]></svg><![CDATA[<a href=y>]]><a href=z>",
        b"<svg><symbol><title>x</title><svg><path></svg></symbol></svg><title>y</title><a href=x>",
        b"<math><mi>x</mi><annotation encoding='application/x-tex'>y</annotation></math><a href=x>",
        b"<template><a href=x><template></template><a href=y></template><a href=z>",
        b"<table><form><input type=hidden><tr><td><a href=x><table><tr><th><a href=y></table></table><a href=z>",
        b"<table><caption><a href=x></caption><col><tbody><tr><td><a href=y></tbody><tr><td><a href=z></table>",
        b"<noscript><meta http-equiv=refresh content='0;x'><title>y</title></noscript>",
        b"<link rel=next href=x><meta name=robots content=noindex><base href=/y/><iframe src=z><a href=w></iframe>",
        b"<a href=x><div><a href=y><p></a></div><b><p></b><a href=z>",
        b"<a href='\xff\xe2&#x82;\r\n\0'><a href=x/><a href=y#z><a =href=v><a href><a href=>",
        b"<a href=x rel='external nofollow'><a href=y rel=nofollow content=z>",
        b"<a href=x><plaintext><a href=y>",
        b"<a href=x></a><a href='y",
        b"</head><title>x</title><p><title>y</title>",
        b"x<title>y</title>",
        b"</br><title>x</title>",
        b"<select><option><a href=x></select><a href=y>",
        b"<img src=1 srcset='2 1x, 3 2x'><image href=4 src=5><p style='a:url(&quot;6&quot;)' style='b:url(7)'>",
        b"<style>a{b:url(1)}</style><svg style='a:url(2)'><use xlink:href=3 href=4 /><image href=6 />"
        b"<a xlink:href=5></svg>",
        b"<html style='a:url(1)'><head background=2><head background=3><body background=4><p>",
        b"<form action=1 background=2><form action=3 background=4></form><form action=5 method=post>",
        b"<tr background=1><table background=2><tr background=3><td><td background=4></table><td background=5>",
        b"<select style='a:url(1)'><option style='a:url(2)'></select><select style='a:url(3)'></select><q cite=4>",
        b"<template><img src=1><style>a{b:url(2)}</style></template><a href=3 rel=icon xlink:href=4 longdesc=5>",
        b"<noscript><noscript style='a:url(1)'><link rel=stylesheet href=2></noscript><iframe src=3></iframe>",
        b"<head><noscript style='a:url(1)'><noscript style='a:url(2)'><img src=3>",
    ],
)
def test_pages_that_need_no_tree(content: bytes, form: str) -> None:
    assert assert_same(content, form)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "content",
    [
        b"<table><tr><td><a href=x></td><a href=y></table>",  # the parser moves y before the table
        b"<table><tr><p>",
        b"<table><input type=text>",
        b"<svg><p><a href=x>",  # this tag ends the SVG
        b"<svg><foreignObject><a href=x>",
        b"<svg><script>",
        b"<svg></p>",
        b"<svg><math>",
        b"<math><annotation-xml encoding=text/html><a href=x>",
        b"<frameset><frame src=x></frameset>",
        b"<title>x",
        b"<textarea><a href=x>",
        b"<script><!-- <script></script> --><a href=x></script><a href=y>",
        b"<p><base href=/x/>",
        b"<template><col><style></template><a href=x></style>",
        b"<template><a href=x><object></template>y",  # the parser copies x out of the template
        b"<template><a href=x><table><td></template>y",
        b"\0<title>x</title>",
        b"<p><html style='a:url(1)'>",  # the attributes are added to the first element of this name
        b"<body><p><body background=1>",
        b"<select><p></select><select style='a:url(1)'>",  # the second <select> only closes the first one
        b"<form method=post><input formaction=1></form>",
        b"<svg>" + b"<g>" * 300,
        b"<table><td>" * 300,
    ],
)
def test_pages_that_need_a_tree(content: bytes, form: str) -> None:
    assert not assert_same(content, form)


@pytest.mark.parametrize("form", FORMS)
def test_a_style_inside_svg_needs_a_tree_for_its_urls_alone(form: str) -> None:
    content = b"<svg><style>a{b:url(x)}</style></svg><a href=y>"
    assert not assert_same(content, form)
    found = scan(content, PAGES[0], form)
    assert found is not None and found.hrefs == ["y"]


@pytest.mark.parametrize("part", range(4))
def test_tag_soup(part: int) -> None:
    """Scan some random pages. `scripts/bench/scanner.py` scans millions of pages that the same generator made."""
    pages = [soup(seed) for seed in range(part * 1000, part * 1000 + 1000)]
    assert sum(map(assert_same, pages)) > 400


def test_the_interpreted_scanner_reads_tag_soup_in_the_same_way() -> None:
    for seed in range(500):
        content = soup(seed)
        for page, config in WANTED:
            found = scan(content, page, config=config)
            assert found == scan(content, page, "interpreted", config), content


_PIECES = [
    b"<a href=1>",
    b"<a href=2",
    b"</a>",
    b"<table>",
    b"</table>",
    b"<tr>",
    b"<td>",
    b"</td>",
    b"<th>",
    b"<caption>",
]
_PIECES += [
    b"<tbody>",
    b"</thead>",
    b"<thead>",
    b"<svg>",
    b"</svg>",
    b"<g/>",
    b"<title>",
    b"</title>",
    b"<template>",
    b"</template>",
]
_PIECES += [
    b"<script>",
    b"</script>",
    b"<!--",
    b"-->",
    b"<base href=b>",
    b"<link rel=next href=3>",
    b"<p>",
    b"</p>",
    b"<b>",
]
_PIECES += [
    b"x",
    b" ",
    b"<",
    b">",
    b"'",
    b'"',
    b"/",
    b"=",
    b"\0",
    b"<head>",
    b"</head>",
    b"<body>",
    b"<noscript>",
    b"</noscript>",
    b"<img src=4>",
    b"<td background=5>",
    b"<form action=6>",
    b"</form>",
    b"<select style='a:url(7)'>",
    b"</select>",
    b"<option cite=8>",
]


@given(st.lists(st.sampled_from(_PIECES), max_size=20).map(b"".join))
def test_any_order_of_pieces(content: bytes) -> None:
    assert_same(content)


@given(st.binary(max_size=60).map(lambda content: b"<a href=x>" + content + b"<a href=y>"))
def test_any_bytes(content: bytes) -> None:
    assert_same(content)


@pytest.mark.parametrize("charset", ["windows-1252", "shift_jis", "gbk", "utf-16le", "iso-2022-jp", "euc-kr"])
def test_pages_in_other_encodings(charset: str) -> None:
    """In these encodings, a byte that looks like `<` or like a quote can be a part of another character."""
    for seed in range(200):
        for content in (soup(seed), soup(seed).decode("utf-8", "replace").encode(charset, "replace")):
            assert_same(prepare(content, Context(URL, charset, "me"))[0])


def test_the_scanner_is_used_only_if_compiled_and_for_links() -> None:
    content = b"<a href=x>y</a>"
    expected = parse(content, "utf-8", PAGES[0], CONFIG) if link_scanner.COMPILED else None
    assert scanned(content, "utf-8", PAGES[0], CONFIG) == expected
    wanted = [name for name in Context.__struct_fields__ if name.startswith("want_")]
    assert len(wanted) >= 3
    for name in wanted:
        found = scanned(content, "utf-8", Context(URL, **{name: True}), CONFIG)
        assert (found is None) == (name != "want_requisites" or not link_scanner.COMPILED), name


@pytest.mark.parametrize(
    "content",
    [
        b"<a href=/1></a><template shadowrootmode=open><a href=/2></a></template><a href=/3></a>",
        b"<template><a href=/no></a></template><!-- shadowrootmode --><a href=/1></a>",
        b"<template shadowrootmode=open><a href=/1></a><table><p><a href=/2></a>",
    ],
    ids=["root", "none", "left to the parser"],
)
def test_pages_with_shadow_roots(content: bytes) -> None:
    """Scanner and parser both find links in shadow roots, but not links in other templates."""
    expected = extract_page(content, PAGES[0], CONFIG)
    assert read_here(*prepare_scan(content, PAGES[0]), PAGES[0], CONFIG) == expected
    assert len(expected.hrefs) == content.count(b"href=/") - content.count(b"/no")


@pytest.mark.parametrize("links_max", [1, 3, 6])
def test_links_beyond_the_limit(links_max: int) -> None:
    """A link to the page itself does not count towards the limit."""
    config = ExtractConfig(links_max=links_max)
    for base in (b"", b"<base href=/b/>"):
        content = (
            base + b"<a href=#t><a href=u><a href=v><a href=u><iframe src=w></iframe><a href=x><a href=y>" * 2
        )
        found = Collected(PAGES[0])
        scanner = link_scanner.LinkScanner(content, found, links_max)
        assert scanner.scan() and len(found.hrefs) <= links_max + 1
        assert found.extracted("utf-8", "", links_max) == parse(content, "utf-8", PAGES[0], config)


_PARTS = [
    "a/page.html",
    "b/page.html",
    "page.html",
    "#",
    "#top",
    "&#35;",
    "&amp;",
    "&",
    "?q=",
    "\r",
    "\0",
    " ",
    "\u00e9",
    "A",
    "x" * 300,
]


@given(
    st.lists(st.lists(st.sampled_from(_PARTS), max_size=4).map("".join), min_size=2, max_size=12), st.data()
)
def test_repeated_links(hrefs: list[str], data: st.DataObject) -> None:
    """The scanner passes over links that it remembers; links that differ only in their last bytes are not repeated."""
    drawn = data.draw(
        st.lists(st.sampled_from([*hrefs, "a/page.html", "b/page.html"]), min_size=2, max_size=40)
    )
    quotes = data.draw(st.sampled_from(['"', "'"]))
    nofollow = data.draw(st.sampled_from(["", " rel=nofollow"]))
    tags = [f"<a href={quotes}{href}{quotes}{nofollow * (at % 3 == 0)}>" for at, href in enumerate(drawn)]
    assert assert_same("".join(tags).encode())


@pytest.mark.parametrize("form", FORMS)
def test_the_scanner_follows_the_rows_of_the_table(form: str) -> None:
    """The scanner finds every attribute of the table. Only framesets and the buttons of forms need the parser."""
    for row in LINK_ATTRIBUTES:
        for element in row.elements or ("p", "a", "img"):
            content = f"<{element} rel=next {row.attribute}=x></{element}>".encode()
            if assert_same(content, form):
                found = scan(content, PAGES[0], form)
                assert found is not None and found.hrefs == ["x"] * (row.followed or row.by_relation), content
            else:
                assert element == "frame" or row.attribute == "formaction"


_NUMBERS = [
    "",
    "0",
    "9",
    "13",
    "65",
    "127",
    "128",
    "129",
    "159",
    "160",
    "55296",
    "57343",
    "65534",
    "1114111",
    "1114112",
]
_NUMBERS += [
    "9" * 5000,
    "00000000065",
    "x",
    "x41",
    "X41",
    "x80",
    "xD800",
    "x10FFFF",
    "xFFFFFFFFF",
    "x0000000000041",
    "a",
]


@pytest.mark.parametrize("after", ["", "=", "a", "1", ";", " ", "&", "é", "x;"])
def test_character_references(after: str) -> None:
    names = [*html5, *(name[:-1] for name in html5), *(f"#{number}" for number in _NUMBERS)]
    values = [f"&{name}{after}" for name in names]
    tree = LexborHTMLParser(
        "<body>" + "".join(f'<p title="{value}"><title>{value}</title>' for value in values)
    )
    assert [node.attrs.get("title") for node in tree.css("p")] == [*map(attribute_text, values)]
    assert [node.text() for node in tree.css("title")] == [*map(data_text, values)]
