"""kill -9 at every step of the write path of one process loses no URL and stores no page twice.

Goal: the promise of `durability.md`. Method: a tree-shaped web, where a lost
link stays lost; the process kills itself at named points; the server's log and
the WARC files are compared with the truth.
"""

from pathlib import Path

import pytest

from tests.faults.harness import CONCURRENCY, TreeWeb, judge, run_with_kills

PAGES = 1500
FAULTS = [
    "seeds loading:1",
    "fetch begun:20",
    "flush joined:3",
    "flush written:3",
    "flush done:3",
    "compaction merged:1",
    "compaction written:1",
    "compaction done:1",
    "record appended:9",
    "synced:9",
    "batch written:9",
    "committed:9",
    "stopping:1",
]


def test_kills_at_every_step_lose_nothing(tmp_path: Path) -> None:
    with TreeWeb(tmp_path, PAGES, "--fanout", "2") as web:
        kills = run_with_kills(web, tmp_path / "crawl", FAULTS)
        found = judge(web, tmp_path / "crawl")
    assert kills >= 10
    assert found.lost == found.unstored == found.stored_twice == found.torn == 0, found
    assert found.refetched <= kills * CONCURRENCY, found


@pytest.mark.parametrize(
    ("bug", "faults"),
    [("page-before-links", ["committed:12", "committed:12", "committed:12"]), ("no-truncation", ["synced:12"])],
)
def test_the_judge_sees_a_planted_bug(tmp_path: Path, bug: str, faults: list[str]) -> None:
    """A crash test that cannot fail proves nothing."""
    with TreeWeb(tmp_path, PAGES, "--fanout", "2") as web:
        run_with_kills(web, tmp_path / "crawl", faults, module=("tests.faults.planted", bug))
        found = judge(web, tmp_path / "crawl")
    assert found.lost + found.unstored + found.stored_twice + found.torn > 0, found
