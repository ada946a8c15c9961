"""Change signals: defines their sources, and the possible fates of a signalled URL.

A signal reports that a page changed. `process/results/signal_intake.py` handles the signals of all senders.
"""

from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

TOLD_MAX = 100  # the answer to a notification lists at most this many of its URLs


class SignalSource(NamedTuple):
    """One source of change signals.

    `number` is the position of the source in the stored counters. `recipe` describes how signals of this
    source are sent. `names_any` is True if the senders may name URLs of any site.
    """

    name: str
    number: int
    recipe: str
    names_any: bool = False


# The numbers are stored with pages, sites and the links of outboxes, so a change needs an upgrade step
# (`README.md`, "How to add").
SIGNAL_SOURCES = (
    SignalSource("sitemap", 0, "lastmod of a sitemap that is read again"),
    SignalSource("feed", 1, "entries and dates of an RSS, Atom or JSON feed that is read again"),
    SignalSource("indexnow", 2, "GET or POST /indexnow, once the site's key file is verified"),
    SignalSource("websub", 3, "deliveries of the hubs that serve.websub names"),
    SignalSource("signal", 4, "crawler signal, POST /signal, Crawl.signal", names_any=True),
    SignalSource("headers", 5, "crawler signal --source headers: dates of header fields", names_any=True),
    SignalSource("listing", 6, "dates of a directory listing that is read again"),
    SignalSource("other", 7, "any other name that a sender gives", names_any=True),
)
SOURCES = len(SIGNAL_SOURCES)
# Between two fetches of a page, at most 2^COUNTER_BITS - 1 signals of each source are counted. One word of 32
# bits holds the counters of all sources.
COUNTER_BITS = 4
NAMES = tuple(source.name for source in SIGNAL_SOURCES)
_NUMBERS = {source.name: source.number for source in SIGNAL_SOURCES}


def source_number(source: str) -> int:
    """Return the number of a source, which is given as "name" or "name:who". Unknown names count as `other`."""
    return _NUMBERS.get(source.partition(":")[0], _NUMBERS["other"])


class Fate(StrEnum):
    """The fate of a signalled URL. All interfaces use these words."""

    # the page is known and kept fresh, so it is fetched sooner; how much depends on the reliability of the
    # source
    NOTED = "noted"
    # the page is known, but this run does not refresh pages; the signal is stored for the next run that does
    KEPT = "kept"
    QUEUED = "queued"  # in scope but not fetched yet: it waits like any link
    # another process owns the URL and decides its fate; the signal waits here until that process receives it
    SENT = "sent"
    NOT_REFRESHED = "not_refreshed"  # the URL is known, but no crawl keeps a copy of its page fresh
    RETIRED = "retired"  # `crawler retire` removed the URL before it was fetched
    OUT_OF_SCOPE = "out_of_scope"  # a rule of the URL filter rejects the URL
    REFUSED = "refused"  # not a URL, too many URLs, or no running process could accept it


_FATES = {
    Fate.NOTED: "noted",
    Fate.KEPT: "kept for the next run that refreshes pages",
    Fate.QUEUED: "queued (not fetched yet)",
    Fate.SENT: "sent to their processes",
    Fate.NOT_REFRESHED: "known, but not kept fresh",
    Fate.RETIRED: "dropped by `crawler retire`",
    Fate.OUT_OF_SCOPE: "out of scope",
    Fate.REFUSED: "refused",
}


class Told(msgspec.Struct, omit_defaults=True):
    """The result for one URL that was signalled.

    Depending on the result, `why` is the rule of the filter, the name of the owner, the reason of the refusal,
    or the target of the URL's redirect, for which the signal counts.
    """

    url: str
    fate: Fate
    why: str = ""


class Signalled(msgspec.Struct):
    """The result of a notification.

    It contains the number of URLs with each fate, and the number of URLs refused for each reason; `reasons` explains
    these reasons. `urls` lists the fates of the first `TOLD_MAX` URLs. A URL that a notification contains twice counts
    once.
    """

    noted: int = 0
    kept: int = 0
    queued: int = 0
    sent: int = 0
    not_refreshed: int = 0
    retired: int = 0
    out_of_scope: int = 0
    refused: int = 0
    why: dict[str, int] = {}
    reasons: dict[str, str] = {}
    urls: list[Told] = []

    def record(self, url: str, fate: Fate, why: str = "", reason: str = "") -> None:
        """Record the fate of a URL; `reason` explains `why` to users."""
        self._count(fate, 1, why, reason)
        if len(self.urls) < TOLD_MAX:
            self.urls.append(Told(url, fate, why))

    def refuse(self, why: str, n: int, reason: str) -> None:
        """Count `n` URLs that were refused without being examined."""
        self._count(Fate.REFUSED, n, why, reason)

    def _count(self, fate: Fate, n: int, why: str, reason: str) -> None:
        setattr(self, fate, getattr(self, fate) + n)
        if fate in (Fate.OUT_OF_SCOPE, Fate.REFUSED):
            self.why[why] = self.why.get(why, 0) + n
            self.reasons[why] = reason or why

    def counts(self) -> dict[str, int]:
        """Return the number of URLs by fate."""
        return {str(fate): getattr(self, fate) for fate in Fate}

    def in_words(self) -> str:
        """Return a line with the number of URLs of each fate, and one line for each reason for rejecting URLs."""
        counts = self.counts().items()
        lines = [f"{n:,} {_FATES[Fate(fate)]}" for fate, n in counts if n or fate == Fate.NOTED]
        reasons = "".join(f"\n  {self.reasons.get(why, why)}: {n:,}" for why, n in sorted(self.why.items()))
        return ", ".join(lines) + reasons

    def plain(self) -> dict[str, Any]:
        """Return the result as JSON values; `said` is the result in words."""
        return msgspec.to_builtins(self) | {"said": self.in_words()}
