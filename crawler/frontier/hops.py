"""Requests outside the queues: the redirect hops of an errand, on its own host or on another's.

They count for politeness like any other (`hosts/visits.py`). An errand that
waits long for a hop steps aside (`outstanding.py`).
"""

from crawler.frontier.hosts.gates import Gates
from crawler.frontier.hosts.visits import ASK_AGAIN
from crawler.frontier.outstanding import Outstanding
from crawler.records import Errand


class Hops:
    """Lends hosts to errands."""

    def __init__(self, gates: Gates, outstanding: Outstanding) -> None:
        self._gates = gates
        self._outstanding = outstanding

    def borrow(self, hostname: str, now: float, errand: Errand | None, address: str) -> float:
        """Take the host and its address; 0.0: go, else the instant at which to ask again."""
        outstanding = self._outstanding
        aside = errand is not None and outstanding.is_aside(errand.host)
        if aside and outstanding.requests >= outstanding.concurrency:
            return now + ASK_AGAIN
        at = self._borrow(hostname, now, errand, address)
        if at == 0.0 and aside:
            assert errand is not None
            outstanding.come_back(errand.host)
            self._gates.shares.retake(outstanding.held[errand.host].slot, now)
        return at

    def _borrow(self, hostname: str, now: float, errand: Errand | None, address: str) -> float:
        if errand is not None and errand.hostname == hostname:
            host = self._outstanding.held[errand.host]
            ready = self._gates.free_at(host.slot, now)
            return ready if ready > now else self._gates.acquire_own_address(host, address, now)
        key = self._gates.registry.host_key(hostname)
        if key in self._outstanding.held and not self._outstanding.is_aside(key):
            return now + ASK_AGAIN
        return self._gates.visits.borrow(hostname, now, address)

    def step_aside(self, errand: Errand, now: float) -> None:
        """The errand waits, for something other than its server: place and address are free until `borrow`."""
        if self._outstanding.step_aside(errand.host):
            host = self._outstanding.held[errand.host]
            self._gates.shares.give(host.slot, now)
            self._gates.release_address(host, now, now)
