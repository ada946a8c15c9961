"""Test the health verdict on a crawl: each rule alone, and healthy crawls whose figures look bad."""

from typing import Any

import pytest

from crawler.admin.health import RULES, TROUBLE, BrokenRule, MemberStatus, failures, health, recent_requests
from crawler.admin.status import Status, whole
from crawler.records import FrontierCounts, Outcome, PeerStatus

NOW = 10_000.0


def status(**more: Any) -> Status:
    """Return the status of a healthy crawl of one process."""
    usual: dict[str, Any] = {
        "name": "p0",
        "now": NOW,
        "frontier": FrontierCounts(todo=100, in_flight=5, hosts=40, hosts_reached=40),
        "members": [MemberStatus("p0", "running", NOW)],
        "processes": [{"name": "p0", "loop_lag": 0.01, "descriptors": 50, "descriptors_max": 1024}],
        "recent": {"span": 60.0, "done": 500, "requests": 500, "failures": 10, "failed.reset": 10},
    }
    return Status(**(usual | more))


def growth(requests: float, failures: float, **failed: float) -> dict[str, float]:
    by_outcome = {f"failed.{outcome}": n for outcome, n in failed.items()}
    return {"span": 60.0, "requests": requests, "failures": failures} | by_outcome


def error(age: float, level: str = "error") -> dict[str, Any]:
    return {"at": NOW - age, "level": level, "message": "store: the disk is full"}


DISCONNECTED = {"p0": {"p1": PeerStatus(7, 70, connected=False)}}
CAUSE = "p1: ended with signal 9 (SIGKILL)"
DEATH = {"died": True, "message": f"{CAUSE}; restarting it in 0.2 s"}
ILL: list[tuple[str, dict[str, Any], str]] = [
    ("missing", {"members": [MemberStatus("p0", "running"), MemberStatus("p1", "missing")]}, "p1 is not running"),
    (
        "paused",
        {"paused": ["disk"]},
        "nothing is fetched because the disk is nearly full; once there is space, fetching continues",
    ),
    (
        "stalled",
        {"recent": growth(2, 2), "frontier": FrontierCounts(todo=9, hosts=2, hosts_failing=2)},
        "no request has succeeded in the last minute",
    ),
    (
        "requests",
        {"recent": growth(100, 51, connect_error=30, reset=21)},
        "51 of 100 requests failed in the last minute; most frequent failure: connection refused or timed out",
    ),
    (
        "hosts",
        {"frontier": FrontierCounts(todo=9, hosts=440, hosts_reached=40, hosts_failing=400), "recent": {}},
        "400 hosts fail and 40 answered so far",
    ),
    (
        "deaths",
        {"errors": [error(400) | DEATH, error(30) | DEATH, error(599) | DEATH]},
        f"processes died 3 times in the last 10 minutes, the latest: {CAUSE}",
    ),
    (
        "hosts",
        {"frontier": FrontierCounts(todo=9, hosts=30, hosts_failing=30, hosts_nameless=30), "recent": {}},
        "30 hosts fail and 0 answered so far",
    ),
    ("peers", {"peers": DISCONNECTED}, "no connection from p0 to p1 (7 links wait)"),
]  # fmt: skip
WEAK: list[tuple[str, dict[str, Any], str]] = [
    (
        "requests",
        {"recent": growth(100, 50, reset=50)},
        "50 of 100 requests failed in the last minute; most frequent failure: connection closed without an answer",
    ),
    (
        "hosts",
        {"frontier": FrontierCounts(todo=9, hosts=70, hosts_reached=40, hosts_failing=30), "recent": {}},
        "30 hosts fail and 40 answered so far",
    ),
    (
        "deaths",
        {"errors": [error(30) | DEATH, error(599) | DEATH, error(601) | DEATH]},
        f"a process died in the last 10 minutes: {CAUSE}",
    ),
    (
        "errors",
        {"errors": [error(599), error(1), error(30)]},
        "3 errors were logged in the last 10 minutes, the latest: store: the disk is full",
    ),
    ("lag", {"processes": [{"name": "p0", "loop_lag": 3.25}]}, "p0 is blocked for up to 3.2 s"),
    (
        "descriptors",
        {"processes": [{"name": "p0", "descriptors": 1000, "descriptors_max": 1024}]},
        "p0 has 1,000 of at most 1,024 files open",
    ),
]  # fmt: skip

WELL: dict[str, dict[str, Any]] = {
    "as usual": {},
    "links to names that do not exist": {
        "frontier": FrontierCounts(todo=30, hosts=70, hosts_reached=40, hosts_failing=30, hosts_nameless=30),
        "recent": growth(0, 0),
    },
    "just started": {"recent": {}, "processes": [{"name": "p0", "loop_lag": 0.0}]},
    "one host with a long gap": {"recent": growth(0, 0)},
    "few requests, all failed": {"recent": {**growth(3, 3), "span": 10.0}},
    "a quarter of the requests fail": {"recent": growth(100, 25)},
    "a few hosts of many fail": {
        "frontier": FrontierCounts(todo=9, hosts=90, hosts_reached=75, hosts_failing=25)
    },
    "nothing is left": {"recent": growth(0, 0), "frontier": FrontierCounts(hosts=9, hosts_failing=2)},
    "an error long ago": {"errors": [error(601)]},
    "a warning": {"errors": [error(1, "warning")]},
    "a peer that nothing waits for": {"peers": {"p0": {"p1": PeerStatus(0, 0, connected=False)}}},
}


@pytest.mark.parametrize(
    ("severity", "rule", "more", "text"),
    [("unhealthy", *row) for row in ILL] + [("degraded", *row) for row in WEAK],
    ids=[rule for rule, *_ in ILL] + [f"{rule}, degraded" for rule, *_ in WEAK],
)
def test_each_rule_names_its_problem(severity: str, rule: str, more: dict[str, Any], text: str) -> None:
    verdict = health(status(**more))
    assert verdict.problems == (BrokenRule(rule, text, severity),)
    assert not verdict.healthy and str(verdict) == f"{severity}: {text}"
    assert status(**more).plain()["health"]["said"] == str(verdict)


def test_every_rule_is_tested() -> None:
    assert {rule for rule, *_ in (*ILL, *WEAK)} == RULES.keys()


def test_the_worst_problem_comes_first_and_gives_the_state() -> None:
    verdict = health(status(errors=[error(1), error(1) | DEATH], members=ILL[0][1]["members"]))
    assert verdict.state == "unhealthy"
    assert [problem.rule for problem in verdict.problems] == ["missing", "deaths", "errors"]


@pytest.mark.parametrize("more", WELL.values(), ids=WELL)
def test_a_healthy_crawl_is_never_called_ill(more: dict[str, Any]) -> None:
    assert str(health(status(**more))) == "healthy"


def test_a_crawl_paused_by_the_user_is_healthy() -> None:
    verdict = health(status(paused=["user"], recent=growth(0, 0)))
    assert verdict.healthy and verdict.state == "paused"


def test_a_crawl_at_rest_has_no_problems() -> None:
    verdict = health(status(members=[MemberStatus("p0", "at_rest")], errors=[error(1)]))
    assert (verdict.state, verdict.problems) == ("at rest", ())


def test_a_crawl_that_died_is_not_called_at_rest() -> None:
    members = [MemberStatus(f"p{n}", "died" if n else "at_rest") for n in range(3)]
    verdict = health(status(members=members))
    assert verdict.state == "died" and str(verdict).startswith("died: p1, p2 did not end cleanly")
    assert "p1 is not running" in str(whole([status(), status(members=members[1:2])]).health)


def test_problems_are_found_in_the_merged_status() -> None:
    """The verdict is computed from the merged status, in which rates and hosts are summed over all processes."""
    ill = status(name="p1", members=[MemberStatus("p1", "running")], recent=growth(1000, 900, dns_error=900))
    merged = whole([status(), ill])
    assert [problem.rule for problem in merged.health.problems] == ["requests"]
    assert "910 of 1,500" in str(merged.health) and "no answer from DNS" in str(merged.health)
    rested = whole([status(), status(name="p1", members=[MemberStatus("p1", "at_rest")])])
    assert str(rested.health) == "unhealthy: p1 is not running"


def test_requests_for_pages_refreshes_and_robots_txt_are_counted() -> None:
    counters = {"pages.fetched": 5, "pages.retried": 9, "robots.connect_error": 3, "robots.rules_ignored": 4}
    counters |= {"refresh.reset": 2, "pages.robots_denied": 7, "robots.gone": 1}
    grown = recent_requests(counters)
    assert (grown["requests"], grown["failures"]) == (11, 5)
    assert (grown["failed.connect_error"], grown["failed.reset"]) == (3, 2)
    assert Outcome.GONE not in TROUBLE
    first, *others = failures(counters, nameless=7)
    assert (first["outcome"], first["said"], first["count"]) == (
        "dns_not_found",
        "the host name does not exist",
        7,
    )
    assert [each["outcome"] for each in others] == ["connect_error", "reset"]
