"""Compare orders of new URLs by how early a crawl finds the pages of high quality, on link graphs with known quality.

    crawler lab order                          on the synthetic web
    crawler lab order --documents FOLDER       on documentation: each folder in it is a host
    crawler lab order --quality topic,rank --orders oracle,words --seeds 10
    crawler lab order --documents FOLDER --out order.csv

The crawler's own frontier crawls each graph politely to its end on a virtual clock, once per order. A row
holds the share of the quality that was found after 5, 20 and 50 % of the crawl, and the standard errors of
this share over the seeds. crawler/lab/order/README.md describes the planted quality.
"""

import argparse
import random
import tempfile
from pathlib import Path

import numpy as np

from crawler.cli.parsing import OptionParser, result_file, some_of
from crawler.clock import SystemClock
from crawler.lab.order.link_graph import LinkGraph, of_folder, synthetic
from crawler.lab.order.planted_quality import PLANTINGS, WORD, plant
from crawler.lab.order.walk import found_after, walk
from crawler.lab.progress_line import ProgressLine
from crawler.lab.refresh import pages_file
from crawler.typed_number import within

ORDERS = ("oracle", "pagerank", "words", "opic", "depth", "breadth-first")
SHARES = (0.05, 0.2, 0.5)
WEIGHTS = f"bias -3\nanchor:{WORD} 4\nparent:score 0.3\n"
COLUMNS = ("quality", "order", *(name for share in SHARES for name in (f"{share:.0%}", f"+- {share:.0%}")))


def add_arguments(parser: OptionParser) -> None:
    add = parser.option
    add("--documents", Path, "use the HTML files in FOLDER; each folder in it is a host", metavar="FOLDER")
    add("--pages", 4000, "pages of the synthetic web (4000), or maximum number of documents per host (500)")
    add("--hosts", 60, "hosts of the synthetic web")
    add("--rate", 0.25, "pages per second and host (0.25; 0 = no limit)")
    add("--orders", ",".join(ORDERS), f"orders to compare: {', '.join(ORDERS)} (all)", metavar="A,B")
    add("--quality", ",".join(PLANTINGS), f"kinds of quality: {', '.join(PLANTINGS)} (all)", metavar="A,B")
    add("--seed", 1, "seed of the quality and of the synthetic web")
    add("--seeds", 5, "number of runs, with seeds from --seed on")
    add("--out", Path, "write the table to FILE as CSV", type=result_file)


def run(args: argparse.Namespace) -> int:
    orders = some_of("--orders", args.orders, ORDERS)
    kinds = some_of("--quality", args.quality, PLANTINGS)
    within("--seeds", args.seeds, 1)
    within("--hosts", args.hosts, 1)
    within("--pages", args.pages, args.hosts)
    within("--rate", args.rate, 0)
    seeds = range(args.seed, args.seed + args.seeds)
    if args.documents:
        shared = of_folder(args.documents, min(args.pages, 500), random.Random(args.seed))
        graphs = dict.fromkeys(seeds, shared)
    else:
        graphs = {seed: synthetic(args.pages, args.hosts, seed) for seed in seeds}
    print(_about(graphs[args.seed]))
    rows, found = [], []
    report, runs = ProgressLine("order", SystemClock()), len(kinds) * len(orders) * len(seeds)
    print(_line(COLUMNS), flush=True)
    with tempfile.NamedTemporaryFile("w", suffix=".weights") as weights:
        weights.write(WEIGHTS)
        weights.flush()
        for kind in kinds:
            for order in orders:
                for seed in seeds:
                    found.append(_found(graphs[seed], kind, order, seed, args.rate, weights.name))
                    report(len(found) / runs)
                last = found[-len(seeds) :]
                mean = np.mean(last, axis=0)
                error = np.std(last, axis=0, ddof=1) / len(seeds) ** 0.5 if len(seeds) > 1 else 0 * mean
                row = [kind, order, *(float(x) for pair in zip(mean, error, strict=True) for x in pair)]
                rows.append(row)
                print(_line(row), flush=True)
    if args.out:
        pages_file.write_rows(args.out, COLUMNS, rows, f"command: {args.command_line}")
    return 0


def _found(graph: LinkGraph, kind: str, order: str, seed: int, rate: float, weights: str) -> list[float]:
    planted = plant(kind, graph, seed)
    hosts = len({url.split("/", 3)[2] for url in graph.urls})
    pages = walk(graph, planted, order, rate=rate * hosts, seed=seed, weights=weights)
    return found_after(pages, planted.quality, SHARES)


def _about(graph: LinkGraph) -> str:
    hosts = len({url.split("/", 3)[2] for url in graph.urls})
    links = sum(map(len, graph.links))
    return (
        f"{len(graph.urls):,} pages, {len(graph.depths()):,} of them reached, {hosts} hosts, {links:,} links"
    )


def _line(row: object) -> str:
    quality, order, *numbers = list(row)  # type: ignore[call-overload]
    shown = (f"{each:8.3f}" if isinstance(each, float) else f"{each:>8}" for each in numbers)
    return f"{quality:<9}{order:<14}" + "".join(shown)
