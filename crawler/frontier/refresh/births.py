"""Keeps the publication dates of pages without a copy, as sitemaps, feeds, listings and signals give them.

    e/<fingerprint>     the instant of publication, in seconds of the crawl's clock

When a sitemap, feed or listing is read again, it may give a date for a URL that has no record yet, or for a
URL that was not found so far. The date is kept until the first fetch of the URL ends or, if the URL was not
found before, until it has a copy. Then the date shows how long after publication the copy was made
(`news.py`). A page that only change signals have named was published at the time of the first signal. Only the
first date of a URL is kept, because later dates refer to changes. The keys of the records move with their
buckets when a crawl is resharded.

A date comes from reading another document. Its record is written in the same batch as the other results of
this reading, and deleted in the batch of the URL's fetch. So if a crash loses a date, it also loses the
reading, and the reading is repeated.
"""

import math
import struct
from collections import OrderedDict

from crawler.errors import DamageError
from crawler.storage import keys
from crawler.storage.kv import Batch, KeyValue, scan_prefix, seal, unseal

# maximum number of URLs whose date is kept, 100 bytes each; if there are more, the oldest are dropped
BIRTHS_MAX = 100_000
_INSTANT = struct.Struct("<d")


class Births:
    """Publication dates by the fingerprint of the URL, in the order in which the dates were found."""

    def __init__(self) -> None:
        self._born: OrderedDict[int, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._born)

    def __contains__(self, fingerprint: int) -> bool:
        return fingerprint in self._born

    def open(self, store: KeyValue) -> None:
        """Load the stored dates.

        Raises:
            DamageError: a record is damaged.
        """
        for key, value in scan_prefix(store, keys.BIRTHS):
            payload = unseal(key, value)
            if len(key) != 10 or len(payload) != _INSTANT.size:
                raise DamageError(f"store: birth record {key!r} has {len(payload)} bytes")
            (born,) = _INSTANT.unpack(payload)
            if not math.isfinite(born):
                raise DamageError(f"store: birth record {key!r} has {born}")
            self._born[int.from_bytes(key[2:], "big")] = born

    def tell(self, fingerprint: int, born: float, batch: Batch) -> None:
        """Store the publication date of a URL that has no record; do nothing if the URL already has a date."""
        if fingerprint in self._born:
            return
        self._born[fingerprint] = born
        batch.put(_key(fingerprint), seal(_INSTANT.pack(born)))
        if len(self._born) > BIRTHS_MAX:
            oldest, _ = self._born.popitem(last=False)
            batch.delete(_key(oldest))

    def take(self, fingerprint: int, batch: Batch) -> float | None:
        """Return and delete the date of a URL, because its fetch has ended; None if there is no date."""
        born = self._born.pop(fingerprint, None)
        if born is not None:
            batch.delete(_key(fingerprint))
        return born

    def __repr__(self) -> str:
        return f"Births({len(self)} dates)"


def _key(fingerprint: int) -> bytes:
    return keys.BIRTHS + fingerprint.to_bytes(8, "big")
