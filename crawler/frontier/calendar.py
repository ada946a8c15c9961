"""Hosts outside the front: the back queue and the calendar, both chained through the host table.

    Chain     first in, first out; 12 bytes for the chain, nothing per host
    Calendar  hosts by the instant from which they are ready: 16 chains a
              second within the next two minutes, one a minute beyond

A calendar of chains needs no heap entry a host. A far bucket that comes due
is sorted into near ones, so every host is touched at most three times. Hosts
come out up to 1/16 s late, never early. At most 2,048 near and, for the
longest wait of a day, 1,350 far buckets exist.
"""

import heapq
from collections.abc import Iterator
from math import ceil, floor

from crawler.frontier.hosts import NOWHERE, HostTable

TICKS = 16  # near buckets a second
NEAR_SPAN = 128.0  # seconds kept in near buckets
FAR_TICKS = 64 * TICKS  # width of a far bucket


class Chain:
    """A queue of slots, linked through the table's `link` column."""

    __slots__ = ("_hosts", "count", "head", "tail")

    def __init__(self, hosts: HostTable) -> None:
        self._hosts = hosts
        self.head = self.tail = NOWHERE
        self.count = 0

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[int]:
        slot = self.head
        while slot != NOWHERE:
            yield slot
            slot = self._hosts.link[slot]

    def append(self, slot: int) -> None:
        self._hosts.link[slot] = NOWHERE
        if self.tail == NOWHERE:
            self.head = slot
        else:
            self._hosts.link[self.tail] = slot
        self.tail = slot
        self.count += 1

    def popleft(self) -> int:
        slot = self.head
        assert slot != NOWHERE
        self.head = self._hosts.link[slot]
        if self.head == NOWHERE:
            self.tail = NOWHERE
        self.count -= 1
        return slot


class Calendar:
    """Slots by instant, to the second or the minute."""

    def __init__(self, hosts: HostTable) -> None:
        self._hosts = hosts
        self._buckets: dict[int, Chain] = {}
        self._starts: list[int] = []  # heap of the ticks at which buckets come due
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        for chain in self._buckets.values():
            yield from chain

    def add(self, slot: int, instant: float, now: float) -> None:
        """File a slot under its instant."""
        if instant - now < NEAR_SPAN:
            start = ceil(instant * TICKS)
        else:
            start = floor(instant * TICKS) // FAR_TICKS * FAR_TICKS
        chain = self._buckets.get(start)
        if chain is None:
            chain = self._buckets[start] = Chain(self._hosts)
            heapq.heappush(self._starts, start)
        chain.append(slot)
        self._count += 1

    def next_due(self) -> float | None:
        """The earliest instant at which `expire` has something to do; None if the calendar is empty."""
        return self._starts[0] / TICKS if self._starts else None

    def expire(self, now: float) -> Iterator[int]:
        """Take out the slots whose bucket has come due and that are ready."""
        while self._starts and self._starts[0] <= now * TICKS:
            chain = self._buckets.pop(heapq.heappop(self._starts))
            self._count -= len(chain)
            while chain:
                slot = chain.popleft()
                instant = self._hosts.ready[slot]
                if instant <= now:
                    yield slot
                else:
                    self.add(slot, instant, now)
