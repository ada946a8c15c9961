"""`crawler report`: list the faults of the crawled site."""

import argparse
import sys
from pathlib import Path

from crawler.cli import options
from crawler.cli.export import ExportProgress
from crawler.errors import UsageError
from crawler.export.worker_pool import PROCESSES_MAX, processes
from crawler.storage.files import named_output

_EXAMPLES = """\
crawler report --dir example
  crawler report --dir example --format html -o example.html
  crawler report --dir example --format csv > example.csv"""


def main(_command: str, argv: list[str]) -> int:
    """Print the report; return 0 whatever it contains."""
    parser = options.parser(
        "report",
        "List dead links, redirect chains, slow pages, duplicates, orphans and more. The crawl may be running.",
        _EXAMPLES,
    )
    parser.add_argument(
        "--format",
        choices=("text", "html", "json", "csv"),
        default="text",
        help="format of the report (text)",
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="output file (standard output)")
    parser.add_argument(
        "--limit", type=int, default=1000, metavar="N", help="list at most N findings of each kind (1000)"
    )
    args = parser.parse_args(argv)
    if args.limit < 1:
        raise UsageError("report: --limit must be at least 1")
    _write(args, _made(args))
    return 0


def _made(args: argparse.Namespace) -> str:
    from crawler.audit import collect, html, render

    problems: list[str] = []
    progress = ExportProgress(shown=not args.quiet and sys.stderr.isatty())
    try:
        audit = collect.audit(
            args.dir,
            processes=min(processes(), PROCESSES_MAX),
            listed_max=args.limit,
            report=problems.append,
            progress=progress,
        )
    finally:
        progress.end()
    for problem in problems:
        print(f"crawler: {problem}", file=sys.stderr)
    forms = {"text": render.text, "json": render.json, "csv": render.csv_table, "html": html.page}
    return forms[args.format](audit)


def _write(args: argparse.Namespace, made: str) -> None:
    if args.output is None:
        sys.stdout.write(made)
        return
    with named_output(args.output) as file:
        file.write(made.encode("utf-8"))
