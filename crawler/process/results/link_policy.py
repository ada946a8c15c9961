"""Decides which links of an answer are followed, and with which depth and flags.

    answer                       links                            depth       flags
    redirect, meta refresh       its target, one hop further      the page's  the page's, and REDIRECT
    page                         its links                        one more
                                 images, styles, scripts          the page's  REQUISITE
                                 links out of scope, if checked   the page's  EXTERNAL
    page, nofollow               none, unless robots.policy is "ignore" (decided by the extractor)
    one copy too many of a host  none (a trap: same_digest_pages_max)
    refetched page with a copy   its links                        as above    NEWS
    sitemap                      the pages it may name            1
                                 the sitemaps of an index         one more    SITEMAP
    robots.txt                   the sitemaps it names            0           SITEMAP
    external link                the target of its redirect       the page's  EXTERNAL and REDIRECT, or in scope

The redirect target of a seed is a seed, so it widens the scope.
"""

from collections.abc import Iterator, Sequence

from crawler.config import Config
from crawler.orders.order import FoundOn
from crawler.pages.repeated_content import RepeatedContent, digest_without_url
from crawler.process.results.admission import Admission, Counted, LinkContext
from crawler.process.results.cross_submits import CrossSubmits
from crawler.process.results.link_scoring import NO_PAGE, REDIRECT, LinkSource, page_score
from crawler.process.results.site_knowledge import SiteKnowledge
from crawler.records import Extracted, Fetch, FetchTask, LinkFlag, Outcome
from crawler.robots.cache import RobotsCache
from crawler.storage.commit import Change
from crawler.urls.canonical import authority, target

_SEED, _SITEMAP = LinkFlag.SEED, LinkFlag.SITEMAP
_REQUISITE, _REDIRECT = LinkFlag.REQUISITE, LinkFlag.REDIRECT
_NEWS, _REFRESH = LinkFlag.NEWS, LinkFlag.REFRESH
_EXTERNAL = LinkFlag.EXTERNAL
_KEPT_BY_REDIRECTS = int(
    LinkFlag.SEED | LinkFlag.SITEMAP | LinkFlag.REQUISITE | LinkFlag.NEWS | LinkFlag.RENDER | LinkFlag.STATIC
)


class LinkPolicy:
    """Follows the links in the answers of one process. The methods that follow links return the number accepted."""

    def __init__(
        self,
        config: Config,
        robots: RobotsCache,
        admission: Admission,
        knowledge: SiteKnowledge,
        *,
        ordered: bool = False,
    ) -> None:
        self._sitemaps = config.sitemaps
        self._checks_external = config.crawl.check_external
        self._redirects_max = config.fetch.redirects_max
        self._copies_max = config.traps.same_digest_pages_max
        self._robots = robots
        self._admission = admission
        self._knowledge = knowledge
        self._ordered = ordered
        self._same_content = RepeatedContent()

    def page(
        self,
        change: Change,
        fetch_task: FetchTask,
        fetch: Fetch,
        extracted: Extracted | None,
        digest: bytes,
        *,
        is_first: bool,
    ) -> Counted:
        """Follow the links in the last answer for a URL.

        `digest` is the digest of the answer's content. `is_first` is True if no earlier fetch of the URL has found a
        page.
        """
        if fetch.outcome is Outcome.REDIRECT:
            self._knowledge.redirected(change, fetch)
            return (yield from self._redirect(change, fetch_task, fetch_task.url, fetch.location))
        if extracted is None:
            return 0
        self._knowledge.answered(fetch.url)
        if extracted.parse_limit:
            change.count("pages.parse_limit")
        withheld = extracted.nofollow and not (extracted.hrefs or extracted.requisites or extracted.refresh)
        copy = self._is_copy(fetch_task, fetch, digest)
        if copy:
            change.count("pages.copies")
        if withheld or copy:
            change.count("pages.links_not_taken")
            return 0
        if fetch_task.flags & _SITEMAP:
            return (yield from self._map(change, fetch_task, extracted, is_first))
        return (yield from self._links(change, fetch_task, extracted, is_first))

    def judging(self, fetch_task: FetchTask, extracted: Extracted, is_first: bool) -> Iterator[None]:
        """Judge the links of a page in advance, one after each pause, so that `page` finds the verdicts in the memo.

        `is_first` has the same meaning as in `page`.
        """
        flags = _news(fetch_task, is_first)
        if fetch_task.flags & _SITEMAP:
            return self._admission.judging(fetch_task.url, extracted.hrefs, flags)
        return self._admission.judging(extracted.base, extracted.hrefs, flags, extracted.encoding)

    def _links(self, change: Change, fetch_task: FetchTask, extracted: Extracted, is_first: bool) -> Counted:
        """Follow all links of a page."""
        yield from self._admission.log(fetch_task, extracted)
        base, encoding = extracted.base, extracted.encoding
        depth, via = fetch_task.depth + 1, fetch_task.fingerprint
        take = self._admission.portions
        source = self._source(fetch_task, extracted, extracted.told_by or "page")
        link_context = LinkContext(depth, via, flags=_news(fetch_task, is_first))
        found = yield from take(change, base, extracted.hrefs, link_context, encoding, source)
        if extracted.requisites:
            found += yield from self._requisites(change, fetch_task, extracted)
        if extracted.refresh:
            found += yield from self._redirect(change, fetch_task, base, extracted.refresh, encoding)
        if self._checks_external:
            external = LinkContext(fetch_task.depth, via, flags=_EXTERNAL)
            found += yield from self._admission.external(change, base, extracted.hrefs, external, encoding)
        return found

    def _requisites(self, change: Change, fetch_task: FetchTask, extracted: Extracted) -> Counted:
        """Follow the requisites of a page, or of another requisite. They get the same depth as the page.

        Style sheets may import others, and frames may contain frames. The limit for redirects ends such
        chains, too.
        """
        hops = fetch_task.redirects + 1 if fetch_task.flags & _REQUISITE else 0
        if hops > self._redirects_max:
            change.count("urls.filtered.redirect_chain", len(extracted.requisites))
            return 0
        link_context = LinkContext(fetch_task.depth, fetch_task.fingerprint, hops, _REQUISITE)
        take, source = self._admission.portions, self._source(fetch_task, extracted, "requisite")
        return (
            yield from take(
                change, extracted.base, extracted.requisites, link_context, extracted.encoding, source
            )
        )

    def _map(self, change: Change, fetch_task: FetchTask, extracted: Extracted, is_first: bool) -> Counted:
        """Follow the pages that a sitemap lists (they get depth 1) and the sitemaps that an index lists."""
        submitted = CrossSubmits(fetch_task, extracted.submitters)
        hrefs = yield from submitted.among(extracted.hrefs)
        pages = LinkContext(1, fetch_task.fingerprint, flags=_news(fetch_task, is_first))
        source = self._source(fetch_task, extracted, "sitemap")
        found = yield from self._admission.portions(change, fetch_task.url, hrefs, pages, source=source)
        if fetch_task.depth < self._sitemaps.depth_max and extracted.maps:
            hrefs = yield from submitted.among(extracted.maps)
            maps = LinkContext(fetch_task.depth + 1, fetch_task.fingerprint, flags=_SITEMAP)
            yield from self._admission.portions(change, fetch_task.url, hrefs, maps)
        return found

    def robots(self, change: Change, fetch_task: FetchTask) -> Counted:
        """Follow the sitemaps that a robots.txt names, and /sitemap.xml if guessing is configured.

        This is done only for hosts in scope, because the sitemaps of other hosts name pages outside the
        scope.
        """
        if not self._sitemaps.robots or not self._admission.in_scope(fetch_task.url):
            return 0
        urls: Sequence[str] = self._robots.rules(authority(fetch_task.url)).sitemaps
        if self._sitemaps.guess:
            urls = [*urls, "/sitemap.xml"]
        return (
            yield from self._admission.portions(change, fetch_task.url, urls, LinkContext(flags=_SITEMAP))
        )

    def _redirect(
        self, change: Change, fetch_task: FetchTask, base: str, location: str, encoding: str = "utf-8"
    ) -> Counted:
        """Follow the target of a redirect or meta refresh. The target is a link with the same depth and one more hop.

        `encoding` is that of the page with the refresh.
        """
        if fetch_task.redirects >= self._redirects_max:
            change.count("urls.filtered.redirect_chain")
            return 0
        flags = fetch_task.flags & _KEPT_BY_REDIRECTS | _REDIRECT
        if flags & _SEED:
            self._admission.spread(change, base, location, flags, encoding)
        hops = fetch_task.redirects + 1
        link_context = LinkContext(fetch_task.depth, fetch_task.fingerprint, hops, flags)
        source = self._source(fetch_task, None, REDIRECT)
        found = yield from self._admission.links(change, base, [location], link_context, encoding, source)
        if self._checks_external and not found:
            external = LinkContext(
                fetch_task.depth, fetch_task.fingerprint, hops, flags=_EXTERNAL | _REDIRECT
            )
            found = yield from self._admission.external(change, base, [location], external, encoding)
        return found

    def _source(self, fetch_task: FetchTask, extracted: Extracted | None, kind: str) -> LinkSource:
        """Return the facts about a page that are needed to score its links for the order of new URLs."""
        if not self._ordered:
            return NO_PAGE
        score = page_score(fetch_task.order)
        if extracted is None:
            return LinkSource(FoundOn(fetch_task.url, score, fetch_task.depth, kind=kind))
        links = len(extracted.hrefs) + len(extracted.requisites)
        page = FoundOn(fetch_task.url, score, fetch_task.depth, extracted.title, links, kind)
        return LinkSource(page, dict(zip(extracted.hrefs, extracted.anchors, strict=False)))

    def _is_copy(self, fetch_task: FetchTask, fetch: Fetch, digest: bytes) -> bool:
        """Return whether too many pages of the host had the same content before this page."""
        key = digest_without_url(fetch.content, target(fetch.url), digest)
        return self._same_content.count(fetch_task.host, key) > self._copies_max


def _news(fetch_task: FetchTask, is_first: bool) -> int:
    """Return the flag NEWS for the links of a page that was refetched and had a copy, and 0 for those of other pages.

    The links of a first copy may have been there for any length of time.
    """
    return _NEWS if fetch_task.flags & _REFRESH and not is_first else 0
