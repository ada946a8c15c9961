"""What the end of a fetch becomes: one `Change` for the commit point.

This is the arrow from the fetcher back to the frontier without its waiting:

    Fetch + Extracted --> page record, capture, the frontier's decision
                      --> links: filter, bucket owner, CLOCK cache, DUE's pending set
                                 own and unseen  -> change.links   (to the DUE)
                                 of other owners -> change.foreign (to the outbox)

A change is made in one step, or by a generator that pauses between portions of
its links (`portions.py`); the commit point makes one change after the other, so
that the volatile caches never get ahead of what is queued for the commit
(`durability.md`, rules). What a page's content makes raise ends in a counted
outcome: the page without its answer, or without its links. Counters obey

    accepted + received = cache_hits + foreign + links      (a cache hit: CLOCK or pending set)
"""

import re
from collections import OrderedDict
from collections.abc import Generator, Sequence
from itertools import compress, count

import msgspec
import numpy as np

from crawler.clock import Clock, iso_time
from crawler.config import Config
from crawler.due.eliminator import Eliminator
from crawler.errors import StoreError, Unexpected
from crawler.frontier.frontier import Decision, End, Frontier
from crawler.pages.page_cache import Capturing, PageCache
from crawler.process.portions import PORTION_LINKS, portions
from crawler.process.submitted import Submitted
from crawler.records import Blame, Errand, Extracted, Fetch, Link, LinkFlag, Outcome
from crawler.robots.cache import RobotsCache
from crawler.splitter.inbox import Received
from crawler.splitter.partition import Partition
from crawler.storage.commit import Change, Making
from crawler.storage.keys import EQUIVALENCES, SCOPE_STATE
from crawler.storage.kv import seal
from crawler.urlfilter.intake import Accepted, Intake
from crawler.urlfilter.rules import SCOPE
from crawler.urls.canonical import authority, resolve
from crawler.urls.clock_cache import ClockCache
from crawler.urls.equivalence import Equivalences
from crawler.urls.fingerprint import Fingerprinter, cache_keys
from crawler.urls.trace import TraceWriter

_encode_json = msgspec.json.Encoder().encode

_NO_FAILURE = {
    Outcome.FETCHED,
    Outcome.EMPTY,
    Outcome.TRUNCATED,
    Outcome.UNCHANGED,
    Outcome.REDIRECT,
    Outcome.GONE,
    Outcome.ROBOTS_DENIED,
}
_LOW_48 = (1 << 48) - 1
_SITEMAP = int(LinkFlag.SITEMAP)  # plain, as the flags of an errand are: an IntFlag costs 1 us a test
_CountedSteps = Generator[None, None, int]  # pauses, and returns how many links were accepted
_KEPT_BY_REDIRECTS = LinkFlag.SEED | LinkFlag.SITEMAP | LinkFlag.FEED | LinkFlag.REQUISITE


class SameContent:
    """Counts pages with the same bytes on a host (content-seen test, Mercator), for the latest ones.

    `entries_max` pairs of host and digest are remembered, least recently
    counted first out.
    """

    def __init__(self, entries_max: int = 100_000) -> None:
        self._counts: OrderedDict[tuple[int, bytes], int] = OrderedDict()
        self._entries_max = entries_max

    def count(self, host: int, digest: bytes) -> int:
        """Count one more page and return how many there have been."""
        key = (host, digest)
        n = self._counts.pop(key, 0) + 1
        self._counts[key] = n
        if len(self._counts) > self._entries_max:
            self._counts.popitem(last=False)
        return n


class Harvest:
    """Builds the changes of one process; see the module's picture."""

    def __init__(
        self,
        config: Config,
        *,
        clock: Clock,
        fingerprinter: Fingerprinter,
        equivalences: Equivalences,
        intake: Intake,
        cache: ClockCache,
        due: Eliminator,
        frontier: Frontier,
        pages: PageCache,
        robots: RobotsCache,
        partition: Partition | None = None,
        outbox_cache: ClockCache | None = None,
        me: str = "",
        trace: TraceWriter | None = None,
        unexpected: Unexpected | None = None,
    ) -> None:
        self.unexpected = unexpected or Unexpected()
        self._config = config
        self._clock = clock
        self._fingerprinter = fingerprinter
        self._equivalences = equivalences
        self._intake = intake
        self._cache = cache
        self._due = due
        self._frontier = frontier
        self._pages = pages
        self._robots = robots
        self._partition = partition
        self._outbox_cache = outbox_cache
        self._me = me
        self._peers = [] if partition is None else [name for name in partition.names if name != me]
        self._same_content = SameContent()
        self._trace = trace

    # -- what ends a fetch ---------------------------------------------------

    def page(self, errand: Errand, fetch: Fetch, extracted: Extracted | None, now: float) -> Making:
        """Make the change for a page's fetch, final or to be repeated."""
        change = Change()
        decision = self._settle(errand, fetch, now)
        capturing = self._capture(fetch, errand, extracted, now, final=decision.end is End.DONE)
        change.captures.append(capturing)
        if fetch.outcome is Outcome.INTERNAL_ERROR:
            extracted = None
        if decision.end is End.DONE:
            try:
                links = yield from self._links_of_page(change, errand, fetch, extracted, capturing.digest)
            except StoreError:
                raise
            except Exception as error:  # the links up to here stay in the change, as the caches have them
                self.unexpected.note(error, f"links of {errand.url}, some of which are lost")
                change.count("pages.links_lost")
                links = 0
            if capturing.record is not None:
                capturing.record.links = links
        self._count(change, fetch, decision)
        change.line = _line(errand, fetch, extracted, decision)
        self.release(change, decision)
        return change

    def _settle(self, errand: Errand, fetch: Fetch, now: float) -> Decision:
        """What the frontier decides; upon a fetch that it cannot judge, as upon an internal error."""
        try:
            return self._frontier.settle(errand, fetch, now)
        except StoreError:
            raise
        except Exception as error:
            self._spoil(fetch, error, f"deciding upon {errand.url or errand.hostname}")
            return self._frontier.settle(errand, fetch, now)

    def _capture(
        self, fetch: Fetch, errand: Errand, extracted: Extracted | None, now: float, *, final: bool = True
    ) -> Capturing:
        """What is kept of a fetch; of one that cannot be kept, that it was made."""
        try:
            return self._pages.capture(fetch, errand, extracted, now, final=final)
        except StoreError:
            raise
        except Exception as error:
            self._spoil(fetch, error, f"keeping {errand.url}")
            return self._pages.capture(fetch, errand, None, now, final=final)

    def _spoil(self, fetch: Fetch, error: Exception, where: str) -> None:
        """Make an internal error of `fetch`: nothing that it brought is looked at again."""
        nothing = Fetch(
            url=fetch.url,
            outcome=Outcome.INTERNAL_ERROR,
            blame=Blame.URL,
            began=fetch.began,
            took=fetch.took,
            error=self.unexpected.note(error, where),
        )
        for name in fetch.__struct_fields__:
            setattr(fetch, name, getattr(nothing, name))

    def denied(self, errand: Errand, now: float) -> Making:
        """Make the change for a URL that robots.txt forbids: recorded, never asked."""
        fetch = Fetch(url=errand.url, outcome=Outcome.ROBOTS_DENIED, began=now)
        return self.page(errand, fetch, None, now)

    def robots(self, errand: Errand, fetch: Fetch, hops: int, now: float) -> Making:
        """Make the change for the answer to a robots.txt, at the end of its redirects."""
        change = Change()
        of = authority(errand.url)
        ignored = self._robots.sitemaps_ignored
        try:
            self._record_robots(change, of, fetch, now)
        except StoreError:
            raise
        except Exception as error:  # as one that could not be reached: nothing is asked until the next try
            self._spoil(fetch, error, f"reading {errand.url}")
            self._record_robots(change, of, fetch, now)
        change.count("robots.sitemaps_ignored", self._robots.sitemaps_ignored - ignored)
        if fetch.status:
            change.captures.append(self._capture(fetch, errand, None, now))
        change.count(f"robots.{fetch.outcome}")
        change.count("bytes.wire", fetch.wire_bytes)
        if self._config.sitemaps.robots:
            yield from self._sitemaps(change, errand, self._robots.sitemaps(of))
        self.release(change, self._settle(errand, fetch, now))
        return change

    def _record_robots(self, change: Change, of: str, fetch: Fetch, now: float) -> None:
        self._robots.record(
            of,
            status=fetch.status,
            outcome=fetch.outcome,
            body=fetch.content,
            complete=fetch.truncated in ("", "length"),
            now=now,
            batch=change,
        )

    def unresolved(self, errand: Errand, failure: Fetch, now: float) -> Change:
        """The change for a host whose addresses could not be found."""
        change = Change()
        change.count(f"hosts.{failure.outcome}")
        self.release(change, self._settle(errand, failure, now))
        return change

    def retire(self, pattern: str, change: Change) -> int:
        """Drop the to-do and parked URLs that the regular expression finds; return how many."""
        gone = self._frontier.retire(re.compile(pattern), change)
        change.count("urls.done", gone)
        change.count("urls.retired", gone)
        return gone

    def release(self, change: Change, decision: Decision) -> None:
        """Let the change hold the frontier's decision, and free the errand's place once it is durable."""
        self._frontier.stage(decision, change)
        change.after.append(lambda: self._frontier.release(decision, self._clock.now()))

    @staticmethod
    def _count(change: Change, fetch: Fetch, decision: Decision) -> None:
        change.count(f"pages.{fetch.outcome}")
        change.count("bytes.wire", fetch.wire_bytes)
        change.count("bytes.decoded", len(fetch.content))
        if decision.end is not End.DONE:
            change.count("pages.retried")
            return
        change.count("urls.done")
        if fetch.outcome not in _NO_FAILURE:
            change.count("urls.failed")

    # -- links ---------------------------------------------------------------

    def _links_of_page(
        self, change: Change, errand: Errand, fetch: Fetch, extracted: Extracted | None, digest: bytes
    ) -> _CountedSteps:
        if fetch.outcome is Outcome.REDIRECT:
            self._learn(change, fetch)
            return self._redirect(change, errand, fetch.location)
        if extracted is None:
            return 0
        self._equivalences.answered(fetch.url)
        if extracted.parse_limit:
            change.count("pages.parse_limit")
        if extracted.nofollow or self._is_copy(errand, digest):
            change.count("pages.links_not_taken")
            return 0
        if errand.flags & _SITEMAP:
            return (yield from self._links_of_map(change, errand, extracted))
        base, encoding = extracted.base, extracted.encoding
        depth, via = errand.depth + 1, errand.fingerprint
        if self._trace is not None:
            self._log_links(self._trace, errand, extracted)
        found = yield from self._portions(change, base, extracted.hrefs, encoding, depth, via)
        if extracted.requisites:
            wanted = int(LinkFlag.REQUISITE)
            wanted_links = extracted.requisites
            found += yield from self._portions(change, base, wanted_links, encoding, depth, via, wanted)
        if extracted.refresh:
            found += self._redirect(change, errand, extracted.refresh, base=base)
        return found

    def _links_of_map(self, change: Change, errand: Errand, extracted: Extracted) -> _CountedSteps:
        """The pages of a sitemap, one hop from where the crawl began, and the maps of an index."""
        via = errand.fingerprint
        submitted = Submitted(errand, self._robots.names)
        hrefs = yield from submitted.among(extracted.hrefs)
        found = yield from self._portions(change, errand.url, hrefs, "utf-8", 1, via)
        if errand.depth < self._config.sitemaps.depth_max and extracted.maps:
            maps = yield from submitted.among(extracted.maps)
            flags = int(LinkFlag.SITEMAP)
            yield from self._portions(change, errand.url, maps, "utf-8", errand.depth + 1, via, flags)
        return found

    def _log_links(self, trace: TraceWriter, errand: Errand, extracted: Extracted) -> None:
        """Log every mention of an accepted link, as it enters the host splitter."""
        judged = (
            self._intake.one(raw_url, base=extracted.base, encoding=extracted.encoding)
            for raw_url in extracted.repeats or extracted.hrefs
        )
        fingerprints = np.array([link.fingerprint for link in judged if not link.rule], np.uint64)
        partition = self._partition
        own = True if partition is None else partition.owners(fingerprints) == partition.index(self._me)
        trace.write_page(errand.host, fingerprints, np.logical_not(own))

    def _is_copy(self, errand: Errand, digest: bytes) -> bool:
        """True from the page on that is one copy too many of the same content on its host."""
        return self._same_content.count(errand.host, digest) > self._config.traps.same_digest_pages_max

    def _sitemaps(self, change: Change, errand: Errand, urls: Sequence[str]) -> _CountedSteps:
        """Queue the sitemaps that a robots.txt names, and /sitemap.xml if that is to be guessed.

        Only where the crawl is at home: a host outside the scope names pages outside it.
        """
        if self._intake.one(errand.url, 0).rule == SCOPE:
            return 0
        if self._config.sitemaps.guess:
            urls = [*urls, "/sitemap.xml"]
        return (yield from self._portions(change, errand.url, urls, "utf-8", 0, 0, int(LinkFlag.SITEMAP)))

    def _portions(
        self,
        change: Change,
        base: str,
        hrefs: Sequence[str],
        encoding: str,
        depth: int,
        via: int,
        flags: int = 0,
    ) -> _CountedSteps:
        """`links` portion by portion, with a pause behind each."""
        found = 0
        for portion in portions(hrefs):
            found += self.links(change, base, portion, encoding, depth, via, flags)
            yield
        return found

    def links(
        self,
        change: Change,
        base: str,
        hrefs: Sequence[str],
        encoding: str,
        depth: int,
        via: int,
        flags: int = 0,
        redirects: int = 0,
    ) -> int:
        """Filter raw links and queue those not seen lately; return how many were accepted."""
        change.count("urls.links", len(hrefs))
        accepted = self._intake.take(base, hrefs, encoding, depth=depth, flags=flags)
        for rule, n in accepted.rejected.items():
            change.count(f"urls.filtered.{rule}", n)
        return self._admit(change, accepted, depth, via, flags, redirects)

    def _redirect(self, change: Change, errand: Errand, location: str, base: str = "") -> int:
        """The target of a redirect or refresh: a link of the same depth, one hop further on.

        A seed's target is a seed: it widens the scope.
        """
        if errand.redirects >= self._config.fetch.redirects_max:
            change.count("urls.filtered.redirect_chain")
            return 0
        base = base or errand.url
        flags = int(errand.flags & _KEPT_BY_REDIRECTS | LinkFlag.REDIRECT)
        if flags & LinkFlag.SEED:
            self._widen(change, base, location, flags)
        return self.links(
            change, base, [location], "utf-8", errand.depth, errand.fingerprint, flags, errand.redirects + 1
        )

    def _learn(self, change: Change, fetch: Fetch) -> None:
        """Note where an authority redirects to; enough of the same prove that two are one site."""
        target = resolve(fetch.url, fetch.location)
        if target is not None and self._equivalences.redirected(fetch.url, target):
            change.put(EQUIVALENCES, seal(_encode_json(self._equivalences.state())))

    def _widen(self, change: Change, base: str, location: str, flags: int) -> None:
        """Take a seed or its target into the scope, and keep the scope with the change."""
        revision = self._intake.filter.revision
        judged = self._intake.seed(location, flags, base=base)
        if self._intake.filter.revision == revision:
            return
        self._tell_scope(change, [judged.url])
        change.put(SCOPE_STATE, seal(_encode_json(self._intake.filter.scope.state())))

    def seeds(self, urls: Sequence[str]) -> Change:
        """The change for URLs given by the user (request forms)."""
        change = Change()
        self._tell_scope(change, self.widen(change, urls))
        change.count("urls.seeds", len(urls))
        self.links(change, urls[0], urls, "utf-8", 0, 0, int(LinkFlag.SEED))
        return change

    def widen(self, change: Change, urls: Sequence[str]) -> list[str]:
        """Take URLs into the scope, and keep it with the change; return those that made a difference."""
        widening = [url for url in urls if self._intake.filter.widen(url)]
        if widening:
            change.put(SCOPE_STATE, seal(_encode_json(self._intake.filter.scope.state())))
        return widening

    def tell_scope(self, change: Change, peers: Sequence[str]) -> None:
        """Let some processes know all that the scope spans."""
        self._tell_scope(change, self._intake.filter.scope.urls(), peers)

    def _tell_scope(self, change: Change, urls: Sequence[str], peers: Sequence[str] | None = None) -> None:
        """Let other processes know what the scope has grown by: through the outbox, as no link may be lost."""
        peers = self._peers if peers is None else peers
        if not urls or not peers:
            return
        notices = [
            # Not the fingerprint of the link itself, else a compaction would keep one of the two.
            Link(self._fingerprinter.fingerprint(url) ^ _LOW_48, url, flags=int(LinkFlag.SCOPE))
            for url in urls
        ]
        change.foreign += [(peer, list(notices)) for peer in peers]
        change.count("splitter.scope_told", len(notices) * len(peers))

    def _admit(
        self, change: Change, accepted: Accepted, depth: int, via: int, flags: int, redirects: int
    ) -> int:
        n = len(accepted.urls)
        if not n:
            return 0
        change.count("urls.accepted", n)
        fingerprints = accepted.fingerprints
        if self._partition is None:
            self._own(change, accepted.urls, fingerprints, depth, via, flags, redirects)
            return n
        for owner, places in self._partition.split(fingerprints).items():
            urls = accepted.urls if len(places) == n else [accepted.urls[i] for i in places]
            of_owner = fingerprints if len(places) == n else fingerprints[places]
            if owner == self._me:
                self._own(change, urls, of_owner, depth, via, flags, redirects)
            else:
                self._foreign(change, owner, urls, of_owner, depth, via, flags, redirects)
        return n

    def _own(
        self,
        change: Change,
        urls: Sequence[str],
        fingerprints: np.ndarray,
        depth: int,
        via: int,
        flags: int,
        redirects: int,
    ) -> None:
        missed = self._missed(fingerprints)
        change.count("urls.cache_hits", len(urls) - len(missed))
        change.count("urls.to_due", len(missed))
        if missed:
            values = fingerprints[missed].tolist()
            change.links += [
                Link(fp, urls[i], depth, via, redirects, flags) for i, fp in zip(missed, values, strict=True)
            ]

    def _missed(self, fingerprints: np.ndarray) -> list[int]:
        """Which of our own links are neither in the cache nor waiting in the DUE; both note them."""
        missed = list(compress(count(), self._cache.add_many(cache_keys(fingerprints))))
        return list(compress(missed, self._due.admit(fingerprints[missed]).tolist())) if missed else missed

    def _foreign(
        self,
        change: Change,
        owner: str,
        urls: Sequence[str],
        fingerprints: np.ndarray,
        depth: int,
        via: int,
        flags: int,
        redirects: int,
    ) -> None:
        assert self._outbox_cache is not None
        missed = list(compress(count(), self._outbox_cache.add_many(cache_keys(fingerprints))))
        change.count("urls.cache_hits", len(urls) - len(missed))
        change.count("urls.to_outbox", len(missed))
        change.count("splitter.foreign", len(urls))
        change.count("splitter.cache_hits", len(urls) - len(missed))
        if missed:
            values = fingerprints.tolist()
            links = [Link(values[i], urls[i], depth, via, redirects, flags) for i in missed]
            change.foreign.append((owner, links))

    def forget_sent(self) -> None:
        """A peer has lost what it had: links that were sent to it must be sent again when they are met."""
        if self._outbox_cache is not None:
            self._outbox_cache.clear()

    def received(self, received: Received) -> Making:
        """Make the change for an entry of links that another process found on our hosts."""
        change = Change()
        change.received = received
        links = self._take_notices(change, received.links)
        if not links:
            return change
        for begin in range(0, len(links), PORTION_LINKS):
            self._take_received(change, links[begin : begin + PORTION_LINKS])
            yield
        return change

    def _take_received(self, change: Change, links: list[Link]) -> None:
        change.count("urls.received", len(links))
        if self._equivalences.proven:  # the sender may not know that two authorities are one
            key = self._fingerprinter.fingerprint
            links = [msgspec.structs.replace(link, fingerprint=key(link.url)) for link in links]
        fingerprints = np.array([link.fingerprint for link in links], np.uint64)
        missed = self._missed(fingerprints)
        change.count("urls.cache_hits", len(links) - len(missed))
        change.count("urls.to_due", len(missed))
        change.links += [links[i] for i in missed]

    def _take_notices(self, change: Change, links: list[Link]) -> list[Link]:
        """Widen the scope as an entry tells; return its links."""
        notices = [link.url for link in links if link.flags & LinkFlag.SCOPE]
        if not notices:
            return links
        self.widen(change, notices)
        change.count("splitter.scope_heard", len(notices))
        return [link for link in links if not link.flags & LinkFlag.SCOPE]


class _Line(msgspec.Struct, omit_defaults=True, gc=False):
    """A line of pages.jsonl."""

    id: str
    url: str
    ts: str
    outcome: str
    status: int
    mime: str
    bytes: int
    took: float
    depth: int
    attempt: int
    decision: str
    title: str = ""
    truncated: str = ""
    location: str = ""
    error: str = ""


def _line(errand: Errand, fetch: Fetch, extracted: Extracted | None, decision: Decision) -> bytes:
    """The line of pages.jsonl for a fetch."""
    line = _Line(
        f"{errand.fingerprint:016x}",
        errand.url,
        iso_time(fetch.began),
        fetch.outcome,
        fetch.status,
        fetch.content_type,
        len(fetch.body),
        round(fetch.took, 4),
        errand.depth,
        errand.attempt + 1,
        decision.end,
        extracted.title if extracted is not None else "",
        fetch.truncated,
        fetch.location,
        fetch.error,
    )
    return _encode_json(line) + b"\n"
