"""The interface that the page server needs of a crawl.

A crawling process, a directory at rest and the tests each offer these few methods. Of
the stages the server knows only the reading side of the page cache.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from crawler.pages.archive import Archive
from crawler.records import PageRecord


class Located(msgspec.Struct, frozen=True):
    """Where the copies of a URL lie: here, or (archive None) with the process `owner`."""

    fingerprint: int
    archive: Archive | None
    owner: str = ""


class Signalled(msgspec.Struct):
    """What became of signalled URLs: pages noted as changed, unknown URLs taken as links, refused by reason."""

    accepted: int = 0
    links: int = 0
    refused: dict[str, int] = {}

    def refuse(self, reason: str, n: int = 1) -> None:
        """Count URLs that were not taken."""
        self.refused[reason] = self.refused.get(reason, 0) + n

    def add(self, other: "Signalled") -> None:
        """Count what became of further URLs."""
        self.accepted += other.accepted
        self.links += other.links
        for reason, n in other.refused.items():
            self.refuse(reason, n)


class ServedCrawl(Protocol):
    """The crawl behind a page server."""

    def locate(self, url: str) -> Located:
        """The fingerprint of a request form, and who has its copies."""

    def missing(self, url: str, fingerprint: int) -> tuple[str, str]:
        """(state, why) of a URL without a copy; the state is one of
        unknown, todo, failed, gone, denied, filtered."""

    def fresh_probability(self, fingerprint: int, record: PageRecord, now: float) -> float | None:
        """P[the live page still equals the newest copy], None if nothing can be said."""

    def ahead(self, url: str, fingerprint: int) -> bool:
        """Let the page be fetched as soon as politeness allows; False if that cannot be (at rest, out of scope)."""

    def asked_for(self, fingerprint: int) -> None:
        """A client asked for the page: it counts as importance."""

    def signal(self, urls: Sequence[str], source: str) -> Signalled:
        """Somebody says that these pages (request forms) changed."""

    def ready(self) -> str:
        """Why the crawl cannot answer now, "" if it can."""
