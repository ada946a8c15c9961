"""Measure the frontier's CPU time per page and link in the common case: no delay, 62 hosts, everything in memory.

    python scripts/bench/frontier.py [pages]

The script also measures the cost of the same number of heap pushes and pops in the same run. Relative to this
cost, results from different machines can be compared.
"""

import heapq
import random
import time

from crawler.bench import harness
from crawler.cli.parsing import positive_count
from crawler.config import convert
from crawler.frontier.frontier import Frontier
from crawler.records import Fetch, FetchTask, Link, Outcome, TaskKind
from crawler.storage.commit import Change
from crawler.storage.kv import MemoryStore
from crawler.urls.fingerprint import Fingerprinter
from crawler.urls.suffixes import registrable_domain

HOSTS = 62
FLUSH = 2_000  # number of new links per flush


def make(store: MemoryStore) -> Frontier:
    settings = convert({"robots": {"policy": "ignore"}, "politeness": {"delay": 0, "delay_factor": 0}})
    return Frontier(
        store,
        settings,
        robots=None,  # type: ignore[arg-type]  # not used with the policy "ignore"
        fingerprinter=Fingerprinter(bytes(16)),
        registrable_domain=registrable_domain,
        concurrency=50,
        rng=random.Random(1),
    )


def links(start: int, count: int) -> list[Link]:
    return [
        Link(
            number, f"http://127.0.{number % HOSTS}.1:8080/docs/section/{number:x}/page.html", 3, number << 20
        )
        for number in range(start, start + count)
    ]


def run(pages: int) -> dict[str, float]:
    """Return the CPU microseconds of each step per link and per page.

    Changes are only recorded, and nothing is stored.
    """
    frontier, clock = make(MemoryStore()), time.process_time
    frontier.open(1e9, True)
    spent = dict.fromkeys(("enqueue", "claim_next", "record_outcome", "stage", "release"), 0.0)

    def timed(step: str, function, *args):  # type: ignore[no-untyped-def]
        start = clock()
        result = function(*args)
        spent[step] += clock() - start
        return result

    done, now, added = 0, 1e9, 0
    while done < pages:
        if added - done < FLUSH:
            change = Change()
            timed("enqueue", frontier.enqueue, links(added, FLUSH), change, now)
            frontier.committed(change, now)
            added += FLUSH
        fetch_tasks: list[FetchTask] = []
        start = clock()
        while (fetch_task := frontier.claim_next(now)) is not None:
            fetch_tasks.append(fetch_task)
        spent["claim_next"] += clock() - start
        fetches = [
            Fetch(fetch_task.url, Outcome.FETCHED, status=200, took=0.01) for fetch_task in fetch_tasks
        ]
        start = clock()
        decisions = [
            frontier.record_outcome(fetch_task, fetch, now)
            for fetch_task, fetch in zip(fetch_tasks, fetches, strict=True)
            if fetch_task.kind is TaskKind.PAGE
        ]
        spent["record_outcome"] += clock() - start
        change = Change()
        start = clock()
        for decision in decisions:
            frontier.stage(decision, change)
        spent["stage"] += clock() - start
        now += 0.01
        start = clock()
        for decision in decisions:
            frontier.release(decision, now)
        spent["release"] += clock() - start
        for fetch_task in fetch_tasks:
            if fetch_task.kind is TaskKind.RESOLVE:
                frontier.resolved(fetch_task, [fetch_task.hostname], now + 1e6, now)
        done += len(decisions)
    return {step: seconds / (added if step == "add" else done) * 1e6 for step, seconds in spent.items()}


def reference(count: int) -> float:
    """Return the microseconds of a push and a pop on a heap of 2,000 tuples."""
    heap = [(random.Random(n).random(), n) for n in range(2_000)]
    heapq.heapify(heap)
    start = time.process_time()
    for number in range(count):
        heapq.heappush(heap, (number * 0.37 % 1, number))
        heapq.heappop(heap)
    return (time.process_time() - start) / count * 1e6


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("pages", nargs="?", type=positive_count(), default=50_000)
    pages = parser.parse_args().pages
    unit = reference(pages)
    steps = run(pages)
    page = sum(cost for step, cost in steps.items() if step != "add")
    table = harness.Table(f"{'step':14}", "    us", f"heap operations of {unit:.2f} us")
    for step, cost in (steps | {"page": page}).items():
        table.row(step, cost, cost / unit)


if __name__ == "__main__":
    main()
