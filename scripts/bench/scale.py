"""Measure one process at scale: it takes in a synthetic stream of links (CLOCK cache, DUE, frontier), and is reopened.

    python scripts/bench/scale.py [--urls 1e7] [--hosts 1e6] [--folder DIR] [--set section.key=value ...]

Every host gets one URL first. The other URLs are assigned to hosts by a skewed draw, the square of a uniform
number, so the busiest tenth of the hosts gets a third of the URLs. One link in five repeats an earlier one.
URLs have 77 bytes on average. The script opens the stages of a process and calls them as the process does: it
commits and syncs groups of results with their links, and flushes the DUE when necessary. Each phase runs in a
separate process:

    load    CPU per link by step (without making the links), the longest turns of the loop; then pages; then kill -9
    open    seconds to open the directory after the kill, and after a clean stop
    pages   CPU to take and finish 20,000 pages of hosts that are all outside the front

Each phase prints the resident memory, the anonymous part of it (LevelDB maps its tables, whose pages are not
anonymous), and the disk space of the queues. `--minutes` limits the time in which URLs are loaded. If this
limit ends the loading, the results refer to the URLs that were loaded until then.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from filled import fill
from programs import scratch

from crawler.bench import harness
from crawler.bench.loading import SEED, Loader, hostname, numbers, tail, url
from crawler.bench.meters import memory
from crawler.cli.parsing import positive_count
from crawler.clock import VirtualClock
from crawler.config import Config, convert, set_key
from crawler.process.lifecycle import garbage_collection
from crawler.process.opening.stages import Stages
from crawler.records import Fetch, Outcome, TaskKind
from crawler.storage.keys import HOST, TODO
from crawler.storage.kv import after_prefix


def settings(assignments: list[str]) -> Config:
    tree: dict[str, dict[str, object]] = {
        "crawl": {"scope": "any"},
        "robots": {"policy": "ignore"},
        "politeness": {"delay": 0},
    }
    for assignment in assignments:
        path, _, value = assignment.partition("=")
        set_key(tree, path, value)
    return convert(tree)


def opened(args: argparse.Namespace) -> Stages:
    return Stages(settings(args.set), args.folder / "p0", SEED, clock=VirtualClock(1e9))


def build(args: argparse.Namespace) -> None:
    """Build a compacted store with `filled` URLs."""
    stages = opened(args)
    fingerprinter = stages.fingerprinter
    stages.close()
    fill(
        args.folder / "p0", args.filled, args.hosts, fingerprinter=fingerprinter, name=hostname, tail=tail,
        told=lambda text: print(f"  {text}: {memory()}", flush=True),
    )  # fmt: skip


def load(args: argparse.Namespace) -> None:
    print(f"load: before {memory()}")
    stages = opened(args)
    garbage_collection.collect_rarely()
    garbage_collection.freeze()
    loader = Loader(stages)
    making, length, told = 0.0, 0, 0
    wall, begun = time.perf_counter(), time.process_time()
    for group in numbers(args.filled, args.urls):
        t = time.thread_time()
        urls = [url(number, args.hosts) for number in group]
        making += time.thread_time() - t
        length += sum(map(len, urls))
        loader.take_in(urls)
        if loader.links // (args.urls // 8) > told:
            told = loader.links // (args.urls // 8)
            cpu = (time.process_time() - begun - making) / loader.links * 1e6
            took = time.perf_counter() - wall
            print(f"  {loader.links:,} links, {cpu:.1f} us each, {took:.0f} s: {memory()}", flush=True)
        if args.minutes and time.perf_counter() - wall > 60 * args.minutes:
            break
    loader.flush(dry=True)
    total = time.process_time() - begun - making
    links = loader.links
    print(f"{links:,} links of {length / links:.1f} bytes, {stages.due.new:,} URLs, {stages.frontier!r}")
    for step, seconds in loader.watch.total.items():
        print(
            f"  {step:28}{seconds / links * 1e6:8.2f} us per link, longest {loader.watch.longest[step] * 1e3:6.0f} ms"
        )
    print(
        f"  {'with LevelDB own thread':28}{total / links * 1e6:8.2f} us per link; {time.perf_counter() - wall:.0f} s"
    )
    print(f"memory {memory()}")
    pages(stages, args.pages)
    tell_disk(args.folder, stages)
    sys.stdout.flush()
    os.kill(os.getpid(), signal.SIGKILL)


def disk(path: Path) -> int:
    return sum(file.stat().st_size for file in path.rglob("*") if file.is_file())


def tell_disk(folder: Path, stages: Stages) -> None:
    """Print the bytes per URL of the whole folder and, with LevelDB, of the tables of queues and hosts."""
    urls = stages.due.new
    text = f"disk: {disk(folder) / urls:.1f} bytes per URL"
    if (engine := getattr(stages.store, "_db", None)) is not None and hasattr(engine, "approximate_size"):
        for name, prefix in (("queues", TODO), ("hosts", HOST)):
            text += f", {name} {engine.approximate_size(prefix, after_prefix(prefix)) / urls:.1f}"
    print(text, flush=True)


def pages(stages: Stages, count: int) -> None:
    """Claim and finish pages of hosts. At first, all of these hosts are outside the front."""
    store, frontier = stages.store, stages.frontier
    begun, mine = time.process_time(), time.thread_time()
    done, now, hosts = 0, 2e9, 0
    while done < count and (fetch_task := frontier.claim_next(now)) is not None:
        if fetch_task.kind is TaskKind.RESOLVE:
            hosts += 1
            frontier.resolved(fetch_task, ["10.0.0.1"], now + 3600, now)
            continue
        decision = frontier.record_outcome(
            fetch_task, Fetch(fetch_task.url, Outcome.FETCHED, status=200), now
        )
        batch = store.batch(sync=False)
        frontier.stage(decision, batch)
        store.write(batch)
        frontier.release(decision, now)
        done += 1
    mine = (time.thread_time() - mine) / max(1, done) * 1e6
    total = (time.process_time() - begun) / max(1, done) * 1e6
    print(f"{done} pages of {hosts} hosts: {mine:.1f} us of CPU each, {total:.1f} with LevelDB's own thread")


def reopen(args: argparse.Namespace) -> None:
    wall, cpu = time.perf_counter(), time.process_time()
    stages = opened(args)
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    print(
        f"open, {'clean stop' if args.clean else 'kill -9'} before: {wall:.2f} s, CPU {cpu:.2f} s; {stages.frontier!r}"
    )
    print(f"memory {memory()}")
    if args.pages:
        pages(stages, args.pages)
        print(f"memory {memory()}")
    if args.compact:
        begun = time.perf_counter()
        stages.store.compact()  # type: ignore[attr-defined]
        print(f"compacted in {time.perf_counter() - begun:.0f} s")
    tell_disk(args.folder, stages)
    stages.close()


def main() -> None:
    parser = harness.parser(__doc__)
    parser.option("--urls", 1_000_000, type=positive_count())
    parser.option("--hosts", 100_000, type=positive_count())
    parser.option("--folder", Path, metavar="DIR")
    parser.option(
        "--filled", 0, "URLs that are built directly before the load (filled.py)", type=positive_count()
    )
    parser.option("--minutes", 0.0, "upper bound on the load, in minutes (none)")
    parser.option("--set", [], metavar="SECTION.KEY=VALUE")
    parser.add_argument("--phase", choices=["fill", "load", "open"], help=argparse.SUPPRESS)
    parser.add_argument("--clean", action="store_true", help=argparse.SUPPRESS)
    parser.option("--compact", False, "compact at the end and print the disk space left")
    parser.add_argument("--pages", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.phase:
        return {"fill": build, "load": load, "open": reopen}[args.phase](args)
    again = [sys.executable, __file__, "--urls", str(args.urls), "--hosts", str(args.hosts)]
    again += [word for assignment in args.set for word in ("--set", assignment)]
    taken = ["--pages", "20000"]
    last = ["--compact"] if args.compact else []
    with scratch("scale", args.folder) as folder:
        again += ["--folder", str(folder)]
        if args.filled:
            again += ["--filled", str(args.filled)]
            subprocess.run([*again, "--phase", "fill"], check=True)
        loaded = subprocess.run(
            [*again, "--minutes", str(args.minutes), "--phase", "load", *taken], check=False
        )
        if loaded.returncode != -signal.SIGKILL:
            sys.exit(f"the load failed with exit code {loaded.returncode}")
        subprocess.run([*again, "--phase", "open"], check=True)
        subprocess.run([*again, "--phase", "open", "--clean", *taken, *last], check=True)


if __name__ == "__main__":
    main()
