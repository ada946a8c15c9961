"""Test that the benchmarks run and print their tables. The measured values are not tested."""

import json
from pathlib import Path

import numpy as np
import pytest

from crawler.bench import due, streams
from crawler.bench.__main__ import main
from crawler.lab.caches.link_locality import LinkLocality


def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main("bench", list(arguments)) == 0
    return capsys.readouterr().out


def test_the_cache_benchmark_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("cache", "--requests", "2000", "--bits", "4", "8", "--hosts", "5")
    assert "OrderedDict LRU" in run(monkeypatch, capsys, *options)
    report = json.loads(run(monkeypatch, capsys, *options, "--json"))
    rows = {(row["cache"], row["bits"]): row for row in report["rows"]}
    assert rows["ClockCache.add", 8]["miss rate"] == rows["ClockCache.add_many", 8]["miss rate"]
    assert rows["set (infinite)", 4]["miss rate"] <= rows["dict CLOCK", 4]["miss rate"]


def test_the_due_benchmark_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """All implementations in the comparison find the same number of new URLs."""
    options = ("due", "--known", "3e3", "--buffer", "500", "--flushes", "3", "--directory", str(tmp_path))
    assert "sqlite" in run(monkeypatch, capsys, *options)
    report = json.loads(run(monkeypatch, capsys, *options, "--json"))
    assert {row["contender"] for row in report["rows"]} == set(due.installed())
    assert {row["new"] for row in report["rows"]} == {300}
    # runs are stored in a compact code; the smaller a run, the more bytes per URL it takes
    assert 4.0 < report["facts"]["runs"]["bytes a URL"] < 8.0
    assert list(tmp_path.iterdir()) == []


def test_mixing_is_a_bijection() -> None:
    numbers = np.arange(100_000)
    assert len(np.unique(streams.mixed(numbers))) == 100_000


def test_the_link_stream_has_the_numbers_of_the_labs_model() -> None:
    model = LinkLocality()
    assert (model.repeat, model.adjacent, model.new) == (
        streams._REPEAT_SHARE,
        streams._ADJACENT,
        streams._NEW,
    )
    shares = streams._GLOBAL, streams._POPULAR, streams._WIDE
    assert shares == (model.global_share, model.popular_share, model.wide_share)
    sizes = streams._GLOBAL_URLS, streams._POPULAR_URLS, streams._WIDE_URLS, streams._PAGES_PER_HOST
    assert sizes == (model.global_urls, model.popular_urls, model.wide_urls, model.pages_per_host)
    assert (model.links_median, pytest.approx(model.links_sigma, abs=0.01)) == (
        streams._LINKS_MEDIAN,
        streams._LINKS_SIGMA,
    )


def test_the_link_stream_follows_broder_section_5_2() -> None:
    """About a quarter of the links are new, and seven of ten links miss a tiny cache."""
    links = streams.crawl_links(200_000, hosts=20)
    assert len(links) == 200_000
    assert 0.2 < len(np.unique(links)) / len(links) < 0.3
    assert 0.67 < float((links[1:] != links[:-1]).mean()) < 0.75
