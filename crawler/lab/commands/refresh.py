"""Simulate refresh policies on random pages, or compute the optimal crawl rates of your own pages.

    crawler lab refresh --policies baseline,greedy,ncis --size 1000 --instances 20
    crawler lab refresh rates --pages pages.csv --rate 50

The first form prints the accuracy (share of requests served fresh) of each policy
with its standard error, and its paired difference from the first policy. The
second form reads a CSV (columns importance, change_rate, and optionally page or url,
and recall with false_rate or precision) and writes the optimal crawl rate of each page.
"""

import argparse
from pathlib import Path

import numpy as np

from crawler.cli.parsing import OptionParser, listed, result_file
from crawler.clock import SystemClock
from crawler.errors import UsageError
from crawler.freshness.params import Pages
from crawler.lab.figures import drawing
from crawler.lab.progress_line import ProgressLine
from crawler.lab.refresh import pages_file, policies, simulate
from crawler.typed_number import number_of, within

SIZE_MAX = 5_000_000
CRAWLS_MAX = 100_000_000  # maximum number of crawls per run; the instants of 100 million crawls take 3 GB
RATE_MAX = 1e9  # maximum number of crawls per unit of time
DELAY_MAX = 1e6  # ticks


def add_arguments(parser: OptionParser) -> None:
    add = parser.option
    parser.add_argument(
        "action",
        nargs="?",
        choices=("run", "rates"),
        default="run",
        help="simulate policies (default), or compute optimal rates",
    )
    add(
        "--policies",
        "baseline,optimum,greedy,ncis",
        "policies to compare; the first is the reference",
        metavar="A,B",
    )
    add("--size", 1000, "pages per instance", metavar="M")
    add("--signals", "noisy", "kind of change signals", choices=tuple(simulate.EVENT_RATES))
    add("--bandwidth", "100", "crawls per unit of time; 0:100,133:150 changes it at given times", metavar="R")
    add("--time", 1000.0, "length of a run in units of time", metavar="T")
    add("--instances", 10, "number of drawn instances")
    add("--seed", 1)
    add("--delay", 0.0, "delay signals by Poisson(K) ticks (0)", metavar="K")
    add("--corrupt", 0.0, "share of noise added to the assumed precision and recall", metavar="P")
    add("--pages", Path, "read pages from this CSV instead of drawing them")
    add("--rate", float, "for `rates`: crawls per unit of time, over all pages", metavar="R")
    add("--out", Path, "write the results as CSV; `rates` also draws a picture", type=result_file)


def run(args: argparse.Namespace) -> int:
    return _rates(args) if args.action == "rates" else _simulate(args)


# -- simulate


def _simulate(args: argparse.Namespace) -> int:
    names = listed([args.policies])
    for name in names or [args.policies]:
        simulate.check_policy(name)
    within("--size", args.size, 1, SIZE_MAX)
    within("--instances", args.instances, 1)
    within("--corrupt", args.corrupt, 0, 1)
    within("--time", args.time, above=0)
    within("--delay", args.delay, 0, DELAY_MAX)
    within("--seed", args.seed, 0)
    setting = simulate.ExperimentSetting(
        bandwidth=_bandwidth(args.bandwidth), horizon=args.time, delay=args.delay
    )
    if setting.crawls > CRAWLS_MAX:
        raise UsageError(f"a run may have at most {CRAWLS_MAX:,} crawls; lower --bandwidth or --time")
    given = pages_file.read(args.pages).pages if args.pages else None
    if given is None:
        # drawing millions of pages takes seconds, so the mean number of events is checked before
        simulate.check_events(args.size * simulate.EVENT_RATES[args.signals] * args.time)
    results = simulate.experiment(
        names,
        lambda rng: given or simulate.standard_pages(rng, args.size, args.signals),
        setting,
        args.instances,
        args.seed,
        corrupt=args.corrupt,
        report=ProgressLine("simulation", SystemClock()),
    )
    rows = _table(names, results)
    print(f"{'policy':<10} {'accuracy':>9} {'error':>7} {'settled':>9} {'- ' + names[0]:>11} {'error':>7}")
    for name, whole, error, settled, more, more_error in rows:
        print(f"{name:<10} {whole:9.4f} {error:7.4f} {settled:9.4f} {more:+11.4f} {more_error:7.4f}")
    if args.out:
        columns = ["policy", "accuracy", "error", "settled", "difference", "difference_error"]
        pages_file.write_rows(args.out, columns, rows, f"command: {args.command_line}")
    return 0


def _table(names: list[str], results: list[dict[str, simulate.SimulationResult]]) -> list[tuple]:
    """Return a row per policy.

    A row holds the name of the policy, its accuracy and the error of the accuracy, and its accuracy after the
    warm-up. The last two columns are the difference between this accuracy and that of the first policy, and
    the error of the difference.
    """
    rows = []
    for name in names:
        whole, error = simulate.mean_and_error([found[name].accuracy for found in results])
        settled, _ = simulate.mean_and_error([found[name].settled for found in results])
        paired = [found[name].settled - found[names[0]].settled for found in results]
        rows.append((name, whole, error, settled, *simulate.mean_and_error(paired)))
    return rows


def _bandwidth(text: str) -> tuple[tuple[float, float], ...]:
    """Parse `100` or `0:100,133:150,266:100` into (time, rate) pairs in order of time, beginning at 0."""
    found = list[tuple[float, float]]()
    for part in (text if ":" in text else f"0:{text}").split(","):
        begin, _, rate = part.partition(":")
        at = number_of("--bandwidth", begin, float, 0)
        if not found and at:
            raise UsageError(f"--bandwidth: the first time must be 0, got {begin}")
        if found:
            within("--bandwidth", at, above=found[-1][0])
        found.append((at, number_of("--bandwidth", rate, float, most=RATE_MAX, above=0)))
    return tuple(found)


# -- optimal rates for a user's pages


def _rates(args: argparse.Namespace) -> int:
    if args.pages is None or args.rate is None:
        raise UsageError("rates: needs --pages FILE and --rate R")
    within("--rate", args.rate, most=pages_file.SIZE_MAX, above=0)
    file = pages_file.read(args.pages)
    pages = file.pages
    best = policies.optimum_with_signals(pages, args.rate)
    accuracy = policies.freshness(pages, best.thresholds, best.rates)
    out = args.out or args.pages.with_suffix(".rates.csv")
    with np.errstate(divide="ignore"):
        columns = (
            pages.importance,
            pages.change_rate,
            best.rates,
            1.0 / best.rates,
            best.thresholds,
            accuracy,
        )
    rows = zip(file.names, *(column.tolist() for column in columns), strict=True)
    heads = ["page", "importance", "change_rate", "rate", "interval", "threshold", "freshness"]
    comments = [
        f"command: {args.command_line}",
        f"level: {best.level:.10g} (pages with importance/change_rate below it are not worth a crawl)",
        "interval: mean time between crawls; threshold: effective elapsed time at which to crawl",
    ]
    pages_file.write_rows(out, heads, rows, *comments)
    _plot_rates(out.with_suffix(".png"), pages, best, args)
    idle = int(np.sum(best.rates == 0.0))
    print(f"{len(pages)} pages, {idle} not worth a crawl at {args.rate:g} crawls per unit of time")
    print(f"expected share of requests served fresh: {best.accuracy:.4f}")
    print(f"wrote rates to {out} and a picture to {out.with_suffix('.png')}")
    return 0


DRAWN_MAX = 5_000  # maximum number of marks in the picture; more marks would hide each other


def _plot_rates(path: Path, pages: Pages, best: policies.Optimum, args: argparse.Namespace) -> None:
    """Draw a point for each page at its change rate and importance, coloured by crawl rate.

    Also draw the line of the pages whose value equals the level.
    """
    figure, axes = drawing.sheet(7.0, 5.2)
    every = -(-len(pages) // DRAWN_MAX)
    drawn = slice(None, None, every)
    drawing.rate_map(axes, pages.change_rate[drawn], pages.importance[drawn], best.rates[drawn], best.level)
    some = f" (one in {every} drawn)" if every > 1 else ""
    axes.set_title(
        f"Optimal crawl rates of {len(pages):,} pages{some}\n{args.rate:g} crawls per unit of time",
        fontsize=11,
    )
    drawing.save(
        figure, path, args.command_line, "rates by Theorem 1 of Busa-Fekete et al.; x: never crawled"
    )
