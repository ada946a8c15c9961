"""Compare refresh policies on simulated webs: the gain of the shipped schedule over uniform refreshing.

    crawler lab worlds --quick                            seconds
    crawler lab worlds --seeds 10 --out worlds            all worlds: minutes; writes worlds.csv
    crawler lab worlds issue day-3x --policies ncis,ncis-pooled
    crawler lab worlds --quick --check --aim .9           exit code 1 if ncis loses, or gains less than .9
    crawler lab worlds day-0.1x day-equal --policies ncis,bayes --check --aim .9    also compare ncis with bayes
    crawler lab worlds --regimes --seeds 4 --policies ncis    webs whose regime changes at half time
    crawler lab worlds pause-30-3x --policies ncis,reopened --course    how soon a crawl recovers from a pause
    crawler lab worlds --quick --calibration              compare stated freshness with the truth

In these webs, pages change every hour, day, month or year on average. Depending on the web, pages change
independently, in bursts, together with other pages of their directory, or in working hours. A page is fetched
0.1 to 100 times per change, with or without signals. crawler/lab/living/worlds.py lists all worlds. The gain
is (policy - uniform) / (true - uniform), where each term is a freshness weighted by importance, and `true` is
NCIS with the true parameters of each page. Errors are standard errors over the seeds 1 to --seeds. `host` is
the share of the fetches that the most fetched host got, and `span` is the largest such share in any twentieth
of the time. A policy LOSES if it is below uniform by more than twice the error.

With --regimes, the webs change at half time (crawler/lab/living/regimes.py): rates, hosts, the budget, importances or
signals. Freshness is measured from then on, and `true` learns of the new parameters at once. The policy `reopened` is
`ncis` with a LevelDB store, closed and opened again at each pause (crawler/lab/living/reopened.py).

The policy `bayes` knows the distribution of the change rates and the share of restless pages, but no page's
rate, nor which pages are restless. The gain of `bayes` shows how much a crawl can gain if it must learn these
(crawler/lab/living/bayes.py). With `bayes` among the
policies, --check accepts a gain below the aim if it is not below the gain of `bayes`. `bayes-gamma` knows only
the mean of the rates, and assumes that they have a Gamma distribution, as the crawler does.

The policies crawl, crawl-pooled and crawl-uniform run a whole process on a virtual clock. A whole process
takes 4 ms per fetch, so use small worlds: `crawler lab worlds issue --policies crawl,crawl-pooled --seeds 3`.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np

from crawler.cli.parsing import OptionParser, one_of, result_folder, some_of
from crawler.clock import SystemClock
from crawler.errors import UsageError
from crawler.lab.extras import require
from crawler.lab.living import calibration, gains, playing
from crawler.lab.living.bayes import can_play
from crawler.lab.living.playing import BAYES, BAYES_GAMMA, PLAYERS, STATING, TRUE, UNIFORM, WorldRun
from crawler.lab.living.regimes import CHANGING, drawn
from crawler.lab.living.whole_crawl import CRAWLS, crawled
from crawler.lab.living.worlds import QUICK, WORLDS
from crawler.lab.parallel import PROCESSES_MAX, results
from crawler.lab.progress_line import ProgressLine
from crawler.lab.refresh import pages_file
from crawler.typed_number import within

SEEDS_MAX = 1000
USUAL = "ncis,ncis-pooled,greedy"
ALL = (*PLAYERS, *CRAWLS)
ALL_WORLDS = WORLDS | CHANGING
JUDGED = "ncis"  # the policy that --check judges


class WorldTask(msgspec.Struct, frozen=True):
    """One run to play: a world, a policy and a seed."""

    world: str
    policy: str
    seed: int


def add_arguments(parser: OptionParser) -> None:
    add = parser.option
    parser.add_argument("worlds", nargs="*", metavar="WORLD", help="names of worlds (all)")
    add("--list", False, "list the worlds")
    add("--quick", False, f"use {len(QUICK)} of the worlds")
    add("--regimes", False, f"use {len(CHANGING)} worlds whose regime changes at half time")
    add("--policies", USUAL, f"policies to compare: {', '.join(ALL)} ({USUAL})", metavar="A,B")
    add("--seeds", 5, "number of worlds drawn of each kind")
    add("--processes", 0, "runs at a time (one per core, at most 16)")
    add("--check", False, f"exit with 1 if {JUDGED} loses to uniform in any world")
    add("--aim", float, f"with --check: also if the gain of {JUDGED} is below this", metavar="G")
    add("--calibration", False, "print how often copies were fresh, by decile of P(fresh), instead of gains")
    add("--course", False, "also print the freshness of each policy in each twentieth of the counted time")
    add("--out", Path, "write worlds.csv to this folder", metavar="DIR", type=result_folder)


def run(args: argparse.Namespace) -> int:
    names = args.worlds or list(CHANGING if args.regimes else QUICK if args.quick else WORLDS)
    if args.list:
        for name in names:
            print(f"{name:<18} {_words(name)}")
        return 0
    for name in names:
        one_of("WORLD", name, ALL_WORLDS)
    asked = some_of("--policies", args.policies, ALL)
    within("--seeds", args.seeds, 1, SEEDS_MAX)
    within("--processes", args.processes, 0, PROCESSES_MAX)
    if args.check and JUDGED not in asked:
        raise UsageError(f"--check needs {JUDGED} among --policies")
    references = [name for name in asked if name in (BAYES, BAYES_GAMMA)]
    if references and (barred := [name for name in names if not can_play(ALL_WORLDS[name])]):
        raise UsageError(
            f"{references[0]} needs independent changes, no signals and free hosts: not {', '.join(barred)}"
        )
    if references:
        require("scipy.special")
    seeds = range(1, args.seeds + 1)
    report = ProgressLine("worlds", SystemClock())
    if args.calibration:
        if unstated := [name for name in asked if name not in STATING]:
            raise UsageError(f"--calibration: {', '.join(unstated)} states no probability of freshness")
        return _calibrate(names, asked, seeds, args.processes, report)
    policies = list(dict.fromkeys([UNIFORM, TRUE, *asked]))
    tasks = [WorldTask(world, policy, seed) for world in names for seed in seeds for policy in policies]
    found: dict[str, dict[str, list[WorldRun]]] = {
        name: {policy: [] for policy in policies} for name in names
    }
    for task, came in zip(tasks, results(_played, tasks, args.processes, report), strict=True):
        found[task.world][task.policy].append(came)
    rows = [row for name, runs in found.items() for row in gains.gains(name, runs)]
    print(f"seeds 1 to {args.seeds}")
    print(gains.table([row for row in rows if row.policy != UNIFORM]))
    if args.course:
        for name, runs in found.items():
            print(f"\n{gains.course_table(name, runs)}")
    if args.out:
        comments = (f"command: {args.command_line}", f"seeds: 1 to {args.seeds}")
        pages_file.write_records(args.out / "worlds.csv", gains.Gain, rows, *comments)
    lags = {
        name: gains.lag(runs, JUDGED, BAYES) for name, runs in found.items() if {JUDGED, BAYES} <= set(asked)
    }
    return _check(rows, args.aim, lags) if args.check else 0


def _words(name: str) -> str:
    spec = ALL_WORLDS[name]
    kinds = ", ".join(sorted({host.process for host in spec.hosts}))
    polite = ", polite" if spec.polite else ""
    restless = f", {spec.restless:.0%} restless" if spec.restless else ""
    return (
        f"{len(spec.hosts)} hosts, {spec.pages} pages, {kinds}, {spec.visits:g} fetches per change, "
        f"importance {spec.importance}, signals {spec.signals}{restless}{polite}: {spec.fetches:,} fetches"
    )


def _check(rows: list[gains.Gain], aim: float | None, lags: dict[str, gains.Lag]) -> int:
    judged = [row for row in rows if row.policy == JUDGED]
    lost = [row.world for row in judged if row.loses]
    short = list[str]()
    print(f"below uniform in {len(lost)} of {len(judged)} worlds: {', '.join(lost) or 'none'}")
    if aim is not None:
        for row in judged:
            lag = lags.get(row.world)
            verdict = gains.verdict(row, aim, lag)
            if verdict in ("not met", "below the reference"):
                short.append(row.world)
            if lag is not None:
                print(
                    f"{row.world}: {verdict} ({BAYES} has a gain of {row.gain + lag.gain:.3f}, "
                    f"{lag.gain:+.3f} +- {lag.error:.3f})"
                )
        print(f"gain below {aim:g} in {len(short)}: {', '.join(short) or 'none'}")
    return 1 if lost or short else 0


def _calibrate(
    names: Sequence[str], policies: list[str], seeds: range, processes: int, report: ProgressLine
) -> int:
    tasks = [WorldTask(world, policy, seed) for policy in policies for world in names for seed in seeds]
    came = dict(zip(tasks, results(_judged, tasks, processes, report), strict=True))
    for policy in policies:
        sums = np.concatenate([came[task] for task in tasks if task.policy == policy])
        print(f"{policy}\n{calibration.table(sums)}\n")
    return 0


# -- playing


def _played(task: WorldTask) -> WorldRun:
    play = crawled if task.policy in CRAWLS else playing.played
    return play(task.policy, drawn(ALL_WORLDS[task.world], task.seed))


def _judged(task: WorldTask) -> np.ndarray:
    return playing.judged(task.policy, drawn(ALL_WORLDS[task.world], task.seed))
