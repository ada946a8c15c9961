"""Test the metrics with Prometheus' own parser: their names, units, and number of series."""

import re

from prometheus_client.parser import text_string_to_metric_families

from crawler.admin import metrics, process_metrics
from crawler.records import Outcome

COMMITS = process_metrics.Histogram()
for seconds in (0.0005, 0.001, 0.02, 99.0):
    COMMITS.observe(seconds)


HOST = {
    "state": "ready", "cause": "", "ready_at": 0.0, "wait": 0.0, "next_retry_at": 0.0, "gap": 1.0, "failures": 0,
    "refusals": 0, "slowdown": 1.0, "todo": 1, "parked": 0, "known": 1,
}  # fmt: skip


def status(name: str = "p0", hosts: int = 0) -> dict:
    return {
        "name": name,
        "now": 1.0,
        "pages": {outcome.value: 1 for outcome in Outcome} | {"retried": 2},
        "bytes": {"wire": 10, "decoded": 20},
        "urls": {"links": 5, "accepted": 4, "filtered": {"scope": 1}},
        "frontier": {
            "todo": 7,
            "in_flight": 1,
            "hosts": hosts,
            "hosts_waiting": 3,
            "parked": 2,
            "parked_depth": 2,
        },
        "due": {"pending": 0, "known": 1, "new": 2, "runs": 1, "expected_collisions": 1e-9},
        "waiting": [HOST | {"host": f"h{n}.example"} for n in range(hosts)],
        "waited": {"host": 1.5},
        "timings": {"commit": COMMITS.plain(), "flush": process_metrics.Histogram().plain()},
        "processes": [process_metrics.of_process() | {"name": name, "started": 0.5, "loop_lag": 0.001}],
        "serve": {"requests": 9, "answers": {"200": 9}},
        "log": {"error": 1, "warning": 2},
    }


def samples(*parts: dict) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    families = text_string_to_metric_families(metrics.text(parts).decode())
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }


def test_prometheus_reads_the_values_back() -> None:
    found = samples(status())
    p0 = ("process", "p0")
    assert found["crawler_pages_total", (("outcome", "fetched"), p0)] == 1
    assert found["crawler_received_bytes_total", (p0,)] == 10
    assert found["crawler_urls_parked", (p0, ("rule", "depth"))] == 2
    assert found["crawler_hosts", (p0, ("state", "waiting"))] == 3
    assert found["crawler_commit_seconds_bucket", (("le", "0.001"), p0)] == 2
    assert found["crawler_commit_seconds_bucket", (("le", "0.025"), p0)] == 3
    assert found["crawler_commit_seconds_count", (p0,)] == 4
    assert found["crawler_process_resident_memory_bytes", (p0,)] > 1_000_000
    assert found["crawler_links_filtered_total", (p0, ("rule", "scope"))] == 1


def test_metrics_have_valid_names_and_help_texts() -> None:
    """promtool requires that every metric has a HELP text and a base unit, and that only counters end in _total."""
    text = metrics.text([status()]).decode()
    for family in text_string_to_metric_families(text):
        assert family.documentation.endswith("."), family.name
        assert re.fullmatch(r"crawler(_[a-z0-9]+)*", family.name), family.name
        assert not re.search(r"_(ms|minutes|kb|mb|percent)$", family.name)
        assert (family.type == "counter") == all(s.name.endswith("_total") for s in family.samples) or (
            family.type == "histogram"
        )


def test_series_do_not_grow_with_the_crawl() -> None:
    """A crawl of 100,000 hosts has as many series as a crawl of ten, and no label contains a host."""
    few, many = samples(status(hosts=10)), samples(status(hosts=100_000))
    assert few.keys() == many.keys() and len(few) < 200
    assert not any("example" in value for _, labels in many for _, value in labels)


def test_each_process_has_its_own_series() -> None:
    found = samples(status("p0"), status("p1"))
    assert {dict(labels)["process"] for name, labels in found if name == "crawler_urls_todo"} == {"p0", "p1"}


def test_a_histogram_counts_each_value_once() -> None:
    assert list(process_metrics.cumulative(COMMITS.plain()))[-1] == ("+Inf", 4.0)
    assert [count for _, count in process_metrics.cumulative(COMMITS.plain())][:2] == [2.0, 2.0]
