"""Remembers which seeds this process has sent to the processes that own them, so that each is sent once.

A process usually receives its seeds again at every start. If the process sent the seeds again, the owners of
the seeds would count links that bring no work. At the end of a crawl, a process could then wait for a peer
that has already left, only to send it a seed that the peer has known since the first start.

The fingerprints and the URLs of the seeds are stored in the same batch as the outbox entries that contain the
seeds. If the owner of a seed loses its disk, `crawler recover` sends the seed again. The seed may be stored
nowhere else, for example because it was given by `crawler seed`. If it was given to its owner, the owner sends
its URL to another process, the keeper, which stores it in the same way (`LinkFlag.KEPT`). `reshard.py` moves the
seeds in a reshard.
"""

from collections.abc import Iterator, Sequence
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from crawler.errors import DamageError
from crawler.splitter.partition import Partition
from crawler.storage.commit import Change
from crawler.storage.keys import SENT_SEED_URLS, SENT_SEEDS
from crawler.storage.kv import KeyValue, scan_prefix, seal, unseal


def keeper_of(table: Partition, owner: str) -> str:
    """Return the process that keeps copies of the seeds that `owner` owns: the next one in the table."""
    return table.names[(table.index(owner) + 1) % len(table.names)]


class SentSeeds:
    """The seeds that earlier starts of this process have sent or kept. They are read when the first seed is given."""

    def __init__(self, store: KeyValue) -> None:
        self._store = store
        self._sent: NDArray[np.uint64] | None = None
        self._number = 0  # number of the next keys

    def take(
        self, change: Change, urls: Sequence[str], fingerprints: NDArray[np.uint64], places: Sequence[int]
    ) -> list[int]:
        """Return those of `places` whose seeds no earlier start has sent. Remember these seeds."""
        sent = self._sent if self._sent is not None else self._read()
        new = list(compress(places, ~np.isin(fingerprints[list(places)], sent)))
        if new:
            for item in stored_seeds(self._number, [urls[place] for place in new], fingerprints[new]):
                change.put(*item)
            self._number += 1
        return new

    def _read(self) -> NDArray[np.uint64]:
        stored = list(scan_prefix(self._store, SENT_SEEDS))
        if stored:
            self._number = int.from_bytes(stored[-1][0][len(SENT_SEEDS) :], "big") + 1
        values = [np.frombuffer(unseal(key, value), "<u8") for key, value in stored]
        self._sent = np.concatenate([np.empty(0, np.uint64), *values])
        return self._sent


def stored_seeds(
    number: int, urls: Sequence[str], fingerprints: "NDArray[np.uint64] | Sequence[int]"
) -> Iterator[tuple[bytes, bytes]]:
    """Yield the keys and values under which seeds and their fingerprints are stored. `number` differs for each call."""
    at = number.to_bytes(8, "big")
    yield SENT_SEEDS + at, seal(np.asarray(fingerprints, "<u8").tobytes())
    yield SENT_SEED_URLS + at, seal("\n".join(urls).encode("ascii"))


def sent_seeds(store: KeyValue) -> Iterator[tuple[list[str], NDArray[np.uint64]]]:
    """Yield the URLs and the fingerprints of the seeds that this process has sent and whose URLs are stored, in pieces.

    Raises:
        DamageError: the numbers of URLs and of fingerprints differ.
    """
    for key, value in scan_prefix(store, SENT_SEED_URLS):
        urls = unseal(key, value).decode("ascii").split("\n")
        at = SENT_SEEDS + key[len(SENT_SEED_URLS) :]
        stored = store.get(at)
        fingerprints = np.frombuffer(b"" if stored is None else unseal(at, stored), "<u8").astype(np.uint64)
        if len(fingerprints) != len(urls):
            raise DamageError(f"store: keys {key!r} and {at!r} do not list the same seeds")
        yield urls, fingerprints


def sent_seed_urls(store: KeyValue) -> Iterator[list[str]]:
    """Yield the URLs of the seeds that this process has sent, in pieces."""
    for key, value in scan_prefix(store, SENT_SEED_URLS):
        yield unseal(key, value).decode("ascii").split("\n")


def forget_sent_seeds(store: KeyValue, change: Change) -> None:
    """Make the process send the seeds again whose URLs are not stored, because an earlier version sent them."""
    for key, _ in scan_prefix(store, SENT_SEEDS):
        if store.get(SENT_SEED_URLS + key[len(SENT_SEEDS) :]) is None:
            change.delete(key)
