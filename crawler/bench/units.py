"""Measures the unit costs of this machine for `crawler plan`: CPU, disk and memory per page, KiB, link and host.

`crawler crawl` crawls the synthetic web (`crawler lab web`) on loopback. The CPU time, the memory and the
directory of each crawl are measured. Each cost is the difference between two crawls that differ in one
property:

    few pages, many pages                a page, and the start of a process
    short pages, long pages              a KiB; WARC of a body, WARC of an exchange
    long pages, the same compressed      WARC of a body that is sent compressed
    long pages, the same over TLS        a fetch over TLS
    connections kept, closed, over TLS   connecting and a full handshake
    few hosts, many hosts                a host
    small pages, large pages, few tags   memory of a parsing child, per byte and per tag
    the same pages again, unchanged      a refresh
    the same at `LONE_RATE`              a fetch that finds the loop asleep

The cost of a link (`links.py`) and the costs that matter only in large crawls (`parts.py`) are measured
separately. Finally, the cost of a crawl whose properties lie between those of the other crawls is predicted
and measured, and the errors are printed. The memory of a connection is not measured but copied from the
built-in unit costs (`planning.REFERENCE`). If there is no `openssl` command, the costs of TLS are also copied
from `planning.REFERENCE`. The cost of a refresh includes the cost of a pick from the refresh schedule. The
cost of a pick is also printed alone, because it dominates plans with many refreshes.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from crawler.bench import parts
from crawler.bench.certificates import make_chain
from crawler.bench.links import LinkCosts, link_costs
from crawler.bench.meters import memory_below
from crawler.bench.planning import (
    JOURNAL_URLS,
    KIB,
    REFERENCE,
    STORE_URL_PACKED,
    STORE_URLS,
    CostRange,
    Goal,
    UnitCosts,
    page_cpu,
)
from crawler.cli.parsing import OptionParser, result_file
from crawler.errors import CrawlerError
from crawler.pages.reading import RECORD_BYTES_MAX, parse_http, parse_record
from crawler.pages.segments import contents
from crawler.storage.engines import open_store
from crawler.storage.files import atomic_write
from crawler.typed_number import within

HOSTS, HOSTS_MAX = 50, 2000
# Links per page. With fewer links per page, a web is so deep that its crawl must often wait until new pages
# become known.
LINKS = 40
SAMPLE = 50  # this many bodies are compressed to estimate the compressed size of all bodies
# refreshes per second; a process makes fewer, so this rate is not a limit
AGAIN_RATE = 100_000
LONE_RATE = 100  # at this number of refreshes per second, the loop sleeps four fifths of the time
LONG = 100_000
PEAK_EVERY = 0.005  # seconds between memory samples; a child parses a page of 4 MB in 0.1 s
LARGE = 4_000_000  # the size in bytes of a page that is so large that a child process parses it
TAG_BYTES = 56  # bytes of the lab's text per start tag (`lab/cluster/synthetic_web.py`)
FEW_TAGS = ("--phrases", "200")


class CrawlShape(NamedTuple):
    """The properties of a crawl: pages, bytes of text besides links, links per page, hosts.

    `again` is the number of refreshes that follow the crawl, at most `rate` per second. `web` holds further
    arguments of `crawler lab web`. `secure` means that the pages are served over TLS.
    """

    pages: int
    padding: int
    links: int
    hosts: int = HOSTS
    again: int = 0
    rate: int = AGAIN_RATE
    web: tuple[str, ...] = ()
    secure: bool = False


class CrawlCost(NamedTuple):
    """The costs of a crawl, and the properties of its pages.

    `cpu` is the number of CPU seconds. `memory` is the peak of the resident bytes of all processes of the
    crawl. `warc` and `journal` are the bytes of these files, and `store` and `compacted` are the bytes of the
    store before and after compaction. `fetches`, `hosts`, `seconds` and full `handshakes` are counted over
    the whole crawl. The other fields are means per fetch: bytes, links, bytes after gzip, length of a URL,
    and new URLs found.
    """

    cpu: float
    memory: float
    warc: float
    journal: float
    store: float
    compacted: float
    fetches: float
    hosts: float
    seconds: float
    handshakes: float
    page_bytes: float
    links: float
    packed: float
    url_bytes: float
    new: float


def add_arguments(parser: OptionParser) -> None:
    parser.option("--pages", 2000, "pages in each of the larger crawls")
    parser.option("--repeats", 3, "number of repetitions")
    about = "write the unit costs to this JSON file, for `crawler plan --units`"
    parser.option("--out", Path, about, type=result_file)


def run(arguments: argparse.Namespace) -> int:
    """Measure the costs, predict the cost of a crawl that was not used for the measurement, and print the error."""
    within("--pages", arguments.pages, 100, 1_000_000)
    within("--repeats", arguments.repeats, 1, 100)
    rounds, links, partly = [], [], []
    with tempfile.TemporaryDirectory(prefix="crawler-tls-") as folder:
        certified = _certified(Path(folder))
        for _ in range(arguments.repeats):
            rounds.append({
                name: measure(shape, Path(folder))
                for name, shape in shapes(arguments.pages).items() if certified or not shape.secure
            })  # fmt: skip
            links.append(link_costs())
            partly.append(parts.measured())
    units = units_of(rounds, links, partly)
    print(told(units))
    print(f"{'a pick':<18}{_text(CostRange.of([part['pick_cpu'] for part in partly]))}")
    for predicted, took in checks(rounds, units):
        print(f"check: {predicted:.2f} CPU s predicted, {took:.2f} measured, {predicted / took - 1:+.0%}")
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(arguments.out, msgspec.json.format(msgspec.json.encode(units)) + b"\n")
    return 0


def told(units: UnitCosts) -> str:
    """Return a line per unit cost. Costs that were not measured, but copied from `REFERENCE`, are marked."""
    costs = {name: getattr(units, name) for name in units.__struct_fields__ if name != "machine"}
    return "\n".join(
        f"{name:<18}{_text(cost)}{'   (reference)' if cost is getattr(REFERENCE, name) else ''}"
        for name, cost in costs.items()
    )


def shapes(pages: int) -> dict[str, CrawlShape]:
    """Return the crawls of a round by name; the crawl `last` is predicted from the others."""
    return {
        "few": CrawlShape(pages // 5, 0, LINKS),
        "many": CrawlShape(pages, 0, LINKS),
        "long": CrawlShape(pages, LONG, LINKS),
        "packed": CrawlShape(pages // 2, LONG, LINKS, web=("--gzip",)),
        "secure": CrawlShape(pages, LONG, LINKS, secure=True),
        "closed": CrawlShape(pages, 0, LINKS, web=("--close",), secure=True),
        "scattered": CrawlShape(pages, 0, LINKS, min(pages, HOSTS_MAX)),
        "large": CrawlShape(2, LARGE, LINKS, 1),
        # The web has one host, so pages are fetched one at a time.
        "untagged": CrawlShape(2, LARGE, LINKS, 1, web=FEW_TAGS),
        "again": CrawlShape(pages // 2, 0, LINKS, again=2 * pages),
        "lone": CrawlShape(pages // 2, 0, LINKS, again=pages, rate=LONE_RATE),
        "last": CrawlShape(pages, 16_000, 20),
    }


PARTS = ("known_bits", "todo_disk", "host_memory", "refreshed_memory")


def units_of(
    rounds: list[dict[str, CrawlCost]], links: list[LinkCosts], partly: Sequence[Mapping[str, float]] = ()
) -> UnitCosts:
    """Return the unit costs.

    The middle value is computed from the medians of the rounds, and the range from the costs of each round.
    """
    medians = {
        name: CrawlCost(*map(statistics.median, zip(*(costs[name] for costs in rounds), strict=True)))
        for name in rounds[0]
    }
    middle = _costs_of(medians, LinkCosts(*map(statistics.median, zip(*links, strict=True))))
    each = [_costs_of(costs, link) for costs, link in zip(rounds, links, strict=True)]
    measured = {}
    for name, mid in middle.items():
        values = [mid, *(costs[name] for costs in each)]
        measured[name] = CostRange(*(max(0.0, value) for value in (min(values), mid, max(values))))
    for name in (name for name in PARTS if partly):
        measured[name] = CostRange.of([part[name] for part in partly])
    return msgspec.structs.replace(REFERENCE, machine=os.uname().machine, **measured)


def _costs_of(costs: dict[str, CrawlCost], link: LinkCosts) -> dict[str, float]:
    return _cpu_of(costs, link) | _bytes_of(costs)


def _cpu_of(costs: dict[str, CrawlCost], link: LinkCosts) -> dict[str, float]:
    few, many, long, scattered, lone, again = (
        costs[name] for name in ("few", "many", "long", "scattered", "lone", "again")
    )
    fetch = max(0.0, many.cpu - few.cpu) / (many.fetches - few.fetches)  # CPU seconds per fetch of `many`
    host = max(0.0, scattered.cpu - many.cpu - fetch * (scattered.fetches - many.fetches))
    host /= scattered.hosts - many.hosts

    def more(cost: CrawlCost, than: CrawlCost) -> float:
        """Return the difference in CPU seconds of two crawls, without the cost of additional fetches and hosts."""
        return cost.cpu - than.cpu - fetch * (cost.fetches - than.fetches) - host * (cost.hosts - than.hosts)

    kilobyte = max(0.0, more(long, many) / long.fetches) / ((long.page_bytes - many.page_bytes) / KIB)
    start = few.cpu - fetch * few.fetches - host * few.hosts

    asleep = max(0.01, 1.0 - (lone.cpu - start) / lone.seconds)
    unchanged = (again.cpu - start) / again.fetches
    found = {
        "kilobyte_cpu": kilobyte,
        "link_cpu": link.met,
        "form_cpu": link.form,
        "new_cpu": link.new,
        "host_cpu": host,
        "page_cpu": fetch
        - kilobyte * many.page_bytes / KIB
        - link.met * many.links
        - (link.form + link.new) * many.new,
        "lone_cpu": max(0.0, (lone.cpu - start) / lone.fetches - unchanged) / asleep,
        "process_cpu": start,
        "unchanged_cpu": unchanged,
    }
    if "secure" in costs:
        secure, closed = costs["secure"], costs["closed"]
        handshake = max(0.0, more(closed, many)) / closed.handshakes
        found["handshake_cpu"] = handshake
        found["secure_cpu"] = max(0.0, more(secure, long) - handshake * secure.handshakes) / secure.fetches
    return found


def _bytes_of(costs: dict[str, CrawlCost]) -> dict[str, float]:
    few, many, long, packed = costs["few"], costs["many"], costs["long"], costs["packed"]
    body = (long.warc / long.fetches - many.warc / many.fetches) / (long.packed - many.packed)
    more = many.fetches - few.fetches
    capture = many.warc / many.fetches - body * many.packed
    large, untagged = (max(0.0, costs[name].memory - few.memory) for name in ("large", "untagged"))
    return {
        "body_warc": body,
        "coded_warc": (packed.warc / packed.fetches - capture) / packed.packed,
        "capture_warc": capture,
        "page_journal": many.journal / many.fetches - JOURNAL_URLS * many.url_bytes,
        "page_store_log": (many.store - few.store) / more - STORE_URLS * many.url_bytes,
        "page_store": (many.compacted - few.compacted) / more
        - STORE_URLS * STORE_URL_PACKED * many.url_bytes,
        "unchanged_warc": costs["again"].warc / costs["again"].fetches,
        "process_memory": few.memory,
        "large_memory": untagged / LARGE,
        "tag_memory": max(0.0, large - untagged) / (LARGE / TAG_BYTES),
    }


def checks(rounds: list[dict[str, CrawlCost]], units: UnitCosts) -> list[tuple[float, float]]:
    """Return pairs of the predicted and the measured CPU seconds of the crawl `last`, one pair per round."""
    return [(_whole(units, costs["last"]), costs["last"].cpu) for costs in rounds]


def _whole(units: UnitCosts, cost: CrawlCost) -> float:
    goal = Goal(
        pages=cost.fetches, hosts=cost.hosts, page_bytes=cost.page_bytes, links=cost.links, urls=cost.new,
        url_bytes=cost.url_bytes, directories=1.0, handshakes=0.0, secure=0.0,
    )  # fmt: skip
    return units.process_cpu.mid + units.host_cpu.mid * cost.hosts + page_cpu(goal, units).mid * cost.fetches


def _certified(folder: Path) -> bool:
    """Create, in the folder, a certificate for the addresses of the hosts; return False if that failed."""
    try:
        make_chain(folder, [f"IP:127.64.0.{number}" for number in range(1, HOSTS + 1)])
    except (OSError, subprocess.CalledProcessError):
        return False
    return True


def measure(shape: CrawlShape, certificates: Path) -> CrawlCost:
    """Crawl a web of this shape in a separate process and return the cost.

    If the shape has `again`, return the cost of the refreshes.

    Raises:
        CrawlerError: the crawl failed.
    """
    with tempfile.TemporaryDirectory(prefix="crawler-units-") as folder, _served(shape, certificates) as seed:
        directory = Path(folder, "crawl")
        cpu, memory = _crawl(["crawl", seed, "--dir", str(directory)], certificates)
        cost = _cost_of(directory, shape, cpu, memory)
        if not shape.again:
            return cost
        once = ["--rate", str(shape.rate), "--max-pages", str(shape.again), "--set", "refresh.min_age=0"]
        cpu, memory = _crawl(["refresh", "--dir", str(directory), *once], certificates)
        both = _cost_of(directory, shape, cpu, memory)
        return both._replace(fetches=both.fetches - cost.fetches, warc=both.warc - cost.warc)


@contextmanager
def _served(shape: CrawlShape, certificates: Path) -> Iterator[str]:
    """Serve a web of this shape while the context is entered; yield the seed URL."""
    tls = ["--certificate", str(certificates / "leaf.pem")] if shape.secure else []
    serving = subprocess.Popen(
        [sys.executable, "-m", "crawler", "lab", "web", "--plain", "--sitemaps", "0", "--hosts", str(shape.hosts),
         "--latency", "0", "--pages", str(shape.pages), "--padding", str(shape.padding),
         "--links", str(shape.links), *shape.web, *tls],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert serving.stdout is not None
        yield serving.stdout.readline().strip()
    finally:
        serving.terminate()
        serving.communicate()


def _crawl(arguments: list[str], certificates: Path) -> tuple[float, float]:
    """Run a crawl; return its CPU seconds and the peak resident bytes of all its processes."""
    authority = certificates / "ca.pem"
    trust = {"SSL_CERT_FILE": str(authority)} if authority.exists() else {}
    crawling = subprocess.Popen(
        [sys.executable, "-m", "crawler", *arguments, "--scope", "any", "--allow-network", "127.64.0.0/10",
         "--delay", "0", "--delay-factor", "0", "--progress", "none", "-q"],
        env=os.environ | trust,
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
        seconds=report["seconds"],
        handshakes=report["connections"].get("full", 0),
        page_bytes=report["bytes"]["decoded"] / fetches,
        links=report["urls"]["links"] / fetches,
        packed=sum(map(packed, segments)) / fetches,
        url_bytes=sum(len(row["url"]) for row in rows) / fetches,
        new=report["due"]["new"] / fetches,
    )


def packed(segment: Path) -> float:
    """Estimate the gzip size of all bodies in a WARC segment. About `SAMPLE` evenly spaced bodies are compressed."""
    records = (
        parse_record(data) for _, _, data in contents(segment, bytes_max=RECORD_BYTES_MAX) if data is not None
    )
    bodies = [parse_http(record.block).payload for record in records if record.kind == "response"]
    sample = bodies[:: max(1, len(bodies) // SAMPLE)]
    return sum(len(zlib.compress(body)) for body in sample) / max(1, len(sample)) * len(bodies)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


class _Peak(threading.Thread):
    """Samples the resident bytes of a process and its children, and keeps the peak; 0 on systems other than Linux."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid, self.bytes, self.over = pid, 0, threading.Event()

    def run(self) -> None:
        while not self.over.wait(PEAK_EVERY):
            self.bytes = max(self.bytes, memory_below(self._pid))


def _text(cost: CostRange) -> str:
    unit = 1e6 if cost.high < 0.1 else 1.0
    return f"{cost.mid * unit:>14,.1f}   {cost.low * unit:,.1f} to {cost.high * unit:,.1f}{' us' if unit > 1 else ''}"
