"""Measures unit costs that matter only in large crawls: URLs on disk, hosts and pages in memory, schedule picks.

    known_bits        bits per known URL in a run, beyond log2 of the mean gap between fingerprints
    todo_disk         bytes per waiting URL of 77 characters, in a compacted store
    host_memory       bytes per known host
    refreshed_memory  bytes per known page in the refresh schedule
    pick_cpu          seconds per pick from the schedule, including the recording of its result and two signals

Each kind of state is built in a separate process.
"""

import math
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import closing
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from crawler.bench.loading import SEED, Loader, numbers, url
from crawler.bench.meters import anonymous_bytes
from crawler.bench.streams import mixed
from crawler.clock import VirtualClock
from crawler.config import convert
from crawler.due.runs import DiskRuns
from crawler.errors import CrawlerError
from crawler.frontier.refresh import Schedule, Settings
from crawler.process.opening.stages import Stages
from crawler.storage.engines import open_store
from crawler.storage.keys import TODO
from crawler.storage.kv import scan_prefix

KEYS = 1 << 20
URLS, HOSTS = 200_000, 10_000
ROWS = 5000  # entries per batch
PAGES, PICKS = 200_000, 50_000
DIRECTORY, HOST_DIRECTORIES = 33, 30  # pages per directory, directories per host
DAY = 86_400.0
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
Step = Callable[..., dict[str, float]]  # called with a folder and the numbers of the part


def measured() -> dict[str, float]:
    """Measure each cost in the module's docstring once and return the costs by name. This takes about twenty seconds.

    Raises:
        CrawlerError: a measuring process failed.
    """
    few, many = (_of(fill_queues, queues, numbers=(URLS, hosts)) for hosts in (HOSTS, 11 * HOSTS))
    return {
        "known_bits": _of(run_bits)["bits"],
        "todo_disk": few["queue"] / URLS,
        "host_memory": max(0.0, (many["memory"] - few["memory"]) / (10 * HOSTS)),
        **_of(schedule, numbers=(PAGES, PICKS)),
    }


def _of(*steps: Step, numbers: Sequence[int] = ()) -> dict[str, float]:
    """Run each step in a separate process. Return the measurements of the last step."""
    found: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="crawler-parts-") as folder:
        for step in steps:
            with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
                try:
                    found = pool.submit(step, Path(folder), *numbers).result()
                except Exception as error:
                    raise CrawlerError(f"bench units: measuring {step.__name__} failed: {error}") from error
    return found


def run_bits(folder: Path) -> dict[str, float]:
    """Measure the bits per key of a run with KEYS keys, which are distributed like fingerprints."""
    keys = np.sort(mixed(np.arange(KEYS)))
    run = DiskRuns(folder, []).write([keys], len(keys), step="flush")
    return {"bits": 8.0 * run.byte_count / KEYS - math.log2(2.0**64 / KEYS)}


def _opened(folder: Path) -> Stages:
    config = convert({"crawl": {"scope": "any"}, "robots": {"policy": "ignore"}})
    return Stages(config, folder / "p0", SEED, clock=VirtualClock(1e9))


def fill_queues(folder: Path, urls: int, hosts: int) -> dict[str, float]:
    """Load `urls` URLs, spread over `hosts` hosts."""
    with closing(_opened(folder)) as stages:
        loader = Loader(stages)
        for group in numbers(0, urls):
            loader.take_in([url(number, hosts) for number in group])
        loader.flush(dry=True)
    return {}


def queues(folder: Path, *_: int) -> dict[str, float]:
    """Measure the disk space of the queues, and the memory that the stages of the process take once they are open.

    A copy of the queues is made in a separate store and compacted there.

    The reason is that the store of the process also contains old values of host records, until LevelDB
    compacts it.
    """
    before = anonymous_bytes()
    with closing(_opened(folder)) as stages:
        memory = anonymous_bytes() - before
        with closing(open_store(folder / "queues")) as alone:
            entries = scan_prefix(stages.store, TODO)
            while rows := list(islice(entries, ROWS)):
                batch = alone.batch(sync=False)
                for key, value in rows:
                    batch.put(key, value)
                alone.write(batch)
            alone.compact()  # type: ignore[attr-defined]
    nbytes = sum(path.stat().st_size for path in (folder / "queues").iterdir())
    return {"queue": float(nbytes), "memory": float(memory)}


def schedule(_folder: Path, page_count: int, picks: int) -> dict[str, float]:
    """Measure the bytes per page and the seconds per pick of a refresh schedule with `page_count` pages.

    The pages of the schedule have been watched for some time before.
    """
    rng = np.random.default_rng(1)
    keys = np.arange(1, page_count + 1, dtype=np.uint64) * GOLDEN
    directories = np.arange(page_count, dtype=np.uint64) // np.uint64(DIRECTORY)
    hosts = directories // np.uint64(HOST_DIRECTORIES)
    crawled, changes = -rng.random(page_count) * 60 * DAY, rng.gamma(0.5, 0.7, page_count)
    before = anonymous_bytes()
    pages = Schedule(Settings())
    for begin in range(0, page_count, 1000):
        part = slice(begin, begin + 1000)
        pages.add_many(
            keys[part], hosts[part], directories[part], crawled[part], 1.0, 0.0,
            changes=changes[part], watched=200 * DAY,
        )  # fmt: skip
    pages.renew()
    memory = anonymous_bytes() - before
    pages.pace.rate = page_count / (30 * DAY)
    told = keys[rng.integers(0, page_count, 2 * picks)].tolist()
    results = (rng.random(picks) < 0.3).astype(int).tolist()
    now, tick, began = 0.0, 1.0 / pages.pace.rate, time.thread_time()
    for k in range(picks):
        now += tick
        pages.signals.note_change(pages.find(told[2 * k]), now, 1)
        pages.signals.note_change(pages.find(told[2 * k + 1]), now, 1)
        pages.record_outcome(pages.claim_next(now), now, results[k], now + 1.0)
    return {"refreshed_memory": memory / page_count, "pick_cpu": (time.thread_time() - began) / picks}
