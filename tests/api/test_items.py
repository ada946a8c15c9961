"""Test items files: columns that appear later, values of several types, and files that cannot be written."""

import csv
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import pytest

import crawler
from crawler.api.item_files import open_items
from crawler.errors import StoreError, UsageError
from tests.end_to_end.web import SETTINGS, Web, page

parquet = pytest.importorskip("pyarrow.parquet")


def write(path: Path, *rows: dict[str, Any]) -> None:
    items = open_items(path)
    for row in rows:
        items.add(row)
    items.close()


def read(path: Path) -> list[dict[str, Any]]:
    return parquet.read_table(path).to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2.5], [1.0, 2.5]),
        ([1, "a", None], ["1", "a", None]),
        ([{"a": 1}, {"b": "x"}], [{"a": 1, "b": None}, {"a": None, "b": "x"}]),
        ([[1], ["a"]], ["[1]", '["a"]']),
        ([{}, {"a": 1}], [{"a": None}, {"a": 1}]),
        ([{}, None], ["{}", None]),
        ([True, 2], ["true", "2"]),
        ([1 << 70, 1], [str(1 << 70), "1"]),
        ([None, None], [None, None]),
    ],
)
def test_a_parquet_column_gets_a_type_that_holds_all_its_values(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: list[Any], expected: list[Any]
) -> None:
    """The type does not depend on whether rows are written together or one by one."""
    for together in (1, 100):
        monkeypatch.setattr("crawler.api.parquet_items.ROWS_TOGETHER", together)
        made = tmp_path / f"{together}.parquet"
        write(made, *({"n": n, "v": value} for n, value in enumerate(values)))
        assert [row["v"] for row in read(made)] == expected
        assert not made.with_name(made.name + ".rows").exists()


def test_a_column_that_becomes_text_is_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "crawler"):
        write(tmp_path / "a.parquet", {"price": 3}, {"price": 4}, {"price": "sold out"})
    assert (
        "column 'price' have no common type (int in row 1, str in row 3), so it is written as text"
        in caplog.text
    )


def test_rows_are_added_to_a_parquet_file(tmp_path: Path) -> None:
    """A later run adds rows to the file, even if they have a new column or the earlier run did not close the file."""
    made = tmp_path / "a.parquet"
    write(made, {"a": 1})
    killed = open_items(made)
    killed.add({"a": 2})
    killed.sync()
    killed._file.close()  # the end of a process closes the file, too
    assert killed.written == 1
    write(made, {"a": 3, "b": "x"})
    assert read(made) == [{"a": 1, "b": None}, {"a": 2, "b": None}, {"a": 3, "b": "x"}]
    other = tmp_path / "b.parquet"
    other.write_bytes(b"no parquet")
    with pytest.raises(UsageError, match="not a Parquet file that items can be added to"):
        open_items(other)
    assert other.read_bytes() == b"no parquet" and not (tmp_path / "b.parquet.rows").exists()


def test_a_file_that_cannot_be_written_frees_the_directory_and_keeps_the_rows(tmp_path: Path) -> None:
    """Once, the program kept the directory locked, and no message named the file that contained the rows."""
    made = tmp_path / "a.parquet"

    def parse(found: crawler.Page) -> Any:
        made.mkdir()  # now a file with this name cannot be written
        (made / "x").touch()
        yield {"title": found.css("title").text}

    with Web({"/": page(text="Home")}) as web:
        with pytest.raises(StoreError, match=r"the items are kept in .*a\.parquet\.rows \(JSONL\)"):
            crawler.run(web.url(), parse, items=made, directory=tmp_path / "c", config=SETTINGS)
        assert msgspec.json.decode((tmp_path / "a.parquet.rows").read_bytes()) == {"title": "Home"}
        (made / "x").unlink()
        made.rmdir()
        crawler.run(web.url(), parse, items=made, directory=tmp_path / "c", config=SETTINGS)
    assert read(made) == [{"title": "Home"}]


def test_a_csv_file_gets_columns_that_appear_later(tmp_path: Path) -> None:
    made = tmp_path / "a.csv"
    write(made, {"a": 'x\n"y"', "b": 1}, {"b": 2})
    write(made, {"c": 3, "a": "z"}, {"d": [1]})
    with made.open(encoding="utf-8", newline="") as file:
        found = list(csv.DictReader(file))
    assert found == [
        {"a": 'x\n"y"', "b": "1", "c": "", "d": ""},
        {"a": "", "b": "2", "c": "", "d": ""},
        {"a": "z", "b": "", "c": "3", "d": ""},
        {"a": "", "b": "", "c": "", "d": "[1]"},
    ]


def test_a_torn_csv_row_is_removed_up_to_its_beginning(tmp_path: Path) -> None:
    """A line break within quotes does not end a row."""
    made = tmp_path / "a.csv"
    write(made, {"a": 1})
    with made.open("ab") as file:
        file.write(b'"torn\n')
    write(made, {"a": 2})
    assert made.read_bytes() == b"a\n1\n2\n"


class Tea(msgspec.Struct):
    """An item with a value that JSON does not have."""

    name: str
    source: object


@dataclass
class Cup:
    """An item like `Tea`, but a dataclass."""

    size: int
    source: object


@pytest.mark.parametrize(
    ("item", "said"),
    [
        (5, "a callback yielded int; items are dicts, dataclasses or msgspec structs"),
        (Tea, "a callback yielded StructMeta; items"),
        ({"name": "Oolong", "source": object()}, "field 'source' of an item: .*object"),
        (Tea("Oolong", object()), "field 'source' of an item: .*object"),
        (Cup(3, object()), "field 'source' of an item: .*object"),
    ],
)
def test_an_item_that_cannot_be_written_names_its_field(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, item: object, said: str
) -> None:
    """The log shows no traceback, because no frame of it would be in the user's code."""

    def parse(_page: crawler.Page) -> Iterator[object]:
        yield item

    with Web({"/": page()}) as web:
        report = crawler.run(
            web.url(), parse, items=tmp_path / "i.jsonl", directory=tmp_path, config=SETTINGS
        )
    assert report["hooks"] == {"errors": {"callback": 1}, "items": 0}
    (error,) = [record for record in caplog.records if "error in your code" in record.getMessage()]
    assert re.search(rf"callback of {web.url()}: ItemError: {said}", error.getMessage())
    assert error.exc_info is None
