"""Kill one crawl of a tree-shaped web thirty times; count the pages that are lost, stored twice or fetched again.

    python scripts/bench/crash.py [--pages 30000] [--folder DIR] [--case ROW ...]

The crawler kills itself (SIGKILL) at thirty named points of its write path, is restarted each time, and
finally runs to the end. Every URL of the web has exactly one in-link, all bodies are distinct, and there are
no budgets. So a lost page stays lost. The server's log and the WARC files are the evidence. Rows:

    named points         points at every step of a group, a flush, a compaction, a segment roll, a clean stop
    power cuts           killed at the same points; then every file loses all bytes that were not synced
    random instants      killed from outside at random times
    stopped for 60 s     SIGSTOP, SIGCONT: only fetches that timed out meanwhile are repeated
    seeds                a list of seeds instead of a tree, killed while the list is read
    seeds loaded         33 times as many seeds as pages (a million), loaded with kills but not fetched
    planted bugs         a page is marked as done before its links are stored; WARC files are not truncated: the script
                         must detect these bugs
    around               events around a crawl (`tests/faults/around.py`): readers beside it, wrong clocks, a process
                         restored from a backup, killed repairs, cut segments, reshards, hostile directories; and a
                         planted bug that each scenario must detect. At most 1,000 pages, with --processes and --engine.

After a kill, the fetches that were in flight may be repeated. `worst` is the largest number of fetches that
were repeated after one kill.
"""

import argparse
import random
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from tests import warm_start  # noqa: E402
from tests.faults.around import PLANTED as BUGS_AROUND  # noqa: E402
from tests.faults.around import SCENARIOS, Setting  # noqa: E402
from tests.faults.harness import (  # noqa: E402
    CONCURRENCY,
    Judgement,
    TreeWeb,
    end,
    judge,
    load_seeds_with_kills,
    run_with_kills,
    run_with_power_cuts,
    run_with_random_kills,
    settings,
    start,
)

HOSTS = 200
# These settings give segments of a few hundred pages, and a flush of the DUE after 200 links, so that there
# are many flushes and merges.
SMALL = ("--set", "pages.segment_bytes=200000", "--set", "due.buffer_entries_max=200")
FAULTS = [
    "seeds loading:1",
    "fetch begun:200",
    "record appended:10",
    "synced:10",
    "batch written:10",
    "committed:10",
    "links written:5",
    "links synced:5",
    "stopping:1 --max-pages 300",
    "closing:1 --max-pages 300",
    "segment begun:2",
    "segment rolled:1",
    "flush joined:2",
    "flush written:2",
    "flush renamed:2",
    "flush ran:2",
    "flush committed:2",
    "flush done:2",
    "compaction written:1",
    "compaction renamed:1",
    "compaction ran:1",
    "compaction committed:1",
    "run unlinked:1",
    "compaction done:1",
    "flush during compaction:1 --set due.buffer_entries_max=16",
    "compaction during flush:1 --set due.buffer_entries_max=16",
    "fetch begun:900",
    "record appended:15",
    "batch written:15",
    "committed:15",
]
PLANTED = {
    "page-before-links": [f"committed:{n}" for n in range(12, 18)],
    "no-truncation": ["record appended:15", "synced:15", "record appended:30"],
}


def named_points(folder: Path, pages: int) -> tuple[Judgement, int]:
    with TreeWeb(folder, pages, "--fanout", "4", hosts=HOSTS) as web:
        kills = run_with_kills(web, folder / "crawl", FAULTS, *SMALL)
        assert len(kills) == len(FAULTS), f"{len(kills)} kills: the crawl ended too soon"
        return judge(web, folder / "crawl", kills), len(kills)


def power_cuts(folder: Path, pages: int) -> tuple[Judgement, int]:
    with TreeWeb(folder, pages, "--fanout", "4", hosts=HOSTS) as web:
        cuts, _ = run_with_power_cuts(web, folder / "crawl", FAULTS, random.Random(2), *SMALL)
        assert len(cuts) == len(FAULTS), f"{len(cuts)} cuts: the crawl ended too soon"
        return judge(web, folder / "crawl", cuts), len(cuts)


def random_instants(folder: Path, pages: int) -> tuple[Judgement, int]:
    with TreeWeb(folder, pages, hosts=HOSTS) as web:
        kills = run_with_random_kills(web, folder / "crawl", 15, 4.0, random.Random(1))
        return judge(web, folder / "crawl", kills), len(kills)


def stopped(folder: Path, pages: int) -> tuple[Judgement, int]:
    with TreeWeb(folder, pages, "--delay", "0.02", hosts=HOSTS) as web:
        process = start(folder / "crawl", web.seed, *settings())
        while web.fetched().total() < pages // 4:
            time.sleep(0.1)
        process.send_signal(signal.SIGSTOP)
        time.sleep(60.0)
        process.send_signal(signal.SIGCONT)
        ended = end(process)
        assert ended.code == 0, ended
        return judge(web, folder / "crawl"), 1


def seeds(folder: Path, pages: int) -> tuple[Judgement, int]:
    """Crawl a web in which every page is a seed without links, and judge the result."""
    with TreeWeb(folder, pages, "--fanout", "0", hosts=HOSTS) as web:
        listed = folder / "seeds"
        listed.write_text("".join(f"{web.url(page)}\n" for page in range(pages)))
        faults = ["seeds loading:1", "seeds loading:3", "seeds loading:10", "batch written:5", "flush ran:1"]
        kills = run_with_kills(web, folder / "crawl", faults, "--seeds", str(listed))
        return judge(web, folder / "crawl", kills), len(kills)


def seeds_loaded(folder: Path, count: int) -> tuple[Judgement, int]:
    faults = [
        "seeds loading:3",
        "batch written:60",
        "flush committed:9",
        "compaction ran:3",
        "seeds loading:99",
    ]
    known = load_seeds_with_kills(folder, count, faults)
    twice = sum(n > 1 for n in known.values())
    return Judgement(count - len(known), 0, twice, 0, 0, 0), len(faults)


def planted(folder: Path, pages: int, bug: str) -> tuple[Judgement, int]:
    with TreeWeb(folder, pages, hosts=HOSTS) as web:
        kills = run_with_kills(web, folder / "crawl", PLANTED[bug], module=("tests.faults.planted", bug))
        return judge(web, folder / "crawl", kills), len(kills)


def around(folder: Path, pages: int, name: str, setting: Setting) -> tuple[Judgement, int]:
    """Run a scenario. If it fails, print the broken promise and count the failure as a lost page."""
    try:
        return SCENARIOS[name](folder, setting._replace(pages=min(pages, 1000))), 0
    except AssertionError as broken:
        print(f"  {name}: {str(broken)[:200]}")
        return Judgement(1, 0, 0, 0, 0, 0), 0


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pages", type=int, default=30_000)
    parser.add_argument(
        "--folder", type=Path, default=None, help="folder for the crawls (the temporary directory)"
    )
    parser.add_argument("--case", action="append", help="run only this row; repeatable")
    parser.add_argument(
        "--processes", type=int, default=1, help="processes of the crawls in the rows `around`"
    )
    parser.add_argument("--engine", default="leveldb", choices=("leveldb", "rocksdict"), help="their engine")
    args = parser.parse_args()
    warm_start.install()  # programs start faster, because they need not import the crawler again
    setting = Setting(processes=args.processes, engine=args.engine)
    pages, right = args.pages, True
    print(f"{pages:,} pages on {HOSTS} hosts, {CONCURRENCY} fetches in flight")
    print(
        f"{'':24}{'kills':>6}{'lost':>8}{'unstored':>10}{'twice':>7}{'torn':>6}{'refetched':>11}{'worst':>7}{'s':>7}"
    )
    cases: dict[str, tuple[Callable[[Path, int], tuple[Judgement, int]], int]] = {
        "named points": (named_points, pages),
        "power cuts": (power_cuts, pages),
        "random instants": (random_instants, pages),
        "stopped for 60 s": (stopped, pages // 10),
        "seeds": (seeds, pages // 3),
        "seeds loaded": (seeds_loaded, pages * 100 // 3),
        **{bug: (partial(planted, bug=bug), pages) for bug in PLANTED},
        **{name: (partial(around, name=name, setting=setting), pages) for name in SCENARIOS},
        **{
            bug: (partial(around, name=name, setting=setting._replace(bug=bug)), pages)
            for name, bug in BUGS_AROUND.items()
        },
    }
    if unknown := set(args.case or ()) - set(cases):
        parser.error(f"--case: unknown {', '.join(sorted(unknown))}; choose from {', '.join(cases)}")
    for name in args.case or cases:
        case, size = cases[name]
        if args.folder is not None:
            args.folder.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=args.folder))
        begun = time.monotonic()
        found, kills = case(folder, size)
        print(
            f"{name:24}{kills:6}{found.lost:8,}{found.unstored:10,}{found.stored_twice:7,}{found.torn:6}"
            f"{found.refetched:11,}{found.worst:7}{time.monotonic() - begun:7.0f}",
            flush=True,
        )
        right &= found.flawless is (name not in (*PLANTED, *BUGS_AROUND.values()))
        shutil.rmtree(folder)
    raise SystemExit(0 if right else "failed: the crawler did not keep its promises")


if __name__ == "__main__":
    main()
