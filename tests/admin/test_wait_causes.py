"""Test that each failure that a host is blamed for has words of its own in every place that shows it."""

import pytest

from crawler.admin.wait_causes import describe_cause
from crawler.audit.findings import unreachable
from crawler.cli import summary
from crawler.fetcher.outcome import blame_of
from crawler.frontier.hosts.politeness import CAUSES
from crawler.records import TLS_FAILURES, Blame, Outcome


@pytest.mark.parametrize("outcome", sorted(TLS_FAILURES))
def test_a_failed_handshake_is_named_in_status_why_report_and_summary(outcome: Outcome) -> None:
    """All of them were once called "no TLS connection", so an expired certificate looked like a server that is down."""
    assert blame_of(outcome) is Blame.HOST and outcome in CAUSES and outcome in summary._FAILURES
    others = TLS_FAILURES - {outcome}
    assert describe_cause(outcome) not in map(describe_cause, others)
    assert unreachable(outcome, 2) not in {unreachable(other, 2) for other in others}


def test_each_failure_of_a_host_is_a_cause_that_the_store_can_hold() -> None:
    assert {outcome for outcome in Outcome if blame_of(outcome) is Blame.HOST} <= set(CAUSES)
