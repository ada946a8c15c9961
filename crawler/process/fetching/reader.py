"""Extracts the links of an answer: chooses the extractor for the answer, and parses large answers in a child process.

HTML, XHTML, or no usable type and HTML by its first bytes   extract.links, heavy pages in a child process
a sitemap (fetched as a sitemap)                             extract.sitemap
RSS and Atom, if configured                                  extract.feed
a style sheet, if page requisites are fetched                extract.css

Large sitemaps, feeds and style sheets are parsed in a separate child process, so that pages do not wait for
them. `news` compares the dates in a document with those in the stored copy of the document. If the date of a
page differs, this is a signal that the page has changed.
"""

import asyncio
from collections.abc import Callable, Iterable

import msgspec

from crawler.config import Config
from crawler.extract.collected import Context
from crawler.extract.documents import Document, DocumentKind, dated, read_document
from crawler.extract.feed import is_feed, read_feed
from crawler.extract.links import links_with_repeats
from crawler.extract.listing import is_listing, read_listing
from crawler.extract.loop_share import LoopShare
from crawler.extract.map_stream import MapStream
from crawler.extract.page_rules import NAMES, PageRules
from crawler.extract.sitemap import Entry, read_sitemap
from crawler.extract.worker import Apart, Holding, Worker, nothing, work
from crawler.forked_children import ForkedChild, can_fork, fork_children
from crawler.pages.stored_bodies import content_of
from crawler.records import Extracted, Fetch, FetchTask, LinkFlag, Outcome
from crawler.turn_share import UserTurns
from crawler.urls.media_type import CSS, is_page

Extractor = Callable[[FetchTask, Fetch], Iterable[str]]

# XML and CSS up to this size are parsed in the event loop; this takes about 0.1 us per byte, at worst 0.6 us.
INLINE_BYTES_MAX = 64 << 10

_SITEMAP, _REQUISITE = LinkFlag.SITEMAP, LinkFlag.REQUISITE
_REFRESH = LinkFlag.REFRESH
_READABLE = (Outcome.FETCHED, Outcome.TRUNCATED)


def fork_parser() -> ForkedChild | None:
    """Fork a process to parse heavy pages, before an event loop exists. Return None if this is not possible."""
    return fork_children(work, 1, helpers=True)[0] if can_fork() else None


Dates = list[tuple[str, float]]


def new_dates(dated: Dates, known: Iterable[Entry]) -> tuple[Dates, Dates]:
    """Return the entries of `dated` whose dates differ from those in `known`, and the entries without a date there."""
    before = {entry.loc: entry.lastmod for entry in known}
    changed = [(loc, at) for loc, at in dated if before.get(loc) not in (None, at)]
    return changed, [(loc, at) for loc, at in dated if before.get(loc) is None]


class Reader:
    """Extracts the links of answers. If an `extractor` is given, it replaces the built-in one for HTML pages.

    If `reads_anchors` is true, anchor texts are extracted, too. `user_turns` distributes the calls of the extractor.
    """

    def __init__(
        self,
        config: Config,
        extractor: Extractor | None = None,
        parser: ForkedChild | None = None,
        share: LoopShare | None = None,
        *,
        reads_anchors: bool = False,
        user_turns: UserTurns | None = None,
    ) -> None:
        self._config = config
        self._user_turns = UserTurns() if user_turns is None else user_turns
        self.reads_anchors = reads_anchors
        self._extractor = extractor
        self._worker = Worker(config.extract, parser, share)
        self._documents = Worker(
            msgspec.structs.replace(config.extract, cpu_seconds_max=config.sitemaps.cpu_seconds_max)
        )
        self._rules = PageRules(config, want_anchors=reads_anchors)
        # limits the memory: only one stored copy is read at a time, because a copy may have 50 MiB
        self._comparing = asyncio.Lock()

    def charge(self, holding: Holding) -> None:
        """Set `holding`, the object that counts the memory held while a child process parses."""
        self._worker.holding = holding

    def follow(self, fetch_task: FetchTask) -> MapStream | None:
        """Return a stream that parses a sitemap while it arrives; None for a page.

        The caller must pass it to `read` or `drop`.
        """
        if not fetch_task.flags & _SITEMAP:
            return None
        document = Document.of(
            DocumentKind.SITEMAP, Fetch(fetch_task.url, Outcome.FETCHED), self._config.sitemaps
        )
        return self._documents.follow(document, INLINE_BYTES_MAX)

    def drop(self, stream: MapStream | None) -> None:
        """Discard a sitemap stream whose result is not needed."""
        if stream is not None:
            self._documents.drop(stream)

    async def read(
        self, fetch_task: FetchTask, fetch: Fetch, apart: Apart = nothing, stream: MapStream | None = None
    ) -> Extracted | None:
        """Return the content extracted from the answer; None if links are not read from such an answer.

        `apart` is called before a wait for a child process. `stream` has received the content of the answer
        while it arrived.
        """
        if stream is not None and self._is_streamed(fetch, stream):
            apart()
            document = Document.of(DocumentKind.SITEMAP, fetch, self._config.sitemaps)
            return await self._documents.read_stream(stream, content_of(fetch), document)
        self.drop(stream)
        if fetch.outcome not in _READABLE:
            return None
        if fetch_task.flags & _SITEMAP:
            return await self._document(DocumentKind.SITEMAP, fetch_task, fetch, apart)
        kind = fetch.content_type
        if is_page(kind, fetch.content):
            return await self._page(fetch_task, fetch, apart)
        if self._config.sitemaps.feeds and is_feed(kind, fetch.content):
            return await self._document(DocumentKind.FEED, fetch_task, fetch, apart)
        if self._config.crawl.requisites and kind == CSS:
            return await self._document(DocumentKind.SHEET, fetch_task, fetch, apart)
        return None

    @staticmethod
    def _is_streamed(fetch: Fetch, stream: MapStream) -> bool:
        """Return whether `stream` has all content, and its size is one that a child process parses."""
        if fetch.outcome not in _READABLE or fetch.undecoded:
            return False
        return fetch.part is not None or stream.nbytes == len(fetch.content) > INLINE_BYTES_MAX

    async def _document(
        self, kind: DocumentKind, fetch_task: FetchTask, fetch: Fetch, apart: Apart
    ) -> Extracted:
        """Parse a small document at once, and a large one in the child. If the child fails, there are no links."""
        document = Document.of(kind, fetch, self._config.sitemaps)
        if len(fetch.content) <= INLINE_BYTES_MAX:
            await self._worker.share.mine()
            with self._worker.share:
                return read_document(fetch.content, document, self._config.extract)
        apart()
        return await self._documents.read(fetch.content, self._context(fetch_task, fetch), document)

    async def news(self, extracted: Extracted, fetch: Fetch, known_content: Callable[[], bytes]) -> None:
        """Keep only the dates that the stored copy, which `known_content` reads, does not state.

        If a sitemap gives a date for the first time, this does not mean that the page has changed. But if a feed
        lists an item for the first time, this counts as a change of the page.
        """

        def compare() -> tuple[Dates, Dates]:
            entries = self._entries(extracted.told_by, known_content(), fetch.url)
            changed, first = new_dates(extracted.dated, entries)
            if not entries:
                return changed, []
            return (changed + first, []) if extracted.told_by == "feed" else (changed, first)

        if fetch.part is None and len(fetch.content) <= INLINE_BYTES_MAX:
            extracted.dated, extracted.first_dated = compare()
        else:
            async with self._comparing:
                extracted.dated, extracted.first_dated = await asyncio.to_thread(compare)

    def _entries(self, told_by: str, content: bytes, url: str) -> list[Entry]:
        if told_by == "sitemap":
            return read_sitemap(content, self._config.sitemaps).entries
        links_max = self._config.extract.links_max
        if told_by == "listing":
            return read_listing(content, links_max)
        return read_feed(content, links_max, url).entries

    async def _page(self, fetch_task: FetchTask, fetch: Fetch, apart: Apart) -> Extracted:
        context = self._context(fetch_task, fetch)
        extracted = await self._worker.extract(fetch.content, context, apart)
        if self._config.crawl.trace and not extracted.parse_limit:
            extracted.repeats = links_with_repeats(fetch.content, context, self._config.extract)
        if fetch_task.flags & _REFRESH and is_listing(fetch.content):
            rows = read_listing(fetch.content, self._config.extract.links_max)
            extracted.dated, extracted.told_by = dated(rows, fetch.began), "listing"
        if fetch_task.flags & _REQUISITE:
            extracted.hrefs, extracted.anchors, extracted.refresh = [], [], ""
        elif self._extractor is not None and not (extracted.nofollow and context.obey_robots):
            await self._user_turns.mine("link extractor")
            extracted.hrefs, extracted.anchors = list(dict.fromkeys(self._extractor(fetch_task, fetch))), []
        return extracted

    def _context(self, fetch_task: FetchTask, fetch: Fetch) -> Context:
        headers = fetch.headers if fetch.has_any(NAMES) else ()
        return self._rules.context(fetch.url, headers, fetch.content_type, fetch.charset, fetch_task.url)

    async def close(self) -> None:
        """End the child processes."""
        await self._worker.close()
        await self._documents.close()
