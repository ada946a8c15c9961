"""Test that no URL is lost and no page stored twice if one process is killed (kill -9) at any step of its writes.

`storage/README.md` promises that no URL is lost and that no page is stored twice. The web is a tree, where a
lost link stays lost. The process kills itself at named points, or is killed at random times. Then the
server's log and the WARC files are compared with the pages that exist. `scripts/bench/crash.py` makes the
same kills and comparisons at full size.
"""

import random
from pathlib import Path

import pytest

from tests.faults.harness import (
    TreeWeb,
    judge,
    load_seeds_with_kills,
    run_with_kills,
    run_with_power_cuts,
    run_with_random_kills,
)

PAGES = 900
# These settings make rare steps frequent. Segments have only a few dozen pages, and runs are flushed and
# merged after a few links.
SMALL = ("--set", "pages.segment_bytes=20000", "--set", "due.buffer_entries_max=16")
FAULTS = [
    "seeds loading:1",
    "fetch begun:20",
    "record appended:3",
    "synced:3",
    "batch written:3",
    "committed:3",
    "stopping:1 --max-pages 40",
    "closing:1 --max-pages 40",
    "segment begun:2",
    "segment rolled:1",
    "flush written:1",
    "flush ran:1",
    "flush committed:1",
    "compaction ran:1",
    "compaction committed:1",
    "run unlinked:1",
]


def test_kills_at_every_step_lose_nothing(tmp_path: Path) -> None:
    with TreeWeb(tmp_path, PAGES, "--fanout", "2", hosts=80) as web:
        kills = run_with_kills(web, tmp_path / "crawl", FAULTS, *SMALL)
        found = judge(web, tmp_path / "crawl", kills)
    assert len(kills) == len(FAULTS)
    assert found.flawless, found


def test_kills_while_seeds_are_loaded(tmp_path: Path) -> None:
    """After kills, repeating the command loads every seed exactly once."""
    faults = ["seeds loading:3", "batch written:8", "flush committed:2", "seeds loading:20"]
    known = load_seeds_with_kills(tmp_path, 20_000, faults)
    assert len(known) == 20_000 and set(known.values()) == {1}


def test_power_cuts_lose_nothing(tmp_path: Path) -> None:
    """After each kill, the files also lose data that was not synced."""
    faults = FAULTS[:6] + ["closing:1 --max-pages 40", "flush committed:1", "compaction ran:1"]
    with TreeWeb(tmp_path, PAGES, "--fanout", "2", hosts=80) as web:
        cuts, changed = run_with_power_cuts(web, tmp_path / "crawl", faults, random.Random(5), *SMALL)
        found = judge(web, tmp_path / "crawl", cuts)
    assert len(cuts) == len(faults) and changed > len(faults)
    assert found.flawless, found


def test_a_missing_sync_is_found(tmp_path: Path) -> None:
    """If links are lost, the crawl either refuses to start, or ends without the pages of the lost links."""
    faults = ["batch written:4", "batch written:4"]
    with TreeWeb(tmp_path, 300, "--fanout", "2") as web:
        try:
            run_with_power_cuts(web, tmp_path / "crawl", faults, random.Random(1), bug="links-not-synced")
        except AssertionError as error:
            assert "links that wait for the DUE is missing" in str(error) or "checksum" in str(error), error
        else:
            assert not judge(web, tmp_path / "crawl").flawless


def test_kills_at_random_instants_lose_nothing(tmp_path: Path) -> None:
    rng = random.Random(3)
    with TreeWeb(tmp_path, PAGES, "--fanout", "2", hosts=80) as web:
        kills = run_with_random_kills(web, tmp_path / "crawl", 5, 1.5, rng)
        found = judge(web, tmp_path / "crawl", kills)
    assert found.flawless, found


@pytest.mark.parametrize(
    ("bug", "faults"),
    [
        ("page-before-links", [f"committed:{n}" for n in range(4, 9)]),
        ("no-truncation", ["synced:8", "synced:10", "synced:12"]),
    ],
)
def test_a_planted_bug_is_found(tmp_path: Path, bug: str, faults: list[str]) -> None:
    """A crash test that cannot fail proves nothing, so bugs are planted.

    The bug truncates a segment only if an earlier commit group of the process has named the same segment. So
    the kills happen after the first groups.
    """
    with TreeWeb(tmp_path, 800, "--fanout", "2") as web:
        kills = run_with_kills(web, tmp_path / "crawl", faults, module=("tests.faults.planted", bug))
        found = judge(web, tmp_path / "crawl", kills)
    assert kills
    assert not found.flawless, found
