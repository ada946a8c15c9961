"""Limits how often an IP address is requested; all hosts on the address share the limits.

An address gets one request at a time. After each request, its hosts wait for the gap of the address. This gap
is half the minimum host gap, multiplied by the number of processes. An address with at least
`shared_address_domains` registrable domains is shared hosting. It has 16 request slots, and each slot stays
held for the gap after an answer. It also has a limit of `shared_address_rate` requests per second, which
start at equal intervals. This limit grows with the square root of the number of domains. An address that
serves a hundred times as many sites usually has more machines, but perhaps not a hundred times as many. So it
gets ten times as many requests. If the gap is 0, requests to addresses are not limited. Durations are in
seconds; instants are seconds on the process clock.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from math import inf, log, sqrt
from typing import Generic, TypeVar

from crawler.config import PolitenessConfig

Host = TypeVar("Host")

# Number of bits of an address's sketch, which counts the domains on the address if the address is shared
# hosting. It can count some 7,000 domains (linear counting; Whang et al., 1990).
_SKETCH_BITS = 1024


class Address(Generic[Host]):
    """One IP address: the number of requests to it, and the hosts that wait for it.

    `domains` holds the registrable domains seen on the address. Once there are enough domains for shared
    hosting, `domains` is None. Then `sketch` estimates the number of domains: it has one bit for each value
    of a hash. A domain sets the bit of its hash. `event` is the time at which the address will release the
    next waiting host, or 0 if no release is planned. `held` lists the instants until which slots stay held
    after their requests have ended. It exists only for shared hosting and is None for all other addresses,
    because a deque takes 0.7 KiB.
    """

    __slots__ = ("domains", "event", "held", "in_flight", "name", "ready", "sketch", "waiting")

    def __init__(self, name: str, ready: float) -> None:
        self.name = name
        self.in_flight = 0
        self.ready = ready
        self.domains: set[int] | None = set()
        self.sketch = 0
        self.waiting: deque[Host] | None = None
        self.held: deque[float] | None = None
        self.event = 0.0

    def wait(self, host: Host, *, first: bool) -> None:
        """Add a waiting host to the queue: at the head if `first`, else at the end."""
        if self.waiting is None:
            self.waiting = deque()
        if first:
            self.waiting.appendleft(host)
        else:
            self.waiting.append(host)

    def add_domain(self, domain: int, shared_domains: int) -> None:
        """Record a registrable domain. An address with `shared_domains` or more domains is shared hosting."""
        if self.domains is None:
            self.sketch |= 1 << domain % _SKETCH_BITS
            return
        self.domains.add(domain)
        if len(self.domains) >= shared_domains:
            known, self.domains = self.domains, None
            for each in known:
                self.add_domain(each, shared_domains)

    @property
    def domain_count(self) -> float:
        """The number of registrable domains. For shared hosting, it is an estimate."""
        if self.domains is not None:
            return len(self.domains)
        unset = max(1, _SKETCH_BITS - self.sketch.bit_count())
        return _SKETCH_BITS * log(_SKETCH_BITS / unset)

    @property
    def line(self) -> int:
        """The number of waiting hosts."""
        return len(self.waiting) if self.waiting else 0

    def __repr__(self) -> str:
        kind = "shared" if self.domains is None else f"{len(self.domains)} domains"
        return f"Address({self.name}, {kind}, {self.in_flight} in flight, {self.line} waiting)"


class Addresses(Generic[Host]):
    """The addresses in use, and the most recently used of the other addresses."""

    def __init__(self, config: PolitenessConfig, entries_max: int, processes: int) -> None:
        self._processes = processes
        self.configure(config)
        self._shared_domains = config.shared_address_domains
        self._shared_in_flight = max(1, config.shared_address_in_flight // processes)
        self._entries_max = entries_max
        self._addresses: dict[str, Address[Host]] = {}
        self._opened = 0.0

    def configure(self, config: PolitenessConfig) -> None:
        """Set the gaps between future requests to an address."""
        self.gap = config.delay * config.address_delay_share * self._processes
        rate = config.shared_address_rate / self._processes
        self._shared_interval = 1.0 / rate if rate else 0.0

    def open(self, now: float) -> None:
        """Let every address wait for its gap once after a restart, because earlier requests are unknown."""
        self._opened = now

    def __len__(self) -> int:
        return len(self._addresses)

    def __iter__(self) -> Iterator[Address[Host]]:
        return iter(self._addresses.values())

    @property
    def counted(self) -> bool:
        """True if the number and spacing of requests to one address are limited."""
        return self.gap > 0.0

    def meet(self, name: str, domain: int, now: float) -> Address[Host]:
        """Return the address `name`, with `domain` added to its domains."""
        address = self._addresses.get(name)
        if address is None:
            if len(self._addresses) >= self._entries_max:
                self._forget(now)
            address = self._addresses[name] = Address(name, self._opened + self.gap)
        address.add_domain(domain, self._shared_domains)
        return address

    def choose(self, names: Sequence[str], domain: int, now: float) -> tuple[Address[Host], float]:
        """Return (the address where a request may start earliest, the instant of this start; infinity if unknown)."""
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
        """Return the time from which the address accepts a request; None if a request in flight must end first."""
        if address.domains is None:
            held = address.held or ()
            surplus = address.in_flight + len(held) - self._shared_in_flight
            if surplus < 0:
                return address.ready
            return max(address.ready, held[surplus]) if surplus < len(held) else None
        return address.ready if address.in_flight == 0 else None

    def line_takes(self, address: Address[Host]) -> float:
        """Return the approximate wait in seconds of a host that joins the queue of the address."""
        return self._interval(address) * (address.line + 1)

    def _interval(self, address: Address[Host]) -> float:
        """Return the approximate time between two starts at the address, in seconds."""
        if address.domains is None:
            return max(self.gap / self._shared_in_flight, self._interval_of_rate(address))
        return self.gap

    def _interval_of_rate(self, address: Address[Host]) -> float:
        """Return the time between two starts that the rate limit of a shared hosting address demands."""
        return self._shared_interval / max(1.0, sqrt(address.domain_count / max(1, self._shared_domains)))

    def turn_at(self, names: Sequence[str], host: Host, now: float) -> float:
        """Return the approximate instant at which a host that waits at one of the addresses has its turn."""
        for address in filter(None, map(self._addresses.get, names)):
            line = list(address.waiting or ())
            if host in line:
                first = self.start_at(address)
                return max(now if first is None else first, now) + self._interval(address) * line.index(host)
        return now

    def acquire(self, address: Address[Host], now: float) -> None:
        """Take a request slot. The rate limit of a shared address decides when the next request may start."""
        address.in_flight += 1
        if address.domains is None:
            address.ready = max(address.ready, now) + self._interval_of_rate(address)

    def release(self, address: Address[Host], ended: float) -> None:
        """Free the request slot of a request that ended at `ended`."""
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

    def _forget(self, now: float) -> None:
        """Drop addresses that are not in use, oldest first, until three quarters of the maximum number remain."""
        surplus = len(self._addresses) - self._entries_max * 3 // 4
        idle = [
            name
            for name, address in self._addresses.items()
            if not address.in_flight and not address.waiting and address.ready <= now
        ]
        for name in idle[:surplus]:
            del self._addresses[name]
