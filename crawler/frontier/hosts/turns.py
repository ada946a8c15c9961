"""Turns of hosts by the class of their best URL, under an order (`orders/`).

    DueFront      hosts of the front whose instant has come (and addresses that call one)
    ClassedBackQueue   ready hosts outside the front, a queue a class

The best class goes first, and within it who came first. The part `first_come` of the turns
goes to who has waited longest whatever its class: so a host waits at most 1 / first_come
times as many turns as hosts came before it, however good those that come later are.

Taking the next one costs O(log n) in the front. In the back it costs a look at the least bit of a
mask of classes; every fifth, by waiting, a look at the heads of all classes. A host of the back
has 9 bytes more than without an order: neighbour, class and number of its arrival.
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
_NUMBERS = 0xFFFF_FFFF  # of arrivals, which are counted in four bytes


class _Share:
    """Says of each turn whether it goes by waiting alone."""

    __slots__ = ("_credit", "_share")

    def __init__(self, share: float) -> None:
        self._share = share
        self._credit = 0.0

    def spend(self) -> bool:
        """One turn; True if it is the longest waiter's."""
        self._credit += self._share
        if self._credit < 1.0:
            return False
        self._credit -= 1.0
        return True


class DueFront:
    """Plans that are due. `is_valid` tells whether a plan still counts; each stands here twice."""

    def __init__(self, first_come: float, is_valid: Callable[[Plan], bool]) -> None:
        self._share = _Share(first_come)
        self._is_valid = is_valid
        self._best: list[tuple[int, int, Plan]] = []  # heap of (class, tick, plan)
        self._line: deque[Plan] = deque()

    def __len__(self) -> int:
        """Plans held, those that do not count any more among them; 0 if none counts."""
        self._skip()
        return len(self._best) and max(len(self._best), len(self._line))

    def __iter__(self) -> Iterator[Plan]:
        return (plan for _, _, plan in self._best)

    def add(self, place: int, plan: Plan) -> None:
        """A plan of an item with a URL of class `place` has come due."""
        heapq.heappush(self._best, (place, plan[1], plan))
        self._line.append(plan)

    def first(self) -> FrontHost | Address | None:
        """The item of the best class; None if there is none."""
        self._skip()
        return self._best[0][2][2] if self._best else None

    def pop(self) -> Plan | None:
        """The plan whose turn it is; None if there is none."""
        self._skip()
        if not self._best:
            return None
        if self._share.spend():
            return self._line.popleft()
        return heapq.heappop(self._best)[2]

    def _skip(self) -> None:
        """Drop the plans at both fronts that do not count any more."""
        while self._best and not self._is_valid(self._best[0][2]):
            heapq.heappop(self._best)
        while self._line and not self._is_valid(self._line[0]):
            self._line.popleft()

    def sweep(self) -> None:
        """Drop all plans that do not count any more."""
        self._best = [item for item in self._best if self._is_valid(item[2])]
        heapq.heapify(self._best)
        self._line = deque(filter(self._is_valid, self._line))


class _Kind:
    """The hosts of one kind: a chain a class, through the table's `link` and `ClassedBackQueue.before`."""

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
    """The back queue under an order; the interface is that of `BackQueue`."""

    def __init__(self, hosts: HostTable, first_come: float) -> None:
        self._hosts = hosts
        self._share = _Share(first_come)
        self._prompt, self._others = _Kind(), _Kind()
        self._arrivals = 0
        self._before = array("i")  # by slot: the one before it in its chain,
        self._class = array("B")  # the class whose chain it is in,
        self._number = array("I")  # the number of its arrival

    def __len__(self) -> int:
        return self._prompt.count + self._others.count

    def __iter__(self) -> Iterator[int]:
        for kind in (self._prompt, self._others):
            for slot in kind.heads:
                while slot != NOWHERE:
                    yield slot
                    slot = self._hosts.link[slot]

    def holds(self, *, others: bool) -> bool:
        """Whether there is a prompt host or, if `others` may come in too, any."""
        return bool(self._prompt.count or (others and self._others.count))

    def append(self, slot: int) -> None:
        """A host becomes ready."""
        self._make_room(slot)
        self._arrivals = self._arrivals + 1 & _NUMBERS
        self._number[slot] = self._arrivals
        self._enter(slot)

    def extend(self, slots: np.ndarray) -> None:
        """Append many slots."""
        for slot in slots.tolist():
            self.append(slot)

    def improved(self, slot: int) -> None:
        """The host's first URL has become a better one: it changes chains and keeps its number.

        Within the better class it goes behind those that are there.
        """
        if class_in_order(self._hosts.cursor[slot]) != self._class[slot]:
            self._remove(slot)
            self._enter(slot)

    def first(self, *, others: bool) -> int:
        """The slot of the best class; there must be one."""
        kind = self._best(others)
        return kind.heads[kind.best]

    def popleft(self, *, others: bool) -> int:
        """The slot whose turn it is; there must be one."""
        if self._share.spend():
            slot = self._oldest(others)
        else:
            slot = self.first(others=others)
        self._remove(slot)
        return slot

    def _best(self, others: bool) -> _Kind:
        """The kind that has the best class; of two that do, the one whose first host has waited longer."""
        prompt, rest = self._prompt, self._others
        if not (others and rest.count):
            return prompt
        if prompt.best != rest.best:
            return prompt if prompt.best < rest.best else rest
        place = prompt.best
        return prompt if self._waited(prompt.heads[place]) > self._waited(rest.heads[place]) else rest

    def _oldest(self, others: bool) -> int:
        """The slot that has waited longest: the head of its class, but for those that have changed classes."""
        kinds = (self._prompt, self._others) if others else (self._prompt,)
        heads = (slot for kind in kinds for slot in kind.heads if slot != NOWHERE)
        return max(heads, key=self._waited)

    def _waited(self, slot: int) -> int:
        """Arrivals since its own."""
        return self._arrivals - self._number[slot] & _NUMBERS

    def _kind(self, slot: int) -> _Kind:
        return self._prompt if self._hosts.flags[slot] & HostFlag.PROMPT else self._others

    def _make_room(self, slot: int) -> None:
        """Let the columns reach to the slot."""
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
