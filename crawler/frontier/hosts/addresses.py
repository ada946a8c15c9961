"""Addresses: hosts that share one share its places.

Hosts on an address wait its gap (half the least host gap, times the number of
processes), one request at a time. An address with `shared_address_domains`
registrable domains or more is shared hosting: it has 16 places instead, each
held for the gap after its answer too, and `shared_address_rate` requests a
second. With a gap of 0 addresses do not count. Durations are seconds, instants seconds by the process
clock.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from math import inf
from typing import Generic, TypeVar

from crawler.config import PolitenessConfig

Host = TypeVar("Host")


class Address(Generic[Host]):
    """One IP address: how many requests are on it, and which hosts wait for it.

    `domains` holds the registrable domains met on it, None once they are so
    many that it counts as shared hosting. `users` are front hosts resolved to
    it. `event` is the instant at which it will next hand out a waiting host,
    0 if none is planned. `held`: of shared hosting, until when each place without a
    request is held. Most addresses need no deque, which takes 0.7 KiB.
    """

    __slots__ = ("domains", "event", "held", "in_flight", "name", "ready", "waiting")

    def __init__(self, name: str, ready: float) -> None:
        self.name = name
        self.in_flight = 0
        self.ready = ready
        self.domains: set[int] | None = set()
        self.waiting: deque[Host] | None = None
        self.held: deque[float] | None = None
        self.event = 0.0

    def wait(self, host: Host, *, first: bool) -> None:
        """One more host waits, before the others if `first`."""
        if self.waiting is None:
            self.waiting = deque()
        if first:
            self.waiting.appendleft(host)
        else:
            self.waiting.append(host)

    @property
    def line(self) -> int:
        """How many hosts wait."""
        return len(self.waiting) if self.waiting else 0

    def __repr__(self) -> str:
        kind = "shared" if self.domains is None else f"{len(self.domains)} domains"
        return f"Address({self.name}, {kind}, {self.in_flight} in flight, {self.line} waiting)"


class Addresses(Generic[Host]):
    """The addresses in use and the latest others."""

    def __init__(self, config: PolitenessConfig, entries_max: int, processes: int) -> None:
        self._processes = processes
        self.configure(config)
        self._shared_domains = config.shared_address_domains
        self._shared_in_flight = max(1, config.shared_address_in_flight // processes)
        self._entries_max = entries_max
        self._addresses: dict[str, Address[Host]] = {}
        self._opened = 0.0

    def configure(self, config: PolitenessConfig) -> None:
        """Gaps between requests to an address from now on."""
        self.gap = config.delay * config.address_delay_share * self._processes
        rate = config.shared_address_rate / self._processes
        self._shared_interval = 1.0 / rate if rate else 0.0

    def open(self, now: float) -> None:
        """Requests before a restart are not known: every address waits its gap once."""
        self._opened = now

    def __len__(self) -> int:
        return len(self._addresses)

    def __iter__(self) -> Iterator[Address[Host]]:
        return iter(self._addresses.values())

    @property
    def counted(self) -> bool:
        """Whether addresses hold anything up."""
        return self.gap > 0.0

    def meet(self, name: str, domain: int, now: float) -> Address[Host]:
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

    def choose(self, names: Sequence[str], domain: int, now: float) -> tuple[Address[Host], float]:
        """The address where a request may start first, and from when (infinity: not known)."""
        best: tuple[Address[Host], float] | None = None
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

    def start_at(self, address: Address[Host]) -> float | None:
        """The instant from which a request may start there; None: not before one of those in flight ends."""
        if address.domains is None:
            held = address.held or ()
            surplus = address.in_flight + len(held) - self._shared_in_flight
            if surplus < 0:
                return address.ready
            return max(address.ready, held[surplus]) if surplus < len(held) else None
        return address.ready if address.in_flight == 0 else None

    def line_takes(self, address: Address[Host]) -> float:
        """Seconds, about, until one more than those that wait there has its turn."""
        return self._interval(address) * (address.line + 1)

    def _interval(self, address: Address[Host]) -> float:
        """Seconds between two starts there, about."""
        if address.domains is None:
            return max(self.gap / self._shared_in_flight, self._shared_interval)
        return self.gap

    def turn_at(self, names: Sequence[str], host: Host, now: float) -> float:
        """About when a host that waits at one of the addresses has its turn there."""
        for address in filter(None, map(self._addresses.get, names)):
            line = list(address.waiting or ())
            if host in line:
                first = self.start_at(address)
                return max(now if first is None else first, now) + self._interval(address) * line.index(host)
        return now

    def acquire(self, address: Address[Host]) -> None:
        address.in_flight += 1

    def release(self, address: Address[Host], ended: float) -> None:
        """A request that ended at `ended` frees its place."""
        assert address.in_flight > 0, address
        address.in_flight -= 1
        if address.domains is not None:
            address.ready = max(address.ready, ended + self.gap)
            return
        if address.held is None:
            address.held = deque()
        while address.held and address.held[0] <= ended:
            address.held.popleft()
        address.held.append(max(ended + self.gap, address.held[-1] if address.held else 0.0))
        address.ready = max(address.ready, ended) + self._shared_interval

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
