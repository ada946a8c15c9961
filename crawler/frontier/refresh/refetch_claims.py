"""The known page to ask next, and the pages under way.

    peek ──► acquire ──► the page's host, as for any URL ──► end     its outcome is recorded (`refetch_outcomes.py`)
      ▲                                                 └──► give_back     it was not asked
      └── block, shut: its host may not be asked yet

A page that somebody waits for (`request`) goes first, as soon as its host may be asked.
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

AHEAD_MAX = 1000  # pages asked for out of turn
AHEAD_LOOKS = 8  # of them looked at by one call
_REFRESH = LinkFlag.REFRESH


class RefetchClaims:
    """Hands out known pages. `held` are those under way, by fingerprint, as they stood before."""

    def __init__(
        self, schedule: Schedule | Arms, clock: SiteClock, record: Callable[[int], PageRecord | None]
    ) -> None:
        self._schedule = schedule
        self._clock = clock
        self._record = record
        self.held: dict[int, PageView] = {}
        self._shut: set[int] = set()  # keys of hosts that are blocked until the frontier says otherwise
        self._ahead: deque[int] = deque()  # fingerprints of pages asked for out of turn
        self._requested: set[int] = set()  # the same

    # -- which page

    def peek(self, now: float) -> Refetch | None:
        """The page that is worth most, of all whose hosts are not blocked; None if there is none."""
        if self._ahead and (found := self._first_requested(now)) is not None:
            return found
        while (page := self._schedule.peek(self._clock.at(now))) >= 0:
            if (found := self._refetch(page)) is not None:
                return found
        return None

    def _first_requested(self, now: float) -> Refetch | None:
        """The first page asked for out of turn whose host may be asked, of the next `AHEAD_LOOKS`."""
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
        """What to ask for a page; one without a record leaves the schedule."""
        fingerprint = self._schedule.records.page_state(page)[0]
        record = self._record(fingerprint)
        if record is None:
            self._schedule.remove(page)
            return None
        flags = record.flags & ~_REFRESH | _REFRESH
        return Refetch(page, fingerprint, record.url, record.depth, record.via, record.redirects, flags)

    def next_wakeup(self, now: float) -> float:
        """The next instant at which `peek` may give a page; infinite if none ever may."""
        then = self._clock.at(now)
        if self._schedule.peek(then) >= 0:
            return now
        return max(self._clock.ours(self._schedule.next_wakeup(then)), now)

    def request(self, fingerprint: int) -> bool:
        """Let a known page be asked as soon as its host may be; False if it is not here, or too many wait."""
        if fingerprint in self._requested or fingerprint in self.held:
            return True
        if fingerprint not in self._schedule or len(self._ahead) >= AHEAD_MAX:
            return False
        self._requested.add(fingerprint)
        self._ahead.append(fingerprint)
        return True

    def is_requested(self, fingerprint: int) -> bool:
        """Whether somebody waits for the page."""
        return fingerprint in self._requested

    @property
    def requested(self) -> int:
        """Pages asked for out of turn that are not under way yet."""
        return len(self._ahead)

    # -- under way

    def acquire(self, refetch: Refetch, now: float) -> None:
        """The page is under way, and its host busy, until its outcome is recorded or it is given back."""
        then = self._clock.at(now)
        self.held[refetch.fingerprint] = self._schedule.overview.page(refetch.page, then)
        self._schedule.acquire(refetch.page, then)
        if refetch.fingerprint in self._requested:
            self._requested.discard(refetch.fingerprint)
            self._ahead.remove(refetch.fingerprint)

    def give_back(self, refetch: Refetch, now: float, ready: float) -> None:
        """The page was not asked; its host may be from `ready` on."""
        if self.held.pop(refetch.fingerprint, None) is not None:
            self._schedule.give_back(refetch.page, self._clock.at(now), self._clock.at(ready))

    def end(self, fingerprint: int) -> PageView | None:
        """The page is not under way any more: how it stood before; None if it was not under way."""
        return self.held.pop(fingerprint, None)

    # -- hosts that may not be asked

    def block(self, refetch: Refetch, until: float) -> None:
        """The page's host may not be asked before `until`."""
        self._schedule.block(self._schedule.host_of(refetch.page), self._clock.at(until))

    def shut(self, refetch: Refetch) -> None:
        """The page's host may not be asked before `reopen`."""
        host = self._schedule.overview.host(self._schedule.host_of(refetch.page))
        self._shut.add(int(host.key))
        self.block(refetch, math.inf)

    def reopen(self, host_key: int, ready: float) -> None:
        """A host that was shut may be asked from `ready` on; harmless for others."""
        if host_key in self._shut:
            self._shut.discard(host_key)
            self._schedule.block(self._schedule.host(host_key), self._clock.at(ready))

    def keep_shut(self, page: int, host_key: int) -> None:
        """A new page of a host that is shut waits with the others."""
        if host_key in self._shut:
            self._schedule.block(self._schedule.host_of(page), math.inf)

    def _check(self) -> None:
        assert set(self._ahead) == self._requested
        assert len(self.held) <= len(self._schedule)
