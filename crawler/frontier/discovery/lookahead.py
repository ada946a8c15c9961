"""Reads the next entries of each host's queue from the store into memory, as the host's fetch tasks are given out."""

from math import inf

from crawler.config import FrontierConfig
from crawler.frontier.discovery.intake import Intake
from crawler.frontier.hosts.front_host import FrontHost
from crawler.frontier.hosts.front_plans import Plans
from crawler.frontier.hosts.registry import Registry
from crawler.frontier.hosts.table import NO_ORDER
from crawler.storage.kv import KeyValue

READS_MAX = 16  # in one turn, entries are read ahead for a host at most this many times
LOOK_ON = 0.01  # seconds until the next turn of a host that has more entries to examine


class Lookahead:
    """Ensures that each host has an entry in memory when its turn comes."""

    def __init__(
        self, store: KeyValue, config: FrontierConfig, registry: Registry, plans: Plans, intake: Intake
    ) -> None:
        self._store = store
        self._registry = registry
        self._plans = plans
        self._intake = intake
        self._read_ahead = config.read_ahead
        self.later_max = config.later_max
        self._retry_max = max(config.retry_delays, default=0.0) * (1.0 + config.retry_jitter) + 1.0

    def has_entry(self, host: FrontHost, now: float) -> bool:
        """Return whether the host has an entry to try now; if not, schedule the host for when it may have one."""
        host.recall(now)
        later_max, reads = self.later_max, READS_MAX
        while reads and not host.queue:
            if host.read_to == NO_ORDER or host.is_full(later_max) or host.slot in self._intake.unwritten:
                break
            reads -= 1
            more = host.read_ahead(self._store, self._read_ahead, now, later_max, self._retry_max)
            if not more or host.held_in_memory() == self._registry.hosts.todo[host.slot]:
                host.read_to = NO_ORDER
                self._correct_count(host)
        if not host.queue and (at := host.recall_at() if reads else now + LOOK_ON) < inf:
            self._plans.wake(host, at)
        return bool(host.queue)

    def _correct_count(self, host: FrontHost) -> None:
        """Set the host's count to the length of its queue, which is in memory as a whole."""
        if host.skipped:
            return
        hosts, found = self._registry.hosts, host.held_in_memory()
        self._registry.todo += found - hosts.todo[host.slot]
        hosts.todo[host.slot] = found
