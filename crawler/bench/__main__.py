"""Runs `python -m crawler.bench cache|due|splitter|units`."""

import sys

from crawler.bench import cache, due, splitter, units
from crawler.cli.parsing import Parser


def main(_command: str, argv: list[str]) -> int:
    """Run the benchmark that `argv` names and return its exit code."""
    parser = Parser(
        prog="crawler bench", description="Measure a component and its references in the same run."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, module in (("cache", cache), ("due", due), ("splitter", splitter), ("units", units)):
        command = commands.add_parser(name, help=(module.__doc__ or "").split("\n")[0])
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    arguments = parser.parse_args(argv)
    return int(arguments.run(arguments))


if __name__ == "__main__":
    from crawler import cli

    sys.exit(cli.main(["bench", *sys.argv[1:]]))
