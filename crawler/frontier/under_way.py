"""Queries about a fetch task while its request is under way."""

from crawler.frontier.hosts.dispatch_gates import DispatchGates
from crawler.frontier.outstanding import Outstanding
from crawler.frontier.permission import Permission
from crawler.records import FetchTask, TaskKind


class UnderWay:
    """Answers queries about fetch tasks in progress, each of which holds its host."""

    def __init__(self, gates: DispatchGates, outstanding: Outstanding, permission: Permission) -> None:
        self._gates = gates
        self._hosts = gates.hosts
        self._outstanding = outstanding
        self._permission = permission

    def has_more(self, fetch_task: FetchTask) -> bool:
        """Return whether the fetch task's host has other URLs to do."""
        slot = self._outstanding.held[fetch_task.host].slot
        return self._hosts.todo[slot] > (fetch_task.kind is TaskKind.PAGE)

    def gap_terms(self, fetch_task: FetchTask) -> tuple[float, float]:
        """Return (the minimum wait of the host after this task, in seconds; the wait per second of answer time)."""
        slot = self._outstanding.held[fetch_task.host].slot
        rule = self._permission.gap_rule(fetch_task.url, fetch_task.hostname)
        return self._gates.politeness.gap_terms(slot, rule)

    def yields(self, fetch_task: FetchTask, now: float) -> bool:
        """Return whether the fetch task's request must end now because another host needs its place.

        The place is its fetch slot, or one of the last places of the run. The result is True only once. If only
        slots are needed and another slow request is allowed, the request gives up its slot and continues without
        one; the result is then False.
        """
        slot, full = self._outstanding.held[fetch_task.host].slot, self._outstanding.is_nearly_full
        shares = self._gates.shares
        if self._outstanding.run_is_full and self._is_another_ready(now):
            if self._outstanding.is_slow(fetch_task.host) and not shares.answers(slot):
                return True
            return shares.must_yield(slot, now, full=full, last=True)
        if shares.is_wanted(slot, now, full=full) and self._outstanding.go_slow(fetch_task.host):
            shares.release(slot, now)
            return False
        return shares.must_yield(slot, now, full=full)

    def _is_another_ready(self, now: float) -> bool:
        instant = self._gates.bench.next_event(now)
        return len(self._gates.shares) > 0 or (instant is not None and instant <= now)

    @property
    def look_ups_waiting(self) -> int:
        """The number of hosts that wait for one of the look-ups under way to end."""
        return self._gates.look_ups.waiting
