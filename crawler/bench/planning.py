"""What a crawl needs, by arithmetic on unit costs: processes, machines, disk, memory, bandwidth, days.

    CPU a page      page + KiB x kilobyte + links x link + TLS handshakes x handshake
    processes       rate x CPU a page / the share of a core that may be used
    rate of hosts   hosts / (answer time + gap): what politeness allows, however many machines there are
    rate            the least of: asked for, hosts, bandwidth, cores
    disk            pages x (WARC + record) + known URLs x DUE + waiting URLs x queue
    memory          processes x base + hosts x row, and known pages x schedule where they are refreshed
    days            pages / rate

Every unit cost is a range, and so are the results. Unit costs are those that `crawler bench units` measured, or
REFERENCE, a sketch.
"""

import math
import statistics

import msgspec

DAY = 86_400.0
KIB, GIB = 1 << 10, 1 << 30
LEAST_GAP = 1.0  # seconds; the least gap behind an answer (`frontier/README.md`, "Politeness")
GAP_FACTOR, GAP_MAX = 10.0, 30.0  # times the answer time; seconds


class CostRange(msgspec.Struct, frozen=True):
    """A cost as it was measured: least, middle, most."""

    low: float
    mid: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> "CostRange":
        """That of some measurements; costs are not negative."""
        ordered = sorted(max(0.0, value) for value in values)
        return cls(ordered[0], statistics.median(ordered), ordered[-1])

    def __mul__(self, factor: float) -> "CostRange":
        return CostRange(self.low * factor, self.mid * factor, self.high * factor)

    def __add__(self, other: "CostRange") -> "CostRange":
        return CostRange(self.low + other.low, self.mid + other.mid, self.high + other.high)


def exactly(value: float) -> CostRange:
    """A cost that is known."""
    return CostRange(value, value, value)


class UnitCosts(msgspec.Struct, frozen=True):
    """CPU in seconds, the others in bytes; `machine` says whose they are."""

    page_cpu: CostRange
    kilobyte_cpu: CostRange
    link_cpu: CostRange
    handshake_cpu: CostRange
    page_disk: CostRange  # record, capture, host's share; without the WARC
    warc_share: CostRange  # bytes of WARC a byte of page
    known_disk: CostRange  # of a known URL in the DUE
    todo_disk: CostRange  # of a URL that waits
    process_memory: CostRange
    host_memory: CostRange
    refreshed_memory: CostRange  # of a known page in the schedule
    machine: str = ""


# A sketch, not a measurement: the CPU of whole crawls divided up by a profile, so that set `mid` adds up (1,851 us a
# page of 28 KiB and some 60 links, of which parsing is 31 %, filter and caches 8 %); ranges are judged.
REFERENCE = UnitCosts(
    page_cpu=CostRange(0.0010, 0.0011, 0.0017),
    kilobyte_cpu=CostRange(16e-6, 20e-6, 30e-6),
    link_cpu=CostRange(2e-6, 2.5e-6, 6e-6),
    handshake_cpu=CostRange(0.0007, 0.0011, 0.0015),  # open web: 29 % of 3,510 us for .94 handshakes a page
    page_disk=CostRange(450.0, 1100.0, 1200.0),  # bench units: 1,097 to 1,101 after a short crawl
    warc_share=CostRange(0.16, 0.18, 0.25),  # isal, level 1: a ratio of 5.6 on a page of 28 kB
    known_disk=CostRange(5.0, 8.0, 16.0),  # coded runs, plain ones, before a merge
    todo_disk=CostRange(60.0, 77.7, 110.0),  # of a URL of 77 characters
    process_memory=CostRange(87e6, 315e6, 500e6),  # a short crawl; the open web over HTTP and over TLS
    host_memory=CostRange(64.0, 90.0, 160.0),
    refreshed_memory=CostRange(62.0, 62.0, 109.0),  # of 1e6 pages: put in; reopened from the store
    machine="a sketch of a reference machine; `crawler bench units` measures yours",
)


class Goal(msgspec.Struct, frozen=True):
    """What is to be crawled. `rate` 0: as fast as it goes on `machines` (then at least 1).

    `handshakes` are TLS handshakes a page, `urls` distinct URLs found a page, `refresh` fetches a second that go to
    known pages besides. `cores`, `memory`, `disk` (bytes) and `bandwidth` (bytes a second) are those of one machine.
    """

    pages: float
    hosts: float
    rate: float = 0.0
    refresh: float = 0.0
    page_bytes: float = 28.0 * KIB
    links: float = 60.0
    urls: float = 10.0
    latency: float = 0.3
    handshakes: float = 0.2
    wire_share: float = 0.25
    cores: int = 8
    memory: float = 32.0 * GIB
    disk: float = 2048.0 * GIB
    bandwidth: float = 125e6
    machines: int = 0
    usable: float = 0.7


class Plan(msgspec.Struct, frozen=True):
    """What it takes; `bottleneck` is what keeps the rate where it is, `days` are those of all pages once."""

    rate: float
    page_cpu: CostRange
    processes: CostRange
    machines: CostRange
    disk: CostRange
    memory: CostRange
    bandwidth: float
    connections: float
    peer_connections: int
    days: CostRange
    bottleneck: str


def page_cpu(units: UnitCosts, page_bytes: float, links: float, handshakes: float) -> CostRange:
    """Seconds of CPU that a page costs."""
    return (
        units.page_cpu
        + units.kilobyte_cpu * (page_bytes / KIB)
        + units.link_cpu * links
        + units.handshake_cpu * handshakes
    )


def host_rate(hosts: float, latency: float) -> float:
    """Pages a second that politeness allows over all hosts."""
    gap = min(max(LEAST_GAP, GAP_FACTOR * latency), GAP_MAX)
    return hosts / (latency + gap)


def plan(goal: Goal, units: UnitCosts) -> Plan:
    """What a crawl takes, and what bounds it."""
    cpu = page_cpu(units, goal.page_bytes, goal.links, goal.handshakes)
    wire = goal.page_bytes * goal.wire_share
    disk, memory = _disk(goal, units), _memory(goal, units)
    bounds = {"hosts: politeness": host_rate(goal.hosts, goal.latency)}
    if goal.rate:
        bounds["the rate asked for"] = goal.rate
    if goal.machines or not goal.rate:
        machines = goal.machines or 1
        bounds["cores"] = machines * goal.cores * goal.usable / cpu.mid
        bounds["bandwidth"] = machines * goal.bandwidth / wire
    bottleneck = min(bounds, key=lambda name: bounds[name])
    rate = bounds[bottleneck]
    whole = rate + goal.refresh
    processes = CostRange(
        *(float(math.ceil(whole * each / goal.usable)) for each in (cpu.low, cpu.mid, cpu.high))
    )
    memory = memory + CostRange(
        *(n * m for n, m in zip(_three(processes), _three(units.process_memory), strict=True))
    )
    needed = CostRange(
        *(
            float(max(math.ceil(n / goal.cores), math.ceil(d / goal.disk), math.ceil(m / goal.memory),
                      math.ceil(whole * wire / goal.bandwidth)))
            for n, d, m in zip(_three(processes), _three(disk), _three(memory), strict=True)
        )
    )  # fmt: skip
    count = int(processes.mid)
    return Plan(
        rate=rate,
        page_cpu=cpu,
        processes=processes,
        machines=exactly(goal.machines) if goal.machines else needed,
        disk=disk,
        memory=memory,
        bandwidth=whole * wire,
        connections=whole * goal.latency * 1.5,
        peer_connections=count * (count - 1),
        days=exactly(goal.pages / rate / DAY),
        bottleneck=bottleneck,
    )


def _three(cost: CostRange) -> tuple[float, float, float]:
    return cost.low, cost.mid, cost.high


def _disk(goal: Goal, units: UnitCosts) -> CostRange:
    known = goal.pages * goal.urls
    waiting = max(0.0, known - goal.pages)
    stored = units.page_disk + units.warc_share * goal.page_bytes
    return stored * goal.pages + units.known_disk * known + units.todo_disk * waiting


def _memory(goal: Goal, units: UnitCosts) -> CostRange:
    refreshed = goal.pages if goal.refresh else 0.0
    return units.host_memory * goal.hosts + units.refreshed_memory * refreshed
