"""The plans of the front: when its hosts, and the addresses at which hosts wait, have their next turn.

* The heap holds (instant, tick, host) for front hosts that wait for their ready time. An entry is valid only
  while its tick equals the tick of the host. Other entries belong to an earlier plan and are skipped.
* There is a separate heap for hosts that had a known page to fetch when they were entered. The reason is that
  the frontier, and not the workbench, divides the fetches between new and known pages.
* A ready host whose address is not ready joins the address's queue. The heap then holds the address instead of
  the host.
* If the crawl has an order of new URLs (`orders/`), ready hosts move from the heap to `due` (`turns.py`), which
  orders them by the class of their best URL. Hosts that wait for an address are served in order of arrival.
"""

import heapq
import math
from collections.abc import Iterator, Sized

from crawler.frontier.discovery.entries import class_in_order
from crawler.frontier.hosts.addresses import Address, Addresses
from crawler.frontier.hosts.front_host import NO_PLAN, FrontHost
from crawler.frontier.hosts.turns import DueFront, Plan
from crawler.orders.classes import WORST


class Plans:
    """The plans of the hosts in `front`. `first_come` is explained in `Workbench`.

    `heap` and `chosen` are the two heaps; `chosen` has the hosts with a known page to fetch. `due` holds the
    ready hosts by class. It stays empty if the crawl has no order of new URLs (`by_class`).
    """

    def __init__(self, addresses: Addresses, front: Sized, first_come: float) -> None:
        self._addresses, self._front = addresses, front
        self.by_class = first_come < 1.0
        self.due = DueFront(first_come, is_valid)
        self.heap: list[Plan] = []
        self.chosen: list[Plan] = []
        self._tick = 0

    def __iter__(self) -> Iterator[Plan]:
        yield from (*self.heap, *self.chosen, *self.due)

    def wake(self, host: FrontHost, instant: float) -> None:
        """Plan a turn of the host from `instant` on, replacing any earlier plan."""
        assert not host.held, host
        self._tick += 1
        host.tick, host.wake = self._tick, instant
        heapq.heappush(self.heap if host.refetch is None else self.chosen, (instant, self._tick, host))
        if len(self.heap) + len(self.chosen) > 4 * len(self._front) + 64:
            self._sweep()

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
            heapq.heappush(self.heap, (instant, self._tick, address))

    def release(self, address: Address, ended: float, now: float) -> None:
        """Free the request slot of a request that ended at `ended`, and plan the address's next host."""
        self._addresses.release(address, ended)
        self.call_next(address, now)

    def has_ready(self, now: float) -> bool:
        """Return False if it is certain that no host of the front is ready, not even one that waits for its address."""
        return bool(self.heap and self.heap[0][0] <= now) or (self.by_class and bool(self.due))

    def waits_for(self) -> str:
        """Return what the next request waits for: "address" if the gap of an address ends first, else "host"."""
        return (
            "address"
            if next_instant(self.heap) < math.inf and isinstance(self.heap[0][2], Address)
            else "host"
        )

    def first(self, now: float) -> FrontHost | Address | None:
        """Return the next ready item of the front, without removing it."""
        if self.by_class:
            self.note_due(now)
            return self.due.first()
        return self.heap[0][2] if next_instant(self.heap) <= now else None

    def pop(self, now: float) -> FrontHost | None:
        """Remove and return the next ready host of the front, and end its plan; None if there is none."""
        if self.by_class:
            return self._pop_due(now)
        heap = self.heap
        while heap and heap[0][0] <= now:
            if (host := self._started(heapq.heappop(heap))) is not None:
                return host
        return None

    def note_due(self, now: float) -> None:
        """Move ready items from the heap to `due`, which orders hosts by class."""
        heap = self.heap
        while heap and heap[0][0] <= now:
            plan = heapq.heappop(heap)
            if is_valid(plan):
                self.due.add(class_of(plan[2]), plan)
        if len(self.due) > 4 * len(self._front) + 64:
            self.due.sweep()

    def _pop_due(self, now: float) -> FrontHost | None:
        """Remove and return the next ready host by class; None if there is none."""
        self.note_due(now)
        while (plan := self.due.pop()) is not None:
            if (host := self._started(plan)) is not None:
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

    def pop_chosen(self, now: float) -> FrontHost | None:
        """Remove and return the next ready host that was planned with a known page; None if there is none."""
        while self.chosen and self.chosen[0][0] <= now:
            _, tick, host = heapq.heappop(self.chosen)
            if isinstance(host, FrontHost) and host.tick == tick:
                host.tick = NO_PLAN
                host.called_by = None
                return host
        return None

    def _sweep(self) -> None:
        self.heap = [item for item in self.heap if is_valid(item)]
        self.chosen = [item for item in self.chosen if is_valid(item)]
        heapq.heapify(self.heap)
        heapq.heapify(self.chosen)


def is_valid(plan: Plan) -> bool:
    """Return whether a plan is the latest one of its host or address."""
    instant, tick, item = plan
    if isinstance(item, FrontHost):
        return item.tick == tick
    return item.event == instant


def next_instant(heap: list[Plan]) -> float:
    """Return the earliest instant of the valid plans of a heap; infinite if there is none. Drop stale plans before it."""
    while heap and not is_valid(heap[0]):
        heapq.heappop(heap)
    return heap[0][0] if heap else math.inf


def class_of(item: FrontHost | Address) -> int:
    """Return the class of the first URL of a host, or of the first host that waits at an address."""
    if isinstance(item, FrontHost):
        return class_in_order(item.first_order())
    return class_in_order(item.waiting[0].first_order()) if item.waiting else WORST
