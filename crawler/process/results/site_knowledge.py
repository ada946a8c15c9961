"""The crawl's knowledge about sites: the sites in its scope, and the authorities that are equivalent.

    scope          widened by seeds and by the targets of their redirects; the same in all processes
    equivalences   http -> https, www <-> apex, proven by redirects; each process has its own

Scope and equivalences are stored with the change from which they were learned. Notices tell the other
processes that the scope has widened. A notice is a link with the flag SCOPE. Notices are sent through the
outbox, because links would be lost if a notice were lost.
"""

from collections.abc import Iterator, Sequence

import msgspec

from crawler.process.committing.portions import portions
from crawler.records import Fetch, Link, LinkFlag
from crawler.storage.commit import Change
from crawler.storage.keys import EQUIVALENCES, SCOPE_STATE
from crawler.storage.kv import seal
from crawler.urlfilter.url_filter import UrlFilter
from crawler.urls.canonical import resolve
from crawler.urls.equivalence import Equivalences
from crawler.urls.fingerprint import Fingerprinter

_LOW_48 = (1 << 48) - 1
_SCOPE, _SEED, _KEPT = LinkFlag.SCOPE, LinkFlag.SEED, LinkFlag.KEPT
# A notice must not have the same fingerprint as a link to the URL or another notice about it, because a compaction of
# the outbox keeps only one link per fingerprint.
_MARKS = {_SCOPE: _LOW_48, _SCOPE | _SEED: _LOW_48 >> 1, _SCOPE | _KEPT: _LOW_48 >> 2}
_encode_json = msgspec.json.Encoder().encode


class SiteKnowledge:
    """Keeps the scope and the equivalences of one process. `peers` are the other processes of the crawl.

    If `credentials` is true, headers with credentials are configured. These headers are sent only to URLs
    given as seeds, so the scope also records which URLs were given.
    """

    def __init__(
        self,
        url_filter: UrlFilter,
        equivalences: Equivalences,
        fingerprinter: Fingerprinter,
        peers: Sequence[str] = (),
        *,
        credentials: bool = False,
    ) -> None:
        self._filter = url_filter
        self._equivalences = equivalences
        self._fingerprint = fingerprinter.fingerprint
        self._peers = peers
        self._credentials = credentials

    # -- scope ---------------------------------------------------------------

    def widen(self, change: Change, urls: Sequence[str]) -> list[str]:
        """Add URLs (request forms) to the scope. Return the URLs that widened the scope."""
        return self._keep_scope(change, [url for url in urls if self._filter.widen(url)])

    def _keep_scope(self, change: Change, grown: list[str]) -> list[str]:
        """Store the scope with the change if URLs in `grown` have widened the scope.

        The scope `any` is always stored. It never widens, but the next run must know that the crawl began with it.
        """
        if grown or self._filter.scope.kind == "any":
            change.put(SCOPE_STATE, seal(_encode_json(self._filter.scope.state())))
        return grown

    def spread(self, change: Change, urls: Sequence[str]) -> None:
        """Add URLs to the scope, and tell the peers which of them widened the scope."""
        self._tell(change, self.widen(change, urls), self._peers)

    def given(self, change: Change, urls: Sequence[str]) -> Iterator[None]:
        """Add seeds to the scope, allow credentials for them, and tell the peers. Pause after each portion."""
        widening: list[str] = []
        for portion in portions(urls):
            widening += [url for url in portion if self._filter.widen(url)]
            yield
        self._keep_scope(change, widening)
        self._tell(change, widening, self._peers)
        if self._credentials:
            self._tell(change, self._give(change, urls), self._peers, _SCOPE | _SEED)

    def _give(self, change: Change, urls: Sequence[str]) -> list[str]:
        """Allow credentials for `urls`, and store the scope with the change. Return the URLs that are newly allowed."""
        return self._keep_scope(change, [url for url in urls if self._filter.scope.give(url)])

    def trusts(self, url: str) -> bool:
        """Return whether headers with credentials may be sent to a URL.

        Credentials may be sent only to URLs given as seeds.
        """
        return self._credentials and self._filter.scope.was_given(url)

    def hand_copies(self, change: Change, urls: Sequence[str], keeper: str) -> None:
        """Let the process `keeper` keep copies of seeds that this process owns."""
        self._tell(change, urls, [keeper], _SCOPE | _KEPT)

    def copies(self, links: Sequence[Link]) -> list[Link]:
        """Return the seeds of which a peer hands copies among its `links`, with their own fingerprints."""
        kept = [link for link in links if link.flags & _KEPT]
        return [msgspec.structs.replace(link, fingerprint=self._fingerprint(link.url)) for link in kept]

    def announce(self, change: Change, peers: Sequence[str]) -> None:
        """Send the whole scope to some processes."""
        self._tell(change, self._filter.scope.urls(), peers)

    def _tell(self, change: Change, urls: Sequence[str], peers: Sequence[str], flags: int = _SCOPE) -> None:
        if not urls:
            return
        notices = [Link(self._fingerprint(url) ^ _MARKS[flags], url, flags=flags) for url in urls]
        change.foreign += [(peer, list(notices)) for peer in peers]
        change.count("splitter.scope_told", len(notices) * len(peers))

    def apply_notice(self, change: Change, links: list[Link]) -> list[Link]:
        """Widen the scope by the notices among a peer's `links`. Return the links that are not notices."""
        notices = [link for link in links if link.flags & _SCOPE]
        if not notices:
            return links
        self.widen(change, [link.url for link in notices])
        if self._credentials:
            self._give(change, [link.url for link in notices if link.flags & _SEED])
        change.count("splitter.scope_heard", len(notices))
        return [link for link in links if not link.flags & _SCOPE]

    # -- equivalences ----------------------------------------------------------

    def redirected(self, change: Change, fetch: Fetch) -> None:
        """Note the target of an authority's redirect.

        Enough equal redirects prove that the authority and the target are one site.
        """
        target = resolve(fetch.url, fetch.location)
        if target is not None and self._equivalences.redirected(fetch.url, target):
            change.put(EQUIVALENCES, seal(_encode_json(self._equivalences.state())))

    def answered(self, url: str) -> None:
        """Record that an authority answered with a page of its own, not with a redirect."""
        self._equivalences.answered(url)

    def own_keys(self, links: list[Link]) -> list[Link]:
        """Return a peer's links with fingerprints that are computed anew, with the equivalences known here.

        This process may know more equivalences than the peer.
        """
        if not self._equivalences.proven:
            return links
        key = self._fingerprint
        return [msgspec.structs.replace(link, fingerprint=key(link.url)) for link in links]
