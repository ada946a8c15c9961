"""The report of a run: one JSON document from the durable counters and the stages' states."""

import resource
import sys
from collections.abc import Mapping
from typing import Any

import msgspec

from crawler.admin.status import group, nested, with_share
from crawler.clock import iso_time
from crawler.records import DueCounts, FrontierCounts, HostStatus, SplitterCounts
from crawler.urlfilter.rule_names import RULES
from crawler.version import __version__
from crawler.wording import PARKED_BY, describe_outcome, several

_NO_COUNTERS: dict[str, Any] = {"pages": {}, "bytes": {}, "urls": {}, "robots": {}}  # always present
# Outcomes that show that fetching works.
SUCCESSES = ("fetched", "empty", "unchanged", "truncated")

REASONS_SHOWN = 5  # the number of hosts that are named if no page could be fetched
WHY_HINT = " (see `crawler why URL`)"  # ends a reason; misleading if the directory is not kept


def peak_rss_bytes() -> int:
    """Return the peak resident memory of this process in bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def cpu_seconds() -> float:
    """Return the user and system CPU time of this process and its ended children."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


def _network(host: str) -> str:
    """Return the network that `network.allow_networks` must contain to allow the address of a host."""
    if host == "localhost" or host.endswith(".localhost") or host.startswith("127."):
        return "127.0.0.0/8"
    bare = host.strip("[]")
    if ":" in bare:
        return f"{bare}/128"
    return f"{bare}/32" if bare.replace(".", "").isdigit() else "ADDRESS/32"


def _said(outcomes: Mapping[str, int], of: str = "") -> list[str]:
    """Describe each outcome of requests and its count in words; `of` says what was requested, if not the URLs."""
    return [f"{of}{describe_outcome(name)} {n}" for name, n in sorted(outcomes.items()) if name != "retried"]


class Report(msgspec.Struct, kw_only=True):
    """The result of a run, either of one process or summed over several processes (`status.merge`).

    `started` and `ended` are instants. `counters` cover the whole crawl, and `run_counters` cover this run.
    `problems` lists the rules that the counters violate.
    """

    crawl_id: str
    started: float
    ended: float
    stopped_by: str = ""
    processes: int = 1
    counters: dict[str, int] = {}
    run_counters: dict[str, int] = {}
    frontier: FrontierCounts = msgspec.field(default_factory=FrontierCounts)
    hosts: list[HostStatus] = []
    due: DueCounts = msgspec.field(default_factory=DueCounts)
    splitter: SplitterCounts | None
    why_slow: dict[str, float] = {}
    cpu_seconds: float = 0.0
    peak_rss_bytes: int = 0
    problems: list[str] = []
    refreshing: dict[str, Any] = {}

    def plain(self) -> dict[str, Any]:
        """Return the report as a tree for JSON."""
        sections = msgspec.to_builtins(self)
        splitter = {} if self.splitter is None else {"splitter": with_share(self.splitter)}
        return {
            "version": __version__,
            "crawl_id": self.crawl_id,
            "started": iso_time(self.started),
            "ended": iso_time(self.ended),
            "seconds": round(self.ended - self.started, 3),
            "stopped_by": self.stopped_by,
            "processes": self.processes,
            **_NO_COUNTERS,
            **nested(self.counters),
            "run": {**_NO_COUNTERS, **nested(self.run_counters)},
            **{name: sections[name] for name in ("frontier", "hosts", "due")},
            **splitter,
            **({"refreshing": self.refreshing} if self.refreshing else {}),
            "why_slow": self.why_slow,
            "cpu_seconds": round(self.cpu_seconds, 3),
            "peak_rss_bytes": self.peak_rss_bytes,
            "conservation": self.problems or "holds",
        }

    @property
    def any_success(self) -> bool:
        """Return whether the crawl has ever fetched a page."""
        return any(self.counters.get(f"pages.{name}") for name in SUCCESSES)

    @property
    def nothing_new(self) -> bool:
        """Return whether the crawl was complete before the run: nothing was requested and no URL is left."""
        asked = [*group(self.run_counters, "pages").values(), *group(self.run_counters, "refresh").values()]
        return self.stopped_by == "done" and self.any_success and not any(asked)

    def why_nothing(self, refused: int) -> str:
        """Return a short reason why no seed could be fetched. `refused` is the number of refused seeds."""
        reasons = [f"{several(refused, 'seed', 'are')} refused"] if refused else []
        for host in self.hosts[:REASONS_SHOWN]:
            cause = describe_outcome(host.cause) or ("no answer" if host.failures else "")
            hint = (
                f" (network.allow_networks={_network(host.host)} allows it)"
                if host.cause == "address_denied"
                else ""
            )
            reasons += [f"{host.host}: {cause}{hint}"] if cause else []
        said = _said(group(self.run_counters, "pages"))
        if not group(self.run_counters, "pages"):  # only robots.txt was requested
            told = {host.cause for host in self.hosts[:REASONS_SHOWN]}
            robots = group(self.run_counters, "robots")
            said = _said({name: n for name, n in robots.items() if name not in told}, "robots.txt ")
        if not said:  # nothing was requested
            filtered = group(self.run_counters, "urls.filtered")
            said = [
                f"URL filter: {RULES[name]} ({n})" for name, n in sorted(filtered.items()) if name in RULES
            ]
        causes = {each.partition(": ")[2] for each in reasons}  # those that `reasons` already names
        said = [each for each in said if each.rpartition(" ")[0] not in causes]
        if said:
            said[-1] += WHY_HINT
        if not (reasons or said or self.counters.get("urls.seeds")):
            return "no seeds were given"
        return "; ".join(reasons + said) or self._nothing_left()

    def _nothing_left(self) -> str:
        """Return the reason why the run requested nothing: all URLs are parked, or earlier runs have tried them."""
        said = _said(group(self.counters, "pages"))
        parked = {rule: getattr(self.frontier, f"parked_{rule}") for rule in PARKED_BY}
        if reasons := [f"{PARKED_BY[rule]} ({count:,})" for rule, count in parked.items() if count]:
            return (
                f"{several(self.frontier.parked, 'URL', 'are')} parked: {', '.join(reasons)}; "
                "raise the limit to queue such URLs again"
            )
        if not said:
            return "no URL is left to fetch; see `crawler status`"
        return (
            f"no URL is left to fetch; in earlier runs: {', '.join(said)}. "
            "To request these URLs again, give crawl.timestamping=true"
        )
