"""Test the lines that are logged about waiting hosts with `-v`. Each change of a wait is one line."""

import pytest
from msgspec.structs import replace

from crawler.process.answering.wait_log import WaitLog
from crawler.records import HostStatus

CALM = HostStatus(
    host="a.example",
    state="waits",
    cause="",
    ready_at=0.0,
    wait=0.0,
    next_retry_at=0.0,
    gap=1.0,
    failures=0,
    refusals=0,
    slowdown=1.0,
    todo=1,
    parked=0,
    known=1,
)


FAILING = replace(CALM, state="backing_off", cause="connect_error", failures=2, wait=60.0, ready_at=86_400.0)
AGAIN = "; next try 1970-01-02T00:00:00.000Z"


def said(waits: WaitLog, *hosts: HostStatus) -> list[str]:
    return [wait.text for wait in waits.new_lines(hosts)]


def test_each_back_off_is_logged_once() -> None:
    waits = WaitLog()
    assert said(waits, CALM) == []
    text = f"a.example: backing off (connection refused or timed out, 2 failures in a row){AGAIN}"
    assert said(waits, FAILING) == [text]
    assert said(waits, FAILING) == []
    assert said(waits, replace(FAILING, failures=3)) != []
    assert said(waits, CALM) == []
    assert said(waits, FAILING) == [text]
    slowed = replace(CALM, host="b.example", slowdown=4.0, cause="refusals", refusals=20)
    assert said(waits, slowed) == [
        "b.example: waits (refused too often, 20 refusals in a row, slowed 4.0 times by 429 or 503)"
    ]


@pytest.mark.parametrize(
    ("host", "text"),
    [
        (replace(FAILING, failures=1, cause="dns_error"), "backing off (no answer from DNS, 1 failure)"),
        (replace(FAILING, failures=0, state="waits_for_robots", cause="temporary"), "waits for robots (server error)"),
        (replace(FAILING, failures=0, state="waits_for_robots", cause="reset"), "waits for robots (connection closed"),
        (replace(FAILING, failures=0, state="retries", cause="header_timeout"), "retries (no answer in time)"),
        (replace(FAILING, failures=0, state="waits_for_address", cause=""), "waits for address"),
        (replace(FAILING, failures=0, state="waits_for_look_up", cause=""), "waits for look up"),
        (replace(FAILING, failures=0, state="waits", cause="", gap=20.0), "waits (20 s between requests)"),
        (replace(FAILING, cause="host_busy", slowdown=2.0), "backing off (server busy, 2 failures in a row, slowed 2.0"),
    ],
)  # fmt: skip
def test_each_waiting_host_has_its_cause_and_next_try(host: HostStatus, text: str) -> None:
    """The line and its fields name the cause and the next try.

    A wait is logged once, even if the host recovers meanwhile.
    """
    waits = WaitLog()
    (wait,) = waits.new_lines([host])
    assert wait.text.startswith(f"a.example: {text}") and wait.text.endswith(AGAIN)
    assert wait.fields["next_try"] == host.ready_at and wait.fields["state"] == host.state
    assert wait.fields.get("cause", "") == host.cause
    assert said(waits, host) == []
    if host.state == "waits":
        assert said(waits, CALM) == said(waits, host) == []


def test_short_waits_and_hosts_in_flight_are_not_logged() -> None:
    waits = WaitLog()
    assert said(waits, replace(CALM, wait=1.0), replace(CALM, state="waits_for_address", wait=0.5)) == []
    assert said(waits, replace(FAILING, state="in_flight")) == []
