"""The plan is arithmetic: exact in cases that can be done by hand, and monotone."""

from pathlib import Path

import msgspec
import pytest

from crawler.bench import plan as command
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
from crawler.bench.units import CrawlCost, CrawlShape, checks, units_of
from crawler.errors import UsageError

UNITS = UnitCosts(
    page_cpu=exactly(0.001),
    kilobyte_cpu=exactly(0.0001),
    link_cpu=exactly(0.00001),
    handshake_cpu=exactly(0.002),
    page_disk=exactly(400.0),
    warc_share=exactly(0.2),
    known_disk=exactly(8.0),
    todo_disk=exactly(80.0),
    process_memory=exactly(100.0),
    host_memory=exactly(90.0),
    refreshed_memory=exactly(10.0),
)
GOAL = Goal(pages=1e6, hosts=1e4, rate=100.0, page_bytes=10 * KIB, links=50.0, urls=3.0, handshakes=0.5)


def test_a_plan_by_hand() -> None:
    found = plan(GOAL, UNITS)
    assert found.page_cpu.mid == pytest.approx(0.001 + 10 * 0.0001 + 50 * 0.00001 + 0.5 * 0.002)
    assert found.rate == 100.0 and found.bottleneck == "the rate asked for"
    assert found.days.mid == pytest.approx(1e6 / 100.0 / DAY)
    assert found.processes.mid == 1.0  # 0.35 cores of which 0.7 are used
    assert found.disk.mid == pytest.approx(1e6 * (400 + 0.2 * 10 * KIB) + 3e6 * 8 + 2e6 * 80)
    assert found.memory.mid == pytest.approx(1e4 * 90 + 100)
    assert found.machines.mid == 1.0 and found.peer_connections == 0


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
    assert narrow.rate == pytest.approx(2 * 1e4 / (10 * KIB * goal.wire_share))


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


def test_units_are_found_again_in_crawls_that_cost_what_they_say() -> None:
    shapes = [CrawlShape(200, 0, 4), *(CrawlShape(1000, 0, 4) for _ in range(3)), CrawlShape(1000, 0, 20)]

    def cost(shape: CrawlShape, page_bytes: float, links: float) -> CrawlCost:
        cpu = 0.5 + shape.pages * page_cpu(UNITS, page_bytes, links, 0.0).mid
        return CrawlCost(cpu, 1e8, 0.2 * shape.pages * page_bytes, 400.0 * shape.pages, page_bytes, links)

    sizes = [(1000.0, 5.0), (1000.0, 5.0), (41_000.0, 5.0), (4000.0, 65.0), (17_000.0, 25.0)]
    rounds = [[cost(shape, *size) for shape, size in zip(shapes, sizes, strict=True)]]
    units = units_of(shapes, rounds)
    for name in ("page_cpu", "kilobyte_cpu", "link_cpu", "page_disk", "warc_share"):
        assert getattr(units, name).mid == pytest.approx(getattr(UNITS, name).mid), name
    for predicted, measured in checks(shapes, rounds, units):
        assert predicted == pytest.approx(measured)


def test_the_command_reads_units_and_prints_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "units.json"
    path.write_bytes(msgspec.json.encode(UNITS))
    assert (
        command.main("plan", ["--pages", "1e6", "--hosts", "1e4", "--rate", "100", "--units", str(path)]) == 0
    )
    assert "bounded by the rate asked for" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["--pages", "0", "--hosts", "1"],
        ["--pages", "nan", "--hosts", "1"],
        ["--pages", "1", "--hosts", "1", "--rate", "-1"],
        ["--pages", "1", "--hosts", "1", "--cores", "0"],
        ["--pages", "1", "--hosts", "1", "--units", "/nowhere"],
        ["--pages", "1", "--hosts", "1", "--units", __file__],
    ],
)
def test_goals_that_cannot_be_are_refused_in_a_line(arguments: list[str]) -> None:
    with pytest.raises(UsageError):
        command.main("plan", arguments)
