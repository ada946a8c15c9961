"""The outcome policy decides what happens to a URL and its host when a fetch task ends.

    outcome charged to    the URL                                  its host
    nothing               leaves the queue                         waits its gap
    the URL               is tried `tries` times in all,           waits its gap
                          30 s and 2 min apart (+-20 %)
    the host              keeps its place in the queue             backs off
    its authority         keeps its place; URLs of the host's      waits its gap
                          other authorities go first (`authorities.py`)

A URL may also get strikes, up to `strikes_max` (`frontier/README.md`, "Failures").

A decision is final when it is made, but its writes take effect only with the batch of its commit group.
Between `decide` and the commit, the host's counts in memory are newer than those in the store.
"""

import itertools
import math
import random
from enum import StrEnum

import msgspec

from crawler.config import Config
from crawler.frontier.discovery import entries
from crawler.frontier.discovery.waiting_index import index_key
from crawler.frontier.hosts.authorities import (
    Authorities,
    Failing,
    failed_alone,
    failing_key,
    failing_record,
    names_port,
)
from crawler.frontier.hosts.front_host import FrontHost
from crawler.frontier.hosts.politeness import GapRule, HostPoliteness
from crawler.frontier.hosts.registry import Registry
from crawler.records import Blame, Fetch, FetchTask, LinkFlag, Outcome, TaskKind
from crawler.storage.kv import Batch

_DENIED_GAP = 0.01  # minimum seconds between two denied URLs of a host, because checking a URL takes CPU time
# maximum number of a host's entries that are examined to find one of another authority
_OTHERS_LOOKED_AT = 64
_REFRESH = LinkFlag.REFRESH
# an entry with fewer strikes than this gets another strike only if the host worked before the failure
_SUSPECT = 2
_NO_ADDRESS = (Outcome.DNS_NOT_FOUND, Outcome.ADDRESS_DENIED)


class End(StrEnum):
    """The effect of a decision on the URL of its fetch task."""

    DONE = "done"  # the URL leaves the queue; its outcome is recorded
    AGAIN = "again"  # the URL is tried again at `retry_at`
    HOST = "host"  # the host waits; the URL keeps its place
    READY = "ready"  # the task had no URL: it obtained addresses or a robots.txt


class Decision(msgspec.Struct, gc=False):
    """The consequences of a fetch task that ended at `ended`.

    `until` is the instant from which the host may be requested again. `retry_at` is the instant of the URL's next
    try, or 0 if there is none. `attempt` is the number of failures charged to the URL. `requested` is True if
    something was sent to the host. `writes` maps store keys to their new values; None deletes the key.
    """

    fetch_task: FetchTask
    end: End
    ended: float
    until: float
    retry_at: float = 0.0
    attempt: int = 0
    writes: list[tuple[bytes, bytes | None]] = []
    requested: bool = True


def stage(decision: Decision, batch: Batch) -> None:
    """Put a decision into the batch of its commit group; this needs no other state, so any thread may do it."""
    for key, value in decision.writes:
        if value is None:
            batch.delete(key)
        else:
            batch.put(key, value)


def _ended_elsewhere(fetch_task: FetchTask, fetch: Fetch) -> bool:
    """Return whether the last answer of a task came from another host, to which the task was redirected."""
    return bool(fetch.url) and entries.split_url(fetch.url)[0] != fetch_task.hostname


class OutcomePolicy:
    """Decides what follows from the outcome of a fetch task.

    `indexes` is True if there is an index of waiting URLs (`discovery/waiting_index.py`).
    """

    def __init__(
        self,
        config: Config,
        registry: Registry,
        politeness: HostPoliteness,
        rng: random.Random,
        *,
        indexes: bool = False,
    ) -> None:
        self._config = config.frontier
        self._pause_max = config.politeness.backoff_first
        self._registry = registry
        self._politeness = politeness
        self._rng = rng
        self._indexes = indexes
        self.authorities = Authorities()

    def decide(
        self, host: FrontHost, fetch_task: FetchTask, fetch: Fetch, now: float, rule: GapRule
    ) -> Decision:
        """Charge the outcome to the URL, its host or its authority, and return the decision.

        If the task was redirected to another host, that host has been charged already (`Hops.give_back`), so a
        failure of that host is charged to the URL here.
        """
        if fetch.blame is Blame.HOST and _ended_elsewhere(fetch_task, fetch):
            fetch.blame = Blame.URL
        if fetch_task.flags & _REFRESH:
            return self._refetched(host, fetch_task, fetch, now, rule)
        if fetch_task.kind is TaskKind.PAGE:
            return self._page(host, fetch_task, fetch, now, rule)
        if fetch_task.kind is TaskKind.DENIED:
            hosts = self._registry.hosts
            hosts.ready[host.slot] = until = max(hosts.ready[host.slot], now + _DENIED_GAP)
            return self._done(host, Decision(fetch_task, End.DONE, now, until))
        if fetch_task.kind is TaskKind.RESOLVE:
            return self._look_up(host, fetch_task, fetch, now)
        charged = self._charges_host(host, fetch_task, fetch, now)
        until = self._finish(host, fetch_task, fetch, now, rule, charged=charged)
        end = End.HOST if charged and fetch.blame is Blame.HOST else End.READY
        return self._with_record(host, Decision(fetch_task, end, now, until))

    def _charges_host(self, host: FrontHost, fetch_task: FetchTask, fetch: Fetch, now: float) -> bool:
        """Return whether the failure is charged to the host.

        If only the task's authority failed, charge it and return False.
        """
        authority = entries.split_authority(fetch_task.url)[0]
        if fetch_task.kind is TaskKind.ROBOTS and fetch.blame is Blame.URL:
            self._note_failing(
                host, authority, self.authorities.failed_robots(authority, fetch.outcome), fetch
            )
            return True
        if fetch.blame is not Blame.HOST and fetch.status:
            self._note_answer(host, authority)
        items = itertools.islice(host.entries(), _OTHERS_LOOKED_AT)
        others = (entries.split_authority(entries.join_url(host.name, entry.tail))[0] for _, entry in items)
        if not failed_alone(fetch_task.kind, fetch, authority, others):
            return True
        tries = self.authorities.failed(host.slot, authority, now, self._politeness.config, fetch.outcome)
        self._note_failing(host, authority, tries, fetch)
        if not (fetch.status or names_port(authority)):
            self._politeness.note_silence(host.slot, now)
        return False

    def _note_failing(self, host: FrontHost, authority: str, tries: int, fetch: Fetch) -> None:
        record = failing_record(Failing(tries, fetch.outcome))
        self._registry.notes[failing_key(host.key, authority)] = record

    def _note_answer(self, host: FrontHost, authority: str) -> None:
        if self.authorities.answered(host.slot, authority):
            self._registry.notes[failing_key(host.key, authority)] = None

    def _refetched(
        self, host: FrontHost, fetch_task: FetchTask, fetch: Fetch, now: float, rule: GapRule
    ) -> Decision:
        """Return the decision after a refetch. The task is done, and the schedule plans the page's next fetch."""
        until = now
        if fetch_task.kind is TaskKind.PAGE:
            until = self._finish(host, fetch_task, fetch, now, rule)
        return self._with_record(host, Decision(fetch_task, End.DONE, now, until))

    def _finish(
        self,
        host: FrontHost,
        fetch_task: FetchTask,
        fetch: Fetch,
        now: float,
        rule: GapRule,
        *,
        charged: bool = True,
    ) -> float:
        """Record the end of a page or a robots.txt. Return the time from which the host may be requested again."""
        if _ended_elsewhere(fetch_task, fetch):
            return self._politeness.finish_elsewhere(host.slot, now, rule)
        return self._politeness.finish(host.slot, fetch, now, rule, charged=charged)

    def _look_up(self, host: FrontHost, fetch_task: FetchTask, fetch: Fetch, now: float) -> Decision:
        if fetch.outcome in _NO_ADDRESS:
            self._politeness.give_up(host.slot, fetch.outcome.value)
            return self._with_record(host, Decision(fetch_task, End.HOST, now, now))
        fetch.blame = Blame.HOST
        until = self._politeness.finish(host.slot, fetch, now)
        return self._with_record(host, Decision(fetch_task, End.HOST, now, until))

    def _page(
        self, host: FrontHost, fetch_task: FetchTask, fetch: Fetch, now: float, rule: GapRule
    ) -> Decision:
        assert host.busy is not None and host.busy[0] == fetch_task.order, (host, fetch_task)
        entry = host.busy[1]
        was_well = not self._registry.hosts.failures[host.slot]
        charged = self._charges_host(host, fetch_task, fetch, now)
        until = self._finish(host, fetch_task, fetch, now, rule, charged=charged)
        decision = Decision(fetch_task, End.DONE, now, until, attempt=entry.attempt)
        if not charged:
            return self._host_failed(host, decision, struck=False)
        if fetch.blame is Blame.HOST:
            struck = was_well or entry.strikes >= _SUSPECT
            entry.strikes += struck
            if entry.strikes < self._config.strikes_max:
                return self._host_failed(host, decision, struck)
        elif fetch.blame is Blame.URL:
            entry.attempt = decision.attempt = entry.attempt + 1
            if entry.attempt < self._config.tries:
                return self._again(host, decision)
        return self._done(host, decision)

    def _done(self, host: FrontHost, decision: Decision) -> Decision:
        """Remove the URL from the queue."""
        assert host.busy is not None, host
        decision.writes.append((entries.entry_key(host.prefix, host.busy[0]), None))
        if self._indexes:
            decision.writes.append((index_key(host.key, host.busy[1].fingerprint), None))
        host.busy = None
        self._registry.hosts.todo[host.slot] -= 1
        self._registry.todo -= 1
        return self._with_record(host, decision)

    def _again(self, host: FrontHost, decision: Decision) -> Decision:
        """Schedule another try of the URL after a delay that depends on the number of attempts."""
        assert host.busy is not None, host
        order, entry = item = host.busy
        host.busy = None
        delays = self._config.retry_delays
        jitter = 1.0 + self._config.retry_jitter * self._rng.uniform(-1.0, 1.0)
        entry.retry_at = math.ceil(decision.ended + delays[min(entry.attempt, len(delays)) - 1] * jitter)
        decision.end, decision.retry_at = End.AGAIN, float(entry.retry_at)
        decision.writes.append(entries.record(host.prefix, order, entry))
        host.postpone(decision.retry_at, item)
        return self._with_record(host, decision)

    def _host_failed(self, host: FrontHost, decision: Decision, struck: bool) -> Decision:
        """Let the host wait. If the URL of the task got a strike, the host's other URLs go first."""
        assert host.busy is not None, host
        order, entry = item = host.busy
        host.busy = None
        decision.end = End.HOST
        if struck:
            decision.writes.append(entries.record(host.prefix, order, entry))
        if struck and self._registry.hosts.todo[host.slot] > 1:
            host.postpone(decision.until + min(decision.until - decision.ended, self._pause_max), item)
        else:
            host.push(order, entry)
        return self._with_record(host, decision)

    def _with_record(self, host: FrontHost, decision: Decision) -> Decision:
        """Add the record of the host, and those of hosts that changed outside a commit, to the decision's writes."""
        registry = self._registry
        registry.hosts.cursor[host.slot] = host.cursor()
        if registry.notes:
            decision.writes.extend(registry.notes.items())
            registry.notes.clear()
        decision.writes.append(registry.record(host.slot, host.name))
        return decision
