"""Decides when a run is over and whether disk space allows it to continue, from values that the caller measures."""

from enum import Enum

import msgspec

from crawler.config import CrawlConfig, StoreConfig

SUPERVISOR_GONE = "supervisor gone"  # the reason for which an orphaned process stops
# After a stop, fetches in flight, decisions on large answers and flushes of the DUE may continue for this
# many seconds.
STOP_GRACE = 2.5
WATCH_INTERVAL = 1.0  # number of seconds between two checks of time and disk space


class RunProgress(msgspec.Struct, frozen=True, gc=False):
    """The progress of a run: the seconds since its start, and the facts that decide whether the run is over.

    `limit` is a limit that all processes together have reached. `ended` is true if no process has work left.
    `busy` is true if something is in flight, queued or pending in this process. `finished` says why the
    frontier has no more URLs.
    """

    elapsed: float = 0.0
    limit: str = ""
    ended: bool = False
    busy: bool = False
    finished: str = ""


def limit_reached(standing: RunProgress, config: CrawlConfig) -> str:
    """Return why the run is over: "max_time", "max_pages", "max_bytes", "done", "patience"; "" if it is not over."""
    if config.max_time and standing.elapsed >= config.max_time:
        return "max_time"
    if standing.limit:
        return standing.limit
    if standing.ended and not standing.busy:
        return standing.finished or "done"
    return ""


class Disk(Enum):
    """The state of the disk's free space."""

    ROOM = "room"
    LOW = "low"  # fetch nothing until there is room again
    FULL = "full"  # stop the run while there is still room for its last commit


def disk_state(free: int, total: int, config: StoreConfig) -> Disk:
    """Return the state of a disk of `total` bytes. A small disk is low when less than a twentieth of it is free."""
    if free < config.stop_water_bytes:
        return Disk.FULL
    return Disk.LOW if free < min(config.low_water_bytes, total // 20) else Disk.ROOM
