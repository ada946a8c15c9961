"""What the frontier says about itself: counters, single hosts, what the crawl waits for."""

import itertools
from collections.abc import Generator, Iterator
from typing import Any

import msgspec

from crawler.frontier.discovery import entries
from crawler.frontier.hosts.budget import RULES
from crawler.frontier.hosts.politeness import CAUSES
from crawler.frontier.hosts.registry import Registry
from crawler.frontier.hosts.table import NOWHERE, SILENCED, HostFlag, HostState
from crawler.frontier.hosts.workbench import Workbench
from crawler.records import HostStatus
from crawler.storage.keys import PARKED, TODO
from crawler.storage.kv import KeyValue

EXPLAINED_AT_ONCE = 2_000
EXPLAINED_MAX = 100_000  # entries of a queue that are read for one explanation
_SILENT_STATES = (
    (HostFlag.BLOCKED, "blocked"),
    (HostFlag.REFUSED, "refused"),
    (HostFlag.GIVEN_UP, "given_up"),
)


class Waited:
    """Seconds in which no errand was given out, by what was waited for.

    `host` and `address` are gaps and back-offs, `rate` the limit of the crawl,
    `full` means that all places were taken, `empty` that nothing was to do.
    """

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(("host", "address", "rate", "full", "empty"), 0.0)
        self._reason = ""
        self._since = 0.0

    def note(self, reason: str, now: float) -> None:
        """From now on the crawl waits for this ("" = it does not wait)."""
        if self._reason:
            self.seconds[self._reason] += max(0.0, now - self._since)
        self._reason, self._since = reason, now


def shares(seconds: dict[str, float], whole: float) -> dict[str, float]:
    """Each as a share of the time that is over, 0 to 1."""
    return {
        name: round(min(1.0, length / whole), 4) if whole > 0 else 0.0 for name, length in seconds.items()
    }


class FrontierViews:
    """Read-only views of registry, workbench and stored queues."""

    def __init__(self, store: KeyValue, registry: Registry, bench: Workbench) -> None:
        self._store = store
        self._registry = registry
        self._bench = bench

    def counters(self) -> dict[str, int]:
        """To-do URLs (those in flight apart), parked ones by rule, and hosts by state."""
        registry, bench = self._registry, self._bench
        busy = sum(host.busy is not None for host in bench.front.values())
        flags = registry.hosts.array("flags")
        counts = {
            "todo": registry.todo - busy,
            "in_flight": busy,
            "hosts": len(registry.hosts),
            "hosts_reached": registry.reached,
            "hosts_front": len(bench.front),
            "hosts_ready": len(bench.back),
            "hosts_waiting": len(bench.calendar),
            "hosts_excluded": int(((flags & HostFlag.EXCLUDED) != 0).sum()),
        }
        counts |= {f"hosts_{state}": int(((flags & flag) != 0).sum()) for flag, state in _SILENT_STATES}
        return counts | {f"parked_{rule}": registry.parked[index] for index, rule in enumerate(RULES) if rule}

    def explain(self, url: str, now: float) -> dict[str, Any]:
        """What a URL's host waits for, as `describe` has it; state "unknown" for a host never met."""
        name, _ = entries.split_url(url)
        slot = self._registry.find(name)
        if slot == NOWHERE:
            return {"host": name, "state": "unknown"}
        return msgspec.structs.asdict(self.describe(slot, name, now))

    def hosts_with_work(self) -> int:
        """Hosts that have something to do and are not silenced (2 ms for a million hosts)."""
        hosts = self._registry.hosts
        return int(((hosts.array("todo") > 0) & ((hosts.array("flags") & SILENCED) == 0)).sum())

    def entry(self, url: str) -> Generator[None, None, dict[str, Any]]:
        """How a URL stands in its host's queues; {} if it is in none, or behind the first `EXPLAINED_MAX`.

        Pauses behind each `EXPLAINED_AT_ONCE` entries: some 10 ms.
        """
        name, tail = entries.split_url(url)
        key = self._registry.host_key(name).to_bytes(8, "big")
        for queue, prefix in (("to do", TODO), ("parked", PARKED)):
            found = entries.read_queue(self._store, prefix + key, 0)
            for n, (order, entry) in enumerate(itertools.islice(found, EXPLAINED_MAX), 1):
                if not n % EXPLAINED_AT_ONCE:
                    yield
                if entry.tail == tail:
                    return {
                        "queue": queue,
                        "parked_by": RULES[entry.rule],
                        "depth": entries.order_depth(order),
                        "via": f"{entry.via:016x}",
                        "tries": entry.attempt,
                        "retry_at": entry.retry_at,
                    }
        return {}

    def hosts(self, now: float, limit: int) -> Iterator[HostStatus]:
        """Up to `limit` hosts, those of the front first."""
        for host in list(self._bench.front.values())[:limit]:
            yield self.describe(host.slot, host.name, now)
        others = (self._registry.hosts.array("place") != HostState.FRONT).nonzero()[0]
        for slot in others[: max(0, limit - len(self._bench.front))].tolist():
            if self._registry.is_stored(slot):
                yield self.describe(slot, self._registry.stored_name(slot), now)

    def describe(self, slot: int, name: str, now: float) -> HostStatus:
        """How a host stands."""
        hosts = self._registry.hosts
        front = self._bench.front.get(slot)
        ready = float(hosts.ready[slot])
        return HostStatus(
            host=name,
            state=self._state(slot, now),
            cause=CAUSES[hosts.cause[slot]],
            ready_at=ready,
            wait=max(0.0, ready - now),
            next_retry_at=front.later[0][0] if front is not None and front.later else 0.0,
            gap=hosts.gap[slot],
            failures=hosts.failures[slot],
            refusals=hosts.refusals[slot],
            slowdown=max(1.0, hosts.slowdown[slot]),
            todo=hosts.todo[slot],
            parked=hosts.parked[slot],
            known=hosts.known[slot],
        )

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
            return "waits_for_address"
        if hosts.ready[slot] <= now:
            return "ready"
        return "backing_off" if hosts.failures[slot] else "waits"
