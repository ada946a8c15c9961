"""Remembers which seeds this process has sent to the processes that own them, so that each is sent once.

A process usually receives its seeds again at every start. If the process sent the seeds again, the owners of
the seeds would count links that bring no work. At the end of a crawl, a process could then wait for a peer
that has already left, only to send it a seed that the peer has known since the first start.

The fingerprints of the seeds are stored in the same batch as the outbox entries that contain the seeds.
`crawler recover` forgets these fingerprints, because the owners may have lost the seeds.
"""

from collections.abc import Sequence
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from crawler.storage.commit import Change
from crawler.storage.keys import SENT_SEEDS
from crawler.storage.kv import KeyValue, scan_prefix, seal, unseal


class SentSeeds:
    """The seeds that earlier starts of this process have sent. They are read when the first seed is given."""

    def __init__(self, store: KeyValue) -> None:
        self._store = store
        self._sent: NDArray[np.uint64] | None = None
        self._number = 0  # number of the next key

    def take(self, change: Change, fingerprints: NDArray[np.uint64], places: Sequence[int]) -> list[int]:
        """Return those of `places` whose fingerprints no earlier start has sent. Remember these fingerprints."""
        sent = self._sent if self._sent is not None else self._read()
        new = list(compress(places, ~np.isin(fingerprints[list(places)], sent)))
        if new:
            key = SENT_SEEDS + self._number.to_bytes(8, "big")
            change.put(key, seal(fingerprints[new].astype("<u8").tobytes()))
            self._number += 1
        return new

    def _read(self) -> NDArray[np.uint64]:
        stored = list(scan_prefix(self._store, SENT_SEEDS))
        if stored:
            self._number = int.from_bytes(stored[-1][0][len(SENT_SEEDS) :], "big") + 1
        values = [np.frombuffer(unseal(key, value), "<u8") for key, value in stored]
        self._sent = np.concatenate([np.empty(0, np.uint64), *values])
        return self._sent


def forget_sent_seeds(store: KeyValue, change: Change) -> None:
    """Make the process send all its seeds again at its next start."""
    for key, _ in scan_prefix(store, SENT_SEEDS):
        change.delete(key)
