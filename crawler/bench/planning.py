"""What a crawl needs, by arithmetic on unit costs: processes, machines, disk, memory, bandwidth, days.

    CPU             processes x start + hosts x host + pages x CPU a page
    CPU a page      page + KiB x kilobyte + links x link + unformed links x form + new URLs x new
                    + TLS handshakes x handshake + those over TLS x secure + idle share x lone
    CPU a refresh   one without a change, for those with one KiB and links, and idle share x lone
    unformed links  new URLs, and on the first page of a directory all others: what a memo does not know yet
    idle share      of a process's time: so many fetches come while the loop sleeps, and share no turn and no commit
    processes       rate x CPU a page that is not idle / the share of a core that may be used
    rate of hosts   hosts / (answer time + gap): what politeness allows, however many machines there are
    rate            the least of: asked for, hosts, bandwidth, cores
    WARC            (pages + hosts, for robots.txt) x capture + pages x KiB, as gzip packs what comes, x what the
                    WARC's packing takes of these, which differs for bodies that come packed
    disk            WARC + pages x (line of the journal + store) + known URLs x (DUE + links log) + waiting URLs x queue
    memory          processes x (base + tree + the largest page in a child + caches as far as they fill + connections)
                    + hosts x row, and known pages x schedule where they are refreshed
    days            pages / rate

A page is a fetch: what was answered otherwise counts too. A web is told by its mean page (KiB, how small gzip makes
it, links, distinct new URLs, length of a URL), a machine by its unit costs, each a range, and so are the results.
Unit costs are those that `crawler bench units` measured, or REFERENCE, a sketch. What is bounded by a setting counts with
its default. Judged, not measured: `TABLES_RESIDENT`, `NAME_BYTES`, `MEMO_ENTRY`, `PLAIN_CONNECTION`, `LINK_BYTES`.
"""

import math
import statistics
from collections.abc import Callable

import msgspec

from crawler.config import Config

DAY = 86_400.0
KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
HEADER_BYTES = 1_000.0  # of an exchange, request and answer, on the wire
_DEFAULT = Config()


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

    process_cpu: CostRange  # start and end of a process
    page_cpu: CostRange
    kilobyte_cpu: CostRange
    link_cpu: CostRange  # of one that stood on an earlier page of its directory
    form_cpu: CostRange  # more, of one that did not: canonical form, filter, fingerprint
    new_cpu: CostRange  # more, of one that nobody has met: DUE, queue, their commits
    host_cpu: CostRange  # of a host first met: connection, robots.txt, record
    handshake_cpu: CostRange  # of a new connection with a full one, connecting counted in
    secure_cpu: CostRange  # of a fetch over TLS, without the handshake
    lone_cpu: (
        CostRange  # of a fetch that comes while the loop sleeps: turns, wake-ups and a commit of its own
    )
    unchanged_cpu: CostRange  # of a known page that is asked again and has not changed
    page_store: (
        CostRange  # record, capture and entry of a page, without its URL, in a store that is compacted
    )
    page_store_log: CostRange  # the same as first written
    page_journal: CostRange  # its line in pages.jsonl, without its URL
    capture_warc: CostRange  # records of an exchange without its body
    body_warc: CostRange  # bytes of WARC a byte of body as gzip packs it (level 6)
    coded_warc: CostRange  # the same of bodies that come packed
    unchanged_warc: CostRange  # of a revisit
    known_bits: CostRange  # of a known URL in the DUE, beyond log2 of the mean gap between fingerprints
    todo_disk: CostRange  # of a URL of 77 characters that waits
    process_memory: CostRange
    large_memory: CostRange  # a byte of the largest page, in the child that parses it
    tag_memory: CostRange  # a tag of it
    connection_memory: CostRange  # with TLS
    host_memory: CostRange
    refreshed_memory: CostRange  # of a known page in the schedule
    machine: str = ""


# A sketch, not a measurement: the CPU of whole crawls divided up by a profile, so that set `mid` adds up (1,851 us a
# page of 28 KiB and some 60 links, of which parsing is 31 %, filter and caches 8 %); ranges are judged.
REFERENCE = UnitCosts(
    process_cpu=CostRange(0.4, 0.6, 1.0),
    page_cpu=CostRange(0.0010, 0.0011, 0.0017),
    kilobyte_cpu=CostRange(16e-6, 20e-6, 30e-6),
    link_cpu=CostRange(0.2e-6, 0.3e-6, 1e-6),
    form_cpu=CostRange(4e-6, 7e-6, 12e-6),
    new_cpu=CostRange(15e-6, 20e-6, 40e-6),
    host_cpu=CostRange(0.0003, 0.0006, 0.002),
    handshake_cpu=CostRange(0.0007, 0.0011, 0.0015),  # open web: 29 % of 3,510 us for .94 handshakes a page
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
    known_bits=CostRange(2.2, 2.24, 2.3),  # 4.96 bytes a URL at 1e8, 4.54 at 1e9
    todo_disk=CostRange(40.0, 44.0, 60.0),
    process_memory=CostRange(65e6, 73e6, 80e6),
    large_memory=CostRange(3.0, 4.0, 6.0),
    tag_memory=CostRange(350.0, 450.0, 700.0),
    connection_memory=CostRange(45e3, 61e3, 75e3),  # `fetch.idle_connections_max`: 60 KiB
    host_memory=CostRange(64.0, 90.0, 160.0),
    refreshed_memory=CostRange(62.0, 62.0, 109.0),  # of 1e6 pages: put in; reopened from the store
    machine="a sketch of a reference machine; `crawler bench units` measures yours",
)

# How often the URL of a page stands in a store as first written (entry to do, record), and in its line of the journal.
STORE_URLS, JOURNAL_URLS = 2.0, 1.0
ROUNDED = 1e-9  # of a process: what floats add up to beyond a whole number
STORE_URL_PACKED = 0.3  # of the bytes of a URL beside its neighbours, compressed
TODO_LOG = 18.0  # of a URL that waits, as first written, beside it (10,000 links of 400 pages)
LINK_BYTES = 30.0  # of a line of the links log beside the URL
LINKS_LOG_MAX = float(_DEFAULT.due.log_bytes_max)  # a file that is consumed goes when the next one begins
WRITE_BUFFER = float(_DEFAULT.store.write_buffer_bytes)  # what is no table yet; two at most in memory
TABLES_MAPPED = float(
    _DEFAULT.store.tables_max * _DEFAULT.store.table_bytes + _DEFAULT.store.block_cache_bytes
)
TABLES_RESIDENT = 0.15  # of these, as far as a crawl touches them
MEMO_MAX = float(_DEFAULT.filter.memo_bytes_max)
MEMO_ENTRY = 150.0  # bytes of a remembered link beside two forms of the URL
TREE_MAX = _DEFAULT.extract.inline_tags_max * 700.0  # the largest page parsed in the process
TAGS_MAX = float(_DEFAULT.extract.tags_max)  # a page with more has no tree
BODY_MAX = float(_DEFAULT.fetch.body_bytes_max)
IDLE_MAX, KEEP_ALIVE = float(_DEFAULT.fetch.idle_connections_max), float(_DEFAULT.fetch.keep_alive_max)
PLAIN_CONNECTION = 15e3  # without TLS: buffers of the system do not count
NAMES_MAX, NAME_BYTES = 32_768.0, 1_200.0  # hosts remembered by name, in fingerprints, addresses and frontier


class Goal(msgspec.Struct, frozen=True):
    """What is to be crawled. `rate` 0: as fast as it goes on `machines` (then at least 1).

    `known_hosts` are those that links lead to (where they are more than `hosts`).
    `compressed` is the share of a page that gzip leaves (level 6) of what comes, `coded` the share of pages that come
    packed, `secure` that of pages over TLS; `handshakes` are full ones a page, `urls` distinct URLs found a page,
    `directories` those of a host in which its pages lie; `refresh` fetches a second that go to known pages besides,
    of which the share `changed` finds another page. A host waits `delay`, or `delay_factor` times the answer time.
    `cores`, `memory`, `disk` (bytes) and `bandwidth` (bytes a second) are those of one machine, `usable` the share of
    a core.
    """

    pages: float
    hosts: float
    known_hosts: float = 0.0
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


class Plan(msgspec.Struct, frozen=True):
    """What it takes; `bottleneck` is what keeps the rate where it is, `days` and `cpu` are those of all pages once."""

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

    @property
    def disk(self) -> CostRange:
        """WARC and all else."""
        return self.warc + self.other_disk


def page_cpu(goal: Goal, units: UnitCosts) -> CostRange:
    """Seconds of CPU that a page costs in a process that never sleeps."""
    return (
        units.page_cpu
        + units.kilobyte_cpu * (goal.page_bytes / KIB)
        + units.link_cpu * goal.links
        + units.form_cpu * unformed(goal)
        + units.new_cpu * goal.urls
        + units.handshake_cpu * goal.handshakes
        + units.secure_cpu * goal.secure
    )


def unformed(goal: Goal) -> float:
    """Links a page that no memo knows: new ones, and those of directories met first or forgotten since."""
    met = max(0.0, goal.links - goal.urls)
    directories = max(1.0, goal.directories * goal.hosts)
    kept = MEMO_MAX / (MEMO_ENTRY + 2.0 * goal.url_bytes) / max(1.0, goal.links)
    return goal.urls + met * min(1.0, max(directories / goal.pages, 1.0 - kept / directories))


def idle_share(busy: float, lone: float, processes: float) -> float:
    """Share of their time that processes sleep.

    `busy` are the cores that fetches keep busy which find the loop awake, `lone` those they would take besides if each
    found it asleep. As many find it so as it sleeps: idle = 1 - (busy + lone x idle) / processes.
    """
    return max(0.0, processes - busy) / (processes + lone)


def host_rate(goal: Goal) -> float:
    """Pages a second that politeness allows over all hosts."""
    most = float(_DEFAULT.politeness.delay_max)
    gap = max(goal.delay, min(goal.delay_factor * goal.latency, most))
    return goal.hosts / (goal.latency + gap) if goal.latency + gap else math.inf


def plan(goal: Goal, units: UnitCosts) -> Plan:
    """What a crawl takes, and what bounds it."""
    busy = page_cpu(goal, units)
    wire = goal.page_bytes * (goal.coded * goal.compressed + 1.0 - goal.coded) + HEADER_BYTES
    bounds = {"hosts: politeness": host_rate(goal)}
    if goal.rate:
        bounds["the rate asked for"] = goal.rate
    if goal.machines or not goal.rate:
        machines = goal.machines or 1
        bounds["cores"] = machines * goal.cores * goal.usable / busy.mid
        bounds["bandwidth"] = machines * goal.bandwidth / wire
    bottleneck = min(bounds, key=lambda name: bounds[name])
    rate = bounds[bottleneck]
    refreshed = refresh_cpu(goal, units)
    whole = rate + goal.refresh
    load = busy * rate + refreshed * goal.refresh
    processes = _each(load, lambda each: max(1.0, math.ceil(each / goal.usable - ROUNDED)))
    lone = _lone(load, units.lone_cpu, whole, processes)
    cpu = busy + lone
    warc, other = _warc(goal, units), _other_disk(goal, units, processes)
    memory = _memory(goal, units, processes, whole)
    needed = CostRange(
        *(
            float(max(math.ceil(n / goal.cores), math.ceil(d / goal.disk), math.ceil(m / goal.memory),
                      math.ceil(whole * wire / goal.bandwidth)))
            for n, d, m in zip(_three(processes), _three(warc + other), _three(memory), strict=True)
        )
    )  # fmt: skip
    count = int(processes.mid)
    return Plan(
        rate=rate,
        page_cpu=cpu,
        refresh_cpu=refreshed + lone,
        refresh_warc=_refresh_warc(goal, units) * (goal.refresh * DAY),
        cpu=cpu * goal.pages + units.host_cpu * goal.hosts + _product(units.process_cpu, processes),
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
    )


def _lone(load: CostRange, lone: CostRange, rate: float, processes: CostRange) -> CostRange:
    """Seconds of CPU a fetch, since some find the loop asleep."""
    return CostRange(*(
        each * idle_share(busy, rate * each, n)
        for busy, each, n in zip(_three(load), _three(lone), _three(processes), strict=True)
    ))  # fmt: skip


def _in_flight(goal: Goal, rate: float) -> float:
    """Connections with a request under way, half as many again for those that are slow."""
    return rate * goal.latency * 1.5


def _three(cost: CostRange) -> tuple[float, float, float]:
    return cost.low, cost.mid, cost.high


def _each(cost: CostRange, function: Callable[[float], float]) -> CostRange:
    return CostRange(*(float(function(value)) for value in _three(cost)))


def _product(one: CostRange, other: CostRange) -> CostRange:
    return CostRange(*(a * b for a, b in zip(_three(one), _three(other), strict=True)))


def refresh_cpu(goal: Goal, units: UnitCosts) -> CostRange:
    """Seconds of CPU that a refresh costs: that of an unchanged page, and KiB and links of those that changed."""
    more = units.kilobyte_cpu * (goal.page_bytes / KIB) + units.link_cpu * goal.links
    return units.unchanged_cpu + units.secure_cpu * goal.secure + more * goal.changed


def _refresh_warc(goal: Goal, units: UnitCosts) -> CostRange:
    return units.unchanged_warc + _body_warc(goal, units) * goal.changed


def _body_warc(goal: Goal, units: UnitCosts) -> CostRange:
    """Bytes of WARC of the body of a page."""
    return (units.coded_warc * goal.coded + units.body_warc * (1.0 - goal.coded)) * (
        goal.page_bytes * goal.compressed
    )


def _warc(goal: Goal, units: UnitCosts) -> CostRange:
    return units.capture_warc * (goal.pages + goal.hosts) + _body_warc(goal, units) * goal.pages


def _other_disk(goal: Goal, units: UnitCosts, processes: CostRange) -> CostRange:
    known = goal.pages * goal.urls
    journal = (units.page_journal + exactly(JOURNAL_URLS * goal.url_bytes)) * goal.pages
    links_log = _each(processes, lambda n: min(LINKS_LOG_MAX * n, known * (LINK_BYTES + goal.url_bytes)))
    return journal + _store(goal, units, processes) + _known_disk(known, units, processes) + links_log


def _known_disk(known: float, units: UnitCosts, processes: CostRange) -> CostRange:
    """Of the runs of the DUE; a merge of all of them holds them twice for a while."""
    low, mid, high = (
        known / 8.0 * (64.0 - math.log2(max(1.0, known / n)) + bits)
        for n, bits in zip(_three(processes), _three(units.known_bits), strict=True)
    )
    return CostRange(min(low, mid), mid, 2.0 * max(mid, high))


def _store(goal: Goal, units: UnitCosts, processes: CostRange) -> CostRange:
    """Pages and URLs that wait: some as first written, as far as the log may go, the others compacted."""
    waiting = goal.pages * max(0.0, goal.urls - 1.0)
    written = (units.page_store_log + exactly(STORE_URLS * goal.url_bytes)) * goal.pages
    written += exactly((TODO_LOG + goal.url_bytes) * waiting)
    kept = (units.page_store + exactly(STORE_URLS * goal.url_bytes * STORE_URL_PACKED)) * goal.pages
    kept += units.todo_disk * (waiting * goal.url_bytes / 77.0)
    logs = [min(w, WRITE_BUFFER * n * part) for w, n, part in zip(
        _three(written), _three(processes), (0.0, 0.5, 1.0), strict=True)]  # fmt: skip
    return CostRange(
        *(log + k * (1.0 - log / w) for log, k, w in zip(logs, _three(kept), _three(written), strict=True))
    )


def _memory(goal: Goal, units: UnitCosts, processes: CostRange, rate: float) -> CostRange:
    """At the end of the crawl, when caches are as full as it fills them."""
    refreshed = goal.pages if goal.refresh else 0.0
    known_hosts = max(goal.hosts, goal.known_hosts)
    connections = _in_flight(goal, rate)
    tables = _store(goal, units, processes)
    caches = CostRange(*(
        n * (min(MEMO_MAX, goal.pages * goal.urls / n * (MEMO_ENTRY + 2.0 * goal.url_bytes))
             + min(2.0 * WRITE_BUFFER + part * TABLES_MAPPED, table / n)
             + min(NAMES_MAX, known_hosts / n) * NAME_BYTES + tree)
        for n, table, part, tree in zip(
            _three(processes), _three(tables), (0.0, TABLES_RESIDENT, 1.0), (0.0, TREE_MAX, TREE_MAX), strict=True)
    ))  # fmt: skip
    alive = min(IDLE_MAX * processes.mid, rate * KEEP_ALIVE) + connections
    connection = units.connection_memory * goal.secure + exactly(PLAIN_CONNECTION * (1.0 - goal.secure))
    return (
        _product(units.process_memory + _largest_page(goal, units), processes)
        + caches
        + connection * min(alive, goal.hosts)
        + units.host_memory * known_hosts
        + units.refreshed_memory * refreshed
    )


def _largest_page(goal: Goal, units: UnitCosts) -> CostRange:
    """In the child that parses it: some copies of its bytes, and its tree."""
    size, tags = min(goal.largest_bytes, BODY_MAX), min(goal.largest_tags, TAGS_MAX)
    return units.large_memory * size + units.tag_memory * tags
