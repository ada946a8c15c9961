"""Test the class `Page` (text, tree, JSON and URLs) and the examples in its docstrings."""

import asyncio
import doctest
import importlib
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

import crawler
from crawler import Page
from tests.end_to_end.web import SETTINGS, Web
from tests.end_to_end.web import page as source

ROOT = Path(__file__).resolve().parents[2]
MODULES = (
    "api.page",
    "api.request",
    "api.follow_rules",
    "api.calls",
    "api.options",
    "api.hooks",
    "api.crawl",
    "errors",
    "cli.flags",
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name: str, tmp_path: Path) -> None:
    """The examples in the docstrings run unchanged on a site of two pages."""
    with Web({"/": source("/about", text="Home"), "/about": source(text="About")}) as web:
        names = {
            "crawler": crawler,
            "asyncio": asyncio,
            "url": web.url(),
            "folder": tmp_path,
            "settings": SETTINGS,
        }
        ran = doctest.testmod(importlib.import_module(f"crawler.{name}"), extraglobs=names)
    assert ran.failed == 0 and ran.attempted > 0


def test_every_public_name_has_an_example() -> None:
    """Every public member that the reference lists has an example."""
    reference = (ROOT / "crawler" / "api" / "README.md").read_text(encoding="utf-8")
    parts = re.split(r"^(?:## crawler|\*\*`)\.", reference, flags=re.MULTILINE)[1:]
    assert len(parts) > 35 and [part.partition("(")[0] for part in parts if ">>>" not in part] == []
    assert [name for name in crawler.__all__ if ">>>" not in (getattr(crawler, name).__doc__ or "")] == []


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="signatures are written as 3.11 does")
def test_the_reference_is_up_to_date() -> None:
    made = subprocess.run([sys.executable, ROOT / "scripts" / "api_reference", "--check"], check=False)
    assert made.returncode == 0, "run scripts/api_reference"


def test_text_is_decoded_by_the_declared_encoding() -> None:
    body = "<meta charset=windows-1251><p>Чай"
    page = Page.of("http://x/", body.encode("windows-1251"))
    assert page.css("p").text == "Чай" and page.encoding == "windows-1251"
    declared = msgspec.structs.replace(page, content="Чай".encode("koi8-r"), charset="koi8-r")
    assert declared.text == "Чай"
    assert "\ufffd" in Page.of("http://x/", b"\xff<meta charset=utf-8>").text


def test_the_tree_is_parsed_once() -> None:
    page = Page.of("http://x/", "<p>a")
    assert page.tree is page.tree and page.text is page.text


def test_urls_are_joined_to_the_base() -> None:
    page = Page.of(
        "http://x/a/b", "<base href=/c/><a href=d>1</a><a href='mailto:x'>2</a><a href='?é=1'>3</a>"
    )
    assert list(page.urls()) == ["http://x/c/d", "http://x/c/?%C3%A9=1"]
    assert page.url_join("../e#f") == "http://x/e"
    assert Page.of("http://x/", "<base href=mailto:x><base href=/c/>").base == "http://x/c/"
    with pytest.raises(ValueError, match="is not an http"):
        page.url_join("javascript:x")


@dataclass
class Price:
    amount: int


def test_json_is_parsed() -> None:
    page = Page.of("http://x/", '{"amount": 3}', "application/json")
    assert page.json() == {"amount": 3} and page.json(Price) == Price(3)
    with pytest.raises(ValueError):
        Page.of("http://x/", "<p>").json()
    with pytest.raises(ValueError):
        Page.of("http://x/", '{"amount": "x"}').json(Price)


def test_invalid_selectors_and_missing_attributes() -> None:
    page = Page.of("http://x/", "<a disabled>x</a>")
    element = page.css("a")[0]
    assert element["disabled"] == "" and element.attr("href", "none") == "none"
    assert page.css("b").text == "" and page.css("b").attr("href") == ""
    with pytest.raises(KeyError):
        _ = element["href"]
    with pytest.raises(ValueError, match="is not a CSS selector"):
        page.css("a[")


def test_errors_for_scrapy_pseudo_elements_name_the_replacement() -> None:
    page = Page.of("http://x/", "<a href=/1>One</a>")
    with pytest.raises(ValueError, match=r"write css\('li a'\)\.text, or css\('li a'\)\.texts for all"):
        page.css("li a::text")
    with pytest.raises(
        ValueError, match=r"write css\('a'\)\.attr\('href'\), or css\('a'\)\.attrs\('href'\) for all"
    ):
        page.css("a::attr(href)")
    with pytest.raises(ValueError, match="is not a CSS selector$"):
        page.css("a::before(")


def test_a_terminal_completes_every_public_name() -> None:
    """Completion works even if the program has not used any of the names yet."""
    asked = "import crawler; print(*dir(crawler))"
    found = subprocess.run(
        [sys.executable, "-c", asked], capture_output=True, text=True, check=True
    ).stdout.split()
    assert set(crawler.__all__) <= set(found)


def test_every_public_name_exists() -> None:
    assert all(getattr(crawler, name) is not None for name in crawler.__all__)
