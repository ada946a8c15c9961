"""The workbench: decides which host may be requested next.

Like the workbench of BUbiNG and the back queues of Mercator, it holds a small *front* of hosts as Python objects,
at most 12 times as many (`frontier.front_factor`) as there are fetch slots. All other hosts are numbers in the
host table:

    IDLE ---new URLs---> BACK ---its turn---> FRONT ---nothing left---> IDLE
                          ^  \\____________     |
          ready, in turn  |               \\    | turn over, or its wait is long
                       CALENDAR <----------+---+
    ASIDE: new entries are not committed yet; then BACK or CALENDAR

* The front is filled on demand: a host enters from the back queue only when no front host is ready. When the
  front is full, hosts without work leave first, then the hosts with the longest waits. A host whose gap ends
  within `stay` seconds remains, because its connection stays open that long. Otherwise, a host whose robots.txt
  has just been fetched would go to the end of the back queue before its first page.
* A host leaves after `turn_max` requests if other hosts are in the back queue. At most `waiters_max` hosts of the
  front wait for any one address.
* If the crawl has an order of new URLs (`orders/`), each URL has a class. Then the host whose best URL has the
  best class goes first, both in the front and in the back queue. A share of the turns, `first_come`, goes
  instead to the host that has waited longest (`turns.py`). While the front has room, a host enters it if its
  class is better than those of all ready hosts of the front.
* Ready hosts of the front go first. If the rate or the machine serves only as many hosts as the front holds, a
  host whose turn comes `stay` seconds or more after its ready time goes to the end of the back queue
  (`frontier/README.md`, "Queues and memory"). By then, its connection is closed, so it loses nothing by leaving.
  The first host of the back queue enters.

`front_plans.py` plans the turns of the hosts in the front.
"""

import math
from collections.abc import Callable

import numpy as np

from crawler.frontier.discovery.entries import class_in_order
from crawler.frontier.hosts.addresses import Addresses
from crawler.frontier.hosts.back_queue import BackQueue
from crawler.frontier.hosts.calendar import Calendar
from crawler.frontier.hosts.front_host import NO_PLAN, FrontHost
from crawler.frontier.hosts.front_plans import Plans, class_of, next_instant
from crawler.frontier.hosts.table import NO_ORDER, NOWHERE, HostState, HostTable
from crawler.frontier.hosts.turns import ClassedBackQueue

LOOK_AGAIN = 1.0  # seconds between two scans of the front, each of which takes up to 1 ms
# A host is late if its turn comes more than `stay` seconds after its ready time. A late host leaves the front only
# after this number of fetch tasks: a look-up, robots.txt and the first page.
TURN_MIN = 3


class Workbench:
    """The front with its plans, the back queue and the calendar.

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
        self.front: dict[int, FrontHost] = {}
        self.plans = Plans(addresses, self.front, first_come)
        self.back: BackQueue | ClassedBackQueue = (
            ClassedBackQueue(hosts, first_come) if self.plans.by_class else BackQueue(hosts)
        )
        self.calendar = Calendar(hosts)
        self.admits = front_max  # number of hosts that may enter the front now; set by `look_ups`
        self.admitting_others = True  # whether slow hosts may enter the front, too
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
        if self.plans.has_ready(now):
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
        """Add a host to the front; call `plans.wake` to give it a turn."""
        self.hosts.place[host.slot] = HostState.FRONT
        self.front[host.slot] = host

    def improved(self, slot: int) -> None:
        """Update the position of a ready host that now has a better first URL."""
        if self.hosts.place[slot] == HostState.BACK:
            self.back.improved(slot)
        elif (host := self.front.get(slot)) is not None and host.tick != NO_PLAN:
            self.plans.wake(host, host.wake)

    def sleep(self, host: FrontHost) -> None:
        """Cancel the host's plan: the host has nothing to do, or waits for an event whose time is unknown."""
        self._look_at = 0.0
        host.tick = NO_PLAN

    def makes_room(self, now: float) -> bool:
        """Return whether a host may enter the front, making room by removing others if necessary."""
        return self.has_room() or (self.admits > 0 and self._make_room(now) and self.has_room())

    def pop(self, now: float) -> FrontHost | None:
        """Remove and return the next ready host, and end its plan; None if there is none."""
        self._expire(now)
        plans = self.plans
        if plans.by_class:
            self._admit_better(now)
        host = plans.pop(now)
        if host is not None and self._is_late(host, now):
            self.leave(host, now, idle=self.hosts.todo[host.slot] == 0)
            self._admit(now)
            host = self.plans.pop(now)
        while host is None:
            if not self._admit(now):
                return None
            host = self.plans.pop(now)
        return host

    def next_event(self, now: float) -> float | None:
        """Return the earliest instant at which `pop` may return a host; None if there is none."""
        plans, may_admit = self.plans, self._may_admit()
        if (may_admit and (self.has_room() or now >= self._look_at)) or (plans.by_class and plans.due):
            return now
        first, due = next_instant(plans.heap), self.calendar.next_due()
        if due is not None and due < first:
            first = due
        if may_admit and self._look_at < first:
            first = self._look_at
        return None if first == math.inf else first

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

        If the host is outside the front, its entries are not read, and `order` is only a lower bound for its
        first URL. The result is (NOWHERE, NO_ORDER) if no host is ready. The order is NO_ORDER if the host
        has no URL to try now.
        """
        self._expire(now)
        found: list[tuple[int, int]] = []
        if (item := self.plans.first(now)) is not None:
            host = item if isinstance(item, FrontHost) else item.waiting[0] if item.waiting else None
            if host is not None:
                found.append((host.first_order(), host.slot))
        if self._may_admit() and (not found or (self.plans.by_class and self.has_room())):
            slot = self.back.first(others=self.admitting_others)
            found.append((self.hosts.cursor[slot], slot))
        order, slot = min(found, default=(NO_ORDER, NOWHERE))
        return slot, order

    def _admit(self, now: float) -> bool:
        """Admit one host from the back queue; return False if none can enter."""
        while self._may_admit():
            if not self.has_room() and not self._make_room(now):
                return False
            slot = self.back.popleft(others=self.admitting_others)
            host = self._load(slot)
            if host is not None:
                self.enter(host)
                self.plans.wake(host, self.hosts.ready[slot])
                return True
        return False

    def _admit_better(self, now: float) -> None:
        """Admit one host from the back queue if there is room and this host has a better class than every due host."""
        if not (self.has_room() and self._may_admit()):
            return
        self.plans.note_due(now)
        due, slot = self.plans.due.first(), self.back.first(others=self.admitting_others)
        if due is not None and class_in_order(self.hosts.cursor[slot]) < class_of(due):
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
            id(item) for _, tick, item in self.plans if isinstance(item, FrontHost) and item.tick == tick
        }
        for host in self.front.values():
            assert (id(host) in planned) == (host.tick != NO_PLAN), host
            assert not (host.held and host.tick != NO_PLAN), host
