"""Crawl healthy hosts beside hostile ones; measure pages per minute, memory, stalls, and the time to stop.

    python scripts/bench/fair_share.py [--kind KIND ...] [--hosts 600] [--seconds 30] [--load N] [--stacks]

600 healthy hosts are crawled together with 600 hosts of one hostile kind.
`tests/end_to_end/hostile_server.py` describes the kinds. Before and after each such run, the healthy hosts
are crawled alone. Each host has its own address in 127/8. The script prints one row per run:

    pages/min    requests to the healthy hosts, counted by their server, and the ratio to the mean of the neighbouring
                 runs "alone"; `late` is the same for the second half of the run, when each host has been met
    asked        requests per minute to the hosts of KIND
    took         the time in ms within which nine in ten answers of healthy hosts arrived in the second half, as the crawl
                 measured it; the hosts answer after 20 ms, and the delay is ten times the answer time
    busy, kept   share of the time in which the loop's thread ran, and in which it was ready but other threads of
                 the machine ran; children: CPU seconds per second that the crawl's helper processes used
    peak MiB     the crawl and its children: proportional memory, sampled; resident peak of the main process
    turn ms      the longest turn of the loop: CPU time of its thread, and wall time
    gap s        the longest time without a request to any healthy host, after the first `SETTLED` seconds
    exit s       seconds from SIGTERM to the end

With `--load N`, N busy processes run at the same time. Even without `--load` and without hostile hosts, the
longest gap between two fetches is nearly --delay: all hosts are first visited at the same time, so they all
pause at the same time.

Each row of a run with hostile hosts is judged, even with `--load 10`: the peak must be at most 600 MiB, and
the gap must be at most 3 s. The exit must take at most 5 s, and the exit code must be 0. A row that breaks a
limit names this limit, and the exit code of the script is then 1. Two targets depend on the speed of the
machine, and are not judged: a ratio of at least 0.8, and turns of at most 100 ms of CPU. To measure turns,
the loop calls a function every 5 ms. The time between two calls counts as one turn, which contains all
iterations of the loop within 5 ms, or a single longer iteration. On a busy machine, the wall time of a turn
is meaningless. `--stacks` prints the stack of the loop's thread during turns of more than 40 ms.
"""

import argparse
import asyncio
import atexit
import collections
import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from programs import ROOT, running

from crawler.bench import harness
from crawler.bench.meters import children, cpu, memory, memory_below
from crawler.cli.loopback import free_port
from tests.end_to_end.hostile_server import address

KINDS = (
    "tar-pit",
    "hang",
    "robots-redirect",
    "link-farm",
    "big-map",
    "packed-map",
    "dead-ports",
    "chunks",
    "robots-rules",
    "soft-404",
    "bad-tls",
)
BEAT = 0.005  # s
SHOWN = 0.04  # --stacks prints the stack of a turn that takes at least this many CPU seconds
START_MAX, EXIT_MAX = 60.0, 60.0
# the largest allowed value of each column: peak in MiB, gap and exit in s
LIMITS = {"peak": 600.0, "gap": 3.0, "exit": 5.0}
COLUMNS = (
    *(" " * 16, "pages/min", "ratio", " late", "  asked", " took", "busy", "kept", "child"),
    *("peak MiB", "  main", "turn ms", " wall", "gap s", "exit s", "code", "details"),
)
# the fields of a measurement that fill the columns from `asked` to `exit s`
FIGURES = ("asked", "took", "busy", "kept", "children", "peak", "main", "cpu", "wall", "gap", "exit")
SETTLED = 3.0  # seconds from the start of the crawl; the gap is measured from then on


# -- inside the crawl's process ---------------------------------------------------------------------


class Turns:
    """Measures the turns of the loop in which it is started.

    At short intervals, the loop calls `_beat`, which notes the time since the last call. With `stacks`,
    another thread looks at the stack of the loop's thread.
    """

    def __init__(self, *, stacks: bool) -> None:
        self.cpu = self.wall = 0.0
        self.long = 0
        self.seen: collections.Counter[str] = collections.Counter()
        self._stacks = stacks
        self._thread = threading.get_ident()
        self._clock = time.pthread_getcpuclockid(self._thread)
        self._marks = (time.thread_time(), time.monotonic())
        self._loop = asyncio.get_running_loop()
        self._began = time.monotonic()
        self._beat()
        if stacks:
            threading.Thread(target=self._look, daemon=True).start()

    def _beat(self) -> None:
        cpu, wall = time.thread_time(), time.monotonic()
        took = cpu - self._marks[0]
        if took > self.cpu:
            self.cpu, self.at = took, wall - self._began
        self.long += took > SHOWN
        self.wall = max(self.wall, wall - self._marks[1] - BEAT)
        self._marks = cpu, wall
        self._loop.call_later(BEAT, self._beat)

    def _look(self) -> None:
        while True:
            time.sleep(BEAT)
            marks = self._marks
            if time.clock_gettime(self._clock) - marks[0] > SHOWN and self._marks == marks:
                frames = traceback.extract_stack(sys._current_frames()[self._thread])
                self.seen[
                    " < ".join(f"{Path(f.filename).stem}.{f.name}:{f.lineno}" for f in frames[:-9:-1])
                ] += 1


def crawl_measured(out: Path, arguments: list[str], *, stacks: bool) -> int:
    """Run the crawler as a program, measure the turns of its loop, and write the results to `out` when it ends."""
    from crawler.__main__ import main as program
    from crawler.process.lifecycle.shutdown import Watchdog

    turns: list[Turns] = []
    start = Watchdog.start

    def measured(self: Any) -> None:
        start(self)
        turns.append(Turns(stacks=stacks))
        out.with_suffix(".begun").touch()

    Watchdog.start = measured  # type: ignore[method-assign]

    def write() -> None:
        peak = memory().peak / (1 << 20)
        found = (
            {
                "cpu": turns[0].cpu,
                "at": turns[0].at,
                "long": turns[0].long,
                "wall": turns[0].wall,
                "peak": peak,
            }
            if turns
            else {}
        )
        out.write_text(json.dumps(found | {"seen": turns[0].seen.most_common(12) if turns else []}))

    # `write` may be the last step of the program, because no garbage collection happens at its end
    atexit.register(write)
    sys.argv = ["crawler", *arguments]
    return program()


# -- outside ----------------------------------------------------------------------------------------


@contextmanager
def server(kind: str, hosts: int, port: int, counts: Path | str = "") -> Iterator[None]:
    command = [sys.executable, "-m", "tests.end_to_end.hostile_server", "--kind", kind]
    options = ["--hosts", str(hosts), "--port", str(port), "--counts", str(counts)]
    with running([*command, *options], cwd=ROOT, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n", kind
        yield


def loop_time(pid: int) -> tuple[float, float, float]:
    """Return three times of a process, in seconds.

    The first is the CPU time of the process's first thread, which runs the event loop. The second is the time
    in which this thread was ready but had to wait for a CPU. The third is the CPU time of the children.
    """
    try:
        ran, kept, _ = map(int, Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split())
        return ran / 1e9, kept / 1e9, sum(map(cpu, children(pid)))
    except (OSError, ValueError):
        return 0.0, 0.0, 0.0


def pages_between(counts: Path, begin: float, end: float) -> float:
    """Return the number of requests per minute that a server counted from `begin` to `end`."""
    within = [(at, pages) for at, pages, _ in rows_of(counts) if begin <= at <= end]
    if len(within) < 2:
        return 0.0
    first, last = within[0], within[-1]
    return 60.0 * (last[1] - first[1]) / (last[0] - first[0])


def rows_of(counts: Path) -> list[list[float]]:
    """Return the rows that a server has written: [monotonic seconds, pages so far, longest gap since the row before]."""
    return [[float(word) for word in line.split()] for line in counts.read_text().splitlines()]


def gap_between(counts: Path, begin: float, end: float) -> tuple[float, float]:
    """Return the longest time without a request and the instant of its end, in seconds, between `begin` and `end`.

    The time before the first request does not count; on a busy machine, the start takes several seconds.
    """
    rows = rows_of(counts)
    later = [row for before, row in pairwise(rows) if before[1] and begin <= row[0] <= end]
    return max(((gap, at) for at, _, gap in later), default=(end - begin, end))


def await_start(process: subprocess.Popen[bytes], begun: Path) -> None:
    """Wait until the loop of the crawl runs. On a busy machine, the imports alone take ten seconds."""
    until = time.monotonic() + START_MAX
    while not begun.exists() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.05)


def run(kind: str, options: argparse.Namespace) -> dict[str, Any]:
    """Crawl the healthy hosts beside hosts of one kind, or alone; return the measurements."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder, port = Path(name), free_port(address(80, 0))
        counts = folder / "counts"
        stack.enter_context(server("healthy", options.hosts, port, counts))
        hosts = [address(80, n) for n in range(options.hosts)]
        if kind != "alone":
            stack.enter_context(server(kind, options.hosts, port, folder / "asked"))
            hosts += [address(90, n) for n in range(options.hosts)]
        for _ in range(options.load):
            stack.enter_context(running([sys.executable, "-c", "while True: pass"]))
        random.Random(1).shuffle(hosts)
        seeds = folder / "seeds"
        seeds.write_text("".join(f"http://{host}:{port}/\n" for host in hosts))
        crawl = [
            *(
                "crawl",
                "--seeds",
                str(seeds),
                "--dir",
                str(folder / "crawl"),
                "--contact",
                "you@example.test",
            ),
            *("--progress", "none", "--scope", "any", "--delay", str(options.delay), "--admin", "off"),
            *("--allow-network", "127.0.0.0/8", *options.crawl),
        ]
        inside = [sys.executable, str(Path(__file__).resolve()), "--inside", str(folder / "turns")]
        if options.stacks:
            inside.append("--stacks")
        log = (folder / "log").open("w")
        process = subprocess.Popen([*inside, "--", *crawl], stdout=log, stderr=log, cwd=folder)
        await_start(process, folder / "turns.begun")
        began, peak = time.monotonic(), 0.0
        before = after = loop_time(process.pid)
        while time.monotonic() < began + options.seconds and process.poll() is None:
            time.sleep(0.5)
            peak = max(peak, memory_below(process.pid) / (1 << 20))
            now = loop_time(process.pid)
            after = now if now[0] else after
        ended = time.monotonic()
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(EXIT_MAX)
        except subprocess.TimeoutExpired:
            process.kill()
        exit_took = time.monotonic() - ended
        busy, kept, children = ((b - a) / (ended - began) for a, b in zip(before, after, strict=True))
        gap, gap_end = gap_between(counts, began + SETTLED, ended)
        turns = json.loads((folder / "turns").read_text()) if (folder / "turns").exists() else {}
        half = began + options.seconds / 2
        shown = (folder / "log").read_text().splitlines()[-3:]
        lines = (
            [json.loads(line) for line in (folder / "crawl/pages.jsonl").open()]
            if (folder / "crawl/pages.jsonl").exists()
            else []
        )
        ends = collections.Counter(
            f"{line['outcome']}{line.get('truncated', '') and '/' + line['truncated']}"
            for line in lines
            if "//127.9" in line["url"]
        )
        took = sorted(line["took"] for line in lines[len(lines) // 2 :] if "//127.8" in line["url"])
        return {
            "pages": pages_between(counts, began, ended),
            "late": pages_between(counts, half, ended),
            "asked": pages_between(folder / "asked", began, ended) if kind != "alone" else 0.0,
            "took": 1e3 * took[len(took) * 9 // 10] if took else 0.0,
            "busy": busy,
            "kept": kept,
            "children": children,
            "peak": peak,
            "main": turns.get("peak", 0.0),
            "cpu": 1e3 * turns.get("cpu", 0.0),
            "at": turns.get("at", 0.0),
            "long": turns.get("long", 0),
            "wall": 1e3 * turns.get("wall", 0.0),
            "seen": turns.get("seen", []),
            "gap": gap,
            "gap_end": gap_end - began,
            "exit": exit_took,
            "code": process.returncode,
            "said": shown,
            "ends": ends.most_common(5),
        }


def main() -> None:
    """Print one row per kind."""
    parser = harness.parser(__doc__)
    parser.add_argument("--kind", nargs="+", metavar="KIND", default=list(KINDS), choices=KINDS)
    parser.option("--hosts", 600)
    parser.option("--seconds", 30.0)
    parser.option("--delay", 1.0, "delay of the crawl: it sends hosts / delay requests per second")
    parser.option("--load", 0, "busy processes meanwhile")
    parser.option("--stacks", False)
    parser.add_argument("--crawl", nargs=argparse.REMAINDER, default=[], help="further options of the crawl")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    if "--inside" in sys.argv[1:2]:
        own, crawl = sys.argv[1 : sys.argv.index("--")], sys.argv[sys.argv.index("--") + 1 :]
        options = parser.parse_args(own)
        sys.exit(crawl_measured(options.inside, crawl, stacks=options.stacks))
    options = parser.parse_args()
    table = harness.Table(*COLUMNS)
    before, broken = alone(options, table), False
    for kind in options.kind:
        row = run(kind, options)
        after = alone(options, table)
        show(table, kind, row, *(2 * row[part] / (before[part] + after[part]) for part in ("pages", "late")))
        if flaws := flaws_of(row):
            broken = True
            print(f"    {kind}: {', '.join(flaws)}", *row["said"], sep="\n    ", flush=True)
        if options.stacks:
            for where, times in row["seen"]:
                print(f"      {times:5} {where}")
        before = after
    sys.exit(int(broken))


def flaws_of(row: dict[str, Any]) -> list[str]:
    """Return descriptions of the flaws in a row: values beyond `LIMITS`, and an exit code other than 0."""
    flaws = [
        f"{name} {row[name]:.1f}, more than {most:g}" for name, most in LIMITS.items() if row[name] > most
    ]
    return flaws + [f"exit code {row['code']}"] * bool(row["code"])


def alone(options: argparse.Namespace, table: harness.Table) -> dict[str, Any]:
    """Crawl the healthy hosts alone, and print and return the row."""
    row = run("alone", options)
    if not row["late"]:
        sys.exit("the healthy hosts received no requests:\n" + "\n".join(row["said"]))
    show(table, "alone", row, 1.0, 1.0)
    return row


def show(table: harness.Table, kind: str, row: dict[str, Any], ratio: float, late: float) -> None:
    """Print a row."""
    figures = (row["pages"], ratio, late, *(row[name] for name in FIGURES))
    details = (
        f"gap until {row['gap_end']:.0f} s; {row['long']} turns over 40 ms, longest at {row['at']:.0f} s; "
        f"{dict(row['ends'])}"
    )
    table.row(kind, *(round(figure, 2) for figure in figures), row["code"], details)


if __name__ == "__main__":
    main()
