"""Read-only views of the frontier: counters, the status of hosts, and what the crawl waits for.

A host may be free although all URLs in its queue wait, because their robots.txt could not be fetched, because
requests to their scheme and port failed, or because their next try is not due yet. If all URLs of a free host
wait, the state, cause and next try that are shown for the host are those of its first URL.
"""

import itertools
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from crawler.frontier.discovery import entries
from crawler.frontier.hosts import ranking
from crawler.frontier.hosts.authorities import Authorities
from crawler.frontier.hosts.budget import RULES
from crawler.frontier.hosts.dispatch_gates import DispatchGates
from crawler.frontier.hosts.politeness import CAUSES
from crawler.frontier.hosts.table import NO_ORDER, NOWHERE, SILENCED, HostFlag, HostState
from crawler.frontier.outstanding import Outstanding
from crawler.frontier.permission import Permission
from crawler.records import HostStatus, SlowestHost
from crawler.robots.cache import VerdictKind
from crawler.storage.keys import PARKED, TODO
from crawler.storage.kv import KeyValue

EXPLAINED_AT_ONCE = 2_000
EXPLAINED_MAX = 100_000  # number of entries of a queue that are read for one explanation
LOOKED_AT = 16  # number of a host's entries that are read to see whether all of them wait
_SILENT_STATES = (
    (HostFlag.BLOCKED, "blocked"),
    (HostFlag.REFUSED, "refused"),
    (HostFlag.GIVEN_UP, "given_up"),
)


class Waited:
    """Measures the seconds during which no fetch task was given out, by reason.

    The reasons `host` and `address` mean that the gap or the back-off of a host or an address had not passed.
    `rate` means that the rate limit of the crawl was reached. `full` means that all fetch slots were taken.
    `empty` means that there was nothing to do.
    """

    def __init__(self) -> None:
        self._ended = dict.fromkeys(("host", "address", "rate", "full", "empty"), 0.0)
        self._reason = ""
        self._since = 0.0

    def add(self, reason: str, now: float) -> None:
        """Set the reason why the crawl waits from now on ("" = it does not wait)."""
        self._ended = self.seconds(now)
        self._reason, self._since = reason, now

    def seconds(self, now: float) -> dict[str, float]:
        """Return the seconds that the crawl has waited for each reason up to `now`, including the present wait."""
        seconds = dict(self._ended)
        if self._reason:
            seconds[self._reason] += max(0.0, now - self._since)
        return seconds


def shares(seconds: dict[str, float], whole: float) -> dict[str, float]:
    """Return each value as a share of `whole`, from 0 to 1. `whole` is the time elapsed."""
    return {
        name: round(min(1.0, length / whole), 4) if whole > 0 else 0.0 for name, length in seconds.items()
    }


class UrlWait(NamedTuple):
    """A URL's own reason to wait, not that of its host: a state, its cause, and the time of the next try."""

    state: str
    cause: str
    until: float


@dataclass(eq=False, repr=False)
class FrontierViews:
    """Read-only views of the registry, the workbench and the stored queues.

    `importance` returns the importance of a URL, given its `order`, that is, the part of its key by which the
    queue is sorted.
    """

    store: KeyValue
    gates: DispatchGates
    outstanding: Outstanding
    permission: Permission
    authorities: Authorities
    importance: Callable[[int], float]
    waited: Waited

    def __post_init__(self) -> None:
        self._registry = self.gates.registry
        self._bench = self.gates.bench

    def counters(self) -> dict[str, int]:
        """Return the numbers of URLs (to do, in flight, parked by rule), hosts by state, requests and look-ups."""
        registry, bench = self._registry, self._bench
        busy = sum(host.busy is not None for host in bench.front.values())
        flags = registry.hosts.array("flags")
        counts = {
            "todo": registry.todo - busy,
            "in_flight": busy,
            "hosts": len(registry.hosts),
            "hosts_reached": registry.reached,
            "addresses": len(self.gates.addresses),
            "hosts_front": len(bench.front),
            "hosts_ready": len(bench.back),
            "hosts_waiting": len(bench.calendar),
            "hosts_excluded": int(((flags & HostFlag.EXCLUDED) != 0).sum()),
        }
        counts |= {f"hosts_{state}": int(((flags & flag) != 0).sum()) for flag, state in _SILENT_STATES}
        counts["hosts_failing"] = int(ranking.failing(registry.hosts, self.authorities.troubled).sum())
        counts["hosts_nameless"] = ranking.nameless(registry.hosts)
        counts |= {f"parked_{rule}": registry.parked[index] for index, rule in enumerate(RULES) if rule}
        return counts | {"requests": self.outstanding.requests, "look_ups": self.gates.look_ups.under_way}

    def why_slow(self, now: float) -> dict[str, float]:
        """Return for each reason the seconds up to `now` during which nothing could start; see `Waited`."""
        return self.waited.seconds(now)

    @property
    def hosts_reached(self) -> int:
        """The number of hosts that have ever answered."""
        return self._registry.reached

    def explain(self, url: str, now: float) -> dict[str, Any]:
        """Return the status of a URL's host, which also tells what the URL waits for.

        An unknown host has the state "unknown".
        """
        name, tail = entries.split_url(url)
        slot = self._registry.find(name)
        if slot == NOWHERE:
            return {"host": name, "state": "unknown"}
        front = self._bench.front.get(slot)
        later = front.later if front is not None else []
        until = next((at for at, (_, entry) in later if entry.tail == tail), 0.0)
        return msgspec.structs.asdict(self._described(slot, name, self._url_wait(name, url, until, now), now))

    def host_name(self, key: int) -> str:
        """Return the stored name of the host with that key; "" if it is not stored."""
        slot = self._registry.hosts.find(key)
        return self._registry.stored_name(slot) if slot != NOWHERE and self._registry.is_stored(slot) else ""

    def disallowing_line(self, url: str) -> str:
        """Return the line of the latest robots.txt that forbids a URL; "" if no line does or robots.txt is not obeyed."""
        return self.permission.disallowing_line(entries.split_url(url)[0], url)

    def withholding_line(self, url: str) -> str:
        """Return the line of robots.txt that withholds the copies of a URL; "" if the copies are shown."""
        return self.permission.withholding_line(entries.split_url(url)[0], url)

    def hosts_with_work(self) -> int:
        """Return the number of hosts that have URLs to fetch and may be requested (2 ms for a million hosts)."""
        hosts = self._registry.hosts
        return int(((hosts.array("todo") > 0) & ((hosts.array("flags") & SILENCED) == 0)).sum())

    def slowest(self, now: float) -> SlowestHost | None:
        """Return the host that keeps the crawl busy the longest; None if no host must wait (5 ms for a million hosts)."""
        hosts = self._registry.hosts
        seconds = ranking.least_times(hosts, now)
        for front in self._bench.front.values():
            slot = front.slot
            if front.later and not hosts.flags[slot] & SILENCED:
                first, last = front.later[0][0], max(until for until, _ in front.later)
                gaps = 0.0 if front.queue else (hosts.todo[slot] - 1) * hosts.gap[slot]
                seconds[slot] = max(seconds[slot], first + gaps - now, last - now)
        slot = int(seconds.argmax()) if len(seconds) else NOWHERE
        if slot == NOWHERE or seconds[slot] <= 0.0:
            return None
        known = self._bench.front.get(slot)
        name = known.name if known is not None else self._registry.stored_name(slot)
        return SlowestHost(name, float(seconds[slot]))

    def entry(self, url: str) -> Generator[None, None, dict[str, Any]]:
        """Return the state of a URL in its host's queues; {} if the URL is not among the first `EXPLAINED_MAX` entries.

        This method is a generator; it yields after every `EXPLAINED_AT_ONCE` entries, which take about 10 ms.
        """
        name, tail = entries.split_url(url)
        key = self._registry.host_key(name).to_bytes(8, "big")
        for queue, prefix in (("to do", TODO), ("parked", PARKED)):
            found = entries.read_queue(self.store, prefix + key, 0)
            for n, (order, entry) in enumerate(itertools.islice(found, EXPLAINED_MAX), 1):
                if not n % EXPLAINED_AT_ONCE:
                    yield
                if entry.tail == tail:
                    return {
                        "queue": queue,
                        "parked_by": RULES[entry.rule],
                        "depth": entries.depth_of(order, entry),
                        "via": f"{entry.via:016x}",
                        "class": entries.class_in_order(order),
                        "importance": round(self.importance(order), 6),
                        "tries": entry.attempt,
                        "retry_at": entry.retry_at,
                    }
        return {}

    def hosts(self, now: float, limit: int, *, explained: int | None = None) -> Iterator[HostStatus]:
        """Yield the status of up to `limit` hosts; hosts of the front come first.

        For the first `explained` hosts (None: for all hosts), the status shows what the host's first URL
        waits for. To find this out, a robots.txt of 500 kB may have to be read for each host.
        """
        left = limit if explained is None else explained
        for slot, name in self._slots(limit):
            yield self.describe(slot, name, now) if left > 0 else self._described(slot, name, None, now)
            left -= 1

    def _slots(self, limit: int) -> Iterator[tuple[int, str]]:
        """Yield the slot and name of up to `limit` hosts; hosts of the front come first."""
        for host in list(self._bench.front.values())[:limit]:
            yield host.slot, host.name
        others = (self._registry.hosts.array("place") != HostState.FRONT).nonzero()[0]
        for slot in others[: max(0, limit - len(self._bench.front))].tolist():
            if self._registry.is_stored(slot):
                yield slot, self._registry.stored_name(slot)

    def host(self, name: str, now: float) -> HostStatus | None:
        """Return the status of the host with that name; None if it is not known."""
        slot = self._registry.find(name)
        return None if slot == NOWHERE else self.describe(slot, name, now)

    def describe(self, slot: int, name: str, now: float) -> HostStatus:
        return self._described(slot, name, self._first_wait(slot, name, now), now)

    def _described(self, slot: int, name: str, wait: UrlWait | None, now: float) -> HostStatus:
        """Return the status of a host; `wait` is what its URLs wait for, or None if at least one URL does not wait."""
        hosts = self._registry.hosts
        front = self._bench.front.get(slot)
        ready = float(hosts.ready[slot])
        state = self._state(slot, now)
        cause = CAUSES[hosts.cause[slot]]
        if wait is not None and state in ("ready", "waits") and wait.until >= ready:
            state, cause, ready = wait.state, wait.cause or cause, wait.until
        elif state == "waits_for_address" and front is not None:
            cause = ""
            ready = max(ready, self.gates.addresses.turn_at(front.addresses, front, now))
        elif not (hosts.failures[slot] or hosts.flags[slot] & (HostFlag.REFUSED | HostFlag.GIVEN_UP)):
            cause = self.authorities.charged_to_host(slot).outcome
        return HostStatus(
            host=name,
            state=state,
            cause=cause,
            ready_at=ready,
            wait=max(0.0, ready - now),
            next_retry_at=front.later[0][0] if front is not None and front.later else 0.0,
            gap=hosts.gap[slot],
            failures=self._failures(slot),
            refusals=hosts.refusals[slot],
            slowdown=max(1.0, hosts.slowdown[slot]),
            todo=hosts.todo[slot],
            parked=hosts.parked[slot],
            known=hosts.known[slot],
            best=round(self.importance(self._first_order(slot)), 6),
        )

    def _failures(self, slot: int) -> int:
        """Return the number of failures in a row. A host that was given up has failed, even if no request was made."""
        failures = self._registry.hosts.failures[slot] + self.authorities.charged_to_host(slot).failures
        return failures or int(bool(self._registry.hosts.flags[slot] & HostFlag.GIVEN_UP))

    def _first_order(self, slot: int) -> int:
        """Return a lower bound of the order of the host's first URL; NO_ORDER if the host has nothing to do."""
        if not self._registry.hosts.todo[slot]:
            return NO_ORDER
        front = self._bench.front.get(slot)
        return self._registry.hosts.cursor[slot] if front is None else front.cursor()

    def _first_wait(self, slot: int, name: str, now: float) -> UrlWait | None:
        """Return what the first URL of a host waits for if all its URLs wait; otherwise return None."""
        waits: list[UrlWait] = []
        for n, (until, entry) in enumerate(self._first_entries(slot)):
            wait = self._url_wait(name, entries.join_url(name, entry.tail), until, now)
            if wait is None or n == LOOKED_AT:
                return None
            waits.append(wait)
        return min(waits, key=lambda wait: wait.until, default=None)

    def _first_entries(self, slot: int) -> Iterator[tuple[float, entries.Todo]]:
        """Yield (the time of the next try, the entry) for the first entries of a host, at most `LOOKED_AT` + 1."""
        front = self._bench.front.get(slot)
        if front is not None:
            queue = ((0.0, entry) for _, entry in front.queue)
            later = ((until, entry) for until, (_, entry) in front.later[:1])
            return itertools.islice(itertools.chain(queue, later), LOOKED_AT + 1)
        hosts = self._registry.hosts
        if not hosts.todo[slot]:
            return iter(())
        prefix = TODO + hosts.key[slot].to_bytes(8, "big")
        found = entries.read_queue(self.store, prefix, hosts.cursor[slot])
        return ((float(entry.retry_at), entry) for _, entry in itertools.islice(found, LOOKED_AT + 1))

    def _url_wait(self, name: str, url: str, retry_at: float, now: float) -> UrlWait | None:
        """Return what a URL waits for, given the time of its next try; None if it waits only for its host."""
        authority, target = entries.split_authority(url)
        verdict = self.permission.verdict(name, authority, target, now)
        if verdict.kind is VerdictKind.WAIT:
            return UrlWait("waits_for_robots", verdict.cause, verdict.until)
        charged = self.authorities.charged(authority)
        if verdict.kind is not VerdictKind.DENIED and charged.until > now:
            return UrlWait("backing_off", charged.outcome, charged.until)
        return UrlWait("retries", "", retry_at) if retry_at > now else None

    def _state(self, slot: int, now: float) -> str:
        hosts = self._registry.hosts
        for flag, state in _SILENT_STATES:
            if hosts.flags[slot] & flag:
                return state
        front = self._bench.front.get(slot)
        if front is not None and front.held:
            return "in_flight"
        if not hosts.todo[slot]:
            return "excluded" if hosts.flags[slot] & HostFlag.EXCLUDED else "idle"
        if front is not None and front.waiting:
            return "waits_for_look_up" if front in self.gates.look_ups else "waits_for_address"
        if hosts.ready[slot] <= now:
            return "ready"
        return "backing_off" if hosts.failures[slot] else "waits"
