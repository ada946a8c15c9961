"""Adds URLs to the queues on disk, parks them, changes their class and retires them.

The entries of a batch are not in the store until the batch is written. Until then

* The front consists of the hosts that are objects in memory. A host outside the front may not enter the front
while the batch contains entries of the host. If its turn arrives, it gets the state ASIDE. * A host of the
front reads no more entries, unless its whole queue is in memory. * A host that had nothing to do enters the
front at once if the front has room, with its new entries in
  memory. If the front has no room, the host waits outside for its turn.

If the crawl has an order of new URLs (`orders/`), an entry has the class that came with its link. `improve`
moves an entry to a better class: one batch deletes the old key and adds the new one, so an entry never occurs
twice in a queue.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence

from crawler.config import FrontierConfig, OrderConfig
from crawler.frontier.discovery.entries import (
    SEQUENCE_MAX,
    Todo,
    class_in_order,
    decode,
    depth_of,
    encode,
    join_url,
    levels_of,
    make_key,
    make_order,
    order_depth,
    split_url,
)
from crawler.frontier.discovery.waiting_index import WaitingIndex, index_key
from crawler.frontier.hosts.budget import SITEMAP
from crawler.frontier.hosts.front_host import NO_PLAN, FrontHost
from crawler.frontier.hosts.registry import Registry
from crawler.frontier.hosts.table import NO_ORDER, NOWHERE, SILENCED, HostFlag, HostState
from crawler.frontier.hosts.workbench import Workbench
from crawler.orders.classes import NEUTRAL, PLAIN, WORST, class_in
from crawler.orders.order import BREADTH_FIRST
from crawler.records import Link, LinkFlag
from crawler.storage.keys import PARKED, TODO
from crawler.storage.kv import Batch, KeyValue, after_prefix

_RANKED = LinkFlag.RANKED
RETIRED_AT_ONCE = 2_000  # entries examined in one turn of the event loop: about 10 ms
_UNPARK_CHUNK = 10_000  # entries moved per batch


class Intake:
    """Fills the queues of hosts; `unwritten` holds the slots of hosts whose latest entries are in an unwritten batch."""

    def __init__(
        self,
        store: KeyValue,
        config: FrontierConfig,
        order: OrderConfig,
        registry: Registry,
        bench: Workbench,
        priority: Callable[[Link], int] | None,
    ) -> None:
        self._store = store
        self._registry = registry
        self._bench, self._plans = bench, bench.plans
        self._priority = priority
        self._read_ahead = config.read_ahead
        self._entries_max = config.entries_max
        self._by_class = order.name != BREADTH_FIRST
        self._raise_classes = order.raise_classes
        self.index = WaitingIndex(store, keeps=self._by_class and order.raise_classes > 0)
        # Batch id -> the slots of the hosts whose retired entries the batch deletes.
        self._retiring: dict[int, set[int]] = {}
        # Batch id -> (the batch, the slots of the hosts to whose queues the batch adds entries).
        self._batches: dict[int, tuple[Batch, set[int]]] = {}
        self.unwritten: dict[int, int] = {}  # host slot -> id of the latest batch for its queue

    @property
    def pending(self) -> int:
        """The number of unwritten batches with new URLs."""
        return len(self._batches)

    def add(self, links: Sequence[Link], batch: Batch, now: float, *, attempt: int = 0) -> None:
        """Put each link into its host's queue, or park it. Pass each URL only once. Several calls may fill one batch.

        `attempt` is the number of failed tries that count for each URL.
        """
        touched: dict[int, str] = {}
        registry, memo = self._registry, self._registry.memo
        keys, budget = registry.hosts.key, registry.budget
        place, sequence = NEUTRAL, registry.sequence
        index = self.index if self.index.keeps else None
        may_enter = len(self._bench.front) + self._bench.wanted(now)
        for link in links:
            name, tail = split_url(link.url)
            slot = memo.get(name)
            if slot is None:
                slot = registry.slot_beside(name, link.fingerprint)
            touched[slot] = name
            sequence += 1
            flags = link.flags
            if self._by_class:
                place = self.index.promised(link.fingerprint, class_in(flags))
            if flags > PLAIN:
                flags &= PLAIN
            levels = levels_of(registry.hosts.maps[slot]) if flags & SITEMAP and not link.depth else 0
            if self._priority is not None:
                order = make_order(self._ranked(place, link), link.depth + levels, sequence)
            else:
                order = make_order(place, link.depth + levels, sequence)
            entry = Todo(tail, link.fingerprint, link.via, link.redirects, flags, attempt, levels=levels)
            limited = budget.binds or flags & SITEMAP
            if limited and (rule := budget.rule(slot, link.depth, link.url, name, flags)):
                self._park(slot, order, entry, rule, batch)
            else:
                key = make_key(TODO, keys[slot], order)
                batch.put(key, encode(key, entry))
                if index is not None:
                    index.put(keys[slot], order, entry, batch)
                self._enqueue(slot, name, order, entry, may_enter, now)
        registry.sequence = sequence
        registry.put_meta(batch)
        self._touch(touched, batch, now)

    def _ranked(self, place: int, link: Link) -> int:
        """Return the class of a link, shifted by the priority if the user has set one for its URL."""
        assert self._priority is not None
        return max(0, min(place + self._priority(link) - NEUTRAL, WORST))

    def improve(self, links: Sequence[Link], batch: Batch, now: float) -> int:
        """Move each waiting URL to a better class if a new link to it has that class; return the number moved.

        A URL is moved only if the class is better by at least `order.raise_classes`. A URL is not moved if it
        is in flight, was tried before, is parked or done, or has a priority set by the user. A URL that is
        not queued yet will be queued with the better class.
        """
        touched: dict[int, str] = {}
        moved, registry = 0, self._registry
        retiring = set().union(*self._retiring.values())
        for link in links if self.index.keeps else ():
            name, _ = split_url(link.url)
            slot = registry.memo.get(name, NOWHERE)
            slot = registry.find(name) if slot == NOWHERE else slot
            found = None if slot == NOWHERE else self.index.find(registry.hosts.key[slot], link.fingerprint)
            place = class_in(link.flags)
            if found is None:
                self.index.promise(link.fingerprint, place)
            elif slot not in retiring and self._may_move(slot, *found):
                order, entry = found
                if class_in_order(order) - place >= self._raise_classes:
                    depth = order_depth(order)
                    depth = depth if entry.levels else min(depth, link.depth)
                    self._move(slot, order, make_order(place, depth, order & SEQUENCE_MAX), entry, batch)
                    touched[slot] = name
                    moved += 1
        if touched:
            self._touch(touched, batch, now)
        return moved

    def _may_move(self, slot: int, order: int, entry: Todo) -> bool:
        """Return whether an entry may move: it was never tried, is not in flight, and has no priority set by the user."""
        tried = entry.attempt or entry.strikes or entry.retry_at or self._in_flight(slot, order)
        return not (tried or entry.flags & _RANKED)

    def _move(self, slot: int, order: int, better: int, entry: Todo, batch: Batch) -> None:
        """Move an entry of a host's queue from `order` to the order `better`."""
        hosts, host = self._registry.hosts, self._bench.front.get(slot)
        batch.delete(make_key(TODO, hosts.key[slot], order))
        key = make_key(TODO, hosts.key[slot], better)
        batch.put(key, encode(key, entry))
        self.index.put(hosts.key[slot], better, entry, batch)
        if host is not None:
            host.remove({order})
            self._push(host, better, entry)
        if better < hosts.cursor[slot]:
            hosts.cursor[slot] = better
            if host is None:
                self._bench.improved(slot)

    def _push(self, host: FrontHost, order: int, entry: Todo) -> None:
        """Add an entry to a host of the front; keep it in memory if all earlier entries of the queue are in memory."""
        is_first = self._by_class and order < host.first_order()
        host.push(order, entry)
        if len(host.queue) > self._read_ahead:
            self._spill(host)
        if is_first:
            self._bench.improved(host.slot)

    def _park(self, slot: int, order: int, entry: Todo, rule: int, batch: Batch) -> None:
        registry = self._registry
        entry.rule = rule
        registry.hosts.parked[slot] += 1
        registry.parked[rule] += 1
        key = make_key(PARKED, registry.hosts.key[slot], order)
        batch.put(key, encode(key, entry))

    def _enqueue(
        self, slot: int, name: str, order: int, entry: Todo, front_max: int = 0, now: float = 0.0
    ) -> None:
        """Count a queue entry, and keep it in memory if the rest of its queue is in memory.

        A host that had nothing to do enters the front at once if it is ready and the front has fewer than
        `front_max` hosts.
        """
        registry, hosts, bench = self._registry, self._registry.hosts, self._bench
        registry.budget.accept(slot, entry.flags)
        registry.todo += 1
        hosts.todo[slot] = todo = hosts.todo[slot] + 1
        host = bench.front.get(slot)
        if todo == 1 or order < hosts.cursor[slot]:
            hosts.cursor[slot] = order
            if self._by_class and host is None:
                bench.improved(slot)
        if todo == 1:  # the queue consists of this entry alone
            if host is not None:
                host.read_to = NO_ORDER
            elif (
                len(bench.front) < front_max
                and hosts.ready[slot] <= now
                and hosts.place[slot] == HostState.IDLE
                and not hosts.flags[slot] & SILENCED
            ):
                host = self.front_host(slot, name, NO_ORDER)
                bench.enter(host)
        if host is not None:
            self._push(host, order, entry)

    def _spill(self, host: FrontHost) -> None:
        """Limit the number of a host's entries in memory.

        The limit is the host's share of `entries_max` or four times `read_ahead`, whichever is smaller, but
        at least `read_ahead`.
        """
        share = self._entries_max // len(self._bench.front)
        share = max(self._read_ahead, min(share, 4 * self._read_ahead))
        if len(host.queue) > share:
            host.spill(self._read_ahead)

    def _touch(self, touched: dict[int, str], batch: Batch, now: float) -> None:
        """Put the records of hosts with new entries into the batch; wake these hosts or set them aside."""
        key = id(batch)
        self._batches.setdefault(key, (batch, set()))[1].update(touched)
        for record in self._registry.records(touched):
            batch.put(*record)
        for slot in touched:
            self.unwritten[slot] = key
            host = self._bench.front.get(slot)
            if host is not None:
                self.wake(host)
            else:
                self.settle_place(slot, now)

    def committed(self, batch: Batch, now: float) -> None:
        """Record that the batch was written. Now the entries it added can be read, and those it deleted are gone."""
        self._retiring.pop(id(batch), None)
        self.index.written(batch)
        _, slots = self._batches.pop(id(batch), (None, ()))
        for slot in slots:
            if self.unwritten.get(slot) == id(batch):
                del self.unwritten[slot]
                host = self._bench.front.get(slot)
                if host is not None:
                    self.wake(host)
                else:
                    self.settle_place(slot, now)

    def settle_place(self, slot: int, now: float) -> None:
        """Schedule a host that is outside the front, has something to do, and is not scheduled yet."""
        hosts = self._registry.hosts
        if hosts.place[slot] not in (HostState.IDLE, HostState.ASIDE):
            return
        hosts.place[slot] = HostState.IDLE
        if hosts.todo[slot] and not hosts.flags[slot] & SILENCED:
            self._bench.schedule(slot, now)

    def wake(self, host: FrontHost) -> None:
        """Schedule a turn for a front host that may have something to do, at the ready time of the host.

        A host that has used up its turn in the front gets no further turn there. Such a host only waits until
        it can leave the front.
        """
        hosts = self._registry.hosts
        if host.held or host.waiting or not (hosts.todo[host.slot] or host.refetch):
            return
        if host.given_out and self._bench.turn_is_over(host):
            return
        ready = hosts.ready[host.slot]
        if host.tick == NO_PLAN or host.wake > ready:
            self._plans.wake(host, ready)

    def front_host(self, slot: int, name: str, read_to: int) -> FrontHost:
        hosts = self._registry.hosts
        domain = self._registry.domains.key[hosts.domain[slot]]
        return FrontHost(slot, hosts.key[slot], name, domain, read_to)

    # ---- raised limits ----

    def unpark(self) -> int:
        """Queue the parked URLs that the changed limits allow, and return the number of these URLs.

        Called on opening.
        """
        registry = self._registry
        if registry.stored_limits == registry.budget.describe() or not sum(registry.parked):
            return 0
        excluded = (registry.hosts.array("flags") & HostFlag.EXCLUDED).nonzero()[0]
        for slot in excluded.tolist():
            registry.budget.include(slot)
        moved, chunk = 0, []
        for item in self._scan(PARKED):
            chunk.append(item)
            if len(chunk) == _UNPARK_CHUNK:
                moved += self._unpark_chunk(chunk)
                chunk = []
        return moved + self._unpark_chunk(chunk)

    def _unpark_chunk(self, chunk: list[tuple[int, str, bytes, int, Todo]]) -> int:
        registry, hosts = self._registry, self._registry.hosts
        batch = self._store.batch(sync=True)
        moved, touched = 0, {}
        for slot, name, key, order, entry in chunk:
            touched[slot] = name
            url = join_url(name, entry.tail)
            if registry.budget.rule(slot, depth_of(order, entry), url, name, entry.flags):
                continue
            moved += 1
            hosts.parked[slot] -= 1
            registry.parked[entry.rule] -= 1
            entry.rule = 0
            batch.delete(key)
            batch.put(TODO + key[2:], encode(key, entry))
            if self.index.keeps:
                batch.put(index_key(registry.hosts.key[slot], entry.fingerprint), key[10:])
            self._enqueue(slot, name, order, entry)
        for slot, name in touched.items():
            batch.put(*registry.record(slot, name))
        registry.put_meta(batch)
        self._store.write(batch)
        return moved

    # ---- retirement ----

    def retire_some(self, matches: Callable[[str], object], batch: Batch, begin: bytes) -> tuple[int, bytes]:
        """Examine `RETIRED_AT_ONCE` entries of to-do and parked URLs from the key `begin` on; delete those that match.

        The first step begins at `PARKED`. A step takes about 4 us per entry. It does not delete URLs in flight, nor
        new URLs whose batch is not written yet.

        If there are parked entries, they are examined before the waiting ones. A deleted entry leaves a
        tombstone in the store, and a scan takes 0.16 us for each. If the waiting entries were deleted first,
        a search for parked entries would scan all their tombstones.

        Returns:
            (number of deleted entries, the key to continue from; b"" at the end).
        """
        gone: dict[int, set[int]] = {}
        count, prefix = 0, begin[: len(TODO)]
        if prefix == PARKED and not any(self._registry.parked):
            return 0, TODO
        found = self._scan(prefix, begin)
        for slot, name, key, order, entry in itertools.islice(found, RETIRED_AT_ONCE):
            begin = key
            if self._in_flight(slot, order) or not matches(join_url(name, entry.tail)):
                continue
            count += 1
            batch.delete(key)
            if self.index.keeps:
                batch.delete(index_key(self._registry.hosts.key[slot], entry.fingerprint))
                self.index.forget(entry.fingerprint)
            self._uncount(prefix, slot, entry)
            self._registry.note(slot, name)
            gone.setdefault(slot, set()).add(order)
        for slot, orders in gone.items():
            if (host := self._bench.front.get(slot)) is not None:
                host.remove(orders)
        if self.index.keeps and gone:
            self._retiring.setdefault(id(batch), set()).update(gone)
        self._registry.put_notes(batch)
        self._registry.put_meta(batch)
        if next(found, None) is not None:
            return count, begin + b"\0"
        return count, TODO if prefix == PARKED else b""

    def _in_flight(self, slot: int, order: int) -> bool:
        host = self._bench.front.get(slot)
        return host is not None and order in host.given_out

    def _uncount(self, prefix: bytes, slot: int, entry: Todo) -> None:
        registry = self._registry
        if prefix == PARKED:
            registry.hosts.parked[slot] -= 1
            registry.parked[entry.rule] -= 1
        else:
            registry.hosts.todo[slot] -= 1
            registry.todo -= 1

    def waiting(self) -> Iterator[tuple[bool, str]]:
        """Yield each stored entry as (whether the URL is parked, URL): first the queues, then the parked entries."""
        for prefix in (TODO, PARKED):
            for _, name, _, _, entry in self._scan(prefix):
                yield prefix == PARKED, join_url(name, entry.tail)

    def _scan(self, prefix: bytes, begin: bytes = b"") -> Iterator[tuple[int, str, bytes, int, Todo]]:
        """Yield (slot, host name, store key, order, entry) of all stored entries, from the key `begin` on."""
        last, slot, name = b"", NOWHERE, ""
        for key, value in self._store.scan(begin or prefix, after_prefix(prefix)):
            if key[2:10] != last:
                last = key[2:10]
                slot = self._registry.hosts.find(int.from_bytes(last, "big"))
                name = self._registry.stored_name(slot)
            yield slot, name, key, int.from_bytes(key[10:], "big"), decode(key, value)
