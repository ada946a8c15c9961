"""The interface that the page server needs of a crawl.

A crawling process, a directory at rest and the tests each offer these few methods. Of
the stages the server knows only the reading side of the page cache.
"""

from enum import StrEnum
from typing import Protocol

import msgspec

from crawler.pages.archive import Archive
from crawler.records import PageRecord


class Located(msgspec.Struct, frozen=True):
    """Where the copies of a URL lie: here, or (archive None) with the process `owner`."""

    fingerprint: int
    archive: Archive | None
    owner: str = ""


class AheadState(StrEnum):
    """Whether a page is fetched soon because a client asks for it."""

    QUEUED = "queued"
    BLOCKED = "blocked"  # its host is not asked, until an instant or until the operator says otherwise
    DISALLOWED = "disallowed"  # robots.txt forbids it
    OUT_OF_SCOPE = "out_of_scope"  # a rule of the URL filter rejects it
    RETIRED = "retired"  # dropped by the operator
    NOT_REFRESHED = "not_refreshed"  # known, and not asked again by this crawl
    FULL = "full"  # too many wait already
    AT_REST = "at_rest"  # the crawl does not run, or stops


class Ahead(msgspec.Struct, frozen=True):
    """The answer to `refresh=1`; `wait` is in seconds until the host may be asked, 0 if nobody knows."""

    state: AheadState
    why: str = ""
    wait: float = 0.0

    @property
    def queued(self) -> bool:
        return self.state is AheadState.QUEUED


class ServedCrawl(Protocol):
    """The crawl behind a page server."""

    def locate(self, url: str) -> Located:
        """The fingerprint of a request form, and who has its copies."""

    def missing(self, url: str, fingerprint: int) -> tuple[str, str]:
        """(state, why) of a URL without a copy; the state is one of
        unknown, todo, failed, gone, denied, filtered."""

    def fresh_probability(self, fingerprint: int, record: PageRecord, now: float) -> float | None:
        """P[the live page still equals the newest copy], None if nothing can be said."""

    def request_fetch(self, url: str, fingerprint: int) -> Ahead:
        """Let the page be fetched as soon as politeness allows, if it may be."""

    def note_request(self, fingerprint: int) -> None:
        """A client asked for the page: it counts as importance."""

    def ready(self) -> str:
        """Why the crawl cannot answer now, "" if it can."""
