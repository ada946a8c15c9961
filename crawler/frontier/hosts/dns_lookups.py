"""Look-ups of host names: a limit of their own, and a line of hosts that wait for one.

A look-up needs no place, so it goes on while all places are taken. The workbench
takes in only as many hosts as can be looked up soon: more would fill the front
and wait there too. With a rate it takes in as many as the rate can ask in some
seconds. Otherwise all look-ups would be over before the first page: new hosts are
due at once, so their robots.txt would go before the pages of hosts already asked.
"""

import math
from collections import deque

from crawler.frontier.hosts.front_host import FrontHost
from crawler.frontier.hosts.rate import Rate
from crawler.frontier.hosts.table import SILENCED
from crawler.frontier.hosts.workbench import Workbench

AHEAD = 5.0  # s of the rate that hosts are looked up for; as long as a dead name takes


class DnsLookups:
    """At most `limit` under way; twice as many may wait in the line, and no more than AHEAD of the rate in all."""

    def __init__(self, bench: Workbench, limit: int, rate: Rate) -> None:
        self._bench = bench
        self._limit = limit
        self._rate = rate
        self._line: deque[FrontHost] = deque()
        self.under_way = 0
        self._admit()

    @property
    def waiting(self) -> int:
        """Hosts in the line."""
        return len(self._line)

    def __contains__(self, host: object) -> bool:
        return host in self._line

    @property
    def may_start(self) -> bool:
        """Whether a host of the line could begin now."""
        return bool(self._line) and self.under_way < self._limit

    def ask(self, host: FrontHost) -> bool:
        """Begin the host's look-up, or put the host into the line and return False."""
        begins = self.under_way < self._limit
        if begins:
            self.under_way += 1
        else:
            host.waiting = True
            self._line.append(host)
        self._admit()
        return begins

    def next(self, now: float) -> FrontHost | None:
        """Begin the look-up of the first host in the line that still has something to do; None: none may."""
        while self.may_start:
            host = self._line.popleft()
            host.waiting = False
            if (host.queue or host.refetch) and not self._bench.hosts.flags[host.slot] & SILENCED:
                self.under_way += 1
                return host
            self._admit()
            self._bench.wake(host, now)
        return None

    def end(self) -> None:
        """A look-up is over."""
        self.under_way -= 1
        self._admit()

    def _admit(self) -> None:
        """Tell the workbench for how many more hosts there is room."""
        room, rate = 3 * self._limit, self._rate.rate
        if rate:
            room = min(room, math.ceil(rate * AHEAD))
        self._bench.admits = max(0, room - self.under_way - len(self._line))

    def _check(self) -> None:
        assert self.under_way <= self._limit
        assert self._bench.admits or self._line or self.under_way
        assert all(host.waiting and not host.held for host in self._line)
