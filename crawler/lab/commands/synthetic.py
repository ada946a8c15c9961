"""The arguments that `crawler lab cluster` and `crawler lab web` share: the data on which the synthetic web is modelled.

A summary of the data is printed to standard error, because the first line that `lab web` prints must be the
seed URL.
"""

import argparse
import sys
from pathlib import Path

from crawler.cli.parsing import OptionParser
from crawler.errors import UsageError
from crawler.lab.caches import link_locality
from crawler.lab.caches.link_locality import LinkLocality
from crawler.lab.caches.traces import Trace
from crawler.lab.cluster.page_changes import RealChanges
from crawler.lab.commands.cache import trace_folder
from crawler.lab.league import histories
from crawler.typed_number import within


def add_web(parser: OptionParser) -> None:
    """Add the arguments that both commands share."""
    add = parser.option
    add("--sitemaps", 0.25, "share of hosts that have a sitemap")
    add(
        "--links-of",
        Path,
        "draw links by the locality model fitted to this trace (`crawler lab cache locality`)",
        metavar="TRACE",
    )
    add(
        "--histories",
        Path,
        "let pages change as pages of real sites did in their last days (`crawler lab histories`)",
        metavar="DIR",
    )


def check(args: argparse.Namespace) -> None:
    """Raise UsageError if `--sitemaps` is not a number from 0 to 1."""
    within("--sitemaps", args.sitemaps, 0, 1)


def links_of(args: argparse.Namespace) -> LinkLocality | None:
    """Fit the locality model to the trace of `--links-of`; print and return the model.

    Without the option, return None.

    Raises:
        UsageError: the trace does not exist or is empty.
    """
    if args.links_of is None:
        return None
    trace = Trace.open(trace_folder(args.links_of), 0)
    if not len(trace.links):
        raise UsageError(f"{args.links_of}: the trace is empty")
    fit = link_locality.fit(trace, threads=int(trace.info.get("threads", 0)), seed=args.seed)
    print(f"links of {trace.name}: {fit.describe()}", file=sys.stderr)
    return fit.model


def changes_of(args: argparse.Namespace, seconds: float) -> RealChanges | None:
    """Return the page changes of `--histories` and print a summary. Without the option, return None.

    Raises:
        UsageError: there are no histories, or none is long enough.
    """
    if args.histories is None:
        return None
    changes = RealChanges(histories.read_folder(args.histories), seconds)
    print(
        f"changes of {args.histories}: {changes.pages:,} pages, {changes.changes:,} changes", file=sys.stderr
    )
    return changes
