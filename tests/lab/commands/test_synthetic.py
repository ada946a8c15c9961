"""Test the options of `lab cluster` and `lab web` that model the synthetic web on real data."""

from pathlib import Path

import pytest

from crawler.errors import CrawlerError
from crawler.lab import __main__ as lab
from crawler.lab.league.histories import write
from tests.lab.league.made import history


@pytest.fixture
def histories(tmp_path: Path) -> str:
    """Write the history of two pages, one of which changes hourly in its last twenty hours; return its folder."""
    hourly = [(0, 365.0 - hours / 24, 1, 1) for hours in range(1, 21)]
    write(tmp_path / "site.npz", history(hourly, pages=2, days=365.0))
    return str(tmp_path)


def test_pages_of_a_cluster_change_by_the_histories(
    histories: str, capsys: pytest.CaptureFixture[str]
) -> None:
    web = ["--processes", "2", "--pages", "12", "--hosts", "2", "--faults", "none", "--days", "0.1"]
    assert lab.main("lab", ["cluster", *web, "--histories", histories]) == 0
    shown = capsys.readouterr()
    assert "2 pages, 2 changes" in shown.err and "flawless" in shown.out


def test_links_follow_a_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("scipy")
    trace = str(tmp_path / "trace")
    assert lab.main("lab", ["trace", "synth", trace, "--threads", "4", "--links", "300"]) == 0
    web = ["--pages", "12", "--hosts", "2", "--faults", "none", "--links-of", trace]
    assert lab.main("lab", ["cluster", *web]) == 0
    shown = capsys.readouterr()
    assert "links of" in shown.err and "repeats" in shown.err and "flawless" in shown.out


@pytest.mark.parametrize(
    "arguments",
    [
        ["--sitemaps", "1.5"],
        ["--histories", "nowhere", "--days", "1"],
        ["--histories", "nowhere"],
        ["--links-of", "nowhere"],
    ],
)
@pytest.mark.parametrize("command", ["cluster", "web"])
def test_missing_sources_are_reported_in_one_line(command: str, arguments: list[str]) -> None:
    with pytest.raises(CrawlerError) as caught:
        lab.main("lab", [command, *(arguments if command == "cluster" else arguments[:2])])
    assert "\n" not in str(caught.value)
