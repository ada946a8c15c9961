"""The crawl that a page server shows, composed of the stages of its processes.

`StoredCrawl` only reads: a crawl directory at rest. A running crawl adds functions that
fetch pages ahead of their turn and count requests.
"""

from collections.abc import Callable
from typing import Any

from crawler.records import PageState
from crawler.serve.interfaces import Ahead, AheadState, Located

_STATES = {
    PageState.FAILED: "failed",
    PageState.GONE: "gone",
    PageState.DENIED: "denied",
    PageState.REDIRECTED: "failed",
    PageState.STORED: "failed",
    PageState.RETIRED: "gone",
}


class StoredCrawl:
    """Serves the processes in `stages` (by name); `now` returns the time.

    A running crawl supplies `request_fetch(url, fingerprint)` and `count(fingerprint)`;
    None = the crawl is not running.
    """

    def __init__(
        self,
        stages: dict[str, Any],
        now: Callable[[], float],
        *,
        ahead: Callable[[str, int], Ahead] | None = None,
        count: Callable[[int], None] | None = None,
    ) -> None:
        self._stages = stages
        self._any = next(iter(stages.values()))
        self._now = now
        self._ahead = ahead
        self._count = count
        self._alone = len(self._any.topology.names) == 1

    def locate(self, url: str) -> Located:
        fingerprint = self._any.fingerprinter.fingerprint(url)
        if self._alone:
            return Located(fingerprint, self._any.pages)
        owner = self._any.topology.partition.owner(fingerprint)
        stages = self._stages.get(owner)
        return Located(fingerprint, None if stages is None else stages.pages, owner)

    def missing(self, url: str, fingerprint: int) -> tuple[str, str]:
        """Return (state, reason) of a URL without a copy, from its record, the URL filter, the DUE and the frontier."""
        stages = self._stages[self.locate(url).owner] if not self._alone else self._any
        record = stages.pages.record(fingerprint)
        if record is not None:
            why = record.error or str(record.outcome).replace("_", " ")
            return _STATES.get(record.state, "failed"), why
        explanation = stages.intake.explain(url)
        if explanation.rule:
            return "filtered", f"{explanation.rule}: {explanation.reason}"
        if stages.due.contains(fingerprint):
            return "todo", str(stages.frontier.views.explain(url, self._now()))
        return "unknown", "no link to it has been found"

    def disallowed(self, url: str) -> str:
        stages = self._stages[self.locate(url).owner] if not self._alone else self._any
        line: str = stages.frontier.views.disallowing_line(url)
        return line

    def fresh_probability(self, fingerprint: int, fetched_at: float, now: float) -> float | None:
        """Return P(fresh) from the refresh schedule, running or stored; None if nothing was ever refreshed."""
        stages = self._any if self._alone else self._stages[self._any.topology.partition.owner(fingerprint)]
        if stages.views.freshness is None:
            return None
        found: float | None = stages.views.freshness.views.probability(fingerprint, fetched_at, now)
        return found

    def request_fetch(self, url: str, fingerprint: int) -> Ahead:
        if self._ahead is None:
            return Ahead(AheadState.AT_REST, "the crawl is not running")
        return self._ahead(url, fingerprint)

    def note_request(self, fingerprint: int) -> None:
        if self._count is not None:
            self._count(fingerprint)

    def ready(self) -> str:
        return ""
