"""The discovery frontier: every new URL is handed out once, politely, in an order fair to all hosts.

    add --> queues on disk (`queues.py`) --> front of hosts (`workbench.py`) --> take
                                                ^                                  |
                          release <-- commit <--+-- stage <-- settle <-- fetch <---+

An errand holds its host (and for a request its address and one of the
`concurrency` places) from `take` until `release`. `settle` decides, at the
end of the request, what becomes of URL and host; the decision carries the
store keys to write, `stage` puts them into the group's batch, and `release`,
after the commit, lets the host go: a crash repeats only what was in flight.
Gaps count from `settle`.

All methods run in one thread, but `stage` and writing the batches, which may
run in another. Rules for the caller:

* Batches are written in the order of the calls that filled them (`add`,
  `settle` then `stage`, `retire`, `flush`): one commit queue, first in first
  out. The host records rest on it.
* After the batch given to `add` was written, `committed(batch, now)` says so: only
  then are its entries read back. A host whose whole queue is in memory is
  handed out before that; its result is committed behind the batch anyway.

What a host must not be asked now waits with it: its gap, its address, its
robots.txt, its back-off. What a URL must not: its own retry instant. Nothing
is polled: `next_wakeup` names the next instant at which `take` can succeed.
"""

import heapq
import math
import random
import re
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from typing import Any, Protocol

import msgspec
import numpy as np

from crawler.config import Config, Override, Overrides
from crawler.errors import DamageError
from crawler.frontier import queues
from crawler.frontier.budget import RULES, Budget, DomainTable
from crawler.frontier.hosts import (
    NO_ORDER,
    NOWHERE,
    SILENCED,
    HostFlag,
    HostTable,
    Place,
    host_key_bytes,
    stored_name,
)
from crawler.frontier.politeness import CAUSES, Addresses, HostPoliteness, Rate
from crawler.frontier.queues import PARKED_PREFIX, TODO_PREFIX, Entry, Todo
from crawler.frontier.workbench import FrontHost, Workbench
from crawler.records import Blame, Errand, Fetch, Link, Outcome, Task
from crawler.storage.kv import Batch, KeyValue, scan_prefix, seal, unseal

META_KEY = b"m/frontier"
_MEMO_MAX = 65_536  # host names whose slot is remembered
_ASK_AGAIN = 0.25  # seconds until a borrower asks for a busy host again
_NO_OVERRIDE = Override()


class Kind(StrEnum):
    """What robots.txt says to a request."""

    ALLOWED = "allowed"
    DENIED = "denied"
    FETCH = "fetch"  # robots.txt must be fetched first
    WAIT = "wait"  # unreachable: not before `until`


class Verdict(Protocol):
    @property
    def kind(self) -> str: ...

    @property
    def until(self) -> float: ...


class Robots(Protocol):
    """What the frontier asks of the robots cache."""

    def verdict(self, authority: str, target: str, now: float) -> Any: ...

    def crawl_delay(self, authority: str) -> float | None: ...


class HostHash(Protocol):
    """What the frontier asks of the fingerprinter."""

    def host_key(self, hostname: str) -> int: ...


class End(StrEnum):
    """What a decision does with its errand."""

    DONE = "done"  # the URL leaves the queue
    AGAIN = "again"  # the URL is tried again at `retry_at`
    HOST = "host"  # the host waits; the URL keeps its place
    READY = "ready"  # no URL was concerned: an address or robots.txt is known now


class Decision(msgspec.Struct, gc=False):
    """What becomes of an errand; `writes` are store keys with their value, None to delete.

    `until` is the instant from which the host may be asked again, `retry_at`
    that of the URL's next try (0 if there is none), `attempt` counts its
    failures so far.
    """

    errand: Errand
    end: End
    ended: float
    until: float
    retry_at: float = 0.0
    attempt: int = 0
    writes: list[tuple[bytes, bytes | None]] = []


class _Visitor:
    """A host asked for a redirect hop, outside its queue."""

    __slots__ = ("address", "busy", "ready")

    def __init__(self) -> None:
        self.busy = True
        self.ready = 0.0
        self.address = ""


class Frontier:
    """See the module docstring.

    Args:
        store: holds `t/`, `p/`, `h/` and `m/frontier`.
        robots: the robots cache; not asked where the policy is `ignore`.
        fingerprinter: gives host keys.
        registrable_domain: host name -> registrable domain (or itself).
        concurrency: most requests in flight (pages and robots.txt).
        priority: link -> 0 (first) to 255 (last); 128 where not given.
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
    ) -> None:
        self._store = store
        self._config = config
        self._robots = robots
        self._fingerprinter = fingerprinter
        self._registrable_domain = registrable_domain
        self._concurrency = concurrency
        self._rng = rng
        self._priority = priority
        self._overrides = Overrides(config.override)
        self._resolving = not config.fetch.proxy
        self.hosts = HostTable()
        self.domains = DomainTable()
        self._budget = Budget(config.crawl, self.hosts, self.domains)
        self._politeness = HostPoliteness(config.politeness, self.hosts)
        self._addresses = Addresses(config.politeness, config.frontier.addresses_max, processes)
        self._rate = Rate(config.crawl.rate / processes)
        self._bench = Workbench(
            self.hosts,
            self._load,
            self._unload,
            front_max=config.frontier.front_factor * concurrency,
            turn_max=config.frontier.read_ahead,
        )
        self._memo: dict[str, int] = {}
        self._sequence = 0
        self._todo = 0
        self._parked = [0] * len(RULES)
        self._held: dict[int, FrontHost] = {}  # by host key
        self._in_flight = 0
        self._look_ups = 0
        self._look_ups_waiting: list[FrontHost] = []
        self._uncommitted: dict[int, tuple[Any, set[int]]] = {}  # id(batch) -> the batch, slots added to
        self._unwritten: dict[int, int] = {}  # slot -> id of the latest batch that adds to it
        self._record_writes: dict[bytes, bytes] = {}  # host records to go with the next batch
        self._visitors: dict[int, _Visitor] = {}
        self._paused: set[str] = set()
        self._waited = {"host": 0.0, "address": 0.0, "rate": 0.0, "full": 0.0, "empty": 0.0}
        self._waiting_for = ""
        self._waiting_since = 0.0

    def __repr__(self) -> str:
        return (
            f"Frontier({self._todo} to do, {sum(self._parked)} parked, {self._in_flight} in flight, "
            f"{len(self.hosts)} hosts, {self._bench!r})"
        )

    # ---- opening and closing ----

    def open(self, now: float, clean: bool) -> None:
        """Load all hosts of the store. After an unclean stop every host waits its gap from now."""
        domain_keys = [np.array(records["domain_key"]) for records in self.hosts.load(self._store)]
        if domain_keys:
            self.domains.fill(np.concatenate(domain_keys), self.hosts)
        self._set_instants(now, clean)
        self._read_meta()
        self._todo = int(self.hosts.array("todo").sum())
        self._schedule_all(now)

    def _set_instants(self, now: float, clean: bool) -> None:
        """Clamp what was stored to now + gap; give the hosts that were given up a new chance."""
        hosts = self.hosts
        ready, gap = hosts.array("ready"), hosts.array("gap")
        ready[:] = np.minimum(ready, now + gap) if clean else now + gap
        given_up = (hosts.array("flags") & HostFlag.GIVEN_UP) != 0
        for name in ("failures", "silent_since", "cause"):
            hosts.array(name)[given_up] = 0
        hosts.array("flags")[given_up] &= ~np.uint16(HostFlag.GIVEN_UP)
        silent = hosts.array("silent_since")
        silent[silent > 0.0] = now  # the time without a process does not count as silence

    def _read_meta(self) -> None:
        value = self._store.get(META_KEY)
        if value is None:
            if len(self.hosts):
                raise DamageError(f"store: hosts without {META_KEY!r}")
            return
        self._sequence, parked = msgspec.msgpack.decode(
            unseal(META_KEY, value), type=tuple[int, dict[str, int]]
        )
        for rule, count in parked.items():
            self._parked[RULES.index(rule)] = count

    def _meta(self) -> bytes:
        parked = {rule: count for rule, count in zip(RULES, self._parked, strict=True) if count}
        return seal(msgspec.msgpack.encode((self._sequence, parked)))

    def _schedule_all(self, now: float) -> None:
        """All hosts with something to do, in an order that does not follow their domains."""
        waiting = (self.hosts.array("todo") > 0) & ((self.hosts.array("flags") & SILENCED) == 0)
        slots = np.flatnonzero(waiting)
        np.random.default_rng(self._rng.getrandbits(64)).shuffle(slots)
        for slot in slots.tolist():
            self._bench.schedule(slot, now)

    def flush(self, batch: Batch) -> None:
        """Put all that is not yet stored, for a clean stop; call it when nothing is in flight."""
        for host in self._bench.front.values():
            self._store_cursor(host)
            self._record_writes[host_key_bytes(host.key)] = self._pack(host)
        for key, value in self._record_writes.items():
            batch.put(key, value)
        self._record_writes.clear()
        batch.put(META_KEY, self._meta())

    # ---- new URLs ----

    def add(self, links: Sequence[Link], batch: Batch, now: float) -> None:
        """Put new URLs (each given once) into their hosts' queues and into `batch`.

        Several calls may fill one batch. Cost: about 3 us a link, and 5 us a
        host and call.
        """
        touched: dict[int, str] = {}
        ready: dict[int, list[Entry]] = {}
        for link in links:
            self._add_link(link, batch, touched, ready)
        key = id(batch)
        _, slots = self._uncommitted.setdefault(key, (batch, set()))
        slots.update(touched)
        for slot, name in touched.items():
            self._unwritten[slot] = key
            self._after_add(slot, name, ready.get(slot), now)
            batch.put(host_key_bytes(self.hosts.key[slot]), self._pack_named(slot, name))
        batch.put(META_KEY, self._meta())

    def committed(self, batch: Batch, now: float) -> None:
        """The batch given to `add` is written: its entries can be read back now."""
        entry = self._uncommitted.pop(id(batch), None)
        if entry is None:
            return
        for slot in entry[1]:
            if self._unwritten.get(slot) != id(batch):
                continue
            del self._unwritten[slot]
            if self.hosts.place[slot] == Place.ASIDE:
                self._bench.schedule(slot, now)
            elif (host := self._bench.front.get(slot)) is not None:
                self._wake_if_idle(host)

    def _add_link(
        self, link: Link, batch: Batch, touched: dict[int, str], ready: dict[int, list[Entry]]
    ) -> None:
        name, tail = queues.split_url(link.url)
        slot = self._memo.get(name, NOWHERE)
        if slot == NOWHERE:
            slot = self._slot(name)
        self._sequence += 1
        priority = 128 if self._priority is None else self._priority(link)
        order = queues.make_order(priority, link.depth, self._sequence)
        entry = Todo(tail, link.fingerprint, link.via, link.redirects, link.flags)
        override = self._overrides.for_url(link.url, name) if self._overrides else None
        touched[slot] = name
        hosts = self.hosts
        key = hosts.key[slot].to_bytes(8, "big") + order.to_bytes(8, "big")
        rule = self._budget.rule(slot, link.depth, override)
        if rule:
            entry.rule = rule
            batch.put(PARKED_PREFIX + key, queues.encode(entry))
            hosts.parked[slot] += 1
            self._parked[rule] += 1
            return
        batch.put(TODO_PREFIX + key, queues.encode(entry))
        self._budget.accept(slot)
        hosts.todo[slot] += 1
        self._todo += 1
        if order < hosts.cursor[slot] or hosts.todo[slot] == 1:
            hosts.cursor[slot] = order
        host = self._bench.front.get(slot)
        if host is not None:
            if order < host.read_to:
                heapq.heappush(host.queue, (order, entry))
        elif hosts.place[slot] == Place.IDLE and len(ready) < 4096:
            ready.setdefault(slot, []).append((order, entry))

    def _after_add(self, slot: int, name: str, entries: list[Entry] | None, now: float) -> None:
        """Bring a host that got new entries to where it belongs."""
        hosts = self.hosts
        host = self._bench.front.get(slot)
        if host is not None:
            if len(host.queue) > 4 * self._config.frontier.read_ahead:
                self._spill(host)
            self._wake_if_idle(host)
            return
        if hosts.place[slot] != Place.IDLE or not hosts.todo[slot] or hosts.flags[slot] & SILENCED:
            return
        if entries is not None and len(entries) == hosts.todo[slot] and self._bench.has_room():
            host = self._make_front(slot, name, NO_ORDER)
            host.queue = entries
            heapq.heapify(host.queue)
            self._bench.enter(host)
            if len(host.queue) > 4 * self._config.frontier.read_ahead:
                self._spill(host)
            self._bench.wake(host, hosts.ready[slot])
            return
        hosts.place[slot] = Place.ASIDE

    def _slot(self, name: str) -> int:
        """The slot of the host `name`, a new one if it was not known."""
        key = self._fingerprinter.host_key(name)
        slot = self.hosts.find(key)
        if slot == NOWHERE:
            slot = self.hosts.insert(key)
            domain_key = self._fingerprinter.host_key(self._registrable_domain(name))
            domain = self.domains.find(domain_key)
            self.hosts.domain[slot] = self.domains.insert(domain_key) if domain == NOWHERE else domain
            self._budget.meet_host(slot)
        if len(self._memo) >= _MEMO_MAX:
            self._memo.clear()
        self._memo[name] = slot
        return slot

    # ---- what to do next ----

    def take(self, now: float) -> Errand | None:
        """The next thing that may start now; its host, address and place are taken. None: nothing may."""
        errand, reason = self._take(now)
        self._account(now, reason)
        return errand

    def _take(self, now: float) -> tuple[Errand | None, str]:
        if self._paused:
            return None, "empty"
        if self._in_flight >= self._concurrency:
            return None, "full"
        if self._rate.ready_at() > now:
            return None, "rate"
        while (host := self._bench.pop(now)) is not None:
            errand = self._errand(host, now)
            if errand is not None:
                return errand, ""
        return None, self._idle_reason()

    def _errand(self, host: FrontHost, now: float) -> Errand | None:
        """What to do for a ready host; None if there is nothing now (it is then planned, asleep or gone)."""
        slot = host.slot
        if self.hosts.flags[slot] & SILENCED:
            self._bench.leave(host, now, idle=True)
            return None
        if self._visitors and not self._visit_over(host, now):
            return None
        task, authority = self._task(host, now)
        if task is Task.DENIED:
            return self._hold(host, Task.DENIED, "")
        if task is None:
            return None
        if self._resolving and not (host.addresses and now < host.expires):
            return self._look_up(host)
        if not self._acquire_address(host, now):
            return None
        self._in_flight += 1
        self._rate.spend(now)
        return self._hold(host, task, authority)

    def _task(self, host: FrontHost, now: float) -> tuple[Task | None, str]:
        """Whether the first URL of the host may be fetched, or its robots.txt must be."""
        while self._has_entry(host, now):
            order, entry = host.queue[0]
            url = queues.join_url(host.name, entry.tail)
            if not self._asks_robots(url, host.name):
                return Task.PAGE, ""
            authority, target = queues.split_authority(url)
            verdict = self._robots.verdict(authority, target, now)
            if verdict.kind == Kind.ALLOWED:
                return Task.PAGE, ""
            if verdict.kind == Kind.DENIED:
                return Task.DENIED, ""
            if verdict.kind == Kind.FETCH:
                return Task.ROBOTS, authority
            heapq.heappop(host.queue)
            heapq.heappush(host.later, (max(verdict.until, now + 1.0), (order, entry)))
        return None, ""

    def _asks_robots(self, url: str, name: str) -> bool:
        policy = self._config.robots.policy
        if self._overrides:
            policy = self._overrides.for_url(url, name).robots or policy
        return policy != "ignore"

    def _has_entry(self, host: FrontHost, now: float) -> bool:
        """Whether the host's queue has an entry to be tried now; else it is planned, asleep or gone."""
        while host.later and host.later[0][0] <= now:
            heapq.heappush(host.queue, heapq.heappop(host.later)[1])
        if host.queue:
            return True
        while host.read_to != NO_ORDER and len(host.later) < self._config.frontier.later_max:
            if host.slot in self._unwritten:
                return False  # asleep until `committed`
            self._read_ahead(host, now)
            if host.queue:
                return True
        if host.later:
            self._bench.wake(host, host.later[0][0])
        return False

    def _read_ahead(self, host: FrontHost, now: float) -> None:
        """Read the next entries of the queue from the store."""
        known = {entry[0] for _, entry in host.later}
        count = 0
        for order, entry in queues.read_queue(self._store, host.prefix, host.read_to):
            host.read_to = order + 1
            if order in known:
                continue
            if entry.retry_at > now:
                heapq.heappush(host.later, (float(entry.retry_at), (order, entry)))
            else:
                heapq.heappush(host.queue, (order, entry))
            count += 1
            if count >= self._config.frontier.read_ahead:
                return
        host.read_to = NO_ORDER
        self._correct_count(host)

    def _correct_count(self, host: FrontHost) -> None:
        """The whole queue is in memory: its length is what the host's count must be."""
        found = len(host.queue) + len(host.later) + (host.busy is not None)
        self._todo += found - self.hosts.todo[host.slot]
        self.hosts.todo[host.slot] = found

    def _hold(self, host: FrontHost, task: Task, authority: str) -> Errand:
        """Take the host for an errand."""
        assert not host.held and host.key not in self._held, host
        host.held = True
        host.served += 1
        self._held[host.key] = host
        if task is Task.RESOLVE:
            return Errand(task, host.key, host.name, "")
        address = host.address.name if host.address is not None else (host.addresses or ("",))[0]
        if task is Task.ROBOTS:
            return Errand(task, host.key, host.name, f"{authority}/robots.txt", address=address)
        host.busy = order, entry = heapq.heappop(host.queue)
        return Errand(
            task,
            host.key,
            host.name,
            queues.join_url(host.name, entry.tail),
            fingerprint=entry.fingerprint,
            depth=queues.order_depth(order),
            via=entry.via,
            redirects=entry.redirects,
            flags=entry.flags,
            order=order,
            attempt=entry.attempt,
            address=address,
        )

    def _look_up(self, host: FrontHost) -> Errand | None:
        """An errand for the host's addresses, or a place in the queue for one."""
        if self._look_ups >= self._config.network.dns_concurrency:
            host.waiting = True
            self._look_ups_waiting.append(host)
            return None
        self._look_ups += 1
        return self._hold(host, Task.RESOLVE, "")

    def _acquire_address(self, host: FrontHost, now: float) -> bool:
        """Take a place on one of the host's addresses; else the host waits for one of them."""
        if not self._addresses.counted or not self._resolving:
            return True
        best, best_at = None, math.inf
        for name in host.addresses:
            address = self._addresses.meet(name, host.domain, now)
            at = self._addresses.start_at(address)
            at = math.inf if at is None else at
            if best is None or at < best_at:
                best, best_at = address, at
        assert best is not None
        if best_at <= now and not best.waiting:
            self._addresses.acquire(best)
            host.address = best
            return True
        self._wait_for_address(host, best, best_at, now)
        return False

    def _wait_for_address(self, host: FrontHost, address: Any, at: float, now: float) -> None:
        """Queue a host at an address, or send it away if that queue is full."""
        if len(address.waiting) < self._config.frontier.address_waiters_max:
            host.waiting = True
            address.waiting.append(host)
            if at < math.inf:
                self._bench.wake_address(address, at)
            return
        self.hosts.ready[host.slot] = now + self._addresses.gap * len(address.waiting) + self._addresses.gap
        self._bench.leave(host, now, idle=False)

    # ---- the end of an errand ----

    def resolved(self, errand: Errand, addresses: Sequence[str], expires: float, now: float) -> None:
        """The host's addresses are known until `expires`; the errand is over."""
        assert errand.task is Task.RESOLVE and addresses, errand
        host = self._held[errand.host]
        host.addresses, host.expires = tuple(addresses), max(expires, now + 1.0)
        self.release(Decision(errand, End.READY, now, now), now)

    def robots_done(self, errand: Errand, fetch: Fetch, now: float) -> None:
        """The robots cache has the answer to this errand; the errand is over."""
        self.release(self.settle(errand, fetch, now), now)

    def settle(self, errand: Errand, fetch: Fetch, now: float) -> Decision:
        """Decide, at the end of a request (or look-up), what becomes of its URL and host."""
        host = self._held[errand.host]
        if errand.task is Task.PAGE:
            return self._settle_page(host, errand, fetch, now)
        if errand.task is Task.DENIED:
            return self._done(host, Decision(errand, End.DONE, now, self.hosts.ready[host.slot], writes=[]))
        host.dirty = True
        if errand.task is Task.RESOLVE and fetch.outcome in (Outcome.DNS_NOT_FOUND, Outcome.ADDRESS_DENIED):
            self._politeness.give_up(host.slot, fetch.outcome.value)
            return Decision(errand, End.HOST, now, now)
        until = self._politeness.finish(host.slot, fetch, now)
        return Decision(errand, End.HOST if fetch.blame is Blame.HOST else End.READY, now, until)

    def _settle_page(self, host: FrontHost, errand: Errand, fetch: Fetch, now: float) -> Decision:
        assert host.busy is not None and host.busy[0] == errand.order, (host, errand)
        was_healthy = self.hosts.failures[host.slot] == 0
        override = self._overrides.for_url(errand.url, host.name) if self._overrides else _NO_OVERRIDE
        until = self._politeness.finish(
            host.slot, fetch, now, crawl_delay=self._crawl_delay(errand), override=override
        )
        entry = host.busy[1]
        decision = Decision(errand, End.DONE, now, until, attempt=entry.attempt, writes=[])
        if fetch.blame is Blame.HOST:
            entry.strikes += was_healthy
            if entry.strikes < self._config.frontier.strikes_max:
                return self._host_failed(host, decision, was_healthy)
        elif fetch.blame is Blame.URL:
            entry.attempt = decision.attempt = entry.attempt + 1
            if entry.attempt < self._config.frontier.tries:
                return self._again(host, decision)
        return self._done(host, decision)

    def _crawl_delay(self, errand: Errand) -> float:
        if not self._asks_robots(errand.url, errand.hostname):
            return 0.0
        return self._robots.crawl_delay(queues.split_authority(errand.url)[0]) or 0.0

    def _done(self, host: FrontHost, decision: Decision) -> Decision:
        """The URL leaves the queue."""
        assert host.busy is not None
        decision.writes.append((queues.entry_key(host.prefix, host.busy[0]), None))
        host.busy = None
        self.hosts.todo[host.slot] -= 1
        self._todo -= 1
        return self._with_record(host, decision)

    def _again(self, host: FrontHost, decision: Decision) -> Decision:
        """The URL is tried again after the delay of its attempt, +- the jitter."""
        assert host.busy is not None
        order, entry = host.busy
        delays, jitter = self._config.frontier.retry_delays, self._config.frontier.retry_jitter
        delay = delays[min(entry.attempt, len(delays)) - 1] * (1.0 + jitter * self._rng.uniform(-1.0, 1.0))
        entry.retry_at = math.ceil(decision.ended + delay)
        decision.end, decision.retry_at = End.AGAIN, float(entry.retry_at)
        decision.writes.append((queues.entry_key(host.prefix, order), queues.encode(entry)))
        heapq.heappush(host.later, (decision.retry_at, (order, entry)))
        host.busy = None
        return self._with_record(host, decision)

    def _host_failed(self, host: FrontHost, decision: Decision, struck: bool) -> Decision:
        """The host waits. A URL that a healthy host failed on lets the host's other URLs go first."""
        assert host.busy is not None
        order, entry = host.busy
        host.busy = None
        decision.end = End.HOST
        if struck:
            decision.writes.append((queues.entry_key(host.prefix, order), queues.encode(entry)))
        if struck and (host.queue or host.read_to != NO_ORDER):
            gap = self.hosts.gap[host.slot]
            heapq.heappush(host.later, (decision.until + gap, (order, entry)))
        elif order < host.read_to:
            heapq.heappush(host.queue, (order, entry))
        return self._with_record(host, decision)

    def _with_record(self, host: FrontHost, decision: Decision) -> Decision:
        """Add the host's record to what is written, and the records of hosts that left the front."""
        self._store_cursor(host)
        host.dirty = False
        if self._record_writes:
            decision.writes.extend(self._record_writes.items())
            self._record_writes.clear()
        decision.writes.append((host_key_bytes(host.key), self._pack(host)))
        return decision

    @staticmethod
    def stage(decision: Decision, batch: Batch) -> None:
        """Put what was decided into the group's batch; any thread."""
        for key, value in decision.writes:
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)

    def release(self, decision: Decision, now: float) -> None:
        """After the commit: the host, its address and the place of the request are free."""
        errand = decision.errand
        host = self._held.pop(errand.host)
        host.held = False
        if errand.task is Task.RESOLVE:
            self._look_ups -= 1
            self._next_look_up(now)
        elif errand.task is not Task.DENIED:
            self._in_flight -= 1
            self._release_address(host, decision.ended, now)
        self._plan(host, now)

    def _release_address(self, host: FrontHost, ended: float, now: float) -> None:
        address = host.address
        if address is None:
            return
        host.address = None
        self._addresses.release(address, ended)
        if address.waiting:
            at = self._addresses.start_at(address)
            if at is not None:
                self._bench.wake_address(address, max(at, now))

    def _next_look_up(self, now: float) -> None:
        if self._look_ups_waiting:
            host = self._look_ups_waiting.pop(0)
            host.waiting = False
            self._bench.wake(host, now)

    def _plan(self, host: FrontHost, now: float) -> None:
        """Where a free host goes: to sleep, to the heap, or out of the front."""
        slot = host.slot
        if self.hosts.flags[slot] & SILENCED:
            self._bench.leave(host, now, idle=True)
        elif not self.hosts.todo[slot]:
            self._bench.sleep(host)
        elif self._bench.turn_is_over(host):
            self._bench.leave(host, now, idle=False)
        else:
            self._bench.wake(host, self.hosts.ready[slot])

    def _wake_if_idle(self, host: FrontHost) -> None:
        """New entries for a front host: look at it as soon as it may be asked."""
        if host.held or host.waiting or not self.hosts.todo[host.slot]:
            return
        ready = self.hosts.ready[host.slot]
        if host.tick < 0 or host.wake > ready:
            self._bench.wake(host, ready)

    # ---- hosts in and out of the front ----

    def _make_front(self, slot: int, name: str, read_to: int) -> FrontHost:
        return FrontHost(slot, self.hosts.key[slot], name, self.hosts.domain[slot], read_to)

    def _load(self, slot: int) -> FrontHost | None:
        """The front object of a host from the back; None if it is to stay out."""
        if self.hosts.flags[slot] & SILENCED or not self.hosts.todo[slot]:
            self.hosts.place[slot] = Place.IDLE
            return None
        if slot in self._unwritten:
            self.hosts.place[slot] = Place.ASIDE
            return None
        name = stored_name(self._store, self.hosts.key[slot])
        return self._make_front(slot, name, self.hosts.cursor[slot])

    def _unload(self, host: FrontHost) -> None:
        self._store_cursor(host)
        if host.dirty:
            self._record_writes[host_key_bytes(host.key)] = self._pack(host)

    def _store_cursor(self, host: FrontHost) -> None:
        order = host.first_order()
        if host.busy is not None:
            order = min(order, host.busy[0])
        self.hosts.cursor[host.slot] = order

    def _pack(self, host: FrontHost) -> bytes:
        return self.hosts.pack(host.slot, host.name, self.domains.key[host.domain])

    def _pack_named(self, slot: int, name: str) -> bytes:
        return self.hosts.pack(slot, name, self.domains.key[self.hosts.domain[slot]])

    def _spill(self, host: FrontHost) -> None:
        """Forget all but the first entries of a long queue; they are in the store, or about to be."""
        host.queue.sort()
        host.read_to = min(host.read_to, host.queue[self._config.frontier.read_ahead][0])
        host.queue = [entry for entry in host.queue if entry[0] < host.read_to]
        host.later = [item for item in host.later if item[1][0] < host.read_to]
        heapq.heapify(host.later)

    # ---- requests outside the queues ----

    def borrow(self, hostname: str, now: float, errand: Errand | None = None, address: str = "") -> float:
        """Ask for a host (and address) for a redirect hop; 0.0: it is the caller's now, else the instant to ask again.

        With `errand` the hop may go to the errand's own host, which is held
        already: then only the gap behind `give_back` is waited for.
        """
        key = self._fingerprinter.host_key(hostname)
        slot = self.hosts.find(key)
        visitor = self._visitors.get(key)
        if errand is not None and errand.host == key:
            return 0.0 if self.hosts.ready[slot] <= now else self.hosts.ready[slot]
        if key in self._held or (visitor is not None and visitor.busy):
            return now + _ASK_AGAIN
        ready = max(
            0.0 if slot == NOWHERE else self.hosts.ready[slot], 0.0 if visitor is None else visitor.ready
        )
        if ready > now:
            return ready
        if address and self._addresses.counted:
            record = self._addresses.meet(address, self._domain_of(hostname), now)
            at = self._addresses.start_at(record)
            if at is None or at > now:
                return now + _ASK_AGAIN if at is None else at
            self._addresses.acquire(record)
        visitor = self._visitors[key] = _Visitor()
        visitor.address = address
        return 0.0

    def give_back(self, hostname: str, now: float, took: float, retry_after: float = 0.0) -> None:
        """The hop on a borrowed host, or on the errand's own, has ended: its gap runs from now."""
        key = self._fingerprinter.host_key(hostname)
        slot = self.hosts.find(key)
        if slot != NOWHERE:
            self._politeness.hop(slot, took, retry_after, now)
        visitor = self._visitors.get(key)
        if visitor is None:
            return
        visitor.busy = False
        visitor.ready = now + self._politeness.stranger_gap(took, retry_after)
        if visitor.address and self._addresses.counted:
            self._release_borrowed(visitor.address, self._domain_of(hostname), now)
        self._forget_visitors(now)

    def _release_borrowed(self, name: str, domain: int, now: float) -> None:
        address = self._addresses.meet(name, domain, now)
        self._addresses.release(address, now)
        if address.waiting:
            at = self._addresses.start_at(address)
            if at is not None:
                self._bench.wake_address(address, max(at, now))

    def _domain_of(self, hostname: str) -> int:
        """A number for the registrable domain of any host name."""
        return self._fingerprinter.host_key(self._registrable_domain(hostname))

    def _visit_over(self, host: FrontHost, now: float) -> bool:
        """Whether no hop is on the host; else the host is planned for later."""
        visitor = self._visitors.get(host.key)
        if visitor is None:
            return True
        instant = now + _ASK_AGAIN if visitor.busy else max(visitor.ready, self.hosts.ready[host.slot])
        if instant <= now:
            return True
        self._bench.wake(host, instant)
        return False

    def _forget_visitors(self, now: float) -> None:
        if len(self._visitors) > 64:
            self._visitors = {k: v for k, v in self._visitors.items() if v.busy or v.ready > now}

    # ---- what the shell asks ----

    def next_wakeup(self, now: float) -> float | None:
        """The earliest instant at which `take` may give something; None: only news can change that."""
        if self._paused or self._in_flight >= self._concurrency:
            return None
        instant = self._bench.next_event(now)
        return None if instant is None else max(instant, self._rate.ready_at())

    def dry(self, now: float) -> bool:
        """Whether a place is free and no host is ready for it: new URLs are welcome."""
        if self._paused or self._in_flight >= self._concurrency:
            return False
        instant = self._bench.next_event(now)
        return instant is None or instant > now

    def finished(self, now: float) -> str:
        """Why a finite crawl is over: "done", "patience" (all that is left waits longer), or "" if it is not."""
        if self._held or self._uncommitted or self._visiting() or self._paused:
            return ""
        instant = self._bench.next_event(now)
        if instant is None:
            return "done"
        if instant <= now + self._config.crawl.patience:
            return ""
        return "patience"

    def _visiting(self) -> bool:
        return any(visitor.busy for visitor in self._visitors.values())

    def set_rate(self, rate: float) -> None:
        """This process's share of the rate from now on, in starts per second; 0 = no limit."""
        self._rate.rate = rate

    def pause(self, reason: str = "user") -> None:
        """Give nothing out until `resume` for the same reason (the user, or a disk that is nearly full)."""
        self._paused.add(reason)

    def resume(self, reason: str = "user") -> None:
        self._paused.discard(reason)

    @property
    def paused(self) -> tuple[str, ...]:
        """The reasons for which nothing is given out."""
        return tuple(sorted(self._paused))

    def counters(self) -> dict[str, int]:
        """To-do URLs (those in flight apart), parked ones by rule, errands out, and hosts by state."""
        flags = self.hosts.array("flags")
        urls = sum(host.busy is not None for host in self._held.values())
        found = {
            "todo": self._todo - urls,
            "in_flight": urls,
            "requests": self._in_flight,
            "look_ups": self._look_ups,
            "hosts": len(self.hosts),
            "hosts_front": len(self._bench.front),
            "hosts_ready": len(self._bench.back),
            "hosts_waiting": len(self._bench.calendar),
            "hosts_blocked": int(((flags & HostFlag.BLOCKED) != 0).sum()),
            "hosts_refused": int(((flags & HostFlag.REFUSED) != 0).sum()),
            "hosts_given_up": int(((flags & HostFlag.GIVEN_UP) != 0).sum()),
            "hosts_excluded": int(((flags & HostFlag.EXCLUDED) != 0).sum()),
        }
        return found | {
            f"parked_{rule}": count for rule, count in zip(RULES, self._parked, strict=True) if rule
        }

    def why_slow(self) -> dict[str, float]:
        """Seconds for which a place was free and nothing could start, by what was waited for.

        host gaps, address gaps, rate; `full` is time with all places taken,
        `empty` time with nothing to do.
        """
        return dict(self._waited)

    def _account(self, now: float, reason: str) -> None:
        if self._waiting_for:
            self._waited[self._waiting_for] += max(0.0, now - self._waiting_since)
        self._waiting_for, self._waiting_since = reason, now

    def _idle_reason(self) -> str:
        """What a free place waits for when no host could be taken."""
        if not self._todo:
            return "empty"
        return self._bench.waits_for()

    # ---- single hosts and URLs ----

    def block(self, hostname: str, now: float) -> None:
        """Ask the host no more until `unblock`; its URLs stay. Stored with the next batch."""
        slot = self._slot(hostname)
        self.hosts.flags[slot] |= HostFlag.BLOCKED
        self._record_writes[host_key_bytes(self.hosts.key[slot])] = self._pack_named(slot, hostname)

    def unblock(self, hostname: str, now: float) -> None:
        """Lift a block, by the user or by refusals."""
        slot = self._slot(hostname)
        hosts = self.hosts
        hosts.flags[slot] &= ~(SILENCED & 0xFFFF) & 0xFFFF
        hosts.refusals[slot] = hosts.cause[slot] = 0
        self._record_writes[host_key_bytes(hosts.key[slot])] = self._pack_named(slot, hostname)
        if hosts.place[slot] == Place.IDLE and hosts.todo[slot]:
            if slot in self._unwritten:
                hosts.place[slot] = Place.ASIDE
            else:
                self._bench.schedule(slot, now)

    def retire(self, pattern: re.Pattern[str], batch: Batch, now: float) -> int:
        """Delete the to-do and parked URLs that the pattern finds (`search`); return how many.

        Reads the whole queue: about 3 us a URL. URLs in flight, and new ones
        whose batch is not written, stay.
        """
        gone = 0
        for prefix in (TODO_PREFIX, PARKED_PREFIX):
            for slot, key, order, entry in self._scan_entries(prefix):
                name = self._scanned_name
                host = self._bench.front.get(slot)
                if host is not None and host.busy is not None and host.busy[0] == order:
                    continue
                if pattern.search(queues.join_url(name, entry.tail)):
                    batch.delete(key)
                    gone += 1
                    self._count_retired(prefix, slot, order, entry)
                    self._record_writes[host_key_bytes(self.hosts.key[slot])] = self._pack_named(slot, name)
        for key, value in self._record_writes.items():
            batch.put(key, value)
        self._record_writes.clear()
        batch.put(META_KEY, self._meta())
        return gone

    def _scan_entries(self, prefix: bytes) -> Iterator[tuple[int, bytes, int, Todo]]:
        """(slot, store key, order, entry) of all stored entries; the host's name is in `_scanned_name`."""
        last = b""
        slot = NOWHERE
        for key, value in scan_prefix(self._store, prefix):
            if key[2:10] != last:
                last = key[2:10]
                host_key = int.from_bytes(last, "big")
                slot = self.hosts.find(host_key)
                self._scanned_name = stored_name(self._store, host_key)
            yield slot, key, int.from_bytes(key[10:], "big"), queues.decode(key, value)

    def _count_retired(self, prefix: bytes, slot: int, order: int, entry: Todo) -> None:
        if prefix == PARKED_PREFIX:
            self.hosts.parked[slot] -= 1
            self._parked[entry.rule] -= 1
            return
        self.hosts.todo[slot] -= 1
        self._todo -= 1
        host = self._bench.front.get(slot)
        if host is not None:
            host.queue = [item for item in host.queue if item[0] != order]
            host.later = [item for item in host.later if item[1][0] != order]
            heapq.heapify(host.queue)
            heapq.heapify(host.later)

    def explain(self, url: str, now: float) -> dict[str, Any]:
        """What a URL's host waits for: state, the instant from which it may be asked, why, and its counts."""
        name, _ = queues.split_url(url)
        slot = self.hosts.find(self._fingerprinter.host_key(name))
        if slot == NOWHERE:
            return {"host": name, "state": "unknown"}
        return self._describe(slot, name, now)

    def hosts_by_state(self, now: float, limit: int) -> Iterator[dict[str, Any]]:
        """Up to `limit` hosts, those of the front first, described as by `explain`."""
        for host in list(self._bench.front.values())[:limit]:
            yield self._describe(host.slot, host.name, now)
        others = np.flatnonzero(self.hosts.array("place") != Place.FRONT)
        for slot in others[: max(0, limit - len(self._bench.front))].tolist():
            key = self.hosts.key[slot]
            if self._store.get(host_key_bytes(key)) is not None:
                yield self._describe(slot, stored_name(self._store, key), now)

    def _describe(self, slot: int, name: str, now: float) -> dict[str, Any]:
        hosts = self.hosts
        return {
            "host": name,
            "state": self._state(slot, now),
            "cause": CAUSES[hosts.cause[slot]],
            "ready_at": hosts.ready[slot],
            "wait": max(0.0, hosts.ready[slot] - now),
            "gap": hosts.gap[slot],
            "failures": hosts.failures[slot],
            "refusals": hosts.refusals[slot],
            "slowdown": max(1.0, hosts.slowdown[slot]),
            "todo": hosts.todo[slot],
            "parked": hosts.parked[slot],
            "known": hosts.known[slot],
        }

    def _state(self, slot: int, now: float) -> str:
        flags = self.hosts.flags[slot]
        for flag, name in (
            (HostFlag.BLOCKED, "blocked"),
            (HostFlag.REFUSED, "refused"),
            (HostFlag.GIVEN_UP, "given_up"),
        ):
            if flags & flag:
                return name
        host = self._bench.front.get(slot)
        if host is not None and host.held:
            return "in_flight"
        if not self.hosts.todo[slot]:
            return "excluded" if flags & HostFlag.EXCLUDED else "idle"
        if host is not None and host.waiting:
            return "waits_for_address"
        return (
            "backing_off"
            if self.hosts.failures[slot]
            else "waits"
            if self.hosts.ready[slot] > now
            else "ready"
        )

    # ---- invariants ----

    def _check(self) -> None:
        """Assert the invariants; reads the whole store unless adds are uncommitted."""
        self._bench._check()
        self.hosts._check()
        hosts = self.hosts
        assert self._todo == int(hosts.array("todo").sum())
        assert sum(self._parked) == int(hosts.array("parked").sum())
        assert {host.key for host in self._bench.front.values() if host.held} == set(self._held)
        requests = [host for host in self._held.values() if host.address is not None]
        assert len(requests) <= self._in_flight <= self._concurrency
        for host in self._bench.front.values():
            orders = [order for order, _ in host.entries()]
            assert len(orders) == len(set(orders)), host
            assert host.first_order() >= hosts.cursor[host.slot] or host.held, host
            if host.read_to == NO_ORDER:
                assert hosts.todo[host.slot] == len(orders) + (host.busy is not None), host
