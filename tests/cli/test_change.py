"""Test the output of the commands that change a crawl."""

import json
from pathlib import Path

import pytest

from crawler.change_signals import NAMES
from crawler.cli import change
from tests.end_to_end.web import Web, crawl, page, run


def test_the_fates_of_signals_can_be_printed_as_json(tmp_path: Path) -> None:
    with Web({"/": page()}) as web:
        crawl(tmp_path / "crawl", web.url())
        ran = run("signal", web.url(), "http://b.test/", "--json", "--dir", tmp_path / "crawl")
    said = json.loads(ran.out)
    assert (said["kept"], said["out_of_scope"]) == (1, 1), said


def test_help_lists_every_signal_source(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        change.main("signal", ["--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert (
        "{" + ",".join(NAMES) + "}" in shown
        and "feed: entries and dates of an RSS, Atom or JSON feed" in shown
    )


def test_a_stop_of_a_crawl_at_rest_is_no_error(tmp_path: Path) -> None:
    """A crawl may end by itself just before it is stopped. The exit code was 2."""
    assert run("stop", "--dir", tmp_path / "none").code == 3
    with Web({}, other=page()) as web:
        crawl(tmp_path / "crawl", web.url())
    for flags in ((), ("--wait",)):
        ran = run("stop", "--dir", tmp_path / "crawl", *flags)
        assert (ran.code, ran.err) == (0, "") and "the crawl is not running" in ran.text, ran
    assert run("pause", "--dir", tmp_path / "crawl").code == 2
