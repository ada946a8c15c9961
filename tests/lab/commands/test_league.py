"""Test the command `crawler lab league` on an excerpt of real histories."""

from pathlib import Path

import pytest

from crawler.errors import UsageError
from crawler.lab.__main__ import main
from crawler.lab.league.histories import write
from tests.lab.league.made import EXCERPT, csv_rows, history

QUICK = "--policies round-robin,nutch --arms none,lying --budgets 1,3 --pages 5 --days 400 --processes 1"


def test_tables_and_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    assert main("lab", ["league", "--data", str(EXCERPT), *QUICK.split(), "--out", str(tmp_path)]) == 0
    printed = capsys.readouterr().out
    assert printed.count("round-robin") == 4 and "lying" in printed
    rows = csv_rows(tmp_path / "scores.csv")
    assert [(row["arm"], row["policy"], row["budget"]) for row in rows[:3]] == [
        ("none", "round-robin", "1"),
        ("none", "round-robin", "3"),
        ("none", "nutch", "1"),
    ]
    assert all(0.0 < float(row["score"]) < 1.0 < float(row["fetches"]) for row in rows)
    sites = csv_rows(tmp_path / "sites.csv")
    assert {row["site"] for row in sites} == {path.stem for path in EXCERPT.glob("*.npz")}
    for name in ("league-scores", "league-gains"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("more", ["", "--living", "--calibration --policies ncis"])
def test_a_history_of_a_minute_is_reported_once_and_not_drawn(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: str
) -> None:
    write(tmp_path / "made.npz", history([(0, 99.9999, 1, 1)], pages=1, born={0: 99.999}))
    words = [*QUICK.split(), *more.split(), "--out", str(tmp_path / "out")]
    with pytest.raises(UsageError, match="too short, or change too rarely, to compare policies"):
        main("lab", ["league", "--data", str(tmp_path), *words])
    said = capsys.readouterr()
    assert said.out == said.err == "" and not (tmp_path / "out").exists()


def test_several_processes_yield_the_same_results(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["league", "--data", str(EXCERPT), *QUICK.split()]
    main("lab", words)
    alone = capsys.readouterr().out
    main("lab", [*words[:-1], "2"])
    assert capsys.readouterr().out == alone


def test_equal_scores_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No page changes within ten days, so all policies have the same score, and the command reports this."""
    write(tmp_path / "made.npz", history([(0, 1.0, 1, 0), (1, 99.5, 1, 0)]))
    words = "--policies round-robin,nutch --arms none --budgets 1 --days 10 --processes 1"
    main("lab", ["league", "--data", str(tmp_path), *words.split()])
    told = capsys.readouterr().err
    assert told.count("none at 1x: all policies have the same score") == 1
    main("lab", ["league", "--data", str(EXCERPT), *QUICK.split()])
    assert "same score" not in capsys.readouterr().err


def test_a_short_history_is_played_over_its_own_days(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A page exists for 40 days and changes daily."""
    write(
        tmp_path / "made.npz",
        history([(0, day + 0.5, 1, 0) for day in range(60, 100)], pages=1, born={0: 60.0}),
    )
    words = "--policies round-robin --arms none --budgets 1"
    main("lab", ["league", "--data", str(tmp_path), *words.split()])
    assert "1 site, 1 page, 40 days, 1.00 changes per day" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    [
        "--policies nothing",
        "--policies ,",
        "--arms nothing",
        "--budgets 0",
        "--budgets x",
        "--budgets inf",
        "--budgets 1e6",
        "--pages 0",
        "--days 1",
        "--seed -1",
        "--processes 99",
    ],
)
def test_mistakes_are_reported_in_one_line(words: str) -> None:
    with pytest.raises(UsageError) as told:
        main("lab", ["league", "--data", str(EXCERPT), *words.split()])
    assert "\n" not in str(told.value)


def test_missing_data_is_reported(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no histories"):
        main("lab", ["league", "--data", str(tmp_path), "--quick"])


def test_the_living_league_writes_a_row_per_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = "--living --hubs map --policies round-robin,proto-1,ncis --budgets 3 --pages 5 --days 400 --processes 1"
    assert main("lab", ["league", "--data", str(EXCERPT), *words.split(), "--out", str(tmp_path)]) == 0
    assert capsys.readouterr().out.count("map") >= 3
    rows = csv_rows(tmp_path / "living.csv")
    assert [row["policy"] for row in rows] == ["round-robin", "proto-1", "ncis"]
    assert all(0.0 < float(row["score"]) < 1.0 for row in rows)


def test_calibration_prints_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    words = (
        "--calibration --policies ncis,ncis-true --arms none --budgets 3 --pages 5 --days 400 --processes 1"
    )
    assert main("lab", ["league", "--data", str(EXCERPT), *words.split()]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("ncis, none") and "said" in printed and "told" in printed
    assert "\nncis-true, none" in printed


@pytest.mark.parametrize(
    "words", ["--living --policies heritrix", "--living --calibration", "--calibration --policies cho"]
)
def test_policies_that_cannot_play_are_rejected(words: str) -> None:
    with pytest.raises(UsageError):
        main("lab", ["league", "--data", str(EXCERPT), *words.split()])
