"""Unit costs of this machine, for `crawler plan`: CPU a page, a KiB, a link and a host; bytes on disk and in memory.

Whole crawls of the synthetic web on loopback (`crawler lab web`) by `crawler crawl`, whose CPU, memory and
directory are measured; the costs are differences of crawls that differ in one thing:

    few pages, many pages                a page, and what a process starts with
    short pages, long pages              a KiB; WARC of a body, WARC of an exchange
    few new URLs, many                   a new URL
    few hosts, many hosts                a host
    small pages, large pages              what a child that parses holds a byte
    the same pages again, unchanged      a refresh

and by themselves what a TLS client computes for a handshake (`handshakes.py`) and what a link costs that was met before
(`met_links.py`): most links of a page were,. A last crawl lies between them and is predicted; the
errors of the prediction are printed. Costs that are not measured (URLs in queues, schedules) are those of the
reference.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from crawler.bench.handshakes import handshake_cpu
from crawler.bench.met_links import met_link_cpu
from crawler.bench.planning import (
    JOURNAL_URLS,
    KIB,
    REFERENCE,
    STORE_URL_PACKED,
    STORE_URLS,
    CostRange,
    UnitCosts,
    page_cpu,
)
from crawler.errors import CrawlerError, UsageError
from crawler.storage.engines import open_store

HOSTS = 50
PIECE = 16 << 10  # bytes of a segment unpacked at a time
SAMPLE = 50  # bodies that are packed to see how small they get
AGAIN_RATE = 100  # refreshes a second: at lower rates each is a commit of its own
LARGE = 4_000_000  # bytes of a page that goes to the child that parses


class CrawlShape(NamedTuple):
    """What is crawled: pages, bytes of text beside links, links a page, hosts.

    Then `again` refreshes; `most` pages are fetched, 0: all.
    """

    pages: int
    padding: int
    links: int
    hosts: int = HOSTS
    again: int = 0
    most: int = 0


class CrawlCost(NamedTuple):
    """What it cost and what it met.

    CPU seconds, largest resident bytes of all its processes, bytes of WARC, journal, store as it was left and
    compacted; fetches and hosts; bytes and links of a fetch, bytes that gzip leaves of one, length of a URL, new URLs
    found by a fetch (means).
    """

    cpu: float
    memory: float
    warc: float
    journal: float
    store: float
    compacted: float
    fetches: float
    hosts: float
    page_bytes: float
    links: float
    packed: float
    url_bytes: float
    new: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pages", type=int, default=2000, help="of the larger crawls (2000)")
    parser.add_argument("--repeats", type=int, default=3, help="times that all is measured (3)")
    parser.add_argument("--out", type=Path, help="file for `crawler plan --units` (JSON)")


def run(arguments: argparse.Namespace) -> int:
    """Measure, predict a crawl that was not measured, and say how far that is off."""
    if not 100 <= arguments.pages <= 1_000_000 or not 1 <= arguments.repeats <= 100:
        raise UsageError("need 100 to 1,000,000 pages and 1 to 100 repeats")
    rounds = [
        {name: measure(shape) for name, shape in shapes(arguments.pages).items()}
        for _ in range(arguments.repeats)
    ]
    units = msgspec.structs.replace(
        units_of(rounds), handshake_cpu=CostRange.of([handshake_cpu() for _ in range(5)])
    )
    if not units.handshake_cpu.high:
        units = msgspec.structs.replace(units, handshake_cpu=REFERENCE.handshake_cpu)
    for name in units.__struct_fields__[:-1]:
        print(f"{name:<18}{_text(getattr(units, name))}{'' if name in MEASURED else '   (reference)'}")
    for predicted, measured in checks(rounds, units):
        print(
            f"check: {predicted:.2f} CPU s predicted, {measured:.2f} measured, {predicted / measured - 1:+.0%}"
        )
    if arguments.out:
        arguments.out.write_bytes(msgspec.json.format(msgspec.json.encode(units)) + b"\n")
    return 0


def shapes(pages: int) -> dict[str, CrawlShape]:
    """The crawls of a round, by what they are for; `last` is predicted from the others."""
    return {
        "few": CrawlShape(pages // 5, 0, 4),
        "many": CrawlShape(pages, 0, 4),
        "long": CrawlShape(pages, 40_000, 4),
        "found": CrawlShape(20 * pages, 0, 200, most=pages),
        "scattered": CrawlShape(pages, 0, 4, pages // 2),
        "large": CrawlShape(10, LARGE, 4, 2),
        "again": CrawlShape(pages // 5, 0, 4, again=pages // 2),
        "last": CrawlShape(pages, 16_000, 40),
    }


MEASURED = (
    "process_cpu", "page_cpu", "kilobyte_cpu", "link_cpu", "new_cpu", "host_cpu", "handshake_cpu", "unchanged_cpu",
    "page_store", "page_store_log", "page_journal", "capture_warc", "body_warc", "unchanged_warc", "process_memory",
    "large_memory",
)  # fmt: skip


def units_of(rounds: list[dict[str, CrawlCost]]) -> UnitCosts:
    """Unit costs of some rounds."""
    found: dict[str, list[float]] = {}
    for costs in rounds:
        for name, value in (_cpu_of(costs) | _bytes_of(costs)).items():
            found.setdefault(name, []).append(value)
    measured = {name: CostRange.of(values) for name, values in found.items()}
    return msgspec.structs.replace(REFERENCE, machine=os.uname().machine, **measured)


def _cpu_of(costs: dict[str, CrawlCost]) -> dict[str, float]:
    few, many, long, found, scattered, again = (
        costs[name] for name in ("few", "many", "long", "found", "scattered", "again")
    )
    fetch = (many.cpu - few.cpu) / (many.fetches - few.fetches)  # one of `many`
    host = max(0.0, scattered.cpu - many.cpu - fetch * (scattered.fetches - many.fetches))
    host /= scattered.hosts - many.hosts

    def more(cost: CrawlCost) -> float:
        """Seconds a fetch of `cost` takes more than one of `many`."""
        fetches = fetch * (cost.fetches - many.fetches) + host * (cost.hosts - many.hosts)
        return (cost.cpu - many.cpu - fetches) / cost.fetches

    kilobyte = max(0.0, more(long)) / ((long.page_bytes - many.page_bytes) / KIB)

    def beside(cost: CrawlCost) -> float:
        """The same without what its KiB take."""
        return more(cost) - kilobyte * (cost.page_bytes - many.page_bytes) / KIB

    link = met_link_cpu()
    new = max(0.0, beside(found) - link * (found.links - many.links)) / (found.new - many.new)
    start = few.cpu - fetch * few.fetches - host * few.hosts
    return {
        "kilobyte_cpu": kilobyte,
        "link_cpu": link,
        "new_cpu": new,
        "host_cpu": host,
        "page_cpu": fetch - kilobyte * many.page_bytes / KIB - link * many.links - new * (many.new - 1.0),
        "process_cpu": start,
        "unchanged_cpu": (again.cpu - start) / again.fetches,
    }


def _bytes_of(costs: dict[str, CrawlCost]) -> dict[str, float]:
    few, many, long = costs["few"], costs["many"], costs["long"]
    body = (long.warc / long.fetches - many.warc / many.fetches) / (long.packed - many.packed)
    more = many.fetches - few.fetches
    return {
        "body_warc": body,
        "capture_warc": many.warc / many.fetches - body * many.packed,
        "page_journal": many.journal / many.fetches - JOURNAL_URLS * many.url_bytes,
        "page_store_log": (many.store - few.store) / more - STORE_URLS * many.url_bytes,
        "page_store": (many.compacted - few.compacted) / more
        - STORE_URLS * STORE_URL_PACKED * many.url_bytes,
        "unchanged_warc": costs["again"].warc / costs["again"].fetches,
        "process_memory": few.memory,
        "large_memory": (costs["large"].memory - few.memory) / LARGE,
    }


def checks(rounds: list[dict[str, CrawlCost]], units: UnitCosts) -> list[tuple[float, float]]:
    """CPU seconds predicted and measured of the last crawl, a pair a round."""
    return [(_whole(units, costs["last"]), costs["last"].cpu) for costs in rounds]


def _whole(units: UnitCosts, cost: CrawlCost) -> float:
    page = page_cpu(units, cost.page_bytes, cost.links, 0.0, cost.new).mid
    return units.process_cpu.mid + units.host_cpu.mid * cost.hosts + page * cost.fetches


def measure(shape: CrawlShape) -> CrawlCost:
    """Crawl a web of this shape in a process of its own; with `again`, the cost is that of so many refreshes behind it.

    Raises:
        CrawlerError: the crawl failed.
    """
    with tempfile.TemporaryDirectory(prefix="crawler-units-") as folder, _served(shape) as seed:
        directory = Path(folder, "crawl")
        most = ["--max-pages", str(shape.most)] if shape.most else []
        cpu, memory = _crawl(["crawl", seed, "--dir", str(directory), *most])
        cost = _cost_of(directory, shape, cpu, memory)
        if not shape.again:
            return cost
        once = ["--rate", str(AGAIN_RATE), "--max-pages", str(shape.again), "--set", "refresh.min_age=0"]
        cpu, memory = _crawl(["refresh", "--dir", str(directory), *once])
        both = _cost_of(directory, shape, cpu, memory)
        return both._replace(fetches=both.fetches - cost.fetches, warc=both.warc - cost.warc)


@contextmanager
def _served(shape: CrawlShape) -> Iterator[str]:
    """Serve a web of this shape; its seed."""
    serving = subprocess.Popen(
        [sys.executable, "-m", "crawler", "lab", "web", "--plain", "--latency", "0", "--hosts", str(shape.hosts),
         "--pages", str(shape.pages), "--padding", str(shape.padding), "--links", str(shape.links)],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert serving.stdout is not None
        yield serving.stdout.readline().strip()
    finally:
        serving.terminate()
        serving.communicate()


def _crawl(arguments: list[str]) -> tuple[float, float]:
    """Run a crawl; CPU seconds, and the most resident bytes of all its processes."""
    crawling = subprocess.Popen(
        [sys.executable, "-m", "crawler", *arguments, "--scope", "any", "--allow-network", "127.64.0.0/10",
         "--delay", "0", "--delay-factor", "0", "--progress", "none", "-q"],
    )  # fmt: skip
    peak = _Peak(crawling.pid)
    peak.start()
    _, status, used = os.wait4(crawling.pid, 0)
    peak.over.set()
    peak.join()
    if status:
        raise CrawlerError("bench units: the crawl of the web on loopback failed")
    return used.ru_utime + used.ru_stime, peak.bytes or used.ru_maxrss * 1024


def _cost_of(directory: Path, shape: CrawlShape, cpu: float, memory: float) -> CrawlCost:
    journal = directory / "pages.jsonl"
    rows = [row for row in map(msgspec.json.decode, journal.read_bytes().splitlines()) if row.get("status")]
    report = msgspec.json.decode(directory.joinpath("report.json").read_bytes())
    fetches, segments = len(rows), list(directory.rglob("*.warc.gz"))
    stores = list(directory.glob("p*/store"))
    kept = sum(map(_size, stores))
    for store in stores:
        with closing(open_store(store)) as engine:
            engine.compact()
    return CrawlCost(
        cpu=cpu,
        memory=memory,
        warc=sum(path.stat().st_size for path in segments),
        journal=journal.stat().st_size,
        store=kept,
        compacted=sum(map(_size, stores)),
        fetches=fetches,
        hosts=shape.hosts,
        page_bytes=report["bytes"]["decoded"] / fetches,
        links=report["urls"]["links"] / fetches,
        packed=sum(packed(path.read_bytes()) for path in segments) / fetches,
        url_bytes=sum(len(row["url"]) for row in rows) / fetches,
        new=report["due"]["new"] / fetches,
    )


def packed(segment: bytes) -> float:
    """Bytes that gzip leaves of all bodies of a WARC segment, by `SAMPLE` that lie evenly."""
    bodies, position = [], 0
    while position < len(segment):
        member, record = zlib.decompressobj(31), b""
        while not member.eof and position < len(segment):
            piece = segment[position : position + PIECE]
            record += member.decompress(piece)
            position += len(piece) - len(member.unused_data)
        if b"WARC-Type: response" in record[:200]:
            bodies.append(record.split(b"\r\n\r\n", 2)[2][:-4])
    sample = bodies[:: max(1, len(bodies) // SAMPLE)]
    return sum(len(zlib.compress(body)) for body in sample) / max(1, len(sample)) * len(bodies)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


class _Peak(threading.Thread):
    """Most resident bytes of a process and its children, where the system tells (Linux); else 0."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid, self.bytes, self.over = pid, 0, threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.05):
            self.bytes = max(self.bytes, resident(self._pid))


def resident(pid: int) -> int:
    """Resident bytes of a process and all below it, shared ones counted once; 0 for one that is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0
    own = sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return own * KIB + sum(resident(int(child)) for child in children)


def _text(cost: CostRange) -> str:
    unit = 1e6 if cost.high < 0.1 else 1.0
    return f"{cost.mid * unit:>14,.1f}   {cost.low * unit:,.1f} to {cost.high * unit:,.1f}{' us' if unit > 1 else ''}"
