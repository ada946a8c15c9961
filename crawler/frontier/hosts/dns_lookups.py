"""Limits the look-ups of host names, and queues the hosts that wait for a look-up.

A look-up needs no fetch slot, so look-ups continue while all slots are taken. The workbench admits only as
many hosts as can be looked up soon; further hosts would fill the front while they wait. If the crawl has a
rate limit, the workbench admits only as many hosts as can be requested at this rate in a few seconds. If all
new hosts were admitted, their look-ups, which are due immediately, would finish before the first page is
fetched. The robots.txt files of all these hosts would then be fetched before the pages of hosts whose
robots.txt is already known.
"""

import math
from collections import deque

from crawler.frontier.hosts.front_host import FrontHost
from crawler.frontier.hosts.rate import Rate
from crawler.frontier.hosts.table import SILENCED
from crawler.frontier.hosts.workbench import Workbench

# A name is looked up this many seconds before the request to it. The look-up of a dead name also takes this
# long.
AHEAD = 5.0


class DnsLookups:
    """Runs at most `limit` look-ups at once, and queues at most twice as many.

    The number of running and queued look-ups together is at most the rate times AHEAD.
    """

    def __init__(self, bench: Workbench, limit: int, rate: Rate) -> None:
        self._bench = bench
        self._limit = limit
        self._rate = rate
        self._line: deque[FrontHost] = deque()
        self.under_way = 0
        self._admit()

    @property
    def waiting(self) -> int:
        """The number of queued hosts."""
        return len(self._line)

    def __contains__(self, host: object) -> bool:
        return host in self._line

    @property
    def may_start(self) -> bool:
        """True if the look-up of a queued host may begin now."""
        return bool(self._line) and self.under_way < self._limit

    def ask(self, host: FrontHost) -> bool:
        """Begin the host's look-up and return True, or queue the host and return False."""
        begins = self.under_way < self._limit
        if begins:
            self.under_way += 1
        else:
            host.waiting = True
            self._line.append(host)
        self._admit()
        return begins

    def next(self, now: float) -> FrontHost | None:
        """Begin the look-up of the first queued host that still has something to do; return the host or None."""
        while self.may_start:
            host = self._line.popleft()
            host.waiting = False
            if (host.queue or host.refetch) and not self._bench.hosts.flags[host.slot] & SILENCED:
                self.under_way += 1
                return host
            self._admit()
            self._bench.plans.wake(host, now)
        return None

    def end(self) -> None:
        """End a look-up."""
        self.under_way -= 1
        self._admit()

    def _admit(self) -> None:
        """Tell the workbench the number of hosts that may enter the front now."""
        room, rate = 3 * self._limit, self._rate.rate
        if rate:
            room = min(room, math.ceil(rate * AHEAD))
        self._bench.admits = max(0, room - self.under_way - len(self._line))

    def _check(self) -> None:
        assert self.under_way <= self._limit
        assert self._bench.admits or self._line or self.under_way
        assert all(host.waiting and not host.held for host in self._line)
