"""Compare replacement policies for the URL cache on a trace: miss rates at all sizes, and a recommended size.

    crawler lab cache                         on a synthetic trace of 500 threads
    crawler lab cache mine --stream cross     on a trace of your own (`crawler lab trace`)
    crawler lab cache mine --policies all --csv mine.csv
    crawler lab cache mine --figures figures  draw the paper's figures 2 to 11; traces with other
                                              numbers of threads may follow the first
    crawler lab cache order mine              the effect of the crawl order
    crawler lab cache per-thread mine         one cache per thread against a global one
    crawler lab cache locality mine           the link-locality model that fits the trace

Policies are those of Broder, Najork, Wiener (2003): INFINITE, MIN, LRU, CLOCK, RANDOM and STATIC. TABLE is the
cache that the crawler uses. The first argument names an experiment or the trace.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crawler.cli.parsing import (
    OptionParser,
    positive_count,
    result_file,
    result_folder,
    some_of,
)
from crawler.clock import SystemClock
from crawler.errors import UsageError
from crawler.lab.caches import crawl_order, link_locality, url_caches
from crawler.lab.caches.traces import Trace
from crawler.lab.caches.url_caches import BITS_MAX, PAPER_POLICIES, POLICIES, Stream
from crawler.lab.commands.trace import LINKS_MAX, add_synthetic, model_of
from crawler.lab.figures import broder, drawing
from crawler.lab.progress_line import ProgressLine
from crawler.lab.refresh import pages_file
from crawler.typed_number import number_of, within

Rates = dict[str, NDArray[np.float64]]
EXPONENT_MAX = 30  # the largest cache in --bits has 2^30 entries


def add_arguments(parser: OptionParser) -> None:
    add = parser.option
    parser.add_argument(
        "what",
        nargs="*",
        metavar="[order|per-thread|locality] [TRACE]",
        help="an experiment, a trace, or an experiment and a trace",
    )
    add("--first", 0, "use only the first N links of the trace", type=positive_count(LINKS_MAX))
    add("--stream", "full", "use all links, or only those to other processes", choices=("full", "cross"))
    add("--policies", "", "policies to compare: names from above, or all (the paper's six)", metavar="A,B")
    add("--bits", f"0-{BITS_MAX}", "cache sizes from 2^A to 2^B (0-25)", metavar="A-B")
    add("--csv", Path, "write the table to FILE, with seed and command", type=result_file)
    about = "draw the paper's figures 2 to 11, and our own, from this trace"
    add("--figures", Path, about, metavar="DIR", type=result_folder)
    add_synthetic(parser, links=5_000_000)


def run(args: argparse.Namespace) -> int:
    experiment, folders = _what(args.what)
    if len(folders) > 1 and not args.figures:
        raise UsageError(
            f"expected one trace, got {len(folders)}: {', '.join(map(str, folders))}; only --figures takes several"
        )
    bits = _bits(args.bits)
    _policies(args.policies)  # a wrong name is an error before a trace is made
    if args.figures:
        _draw([_trace(args, folder) for folder in folders] or [_trace(args, None)], args)
        return 0
    trace = _trace(args, folders[0] if folders else None)
    rates = _EXPERIMENTS[experiment](trace, bits, args)
    if args.csv and rates:
        _write_csv(args, trace, bits, rates)
    return 0


def _what(words: list[str]) -> tuple[str, list[Path]]:
    """Return the name of the experiment and the folders of the traces."""
    if words and words[0] in _EXPERIMENTS:
        return words[0], [Path(word) for word in words[1:]]
    return "policies", [Path(word) for word in words]


def trace_folder(folder: Path) -> Path:
    """Return the folder of a trace. For a crawl directory, this is the trace of the first process's latest run."""
    if not (folder / "seed").exists():
        return folder
    found = sorted((folder / "p0" / "trace").glob("*/info.json"))
    if not found:
        raise UsageError(f"{folder}: this crawl has no trace; crawl with --trace")
    return found[-1].parent


def _trace(args: argparse.Namespace, folder: Path | None) -> Trace:
    """Return the trace in `folder`, or a synthetic one if `folder` is None."""
    if folder is not None:
        trace = Trace.open(trace_folder(folder), args.first)
        if not len(trace.links):
            raise UsageError(f"{folder}: the trace is empty")
        if len(trace.links) > LINKS_MAX:
            raise UsageError(f"{folder}: more than {LINKS_MAX:,} links; use fewer with --first N")
        return trace
    report = ProgressLine("synthetic trace", SystemClock())
    parts = link_locality.generate(model_of(args), args.threads, args.links, args.seed, report)
    info = {"source": "synthetic trace of the link-locality model", "threads": args.threads}
    return Trace.joined(parts, info)


def _bits(text: str) -> range:
    """Parse `A-B`, or `A` for a single size."""
    first, dash, last = text.partition("-")
    least, most = (
        number_of("--bits", word, int, 0, EXPONENT_MAX) for word in (first, last if dash else first)
    )
    within("--bits", most, least)
    return range(least, most + 1)


def _policies(text: str) -> list[str]:
    if not text:
        return list(PAPER_POLICIES)
    return list(POLICIES) if text == "all" else some_of("--policies", text.upper(), POLICIES)


def _by_policy(trace: Trace, bits: range, args: argparse.Namespace) -> Rates:
    """Print the miss rates and the CPU time of each policy, and advice on the cache size."""
    sizes = [1 << b for b in bits]
    policies = _policies(args.policies)
    stream = Stream(trace.words(args.stream), args.stream)
    found = {}
    for policy in policies:
        began = time.process_time()
        found[policy] = url_caches.misses(policy, stream, sizes, seed=args.seed).sum(axis=1)
        _report_cost(policy, time.process_time() - began, len(stream), len(sizes))
    url_caches.check(found, stream.distinct)
    rates = {policy: values / max(1, len(stream)) for policy, values in found.items()}
    print(
        f"{trace.name}, {args.stream}: {len(stream):,} requests for {stream.distinct:,} URLs\n"
        f"misses, % of requests\n{_table(bits, rates)}"
    )
    judged = next((name for name in ("CLOCK", "TABLE", "LRU", "MIN") if name in rates), None)
    if judged is not None:
        curve = rates[judged].tolist()
        print(
            url_caches.advice(
                url_caches.knee(bits, curve), trace.threads, dict(zip(bits, curve, strict=True))
            )
        )
    return rates


def _report_cost(policy: str, seconds: float, requests: int, sizes: int) -> None:
    each = 1e9 * seconds / max(1, requests)
    apart = f"{each / sizes:6.1f} for each of {sizes} sizes"
    print(f"{policy:<10}{seconds:8.2f} CPU s, {each:7.1f} ns per request, {apart}", file=sys.stderr)


def _by_order(trace: Trace, bits: range, args: argparse.Namespace) -> Rates:
    """Print the miss rates of CLOCK with the pages in other orders."""
    sizes = [1 << b for b in bits]
    requests = max(1, len(trace.words(args.stream)))
    report = ProgressLine("cache order", SystemClock())
    found = crawl_order.by_order(trace, sizes, stream=args.stream, seed=args.seed, report=report)
    rates = {name: values / requests for name, values in found.items()}
    print(f"{trace.name}: misses of CLOCK, % of requests, {args.stream}\n" + _table(bits, rates))
    for name, curve in rates.items():
        knee = url_caches.knee(bits, curve.tolist())
        region = f"critical region 2^{knee.begin_bits} to 2^{knee.end_bits}" if knee else "no critical region"
        print(f"{name}: {region}")
    return rates


def _per_thread(trace: Trace, bits: range, args: argparse.Namespace) -> Rates:
    """Print the miss rates of one global CLOCK of size k, and of T CLOCKs of size k / T, one per thread."""
    threads = trace.threads
    sizes = [1 << b for b in bits]
    stream = Stream(trace.words(args.stream))
    found = {
        "global": url_caches.misses("CLOCK", stream, sizes).sum(axis=1),
        "per thread": crawl_order.one_cache_a_thread(trace, sizes, threads, stream=args.stream),
    }
    rates = {name: values / max(1, len(stream)) for name, values in found.items()}
    print(
        f"{trace.name}, {args.stream}: misses of CLOCK, % of requests; one cache of k, or {threads} of"
        f" k / {threads}\n{_table(bits, rates)}"
    )
    large = [i for i, size in enumerate(sizes) if size >= threads]
    if large:
        apart = (rates["per thread"] - rates["global"])[large]
        worst, best = int(np.argmax(apart)), int(np.argmin(apart))
        print(
            "Compared with a global cache of the same total size, one cache per thread misses between"
            f" {100 * apart[best]:+.2f} points (at 2^{bits[large[best]]}) and"
            f" {100 * apart[worst]:+.2f} points (at 2^{bits[large[worst]]})."
        )
    return rates


def _locality(trace: Trace, bits: range, args: argparse.Namespace) -> Rates:
    """Print the link-locality model whose miss rates are closest to the miss rates of the trace."""
    report = ProgressLine("cache locality", SystemClock())
    threads = int(trace.info.get("threads", 0))
    fit = link_locality.fit(trace, threads=threads, seed=args.seed + 1, report=report)
    rates = {"trace": fit.measured, "fitted model": fit.fitted}
    print(f"{trace.name}: misses of LRU, % of requests\n" + _table(range(len(fit.measured)), rates))
    print(f"{fit.threads} hosts at a time; {fit.describe()}")
    inside = "explains" if fit.error < 0.02 else "does not explain"
    print(f"The model {inside} this trace (the limit is an RMS difference of 0.02).")
    return rates


_EXPERIMENTS: dict[str, Any] = {
    "policies": _by_policy,
    "order": _by_order,
    "per-thread": _per_thread,
    "locality": _locality,
}


def _table(bits: range, rates: Rates) -> str:
    widths = [max(7, len(name)) for name in rates]
    head = "size  " + "  ".join(name.rjust(width) for name, width in zip(rates, widths, strict=True))
    lines = [
        f"2^{b:<4}"
        + "  ".join(
            f"{100 * curve[i]:{width}.2f}" for curve, width in zip(rates.values(), widths, strict=True)
        )
        for i, b in enumerate(bits)
    ]
    return "\n".join([head, *lines])


def _write_csv(args: argparse.Namespace, trace: Trace, bits: range, rates: Rates) -> None:
    bits = bits if len(next(iter(rates.values()))) == len(bits) else range(len(next(iter(rates.values()))))
    comments = (f"command: {args.command_line}", f"seed: {args.seed}", f"trace: {trace.name}, {args.stream}")
    rows = [[b, *(float(curve[i]) for curve in rates.values())] for i, b in enumerate(bits)]
    pages_file.write_rows(args.csv, ["bits", *rates], rows, *comments)


def _draw(found: list[Trace], args: argparse.Namespace) -> None:
    """Draw figures 2 to 11 and others from the first trace. Figures by number of threads use all traces."""
    stuff = broder.Material({trace.threads: trace for trace in found}, 0, args.seed)
    for name, draw in broder.DRAWINGS.items():
        drawing.write(name, draw(stuff), args.figures, args.command_line, args.seed)
