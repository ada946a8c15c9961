"""Makes hosts available for requests outside their queues, that is, for redirect hops within a fetch task.

Politeness applies to these requests as to any other request. A borrowed host is busy until it has been given
back and its gap is over. While a borrowed host is busy, the frontier gives out no task for the host. A caller
that finds the host busy tries again later.
"""

from dataclasses import dataclass

from crawler.frontier.hosts.addresses import Address, Addresses
from crawler.frontier.hosts.domain_rates import DomainRates
from crawler.frontier.hosts.front_plans import Plans
from crawler.frontier.hosts.gap_journal import GapJournal
from crawler.frontier.hosts.politeness import GapRule, HostPoliteness
from crawler.frontier.hosts.registry import Registry
from crawler.records import Fetch

ASK_AGAIN = 0.25  # seconds until the next try to borrow a busy host


@dataclass(eq=False, repr=False)
class BorrowedHosts:
    """The hosts on which a redirect hop is under way."""

    registry: Registry
    politeness: HostPoliteness
    addresses: Addresses
    domains: DomainRates
    plans: Plans
    journal: GapJournal

    def __post_init__(self) -> None:
        self._busy: dict[int, Address | None] = {}  # host key -> the address held together with the host

    def __len__(self) -> int:
        return len(self._busy)

    def borrow(self, hostname: str, now: float, address: str, delay: float | None = None) -> float:
        """Take a host that no fetch task holds. Return 0.0 on success, else the time at which to try again.

        `delay` is the minimum gap of the host if the user has overridden it.
        """
        key = self.registry.host_key(hostname)
        instant = self.registry.hosts.ready[self.registry.slot(hostname)]
        if key in self._busy:
            return now + ASK_AGAIN
        if instant > now:
            return instant
        domain = self.registry.domain_key(hostname)
        if (turn := self.domains.turn_at(domain, key, now, delay)) > now:
            return turn
        record = None
        if address and self.addresses.counted:
            record = self.addresses.meet(address, domain, now)
            at = self.addresses.start_at(record)
            if at is None or at > now:
                return now + ASK_AGAIN if at is None else at
            self.addresses.acquire(record, now)
        self.domains.start(domain, key, now)
        self._busy[key] = record
        self.journal.begin(key, now)
        return 0.0

    def give_back(self, hostname: str, fetch: Fetch, now: float, rule: GapRule) -> None:
        """End the hop with the answer `fetch`; the host's gap starts now."""
        key, slot = self.registry.host_key(hostname), self.registry.slot(hostname)
        self.politeness.hop(slot, fetch, now, rule)
        self.registry.note(slot, hostname)
        address = self._busy.pop(key, None)
        if address is not None:
            self.plans.release(address, now, now)

    def free_at(self, key: int, now: float) -> float:
        """Return 0.0 if the host is not borrowed for a hop, else the instant at which to check again."""
        return now + ASK_AGAIN if key in self._busy else 0.0

    def at(self, address: Address) -> int:
        """Return the number of hops under way at an address."""
        return sum(record is address for record in self._busy.values())
