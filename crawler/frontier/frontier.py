"""The discovery frontier: every new URL is handed out once, politely, in an order fair to all hosts.

    add --> queues on disk --> front of hosts --> take --> fetch --> settle --> stage --> release
            (discovery/)       (hosts/)                            (settlement.py)    |
                                                                                    commit

An errand holds its host (and for a request its address and one of the
`concurrency` places) from `take` on. `settle` decides, at the end of the
request, what becomes of URL and host; the decision carries the store keys to
write, and `stage` puts them into the group's batch. A host whose URL is done is
free from `settle` on, any other from `release`, after the commit. Its place is
taken until `release`, so a crash repeats at most `concurrency` requests. Gaps
count from `settle`.

Parts: `host_turns.py` (a host's turn), `outstanding.py` (what is given out), `hosts/gates.py`
(what a request must pass), `refetches.py` (known pages), `hops.py` (redirects).

All methods run in one thread; only `stage` and the writing of batches may run
in another. Rules for the caller:

* Batches are written in the order of the calls that filled them (`add`,
  `settle` of what is staged, `retire`, `flush`): one commit queue, first in
  first out. The counts in the host records rest on it.
* The caller tells of a written batch with `committed(batch, now)`. Entries are
  read back after that only. A host whose whole queue is in memory is handed out
  before: its result is committed after the batch anyway.

Host-wide waits delay the host: gap, address, robots.txt, back-off, the commit
of a failure. A retry delays only its URL. `next_wakeup` names the next instant at which `take` may succeed.
"""

import math
import random
import re
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import numpy as np

from crawler.config import Config, PolitenessConfig
from crawler.frontier.discovery import entries
from crawler.frontier.discovery.intake import Intake
from crawler.frontier.discovery.lookahead import Lookahead
from crawler.frontier.hops import Hops
from crawler.frontier.host_turns import HostTurns
from crawler.frontier.hosts.front_host import NO_PLAN, FrontHost
from crawler.frontier.hosts.gates import Gates
from crawler.frontier.hosts.registry import HostHash, Registry
from crawler.frontier.hosts.table import NO_ORDER, NOWHERE, SILENCED, HostFlag, HostState
from crawler.frontier.outstanding import Outstanding
from crawler.frontier.permission import Permission, Robots
from crawler.frontier.refetches import Refetches
from crawler.frontier.refresh.refreshing import Refresh
from crawler.frontier.settlement import Decision, End, Settlement, stage
from crawler.frontier.share import Side
from crawler.frontier.views import FrontierViews, Waited
from crawler.orders.classes import score_of
from crawler.orders.order import BREADTH_FIRST
from crawler.records import Errand, Fetch, HostStatus, Link, LinkFlag, Task
from crawler.robots.cache import VerdictKind
from crawler.storage.keys import PARKED
from crawler.storage.kv import Batch, KeyValue

_REFRESH = int(LinkFlag.REFRESH)  # plain, as the flags of an errand are


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
        self._patience = config.crawl.patience
        self._rng = rng
        self._registry = registry = Registry(store, config, fingerprinter, registrable_domain)
        self._hosts = registry.hosts
        self._gates = gates = Gates(
            config, registry, self._load, self._unload, concurrency=concurrency, processes=processes
        )
        self._bench = bench = gates.bench
        self._outstanding = Outstanding(registry.hosts, concurrency)
        self._permission = Permission(robots, config)
        self._order = config.order
        self._intake = Intake(store, config.frontier, config.order, registry, bench, priority)
        indexes = self._intake.index.keeps
        self._settlement = Settlement(config, registry, gates.politeness, rng, indexes=indexes)
        self._refetches = Refetches(refresh, gates, self._intake, self._patience)
        self._turns = HostTurns(
            gates,
            self._outstanding,
            self._permission,
            Lookahead(store, config.frontier, registry, bench, self._intake),
            self._settlement.authorities,
            self._refetches,
        )
        self._hops = Hops(gates, self._outstanding)
        self._report = FrontierViews(
            store, gates, self._permission, self._settlement.authorities, self._importance
        )
        self._waited = Waited()
        self._taken_at = 0.0
        self._paused: set[str] = set()

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
        self._intake.unpark()
        self._intake.index.open()
        for host in self._bench.front.values():
            self._intake.wake(host)
        hosts = self._hosts
        idle = (hosts.array("todo") > 0) & (hosts.array("place") == HostState.IDLE)
        slots = np.flatnonzero(idle & (hosts.array("flags") & SILENCED == 0))
        # Shuffled, else hosts of a domain come in a row; numpy's own shuffle costs another import.
        keys = np.frombuffer(self._rng.randbytes(8 * len(slots)), np.uint64)
        self._bench.schedule_many(slots[np.argsort(keys)], now)

    def flush(self, batch: Batch, now: float) -> None:
        """Put all that is not stored yet, for a clean stop.

        An errand that still holds its host was cut off: its URL stays in the
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

    def add(self, links: Sequence[Link], batch: Batch, now: float) -> None:
        """Put new URLs, each given once, into their queues; several calls may fill one batch."""
        self._intake.add(links, batch, now)

    def improve(self, links: Sequence[Link], batch: Batch, now: float) -> int:
        """Move URLs that wait to the better classes that `links` bring; return how many were moved.

        For links to known URLs, under an order; `committed` must be called for the batch as after `add`.
        """
        return self._intake.improve(links, batch, now)

    def committed(self, batch: Batch, now: float) -> None:
        """The batch given to `add`, `improve` or `retire` was written."""
        self._intake.committed(batch, now)

    def waiting(self) -> Iterator[tuple[bool, str]]:
        """(whether it is parked, URL) of each URL to do or parked, host by host, in their order."""
        return self._intake.waiting()

    def retire(self, pattern: re.Pattern[str], batch: Batch) -> int:
        """Delete the to-do and parked URLs in which the pattern is found; return how many."""
        return self._intake.retire(pattern, batch)

    def retire_some(self, pattern: re.Pattern[str], batch: Batch, begin: bytes = PARKED) -> tuple[int, bytes]:
        """The same for a part of the queues, from a key on: (how many, the next key; b"" at the end)."""
        return self._intake.retire_some(pattern, batch, begin)

    # ---- what to do next ----

    @property
    def requests(self) -> int:
        """Requests in flight: places taken."""
        return self._outstanding.requests

    def allow(self, requests_max: int) -> None:
        """Set how many requests may be in flight, at most `concurrency`; it holds until the next call."""
        self._outstanding.requests_max = min(requests_max, self._outstanding.concurrency)

    def take(self, now: float) -> Errand | None:
        """The next thing that may start now; its host, address and place are taken. None: nothing may."""
        self._taken_at = now
        errand = None if self._paused else self._turns.look_up(now)
        if errand is not None:
            return errand
        self._gates.call_others(now)
        blocked = self._blocked_by(now)
        errand = None if blocked else self._next_errand(now)
        if errand is None:
            self._waited.note(blocked or self._waits_for(), now)
        else:
            self._waited.note("", now)
        return errand

    def _blocked_by(self, now: float) -> str:
        """What keeps every request from starting, "" if nothing does."""
        if self._paused:
            return "empty"
        if self._outstanding.is_full:
            return "full"
        return "rate" if self._gates.rate.ready_at() > now else ""

    def _waits_for(self) -> str:
        has_work = self._registry.todo or self._refetches.share is not None
        return self._bench.waits_for() if has_work else "empty"

    def _next_errand(self, now: float) -> Errand | None:
        """From discovery or refresh, whose turn it is; from the other where that side has nothing to start."""
        share, turns = self._refetches.share, self._turns
        if share is None:
            return turns.of_front(now)
        instant = self._bench.next_event(now)
        discovery = instant is not None and instant <= now
        refresh = self._refetches.next_wakeup(now) <= now
        errand, new, known = None, 0.0, 0.0
        if share.auto and discovery and refresh:
            new, known = self._refetches.worths(self.best_waiting(now), now)
        if share.first(discovery=discovery, refresh=refresh, new=new, known=known) is Side.REFRESH:
            errand = turns.of_known_page(now) or turns.of_front(now)
        elif discovery:
            errand = turns.of_front(now) or (turns.of_known_page(now) if refresh else None)
        if errand is not None and errand.task is Task.PAGE:
            side = Side.REFRESH if errand.flags & _REFRESH else Side.DISCOVERY
            share.spend(side, contended=discovery and refresh)
        return errand

    # ---- the end of an errand ----

    def resolved(self, errand: Errand, addresses: Sequence[str], expires: float, now: float) -> None:
        """The host's addresses are known until `expires`; the errand is over."""
        assert errand.task is Task.RESOLVE and addresses, errand
        host = self._outstanding.held[errand.host]
        host.addresses, host.expires = tuple(addresses), max(expires, now + 1.0)
        self.release(Decision(errand, End.READY, now, now), now)

    def settle(self, errand: Errand, fetch: Fetch, now: float) -> Decision:
        """Decide, at the end of a request or a failed look-up, what becomes of URL and host.

        A host whose URL is done may be asked again from its ready instant on.
        Every decision must be staged: it may carry records of other hosts.
        """
        host = self._outstanding.held[errand.host]
        crawl_delay = 0.0
        if errand.task in (Task.PAGE, Task.ROBOTS):
            crawl_delay = self._crawl_delay(errand)
            self._gates.shares.settle(host.slot, fetch, now, errand.task)
            if fetch.status:
                self._registry.reach(host.slot)
        decision = self._settlement.settle(host, errand, fetch, now, crawl_delay)
        if errand.flags & _REFRESH:
            host.refetch = None  # the harvest tells the schedule what came of it
        elif decision.end is End.HOST:
            self._refetches.drop(host, now, decision.until)
        if decision.end is End.DONE:
            self._let_go(host, decision, now)
            self._intake.wake(host)
        return decision

    def _crawl_delay(self, errand: Errand) -> float:
        return self._permission.crawl_delay(errand.hostname, *entries.split_authority(errand.url))

    @staticmethod
    def stage(decision: Decision, batch: Batch) -> None:
        """Put what was decided into the group's batch; any thread."""
        stage(decision, batch)

    def release(self, decision: Decision, now: float) -> None:
        """After the commit: the place of the request is free, and the host if it is not yet."""
        errand = decision.errand
        if decision.end is End.DONE:
            host = self._bench.front[self._hosts.find(errand.host)]
        else:
            host = self._outstanding.held[errand.host]
            self._let_go(host, decision, now)
        self._outstanding.release(errand, host)
        if errand.task is Task.RESOLVE:
            self._gates.look_ups.end()
        if host.may_leave() and host.tick == NO_PLAN:
            self._plan(host, now)

    def _let_go(self, host: FrontHost, decision: Decision, now: float) -> None:
        """The errand does not hold the host any more, nor its address."""
        self._outstanding.let_go(host)
        self._refetches.reopen(host.slot, self._hosts.ready[host.slot])
        self._gates.release_address(host, decision.ended, now)

    def _plan(self, host: FrontHost, now: float) -> None:
        """Where a free host goes: out of the front, to sleep, or to wait for its instant."""
        if self._hosts.flags[host.slot] & SILENCED:
            self._bench.leave(host, now, idle=True)
        elif not self._hosts.todo[host.slot] and host.refetch is None:
            self._bench.sleep(host)
        elif self._bench.turn_is_over(host) and host.refetch is None:
            self._bench.leave(host, now, idle=False)
        else:
            self._bench.wake(host, self._hosts.ready[host.slot])

    # ---- requests outside the queues ----

    def borrow(self, hostname: str, now: float, errand: Errand | None = None, address: str = "") -> float:
        """Ask for a host (and address) for a redirect hop; 0.0: go, else the instant at which to ask again.

        With `errand`, the hop may go to the errand's own host, which is held
        already: then only the gap behind `give_back` is waited for. An errand
        that has stepped aside also takes its place again.
        """
        return self._hops.borrow(hostname, now, errand, address)

    def step_aside(self, errand: Errand, now: float) -> None:
        """The errand will wait for a hop: its place and address are free until `borrow` gives it both again."""
        self._hops.step_aside(errand, now)

    def give_back(self, hostname: str, now: float, took: float, retry_after: float = 0.0) -> None:
        """A hop on a borrowed host, or on the errand's own, has ended: its gap runs from now."""
        self._gates.visits.give_back(hostname, now, took, retry_after)

    def may_ask(self, url: str, now: float) -> bool:
        """Whether what is known of the URL's robots.txt allows it; for the hops of a redirect."""
        authority, target = entries.split_authority(url)
        verdict = self._permission.verdict(entries.split_url(url)[0], authority, target, now)
        return verdict.kind is VerdictKind.ALLOWED

    def has_more(self, errand: Errand) -> bool:
        """Whether the errand's host has URLs to do beside the errand's own."""
        slot = self._outstanding.held[errand.host].slot
        return self._hosts.todo[slot] > (errand.task is Task.PAGE)

    def gap_terms(self, errand: Errand) -> tuple[float, float]:
        """(seconds that the errand's host waits behind it at least, and per second that the answer takes)."""
        slot = self._outstanding.held[errand.host].slot
        override = self._permission.override(errand.url, errand.hostname)
        return self._gates.politeness.gap_terms(slot, self._crawl_delay(errand), override)

    def _gap_behind(self, host: FrontHost) -> float:
        """Seconds to wait behind a request that was cut off."""
        gap = max(self._gates.politeness.config.delay, self._hosts.gap[host.slot])
        url = host.asked_url()
        return max(gap, self._permission.delay(url, host.name)) if url else gap

    # ---- what the shell asks and sets ----

    def next_wakeup(self, now: float) -> float | None:
        """The earliest instant at which `take` may give something; None: only news can change that."""
        if self._paused:
            return None
        if self._gates.look_ups.may_start:
            return now
        if self._outstanding.is_full:
            return None
        instant = self._bench.next_event(now)
        earliest = min(math.inf if instant is None else instant, self._refetches.next_wakeup(now))
        return None if earliest == math.inf else max(earliest, self._gates.rate.ready_at())

    def best_waiting(self, now: float) -> float:
        """The importance, 0 to 1, of the URL whose turn it is of the hosts that may be asked now; 0.0 if there is none.

        Under an order that of the best class among those hosts, in O(log n). Without one hosts have their turns as
        they come: it is that of the next host's first URL, `order.depth_decay` to the power of its depth.
        """
        if self._paused:
            return 0.0
        slot, order = self._bench.first(now)
        return 0.0 if slot == NOWHERE else self._importance(order)

    def _importance(self, order: int) -> float:
        """The importance of a URL that waits at an order."""
        if order == NO_ORDER:
            return 0.0
        if self._order.name == BREADTH_FIRST:
            return float(self._order.depth_decay ** entries.order_depth(order))
        return score_of(entries.class_in_order(order))

    def dry(self, now: float) -> bool:
        """Whether a place is free and no host is ready for it: new URLs are welcome."""
        if self._paused or self.requests >= self._outstanding.concurrency:
            return False
        instant = self._bench.next_event(now)
        return instant is None or instant > now

    def finished(self, now: float) -> str:
        """Why a finite crawl is over, "" if it is not.

        "done": nothing is left but hosts that are blocked or given up;
        "patience": all that is left waits longer than that.
        """
        if self._refetches.are_endless:
            return ""
        if self._outstanding or self._intake.pending or len(self._gates.visits) or self._paused:
            return ""
        instant = self._bench.next_event(now)
        if instant is None:
            return "done"
        return "patience" if instant > now + self._patience else ""

    @property
    def hosts_reached(self) -> int:
        """Hosts that have ever answered."""
        return self._registry.reached

    def set_rate(self, rate: float) -> None:
        """This process's share of the rate from now on, in starts per second; 0 = no limit."""
        self._gates.rate.rate = rate

    def configure(self, politeness: PolitenessConfig) -> None:
        """Gaps and back-offs from now on; a gap that runs already ends as it was meant to."""
        self._gates.configure(politeness)

    def pause(self, reason: str = "user") -> None:
        """Give nothing out until `resume` for the same reason (the user; a disk that is nearly full)."""
        self._paused.add(reason)

    def resume(self, reason: str = "user") -> None:
        self._paused.discard(reason)

    @property
    def paused(self) -> tuple[str, ...]:
        """The reasons for which nothing is given out."""
        return tuple(sorted(self._paused))

    def block(self, hostname: str) -> None:
        """Ask the host no more until `unblock`; its URLs stay. Stored with the next batch."""
        slot = self._registry.slot(hostname)
        self._hosts.flags[slot] |= HostFlag.BLOCKED
        self._registry.note(slot, hostname)

    def unblock(self, hostname: str, now: float) -> None:
        """Ask the host again, whatever held it. Stored with the next batch."""
        slot = self._registry.slot(hostname)
        self._hosts.flags[slot] &= 0xFFFF ^ SILENCED
        self._hosts.refusals[slot] = self._hosts.cause[slot] = 0
        self._registry.note(slot, hostname)
        self._intake.settle_place(slot, now)
        self._refetches.reopen(slot, now)

    # ---- what it says of itself ----

    def yields(self, errand: Errand, now: float) -> bool:
        """Whether the errand's request is to end now, since another host needs its place; True once.

        If not too many do so, it goes on without its place instead.
        """
        slot, full = self._outstanding.held[errand.host].slot, self._outstanding.is_nearly_full
        shares = self._gates.shares
        if shares.is_wanted(slot, now, full=full) and self._outstanding.go_slow(errand.host):
            shares.give(slot, now)
            return False
        return shares.yields(slot, now, full=full)

    @property
    def look_ups(self) -> int:
        """Look-ups under way."""
        return self._gates.look_ups.under_way

    @property
    def look_ups_waiting(self) -> int:
        """Hosts that wait until one of the look-ups under way ends."""
        return self._gates.look_ups.waiting

    def counters(self) -> dict[str, int]:
        """URLs to do, in flight and parked by rule; hosts by state; requests and look-ups under way."""
        return self._report.counters() | {"requests": self.requests, "look_ups": self.look_ups}

    def why_slow(self, now: float) -> dict[str, float]:
        """Seconds without anything to start until `now`, by what was waited for: see `Waited`."""
        return self._waited.seconds(now)

    def explain(self, url: str, now: float) -> dict[str, Any]:
        """What a URL's host waits for."""
        return self._report.explain(url, now)

    def obeys_robots(self, url: str) -> bool:
        """Whether robots.txt binds for a URL (`robots.policy`, `[[override]]`)."""
        return self._permission.binds(entries.split_url(url)[0], url)

    def entry(self, url: str) -> Generator[None, None, dict[str, Any]]:
        """How a URL stands in its host's queues; {} if it is in none, or far behind. Pauses on long queues."""
        return self._report.entry(url)

    def host_name(self, key: int) -> str:
        """The name of the host with that key, as it is stored; "" if it is not."""
        slot = self._hosts.find(key)
        return self._registry.stored_name(slot) if slot != NOWHERE and self._registry.is_stored(slot) else ""

    def host(self, name: str, now: float) -> HostStatus | None:
        """How the host of that name stands, as `hosts` says it; None if it was never met."""
        return self._report.host(name, now)

    def hosts(self, now: float, limit: int) -> Iterator[HostStatus]:
        """Up to `limit` hosts for the status, those of the front first."""
        return self._report.hosts(now, limit)

    def hosts_with_work(self) -> int:
        """Hosts that have something to do and are not silenced (2 ms for a million hosts)."""
        return self._report.hosts_with_work()

    # ---- hosts in and out of the front ----

    def _load(self, slot: int) -> FrontHost | None:
        """The object of a host that comes in from the back; None if it is to stay out."""
        self._hosts.place[slot] = HostState.IDLE
        if not self._hosts.flags[slot] & SILENCED:
            self._refetches.reopen(slot, self._hosts.ready[slot])
        if not self._hosts.todo[slot] or self._hosts.flags[slot] & SILENCED:
            return None
        if slot in self._intake.unwritten:
            self._hosts.place[slot] = HostState.ASIDE
            return None
        return self._intake.front_host(slot, self._registry.stored_name(slot), self._hosts.cursor[slot])

    def _unload(self, host: FrontHost) -> None:
        self._refetches.drop(host, self._taken_at, self._hosts.ready[host.slot])
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
