"""The workbench: decides which host may be requested next.

Like the workbench of BUbiNG and the back queues of Mercator, it holds a small
*front* of hosts as Python objects, at most 12 times as many (`frontier.front_factor`) as
there are fetch slots. All other hosts are numbers in the host table:

    IDLE ---new URLs---> BACK ---its turn---> FRONT ---nothing left---> IDLE
                          ^  \\____________     |
          ready, in turn  |               \\    | turn over, or its wait is long
                       CALENDAR <----------+---+
    ASIDE: new entries are not committed yet; then BACK or CALENDAR

* The heap holds (instant, tick, host) for front hosts that wait for their ready
  time. An entry is valid only while its tick equals the tick of the host. Other entries belong to an earlier
  plan and are skipped.
* There is a separate heap for hosts that had a known page to fetch when they were entered. The reason is that
the frontier, and not the workbench, divides the fetches between new and known pages. * A ready host whose
address is not ready joins the address's queue. The heap then holds the address instead of
  the host.
* The front is filled on demand: a host enters from the back queue only when no
  front host is ready. When the front is full, hosts without work leave first, then the hosts with the longest
  waits. A host whose gap ends within `stay` seconds remains, because its connection stays open that long.
  Otherwise, a host whose robots.txt has just been fetched would go to the end of the back queue before its
  first page.
* A host leaves after `turn_max` requests if other hosts are in the back queue,
  so a host with endless links starves no other host. At most
  `waiters_max` hosts of the front wait for any one address.
* If the crawl has an order of new URLs (`orders/`), each URL has a class. Then the host whose best URL has the
  best class goes first, both in the front and in the back queue. A share of the turns, `first_come`, goes
  instead to the host that has waited longest (`turns.py`). While the front has room, a host enters it if its
  class is better than those of all ready hosts of the front. Hosts that wait for an address are served in order
  of arrival.
* Ready hosts of the front go first. If the rate or the machine serves only as many hosts as the front holds,
the hosts outside the front could wait forever. To prevent this, a host whose turn comes `stay` seconds or
more after its ready time goes to the end of the back queue. By then, its connection is closed, so the host
loses nothing by leaving the front. The first host of the
  back queue enters.
"""

import heapq
import math
from collections.abc import Callable

import numpy as np

from crawler.frontier.discovery.entries import class_in_order
from crawler.frontier.hosts.addresses import Address, Addresses
from crawler.frontier.hosts.back_queue import BackQueue
from crawler.frontier.hosts.calendar import Calendar
from crawler.frontier.hosts.front_host import NO_PLAN, FrontHost
from crawler.frontier.hosts.table import NO_ORDER, NOWHERE, HostState, HostTable
from crawler.frontier.hosts.turns import ClassedBackQueue, DueFront, Plan
from crawler.orders.classes import WORST

LOOK_AGAIN = 1.0  # seconds between two scans of the front, each of which takes up to 1 ms
# A host is late if its turn comes more than `stay` seconds after its ready time. A late host leaves the front only
# after this number of fetch tasks: a look-up, robots.txt and the first page.
TURN_MIN = 3


class Workbench:
    """The front, the heap, the back queue and the calendar.

    `load(slot)` returns the object of a host that enters the front, or None if it cannot enter now;
    `unload(host)` is called for a host that leaves. `stay` is in seconds; the module docstring describes it.
    `first_come` is the share of the turns that go to the host that has waited longest. It is 1.0 if the crawl
    has no order of new URLs.
    """

    def __init__(
        self,
        hosts: HostTable,
        addresses: Addresses,
        load: Callable[[int], FrontHost | None],
        unload: Callable[[FrontHost], None],
        *,
        front_max: int,
        turn_max: int,
        stay: float,
        first_come: float = 1.0,
    ) -> None:
        self.hosts = hosts
        self._addresses = addresses
        self.front: dict[int, FrontHost] = {}
        self._by_class = first_come < 1.0
        self.back: BackQueue | ClassedBackQueue = (
            ClassedBackQueue(hosts, first_come) if self._by_class else BackQueue(hosts)
        )
        self._due = DueFront(first_come, self._is_valid)  # empty if the crawl has no order of new URLs
        self.calendar = Calendar(hosts)
        self._heap: list[Plan] = []
        self._chosen: list[Plan] = []  # heap of hosts that have a known page to fetch
        self._tick = 0
        self.admits = front_max  # number of hosts that may enter the front now; set by `look_ups`
        self.admitting_others = True  # whether hosts that are not prompt may enter too
        self._look_at = 0.0  # until this instant, no host can be removed from a full front
        self._load = load
        self._unload = unload
        self._front_max = max(2, front_max)
        self._turn_max = turn_max
        self._stay = stay

    def __repr__(self) -> str:
        return (
            f"Workbench({len(self.front)} front, {len(self.back)} back, {len(self.calendar)} in the calendar)"
        )

    def has_room(self) -> bool:
        return self.admits > 0 and len(self.front) < self._front_max

    def wanted(self, now: float) -> int:
        """Return the number of hosts outside the front that could be requested soon; 0 while a front host is ready.

        Ready hosts of the front go first, because their connections are already open.
        """
        if (self._heap and self._heap[0][0] <= now) or (self._by_class and self._due):
            return 0
        return max(0, min(self.admits, self._front_max - len(self.front)))

    def schedule(self, slot: int, now: float) -> None:
        """Put a host that is not scheduled into the back queue or the calendar, by its ready time."""
        ready = self.hosts.ready[slot]
        if ready <= now:
            self.hosts.place[slot] = HostState.BACK
            self.back.append(slot)
        else:
            self.hosts.place[slot] = HostState.CALENDAR
            self.calendar.add(slot, ready, now)

    def schedule_many(self, slots: np.ndarray, now: float) -> None:
        """Like `schedule`, for many hosts."""
        ready = self.hosts.gather("ready", slots) <= now
        for some, where in ((slots[ready], HostState.BACK), (slots[~ready], HostState.CALENDAR)):
            self.hosts.put("place", some, where)
        if ready.any():
            self.back.extend(slots[ready])
        if not ready.all():
            self.calendar.add_many(slots[~ready], now)

    def enter(self, host: FrontHost) -> None:
        """Add a host to the front; call `wake` to give it a turn."""
        self.hosts.place[host.slot] = HostState.FRONT
        self.front[host.slot] = host

    def wake(self, host: FrontHost, instant: float) -> None:
        """Plan a turn of the host from `instant` on, replacing any earlier plan."""
        assert not host.held, host
        self._tick += 1
        host.tick, host.wake = self._tick, instant
        heapq.heappush(self._heap if host.refetch is None else self._chosen, (instant, self._tick, host))
        if len(self._heap) + len(self._chosen) > 4 * len(self.front) + 64:
            self._sweep()

    def improved(self, slot: int) -> None:
        """Update the position of a ready host that now has a better first URL."""
        if self.hosts.place[slot] == HostState.BACK:
            self.back.improved(slot)
        elif (host := self.front.get(slot)) is not None and host.tick != NO_PLAN:
            self.wake(host, host.wake)

    def sleep(self, host: FrontHost) -> None:
        """Cancel the host's plan: the host has nothing to do, or waits for an event whose time is unknown."""
        self._look_at = 0.0
        host.tick = NO_PLAN

    def makes_room(self, now: float) -> bool:
        """Return whether a host may enter the front, making room by removing others if necessary."""
        return self.has_room() or (self.admits > 0 and self._make_room(now) and self.has_room())

    def wait_at(self, host: FrontHost, address: Address, now: float) -> None:
        """Put the host at the end of its address's queue, or at the head if the address has just released it."""
        host.waiting = True
        address.wait(host, first=host.called_by is address)
        self.call_next(address, now)

    def call_next(self, address: Address, now: float) -> None:
        """Plan to release the next host that waits at the address as soon as a request may start there."""
        instant = self._addresses.start_at(address) if address.waiting else None
        if instant is None:
            return
        instant = max(instant, now)
        if address.event == 0.0 or instant < address.event:
            self._tick += 1
            address.event = instant
            heapq.heappush(self._heap, (instant, self._tick, address))

    def release_address(self, address: Address, ended: float, now: float) -> None:
        """Free the request slot of a request that ended at `ended`, and plan the address's next host."""
        self._addresses.release(address, ended)
        self.call_next(address, now)

    def pop(self, now: float) -> FrontHost | None:
        """Remove and return the next ready host, and end its plan; None if there is none."""
        self._expire(now)
        if self._by_class:
            self._admit_better(now)
        host = self._pop_heap(now)
        if host is not None and self._is_late(host, now):
            self.leave(host, now, idle=self.hosts.todo[host.slot] == 0)
            self._admit(now)
            host = self._pop_heap(now)
        while host is None:
            if not self._admit(now):
                return None
            host = self._pop_heap(now)
        return host

    def pop_chosen(self, now: float) -> FrontHost | None:
        """Remove and return the next ready host that was planned with a known page; None if there is none."""
        while self._chosen and self._chosen[0][0] <= now:
            _, tick, host = heapq.heappop(self._chosen)
            if isinstance(host, FrontHost) and host.tick == tick:
                host.tick = NO_PLAN
                host.called_by = None
                return host
        return None

    def next_chosen(self) -> float:
        """Return the earliest instant at which `pop_chosen` may return a host; infinite if there is none."""
        self._skip_stale(self._chosen)
        return self._chosen[0][0] if self._chosen else math.inf

    def next_event(self, now: float) -> float | None:
        """Return the earliest instant at which `pop` may return a host; None if there is none."""
        if self._may_admit() and (self.has_room() or now >= self._look_at):
            return now
        if self._by_class and self._due:
            return now
        self._skip_stale(self._heap)
        instants = [self._heap[0][0]] if self._heap else []
        if self._may_admit():
            instants.append(self._look_at)
        due = self.calendar.next_due()
        if due is not None:
            instants.append(due)
        return min(instants) if instants else None

    def waits_for(self) -> str:
        """Return what the next request waits for: "address" if the gap of an address ends first, else "host"."""
        self._skip_stale(self._heap)
        return "address" if self._heap and isinstance(self._heap[0][2], Address) else "host"

    def leave(self, host: FrontHost, now: float, *, idle: bool) -> None:
        """Remove the host from the front; unless `idle`, schedule it to return when it is ready."""
        assert host.may_leave(), host
        self.sleep(host)
        del self.front[host.slot]
        self._unload(host)
        self.hosts.place[host.slot] = HostState.IDLE
        if not idle:
            self.schedule(host.slot, now)

    def turn_is_over(self, host: FrontHost) -> bool:
        """Return whether the host has used its turn while others wait in the back queue."""
        return host.served >= self._turn_max and self.back.holds(others=self.admitting_others)

    def _is_late(self, host: FrontHost, now: float) -> bool:
        """Return whether a host is late, has had `TURN_MIN` fetch tasks, and must give way to another host."""
        return (
            now > host.wake + self._stay
            and host.served >= TURN_MIN
            and host.called_by is None
            and host.may_leave()
            and self._may_admit()
        )

    def _may_admit(self) -> bool:
        return self.admits > 0 and self.back.holds(others=self.admitting_others)

    def _expire(self, now: float) -> None:
        due = self.calendar.next_due()
        if due is not None and due <= now:
            for slot in self.calendar.expire(now):
                self.hosts.place[slot] = HostState.BACK
                self.back.append(slot)

    def first(self, now: float) -> tuple[int, int]:
        """Return (slot, order) of the next host. If URLs have classes, this host has the best class.

        For a host outside the front, whose entries are not read, `order` is a lower bound of the order of its
        first URL. The result is (NOWHERE, NO_ORDER) if no host is ready. The order is NO_ORDER if the host
        has no URL to try now.
        """
        self._expire(now)
        found: list[tuple[int, int]] = []
        if (item := self._first_due(now)) is not None:
            host = item if isinstance(item, FrontHost) else item.waiting[0] if item.waiting else None
            if host is not None:
                found.append((host.first_order(), host.slot))
        if self._may_admit() and (not found or (self._by_class and self.has_room())):
            slot = self.back.first(others=self.admitting_others)
            found.append((self.hosts.cursor[slot], slot))
        order, slot = min(found, default=(NO_ORDER, NOWHERE))
        return slot, order

    def _first_due(self, now: float) -> FrontHost | Address | None:
        """Return the next ready item of the front, without removing it."""
        if self._by_class:
            self._note_due(now)
            return self._due.first()
        self._skip_stale(self._heap)
        return self._heap[0][2] if self._heap and self._heap[0][0] <= now else None

    def _note_due(self, now: float) -> None:
        """Move ready items from the heap to `DueFront`, which orders hosts by class."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            plan = heapq.heappop(heap)
            if self._is_valid(plan):
                self._due.add(_class_of(plan[2]), plan)
        if len(self._due) > 4 * len(self.front) + 64:
            self._due.sweep()

    def _pop_due(self, now: float) -> FrontHost | None:
        """Remove and return the next ready host by class; None if there is none."""
        self._note_due(now)
        while (plan := self._due.pop()) is not None:
            if (host := self._started(plan)) is not None:
                return host
        return None

    def _pop_heap(self, now: float) -> FrontHost | None:
        if self._by_class:
            return self._pop_due(now)
        heap = self._heap
        while heap and heap[0][0] <= now:
            if (host := self._started(heapq.heappop(heap))) is not None:
                return host
        return None

    @staticmethod
    def _started(plan: Plan) -> FrontHost | None:
        """Return the host of a plan and end the plan; None if the plan is stale or no host waits at its address."""
        instant, tick, item = plan
        if isinstance(item, FrontHost):
            if item.tick == tick:
                item.tick = NO_PLAN
                item.called_by = None
                return item
        elif item.event == instant:
            item.event = 0.0
            if item.waiting:
                host = item.waiting.popleft()
                host.waiting = False
                host.called_by = item
                return host
        return None

    def _admit(self, now: float) -> bool:
        """Admit one host from the back queue; return False if none can enter."""
        while self._may_admit():
            if not self.has_room() and not self._make_room(now):
                return False
            slot = self.back.popleft(others=self.admitting_others)
            host = self._load(slot)
            if host is not None:
                self.enter(host)
                self.wake(host, self.hosts.ready[slot])
                return True
        return False

    def _admit_better(self, now: float) -> None:
        """Admit one host from the back queue if there is room and this host has a better class than every due host."""
        if not (self.has_room() and self._may_admit()):
            return
        self._note_due(now)
        due, slot = self._due.first(), self.back.first(others=self.admitting_others)
        if due is not None and class_in_order(self.hosts.cursor[slot]) < _class_of(due):
            self._admit(now)

    def _make_room(self, now: float) -> bool:
        """Remove an eighth of the front: idle hosts first, then the hosts with the longest waits."""
        if now < self._look_at:
            return False
        movable = [host for host in self.front.values() if host.may_leave() and self._is_waiting(host, now)]
        if not movable:
            self._look_at = now + LOOK_AGAIN
        movable.sort(key=lambda host: (host.tick != NO_PLAN, -host.wake))
        for host in movable[: max(1, self._front_max // 8)]:
            idle = self.hosts.todo[host.slot] == 0
            if not idle and host.wake > self.hosts.ready[host.slot]:
                self.hosts.ready[host.slot] = host.wake
            self.leave(host, now, idle=idle)
        return bool(movable)

    def _is_waiting(self, host: FrontHost, now: float) -> bool:
        if host.tick == NO_PLAN:
            return self.hosts.todo[host.slot] == 0
        return host.wake > max(now, min(self.hosts.ready[host.slot], now + self._stay))

    def _skip_stale(self, heap: list[Plan]) -> None:
        while heap and not self._is_valid(heap[0]):
            heapq.heappop(heap)

    def _sweep(self) -> None:
        self._heap = [item for item in self._heap if self._is_valid(item)]
        self._chosen = [item for item in self._chosen if self._is_valid(item)]
        heapq.heapify(self._heap)
        heapq.heapify(self._chosen)

    @staticmethod
    def _is_valid(entry: Plan) -> bool:
        instant, tick, item = entry
        if isinstance(item, FrontHost):
            return item.tick == tick
        return item.event == instant

    def _check(self) -> None:
        """Assert that each host is in exactly the structure that its `place` names."""
        hosts = self.hosts
        back, calendar = list(self.back), list(self.calendar)
        self.back._check()
        assert len(back) == len(self.back) and len(calendar) == len(self.calendar)
        for place, slots in (
            (HostState.BACK, back),
            (HostState.CALENDAR, calendar),
            (HostState.FRONT, list(self.front)),
        ):
            assert len(set(slots)) == len(slots)
            assert {slot for slot in range(len(hosts)) if hosts.place[slot] == place} == set(slots), place
        assert len(self.front) <= self._front_max
        planned = {
            id(item)
            for _, tick, item in (*self._heap, *self._chosen, *self._due)
            if isinstance(item, FrontHost) and item.tick == tick
        }
        for host in self.front.values():
            assert (id(host) in planned) == (host.tick != NO_PLAN), host
            assert not (host.held and host.tick != NO_PLAN), host


def _class_of(item: FrontHost | Address) -> int:
    """Return the class of the first URL of a host, or of the first host that waits at an address."""
    if isinstance(item, FrontHost):
        return class_in_order(item.first_order())
    return class_in_order(item.waiting[0].first_order()) if item.waiting else WORST
