"""Where each URL to do waits, under an order: what is needed to move it when a better link comes.

    y/ + host key 8 + low 48 bits of the fingerprint  ->  order 8

An index of `t/`, kept in the same batches and made again from it where it is not whole (a
first run under an order, a resharded or mended store); without an order there is none. A value
is no truth of its own: whoever finds an order looks whether the entry there is the URL's.
LevelDB keeps 25 bytes a URL of it, beside 55 of the entry.

What is in no written batch yet cannot be read back, so entries of such batches are held here,
at most those of the flushes under way. A better class for a URL that is not in the queues yet
(its first link waits in the DUE) is a *promise*: the URL is queued with it. Promises are in
memory only: a crash forgets a promise, never a URL.
"""

from collections.abc import Iterable

from crawler.frontier.discovery.entries import Todo, decode, make_key
from crawler.storage.keys import TODO, WAITING, WAITING_WHOLE
from crawler.storage.kv import Batch, KeyValue, scan_prefix

PROMISES_MAX = 32_768  # the oldest are forgotten; 100 bytes each
_CHUNK = 10_000  # entries of one batch
_LOW_48 = (1 << 48) - 1


def index_key(host_key: int, fingerprint: int) -> bytes:
    """The key of a URL of that host in the index."""
    return WAITING + host_key.to_bytes(8, "big") + (fingerprint & _LOW_48).to_bytes(6, "big")


class WaitingIndex:
    """See the module docstring. `keeps`: whether there is an index."""

    def __init__(self, store: KeyValue, *, keeps: bool) -> None:
        self._store = store
        self.keeps = keeps
        self._unwritten: dict[int, tuple[int, int, Todo]] = {}  # fingerprint -> id of batch, order, entry
        self._batches: dict[int, list[int]] = {}  # id -> fingerprints
        self._promises: dict[int, int] = {}  # fingerprint -> class

    def open(self) -> None:
        """Make the index if it is wanted and not whole; drop it if it is not wanted."""
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
        """Write in batches, of which the last is synced."""
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
        """An entry enters a queue by `batch`."""
        fingerprint = entry.fingerprint
        batch.put(index_key(host_key, fingerprint), order.to_bytes(8, "big"))
        self._unwritten[fingerprint] = id(batch), order, entry
        self._batches.setdefault(id(batch), []).append(fingerprint)

    def written(self, batch: Batch) -> None:
        """The entries that entered by `batch` can be read back."""
        for fingerprint in self._batches.pop(id(batch), ()):
            if self._unwritten.get(fingerprint, (0,))[0] == id(batch):
                del self._unwritten[fingerprint]

    def find(self, host_key: int, fingerprint: int) -> tuple[int, Todo] | None:
        """(order, entry) of a URL that waits in the host's queue; None if it does not.

        An entry that is done counts as long as the batch that says so is not written.
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
        """If the URL is queued later, it is queued with this class or a better one."""
        self._promises[fingerprint] = min(place, self._promises.pop(fingerprint, place))
        if len(self._promises) > PROMISES_MAX:
            del self._promises[next(iter(self._promises))]

    def promised(self, fingerprint: int, place: int) -> int:
        """The class that a URL is queued with whose first link has `place`."""
        if not self._promises:
            return place
        return min(place, self._promises.pop(fingerprint, place))

    def forget(self, fingerprint: int) -> None:
        """The URL leaves its queue, be its entry written or not."""
        self._unwritten.pop(fingerprint, None)
