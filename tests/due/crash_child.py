"""A process that feeds a fixed stream of links to an Eliminator and can kill itself at a named step.

When the process is started again, the stream continues after the last group in the store. The frontier
consists of the keys `t/<number>`, one for each link that was handed out. So a link that is handed out twice
has two keys in the frontier.
"""

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np

from crawler.config import DueConfig
from crawler.due.eliminator import Eliminator
from crawler.records import Link
from crawler.storage.engines import open_store
from crawler.storage.kv import KeyValue, scan_prefix

GROUPS = 24
CONFIG = DueConfig(buffer_entries_max=16, part_links_max=2, merge_chunk_bytes=128, log_bytes_max=700)
GROUPS_KEY = b"m/groups"

Step = Callable[[str], None]


def groups() -> list[list[Link]]:
    """Return the stream in groups. There are many links but few URLs, so most links lead to known URLs."""
    generator = random.Random(11)
    return [
        [Link(generator.randrange(160) << 40, f"http://host/{group}/{place}", group) for place in range(12)]
        for group in range(GROUPS)
    ]


def expected() -> list[Link]:
    """Return the first link of each URL of the stream, in order."""
    first: dict[int, Link] = {}
    for links in groups():
        for link in links:
            first.setdefault(link.fingerprint, link)
    return list(first.values())


def handed_out(store: KeyValue) -> list[Link]:
    """Return the links that the frontier received, in order."""
    return [msgspec.msgpack.decode(value, type=Link) for _, value in scan_prefix(store, b"t/")]


def open_due(directory: Path, store: KeyValue, step: Step = lambda _: None) -> Eliminator:
    return Eliminator(directory, store, CONFIG, check_value=9, method="mmh3", fault=step)


def _commit(store: KeyValue, name: str, stage: Callable, step: Step, **puts: bytes) -> None:
    batch = store.batch(sync=True)
    stage(batch)
    step(f"{name} staged")
    store.write(batch)
    step(f"{name} durable")


def feed(store: KeyValue, due: Eliminator, step: Step = lambda _: None) -> None:
    """Commit the remaining groups. Flush after every second group, often while a compaction is in progress."""
    done = int(store.get(GROUPS_KEY) or b"0")
    compaction = None
    for number, links in list(enumerate(groups()))[done:]:
        fresh = due.admit(np.array([link.fingerprint for link in links], np.uint64))
        due.append([link for link, is_fresh in zip(links, fresh, strict=True) if is_fresh])
        due.sync()

        def stage(batch, number=number) -> None:
            due.stage(batch)
            batch.put(GROUPS_KEY, str(number + 1).encode())

        _commit(store, "group", stage, step)
        due.committed()
        if number % 2:
            _flush(store, due, step)
        if compaction is not None and number % 5 == 0:
            _end_compaction(store, due, compaction, step)
            compaction = None
        if compaction is None and (compaction := due.compactor.begin()):
            compaction.run()
    while due.pending:
        _flush(store, due, step)
    if compaction is not None:
        _end_compaction(store, due, compaction, step)


def _flush(store: KeyValue, due: Eliminator, step: Step) -> None:
    plan = due.begin_flush(0.0)
    if plan is None:
        return
    before = due.new
    plan.run()

    def stage(batch) -> None:
        due.stage_flush(plan, batch)
        for place, link in enumerate(plan.new_links):
            batch.put(b"t/%08d" % (before + place), msgspec.msgpack.encode(link))

    _commit(store, "flush", stage, step)
    due.flushed(plan)


def _end_compaction(store: KeyValue, due: Eliminator, plan, step: Step) -> None:
    _commit(store, "compaction", lambda batch: due.compactor.stage(plan, batch), step)
    due.compactor.committed(plan)


def main(directory: Path, fatal_step: str, occurrence: int) -> None:
    """Feed the stream. Kill this process with SIGKILL when the step occurs for the `occurrence`th time."""
    left = occurrence

    def step(name: str) -> None:
        nonlocal left
        left -= name == fatal_step
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    store = open_store(directory / "store")
    feed(store, open_due(directory, store, step), step)
