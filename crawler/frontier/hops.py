"""Requests outside the queues: the redirect hops of a fetch task, on its own host or on another's.

They count for politeness like any other (`hosts/borrowed_hosts.py`). A fetch task that
waits long for a hop steps aside (`outstanding.py`).
"""

from crawler.frontier.discovery import entries
from crawler.frontier.hosts.borrowed_hosts import ASK_AGAIN
from crawler.frontier.hosts.dispatch_gates import DispatchGates
from crawler.frontier.outstanding import Outstanding
from crawler.frontier.permission import Permission
from crawler.records import FetchTask
from crawler.robots.cache import VerdictKind


class Hops:
    """Lends hosts to fetch tasks."""

    def __init__(self, gates: DispatchGates, outstanding: Outstanding, permission: Permission) -> None:
        self._gates = gates
        self._permission = permission
        self._outstanding = outstanding

    def borrow(
        self, hostname: str, now: float, fetch_task: FetchTask | None = None, address: str = ""
    ) -> float:
        """Ask for a host (and address) for a redirect hop; 0.0: go, else the instant at which to ask again.

        With `fetch_task`, the hop may go to the fetch task's own host, which is held
        already: then only the gap behind `give_back` is waited for. A fetch task
        that has stepped aside also takes its place again.
        """
        outstanding = self._outstanding
        aside = fetch_task is not None and outstanding.is_aside(fetch_task.host)
        if aside and outstanding.requests >= outstanding.concurrency:
            return now + ASK_AGAIN
        at = self._borrow(hostname, now, fetch_task, address)
        if at == 0.0 and aside:
            assert fetch_task is not None
            outstanding.come_back(fetch_task.host)
            self._gates.shares.reacquire(outstanding.held[fetch_task.host].slot, now)
        return at

    def _borrow(self, hostname: str, now: float, fetch_task: FetchTask | None, address: str) -> float:
        if fetch_task is not None and fetch_task.hostname == hostname:
            host = self._outstanding.held[fetch_task.host]
            ready = self._gates.free_at(host.slot, now)
            return ready if ready > now else self._gates.acquire_own_address(host, address, now)
        key = self._gates.registry.host_key(hostname)
        if key in self._outstanding.held and not self._outstanding.is_aside(key):
            return now + ASK_AGAIN
        return self._gates.visits.borrow(hostname, now, address)

    def step_aside(self, fetch_task: FetchTask, now: float) -> None:
        """The fetch task will wait for a hop: its place and address are free until `borrow` gives it both again."""
        if self._outstanding.step_aside(fetch_task.host):
            host = self._outstanding.held[fetch_task.host]
            self._gates.shares.release(host.slot, now)
            self._gates.release_address(host, now, now)

    def give_back(self, hostname: str, now: float, took: float, retry_after: float = 0.0) -> None:
        """A hop on a borrowed host, or on the fetch task's own, has ended: its gap runs from now."""
        self._gates.visits.give_back(hostname, now, took, retry_after)

    def may_ask(self, url: str, now: float) -> bool:
        """Whether what is known of the URL's robots.txt allows it; for the hops of a redirect."""
        authority, target = entries.split_authority(url)
        verdict = self._permission.verdict(entries.split_url(url)[0], authority, target, now)
        return verdict.kind is VerdictKind.ALLOWED
