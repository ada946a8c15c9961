"""`crawler export`: the page cache in the formats of other tools."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

from crawler.cli import options
from crawler.cli.work_progress import CountProgress
from crawler.clock import SystemClock
from crawler.config.forms import USE_NAMES
from crawler.errors import DamageError
from crawler.export.uploading import output_place
from crawler.export.worker_pool import PROCESSES_MAX, processes
from crawler.export.writing import FORMATS, TEXT_EXTRA, Export, ExportRequest
from crawler.pages.formats.rows import FIELDS
from crawler.pages.formats.selection import ignore
from crawler.printable import printable

_EXAMPLES = """\
crawler export --dir example --format cdxj > example.cdxj
  crawler export --dir example --format mirror -o example-offline
  crawler export --dir example --format parquet -o rows.parquet --where 'status == 200 and language == "en"'
  crawler export --dir example --format parquet -o rows/ --part-size 256M --main-content
  crawler export --dir example --format parquet -o train.parquet --allow train-ai
  crawler export --dir example --format parquet --to s3://bucket/example/rows.parquet
  crawler export --dir example --format jsonl --fields url,status,via --where 'status >= 400'"""


def main(_command: str, argv: list[str]) -> int:
    """Export the pages. Return 0, or 3 if the export lacks pages, because segments are missing or captures unreadable.

    Missing segments and captures that cannot be read are listed on standard error.
    """
    args = _parse(argv)
    problems: list[str] = []
    progress = CountProgress(quiet=args.quiet)
    say = ignore if args.quiet else _say
    with output_place(args.output, say) as output:
        export = Export(_request(args, output), report=problems.append, progress=progress)
        try:
            count = export.run(args.dir)
        finally:
            progress.end()
    for problem in [*problems, *export.damage]:
        print(f"crawler: {problem}", file=sys.stderr)
    if not args.quiet:
        for line in _missing(args, export, count):
            print(f"crawler: {line}", file=sys.stderr)
    return DamageError.exit_code if export.incomplete else 0


def _missing(args: argparse.Namespace, export: Export, count: int) -> Iterator[str]:
    """Yield a line for each reason why the export has less than the user may expect."""
    if args.where and not count:
        yield f"no page matches {args.where}"
    elif args.allow and not count:
        yield f"no copy may be used for {args.allow}; `crawler report --consent` shows what sites allow"
    if export.empty_fields:
        yield f"empty columns: {', '.join(export.empty_fields)}; to fill them, {TEXT_EXTRA}"


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = options.parser(
        "export",
        "Write the crawled pages in formats that other tools read. A running crawl is not interrupted.",
        _EXAMPLES,
    )
    formats = "; ".join(f"{name}: {writer.about}" for name, writer in FORMATS.items())
    parser.option(
        "--format", str, formats.replace("%", "%%"), required=True, choices=tuple(FORMATS), metavar="FORMAT"
    )
    parser.add_argument(
        "-o",
        "--output",
        "--to",
        type=options.output,
        metavar="PATH",
        help="output file, or folder for a mirror or for parts; - is standard output (the default); s3://, gs://, "
        "az:// and file:// URLs name object storage",
    )
    parser.option(
        "--where",
        "",
        "export only rows that match, such as 'host == \"x.org\" and status == 200'",
        metavar="EXPR",
    )
    parser.option(
        "--allow",
        "",
        "export only copies that may be used for USE by their consent receipts: " + ", ".join(USE_NAMES),
        metavar="USE",
        type=options.use,
    )
    parser.option(
        "--unknown",
        "",
        "with --allow: take or leave out copies about which nothing is said (consent.unknown)",
        choices=("allow", "refuse"),
    )
    parser.option(
        "--fields", "", f"write these fields, in this order (all), of {', '.join(FIELDS)}", metavar="A,B"
    )
    parser.option(
        "--main-content", False, "leave menus, headers and footers out of the text (needs resiliparse)"
    )
    parser.option(
        "--part-size", 0, "split into files of about this size in folder PATH", metavar="BYTES", type=_bytes
    )
    parser.option("--with-noarchive", False, "include pages that ask not to be archived")
    parser.option("--static", False, "export the server's answers, not what a browser showed (--render)")
    parser.option("--processes", processes(), f"worker processes ({processes()})", least=1)
    return parser.parse_args(argv)


def _bytes(text: str) -> int:
    from crawler.config import ByteCount

    try:
        return ByteCount.parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _say(line: str) -> None:
    print(printable(line), file=sys.stderr)


def _request(args: argparse.Namespace, output: Path | None) -> ExportRequest:
    return ExportRequest(
        args.format,
        output,
        with_noarchive=args.with_noarchive,
        static=args.static,
        where=args.where,
        allow=args.allow,
        unknown=args.unknown,
        fields=args.fields,
        main_content=args.main_content,
        part_bytes=args.part_size,
        processes=max(1, min(args.processes, PROCESSES_MAX)),
        now=SystemClock().now(),
    )
