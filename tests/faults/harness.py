"""Kill a crawl repeatedly, let it finish, and compare the result with the pages that the tree-shaped web has.

The comparison does not use the crawler: requested pages are counted in the server's log, and FastWARC counts
stored pages in the WARC files.
"""

import os
import random
import resource
import signal
import subprocess
import sys
import time
import zlib
from bisect import bisect
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from crawler.frontier.discovery.entries import decode
from crawler.storage.engines import open_store
from crawler.storage.faults import POINTS
from crawler.storage.keys import PARKED, TODO
from crawler.storage.kv import scan_prefix
from tests.end_to_end.tree_server import url
from tests.faults.power import cut_power, family, kill_all

ROOT = Path(__file__).resolve().parent.parent.parent
CONCURRENCY = 32


class Judgement(NamedTuple):
    """The result of a crawl, compared with the pages that the web has.

    lost: pages that never got a 200. unstored: pages without a response record.
    stored_twice: pages with several response records. refetched: 200 answers beyond the first of a page.
    worst: the largest number of refetches caused by one kill. torn: WARC files that cannot be read to the end.
    in_flight: the number of fetches that all processes may have in flight.
    """

    lost: int
    unstored: int
    stored_twice: int
    refetched: int
    worst: int
    torn: int
    in_flight: int = CONCURRENCY

    @property
    def flawless(self) -> bool:
        """True if no page is lost or stored twice, and no kill caused too many refetches.

        If a kill interrupts the fetch of a page, the next kill may come before the page is fetched again. The
        refetch then counts for that next kill. So the limit for each kill is twice the number of fetches in
        flight.
        """
        wrong = self.lost + self.unstored + self.stored_twice + self.torn
        return not wrong and self.worst <= 2 * self.in_flight


class TreeWeb:
    """A context manager that runs the server of `tree_server.py` in a child process."""

    def __init__(
        self, folder: Path, pages: int, *options: str, hosts: int = 20, inside: Sequence[str] = ()
    ) -> None:
        """Prepare the server. `inside` is a command prefix, such as one that enters a network namespace."""
        self.pages = pages
        self._inside = inside
        self.log = folder / "server.log"
        self._hosts = hosts
        self._options = ("--pages", str(pages), "--hosts", str(hosts), "--log", str(self.log), *options)

    def __enter__(self) -> "TreeWeb":
        self._server = subprocess.Popen(
            [*self._inside, sys.executable, "-m", "tests.end_to_end.tree_server", *self._options],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._server.stdout is not None
        self.port = int(self._server.stdout.readline())
        return self

    def __exit__(self, *_: object) -> None:
        self._server.communicate()

    def url(self, page: int) -> str:
        """Return the URL of a page."""
        if "--names" in self._options:
            name = self._options[self._options.index("--names") + 1].replace("N", str(page % self._hosts))
            return f"http://{name}:{self.port}/{page}"
        return url(page, self._hosts, self.port)

    @property
    def seed(self) -> str:
        return self.url(0)

    def requests(self) -> list[tuple[float, float, str, str, int]]:
        """Return the begin time, end time, address, path and status of every request so far."""
        rows = (line.split() for line in self.log.read_text().splitlines())
        return [(float(row[0]), float(row[1]), row[2], row[3], int(row[4])) for row in rows]

    def fetched(self) -> Counter[str]:
        """Return the number of 200 answers for each path."""
        return Counter(
            path for _, _, _, path, status in self.requests() if status == 200 and path != "/robots.txt"
        )


def start(
    directory: Path,
    *arguments: str,
    fault: str = "",
    module: Sequence[str] = ("crawler",),
    file_bytes_max: int = 0,
) -> "subprocess.Popen[str]":
    """Start `crawler crawl` on `directory`. With a `fault` ("point:n"), the crawl kills itself at that point.

    With `file_bytes_max`, no file can grow beyond that size, and further writes fail as on a full disk.
    """
    assert not fault or fault.partition(":")[0] in POINTS, fault
    environ = {**os.environ, "PYTHONPATH": str(ROOT), "CRAWLER_FAULT": fault}
    process = subprocess.Popen(
        [sys.executable, "-m", *module, "crawl", "--dir", str(directory), *arguments],
        cwd=ROOT,
        env=environ,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    if file_bytes_max:
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (file_bytes_max, resource.RLIM_INFINITY))
    return process


class Ended(NamedTuple):
    """The exit code of a crawl, its output and its error output."""

    code: int
    out: str
    err: str


def end(process: "subprocess.Popen[str]", timeout: float = 600) -> Ended:
    """Wait for the end of a crawl. Return its exit code and output."""
    out, err = process.communicate(timeout=timeout)
    return Ended(process.returncode, out, err)


def crawl(directory: Path, *arguments: str, **options: Any) -> Ended:
    """Run `crawler crawl` on `directory` until it ends, with the options of `start`."""
    return end(start(directory, *arguments, **options))


def settings(*more: str) -> tuple[str, ...]:
    """Return the flags of a crawl that is limited only by the server's speed."""
    return (
        "--scope", "any", "--allow-network", "127.0.0.0/8", "--delay", "0", "--delay-factor", "0",
        "--robots", "ignore", "--depth", "1000", "--pages-per-host", "100000000",
        "--pages-per-domain", "100000000", "--concurrency", str(CONCURRENCY), "--progress", "none", "-q",
        *more,
    )  # fmt: skip


def several(processes: int) -> tuple[str, ...]:
    """Return the flags for several processes that soon notice a killed peer, or () for one process."""
    quick = ("--set", "splitter.heartbeat=0.2", "--set", "splitter.backoff_max=0.3")
    return ("--processes", str(processes), *quick) if processes > 1 else ()


def judge(web: TreeWeb, directory: Path, kills: Sequence[float] = (), *, processes: int = 1) -> Judgement:
    """Compare requests and stored pages with the pages of the web. `kills` are the times of the kills."""
    truth = {f"/{n}" for n in range(web.pages)}
    again = _refetches(web, kills)
    stored, torn = _stored(directory)
    return Judgement(
        lost=len(truth - web.fetched().keys()),
        unstored=len(truth - stored.keys()),
        stored_twice=sum(n > 1 for n in stored.values()),
        refetched=again.total(),
        worst=max(again.values(), default=0),
        torn=torn,
        in_flight=CONCURRENCY * processes,
    )


def _refetches(web: TreeWeb, kills: Sequence[float]) -> Counter[int]:
    """Count the answers with status 200 for pages that had already had such an answer.

    The counts are grouped by the number of kills that happened before the page's previous answer was
    complete.
    """
    before: dict[str, float] = {}
    again: Counter[int] = Counter()
    for _, ended, _, path, status in web.requests():
        if status == 200 and path != "/robots.txt":
            if path in before:
                again[bisect(kills, before[path])] += 1
            before[path] = ended
    return again


def _stored(directory: Path) -> tuple[Counter[str], int]:
    """Return the number of response records of each path, and of files that end in the middle of a record."""
    from fastwarc.warc import ArchiveIterator, WarcRecordType

    stored: Counter[str] = Counter()
    torn = 0
    for segment in sorted(directory.glob("*/warc/*.warc.gz*")):
        with segment.open("rb") as file:
            for record in ArchiveIterator(file, record_types=WarcRecordType.response):
                path = "/" + record.headers["WARC-Target-URI"].rsplit("/", 1)[1]
                stored[path] += path != "/robots.txt"
        torn += _ends_torn(segment)
    return stored, torn


def _ends_torn(path: Path) -> bool:
    """Return whether the file ends within a gzip member or contains garbage.

    Readers could read no record after that place.
    """
    inflater, inside = zlib.decompressobj(31), False
    with path.open("rb") as file:
        while data := file.read(1 << 20):
            while data:
                inside = True
                try:
                    inflater.decompress(data)
                except zlib.error:
                    return True
                data = inflater.unused_data
                if inflater.eof:
                    inflater, inside = zlib.decompressobj(31), False
    return inside


def run_with_kills(
    web: TreeWeb,
    directory: Path,
    faults: Sequence[str],
    *arguments: str,
    module: Sequence[str] = ("crawler",),
) -> list[float]:
    """Crawl with one kill for each entry of `faults`, then crawl to the end. Return the times of the kills.

    An entry is "point:n", or "point:n --flag value ..." if the run needs more flags. If the crawl has several
    processes, each of them kills itself once, and the supervisor restarts it.
    """
    kills = [at for entry in faults for at in kill_at(web, directory, entry, *arguments, module=module)]
    finish(web, directory, *arguments, module=module)
    return kills


def kill_at(
    web: TreeWeb, directory: Path, entry: str, *arguments: str, module: Sequence[str] = ("crawler",)
) -> list[float]:
    """Crawl until an entry of `run_with_kills` kills the crawl. Return the times of the kills; [] if it ends before."""
    fault, flags = _fault(entry)
    begun = len(deaths(directory))
    ended = crawl(
        directory, *_seed(web, arguments), *settings(*arguments, *flags), fault=fault, module=module
    )
    assert ended.code in (0, -signal.SIGKILL), (entry, ended)
    return [*deaths(directory)[begun:], *([time.time()] if ended.code else [])]


def _fault(entry: str) -> tuple[str, list[str]]:
    """Return the fault of an entry "point:n --flag value ...", and the flags."""
    fault, *more = entry.split(" --")
    return fault, [part for flag in more for part in f"--{flag}".split()]


def _seed(web: TreeWeb, arguments: Sequence[str]) -> list[str]:
    return [] if "--seeds" in arguments else [web.seed]


def deaths(directory: Path) -> list[float]:
    """Return the times at which the supervisor noticed that a process had been killed, from the log of the crawl."""
    log = directory / "crawler.log"
    lines = log.read_text().splitlines() if log.exists() else []
    killed = [line for line in lines if f": ended with signal {signal.SIGKILL} (" in line]
    return [datetime.strptime(line[:23], "%Y-%m-%d %H:%M:%S,%f").timestamp() for line in killed]


def load_seeds_with_kills(folder: Path, count: int, faults: Sequence[str]) -> Counter[int]:
    """Load `count` seeds with a command that is killed at `faults`.

    Return the number of entries that each seed has at the end. Only one URL of each host may be fetched, and
    no server answers. So nearly all URLs are parked at the end.
    """
    listed = folder / "seeds"
    with listed.open("w") as file:
        file.writelines(f"http://127.2.0.{n % 100 + 1}:8/page/{n}\n" for n in range(count))
    flags = settings("--seeds", str(listed), "--pages-per-host", "1", "--patience", "0")
    for fault in faults:
        ended = crawl(folder / "crawl", *flags, fault=fault)
        assert ended.code == -signal.SIGKILL, (fault, ended)
    ended = crawl(folder / "crawl", *flags)
    assert ended.code in (0, 4), ended
    return _known(folder / "crawl" / "p0" / "store")


def _known(store: Path) -> Counter[int]:
    """Count each fingerprint in the queues of the store. A URL that was tried and is not queued counts once."""
    with closing(open_store(store)) as opened:
        queued = Counter(
            decode(key, value).fingerprint
            for prefix in (TODO, PARKED)
            for key, value in scan_prefix(opened, prefix)
        )
        tried = {int.from_bytes(key[2:], "big") for key, _ in scan_prefix(opened, b"u/")}
    return queued + Counter(tried - queued.keys())


def run_with_power_cuts(
    web: TreeWeb, directory: Path, faults: Sequence[str], rng: random.Random, *arguments: str, bug: str = ""
) -> tuple[list[float], int]:
    """Crawl like `run_with_kills`, but after each kill the disk loses data that was not synced (see `power.py`).

    Return the times of the kills, and the number of files that changed.
    """
    cuts, changed = [], 0
    for entry in faults:
        if files := cut_at(web, directory, entry, rng, *arguments, bug=bug):
            cuts.append(time.time())
            changed += files
    finish(web, directory, *arguments)
    return cuts, changed


def cut_at(
    web: TreeWeb, directory: Path, entry: str, rng: random.Random, *arguments: str, bug: str = ""
) -> int:
    """Crawl until an entry of `run_with_kills` kills all processes at once; then lose unsynced data.

    Return the number of files that changed; 0 if the crawl ends before.
    """
    fault, flags = _fault(entry)
    record = directory.with_name("synced")
    module = ("tests.faults.power", str(record), bug)
    ended = crawl(directory, web.seed, *settings(*arguments, *flags), fault=fault, module=module)
    assert ended.code in (0, -signal.SIGKILL), (entry, ended)
    return cut_power(record, directory, rng) if ended.code else 0


def run_with_random_kills(
    web: TreeWeb, directory: Path, count: int, pause: float, rng: random.Random, *arguments: str
) -> list[float]:
    """Crawl to the end with `count` kills, each at most `pause` seconds after the previous one.

    If the crawl has several processes, every second kill ends only one of them. Return the times of the kills.
    """
    kills: list[float] = []
    words = (web.seed, *settings(*arguments))
    process = start(directory, *words)
    while len(kills) < count:
        try:
            process.wait(rng.uniform(0.2, pause))
            break
        except subprocess.TimeoutExpired:
            running = pids(directory)
        if len(running) > 1 and len(kills) % 2:
            kill_all([rng.choice(running)])
        else:
            kill_all(family(process.pid))
            process.communicate()
            process = start(directory, *words)
        kills.append(time.time())
    ended = end(process)
    assert ended.code == 0, ended
    return kills


def pids(directory: Path) -> list[int]:
    """Return the process ids that hold the locks of the crawl's folders."""
    found = []
    for lock in sorted(directory.glob("p*/node.lock")):
        fields = lock.read_text().split()
        if len(fields) == 3 and Path(f"/proc/{fields[1]}").exists():
            found.append(int(fields[1]))
    return found


def finish(web: TreeWeb, directory: Path, *arguments: str, module: Sequence[str] = ("crawler",)) -> None:
    """Crawl to the end."""
    ended = crawl(directory, *_seed(web, arguments), *settings(*arguments), module=module)
    assert ended.code == 0, ended
