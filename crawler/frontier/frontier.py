"""The discovery frontier: every new URL is handed out once, politely, in an order fair to all hosts.

    add --> queues on disk --> front of hosts --> take --> fetch --> settle --> stage --> release
            (discovery/)       (hosts/)                            (outcome_policy.py)    |
                                                                                    commit

A fetch task holds its host (and for a request its address and one of the
`concurrency` places) from `claim_next` on. `record_outcome` decides, at the end of the
request, what becomes of URL and host; the decision carries the store keys to
write, and `stage` puts them into the group's batch. A host whose URL is done is
free from `record_outcome` on, any other from `release`, after the commit. Its place is
taken until `release`, so a crash repeats at most `concurrency` requests. Gaps
count from `record_outcome`.

Below the face: `claiming.py` (what next), `host_turns.py` (a host's turn), `outstanding.py` (what is given out),
`hosts/dispatch_gates.py` (what a request passes), `refetches.py` (known pages), `outcomes.py` (the end of a fetch task).
Parts that are handed on: `intake`, `hops`, `under_way`, `pauses`, `blocks`, `views`, `claims`.

All methods run in one thread; only `stage` and the writing of batches may run
in another. Rules for the caller:

* Batches are written in the order of the calls that filled them (`enqueue`,
  `record_outcome` of what is staged, `retire`, `flush`): one commit queue, first in
  first out. The counts in the host records rest on it.
* The caller tells of a written batch with `committed(batch, now)`. Entries are
  read back after that only. A host whose whole queue is in memory is handed out
  before: its result is committed after the batch anyway.

Host-wide waits delay the host: gap, address, robots.txt, back-off, the commit
of a failure. A retry delays only its URL. `next_wakeup` names the next instant at which `claim_next` may succeed.
"""

import random
from collections.abc import Callable, Sequence

import numpy as np

from crawler.config import Config, PolitenessConfig
from crawler.frontier.claiming import Claims
from crawler.frontier.discovery.intake import Intake
from crawler.frontier.discovery.lookahead import Lookahead
from crawler.frontier.hops import Hops
from crawler.frontier.host_turns import HostTurns
from crawler.frontier.hosts.dispatch_gates import DispatchGates
from crawler.frontier.hosts.front_host import FrontHost
from crawler.frontier.hosts.registry import HostHash, Registry
from crawler.frontier.hosts.table import NO_ORDER, SILENCED, HostFlag, HostState
from crawler.frontier.outcome_policy import Decision, OutcomePolicy, stage
from crawler.frontier.outcomes import Outcomes
from crawler.frontier.outstanding import Outstanding
from crawler.frontier.pauses import HostBlocks, Pauses
from crawler.frontier.permission import Permission, Robots
from crawler.frontier.refetches import Refetches
from crawler.frontier.refresh.refreshing import Refresh
from crawler.frontier.under_way import UnderWay
from crawler.frontier.views import FrontierViews
from crawler.records import Fetch, FetchTask, Link
from crawler.storage.kv import Batch, KeyValue


class Frontier:
    """See the module docstring.

    Args:
        store: holds `t/`, `p/`, `h/` and `m/frontier`.
        robots: the robots cache; not asked where the policy is `ignore`.
        fingerprinter: gives host keys.
        registrable_domain: host name -> registrable domain, itself if it has none.
        concurrency: most requests in flight (pages and robots.txt).
        rng: for the jitter of retries and the order after opening.
        processes: of the whole crawl; they share rate and addresses.
        priority: link -> 0 (first) to 255 (last); 128 where not given. Under an order, a difference
            from 128 makes a URL's class as much better or worse.
        refresh: known pages to be asked again; None: none is.
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
        refresh: Refresh | None = None,
    ) -> None:
        self._rng = rng
        self._registry = registry = Registry(store, config, fingerprinter, registrable_domain)
        self._hosts = registry.hosts
        self._gates = gates = DispatchGates(
            config, registry, self._load, self._unload, concurrency=concurrency, processes=processes
        )
        self._bench = bench = gates.bench
        self._outstanding = outstanding = Outstanding(registry.hosts, concurrency)
        self._permission = permission = Permission(robots, config)
        self.intake = intake = Intake(store, config.frontier, config.order, registry, bench, priority)
        outcome_policy = OutcomePolicy(config, registry, gates.politeness, rng, indexes=intake.index.keeps)
        self._refetches = refetches = Refetches(refresh, gates, intake, config.crawl.patience)
        lookahead = Lookahead(store, config.frontier, registry, bench, intake)
        turns = HostTurns(gates, outstanding, permission, lookahead, outcome_policy.authorities, refetches)
        self.pauses = Pauses()
        self.claims = Claims(
            gates, outstanding, turns, refetches, intake, self.pauses, config.order, config.crawl.patience
        )
        self._outcomes = Outcomes(gates, outstanding, permission, outcome_policy, refetches, intake)
        self.hops = Hops(gates, outstanding, permission)
        self.under_way = UnderWay(gates, outstanding, permission)
        self.blocks = HostBlocks(registry, intake, refetches)
        self.views = FrontierViews(
            store, gates, outstanding, permission, outcome_policy.authorities, self.claims.importance_at,
            self.claims.waited,
        )  # fmt: skip

    def __repr__(self) -> str:
        registry = self._registry
        return (
            f"Frontier({registry.todo} to do, {sum(registry.parked)} parked, {self.requests} in flight, "
            f"{len(self._hosts)} hosts, {self._bench!r})"
        )

    # ---- opening and closing ----

    def open(self, now: float, clean: bool) -> None:
        """Load all hosts; bring back parked URLs if the limits changed; let the hosts wait their gaps.

        Raises:
            DamageError: a record of the store is not what was written.
        """
        self._registry.open(now, clean)
        self._gates.open(now)
        self.intake.unpark()
        self.intake.index.open()
        for host in self._bench.front.values():
            self.intake.wake(host)
        hosts = self._hosts
        idle = (hosts.array("todo") > 0) & (hosts.array("place") == HostState.IDLE)
        slots = np.flatnonzero(idle & (hosts.array("flags") & SILENCED == 0))
        # Shuffled, else hosts of a domain come in a row; numpy's own shuffle costs another import.
        keys = np.frombuffer(self._rng.randbytes(8 * len(slots)), np.uint64)
        self._bench.schedule_many(slots[np.argsort(keys)], now)

    def flush(self, batch: Batch, now: float) -> None:
        """Put all that is not stored yet, for a clean stop.

        A fetch task that still holds its host was cut off: its URL stays in the
        queue, and the host waits its gap as behind any other request.
        """
        for host in self._outstanding.held.values():
            self._hosts.gap[host.slot] = gap = self._gap_behind(host)
            self._hosts.ready[host.slot] = max(self._hosts.ready[host.slot], now + gap)
        for host in self._bench.front.values():
            self._hosts.cursor[host.slot] = host.cursor()
            self._registry.note(host.slot, host.name)
        self._registry.put_notes(batch)
        self._registry.put_meta(batch)

    # ---- URLs in and out ----

    def enqueue(self, links: Sequence[Link], batch: Batch, now: float) -> None:
        """Put new URLs, each given once, into their queues; several calls may fill one batch."""
        self.intake.add(links, batch, now)

    def committed(self, batch: Batch, now: float) -> None:
        """The batch given to `enqueue`, `improve` or `retire` was written."""
        self.intake.committed(batch, now)

    # ---- what to do next ----

    @property
    def requests(self) -> int:
        """Requests in flight: places taken."""
        return self._outstanding.requests

    def limit_requests(self, requests_max: int) -> None:
        """Set how many requests may be in flight, at most `concurrency`; it holds until the next call."""
        self._outstanding.requests_max = min(requests_max, self._outstanding.concurrency)

    def claim_next(self, now: float) -> FetchTask | None:
        """The next thing that may start now; its host, address and place are taken. None: nothing may."""
        return self.claims.claim_next(now)

    # ---- the end of a fetch task ----

    def resolved(self, fetch_task: FetchTask, addresses: Sequence[str], expires: float, now: float) -> None:
        """The host's addresses are known until `expires`; the fetch task is over."""
        self._outcomes.record_addresses(fetch_task, addresses, expires, now)

    def record_outcome(self, fetch_task: FetchTask, fetch: Fetch, now: float) -> Decision:
        """Decide, at the end of a request or a failed look-up, what becomes of URL and host.

        A host whose URL is done may be asked again from its ready instant on.
        Every decision must be staged: it may carry records of other hosts.
        """
        return self._outcomes.record_outcome(fetch_task, fetch, now)

    @staticmethod
    def stage(decision: Decision, batch: Batch) -> None:
        """Put what was decided into the group's batch; any thread."""
        stage(decision, batch)

    def release(self, decision: Decision, now: float) -> None:
        """After the commit: the place of the request is free, and the host if it is not yet."""
        self._outcomes.release(decision, now)

    def _gap_behind(self, host: FrontHost) -> float:
        """Seconds to wait behind a request that was cut off."""
        gap = max(self._gates.politeness.config.delay, self._hosts.gap[host.slot])
        url = host.asked_url()
        return max(gap, self._permission.delay(url, host.name)) if url else gap

    # ---- what the shell asks and sets ----

    def next_wakeup(self, now: float) -> float | None:
        """The earliest instant at which `claim_next` may give something; None: only news can change that."""
        return self.claims.next_wakeup(now)

    def wants_urls(self, now: float) -> bool:
        """Whether a place is free and no host is ready for it: new URLs are welcome."""
        return self.claims.dry(now)

    def finished(self, now: float) -> str:
        """Why a finite crawl is over, "" if it is not.

        "done": nothing is left but hosts that are blocked or given up;
        "patience": all that is left waits longer than that.
        """
        return self.claims.finished(now)

    def set_rate(self, rate: float) -> None:
        """This process's share of the rate from now on, in starts per second; 0 = no limit."""
        self._gates.rate.rate = rate

    def configure(self, politeness: PolitenessConfig) -> None:
        """Gaps and back-offs from now on; a gap that runs already ends as it was meant to."""
        self._gates.configure(politeness)

    # ---- hosts in and out of the front ----

    def _load(self, slot: int) -> FrontHost | None:
        """The object of a host that comes in from the back; None if it is to stay out."""
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
