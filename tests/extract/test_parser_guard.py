"""Test that the guard distinguishes pages that would block the process from pages that only look unusual."""

import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser

from crawler.config import ExtractConfig
from crawler.extract import parser_guard
from crawler.extract.collected import Context
from crawler.extract.links import extract_page
from crawler.extract.parser_guard import (
    TAGS_HARMLESS,
    Judgement,
    judge,
    most_attributes,
    open_elements,
    strip,
    without_formatting_attributes,
)
from crawler.extract.survey import FORMATTING_NAMES
from tests.extract.test_links import _tag

_ATTRIBUTES_OF_FORMATTING = re.compile(
    rb"<(" + b"|".join(FORMATTING_NAMES) + rb")[\t\n\f\r /][^>]*+", re.IGNORECASE
)
CONFIG = ExtractConfig()
PAGE = Context("http://h.example/")


def _distinct(name: bytes, count: int) -> list[bytes]:
    return [b"<%b a%d>" % (name, number) for number in range(count)]


ORDINARY = b"<p>text <b>bold</b> <a href='x' class='y'>link</a> <img src=z alt=''><br></p>\n"

SHAPES = {
    # the three shapes known to be quadratic
    "formatting": (b"<b><i><u><s>" * 3500, Judgement.EXCESSIVE),
    "nested div": (b"<div>" * 80_000, Judgement.EXCESSIVE),
    "attributes": (
        b"<p " + b"".join(b"a%d " % number for number in range(200_000)) + b">",
        Judgement.EXCESSIVE,
    ),
    # other shapes found by experiment
    "reopened": (b"<p>".join(_distinct(b"b", 10_000)), Judgement.EXCESSIVE),
    "reopened, few": (b"<p>".join(_distinct(b"b", 1500)), Judgement.STRIP),
    "reopened in a table": (
        b"<table>" + b"".join(_distinct(b"font", 1500)) + b"<tr>x" * 1500,
        Judgement.STRIP,
    ),
    "svg": (b"<svg>" + b"<g>" * 20_000, Judgement.EXCESSIVE),
    "select": (b"<select><div>" * 10_000, Judgement.EXCESSIVE),
    "anchors": (b"<a href=x><div>" * 10_000, Judgement.EXCESSIVE),
    "foster": (b"<table><div>" * 10_000, Judgement.EXCESSIVE),
    "end tags that close nothing": (b"<div></p>" * 10_000, Judgement.APART),
    "end tags first": (b"</div>" * 10_000 + b"<div>" * 10_000, Judgement.APART),
    "end tags in comments": (b"<div><!--</div>-->" * 10_000, Judgement.EXCESSIVE),
    "options": (b"<select>" + b"<option>" * 20_000, Judgement.APART),
    "quoted end": (b"<p " + b"".join(b'a%d=">" ' % number for number in range(11_000)), Judgement.APART),
    "quoted end behind blanks": (
        b"<p " + b"".join(b"a%d = '>' " % number for number in range(11_000)),
        Judgement.APART,
    ),
    # harmless
    "small": (b"<div>" * 1000, Judgement.SAFE),
    "ordinary": (ORDINARY * 500, Judgement.SAFE),
    "large": (ORDINARY * 15_000, Judgement.APART),
    "long script": (b"<script>" + b"if(i<n)x();" * 1000 + b"</script>" + ORDINARY * 100, Judgement.SAFE),
    "long": (ORDINARY.replace(b"text", b"many words of text " * 20) * 1000, Judgement.SAFE),
    "text": (b"word " * 25_000, Judgement.APART),
    "deep but closed": (b"<div><span>" * 900 + b"</span></div>" * 900, Judgement.SAFE),
    "paragraphs": (b"<p>x<li>y<br>" * 6000, Judgement.APART),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes(name: str) -> None:
    content, judgement = SHAPES[name]
    assert judge(content, CONFIG) is judgement


def test_a_page_of_very_many_tags_is_only_scanned() -> None:
    config = ExtractConfig(tags_max=1000)
    assert judge(b"<a href=x>x</a>" * 1000, config) is Judgement.SAFE
    assert judge(b"<a href=x>x</a>" * 1001, config) is Judgement.EXCESSIVE


def test_open_elements() -> None:
    assert open_elements(b"") == 0
    assert open_elements(b"<div><SPAN></span><b></div>") == 2
    assert open_elements(b"<br><img><p><p><li><td>") == 0
    assert open_elements(b"</b></b><b><!--</b>--><script></b></script><b>") == 2


def test_most_attributes() -> None:
    assert most_attributes(b"<p a b c=d e='>' f/g>", 30) == 0  # short tags are skipped
    # the guard does not detect this shape, but other limits apply to such a page
    assert most_attributes(b"<p " + b"a='>' " * 10 + b">", 8) == 0
    assert most_attributes(b"<p " + b"a b=c d='e' " * 10 + b">", 20) == 30
    assert most_attributes(b"<script>" + b"a<b c d e f g h i j k" * 9 + b"</script>", 3) == 0
    assert most_attributes(b"x<y " + b"a " * 10, 5) == 10


@given(st.lists(_tag(), max_size=12), st.booleans())
def test_stripping_changes_no_link(tags: list[tuple[str, str | None]], upper: bool) -> None:
    """Attributes of formatting elements contain no links, even if they look like links."""
    decoy = b"<B class='x' title=\"<p>\"><font/color=red><i\n>" if upper else b"<code class=k>c</code>"
    content = decoy.join(markup.encode() for markup, _ in tags)
    page = Context(PAGE.url, "utf-8")
    stripped = without_formatting_attributes(content)
    assert extract_page(stripped, page, CONFIG).hrefs == extract_page(content, page, CONFIG).hrefs


@given(
    st.lists(
        st.sampled_from([b"<b", b"<B", b" ", b">", b"a", b"=", b"'", b'"', b"/", b"<", b"\n", b"<font"]),
        max_size=40,
    )
)
def test_no_formatting_attribute_survives_stripping(pieces: list[bytes]) -> None:
    """Stripping gives the result of a regular expression: nothing follows the name of a formatting element."""
    content = b"".join(pieces)
    stripped = without_formatting_attributes(content)
    assert stripped == _ATTRIBUTES_OF_FORMATTING.sub(rb"<\1", content)
    assert without_formatting_attributes(stripped) == stripped
    for tag in (b"<b", b"<B", b"<font"):
        at = stripped.find(tag)
        while at >= 0:
            assert stripped[at + len(tag) : at + len(tag) + 1] not in (b" ", b"\n", b"/")
            at = stripped.find(tag, at + 1)


def test_strip_leaves_ordinary_pages_unchanged() -> None:
    page = ORDINARY * 500
    assert strip(page) is page
    ladder = SHAPES["reopened, few"][0]
    assert b" a1" not in strip(ladder)


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_pages_judged_safe_create_few_elements(seed: int) -> None:
    """Pages that nest costly elements at random and are judged SAFE or STRIP create few elements of 0.42 us each."""
    generator = random.Random(seed)
    names = [
        b"a",
        b"b",
        b"i",
        b"font",
        b"p",
        b"div",
        b"table",
        b"tr",
        b"td",
        b"select",
        b"svg",
        b"button",
        b"nobr",
    ]
    chosen = generator.sample(names, 3)
    ends = generator.random() < 0.5
    tags = []
    for number in range(generator.choice([TAGS_HARMLESS, 3000, 10_000])):
        name = generator.choice(chosen)
        tags.append(b"</%b>x" % name if ends and generator.random() < 0.3 else b"<%b a%d>" % (name, number))
    content = b"".join(tags)
    judgement = judge(content, CONFIG)
    if judgement in (Judgement.SAFE, Judgement.STRIP):
        if judgement is Judgement.STRIP:
            content = without_formatting_attributes(content)
        assert len(LexborHTMLParser(content).css("*")) < 1_000_000


_BLANKS = b" \t\n\f\r"
_QUOTED = {ord('"'): "double quoted", ord("'"): "single quoted"}


def _tag_end(content: bytes, begin: int) -> int:
    """Return the end of the tag that begins at `begin`, by the rules of WHATWG HTML, 13.2.5.8 to 13.2.5.40."""
    state, at = "tag name", begin + 1
    while at < len(content):
        octet = content[at]
        blank = octet in _BLANKS
        if state in ("double quoted", "single quoted"):
            if _QUOTED.get(octet) == state:
                state = "after quoted value"
        elif octet == ord(">"):
            return at
        elif state == "before value":
            if not blank:
                state = _QUOTED.get(octet, "unquoted")
        elif state == "unquoted":
            state = "before name" if blank else state
        elif state in ("attribute name", "after name") and octet == ord("="):
            state = "before value"
        elif octet == ord("/"):
            state = "before name"
        elif state == "tag name":
            state = "before name" if blank else state
        elif state in ("attribute name", "after name"):
            state = "after name" if blank else "attribute name"
        elif not blank:  # the state is "before name" or "after quoted value"; in both, "=" begins a name
            state = "attribute name"
        at += 1
    return len(content)


@settings(max_examples=400)
@given(
    st.lists(
        st.sampled_from(
            [b"<a", b"<", b">", b"=", b'"', b"'", b" ", b"\n", b"/", b"a", b'="', b"='", b"= '", b"x>y"]
        ),
        max_size=60,
    ).map(b"".join),
    st.integers(1, 12),
)
def test_no_tag_extends_past_a_certain_end(content: bytes, stretch: int) -> None:
    """No tag extends past the next position that `_sure_ends` yields, wherever the tag begins."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(parser_guard, "_STRETCH_BYTES", stretch)
        ends = list(parser_guard._sure_ends(content))
    assert all(content[end : end + 1] == b">" for end in ends[1:])
    for begin in (match.start() for match in re.finditer(rb"<[A-Za-z]", content)):
        end = _tag_end(content, begin)
        assert not [sure for sure in ends if begin < sure < end], (begin, end, ends)
