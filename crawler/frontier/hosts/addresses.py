"""Limits how often an IP address is requested; all hosts on the address share the limits.

`frontier/README.md`, "Politeness", gives the limits. An address with at least `shared_address_domains`
registrable domains is shared hosting. It has 16 request slots, each of which stays held for the gap after an
answer, and a limit of `shared_address_rate` requests per second, which start at equal intervals. An address that
serves a hundred times as many sites usually has more machines, but perhaps not a hundred times as many. So an
address with a hundred times as many domains gets ten times as many requests. If the gap is 0, requests to
addresses are not limited. Durations are in seconds; instants are seconds on the process clock.

**Several processes.** Each of the N processes takes 1/N of the slots and of the rate, also while other processes
are away. A process never assumes more domains than it knows of, so the processes together never exceed the rate,
whichever messages are lost or late. A process that has not heard from the others yet is slower.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from math import inf, sqrt
from typing import Generic, TypeVar

from crawler.config import PolitenessConfig
from crawler.frontier.hosts.domain_counts import DomainCount

Host = TypeVar("Host")

# The sketch of an address is sent again when a process knows an eighth more domains there.
_TOLD_STEPS = 8


class Address(Generic[Host]):
    """One IP address: the number of requests to it, and the hosts that wait for it.

    `domains` counts the registrable domains at the address. `is_shared` is true for shared hosting. `event` is the
    time at which the address will release the next waiting host, or 0 if no release is planned. `held` lists the
    instants until which slots stay held after their requests have ended. It exists only for shared hosting and is
    None for all other addresses, because a deque takes 0.7 KiB.
    """

    __slots__ = ("domains", "event", "held", "in_flight", "is_shared", "name", "ready", "waiting")

    def __init__(self, name: str, ready: float, elsewhere: int = 0) -> None:
        self.name = name
        self.in_flight = 0
        self.ready = ready
        self.domains = DomainCount(elsewhere)
        self.is_shared = False
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

    @property
    def line(self) -> int:
        """The number of waiting hosts."""
        return len(self.waiting) if self.waiting else 0

    def __repr__(self) -> str:
        kind = "shared" if self.is_shared else f"{self.domains.least} domains"
        return f"Address({self.name}, {kind}, {self.in_flight} in flight, {self.line} waiting)"


class Addresses(Generic[Host]):
    """The addresses in use, and the most recently used of the other addresses.

    `processes` is the number of processes of the crawl.
    """

    def __init__(self, config: PolitenessConfig, entries_max: int, processes: int) -> None:
        self._processes = processes
        self._shared_domains = max(1, config.shared_address_domains)
        self._shared_in_flight = max(1, config.shared_address_in_flight // processes)
        # An address with fewer domains than this is not reported to the other processes, because most addresses
        # have only a few domains.
        self._told_least = max(2, self._shared_domains // (4 * processes))
        self._entries_max = entries_max
        self._addresses: dict[str, Address[Host]] = {}
        self._elsewhere: dict[str, int] = {}  # sketches for addresses that are not in `_addresses`
        self._untold: dict[str, Address[Host]] = {}
        self._opened = 0.0
        self.configure(config)

    def configure(self, config: PolitenessConfig) -> None:
        """Set the gaps between future requests to an address."""
        gap = config.delay * config.address_delay_share
        self.gap = gap * self._processes
        # Each process has at least one slot per shared address, so a crawl with many processes may have more
        # slots than the setting allows. Each slot is then held for longer, so that all processes together send
        # no more requests than a single process would.
        slots = self._shared_in_flight * self._processes
        self._hold = gap * max(1.0, slots / max(1, config.shared_address_in_flight))
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
            address = Address(name, self._opened + self.gap, self._elsewhere.pop(name, 0))
            self._addresses[name] = address
        if address.domains.add(domain, self._shared_domains):
            self._note_domains(address)
        return address

    def _note_domains(self, address: Address[Host]) -> None:
        """Note that a domain was added to an address."""
        domains = address.domains
        address.is_shared = domains.least >= self._shared_domains
        if self._processes == 1:
            return
        own = domains.sketch().bit_count()
        if own >= max(self._told_least, domains.told + max(1, domains.told // _TOLD_STEPS)):
            domains.told = own
            self._untold[address.name] = address

    def take_untold(self) -> dict[str, int]:
        """Return a sketch of the domains at each address about which the other processes must be told."""
        untold, self._untold = self._untold, {}
        return {name: address.domains.sketch() for name, address in untold.items()}

    def learn(self, sketches: Mapping[str, int]) -> None:
        """Record sketches of the domains that other processes know at addresses."""
        for name, sketch in sketches.items():
            if (address := self._addresses.get(name)) is not None:
                address.domains.add_elsewhere(sketch)
                address.is_shared = address.domains.least >= self._shared_domains
                continue
            self._keep(name, sketch | self._elsewhere.pop(name, 0))

    def _keep(self, name: str, elsewhere: int) -> None:
        """Keep the sketch of an address that this process does not use; drop the oldest if there are too many."""
        if len(self._elsewhere) >= self._entries_max:
            del self._elsewhere[next(iter(self._elsewhere))]
        self._elsewhere[name] = elsewhere

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
        if address.is_shared:
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
        if address.is_shared:
            return max(self._hold / self._shared_in_flight, self._interval_of_rate(address))
        return self.gap

    def _interval_of_rate(self, address: Address[Host]) -> float:
        """Return the time between two starts that the rate limit of a shared hosting address demands."""
        return self._shared_interval / max(1.0, sqrt(address.domains.number / self._shared_domains))

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
        if address.is_shared:
            address.ready = max(address.ready, now) + self._interval_of_rate(address)

    def release(self, address: Address[Host], ended: float) -> None:
        """Free the request slot of a request that ended at `ended`."""
        assert address.in_flight > 0, address
        address.in_flight -= 1
        if not address.is_shared:
            address.ready = max(address.ready, ended + self.gap)
            return
        if address.held is None:
            address.held = deque()
        while address.held and address.held[0] <= ended:
            address.held.popleft()
        address.held.append(max(ended + self._hold, address.held[-1] if address.held else 0.0))

    def _forget(self, now: float) -> None:
        """Drop addresses that are not in use, oldest first, until three quarters of the maximum number remain."""
        surplus = len(self._addresses) - self._entries_max * 3 // 4
        idle = [
            name
            for name, address in self._addresses.items()
            if not address.in_flight and not address.waiting and address.ready <= now
        ]
        for name in idle[:surplus]:
            if elsewhere := self._addresses.pop(name).domains.elsewhere:
                self._keep(name, elsewhere)
