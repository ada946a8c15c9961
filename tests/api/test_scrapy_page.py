"""Run each expression in the right column of `crawler/api/SCRAPY.md`."""

import re
from pathlib import Path

import pytest

import crawler

PAGE = Path(crawler.__file__).parent / "api/SCRAPY.md"
CELLS = re.findall(r"^\|.*\| `([^`]+)` \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
RIGHT = [cell for cell in CELLS if not cell.startswith(("crawler.run(", "logging.", "python ", "scrapy "))]
SOURCE = "<h1>Teas</h1><li>Green<li>Black<a href=next>Next</a><form method=post><input name=user></form>"


def parse(page: crawler.Page) -> None:
    """Do nothing. The examples use this function as their callback."""


@pytest.mark.parametrize("code", RIGHT)
def test_the_right_column_runs(code: str) -> None:
    page = crawler.Page.of("http://shop.test/", SOURCE)
    value = eval(code, {"crawler": crawler, "page": page, "parse": parse, "re": re})
    assert value
    if isinstance(value, dict):
        crawler.configure(value)


def test_the_page_has_examples() -> None:
    assert len(RIGHT) == 43
