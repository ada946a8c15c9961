"""What a crawl learns about the shape of the web: its scope, and which authorities are one site.

    scope          grows by seeds and by where seeds redirect to; one for all processes
    equivalences   http -> https, www <-> apex, proven by redirects; each process's own

Both are stored with the change that taught them. Notices tell the other processes
that the scope grew: links with the flag SCOPE. They go through the outbox, because
a lost notice would lose links.
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
_SCOPE, _SEED = LinkFlag.SCOPE, LinkFlag.SEED
_encode_json = msgspec.json.Encoder().encode


class SiteKnowledge:
    """Keeps scope and equivalences of one process; `peers` are the other processes of the crawl.

    `credentials`: headers with credentials are configured. They go to what was
    given as a seed, so the scope also notes which URLs were given.
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
        """Take URLs (request forms) into the scope; return those that made a difference."""
        return self._keep_scope(change, [url for url in urls if self._filter.widen(url)])

    def _keep_scope(self, change: Change, grown: list[str]) -> list[str]:
        """Keep the scope with the change, if it has `grown`."""
        if grown:
            change.put(SCOPE_STATE, seal(_encode_json(self._filter.scope.state())))
        return grown

    def spread(self, change: Change, urls: Sequence[str]) -> None:
        """Take URLs into the scope, and tell the peers what it has grown by."""
        self._tell(change, self.widen(change, urls), self._peers)

    def given(self, change: Change, urls: Sequence[str]) -> Iterator[None]:
        """Take seeds into the scope; note that credentials may go there, and tell the peers; a pause a portion."""
        widening: list[str] = []
        for portion in portions(urls):
            widening += [url for url in portion if self._filter.widen(url)]
            yield
        self._keep_scope(change, widening)
        self._tell(change, widening, self._peers)
        if self._credentials:
            self._tell(change, self._give(change, urls), self._peers, _SCOPE | _SEED)

    def _give(self, change: Change, urls: Sequence[str]) -> list[str]:
        """Note where credentials may go, and keep it with the change; return the URLs that made a difference."""
        return self._keep_scope(change, [url for url in urls if self._filter.scope.give(url)])

    def trusts(self, url: str) -> bool:
        """Whether headers with credentials may go to this URL: a seed was given for it, no redirect led there."""
        return self._credentials and self._filter.scope.was_given(url)

    def announce(self, change: Change, peers: Sequence[str]) -> None:
        """Tell some processes all that the scope spans."""
        self._tell(change, self._filter.scope.urls(), peers)

    def _tell(self, change: Change, urls: Sequence[str], peers: Sequence[str], flags: int = _SCOPE) -> None:
        if not urls:
            return
        # Not the fingerprint of the link itself, else a compaction of the outbox would keep one of the two.
        kind = _LOW_48 if flags == _SCOPE else _LOW_48 >> 1
        notices = [Link(self._fingerprint(url) ^ kind, url, flags=flags) for url in urls]
        change.foreign += [(peer, list(notices)) for peer in peers]
        change.count("splitter.scope_told", len(notices) * len(peers))

    def apply_notice(self, change: Change, links: list[Link]) -> list[Link]:
        """Widen the scope by the notices among what a peer sent; return the links."""
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
        """Note where an authority redirects to; enough of the same prove that two are one site."""
        target = resolve(fetch.url, fetch.location)
        if target is not None and self._equivalences.redirected(fetch.url, target):
            change.put(EQUIVALENCES, seal(_encode_json(self._equivalences.state())))

    def answered(self, url: str) -> None:
        """Note that an authority answered with a page of its own."""
        self._equivalences.answered(url)

    def own_keys(self, links: list[Link]) -> list[Link]:
        """Links of a peer, which may not know that two authorities are one, under the fingerprints known here."""
        if not self._equivalences.proven:
            return links
        key = self._fingerprint
        return [msgspec.structs.replace(link, fingerprint=key(link.url)) for link in links]
