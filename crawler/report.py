"""The report of a run: one JSON document from the durable counters and the stages' states.

`conservation` checks the laws of `durability.md`, section 4:

    accepted + received + resharded = cache_hits + to_outbox + to_due
    to_due              = pending + known + new
    new                 = done + todo + parked          (what is in flight is still to do)

`resharded` makes the books of a process whole after hosts have moved to or
from it (`resharding.py`). Seeds are links like any other and pass the DUE. Where a cache hit is, the
CLOCK cache or the DUE's set of pending fingerprints said that the link is old.
"""

import math
import resource
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from crawler import __version__

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


def iso_time(instant: float) -> str:
    """An instant as ISO 8601 in UTC, to the millisecond."""
    whole = math.floor(instant)
    return f"{_iso_second(whole)}.{int((instant - whole) * 1000):03d}Z"


@lru_cache(maxsize=8)
def _iso_second(instant: int) -> str:
    return datetime.fromtimestamp(instant, UTC).strftime("%Y-%m-%dT%H:%M:%S")


def conservation(counters: Mapping[str, int], due: Mapping[str, int], todo: int, parked: int) -> list[str]:
    """The laws that do not hold, a line each; [] if all do."""
    c = counters.get
    laws = {
        "accepted + received + resharded = cache_hits + to_outbox + to_due": (
            c("urls.accepted", 0) + c("urls.received", 0) + c("urls.resharded", 0),
            c("urls.cache_hits", 0) + c("urls.to_outbox", 0) + c("urls.to_due", 0),
        ),
        "to_due = pending + known + new": (
            c("urls.to_due", 0),
            due["pending"] + due["known"] + due["new"],
        ),
        "new = done + todo + parked": (due["new"], c("urls.done", 0) + todo + parked),
    }
    return [f"{law}: {left} != {right}" for law, (left, right) in laws.items() if left != right]


def splitter_conservation(counters: Mapping[str, int], splitter: Mapping[str, int]) -> list[str]:
    """The laws of the links between processes that do not hold; `splitter` is empty in a crawl of one process."""
    if not splitter:
        return []
    c = counters.get
    laws = {
        "to_outbox + scope_told = sent + waiting + repeated": (
            c("urls.to_outbox", 0) + splitter["scope_told"],
            splitter["sent"] + splitter["waiting"] + splitter["repeated"],
        ),
        "received + scope_heard = applied": (
            c("urls.received", 0) + splitter["scope_heard"],
            splitter["applied"],
        ),
    }
    return [f"{law}: {left} != {right}" for law, (left, right) in laws.items() if left != right]


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
