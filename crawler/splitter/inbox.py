"""Receives the links that other processes send. Links are accepted in order, applied once, and confirmed.

For each peer, the store holds four values under the key `i/<peer>`: the epoch of the peer's outbox, the last
durable sequence number, the number of links ever applied, and the checksum of the epoch's entries
(`wire.chained`). `splitter/README.md`, "Protocol", says which entries are accepted, and that the number of the last
one, `accepted`, is kept only in memory, whereas the durable number is sent to the peer.

    entry --accept--> queue --take--> cache, DUE, committer
                                          write, stage (i/), committed --> durable: the session acks

* A peer that connects again must wait until all its queued entries are durable. So the entries
  of two connections never mix.
* The queue of a peer holds at most twice the window. If more entries arrive, this is a protocol
  error, because a sender never has more than one window of unconfirmed entries.

Threads: `write` and `stage` run in the writer thread, everything else in the loop thread.
"""

from collections import deque
from collections.abc import Iterable
from enum import Enum
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from crawler.config import SplitterConfig
from crawler.records import Link, LinkFlag
from crawler.splitter.partition import Partition
from crawler.splitter.wire import NotOwnedError, ProtocolError, chained, decode_entry
from crawler.storage.keys import INBOX
from crawler.storage.kv import Batch, KeyValue
from crawler.storage.reshard import load, pack

NO_EPOCH = bytes(8)


class Arrival(Enum):
    """The result of `Inbox.accept` for an entry."""

    QUEUED = "queued"
    REPEATED = "repeated"
    GAP = "gap"


class Received(msgspec.Struct, gc=False):
    """The links of one entry.

    Entries must be applied and committed in the order in which `take` returns them.
    """

    peer: str
    epoch: bytes
    sequence: int
    links: list[Link]
    bytes: int
    chain: int = 0  # the checksum of the epoch's entries up to this one


class _Durable(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The value of `i/<peer>`.

    `before` is the number of links that a reshard put into this store; these links count as if the peer had
    sent them.
    """

    epoch: Annotated[bytes, Meta(min_length=8, max_length=8)] = NO_EPOCH
    sequence: int = 0
    applied: int = 0
    chain: int = 0
    before: int = 0


class _Source:
    """The state of one peer's outbox, as this process knows it from the entries that have arrived."""

    __slots__ = ("accepted", "chain", "durable", "epoch", "queued", "queued_bytes", "staged")

    def __init__(self, durable: _Durable) -> None:
        self.durable = durable
        self.staged = durable  # writer thread
        self.epoch = durable.epoch
        self.accepted = durable.sequence
        self.chain = durable.chain  # the checksum of all accepted entries
        self.queued = 0  # the number of entries accepted and not durable yet
        self.queued_bytes = 0


class Inbox:
    """The entries accepted from each peer, with the number of the last durable one.

    Raises:
        DamageError: a stored value is damaged.
    """

    def __init__(
        self, store: KeyValue, partition: Partition, me: str, peers: Iterable[str], config: SplitterConfig
    ) -> None:
        self._partition = partition
        self._me = partition.index(me)
        self._queue_bytes_max = 2 * max(config.window_bytes, config.frame_bytes_max)
        self._sources = {peer: _Source(load(store, _key(peer), _Durable, _Durable())) for peer in peers}
        self.applied = sum(source.durable.applied for source in self._sources.values())  # links ever applied
        # Peers with newly durable entries; at first, all peers. The caller clears this set after sending
        # acks.
        self.news: dict[str, None] = dict.fromkeys(self._sources)
        self._queue: deque[Received] = deque()
        self._writing: list[Received] = []  # used by the writer thread, between `write` and `stage`
        self._staged: deque[list[Received]] = deque()

    # -- the connections --------------------------------------------------------------------------

    def greet(self, peer: str, epoch: bytes) -> int | None:
        """Return, for the Welcome message, the number of the last entry of `epoch` that is durable here.

        Returns None as long as older entries are not durable.
        """
        source = self._sources[peer]
        if source.queued:
            return None
        source.epoch = epoch
        source.accepted = self.durable(peer)
        source.chain = source.durable.chain if source.durable.epoch == epoch else 0
        return source.accepted

    def durable(self, peer: str) -> int:
        """Return the sequence number of the last entry of the peer's current epoch that is durable here."""
        source = self._sources[peer]
        return source.durable.sequence if source.durable.epoch == source.epoch else 0

    def applied_by_peer(self) -> dict[str, int]:
        """Return, for each peer, the number of links from its entries that were ever applied here."""
        return {peer: source.durable.applied for peer, source in self._sources.items()}

    def applied_from(self, peer: str) -> int:
        """Return how many links of the peer this process has ever stored durably.

        If this store was restored from a backup, the number is lower than before.
        """
        durable = self._sources[peer].durable
        return durable.before + durable.applied

    def accepted(self, peer: str) -> int:
        return self._sources[peer].accepted

    def chain(self, peer: str) -> int:
        """Return the checksum of all accepted entries of the peer's current epoch (`wire.chained`)."""
        return self._sources[peer].chain

    def accept(self, peer: str, sequence: int, entry: bytes) -> Arrival:
        """Accept an entry that a peer sent.

        Raises:
            NotOwnedError: the entry has a link that another process owns; none of its links is applied.
            ProtocolError: the entry cannot be decoded, or more bytes are unconfirmed than any window allows.
        """
        source = self._sources[peer]
        if sequence <= source.accepted:
            return Arrival.REPEATED
        if sequence != source.accepted + 1:
            return Arrival.GAP
        if source.queued_bytes + len(entry) > self._queue_bytes_max:
            raise ProtocolError(f"splitter: {peer} sent more than {self._queue_bytes_max} unconfirmed bytes")
        links = decode_entry(entry)
        self._refuse_foreign(peer, links)
        source.accepted = sequence
        source.chain = chained(source.chain, entry)
        source.queued += 1
        source.queued_bytes += len(entry)
        self._queue.append(Received(peer, source.epoch, sequence, links, len(entry), source.chain))
        return Arrival.QUEUED

    def _refuse_foreign(self, peer: str, links: list[Link]) -> None:
        fingerprints = np.array([link.fingerprint for link in links], dtype=np.uint64)
        foreign = np.flatnonzero(self._partition.owners(fingerprints) != self._me).tolist()
        # links with the flag SCOPE are sent to all processes
        foreign = [place for place in foreign if not links[place].flags & LinkFlag.SCOPE]
        if foreign:
            raise NotOwnedError(
                f"splitter: {peer} sent {links[foreign[0]].url!r:.200}, which this process does not own"
            )

    def take(self) -> list[Received]:
        """Return all entries accepted since the last call.

        The caller must commit all these entries, in this order.
        """
        taken, self._queue = list(self._queue), deque()
        return taken

    # -- the commit phases ------------------------------------------------------------------------

    def write(self, items: Iterable[Received]) -> None:
        """Record the entries of a group, in the order in which `take` returned them (writer thread)."""
        self._writing.extend(items)

    def stage(self, batch: Batch) -> None:
        """Put the state of the inbox into the batch that becomes durable together with the group (writer thread)."""
        group, self._writing = self._writing, []
        for received in group:
            source = self._sources[received.peer]
            before = source.staged
            assert received.epoch != before.epoch or received.sequence == before.sequence + 1, (
                received,
                before,
            )
            source.staged = _durable(received, before)
        for peer in {received.peer for received in group}:
            batch.put(_key(peer), pack(self._sources[peer].staged))
        self._staged.append(group)

    def committed(self) -> None:
        """Record that the oldest staged group is durable (loop thread).

        From now on, the group's entries may be confirmed to the peers.
        """
        group = self._staged.popleft()
        for received in group:
            source = self._sources[received.peer]
            source.queued -= 1
            source.queued_bytes -= received.bytes
            self.applied += len(received.links)
            self.news[received.peer] = None
            source.durable = _durable(received, source.durable)

    @property
    def waiting(self) -> bool:
        """True if `take` has entries to return."""
        return bool(self._queue)

    # -- counters ---------------------------------------------------------------------------------

    def _check(self) -> None:
        assert self.applied == sum(source.durable.applied for source in self._sources.values()), self
        for peer, source in self._sources.items():
            assert self.durable(peer) <= source.accepted, (peer, source)
            assert source.accepted - self.durable(peer) == source.queued, (peer, source)
            assert 0 <= source.queued_bytes <= self._queue_bytes_max, (peer, source)
            assert (source.queued == 0) == (source.queued_bytes == 0), (peer, source)

    def __repr__(self) -> str:
        return "Inbox(" + ", ".join(
            f"{peer}: {self.durable(peer)} durable, {source.accepted} accepted"
            for peer, source in self._sources.items()
        ) + ")"  # fmt: skip


def _durable(received: Received, before: _Durable) -> _Durable:
    """Return the state that is durable once the entry `received` is committed."""
    applied = before.applied + len(received.links)
    return _Durable(received.epoch, received.sequence, applied, received.chain, before.before)


def held_before(peer: str, links: int) -> tuple[bytes, bytes]:
    """Return the key `i/<peer>` and its value for a new store.

    `links` is the number of links of the peer that a reshard has put into the store.
    """
    return _key(peer), pack(_Durable(before=links))


def _key(peer: str) -> bytes:
    return INBOX + peer.encode()
