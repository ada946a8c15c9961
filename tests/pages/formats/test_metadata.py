"""Test the extraction of the metadata that a page declares."""

import json
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.pages.formats import metadata, text
from crawler.pages.formats.metadata import PRECEDENCE, iso_date, read_metadata

URL = "https://site.example/dir/page"
NONE = dict.fromkeys(PRECEDENCE)


def _read(html: str | bytes, **options: Any) -> dict[str, str | None]:
    utf8 = html if isinstance(html, bytes) else html.encode()
    return read_metadata(text.tree_of(utf8, tame=True), utf8, URL, **options)


def _said(html: str, **options: Any) -> dict[str, str | None]:
    return {column: value for column, value in _read(html, **options).items() if value is not None}


def _ld(value: object) -> str:
    return f'<script type="application/ld+json">{json.dumps(value)}</script>'


ARTICLE = {"@context": "https://schema.org", "@type": "NewsArticle"}
MICRODATA = """<div itemscope itemtype="https://schema.org/BlogPosting">
<span itemprop=author itemscope itemtype=https://schema.org/Person><b itemprop=name>Ann  Lee</b></span>
<time itemprop=datePublished datetime=2026-11-03T10:00:00+02:00>today</time><img itemprop=image src=../a.png>
<p itemprop=description>About it</p></div><p itemprop=author>nobody</p>"""


@pytest.mark.parametrize(
    ("html", "expected"),
    [
        ("", {}),
        ("<html lang=EN-us><p>x", {"declared_language": "en-US"}),
        ("<html lang='not a tag!'><meta property=og:locale content=pt_BR>", {"declared_language": "pt-BR"}),
        # from ogp.me: the four basic properties, an article, and structured images, of which the first is
        # preferred
        (
            """<meta property=og:site_name content=IMDb><meta property=og:url content=https://www.imdb.com/t>
            <meta property=og:image content=https://i.example/1.jpg><meta property=og:image content=/2.jpg>
            <meta property=og:description content=Film><meta property=article:published_time content=2026-11-03>
            <meta property=article:modified_time content=2026-11-04T01:02:03Z>
            <meta property=article:author content=https://profile.example/ann>""",
            {
                "site_name": "IMDb",
                "canonical": "https://www.imdb.com/t",
                "image": "https://i.example/1.jpg",
                "description": "Film",
                "published": "2026-11-03",
                "modified": "2026-11-04T01:02:03Z",
            },
        ),
        (
            "<meta property=og:image content=http://a/1><meta property=og:image:secure_url content=https://a/1>",
            {"image": "https://a/1"},
        ),
        ("<meta name=Description content='  one\n two '>", {"description": "one two"}),
        (
            "<meta name=citation_author content='Lee, A.'><meta name=citation_author content='Roe, B.'>"
            "<meta name=citation_publication_date content=2026/3/9>",
            {"author": "Lee, A.; Roe, B.", "published": "2026-03-09"},
        ),
        ("<meta name=DC.creator content=Ann><meta name=author content=' '>", {"author": "Ann"}),
        ("<base href=/b/><link rel='x CANONICAL' href=c#f>", {"canonical": "https://site.example/b/c"}),
        # from schema.org: persons as objects, lists and text; arrays of blocks; @graph with references
        (
            _ld(ARTICLE | {"author": [{"@type": "Person", "name": "Ann"}, "Bob"], "datePublished": "2026"}),
            {"author": "Ann; Bob", "published": "2026"},
        ),
        (
            _ld(
                {
                    "@graph": [
                        {"@type": "WebPage", "description": "page", "author": "no", "inLanguage": "de"},
                        {
                            "@type": ["Thing", "http://schema.org/Article"],
                            "author": {"@id": "#a"},
                            "publisher": {"@id": "#o"},
                            "image": {"@type": "ImageObject", "url": "/i.png"},
                        },
                        {"@type": "Person", "@id": "#a", "name": "Ann"},
                        {"@type": "Organization", "@id": "#o", "name": "The Paper", "description": "no"},
                    ]
                }
            ),
            {
                "author": "Ann",
                "site_name": "The Paper",
                "image": "https://site.example/i.png",
                "description": "page",
                "declared_language": "de",
            },
        ),
        (_ld({"@type": "WebPage", "mainEntity": ARTICLE | {"creator": "Cy"}}), {"author": "Cy"}),
        (_ld({"@type": "Organization", "description": "no", "url": "/no"}), {}),
        (
            "<script type='application/ld+json; charset=utf-8'><!-- "
            '{"@type": "Article", "description": "a\nb"} --></script>',
            {"description": "a b"},
        ),
        (
            MICRODATA,
            {
                "author": "Ann Lee",
                "published": "2026-11-03T08:00:00Z",
                "image": "https://site.example/a.png",
                "description": "About it",
            },
        ),
        # the source with the highest precedence is used
        (_ld(ARTICLE | {"author": "ld"}) + "<meta name=author content=meta>" + MICRODATA, "ld"),
        ("<meta name=author content=meta>" + MICRODATA, "Ann Lee"),
        (_ld(ARTICLE | {"description": "ld", "author": "x"}) + "<meta name=description content=meta>", "x"),
        # if a value cannot be used, the next source counts
        (
            _ld(ARTICLE | {"datePublished": "yesterday"}) + "<meta name=date content=2026-01-02>",
            {"published": "2026-01-02"},
        ),
        (
            "<meta property=og:image content=data:x><link rel=image_src href=/k>",
            {"image": "https://site.example/k"},
        ),
    ],
)
def test_each_source_and_their_precedence(html: str, expected: dict[str, str] | str) -> None:
    said = _said(html)
    assert (said["author"] if isinstance(expected, str) else said) == expected


def test_a_link_in_the_header_precedes_one_in_the_page() -> None:
    page = "<link rel=canonical href=/page>"
    said = _said(page, header_links=[("/header", frozenset({"canonical"}))])
    assert said == {"canonical": "https://site.example/header"}


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("2026-11-03", "2026-11-03"),
        ("20261103", "2026-11-03"),
        (" 2026-11 ", "2026-11"),
        ("2026-11-03T10:00", "2026-11-03T10:00:00"),
        ("2026-11-03 10:00:00 +0130", "2026-11-03T08:30:00Z"),
        ("2026-11-03T10:00:00.1234567Z", "2026-11-03T10:00:00Z"),
        ("2026/11/3", "2026-11-03"),
        ("Tue, 03 Nov 2026 10:00:00 GMT", "2026-11-03T10:00:00Z"),
        ("3 Nov 2026 10:00:00 -0100", "2026-11-03T11:00:00Z"),
        *(
            (text, None)
            for text in ("", "today", "2026-13-01", "2026-13", "0001-01-01T00:00:00", "03.11.2026")
        ),
        *(
            (text, None)
            for text in ("1793959200", "9999-12-31T23:59:59-10:00", "2026-W10", "٢٠٢٦", "0" * 9999)
        ),
    ],
)
def test_dates_become_iso_8601_or_nothing(written: str, expected: str | None) -> None:
    assert iso_date(written) == expected


DEEP = 100_000


@pytest.mark.parametrize(
    "block",
    [
        "[" * DEEP,
        "[" * DEEP + "]" * DEEP,
        '{"@graph":' * DEEP,
        '{"@type": "Article", "author": "\\ud800"}',
        '{"@type": "Article", "author": ' + "1" * 10_000 + "}",
        '{"@type": {"a": []}, "@id": [], "author": {"@id": {}}}',
        '{"@type": "Article", "author": [[[]], {"name": [[]]}, null, NaN], "image": [{"url": []}]}',
        '{"@type": "Article", "author": {"@id": "#a", "name": [{}]}, "@id": "#a"}',
        "null",
        '{"@type": "Article",',
    ],
)
def test_hostile_linked_data_is_ignored(block: str) -> None:
    assert set(_read(f"<script type=application/ld+json>{block}</script>")) == set(PRECEDENCE)


def test_values_are_bounded_and_valid_text() -> None:
    huge = "x" * 50_000
    said = _said(_ld(ARTICLE | {"author": [huge] * 2, "description": huge, "image": "/" + huge}))
    assert (
        set(said) == {"author", "description"} and len(said["description"] or "") == metadata.CHARACTERS_MAX
    )
    said = _said('<script type=application/ld+json>{"@type": "Article", "author": "a\\ud800b"}</script>')
    assert said == {"author": "a?b"}


def test_blocks_items_and_nesting_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    other, mine = _ld({"@type": "Thing"}), _ld(ARTICLE | {"author": "Ann"})
    assert _said(other * (metadata.BLOCKS_MAX - 1) + mine) == {"author": "Ann"}
    assert _said(other * metadata.BLOCKS_MAX + mine) == {}
    assert _said(_ld([{"@type": "Thing"}] * metadata.ITEMS_MAX + [ARTICLE | {"author": "Ann"}])) == {}
    scope = '<div itemscope itemtype="/Article">%s<p itemprop=author>Ann</p>'
    assert _said(scope % ("<i itemprop=description>x</i>" * (metadata.PROPERTIES_MAX - 2)))["author"] == "Ann"
    assert "author" not in _said(scope % ("<i itemprop=description>x</i>" * (metadata.PROPERTIES_MAX - 1)))
    block = json.dumps(ARTICLE | {"author": "Ann"})
    monkeypatch.setattr(metadata, "BLOCK_CHARACTERS_MAX", len(block))
    assert _said(mine) == {"author": "Ann"}
    assert _said(mine.replace("}", "} ")) == {}


def test_the_text_of_microdata_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each property around the same text is counted, so that nested properties do not take quadratic time."""
    monkeypatch.setattr(metadata, "MICRODATA_CHARACTERS_MAX", 10)
    html = "<div itemscope itemtype=/Article>%s<i itemprop=author>Ann</i></div>"
    assert _said(html % "<i itemprop=description>123456789</i>")["author"] == "Ann"
    assert _said(html % "<i itemprop=description>1234567890</i>") == {"description": "1234567890"}


def test_the_root_element_may_be_an_item() -> None:
    assert _said("<html itemscope itemtype=/Article><p itemprop=author>Ann") == {"author": "Ann"}


JSON = st.recursive(
    st.none() | st.floats() | st.text(max_size=5) | st.sampled_from(["Article", "#a", "2026-01-01"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["@type", "@id", "@graph", "author", "name", "image", "url", "datePublished"]),
            inner,
        )
    ),
    max_leaves=12,
)
PIECES = st.sampled_from(
    [
        "<div itemscope itemtype=/Article>",
        "<p itemprop='author name'>",
        "<meta itemprop=image content=",
        "</div>",
    ]
    + [
        "<meta property=og:image content='",
        "<script type=application/ld+json>",
        "</script>",
        "<base href='http:",
        "'>",
    ]
    + [
        '{"@type": "Article", "author":',
        "<link rel=canonical href=",
        "<html lang=",
        "<time itemprop=datePublished>",
    ]
)


@pytest.mark.parametrize(
    "head",
    [
        "<script>'<meta name=author content=no>'</script><meta name=author content=Ann>",
        "<style>/*<meta name=author content=no>*/</style><meta name=author content=Ann>",
        "<template><meta name=author content=no></template><meta name=author content=Ann>",
        "<noscript><link rel=x><meta name=author content=no></noscript><meta name=author content=Ann>",
        "<!-- <meta name=author content=no> --><meta name=author content=Ann>",
        "<!-- <script> --><meta name=author content=Ann>",
        "<!--[if IE]><script>x</script><![endif]--><script>'<!--'</script><meta name=author content=Ann><style></style>",
        "<title>&lt;meta name=author content=no></title><meta name=author content=Ann>",
        "<meta content=Ann data-x=1 NAME=Author>",
        "<meta name='x' content='\">'><meta property='' name=author content=Ann>",
        "<meta content='<meta name=author content=no>'><META NAME=AUTHOR CONTENT=Ann />",
    ],
)
def test_only_children_of_the_head_count(head: str) -> None:
    """The head is read from its serialized form, in which content and values may look like elements."""
    assert _said(f"<head>{head}</head>") == {"author": "Ann"}


def test_a_quote_in_the_name_of_an_attribute_begins_no_other_attribute() -> None:
    """A name of 60,000 letters before such a quote once took 21 s of CPU, because the search began at each letter."""
    assert _said('<head><meta aa"name=author content=Ann></head>') == {}
    assert _said(f'<head><meta {"a" * 60_000}"=x name=author content=Ann></head>') == {"author": "Ann"}


def test_values_in_the_head_are_unescaped() -> None:
    said = _said(
        """<meta name=author content='A &lt;b> &amp;amp; "c" &nbsp;d'><link rel=canonical href='/?a=1&amp;b="2'>"""
    )
    assert said == {"author": 'A <b> &amp; "c" d', "canonical": "https://site.example/?a=1&b=%222"}


def test_a_property_belongs_to_the_innermost_item() -> None:
    html = (
        "<i itemprop=author>no</i><div itemscope itemtype=/Article>"
        "<p itemprop=author itemscope><b itemprop=name>Ann</b></p>"
        "<i itemprop=description>mine</i></div><i itemprop=description>no</i>"
        "<div itemscope itemtype=/Person><i itemprop=description>no</i></div>"
    )
    assert _said(html) == {"author": "Ann", "description": "mine"}


@pytest.mark.parametrize("opening", ["", "<!-- ", " //<![CDATA[\n", "<![CDATA["])
@pytest.mark.parametrize("closing", ["", " -->\n", "\n//]]> ", "]]>"])
def test_comment_marks_around_a_block_are_ignored(opening: str, closing: str) -> None:
    block = f"<script type=application/ld+json>{opening}{json.dumps(ARTICLE | {'author': '-->'})}{closing}</script>"
    assert _said(block) == {"author": "-->"}


def test_properties_that_are_not_needed_do_not_count() -> None:
    many = "<i itemprop=ingredient>x</i>" * metadata.PROPERTIES_MAX
    html = f"<div itemscope itemtype=/Recipe>{many}<i itemprop='x author'>Ann</i></div>"
    assert _said(html) == {"author": "Ann"}


@settings(max_examples=150, deadline=None)
@given(JSON, st.lists(PIECES | st.text(max_size=6), max_size=25))
def test_no_page_raises(value: object, soup: list[str]) -> None:
    """Whatever the page contains, every column is None or text that UTF-8 can encode."""
    for html in (_ld(value), "".join(soup)):
        found = _read(html.encode("utf-8", "replace"))
        assert set(found) == set(PRECEDENCE)
        assert all(value is None or value.encode() for value in found.values())


@pytest.mark.parametrize(
    "body",
    [
        "<script></script>" * 1000 + _ld([ARTICLE | {"author": "Ann"}]),
        _ld([ARTICLE | {"author": "Ann"}]) + "<script type='x/ld+json'></script>" * 1000,
        "<div itemscope itemtype='https://schema.org/Article'>" + "<i itemprop=author>Ann</i>" * 1000,
        "<div itemscope itemtype=/Article><i itemprop=author>Ann</i>"
        + "<b>" * 99
        + "<i itemprop=name>x</i>" * 1000,
        "<div itemscope itemtype=/Article><i itemprop=author>Ann</i>"
        + "<div>" * 1000
        + "<i itemprop=name>x</i>" * 1000,
        _ld(ARTICLE | {"author": "Ann", "text": "-->]]> " * 9000}),
    ],
)
def test_many_elements_take_linear_time(body: str) -> None:
    """1,000 scripts once took 2.4 s of CPU.

    The parser builds its list of elements again at each step of a loop.
    """
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    tree, utf8 = text.tree_of(body.encode(), tame=True), body.encode()
    sys.setprofile(count)
    try:
        said = read_metadata(tree, utf8, URL)
    finally:
        sys.setprofile(None)
    assert said["author"] == "Ann" and calls < 20_000
