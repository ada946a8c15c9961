"""Politeness: how long a host, an address and the whole crawl wait between requests.

Host     One request in flight over all its schemes and ports. Behind its end a
         gap of `delay_factor` times what the answer took, at least `delay`, at
         most `delay_max` (Broder, Najork, Wiener 2003, section 4.1); the
         host's Crawl-delay and Retry-After only lengthen it. Each 429 and 503
         doubles the gap, good answers shrink it again by a few per cent each.
Failure  No answer, 429 and 503 are charged to the host: it waits
         `backoff_first`, doubling to `backoff_max`, and is given up after
         `give_up_after` without any answer. `refusals_max` refusals (401, 403,
         406, 451) in a row hold it as if the user had blocked it.
Address  Hosts that share an address share its gap (half the least host gap,
         times the number of processes), one request at a time; from
         `shared_address_domains` registrable domains on it is shared hosting:
         16 in flight instead. With a gap of 0 addresses do not count.
Rate     Starts are spaced evenly. A late start is made up for within 10 ms
         only, so a pause is never followed by a burst: any window of length T
         holds at most rate * (T + 10 ms) + 1 starts.

Durations are seconds, instants seconds by the process clock.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from math import inf
from typing import Any

from crawler.config import Override, PolitenessConfig
from crawler.frontier.hosts import HostFlag, HostTable
from crawler.records import Blame, Fetch, Outcome

REFUSALS = frozenset({401, 403, 406, 451})
RATE_SLACK = 0.01  # seconds of lateness that may be made up for
# Why a host is given up or held; stored as the index, so only ever appended to.
CAUSES = ("", "no_answer", "dns_not_found", "address_denied", "refusals")
NO_OVERRIDE = Override()


class HostPoliteness:
    """The rules for hosts, applied to rows of the host table."""

    def __init__(self, config: PolitenessConfig, hosts: HostTable) -> None:
        self._config = config
        self._hosts = hosts

    def finish(
        self,
        slot: int,
        fetch: Fetch,
        now: float,
        *,
        crawl_delay: float = 0.0,
        override: Override = NO_OVERRIDE,
    ) -> float:
        """Charge the end of a request to its host; return the instant from which it may be asked again."""
        if fetch.blame is Blame.HOST:
            wait = self._failed(slot, fetch, now)
        else:
            wait = 0.0
            if fetch.status:
                self._answered(slot, fetch)
        wait = max(wait, self._gap(slot, fetch.took, crawl_delay, override), self._retry_after(fetch))
        self._hosts.gap[slot] = wait
        self._hosts.ready[slot] = now + wait
        return now + wait

    def hop(self, slot: int, took: float, retry_after: float, now: float) -> None:
        """The same for a request that is charged to no URL of the host's queue: it can only wait longer."""
        hosts = self._hosts
        wait = max(self._gap(slot, took, 0.0, NO_OVERRIDE), min(retry_after, self._config.retry_after_max))
        hosts.ready[slot] = max(hosts.ready[slot], now + wait)
        hosts.gap[slot] = hosts.ready[slot] - now

    def give_up(self, slot: int, cause: str) -> None:
        """Leave the host alone for this run."""
        self._hosts.flags[slot] |= HostFlag.GIVEN_UP
        self._hosts.cause[slot] = CAUSES.index(cause)

    def gap_terms(self, slot: int, crawl_delay: float, override: Override) -> tuple[float, float]:
        """(least gap, gap per second of answer time) behind the host's next answer."""
        factor = self._config.delay_factor if override.delay_factor is None else override.delay_factor
        return self._gap(slot, 0.0, crawl_delay, override), factor * max(1.0, self._hosts.slowdown[slot])

    def _gap(self, slot: int, took: float, crawl_delay: float, override: Override) -> float:
        length = gap(took, self._config, override)
        slowdown = self._hosts.slowdown[slot]
        if slowdown > 1.0:
            length = max(length * slowdown, self._config.slowdown_gap * (slowdown - 1.0))
        return max(length, min(crawl_delay, self._config.crawl_delay_max))

    def _retry_after(self, fetch: Fetch) -> float:
        return min(fetch.retry_after, self._config.retry_after_max)

    def _failed(self, slot: int, fetch: Fetch, now: float) -> float:
        hosts, config = self._hosts, self._config
        hosts.failures[slot] = min(hosts.failures[slot] + 1, 255)
        if fetch.outcome is Outcome.HOST_BUSY:
            hosts.slowdown[slot] = min(max(hosts.slowdown[slot], 1.0) * 2.0, config.slowdown_max)
        if fetch.status:
            hosts.silent_since[slot] = 0.0
        elif not hosts.silent_since[slot]:
            hosts.silent_since[slot] = now
        elif now - hosts.silent_since[slot] >= config.give_up_after:
            self.give_up(slot, "no_answer")
        return backoff(hosts.failures[slot], config)

    def _answered(self, slot: int, fetch: Fetch) -> None:
        hosts, config = self._hosts, self._config
        hosts.failures[slot] = 0
        hosts.silent_since[slot] = 0.0
        if hosts.slowdown[slot] > 1.0:
            hosts.slowdown[slot] = max(1.0, hosts.slowdown[slot] * config.slowdown_recovery)
        if fetch.status not in REFUSALS:
            hosts.refusals[slot] = 0
            return
        hosts.refusals[slot] = min(hosts.refusals[slot] + 1, 255)
        if hosts.refusals[slot] >= config.refusals_max:
            hosts.flags[slot] |= HostFlag.REFUSED
            hosts.cause[slot] = CAUSES.index("refusals")


def gap(took: float, config: PolitenessConfig, override: Override) -> float:
    """The plain gap behind an answer that took so long (`fetch-behaviour.md`, section 1)."""
    delay = config.delay if override.delay is None else override.delay
    factor = config.delay_factor if override.delay_factor is None else override.delay_factor
    return max(delay, min(factor * took, config.delay_max))


def backoff(failures: int, config: PolitenessConfig) -> float:
    """How long a host waits after so many failures in a row (at least 1)."""
    return min(config.backoff_first * 2.0 ** min(failures - 1, 60), config.backoff_max)


class Address:
    """One IP address: how many requests are on it, and which hosts wait for it.

    `domains` holds the registrable domains met on it, None once they are so
    many that it counts as shared hosting. `users` are front hosts resolved to
    it. `event` is the instant at which it will next hand out a waiting host,
    0 if none is planned.
    """

    __slots__ = ("domains", "event", "in_flight", "name", "ready", "waiting")

    def __init__(self, name: str, ready: float) -> None:
        self.name = name
        self.in_flight = 0
        self.ready = ready
        self.domains: set[int] | None = set()
        self.waiting: deque[Any] = deque()
        self.event = 0.0

    def __repr__(self) -> str:
        kind = "shared" if self.domains is None else f"{len(self.domains)} domains"
        return f"Address({self.name}, {kind}, {self.in_flight} in flight, {len(self.waiting)} waiting)"


class Addresses:
    """The addresses in use and the latest others."""

    def __init__(self, config: PolitenessConfig, entries_max: int, processes: int) -> None:
        self.gap = config.delay * config.address_delay_share * processes
        self._shared_domains = config.shared_address_domains
        self._shared_in_flight = max(1, config.shared_address_in_flight // processes)
        self._entries_max = entries_max
        self._addresses: dict[str, Address] = {}
        self._opened = 0.0

    def open(self, now: float) -> None:
        """Requests before a restart are not known: every address waits its gap once."""
        self._opened = now

    def __len__(self) -> int:
        return len(self._addresses)

    def __iter__(self) -> Iterator[Address]:
        return iter(self._addresses.values())

    @property
    def counted(self) -> bool:
        """Whether addresses hold anything up."""
        return self.gap > 0.0

    def meet(self, name: str, domain: int, now: float) -> Address:
        """The address `name`, with `domain` counted among those on it."""
        address = self._addresses.get(name)
        if address is None:
            if len(self._addresses) >= self._entries_max:
                self._forget(now)
            address = self._addresses[name] = Address(name, self._opened + self.gap)
        if address.domains is not None:
            address.domains.add(domain)
            if len(address.domains) >= self._shared_domains:
                address.domains = None
        return address

    def choose(self, names: Sequence[str], domain: int, now: float) -> tuple[Address, float]:
        """The address where a request may start first, and from when (infinity: not known)."""
        best: tuple[Address, float] | None = None
        for name in names:
            address = self.meet(name, domain, now)
            instant = self.start_at(address)
            instant = inf if instant is None else instant
            if instant <= now and not address.waiting:
                return address, instant
            if best is None or instant < best[1]:
                best = address, instant
        assert best is not None, names
        return best

    def start_at(self, address: Address) -> float | None:
        """The instant from which a request may start there; None: not before one of those in flight ends."""
        if address.domains is None:
            return 0.0 if address.in_flight < self._shared_in_flight else None
        return address.ready if address.in_flight == 0 else None

    def acquire(self, address: Address) -> None:
        address.in_flight += 1

    def release(self, address: Address, ended: float) -> None:
        """A request that ended at `ended` frees its place."""
        assert address.in_flight > 0, address
        address.in_flight -= 1
        address.ready = max(address.ready, ended + self.gap)

    def _forget(self, now: float) -> None:
        """Drop the addresses nobody uses or waits for, the oldest first, down to three quarters."""
        surplus = len(self._addresses) - self._entries_max * 3 // 4
        idle = [
            name
            for name, address in self._addresses.items()
            if not address.in_flight and not address.waiting and address.ready <= now
        ]
        for name in idle[:surplus]:
            del self._addresses[name]


class Rate:
    """Even spacing of starts; 0 means no limit."""

    def __init__(self, rate: float) -> None:
        self.rate = rate  # may change at any time; what is next follows at once
        self._spent_at = 0.0  # the latest start, as if all had been evenly spaced

    def ready_at(self) -> float:
        """The instant from which the next start is allowed."""
        return self._spent_at + 1.0 / self.rate if self.rate and self._spent_at else 0.0

    def spend(self, now: float) -> None:
        """One request starts."""
        if self.rate:
            self._spent_at = max(self.ready_at(), now - RATE_SLACK)
