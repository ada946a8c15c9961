"""Compare refresh policies on the change histories of real sites.

    crawler lab league --data histories --quick
    crawler lab league --data histories --out league
    crawler lab league --data mine --policies round-robin,nutch,ncis --arms none,honest --budgets 1,3

`crawler lab histories` makes the data from a git clone. This command replays the history under each policy.
The policies are those of the crawler's frontier, and the rules of other crawlers. A score is the share of
page time in which the copy of the page was current. Budgets are multiples of the rate of all changes. Errors
are standard errors over sites; with one site there are none. The arm determines which signals arrive; see
crawler/lab/league/world.py for the world and the arms.

--out DIR receives scores.csv, sites.csv (the score of each site), and two pictures.
--quick plays fewer pages, arms and budgets, and takes seconds instead of minutes.

    crawler lab league --data histories --living                    new pages are found only by fetching hubs
    crawler lab league --data histories --quick --calibration       compare stated freshness with the truth

With --living, a page becomes known when a hub that lists it is fetched (crawler/lab/league/living.py). `own`
is the freshness of the copies of hubs. p50, p90 and mean are days from the birth of a page to its first copy.
`never` is the share of pages that were never fetched. `hubs` and `new` are the shares of the fetches that
went to hubs and to new pages.
"""

import argparse
import sys
from collections.abc import Collection
from functools import lru_cache
from pathlib import Path

import msgspec
import numpy as np

from crawler.cli.parsing import OptionParser, numbers, result_folder, some_of
from crawler.clock import SystemClock
from crawler.errors import UsageError
from crawler.lab.figures import drawing
from crawler.lab.league import histories, living, living_table, pictures, scores
from crawler.lab.league import world as worlds
from crawler.lab.league.contenders import LISTENING, POLICIES, STATING, judged, make
from crawler.lab.league.finders import FINDERS, FREE
from crawler.lab.league.shipped import SHIPPED
from crawler.lab.living import calibration
from crawler.lab.parallel import PROCESSES_MAX, results
from crawler.lab.progress_line import ProgressLine
from crawler.lab.refresh import pages_file
from crawler.typed_number import within
from crawler.wording import several

BUDGETS = "0.1,0.3,1,3,10"
QUICK_ARMS, QUICK_BUDGETS, QUICK_PAGES = "none,honest,lying", "1,3", 25
PAGES_MAX, DAYS_MAX, BUDGET_MAX = 100_000, 36_500, 1e6
FETCHES_MAX = 200_000_000  # maximum number of fetches of one game; a game of this size takes hours
USUAL_LIVING = ",".join(name for name in FINDERS if name not in SHIPPED or name == "ncis")
USUAL = "round-robin,nutch,stormcrawler,heritrix,cho,believe,oracle,clairvoyant,greedy,ncis"


class GameSetting(msgspec.Struct, frozen=True):
    """The settings that all games share. They are passed to the child processes."""

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


def add_arguments(parser: OptionParser) -> None:
    add = parser.option
    add("--data", Path, "folder of histories, one SITE.npz per site", metavar="DIR", required=True)
    add(
        "--policies",
        str,
        f"policies to compare, the first is the reference: {', '.join(POLICIES)}",
        metavar="A,B",
    )
    add("--arms", str, f"arms: {', '.join(worlds.ARMS)} (all)", metavar="A,B")
    add("--budgets", str, f"fetches as multiples of the changes ({BUDGETS})", metavar="X,Y")
    add("--pages", int, f"pages per site ({worlds.PAGES_A_SITE})")
    add("--days", int, f"use the last N days (the longest history, but at most {worlds.DAYS})")
    add("--seed", 1, "seed of the zipf ranks and of feeds of unknown size")
    add("--processes", 0, "simulations run at a time (one per core, at most 16)")
    add("--out", Path, "write CSV files and pictures to this folder", metavar="DIR", type=result_folder)
    drawing.add_picture_options(parser)
    add("--living", False, "play the living league: new pages are found only by fetching hubs")
    add("--hubs", "", f"kinds of hubs: {', '.join(living.RULES)}, news (all)", metavar="A,B")
    add("--calibration", False, "print how often copies were fresh, by decile of P(fresh), instead of scores")
    add("--quick", False, "use 25 pages per site, three arms, two budgets")


def run(args: argparse.Namespace) -> int:
    arms = some_of("--arms", args.arms or (QUICK_ARMS if args.quick else ",".join(worlds.ARMS)), worlds.ARMS)
    if args.living:
        arms = ["none"]
    policies = _policies(args)
    rules = _rules(args.hubs)
    usual = QUICK_BUDGETS if args.quick or args.living else BUDGETS
    budgets = numbers("--budgets", args.budgets or usual, float, most=BUDGET_MAX, above=0)
    pages = args.pages if args.pages is not None else QUICK_PAGES if args.quick else worlds.PAGES_A_SITE
    drawing.check_picture_options(args)
    within("--pages", pages, 1, PAGES_MAX)
    if args.days is not None:
        within("--days", args.days, worlds.DAYS_LEAST, DAYS_MAX)
    within("--seed", args.seed, 0)
    within("--processes", args.processes, 0, PROCESSES_MAX)
    days = args.days if args.days is not None else worlds.days_of(_histories(str(args.data)))
    shared = GameSetting(str(args.data), pages, days, args.seed)
    world = _world(shared, arms[0])
    # number of fetches in the longest game, counted from the birth of the first page
    fetches = max(budgets) * world.change_rate * (world.horizon - float(world.born.min()))
    # the world `news` is simulated, so it needs no histories
    drawn = args.living and rules == [living.NEWS]
    if round(fetches, 6) < 1.0 and not drawn:
        raise UsageError(
            f"--data {args.data}: the histories are too short, or change too rarely, to compare policies: "
            "no game is long enough for a fetch"
        )
    if fetches > FETCHES_MAX:
        raise UsageError(
            f"a game needs more than {FETCHES_MAX:,} fetches; lower --budgets, --pages or --days"
        )
    tasks = [
        GameTask(shared, arm, policy, budget) for arm in arms for policy in policies for budget in budgets
    ]
    print(
        f"{several(len(world.sites), 'site')}, {several(len(world), 'page')}, {several(days, 'day')}, "
        f"{world.change_rate * 86400:.2f} changes per day",
        file=sys.stderr,
    )
    if args.living:
        return _living(args, shared, rules, policies, budgets)
    if args.calibration:
        return _calibrate(tasks, args.processes)
    games = _play_all(tasks, args.processes, ProgressLine("league", SystemClock()))
    rows = scores.rows_of(games)
    print(scores.tables(rows, policies, arms, budgets))
    for arm, budget, played in scores.undecided(games):
        print(
            f"{arm} at {budget:g}x: all policies have the same score, with {played:,} fetches; use longer "
            "histories, more pages or a larger budget to tell them apart",
            file=sys.stderr,
        )
    if args.out:
        _write(args, world, games, rows, (policies, arms, budgets))
    return 0


def _policies(args: argparse.Namespace) -> list[str]:
    """Return the requested policies; raise UsageError if one cannot play."""
    if args.living and args.calibration:
        raise UsageError("--calibration cannot be combined with --living")
    known: Collection[str] = FINDERS if args.living else STATING if args.calibration else POLICIES
    usual = USUAL_LIVING if args.living else "ncis" if args.calibration else USUAL
    return some_of("--policies", args.policies or usual, known)


def _rules(text: str) -> list[str]:
    every = (*living.RULES, living.NEWS)
    return some_of("--hubs", text or ",".join(every), every)


def _living(
    args: argparse.Namespace, shared: GameSetting, rules: list[str], policies: list[str], budgets: list[float]
) -> int:
    tasks = [
        GameTask(shared, rule, policy, budget) for rule in rules for budget in budgets for policy in policies
    ]
    report = ProgressLine("league", SystemClock())
    games = list(results(_play_living, tasks, args.processes, report))
    rows = living_table.rows_of(games)
    print(living_table.table(rows))
    if args.out:
        comments = (f"command: {args.command_line}", "errors: jackknife over sites")
        pages_file.write_records(args.out / "living.csv", living_table.LivingRow, rows, *comments)
    return 0


def _calibrate(tasks: list[GameTask], processes: int) -> int:
    report = ProgressLine("league", SystemClock())
    found = dict(zip(tasks, results(_judge, tasks, processes, report), strict=True))
    for arm, policy in dict.fromkeys((task.arm, task.policy) for task in tasks):
        those = [found[task] for task in tasks if (task.arm, task.policy) == (arm, policy)]
        print(f"{policy}, {arm}\n{calibration.table(np.sum(those, axis=0))}\n")
    return 0


# -- playing


@lru_cache(maxsize=1)
def _histories(folder: str) -> list[histories.SiteHistory]:
    return histories.read_folder(Path(folder))


@lru_cache(maxsize=2)
def _world(setting: GameSetting, arm: str) -> worlds.World:
    return worlds.build(
        _histories(setting.data), arm, pages=setting.pages, days=setting.days, seed=setting.seed
    )


def _play(task: GameTask) -> scores.Game:
    """Play one game, in a child process or in this process."""
    world = _world(task.setting, task.arm)
    rate = task.budget * world.change_rate
    result = worlds.play(world, make(task.policy, world, rate), rate)
    return scores.game_of(task.arm, task.policy, task.budget, world, result)


def _play_living(task: GameTask) -> tuple[scores.Game, living.LivingResult]:
    """Play one game of the living league. The arm of the task names the rule by which the hubs are made."""
    if task.arm == living.NEWS:
        world = living.news(task.setting.seed)
    else:
        world = living.grow(_world(task.setting, "none"), task.arm)
    rate = task.budget * world.change_rate
    outcome = living.play(world, FINDERS[task.policy](world, rate), rate, told=task.policy in FREE)
    return scores.game_of(task.arm, task.policy, task.budget, world, outcome), outcome


def _judge(task: GameTask) -> np.ndarray:
    """Play one game and return the sums that compare the policy's stated probabilities with the truth."""
    world = _world(task.setting, task.arm)
    return judged(task.policy, world, task.budget * world.change_rate)


def _play_all(tasks: list[GameTask], processes: int, report: ProgressLine) -> list[scores.Game]:
    """Return all games in the order of the tasks. Games with equal outcomes are played only once.

    With several processes, the longest games start first.
    """
    played = sorted({_alike(task) for task in tasks}, key=_cost, reverse=True)
    whole, done, found = sum(map(_cost, played)), 0.0, {}
    for task, game in zip(played, results(_play, played, processes), strict=True):
        found[task] = game
        done += _cost(task)
        report(done / whole)
    return [msgspec.structs.replace(found[_alike(task)], arm=task.arm) for task in tasks]


def _alike(task: GameTask) -> GameTask:
    """Return a task that has the same outcome as `task` and may already have been played.

    If the arm adds only signals, and the policy ignores signals, this is the task with the arm `none`.
    """
    if task.policy in LISTENING or task.arm not in worlds.TOLD:
        return task
    return msgspec.structs.replace(task, arm="none")


def _cost(task: GameTask) -> float:
    """Estimate the cost of a game.

    The unit is the cost of all fetches of a game with budget 1x. All births of a game cost 1 in total, and so
    do its signals if the policy uses them.
    """
    return 1.0 + task.budget + (1.0 if task.policy in LISTENING else 0.0)


# -- files


def _write(
    args: argparse.Namespace,
    world: worlds.World,
    games: list[scores.Game],
    rows: list[scores.Row],
    axes: tuple[list[str], list[str], list[float]],
) -> None:
    comments = (
        f"command: {args.command_line}",
        f"{len(world.sites)} sites, {len(world)} pages, {world.days} days, seed {args.seed}",
        "errors: jackknife over sites; differences: from the first policy of the arm and budget",
    )
    pages_file.write_records(args.out / "scores.csv", scores.Row, rows, *comments)
    sites = (
        (game.arm, game.policy, game.budget, site, float(current / there))
        for game in games
        for site, current, there in zip(world.sites, game.current, game.there, strict=True)
        if there > 0.0
    )
    pages_file.write_rows(
        args.out / "sites.csv", ["arm", "policy", "budget", "site", "score"], sites, *comments[:2]
    )
    caption = f"{comments[1]}; bars: standard errors over sites"
    for name, draw in pictures.PICTURES.items():
        figure = draw(rows, *axes)
        path = args.out / f"{name}.{args.format}"
        drawing.save(figure, path, args.command_line, caption, args.seed, dpi=args.dpi)
    names = ", ".join(f"{name}.{args.format}" for name in pictures.PICTURES)
    print(f"wrote scores.csv, sites.csv, {names} to {args.out}")
