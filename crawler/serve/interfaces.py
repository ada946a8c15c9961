"""The interface between the page server and a crawl.

A crawling process, a crawl directory at rest and the tests implement these few methods.
Of the stages, the server imports only the reading side of the page cache.
"""

from enum import StrEnum
from typing import Protocol

import msgspec

from crawler.pages.archive import Archive


class Located(msgspec.Struct, frozen=True):
    """The place of a URL's copies: the local `archive`, or None if the process `owner` has them."""

    fingerprint: int
    archive: Archive | None
    owner: str = ""


class AheadState(StrEnum):
    """The result of a client's request to fetch a page soon."""

    QUEUED = "queued"
    BLOCKED = "blocked"  # its host gets no requests for some time, or until the operator unblocks it
    DISALLOWED = "disallowed"  # robots.txt forbids it
    OUT_OF_SCOPE = "out_of_scope"  # a rule of the URL filter rejects it
    PARKED = "parked"  # beyond a limit of the crawl, such as pages_per_host
    RETIRED = "retired"  # dropped by the operator
    NOT_REFRESHED = "not_refreshed"  # known, and not fetched again by this crawl
    FULL = "full"  # too many pages wait already
    AT_REST = "at_rest"  # the crawl is not running, or is stopping


class Ahead(msgspec.Struct, frozen=True):
    """The answer to `refresh=1`; `wait`: seconds until a request to the host may start, 0 if unknown."""

    state: AheadState
    why: str = ""
    wait: float = 0.0

    @property
    def queued(self) -> bool:
        return self.state is AheadState.QUEUED


class ServedCrawl(Protocol):
    """A crawl whose pages the page server shows."""

    def locate(self, url: str) -> Located:
        """Return the fingerprint of a request form and the place of its copies."""

    def missing(self, url: str, fingerprint: int) -> tuple[str, str]:
        """Return (state, reason) of a URL without a copy. The state is one of
        unknown, todo, failed, gone, denied, filtered."""

    def disallowed(self, url: str) -> str:
        """Return the line of robots.txt that forbids a URL now; "" if none does."""

    def fresh_probability(self, fingerprint: int, fetched_at: float, now: float) -> float | None:
        """Return P[the live page still equals the newest copy], or None if it cannot be estimated.

        `fetched_at` is the instant of the last answer; the page must be stored.
        """

    def request_fetch(self, url: str, fingerprint: int) -> Ahead:
        """Queue the page for a fetch as soon as politeness allows, if it may be fetched."""

    def note_request(self, fingerprint: int) -> None:
        """Note that a client requested the page; requests raise its importance."""

    def ready(self) -> str:
        """Return the reason why the crawl cannot answer now, or ""."""
