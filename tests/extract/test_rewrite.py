"""Test the rewriter, which replaces the URLs of a page; all other bytes stay unchanged."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from crawler.config import ExtractConfig
from crawler.extract.collected import Context
from crawler.extract.links import extract_page
from crawler.extract.rewrite import Kind, rewrite_css, rewrite_css_bytes, rewrite_html
from crawler.urls.canonical import resolve

BASE = "http://h.example/d/p"


def mark(url: str, kind: Kind) -> str | None:
    """Return the first letter of the kind ("m" for a meta refresh), then the URL in brackets. For `<base>`, return ""."""
    letter = "m" if kind is Kind.REFRESH else kind[0]
    return "" if kind is Kind.BASE else f"{letter}[{url.removeprefix('http://h.example')}]"


def rewritten(page: str) -> str:
    return rewrite_html(page.encode(), "utf-8", BASE, mark).decode()


@pytest.mark.parametrize(
    ("page", "expected"),
    [
        ("<a href=x>y</a>", '<a href="l[/d/x]">y</a>'),
        ("<A\nHREF = '/x?a=1&amp;b=2#f'>", "<A\nHREF = 'l[/x?a=1&amp;b=2]#f'>"),
        ('<a href="x&copy=1&amp">', '<a href="l[/d/x&amp;copy=1&amp;]">'),
        ("<a href='#top'>", "<a href='#top'>"),
        (
            "<a href='javascript:f()'><a href=mailto:a@b><a href>",
            "<a href='javascript:f()'><a href=mailto:a@b><a href>",
        ),
        ("<div href=x data-src=y>", "<div href=x data-src=y>"),
        ("<a title='<a href=x>' href=y>", "<a title='<a href=x>' href=\"l[/d/y]\">"),
        (
            "<link rel=stylesheet href=c integrity='sha256-x' crossorigin>",
            '<link rel=stylesheet href="r[/d/c]">',
        ),
        ("<link rel=next href=n integrity=x>", '<link rel=next href="l[/d/n]">'),
        (
            "<img src=a srcset=' b.png 1x,c,d.png 2x , data:x 3x'>",
            "<img src=\"r[/d/a]\" srcset=' r[/d/b.png] 1x,r[/d/c,d.png] 2x , data:x 3x'>",
        ),
        (
            "<iframe src=f><a href=no></iframe><frame src=f>",
            '<iframe src="f[/d/f]"><a href=no></iframe><frame src="f[/d/f]">',
        ),
        (
            "<script src=s>'<a href=no>'</script ><a href=x>",
            '<script src="r[/d/s]">\'<a href=no>\'</script ><a href="l[/d/x]">',
        ),
        ("<!-- <a href=no> --><!--><a href=x>", '<!-- <a href=no> --><!--><a href="l[/d/x]">'),
        (
            "<title><a href=no></title><textarea><a href=no></textarea>",
            "<title><a href=no></title><textarea><a href=no></textarea>",
        ),
        ("<plaintext><a href=no>", "<plaintext><a href=no>"),
        ("<style>@import 'i'; p{x:url(u)}</style>", "<style>@import 'r[/d/i]'; p{x:url(r[/d/u])}</style>"),
        ("<p style='x:url(&quot;u&quot;)'>", "<p style='x:url(\"r[/d/u]\")'>"),
        ("<meta http-equiv=Refresh content='5;URL=x'>", "<meta http-equiv=Refresh content='5; url=m[/d/x]'>"),
        (
            "<meta http-equiv=Content-Security-Policy content=\"default-src 'self'\">",
            '<meta http-equiv=Content-Security-Policy content="">',
        ),
        ("<meta name=description content='5;url=x'>", "<meta name=description content='5;url=x'>"),
        (
            "<video poster=p><object data=o></object><form action=a><button formaction=b><blockquote cite=c>",
            '<video poster="r[/d/p]"><object data="r[/d/o]"></object><form action="l[/d/a]">'
            '<button formaction="l[/d/b]"><blockquote cite="l[/d/c]">',
        ),
        (
            "<svg><image href=a /><use xlink:href='s.svg#x'/><a xlink:href=l>",
            '<svg><image href="r[/d/a]" /><use xlink:href=\'r[/d/s.svg]#x\'/><a xlink:href="l[/d/l]">',
        ),
        ("<a href=x", '<a href="l[/d/x]"'),
        ("<a href='x", "<a href='l[/d/x]'"),
        ('<a href="x"class=y>', '<a href="l[/d/x]"class=y>'),
    ],
)
def test_a_tag(page: str, expected: str) -> None:
    assert rewritten(page) == expected


def test_the_base_applies_to_all_urls_and_is_removed() -> None:
    page = "<a href=x><base target=_top href='/b/'><a href='#f'><base href=/no/>"
    assert (
        rewritten(page) == "<a href=\"l[/b/x]\"><base target=_top href=''><a href='l[/b/]#f'><base href=\"\">"
    )


@pytest.mark.parametrize(
    "page",
    [
        "<svg><base href=/b/></svg>",
        "<svg><base href=/b/></svg><base href=/c/>",
        "<svg><g><base href=/b/></g></svg><math><base href=/c/></math>",
        "<svg/><base href=/b/>",
        "<svg viewBox='a>b'><base href=/b/></svg>",
        "<svg><foreignObject><base href=/b/></foreignObject></svg>",
        "<svg><foreignObject><svg><base href=/b/></svg></foreignObject></svg>",
        "<svg><desc/><base href=/b/></svg>",
        "<svg></p><base href=/b/></svg>",
        "<svg><p><base href=/b/></svg>",
        "<p><svg><rect></svg><base href=/b/>",
        "<math><mi><base href=/b/></mi></math>",
        "<math><annotation-xml><base href=/b/></annotation-xml></math>",
        "<math><annotation-xml encoding='text/html'><base href=/b/>",
        "<template><base href=/b/></template>",
        "<template><svg></template><base href=/b/>",
        "<template><p></template><base href=/b/>",
        "<!-- <svg> --><base href=/b/>",
        "<a title='<svg >'><base href=/b/>",
        "<script>'<svg>'</script><base href=/b/>",
        "<svg>" + "<base href=/b/>" * 20 + "</svg><base href=/c/>",
        "<SVG><BASE href=/b/></SVG><Base href=/c/>",
    ],
)
def test_the_base_is_the_one_that_the_extractor_uses(page: str) -> None:
    """In an earlier version, a `<base>` inside SVG changed the targets of all links in a rewritten page."""
    page += "<a href=x>"
    base = extract_page(page.encode(), Context(BASE), ExtractConfig()).base
    assert f"l[{resolve(base, 'x').removeprefix('http://h.example')}]" in rewritten(page)


def test_urls_mapped_to_none_are_unchanged() -> None:
    page = b"<base href=/b/><a href=x integrity=y><p style='a:url(b)'><style>a{b:url(c)}</style><img srcset='a 1x'>"
    assert rewrite_html(page, "utf-8", BASE, lambda url, kind: None) == page


def test_replacements_cannot_break_out_of_their_value() -> None:
    """The result of `map_url` stays within the attribute value, the CSS string or the srcset candidate."""
    evil = "x\"'><script>(&amp;) ,"
    page = b"<a href=a><a href='a'><a href=\"a\"><p style='b:url(a)'><style>b{c:url(a)}</style><img srcset='a 1x'>"
    changed = rewrite_html(page, "utf-8", BASE, lambda url, kind: evil)
    tree = LexborHTMLParser(changed)
    assert [node.attributes["href"] for node in tree.css("a")] == [evil] * 3
    assert not tree.css("script")
    assert [node.text() for node in tree.css("style")] == [r"b{c:url(x\"\'\3e \3c script\3e \(&amp;\)\20 ,)}"]
    assert [node.attributes["srcset"] for node in tree.css("img")] == ["x\"'><script>(&amp;)%20%2C 1x"]


@pytest.mark.parametrize(
    "encoding", ["utf-8", "windows-1251", "shift_jis", "gb18030", "utf-16le", "iso-2022-jp"]
)
def test_encodings(encoding: str) -> None:
    """Queries are encoded in the encoding of the page, and paths in UTF-8. The surrounding text is unchanged."""
    text = {"windows-1251": "жук"}.get(encoding, "表示")
    page = f"<p>{text}<a href='/{text}?{text}'>".encode(encoding)
    expected = resolve(BASE, f"/{text}?{text}", encoding=encoding)
    changed = rewrite_html(page, encoding, BASE, lambda url, kind: "x.html" if url == expected else "no")
    assert changed == f"<p>{text}<a href='x.html'>".encode(encoding)


def test_xhtml_scripts_may_close_themselves() -> None:
    page = b"<script src='a'/><a href='x'/>"
    assert (
        rewrite_html(page, "utf-8", BASE, mark, xhtml=True) == b"<script src='r[/d/a]'/><a href='l[/d/x]'/>"
    )
    assert rewrite_html(page, "utf-8", BASE, mark) == b"<script src='r[/d/a]'/><a href='x'/>"


@pytest.mark.parametrize(
    ("css", "expected"),
    [
        ('a{b:url(x) no-repeat,URL( "y\'(1)" )}', 'a{b:url(r[/d/x]) no-repeat,URL( "r[/d/y\\\'\\(1\\)]" )}'),
        (
            "@import 'a'; @import/**/\"b\" screen;@import url(c);",
            "@import 'r[/d/a]'; @import/**/\"r[/d/b]\" screen;@import url(r[/d/c]);",
        ),
        ("/*url(no)*/a{content:'url(no)';b:curl(no)} @namespace svg url(no);", None),
        ("a{b:url(data:x,y);c:url(#f);d:url()}", None),
        (
            "a{b:image-set('i' type('t/no') 1x, url(j) 2x)}",
            "a{b:image-set('r[/d/i]' type('t/no') 1x, url(r[/d/j]) 2x)}",
        ),
        (r"a{b:url(x\28 1\29 .png)}", r"a{b:url(r[/d/x\(1\).png])}"),
        ("a{b:url(x y)}", None),
        ("a{b:url(x", "a{b:url(r[/d/x]"),
        ("a{b:'\nurl(x)}", "a{b:'\nurl(r[/d/x])}"),
    ],
)
def test_css(css: str, expected: str | None) -> None:
    assert rewrite_css(css, BASE, mark) == (css if expected is None else expected)


def test_css_as_bytes() -> None:
    """The charset of the HTTP header takes precedence over @charset. Invalid bytes are unchanged."""
    sheet = "a{b:url(ж)}".encode("cp1251") + b"\x98"
    changed = rewrite_css_bytes(b'@charset "windows-1251";' + sheet, "", BASE, mark)
    assert changed == b'@charset "windows-1251";a{b:url(r[/d/%D0%B6])}\x98'
    assert rewrite_css_bytes(b"\xffa{b:url(x)}", "", BASE, mark) == b"\xffa{b:url(r[/d/x])}"
    assert (
        rewrite_css_bytes("a{b:url(x)}".encode("utf-16"), "", BASE, mark).decode("utf-16")
        == "a{b:url(r[/d/x])}"
    )


PIECES = [
    "<",
    ">",
    "a",
    " ",
    "href",
    "=",
    '"',
    "'",
    "/",
    "!--",
    "--",
    "script",
    "style",
    "url(",
    ")",
    "\\",
    "é",
    "base",
    "#",
]


@pytest.mark.parametrize(
    "piece", ["<g", "<g ", "<a=", "<plaintext", '<a b="', "<!--", "<script ", "<base/", "<svg "]
)
def test_rewriting_is_linear(piece: str) -> None:
    """Once, the rest of the page was read again for each `<`: 20 kB of `<g` took 0.25 s of CPU, 40 kB took 1 s."""

    def cpu(nbytes: int) -> float:
        page, began = piece.encode() * (nbytes // len(piece)), time.process_time()
        assert rewrite_html(page, "utf-8", BASE, lambda url, kind: None) == page
        return time.process_time() - began

    assert cpu(40_000) < 3.0 * cpu(20_000) + 0.1


pages = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)


@given(pages)
def test_a_page_without_replacements_is_unchanged(page: str) -> None:
    """If no URL is replaced, the page is unchanged. If URLs are replaced, no page causes an exception."""
    assert rewrite_html(page.encode(), "utf-8", BASE, lambda url, kind: None) == page.encode()
    assert rewrite_css(page, BASE, lambda url, kind: None) == page
    rewrite_html(page.encode(), "utf-8", BASE, mark)


@given(
    st.lists(
        st.sampled_from(
            [
                "<a href='x1'>",
                '<p title="\'">',
                "<!-- c -->",
                "<script>'<a href=x2>'</script>",
                "<style>p{}</style>",
                "<b title='>'>",
                "<a href=x3 class=y>",
                "<title><a href=no></title>",
                "text",
                "<br/>",
                "<area href = x4>",
                "</a x='y'>",
            ]
        ),
        max_size=12,
    )
)
def test_links_are_those_of_the_parser(parts: list[str]) -> None:
    """The URLs that the rewriter treats as links are those of the extractor, in the same order."""
    page = "".join(["<p>", *parts]).encode()
    seen: dict[str, None] = {}
    rewrite_html(page, "utf-8", BASE, lambda url, kind: seen.setdefault(url))
    found = extract_page(page, Context(BASE), ExtractConfig())
    assert list(seen) == [resolve(BASE, href) for href in found.hrefs]


def test_white_space_at_the_end_of_a_tag_takes_linear_time() -> None:
    """A tag with 64 kB of white space at its end once blocked the loop for six seconds."""
    content = b"<a href=/x" + b" \r\n" * 300_000 + b">"
    began = time.thread_time()
    assert rewrite_html(content, "utf-8", "http://h.example/", lambda url, _: "y").startswith(b'<a href="y"')
    assert time.thread_time() - began < 2.0
