"""Test the links of a page: each rule of `extract/README.md`, "Links"."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.config import ExtractConfig
from crawler.extract.collected import Context
from crawler.extract.links import extract_page
from crawler.records import Extracted

URL = "http://h.example/dir/page"
CONFIG = ExtractConfig()


def _extract(content: bytes | str, **more: object) -> Extracted:
    page = content.encode() if isinstance(content, str) else content
    config = more.pop("config", CONFIG)
    assert isinstance(config, ExtractConfig)
    return extract_page(page, context(**more), config)


def context(
    *,
    url: str = URL,
    charset: str = "",
    link_values: tuple[str, ...] = (),
    refresh_value: str = "",
    robots_tags: tuple[str, ...] = (),
    obey_robots: bool = True,
    obey_nofollow: bool = True,
    want_requisites: bool = False,
    xhtml: bool = False,
) -> Context:
    """Return the context of a page; by default, nothing but its URL is set."""
    return Context(
        url,
        charset,
        "me",
        link_values,
        refresh_value,
        robots_tags,
        obey_robots,
        obey_nofollow,
        want_requisites,
        xhtml,
    )


@pytest.mark.parametrize(
    ("content", "hrefs"),
    [
        ("<a href=x>", ["x"]),
        ("<A HREF='x'>", ["x"]),
        ("<area href=x>", ["x"]),
        ("<iframe src=x>", ["x"]),
        ("<frameset><frame src=x><frame src=y></frameset>", ["x", "y"]),
        ("<link rel=next href=x>", ["x"]),
        ("<link rel='prev nofoo' href=x>", ["x"]),
        ("<link rel='ALTERNATE stylesheet' href=x>", ["x"]),
        ("<link rel=canonical href=x>", ["x"]),
        ("<body><p><link rel=next href=x>", ["x"]),
        ("<link rel=stylesheet href=x><link href=y><img src=z><script src=s></script>", []),
        ("<a>", []),
        ("<a href>", []),
        ("<a href=''>", []),
        ("<a name=x>", []),
        ("<!-- <a href=x> --><a href=y>", ["y"]),
        ("<script>'<a href=x>'</script><style><a href=x></style>", []),
        ("<textarea><a href=x></textarea><title><a href=y></title>", []),
        ("<template><a href=x></template><a href=y>", ["y"]),
        ("<noscript><a href=x></noscript>", ["x"]),
        ("<head><noscript><link rel=next href=x></noscript>", ["x"]),
        ("<xmp><a href=x></xmp><noembed><a href=x></noembed><noframes><a href=x></noframes>", []),
        ("<svg><a xlink:href=x></svg>", []),
        ("<svg><a xlink:href=x href=y></svg>", ["y"]),
        ("<a href='x?a&amp;b'>", ["x?a&b"]),
        ("<a href='x?a&#38;b&#x26;c'>", ["x?a&b&c"]),
        ("<a href='x?a&copy=1&copyright&copy;'>", ["x?a&copy=1&copyright©"]),
        ("<a href='x&notit;'>", ["x&notit;"]),
        ("<a href=x href=y>", ["x"]),  # if an attribute is repeated, the first one is used
        ("<a href=x#1><a href=x#2><a href=x>", ["x"]),  # links are unique after their fragments are removed
        ("<a href='#top'>", []),
        ("<a href=b><a href=a><a href=b>", ["b", "a"]),  # links are in the order of their appearance
        ("<a href=' x\n'>", [" x\n"]),  # hrefs are exactly as written
        ("<a href=a\0b>", ["a\ufffdb"]),
        ("<a href=javascript:void(0)><a href=mailto:x>", ["javascript:void(0)", "mailto:x"]),
        ("<a href=x", []),
        ("<table><tr><a href=x><td><a href=y>", ["x", "y"]),
        ("<p><a href=x>1<a href=y>2</a>", ["x", "y"]),
        # since 2025, the standard keeps elements other than options within select
        ("<select><option><a href=x>", ["x"]),
    ],
)
def test_markup_with_and_without_links(content: str, hrefs: list[str]) -> None:
    assert _extract(content).hrefs == hrefs


@pytest.mark.parametrize(
    ("content", "base"),
    [
        ("<a href=x>", URL),
        ("<base href=/b/>", "http://h.example/b/"),
        ("<base href=b/>", "http://h.example/dir/b/"),
        ("<base href=//other.example>", "http://other.example/"),
        ("<base href=javascript:x><base href=/b/><base href=/c/>", "http://h.example/b/"),
        ("<base target=x><base href='http://[bad'><base href=/b/>", "http://h.example/b/"),
        ("<body><p>x<a href=y><base href=/late/>", "http://h.example/late/"),
        ("<base href=ftp://f/>", URL),
        ("<template><base href=/b/></template>", URL),
        ("<svg><base href=/b/></svg>", URL),
        ("<svg><base href=/b/></svg><base href=/c/>", "http://h.example/c/"),
        ("<svg><g><base href=/b/></g></svg><math><base href=/c/></math>", URL),
        ("<svg><foreignObject><base href=/b/></foreignObject></svg>", "http://h.example/b/"),
        ("<math><annotation-xml><base href=/b/></annotation-xml></math>", URL),
        ("<math><annotation-xml encoding=text/html><base href=/b/>", "http://h.example/b/"),
        ("<svg>" + "<base href=/b/>" * 20 + "</svg><base href=/c/>", URL),
    ],
)
def test_base(content: str, base: str) -> None:
    assert _extract(content).base == base


def test_a_fragment_link_with_another_base_is_a_link() -> None:
    assert _extract("<base href=/b/><a href='#x'>").hrefs == [""]


@pytest.mark.parametrize(
    ("content", "header", "refresh"),
    [
        ("<meta http-equiv=refresh content='0;url=/x'>", "", "/x"),
        ("<meta content='0,URL = \"/x\"' http-equiv=REFRESH>", "", "/x"),
        ("<meta http-equiv=refresh content='5'>", "", ""),
        ("<meta http-equiv=refresh content='5; url='>", "", ""),
        ("<noscript><meta http-equiv=refresh content='0;x'></noscript>", "", "x"),
        ("<!--<meta http-equiv=refresh content='0;x'>-->", "", ""),
        ("<script><meta http-equiv=refresh content='0;x'></script>", "", ""),
        ("<meta http-equiv=refresh content='9'><meta http-equiv=refresh content='0;y'>", "", "y"),
        ("<meta http-equiv=refresh content='0;x'>", "3; url=/h", "http://h.example/h"),
        ("<base href=/b/>", "3; url=h", "http://h.example/dir/h"),
        ("<base href=/b/><meta http-equiv=refresh content='0;x'>", "0; url=mailto:h", "x"),
        ("<meta http-equiv=refresh content='0;x'>", "9", "x"),
        ("<meta http-equiv=refresh>", "", ""),
    ],
)
def test_refresh(content: str, header: str, refresh: str) -> None:
    assert _extract(content, refresh_value=header).refresh == refresh


def test_nofollow_links_are_skipped_unless_configured() -> None:
    content = """<a href=a rel=nofollow><a href=b rel='ugc NoFollow'><a href=c rel=nofollowme>
                 <link rel='next nofollow' href=d>"""
    assert _extract(content).hrefs == ["c"]
    assert _extract(content, obey_nofollow=False).hrefs == ["a", "b", "c", "d"]
    assert _extract(content, obey_robots=False).hrefs == ["a", "b", "c", "d"]


@pytest.mark.parametrize("name", ["robots", "ROBOTS", "me", "Me"])
def test_page_level_nofollow(name: str) -> None:
    content = f"<meta name={name} content=none><meta http-equiv=refresh content='0;r'><a href=x><img src=i>"
    found = _extract(content, want_requisites=True)
    assert (found.hrefs, found.requisites, found.refresh) == ([], [], "")
    assert found.nofollow and found.noindex and found.noarchive
    free = _extract(content, want_requisites=True, obey_robots=False)
    assert (free.hrefs, free.requisites, free.refresh, free.nofollow) == (["x"], ["i"], "r", True)


def test_directives_for_other_agents_are_ignored() -> None:
    found = _extract("<meta name=otherbot content=none><a href=x>", robots_tags=["otherbot: none", "noindex"])
    assert found.hrefs == ["x"] and found.noindex and not found.nofollow


def test_noindex_keeps_links() -> None:
    found = _extract("<a href=x>", robots_tags=["noindex"])
    assert found.hrefs == ["x"] and found.noindex


def test_header_links_come_first() -> None:
    found = _extract(
        "<a href=x>", link_values=["</next>; rel=next, </style>; rel=stylesheet, </c>; rel=canonical"]
    )
    assert found.hrefs == ["/next", "/c", "x"] and found.canonical == "/c"


def test_canonical_and_title() -> None:
    found = _extract("<title>\n A  <b>&amp; B </title><link rel=canonical href=/c#f>")
    assert found.canonical == "/c#f" and found.title == "A <b>& B"
    assert _extract("<body><svg><title>no</title></svg>").title == ""
    assert len(_extract(b"<title>" + b"x" * 100_000).title) == 1000


def test_links_are_capped() -> None:
    content = "".join(f"<a href={number}>" for number in range(50))
    assert _extract(content, config=ExtractConfig(links_max=7)).hrefs == [str(number) for number in range(7)]


def test_encoding_of_the_page() -> None:
    page = "<meta charset=koi8-r><a href='?а'>".encode("koi8-r")
    found = _extract(page)
    assert (found.encoding, found.hrefs) == ("koi8-r", ["?а"])
    assert _extract(b"<a href='?\xe9'>").hrefs == ["?é"]
    assert _extract(b"<a href='?\xe9'>", charset="utf-8").hrefs == ["?\ufffd"]


def test_xhtml_empty_elements() -> None:
    page = b"<html xmlns='x'><head><script src='s'/><title/></head><body><a id='t'/><a href='x'>y</a></body>"
    assert _extract(page).hrefs == []
    assert _extract(page, xhtml=True).hrefs == ["x"]


def test_all_attributes() -> None:
    page = """<img src=i longdesc=l><blockquote cite=c><form action=f></form><a href=x>
              <form method=post action=no></form><img srcset='s1 1x, s2 2x'>"""
    assert _extract(page).hrefs == ["x"]
    assert set(_extract(page, config=ExtractConfig(all_attributes=True)).hrefs) == {
        "x",
        "i",
        "l",
        "c",
        "f",
        "s1",
        "s2",
    }


# --- pages with known links -------------------------------------------------------------------------------

NAMES = st.text("abcé&/?=.", min_size=1, max_size=8)
RAW = ("script", "style", "textarea", "template", "title", "xmp")
DECOYS = ["<!--{}-->", *(f"<{tag}>{{}}</{tag}>" for tag in RAW)]
BLANKS = st.sampled_from(["", " ", "\n", "\t"])


@st.composite
def _tag(draw: st.DrawFn) -> tuple[str, str | None]:
    """Return some random markup, and the link that the markup contains; None if it contains no link."""
    href = draw(NAMES)
    quoted = f'{draw(BLANKS)}={draw(BLANKS)}"{href.replace("&", "&amp;")}"'
    anchor = (
        f"<{draw(st.sampled_from(['a', 'A']))} class=k {draw(st.sampled_from(['href', 'HREF']))}{quoted}>"
    )
    kind = draw(st.sampled_from(["a", "area", "iframe", "nofollow", "decoy", "noise"]))
    if kind == "a":
        return anchor + draw(st.sampled_from(["x</a>", "", "<b>x</a></b>"])), href
    if kind == "area":
        return f"<area href{quoted}>", href
    if kind == "iframe":
        return f"<iframe src{quoted}></iframe>", href
    if kind == "nofollow":
        return f"<a rel='x nofollow' href{quoted}>x</a>", None
    if kind == "noise":
        return draw(
            st.sampled_from(
                ["<p>", "</p>", "</div>", "<div>", "<td>", "text", "<br/>", "<!x>", "<?y>", "</>"]
            )
        ), None
    around = draw(st.sampled_from(DECOYS))
    return around.format(anchor), None


@given(st.lists(_tag(), max_size=12))
def test_generated_pages_with_known_links(tags: list[tuple[str, str | None]]) -> None:
    """The extractor finds exactly the links put into the page, once each and in order."""
    page = "".join(markup for markup, _ in tags)
    expected = list(dict.fromkeys(href for _, href in tags if href is not None))
    assert _extract(page, charset="utf-8").hrefs == expected
