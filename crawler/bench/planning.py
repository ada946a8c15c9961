"""Computes the resources of a crawl from unit costs: processes, machines, disk, memory, bandwidth, days.

    CPU             processes x start + hosts x host + pages x CPU per page
    CPU per page    page + KiB x kilobyte + links x link + unformed links x form + new URLs x new
                    + TLS handshakes x handshake + TLS fetches x secure + idle share x lone
    CPU per refresh   the cost of an unchanged page, plus KiB and links of changed pages, plus idle share x lone
    unformed links  new URLs, and on the first page of a directory all other links: they miss the memo
    idle share      the part of a process's time in which it sleeps. The same share of the fetches finds the loop
                    asleep and shares neither its turn nor its commit with another fetch
    processes       rate x CPU per page without the idle share / the usable share of a core
    rate of hosts   hosts / (answer time + gap): the limit by politeness, however many machines there are
    rate of a host  1 / (answer time + gap): the largest host ends last, if its share of the pages is above average
                    (a request for robots.txt comes before these, but no gap follows the last page)
    of addresses    addresses / (answer time + gap of an address), if hosts share addresses; requests for
                    robots.txt count
    rendering       share of the pages that a browser shows x CPU of a rendering; it runs beside the processes
    rate            the least of: requested, hosts, addresses, the largest host's rate / its share of the pages,
                    bandwidth, cores
    WARC            (pages + hosts, for robots.txt) x capture + pages x KiB, as compressed by gzip, x the ratio of
                    the WARC's compression to gzip, which differs for bodies sent compressed
    disk            WARC + pages x (line of the journal + store) + known URLs x (DUE + links log) + waiting URLs x queue
    memory          processes x (base + tree + the largest page in a child + caches as far as they fill + connections)
                    + hosts x row, known pages x schedule if they are refreshed, and a browser a process if it renders
    days            pages / rate

Every fetch counts as a page, whatever the status of the answer. A web is described by the properties of its
mean page (KiB, compressed share, links, distinct new URLs, length of a URL), and a machine by its unit costs.
Each unit cost is a range, so the computed resources are ranges, too. Unit costs are either measured by
`crawler bench units`, or those of REFERENCE, which are estimates. Where a setting of the crawler limits a
quantity, the plan assumes the default of this setting. `TABLES_RESIDENT`, `NAME_BYTES`, `MEMO_ENTRY`,
`PLAIN_CONNECTION` and `LINK_BYTES` are estimates, not measurements.
"""

import math
import operator
import statistics
from collections.abc import Callable

import msgspec

from crawler.config import Config

DAY = 86_400.0
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
HEADER_BYTES = 1_000.0  # bytes that the headers of request and answer take together on the wire
_DEFAULT = Config()


class CostRange(msgspec.Struct, frozen=True):
    """The range of a measured cost: its least, middle and greatest value."""

    low: float
    mid: float
    high: float

    @classmethod
    def of(cls, values: list[float]) -> "CostRange":
        """Return the range of some measurements; negative values count as 0."""
        ordered = sorted(max(0.0, value) for value in values)
        return cls(ordered[0], statistics.median(ordered), ordered[-1])

    def __mul__(self, factor: float) -> "CostRange":
        return CostRange(self.low * factor, self.mid * factor, self.high * factor)

    def __add__(self, other: "CostRange") -> "CostRange":
        return CostRange(self.low + other.low, self.mid + other.mid, self.high + other.high)


def exactly(value: float) -> CostRange:
    """Return a range whose three values are all `value`, for a cost that is known exactly."""
    return CostRange(value, value, value)


class UnitCosts(msgspec.Struct, frozen=True):
    """The unit costs of a machine: CPU costs in seconds, all others in bytes. `machine` is the machine's name."""

    process_cpu: CostRange  # CPU time to start and end a process
    page_cpu: CostRange
    kilobyte_cpu: CostRange
    link_cpu: CostRange  # a link that was also on an earlier page of the directory
    # additional cost of a link that was on no earlier page: its canonical form, its fingerprint and the filter
    form_cpu: CostRange
    new_cpu: CostRange  # additional cost of a new link, for the DUE, the queue and their commits
    host_cpu: CostRange  # cost of a new host, for its connection, robots.txt and record
    handshake_cpu: CostRange  # cost of a new TLS connection: connecting and a full handshake
    secure_cpu: CostRange  # additional cost of a fetch over TLS, without the handshake
    # additional cost of a fetch before which the event loop slept: waking up, turns of the loop, and a commit
    lone_cpu: CostRange
    unchanged_cpu: CostRange  # the refresh of a known page that has not changed
    page_store: CostRange  # bytes of a page's record, capture and entry in a compacted store, without its URL
    page_store_log: CostRange  # bytes of a page's record, capture and entry before compaction
    page_journal: CostRange  # a page's line in pages.jsonl, without its URL
    capture_warc: CostRange  # bytes of the WARC records of a fetch, without those of the fetched body
    body_warc: CostRange  # bytes of WARC per byte that a body has after compression by gzip (level 6)
    coded_warc: CostRange  # bytes of WARC per byte of a body that the server sends compressed
    unchanged_warc: CostRange  # bytes of the WARC records of a revisit
    # bits per known URL in the DUE; log2 of the mean gap between fingerprints is not counted
    known_bits: CostRange
    todo_disk: CostRange  # bytes per waiting URL of 77 characters
    process_memory: CostRange
    large_memory: CostRange  # memory of the child that parses the largest page, per byte of this page
    tag_memory: CostRange  # additional memory of this child, per tag of the largest page
    connection_memory: CostRange  # with TLS
    host_memory: CostRange
    refreshed_memory: CostRange  # bytes per known page in the schedule
    machine: str = ""
    # The CPU seconds to render a page and its subresources in a browser, and the memory of the browser
    # (`render/README.md`, "Cost")
    render_cpu: CostRange = CostRange(0.1, 0.2, 0.5)
    browser_memory: CostRange = CostRange(200e6, 320e6, 1074e6)  # up to `render.memory_bytes_max`


# These unit costs are estimates, not measurements: the CPU time of whole crawls was divided according to a
# profile. The middle values (`mid`) of these costs together give a time per page that agrees with the measured
# 1,851 us. A page has 28 KiB and about 60 links; parsing takes 31 % of the time, and filter and caches take
# 8 %. The ranges of the costs are estimated, too.
REFERENCE = UnitCosts(
    process_cpu=CostRange(0.4, 0.6, 1.0),
    page_cpu=CostRange(0.0010, 0.0011, 0.0017),
    kilobyte_cpu=CostRange(16e-6, 20e-6, 30e-6),
    link_cpu=CostRange(0.2e-6, 0.3e-6, 1e-6),
    form_cpu=CostRange(4e-6, 7e-6, 12e-6),
    new_cpu=CostRange(15e-6, 20e-6, 40e-6),
    host_cpu=CostRange(0.0003, 0.0006, 0.002),
    # In the open web, a page takes 3,510 us and needs 0.94 TLS handshakes on average. The handshakes take 29 %
    # of this time.
    handshake_cpu=CostRange(0.0007, 0.0011, 0.0015),
    secure_cpu=CostRange(0.0001, 0.0002, 0.0003),
    lone_cpu=CostRange(0.0007, 0.001, 0.0025),
    unchanged_cpu=CostRange(0.0008, 0.001, 0.0016),
    page_store=CostRange(150.0, 250.0, 350.0),
    page_store_log=CostRange(500.0, 600.0, 700.0),
    page_journal=CostRange(150.0, 180.0, 220.0),
    capture_warc=CostRange(800.0, 1000.0, 1300.0),
    body_warc=CostRange(1.1, 1.2, 1.4),  # isal, level 1
    coded_warc=CostRange(1.0, 1.0, 1.05),
    unchanged_warc=CostRange(1100.0, 1250.0, 1400.0),
    known_bits=CostRange(2.2, 2.24, 2.3),  # 4.96 bytes per URL at 1e8 URLs, 4.54 at 1e9
    todo_disk=CostRange(40.0, 44.0, 60.0),
    process_memory=CostRange(65e6, 73e6, 80e6),
    large_memory=CostRange(3.0, 4.0, 6.0),
    tag_memory=CostRange(350.0, 450.0, 700.0),
    connection_memory=CostRange(45e3, 61e3, 75e3),  # `fetch.idle_connections_max`: 60 KiB
    host_memory=CostRange(64.0, 90.0, 160.0),
    # Measured with 1e6 pages, first added one by one, then reopened from the store.
    refreshed_memory=CostRange(62.0, 62.0, 109.0),
    machine="a sketch of a reference machine; `crawler bench units` measures yours",
)

# number of copies of a page's URL in the store before compaction (its queue entry and its record), and in the
# journal
STORE_URLS, JOURNAL_URLS = 2.0, 1.0
# If a computed number of processes or machines exceeds a whole number by at most this, the excess is a rounding
# error.
ROUNDED = 1e-9
STORE_URL_PACKED = 0.3  # share of a URL's bytes that compression leaves in a sorted table
# bytes per waiting URL before compaction, without the URL itself; measured with 400 pages and 10,000 links in
# all
TODO_LOG = 18.0
LINK_BYTES = 30.0  # bytes per line of the links log, besides the URL
# bytes of the links log per process: a file is deleted once its links are flushed and the next file has begun
LINKS_LOG_MAX = float(_DEFAULT.due.log_bytes_max)
# Data that is not yet in a table is in at most two buffers in memory.
WRITE_BUFFER = float(_DEFAULT.store.write_buffer_bytes)
TABLES_MAPPED = float(
    _DEFAULT.store.tables_max * _DEFAULT.store.table_bytes + _DEFAULT.store.block_cache_bytes
)
TABLES_RESIDENT = 0.15  # share of the mapped tables that is in memory because a crawl reads it
MEMO_MAX = float(_DEFAULT.filter.memo_bytes_max)
MEMO_ENTRY = 150.0  # bytes per remembered link, without the two forms of its URL
# The bytes of the tree of the largest page that a process parses without a child.
TREE_MAX = _DEFAULT.extract.inline_tags_max * 700.0
TAGS_MAX = float(_DEFAULT.extract.tags_max)  # for a page with more tags, no tree is built
BODY_MAX = float(_DEFAULT.fetch.body_bytes_max)
IDLE_MAX, KEEP_ALIVE = float(_DEFAULT.fetch.idle_connections_max), float(_DEFAULT.fetch.keep_alive_max)
PLAIN_CONNECTION = 15e3  # bytes per connection without TLS; the operating system's buffers are not counted
# number of hosts remembered by name in a process, and bytes per host
NAMES_MAX, NAME_BYTES = 32_768.0, 1_200.0


class Goal(msgspec.Struct, frozen=True):
    """The crawl to plan.

    If `rate` is 0, the crawl is as fast as `machines` allows, and `machines` must be at least 1.
    `known_hosts` is the number of hosts to which links lead. It is used instead of `hosts` if it is larger.
    `largest_host` is the largest host's share of the pages. It is used instead of the mean share if it is
    larger. `addresses` is the number of IP addresses of the hosts; 0 means that each host has its own.
    `compressed` is the size of a page after gzip (level 6) as a share of its decoded size. `coded` is the
    share of pages that are sent compressed, `secure` the share of pages sent over TLS. `handshakes` is the
    number of full TLS handshakes per page, `urls` the number of distinct new URLs per page, and `directories`
    the number of directories per host that contain pages. `refresh` is the number of additional fetches of
    known pages per second. `changed` is the share of these fetches that find a changed page. The gap between
    two requests to a host is `delay`, or `delay_factor` times the answer time. `cores`, `memory`, `disk`
    (bytes) and `bandwidth` (bytes per second) are those of one machine. `usable` is the share of a core that
    may be used. `rendered` is the share of the fetches whose pages are rendered in a browser. Each rendering
    takes `render_cpu` CPU seconds; 0 means the value of the unit costs.
    """

    pages: float
    hosts: float
    known_hosts: float = 0.0
    largest_host: float = 0.0
    addresses: float = 0.0
    rate: float = 0.0
    refresh: float = 0.0
    changed: float = 0.2
    page_bytes: float = 28.0 * KIB
    compressed: float = 0.2
    coded: float = 0.8
    largest_bytes: float = 10.0 * MIB
    largest_tags: float = 200_000.0
    links: float = 60.0
    urls: float = 10.0
    directories: float = 20.0
    url_bytes: float = 77.0
    latency: float = 0.3
    delay: float = float(_DEFAULT.politeness.delay)
    delay_factor: float = _DEFAULT.politeness.delay_factor
    secure: float = 0.8
    handshakes: float = 0.2
    cores: int = 8
    memory: float = 32.0 * GIB
    disk: float = 2048.0 * GIB
    bandwidth: float = 125e6
    machines: int = 0
    usable: float = 0.7
    rendered: float = 0.0
    render_cpu: float = 0.0


class Plan(msgspec.Struct, frozen=True):
    """The resources of a crawl.

    `bottleneck` names what limits the rate. `days` is the time, and `cpu` the CPU time, in which every page
    is fetched once. `render_cpu` is the part of `page_cpu` that browsers use. Browsers keep `render_cores`
    cores busy.
    """

    rate: float
    page_cpu: CostRange
    refresh_cpu: CostRange
    refresh_warc: CostRange  # a day
    cpu: CostRange
    processes: CostRange
    machines: CostRange
    warc: CostRange
    other_disk: CostRange
    memory: CostRange
    bandwidth: float
    connections: float
    peer_connections: int
    days: CostRange
    bottleneck: str
    render_cpu: CostRange
    render_cores: CostRange

    @property
    def disk(self) -> CostRange:
        """Return the sum of the bytes of the WARC files and of all other files."""
        return self.warc + self.other_disk


def page_cpu(goal: Goal, units: UnitCosts) -> CostRange:
    """Return the CPU seconds per page in a process that never sleeps."""
    return (
        units.page_cpu
        + units.kilobyte_cpu * (goal.page_bytes / KIB)
        + units.link_cpu * goal.links
        + units.form_cpu * unformed(goal)
        + units.new_cpu * goal.urls
        + units.handshake_cpu * goal.handshakes
        + units.secure_cpu * goal.secure
    )


def render_cpu(goal: Goal, units: UnitCosts) -> CostRange:
    """Return the CPU seconds that browsers use per fetch."""
    return (exactly(goal.render_cpu) if goal.render_cpu else units.render_cpu) * goal.rendered


def unformed(goal: Goal) -> float:
    """Return how many links of a page, on average, are not in the memo.

    These are the links to new URLs. On a page whose directory is not in the memo, all other links count, too.
    A directory is not in the memo before its first page is read, or if the memo had to drop it.
    """
    met = max(0.0, goal.links - goal.urls)
    directories = max(1.0, goal.directories * goal.hosts)
    kept = MEMO_MAX / (MEMO_ENTRY + 2.0 * goal.url_bytes) / max(1.0, goal.links)
    return goal.urls + met * min(1.0, max(directories / goal.pages, 1.0 - kept / directories))


def idle_share(busy: float, lone: float, processes: float) -> float:
    """Return the share of the time that the processes sleep.

    A fetch costs more if the event loop must first wake up. `busy` is the number of cores that would be busy
    if the loop never slept. If the loop slept before every fetch, `lone` more cores would be busy. The share
    of the fetches that find the loop asleep equals the share of the time in which the loop sleeps. This share
    therefore follows from the equation idle = 1 - (busy + lone x idle) / processes.
    """
    return max(0.0, processes - busy) / (processes + lone)


def _visit(goal: Goal) -> float:
    """Return the seconds between the starts of two requests to a host."""
    most = float(_DEFAULT.politeness.delay_max)
    return goal.latency + max(goal.delay, min(goal.delay_factor * goal.latency, most))


def host_rate(goal: Goal) -> float:
    """Return the pages per second that politeness to the hosts allows, if all hosts are of equal size."""
    return _pages_in(goal, goal.pages / goal.hosts * _visit(goal))


def skewed_rate(goal: Goal) -> float:
    """Return the mean pages per second of a crawl if only politeness to the largest host limits it."""
    return _pages_in(goal, goal.largest_host * goal.pages * _visit(goal))


def address_rate(goal: Goal) -> float:
    """Return the pages per second that politeness to the addresses allows, if all have equally many hosts."""
    politeness = _DEFAULT.politeness
    shared = goal.hosts / goal.addresses / politeness.shared_address_domains
    if shared >= 1.0:  # each address belongs to shared hosting or to a CDN
        each = 1.0 / (politeness.shared_address_rate * math.sqrt(shared))
    else:
        each = goal.latency + politeness.address_delay_share * goal.delay
    return _pages_in(goal, (goal.pages + goal.hosts) / goal.addresses * each)


def _pages_in(goal: Goal, seconds: float) -> float:
    return goal.pages / seconds if seconds else math.inf


def plan(goal: Goal, units: UnitCosts) -> Plan:
    """Return the plan of a crawl: its resources, and the bound that limits its rate."""
    busy, rendering = page_cpu(goal, units), render_cpu(goal, units)
    wire = goal.page_bytes * (goal.coded * goal.compressed + 1.0 - goal.coded) + HEADER_BYTES
    bounds = {"hosts: politeness": host_rate(goal)}
    if goal.largest_host * goal.hosts > 1.0:
        bounds["the largest host: politeness"] = skewed_rate(goal)
    if 0.0 < goal.addresses < goal.hosts:
        bounds["addresses that hosts share: politeness"] = address_rate(goal)
    if goal.rate:
        bounds["the rate asked for"] = goal.rate
    if goal.machines or not goal.rate:
        machines = goal.machines or 1
        bounds["cores"] = machines * goal.cores * goal.usable / (busy + rendering).mid
        bounds["bandwidth"] = machines * goal.bandwidth / wire
    bottleneck = min(bounds, key=lambda name: bounds[name])
    rate = bounds[bottleneck]
    refreshed = refresh_cpu(goal, units)
    whole = rate + goal.refresh
    load = busy * rate + refreshed * goal.refresh
    processes = _each(lambda busy: max(1.0, math.ceil(busy / goal.usable - ROUNDED)), load)
    render_cores = rendering * (whole / goal.usable)
    with_browsers = load * (1.0 / goal.usable) + render_cores
    cores = _each(max, processes, with_browsers)
    # some fetches find the loop asleep
    lone = _each(lambda busy, one, n: one * idle_share(busy, whole * one, n), load, units.lone_cpu, processes)
    cpu = busy + lone + rendering
    warc, other = _warc(goal, units), _other_disk(goal, units, processes)
    memory = _memory(goal, units, processes, whole)
    if goal.rendered:
        memory += _each(operator.mul, units.browser_memory, processes)
    wires = math.ceil(whole * wire / goal.bandwidth)
    needed = _each(
        lambda n, disk, held: max(
            math.ceil(n / goal.cores - ROUNDED), math.ceil(disk / goal.disk), math.ceil(held / goal.memory), wires
        ),
        cores, warc + other, memory,
    )  # fmt: skip
    count = int(processes.mid)
    return Plan(
        rate=rate,
        page_cpu=cpu,
        refresh_cpu=refreshed + lone + rendering,
        refresh_warc=_refresh_warc(goal, units) * (goal.refresh * DAY),
        cpu=cpu * goal.pages
        + units.host_cpu * goal.hosts
        + _each(operator.mul, units.process_cpu, processes),
        processes=processes,
        machines=exactly(goal.machines) if goal.machines else needed,
        warc=warc,
        other_disk=other,
        memory=memory,
        bandwidth=whole * wire,
        connections=_in_flight(goal, whole),
        peer_connections=count * (count - 1),
        days=exactly(goal.pages / rate / DAY),
        bottleneck=bottleneck,
        render_cpu=rendering,
        render_cores=render_cores,
    )


def _in_flight(goal: Goal, rate: float) -> float:
    return rate * goal.latency * 1.5


def _each(function: Callable[..., float], *costs: CostRange) -> CostRange:
    """Return the range of a function of some costs. The function must not decrease in any of them."""
    low, mid, high = ([getattr(cost, end) for cost in costs] for end in ("low", "mid", "high"))
    return CostRange(float(function(*low)), float(function(*mid)), float(function(*high)))


def refresh_cpu(goal: Goal, units: UnitCosts) -> CostRange:
    """Return the mean CPU seconds of a refresh.

    Each refresh costs as much as the refresh of an unchanged page. A changed page also costs the CPU seconds
    for its content (per KiB) and its links.
    """
    more = units.kilobyte_cpu * (goal.page_bytes / KIB) + units.link_cpu * goal.links
    return units.unchanged_cpu + units.secure_cpu * goal.secure + more * goal.changed


def _refresh_warc(goal: Goal, units: UnitCosts) -> CostRange:
    return units.unchanged_warc + _body_warc(goal, units) * goal.changed


def _body_warc(goal: Goal, units: UnitCosts) -> CostRange:
    """Return the WARC bytes that the body of a page takes."""
    return (units.coded_warc * goal.coded + units.body_warc * (1.0 - goal.coded)) * (
        goal.page_bytes * goal.compressed
    )


def _warc(goal: Goal, units: UnitCosts) -> CostRange:
    return units.capture_warc * (goal.pages + goal.hosts) + _body_warc(goal, units) * goal.pages


def _other_disk(goal: Goal, units: UnitCosts, processes: CostRange) -> CostRange:
    known = goal.pages * goal.urls
    journal = (units.page_journal + exactly(JOURNAL_URLS * goal.url_bytes)) * goal.pages
    links_log = _each(lambda n: min(LINKS_LOG_MAX * n, known * (LINK_BYTES + goal.url_bytes)), processes)
    return journal + _store(goal, units, processes) + _known_disk(known, units, processes) + links_log


def _known_disk(known: float, units: UnitCosts, processes: CostRange) -> CostRange:
    """Return the bytes of the DUE's runs.

    While all runs are merged into one, the disk holds two copies of the keys.
    """
    keys = _each(
        lambda n, bits: known / 8.0 * (64.0 - math.log2(max(1.0, known / n)) + bits),
        processes,
        units.known_bits,
    )
    return CostRange(keys.low, keys.mid, 2.0 * keys.high)


def _store(goal: Goal, units: UnitCosts, processes: CostRange) -> CostRange:
    """Return the bytes of pages and waiting URLs in the store.

    The bytes that are still in the engine's log are not compacted yet. Each process has at most one full log
    of such bytes.
    """
    waiting = goal.pages * max(0.0, goal.urls - 1.0)
    written = (units.page_store_log + exactly(STORE_URLS * goal.url_bytes)) * goal.pages
    written += exactly((TODO_LOG + goal.url_bytes) * waiting)
    kept = (units.page_store + exactly(STORE_URLS * goal.url_bytes * STORE_URL_PACKED)) * goal.pages
    kept += units.todo_disk * (waiting * goal.url_bytes / 77.0)

    def compacted(written: float, kept: float, n: float, part: float) -> float:
        log = min(written, WRITE_BUFFER * n * part)
        return log + kept * (1.0 - log / written)

    return _each(compacted, written, kept, processes, CostRange(0.0, 0.5, 1.0))


def _memory(goal: Goal, units: UnitCosts, processes: CostRange, rate: float) -> CostRange:
    """Return the memory at the end of the crawl, when the caches are as large as they become in this crawl."""
    refreshed = goal.pages if goal.refresh else 0.0
    known_hosts = max(goal.hosts, goal.known_hosts)
    connections = _in_flight(goal, rate)

    def caches(n: float, table: float, resident: float, tree: float) -> float:
        memo = min(MEMO_MAX, goal.pages * goal.urls / n * (MEMO_ENTRY + 2.0 * goal.url_bytes))
        store = min(2.0 * WRITE_BUFFER + resident * TABLES_MAPPED, table / n)
        return n * (memo + store + min(NAMES_MAX, known_hosts / n) * NAME_BYTES + tree)

    alive = min(IDLE_MAX * processes.mid, rate * KEEP_ALIVE) + connections
    connection = units.connection_memory * goal.secure + exactly(PLAIN_CONNECTION * (1.0 - goal.secure))
    return (
        _each(operator.mul, units.process_memory + _largest_page(goal, units), processes)
        + _each(
            caches,
            processes,
            _store(goal, units, processes),
            CostRange(0.0, TABLES_RESIDENT, 1.0),
            CostRange(0.0, TREE_MAX, TREE_MAX),
        )
        + connection * min(alive, goal.hosts)
        + units.host_memory * known_hosts
        + units.refreshed_memory * refreshed
    )


def _largest_page(goal: Goal, units: UnitCosts) -> CostRange:
    """Return the memory of the child that parses the largest page.

    The child holds the tree of the page, and copies of its bytes.
    """
    size, tags = min(goal.largest_bytes, BODY_MAX), min(goal.largest_tags, TAGS_MAX)
    return units.large_memory * size + units.tag_memory * tags
