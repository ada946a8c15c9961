"""Test that every place that shows an outcome describes it in the same words."""

import pytest

from crawler.admin import health
from crawler.audit.findings import answer_in_words, unreachable
from crawler.cli import inspect, summary
from crawler.fetcher.outcome import blame_of
from crawler.frontier.hosts.politeness import CAUSES
from crawler.records import TLS_FAILURES, Blame, Outcome
from crawler.wording import describe_outcome


@pytest.mark.parametrize("outcome", sorted(TLS_FAILURES))
def test_a_failed_handshake_is_named_in_status_why_report_and_summary(outcome: Outcome) -> None:
    """All of them were once called "no TLS connection", so an expired certificate looked like a server that is down."""
    assert blame_of(outcome) is Blame.HOST and outcome in CAUSES and outcome in summary._FAILURES
    others = TLS_FAILURES - {outcome}
    assert describe_outcome(outcome) not in map(describe_outcome, others)
    assert unreachable(outcome, 2) not in {unreachable(other, 2) for other in others}


def test_each_failure_of_a_host_is_a_cause_that_the_store_can_hold() -> None:
    assert {outcome for outcome in Outcome if blame_of(outcome) is Blame.HOST} <= set(CAUSES)


@pytest.mark.parametrize("outcome", sorted(Outcome))
def test_dashboard_status_and_audit_describe_an_outcome_alike(outcome: Outcome) -> None:
    said = describe_outcome(outcome)
    assert inspect._numbers({outcome: 2}) == f"{said} 2"
    assert all(each["said"] == said for each in health.failures({f"pages.{outcome}": 2}))
    assert answer_in_words(None, outcome) == (said if outcome is not Outcome.GONE else "not found")
