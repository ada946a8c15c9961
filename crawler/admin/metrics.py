"""The status of a crawl's processes in Prometheus' text format.

Labels are the process and names from fixed lists (outcomes, rules, states, reasons), never a host or a URL.
So the number of series does not grow with the crawl. A test checks that a crawl of 100,000 hosts has as many
series as a crawl of ten.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from crawler.admin.health import DEGRADED, RULES, UNHEALTHY
from crawler.admin.process_metrics import cumulative
from crawler.admin.status import Status, whole
from crawler.version import __version__

StatusTree = Mapping[str, Any]
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

# For each metric: its name, its path in the status, its help text. A metric whose name ends in _total is a
# counter. All others are gauges.
NUMBERS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("received_bytes_total", ("bytes", "wire"), "Bytes of bodies as received."),
    ("decoded_bytes_total", ("bytes", "decoded"), "Bytes of bodies without content coding."),
    ("rendered_pages_total", ("rendered", "pages"), "Pages shown in a browser."),
    (
        "rendered_gained_total",
        ("rendered", "added"),
        "Rendered pages that showed links or text the answer lacked.",
    ),
    (
        "rendered_requests_total",
        ("rendered", "requests"),
        "Requests of rendered pages, answered by the fetcher.",
    ),
    ("rendered_failed_total", ("rendered", "failed"), "Pages that no browser could show."),
    ("rendered_missing_total", ("rendered", "missing"), "Requests of rendered pages without an answer."),
    ("rendered_cpu_ms_total", ("rendered", "cpu_ms"), "CPU time of browsers, in milliseconds."),
    ("urls_todo", ("frontier", "todo"), "URLs to fetch, including those in flight."),
    ("fetches_in_flight", ("frontier", "in_flight"), "Fetches in progress."),
    ("requests_in_flight", ("frontier", "requests"), "Requests sent and not answered yet."),
    ("look_ups_in_flight", ("frontier", "look_ups"), "DNS lookups in progress."),
    ("due_pending", ("due", "pending"), "Links that wait for the next flush of the DUE."),
    ("due_known_total", ("due", "known"), "Links that the DUE had seen before."),
    ("due_new_total", ("due", "new"), "Links that were new to the DUE."),
    ("due_runs", ("due", "runs"), "Sorted runs of the DUE."),
    (
        "due_expected_collisions",
        ("due", "expected_collisions"),
        "Expected number of URLs lost to equal fingerprints.",
    ),
    ("splitter_sent_total", ("splitter", "sent"), "Links sent to other processes and confirmed."),
    ("splitter_waiting", ("splitter", "waiting"), "Links in the outbox."),
    ("splitter_applied_total", ("splitter", "applied"), "Links received from other processes."),
    ("splitter_local_total", ("splitter", "local"), "Links of pages that stayed in their process."),
    ("splitter_foreign_total", ("splitter", "foreign"), "Links of pages that belong to other processes."),
    ("splitter_local_share", ("splitter", "local_share"), "Share of the links that stayed in their process."),
    ("splitter_sent_bytes_total", ("splitter", "bytes"), "Bytes of confirmed batches."),
    ("serve_requests_total", ("serve", "requests"), "Requests to the page server."),
    ("serve_connections", ("serve", "connections"), "Open connections to the page server."),
    ("serve_connections_evicted_total", ("serve", "evicted"), "Slow clients closed to make room for others."),
    (
        "serve_connections_refused_total",
        ("serve", "turned_away"),
        "Clients rejected for lack of a free slot.",
    ),
    ("serve_ready_bytes", ("serve", "ready_bytes"), "Bytes of cached answers."),
    ("serve_ready_hits_total", ("serve", "ready_hits"), "Requests answered from cached answers."),
    ("serve_ready_misses_total", ("serve", "ready_misses"), "Requests whose answer was not cached."),
    ("serve_disk_bytes", ("serve", "disk_bytes"), "Bytes of inflated pages in the cache on disk."),
    ("serve_disk_hits_total", ("serve", "disk_hits"), "Pages read from the cache on disk."),
    ("serve_counted_pages", ("serve", "counted_pages"), "Pages whose requests are counted exactly."),
    ("refresh_level", ("refreshing", "level"), "Crawl value at which a page is due (Lambda)."),
    ("refresh_expected_freshness", ("refreshing", "expected_freshness"), "Expected share of fresh copies."),
    ("refresh_pages", ("refreshing", "pages"), "Pages that are kept fresh."),
    ("log_errors_total", ("log", "error"), "Messages of level error in this run."),
    ("log_warnings_total", ("log", "warning"), "Messages of level warning in this run."),
)

# name, label, path of a mapping {label value: number}, help
MAPPINGS: tuple[tuple[str, str, tuple[str, ...], str], ...] = (
    ("pages_total", "outcome", ("pages",), "Fetches of pages by outcome."),
    ("robots_total", "outcome", ("robots",), "Fetches of robots.txt by outcome."),
    (
        "connections_total",
        "how",
        ("connections",),
        "Requests by kind of connection: reused, plain, full, resumed.",
    ),
    ("links_total", "fate", ("urls",), "Links by fate."),
    ("links_filtered_total", "rule", ("urls", "filtered"), "Links that the URL filter rejected, by rule."),
    ("waited_seconds_total", "reason", ("waited",), "Time in which no URL could be fetched, by cause."),
    ("serve_answers_total", "status", ("serve", "answers"), "Answers of the page server by status."),
)

# name, path in an entry of "processes", help
PROCESS: tuple[tuple[str, str, str], ...] = (
    ("process_cpu_seconds_total", "cpu_seconds", "User and system CPU time."),
    ("process_resident_memory_bytes", "rss_bytes", "Resident memory."),
    ("process_open_fds", "descriptors", "Open file descriptors."),
    ("process_max_fds", "descriptors_max", "Limit of open file descriptors."),
    ("process_start_time_seconds", "started", "Start time, in seconds since the epoch."),
    ("loop_lag_seconds", "loop_lag", "Maximum delay of the event loop in the last second."),
)

HISTOGRAMS = (
    ("commit_seconds", "commit", "Duration of group commits."),
    ("flush_seconds", "flush", "Duration of flushes of the DUE."),
)


def _family(name: str, text: str, labels: list[str]) -> Any:
    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    return kind(f"crawler_{name.removesuffix('_total')}", text, labels=labels)


def families(parts: Iterable[StatusTree]) -> Iterator[Metric]:
    """Yield the metrics of a crawl from the status of each process. Metrics without a value are left out."""
    return (family for family in _families(list(parts)) if family.samples)


def _families(parts: list[StatusTree]) -> Iterator[Metric]:
    yield InfoMetricFamily("crawler", "The program.", value={"version": __version__})
    for name, path, text in NUMBERS:
        family = _family(name, text, ["process"])
        for part in parts:
            if isinstance(number := _node(part, path), int | float):
                family.add_metric([part["name"]], float(number))
        yield family
    for name, label, path, text in MAPPINGS:
        yield _mapping(parts, name, label, path, text)
    yield _mapping(parts, "urls_parked", "rule", ("frontier",), "URLs parked, by rule.", "parked_")
    yield _mapping(parts, "hosts", "state", ("frontier",), "Hosts by state.", "hosts_")
    yield from _of_processes(parts)
    yield from _histograms(parts)
    yield from _of_the_crawl(whole([Status.of(part) for part in parts]))


def _node(status: StatusTree, path: tuple[str, ...]) -> Any:
    node: Any = status
    for name in path:
        node = node.get(name) if isinstance(node, Mapping) else None
    return node


def _mapping(
    parts: list[StatusTree], name: str, label: str, path: tuple[str, ...], text: str, prefix: str = ""
) -> Metric:
    family = _family(name, text, ["process", label])
    for part in parts:
        for key, value in sorted((_node(part, path) or {}).items()):
            if isinstance(value, int | float) and str(key).startswith(prefix):
                family.add_metric([part["name"], str(key).removeprefix(prefix)], value)
    return family


def _of_processes(parts: list[StatusTree]) -> Iterator[Metric]:
    for name, key, text in PROCESS:
        family = _family(name, text, ["process"])
        for part in parts:
            for process in part.get("processes", []):
                if key in process:
                    family.add_metric([process["name"]], process[key])
        yield family


def _histograms(parts: list[StatusTree]) -> Iterator[Metric]:
    for name, key, text in HISTOGRAMS:
        family = HistogramMetricFamily(f"crawler_{name}", text, labels=["process"])
        for part in parts:
            plain = _node(part, ("timings", key))
            if plain:
                family.add_metric([part["name"]], buckets=list(cumulative(plain)), sum_value=plain["sum"])
        yield family


def _of_the_crawl(status: Status) -> Iterator[Metric]:
    """Yield metrics of the running processes, and of the remaining work if it can be estimated (`eta.py`)."""
    running = _family("process_up", "Whether the process runs: 1 or 0.", ["process"])
    for member in status.members:
        running.add_metric([member.name], member.state == "running")
    yield running
    yield from _health(status)
    view = status.eta
    for name, value, text in (
        ("new_urls_per_page", view.brings, "New URLs per page; from 0.95 on the crawl is growing."),
        ("left_urls", view.left, "URLs still to be fetched, including those to be found."),
        (
            "left_seconds",
            view.seconds,
            "Seconds until they are fetched: at the present speed, or longer if a host must wait.",
        ),
    ):
        yield GaugeMetricFamily(f"crawler_{name}", text, value=value)


def _health(status: Status) -> Iterator[Metric]:
    """Yield the health verdict and each of its rules; yield nothing for a crawl that does not run."""
    verdict = status.health
    if verdict.state in ("at rest", "died"):
        return
    yield GaugeMetricFamily(
        "crawler_healthy", "Whether the crawl is healthy: 1 or 0.", value=int(verdict.healthy)
    )
    broken = {(problem.rule, problem.severity) for problem in verdict.problems}
    text = "Whether a rule of the crawl's health is broken: 1 or 0."
    rules = _family("health_problem", text, ["rule", "severity"])
    for rule, severity in itertools.product(RULES, (DEGRADED, UNHEALTHY)):
        rules.add_metric([rule, severity], (rule, severity) in broken)
    yield rules


class _Families(Collector):
    def __init__(self, parts: Iterable[StatusTree]) -> None:
        self._parts = parts

    def collect(self) -> Iterator[Metric]:
        return families(self._parts)


def text(parts: Iterable[StatusTree]) -> bytes:
    """Return the processes' status in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Families(parts))
    return generate_latest(registry)
