"""Test the output of the commands that change a crawl."""

import json
from pathlib import Path
from typing import Any

import pytest

from crawler.change_signals import NAMES, Signalled
from crawler.cli import access, change
from tests.end_to_end.web import Web, crawl, page, run

SAID = Signalled(noted=1200, sent=3, out_of_scope=2, refused=1, why={"scope": 2, "scheme": 1}).plain()


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Simulate a process, and return the list of the requests that it receives.

    The process answers signals with `SAID`, and rejects one seed.
    """
    requests: list[dict[str, Any]] = []

    def first(path: Path, request: dict[str, Any]) -> dict[str, Any]:
        requests.append(request)
        return (
            SAID
            if request["command"] == "signal"
            else {"queued": len(request["urls"]) - 1, "refused": REFUSED}
        )

    monkeypatch.setattr(access, "ask_first", first)
    monkeypatch.setattr(access, "ask", lambda path, request: [{"retired": 2}, {"retired": 1000}])
    return requests


REFUSED = [{"url": "ftp://a/", "why": "its scheme is neither http nor https"}]


def test_signals_go_to_one_process_which_forwards_them(
    asked: list[dict[str, Any]], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert change.main("signal", ["http://a/", "http://b/", "--source", "feed", "--dir", str(tmp_path)]) == 0
    assert asked == [{"command": "signal", "urls": ["http://a/", "http://b/"], "source": "feed"}]
    assert capsys.readouterr().out == (
        "1,200 noted, 3 sent to their processes, 2 out of scope, 1 refused\n  scheme: 1\n  scope: 2\n"
    )
    assert change.main("signal", ["http://a/", "--json", "--dir", str(tmp_path)]) == 0
    assert asked[1]["source"] == "signal" and json.loads(capsys.readouterr().out) == SAID
    assert change._fates(Signalled(not_refreshed=1, queued=2).plain()) == (
        "0 noted, 2 queued (not fetched yet), 1 known, but not refreshed by this crawl"
    )


def test_help_lists_every_signal_source(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        change.main("signal", ["--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert (
        "{" + ",".join(NAMES) + "}" in shown
        and "feed: entries and dates of an RSS, Atom or JSON feed" in shown
    )


def test_a_seed_that_cannot_be_fetched_is_refused_with_the_reason(
    asked: list[dict[str, Any]], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The exit code is 2. The exit code was once 0 for `crawler seed ftp://...`."""
    assert change.main("seed", ["ftp://a/", "--dir", str(tmp_path)]) == 2
    assert capsys.readouterr().out == "0 queued\nrefused: ftp://a/: its scheme is neither http nor https\n"
    assert asked[0]["urls"] == ["ftp://a/"]


def test_retire_reports_what_it_did(
    asked: list[dict[str, Any]], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert change.main("retire", ["/x/", "--dir", str(tmp_path)]) == 0
    assert (
        capsys.readouterr().out
        == "1,002 waiting URLs dropped; stored pages are kept and refreshed as before\n"
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
