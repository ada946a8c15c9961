"""Test the output of `crawler status` for a crawl that keeps pages fresh."""

from pathlib import Path
from typing import Any

import pytest

from crawler.cli import access, inspect

SECTION: dict[str, Any] = {
    "pages": 1200,
    "ages": {"median": 3600.0 * 5, "p90": 86_400.0 * 3, "oldest": 86_400.0 * 40},
    "more_rate": {"share": 0.1, "gain": 0.0081},
    "hosts": [{"host": "a.org", "pages": 1000, "fresh": 0.931}, {"host": "b.org", "pages": 1, "fresh": 0.5}],
    "arms": [
        {
            "policy": "ncis", "pages": 600, "refreshes": 50, "changed": 9,
            "expected": 0.9, "expected_error": 0.01, "seen": 0.8, "seen_error": 0.02,
        },
        {"policy": "uniform", "pages": 600, "refreshes": 0, "changed": 0},
    ],
}  # fmt: skip


def test_ages_the_gain_of_more_requests_hosts_and_arms_are_shown() -> None:
    assert inspect._refreshing(SECTION, 1) == [
        "age:      half of the copies are younger than 5.0 h, nine in ten than 3.0 d, the oldest 40.0 d",
        "price:    10% more rate would add 0.81 points of freshness",
        "  a.org: 1,000 pages, 93.1% expected to be current",
        "  arm ncis: 600 pages, 50 refreshes, 9 of them found a change, 90.0% +- 2.0% expected to be current, "
        "80.0% +- 3.9% of the time current, as measured by refreshes",
        "  arm uniform: 600 pages, 0 refreshes, 0 of them found a change",
    ]
    assert inspect._refreshing({}, 5) == inspect._refreshing({"pages": 0}, 5) == []
    assert inspect._refreshing({"pages": 3}, 5) == []


def test_new_pages_their_hubs_and_their_delays_are_shown() -> None:
    news = {
        "found": 111, "per_day": 4.26, "by_kind": {"page": 35, "sitemap": 65, "feed": 11},
        "dated": 25, "delay_median": 7200.0, "delay_p90": 86_400.0 * 2, "hubs": 10, "unfound": 59.4,
    }  # fmt: skip
    assert inspect._refreshing({"pages": 3, "news": news}, 5) == [
        "news:     111 new pages found by refetching known pages (4.26 per day): 59% on sitemaps, 32% on pages, "
        "10% on feeds; about 59 pages are not found yet",
        "delay:    half of the new pages were fetched within 2.0 h of their publication, nine in ten within 2.0 d "
        "(25 pages with a date)",
    ]


def test_new_pages_that_signals_have_named_are_shown() -> None:
    news = {"found": 4, "per_day": None, "by_kind": {"page": 1, "signal": 3}}
    assert inspect._refreshing({"pages": 3, "news": news}, 5) == [
        "news:     4 new pages found by refetching known pages and by signals: 75% named by signals, 25% on pages"
    ]


def test_without_new_pages_only_the_expected_number_is_shown() -> None:
    news = {
        "found": 0, "per_day": 0.0, "by_kind": {},
        "dated": 0, "delay_median": None, "delay_p90": None, "hubs": 1, "unfound": 1.2,
    }  # fmt: skip
    assert inspect._refreshing({"pages": 3, "news": news}, 5) == ["news:     about 1 page is not found yet"]
    assert inspect._refreshing({"pages": 3, "news": news | {"unfound": 0.2}}, 5) == []


def test_numbers_in_explanations_have_six_digits_and_zeros_are_left_out() -> None:
    """The facts come as tuples from the store and as lists from a running process."""
    refresh = {
        "rate": 2.6286654746238118e-05,
        "fresh": 0.820355225,
        "clock": 0.0,
        "deadline": "2026-11-28T16:14:07.402Z",
    }
    facts = {
        "refresh": refresh | {"signals": (0, 0), "site": (0.009680063463747501, 3)},
        "known": False,
        "flags": "SEED",
    }
    assert inspect._why_text(facts).splitlines() == [
        "refresh:", "  rate: 2.62867e-05", "  fresh: 0.820355", "  deadline: 2026-11-28T16:14:07.402Z",
        "  site: [0.00968006, 3]", "known: False", "flags: SEED",
    ]  # fmt: skip


def test_signals_are_shown_by_host_and_source(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    row = {
        "host": "a.org",
        "source": "sitemap",
        "signals": 12.0,
        "precision": 0.012,
        "recall": 0.5,
        "delay": 90.0,
    }
    rows = [[row], [row | {"host": "b.org", "signals": 40.0, "precision": 0.99, "delay": None}], []]
    monkeypatch.setattr(access, "ask", lambda path, request: rows)
    assert inspect.main("status", ["--signals", "--dir", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines[1:]] == [["b.org", "sitemap"], ["a.org", "sitemap"]]
    assert lines[2].split()[2:] == ["12", "1.2%", "50.0%", "90", "s"]
    rows.clear()
    assert inspect.main("status", ["--signals", "--dir", str(tmp_path)]) == 0
    assert "no signals" in capsys.readouterr().out
