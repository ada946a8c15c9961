"""Test that parser, scan, trace, requisites, rewriter and README use the same table of attributes that hold URLs."""

from pathlib import Path

import pytest

import crawler.extract
from crawler.config import ExtractConfig
from crawler.extract.collected import Context
from crawler.extract.link_attributes import LINK_ATTRIBUTES, Form, Kind, LinkAttribute, page_table
from crawler.extract.links import extract_page, links_with_repeats
from crawler.extract.rewrite import rewrite_html
from crawler.extract.scan import scan_utf8

URL = "http://h.example/"
CONFIG = ExtractConfig()
VALUES = {Form.URL: "u", Form.CANDIDATES: "u 2x", Form.CSS: "background:url(u)"}
# Elements that are valid only inside other elements.
INSIDE = {"source": "<video>%s</video>", "track": "<video>%s</video>", "frame": "<frameset>%s</frameset>"}


def _markup(row: LinkAttribute, element: str, rel: str = "") -> bytes:
    tag = f'<{element} {row.attribute}="{VALUES[row.form]}"{rel}>'
    if element == "image" or (element in ("use", "feimage", "pattern", "lineargradient")):
        tag = f"<svg>{tag}</svg>"
    if element == "base":
        tag += "<a href=x>"
    return (INSIDE.get(element, "%s") % tag).encode()


ROWS = [
    pytest.param(row, element, id=f"{element}-{row.attribute}")
    for row in LINK_ATTRIBUTES
    if not row.by_relation
    for element in row.elements or ("p",)
]


@pytest.mark.parametrize(("row", "element"), ROWS)
def test_all_readers_follow_the_rows_of_the_table(row: LinkAttribute, element: str) -> None:
    page, markup = Context(URL), _markup(row, element)
    followed = ["u"] if row.followed else []
    expected = [] if element == "base" else followed
    found = extract_page(markup, page, CONFIG)
    assert [href for href in found.hrefs if href == "u"] == expected
    assert [href for href in scan_utf8(markup, "utf-8", page, CONFIG).hrefs if href == "u"] == expected
    assert [href for href in links_with_repeats(markup, page, CONFIG) if href == "u"] == expected
    if element == "base":
        assert found.base == f"{URL}u"


@pytest.mark.parametrize(("row", "element"), ROWS)
def test_requisites_are_those_of_the_table(row: LinkAttribute, element: str) -> None:
    found = extract_page(_markup(row, element), Context(URL, want_requisites=True), CONFIG)
    assert found.requisites == (["u"] if row.kind in (Kind.REQUISITE, Kind.FRAME) else [])


@pytest.mark.parametrize(("row", "element"), ROWS)
def test_all_attributes_covers_the_whole_table(row: LinkAttribute, element: str) -> None:
    config = ExtractConfig(all_attributes=True)
    assert ("u" in extract_page(_markup(row, element), Context(URL), config).hrefs) == (
        row.kind is not Kind.BASE
    )
    if row.of_form:
        post = ' method="post"' if element == "form" else ' formmethod="POST"'
        assert "u" not in extract_page(_markup(row, element, post), Context(URL), config).hrefs


@pytest.mark.parametrize(
    ("method", "overriding", "found"), [("post", "", 0), ("post", "get", 1), ("get", "post", 0)]
)
def test_a_button_has_the_method_of_its_form_unless_it_names_its_own(
    method: str, overriding: str, found: int
) -> None:
    own = f' formmethod="{overriding}"' if overriding else ""
    page = f'<form method="{method}"><p><button formaction="u"{own}>x</button></p></form>'.encode()
    hrefs = extract_page(page, Context(URL), ExtractConfig(all_attributes=True)).hrefs
    assert hrefs.count("u") == found


@pytest.mark.parametrize(("row", "element"), ROWS)
def test_every_row_is_rewritten_as_its_kind(row: LinkAttribute, element: str) -> None:
    kinds: list[Kind] = []

    def mapped(url: str, kind: Kind) -> str:
        if url == f"{URL}u":
            kinds.append(kind)
        return "new"

    changed = rewrite_html(_markup(row, element), "utf-8", URL, mapped)
    assert kinds == [row.kind] and b"new" in changed


def test_the_readme_prints_the_table() -> None:
    page = Path(crawler.extract.__file__ or "").parent / "README.md"
    assert page_table() in page.read_text(encoding="utf-8")
