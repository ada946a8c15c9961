"""Files and folders that users give: with a byte order mark, or one level too high."""

from pathlib import Path

import pytest

from crawler.errors import UsageError
from crawler.lab.refresh import pages_file
from tests.end_to_end.web import FAST, Web, crawl, page, run


def test_a_seeds_file_with_a_byte_order_mark(tmp_path: Path) -> None:
    with Web({"/a": page(), "/b": page(text="b")}) as web:
        seeds = tmp_path / "seeds"
        seeds.write_text(f"\ufeff{web.url('/a')}\r\n# two\r\n{web.url('/b')}\r\n", encoding="utf-8")
        ran = run("crawl", "--seeds", seeds, "--dir", tmp_path / "crawl", *FAST)
        assert ran.code == 0 and sorted(web.paths()) == ["/a", "/b"]


def test_a_pages_file_with_a_byte_order_mark_or_a_column_twice(tmp_path: Path) -> None:
    path = tmp_path / "pages.csv"
    path.write_text("\ufeffimportance,change_rate\n1,0.5\n", encoding="utf-8")
    assert len(pages_file.read(path).names) == 1
    path.write_text("importance,change_rate,importance\n1,0.5,2\n", encoding="utf-8")
    with pytest.raises(UsageError, match="importance stands twice"):
        pages_file.read(path)


def test_a_crawl_directory_is_taken_for_its_trace(tmp_path: Path) -> None:
    with Web({"/": page("/a", "/b"), "/a": page("/", "/b"), "/b": page("/a")}) as web:
        crawl(tmp_path / "traced", web.url(), "--trace")
        crawl(tmp_path / "plain", web.url())
    assert run("lab", "cache", tmp_path / "traced").code == 0
    ran = run("lab", "cache", tmp_path / "plain")
    assert ran.code == 2 and "crawl with --trace" in ran.err
