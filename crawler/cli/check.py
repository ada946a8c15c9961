"""`crawler check`: verify a crawl directory that is not running; `--repair` repairs what it can."""

import argparse
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from crawler.cli import access, options
from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.lost_processes import begun_names, is_lost_whole
from crawler.errors import ConfigError, DamageError
from crawler.storage.files import Lock
from crawler.upgrade.ready import ready

if TYPE_CHECKING:
    from crawler.cli.work_progress import ReadProgress
    from crawler.upkeep.shipped_objects import ObjectProblem

_LOST_WHOLE = (
    "its store and all its WARC files were missing, so the pages stored there are lost; a backup of the folder brings "
    "them back, otherwise the crawl fetches them again from its seeds and from the links that other processes know"
)


def main(_command: str, argv: list[str]) -> int:
    """Print one line per problem. Return 0 if no problem remains. Otherwise, return 3, or 1 if --repair was given."""
    parser = options.parser(
        "check",
        "Verify the counters, store, DUE runs and WARC records of a crawl that is not running.",
        "crawler check --dir example --repair",
    )
    parser.option(
        "--repair",
        False,
        "repair the damage where possible, queue lost pages to be fetched again, and print each repair",
    )
    parser.option("--processes", int, "processes that read the WARC records (one for each core)", least=1)
    args = parser.parse_args(argv)
    directory = CrawlDirectory(args.dir)
    directory.require()
    if args.repair:
        _make_ready(directory)
    else:
        ready(directory)
    problems = _token(directory, args)
    from crawler.cli.work_progress import ReadProgress  # imported here, so that `--help` is fast
    from crawler.export.worker_pool import PROCESSES_MAX, processes

    progress = ReadProgress(quiet=args.quiet)
    workers = max(1, min(processes() if args.processes is None else args.processes, PROCESSES_MAX))
    problems += (_repair if args.repair else _check)(directory, workers, progress)
    progress.end()
    for problem in problems:
        print(problem)
    if not problems:
        print(f"{args.dir}: no problems found")
    return (1 if args.repair else 3) if problems else 0


def _make_ready(directory: CrawlDirectory) -> None:
    """Repair the configuration and the directory's format, which all further checks depend on."""
    from crawler.upkeep.check import mend_stores

    _print_repaired([directory.renew_format()])
    try:
        ready(directory, "repair")
    except (ConfigError, DamageError):  # the damage is in the configuration or in a store
        _print_repaired([directory.settings.renew(), *mend_stores(directory)])
        ready(directory, "repair")
    _print_repaired([directory.settings.renew()])


def _print_repaired(lines: Iterable[str]) -> None:
    for line in filter(None, lines):
        print(f"repaired: {line}")


def _token(directory: CrawlDirectory, args: argparse.Namespace) -> list[str]:
    """Return the problems of the admin server's secret. A repair deletes a damaged secret; a new one is made later."""
    from crawler.admin.actions import damaged_token

    found = [each for each in [damaged_token(directory.path, repair=args.repair)] if each]
    if not args.repair:
        return found
    _print_repaired(found)
    return []


def _check(directory: CrawlDirectory, workers: int, progress: "ReadProgress") -> list[str]:
    """Return the problems of each process, followed by the problems that concern several processes."""
    from crawler.upkeep.behind_peers import Exchanged, find_behind
    from crawler.upkeep.check import check

    problems, exchanged = [], {}
    names = begun_names(directory)
    access.refuse_running(directory, names, "crawler check")
    for name in names:
        with access.reading(directory, name) as stages:
            problems += [f"{name}: {line}" for line in check(stages, workers, progress)]
            exchanged[name] = Exchanged.of(stages)
    problems += [str(each) for each in find_behind(exchanged)]
    return problems + [each.message for each in _object_problems(directory)]


def _object_problems(directory: CrawlDirectory) -> "Iterator[ObjectProblem]":
    from crawler.crawl.shipper import folders
    from crawler.upkeep.shipped_objects import object_problems

    return object_problems(folders(directory.path), directory.settings.config().pages.ship)


def _repair(directory: CrawlDirectory, workers: int, progress: "ReadProgress") -> list[str]:
    """Repair all processes, print each repair, and return the problems that remain."""
    from crawler.clock import SystemClock
    from crawler.upkeep.behind_peers import recover_behind
    from crawler.upkeep.check import begin_repair, repair
    from crawler.upkeep.repair import RepairNote
    from crawler.upkeep.shipped_objects import ship_again

    config, clock = directory.settings.config(), SystemClock()
    names = begun_names(directory)
    problems = [f"{name}: {_LOST_WHOLE}" for name in names if is_lost_whole(directory.process(name))]
    lock = Lock(directory.path / "supervisor.lock", "check")
    with lock, RepairNote.withdrawn_if_unchanged(directory):
        _print_repaired(begin_repair(directory, names))
        for name in names:
            done, left = repair(config, directory, name, clock, workers, progress)
            progress.end()
            _print_repaired(f"{name}: {line}" for line in done)
            problems += [f"{name}: {line}" for line in left]
        done, left = recover_behind(config, directory, names, clock)
    _print_repaired(done)
    objects = list(_object_problems(directory))
    _print_repaired(ship_again(each) for each in objects if each.segment is not None)
    return problems + left + [each.message for each in objects if each.segment is None]
