"""Kill a crawl again and again, let it finish, and compare with the truth of a tree-shaped web.

The judge is not the crawler: pages asked for are counted in the server's log,
pages stored in the WARC files, by FastWARC.
"""

import os
import signal
import subprocess
import sys
import zlib
from collections import Counter
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent.parent
CONCURRENCY = 32
# Process kills at these points, the n-th time they are reached; between them they touch every step of a commit,
# of a DUE flush and of a compaction, and a stop.
POINTS = (
    "fetch begun",
    "record appended",
    "synced",
    "batch written",
    "committed",
    "flush joined",
    "flush written",
    "flush done",
    "compaction merged",
    "compaction written",
    "compaction done",
    "segment rolled",
    "seeds loading",
    "stopping",
)


class Judgement(NamedTuple):
    """What came of it, against the truth.

    lost: pages never answered 200. unstored: pages without a response record.
    stored_twice: pages with more than one. refetched: answers 200 beyond the first.
    torn: 1 if some WARC file does not read to its end.
    """

    lost: int
    unstored: int
    stored_twice: int
    refetched: int
    torn: int


class TreeWeb:
    """The server of `tree_server.py` as a child process; use as a context manager."""

    def __init__(self, folder: Path, pages: int, *options: str, hosts: int = 20) -> None:
        self.pages = pages
        self.log = folder / "server.log"
        self._options = ("--pages", str(pages), "--hosts", str(hosts), "--log", str(self.log), *options)

    def __enter__(self) -> "TreeWeb":
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.end_to_end.tree_server", *self._options],
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

    @property
    def seed(self) -> str:
        return f"http://127.1.0.1:{self.port}/0"

    def requests(self) -> list[tuple[float, float, str, str, int]]:
        """(begin, end, address, path, status) of every request so far."""
        rows = (line.split() for line in self.log.read_text().splitlines())
        return [(float(row[0]), float(row[1]), row[2], row[3], int(row[4])) for row in rows]

    def fetched(self) -> Counter[str]:
        """How often each page was answered 200, by path."""
        return Counter(path for _, _, _, path, status in self.requests() if status == 200 and path != "/robots.txt")


def crawl(
    directory: Path, *arguments: str, fault: str = "", module: tuple[str, ...] = ("crawler",), timeout: float = 600
) -> subprocess.CompletedProcess[str]:
    """Run `crawler crawl` on `directory`; with `fault` it ends itself by SIGKILL there."""
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    if fault:
        environ["CRAWLER_FAULT"] = fault
    command = [sys.executable, "-m", *module, "crawl", "--dir", str(directory), *arguments]
    return subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=timeout)


def settings(*more: str) -> tuple[str, ...]:
    """Flags of a crawl that only the server's speed bounds."""
    return (
        "--scope", "any", "--allow-network", "127.0.0.0/8", "--delay", "0", "--delay-factor", "0",
        "--robots", "ignore", "--depth", "1000", "--pages-per-host", "100000000",
        "--pages-per-domain", "100000000", "--concurrency", str(CONCURRENCY), "--progress", "none", "-q", *more,
    )  # fmt: skip


def judge(web: TreeWeb, directory: Path) -> Judgement:
    """Compare what was asked and what was stored with the truth."""
    truth = {f"/{n}" for n in range(web.pages)}
    fetched = web.fetched()
    stored, torn = _stored(directory)
    return Judgement(
        lost=len(truth - fetched.keys()),
        unstored=len(truth - stored.keys()),
        stored_twice=sum(n > 1 for n in stored.values()),
        refetched=sum(n - 1 for n in fetched.values()),
        torn=torn,
    )


def _stored(directory: Path) -> tuple[Counter[str], int]:
    """Response records by path, and whether a file ends in the middle of a record."""
    from fastwarc.warc import ArchiveIterator, WarcRecordType

    stored: Counter[str] = Counter()
    torn = 0
    for path in sorted(directory.glob("*/warc/*.warc.gz*")):
        with path.open("rb") as file:
            for record in ArchiveIterator(file, record_types=WarcRecordType.response):
                stored["/" + record.headers["WARC-Target-URI"].rsplit("/", 1)[1]] += 1
        torn += _ends_torn(path)
    return stored, torn


def _ends_torn(path: Path) -> bool:
    """Whether the file ends within a gzip member, or holds garbage: readers lose every record behind that."""
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


def run_with_kills(web: TreeWeb, directory: Path, faults: list[str], module: tuple[str, ...] = ("crawler",)) -> int:
    """Crawl with one kill per entry of `faults` ("point:n"), then to the end; how many kills happened."""
    kills = 0
    for fault in faults:
        ended = crawl(directory, web.seed, *settings(), fault=fault, module=module)
        assert ended.returncode in (0, -signal.SIGKILL), ended.stderr
        kills += ended.returncode == -signal.SIGKILL
    ended = crawl(directory, web.seed, *settings(), module=module)
    assert ended.returncode == 0, ended.stderr
    return kills
