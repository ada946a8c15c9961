"""What is asked of an errand while its request is under way."""

from crawler.frontier.hosts.gates import Gates
from crawler.frontier.outstanding import Outstanding
from crawler.frontier.permission import Permission
from crawler.records import Errand, Task


class UnderWay:
    """Answers for errands that hold their hosts."""

    def __init__(self, gates: Gates, outstanding: Outstanding, permission: Permission) -> None:
        self._gates = gates
        self._hosts = gates.hosts
        self._outstanding = outstanding
        self._permission = permission

    def has_more(self, errand: Errand) -> bool:
        """Whether the errand's host has URLs to do beside the errand's own."""
        slot = self._outstanding.held[errand.host].slot
        return self._hosts.todo[slot] > (errand.task is Task.PAGE)

    def gap_terms(self, errand: Errand) -> tuple[float, float]:
        """(seconds that the errand's host waits behind it at least, and per second that the answer takes)."""
        slot = self._outstanding.held[errand.host].slot
        override = self._permission.override(errand.url, errand.hostname)
        return self._gates.politeness.gap_terms(slot, self._permission.crawl_delay_of(errand), override)

    def yields(self, errand: Errand, now: float) -> bool:
        """Whether the errand's request is to end now, since another host needs its place; True once.

        If not too many do so, it goes on without its place instead.
        """
        slot, full = self._outstanding.held[errand.host].slot, self._outstanding.is_nearly_full
        shares = self._gates.shares
        if shares.is_wanted(slot, now, full=full) and self._outstanding.go_slow(errand.host):
            shares.give(slot, now)
            return False
        return shares.yields(slot, now, full=full)

    @property
    def look_ups_waiting(self) -> int:
        """Hosts that wait until one of the look-ups under way ends."""
        return self._gates.look_ups.waiting
