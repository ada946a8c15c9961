"""The log lines of `-v` about waiting hosts: one line per wait, with its cause and the time of the next attempt.

These waits are logged: back-offs, a robots.txt that cannot be fetched, hosts whose URLs are all retried
later, and hosts that are blocked, given up or slowed down. Long gaps, and long waits for an address or a DNS
look-up, are logged too. A cause is logged once per host, and again only if the cause changes. Hosts with a
request in flight are skipped, because the result of the request decides how long they wait next.
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from crawler.clock import iso_time
from crawler.records import HostStatus
from crawler.wording import describe_outcome, several, words

HOSTS_MAX = 200  # maximum number of hosts examined per pass; the hosts in memory come first
# A gap, or a wait for an address or a look-up, is logged if it lasts at least this many seconds.
LONG_WAIT = 5.0
_REMEMBERED_MAX = 4096
_LINES = ("waits", "waits_for_address", "waits_for_look_up")
_CALM = ("ready", "idle", "excluded", *_LINES)


class Wait(NamedTuple):
    """A line for the log, as text and as fields that programs can read."""

    text: str
    fields: dict[str, Any]


class WaitLog:
    """Remembers what was last logged about each host: the trouble with the host, or its long wait."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[object, ...]] = {}
        self._gaps: dict[str, tuple[object, ...]] = {}

    def new_lines(self, hosts: Iterable[HostStatus]) -> Iterator[Wait]:
        """Yield a line for each host whose trouble or long wait differs from what was last logged about the host."""
        for host in hosts:
            if host.state == "in_flight":
                continue
            said, facts = self._said, _trouble(host)
            if not facts:
                self._said.pop(host.host, None)
                said, facts = self._gaps, _long_wait(host)
            if not facts or said.get(host.host) == facts:
                continue
            if len(said) >= _REMEMBERED_MAX:
                said.clear()
            said[host.host] = facts
            yield Wait(_line(host), _fields(host))


def _trouble(host: HostStatus) -> tuple[object, ...]:
    """Return the facts that describe what is wrong with a host; () if nothing is wrong."""
    calm = host.state in _CALM
    if calm and not (host.failures or host.refusals or host.slowdown > 1.0 or host.cause):
        return ()
    again = 0.0 if calm or host.failures else round(host.ready_at)
    return (
        host.failures,
        host.refusals,
        round(host.slowdown, 1),
        host.cause,
        "" if calm else host.state,
        again,
    )


def _long_wait(host: HostStatus) -> tuple[object, ...]:
    """Return the facts that describe the long wait of a healthy host; () if it does not wait long."""
    if host.state not in _LINES or host.wait < LONG_WAIT:
        return ()
    return host.state, round(host.gap) if host.state == "waits" else 0


def _line(host: HostStatus) -> str:
    reasons = [describe_outcome(host.cause)] if host.cause else []
    for count, noun in ((host.failures, "failure"), (host.refusals, "refusal")):
        reasons += [several(count, noun) + " in a row" * (count > 1)] if count else []
    reasons += [f"slowed {host.slowdown:.1f} times by 429 or 503"] if host.slowdown > 1.0 else []
    if host.state == "waits" and host.gap >= LONG_WAIT:
        reasons.append(f"{host.gap:.0f} s between requests")
    why = f" ({', '.join(reasons)})" if reasons else ""
    again = f"; next try {iso_time(host.ready_at)}" if host.wait > 0.0 else ""
    return f"{host.host}: {words(host.state)}{why}{again}"


def _fields(host: HostStatus) -> dict[str, Any]:
    fields: dict[str, Any] = {"host": host.host, "state": host.state}
    for name in ("cause", "failures", "refusals"):
        if value := getattr(host, name):
            fields[name] = value
    if host.slowdown > 1.0:
        fields["slowdown"] = round(host.slowdown, 1)
    return fields | {"gap": host.gap} | ({"next_try": host.ready_at} if host.wait > 0.0 else {})
