"""Measure the refresh schedule: picks per CPU second (with and without politeness), bytes per page, and longest calls.

    python scripts/bench/refresh.py [PAGES] [PICKS] [SHAPE]

First, PAGES pages (default 1,000,000; try 1e7) are added, a thousand at a time, as when a process is opened.
The importances of the pages are equal; with SHAPE above 0 (try 1.5), they have a Pareto distribution of this
shape. Each directory has 33 pages, and each host has 1,000 pages. Then the time of PICKS picks (default
200,000) is measured. With each pick, the script also finds two pages by their fingerprints, gives the
schedule a signal for each of these two pages, and reports the result of the pick, from which the schedule
learns. For comparison, a heapq of pairs (deadline, page) is measured in the same run. With each pick, the
heap pops and pushes one pair, and the same two pages are found by fingerprint. Next, the script measures the
CPU time of the longest calls, first in normal operation and then while a signal for all pages is processed.
It also measures the time to reopen the schedule from LevelDB. Finally, 10,000 hosts with a gap of 5 s are
simulated on a virtual clock, first with the schedule alone, then through frontier, gates and addresses. For
both simulations, the script prints the mean, the smallest and the largest number of picks in a second.
"""

import heapq
import random
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import cast

import numpy as np

from crawler.bench import harness
from crawler.bench.meters import memory
from crawler.cli.parsing import positive_count
from crawler.config import convert
from crawler.frontier.frontier import Frontier
from crawler.frontier.permission import Robots
from crawler.frontier.refresh import RefreshOutcome, Schedule, Settings, state
from crawler.frontier.refresh.stored_view import unopened
from crawler.records import Fetch, FetchTask, Outcome, PageRecord, PageState, TaskKind
from crawler.storage.commit import Change
from crawler.storage.engines import open_store
from crawler.storage.kv import MemoryStore
from crawler.urls.fingerprint import Fingerprinter
from crawler.urls.suffixes import registrable_domain

DAY = 86_400.0
GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def filled(size: int, shape: float, rng: np.random.Generator) -> tuple[Schedule, np.ndarray]:
    """Return a schedule of `size` pages with some history, and the pages' fingerprints."""
    keys = np.arange(1, size + 1, dtype=np.uint64) * GOLDEN
    directories = np.arange(size, dtype=np.uint64) // np.uint64(33)
    hosts = directories // np.uint64(30)
    crawled, changes = -rng.random(size) * 60 * DAY, rng.gamma(0.5, 0.7, size)
    importance = np.random.default_rng(2).pareto(shape, size) + 1.0 if shape else np.ones(size)
    schedule = Schedule(Settings())
    before, started, longest = memory().resident, time.process_time(), 0.0
    for begin in range(0, size, 1000):
        part, at = slice(begin, begin + 1000), time.thread_time()
        schedule.add_many(
            keys[part], hosts[part], directories[part], crawled[part], importance[part], 0.0,
            changes=changes[part], watched=200 * DAY,
        )  # fmt: skip
        longest = max(longest, time.thread_time() - at)
    schedule.renew()
    schedule.pace.rate = size / (30 * DAY)
    print(
        f"{size:,} pages added: {time.process_time() - started:.1f} CPU s, a thousand in at most {longest * 1e3:.1f} ms"
    )
    print(
        f"memory: {(memory().resident - before) / size:.1f} bytes per page resident, "
        f"{schedule.overview.bytes_held / size:.1f} in tables"
    )
    return schedule, keys


def picks(schedule: Schedule, keys: np.ndarray, count: int, now: float, rng: np.random.Generator) -> float:
    """Run `count` picks with signals between them, and measure the time.

    Return the instant that the virtual clock has reached.
    """
    told = keys[rng.integers(0, len(keys), 2 * count)].tolist()
    results = (rng.random(count) < 0.3).astype(int).tolist()
    heap = [(float(k), k) for k in range(min(len(keys), 1_000_000))]
    find, signal, take, settle = (
        schedule.find,
        schedule.signals.note_change,
        schedule.claim_next,
        schedule.record_outcome,
    )
    tick, checks = 1.0 / schedule.pace.rate, schedule.overview.checks
    started = time.process_time()
    for k in range(count):
        now += tick
        signal(find(told[2 * k]), now, 1)
        signal(find(told[2 * k + 1]), now, 1)
        settle(take(now), now, results[k], now + 1.0)
    took, started = time.process_time() - started, time.process_time()
    for k in range(count):
        find(told[2 * k])
        find(told[2 * k + 1])
        heapq.heappush(heap, (heapq.heappop(heap)[0] + 10.0, k))
    plain = time.process_time() - started
    print(f"{count / took:,.0f} picks per CPU second, {took / count * 1e6:.1f} us each; ", end="")
    print(
        f"plain heap {plain / count * 1e6:.1f} us, ratio {took / plain:.1f}; "
        f"{(schedule.overview.checks - checks) / count:.2f} checks per pick"
    )
    return now


def longest_calls(schedule: Schedule, keys: np.ndarray, now: float, bulk: bool) -> float:
    """Measure the longest calls in 20,000 rounds.

    With `bulk`, a signal for all pages is processed at the same time.
    """
    worst = dict.fromkeys(("enqueue_changes", "work", "claim_next", "record_outcome", "note_change"), 0.0)

    def timed(name: str, call: object, *arguments: object) -> int:
        at = time.thread_time()
        found = call(*arguments)  # type: ignore[operator]
        worst[name] = max(worst[name], time.thread_time() - at)
        return found

    if bulk:
        timed("enqueue_changes", schedule.signals.enqueue_changes, keys, now, 2)
    for _ in range(20_000):
        now += 1.0 / schedule.pace.rate
        page = timed("claim_next", schedule.claim_next, now)
        timed("record_outcome", schedule.record_outcome, page, now, RefreshOutcome.UNCHANGED, now + 1.0)
        timed("note_change", schedule.signals.note_change, page, now, 3)
        if bulk:
            timed("work", schedule.work, now)
    left = f"; {schedule.signals.waiting:,} signals left" if bulk else ""
    print(
        "longest, ms: " + ", ".join(f"{name} {took * 1e3:.2f}" for name, took in worst.items() if took) + left
    )
    return now


def reopening(schedule: Schedule, now: float) -> None:
    """Store the schedule in LevelDB page by page, and rebuild it from the store."""
    with tempfile.TemporaryDirectory() as folder:
        store, begun, pages = open_store(Path(folder)), time.process_time(), len(schedule)
        sites: set[int] = set()
        for begin in range(0, pages, 1000):
            batch = store.batch()
            for page in range(begin, min(begin + 1000, pages)):
                state.stage_page(schedule, page, batch)
                if (host := schedule.host_of(page)) not in sites:
                    sites.add(host)
                    state.stage_site(schedule, host, batch)
            store.write(batch)
        batch = store.batch()
        for page in range(0, pages, 33):
            state.stage(schedule, page, batch)
        store.write(batch)
        stored = time.process_time() - begun
        store.close()
        size = sum(each.stat().st_size for each in Path(folder).iterdir())
        store, again = open_store(Path(folder)), Schedule(Settings())
        before, began, cpu = memory().resident, time.monotonic(), time.process_time()
        assert state.load(again, store, now).pages == pages
        print(
            f"stored in {stored:.0f} CPU s, {size / pages:.0f} bytes per page on disk; reopened in "
            f"{time.process_time() - cpu:.1f} CPU s, {time.monotonic() - began:.1f} s wall; "
            f"{(memory().resident - before) / pages:.0f} additional bytes per page in memory, "
            f"{again.overview.bytes_held / pages:.1f} in tables"
        )
        store.close()


def politeness(hosts: int, size: int, rng: np.random.Generator) -> None:
    """Pick pages from hosts of very unequal sizes. Compare the number of picks in the worst second with the mean."""
    rate, seconds, gap = 200.0, 300, 5.0
    share = 1.0 / (np.arange(hosts) + 5.0)
    host = rng.choice(hosts, size, p=share / share.sum()).astype(np.uint64)
    keys = np.arange(1, size + 1, dtype=np.uint64) * GOLDEN
    schedule = Schedule(Settings())
    schedule.add_many(keys, host, host, -rng.random(size) * size / rate, 1.0, 0.0)
    schedule.pace.rate = rate
    counts, started = np.zeros(seconds, int), time.process_time()
    for k in range(int(rate * seconds)):
        now = (k + 0.5) / rate
        page = schedule.claim_next(now)
        if page >= 0:
            counts[int(now)] += 1
            schedule.record_outcome(page, now, int(k % 4 == 0), now + gap)
    took = (time.process_time() - started) / counts.sum()
    print(
        f"{hosts:,} hosts, gap {gap:g} s: {counts.mean():.1f} picks/s, worst {counts.min()}, best {counts.max()}; "
        f"{took * 1e6:.1f} us per pick"
    )


def machine(hosts: int, size: int, rng: np.random.Generator) -> None:
    """Let a whole frontier pick pages on a virtual clock, with its gates, addresses and refresh schedule.

    Nothing is stored.
    """
    rate, seconds, start = 200.0, 120, 1e9
    share = 1.0 / (np.arange(hosts) + 5.0)
    of_host = np.sort(rng.choice(hosts, size, p=share / share.sum())).tolist()
    fingerprinter = Fingerprinter(bytes(16))
    urls = [f"http://h{host}.org/d{page // 33}/{page}" for page, host in enumerate(of_host)]
    records = {
        fingerprinter.fingerprint(url): PageRecord(
            url, PageState.STORED, Outcome.FETCHED, fetched_at=start - age
        )
        for url, age in zip(urls, (rng.random(size) * size / rate).tolist(), strict=True)
    }
    settings = convert({
        "robots": {"policy": "ignore"}, "politeness": {"delay": 5.0, "delay_factor": 0.0},
        "crawl": {"rate": rate}, "refresh": {"endless": True, "min_age": 0.0},
    })  # fmt: skip
    refresh = unopened(settings, fingerprinter, records.get, {}, processes=1, name="p0")
    frontier = Frontier(
        MemoryStore(), settings, robots=cast(Robots, None), fingerprinter=fingerprinter,
        registrable_domain=registrable_domain,
        concurrency=1000, rng=random.Random(1), refresh=refresh,
    )  # fmt: skip
    frontier.open(start, True)
    refresh.open(MemoryStore(), lambda: ((key, partial(records.__getitem__, key)) for key in records), start)
    counts = np.zeros(seconds, int)
    flying: list[tuple[float, int, FetchTask]] = []
    now, began, number = start, time.process_time(), 0
    while now < start + seconds:
        while flying and flying[0][0] <= now:
            _, _, ended = heapq.heappop(flying)
            fetch = Fetch(ended.url, Outcome.FETCHED, status=200, took=0.2)
            decision, change = frontier.record_outcome(ended, fetch, now), Change()
            known = records[ended.fingerprint]
            result = RefreshOutcome(int(ended.fingerprint % 4 == 0))
            refresh.outcomes.record_refresh(ended, result, known, known, decision.until, now, change)
            frontier.stage(decision, change)
            frontier.release(decision, now)
        while (fetch_task := frontier.claim_next(now)) is not None:
            if fetch_task.kind is TaskKind.RESOLVE:
                name = int(fetch_task.hostname[1:-4])
                frontier.resolved(
                    fetch_task, [f"10.{name >> 16}.{name >> 8 & 255}.{name & 255}"], now + 1e9, now
                )
                continue
            counts[int(now - start)] += 1
            number += 1
            heapq.heappush(flying, (now + 0.1 + 0.4 * rng.random(), number, fetch_task))
        wakeup = frontier.next_wakeup(now)
        then = min(flying[0][0] if flying else now + 1.0, now + 1.0 if wakeup is None else wakeup)
        now = max(then, now + 1e-4)
    took = (time.process_time() - began) / counts.sum()
    counts = counts[20:]
    print(
        f"whole machine, {hosts:,} hosts, {size:,} pages: {counts.mean():.1f} picks per second of {rate:g}, worst "
        f"{counts.min()}, best {counts.max()}; {took * 1e6:.0f} us per pick"
    )


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("size", metavar="PAGES", nargs="?", type=positive_count(), default=1_000_000)
    parser.add_argument("count", metavar="PICKS", nargs="?", type=positive_count(), default=200_000)
    parser.add_argument(
        "shape",
        metavar="SHAPE",
        nargs="?",
        type=float,
        default=0.0,
        help="of Pareto importances; 0: equal (0)",
    )
    args = parser.parse_args()
    size, count = args.size, args.count
    rng = np.random.default_rng(1)
    schedule, keys = filled(size, args.shape, rng)
    now = picks(schedule, keys, count, 0.0, rng)
    now = picks(schedule, keys, count, now, rng)
    now = longest_calls(schedule, keys, now, bulk=False)
    now = longest_calls(schedule, keys, now, bulk=True)
    print(schedule)
    reopening(schedule, now)
    politeness(10_000, min(size, 200_000), rng)
    machine(10_000, min(size, 100_000), rng)


if __name__ == "__main__":
    main()
