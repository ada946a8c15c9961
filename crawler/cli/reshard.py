"""`crawler reshard` and `crawler recover`: move a crawl to other processes, or find links that a process has lost."""

import argparse
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from crawler.cli import options
from crawler.config import Config
from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.journal import Journal, end_journal, keep_journal
from crawler.errors import DirectoryError, UsageError
from crawler.storage.files import Lock
from crawler.typed_number import within
from crawler.upgrade.ready import opened
from crawler.wording import several

if TYPE_CHECKING:
    from crawler.splitter.partition import Partition


def main(command: str, argv: list[str]) -> int:
    """Run one of the two commands."""
    return {"reshard": _reshard, "recover": _recover}[command](argv)


def _reshard(argv: list[str]) -> int:
    parser = options.parser(
        "reshard",
        "Divide a crawl that is not running among another number of processes, or by another bucket table. DIR must\n"
        "contain the folders of all its processes. The new folders are verified before they replace the old ones.\n"
        "If a reshard is interrupted while it replaces them, the next command on DIR finishes it.",
        "crawler reshard --dir example --to 4",
        settings=True,
    )
    parser.option(
        "--to", str, "number of processes, or a bucket table (JSON file)", metavar="N|TABLE", required=True
    )
    args = parser.parse_args(argv)
    from crawler.clock import SystemClock
    from crawler.upkeep.reshard import Resharding

    directory = opened(args.dir)
    options.set_up_log(args, directory.log_file)
    config, target = _target(args, directory)
    Resharding(directory, config, target, SystemClock(), lambda text: _say(args, text)).run()
    print(f"{args.dir}: the crawl is divided among {', '.join(target.names)}, table epoch {target.epoch}")
    return 0


def _say(args: argparse.Namespace, text: str) -> None:
    if not args.quiet:
        print(text, file=sys.stderr)


def _target(args: argparse.Namespace, directory: CrawlDirectory) -> "tuple[Config, Partition]":
    """Return the configuration and the bucket table that the crawl has after the reshard."""
    from msgspec.structs import replace

    from crawler.crawl.process_names import process_names
    from crawler.crawl.topology import topology
    from crawler.splitter.partition import PROCESSES_MAX, Partition

    saved = directory.settings.config()
    old = topology(saved, directory.path, process_names(saved)[0]).partition
    config = options.layers(args, directory).config()
    if args.to.isascii() and args.to.isdigit():
        count = int(args.to)
        within("--to", count, 1, PROCESSES_MAX)
        config = replace(
            config, crawl=replace(config.crawl, processes=count), splitter=replace(config.splitter, peers=())
        )
        return config, Partition.equal_ranges(process_names(config), epoch=old.epoch + 1)
    target = Partition.read(Path(args.to))
    if list(target.names) == sorted(f"p{n}" for n in range(len(target.names))) and not config.splitter.peers:
        config = replace(config, crawl=replace(config.crawl, processes=len(target.names)))
    if set(process_names(config)) != set(target.names):
        raise UsageError(
            f"--to {args.to}: the table has the processes {', '.join(target.names)}, but splitter.peers has "
            f"{', '.join(process_names(config))}; set splitter.peers too"
        )
    return config, target


def _recover(argv: list[str]) -> int:
    parser = options.parser(
        "recover",
        "Bring back the links that a process has lost: its disk is lost, or it was put back to a backup. Searches\n"
        "the archives of the other processes in DIR for links that it owned, and queues them for it. Then start it,\n"
        "with an empty folder if its disk is lost; it fetches its pages again. If each process has a directory of its\n"
        "own, run this in each of the others. If all are in DIR, use `crawler check --repair` after a backup.",
        "crawler recover p1 --dir example",
    )
    parser.add_argument("name", metavar="NAME", help="name of the process that has lost links")
    args = parser.parse_args(argv)
    from crawler.clock import SystemClock
    from crawler.crawl.topology import process_names
    from crawler.upkeep.behind_peers import recover

    directory = opened(args.dir, "recover", args.name)
    names, config = directory.process_names(), directory.settings.config()
    if args.name in names:
        raise DirectoryError(
            f"{directory.process(args.name)} exists; `crawler check --repair` brings back what it has lost; "
            "if its disk is lost, move the folder away"
        )
    if args.name not in (known := process_names(config)):
        raise UsageError(f"{args.name!r} is not among the processes {', '.join(known)}")
    options.set_up_log(args, directory.log_file)
    # written before the first change: if the disk has no room even for that, the crawl is as it was
    note = partial(keep_journal, directory.path, Journal("recover", args.name))
    with Lock(directory.path / "supervisor.lock", "recover"):
        total, problems = recover(config, directory, args.name, names, SystemClock(), note)
        directory.forget_begun(args.name)
        end_journal(directory.path)
    for problem in problems:
        print(f"crawler: {problem}", file=sys.stderr)
    print(f"{args.dir}: {several(total, 'link', 'wait')} for {args.name}")
    return 0
