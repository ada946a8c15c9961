"""Apply random operations to a frontier and compare it with a model. The front has two to four hosts.

The model maps each URL to its expected state. Politeness is checked only through the times of the fetch
tasks. Batches are written in order, but with a delay. A kill loses the batches that are not written yet, and a
power cut also loses the gap journal. After a kill, no host is asked within the gap of its last request.
`_check` runs after each step. At the end, all answers are good and every URL must be done.
"""

import random
from collections import deque
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from crawler.frontier.discovery.entries import class_in_order
from crawler.frontier.frontier import Frontier
from crawler.frontier.hosts.gap_journal import GapJournal, journal_bytes
from crawler.orders.classes import NEUTRAL, class_in, with_class
from crawler.records import Blame, Fetch, FetchTask, Outcome, TaskKind
from crawler.robots.cache import ALLOWED, DENIED, FETCH, Verdict, VerdictKind
from crawler.storage.kv import MemoryStore
from tests.frontier.model import Hash, config, domain_of, link, retire

HOSTS = [f"{sub}.{domain}.org" for domain in "ab" for sub in "wxyz"] + ["[::1]", "10.1.1.1"]
ADDRESSES = {name: (f"10.0.0.{index // 3}",) for index, name in enumerate(HOSTS)}
DELAY = 1.0
SETTINGS = config(
    politeness={
        "delay": DELAY,
        "delay_factor": 2.0,
        "backoff_first": 4,
        "backoff_max": 16,
        "give_up_after": "1 d",
    },
    frontier={
        "front_factor": 2,
        "read_ahead": 2,
        "later_max": 3,
        "address_waiters_max": 1,
        "retry_delays": [3, 5],
    },
)
GOOD = (Outcome.FETCHED, Blame.NONE, 200)
ANSWERS = [
    GOOD,
    (Outcome.GONE, Blame.NONE, 404),
    (Outcome.TEMPORARY, Blame.URL, 500),
    (Outcome.HEADER_TIMEOUT, Blame.URL, 0),
    (Outcome.HOST_BUSY, Blame.HOST, 429),
    (Outcome.RESET, Blame.HOST, 0),
]


class PickyRobots:
    """A robots cache that denies `/private` and fetches each robots.txt once.

    The robots.txt of port 81 is unreachable for a while.
    """

    def __init__(self) -> None:
        self.known: set[str] = set()
        self.reachable_at = 0.0

    def verdict(self, authority: str, target: str, now: float) -> Verdict:
        if authority.endswith(":81") and now < self.reachable_at:
            return Verdict(VerdictKind.WAIT, self.reachable_at)
        if authority not in self.known:
            return FETCH
        return DENIED if target.startswith("/private") else ALLOWED

    def crawl_delay(self, authority: str) -> float | None:
        return 3.0 if "z.b.org" in authority else None


class FrontierMachine(RuleBasedStateMachine):
    """`out` holds the fetch tasks that have no answer yet; `commits` holds the batches that wait for the writer."""

    hosts = HOSTS
    concurrency = 2
    settings = SETTINGS

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000_000.0
        self.store = MemoryStore()
        self.robots = PickyRobots()
        self.count = 0
        self.waiting: dict[str, Any] = {}  # URL -> link, for URLs that were added but are not done
        self.uncommitted: set[str] = set()
        self.done: set[str] = set()
        self.blocked: set[str] = set()
        # host or address -> the instant before which no request may start
        self.free_at: dict[str, float] = {}
        self.durable: dict[str, float] = {}  # host -> `free_at` of its last committed page
        self.memory = bytearray(journal_bytes(self.concurrency))
        self.busy: set[str] = set()
        self._open(clean=True)

    def _open(self, clean: bool) -> None:
        self.out: list[tuple[FetchTask, float]] = []
        self.commits: deque[tuple[str, Any]] = deque()
        self.borrowed: list[tuple[str, str, float]] = []  # host, address, begin of the request
        self.frontier = Frontier(
            self.store,
            self.settings,
            robots=self.robots,
            fingerprinter=Hash(),
            registrable_domain=domain_of,
            concurrency=self.concurrency,
            rng=random.Random(7),
            journal=GapJournal(self.memory),
        )
        self.frontier.open(self.now, clean)

    # ---- operations ----

    @rule(data=st.data(), count=st.integers(1, 6))
    def add(self, data: st.DataObject, count: int) -> None:
        links = []
        for _ in range(count):
            self.count += 1
            host = data.draw(st.sampled_from(self.hosts))
            scheme = data.draw(st.sampled_from(["https://{}", "http://{}", "http://{}:81"]))
            path = data.draw(st.sampled_from(["/a", "/private", "/retire", "/?q=1"]))
            url, depth = f"{scheme.format(host)}{path}{self.count}", data.draw(st.integers(0, 3))
            links.append(link(url, depth=depth, flags=self._flags(data)))
        self._add(links)

    def _flags(self, data: st.DataObject) -> int:
        return 0

    def _add(self, links: list[Any]) -> None:
        batch = self.store.batch()
        for chunk in (links[:2], links[2:]):
            self.frontier.enqueue(chunk, batch, self.now)
        self.waiting.update((item.url, item) for item in links)
        self.uncommitted.update(item.url for item in links)
        self.commits.append(("add", (batch, links)))

    def _is_durable(self, batch: Any) -> None:
        """Record that a batch of new URLs was written."""

    @rule()
    def take(self) -> None:
        fetch_task = self.frontier.claim_next(self.now)
        if fetch_task is None:
            wakeup = self.frontier.next_wakeup(self.now)
            assert wakeup is None or wakeup > self.now
            return
        assert fetch_task.hostname not in self.blocked
        assert fetch_task.hostname not in self.busy, "two fetch tasks on a host"
        self.busy.add(fetch_task.hostname)
        if fetch_task.kind in (TaskKind.PAGE, TaskKind.DENIED):
            assert fetch_task.url in self.waiting and fetch_task.url not in self.done
            assert fetch_task.fingerprint == self.waiting[fetch_task.url].fingerprint
            assert fetch_task.depth == self.waiting[fetch_task.url].depth
            self._judge_place(fetch_task)
            assert (fetch_task.kind is TaskKind.DENIED) == ("/private" in fetch_task.url)
        if fetch_task.kind in (TaskKind.PAGE, TaskKind.ROBOTS):
            self._judge_start(fetch_task)
        self.out.append((fetch_task, self.now))

    def _judge_place(self, fetch_task: FetchTask) -> None:
        assert class_in_order(fetch_task.order) == NEUTRAL

    def _judge_start(self, fetch_task: FetchTask) -> None:
        assert fetch_task.address in ADDRESSES[fetch_task.hostname]
        for name in (fetch_task.hostname, fetch_task.address):
            assert self.now >= self.free_at.get(name, 0.0), (name, self.free_at[name] - self.now)
        assert fetch_task.address not in self.busy, "two requests at an address"
        self.busy.add(fetch_task.address)

    @precondition(lambda self: self.out)
    @rule(data=st.data(), answer=st.sampled_from(ANSWERS), retry_after=st.sampled_from([0.0, 0.0, 7.0]))
    def end(self, data: st.DataObject, answer: Any, retry_after: float) -> None:
        index = data.draw(st.integers(0, len(self.out) - 1))
        self._end(index, answer, retry_after)

    def _end(self, index: int, answer: Any, retry_after: float = 0.0) -> None:
        fetch_task, began = self.out.pop(index)
        if fetch_task.kind is TaskKind.RESOLVE:
            self._end_look_up(fetch_task, answer)
            return
        outcome, blame, status = (
            (Outcome.ROBOTS_DENIED, Blame.NONE, 0) if fetch_task.kind is TaskKind.DENIED else answer
        )
        took = self.now - began
        fetch = Fetch(fetch_task.url, outcome, blame, status, took=took, retry_after=retry_after)
        if fetch_task.kind is not TaskKind.DENIED:
            self._end_request(fetch_task, fetch)
        if fetch_task.kind is TaskKind.ROBOTS:
            self.robots.known.add(fetch_task.url.removesuffix("/robots.txt"))
        decision = self.frontier.record_outcome(fetch_task, fetch, self.now)
        if decision.end == "done":
            self.busy -= {fetch_task.hostname, fetch_task.address}
        self.commits.append(("page", decision))

    @rule(rounds=st.integers(2, 10))
    def fetch_on(self, rounds: int) -> None:
        """Answer several fetch tasks successfully; none of their pages is committed yet."""
        for _ in range(rounds):
            self.take()
            if self.out:
                self._end(0, GOOD)
            while self.commits and getattr(self.commits[0][1], "end", "") != "done":
                self.commit()
            self.now += 5.0

    def _end_look_up(self, fetch_task: FetchTask, answer: Any) -> None:
        if answer[1] is Blame.HOST:
            fetch = Fetch("", Outcome.DNS_ERROR, Blame.HOST)
            self.commits.append(("page", self.frontier.record_outcome(fetch_task, fetch, self.now)))
        else:
            self.frontier.resolved(fetch_task, ADDRESSES[fetch_task.hostname], self.now + 20.0, self.now)
            self.busy.discard(fetch_task.hostname)

    def _end_request(self, fetch_task: FetchTask, fetch: Fetch) -> None:
        gap = max(DELAY, min(2.0 * fetch.took, 30.0), fetch.retry_after)
        if fetch_task.hostname == "z.b.org" and fetch_task.kind is TaskKind.PAGE:
            gap = max(gap, 3.0)
        if fetch.blame is Blame.HOST:
            gap = max(gap, 4.0)
        self.free_at[fetch_task.hostname] = self.now + gap
        self.free_at[fetch_task.address] = self.now + 0.5

    @precondition(lambda self: self.commits)
    @rule()
    def commit(self) -> None:
        kind, item = self.commits.popleft()
        if kind == "add":
            batch, links = item
            self.store.write(batch)
            self._is_durable(batch)
            self.uncommitted.difference_update(entry.url for entry in links)
            self.frontier.committed(batch, self.now)
            return
        batch = self.store.batch()
        self.frontier.stage(item, batch)
        self.store.write(batch)
        if item.end == "done":
            assert item.fetch_task.url not in self.done
            self.done.add(item.fetch_task.url)
            del self.waiting[item.fetch_task.url]
        self.durable[item.fetch_task.hostname] = self.free_at.get(item.fetch_task.hostname, 0.0)
        self.frontier.release(item, self.now)
        if item.end != "done":
            self.busy -= {item.fetch_task.hostname, item.fetch_task.address}

    @rule(seconds=st.sampled_from([0.01, 0.3, 1.0, 5.0, 30.0, 200.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule()
    def wait_for_wakeup(self) -> None:
        wakeup = self.frontier.next_wakeup(self.now)
        if wakeup is not None:
            self.now = max(self.now, wakeup)

    @rule(seconds=st.sampled_from([0.0, 0.2, 60.0]))
    def kill(self, seconds: float) -> None:
        self._cut_off()
        self._crash(seconds)

    @rule(seconds=st.sampled_from([0.0, 0.2, 60.0]))
    def cut_power(self, seconds: float) -> None:
        self._cut_off()
        self._forget_requests()
        self.memory[:] = bytes(len(self.memory))
        self._crash(seconds)

    def _crash(self, seconds: float) -> None:
        """Lose all unwritten batches.

        The DUE is written in the same batches, so after the crash it returns the lost URLs again.
        """
        self.busy.clear()
        self.now += seconds
        again = [self.waiting[url] for url in sorted(self.uncommitted)]
        self.uncommitted.clear()
        self._open(clean=False)
        for host in HOSTS:  # a block is stored only with the next batch, so the crash may have lost it
            if host in self.blocked:
                self.frontier.blocks.block(host)
            else:
                self.frontier.blocks.unblock(host, self.now)
        if again:
            self._add(again)

    def _cut_off(self) -> None:
        """End the requests in flight, because a crash closes their connections."""
        for fetch_task, began in self.out:
            if fetch_task.kind in (TaskKind.PAGE, TaskKind.ROBOTS):
                self._end_request(fetch_task, Fetch("", Outcome.FETCHED, took=self.now - began))
        for host, address, began in self.borrowed:
            self._end_hop(Fetch("", Outcome.FETCHED, took=self.now - began), host, address)

    def _forget_requests(self) -> None:
        """Remove uncommitted requests from the model; after such a request, only the minimum gap applies."""
        for host in HOSTS:
            least = self.now + (3.0 if host == "z.b.org" else DELAY)
            self.free_at[host] = max(self.durable.get(host, 0.0), min(self.free_at.get(host, 0.0), least))

    @rule()
    def restart(self) -> None:
        """Stop cleanly and start again."""
        self._drain()
        batch = self.store.batch()
        self.frontier.flush(batch, self.now)
        self.store.write(batch)
        self._open(clean=True)

    def _drain(self) -> None:
        while self.borrowed:
            self.give_back()
        while self.out:
            self._end(0, GOOD)
        while self.commits:
            self.commit()

    @rule(seconds=st.sampled_from([0.0, 10.0, 400.0]))
    def lose_robots(self, seconds: float) -> None:
        self.robots.reachable_at = self.now + seconds
        self.robots.known.clear()

    @rule(host=st.sampled_from(HOSTS))
    def block(self, host: str) -> None:
        self.frontier.blocks.block(host)
        self.blocked.add(host)

    @rule()
    def unblock(self) -> None:
        for host in sorted(self.blocked):
            self.frontier.blocks.unblock(host, self.now)
        self.blocked.clear()

    @rule(host=st.sampled_from(HOSTS), with_address=st.booleans())
    def borrow(self, host: str, with_address: bool) -> None:
        address = ADDRESSES[host][0] if with_address else ""
        instant = self.frontier.hops.borrow(host, self.now, address=address)
        if instant:
            assert instant > self.now
            return
        assert host not in self.busy and self.now >= self.free_at.get(host, 0.0)
        self.busy.add(host)
        if address:
            assert address not in self.busy and self.now >= self.free_at.get(address, 0.0)
            self.busy.add(address)
        self.borrowed.append((host, address, self.now))

    @precondition(lambda self: self.borrowed)
    @rule(outcome=st.sampled_from(ANSWERS), retry_after=st.sampled_from([0.0, 0.0, 9.0]))
    def give_back(self, outcome: tuple[Outcome, Blame, int] = GOOD, retry_after: float = 0.0) -> None:
        host, address, began = self.borrowed.pop()
        fetch = Fetch(f"https://{host}/hop", *outcome, took=self.now - began, retry_after=retry_after)
        self.frontier.hops.give_back(fetch, self.now)
        self.busy -= {host, address}
        self._end_hop(fetch, host, address)

    def _end_hop(self, fetch: Fetch, host: str, address: str) -> None:
        least = 4.0 if fetch.outcome is Outcome.HOST_BUSY else 3.0 if host == "z.b.org" else DELAY
        self.free_at[host] = self.now + max(least, min(2.0 * fetch.took, 30.0), fetch.retry_after)
        if address:
            self.free_at[address] = self.now + 0.5

    @precondition(lambda self: not self.commits and not self.out)
    @rule()
    def retire(self) -> None:
        batch = self.store.batch()
        gone = [url for url in self.waiting if "/retire" in url]
        assert retire(self.frontier, "/retire", batch) == len(gone)
        self.store.write(batch)
        self.frontier.committed(batch, self.now)
        for url in gone:
            del self.waiting[url]

    @rule()
    def pause_and_resume(self) -> None:
        self.frontier.pauses.pause("disk")
        assert self.frontier.claim_next(self.now) is None
        self.frontier.pauses.resume("disk")

    # ---- invariants ----

    @invariant()
    def consistent(self) -> None:
        self.frontier._check()
        self.frontier._gates.journal._check()
        counters = self.frontier.views.counters()
        staged = sum(kind == "page" and item.end == "done" for kind, item in self.commits)
        assert counters["todo"] + counters["in_flight"] + staged == len(self.waiting)

    def teardown(self) -> None:
        """Run to the end: every URL is done exactly once."""
        self.unblock()
        self._drain()
        for _ in range(100 * (len(self.waiting) + 10)):
            self.take()
            if self.out:
                self._drain()
                continue
            wakeup = self.frontier.next_wakeup(self.now)
            if wakeup is None:
                break
            self.now = max(self.now, wakeup)
        assert not self.waiting, (
            list(self.waiting),
            self.frontier,
            list(self.frontier.views.hosts(self.now, 20)),
        )
        assert self.frontier.finished(self.now) == "done", (
            self.frontier,
            list(self.frontier.views.hosts(self.now, 20)),
        )
        self.frontier._check()
        leftovers = [key for key in self.store._data if key.startswith((b"t/", b"p/", b"y/"))]
        assert not leftovers


class FewHosts(FrontierMachine):
    """With few hosts, none waits in the back queue, so a host may continue before its last page is committed."""

    hosts = HOSTS[-2:]
    concurrency = 5

    def __init__(self) -> None:
        super().__init__()
        self._add([link(f"https://{host}/{n}") for host in self.hosts for n in range(6)])
        self.commit()


class Ordered(FrontierMachine):
    """Links have classes, and better links to URLs that already wait are added.

    A crash loses the links that are not written yet. `places` holds the classes of waiting URLs;
    `durable_places` holds only the stored ones. A URL that was tried once, or that is in flight, keeps its
    class.
    """

    settings = config(
        politeness={"delay": DELAY, "backoff_first": 4, "backoff_max": 16, "give_up_after": "1 d"},
        frontier={"front_factor": 2, "read_ahead": 2, "later_max": 3, "address_waiters_max": 1},
        order={"name": "depth", "first_come": 0.25},
    )

    def _open(self, clean: bool) -> None:
        if not hasattr(self, "places"):
            self.places: dict[str, int] = {}
            self.durable_places: dict[str, int] = {}
            self.written_with: dict[int, tuple[Any, dict[str, int]]] = {}
            self.taken: set[str] = set()
        self.places = dict(self.durable_places)
        self.written_with.clear()
        super()._open(clean)

    def _flags(self, data: st.DataObject) -> int:
        return with_class(0, data.draw(st.sampled_from([0, 40, 41, 42, 43, NEUTRAL, 255])))

    def _add(self, links: list[Any]) -> None:
        super()._add(links)
        new = {item.url: class_in(item.flags) for item in links}
        batch = self.commits[-1][1][0]
        self.written_with[id(batch)] = batch, new
        self.places.update(new)

    def _is_durable(self, batch: Any) -> None:
        self.durable_places.update(self.written_with.pop(id(batch))[1])

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def improve(self, data: st.DataObject) -> None:
        """Add better links to some URLs, some of which are done."""
        some = sorted(self.waiting) + sorted(self.done)
        self._improve(data, data.draw(st.lists(st.sampled_from(some), max_size=4)))

    @rule(data=st.data())
    def improve_what_is_asked(self, data: st.DataObject) -> None:
        """Add better links to URLs that are in flight or whose outcome is not committed.

        The classes of these URLs must not change.
        """
        for _ in range(8):
            self.take()
            places = [
                place
                for place, (fetch_task, _) in enumerate(self.out)
                if fetch_task.kind is not TaskKind.PAGE
            ]
            for place in reversed(places):
                self._end(place, GOOD)
            self.now += 2.0
        pages = [fetch_task.url for fetch_task, _ in self.out]
        if pages and data.draw(st.booleans()):
            self._end(0, GOOD)
        self._improve(data, [url for url in pages if url in self.waiting])

    def _improve(self, data: st.DataObject, urls: list[str]) -> None:
        batch, moved = self.store.batch(), {}
        links = []
        for url in dict.fromkeys(urls):
            known = self.waiting.get(url) or link(url, depth=9)
            better = data.draw(st.sampled_from([0, 20, 38, 40, 41, 200]))
            links.append(link(url, depth=known.depth, flags=with_class(0, better)))
            if url in self.waiting and url not in self.taken and self.places[url] - better >= 2:
                moved[url] = self.places[url] = better
        self.frontier.intake.improve(links, batch, self.now)
        self.written_with[id(batch)] = batch, moved
        self.commits.append(("add", (batch, [])))

    def _judge_place(self, fetch_task: FetchTask) -> None:
        if fetch_task.url not in self.taken:
            assert class_in_order(fetch_task.order) == self.places[fetch_task.url]
        self.taken.add(fetch_task.url)

    @invariant()
    def index_is_whole(self) -> None:
        """Each queue entry is found by its fingerprint, and the index contains no other entries."""
        data = self.store._data
        found = {key[2:10] + order for key, order in data.items() if key.startswith(b"y/")}
        assert found == {key[2:] for key in data if key.startswith(b"t/")}


class OrderedFew(Ordered, FewHosts):
    """With few hosts, all queues fit into memory, so entries move to other classes before they are written."""


FrontierMachine.TestCase.settings = FewHosts.TestCase.settings = Ordered.TestCase.settings = settings(
    max_examples=30,
    stateful_step_count=60,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    derandomize=True,
)
TestFrontierMachine = FrontierMachine.TestCase
OrderedFew.TestCase.settings = Ordered.TestCase.settings
TestFewHosts = FewHosts.TestCase
TestOrdered = Ordered.TestCase
TestOrderedFew = OrderedFew.TestCase
