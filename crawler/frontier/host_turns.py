"""Handles the turn of a ready host: the host gives out a fetch task, or is scheduled to wait.

known page, or first entry of the queue
  ─► robots.txt      allowed, denied, to be fetched first, or pending: then the next entry
  ─► gates           addresses, domain, fetch slot, address gap, rate (`hosts/dispatch_gates.py`)
  ─► fetch task      RESOLVE, ROBOTS, PAGE or DENIED
"""

from dataclasses import dataclass

from crawler.frontier.discovery import entries
from crawler.frontier.discovery.lookahead import LOOK_ON, Lookahead
from crawler.frontier.hosts.authorities import Authorities
from crawler.frontier.hosts.dispatch_gates import DispatchGates
from crawler.frontier.hosts.front_host import FrontHost
from crawler.frontier.hosts.table import NO_ORDER, NOWHERE, SILENCED
from crawler.frontier.outstanding import Outstanding
from crawler.frontier.permission import Permission
from crawler.frontier.refetches import Refetches
from crawler.records import FetchTask, TaskKind
from crawler.robots.cache import VerdictKind

LOOKS_MAX = 256  # number of entries of a host examined per turn; each may need a check of robots.txt
IDLE_MAX = 16  # one call gives a turn to at most this many hosts that have no new URL

_TASK_OF = {
    VerdictKind.ALLOWED: TaskKind.PAGE,
    VerdictKind.DENIED: TaskKind.DENIED,
    VerdictKind.FETCH: TaskKind.ROBOTS,
}


@dataclass(eq=False, repr=False)
class HostTurns:
    """Gives hosts their turns."""

    gates: DispatchGates
    outstanding: Outstanding
    permission: Permission
    lookahead: Lookahead
    authorities: Authorities
    refetches: Refetches

    def __post_init__(self) -> None:
        self._hosts = self.gates.hosts
        self._bench, self._plans = self.gates.bench, self.gates.plans

    def look_up(self, now: float) -> FetchTask | None:
        """Return the fetch task of a queued look-up that may begin. Such a task needs no fetch slot."""
        host = self.gates.look_ups.next(now)
        return None if host is None else self.outstanding.acquire(host, TaskKind.RESOLVE)

    def of_front(self, now: float) -> FetchTask | None:
        """Return the fetch task of the next front host that has a task to give out."""
        while (host := self._bench.pop(now)) is not None:
            if (fetch_task := self._of_popped(host, now)) is not None:
                return fetch_task
        return None

    def of_idle(self, now: float) -> FetchTask | None:
        """Serve hosts until the next host has a new URL to try; return the first fetch task that they give out.

        A host may be ready without a new URL, because a retry has become due. The setting `refresh.share =
        "auto"` compares the value of known pages with the value of the next host's new URL. If that host had
        no new URL, new URLs would seem to be worth nothing, although later hosts may have some. So hosts
        without a new URL are served first.
        """
        for _ in range(IDLE_MAX):
            slot, order = self._bench.first(now)
            if slot == NOWHERE or order != NO_ORDER or (host := self._bench.pop(now)) is None:
                break
            if (fetch_task := self._of_popped(host, now)) is not None:
                return fetch_task
        return None

    def _of_popped(self, host: FrontHost, now: float) -> FetchTask | None:
        """Give a turn to a host that `Workbench.pop` has returned."""
        caller = host.called_by
        self.gates.shares.note_arrival(host.slot)
        fetch_task = self.of_host(host, now)
        host.called_by = None
        if caller is not None:
            self._plans.call_next(caller, now)
        return fetch_task

    def of_known_page(self, now: float) -> FetchTask | None:
        """Return a fetch task for the known page with the highest value whose host may be requested."""
        for host in self.refetches.hosts(now):
            if fetch_task := self.of_host(host, now):
                return fetch_task
        return None

    def of_host(self, host: FrontHost, now: float) -> FetchTask | None:
        """Return the fetch task of a ready host; if it has none now, schedule the host to wait and return None."""
        if self._hosts.flags[host.slot] & SILENCED:
            self.refetches.drop(host, now, now)
            if host.may_leave():
                self._bench.leave(host, now, idle=True)
            return None
        free_at = self.gates.free_at(host.slot, now)
        if free_at > now:
            self._plans.wake(host, free_at)
            return None
        task, authority = self._task(host, now)
        if task is None:
            return None
        if task is TaskKind.DENIED:
            return self.outstanding.acquire(host, task)
        return self._request(host, task, authority, now)

    def _request(self, host: FrontHost, task: TaskKind, authority: str, now: float) -> FetchTask | None:
        """Return the host's request, or the look-up that must precede it; None if the host does not pass the gates."""
        gates = self.gates
        if gates.resolving and not (host.addresses and now < host.expires):
            return self.outstanding.acquire(host, TaskKind.RESOLVE) if gates.look_ups.ask(host) else None
        turn = gates.domains.turn_at(host.domain, host.key, now, self.permission.own_delay(host.name))
        if turn > now:
            gates.put_off(host, turn, now)
            return None
        if not gates.shares.acquire(host, now):
            self._bench.admitting_others = False
            return None
        if not gates.acquire_address(host, now):
            gates.shares.undo_acquire(host.slot)
            return None
        gates.domains.start(host.domain, host.key, now)
        gates.rate.spend(now)
        gates.journal.begin(host.key, now)
        if task is TaskKind.ROBOTS:
            self.authorities.note_authority(host.slot, authority, now, gates.politeness.usual_gap(host.slot))
        return self.outstanding.acquire(
            host, task, f"{authority}/robots.txt" if task is TaskKind.ROBOTS else ""
        )

    def _task(self, host: FrontHost, now: float) -> tuple[TaskKind | None, str]:
        """Return (the kind of the host's next task, the task's authority). The kind is None if there is no task now."""
        if host.refetch is not None:
            task, authority = self._known_page(host, host.refetch.url, now)
            if host.refetch is not None:
                return task, authority
        return self._first_entry(host, now)

    def _first_entry(self, host: FrontHost, now: float) -> tuple[TaskKind | None, str]:
        """Like `_task`, but for the first queue entry that is not waiting for its robots.txt."""
        for _ in range(LOOKS_MAX):
            if not self.lookahead.has_entry(host, now):
                return None, ""
            url = entries.join_url(host.name, host.queue[0][1].tail)
            authority, target = entries.split_authority(url)
            verdict = self.permission.verdict(host.name, authority, target, now)
            until = max(verdict.until, self.authorities.charged(authority).until)
            if verdict.kind is VerdictKind.WAIT or (until > now and verdict.kind is not VerdictKind.DENIED):
                host.put_off_first(max(until, now + 1.0), self.lookahead.later_max)
            elif (
                verdict.kind is VerdictKind.FETCH and self.authorities.stranger_at(host.slot, authority) > now
            ):
                host.put_off_first(
                    self.authorities.stranger_at(host.slot, authority), self.lookahead.later_max
                )
            elif verdict.kind is not VerdictKind.DENIED and self._starts_too_soon(host, url, now):
                return None, authority
            else:
                return _TASK_OF[verdict.kind], authority
        self._plans.wake(host, now + LOOK_ON)
        return None, ""

    def _known_page(self, host: FrontHost, url: str, now: float) -> tuple[TaskKind | None, str]:
        """Like `_task`, but for a known page. If the page's robots.txt is pending, the page returns to the schedule."""
        authority, target = entries.split_authority(url)
        verdict = self.permission.verdict(host.name, authority, target, now)
        if verdict.kind is VerdictKind.WAIT:
            self.refetches.drop(host, now, max(verdict.until, now + 1.0))
            return None, authority
        if verdict.kind is not VerdictKind.DENIED and self._starts_too_soon(host, url, now):
            return None, authority
        return _TASK_OF[verdict.kind], authority

    def _starts_too_soon(self, host: FrontHost, url: str, now: float) -> bool:
        """Return whether the host must still wait because a request may have been under way at an unclean stop."""
        unclean_at = self.gates.registry.unclean_at
        if not unclean_at:
            return False
        ready = unclean_at + self.permission.delay(url, host.name)
        if ready <= now:
            return False
        self._plans.wake(host, ready)
        return True
