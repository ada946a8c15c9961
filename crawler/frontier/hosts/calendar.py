"""Hosts outside the front, chained through the host table: queues (`Chain`) and the calendar.

    Chain     first in, first out; 12 bytes for the chain, nothing per host
    Calendar  hosts by the instant from which they are ready: 16 chains a
              second within the next two minutes, one a minute beyond

A calendar of chains needs no heap entry a host. A far bucket that comes due
is sorted into near ones, so every host is touched at most three times. Hosts
come out up to 1/16 s late, never early. At most 2,048 near and, for the
longest wait of a day, 1,350 far buckets exist.

Many slots at once (on opening: all hosts) are chained by whole-column work.
"""

import heapq
from collections.abc import Iterator
from math import ceil, floor

import numpy as np

from crawler.frontier.hosts.table import NOWHERE, HostTable

TICKS = 16  # near buckets a second
NEAR_SPAN = 128.0  # seconds kept in near buckets
FAR_TICKS = 64 * TICKS  # width of a far bucket
EXPIRE_MAX = 4096  # slots one call of `expire` looks at: about 4 ms, though a million may come due at once


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
        """Append many slots, at least one."""
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
        self._bucket(start).append(slot)
        self._count += 1

    def add_many(self, slots: np.ndarray, now: float) -> None:
        """File slots under their ready instants."""
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
        """The earliest instant at which `expire` has something to do; None if the calendar is empty."""
        return self._starts[0] / TICKS if self._starts else None

    def expire(self, now: float, slots_max: int = EXPIRE_MAX) -> Iterator[int]:
        """Take out the slots whose bucket has come due and that are ready; `slots_max` at most are looked at."""
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
