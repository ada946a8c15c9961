"""Authorities that cannot be connected to: they wait by themselves, not their host.

Anybody may link to `http://host:1/`. A failure before any answer (connection, TLS,
robots.txt) is charged to that scheme and port, which waits as a failing host does;
other authorities of the host go first. Between two unknown ports a host has
`STRANGER_GAPS` gaps for others: a thousand dead ports cost it a ninth of its turns.
The host itself has failed only if it has nothing else, and the port is its scheme's own.

Kept in memory, the latest `ENTRIES_MAX`: forgetting one costs a request.
Durations are seconds, instants seconds by the process clock.
"""

from collections.abc import Iterable

from crawler.config import PolitenessConfig
from crawler.frontier.hosts.politeness import backoff
from crawler.records import Blame, Fetch, Outcome, TaskKind

ENTRIES_MAX = 20_000
STRANGER_GAPS = 8
_UNCONNECTED = frozenset({Outcome.CONNECT_ERROR, Outcome.TLS_ERROR})


class Authorities:
    """Failures in a row of each authority, until when it waits, and how the last one ended."""

    def __init__(self) -> None:
        self._waits: dict[str, tuple[int, float, str]] = {}  # the oldest failure first
        self._strangers: dict[int, float] = {}  # host's slot -> when it may try the next; the oldest first

    def __len__(self) -> int:
        return len(self._waits)

    def ready_at(self, authority: str) -> float:
        """The instant from which it may be tried again; 0.0 if it never failed."""
        return self._waits[authority][1] if authority in self._waits else 0.0

    def cause(self, authority: str) -> str:
        """How its last failure ended; "" if it never failed."""
        return self._waits[authority][2] if authority in self._waits else ""

    def stranger_at(self, slot: int, authority: str) -> float:
        """The instant from which a host may ask an authority of which nothing is known."""
        return self._strangers.get(slot, 0.0) if names_port(authority) else 0.0

    def note_authority(self, slot: int, authority: str, now: float, gap: float) -> None:
        """A host asks an authority of which nothing is known; `gap` is that of its last answer."""
        if not names_port(authority):
            return
        self._strangers.pop(slot, None)
        self._strangers[slot] = now + STRANGER_GAPS * gap
        if len(self._strangers) > ENTRIES_MAX:
            del self._strangers[next(iter(self._strangers))]

    def failed(self, authority: str, now: float, config: PolitenessConfig, outcome: Outcome) -> float:
        """Charge a failure; return the instant from which the authority may be tried again."""
        failures = self._waits.pop(authority, (0, 0.0, ""))[0] + 1
        until = now + backoff(failures, config, outcome)
        self._waits[authority] = failures, until, str(outcome)
        if len(self._waits) > ENTRIES_MAX:
            del self._waits[next(iter(self._waits))]
        return until

    def answered(self, authority: str) -> None:
        """It can be connected to."""
        self._waits.pop(authority, None)


def failed_alone(task: TaskKind, fetch: Fetch, authority: str, others: Iterable[str]) -> bool:
    """Whether a failure is that of `authority`, not of its host; `others` are authorities the host has work for."""
    if fetch.blame is not Blame.HOST:
        return False
    if fetch.outcome not in _UNCONNECTED and task is not TaskKind.ROBOTS:
        return False
    return names_port(authority) or any(other != authority for other in others)


def names_port(authority: str) -> bool:
    """Whether an authority names a port, which is never its scheme's own in the canonical form."""
    return authority.rpartition("]")[2].rpartition("/")[2].count(":") > 0
