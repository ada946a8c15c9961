"""Simulate the process that uses a frontier, with virtual time, a simulated web and one commit queue.

`Crawl` runs the loop of a crawling process without a network. `Crawl` claims fetch tasks until none may
start, and ends each fetch after a chosen time. It commits groups of results in order, after a chosen delay.
`Crawl` records each request (`Request`), so that tests can check politeness as a server sees it.
"""

import heapq
import random
import re
import zlib
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from crawler.clock import VirtualClock
from crawler.config import Config, convert
from crawler.frontier.frontier import Frontier
from crawler.frontier.outcome_policy import Decision
from crawler.records import Blame, Fetch, FetchTask, Link, Outcome, TaskKind
from crawler.robots.cache import ALLOWED, Verdict
from crawler.storage.keys import PARKED
from crawler.storage.kv import MemoryStore

Answer = Callable[[FetchTask, float], Fetch]


class Hash:
    """Computes the key of a host from its domain's bucket and the hash of its name, as the fingerprinter does."""

    def host_key(self, hostname: str) -> int:
        bucket = zlib.crc32(b"b" + domain_of(hostname).encode()) & 0xFFFF
        name = hostname.encode()
        return bucket << 48 | (zlib.crc32(name) << 16 | zlib.crc32(name[::-1] + b"x") & 0xFFFF)

    def host_key_beside(self, hostname: str, fingerprint: int) -> int:
        # in these tests, fingerprints are arbitrary numbers, so they are ignored
        return self.host_key(hostname)

    def domain_key(self, domain: str) -> int:
        return self.host_key(domain)


def domain_of(hostname: str) -> str:
    """Return the last two labels of a host name."""
    return ".".join(hostname.split(".")[-2:])


class OpenRobots:
    """A robots cache that allows everything immediately."""

    def verdict(self, authority: str, target: str, now: float) -> Verdict:
        return ALLOWED

    def crawl_delay(self, authority: str) -> float | None:
        return None

    def fetched(self, fetch_task: FetchTask, now: float) -> None:
        raise AssertionError("this robots cache requires no fetch of robots.txt")


class Request(NamedTuple):
    """The fields of one request in the server's log."""

    host: str
    address: str
    url: str
    task: TaskKind
    began: float
    ended: float
    outcome: Outcome


def fetched(url: str, took: float = 0.1, **fields: Any) -> Fetch:
    return Fetch(url, Outcome.FETCHED, status=200, took=took, **fields)


def failed(url: str, outcome: Outcome, blame: Blame, **fields: Any) -> Fetch:
    return Fetch(url, outcome, blame=blame, **fields)


def failing(outcome: Outcome, blame: Blame, *, end: str = "", **fields: Any) -> Answer:
    """Return the answers of a web on which each request fails whose URL ends with `end`."""

    def answer(fetch_task: FetchTask, now: float) -> Fetch:
        if fetch_task.url.endswith(end):
            return failed(fetch_task.url, outcome, blame, **fields)
        return fetched(fetch_task.url)

    return answer


def config(**sections: Any) -> Config:
    """Return a configuration with limits so small that tests reach all of them."""
    tree: dict[str, Any] = {
        "politeness": {"delay": 1.0, "delay_factor": 10.0},
        "frontier": {
            "front_factor": 1,
            "read_ahead": 3,
            "turn_max": 3,
            "later_max": 4,
            "address_waiters_max": 3,
        },
    }
    for name, values in sections.items():
        if isinstance(values, dict):
            tree.setdefault(name, {}).update(values)
        else:
            tree[name] = values
    return convert(tree)


def link(url: str, depth: int = 0, **fields: Any) -> Link:
    return Link(zlib.crc32(url.encode()) << 8 | 1, url, depth=depth, **fields)


def numbered(count: int, host: str = "a.org") -> list[str]:
    return [f"https://{host}/{number}" for number in range(count)]


def retire(frontier: Frontier, pattern: str, batch: Any) -> int:
    """Delete the to-do and parked URLs that match, in the steps of `crawler retire`; return their number."""
    count, begin = 0, PARKED
    while begin:
        more, begin = frontier.intake.retire_some(re.compile(pattern).search, batch, begin)
        count += more
    return count


class Crawl:
    """A crawl in the model; see the module docstring.

    `answer(fetch_task, now)` returns the Fetch of a request. `addresses(hostname)` returns the addresses of a
    host, or a failing Fetch. `links(fetch_task)` returns the new URLs of a page (each URL only once).
    """

    def __init__(
        self,
        settings: Config | None = None,
        *,
        store: Any = None,
        answer: Answer | None = None,
        addresses: Callable[[str], tuple[str, ...] | Fetch] | None = None,
        links: Callable[[FetchTask], list[Link]] | None = None,
        robots: Any = None,
        concurrency: int = 3,
        commit_delay: float = 0.001,
        seed: int = 1,
        now: float = 1_000_000.0,
        clean: bool = True,
        reading: bool = False,
        **options: Any,
    ) -> None:
        self.clock = VirtualClock(now)
        self.store = MemoryStore() if store is None else store
        self.robots = robots or OpenRobots()
        self.frontier = Frontier(
            self.store,
            settings or config(),
            robots=self.robots,
            fingerprinter=Hash(),
            registrable_domain=domain_of,
            concurrency=concurrency,
            rng=random.Random(seed),
            **options,
        )
        self._answer = answer or (lambda fetch_task, now: fetched(fetch_task.url))
        self._addresses = addresses or (lambda hostname: (f"10.0.0.{zlib.crc32(hostname.encode()) % 250}",))
        self._links = links or (lambda fetch_task: [])
        self._commit_delay = commit_delay
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._tick = 0
        self.requests: list[Request] = []
        self._fetching: dict[int, tuple[FetchTask, float]] = {}
        self.done: list[str] = []  # the URLs whose final result is committed
        self.handed: list[FetchTask] = []
        self.checking = True
        self.frontier.open(now, clean, reading=reading)

    @property
    def now(self) -> float:
        return self.clock.now()

    def add(self, links: Iterable[Link | str], *, commit_after: float | None = None) -> None:
        """Add new URLs, and commit them after `commit_after` seconds."""
        batch = self.store.batch()
        new = [link(each) if isinstance(each, str) else each for each in links]
        self.frontier.enqueue(new, batch, self.now)
        delay = self._commit_delay if commit_after is None else commit_after
        self._after(delay, lambda: self._commit_add(batch))

    def _commit_add(self, batch: Any) -> None:
        self.store.write(batch)
        self.frontier.committed(batch, self.now)

    def _after(self, delay: float, action: Callable[[], None]) -> None:
        self._tick += 1
        heapq.heappush(self._events, (self.now + delay, self._tick, action))

    def run(
        self, seconds: float = 1e9, *, requests: int = 10**9, stop: Callable[[], bool] = lambda: False
    ) -> str:
        """Run until no work is left, the time limit is reached or enough requests were made; return the reason."""
        end = self.now + seconds
        while len(self.requests) < requests and not stop():
            if self.step(end):
                continue
            return self.frontier.finished(self.now) or "time"
        return "enough"

    def step(self, end: float) -> bool:
        """Start all tasks that may start, then advance to the next event. Return False if no event is before `end`."""
        while (fetch_task := self.frontier.claim_next(self.now)) is not None:
            self._begin(fetch_task)
        if self.checking:
            self.frontier._check()
        instants = [event[0] for event in self._events[:1]]
        wakeup = self.frontier.next_wakeup(self.now)
        if wakeup is not None:
            assert wakeup > self.now or self.frontier.views.counters()["look_ups"] or self._events, (
                wakeup,
                self.frontier,
            )
            instants.append(max(wakeup, self.now))
        if not instants or min(instants) > end or (not self._events and self.frontier.finished(self.now)):
            return False
        self.clock.advance(max(0.0, min(instants) - self.now))
        while self._events and self._events[0][0] <= self.now:
            heapq.heappop(self._events)[2]()
        return True

    def _begin(self, fetch_task: FetchTask) -> None:
        self.handed.append(fetch_task)
        if fetch_task.kind is TaskKind.RESOLVE:
            self._after(0.01, lambda: self._resolved(fetch_task))
            return
        if fetch_task.kind is TaskKind.DENIED:
            fetch = Fetch(fetch_task.url, Outcome.ROBOTS_DENIED)
        else:
            fetch = self._answer(fetch_task, self.now)
        began = self.now
        if fetch_task.kind is not TaskKind.DENIED:
            self._fetching[fetch_task.host] = (fetch_task, began)
        self._after(fetch.took, lambda: self._ended(fetch_task, fetch, began))

    def _resolved(self, fetch_task: FetchTask) -> None:
        answer = self._addresses(fetch_task.hostname)
        if isinstance(answer, Fetch):
            decision = self.frontier.record_outcome(fetch_task, answer, self.now)
            self._commit(decision)
        else:
            self.frontier.resolved(fetch_task, answer, self.now + 3600, self.now)

    def _ended(self, fetch_task: FetchTask, fetch: Fetch, began: float) -> None:
        if self._fetching.pop(fetch_task.host, None):
            self.requests.append(self._request(fetch_task, began, fetch.outcome))
        if fetch_task.kind is TaskKind.ROBOTS:
            self.robots.fetched(fetch_task, self.now)
        decision = self.frontier.record_outcome(fetch_task, fetch, self.now)
        if decision.end == "done":
            new = self._links(fetch_task)
            if new:
                self.add(new)
        self._commit(decision)

    def _commit(self, decision: Decision) -> None:
        self._after(self._commit_delay, lambda: self._committed(decision))

    def _committed(self, decision: Decision) -> None:
        batch = self.store.batch()
        self.frontier.stage(decision, batch)
        self.store.write(batch)
        if decision.end == "done" and decision.fetch_task.kind is not TaskKind.ROBOTS:
            self.done.append(decision.fetch_task.url)
        self.frontier.release(decision, self.now)

    def cut_off(self) -> list[Request]:
        """Return the requests in flight, as the server's log shows them if the process is killed now."""
        return [self._request(*fetching, Outcome.RESET) for fetching in self._fetching.values()]

    def _request(self, fetch_task: FetchTask, began: float, outcome: Outcome) -> Request:
        task = fetch_task
        return Request(task.hostname, task.address, task.url, task.kind, began, self.now, outcome)

    def stop(self) -> None:
        """Stop cleanly: wait for the requests in flight, then store everything."""
        while self._events:
            self.clock.advance(max(0.0, self._events[0][0] - self.now))
            heapq.heappop(self._events)[2]()
        batch = self.store.batch()
        self.frontier.flush(batch, self.now)
        self.store.write(batch)

    def again(self, settings: Config | None = None, *, after: float = 0.0, **options: Any) -> "Crawl":
        """Stop cleanly; return a crawl that goes on `after` seconds later. It has other settings and options."""
        self.stop()
        return Crawl(settings, store=self.store, now=self.now + after, **options)


def crawled(links: Iterable[Link | str], settings: Config | None = None, **options: Any) -> Crawl:
    """Return a crawl that has run until no work was left."""
    crawl = Crawl(settings, **options)
    crawl.add(links)
    assert crawl.run() == "done"
    return crawl
