"""Runs `crawler lab COMMAND`. Each command is a module, which is imported only when it is needed.

A module provides `add_arguments(parser)` and `run(args) -> int`; the first line of
its docstring is the command's description.
"""

import argparse
import importlib
import sys

from crawler.cli.parsing import Parser, suggestion
from crawler.errors import UsageError

# Maps the name of a command to its module and its description in one line.
COMMANDS = {
    "cache": ("crawler.lab.commands.cache", "compare replacement policies for the URL cache on a trace"),
    "trace": ("crawler.lab.commands.trace", "make, import and describe URL traces"),
    "refresh": (
        "crawler.lab.commands.refresh",
        "simulate refresh policies, or compute optimal rates for your pages",
    ),
    "order": ("crawler.lab.commands.order", "compare orders of new URLs by the quality they find early"),
    "league": ("crawler.lab.commands.league", "compare refresh policies on change histories of real sites"),
    "worlds": ("crawler.lab.commands.worlds", "compare refresh policies on drawn webs, on a virtual clock"),
    "histories": ("crawler.lab.commands.histories", "make change histories from a git clone"),
    "cluster": (
        "crawler.lab.commands.cluster",
        "run many processes on a virtual clock, with faults, and judge them",
    ),
    "web": ("crawler.lab.commands.web", "serve a synthetic web on loopback, for any crawler"),
    "figures": ("crawler.lab.figures.drawing", "draw the papers' figures, each with its data"),
    "import": ("crawler.lab.refresh.kolobov", "convert the public change-rate data set to a pages file"),
}


def _usage() -> str:
    width = max(map(len, COMMANDS)) + 2
    rows = "\n".join(f"  {name:<{width}}{line}" for name, (_, line) in COMMANDS.items())
    return f"usage: crawler lab COMMAND [options]\n\nThe experiments of the papers.\n\n{rows}"


def main(_command: str, argv: list[str]) -> int:
    """Run `crawler lab` with `argv` and return its exit code; raises CrawlerError."""
    if not argv or argv[0] in ("-h", "--help"):
        print(_usage())
        return 0
    if argv[0] not in COMMANDS:
        raise UsageError(
            f"unknown lab command {argv[0]!r}{suggestion(argv[0], COMMANDS)}; `crawler lab --help` lists them"
        )
    module = importlib.import_module(COMMANDS[argv[0]][0])
    parser = Parser(
        prog=f"crawler lab {argv[0]}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    module.add_arguments(parser)
    args = parser.parse_args(argv[1:])
    args.command_line = "crawler lab " + " ".join(argv)
    return module.run(args)


if __name__ == "__main__":
    from crawler import cli

    sys.exit(cli.main(["lab", *sys.argv[1:]]))
