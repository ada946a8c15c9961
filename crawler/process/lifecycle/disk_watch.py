"""Pauses the fetches of a process while its disk is low, and stops the process when the disk is full."""

import logging
from pathlib import Path

from crawler.config import StoreConfig
from crawler.frontier.pauses import Pauses
from crawler.process.lifecycle.limits import Disk, disk_state
from crawler.process.lifecycle.run_end import RunEnd
from crawler.storage.files import free_bytes, total_bytes

log = logging.getLogger("crawler")

DISK = "disk"  # the reason that is stated if a full disk pauses or stops the run


class DiskWatch:
    """The free space of the disk that holds `directory`."""

    def __init__(self, directory: Path, config: StoreConfig, pauses: Pauses, run_end: RunEnd) -> None:
        self._directory, self._config, self._pauses, self._run_end = directory, config, pauses, run_end

    def look(self) -> None:
        """Compare the free space with the limits; pause, continue or stop if necessary."""
        free, least = free_bytes(self._directory), self._config.stop_water_bytes
        state = disk_state(free, total_bytes(self._directory), self._config)
        if state is Disk.FULL and not self._run_end.stopping():
            log.error(
                "disk: %d MiB free, less than store.stop_water_bytes (%d MiB); stopping. "
                "Free some space and start again: all accepted data is kept",
                free >> 20,
                least >> 20,
            )
            self._run_end.stop(DISK)
        low = state is not Disk.ROOM
        if low != (DISK in self._pauses.reasons):
            log.warning("disk: %d MiB free; fetching %s", free >> 20, "pauses" if low else "continues")
            change = self._pauses.pause if low else self._pauses.resume
            change(DISK)
            self._run_end.wake()
