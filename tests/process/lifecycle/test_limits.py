"""Test each reason that ends a run, which of several reasons counts, and the states of a disk."""

import pytest

from crawler.config import convert
from crawler.process.lifecycle.limits import Disk, RunProgress, disk_state, limit_reached

NO_LIMITS = convert({}).crawl
GIB = 1 << 30


@pytest.mark.parametrize(
    ("standing", "reason"),
    [
        (RunProgress(), ""),
        (RunProgress(elapsed=1e9), ""),
        (RunProgress(limit="max_pages"), "max_pages"),
        (RunProgress(limit="max_pages", busy=True), "max_pages"),
        (RunProgress(ended=True), "done"),
        (RunProgress(ended=True, busy=True), ""),
        (RunProgress(ended=True, finished="patience"), "patience"),
        (RunProgress(finished="done"), ""),
        (RunProgress(limit="max_bytes", ended=True), "max_bytes"),
    ],
)
def test_a_run_ends_at_a_limit_or_when_no_work_is_left(standing: RunProgress, reason: str) -> None:
    """In a crawl with peers, an empty frontier does not end the run, because the peers may still send links."""
    assert limit_reached(standing, NO_LIMITS) == reason


@pytest.mark.parametrize(("elapsed", "reason"), [(9.9, ""), (10.0, "max_time"), (11.0, "max_time")])
def test_the_limit_of_time(elapsed: float, reason: str) -> None:
    config = convert({"crawl": {"max_time": 10}}).crawl
    assert limit_reached(RunProgress(elapsed=elapsed, busy=True), config) == reason


@pytest.mark.parametrize(
    ("free", "total", "state"),
    [
        (5 * GIB, 1000 * GIB, Disk.ROOM),
        (4 * GIB, 1000 * GIB, Disk.ROOM),
        (4 * GIB - 1, 1000 * GIB, Disk.LOW),
        (3 * GIB, 40 * GIB, Disk.ROOM),  # a twentieth of this disk is less than the configured limit
        (2 * GIB, 40 * GIB, Disk.ROOM),
        (2 * GIB - 1, 40 * GIB, Disk.LOW),
        (GIB, 1000 * GIB, Disk.LOW),
        (GIB - 1, 1000 * GIB, Disk.FULL),
        (GIB - 1, 2 * GIB, Disk.FULL),
        (0, 0, Disk.FULL),
    ],
)
def test_which_disk_states_pause_or_stop_a_crawl(free: int, total: int, state: Disk) -> None:
    config = convert({"store": {"low_water_bytes": "4 GiB", "stop_water_bytes": "1 GiB"}}).store
    assert disk_state(free, total, config) is state
