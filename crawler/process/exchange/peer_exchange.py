"""The exchange of a process with its peers: connections, division of the rate, the end of the crawl.

received    each entry of the inbox becomes one change, in order, even while nothing is fetched
committed   acknowledgements and outbox entries are sent; a long queue is rewritten
heartbeat   the shares of the rates and the end of the crawl are updated
"""

import asyncio
import hashlib
import logging
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from crawler.config import UrlsConfig
from crawler.frontier.refresh.rate_balancing import LevelReport, portions
from crawler.process.exchange.agreed_end import AgreedEnd
from crawler.process.exchange.exchange import Exchange, Loops, Member
from crawler.process.fetching.single_requests import is_well_formed
from crawler.process.opening.stages import Stages
from crawler.records import Blame, Fetch, Outcome, PeerStatus
from crawler.splitter.asked_fetches import decode_fetch, encode_fetch, is_too_long
from crawler.splitter.compaction import Compaction
from crawler.splitter.coordination import Progress
from crawler.splitter.peers import Address, Peers
from crawler.splitter.session import Common, Identity, Listener
from crawler.splitter.wire import Ask, AskedRequest, ProtocolError
from crawler.storage.commit import Change
from crawler.storage.keys import INCARNATION
from crawler.storage.kv import KeyValue, seal, unseal
from crawler.urls.canonical import SESSION_IDS_VERSION, canonical, hostname
from crawler.urls.fingerprint import Fingerprinter
from crawler.urls.suffixes import suffix_list_version

if TYPE_CHECKING:
    from crawler.frontier.refresh.refreshing import Refresh

log = logging.getLogger("crawler")

# Number of seconds that a process waits for the owner of a host. The owner itself waits at most 120 s until its
# host may be requested (`single_requests.HOST_WAIT_MAX`), and a request takes at most `fetch.total_timeout`.
OWNER_WAIT_MAX = 300.0
# Number of seconds that a command waits until peers have stored its links, and the interval between two checks.
# Peers that are connected confirm links after one commit.
DELIVERY_WAIT, DELIVERY_CHECK = 5.0, 0.01


class PeerExchange(Exchange):
    """An `Exchange` with peers: adds connections and shares of the rate."""

    def __init__(self, stages: Stages, member: Member, loops: Loops) -> None:
        super().__init__(stages, member, loops)
        context, self._due, self._received = stages.context, stages.due, stages.decisions.received
        self._config = context.config.splitter
        self._urgent = False
        self._taking = True
        self._has_share = True
        self._end = AgreedEnd(stages, self.coordination, loops, member)
        self._beating: asyncio.Task[None] | None = None
        boot = self.coordination.boot
        common = Common(
            Identity(
                member.crawl,
                context.name,
                boot,
                SESSION_IDS_VERSION,
                _check(context.config.urls, stages.fingerprinter),
                _next_incarnation(stages.store, self._clock.now()),
            ),
            context.topology.partition,
            self._outbox,
            self._inbox,
            self.coordination,
            self._config,
            context.environment.rng,
            member.secret,
            shares_directory=member.supervised,
            asked=self._asked,
        )
        self._owner = context.topology.partition.owner
        self._host_key = stages.fingerprinter.host_key
        self._common = common
        self.peers = Peers(
            common,
            member.addresses,
            self._clock,
            on_news=self._take,
            on_failure=loops.fail,
            on_older=self._overtake,
            listen=context.environment.listen,
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
        # The confirmations that came after the last commit are stored, so that a crawl at rest does not report
        # that these links wait.
        self._loops.queue(Change())

    def set_address(self, name: str, address: Address) -> None:
        self.peers.set_address(name, address)

    def status(self) -> dict[str, PeerStatus]:
        return self.peers.status()

    def stop_listening(self) -> None:
        self._taking = False

    async def undelivered(self, peers: Sequence[str]) -> list[str]:
        spools = [self._outbox.spools[peer] for peer in peers]
        waiting = [(spool, spool.appended) for spool in spools]
        give_up = self._clock.now() + DELIVERY_WAIT
        while waiting and self._clock.now() < give_up:
            waiting = [(spool, mark) for spool, mark in waiting if spool.appended - spool.links < mark]
            if waiting:
                await asyncio.sleep(DELIVERY_CHECK)
        return [spool.peer for spool, _ in waiting]

    async def part(self, stopped_by: str) -> None:
        await self._end.part(stopped_by)

    def _progress(self) -> Progress:
        own = super()._progress()
        self._end.complete(own)
        return own

    # -- messages from peers -------------------------------------------------------

    def _take(self) -> None:
        """Queue the accepted entries in order. Commit at once if a peer waits until an epoch is durable."""
        if not self._taking:
            return
        # while the DUE is full, entries wait in the inbox; when the inbox is full, they wait at the sender
        if not self._due.full:
            for received in self._inbox.take():
                self._loops.queue(partial(self._received, received))
        if self._outbox.urgent and not self._urgent:
            self._urgent = True
            change = Change(sync=True)
            change.after.append(self._epoch_committed)
            self._loops.queue(change)

    def _epoch_committed(self) -> None:
        self._urgent = False

    def _overtake(self, newest: int) -> None:
        """Give this start of the process a higher number than `newest`, the highest number that a peer knows."""
        if self._common.identity.incarnation > newest:
            return
        log.warning(
            "a peer knows a start of this process with a higher number: the clock is behind, or was ahead at that "
            "start; this start gets a higher number and continues"
        )
        change = Change(sync=True)
        change.put(INCARNATION, _packed_incarnation(newest + 1))
        change.after.append(partial(self._continue_as, newest + 1))
        self._loops.queue(change)

    def _continue_as(self, incarnation: int) -> None:
        self._common.identity = replace(self._common.identity, incarnation=incarnation)

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
        """Rewrite the outbox queue of a peer that has been unreachable for long."""
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._loops.worker, plan.run)
        if self._outbox.adopt(plan):
            written = loop.create_future()
            change = Change(sync=True)
            change.after.append(lambda: written.set_result(None))
            self._loops.queue(change)
            await written
        await loop.run_in_executor(self._loops.worker, plan.sweep)

    # -- requests for peers ----------------------------------------------------------

    async def fetch_at_owner(self, asked: AskedRequest) -> Fetch | None:
        owner, began = self._owner(self._host_key(hostname(asked.url))), self._clock.now()
        error = f"process {owner}, which owns {hostname(asked.url)}, gave no answer"
        if is_too_long(asked, self._config.frame_bytes_max // 2):
            answer: bytes | None = b""
            error = f"the request is too long for process {owner}, which owns {hostname(asked.url)}"
        else:
            answer = await self.peers.questions.ask(owner, asked, OWNER_WAIT_MAX)
        if answer is None:
            return None
        with suppress(ProtocolError):
            if answer and (fetch := decode_fetch(answer)).url == asked.url:
                return fetch
        return Fetch(asked.url, Outcome.CONNECT_ERROR, Blame.URL, began=began, error=error)

    def _asked(self, session: Listener, ask: Ask) -> None:
        """Make a request for a peer, unless it is not a request to an own host."""
        asked, own = ask.request, False
        if canonical(asked.url) == asked.url and is_well_formed(asked):
            own = self._owner(self._host_key(hostname(asked.url))) == self._common.identity.name
        if own and self._taking:
            self._loops.in_background(self._fetch_for(session, ask))
        else:
            self.peers.questions.answer(session, ask.number, b"", _do_nothing)

    async def _fetch_for(self, session: Listener, ask: Ask) -> None:
        """Make a request for a peer. Its answer counts as memory in use until it has been sent."""
        answer, charged = b"", object()
        try:
            answer = encode_fetch(await self._loops.fetch(ask.request, charged))
        finally:
            self.peers.questions.answer(session, ask.number, answer, partial(self._loops.let_go, charged))

    # -- each beat -----------------------------------------------------------------

    async def _beat(self) -> None:
        """Once per heartbeat, update this process's shares of the rates, and check whether the crawl has ended."""
        while True:
            self._share_rate()
            self.coordination.addresses.tell(self._frontier.addresses.take_untold())
            self._frontier.addresses.learn(self.coordination.addresses.take_heard())
            self.coordination.advance()
            if self._end.is_known(self.peers):
                self.learn_end()
            self._end.warn_of_missing()
            self._loops.wake()
            await asyncio.sleep(self._config.heartbeat)

    def _share_rate(self) -> None:
        now, rate = self._clock.now(), self.coordination.rate
        refresh, frontier = self._refresh, self._frontier
        if refresh is None:
            share = self.coordination.share(now)
        else:
            self._tell_level(refresh, now)
            share = self._both_shares(refresh, now)
        frontier.set_rate(rate * share)
        self._has_share = share > 0.0 or not rate

    def _tell_level(self, refresh: "Refresh", now: float) -> None:
        """Pass the levels of the peers to `refresh`.

        `refresh` returns a level, which the next heartbeats will contain.
        """
        said = self.coordination.rates_stated()
        reports = {name: LevelReport(each.level, each.weight, each.busy) for name, each in said.items()}
        waited = self._frontier.views.why_slow(now)["rate"]
        self._level = refresh.portion.exchange_levels(reports, waited, now)

    def _both_shares(self, refresh: "Refresh", now: float) -> float:
        """Return this process's share of the rate. Tell `refresh` which parts are for new and for known pages."""
        said = self.coordination.rates_stated().values()
        discovery, known = portions(
            self.coordination.share(now),
            self.coordination.refresh_share(),
            refresh.portion.share.of_crawl,
            work=any(each.work for each in said),
            pages=any(each.weight for each in said),
        )
        refresh.portion.divide(discovery, known, self.coordination.rate)
        return discovery + known

    def room(self, places: int) -> int:
        if self._outbox.full or not self._has_share or self.peers.is_outcast:
            return 0
        return super().room(places)


def _do_nothing() -> None:
    """No memory is charged to an empty answer."""


def make_exchange(stages: Stages, member: Member, loops: Loops) -> Exchange:
    """Return the exchange of a process. It is a `PeerExchange` if the process has peers."""
    return (PeerExchange if stages.topology.peers else Exchange)(stages, member, loops)


def _check(urls: UrlsConfig, fingerprinter: Fingerprinter) -> bytes:
    """Return 16 bytes by which peers check that they compute the same fingerprints and buckets of URLs."""
    parts = (fingerprinter.check_value, urls.partition, urls.strip_session_ids, suffix_list_version())
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).digest()


def _next_incarnation(store: KeyValue, now: float) -> int:
    """Return the number of this start. It exceeds all earlier numbers in this folder, and is at least the time in ms."""
    value = store.get(INCARNATION)
    before = 0 if value is None else int.from_bytes(unseal(INCARNATION, value), "big")
    number = max(before + 1, int(now * 1000))
    batch = store.batch(sync=True)
    batch.put(INCARNATION, _packed_incarnation(number))
    store.write(batch)
    return number


def _packed_incarnation(number: int) -> bytes:
    return seal(number.to_bytes(8, "big"))
