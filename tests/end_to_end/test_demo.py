"""Test that each `crawler demo` is a separate crawl."""

from pathlib import Path

import pytest

from crawler.cli.demo import main
from crawler.crawl.directory import CrawlDirectory


def test_a_second_demo_does_not_count_the_pages_of_the_first(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The directory of the first demo is renamed. Each demo prints a summary of only its own pages."""
    said = []
    for _ in range(2):
        assert (
            main(
                "demo", ["--dir", str(tmp_path / "demo"), "--set", "crawl.max_pages=4", "--progress", "none"]
            )
            == 0
        )
        said.append(capsys.readouterr().out)
    assert "was moved to demo" not in said[0] and "was moved to demo.1" in said[1]
    counts = [[line for line in out.splitlines() if " pages" in line] for out in said]
    assert counts[0] and len(counts[0]) == len(counts[1]), counts
    assert all("4 pages" in lines[0] for lines in counts), counts
    for name in ("demo", "demo.1"):
        assert CrawlDirectory(tmp_path / name).exists()
