"""Measure the CPU time per page of a whole crawl, and compare it with that of the bare loop.

In each round, a set of pages is crawled once by the bare loop, and once by each version of the crawler.

    BENCH_DATA=... python scripts/bench/beside_loop.py [--set small] [--rounds 5] [--tree ../before ...] [--cpu 1]
        [--other COMMAND]

A set of the crawl bench (sets/NAME/seeds.txt) is crawled by `bare_loop.py`, by this checkout and by each
other checkout given by `--tree`. The server of the set must be running, and the kernels of the checkouts must
be built. With `--tree`, a change can be compared with the code before the change. `--other` is the command of
another crawler; the script adds the file of seeds and the pattern as the last arguments. The other crawler
prints the number of pages that it fetched. CPU is the user and system time of the whole process tree,
including start and end. Ratios are computed within a round, so that other load affects both sides equally.
The table shows the median, the smallest and the largest ratio over the rounds. A ratio is the cost of the
bare loop divided by the cost of the contender: at 1.0 they cost the same, and at 2.0 the contender costs half
as much. If a contender does not fetch the same number of pages in every round, the run fails.
"""

import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import msgspec
from programs import CRAWLER, ROOT, Set, bench_set

from crawler.bench import harness

LOOP = "bare loop"
OTHER = "other"


class Cost(NamedTuple):
    """The CPU seconds and the number of fetched pages of one crawl, and the resident MiB of its largest process."""

    cpu: float
    pages: int
    memory: float

    @property
    def each(self) -> float:
        """Return the CPU time per page in microseconds."""
        return self.cpu / self.pages * 1e6


def loop_command(pages: Set) -> list[str]:
    return [sys.executable, str(ROOT / "scripts" / "bench" / "bare_loop.py"), str(pages.seeds), pages.pattern]


def crawl_command(pages: Set, directory: Path) -> list[str]:
    limits = ("--depth", "100000", "--pages-per-host", "10000000", "--pages-per-domain", "10000000")
    quick = ("--concurrency", "64", "--delay", "0", "--delay-factor", "0", "--robots", "ignore")
    where = (
        "--dir",
        str(directory),
        "--seeds",
        str(pages.seeds),
        "--scope",
        "any",
        "--include",
        pages.pattern,
    )
    quiet = ("--allow-network", "127.0.0.0/8", "--progress", "none", "-q")
    return [*CRAWLER, "crawl", *where, *limits, *quick, *quiet]


def measure(command: list[str], root: Path, cpu: str, output: Path) -> tuple[float, float]:
    """Run a command in the checkout `root`. Return its CPU seconds and the MiB of its largest process."""
    pin = ["taskset", "-c", cpu] if cpu else []
    with output.open("wb") as file:
        environ = {**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": ""}
        process = subprocess.Popen([*pin, *command], cwd=root, env=environ, stdout=file)
        _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"failed: exit code {process.returncode} of {' '.join(command)}")
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 1024


def run(name: str, root: Path, pages: Set, cpu: str, folder: Path, other: str) -> Cost:
    """Crawl the set once with the bare loop, the `other` crawler or a checkout, and delete the stored files."""
    directory = Path(tempfile.mkdtemp(dir=folder))
    output = directory / "output"
    if name in (LOOP, OTHER):
        command = (
            loop_command(pages) if name == LOOP else [*shlex.split(other), str(pages.seeds), pages.pattern]
        )
        used, memory = measure(command, root, cpu, output)
        count = int(output.read_text())
    else:
        used, memory = measure(crawl_command(pages, directory / "crawl"), root, cpu, output)
        report = msgspec.json.decode((directory / "crawl" / "report.json").read_bytes())
        count = report["pages"]["fetched"]
    shutil.rmtree(directory)
    return Cost(used, count, memory)


def show(runs: dict[str, list[Cost]]) -> None:
    """Print the cost of each contender, and how many times as much the bare loop and this checkout cost."""
    names = list(runs)
    table = harness.Table(
        f"{'':22}", "  pages", "us a page", "MiB", "   to the bare loop", f"{'to ' + names[1]:>19}"
    )
    for name, costs in runs.items():
        each, memory = statistics.median(cost.each for cost in costs), max(cost.memory for cost in costs)
        table.row(name, costs[0].pages, each, memory, *(_ratios(runs[other], costs) for other in names[:2]))


def _ratios(others: list[Cost], costs: list[Cost]) -> str:
    return harness.spread([other.each / cost.each for other, cost in zip(others, costs, strict=True)])


def main() -> None:
    parser = harness.parser(__doc__)
    parser.option("--set", "small", "a set of the crawl bench in $BENCH_DATA")
    parser.option("--rounds", 5)
    parser.add_argument("--tree", type=Path, nargs="*", default=[], help="other checkouts to compare")
    parser.option("--cpu", "", "core that all share (taskset)")
    parser.option("--other", "", "command of another crawler, to which SEEDS PATTERN is added")
    args = parser.parse_args()
    pages = bench_set(args.set)
    roots = {LOOP: ROOT, "this": ROOT, **{str(tree): tree.resolve() for tree in args.tree}}
    if args.other:
        roots[OTHER] = ROOT
    runs: dict[str, list[Cost]] = {name: [] for name in roots}
    with tempfile.TemporaryDirectory(prefix="beside-loop-") as folder:
        for number in range(args.rounds):
            for name, root in roots.items():
                cost = run(name, root, pages, args.cpu, Path(folder), args.other)
                runs[name].append(cost)
                print(f"# {number} {name}: {cost.cpu:.2f} CPU s, {cost.each:,.0f} us a page", file=sys.stderr)
    show(runs)
    if any(cost.pages != costs[0].pages for costs in runs.values() for cost in costs):
        raise SystemExit("failed: the rounds fetched different numbers of pages")


if __name__ == "__main__":
    main()
