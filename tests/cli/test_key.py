"""Test `crawler key`: the actions `new`, `rotate` and `show`, and their errors."""

import json
from pathlib import Path

import pytest

from crawler.signing.key_file import read_keys
from tests.end_to_end.web import run


def test_a_new_key_is_private_and_is_not_replaced(tmp_path: Path) -> None:
    made = run("key", "new", "--dir", tmp_path / "crawl")
    path = tmp_path / "crawl" / "signing.key"
    assert made.code == 0 and path.stat().st_mode & 0o777 == 0o600
    (key,) = read_keys(path)
    assert made.text.splitlines()[0] == f"{key.id}  signs"
    again = run("key", "new", "--dir", tmp_path / "crawl")
    assert again.code == 2 and "`crawler key rotate` replaces its key" in again.err
    assert read_keys(path)[0].id == key.id


def test_a_rotation_publishes_both_keys(tmp_path: Path) -> None:
    file = tmp_path / "own.key"
    run("key", "new", "--file", file)
    old = read_keys(file)[0].id
    rotated = run("key", "rotate", "--file", file)
    assert rotated.code == 0 and file.stat().st_mode & 0o777 == 0o600
    rows = rotated.text.splitlines()
    assert rows[0] == f"{old}  signs" and "  signs from 20" in rows[1]
    shown = json.loads(run("key", "show", "--json", "--file", file).text)
    assert [row["kid"] for row in shown["keys"]] == [key.id for key in read_keys(file)]
    assert all(row.keys() <= {"kty", "crv", "kid", "x", "use", "nbf", "exp"} for row in shown["keys"])
    again = run("key", "rotate", "--file", file)
    assert again.code == 2 and "previous rotation is not finished" in again.err
    run("key", "rotate", "--now", "--file", file)
    (alone,) = read_keys(file)
    assert alone.id not in rotated.text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("show",), "does not exist; `crawler key new` makes it"),
        (("rotate",), "does not exist; `crawler key new` makes it"),
        (("new", "--now"), "--now belongs to `crawler key rotate`"),
        (("new", "--json"), "--json belongs to `crawler key show`"),
        (("lose",), "is not one of"),
    ],
)
def test_errors_are_one_line(tmp_path: Path, arguments: tuple[str, ...], says: str) -> None:
    ran = run("key", *arguments, "--dir", tmp_path / "crawl")
    assert ran.code == 2 and says in ran.err and len(ran.err.splitlines()) == 1, ran
