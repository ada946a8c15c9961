"""`crawler report`: list the faults of the crawled site."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from crawler.cli import access, options
from crawler.cli.parsing import listed
from crawler.cli.work_progress import CountProgress
from crawler.errors import UsageError
from crawler.export.worker_pool import PROCESSES_MAX, processes
from crawler.storage.files import named_output

if TYPE_CHECKING:
    from crawler.audit.findings import Audit

FAILED_CODE = 10  # exit code if a check of --fail-on found something

_EXAMPLES = """\
crawler report --dir example
  crawler report --dir example --format html -o example.html
  crawler report --dir example --format csv > example.csv
  crawler report --dir example --fail-on dead-links,soft-404 --format json -o today.json    # for CI
  crawler report --dir example --consent
  crawler report --dir today --compare yesterday --fail-on new-error"""


def main(_command: str, argv: list[str]) -> int:
    """Print the report.

    Return 0, `FAILED_CODE` if a check of `--fail-on` found something, or 3 if the report
    lacks pages because segments are missing or copies cannot be read.
    """
    parser = options.parser(
        "report",
        "List dead links, redirect chains, slow pages, duplicates, orphans and more. The crawl may be running.",
        _EXAMPLES,
    )
    parser.option("--format", "text", "format of the report", choices=("text", "html", "json", "csv"))
    options.add_output(parser)
    parser.option("--limit", 1000, "list at most N findings of each kind", least=1)
    parser.option(
        "--compare",
        Path,
        "show what is new, gone, changed and repaired since an earlier crawl: its directory, or its JSON report",
        metavar="OTHER",
    )
    parser.option(
        "--fail-on",
        [],
        f"end with exit code {FAILED_CODE} if one of these checks found something: dead-links,soft-404; error, "
        "warning or notice for all that are at least as bad; with --compare, new-... counts only new findings",
        metavar="LIST",
    )
    parser.option(
        "--consent",
        False,
        "show instead, by host and use, how many pages their sites allow to be used (text, json or csv)",
    )
    args = parser.parse_args(argv)
    if args.consent:
        return _consent(args)
    checks, new = _fail_on(args)
    audit = _audit(args)
    _refuse_unmade(audit, args.fail_on)
    from crawler.audit import html, render

    forms = {"text": render.text, "json": render.json, "csv": render.csv_table, "html": html.page}
    _write(args, forms[args.format](audit))
    return _verdict(audit, checks, new)


def _consent(args: argparse.Namespace) -> int:
    """Print, for each host and use, the number of stored pages that may be used in that way."""
    from crawler.audit import consent

    if args.format not in consent.FORMATS:
        raise UsageError(f"report: --consent has the formats {', '.join(consent.FORMATS)}")
    if args.compare is not None or args.fail_on:
        raise UsageError("report: --consent cannot be combined with --compare or --fail-on")
    _write(args, consent.FORMATS[args.format](consent.summary(args.dir), args.limit))
    return 0


def _refuse_unmade(audit: "Audit", fail_on: list[str]) -> None:
    """Raise UsageError if `--fail-on` names a check that could not be made, which would always pass.

    A severity stands for the checks that were made.
    """
    for word in listed(fail_on):
        name = word.removeprefix("new-").replace("-", "_")
        if why := audit.not_made.get(name):
            raise UsageError(f"report: --fail-on {word}: {why}")
        if word.startswith("new-") and (why := audit.not_compared.get(name)):
            raise UsageError(f"report: --fail-on {word}: in {audit.compared_with}, {why}")


def _fail_on(args: argparse.Namespace) -> tuple[frozenset[str], frozenset[str]]:
    """Return two sets of checks of `--fail-on`: one that counts all findings, and one that counts only new ones."""
    from crawler.audit.check_table import named

    words = listed(args.fail_on)
    if args.fail_on and not words:
        raise UsageError(f"--fail-on: {','.join(args.fail_on)!r} names no check")
    new = [word.removeprefix("new-") for word in words if word.startswith("new-")]
    if new and args.compare is None:
        raise UsageError("report: --fail-on new-...: needs --compare OTHER")
    return named(word for word in words if not word.startswith("new-")), named(new)


def _verdict(audit: "Audit", checks: frozenset[str], new: frozenset[str]) -> int:
    """Print which of the checks of `--fail-on` found something; return the exit code."""
    from crawler.audit.check_table import word
    from crawler.audit.comparison import failing

    code = access.exit_code(audit.damage)
    found = [f"{word(name)} {count:,}" for name, count in failing(audit, sorted(checks), sorted(new))]
    if found:
        print(f"crawler: report: found {', '.join(found)}", file=sys.stderr)
    return FAILED_CODE if found else code


def _audit(args: argparse.Namespace) -> "Audit":
    from crawler.audit import collect, comparison

    listed_max = args.limit if args.compare is None else max(args.limit, comparison.COMPARED_MAX)
    workers = min(processes(), PROCESSES_MAX)
    progress = CountProgress(quiet=args.quiet)
    try:
        how = {"processes": workers, "listed_max": listed_max}
        audit = collect.audit(args.dir, **how, progress=progress)
        if args.compare is not None:
            collect.compare(audit, args.dir, args.compare, **how)
    finally:
        progress.end()
    comparison.trim(audit, args.limit)
    return audit


def _write(args: argparse.Namespace, made: str) -> None:
    if args.output is None:
        sys.stdout.write(made)
        return
    with named_output(args.output) as file:
        file.write(made.encode("utf-8"))
