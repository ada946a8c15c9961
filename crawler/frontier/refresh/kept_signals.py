"""Keeps the change signals that a run without refreshes receives, until a run refreshes pages.

    S/<fingerprint>     counters of the signals by source, as in the record of a page; the instant of the latest signal

A run of `crawler crawl` may receive signals about known pages, for example from another process to which
`crawler signal` was given. Such a run has no schedule, so it cannot tell what a signal means for its page. The signal
is stored here. The next run with a schedule gives the signals to it when it opens, in the batch that deletes them here.
So it makes no difference whether a signal arrives at rest or in a run, in which run, or in how many processes.

A signal counts only if its page was not fetched after it. Its record moves with its bucket when a crawl is resharded.
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from itertools import islice

from crawler.change_signals import COUNTER_BITS, SOURCES, Fate
from crawler.errors import DamageError
from crawler.frontier.refresh.change_intake import ChangeIntake
from crawler.frontier.refresh.refetch_outcomes import is_fit, may_have_appeared
from crawler.records import PageRecord
from crawler.storage import keys
from crawler.storage.commit import Change
from crawler.storage.kv import KeyValue, scan_prefix, seal, unseal

_KEPT = struct.Struct("<Id")  # counters, instant
_COUNT_MAX = (1 << COUNTER_BITS) - 1
_APPLIED_AT_ONCE = 256  # pages whose signals are applied and committed together


class KeptSignals:
    """Takes the place of `ChangeIntake` in a run without refreshes: it stores the signals.

    `is_disallowed` returns whether the robots.txt that was fetched last forbids a URL.
    """

    fate = Fate.KEPT

    def __init__(self, store: KeyValue, is_disallowed: Callable[[str], bool]) -> None:
        self._store, self._is_disallowed = store, is_disallowed
        self._queued: dict[int, tuple[int, float]] = {}  # what changes store that are not committed yet

    def has(self, fingerprint: int) -> bool:
        """Return whether earlier runs kept the page fresh."""
        return self._store.get(_key(keys.REFRESH, fingerprint)) is not None

    def accepts(self, fingerprint: int, record: PageRecord) -> bool:
        """Return whether a run that refreshes pages would use signals of a known URL."""
        return self.has(fingerprint) or is_fit(record) or may_have_appeared(record, self._is_disallowed)

    def take(self, fingerprints: Sequence[int], source: int, now: float, change: Change) -> None:
        """Store one signal of a source for each page."""
        for fingerprint in fingerprints:
            counters, _ = self._queued.get(fingerprint) or self._stored(fingerprint)
            if counters >> COUNTER_BITS * source & _COUNT_MAX < _COUNT_MAX:
                counters += 1 << COUNTER_BITS * source
            self._queued[fingerprint] = counters, now
            change.put(_key(keys.SIGNALS, fingerprint), seal(_KEPT.pack(counters, now)))
        change.after.append(lambda: self._committed(fingerprints))

    def _stored(self, fingerprint: int) -> tuple[int, float]:
        key = _key(keys.SIGNALS, fingerprint)
        value = self._store.get(key)
        return (0, 0.0) if value is None else _unpacked(key, value)

    def _committed(self, fingerprints: Sequence[int]) -> None:
        for fingerprint in fingerprints:
            self._queued.pop(fingerprint, None)


def applied(store: KeyValue, changes: ChangeIntake, now: float) -> Iterator[Change]:
    """Give the kept signals to the schedule. Yield changes that store this; commit each before the next.

    Raises:
        DamageError: a record is damaged.
    """
    kept = scan_prefix(store, keys.SIGNALS)
    while chunk := list(islice(kept, _APPLIED_AT_ONCE)):
        change = Change()
        by_source: dict[int, list[int]] = {}
        for key, value in chunk:
            change.delete(key)
            fingerprint = int.from_bytes(key[2:], "big")
            counters, at = _unpacked(key, value)
            changes.admit([fingerprint], now, change)
            if changes.is_news(fingerprint, min(at, now)):
                for source in range(SOURCES):
                    count = counters >> COUNTER_BITS * source & _COUNT_MAX
                    by_source.setdefault(source, []).extend([fingerprint] * count)
        for source, fingerprints in by_source.items():
            changes.note_changes(fingerprints, source, now)
        changes.stage(change)
        yield change


def _unpacked(key: bytes, value: bytes) -> tuple[int, float]:
    payload = unseal(key, value)
    if len(key) != 10 or len(payload) != _KEPT.size:
        raise DamageError(f"store: record {key!r} of kept signals has {len(payload)} bytes")
    counters, at = _KEPT.unpack(payload)
    return counters, at


def _key(prefix: bytes, fingerprint: int) -> bytes:
    return prefix + fingerprint.to_bytes(8, "big")
