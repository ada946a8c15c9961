"""Admission of links: filters raw URLs, and passes each accepted link to the DUE of the process that owns it.

    raw URLs --filter--> accepted --partition--own------> CLOCK cache -> pending set -> change.links   (to the DUE)
                                       |
                                       +-----foreign----> CLOCK cache of sent links -> change.foreign (to the outbox)

    received ------------------------------------------> CLOCK cache -> pending set -> change.links

The CLOCK caches are lost when the process ends. A look-up of a URL in a cache also adds the URL to this
cache. So links are admitted in the order of the commit queue. If links were admitted in another order, a
cache could contain a URL whose link was never committed. Long lists are admitted in portions
(`process/committing/portions.py`); the generator pauses after each portion. `process/committing/counters.py`
explains how links are counted.
"""

from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from itertools import compress
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from crawler.crawl.topology import Topology
from crawler.due.eliminator import Eliminator
from crawler.orders.classes import with_class
from crawler.process.committing.portions import PORTION_LINKS, portions
from crawler.process.results.link_scoring import NO_PAGE, LinkScoring, LinkSource, Scores, classed
from crawler.process.results.sent_seeds import SentSeeds, keeper_of
from crawler.process.results.site_knowledge import SiteKnowledge
from crawler.records import Extracted, FetchTask, Link, LinkFlag
from crawler.splitter.inbox import Received
from crawler.storage.commit import Change, Making, Pause
from crawler.urlfilter.link_filter import Accepted, Judged, LinkFilter
from crawler.urlfilter.rule_names import SCOPE
from crawler.urls.clock_cache import ClockCache

if TYPE_CHECKING:
    from crawler.urls.trace import TraceWriter

_SEED = LinkFlag.SEED
Pauses = Generator[Pause, None, None]
Counted = Generator[Pause, None, int]  # pauses between portions; returns the number of accepted links


class LinkContext(msgspec.Struct, frozen=True, gc=False):
    """The attributes of a link apart from its URL. The fields have the same meaning as in `records.Link`."""

    depth: int = 0
    via: int = 0
    redirects: int = 0
    flags: int = 0


@dataclass(eq=False, repr=False)
class Admission:
    """Admits the links of one process, as the picture in the module docstring shows.

    `seen` caches the links of this process that were seen recently, and `sent` those that were sent to their
    owners recently.
    """

    intake: LinkFilter
    knowledge: SiteKnowledge
    due: Eliminator
    topology: Topology
    _: KW_ONLY
    seen: ClockCache
    sent: ClockCache
    sent_seeds: SentSeeds
    trace: "TraceWriter | None" = None
    ordering: LinkScoring | None = None

    # -- links found by this process -------------------------------------------

    def portions(
        self,
        change: Change,
        base: str,
        hrefs: Sequence[str],
        link_context: LinkContext,
        encoding: str = "utf-8",
        source: LinkSource = NO_PAGE,
    ) -> Counted:
        """Do the same as `links`, but portion by portion, with a pause after each portion."""
        found = 0
        for portion in portions(hrefs):
            found += yield from self.links(change, base, portion, link_context, encoding, source)
            yield None
        return found

    def links(
        self,
        change: Change,
        base: str,
        hrefs: Sequence[str],
        link_context: LinkContext,
        encoding: str = "utf-8",
        source: LinkSource = NO_PAGE,
    ) -> Counted:
        """Filter raw links, and queue those not seen recently. Return the number accepted. `source` is for scoring.

        Pause only while an order of a package scores the links.
        """
        change.count("urls.links", len(hrefs))
        scores = None
        if self.ordering is None:
            accepted = self.intake.filter_links(base, hrefs, encoding, link_context.flags)
        else:
            accepted, spellings = self.intake.filter_spelled(base, hrefs, encoding, link_context.flags)
            anchors = [source.anchors.get(spelling, "") for spelling in spellings]
            scores = yield from self.ordering.scores(
                change, source, accepted.urls, anchors, link_context.depth, link_context.flags
            )
        for rule, n in accepted.rejected.items():
            change.count(f"urls.filtered.{rule}", n)
        return self._queue(change, accepted, link_context, scores)

    def external(
        self,
        change: Change,
        base: str,
        hrefs: Sequence[str],
        link_context: LinkContext,
        encoding: str = "utf-8",
    ) -> Counted:
        """Queue raw links that are out of scope, so that they are checked. Return the number accepted.

        Pause after each portion. Each accepted link is counted as found (`urls.links`) a second time. The first
        time, it was counted as found and as rejected by the scope.
        """

        def admit(portion: Sequence[str]) -> int:
            accepted = self.intake.filter_links(base, portion, encoding, link_context.flags)
            change.count("urls.links", len(accepted.urls))
            return self._queue(change, accepted, link_context, None)

        return _sum_of(map(admit, portions(hrefs)))

    def _queue(
        self, change: Change, accepted: Accepted, link_context: LinkContext, scores: Scores | None
    ) -> int:
        """Queue the accepted links that were not seen recently, each for the process that owns it.

        Return the number accepted.
        """
        urls, fingerprints = accepted.urls, accepted.fingerprints
        change.count("urls.accepted", len(urls))
        for owner, places in self.topology.partition.split(fingerprints).items():
            if len(places) == len(urls):
                self._admit(change, owner, urls, fingerprints, link_context, scores)
            else:
                some = None if scores is None else scores[places]
                self._admit(
                    change, owner, [urls[i] for i in places], fingerprints[places], link_context, some
                )
        return len(urls)

    def judging(self, base: str, hrefs: Sequence[str], flags: int, encoding: str = "utf-8") -> Iterator[None]:
        """Let the user's URL filter judge raw links, one after each pause. The memo keeps the verdicts for `links`."""
        for href in hrefs:
            yield
            self.intake.filter_links(base, [href], encoding, flags)

    def judge(self, raw_url: str, flags: int, base: str, encoding: str) -> Judged:
        """Return the verdict of the URL filter on a URL that a user requests. Relative URLs are resolved to `base`."""
        return self.intake.one(raw_url, flags, base=base, encoding=encoding)

    def reason(self, url: str, flags: int) -> str:
        """Return the reason, as a text for users, why the URL filter rejects an absolute URL."""
        return self.intake.explain(url, flags).reason

    def one(self, change: Change, url: str, fingerprint: int, link_context: LinkContext) -> Pauses:
        """Filter a URL (request form) and queue it under `fingerprint`, unless this fingerprint was seen recently.

        This method is for URLs that a user requests, not for links. It is only used in crawls of one process.
        """
        change.count("urls.links")
        if rule := self.intake.one(url, link_context.flags).rule:
            change.count(f"urls.filtered.{rule}")
            return
        change.count("urls.accepted")
        scores = None
        if self.ordering is not None:
            scores = yield from self.ordering.scores(
                change, NO_PAGE, [url], [""], link_context.depth, link_context.flags
            )
        self._admit(change, self.topology.me, [url], np.array([fingerprint], np.uint64), link_context, scores)

    def _admit(
        self,
        change: Change,
        owner: str,
        urls: Sequence[str],
        fingerprints: np.ndarray,
        link_context: LinkContext,
        scores: Scores | None,
    ) -> None:
        """Queue the accepted links of one owner which were not seen recently, or whose class is now much better.

        A seed that an earlier start has sent to its owner is not sent again.
        """
        own = owner == self.topology.me
        missed = self._unseen(fingerprints) if own else self.sent.missing(fingerprints)
        classes = None
        if self.ordering is not None and scores is not None:
            classes, news = (self.ordering.own if own else self.ordering.sent)(fingerprints, scores)
            if own:
                self.ordering.improve(_links(urls, fingerprints, news, link_context, classes), change)
            elif news:
                missed = sorted({*missed, *news})
        if not own and link_context.flags & _SEED and not link_context.redirects:
            missed = self.sent_seeds.take(change, urls, fingerprints, missed)
        links = _links(urls, fingerprints, missed, link_context, classes)
        change.count("urls.cache_hits", len(urls) - len(links))
        if own:
            change.count("urls.to_due", len(links))
            change.links += links
            return
        change.count("urls.to_outbox", len(links))
        change.count("splitter.foreign", len(urls))
        change.count("splitter.cache_hits", len(urls) - len(links))
        if links:
            change.foreign.append((owner, links))

    def _unseen(self, fingerprints: np.ndarray) -> list[int]:
        """Return the positions of own fingerprints, uint64 (n,), that are neither in the cache nor pending in the DUE.

        The look-up also adds them.
        """
        missed: list[int] = self.seen.missing(fingerprints)
        return list(compress(missed, self.due.admit(fingerprints[missed]).tolist())) if missed else missed

    def log(self, fetch_task: FetchTask, extracted: Extracted) -> Pauses:
        """Write all accepted links of a page, including repeated ones, to the trace. Without a trace, do nothing."""
        if self.trace is None:
            return
        found: list[int] = []
        for portion in portions(extracted.repeats or extracted.hrefs):
            judged = (
                self.intake.one(raw_url, base=extracted.base, encoding=extracted.encoding)
                for raw_url in portion
            )
            found += [link.fingerprint for link in judged if not link.rule]
            yield None
        fingerprints = np.array(found, np.uint64)
        partition, me = self.topology.partition, self.topology.me
        foreign = partition.owners(fingerprints) != partition.index(me)
        self.trace.write_page(fetch_task.host, fingerprints, foreign)

    # -- seeds -----------------------------------------------------------------

    def seeds(self, urls: Sequence[str], *, copied: bool = False) -> Making:
        """Widen the scope by the user's seeds, and build the `Change` that queues the seeds.

        `urls` are request forms, at least one. Set `copied` if the user keeps no list of these seeds. Then each seed is
        stored by two processes: its owner and another one.
        """
        change = Change()
        yield from self.given(change, urls)
        yield from self.portions(change, urls[0], urls, LinkContext(flags=_SEED))
        if copied and self.topology.peers and change.links:
            keeper = keeper_of(self.topology.partition, self.topology.me)
            self.knowledge.hand_copies(change, self._keep(change, change.links), keeper)
        return change

    def _keep(self, change: Change, seeds: Sequence[Link]) -> list[str]:
        """Store the URLs of seeds, so that `crawler recover` finds them. Return the URLs that are new."""
        urls, fingerprints = [link.url for link in seeds], _fingerprints(seeds)
        return [urls[place] for place in self.sent_seeds.take(change, urls, fingerprints, range(len(urls)))]

    def given(self, change: Change, urls: Sequence[str]) -> Iterator[None]:
        """Widen the scope by seeds, and count them. Pause between portions."""
        yield from self.knowledge.given(change, urls)
        change.count("urls.seeds", len(urls))

    def spread(self, change: Change, base: str, raw_url: str, flags: int, encoding: str = "utf-8") -> None:
        """Widen the scope by the target of a seed's redirect, if the filter accepts it as a seed."""
        judged = self.intake.one(raw_url, flags | _SEED, base=base, encoding=encoding)
        if not judged.rule:
            self.knowledge.spread(change, [judged.url])

    def in_scope(self, url: str) -> bool:
        """Return whether a URL (request form) is in the scope of the crawl."""
        return self.intake.one(url).rule != SCOPE

    # -- links from other processes ----------------------------------------------

    def received(self, received: Received, links: list[Link]) -> Making:
        """Build the `Change` for an entry that another process sent. `links` are its links, without signals."""
        change = Change()
        change.received = received
        if kept := self.knowledge.copies(links):
            self._keep(change, kept)
        links = self.knowledge.apply_notice(change, links)
        for begin in range(0, len(links), PORTION_LINKS):
            self._take_received(change, self.knowledge.own_keys(links[begin : begin + PORTION_LINKS]))
            yield None
        return change

    def _take_received(self, change: Change, links: list[Link]) -> None:
        change.count("urls.received", len(links))
        fingerprints = _fingerprints(links)
        missed = self._unseen(fingerprints)
        change.count("urls.cache_hits", len(links) - len(missed))
        change.count("urls.to_due", len(missed))
        if self.ordering is None:
            change.links += [links[i] for i in missed]
        else:
            classes, news = self.ordering.own(fingerprints, self.ordering.scores_in(links))
            self.ordering.improve([classed(links[i], classes[i]) for i in news], change)
            change.links += [classed(links[i], classes[i]) for i in missed]


def _fingerprints(links: Sequence[Link]) -> np.ndarray:
    return np.array([link.fingerprint for link in links], np.uint64)


def _sum_of(counts: Iterable[int]) -> Counted:
    """Add up the counts of portions, with a pause after each portion."""
    found = 0
    for accepted in counts:
        found += accepted
        yield None
    return found


def _links(
    urls: Sequence[str],
    fingerprints: np.ndarray,
    places: Sequence[int],
    link_context: LinkContext,
    classes: Sequence[int] | None = None,
) -> list[Link]:
    """Return the links at the given positions, with their classes if `classes` is given."""
    if not places:
        return []
    depth, via, redirects, flags = (
        link_context.depth,
        link_context.via,
        link_context.redirects,
        link_context.flags,
    )
    values = fingerprints.tolist()
    if classes is None:
        return [Link(values[i], urls[i], depth, via, redirects, flags) for i in places]
    return [Link(values[i], urls[i], depth, via, redirects, with_class(flags, classes[i])) for i in places]
