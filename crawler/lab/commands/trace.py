"""Make and inspect URL traces.

    crawler lab trace synth T500 --threads 500 --links 7e7
    crawler lab trace info T500
    crawler lab trace import ./crawl mine
    crawler export --dir ./crawl --format links | crawler lab trace import - mine

`synth` writes a trace drawn from the link-locality model. `import` copies a trace out of a crawl directory.
`crawl --trace` writes one trace per run and process. `import` copies the longest of these traces, unless
--process or --run selects another. `import` can also make a trace from lines `source TAB target`. Lines
`source TAB target` contain each link of a page only once.
"""

import argparse
import os
import shutil
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from crawler.cli.parsing import OptionParser, positive_count, result_folder
from crawler.clock import SystemClock
from crawler.errors import UsageError
from crawler.input_files import lines_of
from crawler.lab.caches import link_locality, traces
from crawler.lab.caches.traces import Trace
from crawler.lab.caches.url_caches import Stream
from crawler.lab.progress_line import ProgressLine
from crawler.typed_number import within
from crawler.urls.trace import is_cross

LINKS_MAX = 2**31 - 1


def add_arguments(parser: OptionParser) -> None:
    commands = parser.add_subparsers(dest="command", required=True, metavar="synth|info|import")
    synth = commands.add_parser("synth", help="write a trace drawn from the link-locality model")
    synth.add_argument("trace", type=result_folder)
    add_synthetic(synth, links=10_000_000)
    synth.set_defaults(run_trace=_synth)
    info = commands.add_parser("info", help="describe a trace")
    info.add_argument("trace", type=Path)
    info.option("--first", 0, "use only the first N links", type=positive_count(LINKS_MAX))
    info.set_defaults(run_trace=_info)
    taken = commands.add_parser("import", help="make a trace from a crawl directory or from lines of links")
    taken.add_argument(
        "source", metavar="DIR|FILE|-", help="a crawl directory, or a file of lines `source TAB target`"
    )
    taken.add_argument("trace", type=result_folder)
    taken.option(
        "--process", str, "name of the process, such as p0 (the one with the longest trace)", metavar="NAME"
    )
    taken.option("--run", int, "number of the run, from 1 (the run with the longest trace)")
    taken.option(
        "--processes", 4, "for lines of links: number of processes among which hosts are divided", metavar="P"
    )
    taken.set_defaults(run_trace=_import)


def add_synthetic(parser: OptionParser, links: int) -> None:
    """Add the arguments of a synthetic trace, one per parameter of the model."""
    add = parser.option
    add("--threads", 500, "hosts crawled at the same time", metavar="T", type=positive_count(LINKS_MAX))
    add("--links", links, f"length of a synthetic trace ({links:,})", type=positive_count(LINKS_MAX))
    add("--seed", 1)
    group = parser.add_argument_group("parameters of the link-locality model")
    for field in fields(link_locality.LinkLocality):
        kind: Any = positive_count(LINKS_MAX) if field.type is int else float
        flag = "--" + field.name.replace("_", "-")
        group.add_argument(flag, type=kind, default=None, metavar="X", help=f"({field.default})")


def model_of(args: argparse.Namespace) -> link_locality.LinkLocality:
    """Return the link-locality model with the given parameters.

    Raises:
        UsageError: a share is not a probability, or another value is impossible.
    """
    names = [field.name for field in fields(link_locality.LinkLocality)]
    given = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    model = replace(link_locality.LinkLocality(), **given)
    model.check()
    return model


def run(args: argparse.Namespace) -> int:
    return int(args.run_trace(args))


def _synth(args: argparse.Namespace) -> int:
    model = model_of(args)
    info = {
        "source": "synthetic",
        "threads": args.threads,
        "seed": args.seed,
        "command": args.command_line,
        "tags": "none: links of the link-locality model",
        "model": {field.name: getattr(model, field.name) for field in fields(model)},
    }
    report = ProgressLine("synthetic trace", SystemClock())
    parts = link_locality.generate(model, args.threads, args.links, args.seed, report)
    trace = traces.write(args.trace, info, parts)
    print(f"{args.trace}: {len(trace.links):,} links on {len(trace.pages):,} pages")
    return 0


def _info(args: argparse.Namespace) -> int:
    trace = Trace.open(args.trace, args.first)
    for name, value in {**trace.info, **_figures_of(trace)}.items():
        print(f"{name + ':':<22}{_shown(value)}")
    return 0


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(inner)}" for name, inner in value.items())
    if isinstance(value, list):
        return " ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) else str(value)


def _figures_of(trace: Trace) -> dict[str, Any]:
    """Return the statistics of a trace, by name."""
    sizes = np.diff(trace.starts)
    links = len(trace.links)
    if not links:
        return {"pages": len(sizes), "links": 0}
    model, at_a_time = link_locality.counted(trace)
    distinct = Stream(trace.words()).distinct
    # the first link of a page cannot be a repeat, so the model's share of repeats is a share of the other links
    repeats = model.repeat * (links - len(sizes)) / links
    return {
        "pages": len(sizes),
        "links": links,
        "distinct": f"{distinct:,} ({distinct / links:.1%} of the links: cold misses in any cache)",
        "links per page": f"{sizes.mean():.2f}, median {np.median(sizes):.0f}",
        "repeats on the page": f"{repeats:.1%} of the links; {model.adjacent:.1%} of them directly after the first",
        "cross": f"{is_cross(trace.words()).mean():.1%}",
        "hosts": len(np.unique(trace.pages["host"])),
        "hosts at a time": at_a_time,
    }


def _import(args: argparse.Namespace) -> int:
    source = Path(args.source)
    if args.source != "-" and source.is_dir():
        return _import_of_crawl(source, args)
    within("--processes", args.processes, 1)
    try:
        with open(0 if args.source == "-" else source, encoding="utf-8", errors="replace") as lines:
            made = traces.import_link_lines(
                args.trace, lines_of(lines), processes=args.processes, key=os.urandom(16)
            )
    except OSError as error:
        raise UsageError(f"{args.source}: {error.strerror or error}") from error
    print(f"{args.trace}: {made.links:,} links on {made.pages:,} pages")
    return 0


def _import_of_crawl(source: Path, args: argparse.Namespace) -> int:
    found = traces.of_crawl(source)
    chosen = [
        folder
        for folder in found
        if args.process in (None, folder.parent.parent.name) and args.run in (None, int(folder.name))
    ]
    if not chosen:
        raise UsageError(f"trace not found; available: {', '.join(map(str, found))}")
    folder = max(chosen, key=lambda path: (path / "links").stat().st_size)
    if len(chosen) > 1:
        print(f"taking the longest of {len(chosen)} traces: {folder}", file=sys.stderr)
    # if the folder has no trace, this call raises an error before anything is copied
    trace = Trace.open(folder)
    try:
        shutil.copytree(folder, args.trace)
    except OSError as error:
        raise UsageError(f"{args.trace}: cannot write a trace: {error.strerror or error}") from error
    print(f"{args.trace}: {len(trace.links):,} links on {len(trace.pages):,} pages")
    return 0
