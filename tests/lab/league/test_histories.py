"""Test that page histories are checked when they are read, and that written histories can be read again."""

from pathlib import Path

import numpy as np
import pytest

from crawler.errors import UsageError
from crawler.lab.league import histories
from tests.lab.league.made import EXCERPT, history


def test_the_excerpt_is_read() -> None:
    sites = histories.read_folder(EXCERPT)
    assert [site.name for site in sites] == sorted(path.stem for path in EXCERPT.glob("*.npz"))
    assert sum(len(site.page) for site in sites) == 715
    assert all(len(site.born) == 20 for site in sites)


def test_histories_round_trip(tmp_path: Path) -> None:
    made = history([(0, 1.0, 3, 40_000), (2, 5.0, -1, -1)], died={1: 50.0}, published=[1.0, 5.0])
    histories.write(tmp_path / "made.npz", made)
    again = histories.read(tmp_path / "made.npz")
    for name in histories.COLUMNS:
        np.testing.assert_array_equal(getattr(again, name), getattr(made, name), err_msg=name)


def test_a_folder_without_histories_is_reported(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(UsageError, match="no histories"):
            histories.read_folder(folder)


@pytest.mark.parametrize(
    ("column", "values", "complaint"),
    [
        ("page", np.array([7]), "does not exist"),
        ("page", np.array([-1]), "does not exist"),
        ("time", np.array([-5]), "not a valid time"),
        ("time", np.array([1 << 40]), "not a valid time"),
        ("died", np.array([1, 0, 0]), "died before"),
        ("born", np.array([1]), "one row per page"),
        ("added", np.array([1, 2]), "one row per change"),
        ("born", np.array([0.5, 1.0, 2.0]), "integers"),
        ("dir", np.zeros((3, 1), dtype=int), "integers"),
        ("published", np.array(["x"]), "integers"),
        ("hash", np.array([{}], dtype=object), "not a page history"),
    ],
)
def test_invalid_columns_are_rejected(
    tmp_path: Path, column: str, values: np.ndarray, complaint: str
) -> None:
    made = history([(0, 1.0, 1, 1)])
    columns = {name: getattr(made, name) for name in histories.COLUMNS} | {column: values}
    np.savez(tmp_path / "bad.npz", **columns)
    with pytest.raises(UsageError, match=complaint):
        histories.read(tmp_path / "bad.npz")


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 nothing", b"<html>", b"\x93NUMPY\x01\x00"])
def test_an_invalid_history_is_rejected_in_one_line(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.npz").write_bytes(content)
    with pytest.raises(UsageError, match="not a page history"):
        histories.read(tmp_path / "bad.npz")


def test_a_missing_column_is_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "bad.npz", born=np.array([1]))
    with pytest.raises(UsageError, match="missing column died"):
        histories.read(tmp_path / "bad.npz")
