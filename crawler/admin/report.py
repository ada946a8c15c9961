"""The report of a run: one JSON document from the durable counters and the stages' states."""

import resource
import sys
from collections.abc import Mapping
from typing import Any

from crawler import __version__
from crawler.clock import iso_time

_NO_COUNTERS: dict[str, Any] = {"pages": {}, "bytes": {}, "urls": {}, "robots": {}}  # always there
SUCCESSES = (
    "fetched",
    "empty",
    "unchanged",
    "truncated",
)  # outcomes that show that something could be fetched

REASONS_SHOWN = 5  # hosts named where not one page could be fetched


def any_success(report: Mapping[str, Any]) -> bool:
    """Whether the crawl of a report has ever fetched a page."""
    return any(report.get("pages", {}).get(name) for name in SUCCESSES)


def why_nothing(report: Mapping[str, Any], refused: int) -> str:
    """What stood in the way of the seeds, in a few words; `refused` of them were no URLs."""
    reasons = [f"{refused} seeds are no http(s) URLs"] if refused else []
    for host in report.get("hosts", [])[:REASONS_SHOWN]:
        cause = host["cause"].replace("_", " ") or ("no answer" if host["failures"] else "")
        hint = " (--allow-network opens one)" if host["cause"] == "address_denied" else ""
        reasons += [f"{host['host']}: {cause}{hint}"] if cause else []
    outcomes = report.get("run", {}).get("pages", {})
    reasons += [f"{name.replace('_', ' ')} {n}" for name, n in outcomes.items() if name != "retried"]
    return "; ".join(reasons) or "nothing is left to do; `crawler status` tells more"


def with_share(splitter: Mapping[str, Any]) -> dict[str, Any]:
    """Counters of the splitter with the share of links that stayed in their process (Mercator: 81.5 %)."""
    links = splitter.get("local", 0) + splitter.get("foreign", 0)
    return {**splitter, "local_share": round(splitter["local"] / links, 4)} if links else dict(splitter)


def nested(counters: Mapping[str, int]) -> dict[str, Any]:
    """{"pages.fetched": 3} as {"pages": {"fetched": 3}}, names in order."""
    tree: dict[str, Any] = {}
    for name in sorted(counters):
        *folders, leaf = name.split(".")
        node = tree
        for folder in folders:
            node = node.setdefault(folder, {})
        node[leaf] = counters[name]
    return tree


def peak_rss_bytes() -> int:
    """The most memory this process has had resident."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def cpu_seconds() -> float:
    """User and system time of this process and its ended children."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def build(
    *,
    crawl_id: str,
    started: float,
    ended: float,
    stopped_by: str,
    processes: int,
    counters: Mapping[str, int],
    run_counters: Mapping[str, int],
    sections: Mapping[str, Any],
    problems: list[str],
) -> dict[str, Any]:
    """The report as plain data. `counters` are of the whole crawl, `run_counters` of this run."""
    return {
        "version": __version__,
        "crawl_id": crawl_id,
        "started": iso_time(started),
        "ended": iso_time(ended),
        "seconds": round(ended - started, 3),
        "stopped_by": stopped_by,
        "processes": processes,
        **_NO_COUNTERS,
        **nested(counters),
        "run": {**_NO_COUNTERS, **nested(run_counters)},
        **sections,
        "cpu_seconds": round(cpu_seconds(), 3),
        "peak_rss_bytes": peak_rss_bytes(),
        "conservation": problems or "holds",
    }
