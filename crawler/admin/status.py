"""The status of a running process, and the sum over several processes.

`crawler status`, the live screen and the control socket show a `Status`. Only `merge` adds up statuses and
reports (`report.py`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar

import msgspec
from msgspec.structs import replace

from crawler.admin.eta import Eta, describe_eta, eta
from crawler.admin.health import Health, MemberStatus, failures, health
from crawler.frontier.refresh.delays import delay_within
from crawler.records import DueCounts, FrontierCounts, HostStatus, PeerStatus, SlowestHost, SplitterCounts

T = TypeVar("T")
_DERIVED = ("outlook", "health", "crawl")  # sections of the tree that are not fields of a status


class Status(msgspec.Struct, kw_only=True):
    """The current state of a process, or of several together.

    `counters` are the durable counters, by dotted name. `splitter` is None in a crawl of one process. `peers`
    contains the connections of each process to the others. `waiting` lists some hosts and what they wait for.
    `members` are all processes, even those that do not run. `traps` are the parts of sites that may be endless.

    The fields from `processes` to `serve` are set only for running processes (`process/live_services.py`).
    `processes` contains the vital signs of each process. `run` contains the number of new pages fetched and
    of known pages fetched again in this run, and the number of bytes of large files that are not committed
    yet. `recent` is the growth in about the last minute (`process_metrics.LastMinute`). `slowest` is the host
    whose URLs take the longest time; it is None if no host must wait. `pages_left` is the number of pages
    that may still be fetched in this run; it is None without `crawl.max_pages`. `timings` are histograms.
    `waited` contains, for each reason, the seconds in which no fetch could start. `errors` are the latest
    warnings. `serve` is the state of the page server.
    """

    name: str = ""
    now: float = 0.0
    counters: dict[str, int] = {}
    frontier: FrontierCounts = msgspec.field(default_factory=FrontierCounts)
    due: DueCounts = msgspec.field(default_factory=DueCounts)
    splitter: SplitterCounts | None = None
    peers: dict[str, dict[str, PeerStatus]] = {}
    waiting: list[HostStatus] = []
    members: list[MemberStatus] = []
    processes: list[dict[str, Any]] = []
    run: dict[str, int] = {}
    recent: dict[str, float] = {}
    slowest: SlowestHost | None = None
    pages_left: int | None = None
    timings: dict[str, dict[str, Any]] = {}
    waited: dict[str, float] = {}
    paused: list[str] = []
    errors: list[dict[str, Any]] = []
    log: dict[str, int] = {}
    serve: dict[str, Any] = {}
    refreshing: dict[str, Any] = {}
    traps: list[str] = []

    @property
    def received_bytes(self) -> int:
        """The number of bytes of bodies that were received. Bytes of a large file count while it arrives."""
        return self.counters.get("bytes.wire", 0) + self.run.get("arriving_bytes", 0)

    @property
    def eta(self) -> Eta:
        """Estimate the remaining work of the crawl."""
        return eta(self.frontier.todo, self.due.pending, self.recent, self.slowest, self.pages_left)

    @property
    def fetches(self) -> int:
        """The number of fetches of pages, new and known."""
        return fetches(self.counters)

    @property
    def speed(self) -> float:
        """The number of pages, new and known, fetched per second in the last minute or, at first, in this run."""
        if self.recent.get("span", 0.0) > 0.0:
            return self.recent.get("fetches", 0.0) / self.recent["span"]
        up = self.now - min([each["started"] for each in self.processes], default=self.now)
        return (self.run.get("fetched", 0) + self.run.get("again", 0)) / up if up > 0.0 else 0.0

    @property
    def health(self) -> Health:
        """Return whether the crawl is healthy, and why not."""
        return health(self)

    @property
    def outlook(self) -> str:
        """Describe the remaining work in one line. Return "" while nothing is known."""
        return describe_eta(self.eta, self.counters.get("refresh.done", 0))

    def plain(self) -> dict[str, Any]:
        """Return one tree for JSON: groups of counters, the sections of the stages, the estimate and the health."""
        sections = msgspec.to_builtins(self)
        sections["splitter"] = {} if self.splitter is None else with_share(self.splitter)
        sections["outlook"] = msgspec.to_builtins(self.eta) | {"said": self.outlook}
        sections["health"] = self.health.plain() | {
            "failures": failures(self.counters, self.frontier.hosts_nameless)
        }
        return nested(sections.pop("counters")) | sections

    @classmethod
    def of(cls, plain: Mapping[str, Any]) -> Self:
        """Build a status from the tree that `plain` returned.

        Raises:
            msgspec.ValidationError: the tree has another form.
        """
        sections = {name: plain[name] for name in cls.__struct_fields__ if name in plain}
        counters = {name: value for name, value in plain.items() if name not in (*sections, *_DERIVED)}
        sections["splitter"] = sections.get("splitter") or None
        return msgspec.convert({**sections, "counters": dict(_flat(counters))}, cls)


def with_share(splitter: SplitterCounts) -> dict[str, Any]:
    """Return the splitter's counts, and the share of links that stayed in their process. In Mercator, it was 81.5 %."""
    plain: dict[str, Any] = msgspec.to_builtins(splitter)
    links = splitter.local + splitter.foreign
    return plain | {"local_share": round(splitter.local / links, 4)} if links else plain


def fetches(counters: Mapping[str, int]) -> int:
    """Return the number of fetches of pages, new and known."""
    return counters.get("pages.fetched", 0) + counters.get("refresh.done", 0)


def nested(counters: Mapping[str, int]) -> dict[str, Any]:
    """Nest counters by the parts of their names: {"pages.fetched": 3} becomes {"pages": {"fetched": 3}}."""
    tree: dict[str, Any] = {}
    for name in sorted(counters):
        *folders, leaf = name.split(".")
        node = tree
        for folder in folders:
            node = node.setdefault(folder, {})
        node[leaf] = counters[name]
    return tree


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, int]]:
    for name, value in tree.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        elif isinstance(value, int):
            yield prefix + name, value


def group(counters: Mapping[str, int], name: str) -> dict[str, int]:
    """Return the counters of one group without its name: "pages" of {"pages.fetched": 3} is {"fetched": 3}."""
    prefix = f"{name}."
    return {key.removeprefix(prefix): n for key, n in counters.items() if key.startswith(prefix)}


# -- the sum over processes ----------------------------------------------------------


def _mean(values: Sequence[dict[str, float]]) -> dict[str, float]:
    values = [value for value in values if value]
    names = dict.fromkeys(name for value in values for name in value)
    return {name: sum(value.get(name, 0.0) for value in values) / len(values) for name in names}


def _weighted(values: Sequence[Mapping[str, Any]], name: str, by: str) -> float | None:
    """Return the mean of the values under `name`, weighted by the values under `by`; None if there is no value."""
    known = [(value[name], value[by]) for value in values if value.get(name) is not None]
    whole = sum(weight for _, weight in known)
    return round(sum(number * weight for number, weight in known) / whole, 4) if whole else None


def _refreshing(values: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Merge the refresh sections of several processes (`frontier/refresh/expectation.py`).

    The freshness is weighted by the importance of pages, as in each process.
    """
    values = [value for value in values if value]
    if len(values) < 2:
        return values[0] if values else {}
    plain = ("pages", "importance", "in_flight", "ahead", "rate", "share", "results", "hosts")
    merged = {name: _merged(name, [value.get(name) for value in values]) for name in plain}
    rows: dict[int, list[dict[str, Any]]] = {}
    for row in (row for value in values for row in value["calibration"]):
        rows.setdefault(row["decile"], []).append(row)
    merged["hosts"].sort(key=lambda host: -host["pages"])
    gains = [value | value["more_rate"] for value in values if value["more_rate"]]
    return merged | {
        "expected_freshness": _weighted(values, "expected_freshness", "importance"),
        "level": _weighted(values, "level", "pages"),
        "levels": [value["level"] for value in values],
        "busy": _weighted(values, "busy", "pages"),
        "known_share": _weighted(values, "known_share", "pages"),
        "news": _news([value["news"] for value in values if value.get("news")]),
        "wait": _first_wait(values),
        "more_rate": {"share": gains[0]["share"], "gain": _weighted(gains, "gain", "importance")}
        if gains
        else {},
        "ages": _ages(values),
        "calibration": [
            {
                "decile": decile,
                "refreshes": sum(row["refreshes"] for row in found),
                "predicted": _weighted(found, "predicted", "refreshes"),
                "found": _weighted(found, "found", "refreshes"),
            }
            for decile, found in sorted(rows.items())
        ],
        "arms": [_arm(found) for found in zip(*(value["arms"] for value in values), strict=False)],
    }


def _first_wait(values: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the shortest of the waits for known pages; {} if a process with known pages does not wait."""
    waits = [value.get("wait") or {} for value in values if value["pages"]]
    return min(waits, key=lambda wait: wait["until"]) if waits and all(waits) else {}


def _news(values: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Merge the counts of new pages that hubs have shown."""
    if not values:
        return {}
    plain = ("found", "by_kind", "dated", "delays", "hubs", "unfound")
    paces = [value["per_day"] for value in values if value["per_day"] is not None]
    merged = {name: _merged(name, [value.get(name) for value in values]) for name in plain}
    delays = {int(number): count for number, count in (merged["delays"] or {}).items()}
    return merged | {
        "per_day": round(sum(paces), 2) if paces else None,
        "delay_median": delay_within(delays, 0.5),
        "delay_p90": delay_within(delays, 0.9),
    }


def _ages(values: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Merge the ages of copies; each median becomes the mean of the processes' medians."""
    known = [value | value["ages"] for value in values if value["ages"]]
    if not known:
        return {}
    middle = {name: _weighted(known, name, "pages") or 0.0 for name in ("median", "p90")}
    return middle | {"oldest": max(value["oldest"] for value in known)}


def _arm(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Merge the rows that all processes have of one arm of a comparison.

    The expected freshness is weighted by the importance of pages, and the freshness that was seen by the spans
    of the refreshes. The error of the result is the error of a weighted mean of independent parts.
    """
    arm = {"policy": rows[0]["policy"]}
    arm |= {name: sum(row[name] for row in rows) for name in ("pages", "refreshes", "changed")}
    for name, by in (("expected", "importance"), ("seen", "spans")):
        if (mean := _weighted(rows, name, by)) is not None:
            known = [row for row in rows if row.get(name) is not None]
            whole = sum(row[by] for row in known)
            parts = [(row.get(f"{name}_error", 0.0) * row[by] / whole) ** 2 for row in known]
            arm |= {by: whole, name: mean, f"{name}_error": round(sum(parts) ** 0.5, 4)}
    return arm


_BY_NAME: dict[str, Callable[[Sequence[Any]], Any]] = {
    "refreshing": _refreshing,
    "now": max,
    "started": min,
    "ended": max,
    "span": max,
    "why_slow": _mean,  # each value is a fraction of the run's time
    "pages_left": min,  # each process reports the number for the whole crawl
    "slowest": lambda values: max(values, key=lambda host: host.seconds),
    "paused": lambda values: sorted({reason for value in values for reason in value}),
}


def merge(parts: Sequence[T]) -> T:
    """Merge several structs, or mappings, of one kind into one.

    Numbers are added and lists are joined. `started` is the earliest instant, `ended` and `now` are the latest.
    Anything else is taken from the first part that has it. Values that are None or missing in a part are skipped.
    """
    return _merged("", parts)


def _merged(name: str, values: Sequence[Any]) -> Any:
    values = [value for value in values if value is not None]
    if not values:
        return None
    first = values[0]
    if name in _BY_NAME:
        return _BY_NAME[name](values)
    if isinstance(first, msgspec.Struct):
        fields = first.__struct_fields__
        return type(first)(
            **{field: _merged(field, [getattr(value, field) for value in values]) for field in fields}
        )
    if isinstance(first, Mapping):
        keys = dict.fromkeys(key for value in values for key in value)
        return {key: _merged(key, [value[key] for value in values if key in value]) for key in keys}
    if isinstance(first, list):
        return [item for value in values for item in value]
    if isinstance(first, int | float) and not isinstance(first, bool):
        return sum(values)
    return next(filter(None, values), first)


def whole(parts: Sequence[Status]) -> Status:
    """Merge the statuses of a crawl's processes. A process that does not run while others do is marked as missing."""
    status = merge(parts)
    if any(member.state == "running" for member in status.members):
        status.members = [
            replace(member, state="missing") if member.state in ("at_rest", "died") else member
            for member in status.members
        ]
    return status


def resting(last: Status, state: str = "missing") -> Status:
    """Return the last status of a process that no longer runs, without the figures that are no longer true.

    `state` is its new state.
    """
    seen = max((member.seen_at for member in last.members), default=last.now)
    busy = ("in_flight", "requests", "look_ups", "hosts_front", "hosts_ready", "hosts_waiting")
    frontier = replace(last.frontier, **dict.fromkeys(busy, 0))
    return Status(
        name=last.name,
        counters=last.counters,
        frontier=frontier,
        due=last.due,
        splitter=last.splitter,
        peers=last.peers,
        members=[MemberStatus(last.name, state, seen)],
        refreshing=last.refreshing,
        traps=last.traps,
    )
