"""The discovery frontier: every new URL is handed out once, politely, in an order fair to all hosts.

    add --> queues on disk --> front of hosts --> take --> fetch --> settle --> stage --> release
            (discovery/)       (hosts/)                            (settlement.py)    |
                                                                                    commit

An errand holds its host (and for a request its address and one of the
`concurrency` places) from `take` on. `settle` decides, at the end of the
request, what becomes of URL and host; the decision carries the store keys to
write, and `stage` puts them into the group's batch. A host whose URL is done is
free from `settle` on, any other from `release`, after the commit; a place is
taken until then: a crash repeats at most `concurrency` requests. Gaps count
from `settle`.

All methods run in one thread, but `stage`, and the writing of batches, which
may run in another. Rules for the caller:

* Batches are written in the order of the calls that filled them (`add`,
  `settle` of what is staged, `retire`, `flush`): one commit queue, first in
  first out. The counts in the host records rest on it.
* When the batch given to `add` was written, `committed(batch, now)` says so:
  only then are its entries read back. A host whose whole queue is in memory
  is handed out before; its result is committed behind the batch anyway.

Host-wide waits delay the host: gap, address, robots.txt, back-off, the commit
of a failure. A retry delays only its URL. `next_wakeup` names the next instant at which `take` may succeed.
"""

import itertools
import math
import random
import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import Any, Protocol

import numpy as np
from msgspec.structs import replace

from crawler.config import Config, Overrides, PolitenessConfig
from crawler.frontier.discovery import entries
from crawler.frontier.discovery.intake import Intake
from crawler.frontier.hosts.addresses import Address, Addresses
from crawler.frontier.hosts.budget import RULES
from crawler.frontier.hosts.front_host import NO_PLAN, FrontHost
from crawler.frontier.hosts.place_shares import PlaceShares
from crawler.frontier.hosts.politeness import NO_OVERRIDE, HostPoliteness
from crawler.frontier.hosts.rate import Rate
from crawler.frontier.hosts.registry import HostHash, Registry
from crawler.frontier.hosts.table import NO_ORDER, SILENCED, HostFlag, HostState
from crawler.frontier.hosts.visits import ASK_AGAIN, Visits
from crawler.frontier.hosts.workbench import Workbench
from crawler.frontier.refresh.refreshing import Refetch, Refresh
from crawler.frontier.settlement import Decision, End, Settlement, stage
from crawler.frontier.share import Side
from crawler.frontier.views import FrontierViews, Waited
from crawler.records import Errand, Fetch, HostStatus, Link, LinkFlag, Task
from crawler.robots.cache import Verdict, VerdictKind
from crawler.storage.keys import PARKED, TODO
from crawler.storage.kv import Batch, KeyValue

LOOKS_MAX = 256  # entries of a host that are looked at in one turn; each may cost a verdict
READS_MAX = 16  # times that one turn reads ahead for a host
LOOK_ON = 0.01  # seconds until a host with more to look at has its next turn
_REFRESH = int(LinkFlag.REFRESH)  # plain, as the flags of an errand are
_REFETCHES_TRIED = 16  # known pages whose hosts turn out not to be free, before something else is done
EXPLAINED_MAX = 100_000  # entries of a queue that are read for one explanation

_TASK_OF = {VerdictKind.ALLOWED: Task.PAGE, VerdictKind.DENIED: Task.DENIED, VerdictKind.FETCH: Task.ROBOTS}


class Robots(Protocol):
    """What the frontier asks of the robots cache."""

    def verdict(self, authority: str, target: str, now: float) -> Verdict: ...

    def crawl_delay(self, authority: str) -> float | None: ...


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
        priority: link -> 0 (first) to 255 (last); 128 where not given.
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
        self._store = store
        self._config = config
        self._robots = robots
        self._concurrency = concurrency
        self._rng = rng
        self._overrides = Overrides(config.override)
        self._resolving = not config.fetch.proxy  # a proxy looks names up itself
        self._registry = registry = Registry(store, config, fingerprinter, registrable_domain)
        self._hosts = registry.hosts
        self._politeness = HostPoliteness(config.politeness, registry.hosts)
        self._addresses = Addresses(config.politeness, config.frontier.addresses_max, processes)
        self._rate = Rate(config.crawl.rate / processes)
        self._bench = Workbench(
            registry.hosts,
            self._addresses,
            self._load,
            self._unload,
            front_max=config.frontier.front_factor * concurrency,
            turn_max=config.frontier.turn_max,
            stay=config.fetch.keep_alive_max,
        )
        self._intake = Intake(store, config.frontier, registry, self._bench, priority)
        self._settlement = Settlement(config, registry, self._politeness, rng)
        self._visits = Visits(registry, self._politeness, self._addresses, self._bench)
        self._report = FrontierViews(registry, self._bench)
        self._waited = Waited()
        self._refresh = refresh
        self._refetches = 0  # given out so far
        self._taken_at = 0.0
        self._held: dict[int, FrontHost] = {}  # by host key
        self._given_out = 0  # errands that are not released
        self._in_flight = 0  # those of them that are requests: each has a place
        self._requests_max = concurrency  # places that may be taken for now
        self._look_ups = 0
        self._look_ups_waiting: deque[FrontHost] = deque()
        self._look_ups_waiting_max = 2 * config.network.dns_concurrency
        self._shares = PlaceShares(
            registry.hosts, concurrency, config.frontier.untried_share, config.fetch.crowded_timeout
        )
        self._aside: set[int] = set()  # hosts whose errands wait for a hop, without place and address
        self._paused: set[str] = set()

    def __repr__(self) -> str:
        registry = self._registry
        return (
            f"Frontier({registry.todo} to do, {sum(registry.parked)} parked, {self._in_flight} in flight, "
            f"{len(self._hosts)} hosts, {self._bench!r})"
        )

    # ---- opening and closing ----

    def open(self, now: float, clean: bool) -> None:
        """Load all hosts; bring back parked URLs if the limits changed; let the hosts wait their gaps.

        Raises:
            DamageError: a record of the store is not what was written.
        """
        self._registry.open(now, clean)
        if len(self._hosts):
            self._addresses.open(now)
        self._intake.unpark()
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
        for host in self._held.values():
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

    def committed(self, batch: Batch, now: float) -> None:
        """The batch given to `add` was written."""
        self._intake.committed(batch, now)

    def retire(self, pattern: re.Pattern[str], batch: Batch) -> int:
        """Delete the to-do and parked URLs in which the pattern is found; return how many."""
        return self._intake.retire(pattern, batch)

    # ---- what to do next ----

    @property
    def requests(self) -> int:
        """Requests in flight: places taken."""
        return self._in_flight

    def allow(self, requests_max: int) -> None:
        """Until told otherwise, give out nothing while so many requests are in flight; `concurrency` at most."""
        self._requests_max = min(requests_max, self._concurrency)

    def take(self, now: float) -> Errand | None:
        """The next thing that may start now; its host, address and place are taken. None: nothing may."""
        self._taken_at = now
        if errand := self._next_look_up(now):
            return errand
        self._call_others(now)
        blocked = self._gate(now)
        errand = None if blocked else self._next_errand(now)
        if errand is None:
            self._waited.note(blocked or self._waits_for(), now)
        else:
            self._waited.note("", now)
        return errand

    def _call_others(self, now: float) -> None:
        """Let hosts that are not known to answer soon have the places that are theirs."""
        while (host := self._shares.call()) is not None:
            self._bench.wake(host, now)
        self._bench.admitting_others = not self._shares

    def _gate(self, now: float) -> str:
        """What keeps every request from starting, "" if nothing does."""
        if self._paused:
            return "empty"
        if self._in_flight >= self._requests_max:
            return "full"
        return "rate" if self._rate.ready_at() > now else ""

    def _next_look_up(self, now: float) -> Errand | None:
        """A look-up that may begin: it needs no place, so it is waited for even while all are taken."""
        while self._look_ups_waiting and not self._paused:
            if self._look_ups >= self._config.network.dns_concurrency:
                break
            host = self._look_ups_waiting.popleft()
            self._bench.admitting = True
            host.waiting = False
            if (host.queue or host.refetch) and not self._hosts.flags[host.slot] & SILENCED:
                return self._begin_look_up(host)
            self._bench.wake(host, now)
        return None

    def _waits_for(self) -> str:
        return self._bench.waits_for() if self._registry.todo or self._refresh is not None else "empty"

    def _next_errand(self, now: float) -> Errand | None:
        """From discovery or refresh, whose turn it is; from the other where that side has nothing to start."""
        if self._refresh is None:
            return self._next_of_front(now)
        discovery = self._has_event(now)
        refresh = self._refreshes(now) and self._refresh.next_wakeup(now) <= now
        share = self._refresh.share
        errand = None
        if share.first(discovery=discovery, refresh=refresh) is Side.REFRESH:
            errand = self._next_refetch(now) or self._next_of_front(now)
        elif discovery:
            errand = self._next_of_front(now) or (self._next_refetch(now) if refresh else None)
        if errand is not None and errand.task is Task.PAGE:
            side = Side.REFRESH if errand.flags & _REFRESH else Side.DISCOVERY
            share.spend(side, contended=discovery and refresh)
        return errand

    def _has_event(self, now: float) -> bool:
        instant = self._bench.next_event(now)
        return instant is not None and instant <= now

    def _refreshes(self, now: float) -> bool:
        """Whether known pages are asked now: in a crawl that ends with its discovery, while that goes on."""
        if self._refresh is None:
            return False
        if self._refresh.endless:
            return True
        instant = self._bench.next_event(now) if self._registry.todo else None
        return instant is not None and instant <= now + self._config.crawl.patience

    def _next_refetch(self, now: float) -> Errand | None:
        """Bring the host of the best known page to the front, for that page."""
        assert self._refresh is not None
        for _ in range(_REFETCHES_TRIED):
            refetch = self._refresh.look(now)
            if refetch is None:
                break
            host = self._host_of(refetch, now)
            if host is None:
                continue
            host.refetch, host.called_by = refetch, None
            self._refresh.hold(refetch, now)
            self._bench.sleep(host)
            if errand := self._errand(host, now):
                return errand
        return None

    def _host_of(self, refetch: Refetch, now: float) -> FrontHost | None:
        """The page's host in the front, free to be asked now; None, and blocked in the schedule, if it is not."""
        assert self._refresh is not None
        name = entries.split_url(refetch.url)[0]
        slot = self._registry.slot_beside(name, refetch.fingerprint)
        host = self._bench.front.get(slot)
        ready = max(self._hosts.ready[slot], self._visits.free_at(self._hosts.key[slot], now))
        outside = host is None and self._hosts.place[slot] != HostState.IDLE
        if self._hosts.flags[slot] & SILENCED or outside or (host is not None and host.held):
            self._refresh.shut(refetch)  # until it is unblocked, comes in, or its errand ends
        elif ready > now:
            self._refresh.block(refetch, ready)
        elif host is not None and (host.waiting or host.refetch):
            self._refresh.block(refetch, now + ASK_AGAIN)
        elif host is not None:
            return host
        elif not self._bench.makes_room(now):
            self._refresh.block(refetch, now + 1.0)
        else:
            host = self._intake.front_host(slot, name, NO_ORDER)
            self._bench.enter(host)
            return host
        return None

    def _drop_refetch(self, host: FrontHost, now: float, ready: float) -> None:
        """The host will not ask its known page now: the schedule has it again."""
        if self._refresh is not None and host.refetch is not None:
            refetch, host.refetch = host.refetch, None
            self._refresh.give_back(refetch, now, ready)
            if self._hosts.flags[host.slot] & SILENCED:
                self._refresh.shut(refetch)

    def _next_of_front(self, now: float) -> Errand | None:
        while (host := self._bench.pop(now)) is not None:
            caller = host.called_by
            self._shares.came(host.slot)
            errand = self._errand(host, now)
            host.called_by = None
            if caller is not None:
                self._bench.call_next(caller, now)
            if errand is not None:
                return errand
        return None

    def _errand(self, host: FrontHost, now: float) -> Errand | None:
        """What to do for a host whose instant has come; None: nothing now, and the host is where it waits."""
        if self._hosts.flags[host.slot] & SILENCED:
            self._drop_refetch(host, now, now)
            if host.may_leave():
                self._bench.leave(host, now, idle=True)
            return None
        free_at = max(self._hosts.ready[host.slot], self._visits.free_at(host.key, now))
        if free_at > now:
            self._bench.wake(host, free_at)
            return None
        task, authority = self._first_task(host, now)
        if task is None:
            return None
        if task is Task.DENIED:
            return self._hold(host, task)
        if self._resolving and not (host.addresses and now < host.expires):
            return self._look_up(host)
        if not self._shares.take(host, now):
            self._bench.admitting_others = False
            return None
        if not self._acquire_address(host, now):
            self._shares.give(host.slot)
            return None
        self._in_flight += 1
        self._rate.spend(now)
        if task is Task.ROBOTS:
            gap = max(self._config.politeness.delay, self._hosts.gap[host.slot])
            self._settlement.authorities.met(host.slot, authority, now, gap)
        return self._hold(host, task, f"{authority}/robots.txt" if task is Task.ROBOTS else "")

    def _first_task(self, host: FrontHost, now: float) -> tuple[Task | None, str]:
        """(what the host's first URL needs, its authority); None if there is nothing to try now."""
        if host.refetch is not None:
            task, authority = self._refetch_task(host, now)
            if host.refetch is not None:
                return task, authority
        for _ in range(LOOKS_MAX):
            if not self._has_entry(host, now):
                return None, ""
            url = entries.join_url(host.name, host.queue[0][1].tail)
            authority, target = entries.split_authority(url)
            kind, until = VerdictKind.ALLOWED, 0.0
            if self._asks_robots(url, host.name):
                verdict = self._robots.verdict(authority, target, now)
                kind, until = verdict.kind, verdict.until
            until = max(until, self._settlement.authorities.ready_at(authority))
            if kind is VerdictKind.WAIT or (until > now and kind is not VerdictKind.DENIED):
                host.put_off_first(max(until, now + 1.0), self._config.frontier.later_max)
            elif (
                kind is VerdictKind.FETCH
                and (until := self._settlement.authorities.stranger_at(host.slot, authority)) > now
            ):
                host.put_off_first(until, self._config.frontier.later_max)
            elif kind is not VerdictKind.DENIED and self._starts_too_soon(host, url, authority, now):
                return None, authority
            else:
                return _TASK_OF[kind], authority
        self._bench.wake(host, now + LOOK_ON)
        return None, ""

    def _refetch_task(self, host: FrontHost, now: float) -> tuple[Task | None, str]:
        """The same for the known page that the host is to ask; one whose robots.txt is waited for goes back."""
        url = host.refetch.url
        authority, target = entries.split_authority(url)
        kind, until = VerdictKind.ALLOWED, 0.0
        if self._asks_robots(url, host.name):
            verdict = self._robots.verdict(authority, target, now)
            kind, until = verdict.kind, verdict.until
        if kind is VerdictKind.WAIT:
            self._drop_refetch(host, now, max(until, now + 1.0))
            return None, authority
        if kind is not VerdictKind.DENIED and self._starts_too_soon(host, url, authority, now):
            return None, authority
        return _TASK_OF[kind], authority

    def _asks_robots(self, url: str, name: str) -> bool:
        policy = self._config.robots.policy
        if self._overrides:
            policy = self._overrides.for_url(url, name).robots or policy
        return policy != "ignore"

    def _starts_too_soon(self, host: FrontHost, url: str, authority: str, now: float) -> bool:
        """After an unclean stop: a request may have been cut off whose gap nobody recorded."""
        unclean_at = self._registry.unclean_at
        if not unclean_at:
            return False
        delay = self._crawl_delay(url, host.name, authority)
        if self._overrides:
            delay = max(delay, self._overrides.for_url(url, host.name).delay or 0.0)
        if unclean_at + delay <= now:
            return False
        self._bench.wake(host, unclean_at + delay)
        return True

    def _has_entry(self, host: FrontHost, now: float) -> bool:
        """Whether the host has an entry to be tried now; else it is woken when it may have one."""
        host.recall(now)
        later_max, reads = self._config.frontier.later_max, READS_MAX
        while reads and not host.queue:
            if host.read_to == NO_ORDER or host.is_full(later_max) or host.slot in self._intake.unwritten:
                break
            reads -= 1
            more = host.read_ahead(self._store, self._config.frontier.read_ahead, now, later_max)
            if not more or host.held_in_memory() == self._hosts.todo[host.slot]:
                host.read_to = NO_ORDER
                self._correct_count(host)
        if not host.queue and (at := host.recall_at() if reads else now + LOOK_ON) < inf:
            self._bench.wake(host, at)
        return bool(host.queue)

    def _correct_count(self, host: FrontHost) -> None:
        """The whole queue is in memory: its length is what the host's count must be."""
        if host.skipped:
            return
        found = host.held_in_memory()
        self._registry.todo += found - self._hosts.todo[host.slot]
        self._hosts.todo[host.slot] = found

    def _look_up(self, host: FrontHost) -> Errand | None:
        """An errand for the host's addresses, or a place in the queue for one."""
        if self._look_ups < self._config.network.dns_concurrency:
            return self._begin_look_up(host)
        host.waiting = True
        self._look_ups_waiting.append(host)
        # More hosts from the back would only wait too, in the places of those that need not.
        self._bench.admitting = len(self._look_ups_waiting) < self._look_ups_waiting_max
        return None

    def _begin_look_up(self, host: FrontHost) -> Errand:
        self._look_ups += 1
        return self._hold(host, Task.RESOLVE)

    def _acquire_address(self, host: FrontHost, now: float) -> bool:
        """Take a place on the first of the host's addresses that has one; else the host waits for one."""
        if not self._addresses.counted or not self._resolving:
            return True
        address, instant = self._addresses.choose(host.addresses, host.domain, now)
        if instant <= now and (not address.waiting or host.called_by is address):
            self._addresses.acquire(address)
            host.address = address
            return True
        if len(address.waiting) < self._config.frontier.address_waiters_max:
            self._bench.wait_at(host, address, now)
        else:
            self._hosts.ready[host.slot] = ready = now + self._addresses.line_takes(address)
            if host.may_leave():
                self._bench.leave(host, now, idle=False)
            else:
                self._bench.wake(host, ready)
        return False

    def _hold(self, host: FrontHost, task: Task, url: str = "") -> Errand:
        """Give out an errand; a page or a denied URL takes the host's first entry with it."""
        assert not host.held and host.key not in self._held, host
        host.held = True
        host.served += 1
        self._held[host.key] = host
        self._given_out += 1
        address = (
            host.address.name if host.address is not None else host.addresses[0] if host.addresses else ""
        )
        if task is Task.RESOLVE:
            return Errand(task, host.key, host.name, "", attempt=self._hosts.failures[host.slot])
        if task is Task.ROBOTS:
            return Errand(task, host.key, host.name, url, address=address)
        if host.refetch is not None:
            return self._refetch_errand(host, task, address)
        order, entry = host.take_first()
        return Errand(
            task,
            host.key,
            host.name,
            entries.join_url(host.name, entry.tail),
            entry.fingerprint,
            entries.order_depth(order),
            entry.via,
            entry.redirects,
            entry.flags,
            order,
            entry.attempt,
            address,
        )

    def _refetch_errand(self, host: FrontHost, task: Task, address: str) -> Errand:
        """The errand for the host's known page; its order, below zero, stands in no queue."""
        self._refetches += 1
        host.given_out.add(-self._refetches)
        known = host.refetch
        return Errand(
            task,
            host.key,
            host.name,
            known.url,
            known.fingerprint,
            known.depth,
            known.via,
            known.redirects,
            known.flags,
            -self._refetches,
            0,
            address,
        )

    # ---- the end of an errand ----

    def resolved(self, errand: Errand, addresses: Sequence[str], expires: float, now: float) -> None:
        """The host's addresses are known until `expires`; the errand is over."""
        assert errand.task is Task.RESOLVE and addresses, errand
        host = self._held[errand.host]
        host.addresses, host.expires = tuple(addresses), max(expires, now + 1.0)
        self.release(Decision(errand, End.READY, now, now), now)

    def settle(self, errand: Errand, fetch: Fetch, now: float) -> Decision:
        """Decide, at the end of a request or a failed look-up, what becomes of URL and host.

        A host whose URL is done may be asked again from its ready instant on.
        Every decision must be staged: it may carry records of other hosts.
        """
        host = self._held[errand.host]
        crawl_delay = 0.0
        if errand.task in (Task.PAGE, Task.ROBOTS):
            crawl_delay = self._crawl_delay(
                errand.url, errand.hostname, entries.split_authority(errand.url)[0]
            )
            self._shares.settle(host.slot, fetch)
        decision = self._settlement.settle(host, errand, fetch, now, crawl_delay)
        if errand.flags & _REFRESH:
            host.refetch = None  # the harvest tells the schedule what came of it
        elif decision.end is End.HOST:
            self._drop_refetch(host, now, decision.until)
        if decision.end is End.DONE:
            self._let_go(host, decision, now)
            self._intake.wake(host)
        return decision

    def _crawl_delay(self, url: str, name: str, authority: str) -> float:
        if not self._asks_robots(url, name):
            return 0.0
        return self._robots.crawl_delay(authority) or 0.0

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
            host = self._held[errand.host]
            self._let_go(host, decision, now)
        host.given_out.discard(errand.order)
        self._given_out -= 1
        if errand.task is Task.RESOLVE:
            self._look_ups -= 1
        elif errand.host in self._aside:
            self._aside.discard(errand.host)
        elif errand.task is not Task.DENIED:
            self._in_flight -= 1
        if host.may_leave() and host.tick == NO_PLAN:
            self._plan(host, now)

    def _let_go(self, host: FrontHost, decision: Decision, now: float) -> None:
        """The errand does not hold the host any more, nor its address."""
        del self._held[host.key]
        host.held = False
        if self._refresh is not None:
            self._refresh.reopen(host.key, self._hosts.ready[host.slot])
        if host.address is not None:
            self._bench.release_address(host.address, decision.ended, now)
            host.address = None

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
        aside = errand is not None and errand.host in self._aside
        if aside and self._in_flight >= self._concurrency:
            return now + ASK_AGAIN
        if errand is not None and errand.hostname == hostname:
            at = self._borrow_own(self._held[errand.host], now, address)
        elif (key := self._registry.host_key(hostname)) in self._held and key not in self._aside:
            at = now + ASK_AGAIN
        else:
            at = self._visits.borrow(hostname, now, address)
        if at == 0.0 and aside:
            assert errand is not None
            self._aside.discard(errand.host)
            self._in_flight += 1
            self._shares.retake(self._held[errand.host].slot, now)
        return at

    def _borrow_own(self, host: FrontHost, now: float, name: str) -> float:
        """The same for the host that the errand holds, and its address if that was given back."""
        ready = max(self._hosts.ready[host.slot], self._visits.free_at(host.key, now))
        if ready > now:
            return ready
        if host.address is None and name and self._addresses.counted:
            address = self._addresses.meet(name, host.domain, now)
            at = self._addresses.start_at(address)
            if at is None or at > now:
                return now + ASK_AGAIN if at is None else at
            self._addresses.acquire(address)
            host.address = address
        return 0.0

    def step_aside(self, errand: Errand, now: float) -> None:
        """The errand will wait for a hop: its place and address are free until `borrow` gives it both again.

        Its host stays its own, but is open for the hops of others: two errands
        that redirect to one another's hosts would wait for one another.
        """
        host = self._held[errand.host]
        if errand.host in self._aside or len(self._aside) >= self._concurrency:
            return
        self._aside.add(errand.host)
        self._in_flight -= 1
        self._shares.give(host.slot)
        if host.address is not None:
            self._bench.release_address(host.address, now, now)
            host.address = None

    def may_ask(self, url: str, now: float) -> bool:
        """Whether what is known of the URL's robots.txt allows it; for the hops of a redirect."""
        authority, target = entries.split_authority(url)
        if not self._asks_robots(url, entries.split_url(url)[0]):
            return True
        return self._robots.verdict(authority, target, now).kind is VerdictKind.ALLOWED

    def gap_terms(self, errand: Errand) -> tuple[float, float]:
        """(seconds that the errand's host waits behind it at least, and per second that the answer takes)."""
        delay = self._crawl_delay(errand.url, errand.hostname, entries.split_authority(errand.url)[0])
        override = self._overrides.for_url(errand.url, errand.hostname) if self._overrides else NO_OVERRIDE
        return self._politeness.gap_terms(self._held[errand.host].slot, delay, override)

    def _gap_behind(self, host: FrontHost) -> float:
        """Seconds to wait behind a request that was cut off."""
        gap = max(self._config.politeness.delay, self._hosts.gap[host.slot])
        if host.busy is None and host.refetch is None:
            return gap
        url = entries.join_url(host.name, host.busy[1].tail) if host.busy else host.refetch.url
        gap = max(gap, self._crawl_delay(url, host.name, entries.split_authority(url)[0]))
        return max(gap, self._overrides.for_url(url, host.name).delay or 0.0) if self._overrides else gap

    def give_back(self, hostname: str, now: float, took: float, retry_after: float = 0.0) -> None:
        """A hop on a borrowed host, or on the errand's own, has ended: its gap runs from now."""
        self._visits.give_back(hostname, now, took, retry_after)

    # ---- what the shell asks and sets ----

    def next_wakeup(self, now: float) -> float | None:
        """The earliest instant at which `take` may give something; None: only news can change that."""
        if self._paused:
            return None
        if self._look_ups_waiting and self._look_ups < self._config.network.dns_concurrency:
            return now
        if self._in_flight >= self._requests_max:
            return None
        instant = self._bench.next_event(now)
        if self._refresh is not None and self._refreshes(now):
            instant = min(self._refresh.next_wakeup(now), math.inf if instant is None else instant)
        return None if instant is None or instant == math.inf else max(instant, self._rate.ready_at())

    def dry(self, now: float) -> bool:
        """Whether a place is free and no host is ready for it: new URLs are welcome."""
        if self._paused or self._in_flight >= self._concurrency:
            return False
        instant = self._bench.next_event(now)
        return instant is None or instant > now

    def finished(self, now: float) -> str:
        """Why a finite crawl is over, "" if it is not.

        "done": nothing is left but hosts that are blocked or given up;
        "patience": all that is left waits longer than that.
        """
        if self._refresh is not None and self._refresh.endless:
            return ""
        if self._given_out or self._intake.pending or len(self._visits) or self._paused:
            return ""
        instant = self._bench.next_event(now)
        if instant is None:
            return "done"
        return "patience" if instant > now + self._config.crawl.patience else ""

    def hosts_with_work(self) -> int:
        """Hosts that have something to do and are not silenced (2 ms for a million hosts)."""
        hosts = self._hosts
        return int(((hosts.array("todo") > 0) & ((hosts.array("flags") & SILENCED) == 0)).sum())

    def set_rate(self, rate: float) -> None:
        """This process's share of the rate from now on, in starts per second; 0 = no limit."""
        self._rate.rate = rate

    def configure(self, politeness: PolitenessConfig) -> None:
        """Gaps and back-offs from now on; a gap that runs already ends as it was meant to."""
        self._config = replace(self._config, politeness=politeness)
        self._politeness.config = politeness
        self._addresses.configure(politeness)

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
        if self._refresh is not None:
            self._refresh.reopen(self._hosts.key[slot], now)

    def yields(self, errand: Errand, now: float) -> bool:
        """Whether the errand's request is to end now, since another host needs its place; True once."""
        return self._shares.yields(self._held[errand.host].slot, now)

    @property
    def look_ups_waiting(self) -> int:
        """Hosts that wait until one of the look-ups under way ends."""
        return len(self._look_ups_waiting)

    def counters(self) -> dict[str, int]:
        """URLs to do, in flight and parked by rule; hosts by state; requests and look-ups under way."""
        return self._report.counters() | {"requests": self._in_flight, "look_ups": self._look_ups}

    def why_slow(self) -> dict[str, float]:
        """Seconds without anything to start, by what was waited for: see `Waited`."""
        return dict(self._waited.seconds)

    def explain(self, url: str, now: float) -> dict[str, Any]:
        """What a URL's host waits for."""
        return self._report.explain(url, now)

    def entry(self, url: str) -> dict[str, Any]:
        """How a URL stands in its host's queues; {} if it is in none, or behind the first `EXPLAINED_MAX`."""
        name, tail = entries.split_url(url)
        key = self._registry.host_key(name).to_bytes(8, "big")
        for queue, prefix in (("to do", TODO), ("parked", PARKED)):
            found = entries.read_queue(self._store, prefix + key, 0)
            for order, entry in itertools.islice(found, EXPLAINED_MAX):
                if entry.tail == tail:
                    return {
                        "queue": queue,
                        "parked_by": RULES[entry.rule],
                        "depth": entries.order_depth(order),
                        "via": f"{entry.via:016x}",
                        "tries": entry.attempt,
                        "retry_at": entry.retry_at,
                    }
        return {}

    def hosts(self, now: float, limit: int) -> Iterator[HostStatus]:
        """Up to `limit` hosts for the status, those of the front first."""
        return self._report.hosts(now, limit)

    # ---- hosts in and out of the front ----

    def _load(self, slot: int) -> FrontHost | None:
        """The object of a host that comes in from the back; None if it is to stay out."""
        self._hosts.place[slot] = HostState.IDLE
        if self._refresh is not None and not self._hosts.flags[slot] & SILENCED:
            self._refresh.reopen(self._hosts.key[slot], self._hosts.ready[slot])
        if not self._hosts.todo[slot] or self._hosts.flags[slot] & SILENCED:
            return None
        if slot in self._intake.unwritten:
            self._hosts.place[slot] = HostState.ASIDE
            return None
        return self._intake.front_host(slot, self._registry.stored_name(slot), self._hosts.cursor[slot])

    def _unload(self, host: FrontHost) -> None:
        self._drop_refetch(host, self._taken_at, self._hosts.ready[host.slot])
        self._hosts.cursor[host.slot] = host.cursor()

    def _check(self) -> None:
        """Assert the invariants that hold between any two calls."""
        hosts, registry = self._hosts, self._registry
        self._bench._check()
        hosts._check()
        registry.domains._check()
        assert registry.todo == int(hosts.array("todo").sum())
        assert sum(registry.parked) == int(hosts.array("parked").sum())
        assert {host.key for host in self._bench.front.values() if host.held} == set(self._held)
        assert len(self._held) <= self._given_out and self._in_flight <= self._concurrency
        assert self._look_ups <= self._config.network.dns_concurrency
        assert self._aside <= set(self._held)
        self._shares._check({host.slot for host in self._held.values()})
        assert self._bench.admitting or self._look_ups_waiting
        for host in self._bench.front.values():
            orders = [order for order, _ in host.entries()]
            assert len(orders) == len(set(orders)) <= hosts.todo[host.slot], host
            assert host.read_to != NO_ORDER or host.skipped or len(orders) == hosts.todo[host.slot], host
            assert hosts.cursor[host.slot] <= host.cursor() or host.held, host
            assert not (host.waiting and host.held), host
        for address in self._addresses:
            self._check_address(address)

    def _check_address(self, address: Address) -> None:
        users = sum(host.address is address for host in self._held.values())
        assert users + self._visits.at(address) == address.in_flight, address
        assert all(host.waiting for host in address.waiting), address
        assert not address.waiting or address.in_flight or address.event, address
