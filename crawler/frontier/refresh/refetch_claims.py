"""Chooses the next known page to fetch, and keeps track of the pages under way.

    peek ──► acquire ──► the page's host, as for any URL ──► end     its outcome is recorded (`refetch_outcomes.py`)
      ▲                                                 └──► give_back     it was not fetched
      └── block, shut: its host may not be requested yet

A requested page (`request`) goes first, as soon as its host may be requested.
"""

import math
from collections import deque
from collections.abc import Callable

from crawler.frontier.hosts.front_host import Refetch
from crawler.frontier.refresh.arms import Arms
from crawler.frontier.refresh.schedule import Schedule
from crawler.frontier.refresh.settings import PageView
from crawler.frontier.refresh.site_clock import SiteClock
from crawler.records import LinkFlag, PageRecord

AHEAD_MAX = 1000  # maximum number of requested pages that are not under way yet
AHEAD_LOOKS = 8  # number of requested pages examined per call
# Maps the state of a page that is withheld to what the page waits for.
WITHHELD = {
    "away": "its next check (it was gone, moved, denied or never found)",
    "failed": "its retry",
    "too young": "refresh.min_age",
}
_REFRESH = LinkFlag.REFRESH


class RefetchClaims:
    """Gives out known pages. `held` maps the fingerprints of pages under way to their states before the refetch."""

    def __init__(
        self, schedule: Schedule | Arms, clock: SiteClock, record: Callable[[int], PageRecord | None]
    ) -> None:
        self._schedule = schedule
        self._clock = clock
        self._record = record
        self.held: dict[int, PageView] = {}
        self._shut: set[int] = set()  # keys of hosts that are blocked until `reopen`
        self._ahead: deque[int] = deque()  # fingerprints of requested pages
        self._requested: set[int] = set()  # the elements of `_ahead`

    # -- which page

    def peek(self, now: float) -> Refetch | None:
        """Return a requested page, or else the most valuable page on a host that is not blocked; else None."""
        if self._ahead and (found := self._first_requested(now)) is not None:
            return found
        while (page := self._schedule.peek(self._clock.at(now))) >= 0:
            if (found := self._refetch(page)) is not None:
                return found
        return None

    def _first_requested(self, now: float) -> Refetch | None:
        """Return the first of the next `AHEAD_LOOKS` requested pages that is on a host which may be requested."""
        then = self._clock.at(now)
        for _ in range(min(AHEAD_LOOKS, len(self._ahead))):
            fingerprint = self._ahead[0]
            page = self._schedule.find(fingerprint)
            known = self._schedule.overview.page(page, then) if page >= 0 else None
            if known is None or known.state not in ("waits", "explored"):
                self._ahead.popleft()
                self._requested.discard(fingerprint)
                continue
            host = self._schedule.overview.host(known.host)
            if not host.busy and host.ready <= then and (found := self._refetch(page)) is not None:
                return found
            self._ahead.rotate(-1)
        return None

    def _refetch(self, page: int) -> Refetch | None:
        """Return the refetch of a page. If the page has no record, remove it from the schedule."""
        fingerprint = self._schedule.records.page_state(page)[0]
        record = self._record(fingerprint)
        if record is None:
            self._schedule.remove(page)
            return None
        flags = record.flags & ~_REFRESH | _REFRESH
        return Refetch(page, fingerprint, record.url, record.depth, record.via, record.redirects, flags)

    def next_wakeup(self, now: float) -> float:
        """Return the next instant at which `peek` may return a page; infinite if there is none."""
        then = self._clock.at(now)
        if self._schedule.peek(then) >= 0:
            return now
        return max(self._clock.ours(self._schedule.next_wakeup(then)), now)

    def request(self, fingerprint: int) -> bool:
        """Request a fetch of a known page as soon as its host allows.

        Return False if the page is unknown or too many requested pages wait.
        """
        if fingerprint in self._requested or fingerprint in self.held:
            return True
        if fingerprint not in self._schedule or len(self._ahead) >= AHEAD_MAX:
            return False
        self._requested.add(fingerprint)
        self._ahead.append(fingerprint)
        return True

    def withheld_by(self, fingerprint: int, now: float) -> str:
        """Return what withholds a page from being fetched before its schedule allows; "" if nothing does."""
        page = self._schedule.find(fingerprint)
        if page < 0:
            return ""
        return WITHHELD.get(self._schedule.overview.page(page, self._clock.at(now)).state, "")

    def is_requested(self, fingerprint: int) -> bool:
        """Return whether the page was requested and is not under way yet."""
        return fingerprint in self._requested

    @property
    def requested(self) -> int:
        """The number of requested pages that are not under way yet."""
        return len(self._ahead)

    # -- under way

    def acquire(self, refetch: Refetch, now: float) -> None:
        """Mark the page as under way and its host as busy, until the outcome is recorded or `give_back` is called."""
        then = self._clock.at(now)
        self.held[refetch.fingerprint] = self._schedule.overview.page(refetch.page, then)
        self._schedule.acquire(refetch.page, then)
        if refetch.fingerprint in self._requested:
            self._requested.discard(refetch.fingerprint)
            self._ahead.remove(refetch.fingerprint)

    def give_back(self, refetch: Refetch, now: float, ready: float) -> None:
        """Return a page to the schedule because it was not fetched. Its host may be requested from `ready` on."""
        if self.held.pop(refetch.fingerprint, None) is not None:
            self._schedule.give_back(refetch.page, self._clock.at(now), self._clock.at(ready))

    def end(self, fingerprint: int) -> PageView | None:
        """End the refetch of a page; return the page's state before it, or None if the page was not under way."""
        return self.held.pop(fingerprint, None)

    # -- hosts that may not be requested

    def block(self, refetch: Refetch, until: float) -> None:
        """Send no refetch to the page's host before `until`."""
        self._schedule.block(self._schedule.host_of(refetch.page), self._clock.at(until))

    def shut(self, refetch: Refetch) -> None:
        """Send no refetch to the page's host before `reopen`."""
        host = self._schedule.overview.host(self._schedule.host_of(refetch.page))
        self._shut.add(int(host.key))
        self.block(refetch, math.inf)

    def reopen(self, host_key: int, ready: float) -> None:
        """Allow refetches from a host that `shut` has blocked, from `ready` on; harmless for other hosts."""
        if host_key in self._shut:
            self._shut.discard(host_key)
            self._schedule.block(self._schedule.host(host_key), self._clock.at(ready))

    def note_new_rules(self, host_key: int) -> None:
        """Make pages of a host due that are gone, moved or denied, because the rules of its robots.txt have changed."""
        self._schedule.facts.note_new_rules(self._schedule.host(host_key))

    def keep_shut(self, page: int, host_key: int) -> None:
        """Block the host of a new page in the schedule, too, if `shut` has blocked this host."""
        if host_key in self._shut:
            self._schedule.block(self._schedule.host_of(page), math.inf)

    def _check(self) -> None:
        assert set(self._ahead) == self._requested
        assert len(self.held) <= len(self._schedule)
