"""Test the extraction of the URLs needed to display a page."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.config import ExtractConfig
from crawler.extract.collected import Context
from crawler.extract.css import css_urls
from crawler.extract.links import extract_page
from crawler.extract.requisites import srcset


@pytest.mark.parametrize(
    ("value", "urls"),
    [
        ("", []),
        (None, []),
        ("a.jpg", ["a.jpg"]),
        ("a.jpg 1x, b.jpg 2x", ["a.jpg", "b.jpg"]),
        (" , a.jpg  480w 1h ,b.jpg", ["a.jpg", "b.jpg"]),
        ("a.jpg, b.jpg", ["a.jpg", "b.jpg"]),
        ("a,b.jpg 1x", ["a,b.jpg"]),
        ("data:image/png;base64,AA== 1x, b 2x", ["data:image/png;base64,AA==", "b"]),
        ("a (1x, 2x) 3x, b", ["a", "b"]),
        ("a (1x, b", ["a"]),
    ],
)
def test_srcset(value: str | None, urls: list[str]) -> None:
    """Find the URLs in values of srcset (WHATWG HTML, 4.8.4.3.10)."""
    assert list(srcset(value)) == urls


@pytest.mark.parametrize(
    ("text", "urls"),
    [
        ("a{background:url(x.png) no-repeat,url( 'y(1).png' )}", ["x.png", "y(1).png"]),
        ('@import "a.css"; @import url(b.css);', ["a.css", "b.css"]),
        ("url(", []),
        ("curl(x)", []),
    ],
)
def test_css_urls(text: str, urls: list[str]) -> None:
    assert list(css_urls(text)) == urls


def _requisites(content: bytes, count_max: int) -> list[str]:
    page = Context("http://h.example/", want_requisites=True)
    return extract_page(content, page, ExtractConfig(links_max=count_max)).requisites


def test_every_kind_of_requisite() -> None:
    page = b"""<link rel="stylesheet" href=css><link rel="shortcut icon" href=ico><link rel=next href=no>
      <style>@import "imp"; p{background:url(bg)}</style><body background=back>
      <img src=img srcset="i1 1x, i2 2x"><img src=img><picture><source srcset=src></picture>
      <script src=js></script>
      <video src=vid poster=post><track src=trk></video><object data=obj></object><embed src=emb>
      <input type=image src=inp><p style="background:url(sty)"><a href=no><iframe src=frm></iframe>
      <svg><image href=svg1 /><use xlink:href="spr#x"/><use href="#local"/></svg>"""
    assert set(_requisites(page, 100)) == set(
        ["css", "ico", "imp", "bg", "back", "img", "i1", "i2", "src", "js", "vid", "post", "trk"]
        + ["obj", "emb", "inp", "sty", "svg1", "spr", "frm"]
    )
    assert len(_requisites(page, 3)) == 3


@given(st.text("a ,()\t'\"", max_size=40))
def test_never_fails(value: str) -> None:
    assert all(srcset(value))
    list(css_urls("url(" + value))
