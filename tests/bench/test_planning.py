"""The plan is arithmetic: exact in cases that can be done by hand, and monotone."""

import gzip
import math
import os
import subprocess
import sys
import zlib
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from crawler.bench import plan as command
from crawler.bench import units as units_module
from crawler.bench.planning import (
    DAY,
    KIB,
    REFERENCE,
    CostRange,
    Goal,
    UnitCosts,
    exactly,
    host_rate,
    page_cpu,
    plan,
)
from crawler.bench.units import LARGE, MEASURED, CrawlCost, checks, packed, resident, shapes, units_of
from crawler.errors import UsageError

UNITS = UnitCosts(
    process_cpu=exactly(0.5),
    page_cpu=exactly(0.001),
    kilobyte_cpu=exactly(0.0001),
    link_cpu=exactly(0.00001),
    new_cpu=exactly(0.00002),
    host_cpu=exactly(0.003),
    handshake_cpu=exactly(0.002),
    unchanged_cpu=exactly(0.0008),
    page_store=exactly(100.0),
    page_store_log=exactly(400.0),
    page_journal=exactly(150.0),
    capture_warc=exactly(1000.0),
    body_warc=exactly(1.2),
    unchanged_warc=exactly(900.0),
    known_disk=exactly(8.0),
    todo_disk=exactly(80.0),
    process_memory=exactly(1e8),
    large_memory=exactly(10.0),
    connection_memory=exactly(6e4),
    host_memory=exactly(90.0),
    refreshed_memory=exactly(10.0),
)
GOAL = Goal(pages=1e6, hosts=1e4, rate=100.0, page_bytes=10 * KIB, links=50.0, urls=3.0, handshakes=0.5)


def test_a_plan_by_hand() -> None:
    found = plan(GOAL, UNITS)
    page = 0.001 + 10 * 0.0001 + 50 * 0.00001 + 2 * 0.00002 + 0.5 * 0.002
    assert found.page_cpu.mid == pytest.approx(page)
    assert found.cpu.mid == pytest.approx(1e6 * page + 1e4 * 0.003 + 0.5)
    assert found.rate == 100.0 and found.bottleneck == "the rate asked for"
    assert found.days.mid == pytest.approx(1e6 / 100.0 / DAY)
    assert found.processes.mid == 1.0  # 0.35 cores of which 0.7 are used
    assert found.warc.mid == pytest.approx(1e6 * (1000 + 1.2 * 0.2 * 10 * KIB))
    log, written, kept = 0.5 * (8 << 20), 1e6 * (400 + 2 * 77), 1e6 * (100 + 2 * 77 * 0.3)
    store = log + kept * (1 - log / written)
    journal, links_log = 1e6 * (150 + 77), 16 << 20
    assert found.other_disk.mid == pytest.approx(store + journal + links_log + 3e6 * 8 + 2e6 * 80)
    assert found.disk.mid == found.warc.mid + found.other_disk.mid
    base = 1e8 + 10 * (10 << 20) + (24 << 20) + 25_000 * 700 + 1e4 * 1200 + 1e4 * 90
    store_caches = 2 * (8 << 20) + 0.15 * (144 << 20)
    assert found.memory.mid == pytest.approx(base + store_caches + 6e4 * (3000 + 100 * 0.3 * 1.5))
    assert found.machines.mid == 1.0 and found.peer_connections == 0


def test_a_small_crawl_keeps_what_it_wrote_in_the_log() -> None:
    """Half of 8 MiB, on average; more pages never take less disk where that ends."""
    small = msgspec.structs.replace(GOAL, pages=1000.0, urls=1.0)
    assert plan(small, UNITS).other_disk.mid == pytest.approx(1000 * (400 + 2 * 77 + 150 + 77 + 8 + 30 + 77))
    sizes = [plan(msgspec.structs.replace(small, pages=1000.0 * 1.1**k), UNITS).other_disk for k in range(60)]
    for less, more in pairwise(sizes):
        assert (less.low, less.mid, less.high) <= (more.low, more.mid, more.high)


def test_refreshes_take_cpu_disk_and_memory_besides() -> None:
    goal = msgspec.structs.replace(GOAL, refresh=1000.0, changed=0.5)
    found = plan(goal, UNITS)
    assert found.refresh_cpu.mid == pytest.approx(0.0008 + 0.5 * (10 * 0.0001 + 50 * 0.00001))
    load = 100 * found.page_cpu.mid + 1000 * found.refresh_cpu.mid
    assert found.processes.mid == math.ceil(load / 0.7)
    assert found.refresh_warc.mid == pytest.approx(1000 * DAY * (900 + 0.5 * 1.2 * 0.2 * 10 * KIB))
    assert found.memory.mid > plan(GOAL, UNITS).memory.mid + 1e6 * 10


def test_connections_without_tls_take_less_memory() -> None:
    assert (
        plan(msgspec.structs.replace(GOAL, handshakes=0.0), UNITS).memory.mid < plan(GOAL, UNITS).memory.mid
    )


def test_politeness_bounds_a_crawl_of_few_hosts() -> None:
    """3 s behind an answer of 0.3 s: a host gives a page in 3.3 s."""
    assert host_rate(33.0, 0.3) == pytest.approx(10.0)
    assert host_rate(33.0, 0.01) == pytest.approx(33.0 / 1.01)
    assert host_rate(33.0, 10.0) == pytest.approx(33.0 / 40.0)
    found = plan(msgspec.structs.replace(GOAL, hosts=33.0), UNITS)
    assert found.bottleneck == "hosts: politeness" and found.rate == pytest.approx(10.0)


def test_machines_that_are_given_bound_the_rate_by_cores_or_bandwidth() -> None:
    goal = msgspec.structs.replace(GOAL, rate=0.0, machines=2, cores=4, hosts=1e9)
    found = plan(goal, UNITS)
    assert found.bottleneck == "cores" and found.rate == pytest.approx(2 * 4 * 0.7 / found.page_cpu.mid)
    narrow = plan(msgspec.structs.replace(goal, bandwidth=1e4), UNITS)
    assert narrow.bottleneck == "bandwidth"
    assert narrow.rate == pytest.approx(2 * 1e4 / (10 * KIB * 0.2 + 1000))


@pytest.mark.parametrize("field", ["pages", "links", "urls", "page_bytes"])
def test_more_of_anything_takes_no_less(field: str) -> None:
    goal = msgspec.structs.replace(GOAL, rate=1000.0, hosts=1e6)
    less = plan(goal, REFERENCE)
    more = plan(msgspec.structs.replace(goal, **{field: 10 * getattr(goal, field)}), REFERENCE)
    for name in ("processes", "disk", "memory", "machines"):
        a, b = getattr(less, name), getattr(more, name)
        assert (a.low, a.mid, a.high) <= (b.low, b.mid, b.high), name


def test_ranges_stay_in_order() -> None:
    found = plan(GOAL, REFERENCE)
    for name in ("page_cpu", "processes", "machines", "disk", "memory"):
        cost = getattr(found, name)
        assert cost.low <= cost.mid <= cost.high, name
    assert CostRange.of([3.0, -1.0, 2.0]) == CostRange(0.0, 2.0, 3.0)


def test_units_are_found_again_in_crawls_that_cost_what_they_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units_module, "met_link_cpu", lambda: UNITS.link_cpu.mid)

    def cost(
        fetches: float, hosts: float, size: float, links: float, memory: float = 1e8, new: float = 1.0
    ) -> CrawlCost:
        cpu = 0.5 + hosts * 0.003 + fetches * page_cpu(UNITS, size, links, 0.0, new).mid
        return CrawlCost(
            cpu=cpu,
            memory=memory,
            warc=fetches * (1000 + 1.2 * 0.25 * size),
            journal=fetches * (150 + 30),
            store=5000 + fetches * (400 + 2 * 30),
            compacted=3000 + fetches * (100 + 0.6 * 30),
            fetches=fetches,
            hosts=hosts,
            page_bytes=size,
            links=links,
            packed=0.25 * size,
            url_bytes=30.0,
            new=new,
        )

    costs = {
        "few": cost(200, 50, 1000, 5),
        "many": cost(1000, 50, 1000, 5),
        "long": cost(1000, 50, 41_000, 5),
        "found": cost(1100, 50, 4000, 60, new=40.0),
        "scattered": cost(1100, 500, 1000, 5),
        "large": cost(10, 2, 600_000, 5, memory=1e8 + 10.0 * LARGE),
        "again": cost(500, 50, 1000, 5)._replace(cpu=0.5 + 500 * 0.0008, warc=500 * 900.0),
        "last": cost(1000, 50, 17_000, 25),
    }
    assert costs.keys() == shapes(1000).keys()
    units = units_of([costs])
    for name in MEASURED:
        if name != "handshake_cpu":
            assert getattr(units, name).mid == pytest.approx(getattr(UNITS, name).mid), name
    for predicted, measured in checks([costs], units):
        assert predicted == pytest.approx(measured)


def test_bodies_of_a_segment_are_packed_one_by_one() -> None:
    """Records of other kinds do not count; 7 bodies take 7 times what one does."""

    def member(kind: str, body: bytes) -> bytes:
        head = f"WARC/1.1\r\nWARC-Type: {kind}\r\n\r\n".encode()
        return gzip.compress(head + b"HTTP/1.1 200 OK\r\n\r\n" + body + b"\r\n\r\n")

    segment = b"".join(member(kind, bytes(9000)) for kind in ["warcinfo", *["response", "request"] * 7])
    assert packed(segment) == pytest.approx(7 * len(zlib.compress(bytes(9000))))
    assert packed(member("revisit", b"")) == 0.0


def test_memory_of_a_process_counts_its_children() -> None:
    before = resident(os.getpid())
    assert before > 10 << 20
    code = "held = b'x' * (80 << 20); print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None and child.stdout.readline()
        assert resident(child.pid) > 70 << 20
        assert resident(os.getpid()) > before + (60 << 20)
        child.communicate(b"\n")
    assert resident(child.pid) == 0


def test_the_command_reads_units_and_prints_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "units.json"
    path.write_bytes(msgspec.json.encode(UNITS))
    assert (
        command.main("plan", ["--pages", "1e6", "--hosts", "1e4", "--rate", "100", "--units", str(path)]) == 0
    )
    found = capsys.readouterr().out
    assert "bounded by the rate asked for" in found
    assert "28 KiB (the largest 10,240), packed to 20%; 60 links, 10 new URLs of 77 characters" in found


@pytest.mark.parametrize(
    "arguments",
    [
        ["--pages", "0", "--hosts", "1"],
        ["--pages", "nan", "--hosts", "1"],
        ["--pages", "1", "--hosts", "1", "--rate", "-1"],
        ["--pages", "1", "--hosts", "1", "--cores", "0"],
        ["--pages", "1", "--hosts", "1", "--compressed", "1.2"],
        ["--pages", "1", "--hosts", "1", "--changed", "20"],
        ["--pages", "1", "--hosts", "1", "--units", "/nowhere"],
        ["--pages", "1", "--hosts", "1", "--units", __file__],
    ],
)
def test_goals_that_cannot_be_are_refused_in_a_line(arguments: list[str]) -> None:
    with pytest.raises(UsageError):
        command.main("plan", arguments)
