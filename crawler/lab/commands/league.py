"""Let refresh policies play on the change histories of real sites.

    crawler lab league --data histories --quick
    crawler lab league --data histories --out league
    crawler lab league --data mine --policies round-robin,nutch,ncis --arms none,honest --budgets 1,3

What would which policy do for my site? `crawler lab histories` makes the data
from a git clone; this plays it, on the frontier that the crawler runs and on
the rules of other crawlers. A score is the share of page time in which the copy
was current. Budgets are multiples of the rate of all changes. Errors are
standard errors over sites; with one site there are none. Signals arrive as the
arm says; see crawler/lab/league/world.py for the world and the arms.

--out DIR takes scores.csv, sites.csv (each site's score), and two pictures.
--quick plays fewer pages, arms and budgets: seconds instead of minutes.
"""

import argparse
import multiprocessing
import os
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import lru_cache
from pathlib import Path

import msgspec

from crawler.clock import SystemClock
from crawler.errors import UsageError
from crawler.lab.league import histories, scores
from crawler.lab.league import world as worlds
from crawler.lab.league.contenders import LISTENING, POLICIES, make
from crawler.lab.progress_line import ProgressLine
from crawler.lab.refresh import pages_file

BUDGETS = "0.1,0.3,1,3,10"
QUICK_ARMS, QUICK_BUDGETS, QUICK_PAGES = "none,honest,lying", "1,3", 25
PROCESSES_MAX = 16  # each holds the worlds of an arm or two, some 50 MB of the public half
PAGES_MAX, DAYS_MAX = 100_000, 36_500
FETCHES_MAX = 200_000_000  # of a game: hours
USUAL = "round-robin,nutch,stormcrawler,heritrix,cho,believe,oracle,clairvoyant,greedy,ncis"


class GameSetting(msgspec.Struct, frozen=True):
    """What all games share, as the child processes get it."""

    data: str
    pages: int
    days: int
    seed: int


class GameTask(msgspec.Struct, frozen=True):
    """One game to play."""

    setting: GameSetting
    arm: str
    policy: str
    budget: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--data", type=Path, required=True, metavar="DIR", help="histories: one SITE.npz a site")
    add(
        "--policies", default=USUAL, metavar="A,B", help=f"of {', '.join(POLICIES)}; the first is compared to"
    )
    add("--arms", metavar="A,B", help=f"of {', '.join(worlds.ARMS)} (all)")
    add("--budgets", metavar="X,Y", help=f"fetches, as multiples of the changes ({BUDGETS})")
    add("--pages", type=int, metavar="N", help=f"pages a site ({worlds.PAGES_A_SITE})")
    add("--days", type=int, default=worlds.DAYS, metavar="N", help="the last N days (1461)")
    add("--seed", type=int, default=1, metavar="N", help="draws the ranks of zipf, feeds of unknown size")
    add("--processes", type=int, default=0, metavar="N", help="played at a time (one a core, at most 16)")
    add("--out", type=Path, metavar="DIR", help="folder for the CSVs and pictures")
    add("--quick", action="store_true", help="25 pages a site, three arms, two budgets")


def run(args: argparse.Namespace) -> int:
    arms = _names("arm", args.arms or (QUICK_ARMS if args.quick else ",".join(worlds.ARMS)), worlds.ARMS)
    policies = _names("policy", args.policies, POLICIES)
    budgets = _budgets(args.budgets or (QUICK_BUDGETS if args.quick else BUDGETS))
    pages = args.pages if args.pages is not None else QUICK_PAGES if args.quick else worlds.PAGES_A_SITE
    if not 1 <= pages <= PAGES_MAX or not 10 <= args.days <= DAYS_MAX or args.seed < 0:
        raise UsageError(
            f"need 1 to {PAGES_MAX:,} pages a site, 10 to {DAYS_MAX:,} days, a seed of 0 or more"
        )
    if not 0 <= args.processes <= PROCESSES_MAX:
        raise UsageError(f"--processes: 1 to {PROCESSES_MAX}")
    shared = GameSetting(str(args.data), pages, args.days, args.seed)
    world = _world(shared, arms[0])
    if max(budgets) * world.change_rate * world.horizon > FETCHES_MAX:
        raise UsageError(f"a budget of more than {FETCHES_MAX:,} fetches; lower --budgets, --pages or --days")
    tasks = [
        GameTask(shared, arm, policy, budget) for arm in arms for policy in policies for budget in budgets
    ]
    print(
        f"{len(world.sites)} sites, {len(world)} pages, {world.change_rate * 86400:.2f} changes a day",
        file=sys.stderr,
    )
    games = _play_all(tasks, args.processes or _cores(), ProgressLine("league", SystemClock()))
    rows = scores.rows_of(games)
    print(scores.tables(rows, policies, arms, budgets))
    for arm, budget, fetches in scores.undecided(games):
        print(
            f"{arm} at {budget:g}x: all policies score alike, with {fetches:,} fetches; longer histories, "
            "more pages or a larger budget would tell them apart",
            file=sys.stderr,
        )
    if args.out:
        _write(args, world, games, rows, (policies, arms, budgets))
    return 0


def _names(what: str, text: str, known: Iterable[str]) -> list[str]:
    names = list(dict.fromkeys(name for name in text.split(",") if name))
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise UsageError(f"no {what} {', '.join(unknown) or text!r}; there are {', '.join(known)}")
    return names


def _budgets(text: str) -> list[float]:
    try:
        found = list(dict.fromkeys(float(part) for part in text.split(",") if part))
    except ValueError:
        found = []
    if not found or not all(0.0 < budget <= 1e6 for budget in found):
        raise UsageError(f"--budgets {text}: expected numbers above 0, as 0.3,1,3")
    return found


# -- playing


def _cores() -> int:
    return min(
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        PROCESSES_MAX,
    )


@lru_cache(maxsize=1)
def _histories(folder: str) -> list[histories.SiteHistory]:
    return histories.read_folder(Path(folder))


@lru_cache(maxsize=2)
def _world(setting: GameSetting, arm: str) -> worlds.World:
    return worlds.build(
        _histories(setting.data), arm, pages=setting.pages, days=setting.days, seed=setting.seed
    )


def _play(task: GameTask) -> scores.Game:
    """Play one game; in a child process or here."""
    world = _world(task.setting, task.arm)
    rate = task.budget * world.change_rate
    outcome = worlds.play(world, make(task.policy, world, rate), rate)
    current, there = outcome.by_site(world)
    return scores.Game(
        task.arm,
        task.policy,
        task.budget,
        current,
        there,
        outcome.fetches,
        outcome.changed,
        outcome.gone,
        outcome.idle,
    )


def _play_all(tasks: list[GameTask], processes: int, report: ProgressLine) -> list[scores.Game]:
    """All games in the order of the tasks, those that must end alike played once.

    Several processes play as many at a time, the longest first.
    """
    played = sorted({_alike(task) for task in tasks}, key=_cost, reverse=True)
    whole, done, found = sum(map(_cost, played)), 0.0, {}
    for task, game in zip(played, _results(played, min(processes, len(played))), strict=True):
        found[task] = game
        done += _cost(task)
        report(done / whole)
    return [msgspec.structs.replace(found[_alike(task)], arm=task.arm) for task in tasks]


def _alike(task: GameTask) -> GameTask:
    """The game that ends as this one: whoever reads no signals plays their arms as `none`."""
    if task.policy in LISTENING or task.arm not in worlds.TOLD:
        return task
    return msgspec.structs.replace(task, arm="none")


def _cost(task: GameTask) -> float:
    """How long a game takes, in the time of 1x of fetches: births and signals cost about as much."""
    return 1.0 + task.budget + (1.0 if task.policy in LISTENING else 0.0)


def _results(tasks: list[GameTask], processes: int) -> Iterator[scores.Game]:
    if processes == 1:
        yield from map(_play, tasks)
        return
    context = multiprocessing.get_context("spawn")  # a fork would share LevelDB and threads of a caller
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        try:
            yield from pool.map(_play, tasks)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


# -- files


def _write(
    args: argparse.Namespace,
    world: worlds.World,
    games: list[scores.Game],
    rows: list[scores.Row],
    axes: tuple[list[str], list[str], list[float]],
) -> None:
    from crawler.lab.figures import drawing  # needs matplotlib
    from crawler.lab.league import pictures

    comments = (
        f"command: {args.command_line}",
        f"{len(world.sites)} sites, {len(world)} pages, {args.days} days, seed {args.seed}",
        "errors: jackknife over sites; differences: to the first policy of the arm and budget",
    )
    table = [[getattr(row, name) for name in scores.COLUMNS] for row in rows]
    pages_file.write_rows(args.out / "scores.csv", scores.COLUMNS, table, iter(comments))
    sites = (
        (game.arm, game.policy, game.budget, site, float(current / there))
        for game in games
        for site, current, there in zip(world.sites, game.current, game.there, strict=True)
        if there > 0.0
    )
    pages_file.write_rows(
        args.out / "sites.csv", ["arm", "policy", "budget", "site", "score"], sites, iter(comments[:2])
    )
    caption = f"{comments[1]}; bars: standard errors over sites"
    for name, draw in pictures.PICTURES.items():
        figure = draw(rows, *axes)
        drawing.save(figure, args.out / f"{name}.png", args.command_line, caption, args.seed)
    names = ", ".join(f"{name}.png" for name in pictures.PICTURES)
    print(f"scores.csv, sites.csv, {names} in {args.out}")
