"""Instants at which pages that were never fetched appeared, as sitemaps and feeds tell them.

    e/<fingerprint>     the instant of birth, in seconds of the crawl's clock

A sitemap or feed that is read again gives a date for a URL that has no record yet. The date is kept until the URL's
first fetch ends, when it says how late the copy is (`news.py`). The first date stands: later ones tell of changes.
Keys follow their buckets.

Records are written with the change of the reading, and deleted with that of the fetch; so a crash loses a date
only together with the reading that told it.
"""

import math
import struct
from collections import OrderedDict

from crawler.errors import DamageError
from crawler.storage import keys
from crawler.storage.kv import Batch, KeyValue, scan_prefix, seal, unseal

BIRTHS_MAX = 100_000  # URLs whose date is kept, about 100 bytes each; beyond, the oldest are forgotten
_INSTANT = struct.Struct("<d")


class Births:
    """Dates of URLs by fingerprint, in the order in which they were told."""

    def __init__(self) -> None:
        self._born: OrderedDict[int, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._born)

    def __contains__(self, fingerprint: int) -> bool:
        return fingerprint in self._born

    def open(self, store: KeyValue) -> None:
        """Take up what is stored.

        Raises:
            DamageError: a record is not whole.
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
        """Keep a date for a URL that has no record; nothing happens if it has a date."""
        if fingerprint in self._born:
            return
        self._born[fingerprint] = born
        batch.put(_key(fingerprint), seal(_INSTANT.pack(born)))
        if len(self._born) > BIRTHS_MAX:
            oldest, _ = self._born.popitem(last=False)
            batch.delete(_key(oldest))

    def take(self, fingerprint: int, batch: Batch) -> float | None:
        """Return and forget the date of a URL whose first fetch has ended; None if it has none."""
        born = self._born.pop(fingerprint, None)
        if born is not None:
            batch.delete(_key(fingerprint))
        return born

    def __repr__(self) -> str:
        return f"Births({len(self)} dates)"


def _key(fingerprint: int) -> bytes:
    return keys.BIRTHS + fingerprint.to_bytes(8, "big")
