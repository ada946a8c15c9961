"""The conditions that a request must meet before it starts, in this order.

host        its ready time has come: gap, back-off, no hop      table, politeness, visits
names       its addresses are known                             look_ups
domain      its registrable domain may get another request      domains
fetch slot  the process has a free slot; slow and new hosts     shares
            may hold only a part of them
address     one of the host's addresses is ready                addresses
rate        the process may start another request               rate
"""

from collections.abc import Callable

from crawler.config import Config, Override, PolitenessConfig
from crawler.frontier.hosts.addresses import Address, Addresses
from crawler.frontier.hosts.borrowed_hosts import ASK_AGAIN, BorrowedHosts
from crawler.frontier.hosts.dns_lookups import DnsLookups
from crawler.frontier.hosts.domain_rates import DomainRates
from crawler.frontier.hosts.front_host import FrontHost
from crawler.frontier.hosts.gap_journal import GapJournal
from crawler.frontier.hosts.politeness import HostPoliteness
from crawler.frontier.hosts.rate import Rate
from crawler.frontier.hosts.registry import Registry
from crawler.frontier.hosts.slot_shares import SlotShares
from crawler.frontier.hosts.workbench import Workbench
from crawler.orders.order import BREADTH_FIRST

_LONGEST = 86_400.0  # seconds; no request takes longer


class DispatchGates:
    """The parts of this folder, created from one configuration. `load` and `unload` are passed to the workbench.

    Args:
        concurrency: fetch slots of this process.
        processes: the number of processes of the whole crawl; they share rate and addresses.
        journal: notes the gaps of hosts, and contains the notes of earlier processes.
    """

    def __init__(
        self,
        config: Config,
        registry: Registry,
        load: Callable[[int], FrontHost | None],
        unload: Callable[[FrontHost], None],
        *,
        concurrency: int,
        processes: int,
        journal: GapJournal,
    ) -> None:
        polite, limits, hosts = config.politeness, config.frontier, registry.hosts
        self.registry, self.hosts, self.journal = registry, hosts, journal
        self.politeness = HostPoliteness(polite, hosts, journal)
        factors = [polite.delay_factor, *(own.delay_factor or 0.0 for own in config.override)]
        self._slowest = Override(delay_factor=max(factors))
        self.addresses: Addresses[FrontHost] = Addresses(polite, limits.addresses_max, processes)
        sharing = processes if config.urls.partition == "host" else 1
        self.domains = DomainRates(polite, limits.addresses_max, sharing)
        self.rate = Rate(config.crawl.rate / processes)
        self.bench = Workbench(
            hosts,
            self.addresses,
            load,
            unload,
            front_max=limits.front_factor * concurrency,
            turn_max=limits.turn_max,
            stay=config.fetch.keep_alive_max,
            first_come=1.0 if config.order.name == BREADTH_FIRST else config.order.first_come,
        )
        self.plans = self.bench.plans
        self.look_ups = DnsLookups(self.bench, config.network.dns_concurrency, self.rate)
        self.shares = SlotShares(hosts, concurrency, limits.untried_share, config.fetch.crowded_timeout)
        self.visits = BorrowedHosts(
            registry, self.politeness, self.addresses, self.domains, self.plans, journal
        )
        self.resolving = not config.fetch.proxy  # a proxy resolves names itself, so no look-ups are made here
        self._waiters_max = limits.address_waiters_max

    def open(self, now: float) -> None:
        """Open the parts, once the registry is open.

        If the crawl has run before, every address first waits for its gap. Each host in the journal waits for
        its own gap.
        """
        if len(self.hosts):
            self.addresses.open(now)
        for note in self.journal.found():
            if note.is_under_way:
                ready, gap = self._after_interrupted(note.key, note.at, now)
            else:
                ready, gap = min(note.at, now + note.gap), note.gap
            self.journal.end(note.key, ready, gap)
            if ready > now:
                self.registry.resume_gap(note.key, ready, gap)

    def _after_interrupted(self, key: int, began: float, now: float) -> tuple[float, float]:
        """Return the end and the length of the gap after a request that was under way when its process was killed.

        The request may have lasted until now, and it may have been for any URL of the host.
        """
        took = min(now - began, _LONGEST) if began <= now else _LONGEST
        gap = self.politeness.longest_gap(self.hosts.find(key), took, self._slowest)
        return now + gap, gap

    def configure(self, politeness: PolitenessConfig) -> None:
        """Set the gaps and back-offs of future requests. The end of a gap that has already started does not change."""
        self.politeness.config = politeness
        self.addresses.configure(politeness)
        self.domains.configure(politeness)

    def free_at(self, slot: int, now: float) -> float:
        """Return the instant from which the host may be requested, regardless of address and rate."""
        return max(self.hosts.ready[slot], self.visits.free_at(self.hosts.key[slot], now))

    def call_others(self, now: float) -> None:
        """Wake hosts that wait for a fetch slot, as long as the share for hosts that are not prompt has free slots."""
        self.shares.look(now)
        while (host := self.shares.next_waiting()) is not None:
            self.plans.wake(host, now)
        self.bench.admitting_others = not self.shares

    def acquire_address(self, host: FrontHost, now: float) -> bool:
        """Take a request slot at the first of the host's addresses with a free slot; if none has one, queue the host."""
        if not self.addresses.counted or not self.resolving:
            return True
        address, instant = self.addresses.choose(host.addresses, host.domain, now)
        if instant <= now and (not address.waiting or host.called_by is address):
            self.addresses.acquire(address, now)
            host.address = address
            return True
        if address.line < self._waiters_max:
            self.plans.wait_at(host, address, now)
        else:
            self.put_off(host, now + self.addresses.line_takes(address), now)
        return False

    def put_off(self, host: FrontHost, ready: float, now: float) -> None:
        """Let a host wait until `ready`, outside the front if possible."""
        self.hosts.ready[host.slot] = ready
        if host.may_leave():
            self.bench.leave(host, now, idle=False)
        else:
            self.plans.wake(host, ready)

    def acquire_own_address(self, host: FrontHost, name: str, now: float) -> float:
        """Take a request slot at the address `name` for a held host.

        Return 0.0 on success, else the time of the next try.
        """
        if host.address is not None or not name or not self.addresses.counted:
            return 0.0
        address = self.addresses.meet(name, host.domain, now)
        at = self.addresses.start_at(address)
        if at is None or at > now:
            return now + ASK_AGAIN if at is None else at
        self.addresses.acquire(address, now)
        host.address = address
        return 0.0

    def release_address(self, host: FrontHost, ended: float, now: float) -> None:
        """Free the request slot, if any, that the host holds at an address. The host's request ended at `ended`."""
        if host.address is not None:
            self.plans.release(host.address, ended, now)
            host.address = None

    def _check(self, held: list[FrontHost]) -> None:
        """Assert the invariants of all parts; `held` are the hosts that fetch tasks hold."""
        self.bench._check()
        self.hosts._check()
        self.registry.domains._check()
        self.look_ups._check()
        self.shares._check({host.slot for host in held})
        for address in self.addresses:
            self._check_address(address, held)

    def _check_address(self, address: Address, held: list[FrontHost]) -> None:
        users = sum(host.address is address for host in held)
        assert users + self.visits.at(address) == address.in_flight, address
        assert all(host.waiting for host in address.waiting or ()), address
        assert not address.waiting or address.in_flight or address.event, address
