"""Test that plans are monotone, and exact in cases that can be computed by hand."""

import gzip
import math
import tempfile
import zlib
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from crawler.bench import plan as command
from crawler.bench.links import LinkCosts, LinkIntake, link_costs
from crawler.bench.planning import (
    DAY,
    KIB,
    REFERENCE,
    CostRange,
    Goal,
    Plan,
    UnitCosts,
    exactly,
    host_rate,
    idle_share,
    page_cpu,
    plan,
    unformed,
)
from crawler.bench.sample_crawl import facts
from crawler.bench.units import LARGE, PARTS, TAG_BYTES, CrawlCost, checks, packed, shapes, told, units_of
from crawler.clock import VirtualClock
from crawler.config import convert
from crawler.errors import UsageError
from crawler.process.opening.stages import Stages
from tests.end_to_end.web import Web, crawl, page

UNITS = UnitCosts(
    process_cpu=exactly(0.5),
    page_cpu=exactly(0.001),
    kilobyte_cpu=exactly(0.0001),
    link_cpu=exactly(0.00001),
    form_cpu=exactly(0.000005),
    new_cpu=exactly(0.00002),
    host_cpu=exactly(0.003),
    handshake_cpu=exactly(0.002),
    secure_cpu=exactly(0.0004),
    lone_cpu=exactly(0.0015),
    unchanged_cpu=exactly(0.0008),
    page_store=exactly(100.0),
    page_store_log=exactly(400.0),
    page_journal=exactly(150.0),
    capture_warc=exactly(1000.0),
    body_warc=exactly(1.2),
    coded_warc=exactly(1.1),
    unchanged_warc=exactly(900.0),
    known_bits=exactly(2.25),
    todo_disk=exactly(80.0),
    process_memory=exactly(1e8),
    large_memory=exactly(4.0),
    tag_memory=exactly(500.0),
    connection_memory=exactly(6e4),
    host_memory=exactly(90.0),
    refreshed_memory=exactly(10.0),
)
GOAL = Goal(
    pages=1e6, hosts=1e3, rate=100.0, page_bytes=10 * KIB, links=50.0, urls=3.0, directories=100.0,
    coded=0.25, secure=0.5, handshakes=0.5, largest_tags=1e5,
)  # fmt: skip


def planned(**changes: float) -> Plan:
    """Return the plan of `GOAL` with other values of the given fields."""
    return plan(replace(GOAL, **changes), UNITS)


def test_a_plan_equals_one_computed_by_hand() -> None:
    found = planned()
    kept = (24 << 20) / (150 + 2 * 77) / 50  # the number of directories, out of 1e5, that the cache can hold
    forms = 3.0 + 47.0 * (1.0 - kept / 1e5)
    busy = 0.001 + 10 * 0.0001 + 50 * 0.00001 + forms * 0.000005 + 3 * 0.00002 + 0.5 * 0.002 + 0.5 * 0.0004
    page = busy + 0.0015 * (1.0 - 100.0 * busy) / (1.0 + 100.0 * 0.0015)
    assert found.page_cpu.mid == pytest.approx(page)
    assert found.cpu.mid == pytest.approx(1e6 * page + 1e3 * 0.003 + 0.5)
    assert found.rate == 100.0 and found.bottleneck == "the rate asked for"
    assert found.days.mid == pytest.approx(1e6 / 100.0 / DAY)
    assert found.processes.mid == 1.0  # 0.4 cores are needed, and a process may use 0.7
    assert found.warc.mid == pytest.approx(
        1_001_000 * 1000 + 1e6 * (0.25 * 1.1 + 0.75 * 1.2) * 0.2 * 10 * KIB
    )
    log, waiting = 0.5 * (8 << 20), 2e6
    written = 1e6 * (400 + 2 * 77) + waiting * (18 + 77)
    kept = 1e6 * (100 + 2 * 77 * 0.3) + waiting * 80
    store = log + kept * (1 - log / written)
    journal, links_log = 1e6 * (150 + 77), 16 << 20
    assert found.other_disk.mid == pytest.approx(
        store + journal + links_log + 3e6 / 8 * (66.25 - math.log2(3e6))
    )
    assert found.disk.mid == found.warc.mid + found.other_disk.mid
    base = 1e8 + 4 * (10 << 20) + 500 * 1e5 + (24 << 20) + 25_000 * 700 + 1e3 * 1200 + 1e3 * 90
    store_caches = 2 * (8 << 20) + 0.15 * (144 << 20)
    assert found.memory.mid == pytest.approx(base + store_caches + (6e4 + 15e3) / 2 * 1000)
    assert found.machines.mid == 1.0 and found.peer_connections == 0


def test_a_small_crawl_keeps_its_writes_in_the_log() -> None:
    """In larger crawls, the log takes 4 MiB on average, which is half of its maximum of 8 MiB.

    A crawl with more pages never takes less disk space.
    """
    small = replace(GOAL, pages=1000.0, urls=1.0)
    known = (66.25 - math.log2(1000.0)) / 8
    assert plan(small, UNITS).other_disk.mid == pytest.approx(
        1000 * (400 + 2 * 77 + 150 + 77 + known + 30 + 77)
    )
    sizes = [plan(replace(small, pages=1000.0 * 1.1**k), UNITS).other_disk for k in range(60)]
    for less, more in pairwise(sizes):
        assert (less.low, less.mid, less.high) <= (more.low, more.mid, more.high)


def test_refreshes_take_additional_cpu_disk_and_memory() -> None:
    goal = replace(GOAL, refresh=1000.0, changed=0.5)
    found = plan(goal, UNITS)
    refresh = 0.0008 + 0.5 * 0.0004 + 0.5 * (10 * 0.0001 + 50 * 0.00001)
    busy = 100 * page_cpu(goal, UNITS).mid + 1000 * refresh
    assert found.processes.mid == math.ceil(busy / 0.7)
    lone = 0.0015 * idle_share(busy, 1100 * 0.0015, found.processes.mid)
    assert found.refresh_cpu.mid == pytest.approx(refresh + lone)
    assert found.refresh_warc.mid == pytest.approx(
        1000 * DAY * (900 + 0.5 * (0.25 * 1.1 + 0.75 * 1.2) * 0.2 * 10 * KIB)
    )
    assert found.memory.mid > planned().memory.mid + 1e6 * 10


def test_connections_without_tls_take_less_memory() -> None:
    assert planned(secure=0.0).memory.mid < planned().memory.mid


def test_the_time_of_a_process_adds_up() -> None:
    """The time of fetches, the time of waking up (`lone`) and the idle time add up to the whole time.

    Only a process that sleeps has the costs of waking up.
    """
    for busy, lone, processes in ((0.1, 0.3, 1.0), (2.0, 5.0, 3.0), (0.7, 0.01, 1.0)):
        idle = idle_share(busy, lone, processes)
        assert busy + lone * idle + processes * idle == pytest.approx(processes)
    assert idle_share(1.0, 0.5, 1.0) == 0.0
    full = planned(rate=0.0, hosts=1e6, machines=1, cores=1, usable=1.0)
    assert full.page_cpu.mid == pytest.approx(page_cpu(replace(GOAL, hosts=1e6), UNITS).mid)
    slow = planned(rate=0.01)
    assert slow.page_cpu.mid == pytest.approx(page_cpu(GOAL, UNITS).mid + 0.0015, rel=1e-3)


def test_links_on_the_first_page_of_a_directory_miss_the_form_cache() -> None:
    def links_without(directories: float, hosts: float) -> float:
        return unformed(replace(GOAL, directories=directories, hosts=hosts, pages=1000.0))

    assert links_without(1.0, 10.0) == pytest.approx(3.0 + 47.0 / 100)
    assert links_without(1000.0, 10.0) == 50.0
    assert unformed(replace(GOAL, links=2.0)) == 3.0


def test_linked_hosts_take_memory() -> None:
    less, more = (planned(known_hosts=known) for known in (0.0, 3e3))
    assert more.memory.mid - less.memory.mid == pytest.approx(2e3 * (1200 + 90))


def test_compressed_bodies_are_costed_as_compressed() -> None:
    none, all_ = (planned(coded=share) for share in (0.0, 1.0))
    assert none.warc.mid - all_.warc.mid == pytest.approx(1e6 * 0.1 * 0.2 * 10 * KIB)
    assert none.bandwidth > all_.bandwidth


def test_the_cost_of_the_largest_page_grows_with_bytes_and_tags_up_to_their_limits() -> None:
    def memory(size: float, tags: float) -> float:
        return planned(largest_bytes=size, largest_tags=tags).memory.mid

    assert memory(2e6, 0.0) - memory(1e6, 0.0) == pytest.approx(4e6)
    assert memory(1e6, 2e4) - memory(1e6, 1e4) == pytest.approx(5e6)
    assert memory(1e9, 1e9) == memory(10 << 20, 200_000)


def test_politeness_bounds_a_crawl_of_few_hosts() -> None:
    """With a delay of 3 s after an answer of 0.3 s, a host delivers one page every 3.3 s."""

    def rate(latency: float, **how: float) -> float:
        return host_rate(replace(GOAL, hosts=33.0, latency=latency, **how))

    assert rate(0.3) == pytest.approx(10.0)
    assert rate(0.01) == pytest.approx(33.0 / 1.01)
    assert rate(10.0) == pytest.approx(33.0 / 40.0)
    assert rate(0.5, delay=0.0, delay_factor=0.0) == pytest.approx(66.0)
    assert rate(0.0, delay=0.0, delay_factor=0.0) == math.inf
    found = planned(hosts=33.0)
    assert found.bottleneck == "hosts: politeness" and found.rate == pytest.approx(10.0)


def test_a_given_number_of_machines_bounds_the_rate_by_cores_or_bandwidth() -> None:
    goal = replace(GOAL, rate=0.0, machines=2, cores=4, hosts=1e9)
    found = plan(goal, UNITS)
    assert found.bottleneck == "cores" and found.rate == pytest.approx(
        2 * 4 * 0.7 / page_cpu(goal, UNITS).mid
    )
    narrow = plan(replace(goal, bandwidth=1e4), UNITS)
    assert narrow.bottleneck == "bandwidth"
    assert narrow.rate == pytest.approx(2 * 1e4 / (10 * KIB * (0.25 * 0.2 + 0.75) + 1000))


@pytest.mark.parametrize("field", ["pages", "links", "urls", "page_bytes", "directories"])
def test_raising_any_goal_never_lowers_a_cost(field: str) -> None:
    goal = replace(GOAL, rate=1000.0, hosts=1e6)
    less = plan(goal, REFERENCE)
    more = plan(replace(goal, **{field: 10 * getattr(goal, field)}), REFERENCE)
    for name in ("processes", "disk", "memory", "machines"):
        a, b = getattr(less, name), getattr(more, name)
        assert (a.low, a.mid, a.high) <= (b.low, b.mid, b.high), name


def test_ranges_stay_in_order() -> None:
    found = plan(GOAL, REFERENCE)
    for name in ("page_cpu", "processes", "machines", "disk", "memory"):
        cost = getattr(found, name)
        assert cost.low <= cost.mid <= cost.high, name
    assert CostRange.of([3.0, -1.0, 2.0]) == CostRange(0.0, 2.0, 3.0)


def test_fitting_recovers_the_units_of_simulated_crawls() -> None:
    def cost(
        fetches: float, hosts: float, size: float, links: float, *, packed: float = 1.2, more: float = 0.0
    ) -> CrawlCost:
        goal = replace(
            GOAL, pages=fetches, hosts=hosts, page_bytes=size, links=links, urls=1.0, directories=1.0,
            handshakes=0.0, secure=0.0,
        )  # fmt: skip
        # in this crawl no directory is new
        page = page_cpu(goal, UNITS).mid - 0.000005 * (unformed(goal) - 1.0)
        return CrawlCost(
            cpu=0.5 + hosts * 0.003 + fetches * page + more,
            memory=1e8,
            warc=fetches * (1000 + packed * 0.25 * size),
            journal=fetches * (150 + 30),
            store=5000 + fetches * (400 + 2 * 30),
            compacted=3000 + fetches * (100 + 0.6 * 30),
            fetches=fetches,
            hosts=hosts,
            seconds=10.0,
            handshakes=0.0,
            page_bytes=size,
            links=links,
            packed=0.25 * size,
            url_bytes=30.0,
            new=1.0,
        )

    again = cost(500, 50, 1000, 5)._replace(cpu=0.5 + 500 * 0.0008, warc=500 * 900.0)
    large, untagged_memory = cost(10, 2, 600_000, 5), 1e8 + 4.0 * LARGE
    lone_cpu = 500 * (0.0008 + 0.0015 * 0.75)  # the process is busy a quarter of the time
    costs = {
        "few": cost(200, 50, 1000, 5),
        "many": cost(1000, 50, 1000, 5),
        "long": cost(1000, 50, 101_000, 5),
        "packed": cost(500, 50, 101_000, 5, packed=1.1),
        "secure": cost(1000, 50, 101_000, 5, more=50 * 0.002 + 1000 * 0.0004)._replace(handshakes=50.0),
        "closed": cost(1000, 50, 1000, 5, more=1050 * 0.002)._replace(handshakes=1050.0),
        "scattered": cost(1100, 500, 1000, 5),
        "large": large._replace(memory=untagged_memory + 500.0 * LARGE / TAG_BYTES),
        "untagged": large._replace(memory=untagged_memory),
        "again": again,
        "lone": again._replace(cpu=0.5 + lone_cpu, seconds=4 * lone_cpu),
        "last": cost(1000, 50, 17_000, 25),
    }
    assert costs.keys() == shapes(1000).keys()
    links = LinkCosts(UNITS.link_cpu.mid, UNITS.form_cpu.mid, UNITS.new_cpu.mid)
    partly = {name: getattr(UNITS, name).mid for name in PARTS}
    units = units_of([costs], [links], [partly])
    copied = {line.split()[0] for line in told(units).splitlines() if line.endswith("(reference)")}
    assert copied == {"connection_memory", "render_cpu", "browser_memory"}
    for name in set(units.__struct_fields__) - copied - {"machine"}:
        assert getattr(units, name).mid == pytest.approx(getattr(UNITS, name).mid), name
    for predicted, measured in checks([costs], units):
        assert predicted == pytest.approx(measured, rel=0.01)
    without = {name: cost for name, cost in costs.items() if name not in ("secure", "closed")}
    assert units_of([without], [links]).secure_cpu == REFERENCE.secure_cpu


def test_a_disturbed_round_only_widens_the_range() -> None:
    cost = CrawlCost(*[1000.0] * len(CrawlCost._fields))
    few = cost._replace(fetches=100.0, cpu=100.0, store=1.0, compacted=1.0, packed=1.0, page_bytes=1.0)
    long = cost._replace(packed=2000.0, page_bytes=2000.0)
    costs = dict.fromkeys(shapes(1000), cost) | {
        "few": few,
        "long": long,
        "scattered": cost._replace(hosts=9e3),
    }
    disturbed = costs | {"many": cost._replace(cpu=9000.0)}
    links = LinkCosts(0.0, 0.0, 0.0)
    calm, units = units_of([costs], [links]), units_of([costs, disturbed, costs], [links] * 3)
    assert units.page_cpu.mid == calm.page_cpu.mid < units.page_cpu.high


def test_links_that_miss_the_caches_cost_more() -> None:
    """New links are written once. Links that are in a cache are not written again."""
    config = convert({"crawl": {"scope": "any"}})
    pages = [(f"https://a.example/{page}/", [f"{page}-{k}.html" for k in range(5)]) for page in range(4)]
    with tempfile.TemporaryDirectory() as folder:
        stages = Stages(config, Path(folder, "p0"), bytes(16), clock=VirtualClock(1e9))
        with closing(stages):
            intake = LinkIntake(stages)
            intake.commit([intake.take(*page) for page in pages])
            assert stages.due.new == 20 and stages.due.known == 0
            intake.forget_forms()
            assert not any(intake.take(*page).links for page in pages)
            assert stages.due.pending == 0
    assert all(cost >= 0.0 for cost in link_costs())


def test_bodies_of_a_segment_are_compressed_one_by_one(tmp_path: Path) -> None:
    """Records of other kinds do not count. Seven bodies take seven times the compressed size of one body."""

    def segment(*kinds: str) -> Path:
        block = b"HTTP/1.1 200 OK\r\n\r\n" + bytes(9000)
        heads = (f"WARC/1.1\r\nWARC-Type: {kind}\r\nContent-Length: {len(block)}\r\n\r\n" for kind in kinds)
        path = tmp_path / "segment.warc.gz"
        path.write_bytes(b"".join(gzip.compress(head.encode() + block + b"\r\n\r\n") for head in heads))
        return path

    seven = segment("warcinfo", *["response", "request"] * 7)
    assert packed(seven) == pytest.approx(7 * len(zlib.compress(bytes(9000))))
    assert packed(segment("revisit")) == 0.0


def test_the_command_reads_units_and_prints_a_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "units.json"
    path.write_bytes(msgspec.json.encode(UNITS))
    options = ["--pages", "1e6", "--hosts", "1e4", "--rate", "100", "--units", str(path)]
    assert command.main("plan", options) == 0
    found = capsys.readouterr().out
    assert "bounded by the rate asked for" in found
    assert (
        "28 KiB (the largest 10,240), compressed to 20%, 80% sent compressed; 60 links, 10 new URLs of 77 characters"
        in found
    )


def told_by(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, str]:
    """Return the rows that the command prints."""
    assert command.main("plan", list(arguments)) == 0
    lines = capsys.readouterr().out.splitlines()
    return {line[:18].strip(): line[18:] for line in lines}


def test_the_largest_host_bounds_the_rate() -> None:
    """At 1.1 s per page, 1,000 hosts allow 1,000 / 1.1 pages/s, but only 20 / 1.1 if one host has 5 % of the pages."""
    goal = replace(GOAL, rate=300.0, latency=0.1, delay=1.0)
    assert plan(goal, UNITS).rate == 300.0
    skewed = plan(replace(goal, largest_host=0.05), UNITS)
    assert skewed.rate == pytest.approx(20 / 1.1)
    assert skewed.bottleneck == "the largest host: politeness"
    assert skewed.days.mid * DAY == pytest.approx(1e6 * 0.05 * 1.1)
    for share in (0.0, 0.0005, 0.001):
        even = plan(replace(goal, rate=1e6, largest_host=share), UNITS)
        assert even.bottleneck == "hosts: politeness" and even.rate == pytest.approx(host_rate(goal))


def test_shared_addresses_bound_the_rate() -> None:
    """An address takes a request every 0.6 s.

    An address with 200 hosts counts as a CDN, and takes 16 requests a second.
    """
    goal = replace(GOAL, pages=9000.0, hosts=1000.0, rate=1e6, latency=0.1, delay=1.0)
    shared = plan(replace(goal, addresses=100.0), UNITS)
    assert shared.bottleneck == "addresses that hosts share: politeness"
    assert shared.rate == pytest.approx(0.9 * 100 / 0.6)
    assert plan(replace(goal, addresses=5.0), UNITS).rate == pytest.approx(0.9 * 5 * 16)
    for addresses in (0.0, 1000.0, 5000.0):
        assert plan(replace(goal, addresses=addresses), UNITS).rate == plan(goal, UNITS).rate


@pytest.mark.parametrize(
    ("arguments", "row", "says"),
    [
        (("--pages", "300", "--hosts", "3"), "time", "5.50 minutes"),
        (("--pages", "1", "--hosts", "1"), "time", "3.30 s"),
        (("--pages", "1e5", "--hosts", "3"), "time", "1.27 days"),
        (("--pages", "1e4", "--hosts", "3"), "time", "3.06 hours"),
        (("--pages", "300", "--hosts", "3"), "bandwidth", "82 kbit/s"),
        (("--pages", "300", "--hosts", "3"), "connections", "1 to hosts, 0 between processes"),
        (("--pages", "300", "--hosts", "3"), "refresh WARC", "none"),
    ],
)
def test_plans_of_small_crawls_use_small_units(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], row: str, says: str
) -> None:
    rows = told_by(capsys, *arguments)
    assert rows[row] == says
    assert not [name for name, text in rows.items() if text.startswith(("0 ", "0.0 ", "0.00 "))], rows


def test_a_sample_crawl_supplies_the_inputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Arguments on the command line override values from the sample."""
    with Web({"/robots.txt": (404, {}, "")}) as web:
        for host, pages in (("a", 30), ("b", 10)):
            links = [f"/d{n % 2}/{n}" for n in range(1, pages)]
            web.routes[f"{host}.localhost/"] = page(*links, text="words " * 500)
            for link in links:
                web.routes[f"{host}.localhost{link}"] = page(text=f"{link} " * 500)
        sample = tmp_path / "sample"
        crawl(sample, web.url("/", "a.localhost"), web.url("/", "b.localhost"))
        found = facts(sample)
    assert (found["hosts"], found["largest_host"], found["secure"]) == (2.0, 0.75, 0.0)
    assert found["directories"] == 3.0 and found["delay"] == found["delay_factor"] == 0.0
    assert (
        5.0 < found["page_size"] < 8.0
        and found["urls"] == 1.0
        and found["links"] == pytest.approx(38 / 40, 0.1)
    )
    assert 0.0 < found["latency"] < 5.0 and found["coded"] == 0.0
    rows = told_by(capsys, "--pages", "1000", "--sample", str(sample), "--latency", "0.5", "--delay", "1.5")
    assert rows["pages per second"] == "0.7, bounded by the largest host: politeness"
    assert (
        "the largest host has 75.00% of the pages" in rows["a page"]
        and "; 0.5 s, 0% over TLS" in rows["a page"]
    )
    with pytest.raises(UsageError, match="not a crawl directory"):
        facts(tmp_path)


def test_a_sample_that_was_cut_off_counts_the_urls_that_wait(tmp_path: Path) -> None:
    """A sample fetches equally many pages of all hosts, however large they are."""
    with Web({"/robots.txt": (404, {}, "")}) as web:
        for number in range(4):
            links = [f"/{n}" for n in range(1, 60 if number == 0 else 5)]
            web.routes[f"h{number}.localhost/"] = page(*links)
        seeds = [web.url("/", f"h{number}.localhost") for number in range(4)]
        crawl(tmp_path / "sample", *seeds, "--max-pages", 8, "--delay", 0.01)
    found = facts(tmp_path / "sample")
    assert found["largest_host"] == pytest.approx(60 / 75, 0.1)
    assert found["addresses"] == 1.0, "all names lead to 127.0.0.1"


def test_a_sample_of_several_runs_has_the_addresses_of_all_its_hosts(tmp_path: Path) -> None:
    """The report of the last run counts only the addresses of the few hosts that this run requested."""
    with Web({"/robots.txt": (404, {}, "")}, address="0.0.0.0") as web:
        hosts = [f"127.0.0.{number}" for number in range(1, 7)]
        for host in hosts:
            web.routes[f"{host}/"] = page()
        crawl(tmp_path / "sample", *(web.url("/", host) for host in hosts), "--delay", 0.01)
        assert facts(tmp_path / "sample")["addresses"] == 6.0
        web.routes[f"{hosts[0]}/more"] = page()
        crawl(tmp_path / "sample", web.url("/more", hosts[0]), "--delay", 0.01)
    assert facts(tmp_path / "sample")["addresses"] == facts(tmp_path / "sample")["hosts"] == 6.0


@pytest.mark.parametrize(
    "arguments",
    [
        ["--pages", "1"],
        ["--pages", "1", "--hosts", "1", "--largest-host", "1.5"],
        ["--pages", "1", "--sample", "/nowhere"],
        ["--pages", "0", "--hosts", "1"],
        ["--pages", "nan", "--hosts", "1"],
        ["--pages", "1", "--hosts", "1", "--rate", "-1"],
        ["--pages", "1", "--hosts", "1", "--cores", "0"],
        ["--pages", "1", "--hosts", "1", "--compressed", "1.2"],
        ["--pages", "1", "--hosts", "1", "--changed", "20"],
        ["--pages", "1", "--hosts", "1", "--secure", "1.5"],
        ["--pages", "1", "--hosts", "1", "--usable", "0"],
        ["--pages", "1", "--hosts", "1", "--units", "/nowhere"],
        ["--pages", "1", "--hosts", "1", "--units", __file__],
    ],
)
def test_impossible_goals_are_rejected_with_one_line(arguments: list[str]) -> None:
    with pytest.raises(UsageError):
        command.main("plan", arguments)


def test_rendering_costs_are_those_of_the_rendered_share() -> None:
    """The costs of rendering are the differences in CPU, cores and memory from the same crawl without a browser."""
    goal = Goal(pages=1e6, hosts=5e4, rate=50.0)

    def costs(**changes: float) -> Plan:
        return plan(replace(goal, **changes), REFERENCE)

    without, half = costs(), costs(rendered=0.5)
    assert half.cpu.mid - without.cpu.mid == pytest.approx(0.5e6 * REFERENCE.render_cpu.mid)
    assert half.render_cores.mid == pytest.approx(50.0 * 0.5 * REFERENCE.render_cpu.mid / goal.usable)
    assert half.memory.mid - without.memory.mid == pytest.approx(
        REFERENCE.browser_memory.mid * half.processes.mid
    )
    assert costs(rendered=0.5, render_cpu=0.4).cpu.mid > half.cpu.mid
    bound = [costs(rate=0.0, machines=1, rendered=share) for share in (0.0, 0.5)]
    assert bound[1].bottleneck == "cores" and bound[1].rate < bound[0].rate
    tenth = replace(goal, rendered=0.1)
    assert "10.0% of the pages" in command.told(plan(tenth, REFERENCE), tenth, REFERENCE)
    assert "rendering" not in command.told(without, goal, REFERENCE)
