"""Test that the latest logged errors are kept for the dashboard, and still reach other log outputs."""

import logging

import pytest

from crawler.admin.process_metrics import RecentErrors


@pytest.mark.parametrize(("crawls", "others", "shown"), [(1, 0, 1), (2, 0, 1), (1, 1, 0), (0, 0, 1)], ids=str)
def test_a_warning_is_shown_once_without_logging_configuration(
    crawls: int, others: int, shown: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If no handler is configured, Python's last-resort handler shows warnings.

    The dashboard must not prevent this.
    """
    log = logging.getLogger("crawler")
    kept = [RecentErrors() for _ in range(crawls)]
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(log, "handlers", [*kept, *(logging.NullHandler() for _ in range(others))])
    monkeypatch.setattr(log, "propagate", True)
    log.getChild("fetcher").warning("the proxy failed")
    assert capsys.readouterr().err.count("the proxy failed") == shown
    assert [each.counts["warning"] for each in kept] == [1] * crawls
