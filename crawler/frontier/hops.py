"""Handles the redirect hops of a fetch task, on its own or another host. Hops are requests outside the queues.

Politeness applies to hops as to any other request (`hosts/borrowed_hosts.py`). While a fetch task waits long
for a hop, it gives up its fetch slot (`outstanding.py`).
"""

from crawler.frontier.discovery import entries
from crawler.frontier.hosts.borrowed_hosts import ASK_AGAIN
from crawler.frontier.hosts.dispatch_gates import DispatchGates
from crawler.frontier.outstanding import Outstanding
from crawler.frontier.permission import Permission
from crawler.records import FetchTask
from crawler.robots.cache import Verdict, VerdictKind


class Hops:
    """Gives a fetch task temporary use of another host, for a redirect to that host."""

    def __init__(self, gates: DispatchGates, outstanding: Outstanding, permission: Permission) -> None:
        self._gates = gates
        self._permission = permission
        self._outstanding = outstanding

    def borrow(
        self, hostname: str, now: float, fetch_task: FetchTask | None = None, address: str = ""
    ) -> float:
        """Reserve a turn of a host, and of an address, in order to follow a redirect to that host.

        Return 0.0 if they are granted, else the time of the next try. If `fetch_task` is given, the hop may
        lead to the fetch task's own host. That host is held already, so only the gap after `give_back` applies.
        If the fetch task gave up its slot while it waited, the method also takes a slot for the task again.
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
            at = ready if ready > now else self._gates.acquire_own_address(host, address, now)
            if at == 0.0:
                self._gates.journal.begin(host.key, now)
            return at
        key = self._gates.registry.host_key(hostname)
        if key in self._outstanding.held and not self._outstanding.is_aside(key):
            return now + ASK_AGAIN
        return self._gates.visits.borrow(hostname, now, address, self._permission.own_delay(hostname))

    def step_aside(self, fetch_task: FetchTask, now: float) -> None:
        """Free the fetch slot and the address of a task that waits for a hop. Later, `borrow` takes both again."""
        if self._outstanding.step_aside(fetch_task.host):
            host = self._outstanding.held[fetch_task.host]
            self._gates.shares.release(host.slot, now)
            self._gates.release_address(host, now, now)

    def leave_address(self, fetch_task: FetchTask, now: float) -> None:
        """Free the address of a fetch task that waits for a browser, or whose browser has no request under way."""
        host = self._outstanding.held[fetch_task.host]
        self._gates.release_address(host, now, now)

    def take_address(self, fetch_task: FetchTask, address: str, now: float) -> float:
        """Take the address again for a request of the task's page. Return 0.0 on success, else the time of the next try.

        The task takes no fetch slot for this request. Tasks that wait for a browser may hold all slots, and
        then none would become free.
        """
        return self._borrow(fetch_task.hostname, now, fetch_task, address)

    def give_back(self, hostname: str, now: float, took: float, retry_after: float = 0.0) -> None:
        """End a hop on a borrowed host, or on the fetch task's own host; the host's politeness gap starts now."""
        self._gates.visits.give_back(hostname, now, took, retry_after)

    def may_ask(self, url: str, now: float) -> bool:
        """Return whether a redirect to the URL may be followed, according to the robots.txt rules known so far."""
        return self.verdict(url, now).kind is VerdictKind.ALLOWED

    def verdict(self, url: str, now: float) -> Verdict:
        """Return the verdict of robots.txt on a URL, as far as the robots.txt is known."""
        authority, target = entries.split_authority(url)
        return self._permission.verdict(entries.split_url(url)[0], authority, target, now)
