"""Passes requests to the receivers: signals, IndexNow's keys, WebSub's subscriptions."""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from crawler.config import ServeConfig
from crawler.serve import indexnow
from crawler.serve.asked import Asked, Door
from crawler.serve.listening import json_reply
from crawler.serve.refusal import Refusal
from crawler.serve.reply import Reply
from crawler.serve.seam import ServedCrawl, Signalled
from crawler.serve.signals import SignalDesk, parse
from crawler.serve.websub import Subscriptions

SLICE = 250  # URLs taken in one turn of the loop: some 3 ms

FetchText = Callable[
    [str], Awaitable[bytes | None]
]  # politely, as the crawl fetches; None: there is no such text
ReadFeed = Callable[[bytes], list[str]]  # the links of a feed's entries


class Receivers:
    """Answers the doors that take something in.

    `fetch_text` fetches IndexNow's key files, `read_feed` takes the entries out
    of a WebSub delivery, `in_background` runs what must not hold an answer up,
    `pause` lets other work have a turn.
    """

    def __init__(
        self,
        crawl: ServedCrawl,
        config: ServeConfig,
        now: Callable[[], float],
        *,
        random: Callable[[int], bytes],
        fetch_text: FetchText,
        read_feed: ReadFeed,
        in_background: Callable[[Coroutine[Any, Any, None]], object],
        pause: Callable[[], Awaitable[None]],
    ) -> None:
        self._config = config
        self._now = now
        self._fetch_text = fetch_text
        self._read_feed = read_feed
        self._in_background = in_background
        self._pause = pause
        self.signals = SignalDesk(crawl, config.signals_per_second, config.signal_urls_max)
        self.keys = indexnow.Keys(config.key_files_max)
        self.subscriptions = Subscriptions(random)

    async def receive(self, asked: Asked, request: Any, body: bytes) -> Reply:
        """The reply at one of the receivers' doors.

        Raises:
            Refusal: with the status that the door's protocol names.
        """
        method = request.method
        if asked.door is Door.SIGNAL:
            if method != "POST":
                raise _only("POST")
            said = await self._take(*parse(body, self.signals.urls_max))
            return json_reply(200, msgspec.json.encode(said) + b"\n")
        fields = _fields(request.raw_path)
        if asked.door is Door.INDEXNOW:
            posted = method == "POST"
            limit = self._config.signal_urls_max
            notice = indexnow.parse_post(body, limit) if posted else indexnow.parse_get(fields)
            return await self._indexnow(notice)
        if method == "POST":
            return await self._delivered(asked.rest, body, request.headers.get("X-Hub-Signature", ""))
        challenge = self.subscriptions.verify(asked.rest, fields, self._now()).encode()
        return Reply(
            200,
            b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nX-Content-Type-Options: nosniff\r\n",
            len(challenge),
            challenge,
        )

    async def _take(self, urls: Sequence[str], source: str) -> Signalled:
        """Hand signals on, a slice a turn of the loop."""
        said = Signalled(refused={})
        for first in range(0, len(urls), SLICE):
            said.add(self.signals.take(urls[first : first + SLICE], source, self._now()))
            await self._pause()
        return said

    async def _indexnow(self, notice: indexnow.Notice) -> Reply:
        status, fetch = self.keys.submit(notice, self._now())
        if status == 200:
            await self._take(notice.urls, f"indexnow:{notice.host}")
        elif fetch:
            self._in_background(self._look_at_key(notice))
        return json_reply(status, b'{"urls": %d}\n' % len(notice.urls))

    async def _look_at_key(self, notice: indexnow.Notice) -> None:
        try:
            text = await self._fetch_text(notice.location)
        except Exception:
            text = None
        urls = self.keys.found(notice, text, self._now())
        if urls:
            await self._take(urls, f"indexnow:{notice.host}")

    async def _delivered(self, token: str, body: bytes, signature: str) -> Reply:
        subscription = self.subscriptions.deliver(token, body, signature, self._now())
        if subscription is None:
            return json_reply(202, b'{"ignored": "signature"}\n')
        links = self._read_feed(body)[: self._config.signal_urls_max]
        said = await self._take(links, f"websub:{subscription.hub}")
        return json_reply(202, msgspec.json.encode(said) + b"\n")


def _fields(target: str) -> dict[str, str]:
    try:
        pairs = parse_qsl(
            target.partition("?")[2], keep_blank_values=True, max_num_fields=16, errors="strict"
        )
    except ValueError:
        raise Refusal(400, "bad_request", "the query cannot be read") from None
    return dict(reversed(pairs))


def _only(methods: str) -> Refusal:
    refusal = Refusal(405, "bad_request", f"only {methods}")
    refusal.fields = (("Allow", methods),)
    return refusal
