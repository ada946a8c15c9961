"""Stop one process of three for a minute (SIGSTOP), and measure the fetches of the others.

    python scripts/bench/stopped_peer.py [--seconds 60] [--around 20]

The server takes 0.5 s per answer, and there are 60 hosts with one connection each. So the speed of every
process is limited by the web, not by the machine. Two thirds of the links lead from one process to another. A
stopped process keeps its connections open but does not answer. For the others, this is worse than a dead
process. The script computes two rates from the log of the server: the pages per second on the hosts of the
stopped process, and on the hosts of the other processes. Then the crawl is ended and its pages are counted.
"""

import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import msgspec

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from crawler.bench import harness  # noqa: E402
from tests.faults.harness import TreeWeb, end, settings, start  # noqa: E402

HOSTS, ANSWER_SECONDS, PROCESSES = 60, 0.5, 3
EDGE = 1.0  # seconds at the beginning and at the end of a phase that do not count


def pid_of(folder: Path) -> int:
    """Return the pid of the process that holds the lock of `folder`."""
    return int((folder / "node.lock").read_text().split()[1])


def phases(directory: Path, seconds: float, around: float) -> list[float]:
    """Let p0 run for `around` seconds, stop it for `seconds` seconds, and let it run for `around` seconds again.

    Return the four instants at which these phases begin and end.
    """
    time.sleep(around / 2)  # after this time, all processes have work
    instants = [time.time()]
    stopped = pid_of(directory / "p0")
    for step, length in ((0, around), (signal.SIGSTOP, seconds), (signal.SIGCONT, around)):
        if step:
            os.kill(stopped, step)
        time.sleep(length)
        instants.append(time.time())
    return instants


def rates(web: TreeWeb, instants: list[float]) -> Iterator[tuple[float, float]]:
    """For each phase, yield the pages per second of the other processes, and of the stopped process."""
    counts = []
    for begin, finish in pairwise(instants):
        ended = (row for row in web.requests() if begin + EDGE <= row[1] < finish - EDGE)
        counts.append((Counter(row[2] for row in ended), finish - begin - 2 * EDGE))
    # hosts of the other processes, because only these hosts receive requests while the process is stopped
    others = counts[1][0].keys()
    for found, length in counts:
        of_others = sum(n for host, n in found.items() if host in others)
        yield of_others / length, (found.total() - of_others) / length


def main() -> None:
    parser = harness.parser(__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="seconds for which it is stopped (60)")
    parser.add_argument("--around", type=float, default=20.0, help="seconds measured before and after (20)")
    parser.add_argument(
        "--folder", type=Path, default=None, help="folder for the crawl (the temporary directory)"
    )
    args = parser.parse_args()
    if args.folder is not None:
        args.folder.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(dir=args.folder, prefix="stopped-"))
    with TreeWeb(folder, 1_000_000, "--delay", str(ANSWER_SECONDS), hosts=HOSTS) as web:
        crawl = start(folder / "crawl", web.seed, *settings("--processes", str(PROCESSES)))
        try:
            instants = phases(folder / "crawl", args.seconds, args.around)
            crawl.send_signal(signal.SIGTERM)
            ended = end(crawl)
        finally:
            if crawl.poll() is None:
                crawl.kill()
        found = list(rates(web, instants))
        fetched = web.fetched()
    report = msgspec.json.decode((folder / "crawl" / "report.json").read_bytes())
    table = harness.Table("pages/s    ", "the others", "    p0")
    for name, (others, own) in zip(("before", "stopped", "after"), found, strict=True):
        table.row(name, others, own)
    again = fetched.total() - len(fetched)
    print(
        f"exit code {ended.code}, {len(fetched):,} pages, {again} fetched again, "
        f"violated counting laws: {report['conservation']}"
    )
    shutil.rmtree(folder)
    slowest = min(found[1][0], found[2][0]) / found[0][0]
    right = not ended.code and not again and report["conservation"] == "holds" and slowest > 0.95
    raise SystemExit(0 if right else f"failed: the others ran at {slowest:.2f} of their pace before")


if __name__ == "__main__":
    main()
