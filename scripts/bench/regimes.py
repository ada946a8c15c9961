"""Crawl webs whose regime changes over HTTP, and compare the freshness with that on the virtual clock.

    scripts/bench/regimes.py                                    five regimes, one after the other: 25 minutes
    scripts/bench/regimes.py outage-1x --seed 2 --course
    scripts/bench/regimes.py pause-30-1x --processes 1,3        also with three processes
    scripts/bench/regimes.py faster-1x --rounds 20 --rate 100   shorter: 80 s

The worlds are those of `crawler lab worlds --regimes` (`crawler/lab/living/regimes.py`). Each world is crawled over
HTTP with the policies `uniform` and `ncis` at the same time, and `ncis` with each number of processes. Every arm has
its own server and its own crawl, which processes of the command line make (`crawler/lab/living/over_http.py`).
Freshness is computed from the server's log for the second half of the time, in which the new regime holds.

The same world is then played on the virtual clock: with uniform refreshing, `ncis`, the true parameters and, if the
crawl is stopped for a time, a schedule that is rebuilt from its store (`reopened`). On a busy machine, a crawl over
HTTP sends fewer requests than `--rate`. So the budget on the virtual clock is the mean number of requests that the
arms have sent for pages in the second half (`fetches`). Starts of processes take one to three seconds, which are days
of the world.

For each clock, the gain of an arm is its freshness minus that of uniform refreshing. It is divided by the same
difference for the true parameters, which only the virtual clock has.
"""

import asyncio
import statistics
import sys
import tempfile
from pathlib import Path

import msgspec

from crawler.bench import harness
from crawler.cli.parsing import one_of
from crawler.lab.living import over_http, playing
from crawler.lab.living.over_http import HttpArm
from crawler.lab.living.playing import REOPENED, TRUE, UNIFORM, WorldRun
from crawler.lab.living.regimes import CHANGING, drawn
from crawler.lab.living.worlds import DrawnWorld

WORLDS = ("faster-1x", "outage-1x", "alternating-1x", "honest-later-1x", "pause-30-1x")
BASE = HttpArm("uniform")


def name_of(arm: HttpArm) -> str:
    return arm.policy if arm.processes == 1 else f"{arm.policy}, {arm.processes} processes"


async def crawled(world: DrawnWorld, arms: list[HttpArm], rate: float) -> list[WorldRun]:
    """Crawl the world with all arms at the same time."""
    with tempfile.TemporaryDirectory(prefix="crawler-regimes-") as name:
        folders = [Path(name) / str(number) for number in range(len(arms))]
        for folder in folders:
            folder.mkdir()
        jobs = zip(arms, folders, strict=True)
        return await asyncio.gather(*(over_http.crawled(world, arm, rate, folder) for arm, folder in jobs))


def with_fetches(world: DrawnWorld, fetches: float) -> DrawnWorld:
    """Return the same world with a budget that allows so many fetches after the warm-up."""
    spec, course = world.spec, world.course
    instants = course.instants(spec.rate, spec.fetches)
    share = fetches / int((instants >= spec.warm_up * world.horizon).sum())
    spec = msgspec.structs.replace(spec, visits=share * spec.visits, rounds=share * spec.rounds)
    eras = tuple(msgspec.structs.replace(era, rate=share * era.rate) for era in course.eras)
    return msgspec.structs.replace(world, spec=spec, course=msgspec.structs.replace(course, eras=eras))


def compare(world: DrawnWorld, arms: list[HttpArm], rate: float, course: bool) -> None:
    """Crawl the world, play it on the virtual clock, and print a row for each arm."""
    http = {name_of(arm): run for arm, run in zip(arms, asyncio.run(crawled(world, arms, rate)), strict=True)}
    world = with_fetches(world, statistics.mean(run.fetches for run in http.values()))
    policies = [UNIFORM, "ncis", *([REOPENED] if world.course.pauses else []), TRUE]
    virtual = {policy: playing.played(policy, world) for policy in policies}
    possible = virtual[TRUE].freshness - virtual[UNIFORM].freshness
    print(f"\n{world.spec.name}, seed {world.seed}")
    table = harness.Table(f"{'':24}", "freshness", "  gain", "fetches", " host")
    for clock, runs, base in (("HTTP", http, name_of(BASE)), ("virtual", virtual, UNIFORM)):
        for name, run in runs.items():
            gain = (run.freshness - runs[base].freshness) / possible
            table.row(
                f"{clock}: {name}", f"{run.freshness:.4f}", f"{gain:.3f}", run.fetches, f"{run.largest:.2f}"
            )
            if course:
                print("    " + "".join(f"{100.0 * share:5.1f}" for share in run.course))


def main() -> int:
    parser = harness.parser(__doc__)
    parser.add_argument("worlds", nargs="*", default=list(WORLDS), metavar="WORLD", help="names of worlds")
    parser.option("--seed", 1)
    parser.option("--rate", 60.0, "requests per second of each arm")
    parser.option("--rounds", 0.0, "mean fetches per page over the whole time (as in the world)")
    parser.option("--processes", "1", "numbers of processes of the arms `ncis`", metavar="N,M")
    parser.option(
        "--course", False, "also print the freshness in each twentieth of the second half, in percent"
    )
    args = parser.parse_args()
    arms = [BASE, *(HttpArm("ncis", int(count)) for count in args.processes.split(","))]
    for name in args.worlds:
        one_of("WORLD", name, CHANGING)
        spec = CHANGING[name]
        if args.rounds:
            spec = msgspec.structs.replace(spec, rounds=args.rounds)
        compare(drawn(spec, args.seed), arms, args.rate, args.course)
    return 0


if __name__ == "__main__":
    sys.exit(main())
