"""Constructs the stored stages of a process from its configuration, with a separate function for each stage."""

import logging
import os
import random
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from crawler.config import Overrides
from crawler.consent.stamping import load_block
from crawler.due.eliminator import Eliminator
from crawler.errors import DamageError
from crawler.fetcher.fetch_request import user_agent
from crawler.frontier.discovery.entries import decode
from crawler.frontier.frontier import Frontier
from crawler.frontier.hosts.gap_journal import GapJournal, JournalMemory, journal_bytes
from crawler.frontier.permission import Permission
from crawler.frontier.refresh.importance import read_values
from crawler.frontier.refresh.stored_view import unopened
from crawler.pages.page_cache import PageCache
from crawler.pages.warc import SegmentFacts
from crawler.pages.withdrawals import Withdrawals
from crawler.process.opening.change_comparison import ChangeComparison
from crawler.process.opening.process_context import ProcessContext
from crawler.records import Link, Outcome
from crawler.robots.cache import RobotsCache
from crawler.splitter.inbox import Inbox
from crawler.splitter.outbox import Outbox
from crawler.storage.faults import reach
from crawler.storage.keys import PARKED, SCOPE_STATE, TODO
from crawler.storage.kv import KeyValue, scan_prefix
from crawler.storage.parts import PARTS, PartFolder, PartHead
from crawler.storage.reshard import load_json
from crawler.urlfilter.link_filter import LinkFilter
from crawler.urlfilter.url_filter import Scope, UrlFilter
from crawler.urls.canonical import hostname
from crawler.urls.file_kinds import Kinds
from crawler.urls.fingerprint import Fingerprinter
from crawler.urls.suffixes import registrable_domain
from crawler.version import __version__

if TYPE_CHECKING:
    from crawler.frontier.refresh.kept_signals import KeptSignals
    from crawler.frontier.refresh.refreshing import Refresh
    from crawler.pages.cleaning import Cleaner
    from crawler.process.fetching.file_bodies import FileBodies
    from crawler.urls.trace import TraceWriter

log = logging.getLogger("crawler")

GAPS = "gaps"  # name of the file with the gap journal


def open_store(context: ProcessContext) -> tuple[KeyValue, str]:
    """Open the store. Return the store, and a description of the data that had to be cut off to open it ("" if none)."""
    store, mended = context.environment.open_store(
        context.opened / "store", context.config.store, copy=context.copy is not None
    )
    if mended and context.copy is None:
        log.error("store: %s", mended)
    return store, mended


def make_robots(context: ProcessContext, store: KeyValue) -> RobotsCache:
    config = context.config
    # The cache has an entry for each host in the front, because the robots.txt of these hosts is read every
    # few seconds.
    entries_max = config.frontier.front_factor * config.crawl.concurrency
    return RobotsCache(
        store,
        config.robots,
        config.identity.token,
        entries_max,
        crawl_delay_max=config.politeness.crawl_delay_max,
    )


def make_page_cache(context: ProcessContext, store: KeyValue, fingerprinter: Fingerprinter) -> PageCache:
    config = context.config
    comparing = ChangeComparison(config.pages, Overrides(config.override))
    return PageCache(
        context.directory,
        store,
        config.pages,
        about=SegmentFacts(
            process=context.name,
            software=f"crawler/{__version__}",
            operator=config.identity.contact,
            robots_policy=config.robots.policy,
            hostname=os.uname().nodename,
            agent=user_agent(config.identity),
        ),
        comparison=comparing.comparison,
        fingerprint=fingerprinter.fingerprint,
        keeps=Kinds(config.filter.accept, config.filter.reject).keeps,
        random=context.environment.random_bytes,
        sync=context.outlasts_power_cut,
        reading=context.copy is not None,
        withdrawals=Withdrawals(context.directory.parent),
        receipt_of=_receipt_of,
    )


def _receipt_of(store: KeyValue, fingerprint: int, digest: bytes) -> bytes:
    """Return a stored consent receipt as JSON; b"" if there is none, or the receipt cannot be read."""
    try:
        return load_block(store, fingerprint, digest)
    except DamageError:
        return b""


def make_cleaner(context: ProcessContext, pages: PageCache) -> "Cleaner":
    """Return the cleaner that drops old copies, as configured."""
    # imported here, because only a running crawl needs it
    from crawler.pages.cleaning import SLACK_BYTES, Cleaner

    config = context.config.pages
    slack = min(SLACK_BYTES, config.segment_bytes)
    return Cleaner(pages, config.keep_copies, slack, context.clock.now)


def make_file_bodies(context: ProcessContext, pages: PageCache) -> "FileBodies":
    """Open the folder of partly received files. Delete the parts of those files that are stored as a whole by now."""
    # imported here, because only a running crawl needs it
    from crawler.process.fetching.file_bodies import FileBodies

    parts = PartFolder(context.directory / PARTS)

    def is_needed(identity: str, head: PartHead) -> bool:
        record = pages.record(int(identity, 16))
        return record is None or record.outcome is not Outcome.FETCHED or record.fetched_at < head.began

    parts.sweep(is_needed)
    return FileBodies(context.config, parts)


def make_eliminator(context: ProcessContext, store: KeyValue, fingerprinter: Fingerprinter) -> Eliminator:
    config = context.config
    return Eliminator(
        context.opened,
        store,
        config.due,
        check_value=fingerprinter.check_value,
        method=config.urls.fingerprint,
        fault=reach,
    )


def queued_fingerprints(store: KeyValue) -> Iterable[int]:
    """Yield the fingerprints of all to-do and parked URLs, in no particular order."""
    for prefix in (TODO, PARKED):
        for key, value in scan_prefix(store, prefix):
            yield decode(key, value).fingerprint


def make_refresh(
    context: ProcessContext, pages: PageCache, robots: RobotsCache, fingerprinter: Fingerprinter
) -> "Refresh":
    """Return the schedule that decides when known pages are refetched."""
    values = read_values(context.config.refresh.importance_file, fingerprinter.fingerprint)
    return unopened(
        context.config,
        fingerprinter,
        pages.record,
        values,
        processes=len(context.topology.names),
        name=context.name,
        is_disallowed=_disallowing(context, robots),
    )


def make_kept_signals(context: ProcessContext, store: KeyValue, robots: RobotsCache) -> "KeptSignals":
    """Return the object that stores change signals in a run without refreshes."""
    from crawler.frontier.refresh.kept_signals import KeptSignals

    return KeptSignals(store, _disallowing(context, robots))


def _disallowing(context: ProcessContext, robots: RobotsCache) -> Callable[[str], bool]:
    """Return a function that returns whether the robots.txt that was fetched last forbids a URL."""
    permission = Permission(robots, context.config)
    return lambda url: bool(permission.disallowing_line(hostname(url), url))


def make_journal(context: ProcessContext, *, brief: bool) -> GapJournal:
    """Return the gap journal. If `brief`, no requests will be made, so no file is created."""
    path = context.directory / GAPS
    memory: JournalMemory = bytearray()
    if context.copy is None and (path.exists() or not brief):
        memory = context.environment.mapped_file(path, journal_bytes(context.config.crawl.concurrency))
    return GapJournal(memory)


def make_frontier(
    context: ProcessContext,
    store: KeyValue,
    *,
    robots: RobotsCache,
    fingerprinter: Fingerprinter,
    refresh: "Refresh | None",
    priority: Callable[[Link], int] | None,
    withdrawn: Callable[[str], bool],
    journal: GapJournal,
) -> Frontier:
    return Frontier(
        store,
        context.config,
        robots=robots,
        fingerprinter=fingerprinter,
        registrable_domain=registrable_domain,
        concurrency=context.config.crawl.concurrency,
        rng=random.Random(context.environment.rng.getrandbits(64)),
        processes=len(context.topology.names),
        refresh=refresh,
        priority=priority,
        withdrawn=withdrawn,
        journal=journal,
    )


def make_link_filter(
    context: ProcessContext,
    store: KeyValue,
    fingerprinter: Fingerprinter,
    hook: Callable[[str], bool] | None,
    withdrawn: Callable[[str], bool],
) -> LinkFilter:
    """Return the filter that decides which links are followed. `hook` is a URL filter that the user supplies."""
    config = context.config
    url_filter = UrlFilter(
        _scope(context, store),
        config.filter,
        config.traps,
        allow_ports=config.network.allow_ports,
        requisites=config.crawl.requisites,
        hook=hook,
        withdrawn=withdrawn,
    )
    return LinkFilter(url_filter, fingerprinter, length_max=config.urls.length_max)


def _scope(context: ProcessContext, store: KeyValue) -> Scope:
    """Return the scope, including what seeds and their redirects have added so far."""
    config, state = context.config, load_json(store, SCOPE_STATE)
    overrides = Overrides([own for own in config.override if own.scope is not None])
    own = (lambda url: overrides.for_url(url, hostname(url)).scope) if overrides else None
    if state is None:
        return Scope(config.crawl.scope, kind_of=own, surts=config.crawl.surts)
    return Scope.from_state(config.crawl.scope, state, kind_of=own, surts=config.crawl.surts)


def make_splitter(context: ProcessContext, store: KeyValue, *, whole: bool) -> tuple[Outbox, Inbox]:
    """Open the queues to and from other processes. If `whole` is false, the last entries of the outbox may be lost."""
    topology, config = context.topology, context.config.splitter
    outbox = Outbox(store, topology.peers, config, context.environment.rng, clean=whole)
    return outbox, Inbox(store, topology.partition, topology.me, topology.peers, config)


def make_trace(context: ProcessContext) -> "TraceWriter | None":
    """Open a new trace of links that enter the host splitter, in the folder of the process; None if not configured."""
    if not context.config.crawl.trace:
        return None
    from crawler.extract.link_attributes import FOLLOWED  # imported here, because few crawls write a trace
    from crawler.urls.trace import TraceWriter

    details = {"source": "crawl", "tags": list(FOLLOWED), "process": context.name}
    return TraceWriter.next_in(context.directory / "trace", details)
