"""Keeps IndexNow notices in the store until their key files are read, so a notice answered with 202 survives a crash.

A notice is deleted by the change that turns its URLs into signals, or when its key file proves not to contain
the key. `serve/indexnow.py` limits the number of waiting URLs.
"""

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from crawler.change_signals import Signalled
from crawler.errors import DamageError
from crawler.process.results.signal_intake import SignalIntake
from crawler.serve.http_error import HttpError
from crawler.serve.indexnow import Notice
from crawler.storage.commit import Change, Making
from crawler.storage.keys import NOTICE
from crawler.storage.kv import KeyValue, scan_prefix, seal, unseal

_Name = tuple[str, str]  # (location of the key file, key)


class StoredNotices:
    """The waiting notices of one process.

    `queue` accepts a change, or a function that makes one. `kept` waits until all queued changes are durable,
    and returns False if this takes too long.
    """

    def __init__(
        self,
        store: KeyValue,
        fingerprint: Callable[[str], int],
        intake: SignalIntake,
        queue: Callable[[Change | Callable[[], Making]], None],
        kept: Callable[[], Awaitable[bool]],
    ) -> None:
        self._store = store
        self._fingerprint = fingerprint
        self._intake = intake
        self._queue, self._kept = queue, kept
        self._keys: dict[_Name, list[bytes]] = {}
        self._number = 0  # the highest number of a notice so far

    def load(self) -> list[Notice]:
        """Return the notices of earlier runs. Damaged notices stay in the store, where `crawler check` finds them."""
        found = []
        for key, value in scan_prefix(self._store, NOTICE):
            self._number = max(self._number, int.from_bytes(key[-8:], "big"))
            try:
                notice = msgspec.msgpack.decode(unseal(key, value), type=Notice)
            except (DamageError, msgspec.MsgspecError):
                continue
            self._keys.setdefault((notice.location, notice.key), []).append(key)
            found.append(notice)
        return found

    async def keep(self, notice: Notice) -> None:
        """Store a notice. When this method returns, the notice is durable.

        Raises:
            HttpError: 503, the disk is too slow.
        """
        self._number += 1
        place = self._fingerprint(notice.location).to_bytes(8, "big")
        key = NOTICE + place + self._number.to_bytes(8, "big")
        self._keys.setdefault((notice.location, notice.key), []).append(key)
        change = Change()
        change.put(key, seal(msgspec.msgpack.encode(notice)))
        self._queue(change)
        if not await self._kept():
            raise HttpError(503, "late", "the notice is not on disk yet; send it again")

    def judged(self, notice: Notice, urls: Sequence[str], source: str) -> None:
        """Turn `urls` into signals, and delete all notices with the key of `notice`, in one change.

        This is called after the key file of `notice` was read.
        """
        keys = self._keys.pop((notice.location, notice.key), [])
        self._queue(lambda: self._made(keys, urls, source))

    def _made(self, keys: Sequence[bytes], urls: Sequence[str], source: str) -> Making:
        change = yield from self._intake.decide(urls, source, Signalled())
        for key in keys:
            change.delete(key)
        return change
