"""Judges the health of a crawl from its status alone, and gives the reasons if it is unhealthy.

    healthy      every process runs and no rule of `RULES` is broken; a crawl that only waits for
                 the gaps of its hosts is healthy
    degraded     the crawl does its work, but a rule shows that a part of the work fails, or that the
                 crawl needs a look
    unhealthy    a rule shows that the crawl, or one of its processes, does not do its work
    paused       healthy, and paused by the user
    at rest      no process runs, and the latest run of each ended cleanly
    died         no process runs, and the latest run of at least one did not end cleanly

Each broken rule is a `BrokenRule` with its severity and a sentence. `crawler status`, `crawler top`,
`/status`, the metrics and the dashboard all show the same verdict. Rates cover about the last minute
(`process_metrics.LastMinute`), so a verdict lasts at least about a minute after its cause has ended.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import msgspec

from crawler.records import TLS_FAILURES, FrontierCounts, Outcome, PeerStatus
from crawler.wording import describe_outcome, several

# Outcomes of pages and robots.txt that show trouble with a server or with the network of the crawl.
TROUBLE = (
    Outcome.CONNECT_ERROR, Outcome.DNS_ERROR, *sorted(TLS_FAILURES), Outcome.PROXY_ERROR, Outcome.HEADER_TIMEOUT,
    Outcome.RESET, Outcome.TEMPORARY, Outcome.HOST_BUSY, Outcome.FRAMING, Outcome.BAD_STATUS, Outcome.INTERNAL_ERROR,
)  # fmt: skip
REQUESTS_MIN = 20  # with fewer requests than this in the last minute, the share of failures is not meaningful
HOSTS_MIN = 5  # with fewer hosts than this in the last minute, the share of failures is not meaningful
SHARE_SOME = 0.25  # share of requests or hosts that may fail in a healthy crawl
SHARE_MAX = 0.5  # share of requests or hosts that may fail in a degraded crawl
SPAN_MIN = 30.0  # seconds without progress after which a crawl counts as stalled
# number of seconds for which the verdict mentions a logged error, or the death of a process that runs again
ERRORS_AGE = 600.0
# if more processes than this died within ERRORS_AGE, the crawl is unhealthy, even if all of them run again
DEATHS_MAX = 2
RESTARTING = "; restarting it"  # the end of the message about a process that died
DEGRADED, UNHEALTHY = "degraded", "unhealthy"
LAG_MAX = 2.0  # seconds of event-loop lag; normal garbage collections and flushes stay below 0.5
DESCRIPTORS_MAX = 0.9  # share of the limit of open files that may be in use
_PAUSES = {
    "disk": "nothing is fetched because the disk is nearly full; once there is space, fetching continues"
}
_SOURCES = ("pages", "refresh", "robots")
_PREFIX = "failed."


class MemberStatus(msgspec.Struct, frozen=True):
    """A process of a crawl. Its state is `running`, `at_rest`, `died`, `missing` or `ended`.

    If no process of the crawl runs, each process is `at_rest` if its latest run ended cleanly, and otherwise has
    `died`. A process is `missing` if it does not answer while others run. A process has `ended` if the crawl is
    ending and this process has finished before the others.

    `seen_at` is the instant at which the figures shown for the process were read; 0 if there are none.
    """

    name: str
    state: str
    seen_at: float = 0.0
    pid: int = 0


class CrawlSigns(Protocol):
    """The parts of a status (`status.py`) that the verdict depends on."""

    now: float
    frontier: FrontierCounts
    peers: dict[str, dict[str, PeerStatus]]
    processes: list[dict[str, Any]]
    recent: dict[str, float]
    paused: list[str]
    errors: list[dict[str, Any]]
    members: list[MemberStatus]


class BrokenRule(msgspec.Struct, frozen=True):
    """A broken rule: its name in `RULES`, a sentence, and the severity: "degraded" or "unhealthy"."""

    rule: str
    text: str
    severity: str = UNHEALTHY


class Health(msgspec.Struct, frozen=True):
    """The verdict: `state` is healthy, degraded, unhealthy, paused, at rest or died. The worst problem comes first."""

    state: str
    problems: tuple[BrokenRule, ...] = ()

    @property
    def healthy(self) -> bool:
        return not self.problems

    def __str__(self) -> str:
        if self.healthy:
            return self.state
        return f"{self.state}: " + "; ".join(problem.text for problem in self.problems)

    def plain(self) -> dict[str, Any]:
        """Return the verdict as a dict that can be written as JSON."""
        return {
            "healthy": self.healthy,
            "state": self.state,
            "problems": [msgspec.to_builtins(problem) for problem in self.problems],
            "said": str(self),
        }


def health(status: CrawlSigns) -> Health:
    """Return the verdict on a crawl."""
    if not any(member.state == "running" for member in status.members):
        died = [member.name for member in status.members if member.state == "died"]
        if not died:
            return Health("at rest")
        text = f"{_list(died)} did not end cleanly: killed, or stopped by an error; start the crawl again"
        return Health("died", (BrokenRule("died", text),))
    found = ((name, broken(status)) for name, broken in RULES.items())
    problems = [BrokenRule(name, text, severity) for name, (severity, text) in found if text]
    problems.sort(key=lambda problem: problem.severity != UNHEALTHY)
    if problems:
        return Health(problems[0].severity, tuple(problems))
    return Health("paused" if status.paused else "healthy")


def recent_requests(counters: Mapping[str, int]) -> dict[str, int]:
    """Return the counters whose growth the verdict depends on: answers, failures, and failures by outcome."""
    counts = {f"{_PREFIX}{outcome}": _over(counters, outcome) for outcome in TROUBLE}
    answers = sum(_over(counters, outcome) for outcome in Outcome if outcome is not Outcome.ROBOTS_DENIED)
    return {"requests": answers, "failures": sum(counts.values())} | counts


def _over(counters: Mapping[str, int], outcome: Outcome) -> int:
    return sum(counters.get(f"{source}.{outcome}", 0) for source in _SOURCES)


def failures(counters: Mapping[str, int], nameless: int = 0) -> list[dict[str, Any]]:
    """Describe the outcomes of `TROUBLE` that occurred, each with its count. The most frequent outcome comes first.

    `nameless` is the number of hosts whose name does not exist.
    """
    counts = [(_over(counters, outcome), str(outcome)) for outcome in TROUBLE]
    counts = sorted([*counts, (nameless, str(Outcome.DNS_NOT_FOUND))], reverse=True)
    return [{"outcome": name, "said": describe_outcome(name), "count": n} for n, name in counts if n]


# -- the rules: each returns a severity and a sentence if something is wrong, else ""

Finding = tuple[str, str]


def missing_words(status: CrawlSigns) -> str:
    """Name the processes that do not answer while others run; return "" if all answer."""
    names = [member.name for member in status.members if member.state == "missing"]
    if not names:
        return ""
    return f"{_list(names)} {'is' if len(names) == 1 else 'are'} not running"


def _missing(status: CrawlSigns) -> Finding:
    return UNHEALTHY, missing_words(status)


def _paused(status: CrawlSigns) -> Finding:
    reasons = sorted({*status.paused} - {"user"})
    return UNHEALTHY, "; ".join(_PAUSES.get(reason, f"paused: {reason}") for reason in reasons)


def _stalled(status: CrawlSigns) -> Finding:
    recent, frontier = status.recent, status.frontier
    known = recent.get("span", 0.0) >= SPAN_MIN and "requests" in recent
    works = recent.get("requests", 0) > recent.get("failures", 0) or not frontier.todo
    if status.paused or not known or works or not _failing(frontier):
        return UNHEALTHY, ""
    return UNHEALTHY, "no request has succeeded in the last minute"


def _requests(status: CrawlSigns) -> Finding:
    requests, failed = (round(status.recent.get(name, 0)) for name in ("requests", "failures"))
    text = f"{failed:,} of {several(requests, 'request')} failed in the last minute"
    return _of_share(status, failed, requests, text if requests >= REQUESTS_MIN else "")


def _hosts(status: CrawlSigns) -> Finding:
    failing, answered = _failing(status.frontier), status.frontier.hosts_reached
    text = f"{several(failing, 'host', 'fail')} and {answered:,} answered so far"
    return _of_share(status, failing, failing + answered, text if failing >= HOSTS_MIN else "")


def _failing(frontier: FrontierCounts) -> int:
    """Return the number of failing hosts that the verdict depends on.

    Hosts whose name does not exist count only if no host has answered. DNS may then be at fault; otherwise,
    links to such hosts are usual.
    """
    return frontier.hosts_failing - (frontier.hosts_nameless if frontier.hosts_reached else 0)


def _of_share(status: CrawlSigns, failed: float, whole: float, text: str) -> Finding:
    """Return the severity of a number of failures, and `text` with their main cause; "" if the number is normal."""
    if not text or failed <= SHARE_SOME * whole:
        return UNHEALTHY, ""
    return UNHEALTHY if failed > SHARE_MAX * whole else DEGRADED, text + _mostly(status.recent)


def _mostly(recent: Mapping[str, float]) -> str:
    """Return words that name the most frequent failure of the last minute, for the end of a sentence."""
    counts = {name.removeprefix(_PREFIX): n for name, n in recent.items() if name.startswith(_PREFIX) and n}
    if not counts:
        return ""
    return f"; most frequent failure: {describe_outcome(max(counts, key=lambda name: counts[name]))}"


def _peers(status: CrawlSigns) -> Finding:
    lost = [
        f"{name} to {peer} ({several(state.outbox_links, 'link', 'wait')})"
        for name, peers in status.peers.items()
        for peer, state in peers.items()
        if state.connected is False and state.outbox_links
    ]
    return UNHEALTHY, f"no connection from {_list(lost)}" if lost else ""


def _deaths(status: CrawlSigns) -> Finding:
    """Name a process that died and was started again.

    While this process is missing, the crawl also breaks the rule `missing`.
    """
    deaths = [each for each in _late_errors(status) if each.get("died")]
    if not deaths:
        return DEGRADED, ""
    latest = max(deaths, key=lambda each: each["at"])["message"].rpartition(RESTARTING)[0]
    if len(deaths) <= DEATHS_MAX:
        return DEGRADED, f"a process died in the last 10 minutes: {latest}"
    return UNHEALTHY, f"processes died {len(deaths)} times in the last 10 minutes, the latest: {latest}"


def _errors(status: CrawlSigns) -> Finding:
    errors = [each for each in _late_errors(status) if not each.get("died")]
    if not errors:
        return DEGRADED, ""
    latest = max(errors, key=lambda each: each["at"])["message"]
    n = len(errors)
    return DEGRADED, (
        f"{n} error{'s were' if n > 1 else ' was'} logged in the last 10 minutes, the latest: {latest}"
    )


def _late_errors(status: CrawlSigns) -> list[dict[str, Any]]:
    return [
        each for each in status.errors if each["level"] == "error" and status.now - each["at"] < ERRORS_AGE
    ]


def _lag(status: CrawlSigns) -> Finding:
    late = [each for each in status.processes if each.get("loop_lag", 0.0) > LAG_MAX]
    return DEGRADED, "; ".join(
        f"{each['name']} is blocked for up to {each['loop_lag']:.1f} s" for each in late
    )


def _descriptors(status: CrawlSigns) -> Finding:
    full = [
        each
        for each in status.processes
        if each.get("descriptors", 0) > DESCRIPTORS_MAX * each.get("descriptors_max", float("inf"))
    ]
    return DEGRADED, "; ".join(
        f"{each['name']} has {each['descriptors']:,} of at most {each['descriptors_max']:,} files open"
        for each in full
    )


def _list(names: Iterable[str]) -> str:
    return ", ".join(names)


RULES: dict[str, Callable[[CrawlSigns], Finding]] = {
    "missing": _missing,  # a process does not run
    "paused": _paused,  # the crawl paused itself
    "stalled": _stalled,  # nothing succeeds
    "requests": _requests,  # many or most requests fail
    "hosts": _hosts,  # many or most hosts fail
    "peers": _peers,  # links wait for a process that cannot be reached
    "deaths": _deaths,  # a process died lately
    "errors": _errors,  # an error was logged lately
    "lag": _lag,  # the event loop is blocked
    "descriptors": _descriptors,  # nearly all file descriptors are in use
}
