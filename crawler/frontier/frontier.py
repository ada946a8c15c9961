"""The discovery frontier: it gives out every new URL once, politely, and in an order that is fair to all hosts.

    enqueue --> queues on disk --> front of hosts --> claim_next --> fetch --> record_outcome --> stage --> release
                (discovery/)       (hosts/)                                    (outcome_policy.py)       |
                                                                                                      commit

From `claim_next` on, a fetch task holds its host and, if it makes a request, an address and one of the
`concurrency` fetch slots. When the request ends, `record_outcome` decides what happens to the URL and the
host. The decision carries the store keys to write, and `stage` puts them into the batch of the commit group.
If the URL is done, its host is free after `record_outcome`. Otherwise, the host is free after `release`,
which is called after the commit. The fetch slot is held until `release`, or until the task steps aside or
becomes slow (`outstanding.py`). The numbers of slots, of tasks aside and of slow tasks are limited, so a
crash repeats a bounded number of requests (`frontier/README.md`, "Invariants"). A politeness gap begins when
`record_outcome` is called.

`frontier/README.md` lists the parts of this class. Callers use these directly: `intake`, `hops`, `under_way`,
`pauses`, `blocks`, `views`, `host_list`, `claims`.

All methods run in one thread; only `stage` and the writing of batches may run in another. Rules for the caller:

* Write batches in the order of the calls that filled them, with one first-in, first-out commit queue. These
  calls are `enqueue`, `retire`, `flush` and, if the decision is staged, `record_outcome`. The counts
  in the host records depend on this order.
* Call `committed(batch, now)` after each batch is written. The entries of a batch are read back only after
  this call. URLs of a host whose whole queue is in memory may be given out earlier, because their results are
  committed after the batch anyway.

A host waits as a whole for its politeness gap, its address, its robots.txt, the end of a back-off, and the
commit of a failure. A retry delays only its URL. `next_wakeup` returns the next instant at which `claim_next`
may succeed.
"""

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from crawler.config import Config, PolitenessConfig
from crawler.frontier.claiming import Claims
from crawler.frontier.discovery.intake import Intake
from crawler.frontier.discovery.lookahead import Lookahead
from crawler.frontier.hops import Hops
from crawler.frontier.host_list import HostList
from crawler.frontier.host_turns import HostTurns
from crawler.frontier.hosts.dispatch_gates import DispatchGates
from crawler.frontier.hosts.front_host import FrontHost
from crawler.frontier.hosts.gap_journal import GapJournal
from crawler.frontier.hosts.registry import HostHash, Registry
from crawler.frontier.hosts.table import NO_ORDER, SILENCED, HostFlag, HostState
from crawler.frontier.outcome_policy import OutcomePolicy, stage
from crawler.frontier.outcomes import Outcomes
from crawler.frontier.outstanding import Outstanding
from crawler.frontier.pauses import HostBlocks, Pauses
from crawler.frontier.permission import Permission, Robots
from crawler.frontier.refetches import Refetches
from crawler.frontier.under_way import UnderWay
from crawler.frontier.views import FrontierViews
from crawler.records import Link
from crawler.storage.kv import Batch, KeyValue

if TYPE_CHECKING:
    from crawler.frontier.refresh.refreshing import Refresh


class Frontier:
    """The frontier of one process; see the module docstring.

    Args:
        store: holds the keys under `t/`, `p/`, `h/` and `m/frontier`.
        robots: the robots cache; not used where the policy is `ignore`.
        fingerprinter: computes host keys.
        registrable_domain: host name -> registrable domain, or the host name itself if it has none.
        concurrency: maximum number of requests in flight (pages and robots.txt).
        rng: for the jitter of retries and the order of hosts after opening.
        processes: the number of processes of the whole crawl; they share rate and addresses.
        priority: link -> 0 (first) to 255 (last), 128 by default. In a crawl with an order, the difference
            from 128 is added to the URL's class.
        refresh: the schedule of known pages to refetch; None if the crawl does not refetch.
        withdrawn: whether the operator has withdrawn a URL (request form), so that it is not fetched.
        journal: notes the gaps of hosts for the next process; None if there will be none.
    """

    def __init__(
        self,
        store: KeyValue,
        config: Config,
        *,
        robots: Robots,
        fingerprinter: HostHash,
        registrable_domain: Callable[[str], str],
        concurrency: int,
        rng: random.Random,
        processes: int = 1,
        priority: Callable[[Link], int] | None = None,
        refresh: "Refresh | None" = None,
        withdrawn: Callable[[str], bool] = lambda url: False,
        journal: GapJournal | None = None,
    ) -> None:
        self._rng = rng
        self._store = store
        self._registry = registry = Registry(store, config, fingerprinter, registrable_domain)
        self._hosts = registry.hosts
        self._gates = gates = DispatchGates(
            config, registry, self._load, self._unload, concurrency=concurrency, processes=processes,
            journal=GapJournal(bytearray()) if journal is None else journal,
        )  # fmt: skip
        self.addresses = gates.addresses
        self._bench = bench = gates.bench
        self._outstanding = outstanding = Outstanding(registry.hosts, concurrency)
        self._permission = permission = Permission(robots, config, withdrawn)
        self.intake = intake = Intake(store, config.frontier, config.order, registry, bench, priority)
        outcome_policy = OutcomePolicy(config, registry, gates.politeness, rng, indexes=intake.index.keeps)
        self._authorities = outcome_policy.authorities
        self._refetches = refetches = Refetches(
            None if refresh is None else refresh.claims,
            None if refresh is None else refresh.portion,
            gates,
            intake,
            config.crawl.patience,
        )
        lookahead = Lookahead(store, config.frontier, registry, bench.plans, intake)
        turns = HostTurns(gates, outstanding, permission, lookahead, outcome_policy.authorities, refetches)
        self.pauses = Pauses()
        self.claims = claims = Claims(
            gates, outstanding, turns, refetches, intake, self.pauses, config.order, config.crawl.patience
        )
        outcomes = Outcomes(gates, outstanding, permission, outcome_policy, refetches, intake)
        self.hops = Hops(gates, outstanding, permission)
        self.under_way = UnderWay(gates, outstanding, permission)
        self.blocks = HostBlocks(registry, intake, refetches)
        self.views = FrontierViews(
            store, gates, outstanding, permission, outcome_policy.authorities, claims.importance_at, claims.waited,
        )  # fmt: skip
        self.host_list = HostList(store, gates, outcome_policy.authorities, self.views)
        # The methods of the parts through which every URL passes, from its queue to its outcome.
        self.enqueue, self.committed = intake.add, intake.committed
        self.claim_next, self.next_wakeup = claims.claim_next, claims.next_wakeup
        self.wants_urls, self.finished = claims.dry, claims.finished
        self.resolved, self.record_outcome = outcomes.record_addresses, outcomes.record_outcome
        self.stage, self.release = stage, outcomes.release

    def __repr__(self) -> str:
        registry = self._registry
        return (
            f"Frontier({registry.todo} to do, {sum(registry.parked)} parked, {self.requests} in flight, "
            f"{len(self._hosts)} hosts, {self._bench!r})"
        )

    # ---- opening and closing ----

    def open(self, now: float, clean: bool, *, reading: bool = False) -> None:
        """Load all hosts, unpark URLs if the limits changed, and start the politeness gaps of all hosts.

        If `reading`, no URLs are fetched, and hosts that the last run gave up are shown as given up.

        Raises:
            DamageError: a stored record is damaged.
        """
        self._registry.open(now, clean, reading=reading)
        self._authorities.load(self._store, self._hosts)
        self._gates.open(now)
        self.intake.unpark()
        self.intake.index.open()
        for host in self._bench.front.values():
            self.intake.wake(host)
        hosts = self._hosts
        idle = (hosts.array("todo") > 0) & (hosts.array("place") == HostState.IDLE)
        slots = np.flatnonzero(idle & (hosts.array("flags") & SILENCED == 0))
        # The hosts are shuffled, because otherwise the hosts of one domain would follow one another. Sorting
        # by random keys shuffles them without importing `numpy.random`.
        keys = np.frombuffer(self._rng.randbytes(8 * len(slots)), np.uint64)
        self._bench.schedule_many(slots[np.argsort(keys)], now)

    def flush(self, batch: Batch, now: float) -> None:
        """Write all unstored state into the batch, for a clean stop.

        A fetch task that still holds its host was interrupted: its URL stays in the queue, and the host waits
        for its politeness gap, as after any other request.
        """
        for host in self._outstanding.held.values():
            self._gates.politeness.interrupt(host.slot, self._gap_behind(host), now)
        for host in self._bench.front.values():
            self._hosts.cursor[host.slot] = host.cursor()
            self._registry.note(host.slot, host.name)
        self._registry.put_notes(batch)
        self._registry.put_meta(batch)

    def _gap_behind(self, host: FrontHost) -> float:
        """Return the politeness gap, in seconds, that follows an interrupted request."""
        gap, url = self._gates.politeness.usual_gap(host.slot), host.asked_url()
        return max(gap, self._permission.delay(url, host.name)) if url else gap

    # ---- requests and settings ----

    @property
    def requests(self) -> int:
        """The number of requests in flight, which is the number of fetch slots taken."""
        return self._outstanding.requests

    def limit_requests(self, requests_max: int, *, run_is_full: bool = False) -> None:
        """Set the maximum number of requests in flight (at most `concurrency`), until the next call.

        `run_is_full` says that a limit of the run lets no further request start until one of those under way ends.
        """
        self._outstanding.run_is_full = run_is_full
        self._outstanding.requests_max = min(requests_max, self._outstanding.concurrency)

    @property
    def limits(self) -> str:
        """The settings that decide which URLs are parked, as text."""
        return self._registry.budget.describe()

    def set_rate(self, rate: float) -> None:
        """Set this process's share of the rate, in starts per second; 0 = no limit."""
        self._gates.rate.rate = rate

    def configure(self, politeness: PolitenessConfig) -> None:
        """Set gaps and back-offs for future requests; a gap that has started ends as planned."""
        self._gates.configure(politeness)

    # ---- hosts entering and leaving the front ----

    def _load(self, slot: int) -> FrontHost | None:
        """Return the object of a host that enters the front; None if the host must stay outside."""
        self._hosts.place[slot] = HostState.IDLE
        if not self._hosts.flags[slot] & SILENCED:
            self._refetches.reopen(slot, self._hosts.ready[slot])
        if not self._hosts.todo[slot] or self._hosts.flags[slot] & SILENCED:
            return None
        if slot in self.intake.unwritten:
            self._hosts.place[slot] = HostState.ASIDE
            return None
        return self.intake.front_host(slot, self._registry.stored_name(slot), self._hosts.cursor[slot])

    def _unload(self, host: FrontHost) -> None:
        self._refetches.drop(host, self.claims.taken_at, self._hosts.ready[host.slot])
        self._hosts.cursor[host.slot] = host.cursor()

    def _check(self) -> None:
        """Assert the invariants that hold between any two calls."""
        hosts, registry = self._hosts, self._registry
        held = self._outstanding.held
        assert registry.todo == int(hosts.array("todo").sum())
        assert sum(registry.parked) == int(hosts.array("parked").sum())
        assert registry.reached == int(((hosts.array("flags") & HostFlag.REACHED) != 0).sum())
        assert {host.key for host in self._bench.front.values() if host.held} == set(held)
        self._outstanding._check()
        self._gates._check(list(held.values()))
        for host in self._bench.front.values():
            orders = [order for order, _ in host.entries()]
            assert len(orders) == len(set(orders)) <= hosts.todo[host.slot], host
            assert host.read_to != NO_ORDER or host.skipped or len(orders) == hosts.todo[host.slot], host
            assert hosts.cursor[host.slot] <= host.cursor() or host.held, host
            assert not (host.waiting and host.held), host
