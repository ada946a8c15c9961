"""What -v says of hosts that wait: once each time it changes."""

from msgspec.structs import replace

from crawler.process.waits import Waits
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


def test_each_back_off_is_said_once() -> None:
    waits = Waits()
    failing = replace(CALM, state="backing_off", failures=2, wait=60.0, ready_at=86_400.0)
    assert list(waits.news([CALM])) == []
    said = ["a.example: backing off (2 failures in a row); next try 1970-01-02T00:00:00.000Z"]
    assert list(waits.news([failing])) == said
    assert list(waits.news([failing])) == []
    assert list(waits.news([replace(failing, failures=3)])) != []
    assert list(waits.news([CALM])) == []
    assert list(waits.news([failing])) == said
    slowed = replace(CALM, host="b.example", slowdown=4.0, cause="refusals", refusals=20)
    assert list(waits.news([slowed])) == [
        "b.example: waits (refusals, refused 20 times in a row, slowed 4.0 times by 429 or 503)"
    ]
