"""Run the same crawl with 1, 2 and 4 processes; check that all fetch the same pages, and compare the cost per page.

    python scripts/bench/processes.py [--pages 60000] [--processes 1 2 4] [--repeat 2] [--cpu 1]
    BENCH_DATA=... python scripts/bench/processes.py --set mid

The web is either a tree in which every URL has one in-link, served by a separate process, or a set of the
crawl bench (sets/NAME/{seeds,truth}.txt, access.log), whose server must be running. The server's log is the
evidence:

    recall    share of the true pages that were answered 200
    again     answers 200 beyond the first for each page, including pages that two processes both fetched
    extra     pages that are not in the truth: the truth of a set knows only <a href>, not frames

With any number of processes, a crawl must fetch the same pages, each of them once, and end by itself. CPU is
the user and system time of the whole process tree, including start and end. `marginal` excludes start and
end: the CPU of a crawl of the seeds alone is subtracted. Start and end are excluded because the start of a
process costs the same for any number of pages. Crawls with different numbers of processes take turns. The
cheapest of the repeats counts, because other load can only add to the cost.

Hosts are assigned to processes by the hashes of their names, so one process has more to do than the others
and ends last. For each set of pages, `ahead` is the speed-up over a single process while all processes have
work: it is measured until one of them has received its last answer. `largest` is the share of the busiest
process in all answers.

On a shared core, other load disturbs even the cheapest repeat. With `--constant`, the crawls run under perf
(Debian: linux-perf), which samples where they use the CPU. The script then divides the CPU time of each
repeat by the time that SHA-1 and deflate take in it. The work of these two functions is the same for any
number of processes, and other load slows them down as much as the rest of the crawler. The printed error is
the error of the mean over the repeats. The CPU in the table includes the CPU of perf.
"""

import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol
from urllib.parse import unquote

import msgspec
from programs import CRAWLER, ENVIRON, ROOT, bench_set, scratch

from crawler.bench import harness
from crawler.splitter.partition import Partition
from crawler.urls.fingerprint import Fingerprinter
from tests.faults.harness import TreeWeb, settings

HOSTS = 200
LOG_DELAY = 1.5  # number of seconds after which a server has written its log
SAMPLER = ("perf", "record", "--quiet", "--event", "cpu-clock", "--freq", "1499", "--output")
_SAMPLES = re.compile(r"^ *[\d.]+% +(\d+) +(.*)$", re.MULTILINE)  # groups: number of samples, object file
_SET_LINE = re.compile(r'^\S+ (\S+) (\d+) \d+ \d+ \d+ "text/html[^"]*" "([^"]*)" .*"([^"]*)"$')


class Web(Protocol):
    """A web to crawl, with the log of the requests that its server received."""

    truth: set[str]

    @property
    def flags(self) -> tuple[str, ...]:
        """Return the command-line flags that a crawl of this web needs."""

    def answered(self) -> Counter[str]:
        """Return the number of 200 answers for each page since the previous call."""

    def times(self) -> list[tuple[float, str]]:
        """Return a pair (instant, host) for each answer of the servers, in order of time.

        If the times are unknown, the list is empty.
        """


class Tree:
    """The tree of `tests/end_to_end/tree_server.py`."""

    def __init__(self, web: TreeWeb) -> None:
        self.truth = {f"/{n}" for n in range(web.pages)}
        self.flags = (web.seed,)
        self._web = web
        self._before: Counter[str] = Counter()

    def answered(self) -> Counter[str]:
        fetched = self._web.fetched()
        new, self._before = fetched - self._before, fetched
        return new

    def times(self) -> list[tuple[float, str]]:
        return []


class BenchSet:
    """A set of sites of the crawl bench. In the log of its server, only lines with the token of this run count."""

    def __init__(self, data: Path, name: str) -> None:
        folder = data / "sets" / name
        truth = (folder / "truth.txt").read_text().splitlines()
        self.truth = {line + "index.html" if line.endswith("/") else line for line in truth}
        self._token = "crawlbench-" + "".join(chr(ord("a") + int(digit)) for digit in str(os.getpid()))
        self._log = data / "access.log"
        pages = bench_set(name)
        self.flags = ("--seeds", str(pages.seeds), "--include", pages.pattern, "--token", self._token)
        self._at = self._log.stat().st_size
        self._times: list[tuple[float, str]] = []

    def times(self) -> list[tuple[float, str]]:
        return sorted(self._times)

    def answered(self) -> Counter[str]:
        time.sleep(LOG_DELAY)
        found: Counter[str] = Counter()
        self._times = []
        with self._log.open("rb") as file:
            file.seek(self._at if self._at <= self._log.stat().st_size else 0)
            for line in file:
                if self._token.encode() in line and (page := self._page(line.decode("latin-1").rstrip())):
                    found[page] += 1
                    self._times.append((float(line.split(b" ", 1)[0]), page.split(" ", 1)[0]))
            self._at = file.tell()
        return found

    @staticmethod
    def _page(line: str) -> str:
        row = _SET_LINE.match(line)
        if row is None or row[2] != "200":
            return ""
        # Nginx writes some bytes, such as those beyond ASCII, as \xHH.
        path = re.sub(r"\\x([0-9A-F]{2})", r"%\1", row[3].replace("%", "%25"))
        return f"{row[1]} {unquote(path)}"


class Run(NamedTuple):
    """The cost of one crawl, and the requests that the server saw.

    `units` is the CPU time of the crawl divided by the CPU time of its SHA-1 and deflate, or 0 if it is
    unknown. `times` are the instants of all answers, in order. `last` is the index of the last answer of the
    process that ended first.
    """

    cpu: float
    units: float
    wall: float
    answered: Counter[str]
    report: dict
    times: list[float]
    last: int
    largest: float

    def seconds(self, answers: int) -> float:
        """Return the seconds between the first answer and the answer with the index `answers`."""
        return self.times[answers] - self.times[0]

    def ahead(self, alone: "Run") -> tuple[str, str]:
        """Return the columns `ahead` and `largest`. `ahead` is measured while all processes have work."""
        if not self.times or not alone.times:
            return "", ""
        return f"{alone.seconds(self.last) / self.seconds(self.last):.2f}x", f"{self.largest:.0%}"

    def verdict(self, web: Web) -> tuple[object, ...]:
        """Return the columns `recall`, `again` and `extra`."""
        recall = len(web.truth & self.answered.keys()) / len(web.truth)
        again = self.answered.total() - len(self.answered)
        extra = len(self.answered.keys() - web.truth)
        return f"{recall:.4f}", again, extra

    def right(self, web: Web, first: "Run") -> bool:
        """Return whether the run ended, fetched each page of the web once, and fetched the same pages as `first`."""
        report, pages = self.report, self.answered.keys()
        whole = web.truth <= pages == first.answered.keys() and self.answered.total() == len(pages)
        return whole and report["stopped_by"] == "done" and report["conservation"] == "holds"


def crawl(
    web: Web, folder: Path, processes: int, cpu: str, concurrency: str, *more: str, sampled: bool = False
) -> Run:
    """Crawl `web` once and delete the directory."""
    directory = Path(tempfile.mkdtemp(dir=folder))
    flags = settings("--processes", str(processes), "--concurrency", concurrency, *web.flags, *more)
    pin = ["taskset", "-c", cpu] if cpu else []
    samples = directory / "samples"
    sampler = [*SAMPLER, str(samples)] if sampled else []
    program = [*CRAWLER, "crawl", "--dir", str(directory / "crawl"), *flags]
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run([*sampler, *pin, *program], cwd=ROOT, env=ENVIRON, check=True, timeout=600)
    wall, after = time.monotonic() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    report = msgspec.json.decode((directory / "crawl" / "report.json").read_bytes())
    units = units_of(samples) if sampled else 0.0
    seed = bytes.fromhex((directory / "crawl" / "seed").read_text())
    shutil.rmtree(directory)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    answered = web.answered()
    return Run(used, units, wall, answered, report, *shares(web.times(), seed, processes))


def shares(times: list[tuple[float, str]], seed: bytes, processes: int) -> tuple[list[float], int, float]:
    """Return the fields `times` and `last` of `Run`, and the share of the process with the most answers."""
    fingerprinter = Fingerprinter(seed)
    table = Partition.equal_ranges([f"p{n}" for n in range(processes)]).owner_of_bucket
    owners = [int(table[fingerprinter.bucket(host)]) for _, host in times]
    last = {owner: place for place, owner in enumerate(owners)}
    most = max(Counter(owners).values(), default=0)
    return [instant for instant, _ in times], min(last.values(), default=0), most / max(1, len(times))


def units_of(samples: Path) -> float:
    """Return the number of all samples, divided by the number of those in which SHA-1 or deflate was running."""
    command = ["perf", "report", "--input", str(samples), "--sort", "dso", "--stdio", "--show-nr-samples"]
    found = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    counts = [(int(count), name) for count, name in _SAMPLES.findall(found)]
    constant = sum(count for count, name in counts if "libcrypto" in name or "isal" in name)
    return sum(count for count, _ in counts) / constant


@contextmanager
def tree(folder: Path, pages: int) -> Iterator[Web]:
    with TreeWeb(folder, pages, hosts=HOSTS) as web:
        yield Tree(web)


@contextmanager
def served_set(name: str) -> Iterator[Web]:
    yield BenchSet(Path(os.environ["BENCH_DATA"]), name)


def row(
    processes: int, run: Run, start: float, one: tuple[float, float], web: Web, alone: Run
) -> tuple[object, ...]:
    """Return a row of the table.

    `alone` is the run of a single process, and `one` holds the total and marginal cost per page of that run.
    """
    pages = run.answered.total()
    each, marginal = run.cpu / pages * 1e6, (run.cpu - start) / pages * 1e6
    splitter = run.report.get("splitter") or {}
    share = f"{splitter['local_share']:.1%}" if splitter else "100 %"
    ratios = f"{each / one[0]:.2f}x", f"{marginal / one[1]:.2f}x"
    costs = run.wall, each, ratios[0], marginal, ratios[1], start, share, splitter.get("batches", 0)
    return str(processes), pages, *run.verdict(web), *costs, *run.ahead(alone)


def in_units(runs: dict[int, list[Run]]) -> str:
    """Return a table of CPU times, each divided by that of a constant piece of work measured in the same run."""
    first = statistics.mean(run.units for run in next(iter(runs.values())))
    lines = []
    for processes, some in runs.items():
        units = [run.units / first for run in some]
        error = statistics.stdev(units) / len(units) ** 0.5 if len(units) > 1 else float("nan")
        lines.append(f"{processes:9} {statistics.mean(units):7.3f}x +- {error:.3f}")
    return "CPU divided by that of constant work\n" + "\n".join(lines)


COLUMNS = (
    *("processes", "  pages", "recall", "again", "extra", "    s", "us/page", "ratio", "marginal", "ratio"),
    *("start s", "local", "batches", "ahead", "largest"),
)


def main() -> None:
    parser = harness.parser(__doc__)
    parser.option("--pages", 60_000, "pages in the tree (60000)")
    parser.option("--set", str, "a set of the crawl bench in $BENCH_DATA instead of the tree")
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.option("--concurrency", "64", "fetches in flight per process")
    parser.option("--repeat", 1)
    parser.option("--constant", False, "also compare in units of constant work (needs perf)")
    parser.option("--cpu", "", "core that the processes share (taskset)")
    parser.option("--folder", Path, "folder for the crawls (the temporary directory)", metavar="DIR")
    args = parser.parse_args()
    runs: dict[int, list[Run]] = {n: [] for n in args.processes}
    starts: dict[int, list[Run]] = {n: [] for n in args.processes}
    with (
        scratch("processes", args.folder) as folder,
        served_set(args.set) if args.set else tree(folder, args.pages) as web,
    ):
        for n in args.processes * args.repeat:
            starts[n].append(crawl(web, folder, n, args.cpu, args.concurrency, "--max-pages", "1"))
            runs[n].append(crawl(web, folder, n, args.cpu, args.concurrency, sampled=args.constant))
            print(f"# {n}: {runs[n][-1].cpu:.2f} CPU s, start {starts[n][-1].cpu:.2f}", file=sys.stderr)
    table = harness.Table(*COLUMNS)
    one, alone = None, min(runs[args.processes[0]], key=lambda run: run.wall)
    for n in args.processes:
        best, start = min(runs[n], key=lambda run: run.cpu), min(run.cpu for run in starts[n])
        pages = best.answered.total()
        one = one or (best.cpu / pages * 1e6, (best.cpu - start) / pages * 1e6)
        table.row(*row(n, best, start, one, web, alone))
    if args.constant:
        print(in_units(runs))
    every = [run for each in runs.values() for run in each]
    raise SystemExit(0 if all(run.right(web, every[0]) for run in every) else "failed: the crawls differ")


if __name__ == "__main__":
    main()
