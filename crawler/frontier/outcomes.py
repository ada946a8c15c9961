"""Ends fetch tasks: records the outcome, and lets the host return to the front or wait.

record_outcome ──► decision (`outcome_policy.py`) ──► staged with the group ──► commit ──► release
                     frees the host if its URL is done                  frees the host and the fetch slot
"""

from collections.abc import Sequence
from dataclasses import dataclass

from crawler.frontier.discovery.intake import Intake
from crawler.frontier.hosts.dispatch_gates import DispatchGates
from crawler.frontier.hosts.front_host import NO_PLAN, FrontHost
from crawler.frontier.hosts.politeness import NO_RULE
from crawler.frontier.hosts.table import SILENCED
from crawler.frontier.outcome_policy import Decision, End, OutcomePolicy
from crawler.frontier.outstanding import Outstanding
from crawler.frontier.permission import Permission
from crawler.frontier.refetches import Refetches
from crawler.records import Fetch, FetchTask, LinkFlag, TaskKind

_REFRESH = LinkFlag.REFRESH


@dataclass(eq=False, repr=False)
class Outcomes:
    """Ends fetch tasks."""

    gates: DispatchGates
    outstanding: Outstanding
    permission: Permission
    outcome_policy: OutcomePolicy
    refetches: Refetches
    intake: Intake

    def __post_init__(self) -> None:
        self._registry = self.gates.registry
        self._hosts = self.gates.hosts
        self._bench, self._plans = self.gates.bench, self.gates.plans

    def record_addresses(
        self, fetch_task: FetchTask, addresses: Sequence[str], expires: float, now: float
    ) -> None:
        """Record the host's addresses, valid until `expires`, and end the fetch task."""
        assert fetch_task.kind is TaskKind.RESOLVE and addresses, fetch_task
        host = self.outstanding.held[fetch_task.host]
        host.addresses, host.expires = tuple(addresses), max(expires, now + 1.0)
        self.release(Decision(fetch_task, End.READY, now, now), now)

    def record_outcome(self, fetch_task: FetchTask, fetch: Fetch, now: float) -> Decision:
        """Decide what happens to the URL and the host after a request or a failed look-up.

        If the URL is done, its host may be requested again from its ready time on.
        Pass every decision to `stage`, because it may also carry records of other hosts.
        """
        host = self.outstanding.held[fetch_task.host]
        rule = NO_RULE
        if fetch_task.kind in (TaskKind.PAGE, TaskKind.ROBOTS):
            rule = self.permission.gap_rule(fetch_task.url, fetch_task.hostname)
            self.gates.shares.record_outcome(host.slot, fetch, now, fetch_task.kind)
            if fetch.status:
                self._registry.reach(host.slot)
        decision = self.outcome_policy.decide(host, fetch_task, fetch, now, rule)
        decision.requested = not fetch.is_cached
        if fetch_task.flags & _REFRESH:
            host.refetch = None  # the result processor reports the result to the schedule
        elif decision.end is End.HOST:
            self.refetches.drop(host, now, decision.until)
        if decision.end is End.DONE:
            self._let_go(host, decision, now)
            self.intake.wake(host)
        return decision

    def release(self, decision: Decision, now: float) -> None:
        """Free the fetch slot of the request after the commit, and also the host if it is still held."""
        fetch_task = decision.fetch_task
        if decision.end is End.DONE:
            host = self._bench.front[self._hosts.find(fetch_task.host)]
        else:
            host = self.outstanding.held[fetch_task.host]
            self._let_go(host, decision, now)
        self.outstanding.release(fetch_task, host)
        if fetch_task.kind is TaskKind.RESOLVE:
            self.gates.look_ups.end()
        if host.may_leave() and host.tick == NO_PLAN:
            self._plan(host, now)

    def _let_go(self, host: FrontHost, decision: Decision, now: float) -> None:
        """Free the host and the address that the fetch task holds."""
        self.outstanding.let_go(host)
        self.refetches.reopen(host.slot, self._hosts.ready[host.slot])
        self.gates.release_address(host, decision.ended if decision.requested else 0.0, now)

    def _plan(self, host: FrontHost, now: float) -> None:
        """Let a host that is now free leave the front, stay there without work, or wait for its ready time."""
        if self._hosts.flags[host.slot] & SILENCED:
            self._bench.leave(host, now, idle=True)
        elif not self._hosts.todo[host.slot] and host.refetch is None:
            self._bench.sleep(host)
        elif self._bench.turn_is_over(host) and host.refetch is None:
            self._bench.leave(host, now, idle=False)
        else:
            self._plans.wake(host, self._hosts.ready[host.slot])
