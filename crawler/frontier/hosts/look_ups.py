"""Look-ups of host names: a limit of their own, and a line of hosts that wait for one.

A look-up needs no place, so it goes on while all places are taken. While the
line is long no host comes in from the back: it would only wait too, in the
front's room for those that need not.
"""

from collections import deque

from crawler.frontier.hosts.front_host import FrontHost
from crawler.frontier.hosts.table import SILENCED
from crawler.frontier.hosts.workbench import Workbench


class LookUps:
    """At most `limit` under way; twice as many may wait before the front admits no more hosts."""

    def __init__(self, bench: Workbench, limit: int) -> None:
        self._bench = bench
        self._limit = limit
        self._line: deque[FrontHost] = deque()
        self.under_way = 0

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
        if self.under_way < self._limit:
            self.under_way += 1
            return True
        host.waiting = True
        self._line.append(host)
        self._bench.admitting = len(self._line) < 2 * self._limit
        return False

    def next(self, now: float) -> FrontHost | None:
        """Begin the look-up of the first host in the line that still has something to do; None: none may."""
        while self.may_start:
            host = self._line.popleft()
            self._bench.admitting = True
            host.waiting = False
            if (host.queue or host.refetch) and not self._bench.hosts.flags[host.slot] & SILENCED:
                self.under_way += 1
                return host
            self._bench.wake(host, now)
        return None

    def end(self) -> None:
        """A look-up is over."""
        self.under_way -= 1

    def _check(self) -> None:
        assert self.under_way <= self._limit
        assert self._bench.admitting or self._line
        assert all(host.waiting and not host.held for host in self._line)
