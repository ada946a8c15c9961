"""Decides which host is next in a crawl with an order of new URLs (`orders/`): the one whose best URL has the best class.

    DueFront           hosts of the front that are ready (and addresses that release a host)
    ClassedBackQueue   ready hosts outside the front, one queue per class

Hosts of the best class go first; within a class, the host that arrived first goes first. A share of the
turns, `first_come`, goes to the host that has waited longest, whatever its class. So if n hosts arrived
earlier, a host waits for at most n / first_come turns, even if better hosts keep arriving.

Taking the next host from the front costs O(log n). In the back queue, the class of the best host is usually
found as the lowest set bit in a mask of classes. The first hosts of all classes are compared only if the turn
goes to the host that has waited longest. A host in the back queue needs 9 bytes more than without an order,
for its predecessor, class and arrival number.
"""

import heapq
from array import array
from collections import deque
from collections.abc import Callable, Iterator

import numpy as np

from crawler.frontier.discovery.entries import class_in_order
from crawler.frontier.hosts.addresses import Address
from crawler.frontier.hosts.front_host import FrontHost
from crawler.frontier.hosts.table import NOWHERE, HostFlag, HostTable
from crawler.orders.classes import WORST

Plan = tuple[float, int, FrontHost | Address]  # (instant, tick, item)
_NUMBERS = 0xFFFF_FFFF  # range of the arrival numbers, which are four-byte counters


class _Share:
    """Decides for each turn whether it goes to the host that has waited longest."""

    __slots__ = ("_credit", "_share")

    def __init__(self, share: float) -> None:
        self._share = share
        self._credit = 0.0

    def spend(self) -> bool:
        """Count one turn; return True if it goes to the host that has waited longest."""
        self._credit += self._share
        if self._credit < 1.0:
            return False
        self._credit -= 1.0
        return True


class DueFront:
    """The plans whose instant has come, as (instant, tick, host or address).

    Each plan is held twice: in a heap ordered by class, and in a line in order of arrival. A plan that was taken
    from one of the two, or is outdated, is stale. `is_valid` returns False for a stale plan.
    """

    def __init__(self, first_come: float, is_valid: Callable[[Plan], bool]) -> None:
        self._share = _Share(first_come)
        self._is_valid = is_valid
        self._best: list[tuple[int, int, Plan]] = []  # heap of (class, tick, plan)
        self._line: deque[Plan] = deque()

    def __len__(self) -> int:
        """Return 0 if no plan is valid, else the number of plans held, including stale ones."""
        self._skip()
        return len(self._best) and max(len(self._best), len(self._line))

    def __iter__(self) -> Iterator[Plan]:
        return (plan for _, _, plan in self._best)

    def add(self, place: int, plan: Plan) -> None:
        """Add a plan that is due; the best URL of its host has the class `place`."""
        heapq.heappush(self._best, (place, plan[1], plan))
        self._line.append(plan)

    def first(self) -> FrontHost | Address | None:
        """Return the item of the best class; None if there is none."""
        self._skip()
        return self._best[0][2][2] if self._best else None

    def pop(self) -> Plan | None:
        """Remove and return the next plan; None if there is none."""
        self._skip()
        if not self._best:
            return None
        if self._share.spend():
            return self._line.popleft()
        return heapq.heappop(self._best)[2]

    def _skip(self) -> None:
        """Drop the stale plans at the head of the heap and at the head of the line."""
        while self._best and not self._is_valid(self._best[0][2]):
            heapq.heappop(self._best)
        while self._line and not self._is_valid(self._line[0]):
            self._line.popleft()

    def sweep(self) -> None:
        """Drop all stale plans."""
        self._best = [item for item in self._best if self._is_valid(item[2])]
        heapq.heapify(self._best)
        self._line = deque(filter(self._is_valid, self._line))


class _Kind:
    """The hosts of one kind (prompt or not), in one chain per class.

    The chains are linked by the table's `link` and by `ClassedBackQueue._before`.
    """

    __slots__ = ("count", "heads", "mask", "tails")

    def __init__(self) -> None:
        self.heads = [NOWHERE] * (WORST + 1)
        self.tails = [NOWHERE] * (WORST + 1)
        self.mask = 0  # bit c: class c has a host
        self.count = 0

    @property
    def best(self) -> int:
        """The best class that has a host; WORST + 1 if none has."""
        return (self.mask & -self.mask).bit_length() - 1 if self.mask else WORST + 1


class ClassedBackQueue:
    """The back queue of a crawl that orders new URLs by class. It has the interface of `BackQueue`."""

    def __init__(self, hosts: HostTable, first_come: float) -> None:
        self._hosts = hosts
        self._share = _Share(first_come)
        self._prompt, self._others = _Kind(), _Kind()
        self._arrivals = 0
        self._before = array("i")  # for each host slot: the slot before it in its chain
        self._class = array("B")  # for each host slot: the class of its chain
        self._number = array("I")  # the arrival number

    def __len__(self) -> int:
        return self._prompt.count + self._others.count

    def __iter__(self) -> Iterator[int]:
        for kind in (self._prompt, self._others):
            for slot in kind.heads:
                while slot != NOWHERE:
                    yield slot
                    slot = self._hosts.link[slot]

    def holds(self, *, others: bool) -> bool:
        """Return whether the queue has a prompt host or, if `others`, any host."""
        return bool(self._prompt.count or (others and self._others.count))

    def append(self, slot: int) -> None:
        """Append a host that has become ready."""
        self._make_room(slot)
        self._arrivals = self._arrivals + 1 & _NUMBERS
        self._number[slot] = self._arrivals
        self._enter(slot)

    def extend(self, slots: np.ndarray) -> None:
        """Append many slots."""
        for slot in slots.tolist():
            self.append(slot)

    def improved(self, slot: int) -> None:
        """Move a host to the chain of the class that its first URL now has; keep its arrival number.

        The host goes to the end of that chain.
        """
        if class_in_order(self._hosts.cursor[slot]) != self._class[slot]:
            self._remove(slot)
            self._enter(slot)

    def first(self, *, others: bool) -> int:
        """Return the first slot of the best class; the queue must not be empty."""
        kind = self._best(others)
        return kind.heads[kind.best]

    def popleft(self, *, others: bool) -> int:
        """Remove and return the slot whose turn it is; the queue must not be empty."""
        if self._share.spend():
            slot = self._oldest(others)
        else:
            slot = self.first(others=others)
        self._remove(slot)
        return slot

    def _best(self, others: bool) -> _Kind:
        """Return the kind of hosts (prompt or others) with the better class.

        If the classes are equal, return the kind whose first host has waited longer.
        """
        prompt, rest = self._prompt, self._others
        if not (others and rest.count):
            return prompt
        if prompt.best != rest.best:
            return prompt if prompt.best < rest.best else rest
        place = prompt.best
        return prompt if self._waited(prompt.heads[place]) > self._waited(rest.heads[place]) else rest

    def _oldest(self, others: bool) -> int:
        """Return the slot that has waited longest among the heads of the chains.

        Hosts that changed their class are overlooked unless they are heads.
        """
        kinds = (self._prompt, self._others) if others else (self._prompt,)
        heads = (slot for kind in kinds for slot in kind.heads if slot != NOWHERE)
        return max(heads, key=self._waited)

    def _waited(self, slot: int) -> int:
        return self._arrivals - self._number[slot] & _NUMBERS

    def _kind(self, slot: int) -> _Kind:
        return self._prompt if self._hosts.flags[slot] & HostFlag.PROMPT else self._others

    def _make_room(self, slot: int) -> None:
        """Extend the columns so that they include the slot."""
        missing = slot + 1 - len(self._class)
        if missing > 0:
            missing += len(self._class) >> 3
            for column in (self._before, self._class, self._number):
                column.frombytes(bytes(column.itemsize * missing))

    def _enter(self, slot: int) -> None:
        kind, place = self._kind(slot), class_in_order(self._hosts.cursor[slot])
        last = kind.tails[place]
        self._class[slot] = place
        self._before[slot] = last
        self._hosts.link[slot] = NOWHERE
        if last == NOWHERE:
            kind.heads[place] = slot
            kind.mask |= 1 << place
        else:
            self._hosts.link[last] = slot
        kind.tails[place] = slot
        kind.count += 1

    def _remove(self, slot: int) -> None:
        kind, place = self._kind(slot), self._class[slot]
        before, after = self._before[slot], self._hosts.link[slot]
        if before == NOWHERE:
            kind.heads[place] = after
        else:
            self._hosts.link[before] = after
        if after == NOWHERE:
            kind.tails[place] = before
        else:
            self._before[after] = before
        if kind.heads[place] == NOWHERE:
            kind.mask &= ~(1 << place)
        kind.count -= 1

    def _check(self) -> None:
        for kind in (self._prompt, self._others):
            found = 0
            for place, slot in enumerate(kind.heads):
                assert (slot != NOWHERE) == bool(kind.mask >> place & 1)
                before = NOWHERE
                while slot != NOWHERE:
                    assert self._before[slot] == before and self._class[slot] == place
                    assert self._kind(slot) is kind
                    assert class_in_order(self._hosts.cursor[slot]) == place, slot
                    before, slot, found = slot, self._hosts.link[slot], found + 1
                assert kind.tails[place] == before
            assert found == kind.count
