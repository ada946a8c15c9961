"""What the end of a fetch becomes: one `Change` for the commit point.

This is the arrow from the fetcher back to the frontier without its waiting:

    Fetch + Extracted --> page record, capture, the frontier's decision
                      --> links: filter, bucket owner, CLOCK cache, DUE's pending set
                                 own and unseen  -> change.links   (to the DUE)
                                 of other owners -> change.foreign (to the outbox)

Everything happens in one synchronous step, so that the volatile caches never
get ahead of what is queued for the commit (`durability.md`, rules). Counters
obey

    accepted + received = cache_hits + foreign + links      (a cache hit: CLOCK or pending set)
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence

import msgspec
import numpy as np

from crawler.config import Config
from crawler.due.eliminator import Eliminator
from crawler.frontier.discovery import Decision, Frontier
from crawler.pages.page_cache import PageCache
from crawler.records import Errand, Extracted, Fetch, Link, LinkFlag, Outcome, PageRecord, PageState
from crawler.splitter.partition import Partition
from crawler.storage.commit import Change
from crawler.urlfilter.intake import Accepted, Intake
from crawler.urls.clock_cache import ClockCache
from crawler.urls.fingerprint import Fingerprinter, cache_keys

_encode_json = msgspec.json.Encoder().encode

_STATES = {
    Outcome.FETCHED: PageState.STORED,
    Outcome.EMPTY: PageState.STORED,
    Outcome.TRUNCATED: PageState.STORED,
    Outcome.UNCHANGED: PageState.STORED,
    Outcome.REDIRECT: PageState.REDIRECTED,
    Outcome.GONE: PageState.GONE,
    Outcome.ROBOTS_DENIED: PageState.DENIED,
}


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
        fingerprinter: Fingerprinter,
        intake: Intake,
        cache: ClockCache,
        due: Eliminator,
        frontier: Frontier,
        pages: PageCache,
        partition: Partition | None = None,
        outbox_caches: Sequence[ClockCache] = (),
        own_index: int = 0,
    ) -> None:
        self._config = config
        self._fingerprinter = fingerprinter
        self._intake = intake
        self._cache = cache
        self._due = due
        self._frontier = frontier
        self._pages = pages
        self._partition = partition
        self._outbox_caches = outbox_caches
        self._own_index = own_index
        self._same_content = SameContent()
        self.trace: Callable[[np.ndarray, np.ndarray], None] | None = None

    # -- what ends a fetch ---------------------------------------------------

    def page(self, errand: Errand, fetch: Fetch, extracted: Extracted | None, now: float) -> Change:
        """The change for a page's fetch, final or to be repeated."""
        change = Change()
        decision = self._frontier.settle(errand, fetch, now)
        change.count(f"pages.{fetch.outcome}")
        change.count("bytes.wire", fetch.wire_bytes)
        change.count("bytes.decoded", len(fetch.content))
        if decision.final:
            self._final(change, errand, fetch, extracted, now)
        else:
            change.count("pages.retried")
        self._frontier.stage(decision, change)
        change.line = self._line(errand, fetch, extracted, decision)
        self._release(change, decision)
        return change

    def denied(self, errand: Errand, now: float) -> Change:
        """The change for a URL that robots.txt forbids: recorded, never asked."""
        fetch = Fetch(url=errand.url, outcome=Outcome.ROBOTS_DENIED, began=now)
        return self.page(errand, fetch, None, now)

    def _final(
        self, change: Change, errand: Errand, fetch: Fetch, extracted: Extracted | None, now: float
    ) -> None:
        links = self._links_of_page(change, errand, fetch, extracted) if extracted is not None else 0
        if fetch.outcome is Outcome.REDIRECT:
            self._redirect(change, errand, fetch.location)
        digest = b""
        if fetch.status:
            capture = self._pages.capture(fetch, errand, extracted, now)
            change.captures.append(capture)
            digest = capture.digest
        self._pages.put_record(
            change, errand.fingerprint, self._record(errand, fetch, extracted, digest, links, now)
        )
        change.count("urls.done")
        if _STATES.get(fetch.outcome, PageState.FAILED) is PageState.FAILED:
            change.count("urls.failed")

    @staticmethod
    def _record(
        errand: Errand, fetch: Fetch, extracted: Extracted | None, digest: bytes, links: int, now: float
    ) -> PageRecord:
        return PageRecord(
            url=errand.url,
            state=_STATES.get(fetch.outcome, PageState.FAILED),
            outcome=fetch.outcome,
            status=fetch.status,
            depth=errand.depth,
            via=errand.via,
            redirects=errand.redirects,
            flags=errand.flags,
            fetched_at=fetch.began,
            changed_at=fetch.began,
            took=fetch.took,
            content_type=fetch.content_type,
            digest=digest,
            etag=fetch.header(b"etag").decode("latin-1"),
            last_modified=fetch.header(b"last-modified").decode("latin-1"),
            attempts=errand.attempt + 1,
            fetches=1 if fetch.status else 0,
            links=links,
            location=fetch.location,
            noindex=extracted.noindex if extracted else False,
            noarchive=extracted.noarchive if extracted else False,
            error=fetch.error,
        )

    def _line(
        self, errand: Errand, fetch: Fetch, extracted: Extracted | None, decision: Decision
    ) -> bytes:
        line = {
            "id": f"{errand.fingerprint:016x}",
            "url": errand.url,
            "ts": fetch.began,
            "outcome": fetch.outcome,
            "status": fetch.status,
            "mime": fetch.content_type,
            "bytes": len(fetch.body),
            "took": round(fetch.took, 4),
            "depth": errand.depth,
            "attempt": errand.attempt + 1,
            "decision": decision.kind,
        }
        if extracted is not None and extracted.title:
            line["title"] = extracted.title
        if fetch.truncated:
            line["truncated"] = fetch.truncated
        if fetch.location:
            line["location"] = fetch.location
        if fetch.error:
            line["error"] = fetch.error
        return _encode_json(line) + b"\n"

    def _release(self, change: Change, decision: Decision) -> None:
        change.after.append(lambda: self._frontier.release(decision))

    # -- links ---------------------------------------------------------------

    def _links_of_page(self, change: Change, errand: Errand, fetch: Fetch, extracted: Extracted) -> int:
        if extracted.parse_limit:
            change.count("pages.parse_limit")
        if extracted.nofollow or self._is_copy(errand, fetch):
            change.count("pages.links_not_taken")
            return 0
        depth, via = errand.depth + 1, errand.fingerprint
        found = self.links(change, extracted.base, extracted.hrefs, extracted.encoding, depth, via, 0)
        if extracted.requisites:
            flags = int(LinkFlag.REQUISITE)
            found += self.links(
                change, extracted.base, extracted.requisites, extracted.encoding, depth, via, flags
            )
        if extracted.refresh:
            self._redirect(change, errand, extracted.refresh, base=extracted.base)
        return found

    def _is_copy(self, errand: Errand, fetch: Fetch) -> bool:
        """True from the page on that is one copy too many of the same bytes on its host."""
        limit = self._config.traps.same_digest_pages_max
        digest = self._fingerprinter.hash(fetch.content).to_bytes(8, "little")
        return self._same_content.count(errand.host, digest) > limit

    def links(
        self,
        change: Change,
        base: str,
        hrefs: Sequence[str],
        encoding: str,
        depth: int,
        via: int,
        flags: int,
        redirects: int = 0,
    ) -> int:
        """Filter raw links and queue those not seen lately; return how many were accepted."""
        change.count("urls.links", len(hrefs))
        accepted = self._intake.take(base, hrefs, encoding, depth=depth, flags=flags)
        for rule, n in accepted.rejected.items():
            change.count(f"urls.filtered.{rule}", n)
        return self._admit(change, accepted, depth, via, flags, redirects)

    def _redirect(self, change: Change, errand: Errand, location: str, base: str = "") -> None:
        """The target of a redirect or refresh: a link of the same depth, one hop further on."""
        flags = errand.flags & (LinkFlag.SEED | LinkFlag.SITEMAP | LinkFlag.REQUISITE) | LinkFlag.REDIRECT
        if errand.redirects >= self._config.fetch.redirects_max:
            change.count("urls.filtered.redirect_chain")
            return
        self.links(
            change,
            base or errand.url,
            [location],
            "utf-8",
            errand.depth,
            errand.fingerprint,
            int(flags),
            errand.redirects + 1,
        )

    def seeds(self, urls: Sequence[str]) -> Change:
        """The change for URLs given by the user (canonical already)."""
        change = Change()
        change.count("urls.seeds", len(urls))
        self.links(change, "", urls, "utf-8", 0, 0, int(LinkFlag.SEED))
        return change

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
        owners = self._partition.owners(fingerprints)
        for owner in np.unique(owners).tolist():
            of_owner = np.flatnonzero(owners == owner)
            urls = [accepted.urls[i] for i in of_owner.tolist()]
            if owner == self._own_index:
                self._own(change, urls, fingerprints[of_owner], depth, via, flags, redirects)
            else:
                self._foreign(change, owner, urls, fingerprints[of_owner], depth, via, flags, redirects)
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
        fresh = np.frombuffer(self._cache.add_many(cache_keys(fingerprints)), np.uint8)
        missed = np.flatnonzero(fresh)
        if len(missed):
            missed = missed[np.asarray(self._due.admit(fingerprints[missed]), bool)]
        change.count("urls.cache_hits", len(urls) - len(missed))
        change.count("urls.to_due", len(missed))
        values = fingerprints[missed].tolist()
        change.links += [
            Link(fp, urls[i], depth, via, redirects, flags)
            for i, fp in zip(missed.tolist(), values, strict=True)
        ]

    def _foreign(
        self,
        change: Change,
        owner: int,
        urls: Sequence[str],
        fingerprints: np.ndarray,
        depth: int,
        via: int,
        flags: int,
        redirects: int,
    ) -> None:
        fresh = np.frombuffer(self._outbox_caches[owner].add_many(cache_keys(fingerprints)), np.uint8)
        missed = np.flatnonzero(fresh).tolist()
        change.count("urls.cache_hits", len(urls) - len(missed))
        change.count("urls.to_outbox", len(missed))
        if missed:
            values = fingerprints.tolist()
            links = [Link(values[i], urls[i], depth, via, redirects, flags) for i in missed]
            change.foreign.append((owner, links))

    def received(self, links: Sequence[Link]) -> Change:
        """The change for links that another process found on our hosts."""
        change = Change()
        change.count("urls.received", len(links))
        fingerprints = np.array([link.fingerprint for link in links], np.uint64)
        fresh = np.frombuffer(self._cache.add_many(cache_keys(fingerprints)), np.uint8)
        missed = np.flatnonzero(fresh)
        if len(missed):
            missed = missed[np.asarray(self._due.admit(fingerprints[missed]), bool)]
        change.count("urls.cache_hits", len(links) - len(missed))
        change.count("urls.to_due", len(missed))
        change.links += [links[i] for i in missed.tolist()]
        return change
