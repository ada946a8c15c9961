"""Rewrites an outbox queue, while the peer is not connected (`splitter/README.md`, "Unreachable peers").

A worker thread reads the committed entries and chooses the links that are kept: all links, or in a long
queue, those whose fingerprint did not occur earlier. The thread writes these links, in the order of their
discovery, into new entries of the usual size. The keys of the new entries contain a new *generation*, a
number that distinguishes them from the old entries. The numbers of the new entries count *down* from the
number of the last entry that was read. So the entries that are appended during the compaction follow the new
entries without a gap:

    before   [acked+1 ....................... boundary][boundary+1 ...]   generation 0 (or an earlier one)
    after                     [boundary-N+1 . boundary][boundary+1 ...]   new generation | generation 0

Nothing refers to the new entries until one last batch stores the new boundary, the generation and a fresh
epoch. If the last batch was not written, the outbox deletes the new entries when it is next opened. If the
last batch was written, the outbox deletes the replaced entries. So either all entries are swapped or none.
Each batch of new entries is synced. A single synced write at the end would not be enough: if LevelDB has
begun another log file meanwhile, that write does not make earlier writes durable.

A compaction takes slightly more than 8 bytes of memory per link, and half a byte per link more while it sorts
the fingerprints. A compaction of 1 GiB of entries takes about 120 MB of memory. Each link is decoded twice,
and each remaining link is encoded once. A compaction takes 1.5 us per link (measured with 300,000 links in 24
MB, of which 60,000 links in 4.8 MB were left).
"""

from array import array
from collections.abc import Callable, Generator, Iterator

import msgspec
import numpy as np

from crawler.errors import DamageError
from crawler.records import MESSAGE, Link, LinkFlag
from crawler.splitter.spool import APPENDED, Spool, SpoolState, entry_key, sweep
from crawler.splitter.wire import ProtocolError, decode_entry, encode_entries
from crawler.storage.kv import KeyValue

_RANGES = 16  # number of fingerprint ranges, which are sorted one after another
_BATCH_BYTES = 4 << 20
_LINK_BYTES = 40  # maximum size in bytes of a link in MessagePack, without its URL


class Compaction:
    """Rewrites one peer's queue once: call `run`, then `Outbox.adopt`, then `sweep`.

    If `retires` is given, all links are kept, and those whose URLs it matches are marked as retired.
    """

    def __init__(
        self,
        store: KeyValue,
        spool: Spool,
        epoch: bytes,
        *,
        entry_bytes: int,
        retires: Callable[[str], object] | None = None,
    ) -> None:
        self.peer = spool.peer
        self.state = spool.state
        self.confirmed = spool.confirmed
        self.acked = spool.acked
        self.boundary = spool.committed
        self.generation = max(APPENDED, spool.state.generation) + 1
        self.adopted = False
        self.bytes_before = 0
        self.bytes_after = 0
        self.links_before = 0
        self.links_after = 0
        self.retired = 0
        self._retires = retires
        self._store = store
        self._epoch = epoch
        self._entry_bytes = entry_bytes
        self._number = self.boundary  # the number of the next entry to write, counting down
        self._chunk: list[Link] = []  # newest first
        self._chunk_bytes = 0

    def run(self) -> None:
        """Write the new entries. Call this in a worker thread; it takes about 20 s for 1 GiB.

        Raises:
            DamageError: an entry cannot be read.
            StoreError: the disk failed.
        """
        for _ in self.steps():
            pass

    def steps(self) -> Iterator[None]:
        """Do the same as `run`, with a pause after each entry."""
        fingerprints = yield from self._fingerprints()
        keep = np.ones(len(fingerprints), bool) if self._retires else first_occurrences(fingerprints)
        self.links_before, self.links_after = len(keep), int(np.count_nonzero(keep))
        end = len(keep)
        batch, batch_bytes = self._store.batch(sync=True), 0
        for number in range(self.boundary, self.acked, -1):
            links, _ = self._links(number)
            kept = [
                self._marked(link)
                for link, wanted in zip(links, keep[end - len(links) : end].tolist(), strict=True)
                if wanted
            ]
            end -= len(links)
            for key, entry in self._pack(kept, last=number == self.acked + 1):
                batch.put(key, entry)
                batch_bytes += len(entry)
            if batch_bytes >= _BATCH_BYTES:
                self._store.write(batch)
                batch, batch_bytes = self._store.batch(sync=True), 0
            yield
        self._store.write(batch)

    def _marked(self, link: Link) -> Link:
        if self._retires is None or link.flags & (MESSAGE | LinkFlag.RETIRED) or not self._retires(link.url):
            return link
        self.retired += 1
        return msgspec.structs.replace(link, flags=link.flags | LinkFlag.RETIRED)

    def result(self) -> SpoolState:
        """Return the state that makes the new entries current."""
        return msgspec.structs.replace(
            self.state,
            epoch=self._epoch,
            base=self._number,
            boundary=self.boundary,
            generation=self.generation,
            confirmed=msgspec.structs.replace(self.confirmed, number=self._number, chain=0),
            repeated=self.state.repeated + self.links_before - self.links_after,
        )

    @property
    def useful(self) -> bool:
        """False if the new entries say the same as the old ones."""
        return self._retires is None or self.retired > 0

    @property
    def bytes_saved(self) -> int:
        return self.bytes_before - self.bytes_after

    def sweep(self) -> None:
        """Delete the old entries if the new ones are current; otherwise, delete the new ones.

        Call this in a worker thread.
        """
        sweep(self._store, self._old_keys() if self.adopted else self._new_keys())

    def _old_keys(self) -> Iterator[bytes]:
        for number in range(self.acked + 1, self.boundary + 1):
            yield entry_key(self.peer, self.state.generation_of(number), number)

    def _new_keys(self) -> Iterator[bytes]:
        for number in range(self._number + 1, self.boundary + 1):
            yield entry_key(self.peer, self.generation, number)

    def _fingerprints(self) -> Generator[None, None, np.ndarray]:
        found = array("Q")
        for number in range(self.acked + 1, self.boundary + 1):
            links, size = self._links(number)
            self.bytes_before += size
            found.extend(link.fingerprint for link in links)
            yield
        return np.frombuffer(found, dtype=np.uint64) if found else np.zeros(0, np.uint64)

    def _links(self, number: int) -> tuple[list[Link], int]:
        """Return the links of an entry, and the size of the entry in bytes."""
        key = entry_key(self.peer, self.state.generation_of(number), number)
        entry = self._store.get(key)
        if entry is None:
            raise DamageError(f"store: outbox entry {key!r} is missing; run `crawler check`")
        try:
            return decode_entry(entry), len(entry)
        except ProtocolError as error:
            raise DamageError(f"store: outbox entry {key!r}: {error}; run `crawler check`") from error

    def _pack(self, links: list[Link], *, last: bool) -> Iterator[tuple[bytes, bytes]]:
        """Fill entries with links, from the newest link backwards; yield (key, entry) for each complete entry."""
        for link in reversed(links):
            size = len(link.url) + _LINK_BYTES
            if self._chunk and self._chunk_bytes + size > self._entry_bytes:
                yield from self._flush()
            self._chunk.append(link)
            self._chunk_bytes += size
        if last:
            yield from self._flush()

    def _flush(self) -> Iterator[tuple[bytes, bytes]]:
        for entry, _ in reversed(encode_entries(self._chunk[::-1], self._entry_bytes)):
            yield entry_key(self.peer, self.generation, self._number), entry
            self._number -= 1
            self.bytes_after += len(entry)
        self._chunk, self._chunk_bytes = [], 0

    def __repr__(self) -> str:
        return (
            f"Compaction({self.peer}: {self.links_before} links to {self.links_after}, "
            f"{self.bytes_before} bytes to {self.bytes_after})"
        )


def first_occurrences(fingerprints: np.ndarray) -> np.ndarray:
    """Return a mask (bool) that marks the first occurrence of each fingerprint in `fingerprints` (uint64)."""
    keep = np.zeros(len(fingerprints), dtype=bool)
    for remainder in range(_RANGES):
        positions = np.flatnonzero(fingerprints % np.uint64(_RANGES) == remainder)
        _, first = np.unique(fingerprints[positions], return_index=True)
        keep[positions[first]] = True
    return keep
