"""Test the extraction of text from pages."""

import pytest

from crawler.config import ExtractConfig
from crawler.export.page_tasks import is_tame
from crawler.pages.formats import text


def test_the_text_of_html() -> None:
    page = (
        "<head><title> A\n title</title><style>p {}</style></head><script>x()</script><p>Grüße &amp; mehr</p>"
    )
    assert text.text_of(page.encode(), tame=True).strip() == "Grüße & mehr"


def test_main_content_leaves_menus_out() -> None:
    page = (
        b"<body><nav><a href=/>Home</a></nav><main><p>What it says.</p></main><footer>imprint</footer></body>"
    )
    assert "imprint" in text.text_of(page, tame=True)
    assert text.text_of(page, tame=True, main_content=True).strip() == "What it says."


LINKS = "".join(f"<li><a href=/{n}>Chapter {n} of the book</a></li>" for n in range(80))


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        (f"<div role=main><h1>Contents</h1><ul>{LINKS}</ul></div><nav>menu</nav>", "marked"),
        (f"<article><h1>Contents</h1><ul>{LINKS}</ul></article><nav>menu</nav>", "marked"),
        (f"<nav>menu</nav><h1>Contents</h1><ul>{LINKS}</ul>", "whole"),
        (f"<main>one</main><main>two</main><nav>menu</nav><h1>Contents</h1><ul>{LINKS}</ul>", "whole"),
    ],
)
def test_a_page_of_links_keeps_its_main_content(body: str, wanted: str) -> None:
    """For tables of contents, the heuristics alone once returned almost nothing."""
    page = f"<body>{body}<footer>imprint</footer></body>".encode()
    found = text.text_of(page, tame=True, main_content=True)
    assert found.count("of the book") == 80
    assert ("imprint" in found) == (wanted == "whole")


def test_text_without_a_parser() -> None:
    body = (
        "<title>a &lt; b</title><!-- no --><SCRIPT>no()</SCRIPT ><p>one\n two<br>three</p>"
        "<a href='>'>x</a> 1 < 2 &lt;b&gt;<!-- open"
    )
    assert text.text_of(body.encode(), tame=False) == "a < b one\ntwo three '>x 1 < 2 <b>"


QUADRATIC = {
    "formatting": "<b>" * 40_000,
    "mismatched": "<b></i>" * 40_000,
    "nested": "<div>" * 80_000,
    "attributes": "<p " + "a=1 " * 200_000 + ">",
    "large": "x" * 3_000_000,
}
LONG = QUADRATIC | {
    "comments": "<!--" * 100_000,
    "scripts": "<script>" * 50_000,
    "ends": "<script>" + "</script" * 50_000,
    "angles": "<" * 200_000,
    "entities": "&" * 100_000 + "&#" * 50_000,
}


@pytest.mark.parametrize("shape", QUADRATIC)
def test_hostile_pages_are_recognized(shape: str) -> None:
    page = ("<p>text</p>" + QUADRATIC[shape]).encode()
    assert not text.is_tame(page)
    assert not is_tame(page, ExtractConfig())


@pytest.mark.parametrize("shape", LONG)
def test_the_plain_scan_takes_linear_time(shape: str) -> None:
    """A regular expression that takes quadratic time would need minutes for these pages."""
    assert "text" in text.text_of(("<p>text</p>" + LONG[shape]).encode(), tame=False)


def test_ordinary_pages_are_not_suspicious() -> None:
    page = b"<table>" + b"<tr><td><img src=x><br><b>cell</b></td></tr>" * 5000 + b"</table>"
    assert text.is_tame(page) and is_tame(page, ExtractConfig())
