"""Constructs the objects that decide about links, signals and results in one process, from its configuration."""

from collections.abc import Callable, Sequence
from functools import partial

from crawler.clock import Clock
from crawler.config import OrderConfig
from crawler.config.credentials import has_credentials
from crawler.consent.site_book import SiteBook
from crawler.consent.stamping import Stamping
from crawler.frontier.frontier import Frontier
from crawler.frontier.later_tries import LaterTries
from crawler.frontier.refresh.validators import Validators
from crawler.orders.order import Ranking
from crawler.orders.order_thread import OrderThread, TimeLeft
from crawler.pages.captures import capture_key
from crawler.process.opening.process_parts import ProcessParts
from crawler.process.results.admission import Admission
from crawler.process.results.credits import Credits
from crawler.process.results.due_tries import DueTries
from crawler.process.results.earlier_copies import EarlierCopies
from crawler.process.results.link_policy import LinkPolicy
from crawler.process.results.link_scoring import LinkScoring, named
from crawler.process.results.result_processor import ResultProcessor
from crawler.process.results.retired import is_retired
from crawler.process.results.sent_seeds import SentSeeds
from crawler.process.results.signal_intake import SignalIntake
from crawler.process.results.site_knowledge import SiteKnowledge
from crawler.process.results.trap_watch import TrapWatch
from crawler.records import Link, LinkFlag
from crawler.signing.message_signatures import key_id_of
from crawler.splitter.inbox import Received
from crawler.storage.commit import Change, Making
from crawler.urls.clock_cache import ClockCache

_CREDIT = LinkFlag.CREDIT


class Decisions:
    """The objects of one process that decide: `knowledge`, `admission`, `signal_intake`, `due_tries` and `results`."""

    def __init__(self, parts: ProcessParts) -> None:
        context, frontier, refresh = parts.context, parts.frontier, parts.refresh
        config, topology = context.config, context.topology
        ranking = named(config.order)
        self.reads_anchors = ranking is not None and ranking.reads_anchors
        ordering = None
        self._order_thread: OrderThread | None = None
        if ranking is not None:
            improve = _improving(frontier, context.clock)
            self._order_thread = _order_thread(ranking, config.order, context.clock)
            ordering = LinkScoring(ranking, config.order, config.cache.bits, improve, self._order_thread)
        self.knowledge = SiteKnowledge(
            parts.intake.filter,
            parts.equivalences,
            parts.fingerprinter,
            topology.peers,
            credentials=has_credentials(config.identity.headers),
        )
        bits = config.cache.bits
        # without peers, this cache is never used, so it is as small as possible
        sent = ClockCache(bits if topology.peers else 1)
        self.admission = Admission(
            parts.intake,
            self.knowledge,
            parts.due,
            topology,
            seen=ClockCache(bits),
            sent=sent,
            sent_seeds=SentSeeds(parts.store),
            trace=parts.trace,
            ordering=ordering,
        )
        self.signal_intake = SignalIntake(
            self.admission,
            parts.intake,
            topology.partition,
            context.name,
            record=parts.pages.record,
            changes=parts.changes,
            refresh=refresh,
            is_retired=partial(is_retired, parts.due, frontier),
            requisites=config.crawl.requisites,
            now=context.clock.now,
        )
        policy = LinkPolicy(
            config, parts.robots, self.admission, self.knowledge, ordered=ordering is not None
        )
        self._clock = context.clock
        self._credits = Credits(refresh, topology.partition, context.name)
        validators = _validators(parts)
        requeue = partial(parts.commits.requeue, attempt=config.frontier.tries - 1)
        self.due_tries = DueTries(LaterTries.of(config.refresh), requeue)
        self.earlier = EarlierCopies(parts.pages, validators, refresh)
        self.results = ResultProcessor(
            context.clock,
            frontier,
            parts.pages,
            parts.robots,
            policy,
            refresh=refresh,
            hear=self.signal_intake.hear,
            credit=self._credits.give,
            retried=self.due_tries.note,
            verdicts=parts.verdicts,
            validators=validators,
            token=config.identity.token,
            stamping=_stamping(parts),
            trap_watch=TrapWatch(parts.store, parts.pages.record, config.traps.chain_warned),
        )

    def stop_with(self, time_left: TimeLeft) -> None:
        """Let the order of a package stop with the run, of which `time_left` (`RunEnd.time_left`) knows the end."""
        if self._order_thread is not None:
            self._order_thread.time_left = time_left

    def close(self) -> None:
        """End the thread of the order."""
        if self._order_thread is not None:
            self._order_thread.close()

    def received(self, received: Received) -> Making:
        """Build the `Change` for an entry that another process sent: links, signals, or credits for hubs."""
        credits = [link for link in received.links if link.flags & _CREDIT]
        rest = [link for link in received.links if not link.flags & _CREDIT] if credits else received.links
        change = yield from self.signal_intake.received(received, rest)
        self._credits.received(change, credits, self._clock.now())
        return change


def _improving(frontier: Frontier, clock: Clock) -> Callable[[Sequence[Link], Change], None]:
    """Return a function that moves waiting URLs to better classes, as part of the `Change` of the better links."""

    def improve(links: Sequence[Link], change: Change) -> None:
        if frontier.intake.improve(links, change, clock.now()):
            change.after.append(lambda: frontier.committed(change, clock.now()))

    return improve


def _order_thread(order: Ranking, config: OrderConfig, clock: Clock) -> OrderThread | None:
    """Return the thread that calls the order of a package; None for an order of the crawler, which is fast."""
    if order.own:
        return None
    return OrderThread(order, config.name, config.wait_max, config.wait_share, clock.now)


def _validators(parts: ProcessParts) -> Validators:
    """Return the object that knows which validators to trust. If there is a refresh schedule, use its object."""
    if parts.refresh is not None:
        return parts.refresh.validators
    validators = Validators(parts.context.config.refresh)
    validators.open(parts.store)
    return validators


def _stamping(parts: ProcessParts) -> Stamping:
    """Return the object that gives each page its consent receipt."""
    config, store, fingerprint = parts.context.config, parts.store, parts.fingerprinter.fingerprint

    def record_of(url: str, at: float) -> bytes:
        key = capture_key(fingerprint(url), at)
        return key if store.get(key) is not None else b""

    book = SiteBook(
        store,
        parts.robots,
        config.consent,
        token=config.identity.token,
        fingerprint=fingerprint,
        record_of=record_of,
        processes=config.crawl.processes,
    )
    return Stamping(store, book, config.identity.token, lambda fetch: key_id_of(fetch.request_head))
