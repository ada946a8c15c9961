"""Keeps hosts outside the front in queues (`Chain`) and in the calendar.

A column of the host table links the hosts of a queue.

    Chain     first in, first out; 12 bytes per chain, nothing per host
    Calendar  hosts by the instant from which they are ready: 16 chains per
              second for the next two minutes, one per minute after that

A calendar of chains needs no heap entry per host. When a far bucket is due, its hosts are sorted into near
buckets, so every host is touched at most three times. Hosts are released up to 1/16 s late, never early.
There are at most 2,048 near buckets. No host waits longer than a day, so there are at most 1,350 far buckets.

On opening, all hosts are chained at once, by operations on whole columns.
"""

import heapq
from collections.abc import Iterator
from math import ceil, floor

import numpy as np

from crawler.frontier.hosts.table import NOWHERE, HostTable

TICKS = 16  # number of buckets for each second of the near future
NEAR_SPAN = 128.0  # seconds covered by near buckets
FAR_TICKS = 64 * TICKS  # ticks per far bucket
EXPIRE_MAX = 4096  # maximum number of slots that a call of `expire` examines, in about 4 ms


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

    def extend(self, slots: np.ndarray) -> None:
        """Append many slots; `slots` must not be empty."""
        self._hosts.put("link", slots[:-1], slots[1:])
        self._hosts.link[int(slots[-1])] = NOWHERE
        if self.tail == NOWHERE:
            self.head = int(slots[0])
        else:
            self._hosts.link[self.tail] = int(slots[0])
        self.tail = int(slots[-1])
        self.count += len(slots)

    def popleft(self) -> int:
        slot = self.head
        assert slot != NOWHERE
        self.head = self._hosts.link[slot]
        if self.head == NOWHERE:
            self.tail = NOWHERE
        self.count -= 1
        return slot


class Calendar:
    """Slots, sorted by time into near and far buckets."""

    def __init__(self, hosts: HostTable) -> None:
        self._hosts = hosts
        self._buckets: dict[int, Chain] = {}
        self._starts: list[int] = []  # heap of the ticks at which buckets are due
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        for chain in self._buckets.values():
            yield from chain

    def add(self, slot: int, instant: float, now: float) -> None:
        """Add a slot that is due at `instant`."""
        if instant - now < NEAR_SPAN:
            start = ceil(instant * TICKS)
        else:
            start = floor(instant * TICKS) // FAR_TICKS * FAR_TICKS
        self._bucket(start).append(slot)
        self._count += 1

    def add_many(self, slots: np.ndarray, now: float) -> None:
        """Add slots that are due at their ready times."""
        instants = self._hosts.gather("ready", slots)
        far = np.floor(instants * TICKS) // FAR_TICKS * FAR_TICKS
        starts = np.where(instants - now < NEAR_SPAN, np.ceil(instants * TICKS), far).astype(np.int64)
        order = np.argsort(starts, kind="stable")
        first, counts = np.unique(starts[order], return_counts=True)
        pieces = np.split(slots[order], np.cumsum(counts)[:-1])
        for start, piece in zip(first.tolist(), pieces, strict=True):
            if len(piece):
                self._bucket(start).extend(piece)
        self._count += len(slots)

    def _bucket(self, start: int) -> Chain:
        chain = self._buckets.get(start)
        if chain is None:
            chain = self._buckets[start] = Chain(self._hosts)
            heapq.heappush(self._starts, start)
        return chain

    def next_due(self) -> float | None:
        """Return the earliest instant at which `expire` has something to do; None if the calendar is empty."""
        return self._starts[0] / TICKS if self._starts else None

    def expire(self, now: float, slots_max: int = EXPIRE_MAX) -> Iterator[int]:
        """Remove and yield the ready slots of all due buckets, but examine at most `slots_max` slots."""
        while slots_max and self._starts and self._starts[0] <= now * TICKS:
            chain = self._buckets[self._starts[0]]
            while chain and slots_max:
                slots_max -= 1
                slot = chain.popleft()
                self._count -= 1
                instant = self._hosts.ready[slot]
                if instant <= now:
                    yield slot
                else:
                    self.add(slot, instant, now)
            if not chain:
                del self._buckets[heapq.heappop(self._starts)]
