"""Test items files for each type of items."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import crawler
from crawler.api.item_files import ItemFiles, Misuse
from crawler.errors import StoreError, UsageError
from tests.end_to_end.web import SETTINGS, Web, page


@dataclass
class Tea:
    name: str


@dataclass
class GreenTea(Tea):
    origin: str


@dataclass
class Review:
    author: str


def parse(found: crawler.Page) -> Iterator[Any]:
    yield Tea("Black")
    yield Review("Ada")
    yield GreenTea("Sencha", "Uji")
    yield {"url": found.url}


def crawl(web: Web, folder: Path, items: Any, **arguments: Any) -> dict[str, Any]:
    return crawler.run(
        web.url(), parse, items=items, directory=folder / "crawl", config=SETTINGS, **arguments
    )


def test_each_type_of_items_has_its_file(tmp_path: Path) -> None:
    """An item goes to the file of the first type in the mapping that fits it; several types may share a file."""
    rest = tmp_path / "rest.jsonl"
    files = {GreenTea: tmp_path / "green.csv", Tea: str(tmp_path / "teas.csv"), Review: rest, dict: rest}
    with Web({"/": page()}) as web:
        report = crawl(web, tmp_path, files)
        url = web.url()
        crawl(web, tmp_path, files, cached=True)
    assert report["hooks"] == {"errors": {}, "items": 4}
    for suffix in ("", ".1"):
        assert (tmp_path / f"green.csv{suffix}").read_text() == "name,origin\nSencha,Uji\n"
        assert (tmp_path / f"teas.csv{suffix}").read_text() == "name\nBlack\n"
        assert (tmp_path / f"rest.jsonl{suffix}").read_text() == f'{{"author":"Ada"}}\n{{"url":"{url}"}}\n'


def test_an_item_without_a_file_ends_the_run(tmp_path: Path) -> None:
    """The page is delivered again in the next run, so no item is lost."""
    teas = tmp_path / "teas.jsonl"
    with Web({"/": page()}) as web:
        with pytest.raises(UsageError, match="items: no file is given for Review, only for Tea"):
            crawl(web, tmp_path, {Tea: teas})
        crawl(web, tmp_path, {Tea: teas, object: tmp_path / "rest.jsonl"})
    assert len(teas.read_bytes().splitlines()) == 2
    assert len((tmp_path / "rest.jsonl").read_bytes().splitlines()) == 2


def test_a_key_that_is_not_a_class_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="items: expected a class for each file, got 'Tea'"):
        crawler.Crawl(directory=tmp_path / "crawl", items={"Tea": "teas.csv"})  # type: ignore[dict-item]
    assert not (tmp_path / "crawl").exists()


def test_a_file_that_cannot_be_opened_closes_the_others(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="must end in"):
        ItemFiles({Tea: tmp_path / "a.jsonl", Review: tmp_path / "b.xml"})
    with pytest.raises(Misuse, match="set items="):
        ItemFiles("").file_of(Tea("Black"))


def test_all_files_are_closed_if_one_fails(tmp_path: Path) -> None:
    files = ItemFiles({Tea: tmp_path / "a.jsonl", Review: tmp_path / "b.jsonl"})
    closed = []

    class Broken:
        written = 0

        def close(self) -> None:
            closed.append(self)
            raise StoreError("the disk is full")

    files._open += [Broken(), Broken()]  # type: ignore[list-item]
    with pytest.raises(StoreError):
        files.close()
    assert len(closed) == 2
    files.close()
