"""Passes POST requests to their handlers: signals, IndexNow keys, WebSub subscriptions."""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol

import msgspec

from crawler.config import ServeConfig
from crawler.serve import indexnow
from crawler.serve.http_server import json_reply
from crawler.serve.interfaces import ServedCrawl
from crawler.serve.page_handler import OwnedByOther
from crawler.serve.query import query_fields
from crawler.serve.reply import Reply
from crawler.serve.request_parsing import ParsedRequest, Route
from crawler.serve.signal_handler import Signal, SignalHandler, parse
from crawler.serve.websub import Subscriptions, slot_of

# Fetches the key file at a URL as politely as the crawl, unless a recent copy contains the key; returns None
# if there is no file.
FetchKeyFile = Callable[[str, str], Awaitable[bytes | None]]
# Returns the links of the items of a feed, from the content and the URL of the feed.
ItemLinks = Callable[[bytes, str], list[str]]


class Notices(Protocol):
    """The store of notices that wait for their key files."""

    def load(self) -> list[indexnow.Notice]:
        """Return the notices stored by earlier runs."""

    async def keep(self, notice: indexnow.Notice) -> None:
        """Store a notice; raise HttpError (503) if storing takes too long."""

    def judged(self, notice: indexnow.Notice, urls: Sequence[str], source: str) -> None:
        """Queue `urls` as signals and delete the stored notices with the key of `notice`, in one change."""


class NotificationHandlers:
    """Answers the POST endpoints in the process `me`. `processes` are the names of all processes.

    `signal` submits signals. `notices` stores notices that wait for key files, and `fetch_key_file` fetches
    these files. `item_links` extracts the links of a WebSub delivery. `in_background` runs work that must not
    delay an answer.
    """

    def __init__(
        self,
        crawl: ServedCrawl,
        config: ServeConfig,
        now: Callable[[], float],
        *,
        signal: Signal,
        notices: Notices,
        processes: Sequence[str] = ("p0",),
        me: str = "p0",
        random: Callable[[int], bytes],
        fetch_key_file: FetchKeyFile,
        item_links: ItemLinks,
        in_background: Callable[[Coroutine[Any, Any, None]], object],
    ) -> None:
        self._crawl = crawl
        self._config = config
        self._now = now
        self._processes, self._me = processes, me
        self._fetch_key_file = fetch_key_file
        self._item_links = item_links
        self._in_background = in_background
        self._notices = notices
        self.signals = SignalHandler(signal, config.signals_per_second, config.signal_urls_max)
        self.keys = indexnow.Keys(config.key_files_max, config.pending_bytes_max)
        self.subscriptions = Subscriptions(random, processes.index(me))

    def resume(self) -> None:
        """Fetch the key files for notices that earlier runs left undecided."""
        for notice in self._notices.load():
            if self.keys.wait(notice):
                self._in_background(self._look_at_key(notice))

    async def receive(self, asked: ParsedRequest, request: Any, body: bytes) -> Reply:
        """Return the reply to a request to a POST endpoint.

        Raises:
            HttpError: with the status that the endpoint's protocol defines.
            OwnedByOther: another process owns the site's key file, or the subscription.
        """
        method = request.method
        if asked.door is Route.SIGNAL:
            said = await self.signals.handle(*parse(body, self.signals.urls_max), self._now())
            return json_reply(200, msgspec.json.encode(said.plain()) + b"\n")
        query = request.raw_path.partition("?")[2]
        if asked.door is Route.INDEXNOW:
            if method == "POST":
                notice = indexnow.parse_post(body, self._config.signal_urls_max)
            else:
                notice = indexnow.parse_get(query_fields(query, "/indexnow", indexnow.PARAMETERS))
            located = self._crawl.locate(notice.location)
            if located.archive is None:
                raise OwnedByOther(located.owner, body)
            return await self._indexnow(notice)
        owner = self._processes[slot_of(asked.rest, len(self._processes))]
        if owner != self._me:
            raise OwnedByOther(owner, body)
        if method == "POST":
            return await self._delivered(asked.rest, body, request.headers.get("X-Hub-Signature", ""))
        fields = query_fields(query, "/websub")  # a hub may send more parameters
        challenge = self.subscriptions.verify(asked.rest, fields, self._now()).encode()
        return Reply(
            200,
            b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX-Content-Type-Options: nosniff\r\n",
            len(challenge),
            challenge,
        )

    async def _indexnow(self, notice: indexnow.Notice) -> Reply:
        status, fetch = self.keys.submit(notice, self._now())
        if status == 200:
            source = f"indexnow:{notice.host}"
            said = await self.signals.handle(notice.urls, source, self._now(), whole=True)
            return json_reply(status, msgspec.json.encode(said.plain()) + b"\n")
        if fetch:
            self._in_background(self._look_at_key(notice))
        await self._notices.keep(notice)
        return json_reply(status, b'{"waiting": %d}\n' % len(notice.urls))

    async def _look_at_key(self, notice: indexnow.Notice) -> None:
        try:
            text = await self._fetch_key_file(notice.location, notice.key)
        except indexnow.KeyUnreadError:
            return  # the notice is stored, and the next run decides about it
        except Exception:
            text = None
        urls = self.keys.found(notice, text, self._now())
        # No rate limit applies here, because these URLs were accepted before, and `pending_bytes_max` limits
        # them.
        self._notices.judged(notice, urls, f"indexnow:{notice.host}")

    async def _delivered(self, token: str, body: bytes, signature: str) -> Reply:
        subscription = self.subscriptions.deliver(token, body, signature, self._now())
        if subscription is None:
            return json_reply(202, b'{"ignored": "signature"}\n')
        links = self._item_links(body, subscription.topic)[: self._config.signal_urls_max]
        said = await self.signals.handle(links, f"websub:{subscription.hub}", self._now(), whole=True)
        return json_reply(202, msgspec.json.encode(said.plain()) + b"\n")
