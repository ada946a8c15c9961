"""Test how the latest lines of the logs are read: filters, order, limits, and damaged lines."""

from pathlib import Path

import msgspec
import pytest

from crawler.admin import ledger, tails


def pages(path: Path, n: int) -> Path:
    lines = [
        {"url": f"http://a.org/{k}", "ts": "t", "outcome": "gone" if k % 3 else "fetched", "status": 200}
        for k in range(n)
    ]
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    return path


def test_fetches_are_listed_newest_first_and_filtered(tmp_path: Path) -> None:
    path = pages(tmp_path / "pages.jsonl", 40)
    assert [row["url"][-2:] for row in tails.fetches(path, limit=3)] == ["39", "38", "37"]
    assert {row["outcome"] for row in tails.fetches(path, outcome="gone")} == {"gone"}
    assert [row["url"] for row in tails.fetches(path, outcome="fetched", text="org/3")] == [
        f"http://a.org/{k}" for k in (39, 36, 33, 30, 3)
    ]
    assert tails.fetches(path, outcome="gone", text="http://a.org/33") == []
    assert tails.fetches(tmp_path / "missing") == []


def test_a_rotation_does_not_empty_the_tail(tmp_path: Path) -> None:
    """The rotated file is read, too, until the limit on bytes is reached.

    The ledger reads lines in chronological order.
    """
    path = pages(tmp_path / "pages.jsonl", 6)
    path.rename(tmp_path / "pages.jsonl.1")
    path.write_bytes(b'{"url":"http://a.org/new"}\n')
    assert [row["url"][-2:] for row in tails.fetches(path, limit=3)] == ["ew", "/5", "/4"]
    lines = list(ledger.tail_lines(path, 100))
    assert [b"/5" in lines[0], b"new" in lines[1], len(lines)] == [True, True, 2]


def test_damaged_lines_are_left_out(tmp_path: Path) -> None:
    path = pages(tmp_path / "pages.jsonl", 2)
    path.write_bytes(b"\xff{\n[]\n" + path.read_bytes() + b'{"url":"http://a.org/cut')
    assert len(tails.fetches(path)) == 2


def test_only_the_tail_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = pages(tmp_path / "pages.jsonl", 1000)
    monkeypatch.setattr(tails, "TAIL_BYTES", 1000)
    found = tails.fetches(path, limit=500)
    assert 10 < len(found) < 20 and found[0]["url"].endswith("/999")


LOG = """2026-11-24 00:00:01,000 INFO crawler: started
2026-11-24 00:00:02,000 p12 WARNING crawler: the host is slow
2026-11-24 00:00:03,000 ERROR crawler: a bug
Traceback (most recent call last):
ValueError: an ERROR in it
2026-11-24 00:00:04,000 p1 WARNING crawler: again
"""


def test_log_lines_are_filtered_by_level_and_text(tmp_path: Path) -> None:
    """A traceback is shown together with its message.

    If there are several processes, each line names the process that logged it.
    """
    path = tmp_path / "crawler.log"
    path.write_text(LOG)
    assert [row["level"] for row in tails.log_lines(path)] == ["warning", "error", "warning", "info"]
    (error,) = tails.log_lines(path, level="error")
    assert error["line"].count("\n") == 2 and error["line"].endswith("ERROR in it")
    assert [row["line"][-4:] for row in tails.log_lines(path, text="SLOW")] == ["slow"]
    assert [len(tails.log_lines(path, limit=limit)) for limit in range(3)] == [0, 1, 2]
