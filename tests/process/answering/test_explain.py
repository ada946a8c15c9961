"""Test the first sentence that `crawler why` prints for each possible state of a URL."""

from typing import Any

import pytest

from crawler.process.answering.explain import prospect, verdict
from crawler.serve.interfaces import Ahead, AheadState

RECORD = {
    "state": "stored",
    "status": 200,
    "fetched_at": "T",
    "unanswered_at": "",
    "outcome": "fetched",
    "attempts": 1,
    "fetches": 1,
}
ACCEPTED = {"filter": "accepted", "reason": "it passes", "known": True}
DENIES = {"line": "Disallow: /x", "url": "http://h/robots.txt", "denied": True}


COPIES = [
    {"status": status, "fetched_at": at, "noarchive": False, "broken": False}
    for status, at in ((299, "T"), (200, "S"))
]
BROKEN = {"status": 200, "fetched_at": "U", "noarchive": False, "broken": True}
FAILED_REFRESH = {"state": "failed", "deadline": "V", "host_ready": None}


def _record(**values: Any) -> dict[str, Any]:
    return ACCEPTED | {"record": RECORD | {"location": "", "error": ""} | values}


def _todo(**waiting: Any) -> dict[str, Any]:
    """Return the facts about a URL that waits in the queue of its host."""
    return {"queue": "to do", "waiting": {"state": "ready"} | waiting}


def _withdrawn(**values: Any) -> dict[str, Any]:
    return _record() | {"withdrawn": {"at": "T", "reason": "", "copies": 0, "again": True} | values}


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (_record(), "Stored: 200 at T, fetched once."),
        (_record(fetches=3), "Stored: 200 at T, fetched 3 times."),
        (_record(fetches=2, status=304), "Stored: unchanged (304) at T, fetched 2 times."),
        (_record(state="redirected", status=301, location="/n"), "Redirects to /n: 301 at T."),
        (_record(state="gone", status=404), "Gone: 404 at T."),
        (
            _record(state="failed", status=401),
            "Failed: 401 at T; it requires a login, or rejects the given one "
            "(--http-user and --http-password, --login, --load-cookies).",
        ),
        (
            _record(state="failed", status=401, outcome="license_required"),
            "Failed: 401 at T; the site demands a licence token (RSL), and the crawler buys none.",
        ),
        (
            _record(state="failed", status=429),
            "Failed: 429 at T; the host requests a slower crawl (--delay, --delay-factor).",
        ),
        (
            _record(state="failed", status=0, outcome="reset", attempts=3, error="no bytes"),
            "Failed: reset after 3 tries (no bytes).",
        ),
        (
            _record(state="failed", status=0, outcome="header_timeout", unanswered_at="U"),
            "Failed: header_timeout after 1 try, the last at U.",
        ),
        (
            _record(fetches=2, status=503, outcome="host_busy", fetched_at="U", noarchive=False)
            | {"captures": COPIES, "refresh": FAILED_REFRESH},
            "Stored: 299 at T, fetched 2 times; the last try at U failed: 503; its next refresh is due at V.",
        ),
        (
            _record(status=0, outcome="reset", error="no bytes", unanswered_at="U", noarchive=False)
            | {"captures": COPIES, "refresh": FAILED_REFRESH | {"host_ready": "W"}},
            "Stored: 299 at T, fetched once; the last try at U failed: connection closed without an answer (no bytes); "
            "its next refresh is due at W.",
        ),
        (
            _record(outcome="truncated", fetched_at="U", noarchive=False) | {"captures": [BROKEN, *COPIES]},
            "Stored: 299 at T, fetched once; the last try at U failed: answer cut short.",
        ),
        (
            _record(status=0, outcome="reset") | {"captures": []},
            "Stored: fetched once; the last try failed: connection closed without an answer.",
        ),
        (
            _record(status=500, outcome="temporary", noarchive=False)
            | {"captures": COPIES, "refresh": FAILED_REFRESH, "retry_at": "U"}
            | _todo(todo=1),
            "Stored: 299 at T, fetched once; the last try at T failed: 500; queued again: it will be retried; "
            "next try U; this host has 1 URL to do.",
        ),
        (
            _record(state="gone", status=404) | {"refresh": FAILED_REFRESH | {"state": "away"}},
            "Gone: 404 at T; its next refresh is due at V.",
        ),
        (_record() | {"refresh": FAILED_REFRESH | {"state": "too young"}}, "Stored: 200 at T, fetched once."),
        (
            _record(state="denied", status=0) | {"robots": DENIES},
            "Never fetched: `Disallow: /x` in http://h/robots.txt forbids it.",
        ),
        (
            _record(state="denied", status=0),
            "Never fetched: its host's robots.txt disallowed it at that time.",
        ),
        (
            _record(state="denied", status=0, noarchive=False) | {"robots": DENIES, "captures": COPIES},
            "Not fetched again: `Disallow: /x` in http://h/robots.txt forbids it; the copy of T is kept and served.",
        ),
        (
            _record(state="denied", status=0, noarchive=True) | {"robots": DENIES, "captures": COPIES[1:]},
            "Not fetched again: `Disallow: /x` in http://h/robots.txt forbids it; "
            "the copy of S is kept but not served (noarchive).",
        ),
        (
            _record(state="denied", status=0)
            | {"robots": DENIES, "captures": [BROKEN | {"status": 404, "broken": False}]},
            "Never fetched: `Disallow: /x` in http://h/robots.txt forbids it.",
        ),
        (
            _record(state="failed", status=500, noarchive=False) | {"captures": COPIES},
            "Failed: 500 at T; the copy of T is kept and served.",
        ),
        (
            _record(state="retired"),
            "Not fetched: the operator had withdrawn it, or erased its copies, when its turn came.",
        ),
        (
            _record(noarchive=False) | {"captures": COPIES, "robots": DENIES | {"withheld": False}},
            "Stored: 200 at T, fetched once; `Disallow: /x` in http://h/robots.txt forbids it now, so it is not fetched "
            "again; the copy of T is kept and served.",
        ),
        (
            _record(noarchive=False) | {"captures": COPIES, "robots": DENIES | {"withheld": True}},
            "Stored: 200 at T, fetched once; `Disallow: /x` in http://h/robots.txt forbids it now, so it is not fetched "
            "again; the copy of T is kept but not served (serve.on_disallow = withhold).",
        ),
        (
            _record(noarchive=True) | {"captures": COPIES},
            "Stored: 200 at T, fetched once; the copy of T is kept but not served (noarchive).",
        ),
        (
            _withdrawn(reason="asked for", copies=2, again=False),
            "Withdrawn by the operator at T (asked for): 2 copies are kept, but not served or exported; "
            "it is not fetched again.",
        ),
        (_withdrawn(), "Withdrawn by the operator at T: no copy is kept; it may be fetched again."),
        (
            ACCEPTED | {"dropped": True},
            "Dropped: it was found but is in no queue; `crawler retire` removed it.",
        ),
        (
            ACCEPTED | {"known": False, "waiting": {"state": "given_up"}},
            "Not found yet, and it would not be fetched: its host was given up.",
        ),
        (
            ACCEPTED | {"queue": "parked", "parked_by": "depth"},
            "Parked: it is deeper than crawl.depth allows; raise the limit to queue it again.",
        ),
        (
            ACCEPTED | _todo(state="backing_off", todo=7, ready_at="T"),
            "To do: its host failed recently; next try T; this host has 7 URLs to do.",
        ),
        (
            ACCEPTED | _todo(state="given_up", cause="dns_not_found", todo=2),
            "To do: its host was given up: the host name does not exist; the next run tries it again; "
            "this host has 2 URLs to do.",
        ),
        (
            ACCEPTED | _todo(state="waits_for_robots", cause="host_busy", todo=1, ready_at="T"),
            "To do: the robots.txt of its host could not be fetched (server busy); next try T; "
            "this host has 1 URL to do.",
        ),
        (
            _record(state="failed", status=500) | {"retry_at": "U"} | _todo(cause="temporary", todo=2),
            "Failed: 500 at T; queued again: it will be retried (server error); next try U; this host has 2 URLs to do.",
        ),
        (
            ACCEPTED | {"paused": ["user"]} | _todo(todo=2),
            "To do: the crawl is paused (user); its host is ready; it is fetched when its turn comes; "
            "this host has 2 URLs to do.",
        ),
        (
            ACCEPTED | _todo(todo=1, failures=1),
            "To do: its host failed, and is tried again in its turn; this host has 1 URL to do.",
        ),
        (
            ACCEPTED | _todo(cause="connect_error", todo=1, failures=2),
            "To do: its host failed 2 times in a row, and is tried again in its turn (connection refused or timed out); "
            "this host has 1 URL to do.",
        ),
        (
            {"filter": "exclude", "reason": "it matches a pattern: x", "known": False},
            "Never fetched: it matches a pattern: x.",
        ),
        (ACCEPTED, "To do: it is known, and waits further back in its host's queue or on the way to it."),
        (
            ACCEPTED | {"known": False, "robots": DENIES},
            "Not found yet, and it would not be fetched: `Disallow: /x` in http://h/robots.txt forbids it.",
        ),
        (
            ACCEPTED | {"known": False},
            "Not found yet: no link that is followed leads to it, and it is not a seed; the filter would accept it.",
        ),
    ],
)
def test_sentences(answer: dict[str, Any], text: str) -> None:
    assert verdict(answer).sentence == text


FACTS = {
    "why": "always", "took": 2.04, "cpu": 0.314, "requests": 3, "missing": 0, "broke": "", "added": True,
    "failures": 0, "again_at": None,
}  # fmt: skip
SHOWN = "; its content is what a browser showed"


@pytest.mark.parametrize(
    ("rendered", "facts", "clause"),
    [
        (False, None, ""),
        (True, None, SHOWN),
        (True, {}, f"{SHOWN} (all are shown; rendering added links or text; 0.31 CPU s, 2.0 s, 3 requests)"),
        (
            True,
            {"why": "other", "requests": 1, "missing": 1, "broke": "time", "added": False},
            f"{SHOWN} (other; rendering added nothing; 0.31 CPU s, 2.0 s, 1 request, 1 of them without an answer; "
            "stopped at its limit of time)",
        ),
        (
            True,
            {"failures": 2, "again_at": "U"},
            f"{SHOWN} earlier (all are shown; rendering added links or text; 0.31 CPU s, 2.0 s, 3 requests)"
            "; no browser could show it, 2 times in a row; --render auto tries again from U on",
        ),
        (
            False,
            {"failures": 1, "again_at": "U"},
            "; no browser could show it, once; --render auto tries again from U on",
        ),
    ],
)
def test_rendered_pages(rendered: bool, facts: dict[str, Any] | None, clause: str) -> None:
    shown = None if facts is None else FACTS | facts
    assert verdict(_record(rendered=rendered, shown=shown)).sentence == (
        f"Stored: 200 at T, fetched once{clause}."
    )


@pytest.mark.parametrize(
    ("answer", "state"),
    [
        (_record(state="stored"), "failed"),
        (_record(state="gone", status=404), "gone"),
        (_record(state="denied", status=0), "denied"),
        (_record(state="retired"), "retired"),
        (_record(state="failed", status=500) | _todo(), "failed"),
        (_withdrawn(), "withdrawn"),
        (ACCEPTED | _todo(), "todo"),
        (ACCEPTED | {"queue": "parked", "parked_by": "depth"}, "parked"),
        ({"filter": "exclude", "reason": "", "known": False}, "filtered"),
        (ACCEPTED | {"dropped": True}, "retired"),
        (ACCEPTED, "todo"),
        (ACCEPTED | {"known": False, "robots": DENIES}, "unknown"),
        (ACCEPTED | {"known": False}, "unknown"),
    ],
)
def test_the_state_of_a_page_without_a_copy(answer: dict[str, Any], state: str) -> None:
    assert verdict(answer).state == state


WAITS = {"state": "backing_off", "wait": 12.5}
LATER = Ahead(AheadState.QUEUED, "it is queued; ask again later")


def _blocked(why: str) -> Ahead:
    return Ahead(AheadState.BLOCKED, why)


@pytest.mark.parametrize(
    ("facts", "ahead"),
    [
        ({}, LATER),
        ({"waiting": WAITS}, Ahead(AheadState.QUEUED, "it is queued; its host failed recently", 12.5)),
        ({"waiting": {"state": "waits", "wait": 0.0}, "paused": []}, LATER),
        ({"waiting": {"state": "unknown"}}, LATER),
        (
            {"waiting": WAITS, "paused": ["user", "disk"]},
            Ahead(AheadState.QUEUED, "it is queued; the crawl is paused (user, disk)"),
        ),
        (
            {"waiting": {"state": "blocked", "wait": 3.0}, "paused": ["user"]},
            _blocked("its host is blocked; `crawler unblock` lifts the block"),
        ),
        ({"waiting": {"state": "refused"}}, _blocked("its host refused too many requests")),
        ({"waiting": {"state": "given_up"}}, _blocked("its host was given up")),
        (
            {"waiting": {"state": "excluded"}},
            _blocked("its domain has too many hosts (crawl.hosts_per_domain)"),
        ),
        (
            {"robots": DENIES, "waiting": {"state": "blocked"}, "record": object()},
            Ahead(AheadState.DISALLOWED, "`Disallow: /x` in http://h/robots.txt forbids it"),
        ),
        ({"robots": DENIES | {"denied": False}}, LATER),
        (
            {"filter": "scope", "reason": "it lies outside", "robots": DENIES, "record": None},
            Ahead(AheadState.OUT_OF_SCOPE, "it lies outside"),
        ),
        ({"filter": "include", "reason": "no pattern", "record": object()}, LATER),
    ],
)
def test_which_urls_may_be_requested(facts: dict[str, Any], ahead: Ahead) -> None:
    assert prospect(ACCEPTED | facts) == ahead
