"""Ships the finished segments of a crawl during the crawl, in a separate thread (`pages/shipping.py`).

A storage that cannot be reached never stops a crawl. The segments stay in the crawl directory, and the pause
between two attempts doubles up to `PAUSE_MAX`. When the crawl has ended, its last segments are shipped within
`pages.ship_patience`. `crawler ship` copies any segments that are left.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from crawler.config import PagesConfig
from crawler.errors import CrawlerError, blame_of_system
from crawler.pages import shipping
from crawler.storage.object_store import ObjectStore
from crawler.wording import several

log = logging.getLogger("crawler")

PAUSE_MAX = 600.0  # maximum number of seconds between two tries to ship a segment
NOTICE_AFTER = 5.0  # seconds of waiting at the end of a crawl until a line says so
NOTICE_INTERVAL = 30.0  # seconds between two such lines
SETTLED_AGE = 10.0  # seconds after which the last records of a finished segment have certainly been committed


class Shipper:
    """Ships the segments of the crawl in `directory`, if `config` names a storage. `now` returns the Unix time."""

    def __init__(self, directory: Path, config: PagesConfig, now: Callable[[], float]) -> None:
        self._directory = directory
        self._config = config
        self._now = now
        self._ending = threading.Event()
        self._ended = threading.Event()
        self._failed = ""
        self._transfers = shipping.Transfers()

    def start(self) -> None:
        """Start shipping if a storage is configured."""
        if self._config.ship:
            threading.Thread(target=self._run, name="shipper", daemon=True).start()

    async def end(self) -> None:
        """Ship the remaining segments within `pages.ship_patience`.

        Log the segments that are left for `crawler ship`. All segments must be finished before this call.
        """
        if not self._config.ship:
            return
        self._ending.set()
        await self._wait(self._config.ship_patience)
        with suppress(CrawlerError):
            if left := shipping.waiting(folders(self._directory)):
                log.warning(
                    "%s not in %s yet%s; `crawler ship --dir %s` copies the rest",
                    several(len(left), "WARC file", "are"),
                    self._config.ship,
                    f" ({self._failed})" if self._failed else "",
                    self._directory,
                )

    async def _wait(self, left: float) -> None:
        """Wait until the thread has ended, but at most `left` seconds. Log the progress at intervals."""
        pause = NOTICE_AFTER
        while not await asyncio.to_thread(self._ended.wait, min(pause, left)):
            left -= pause
            if left <= 0.0:
                return
            pause = NOTICE_INTERVAL
            current = str(self._transfers)
            log.warning(
                "copying WARC files to %s%s; waiting at most %.0f s more",
                self._config.ship,
                f": {current}" if current else "",
                left,
            )

    def _run(self) -> None:
        pause: float = self._config.ship_interval
        try:
            while not self._ending.wait(pause):
                succeeded = self._ship(self._now() - SETTLED_AGE)
                pause = self._config.ship_interval if succeeded else min(2 * pause, PAUSE_MAX)
            self._ship()
        finally:
            self._ended.set()

    def _ship(self, before: float | None = None) -> bool:
        """Ship the waiting segments; return False if the storage or this machine failed."""
        try:
            ship_waiting(self._directory, self._config, self._now, before=before, transfers=self._transfers)
        except Exception as error:
            if (expected := blame_of_system(error)) is None:
                raise
            if str(expected) != self._failed and not self._ending.is_set():  # `end` logs the last failure
                log.warning("shipping: %s; it is tried again", expected)
            self._failed = str(expected)
            return False
        self._failed = ""
        return True


def folders(directory: Path) -> list[Path]:
    """Return the folders of WARC files of all processes."""
    return sorted(directory.glob("*/warc"))


class ShippingResult(NamedTuple):
    """The result of `ship_waiting`: the number of shipped segments, and the number of bytes deleted locally."""

    files: int
    freed: int


def ship_waiting(
    directory: Path,
    config: PagesConfig,
    now: Callable[[], float],
    *,
    before: float | None = None,
    transfers: shipping.Transfers | None = None,
) -> ShippingResult:
    """Ship the waiting segments that were last written before `before`.

    With `pages.ship_delete`, delete the segments that the storage has confirmed. `transfers` follows the progress.

    Raises:
        ObjectStoreError: the storage cannot be reached, or has a different object of the same name.
        DamageError, StoreError: a note cannot be read, or the disk failed.
    """
    places = folders(directory)
    transfers = transfers or shipping.Transfers()
    shipments = shipping.waiting(places) if before is None else shipping.waiting(places, before)
    store = ObjectStore(config.ship, transfers.moved)
    transfers.expect(len(shipments))
    for shipment in shipments:
        transfers.begin(shipment.segment, shipment.files[0].stat().st_size)
        note = shipping.ship(shipment, store, now())
        log.info("shipped %s (%d bytes) to %s", shipment.segment, note.length, note.url)
        transfers.end(note)
    return ShippingResult(len(shipments), shipping.delete_shipped(places) if config.ship_delete else 0)
