"""An index that finds the queue entry of a waiting URL, so that the entry can be moved when a better link is found.

    y/ + host key 8 + low 48 bits of the fingerprint  ->  order 8

The batches that change `t/` also update this index. It is rebuilt from `t/` when it is incomplete: in the
first run with an order of new URLs (`orders/`), or after the store was resharded or repaired. If the crawl
has no order of new URLs, there is no index. The values of the index are only hints. After a look-up, read the
queue entry at the place found, and check that it belongs to the URL. LevelDB uses 25 bytes per URL for the
index, and 55 for the entry itself.

Entries in unwritten batches cannot be read from the store, so they are kept in memory here. The number of
entries kept here is never greater than the number of entries in the flushes under way. A URL is queued only
after the duplicate URL eliminator has processed the first link to it. Before the URL is queued, a link with a
better class may be found. The class of this link is kept as a *promise*: the URL will be queued with the
promised class. Promises exist in memory only. So a crash loses promises, but no URLs.
"""

from collections.abc import Iterable

from crawler.frontier.discovery.entries import Todo, decode, make_key
from crawler.storage.keys import TODO, WAITING, WAITING_WHOLE
from crawler.storage.kv import Batch, KeyValue, scan_prefix

# The maximum number of promises. A promise takes 100 bytes. If there are more promises, the oldest ones are
# dropped.
PROMISES_MAX = 32_768
_CHUNK = 10_000  # entries per batch
_LOW_48 = (1 << 48) - 1


def index_key(host_key: int, fingerprint: int) -> bytes:
    """Return the index key of a URL of that host."""
    return WAITING + host_key.to_bytes(8, "big") + (fingerprint & _LOW_48).to_bytes(6, "big")


class WaitingIndex:
    """The index of waiting URLs. `keeps` is True if this crawl has an index."""

    def __init__(self, store: KeyValue, *, keeps: bool) -> None:
        self._store = store
        self.keeps = keeps
        # fingerprint -> (id of the batch, order, entry)
        self._unwritten: dict[int, tuple[int, int, Todo]] = {}
        self._batches: dict[int, list[int]] = {}  # id -> fingerprints
        self._promises: dict[int, int] = {}  # fingerprint -> class

    def open(self) -> None:
        """Build the index if the crawl needs one and it is incomplete. If it needs none, delete a stored index."""
        whole = self._store.get(WAITING_WHOLE) is not None
        if self.keeps and not whole:
            self._drop()
            self._write(
                (index_key(int.from_bytes(key[2:10], "big"), decode(key, value).fingerprint), key[10:])
                for key, value in scan_prefix(self._store, TODO)
            )
            self._write([(WAITING_WHOLE, b"1")])
        elif whole and not self.keeps:
            self._write([(WAITING_WHOLE, None)])
            self._drop()

    def _drop(self) -> None:
        self._write((key, None) for key, _ in scan_prefix(self._store, WAITING))

    def _write(self, operations: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Write the operations in batches, and sync the last batch."""
        batch, count = self._store.batch(sync=True), 0
        for key, value in operations:
            if value is None:
                batch.delete(key)
            else:
                batch.put(key, value)
            count += 1
            if count == _CHUNK:
                self._store.write(batch)
                batch, count = self._store.batch(sync=True), 0
        self._store.write(batch)

    def put(self, host_key: int, order: int, entry: Todo, batch: Batch) -> None:
        """Record that an entry enters a queue through `batch`."""
        fingerprint = entry.fingerprint
        batch.put(index_key(host_key, fingerprint), order.to_bytes(8, "big"))
        self._unwritten[fingerprint] = id(batch), order, entry
        self._batches.setdefault(id(batch), []).append(fingerprint)

    def written(self, batch: Batch) -> None:
        """Record that the batch was written, so that its entries can be read from the store."""
        for fingerprint in self._batches.pop(id(batch), ()):
            if self._unwritten.get(fingerprint, (0,))[0] == id(batch):
                del self._unwritten[fingerprint]

    def find(self, host_key: int, fingerprint: int) -> tuple[int, Todo] | None:
        """Return (order, entry) of a URL; None if the URL does not wait in the host's queue.

        A URL that is done is still found until the batch with its result is written.
        """
        if (held := self._unwritten.get(fingerprint)) is not None:
            return held[1:]
        order = self._store.get(index_key(host_key, fingerprint))
        if order is None:
            return None
        key = make_key(TODO, host_key, int.from_bytes(order, "big"))
        value = self._store.get(key)
        if value is None or (entry := decode(key, value)).fingerprint != fingerprint:
            return None
        return int.from_bytes(order, "big"), entry

    def promise(self, fingerprint: int, place: int) -> None:
        """Record that a URL that is not queued yet is to be queued with this class or a better one."""
        self._promises[fingerprint] = min(place, self._promises.pop(fingerprint, place))
        if len(self._promises) > PROMISES_MAX:
            del self._promises[next(iter(self._promises))]

    def promised(self, fingerprint: int, place: int) -> int:
        """Return the class with which to queue a URL now. `place` is the class of its first link."""
        if not self._promises:
            return place
        return min(place, self._promises.pop(fingerprint, place))

    def forget(self, fingerprint: int) -> None:
        """Forget the entry of a URL that leaves its queue, if the entry is in memory."""
        self._unwritten.pop(fingerprint, None)
