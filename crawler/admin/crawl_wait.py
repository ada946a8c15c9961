"""Finds out what a crawl waits for, for progress lines and logs."""

from typing import NamedTuple

from crawler.admin.status import Status
from crawler.clock import iso_time
from crawler.records import HostStatus
from crawler.wording import describe_outcome, several

LONG_WAIT = 2.0  # seconds; shorter waits of a crawl are not shown

_STATES = {
    "waits_for_robots": "its robots.txt could not be fetched",
    "retries": "a URL is tried again",
    "waits_for_address": "others at its address",
    "waits_for_look_up": "other look-ups",
}


class CrawlWait(NamedTuple):
    """The wait of a crawl that cannot fetch anything until the instant `until`.

    `subject` is what can be fetched then: a host and the number of other hosts, or a known page.
    """

    subject: str
    until: float
    reason: str

    def described(self, now: float) -> str:
        """Return the wait in words, as seen at `now`."""
        clock = iso_time(self.until)[11:19]
        return f"waits until {clock} UTC ({self.until - now:,.0f} s) for {self.subject}: {self.reason}"


def is_fetching(status: Status) -> bool:
    """Return whether a new URL or a known page is in flight."""
    return bool(status.frontier.in_flight or status.refreshing.get("in_flight"))


def next_wait(status: Status) -> CrawlWait | None:
    """Return what a crawl without a fetch in flight waits for, or None if it does not wait long."""
    if is_fetching(status):
        return None
    known = _refresh_wait(status)
    if not status.frontier.todo:
        return known
    hosts = [host for host in status.waiting if host.todo and host.ready_at - status.now > LONG_WAIT]
    if not hosts:
        return None
    first = min(hosts, key=lambda host: host.ready_at)
    others = f" and {several(len(hosts) - 1, 'other host')}" if len(hosts) > 1 else ""
    found = CrawlWait(f"{first.host}{others}", first.ready_at, _reason(first))
    return found if known is None else min(found, known, key=lambda wait: wait.until)


def _refresh_wait(status: Status) -> CrawlWait | None:
    """Return what all known pages wait for, or None if one of them may be fetched soon."""
    wait = status.refreshing.get("wait")
    if not wait or wait["until"] - status.now <= LONG_WAIT:
        return None
    return CrawlWait("the next refresh", wait["until"], wait["reason"])


def _reason(host: HostStatus) -> str:
    cause = f" ({describe_outcome(host.cause)})" if host.cause else ""
    if host.state in _STATES:
        return _STATES[host.state] + cause
    if host.slowdown > 1.0:
        return "slowed by 429 or 503"
    if host.failures:
        return (f"failed {host.failures} times in a row" if host.failures > 1 else "it failed") + cause
    return describe_outcome(host.cause) or f"its gap of {host.gap:,.3g} s between requests"
