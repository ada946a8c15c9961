"""Test shadow roots: their content is part of the page, but the content of other templates is not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from crawler.config import ExtractConfig
from crawler.extract.collected import Context
from crawler.extract.links import extract_page, links_with_repeats
from crawler.extract.parser_child import Job, read, read_here
from crawler.pages.change_detection import visible_text
from crawler.records import Extracted
from crawler.shadow_roots import open_shadow_roots

OPEN = b"<template shadowrootmode=open>"
PIECES = [
    OPEN, b'<TEMPLATE ShadowRootMode="closed" class=x>', b"<template>", b"<template shadowrootmode=none>",
    b"</template>", b"<a href=/1>", b"</a>", b"<script>'</template>'</script>", b"<!-- <template> -->", b"words",
]  # fmt: skip


def hrefs(html: bytes) -> list[str | None]:
    return [node.attributes["href"] for node in LexborHTMLParser(html).css("a[href]")]


def test_templates_in_a_shadow_root_stay_templates_and_roots_in_a_template_stay_hidden() -> None:
    html = OPEN + b"<template><a href=/no></a></template><a href=/yes></a></template><a href=/after></a>"
    assert hrefs(open_shadow_roots(html)) == ["/yes", "/after"]
    html = b"<template>" + OPEN + b"<a href=/no></a></template></template><a href=/after></a>"
    assert hrefs(open_shadow_roots(html)) == ["/after"]


def test_text_that_only_looks_like_a_template_ends_no_template() -> None:
    html = (
        OPEN
        + b"<script>'</template>'</script><!--</template>--><template><a href=/no></a></template></template>"
    )
    assert hrefs(open_shadow_roots(html)) == []
    assert visible_text(OPEN + b"seen<template>hidden</template></template>") == b"seen"


@pytest.mark.parametrize("mode", [b"shadowrootmode=open", b"SHADOWROOTMODE = 'Closed'"])
def test_each_way_to_read_links_finds_those_in_shadow_roots(mode: bytes) -> None:
    page, config = Context("http://a.org/", "utf-8", "me"), ExtractConfig()
    html = b"<a href=/1></a><template></template><template %b><a href=/2></a></template>" % mode
    found = [
        read_here(html, "utf-8", page, config),
        extract_page(html, page, config),
        read(Job(page, html), config),
    ]
    assert [each.hrefs for each in found if isinstance(each, Extracted)] == [["/1", "/2"]] * 3
    assert links_with_repeats(html, page, config) == ["/1", "/2"]
    assert extract_page(html.replace(mode, b"title=open"), page, config).hrefs == ["/1"]


def test_a_page_without_shadow_roots_is_the_same_object() -> None:
    html = b"<template><a href=/1></template>"
    assert open_shadow_roots(html) is html


@given(st.lists(st.sampled_from(PIECES), max_size=30).map(b"".join))
def test_only_the_names_of_tags_change(html: bytes) -> None:
    assert open_shadow_roots(html).lower().replace(b"shadow-root", b"template") == html.lower()


def test_marking_shadow_roots_is_linear_in_hostile_pages() -> None:
    for piece in (OPEN, b"<template shadowrootmode ", b"<script>", b"</template>", b"<!--", b"<template "):
        assert open_shadow_roots(OPEN + piece * 100_000)
