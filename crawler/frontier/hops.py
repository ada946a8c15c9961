"""Handles the redirect hops of a fetch task, on its own or another host. Hops are requests outside the queues.

Politeness applies to hops as to any other request (`hosts/borrowed_hosts.py`). While a fetch task waits long
for a hop, it gives up its fetch slot (`outstanding.py`).
"""

from math import inf

from crawler.frontier.discovery import entries
from crawler.frontier.hosts.borrowed_hosts import ASK_AGAIN
from crawler.frontier.hosts.dispatch_gates import DispatchGates
from crawler.frontier.hosts.front_host import FrontHost
from crawler.frontier.hosts.table import NOWHERE, SILENCED
from crawler.frontier.outstanding import Outstanding
from crawler.frontier.permission import Permission
from crawler.records import Fetch, FetchTask
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
            host, domains = self._outstanding.held[fetch_task.host], self._gates.domains
            turn = domains.turn_at(host.domain, host.key, now, self._permission.own_delay(hostname))
            at = turn if turn > now else self._take_own(host, address, now)
            if at == 0.0:
                domains.start(host.domain, host.key, now)
            return at
        key = self._gates.registry.host_key(hostname)
        if (held := self._outstanding.held.get(key)) is not None:
            if not self._outstanding.is_aside(key) or held.rests_until == inf:
                return now + ASK_AGAIN
            if held.rests_until > now:
                return held.rests_until
        return self._gates.visits.borrow(hostname, now, address, self._permission.own_delay(hostname))

    def _take_own(self, host: FrontHost, address: str, now: float) -> float:
        """Take an address for a request to the task's own host. Return 0.0 on success, else the time of the next try."""
        ready = self._gates.free_at(host.slot, now)
        at = ready if ready > now else self._gates.acquire_own_address(host, address, now)
        if at == 0.0:
            self._gates.journal.begin(host.key, now)
        return at

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
        then none would become free. The request needs no turn of the domain, either.
        """
        host = self._outstanding.held[fetch_task.host]
        at = self._take_own(host, address, now)
        if at == 0.0:
            host.rests_until = inf
        return at

    def give_back(self, fetch: Fetch, now: float) -> None:
        """End the request for `fetch.url` on a borrowed host; the host's politeness gap starts now."""
        name = entries.split_url(fetch.url)[0]
        self._gates.visits.give_back(name, fetch, now, self._permission.gap_rule(fetch.url, name))

    def pause(self, fetch_task: FetchTask, before: Fetch, now: float) -> None:
        """Start the politeness gap of the task's own host between its answer `before` and the task's next request."""
        host = self._outstanding.held[fetch_task.host]
        rule = self._permission.gap_rule(before.url, fetch_task.hostname)
        self._gates.politeness.pause(host.slot, before, now, rule)
        host.rests_until = 0.0  # from here on, the gap of the host applies to all

    def hold_off(self, fetch_task: FetchTask) -> None:
        """Let no other task use the host of a task that is aside while its request is under way."""
        self._outstanding.held[fetch_task.host].rests_until = inf

    def rest(self, fetch_task: FetchTask, before: Fetch, now: float) -> None:
        """Let other tasks use the host of a task that is aside only after the gap that follows the answer `before`.

        The task itself may continue without a gap, for example with the subresources of its page.
        """
        host = self._outstanding.held[fetch_task.host]
        rule = self._permission.gap_rule(before.url, fetch_task.hostname)
        wait = 0.0 if before.is_cached else self._gates.politeness.wait_after(host.slot, before, rule)
        host.rests_until = now + wait

    def end_site_file(self, fetch_task: FetchTask, fetch: Fetch, now: float) -> None:
        """End the request for a file of the task's own host; the host's politeness gap starts now."""
        slot = self._outstanding.held[fetch_task.host].slot
        rule = self._permission.gap_rule(fetch.url, fetch_task.hostname)
        self._gates.politeness.hop(slot, fetch, now, rule)

    def end_subresource(self, fetch_task: FetchTask, fetch: Fetch, now: float) -> None:
        """End a request of a page in a browser to the page's own host, and free its address.

        No gap follows for the next request of the page.
        """
        host = self._outstanding.held[fetch_task.host]
        self.rest(fetch_task, fetch, now)
        self._gates.politeness.count_answer(host.slot, fetch, now)
        self._gates.release_address(host, now, now)

    def is_closed(self, hostname: str) -> bool:
        """Return whether the host gets no requests: the user blocked it, it refused too often, or it was given up."""
        slot = self._gates.registry.find(hostname)
        return slot != NOWHERE and bool(self._gates.hosts.flags[slot] & SILENCED)

    def may_ask(self, url: str, now: float) -> bool:
        """Return whether a redirect to the URL may be followed, according to the robots.txt rules known so far."""
        return self.verdict(url, now).kind is VerdictKind.ALLOWED

    def verdict(self, url: str, now: float) -> Verdict:
        """Return the verdict of robots.txt on a URL, as far as the robots.txt is known."""
        authority, target = entries.split_authority(url)
        return self._permission.verdict(entries.split_url(url)[0], authority, target, now)
