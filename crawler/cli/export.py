"""`crawler export`: the page cache in the formats of other tools."""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from crawler.cli import options
from crawler.crawl.directory import CrawlDirectory
from crawler.errors import UsageError

FORMATS = ("warc", "cdxj", "jsonl", "links", "text", "mirror", "wacz", "parquet")
_TO_FILE = ("mirror", "wacz", "parquet")


def main(_command: str, argv: list[str]) -> int:
    """Export; 0 also if some captures could not be read, which are named on standard error."""
    parser = options.parser(
        "export",
        "Write the page cache as WARC, CDXJ, JSON lines, links, text, WACZ, Parquet, or files (mirror).",
        "crawler export --dir example --format cdxj > example.cdxj",
    )
    parser.add_argument("--format", required=True, choices=FORMATS, help="what to write")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="PATH", help="file, or folder of a mirror (standard output)"
    )
    parser.add_argument(
        "--with-noarchive", action="store_true", help="also pages that ask not to be archived"
    )
    args = parser.parse_args(argv)
    if args.output is None and args.format in _TO_FILE:
        raise UsageError(f"export --format {args.format} needs -o PATH")
    for problem in _export(args):
        print(f"crawler: {problem}", file=sys.stderr)
    return 0


def _export(args: argparse.Namespace) -> list[str]:
    if args.output is not None:
        return _write(args, args.output.absolute())
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "export"
        problems = _write(args, path)
        with path.open("rb") as file:
            shutil.copyfileobj(file, sys.stdout.buffer)
            sys.stdout.buffer.flush()
    return problems


def _write(args: argparse.Namespace, path: Path) -> list[str]:
    """Have the running process write, or open the directory and write here."""
    from crawler.admin.control import NOBODY, ask

    directory = CrawlDirectory(args.dir)
    directory.require()
    request: dict[str, Any] = {
        "format": args.format,
        "path": str(path),
        "with_noarchive": args.with_noarchive,
    }
    names = directory.process_names()
    answers = [ask(directory.process(name), "export", **request) for name in names]
    if any(answer is not NOBODY for answer in answers):
        return [problem for answer in answers if answer is not NOBODY for problem in answer["problems"]]
    return _write_at_rest(directory, names, args, path)


def _write_at_rest(
    directory: CrawlDirectory, names: list[str], args: argparse.Namespace, path: Path
) -> list[str]:
    import contextlib

    from crawler.cli.access import at_rest
    from crawler.upkeep import export as exporting

    with contextlib.ExitStack() as stack:
        stages = [stack.enter_context(at_rest(directory, name)) for name in names]
        archives = [each.pages for each in stages]
        return exporting.write(archives, stages[0].config, args.format, path, args.with_noarchive)
