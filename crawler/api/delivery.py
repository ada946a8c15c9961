"""Delivers each page to the user's code at least once.

One commit marks a page as delivered and queues the requests that the user's callback made for it:

    commit of a page   x/<fingerprint> records that it waits       (`promise`)
    user's code        page sink, callback, consumer of `pages()`  (`deliver`)
    items              written and synced
    commit             x/ is deleted, the callback's requests are added (one change)

If the user's code raises, the error is counted and logged with the URL, and the page waits: the next run
reads it from the page cache and delivers it first (`deliver_waiting`). After a crash, the next run also
delivers the waiting pages first.

A run that has nothing else to fetch calls the errbacks of the requests whose servers do not answer
(`deliver_unreached`). The unanswered requests stay in the queue, and the next run tries them again.

If a callback yields a request that the URL filter rejects, the request is dropped, and its errback is called
at once.
"""

import asyncio
import inspect
import itertools
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from msgspec.structs import replace

from crawler.api import request as requests
from crawler.api.callbacks import FILTERED, Callbacks, JudgedRequests, RequestJudge
from crawler.api.item_files import ItemFiles, Misuse
from crawler.api.items import ItemError, plain
from crawler.api.page import Page
from crawler.api.request import Callback, Handover, Request, callback_name
from crawler.consent.describing import in_plain
from crawler.errors import DamageError, StoreError, UsageError
from crawler.export.stored_pages import StoredPages
from crawler.fetcher.framing import head_of
from crawler.fetcher.outcome import of_head
from crawler.frontier.waiting_urls import waiting_urls
from crawler.pages.captures import StoredPage
from crawler.pages.stored_bodies import content_of
from crawler.process.process import Process
from crawler.process.results.admission import LinkContext
from crawler.records import Extracted, Fetch, FetchTask, Link, LinkFlag, Outcome, RequestOptions
from crawler.storage.commit import Change, Making, Pause
from crawler.storage.kv import scan_prefix
from crawler.urls.canonical import canonical, resolve

log = logging.getLogger("crawler")

OnError = Literal["continue", "stop"]
ItemProcessor = Callable[[Any, Page], Any]  # (item, page) -> the item, changed or not, or None to drop it
Consume = Callable[[Page], Awaitable[bool]]  # page -> whether the consumer took it
Take = Callable[[], Awaitable[bool]]


_PACKAGE = Path(__file__).resolve().parents[1]
_RANKED, _SEED, _OWN_REQUEST = LinkFlag.RANKED, LinkFlag.SEED, LinkFlag.OWN_REQUEST
_URLS_A_TURN = 1_000  # number of waiting URLs that are examined before other tasks of the event loop may run
# maximum number of unreachable requests per run whose errbacks are called
_UNREACHED_MAX = 1_000_000
_STORED = (Outcome.FETCHED, Outcome.EMPTY, Outcome.TRUNCATED, Outcome.UNCHANGED)


class Errors:
    """Counts errors of the user's code by kind and logs them with the URL, or ends the run at the first ("stop")."""

    def __init__(self, on_error: OnError, fail: Callable[[BaseException], None]) -> None:
        self.counts: Counter[str] = Counter()
        self._on_error = on_error
        self._fail = fail

    def note(self, kind: str, url: str, error: Exception) -> None:
        """Count an error of the user's filter, extractor, sink or callback, or of an item.

        The part of the traceback that is in the user's code is logged. The error of an item has no such part.
        """
        self.counts[kind] += 1
        if self._on_error == "stop":
            error.add_note(f"raised by your code: {kind} of {url}")
            self._fail(error)
        else:
            said = None
            if not isinstance(error, ItemError):
                said = (type(error), error, _in_users_code(error.__traceback__))
            log.error(
                "error in your code: %s of %s: %s: %s", kind, url, type(error).__name__, error, exc_info=said
            )

    def end(self, error: UsageError) -> None:
        """End the run, because the given arguments would make the delivery of every page fail."""
        self._fail(error)


def _in_users_code(frames: TracebackType | None) -> TracebackType | None:
    """Return the traceback from the first frame of the user's code on, without the crawler's frames before it."""
    inner = frames
    while inner is not None and Path(inner.tb_frame.f_code.co_filename).is_relative_to(_PACKAGE):
        inner = inner.tb_next
    return inner or frames


class Delivery:
    """Delivers the pages of `process` to the user's code.

    `parse` is the callback for pages whose request names no other callback. It receives answers with status
    2xx. `sink` and the consumer (`consume`) receive all pages.
    """

    def __init__(
        self,
        process: Process,
        errors: Errors,
        *,
        sink: Callable[[Page], object] | None = None,
        parse: Callback | None = None,
        items: ItemFiles,
        processors: Sequence[ItemProcessor] = (),
    ) -> None:
        self._process = process
        stages = process.stages
        self._store, self._archive, self._admission = stages.store, stages.pages, stages.decisions.admission
        self._fingerprinter = stages.fingerprinter
        self._content_max = stages.config.fetch.body_bytes_max
        self._pages = StoredPages(stages.config)
        self._errors = errors
        self._sink = sink
        self._parse = parse
        self._items = items
        self._processors = processors
        self._callbacks = Callbacks(parse)
        # keys of handovers that are not durable yet; a handover is the data that a request passes to its page
        self._keeping: set[bytes] = set()
        self._syncing: asyncio.Task[None] | None = None
        # fingerprints of the requests that `deliver_unreached` has delivered
        self._unreached: set[int] = set()
        self._judge = RequestJudge(stages.decisions.admission)
        self._turns = process.user_turns
        self.consume: Consume | None = None

    @property
    def wanted(self) -> bool:
        """Return whether the user has given any code that receives pages."""
        return self._sink is not None or self.consume is not None or self._callbacks.are_given

    # -- the crawl's side ------------------------------------------------------

    def promise(self, fetch_task: FetchTask, fetch: Fetch, change: Change) -> None:
        """Record in `change` that the page waits for the user's code, if the page can be read back."""
        if not fetch.final:
            return
        if fetch.outcome in _STORED:
            kept = self._handover(fetch_task.fingerprint)
            waiting = Handover(kept.callback, kept.meta, True, fetch_task.depth)
            change.put(requests.key(fetch_task.fingerprint), requests.pack(waiting))
        elif fetch.outcome is Outcome.REDIRECT:
            self._pass_on(fetch_task, fetch, change)
        elif (kept := self._handover(fetch_task.fingerprint)).errback:
            failed = (fetch.url, fetch.status, str(fetch.outcome))
            waiting = Handover("", kept.meta, True, fetch_task.depth, errback=kept.errback, failed=failed)
            change.put(requests.key(fetch_task.fingerprint), requests.pack(waiting))

    def _pass_on(self, fetch_task: FetchTask, fetch: Fetch, change: Change) -> None:
        """Keep the callback of a redirected request for the redirect's target, unless the target has been fetched."""
        kept = self._handover(fetch_task.fingerprint)
        target = resolve(fetch.url, fetch.location)
        if target is not None and (kept.callback or kept.meta or kept.errback):
            self._keep(change, self._fingerprinter.fingerprint(target), kept)

    def request_options_of(self, fetch_task: FetchTask) -> RequestOptions:
        """Return the request options of a fetch task that has the flag OWN_REQUEST."""
        return self._handover(fetch_task.fingerprint).options

    def flags_of(self, fetch_task: FetchTask) -> int:
        """Return the `LinkFlag`s that say whether a request wants its page to be rendered in a browser.

        The flags of a link are lost if the URL was already queued when the request was made.
        """
        return self._handover(fetch_task.fingerprint).flags

    def rank_of(self, link: Link) -> int:
        """Return the rank of a link in its host's queue."""
        return self._handover(link.fingerprint).rank if link.flags & _RANKED else requests.PRIORITY

    def begin(self, request: Request) -> None:
        """Queue a request that is a seed; its URL then counts as a seed, too."""
        self._callbacks.remember(request)
        self._process.commits.queue(lambda: self._seed(request))

    def _seed(self, request: Request) -> Making:
        change = Change()
        url = canonical(request.url)
        assert url is not None, request
        yield from self._admission.given(change, [url])
        yield from self._ask(change, url, request, LinkContext(flags=_SEED))
        return change

    async def deliver(self, fetch_task: FetchTask, fetch: Fetch, extracted: Extracted | None) -> None:
        """Deliver a page that is durable."""
        handover = self._handover(fetch_task.fingerprint)
        if fetch.outcome is Outcome.ROBOTS_DENIED and not handover.errback:
            return
        consent = self._consent(fetch_task.fingerprint)
        page = page_of(fetch_task, fetch, extracted, handover.meta, self._content_max, consent)
        await self._hand_over(fetch_task.fingerprint, page, handover, final=fetch.final)

    async def deliver_waiting(self) -> None:
        """Deliver the pages that were still waiting when an earlier run ended."""
        waiting = [
            (int.from_bytes(at[2:], "big"), handover)
            for at, value in scan_prefix(self._store, requests.HANDOVER)
            if (handover := requests.unpack(at, value)).waiting
        ]
        for fingerprint, handover in waiting:
            if is_over(self._process):
                return
            if (page := self._stored(fingerprint, handover)) is not None:
                await self._hand_over(fingerprint, page, handover)

    async def deliver_unreached(self) -> bool:
        """Call the errback of each request whose server does not answer, once per run. Return whether any was called."""
        stored = scan_prefix(self._store, requests.HANDOVER)
        if not any(requests.unpack(at, value).errback for at, value in stored):
            return False
        before = len(self._unreached)
        for count, waiting in enumerate(waiting_urls(self._store)):
            if not count % _URLS_A_TURN:
                await asyncio.sleep(0)
            if self._process.run_end.stopping() or len(self._unreached) == _UNREACHED_MAX:
                break
            fingerprint = waiting.fingerprint
            if waiting.failing is None or fingerprint in self._unreached:
                continue
            handover = self._handover(fingerprint)
            if handover.errback:
                self._unreached.add(fingerprint)
                outcome = waiting.failing.outcome
                page = Page(waiting.url, 0, outcome, waiting.depth, 0.0, "", (), b"", meta=handover.meta)
                await self._hand_over(fingerprint, page, handover, final=False, reached=False)
        return len(self._unreached) > before

    def _stored(self, fingerprint: int, handover: Handover) -> Page | None:
        if handover.failed is not None:
            url, status, outcome = handover.failed
            return Page(url, status, outcome, handover.depth, 0.0, "", (), b"", meta=handover.meta)
        try:
            stored = self._archive.get(fingerprint, with_noarchive=True)
        except DamageError as error:
            log.error("a page that waits for its callback cannot be read: %s", error)
            return None
        if stored is None:
            return None
        record = self._archive.record(fingerprint)
        flags = record.flags if record is not None else 0
        consent = in_plain(self._store, fingerprint, stored.capture)
        return stored_page(stored, self._pages, flags, handover.depth, handover.meta, consent)

    def _consent(self, fingerprint: int) -> dict[str, Any]:
        """Return the receipt of a page that is durable; {} if it has none."""
        record = self._archive.record(fingerprint)
        return {} if record is None else in_plain(self._store, fingerprint, record)

    def _handover(self, fingerprint: int) -> Handover:
        at = requests.key(fingerprint)
        return requests.unpack(at, self._store.get(at))

    # -- the user's side -------------------------------------------------------

    async def _hand_over(
        self, fingerprint: int, page: Page, handover: Handover, *, final: bool = True, reached: bool = True
    ) -> None:
        judged = JudgedRequests([], [])
        if reached:
            takers = self._takers(page, handover, judged, final)
        else:
            takers = iter([("errback", partial(self._call_back, page, handover.errback, judged))])
        for kind, take in itertools.chain(takers, self._rejections(page, judged)):
            await self._turns.mine(kind)
            try:
                if not await take():
                    return
            except StoreError:
                raise
            except Misuse as error:
                return self._errors.end(error)
            except Exception as error:
                return self._errors.note(kind, page.url, error)
        if self._items.files:
            await self._sync()
        self._judge.tell(judged)
        if final or judged != JudgedRequests([], []):
            self._process.commits.queue(lambda: self._change(fingerprint, page, judged, final))

    def _takers(
        self, page: Page, handover: Handover, judged: JudgedRequests, final: bool
    ) -> Iterator[tuple[str, Take]]:
        if self._sink is not None:
            yield "sink", partial(_called, self._sink, page)
        # if a page should have been rendered but was not, the parts that its scripts build are missing
        shown = page.outcome != Outcome.NOT_RENDERED
        if final and page.ok and shown and (self._parse is not None or handover.callback):
            yield "callback", partial(self._call_back, page, handover.callback, judged)
        elif final and handover.errback and not page.ok and page.outcome != Outcome.REDIRECT:
            yield "errback", partial(self._call_back, page, handover.errback, judged)
        if self.consume is not None:
            yield "pages", partial(self.consume, page)

    def _rejections(self, page: Page, judged: JudgedRequests) -> Iterator[tuple[str, Take]]:
        """Yield the calls of the errbacks of rejected requests, but not of the requests that these errbacks yield."""
        for url, request, _ in tuple(judged.rejected):
            if request.errback is not None:
                self._callbacks.remember(request)
                filtered = Page(url, 0, FILTERED, page.depth + 1, 0.0, "", (), b"", meta=dict(request.meta))
                yield "errback", partial(self._call_back, filtered, callback_name(request.errback), judged)

    async def _call_back(self, page: Page, name: str, judged: JudgedRequests) -> bool:
        """Run a callback with the page. If the callback raises, discard the items that it has yielded."""
        rows = []
        async for each in _results(self._callbacks.named(name)(page)):
            await self._turns.mine("callback")
            if isinstance(each, Request):
                self._judge.add(page, each, judged)
            elif each is not None and (item := await self._processed(each, page)) is not None:
                rows.append((self._items.file_of(item), plain(item)))
        for file, row in rows:
            file.add(row)
        return True

    async def _processed(self, item: Any, page: Page) -> Any:
        """Pass the item through the item processors; return the result, or None if one of them drops it."""
        for process in self._processors:
            item = process(item, page)
            if inspect.isawaitable(item):
                item = await item
            if item is None:
                return None
        return item

    async def _sync(self) -> None:
        """Make the items durable. Callers that arrive in the meantime share the next sync."""
        begun = self._syncing
        if begun is not None and not begun.done():
            await asyncio.shield(begun)
        if self._syncing is None or self._syncing.done():
            self._syncing = asyncio.ensure_future(asyncio.to_thread(self._items.sync))
        await asyncio.shield(self._syncing)

    def _change(self, fingerprint: int, page: Page, judged: JudgedRequests, final: bool) -> Making:
        """Return the change that adds the requests of a page as links and, if `final`, marks the page as delivered."""
        change = Change()
        if final:
            change.delete(requests.key(fingerprint))
        link_context = LinkContext(page.depth + 1, fingerprint)
        for _, _, rule in judged.rejected:
            change.count("urls.links")
            change.count(f"urls.filtered.{rule}")
        urls = []
        for url, request in judged.accepted:
            if (yield from self._ask(change, url, request, link_context, plainly=False)):
                urls.append(url)
        if urls:
            yield from self._admission.links(change, page.url, urls, link_context)
        return change

    def _ask(
        self, change: Change, url: str, request: Request, link_context: LinkContext, *, plainly: bool = True
    ) -> Generator[Pause, None, bool]:
        """Store a request's options and queue the request.

        If `plainly` is False and the request has no flags, the caller queues the request itself, as a plain
        link. In this case, only store the options, and return True. Otherwise, return False.
        """
        self._callbacks.remember(request)
        printer = self._fingerprinter
        fingerprint = request.fingerprint(printer.fingerprint(url), printer.hash)
        handover = Handover.of(request)
        if handover != Handover():
            self._keep(change, fingerprint, handover)
        if not request.flags and not plainly:
            return True
        flags = link_context.flags | request.flags
        yield from self._admission.one(change, url, fingerprint, replace(link_context, flags=flags))
        return False

    def _keep(self, change: Change, fingerprint: int, handover: Handover) -> None:
        """Store the handover of a page, unless the page was fetched or an earlier request has stored its handover."""
        at = requests.key(fingerprint)
        known = self._archive.record(fingerprint) is not None or self._store.get(at) is not None
        if not known and at not in self._keeping:
            self._keeping.add(at)
            change.put(at, requests.pack(handover))
            change.after.append(lambda: self._keeping.discard(at))


def is_over(process: Process) -> bool:
    """Return whether the run was stopped, or has already reached its limit of time."""
    limit, elapsed = process.context.config.crawl.max_time, process.context.clock.now() - process.started
    return process.run_end.stopping() or bool(limit and elapsed >= limit)


def page_of(
    fetch_task: FetchTask,
    fetch: Fetch,
    extracted: Extracted | None,
    meta: dict[str, Any],
    content_max: int = 0,
    consent: dict[str, Any] | None = None,
) -> Page:
    """Return the page of a fetch, in rendered form if a browser rendered it, with its consent receipt.

    At most `content_max` bytes are read from a file.
    """
    shown = fetch.shown
    return Page(
        url=fetch.url if fetch_task.flags & _OWN_REQUEST else fetch_task.url,
        status=fetch.status,
        outcome=str(fetch.outcome),
        depth=fetch_task.depth,
        fetched_at=fetch.began,
        content_type="text/html" if shown else fetch.content_type,
        raw_headers=fetch.headers,
        content=shown.dom if shown else _content(fetch, content_max),
        links=tuple(extracted.hrefs) if extracted else (),
        title=extracted.title if extracted else "",
        charset="utf-8" if shown else fetch.charset,
        meta=meta,
        rendered=shown is not None,
        consent=consent or {},
    )


def _content(fetch: Fetch, most: int) -> bytes:
    """Return the content of an answer, or b"" for a file of more than `most` bytes."""
    if fetch.part is None:
        return fetch.content
    content = b""
    for piece in content_of(fetch):
        content += piece
        if len(content) > most:
            return b""
    return content


def stored_page(
    stored: StoredPage,
    pages: StoredPages,
    flags: int = 0,
    depth: int = 0,
    meta: dict[str, Any] | None = None,
    consent: dict[str, Any] | None = None,
) -> Page:
    """Return a page read back from the page cache by `pages`; `flags` are the LinkFlags of its URL."""
    capture = stored.capture
    found = pages.read(stored, flags)
    head = head_of(stored.headers, version=stored.version, status=stored.status, reason=stored.reason)
    outcome = Outcome.TRUNCATED if capture.broken else of_head(head, has_body=bool(stored.payload))
    return Page(
        url=capture.url,
        status=stored.status,
        outcome=str(outcome),
        depth=depth,
        fetched_at=capture.fetched_at,
        content_type=capture.content_type,
        raw_headers=stored.headers,
        content=stored.content,
        links=tuple(found.hrefs) if found is not None else (),
        title=found.title if found is not None else "",
        charset=stored.header_charset,
        meta=meta or {},
        rendered=stored.rendered,
        consent=consent or {},
    )


async def _called(sink: Callable[[Page], object], page: Page) -> bool:
    answer = sink(page)
    if inspect.isawaitable(answer):
        await answer
    return True


async def _results(made: Any) -> AsyncIterator[Any]:
    """Yield the results of a callback, which may be a generator, an async generator, a coroutine, a list or None."""
    if inspect.isasyncgen(made):
        async for each in made:
            yield each
        return
    if inspect.isawaitable(made):
        made = await made
    if made is None:
        return
    if isinstance(made, Request) or not isinstance(made, Iterable) or isinstance(made, dict):
        made = [made]
    for each in made:
        yield each
