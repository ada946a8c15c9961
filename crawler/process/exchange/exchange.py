"""The part of a process that knows the limits and the end of the whole crawl, and exchanges messages with peers.

`Exchange` serves a crawl of one process: it applies the limits and detects the end by the same rules as in a
crawl of many processes. `PeerExchange` (`peer_exchange.py`) adds the peers.

The process calls `room` before it starts a fetch. The process reads `limit_reached` and `ended` to learn
whether the crawl is over. The process calls `advance` when it is idle, and `committed` after each group of
changes is committed.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Any

import msgspec

from crawler.frontier.refresh.rate_balancing import LevelReport
from crawler.process.opening.stages import Stages
from crawler.records import Fetch, Outcome, PeerStatus
from crawler.splitter.coordination import Coordination, Progress
from crawler.splitter.peers import Address
from crawler.splitter.wire import AskedRequest
from crawler.storage.commit import Change, Maker
from crawler.storage.keys import RUN
from crawler.storage.kv import KeyValue, seal, unseal

_WORK_AGE_MAX = 0.5  # seconds for which the number of hosts with work is cached


class Member(msgspec.Struct, frozen=True):
    """The process `name` as a member of a crawl of one or several processes.

    `addresses` are the addresses of the peers. `run` names the run. The limits of a run apply across restarts
    of this process. If `run` is "", each start counts as a separate run. `ended` is true if the crawl is
    already known to be over. `supervised` is true if a supervisor keeps the configuration, the seeds and the
    report of the crawl.
    """

    name: str
    crawl: str = ""
    addresses: dict[str, Address] = {}
    secret: bytes = b""
    run: str = ""
    ended: bool = False
    supervised: bool = False


class Loops(msgspec.Struct, frozen=True):
    """The parts of the process's loops that the exchange uses.

    `fetch` makes a request for a peer, and charges the memory of the answer to the second argument until `let_go` is
    called for it.
    """

    queue: Callable[[Change | Maker], None]
    wake: Callable[[], None]
    fail: Callable[[BaseException], None]
    idle: Callable[[], bool]
    in_flight: Callable[[], int]
    pages_ended: Callable[[], int]
    in_background: Callable[[Coroutine[Any, Any, None]], None]
    worker: Executor
    fetch: Callable[[AskedRequest, Hashable], Awaitable[Fetch]]
    let_go: Callable[[Hashable], None]


class Exchange:
    """Applies the limits of a crawl and detects its end. A process without peers uses this class, not a subclass."""

    address: Address = ("", 0)  # the address at which peers reach this process
    before: Counter[str]  # the counters at the start of the run, even if the process was restarted since

    def __init__(self, stages: Stages, member: Member, loops: Loops) -> None:
        context = self._context = stages.context
        self._clock, self._loops = context.clock, loops
        self._frontier, self._refresh = stages.frontier, stages.refresh
        self._outbox, self._inbox, self._counters = stages.outbox, stages.inbox, stages.point.counters
        self.before = Counter(_run_before(stages.store, stages.counters_before, member.run))
        self._pages_before = pages_of(stages.counters_before) - pages_of(self.before)
        self._work, self._work_at = 0, float("-inf")
        self._level = LevelReport(0.0, 0.0, False)
        crawl = context.config.crawl
        self.coordination = Coordination(
            context.name,
            context.topology.names,
            bytes.fromhex(context.boot_id),
            self._progress,
            rate=crawl.rate,
            pages_max=crawl.max_pages,
            bytes_max=crawl.max_bytes,
            silence_max=context.config.splitter.silence_max,
            addresses_max=context.config.frontier.addresses_max,
        )
        self.coordination.ended = member.ended

    # -- connections: none without peers ------------------------------------------

    async def start(self) -> Address:
        """Listen, and connect to the peers. Return the address on which this process listens.

        Raises:
            ConfigError: the process cannot listen on the address, or the address requires a secret and none is set.
        """
        return self.address

    async def close(self) -> None:
        """Close all connections. Messages that are not confirmed will be sent again later.

        Confirmations that arrived after the last commit are queued.
        """

    def set_address(self, name: str, address: Address) -> None:
        """Record that a peer has moved to `address`."""

    async def fetch_at_owner(self, asked: AskedRequest) -> Fetch | None:
        """Let the owner of another host make a request; return None if this process must make it itself."""
        return None

    def stop_listening(self) -> None:
        """Accept no more messages from peers. Later messages are not confirmed, so the peers keep them."""

    def committed(self) -> None:
        """After a group became durable, confirm and send the messages that waited for this."""

    async def undelivered(self, peers: Sequence[str]) -> list[str]:
        """Wait a moment until peers have stored all links that wait for them now. Return the peers that have not."""
        return []

    async def part(self, stopped_by: str) -> None:
        """Before this process leaves, give its peers time to learn that the crawl has ended or reached a limit."""

    def status(self) -> dict[str, PeerStatus]:
        """Return the connection state of each peer, with the number of links that wait to be sent to the peer."""
        return {}

    # -- the crawl as a whole -------------------------------------------------------

    def room(self, places: int) -> int:
        """Return the number of fetches that may start now if there are `places` free slots."""
        left = self.coordination.pages_left(self._clock.now())
        return places if left is None else min(places, left)

    def advance(self) -> None:
        """Check whether the crawl has ended. Call this when this process is idle."""
        self.coordination.advance()

    def set_rate(self, rate: float) -> None:
        """Change the rate of the whole crawl. Peers agree on their shares of the rate through their heartbeats."""
        self.coordination.rate = rate
        if len(self._context.topology.names) == 1:
            self._frontier.set_rate(rate)
            if self._refresh is not None:
                self._refresh.portion.set_rate(rate)

    def learn_end(self) -> None:
        """Record that some process has found that no process has work left."""
        self.coordination.ended = True
        self._loops.wake()

    @property
    def ended(self) -> bool:
        """True if no process has work left."""
        return self.coordination.ended

    @property
    def limit_reached(self) -> str:
        """The name of the limit that all processes together have reached; "" if none is reached."""
        return self.coordination.limit_reached

    def _progress(self) -> Progress:
        return Progress(
            idle=self._loops.idle() and not self._inbox.waiting,
            outbox=self._outbox.links,
            appended=self._outbox.appended,
            applied=self._inbox.applied,
            pages=self._pages_before + self._loops.pages_ended(),
            bytes=self._counters["bytes.wire"] - self.before["bytes.wire"],
            in_flight=self._loops.in_flight(),
            work=self._hosts_with_work(),
            level=self._level.level,
            weight=self._level.weight,
            busy=self._level.busy,
        )

    def _hosts_with_work(self) -> int:
        now = self._clock.now()
        if now - self._work_at > _WORK_AGE_MAX:
            self._work, self._work_at = self._frontier.views.hosts_with_work(), now
        return self._work


def pages_of(counters: Mapping[str, int]) -> int:
    """Return the number of finished fetches, computed from the counters of their outcomes."""
    return sum(
        counters.get(f"pages.{outcome}", 0) + counters.get(f"refresh.{outcome}", 0) for outcome in Outcome
    )


def _run_before(store: KeyValue, counters_before: Mapping[str, int], run: str) -> dict[str, int]:
    """Return the counters at the start of `run`. They are stored, so the limits of the run hold across restarts."""
    if not run:
        return dict(counters_before)
    value = store.get(RUN)
    if value is not None:
        kept, counters = msgspec.msgpack.decode(unseal(RUN, value), type=tuple[str, dict[str, int]])
        if kept == run:
            return counters
    counters = dict(counters_before)
    batch = store.batch(sync=True)
    batch.put(RUN, seal(msgspec.msgpack.encode((run, counters))))
    store.write(batch)
    return counters
