"""Test the commands `crawler lab trace` and `crawler lab cache`."""

import importlib
from pathlib import Path

import pytest

from crawler.errors import CrawlerError, UsageError
from crawler.lab.__main__ import main
from crawler.lab.caches.traces import Trace


def lab(*words: object) -> int:
    return main("lab", [str(word) for word in words])


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    assert lab("trace", "synth", tmp_path / "t", "--threads", 10, "--links", "2e4", "--seed", 3) == 0
    return tmp_path / "t"


def test_info_describes_a_trace(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert lab("trace", "info", trace) == 0
    shown = capsys.readouterr().out
    assert "hosts at a time:" in shown and "seed:" in shown and "cross:" in shown


def test_the_table_ends_with_advice_and_is_written_to_csv(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lab("cache", trace, "--policies", "all", "--bits", "0-18", "--csv", tmp_path / "c.csv") == 0
    shown = capsys.readouterr().out
    assert "Set cache.bits = 1" in shown and "The default is 18" in shown
    lines = (tmp_path / "c.csv").read_text().splitlines()
    assert lines[0].startswith("# command: crawler lab cache") and lines[1] == "# seed: 1"
    assert len([line for line in lines if not line.startswith("#")]) == 20


@pytest.mark.parametrize("experiment", ["order", "per-thread"])
def test_the_experiments_run(trace: Path, experiment: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert lab("cache", experiment, trace, "--bits", "6-12", "--stream", "cross") == 0
    assert "2^12" in capsys.readouterr().out


def test_a_crawls_trace_is_imported(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "crawl" / "p0" / "trace"
    run.mkdir(parents=True)
    trace.rename(run / "0001")
    assert lab("trace", "import", tmp_path / "crawl", tmp_path / "mine") == 0
    assert lab("trace", "info", tmp_path / "mine") == 0
    with pytest.raises(UsageError, match="trace not found"):
        lab("trace", "import", tmp_path / "crawl", tmp_path / "other", "--run", 2)
    with pytest.raises(UsageError, match="cannot write"):
        lab("trace", "import", tmp_path / "crawl", tmp_path / "mine")


def test_link_lines_are_imported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lines").write_text("http://a.example/\thttp://b.example/\n")
    assert lab("trace", "import", tmp_path / "lines", tmp_path / "t") == 0
    assert "1 links on 1 pages" in capsys.readouterr().out
    assert lab("cache", tmp_path / "t", "--bits", "0-3") == 0


@pytest.mark.parametrize(
    "words",
    [
        ["cache", "nowhere"],
        ["cache", "order", "a", "b"],
        ["cache", "--links", "100", "--bits", "9-3"],
        ["cache", "--links", "100", "--policies", "BEST"],
        ["cache", "--links", "100", "--wide-share", "0.99"],
        ["trace", "synth", "x", "--repeat", "1"],
        ["trace", "synth", "x", "--links-median", "100"],
        ["trace", "info", "nowhere"],
        ["trace", "import", "nowhere", "x"],
    ],
)
def test_bad_usage_ends_in_an_error_of_one_line(words: list[str], tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CrawlerError) as caught:
        lab(*words)
    assert "\n" not in str(caught.value)


def test_a_missing_extra_is_named_with_the_command_to_install_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def missing(name: str) -> object:
        raise ModuleNotFoundError(name=name)

    monkeypatch.setattr(importlib, "import_module", missing)
    with pytest.raises(UsageError, match="scipy"):
        from crawler.lab.extras import require

        require("scipy.optimize")


def test_every_figure_is_drawn_and_names_its_source(
    trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from crawler.lab.caches import link_locality
    from crawler.lab.figures import broder

    monkeypatch.setattr(broder, "BITS", range(15))
    saved = {name: broder.DRAWINGS[name] for name in ("broder-2", "link-locality")}
    stuff = broder.Material({10: Trace.open(trace)}, 0, 1)
    for name, draw in broder.DRAWINGS.items():
        drawing = draw(stuff)
        assert drawing.rows and all(len(row) == len(drawing.columns) for row in drawing.rows), name
        assert str(trace) in drawing.caption
    monkeypatch.setattr(broder, "DRAWINGS", saved)
    monkeypatch.setitem(link_locality.fit.__kwdefaults__, "evaluations", 8)  # type: ignore[arg-type]
    assert lab("cache", trace, "--figures", tmp_path / "figures") == 0
    pictures = {path.stem for path in (tmp_path / "figures").glob("*.png")}
    assert pictures == set(saved)
    for name in pictures:
        text = (tmp_path / "figures" / f"{name}.csv").read_text()
        assert text.startswith("# command: crawler lab cache") and "# seed: 1" in text
        picture = (tmp_path / "figures" / f"{name}.png").read_bytes()
        assert picture.startswith(b"\x89PNG") and b"crawler lab cache" in picture
