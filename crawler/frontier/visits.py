"""Requests to hosts outside their queues: the redirect hops of robots.txt and of same-key chains.

They count for politeness like any other. A borrowed host is a *visitor* until
it is given back and its gap is over; the frontier hands out nothing for it
meanwhile. Hosts that nobody knows otherwise need no row in the host table for
this. Who waits for a busy host asks again.
"""

from crawler.frontier.hosts import NOWHERE
from crawler.frontier.politeness import Address, Addresses, HostPoliteness
from crawler.frontier.registry import Registry
from crawler.frontier.workbench import Workbench

ASK_AGAIN = 0.25  # seconds after which a borrower asks for a busy host again
_KEPT = 64  # visitors kept before those whose gap is over are forgotten


class _Visitor:
    __slots__ = ("address", "busy", "ready")

    def __init__(self, address: Address | None) -> None:
        self.address = address
        self.busy = True
        self.ready = 0.0


class Visits:
    """The hosts borrowed now, or so recently that their gap still runs."""

    def __init__(
        self, registry: Registry, politeness: HostPoliteness, addresses: Addresses, bench: Workbench
    ) -> None:
        self._registry = registry
        self._politeness = politeness
        self._addresses = addresses
        self._bench = bench
        self._visitors: dict[int, _Visitor] = {}

    def __len__(self) -> int:
        return len(self._visitors)

    @property
    def busy(self) -> bool:
        """Whether a hop is under way."""
        return any(visitor.busy for visitor in self._visitors.values())

    def borrow(self, hostname: str, now: float, address: str) -> float:
        """Take a host that no errand holds; 0.0, or the instant at which to ask again."""
        key = self._registry.host_key(hostname)
        instant = max(self.free_at(key, now), self._ready(self._registry.hosts.find(key)))
        if instant > now:
            return instant
        record = None
        if address and self._addresses.counted:
            record = self._addresses.meet(address, self._registry.domain_key(hostname), now)
            at = self._addresses.start_at(record)
            if at is None or at > now:
                return now + ASK_AGAIN if at is None else at
            self._addresses.acquire(record)
        self._visitors[key] = _Visitor(record)
        return 0.0

    def give_back(self, hostname: str, now: float, took: float, retry_after: float) -> None:
        """The hop has ended: the host's gap runs from now."""
        key = self._registry.host_key(hostname)
        slot = self._registry.hosts.find(key)
        gap = self._politeness.stranger_gap(took, retry_after)
        if slot != NOWHERE:
            gap = self._politeness.hop(slot, took, retry_after, now)
        visitor = self._visitors.get(key)
        if visitor is None or not visitor.busy:
            return
        visitor.busy = False
        visitor.ready = now + gap
        if visitor.address is not None:
            self._bench.release_address(visitor.address, now, now)
        if len(self._visitors) > _KEPT:
            self._visitors = {k: v for k, v in self._visitors.items() if v.busy or v.ready > now}

    def free_at(self, key: int, now: float) -> float:
        """The instant from which no visit stands against asking the host."""
        visitor = self._visitors.get(key)
        if visitor is None:
            return 0.0
        return now + ASK_AGAIN if visitor.busy else visitor.ready

    def at(self, address: Address) -> int:
        """How many hops are under way at an address."""
        return sum(visitor.busy and visitor.address is address for visitor in self._visitors.values())

    def _ready(self, slot: int) -> float:
        return 0.0 if slot == NOWHERE else self._registry.hosts.ready[slot]
