"""Test the command `crawler lab worlds`."""

import pickle
from pathlib import Path

import pytest

from crawler.errors import UsageError
from crawler.lab.__main__ import main
from crawler.lab.commands import worlds
from crawler.lab.living.worlds import WORLDS
from tests.lab.league.made import csv_rows


def test_the_command_prints_a_table_and_a_verdict_and_writes_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "worlds issue --seeds 2 --policies ncis,uniform --processes 1 --check --aim 5 --course --out"
    # five times the possible gain is required; no policy reaches it
    assert main("lab", [*words.split(), str(tmp_path)]) == 1
    printed = capsys.readouterr().out
    assert "below uniform in 0 of 1 worlds" in printed and "gain below 5 in 1: issue" in printed
    assert (
        "issue: freshness in each twentieth" in printed and len(printed.split("round-robin")[-1].split()) > 20
    )
    rows = csv_rows(tmp_path / "worlds.csv")
    assert [row["policy"] for row in rows] == ["round-robin", "true", "ncis", "uniform"]
    assert float(rows[1]["gain"]) == 1.0


def test_each_run_can_be_sent_to_another_process() -> None:
    """`lab league` uses the same function to run tasks in several processes; see `test_league.py`."""
    for play in (worlds._played, worlds._judged):
        assert pickle.loads(pickle.dumps(play)) is play


def test_calibration_and_list(capsys: pytest.CaptureFixture[str]) -> None:
    main(
        "lab", ["worlds", "issue", "--seeds", "1", "--policies", "ncis", "--processes", "1", "--calibration"]
    )
    assert capsys.readouterr().out.startswith("ncis\nstated by")
    main("lab", ["worlds", "--list"])
    assert len(capsys.readouterr().out.splitlines()) == len(WORLDS)


@pytest.mark.parametrize(
    "words",
    [
        "nowhere",
        "issue --policies cho",
        "issue --seeds 0",
        "day-honest --policies bayes",
        "issue-busy --policies bayes",
        "issue --policies greedy --check --seeds 1 --processes 1",
    ],
)
def test_invalid_arguments_are_rejected(words: str) -> None:
    with pytest.raises(UsageError):
        main("lab", ["worlds", *words.split()])
