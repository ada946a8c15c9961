"""`crawler check`: verify a crawl directory that is not running; `--repair` mends what can be mended."""

import argparse
from typing import Any

from crawler.cli import access, options
from crawler.crawl.directory import CrawlDirectory


def main(_command: str, argv: list[str]) -> int:
    """Verify; 0 if all is well, 3 if something is not (each on a line)."""
    parser = options.parser(
        "check",
        "Verify counters, store, DUE runs and WARC records of a crawl that is not running.",
        "crawler check --dir example --repair",
    )
    parser.add_argument(
        "--repair", action="store_true", help="mend what can be mended, and say what was done"
    )
    args = parser.parse_args(argv)
    directory = CrawlDirectory(args.dir)
    directory.require()
    problems = []
    for name in directory.process_names():
        problems += [f"{name}: {problem}" for problem in _check_one(directory, name, args)]
    for problem in problems:
        print(problem)
    if not problems:
        print(f"{args.dir}: all is well")
    return 3 if problems and not args.repair else 0


def _check_one(directory: CrawlDirectory, name: str, args: argparse.Namespace) -> list[str]:
    from crawler.upkeep.check import check, repair_before_opening, repaired

    done = repair_before_opening(directory.process(name)) if args.repair else []
    with access.at_rest(directory, name, restore=args.repair) as stages:
        found: list[Any] = check(stages)
        done += repaired(stages)
    return found + [f"repaired: {line}" for line in done]
