"""Test that `crawler demo` ends by itself, and that its web server counts fresh copies in the second half."""

import re
from pathlib import Path

import pytest

from crawler.cli import demo
from crawler.render.browser import find_program
from crawler.render.protocol import BrowserError


def has_browser() -> bool:
    try:
        return bool(find_program(""))
    except BrowserError:
        return False


def test_the_demo_crawls_and_keeps_fresh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(demo.REFRESH, "crawl", {"max_time": 4.0, "rate": 25.0})
    # on a busy machine, a page may need a second until its script makes the next request
    quiet = ["--set", "render.quiet=3s"]
    assert demo.main("demo", ["--dir", str(tmp_path / "demo"), "--progress", "none", *quiet]) == 0
    said = capsys.readouterr().out
    assert "done after" in said and "crawler status" in said, said
    asked = re.search(r"([\d,]+) pages fetched again, ([\d,]+) of them had changed", said)
    current = re.search(
        r"([\d,]+) pages changed ([\d,]+) times, and ([\d]+)% of the copies are current", said
    )
    assert asked is not None and current is not None, said
    assert re.search(r"of \d+ copies, the crawl expects \d+% \+- \d+% to be current\n", said), said
    assert int(asked[1].replace(",", "")) > 0 and int(current[3]) <= 100
    if has_browser():
        assert "shown in a browser without network: 10 pages" in said and demo.WITHOUT_BROWSER not in said


def test_each_demo_is_a_separate_crawl_and_needs_no_browser(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The directory of the first demo is renamed, and the second demo counts only its own pages."""
    flags = ["--set", "render.browser=/nowhere", "--set", "crawl.max_pages=4"]
    for moved in (False, True):
        assert demo.main("demo", ["--dir", str(tmp_path / "demo"), "--progress", "none", *flags]) == 0
        told = capsys.readouterr()
        assert told.out.count(demo.WITHOUT_BROWSER) == 1 and "4 pages fetched, " in told.out, told
        assert ("was moved to demo.1" in told.out) is moved and "rendering" not in told.err
    assert (tmp_path / "demo.1" / "seed").exists()


@pytest.mark.parametrize("known", [True, False])
def test_the_closing_names_the_environment_if_the_shell_does_not_know_crawler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """`scripts/demo` runs the program of `.venv`, which is not active in the user's shell."""
    script = tmp_path / "my venv" / "bin" / "activate"
    script.parent.mkdir(parents=True)
    script.touch()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.prefix", str(tmp_path / "my venv"))
    monkeypatch.setattr("shutil.which", lambda name: "/bin/crawler" if known else None)
    lines = demo._closing(Path("crawl-demo"), "http://x/", "").splitlines()
    assert ("  . 'my venv/bin/activate'" in lines) != known
    script.unlink()
    assert "activate" not in demo._closing(Path("crawl-demo"), "http://x/", "")
