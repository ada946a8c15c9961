"""Unit costs of this machine, for `crawler plan`: CPU a page, a KiB and a link; bytes on disk and in memory.

Whole crawls of the synthetic web on loopback (`crawler lab web`) by `crawler crawl`, whose CPU, memory and
directory are measured; the costs are differences of crawls that differ in one thing:

    few pages, many pages           a page
    short pages, long pages         a KiB
    few links, many links           a link

A last crawl lies between them and is predicted; the error of the prediction is printed. Costs that are not
measured (TLS handshakes, URLs in queues, schedules) are those of the reference.
"""

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import msgspec

from crawler.bench.planning import KIB, REFERENCE, CostRange, UnitCosts
from crawler.errors import CrawlerError, UsageError

HOSTS = 50
SERVER_WAIT = 120  # seconds for which a web is served at most


class CrawlShape(NamedTuple):
    """What is crawled: pages, bytes of text beside links, links a page."""

    pages: int
    padding: int
    links: int


class CrawlCost(NamedTuple):
    """What it cost: CPU seconds, largest resident bytes, bytes of WARC and of the rest, bytes and links of a page."""

    cpu: float
    memory: float
    warc: float
    other: float
    page_bytes: float
    links: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--pages", type=int, default=2000, help="of the larger crawls (2000)")
    parser.add_argument("--repeats", type=int, default=3, help="times that all is measured (3)")
    parser.add_argument("--out", type=Path, help="file for `crawler plan --units` (JSON)")


def run(arguments: argparse.Namespace) -> int:
    """Measure, predict a crawl that was not measured, and say how far that is off."""
    if not 100 <= arguments.pages <= 1_000_000 or not 1 <= arguments.repeats <= 100:
        raise UsageError("need 100 to 1,000,000 pages and 1 to 100 repeats")
    pages = arguments.pages
    shapes = [
        CrawlShape(pages // 5, 0, 4),
        CrawlShape(pages, 0, 4),
        CrawlShape(pages, 40_000, 4),
        CrawlShape(pages, 0, 200),
        CrawlShape(pages, 16_000, 40),
    ]
    rounds = [[measure(shape) for shape in shapes] for _ in range(arguments.repeats)]
    units = units_of(shapes, rounds)
    for name in units.__struct_fields__[:-1]:
        print(f"{name:<18}{_text(getattr(units, name))}{'' if name in MEASURED else '   (reference)'}")
    for predicted, measured in checks(shapes, rounds, units):
        print(
            f"check: {predicted:.2f} CPU s predicted, {measured:.2f} measured, {predicted / measured - 1:+.0%}"
        )
    if arguments.out:
        arguments.out.write_bytes(msgspec.json.format(msgspec.json.encode(units)) + b"\n")
    return 0


MEASURED = ("page_cpu", "kilobyte_cpu", "link_cpu", "page_disk", "warc_share", "process_memory")


def units_of(shapes: list[CrawlShape], rounds: list[list[CrawlCost]]) -> UnitCosts:
    """Unit costs of some rounds of the first four shapes."""
    found: dict[str, list[float]] = {name: [] for name in MEASURED}
    for few, many, long, linked, *_ in rounds:
        pages = shapes[1].pages
        kilobytes = (long.page_bytes - many.page_bytes) / KIB
        kilobyte = max(0.0, long.cpu - many.cpu) / (pages * kilobytes)
        links, bytes_more = linked.links - many.links, (linked.page_bytes - many.page_bytes) / KIB
        link = max(0.0, (linked.cpu - many.cpu) / pages - kilobyte * bytes_more) / links
        page = (many.cpu - few.cpu) / (pages - shapes[0].pages)
        found["kilobyte_cpu"].append(kilobyte)
        found["link_cpu"].append(link)
        found["page_cpu"].append(page - kilobyte * many.page_bytes / KIB - link * many.links)
        found["page_disk"].append((many.other - few.other) / (pages - shapes[0].pages))
        found["warc_share"].append(long.warc / (pages * long.page_bytes))
        found["process_memory"].append(max(each.memory for each in (few, many, long, linked)))
    measured = {name: CostRange.of(values) for name, values in found.items()}
    return msgspec.structs.replace(REFERENCE, machine=os.uname().machine, **measured)


def checks(
    shapes: list[CrawlShape], rounds: list[list[CrawlCost]], units: UnitCosts
) -> list[tuple[float, float]]:
    """CPU seconds predicted and measured of the last shape, a pair a round; the start is that of the round."""
    pairs = []
    for few, *_, last in rounds:
        start = few.cpu - shapes[0].pages * _page(units, few)
        pairs.append((max(0.0, start) + shapes[-1].pages * _page(units, last), last.cpu))
    return pairs


def _page(units: UnitCosts, cost: CrawlCost) -> float:
    return (
        units.page_cpu.mid + units.kilobyte_cpu.mid * cost.page_bytes / KIB + units.link_cpu.mid * cost.links
    )


def measure(shape: CrawlShape) -> CrawlCost:
    """Crawl a web of this shape in a process of its own.

    Raises:
        CrawlerError: the crawl failed.
    """
    with tempfile.TemporaryDirectory(prefix="crawler-units-") as folder:
        log = Path(folder, "log.csv")
        serving = subprocess.Popen(
            [sys.executable, "-m", "crawler", "lab", "web", "--plain", "--latency", "0", "--hosts", str(HOSTS),
             "--pages", str(shape.pages), "--padding", str(shape.padding), "--links", str(shape.links),
             "--log", str(log)],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        try:
            assert serving.stdout is not None
            seed = serving.stdout.readline().strip()
            directory = Path(folder, "crawl")
            crawling = subprocess.Popen(
                [sys.executable, "-m", "crawler", "crawl", seed, "--dir", str(directory), "--scope", "any",
                 "--allow-network", "127.64.0.0/10", "--delay", "0", "--delay-factor", "0",
                 "--progress", "none", "-q"],
            )  # fmt: skip
            _, status, used = os.wait4(crawling.pid, 0)
        finally:
            serving.terminate()
            serving.communicate()
        if status:
            raise CrawlerError("bench units: the crawl of the web on loopback failed")
        warc = sum(path.stat().st_size for path in directory.rglob("*.warc.gz"))
        whole = sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())
        bytes_read, links = _told(directory)
    return CrawlCost(
        used.ru_utime + used.ru_stime, used.ru_maxrss * 1024.0, warc, whole - warc, bytes_read, links
    )


def _told(directory: Path) -> tuple[float, float]:
    """Bytes and links of a page, as the log and the report of a crawl tell."""
    lines = directory.joinpath("pages.jsonl").read_bytes().splitlines()
    sizes = [row["bytes"] for row in map(msgspec.json.decode, lines) if row["status"] == 200]
    report = msgspec.json.decode(directory.joinpath("report.json").read_bytes())
    return sum(sizes) / len(sizes), report["urls"]["links"] / len(sizes)


def _text(cost: CostRange) -> str:
    unit = 1e6 if cost.high < 0.1 else 1.0
    return f"{cost.mid * unit:>14,.1f}   {cost.low * unit:,.1f} to {cost.high * unit:,.1f}{' us' if unit > 1 else ''}"
