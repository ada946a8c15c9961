"""The crawl behind a page server, made of the stages of its processes.

`StoredCrawl` only reads: a directory at rest. A running crawl adds functions that
fetch ahead, take signals and count requests.
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from crawler.pages.archive import Archive
from crawler.pages.captures import unpack_capture
from crawler.records import PageRecord, PageState
from crawler.serve.seam import Located, Signalled
from crawler.storage.keys import CAPTURE

_STATES = {
    PageState.FAILED: "failed",
    PageState.GONE: "gone",
    PageState.DENIED: "denied",
    PageState.REDIRECTED: "failed",
    PageState.STORED: "failed",
    PageState.RETIRED: "gone",
}


class StoredCrawl:
    """`stages` by process name: those opened here; `now` gives the time.

    `ahead(url, fingerprint)`, `count(fingerprint)` and `signal(urls, source)`
    are what the running crawl offers; None = it does not run.
    """

    def __init__(
        self,
        stages: dict[str, Any],
        now: Callable[[], float],
        *,
        ahead: Callable[[str, int], bool] | None = None,
        count: Callable[[int], None] | None = None,
        signal: Callable[[Sequence[str], str], Signalled] | None = None,
        probability: Callable[[int, PageRecord, float], float | None] | None = None,
    ) -> None:
        self._stages = stages
        self._any = next(iter(stages.values()))
        self._now = now
        self._ahead = ahead
        self._count = count
        self._signal = signal
        self._probability = probability or self._estimated
        self._alone = len(self._any.topology.names) == 1

    def locate(self, url: str) -> Located:
        fingerprint = self._any.fingerprinter.fingerprint(url)
        if self._alone:
            return Located(fingerprint, self._any.pages)
        owner = self._any.topology.partition.owner(fingerprint)
        stages = self._stages.get(owner)
        return Located(fingerprint, None if stages is None else stages.pages, owner)

    def missing(self, url: str, fingerprint: int) -> tuple[str, str]:
        """What is known of a URL without a copy, from its record, the filter, the DUE and the frontier."""
        stages = self._stages[self.locate(url).owner] if not self._alone else self._any
        record = stages.pages.record(fingerprint)
        if record is not None:
            why = record.error or str(record.outcome).replace("_", " ")
            return _STATES.get(record.state, "failed"), why
        explanation = stages.intake.explain(url)
        if explanation.rule:
            return "filtered", f"{explanation.rule}: {explanation.reason}"
        if stages.due.contains(fingerprint):
            return "todo", str(stages.frontier.explain(url, self._now()))
        return "unknown", "no link to it has been found"

    def fresh_probability(self, fingerprint: int, record: PageRecord, now: float) -> float | None:
        return self._probability(fingerprint, record, now)

    def _estimated(self, fingerprint: int, record: PageRecord, now: float) -> float | None:
        """exp(-rate x age), the rate from the page's own history; None before its second fetch."""
        if record.fetches < 2 or record.state is not PageState.STORED:
            return None
        located = self._any if self._alone else self._stages[self._any.topology.partition.owner(fingerprint)]
        first = _first_instant(located.pages, fingerprint)
        interval = (record.fetched_at - first) / (record.fetches - 1)
        rate = change_rate(record.fetches - 1, record.changes, interval)
        return math.exp(-rate * max(0.0, now - record.fetched_at))

    def ahead(self, url: str, fingerprint: int) -> bool:
        return self._ahead is not None and self._ahead(url, fingerprint)

    def asked_for(self, fingerprint: int) -> None:
        if self._count is not None:
            self._count(fingerprint)

    def signal(self, urls: Sequence[str], source: str) -> Signalled:
        if self._signal is None:
            return Signalled(refused={"at_rest": len(urls)})
        return self._signal(urls, source)

    def ready(self) -> str:
        return ""


@lru_cache(maxsize=4096)
def _first_instant(archive: Archive, fingerprint: int) -> float:
    """The instant of a URL's first capture; captures are never removed from the front while a crawl is open."""
    prefix = CAPTURE + fingerprint.to_bytes(8, "big")
    for key, value in archive.store.scan(prefix, prefix + b"\xff" * 9):
        return unpack_capture(key, value).fetched_at
    return 0.0


def change_rate(visits: int, changes: int, interval: float) -> float:
    """Changes a second of a page that had changed at `changes` of `visits` visits, `interval` seconds apart.

    The bias-reduced estimator of Cho and Garcia-Molina 2003 (equation 9): finite
    even where every visit found a change.
    """
    if interval <= 0.0:
        return 0.0
    changes = min(changes, visits)
    return -math.log((visits - changes + 0.5) / (visits + 0.5)) / interval
