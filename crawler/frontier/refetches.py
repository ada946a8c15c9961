"""Refetches of known pages. The hosts of these pages enter the front in the same way as the hosts of new URLs.

    schedule ─► peek ─► its host is free ─► acquire ─► turn ─► fetch task ─► outcome
                  │                                      └─► drop: robots.txt is pending, or the host left
                  └─► host not free: blocked in the schedule until a given time, or shut until `reopen`

In a crawl without refresh there is no schedule, and the methods of this module do nothing.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from crawler.frontier.discovery import entries
from crawler.frontier.discovery.intake import Intake
from crawler.frontier.hosts.borrowed_hosts import ASK_AGAIN
from crawler.frontier.hosts.dispatch_gates import DispatchGates
from crawler.frontier.hosts.front_host import FrontHost, Refetch
from crawler.frontier.hosts.front_plans import is_valid, next_instant
from crawler.frontier.hosts.table import NO_ORDER, SILENCED, HostState
from crawler.frontier.share import Share

if TYPE_CHECKING:
    from crawler.frontier.refresh.portion import Portion
    from crawler.frontier.refresh.refetch_claims import RefetchClaims

_TRIED = 16  # maximum number of known pages that one call tries
_NO_ROOM = 1.0  # seconds until the next try of a host that did not fit into the front


@dataclass(eq=False, repr=False)
class Refetches:
    """Connects the schedule to the front.

    `claims` and `portion` are parts of the schedule. In a crawl without refresh, they are None. `patience` is
    the number of seconds that a finite crawl waits for its last hosts.
    """

    claims: "RefetchClaims | None"
    portion: "Portion | None"
    gates: DispatchGates
    intake: Intake
    patience: float

    def __post_init__(self) -> None:
        self._hosts = self.gates.hosts
        self._bench, self._plans = self.gates.bench, self.gates.plans

    @property
    def share(self) -> Share | None:
        """The share of fetches that goes to refresh; None in a crawl without refresh."""
        return None if self.portion is None else self.portion.share

    def worths(self, importance: float, now: float) -> tuple[float, float]:
        """Return (the value of fetching a new URL of this importance, the value of the next refetch)."""
        if self.portion is None:
            return 0.0, 0.0
        return self.portion.new_value(importance), self.portion.price(now)

    @property
    def are_endless(self) -> bool:
        """True if refetches keep the crawl running forever."""
        return self.portion is not None and self.portion.endless

    def go_on(self, now: float) -> bool:
        """Return whether known pages are fetched now.

        If the crawl ends when discovery ends, refetching ends at that time, too.
        """
        if self.portion is None or self.portion.endless:
            return self.portion is not None
        instant = self.next_try(now) if self.gates.registry.todo else None
        return instant is not None and instant <= now + self.patience

    def next_try(self, now: float) -> float | None:
        """Return the earliest instant at which a new URL may be tried, or a host admitted for one; None if there is none.

        A host that was chosen for a known page tries its new URLs after this page. So these URLs count, too: a
        finite crawl whose last hosts have all been chosen is not over.
        """
        instant = self._bench.next_event(now)
        if instant is not None and instant <= now + self.patience:
            return instant
        hosts = (plan[2] for plan in self._plans.chosen if is_valid(plan))
        first = min((self._tries_at(host) for host in hosts if isinstance(host, FrontHost)), default=math.inf)
        return instant if first == math.inf else min(first, math.inf if instant is None else instant)

    def _tries_at(self, host: FrontHost) -> float:
        """Return the instant from which a planned host may try a new URL; infinity if it has none."""
        todo = self._hosts.todo[host.slot]
        if not todo or self._hosts.flags[host.slot] & SILENCED:
            return math.inf
        if host.queue or host.held_in_memory() + host.skipped < todo:
            return host.wake
        return max(host.wake, host.recall_at())

    def next_wakeup(self, now: float) -> float:
        """Return the next instant at which a known page may be fetched; infinite if there is none."""
        if self.claims is None or not self.go_on(now):
            return math.inf
        return min(next_instant(self._plans.chosen), self.claims.next_wakeup(now))

    def hosts(self, now: float) -> Iterator[FrontHost]:
        """Yield the next hosts: first the hosts that already hold a known page, then the hosts of the best pages."""
        if self.claims is None:
            return
        while (host := self._plans.pop_chosen(now)) is not None:
            self.gates.shares.note_arrival(host.slot)
            yield host
        for _ in range(_TRIED):
            refetch = self.claims.peek(now)
            if refetch is None:
                return
            if (host := self._host_of(refetch, self.claims, now)) is None:
                continue
            host.refetch, host.called_by = refetch, None
            self.claims.acquire(refetch, now)
            self._bench.sleep(host)
            yield host

    def _host_of(self, refetch: Refetch, claims: "RefetchClaims", now: float) -> FrontHost | None:
        """Return the page's host in the front if the host is free.

        Otherwise block the host in the schedule and return None.
        """
        name = entries.split_url(refetch.url)[0]
        slot = self.gates.registry.slot_beside(name, refetch.fingerprint)
        host = self._bench.front.get(slot)
        ready = self.gates.free_at(slot, now)
        outside = host is None and self._hosts.place[slot] != HostState.IDLE
        if self._hosts.flags[slot] & SILENCED or outside or (host is not None and host.held):
            # no refetch goes to the host until the user unblocks it, or it enters the front, or its fetch
            # task ends
            claims.shut(refetch)
        elif ready > now:
            claims.block(refetch, ready)
        elif host is not None and (host.waiting or host.refetch):
            claims.block(refetch, now + ASK_AGAIN)
        elif host is not None:
            return host
        elif not self._bench.makes_room(now):
            claims.block(refetch, now + _NO_ROOM)
        else:
            host = self.intake.front_host(slot, name, NO_ORDER)
            self._bench.enter(host)
            return host
        return None

    def drop(self, host: FrontHost, now: float, ready: float) -> None:
        """Give the host's known page, if it has one, back to the schedule. The page is not fetched before `ready`."""
        if self.claims is not None and host.refetch is not None:
            refetch, host.refetch = host.refetch, None
            self.claims.give_back(refetch, now, ready)
            if self._hosts.flags[host.slot] & SILENCED:
                self.claims.shut(refetch)

    def reopen(self, slot: int, ready: float) -> None:
        """Make the pages of a blocked host available from `ready` on."""
        if self.claims is not None:
            self.claims.reopen(self._hosts.key[slot], ready)
