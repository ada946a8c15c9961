"""Decides when a run is over, and whether the disk lets it go on, by what the shell has seen."""

from enum import Enum

import msgspec

from crawler.config import CrawlConfig, StoreConfig

STOP_GRACE = 5.0  # seconds that fetches in flight are given after a stop
WATCH_INTERVAL = 1.0  # seconds between looks at time and disk space


class RunProgress(msgspec.Struct, frozen=True, gc=False):
    """How far a run is: seconds since its start, and what is known of its end.

    `limit` is one that all processes together have reached; `ended` says that
    nothing is left to do anywhere; `busy` that something is in flight, queued or
    pending here; `finished` is the frontier's reason for having nothing more.
    """

    elapsed: float = 0.0
    limit: str = ""
    ended: bool = False
    busy: bool = False
    finished: str = ""


def limit_reached(standing: RunProgress, config: CrawlConfig) -> str:
    """Why the run is over: "max_time", "max_pages", "max_bytes", "done", "patience"; "" while it is not."""
    if config.max_time and standing.elapsed >= config.max_time:
        return "max_time"
    if standing.limit:
        return standing.limit
    if standing.ended and not standing.busy:
        return standing.finished or "done"
    return ""


class Disk(Enum):
    """What the free space of the disk allows."""

    ROOM = "room"
    LOW = "low"  # nothing is fetched until there is room again
    FULL = "full"  # the run stops while there is room for its last commit


def disk_state(free: int, total: int, config: StoreConfig) -> Disk:
    """The state of a disk of `total` bytes; a small one is low from a twentieth of it on."""
    if free < config.stop_water_bytes:
        return Disk.FULL
    return Disk.LOW if free < min(config.low_water_bytes, total // 20) else Disk.ROOM
