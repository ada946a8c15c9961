"""A host of the front, with the part of its queue that is in memory.

    store:   ... deleted ... | cursor ...................... end of the queue
    memory:                    [ queue and later ] read_to | not read yet

The *order* of an entry is its sort key in the queue. Entries whose order is less than `read_to` are in
memory: in `queue` (a heap by order), in `later` (a heap by the instant of the next try) or in `busy` (held by
a fetch task). While `later` is full, further entries that must wait are skipped, and `recall` reads again
from the first skipped entry. If `read_to` is NO_ORDER, the whole queue is in memory. While the whole queue is
in memory, new URLs are added to memory directly and are never read from the store. An entry in `later`, or an
entry that is given out, may have a greater order than `read_to`. When more of the queue is read, such an
entry is skipped.
"""

import heapq
from collections.abc import Iterator
from math import inf

import msgspec

from crawler.frontier.discovery import entries
from crawler.frontier.discovery.entries import Entry, Todo
from crawler.frontier.hosts.addresses import Address
from crawler.frontier.hosts.table import NO_ORDER
from crawler.storage.keys import TODO
from crawler.storage.kv import KeyValue

NO_PLAN = -1  # the host is in no heap
# maximum number of entries of a host that are skipped to find one to try; each costs 5 us
SKIPPED_MAX = 10_000


class Refetch(msgspec.Struct, frozen=True, gc=False):
    """A known page to be refetched: its number in the schedule, and the fields of its fetch task."""

    page: int
    fingerprint: int
    url: str
    depth: int
    via: int
    redirects: int
    flags: int


class FrontHost:
    """The state of a host of the front; the module docstring describes its queue.

    `held` is True while a fetch task holds the host. `given_out` holds the order numbers of the entries whose
    fetch tasks are not released yet. The store may still hold such an entry after its fetch has ended. `tick`
    marks the host's valid entry in the workbench's heap, and `wake` is the time of this entry. `waiting` is
    True while the host is in an address's queue or waits for a look-up. `called_by` is the address whose
    queue has just released the host. `domain` is the key of the host's registrable domain. `refetch` is a
    known page to fetch before the host's own queue. While the host's fetch task is aside, other tasks may request
    the host from the instant `rests_until` on.
    """

    __slots__ = (
        "address",
        "addresses",
        "busy",
        "called_by",
        "domain",
        "expires",
        "given_out",
        "held",
        "key",
        "later",
        "name",
        "prefix",
        "queue",
        "read_to",
        "refetch",
        "rests_until",
        "served",
        "skipped",
        "skipped_from",
        "skipped_until",
        "slot",
        "tick",
        "waiting",
        "wake",
    )

    def __init__(self, slot: int, key: int, name: str, domain: int, read_to: int) -> None:
        self.slot = slot
        self.key = key
        self.name = name
        self.domain = domain
        self.prefix = TODO + key.to_bytes(8, "big")
        self.queue: list[Entry] = []
        self.later: list[tuple[float, Entry]] = []
        self.skipped = 0  # number of entries skipped
        self.skipped_from, self.skipped_until = NO_ORDER, inf
        self.read_to = read_to
        self.busy: Entry | None = None
        self.refetch: Refetch | None = None
        self.given_out: set[int] = set()
        self.held = False
        self.rests_until = 0.0
        self.waiting = False
        self.addresses: tuple[str, ...] = ()
        self.expires = 0.0
        self.address: Address[FrontHost] | None = None
        self.called_by: Address[FrontHost] | None = None
        self.served = 0
        self.tick = NO_PLAN
        self.wake = 0.0

    def may_leave(self) -> bool:
        """Return whether the front may drop the host's object because all its state is in the store."""
        return not (self.held or self.waiting or self.given_out)

    def address_name(self) -> str:
        """Return the address for the host's requests; "" while none is known."""
        if self.address is not None:
            return self.address.name
        return self.addresses[0] if self.addresses else ""

    def asked_url(self) -> str:
        """Return the URL of the host's fetch task, or of the known page to fetch next; "" if there is neither."""
        if self.busy is not None:
            return entries.join_url(self.name, self.busy[1].tail)
        return "" if self.refetch is None else self.refetch.url

    def push(self, order: int, entry: Todo) -> None:
        """Add an entry that is, or will be, in the store. If its order is `read_to` or more, it stays on disk only."""
        if order < self.read_to:
            heapq.heappush(self.queue, (order, entry))

    def take_first(self) -> Entry:
        """Remove and return the queue's first entry, for a fetch task."""
        self.busy = heapq.heappop(self.queue)
        self.given_out.add(self.busy[0])
        return self.busy

    def postpone(self, until: float, item: Entry) -> None:
        """Keep an entry in `later` until the instant `until`."""
        heapq.heappush(self.later, (until, item))

    def put_off(self, until: float, item: Entry, later_max: int) -> None:
        """Keep an entry in `later`, or skip it if `later` is full."""
        if len(self.later) < later_max:
            return self.postpone(until, item)
        self.skipped += 1
        self.skipped_from = min(self.skipped_from, item[0])
        self.skipped_until = min(self.skipped_until, until)

    def put_off_first(self, until: float, later_max: int) -> None:
        """Like `put_off`, for the queue's first entry."""
        self.put_off(until, heapq.heappop(self.queue), later_max)

    def is_full(self, later_max: int) -> bool:
        """Return whether the queue in memory is full, so that no more entries are read from the store."""
        return len(self.later) >= later_max and self.skipped >= SKIPPED_MAX

    def recall_at(self) -> float:
        """Return the instant from which a waiting entry may be tried; infinity if none waits."""
        return min(self.later[0][0], self.skipped_until) if self.later else self.skipped_until

    def recall(self, now: float) -> None:
        """Move the entries of `later` that may be tried now to the queue; read skipped entries again."""
        if self.skipped_until <= now:
            self.read_to = min(self.read_to, self.skipped_from)
            self.queue = [item for item in self.queue if item[0] < self.read_to]
            heapq.heapify(self.queue)
            self.skipped, self.skipped_from, self.skipped_until = 0, NO_ORDER, inf
        while self.later and self.later[0][0] <= now:
            heapq.heappush(self.queue, heapq.heappop(self.later)[1])

    def read_ahead(
        self, store: KeyValue, count: int, now: float, later_max: int, retry_max: float = inf
    ) -> bool:
        """Read up to `count` more entries from the store; return False if the end was reached.

        An entry whose next try is more than `retry_max` seconds ahead must have been stored before the clock
        was set back, so it is due now.
        """
        known = {item[0] for _, item in self.later} | self.given_out
        for order, entry in entries.read_queue(store, self.prefix, self.read_to):
            self.read_to = order + 1
            if order in known:
                continue
            if now < entry.retry_at <= now + retry_max:
                self.put_off(entry.retry_at, (order, entry), later_max)
            else:
                heapq.heappush(self.queue, (order, entry))
            count -= 1
            if not count:
                return True
        self.read_to = NO_ORDER
        return False

    def spill(self, keep: int) -> None:
        """Keep the first `keep` entries of the queue in memory. Drop all entries behind these, also those in `later`."""
        self.queue.sort()
        self.read_to = min(self.read_to, self.queue[keep][0])
        self.queue = [item for item in self.queue if item[0] < self.read_to]
        self.later = [item for item in self.later if item[1][0] < self.read_to]
        heapq.heapify(self.later)

    def held_in_memory(self) -> int:
        """Return the number of entries in memory."""
        return len(self.queue) + len(self.later) + (self.busy is not None)

    def remove(self, orders: set[int]) -> None:
        """Drop entries from memory."""
        self.queue = [item for item in self.queue if item[0] not in orders]
        self.later = [item for item in self.later if item[1][0] not in orders]
        heapq.heapify(self.queue)
        heapq.heapify(self.later)

    def first_order(self) -> int:
        """Return the order of the first entry to try now, or a lower bound if that entry is not in memory."""
        return self.queue[0][0] if self.queue else self.read_to

    def cursor(self) -> int:
        """Return an order that is not greater than the order of any entry in the host's queue."""
        first = self.read_to
        if self.queue:
            first = min(first, self.queue[0][0])
        if self.busy is not None:
            first = min(first, self.busy[0])
        for _, item in self.later:
            first = min(first, item[0])
        return min(first, self.skipped_from)

    def entries(self) -> Iterator[Entry]:
        """Yield all entries in memory."""
        yield from self.queue
        yield from (item for _, item in self.later)
        if self.busy is not None:
            yield self.busy

    def __repr__(self) -> str:
        state = (
            "held"
            if self.held
            else "waiting"
            if self.waiting
            else "asleep"
            if self.tick == NO_PLAN
            else self.wake
        )
        return f"FrontHost({self.name}, {len(self.queue)}+{len(self.later)} entries, {state})"
