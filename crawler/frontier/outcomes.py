"""The end of an errand: its outcome is recorded, and its host goes where it belongs.

record_outcome ──► decision (`settlement.py`) ──► staged with the group ──► commit ──► release
                     host is free, if its URL is done                        host is free; place is free
"""

from collections.abc import Sequence

from crawler.frontier.discovery.intake import Intake
from crawler.frontier.hosts.front_host import NO_PLAN, FrontHost
from crawler.frontier.hosts.gates import Gates
from crawler.frontier.hosts.table import SILENCED
from crawler.frontier.outstanding import Outstanding
from crawler.frontier.permission import Permission
from crawler.frontier.refetches import Refetches
from crawler.frontier.settlement import Decision, End, Settlement
from crawler.records import Errand, Fetch, LinkFlag, Task

_REFRESH = int(LinkFlag.REFRESH)


class Outcomes:
    """Ends errands."""

    def __init__(
        self,
        gates: Gates,
        outstanding: Outstanding,
        permission: Permission,
        settlement: Settlement,
        refetches: Refetches,
        intake: Intake,
    ) -> None:
        self._registry = gates.registry
        self._hosts = gates.hosts
        self._gates = gates
        self._bench = gates.bench
        self._outstanding = outstanding
        self._permission = permission
        self._settlement = settlement
        self._refetches = refetches
        self._intake = intake

    def record_addresses(self, errand: Errand, addresses: Sequence[str], expires: float, now: float) -> None:
        """The host's addresses are known until `expires`; the errand is over."""
        assert errand.task is Task.RESOLVE and addresses, errand
        host = self._outstanding.held[errand.host]
        host.addresses, host.expires = tuple(addresses), max(expires, now + 1.0)
        self.release(Decision(errand, End.READY, now, now), now)

    def record_outcome(self, errand: Errand, fetch: Fetch, now: float) -> Decision:
        """Decide, at the end of a request or a failed look-up, what becomes of URL and host.

        A host whose URL is done may be asked again from its ready instant on.
        Every decision must be staged: it may carry records of other hosts.
        """
        host = self._outstanding.held[errand.host]
        crawl_delay = 0.0
        if errand.task in (Task.PAGE, Task.ROBOTS):
            crawl_delay = self._permission.crawl_delay_of(errand)
            self._gates.shares.settle(host.slot, fetch, now, errand.task)
            if fetch.status:
                self._registry.reach(host.slot)
        decision = self._settlement.settle(host, errand, fetch, now, crawl_delay)
        if errand.flags & _REFRESH:
            host.refetch = None  # the harvest tells the schedule what came of it
        elif decision.end is End.HOST:
            self._refetches.drop(host, now, decision.until)
        if decision.end is End.DONE:
            self._let_go(host, decision, now)
            self._intake.wake(host)
        return decision

    def release(self, decision: Decision, now: float) -> None:
        """After the commit: the place of the request is free, and the host if it is not yet."""
        errand = decision.errand
        if decision.end is End.DONE:
            host = self._bench.front[self._hosts.find(errand.host)]
        else:
            host = self._outstanding.held[errand.host]
            self._let_go(host, decision, now)
        self._outstanding.release(errand, host)
        if errand.task is Task.RESOLVE:
            self._gates.look_ups.end()
        if host.may_leave() and host.tick == NO_PLAN:
            self._plan(host, now)

    def _let_go(self, host: FrontHost, decision: Decision, now: float) -> None:
        """The errand does not hold the host any more, nor its address."""
        self._outstanding.let_go(host)
        self._refetches.reopen(host.slot, self._hosts.ready[host.slot])
        self._gates.release_address(host, decision.ended, now)

    def _plan(self, host: FrontHost, now: float) -> None:
        """Where a free host goes: out of the front, to sleep, or to wait for its instant."""
        if self._hosts.flags[host.slot] & SILENCED:
            self._bench.leave(host, now, idle=True)
        elif not self._hosts.todo[host.slot] and host.refetch is None:
            self._bench.sleep(host)
        elif self._bench.turn_is_over(host) and host.refetch is None:
            self._bench.leave(host, now, idle=False)
        else:
            self._bench.wake(host, self._hosts.ready[host.slot])
