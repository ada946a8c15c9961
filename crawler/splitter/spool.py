"""The durable queue of links for one peer: entries, numbers and epochs.

Entries are stored under consecutive numbers. On the wire, an entry has a *sequence number*, which is its
number minus `base`. An *epoch* is one numbering of a queue. In a fresh epoch, the first unconfirmed entry has
the sequence number 1 again. To begin a fresh epoch, only a new `base` is stored; the stored entries stay
unchanged:

    o/<peer> 0 <generation, 4> <number, 8>   entry (`wire.encode_entries`)
    m/outbox/<peer>                          SpoolState

    number  ... acked | acked+1 ... sent | sent+1 ... committed | ... staged
            deleted     in flight          waiting                being committed

An entry is deleted from the store after the peer has confirmed that it holds the entry durably. `acked` is
the number of the last entry that was confirmed. The delete and the new `acked` are part of the next commit
group. `acked` is stored, so even an empty queue keeps its position.

`splitter/README.md`, "Protocol", says when a queue gets a fresh epoch, and how both ends find out that the
peer has lost links that it had confirmed (`Confirmed.applied`). Until a fresh epoch is durable, the queue
holds it in the field `wanted`, and the peer is not dialled.

Threads: `stage` runs in the writer thread and owns the fields that it sets. All other code of this module
runs in the loop thread. In memory, the queue holds at most `window_bytes` of entries for a connected peer,
and none for any other peer.
"""

from collections import deque
from collections.abc import Iterator, Sequence
from enum import StrEnum
from typing import Annotated, NamedTuple

import msgspec
from msgspec import Meta

from crawler.errors import DamageError
from crawler.records import Link
from crawler.splitter.wire import ProtocolError, chained, decode_entry, link_count
from crawler.storage.keys import OUTBOX, OUTBOX_STATE
from crawler.storage.kv import Batch, KeyValue, scan_prefix, unseal
from crawler.storage.reshard import pack

# The number of the first entry. This number leaves room for lower numbers, because compactions count down.
FIRST_NUMBER = 1 << 40
_SWEPT_AT_ONCE = 1_000  # number of keys that a batch of a sweep deletes
APPENDED = 0  # the generation of entries that no compaction has rewritten


class Greeting(StrEnum):
    """The meaning of a peer's Welcome for the queue of this peer."""

    GO_ON = "go on"
    TAIL_LOST = "tail lost"  # the peer has entries of this process that are not in the queue
    BEHIND = "behind"  # the peer has lost entries that it had confirmed
    STALE = "stale"  # the queue was renumbered after the Hello


class Confirmed(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The number of the last entry that the peer has made durable, and totals of all that it has ever confirmed.

    `applied` is the peer's own count of the links that it ever received from this process. Links that were
    sent twice count twice.
    """

    number: int = FIRST_NUMBER - 1
    links: int = 0
    entries: int = 0
    bytes: int = 0
    chain: int = 0  # the checksum of the epoch's entries up to `number`
    applied: int = 0


class SpoolState(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The value of `m/outbox/<peer>`.

    Entries up to `boundary` belong to `generation`, and later entries to generation 0. `repeated` counts the
    repeated links that compactions dropped.
    """

    epoch: Annotated[bytes, Meta(min_length=8, max_length=8)]
    base: int = FIRST_NUMBER - 1
    confirmed: Confirmed = Confirmed()
    boundary: int = 0
    generation: int = APPENDED
    repeated: int = 0

    @property
    def acked(self) -> int:
        return self.confirmed.number

    def generation_of(self, number: int) -> int:
        return self.generation if number <= self.boundary else APPENDED

    def renumbered(self, epoch: bytes) -> "SpoolState":
        """Return the state of the same queue, numbered from 1 under a fresh epoch."""
        confirmed = msgspec.structs.replace(self.confirmed, chain=0)
        return msgspec.structs.replace(self, epoch=epoch, base=self.acked, confirmed=confirmed)


class _Sent(NamedTuple):
    """An entry in flight: its size in bytes, its number of links, and the checksum of the epoch up to this entry."""

    bytes: int
    links: int
    chain: int


class Totals(msgspec.Struct, gc=False):
    """Sums over the queues of a process, updated at every change.

    `wanting` is the number of queues that wait for a fresh epoch.

    Every message to a peer contains these sums, so reading them must not require a loop over all queues.
    """

    bytes: int = 0
    links: int = 0
    appended: int = 0
    wanting: int = 0


class _Change(msgspec.Struct, gc=False):
    """A state that takes effect once it is durable.

    `bytes_saved` is the number of bytes by which a compaction shrinks the queue, and 0 for any other change.
    """

    state: SpoolState
    bytes_saved: int = 0


class _Group(msgspec.Struct, gc=False):
    """The changes that one commit makes to the queue."""

    entries: Sequence[tuple[bytes, int]]
    change: _Change | None


def confirmed_before(peer: str, epoch: bytes, links: int) -> tuple[bytes, bytes]:
    """Return the key and the value that describe the queue for `peer` in a new store.

    A reshard has put `links` links into the store of the peer, as if this queue had sent them.
    """
    state = SpoolState(epoch, confirmed=Confirmed(applied=links))
    return state_key(peer), pack(state)


def state_key(peer: str) -> bytes:
    return OUTBOX_STATE + peer.encode()


def entries_prefix(peer: str) -> bytes:
    return OUTBOX + peer.encode() + b"\x00"


def entry_key(peer: str, generation: int, number: int) -> bytes:
    return entries_prefix(peer) + generation.to_bytes(4, "big") + number.to_bytes(8, "big")


def split_entry_key(key: bytes) -> tuple[int, int]:
    """Return the generation and the number that an entry's key contains."""
    return int.from_bytes(key[-12:-8], "big"), int.from_bytes(key[-8:], "big")


class Spool:
    """The queue of one peer. `bytes` and `links` count what is committed but not confirmed."""

    def __init__(
        self,
        store: KeyValue,
        peer: str,
        state: SpoolState,
        *,
        window_bytes: int,
        totals: Totals | None = None,
    ) -> None:
        self.peer = peer
        self.state = state  # the state that is durable and in use
        # the change that is not durable yet; set by `_want`, cleared by `_adopt`
        self.wanted: _Change | None = None
        # the boot id of the peer when it last confirmed entries
        self.peer_boot = b""
        self.connected = False
        self.compacted_bytes = 0  # the size of the queue after the last compaction
        self.bytes = 0
        self.links = 0
        self._totals = totals or Totals()
        self._store = store
        self._window_bytes = window_bytes
        self.confirmed = state.confirmed  # never modified but replaced, because the writer thread reads it
        self.committed = state.acked
        self._load()
        self.appended = state.confirmed.links + state.repeated + self.links  # number of links ever appended
        self._totals.appended += self.appended
        self.sent = state.acked
        self._in_flight: deque[_Sent] = deque()  # acked+1 .. sent
        self.in_flight_bytes = 0
        self._recent: deque[bytes] = deque()  # the entries from sent+1 on, as many as fit into the window
        self._recent_bytes = 0
        self._groups: deque[_Group] = deque()  # staged groups that are not yet known to be committed
        self._staged = self.committed  # writer thread
        self._written = state  # used in the writer thread: the state in the last staged group

    def _load(self) -> None:
        """Count the stored entries, delete entries that no state refers to, and detect missing entries."""
        swept, count = [], 0
        for key, value in scan_prefix(self._store, entries_prefix(self.peer)):
            generation, number = split_entry_key(key)
            if number <= self.acked or generation != self.state.generation_of(number):
                swept.append(key)
                continue
            count += 1
            self._add(len(value), link_count(value))
            self.committed = max(self.committed, number)
        if count != self.committed - self.acked:
            raise DamageError(f"store: outbox entries for {self.peer!r} are missing; run `crawler check`")
        sweep(self._store, iter(swept))

    def _add(self, bytes_: int, links: int) -> None:
        """Add to the counts of the queue.

        The values are negative for entries that have left the queue.
        """
        self.bytes += bytes_
        self.links += links
        self._totals.bytes += bytes_
        self._totals.links += links

    @property
    def acked(self) -> int:
        """The last number that the peer has confirmed."""
        return self.confirmed.number

    @property
    def ready(self) -> bool:
        """True if the epoch in use is durable and no fresh epoch is wanted.

        Only then may the peer be dialled.
        """
        return self.wanted is None

    # -- the commit phases ------------------------------------------------------------------------

    def stage(self, batch: Batch, entries: Sequence[tuple[bytes, int]]) -> bool:
        """Put new entries, delete confirmed ones, and write the state if it has changed (writer thread).

        Return whether there was anything to write. If there was, `apply_group` must follow the commit.
        """
        change, confirmed = self.wanted, self.confirmed
        previous = self._written
        if not entries and change is None and confirmed.number <= previous.acked:
            return False
        if change is not None and change.state.epoch != previous.epoch:
            state = change.state
        else:
            # Keep the newer confirmation. `previous.confirmed` may come from a change that is not committed
            # yet.
            change = None
            latest = max(previous.confirmed, confirmed, key=lambda each: each.number)
            state = msgspec.structs.replace(previous, confirmed=latest)
        if state == previous and not entries:
            return False
        for number in range(previous.acked + 1, confirmed.number + 1):
            batch.delete(entry_key(self.peer, previous.generation_of(number), number))
        for entry, _ in entries:
            self._staged += 1
            batch.put(entry_key(self.peer, APPENDED, self._staged), entry)
        if state != previous:
            batch.put(state_key(self.peer), pack(state))
            self._written = state
        self._groups.append(_Group(entries, change))
        return True

    def apply_group(self) -> None:
        """Apply the oldest staged group, which is now durable (loop thread)."""
        group = self._groups.popleft()
        if group.change is not None:
            self._adopt(group.change)
        for entry, links in group.entries:
            self._append(entry, links)

    def _adopt(self, change: _Change) -> None:
        assert not self.connected, self
        dropped = change.state.repeated - self.state.repeated
        self.state = change.state
        self.confirmed = change.state.confirmed
        self.sent = change.state.acked
        self._add(-change.bytes_saved, -dropped)
        self.wanted = None
        self._totals.wanting -= 1

    def _append(self, entry: bytes, links: int) -> None:
        no_gap = self.sent + len(self._recent) == self.committed
        if self.connected and no_gap and self._recent_bytes + len(entry) <= self._window_bytes:
            self._recent.append(entry)
            self._recent_bytes += len(entry)
        self.committed += 1
        self._add(len(entry), links)
        self.appended += links
        self._totals.appended += links

    # -- the connection ---------------------------------------------------------------------------

    def missing(self, applied: int) -> int:
        """Return the number of links that the peer had confirmed but lacks now; `applied` is its own count of links."""
        return max(0, self.confirmed.applied - applied)

    def greet(self, epoch: bytes, durable: int, chain: int, applied: int) -> Greeting:
        """Compare the queue with the peer's Welcome.

        If they agree, continue after the entry with the sequence number `durable`.

        The queue and the Welcome agree if `epoch` is the queue's epoch and `chain` is the checksum of the
        queue's entries up to `durable`. `applied` is the peer's count of the links that it ever received from
        this process. Returns whether they agree and, if not, why.
        """
        if not self.ready or epoch != self.state.epoch:
            return Greeting.STALE
        number = self.state.base + durable
        if number < self.acked or self.missing(applied):
            return Greeting.BEHIND
        if number > self.committed:
            return Greeting.TAIL_LOST
        if self._chain_at(number) != chain:
            return Greeting.TAIL_LOST
        self.disconnect()
        self._retire(number)
        self.confirmed = msgspec.structs.replace(self.confirmed, applied=applied)
        self.sent = number
        self.connected = True
        return Greeting.GO_ON

    def _chain_at(self, number: int) -> int:
        """Return the checksum of the epoch's entries up to the entry `number`."""
        chain = self.confirmed.chain
        for entry in range(self.acked + 1, number + 1):
            chain = chained(chain, self._read(entry))
        return chain

    def disconnect(self) -> None:
        """Stop using the connection. Entries in flight must be sent again."""
        self.connected = False
        self._rewind(self.acked)

    def renumber(self, epoch: bytes) -> None:
        """Request a fresh epoch. Once the epoch is durable, the waiting entries are numbered from 1."""
        assert not self.connected, self
        if self.wanted is None:
            state = msgspec.structs.replace(self.state, confirmed=self.confirmed)
            self._want(_Change(state.renumbered(epoch)))

    def start_over(self, epoch: bytes) -> None:
        """Request a fresh epoch, and forget what the peer has confirmed.

        Call this after the links that the peer lost were queued again.
        """
        assert self.wanted is None, self
        self.confirmed = msgspec.structs.replace(self.confirmed, applied=0)
        self.renumber(epoch)

    def replace(self, state: SpoolState, acked: int, bytes_saved: int) -> bool:
        """Let the next commit store `state`, which a compaction has prepared.

        The compaction began when the last confirmed number was `acked`. Returns False if the queue has
        changed since then, so that the state no longer fits.
        """
        if self.connected or self.wanted is not None or self.acked != acked:
            return False
        self._want(_Change(state, bytes_saved))
        return True

    def _want(self, change: _Change) -> None:
        self.wanted = change
        self._totals.wanting += 1

    def take_unsent(self, bytes_max: int = 1 << 62) -> tuple[int, list[bytes]]:
        """Return (first sequence number, waiting entries that fit into the window). The entries are then in flight.

        At most `bytes_max` bytes are returned, or a single entry if that is larger.

        Raises:
            DamageError: a stored entry is damaged.
        """
        first, taken_bytes = self.sent + 1 - self.state.base, 0
        taken: list[bytes] = []
        while self.connected and self.sent < self.committed:
            entry = self._recent[0] if self._recent else self._read(self.sent + 1)
            taken_bytes += len(entry)
            if taken and taken_bytes > bytes_max:
                break
            if self.in_flight_bytes and self.in_flight_bytes + len(entry) > self._window_bytes:
                break
            if self._recent:
                self._recent_bytes -= len(self._recent.popleft())
            taken.append(entry)
            self.sent += 1
            before = self._in_flight[-1].chain if self._in_flight else self.confirmed.chain
            self._in_flight.append(_Sent(len(entry), link_count(entry), chained(before, entry)))
            self.in_flight_bytes += len(entry)
        return first, taken

    def acknowledge(self, durable: int) -> None:
        """Record that all entries up to sequence number `durable` are durable at the peer.

        Raises:
            ProtocolError: an entry with this number was never sent.
        """
        number = self.state.base + durable
        if number > self.sent:
            raise ProtocolError(f"splitter: {self.peer} confirms entry {durable}, which was never sent")
        self._retire(number)

    def resync(self, accepted: int) -> None:
        """Let all entries after sequence number `accepted` be sent again, because the peer requests it.

        Raises:
            ProtocolError: that entry was deleted or never sent.
        """
        number = self.state.base + accepted
        if not self.acked <= number <= self.sent:
            raise ProtocolError(
                f"splitter: {self.peer} requests the entry after {accepted}, which is not in the queue"
            )
        self._rewind(number)

    def _retire(self, number: int) -> None:
        done = self.confirmed
        acked, all_links, all_bytes, chain = done.number, done.links, done.bytes, done.chain
        while acked < number:
            acked += 1
            if self._in_flight:
                size, links, chain = self._in_flight.popleft()
                self.in_flight_bytes -= size
            else:
                entry = self._read(acked)
                size, links, chain = len(entry), link_count(entry), chained(chain, entry)
            self._add(-size, -links)
            all_links += links
            all_bytes += size
        applied = done.applied + all_links - done.links
        self.confirmed = Confirmed(
            acked, all_links, done.entries + acked - done.number, all_bytes, chain, applied
        )

    def _rewind(self, number: int) -> None:
        self._recent.clear()
        self._recent_bytes = 0
        while self.sent > number and self._in_flight:
            self.in_flight_bytes -= self._in_flight.pop().bytes
            self.sent -= 1
        self.sent = number

    def _read(self, number: int) -> bytes:
        key = entry_key(self.peer, self.state.generation_of(number), number)
        entry = self._store.get(key)
        if entry is None:
            raise DamageError(f"store: outbox entry {key!r} is missing; run `crawler check`")
        unseal(key, entry)
        return entry

    def waiting(self) -> Iterator[list[Link]]:
        """Yield the links of each committed entry that the peer has not confirmed."""
        number = self.acked + 1
        while number <= self.committed:
            yield decode_entry(self._read(number))
            number = max(number, self.acked) + 1

    def _check(self) -> None:
        """Assert all invariants that hold between calls in the loop thread while no group is being committed."""
        assert self.state.base <= self.acked <= self.sent <= self.committed, self
        assert len(self._in_flight) == self.sent - self.acked, self
        assert self.in_flight_bytes == sum(sent.bytes for sent in self._in_flight), self
        assert not self._in_flight or self._in_flight[-1].chain == self._chain_at(self.sent), self
        assert self._recent_bytes == sum(map(len, self._recent)) <= self._window_bytes, self
        assert self.sent + len(self._recent) <= self.committed, self
        assert self.connected or not (self._in_flight or self._recent), self
        entries = [self._read(number) for number in range(self.acked + 1, self.committed + 1)]
        assert self.bytes == sum(map(len, entries)), self
        assert self.links == sum(map(link_count, entries)), self
        assert self.appended == self.confirmed.links + self.state.repeated + self.links, self

    def __repr__(self) -> str:
        base = self.state.base
        return (
            f"Spool({self.peer}: epoch {self.state.epoch.hex()[:8]}, acked {self.acked - base}, "
            f"sent {self.sent - base}, committed {self.committed - base}, {self.links} links, "
            f"{self.bytes} bytes{'' if self.connected else ', not connected'})"
        )


def sweep(store: KeyValue, keys: Iterator[bytes]) -> None:
    """Delete the unreferenced `keys` in bounded batches.

    The batches are not synced, because a sweep can be repeated.
    """
    while True:
        batch = store.batch(sync=False)
        count = 0
        for key in keys:
            batch.delete(key)
            count += 1
            if count == _SWEPT_AT_ONCE:
                break
        if not count:
            return
        store.write(batch)
