"""The crawl as a whole, as one of its processes sees it: limits, the end, and the exchange with peers.

    Exchange        a crawl of one process: the limits and the end, by the same rules as among many
    PeerExchange    with peers, also:
        received    inbox -> one change an entry, in order; also while nothing is fetched
        committed   acknowledgements and outbox leave; a long queue is rewritten
        each beat   the share of the rate, the end of the crawl

The process asks `room` before it begins a fetch, asks `limit_reached` and `ended`
whether the crawl is over, calls `advance` when it is idle and `committed` after
every group. With peers, a process that is done stays until all others know, for
`crawl.patience` at most: they cannot tell silence from death, and one that was cut off
meanwhile would wait for ever for those that have left.
"""

import asyncio
import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from crawler.frontier.refresh.levels import LevelReport, portions
from crawler.frontier.refresh.refreshing import Refresh
from crawler.process.known_end import Awaited, Extent, KnownEnd
from crawler.process.stages import Stages
from crawler.records import Outcome, PeerStatus
from crawler.splitter.compaction import Compaction
from crawler.splitter.crawlwide import CrawlWide, Progress
from crawler.splitter.peers import Address, Peers
from crawler.splitter.session import Common, Identity
from crawler.storage.commit import Change, Maker
from crawler.storage.keys import INCARNATION, RUN
from crawler.storage.kv import seal, unseal
from crawler.urls.canonical import SESSION_IDS_VERSION
from crawler.urls.suffixes import suffix_list_version

log = logging.getLogger("crawler")

LAST_WORDS = 2  # heartbeats that a process stays after the end or a limit, so that the others hear of it
_WORK_AGE_MAX = 0.5  # seconds for which the number of hosts with work is remembered


class Member(msgspec.Struct, frozen=True):
    """The place of the process `name` in a crawl, of one process or of several.

    `addresses` are those of the peers; `run` names the run whose limits count
    over restarts of this process ("" = each start is a run of its own);
    `ended` says that the crawl is known to be over already. `supervised`: a
    supervisor keeps configuration, seeds and report of the whole.
    """

    name: str
    crawl: str = ""
    addresses: dict[str, Address] = {}
    secret: bytes = b""
    run: str = ""
    ended: bool = False
    supervised: bool = False


class Loops(msgspec.Struct, frozen=True):
    """What the exchange needs of the loops of its process."""

    queue: Callable[[Change | Maker], None]
    wake: Callable[[], None]
    fail: Callable[[BaseException], None]
    idle: Callable[[], bool]
    in_flight: Callable[[], int]
    pages_ended: Callable[[], int]
    in_background: Callable[[Coroutine[Any, Any, None]], None]
    worker: Executor


class Exchange:
    """Limits and end of a crawl; that of a process without peers as it stands."""

    address: Address = ("", 0)  # where peers reach this process

    def __init__(self, stages: Stages, member: Member, loops: Loops) -> None:
        self._stages = stages
        self._loops = loops
        self._outbox, self._inbox, self._clock = stages.outbox, stages.inbox, stages.clock
        self._before = Counter(_run_before(stages, member.run))
        self._pages_before = pages_of(stages.counters_before) - pages_of(self._before)
        self._work, self._work_at = 0, float("-inf")
        self._level = LevelReport(0.0, 0.0, False)
        crawl = stages.config.crawl
        self.crawlwide = CrawlWide(
            stages.name,
            stages.topology.names,
            bytes.fromhex(stages.lock.boot_id),
            self._progress,
            rate=crawl.rate,
            pages_max=crawl.max_pages,
            bytes_max=crawl.max_bytes,
            silence_max=stages.config.splitter.silence_max,
        )
        self.crawlwide.ended = member.ended

    # -- life: without peers there is nobody to reach ----------------------------

    async def start(self) -> Address:
        """Listen, dial the peers; return the address in use.

        Raises:
            ConfigError: the address cannot be listened on, or it needs a secret.
        """
        return self.address

    async def close(self) -> None:
        """End all connections; what was not confirmed will be sent again."""

    def set_address(self, name: str, address: Address) -> None:
        """A peer listens at `address` from now on."""

    def close_doors(self) -> None:
        """Take nothing more: what peers still send stays theirs, unconfirmed."""

    def committed(self) -> None:
        """A group is durable: confirm and send what rests on it, if anything does."""

    async def part(self, stopped_by: str) -> None:
        """Stay as long as others rest on this process: until all know of the end, or heard of a limit."""

    def status(self) -> dict[str, PeerStatus]:
        """How the peers are reached, and what waits for them."""
        return {}

    # -- the crawl as a whole -------------------------------------------------------

    def room(self, places: int) -> int:
        """How many of `places` may begin a fetch now."""
        left = self.crawlwide.pages_left(self._clock.now())
        return places if left is None else min(places, left)

    def advance(self) -> None:
        """Look whether the crawl has ended; to be called when this process is idle."""
        self.crawlwide.advance()

    def set_rate(self, rate: float) -> None:
        """The rate of the whole crawl from now on; with peers, a heartbeat shares it out."""
        self.crawlwide.rate = rate
        if len(self._stages.topology.names) == 1:
            self._stages.frontier.set_rate(rate)
            if self._stages.refresh is not None:
                self._stages.refresh.set_rate(rate)

    def learn_end(self) -> None:
        """Somebody has found out that nothing is left to do anywhere."""
        self.crawlwide.ended = True
        self._loops.wake()

    @property
    def ended(self) -> bool:
        """Whether nothing is left to do anywhere."""
        return self.crawlwide.ended

    @property
    def limit_reached(self) -> str:
        """The limit that all processes together have reached, "" if none."""
        return self.crawlwide.limit_reached

    def _progress(self) -> Progress:
        counters = self._stages.point.counters
        return Progress(
            idle=self._loops.idle() and not self._inbox.waiting,
            outbox=self._outbox.links,
            appended=self._outbox.appended,
            applied=self._inbox.applied,
            pages=self._pages_before + self._loops.pages_ended(),
            bytes=counters["bytes.wire"] - self._before["bytes.wire"],
            in_flight=self._loops.in_flight(),
            work=self._hosts_with_work(),
            level=self._level.level,
            weight=self._level.weight,
            busy=self._level.busy,
        )

    def _hosts_with_work(self) -> int:
        now = self._clock.now()
        if now - self._work_at > _WORK_AGE_MAX:
            self._work, self._work_at = self._stages.frontier.hosts_with_work(), now
        return self._work


class PeerExchange(Exchange):
    """The same, with peers: connections, shares of the rate."""

    def __init__(self, stages: Stages, member: Member, loops: Loops) -> None:
        super().__init__(stages, member, loops)
        self._config = stages.config.splitter
        self._supervised = member.supervised
        self._urgent = False
        self._taking = True
        self._has_share = True
        silence_max = self._config.silence_max
        self._known_end = KnownEnd(stages.store, self._extent, silence_max, self._clock.now())
        self._awaited = Awaited(silence_max)
        self.crawlwide.tells_end = member.supervised  # the supervisor knows it, too
        self._beating: asyncio.Task[None] | None = None
        boot = self.crawlwide.boot
        common = Common(
            Identity(
                member.crawl,
                stages.name,
                boot,
                SESSION_IDS_VERSION,
                _check(stages),
                _next_incarnation(stages),
            ),
            stages.topology.partition,
            self._outbox,
            self._inbox,
            self.crawlwide,
            self._config,
            stages.around.rng,
            member.secret,
        )
        self.peers = Peers(
            common,
            member.addresses,
            self._clock,
            on_news=self._take,
            on_failure=loops.fail,
            listen=stages.around.listen,
        )

    # -- life ------------------------------------------------------------------

    async def start(self) -> Address:
        self.address = await self.peers.start()
        self._beating = asyncio.create_task(self._beat())
        self._take()
        return self.address

    async def close(self) -> None:
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)
        self.peers.flush(self._outbox.spools)
        await self.peers.close()

    def set_address(self, name: str, address: Address) -> None:
        self.peers.set_address(name, address)

    def status(self) -> dict[str, PeerStatus]:
        return self.peers.status()

    def close_doors(self) -> None:
        self._taking = False

    async def part(self, stopped_by: str) -> None:
        heartbeat = self._config.heartbeat
        if self._supervised:
            return  # the supervisor tells all, and knows it when one has died
        if self.crawlwide.ended:
            patience = self._patience()
            await self._keep_end()
            patience += self._clock.now()
            while not self.crawlwide.all_know and self._clock.now() < patience:
                await asyncio.sleep(heartbeat / 4)
            await asyncio.sleep(LAST_WORDS * heartbeat)  # the last one has still to hear from us
        elif stopped_by.startswith("max_"):
            await asyncio.sleep(LAST_WORDS * heartbeat)

    def _patience(self) -> float:
        """Seconds for peers that do not know of the end. Who knew it in an earlier life finds others gone that did."""
        silence_max = self._config.silence_max
        return silence_max if self._known_end.stands else max(self._stages.config.crawl.patience, silence_max)

    async def _keep_end(self) -> None:
        """Let a start after a crash know of the end: those who were told of it are gone then."""
        kept = asyncio.Event()
        change = self._known_end.keep()
        change.after.append(kept.set)
        self._loops.queue(change)
        with suppress(TimeoutError):  # the write failed, which ends the process
            await asyncio.wait_for(kept.wait(), self._config.silence_max)
            self.crawlwide.tells_end = True

    def _extent(self) -> Extent:
        admission = self._stages.admission
        return Extent(
            self._outbox.appended,
            self._inbox.applied,
            pages_of(self._stages.point.counters),
            admission.seeds_sent,
            admission.seeds_digest,
        )

    def _progress(self) -> Progress:
        """While the end that was known stands, and some who had them are gone, links that wait are seeds given again."""
        own = super()._progress()
        if own.outbox and self._known_end.stands and not self.crawlwide.heard_all:
            own.outbox = 0
        return own

    def _recall_end(self) -> None:
        """Leave, too, if this process knew of the end when it was killed, and others have left that knew it."""
        said = self.crawlwide.said()
        if self._known_end.recalls(said, self.crawlwide.process_count, self._clock.now()):
            self.learn_end()

    def _tell_awaited(self) -> None:
        """Say for whom this process waits, if it has nothing left to do: it may wait for ever."""
        now = self._clock.now()
        missing = self._awaited.look(self.crawlwide.missing(now), self._loops.idle(), now)
        if missing and not self._supervised:
            log.warning(
                "nothing is left to do here, and the crawl cannot end without %s (not heard for %g s); "
                "all is kept if this process is stopped",
                ", ".join(missing),
                self._config.silence_max,
            )

    # -- what peers send ---------------------------------------------------------

    def _take(self) -> None:
        """Queue what was accepted, in order; let an epoch be committed that a peer waits for."""
        if not self._taking:
            return
        if not self._stages.due.full:  # else it waits in the inbox, and soon the sender does
            for received in self._inbox.take():
                self._loops.queue(partial(self._stages.received, received))
        if self._outbox.urgent and not self._urgent:
            self._urgent = True
            change = Change(sync=True)
            change.after.append(self._epoch_committed)
            self._loops.queue(change)
        if self._outbox.take_lost_peers():
            self._stages.admission.forget_sent()

    def _epoch_committed(self) -> None:
        self._urgent = False

    def committed(self) -> None:
        if self._inbox.waiting:
            self._take()
        news = self._outbox.news | self._inbox.news
        if not news:
            return
        self._outbox.news, self._inbox.news = {}, {}
        self.peers.flush(news)
        if (plan := self._outbox.compaction()) is not None:
            self._loops.in_background(self._compact(plan))

    async def _compact(self, plan: Compaction) -> None:
        """Rewrite the queue of a peer that has been away for long."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._loops.worker, plan.run)
        if self._outbox.adopt(plan):
            written = loop.create_future()
            change = Change(sync=True)
            change.after.append(lambda: written.set_result(None))
            self._loops.queue(change)
            await written
        await loop.run_in_executor(self._loops.worker, plan.sweep)

    # -- each beat -----------------------------------------------------------------

    async def _beat(self) -> None:
        """See to the share of the rate and to the end of the crawl, once a heartbeat."""
        while True:
            self._share_rate()
            self.crawlwide.advance()
            self._recall_end()
            self._tell_awaited()
            self._loops.wake()
            await asyncio.sleep(self._config.heartbeat)

    def _share_rate(self) -> None:
        now, rate = self._clock.now(), self.crawlwide.rate
        refresh, frontier = self._stages.refresh, self._stages.frontier
        if refresh is None:
            share = self.crawlwide.share(now)
        else:
            self._tell_level(refresh, now)
            share = self._both_shares(refresh, now)
        frontier.set_rate(rate * share)
        self._has_share = share > 0.0 or not rate

    def _tell_level(self, refresh: Refresh, now: float) -> None:
        """Learn from the levels of all what this process's known pages weigh; what the next heartbeats say."""
        said = self.crawlwide.said()
        reports = {name: LevelReport(each.level, each.weight, each.busy) for name, each in said.items()}
        waited = self._stages.frontier.why_slow(now)["rate"]
        self._level = refresh.level(reports, waited, now)

    def _both_shares(self, refresh: Refresh, now: float) -> float:
        """The part of the rate for new and known pages of this process; how it divides them is said to `refresh`."""
        said = self.crawlwide.said().values()
        discovery, known = portions(
            self.crawlwide.share(now),
            self.crawlwide.refresh_share(),
            refresh.share.refresh,
            work=any(each.work for each in said),
            pages=any(each.weight for each in said),
        )
        refresh.set_portion(discovery, known, self.crawlwide.rate)
        return discovery + known

    def room(self, places: int) -> int:
        if self._outbox.full or not self._has_share or self.peers.is_outcast:
            return 0
        return super().room(places)


def exchange_of(stages: Stages, member: Member, loops: Loops) -> Exchange:
    """The exchange of a process with its peers, if it has any."""
    return (PeerExchange if stages.topology.peers else Exchange)(stages, member, loops)


def pages_of(counters: Mapping[str, int]) -> int:
    """Fetches that have ended, by the counters of their outcomes."""
    return sum(
        counters.get(f"pages.{outcome}", 0) + counters.get(f"refresh.{outcome}", 0) for outcome in Outcome
    )


def _check(stages: Stages) -> bytes:
    """16 bytes that agree only if fingerprints and buckets of all URLs do."""
    urls = stages.config.urls
    parts = (stages.fingerprinter.check_value, urls.partition, urls.strip_session_ids, suffix_list_version())
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).digest()


def _next_incarnation(stages: Stages) -> int:
    """The number of this start: above those of all earlier ones in this folder, and by the clock for a new folder."""
    value = stages.store.get(INCARNATION)
    before = 0 if value is None else int.from_bytes(unseal(INCARNATION, value), "big")
    number = max(before + 1, int(stages.clock.now() * 1000))
    batch = stages.store.batch(sync=True)
    batch.put(INCARNATION, seal(number.to_bytes(8, "big")))
    stages.store.write(batch)
    return number


def _run_before(stages: Stages, run: str) -> dict[str, int]:
    """The counters at the start of `run`, kept so that its limits hold over restarts of this process."""
    if not run:
        return dict(stages.counters_before)
    value = stages.store.get(RUN)
    if value is not None:
        kept, counters = msgspec.msgpack.decode(unseal(RUN, value), type=tuple[str, dict[str, int]])
        if kept == run:
            return counters
    counters = dict(stages.counters_before)
    batch = stages.store.batch(sync=True)
    batch.put(RUN, seal(msgspec.msgpack.encode((run, counters))))
    stages.store.write(batch)
    return counters
