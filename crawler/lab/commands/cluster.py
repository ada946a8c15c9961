"""Run many processes of a crawl in a virtual world, and judge them by the web's log.

    crawler lab cluster --processes 4 --seed 7
    crawler lab cluster --processes 4 --seed 7 --faults kill,partition --days 1
    crawler lab cluster --seed 1 --seeds 50 --faults kill,power --out runs.csv
    crawler lab cluster --table --seeds 20 --pages 150 --hosts 12 --count 8 --out faults.csv
    crawler lab cluster --processes 8 --pages 5000 --hosts 200 --faults none
    crawler lab cluster --links-of mycrawl --histories histories --days 7
    crawler lab cluster --curve 1,4,16 --pages 200 --hosts 20 --out curve.csv

The processes run the crawler's own code; time, network, disks and the web are virtual
(crawler/lab/cluster/README.md). The same seed reproduces a run; the digest in the last column covers all
requests. --table prints one row for each kind of fault. Two rows follow in which all kinds occur together:
the first without the faults that copy or lose a disk (clone, restore, lost-disk), the second with them. The
last rows are for each act of the operator, and for acts and faults together. Without --days, a run ends when
nothing is left to crawl; with --days, known pages are refetched until that time. The exit code is 1 if a rule
was broken.
"""

import argparse
from pathlib import Path

import msgspec

from crawler.cli.parsing import OptionParser, numbers, result_file
from crawler.clock import SystemClock
from crawler.errors import UsageError
from crawler.lab.cluster import curves, fault_plan
from crawler.lab.cluster.cluster import Cluster, memory_folder
from crawler.lab.cluster.cluster_settings import ClusterSettings, Observed
from crawler.lab.cluster.judge import RunVerdict, judge
from crawler.lab.cluster.synthetic_web import WebSpec
from crawler.lab.commands import synthetic
from crawler.lab.figures import drawing
from crawler.lab.progress_line import ProgressLine
from crawler.lab.refresh import pages_file
from crawler.typed_number import within

DAY = 86_400.0
COLUMNS = ("seed", "pages", "requests", "hours", "faults", "ends", "again", "fresh", "verdict", "digest")
WIDTHS = (6, 8, 9, 8, 7, 6, 6, 7, 24, 12)
TABLE_COLUMNS = ("faults", "runs", "done", "ends", "requests", "again", "flawless")
TABLE_WIDTHS = (16, 6, 7, 7, 10, 7, 10)
PROCESSES_MAX, PAGES_MAX, SEEDS_MAX = 256, 1_000_000, 10_000
RATE_LEAST = 0.05  # pages a second
VISITS = 4.0  # fetches per change, if --rate is not given
# number of beats in a run with --days; with one beat per second, beats would be most of the work
BEATS = 10_000
BEAT = (60.0, 300.0)  # minimum and maximum of the seconds between two beats in a run with --days


def add_arguments(parser: OptionParser) -> None:
    add = parser.option
    add("--processes", 3, "number of processes, each on a machine of its own")
    add("--seed", 1, "seed of the web, the faults and all random choices")
    add("--seeds", 1, "number of runs, with seeds from --seed on")
    add(
        "--faults",
        "all",
        f"kinds of faults: {', '.join(fault_plan.KINDS)}; acts of the operator: {', '.join(fault_plan.ACTS)}; "
        "or none (all faults except clone, restore and lost-disk)",
        metavar="A,B",
    )
    add("--points", "", "names of the points in the code at which processes are killed (any)", metavar="A,B")
    add("--table", False, "make --seeds runs of each kind of fault, and of all together")
    add("--count", 6, "faults per run")
    add("--pages", 400, "pages in the web")
    add("--hosts", 20, "hosts in the web")
    add("--rate", 0.0, "pages per second over all processes (no limit; with --days, 4 per change)")
    add("--days", 0.0, "run for this many virtual days; pages change and are fetched again")
    add("--render", False, "a third of the pages show their links only in a (virtual) browser")
    add("--changes", 1.0, "with --days: changes per page and day")
    synthetic.add_web(parser)
    add(
        "--curve",
        str,
        "compare these numbers of processes; --pages and --hosts are per process",
        metavar="N,M",
    )
    add("--out", Path, "write the table to FILE as CSV", type=result_file)


def run(args: argparse.Namespace) -> int:
    sizes = _sizes(args)
    settings = _settings(args)
    if sizes:
        return _curve(args, sizes)
    if args.table:
        return _table(args, settings)
    rows, broken = [], False
    print(_line(COLUMNS))
    for seed in range(args.seed, args.seed + args.seeds):
        row, verdict = _one(msgspec.structs.replace(settings, seed=seed))
        rows.append(row)
        broken = broken or not verdict.flawless
        print(_line(row), flush=True)
        _print_violations(verdict)
    if args.out:
        pages_file.write_rows(args.out, COLUMNS, rows, f"command: {args.command_line}")
    return int(broken)


def _table(args: argparse.Namespace, settings: ClusterSettings) -> int:
    """Make `--seeds` runs for each kind of fault and for all kinds together. Print a row for each set of runs."""
    kinds: dict[str, tuple[str, ...]] = {kind: (kind,) for kind in fault_plan.KINDS}
    kinds |= {"all but copies": fault_plan.USUAL, "all": tuple(fault_plan.KINDS)}
    kinds |= {kind: (kind,) for kind in fault_plan.ACTS}
    kinds["acts and faults"] = (*fault_plan.ACTS, *fault_plan.USUAL)
    rows, broken = [], False
    print(_line(TABLE_COLUMNS, TABLE_WIDTHS))
    for name, faults in kinds.items():
        found = [
            _observe(msgspec.structs.replace(settings, faults=faults, count=args.count, seed=seed))
            for seed in range(args.seed, args.seed + args.seeds)
        ]
        flawed = {seed: verdict for seed, (_, verdict) in enumerate(found, args.seed) if not verdict.flawless}
        row = (
            name,
            len(found),
            sum(len(observed.done) for observed, _ in found),
            sum(len(observed.lives) for observed, _ in found),
            sum(verdict.requests for _, verdict in found),
            sum(verdict.refetched for _, verdict in found),
            f"{len(found) - len(flawed)} of {len(found)}",
        )
        rows.append(row)
        broken = broken or bool(flawed)
        print(_line(row, TABLE_WIDTHS), flush=True)
        for seed, verdict in flawed.items():
            _print_violations(verdict, f"seed {seed}: ")
    if args.out:
        pages_file.write_rows(args.out, TABLE_COLUMNS, rows, f"command: {args.command_line}")
    return int(broken)


def _print_violations(verdict: RunVerdict, where: str = "") -> None:
    for rule, example in verdict.examples.items():
        print(f"        {where}{rule} x {verdict.found[rule]}, for example {example}", flush=True)


def _sizes(args: argparse.Namespace) -> list[int]:
    """Return the numbers of processes that `--curve` compares; [] without `--curve`."""
    if not args.curve:
        return []
    sizes = sorted(numbers("--curve", args.curve, int, 1, PROCESSES_MAX))
    if sizes[-1] * args.pages > PAGES_MAX:
        raise UsageError(f"--curve: more than {PAGES_MAX:,} pages in total; lower --pages")
    return sizes


def _curve(args: argparse.Namespace, sizes: list[int]) -> int:
    """Make runs of several sizes, with and without a slow process. Write a table, a CSV file and a picture."""
    names, rows = list(curves.CurveRow.__struct_fields__), []
    print(" ".join(names))
    for row in curves.rows(sizes, seed=args.seed, pages=args.pages, hosts=args.hosts):
        rows.append(row)
        print(" ".join(_short(getattr(row, name)) for name in names), flush=True)
    if args.out:
        caption = f"{args.pages} pages and {args.hosts} hosts per process"
        pages_file.write_records(args.out, curves.CurveRow, rows, f"command: {args.command_line}", caption)
        figure = curves.picture(rows, drawing.sheet)
        drawing.save(figure, args.out.with_suffix(".png"), args.command_line, caption, args.seed)
    return int(not all(row.flawless for row in rows))


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _settings(args: argparse.Namespace) -> ClusterSettings:
    within("--processes", args.processes, 1, PROCESSES_MAX)
    within("--seeds", args.seeds, 1, SEEDS_MAX)
    within("--hosts", args.hosts, 1)
    within("--pages", args.pages, args.hosts, PAGES_MAX)
    within("--rate", args.rate, 0)
    within("--days", args.days, 0, 3650)
    within("--changes", args.changes, 0)
    within("--count", args.count, 0, 1000)
    kinds = {"all": fault_plan.USUAL, "none": ()}.get(args.faults)
    kinds = tuple(part for part in args.faults.split(",") if part) if kinds is None else kinds
    points = tuple(part for part in args.points.split(",") if part)
    synthetic.check(args)
    if args.histories and not args.days:
        raise UsageError("--histories needs --days: pages change only while they are refetched")
    fault_plan.draw(1, kinds, 0, machines=args.processes, within=1.0, points=points)
    web = WebSpec(hosts=args.hosts, pages=args.pages, sitemaps=args.sitemaps, scripted=args.render)
    if links := synthetic.links_of(args):
        web = msgspec.structs.replace(web, links=links)
    settings = ClusterSettings(
        processes=args.processes,
        web=web,
        faults=kinds,
        points=points,
        count=args.count if kinds else 0,
        rate=args.rate,
    )
    if not args.days:
        return settings
    length = args.days * DAY
    changes_of = synthetic.changes_of(args, length)
    changes = args.changes if changes_of is None else changes_of.changes / changes_of.pages / args.days
    beat = min(max(BEAT[0], length / BEATS), BEAT[1])
    rate = args.rate or max(RATE_LEAST, VISITS * args.pages * changes / DAY)
    return msgspec.structs.replace(
        settings,
        web=msgspec.structs.replace(web, change_rate=args.changes / DAY),
        changes_of=changes_of,
        length=length,
        rate=rate,
        within=0.8 * length,
        refresh=True,
        tree={
            "splitter": {"heartbeat": beat, "silence_max": 5 * beat},
            "refresh": {"max_age": max(3600.0, length / 16)},
        },
    )


def _observe(settings: ClusterSettings) -> tuple[Observed, RunVerdict]:
    with memory_folder() as folder:
        cluster = Cluster(settings, Path(folder))
        observed = cluster.run(ProgressLine(f"seed {settings.seed}", SystemClock()))
        return observed, judge(cluster)


def _one(settings: ClusterSettings) -> tuple[tuple[object, ...], RunVerdict]:
    observed, verdict = _observe(settings)
    return (
        settings.seed,
        verdict.pages,
        verdict.requests,
        f"{observed.elapsed / 3600.0:.2f}",
        len(observed.done),
        len(observed.lives),
        verdict.refetched,
        f"{verdict.freshness:.3f}",
        "flawless" if verdict.flawless else "; ".join(verdict.found),
        verdict.digest[:12],
    ), verdict


def _line(row: tuple[object, ...], widths: tuple[int, ...] = WIDTHS) -> str:
    return "".join(f"{value!s:<{width}}" for value, width in zip(row, widths, strict=True)).rstrip()
