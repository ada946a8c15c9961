"""The interface between the page server and a crawl.

A crawling process, a crawl directory at rest and the tests implement these few methods.
Of the crawler's stages, the server imports only the reading side of the page cache.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Protocol

import msgspec

from crawler.pages.archive import Archive


class Located(msgspec.Struct, frozen=True):
    """The place of a URL's copies: the local `archive` or, if that is None, the process `owner`."""

    fingerprint: int
    archive: Archive | None
    owner: str = ""


class AheadState(StrEnum):
    """The result of a client's request to fetch a page soon."""

    QUEUED = "queued"
    # no requests are sent to the page's host for some time, or until the operator unblocks the host
    BLOCKED = "blocked"
    DISALLOWED = "disallowed"  # robots.txt forbids the page
    OUT_OF_SCOPE = "out_of_scope"  # a rule of the URL filter rejects the page's URL
    PARKED = "parked"  # the page exceeds a limit of the crawl, such as pages_per_host
    RETIRED = "retired"  # the operator has dropped the page
    NOT_REFRESHED = "not_refreshed"  # the page is known, and this crawl does not fetch it again
    LATER = "later"  # the refresh schedule withholds the page, which is too young, failed or gone
    FULL = "full"  # too many pages wait already
    AT_REST = "at_rest"  # the crawl is not running, or is stopping


class Ahead(msgspec.Struct, frozen=True):
    """The answer to `refresh=1`. `wait` is the number of seconds until the host may be requested; 0 if it is unknown."""

    state: AheadState
    why: str = ""
    wait: float = 0.0

    @property
    def queued(self) -> bool:
        return self.state is AheadState.QUEUED


class ServedCrawl(Protocol):
    """A crawl whose pages the page server shows."""

    def locate(self, url: str) -> Located:
        """Return the fingerprint of a URL (request form) and the place of its copies."""

    def others(self, fingerprint: int) -> Mapping[str, Archive]:
        """Return the local archives, by process, of the processes that do not own a URL.

        They may have stored the URL as a file of their pages (`pages/holdings.py`).
        """

    def missing(self, url: str, fingerprint: int) -> tuple[str, str]:
        """Return the state of a URL without a copy (see `serve/README.md`, "Missing pages"), and the reason."""

    def disallowed(self, url: str) -> str:
        """Return the line of robots.txt that now forbids a URL; "" if no line does."""

    def fresh_probability(self, fingerprint: int, fetched_at: float, now: float) -> float | None:
        """Return the probability that the live page still equals the newest copy; None if it cannot be estimated.

        `fetched_at` is the time of the last answer; the page must be stored.
        """

    def request_fetch(self, url: str, fingerprint: int) -> Ahead:
        """If the page may be fetched, queue it so that it is fetched as soon as politeness allows."""

    def note_request(self, fingerprint: int) -> None:
        """Take note that a client requested the page; requests raise the page's importance."""

    def ready(self) -> str:
        """Return the reason why the crawl cannot answer now, or "" if it can."""
