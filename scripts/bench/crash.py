"""Kill crawls of a tree-shaped web; count the pages that are lost, stored twice or fetched again.

    python scripts/bench/crash.py [--processes 1 3] [--engine leveldb rocksdict] [--case ROW ...] [--seeds 1]
                                  [--kills 20] [--pages 4000] [--folder DIR]

Each row of the table below is a case. Every case is run with each number of processes and each engine. In
most cases, the crawler is killed (SIGKILL) several times. After each kill it is restarted, and the last start
runs to the end of the crawl. Every URL of the web has exactly one in-link, all bodies are distinct, and the
crawl has no budgets. So no other link can lead to a lost page, and a lost page stays lost. The server's log
and the WARC files are the evidence. Rows:

    named points         the crawler kills itself at every step of a group, a flush, a compaction, a segment roll, a clean
                         stop and an exchange between processes; of several processes each kills itself once
    power cuts           killed at the same points; then every file loses all bytes that were not synced. Several
                         processes are killed at the same instant
    random instants      --kills kills from outside at random times; of several processes, one and all in turns
    stopped for 60 s     SIGSTOP, SIGCONT: only fetches that timed out meanwhile are repeated
    seeds                a list of seeds instead of a tree, killed while the list is read
    seeds loaded         33 times as many seeds as pages, loaded with kills but not fetched; one process
    planted bugs         a page is marked as done before its links are stored; WARC files are not truncated: the script
                         must detect these bugs
    around               events around a crawl (`tests/faults/around.py`): readers beside it, wrong clocks, a process
                         restored from a backup, killed repairs, cut segments, reshards, hostile directories; and a
                         planted bug that each scenario must detect. At most 1,000 pages.

With the default options, one process took 15 minutes and three processes took 35, on a machine with two cores
and a load of 8. The power cuts, and the kills at random instants, are repeated with each of the --seeds
seeds. After a kill, the fetches that were in flight may be repeated. `worst` is the largest number of fetches
that were repeated after one kill. A row fails if a page is lost or stored twice, if a fault is not reached,
or if a planted bug is not found.
"""

import os
import random
import signal
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import NamedTuple

from programs import scratch

from crawler.bench import harness
from tests import warm_start
from tests.faults.around import PLANTED as BUGS_AROUND
from tests.faults.around import SCENARIOS, Setting
from tests.faults.harness import (
    CONCURRENCY,
    Judgement,
    TreeWeb,
    cut_at,
    end,
    finish,
    judge,
    kill_at,
    load_seeds_with_kills,
    run_with_kills,
    run_with_random_kills,
    settings,
    several,
    start,
)
from tests.faults.power import family

ENGINES = ("leveldb", "rocksdict")
COLUMNS = (
    *(" " * 20, "proc", "   engine", "seed", "kills", "  lost"),
    *("unstored", "twice", "torn", "refetched", "worst", "   s"),
)
HOSTS = 200
# These settings give segments of twenty pages, and a flush of the DUE after 16 links, so that there are
# many flushes and merges.
SMALL = ("--set", "pages.segment_bytes=20000", "--set", "due.buffer_entries_max=16")
PAUSE_MAX = 4.0  # seconds between two random kills
STOPPED = 60.0  # seconds
SEEDS_A_BATCH = 10_000
# these points are reached only if a flush and a compaction run at the same time, so runs are written slowly
OVERLAPPING = [
    f"{point}:1 --set due.buffer_entries_max=4 --max-pages 400"
    for point in ("flush during compaction", "compaction during flush")
]
SLOWLY = "slow-runs"
# Only pages near the root of the tree have links, so the points that are reached only with new links come first.
FAULTS = [
    "seeds loading:1",
    *(f"flush {step}:1" for step in ("joined", "written", "synced", "renamed", "named", "ran")),
    *(f"flush {step}:1" for step in ("committed", "finished", "done")),
    *(f"compaction {step}:1" for step in ("written", "synced", "renamed", "named", "ran", "committed")),
    "run unlinked:1",
    "compaction done:1",
    *OVERLAPPING,
    "fetch begun:20",
    "record appended:3",
    "links written:3",
    "links synced:3",
    "synced:3",
    "batch written:3",
    "committed:3",
    "segment begun:1",
    "segment rolled:1",
    "stopping:1",
    "closing:1",
]
EXCHANGED = [
    "entries accepted:3",
    "acks sent:3",
    "entries sent:3",
]  # these points are reached only if there are several processes
PLANTED = {
    "page-before-links": [f"committed:{n}" for n in range(12, 18)],
    "no-truncation": ["record appended:15", "synced:15", "record appended:30"],
}


class Crash(NamedTuple):
    """The size of the crawls for one row of the table."""

    pages: int
    processes: int
    engine: str
    kills: int
    seed: int = 1

    @property
    def faults(self) -> list[str]:
        return EXCHANGED * (self.processes > 1) + FAULTS

    def flags(self, *more: str) -> tuple[str, ...]:
        return (*SMALL, *several(self.processes), *more)

    @property
    def part(self) -> tuple[str, ...]:
        """The limit of a run that is to be killed.

        All these runs together fetch fewer pages than there are, so the last run has pages left. A process
        that killed itself is restarted, and its new count of fetches begins at 0. So runs of several
        processes may fetch twice their limit.
        """
        lives = 1 + (self.processes > 1)
        return self.flags("--max-pages", str(self.pages // (lives * (len(self.faults) + 2))))


class Row(NamedTuple):
    """The result of one row of the table: the judgement, the number of kills, and the faults that no crawl reached."""

    found: Judgement
    kills: int
    missed: Sequence[str] = ()


def named_points(folder: Path, size: Crash) -> Row:
    with TreeWeb(folder, size.pages, "--fanout", "2", hosts=HOSTS) as web:
        directory, kills, missed = folder / "crawl", list[float](), list[str]()
        for fault in size.faults:
            once = partial(kill_at, web, directory, fault, *size.part, module=_module(fault))
            # a second try is made, because it depends on timing whether a point is reached
            at = once() or once()
            kills += at
            missed += [] if at else [fault]
        finish(web, directory, *size.flags())
        return Row(judge(web, directory, kills, processes=size.processes), len(kills), missed)


def _module(fault: str) -> tuple[str, ...]:
    """Return the module that runs a crawl with this fault, and its arguments."""
    return ("tests.faults.planted", SLOWLY) if fault in OVERLAPPING else ("crawler",)


def power_cuts(folder: Path, size: Crash) -> Row:
    rng = random.Random(size.seed)
    with TreeWeb(folder, size.pages, "--fanout", "2", hosts=HOSTS) as web:
        directory, cuts, missed = folder / "crawl", list[float](), list[str]()
        for fault in size.faults:
            bug = SLOWLY if fault in OVERLAPPING else ""
            once = partial(cut_at, web, directory, fault, rng, *size.part, bug=bug)
            if once() or once():  # whether a point is reached depends on timing
                cuts.append(time.time())
            else:
                missed.append(fault)
        finish(web, directory, *size.flags())
        return Row(judge(web, directory, cuts, processes=size.processes), len(cuts), missed)


def random_instants(folder: Path, size: Crash) -> Row:
    rng, delay = random.Random(size.seed), str(HOSTS * size.kills * PAUSE_MAX / 2 / size.pages)
    with TreeWeb(folder, size.pages, "--fanout", "2", hosts=HOSTS) as web:
        # with this delay, the crawl lasts about until the last kill
        flags = size.flags("--delay", delay)
        kills = run_with_random_kills(web, folder / "crawl", size.kills, PAUSE_MAX, rng, *flags)
        missed = [] if len(kills) == size.kills else [f"{size.kills - len(kills)} random kills"]
        return Row(judge(web, folder / "crawl", kills, processes=size.processes), len(kills), missed)


def stopped(folder: Path, size: Crash) -> Row:
    pages = size.pages // 4
    with TreeWeb(folder, pages, "--delay", "0.02", hosts=HOSTS) as web:
        process = start(folder / "crawl", web.seed, *settings(*size.flags()))
        while web.fetched().total() < pages // 4:
            time.sleep(0.1)
        crawl = family(process.pid)
        for each in crawl:
            os.kill(each, signal.SIGSTOP)
        time.sleep(STOPPED)
        for each in crawl:
            os.kill(each, signal.SIGCONT)
        ended = end(process)
        assert ended.code == 0, ended
        return Row(judge(web, folder / "crawl", processes=size.processes), 1)


def seeds(folder: Path, size: Crash) -> Row:
    """Crawl a web in which every page is a seed without links, and judge the result."""
    pages = size.pages // 3
    with TreeWeb(folder, pages, "--fanout", "0", hosts=HOSTS) as web:
        listed = folder / "seeds"
        listed.write_text("".join(f"{web.url(page)}\n" for page in range(pages)))
        faults = ["seeds loading:1", "seeds loading:2", "batch written:5", "flush ran:1"]
        kills = run_with_kills(web, folder / "crawl", faults, *size.flags("--seeds", str(listed)))
        missed = [] if len(kills) >= len(faults) else faults
        return Row(judge(web, folder / "crawl", kills, processes=size.processes), len(kills), missed)


def seeds_loaded(folder: Path, size: Crash) -> Row:
    count = size.pages * 100 // 3
    last = count // SEEDS_A_BATCH
    faults = [
        "seeds loading:3",
        f"batch written:{last // 2}",
        "flush committed:3",
        "compaction ran:1",
        f"seeds loading:{last - 1}",
    ]
    known = load_seeds_with_kills(folder, count, faults)
    twice = sum(n > 1 for n in known.values())
    return Row(Judgement(count - len(known), 0, twice, 0, 0, 0), len(faults))


def planted(folder: Path, size: Crash, bug: str) -> Row:
    with TreeWeb(folder, size.pages, hosts=HOSTS) as web:
        module = ("tests.faults.planted", bug)
        kills = run_with_kills(web, folder / "crawl", PLANTED[bug], *several(size.processes), module=module)
        return Row(judge(web, folder / "crawl", kills, processes=size.processes), len(kills))


def around(folder: Path, size: Crash, name: str, bug: str = "") -> Row:
    """Run a scenario. If an assertion of the scenario fails, print its message and count the failure as a lost page."""
    setting = Setting(min(size.pages, 1000), size.processes, size.engine, bug)
    try:
        return Row(SCENARIOS[name](folder, setting), 0)
    except AssertionError as broken:
        print(f"  {name}: {str(broken)[:200]}")
        return Row(Judgement(1, 0, 0, 0, 0, 0), 0)


CASES: dict[str, Callable[[Path, Crash], Row]] = {
    "named points": named_points,
    "power cuts": power_cuts,
    "random instants": random_instants,
    "stopped for 60 s": stopped,
    "seeds": seeds,
    "seeds loaded": seeds_loaded,
    **{bug: partial(planted, bug=bug) for bug in PLANTED},
    **{name: partial(around, name=name) for name in SCENARIOS},
    **{bug: partial(around, name=name, bug=bug) for name, bug in BUGS_AROUND.items()},
}
SEEDED = ("power cuts", "random instants")
BUGS = (*PLANTED, *BUGS_AROUND.values())


def run(name: str, size: Crash, parent: Path | None, table: harness.Table) -> bool:
    """Run the kills of one row of the table, and print the row.

    Return whether the row is right. The run must have reached every point at which a fault is planned. The
    result must be flawless (`Judgement.flawless`) if no bug was planted, and must not be flawless if one was
    planted.
    """
    begun = time.monotonic()
    with scratch("crash", parent) as folder:
        found, kills, missed = CASES[name](folder, size)
    results = (found.lost, found.unstored, found.stored_twice, found.torn, found.refetched, found.worst)
    seconds = round(time.monotonic() - begun)
    table.row(name, size.processes, size.engine, size.seed, kills, *results, seconds)
    if missed:
        print(f"  not reached: {', '.join(missed)}; a larger --pages is needed", flush=True)
    return not missed and found.flawless is (name not in BUGS)


def main() -> None:
    parser = harness.parser(__doc__)
    parser.option("--pages", 4_000, "pages of the web for each process")
    parser.option("--folder", Path, "folder for the crawls (the temporary directory)", metavar="DIR")
    parser.add_argument(
        "--case", action="append", choices=CASES, metavar="ROW", help="only this row; repeatable"
    )
    parser.add_argument(
        "--processes", type=int, nargs="+", default=[1, 3], help="processes of the crawls (1 3)"
    )
    parser.add_argument("--engine", nargs="+", default=list(ENGINES), choices=ENGINES, help="(both)")
    parser.option("--kills", 20, "kills at random instants")
    parser.option("--seeds", 1, "runs of the random rows")
    args = parser.parse_args()
    warm_start.install()  # programs start faster, because they need not import the crawler again
    right, begun = True, time.monotonic()
    print(
        f"{args.pages:,} pages for each process on {HOSTS} hosts, {CONCURRENCY} fetches in flight in each process"
    )
    table = harness.Table(*COLUMNS)
    for processes, engine in product(args.processes, args.engine):
        os.environ["CRAWLER_STORE__ENGINE"] = engine
        for name in args.case or CASES:
            for seed in range(1, args.seeds + 1 if name in SEEDED else 2):
                if name != "seeds loaded" or processes == 1:
                    size = Crash(args.pages * processes, processes, engine, args.kills, seed)
                    right &= run(name, size, args.folder, table)
    print(f"{time.monotonic() - begun:.0f} s in all")
    raise SystemExit(
        0 if right else "failed: the crawler did not keep its promises, or a fault was not reached"
    )


if __name__ == "__main__":
    main()
