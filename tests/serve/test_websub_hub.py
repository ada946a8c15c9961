"""A small WebSub hub written from the Recommendation, over real sockets, and our subscriber: asked, verified, renewed."""

import asyncio
import hashlib
import hmac
import itertools
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
import pytest
from aiohttp import web

from crawler.errors import ConfigError
from crawler.serve import websub
from crawler.serve.subscriber import Subscriber, read_topics
from tests.serve.test_receivers import FEED, SITE, Receiving, talk_to

TOPIC = "http://site.example/feed"


class WebSubHub:
    """Sections 5 to 7: takes a form, answers 202, verifies the intent at the callback, distributes signed content.

    `status` is what it answers a form with, `lease` what it grants (0: it names none).
    """

    def __init__(self) -> None:
        self.status, self.lease = 202, 1000
        self.forms: list[dict[str, str]] = []
        self.subscribers: dict[str, str] = {}  # callback -> secret: asked again it replaces the former (5.1)
        self.verified: list[bool] = []
        self.url = ""
        self._challenges = itertools.count()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "WebSubHub":
        self._runner = web.ServerRunner(web.Server(self._asked))
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}/hub"
        self._client = aiohttp.ClientSession()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.settled()
        await self._client.close()
        await self._runner.cleanup()

    async def _asked(self, request: web.BaseRequest) -> web.Response:
        assert request.method == "POST" and request.content_type == "application/x-www-form-urlencoded"
        form = {name: str(value) for name, value in (await request.post()).items()}
        assert form["hub.mode"] == "subscribe" and len(form["hub.secret"]) < 200
        self.forms.append(form)
        if self.status == 202:
            task = asyncio.create_task(self._verify(form))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return web.Response(status=self.status)

    async def _verify(self, form: dict[str, str]) -> None:
        challenge = f"challenge{next(self._challenges)}"
        fields = {"hub.mode": "subscribe", "hub.topic": form["hub.topic"], "hub.challenge": challenge}
        if self.lease:
            fields["hub.lease_seconds"] = str(self.lease)
        async with self._client.get(f"{form['hub.callback']}?{urlencode(fields)}") as answer:
            good = answer.status // 100 == 2 and await answer.text() == challenge
        self.verified.append(good)
        if good:
            self.subscribers[form["hub.callback"]] = form["hub.secret"]

    async def settled(self) -> None:
        while self._tasks:
            await asyncio.gather(*self._tasks)

    async def publish(self) -> list[int]:
        """Send the feed to all subscribers; who answers 410 is one no more (section 7)."""
        statuses = []
        for callback, secret in list(self.subscribers.items()):
            signature = hmac.new(secret.encode(), FEED, hashlib.sha256).hexdigest()
            headers = {
                "X-Hub-Signature": f"sha256={signature}",
                "Content-Type": "application/atom+xml",
                "Link": f'<{self.url}>; rel="hub", <{TOPIC}>; rel="self"',
            }
            async with self._client.post(callback, data=FEED, headers=headers) as answer:
                statuses.append(answer.status)
                if answer.status == 410:
                    del self.subscribers[callback]
        return statuses


async def asking(served: Receiving, hub: WebSubHub) -> Subscriber:
    public = f"http://127.0.0.1:{served.port}/"
    served.receivers.subscriptions.want(read_topics([f"{TOPIC} {hub.url}"], public))
    return Subscriber(served.receivers.subscriptions, public, lambda: served.now)


def test_subscribed_fed_and_renewed(tmp_path: Path) -> None:
    async def talk(served: Receiving) -> None:
        async with WebSubHub() as hub:
            subscriber = await asking(served, hub)
            await subscriber.ask()
            await hub.settled()
            assert hub.verified == [True] and await hub.publish() == [202]
            assert served.crawl.signals == [((f"{SITE}1", f"{SITE}2"), f"websub:{hub.url}")]
            await subscriber.ask()
            assert len(hub.forms) == 1, "a lease that runs is not asked for again"
            served.now += 901.0
            await subscriber.ask()
            await hub.settled()
            assert len(hub.forms) == 2 and hub.forms[0]["hub.callback"] == hub.forms[1]["hub.callback"]
            served.now += 500.0  # beyond the first lease, within the second
            assert await hub.publish() == [202] and len(hub.subscribers) == 1
            served.now += 1000.0
            assert await hub.publish() == [410], "without renewal it ends"
            assert hub.subscribers == {}

    talk_to(tmp_path, talk)


def test_a_hub_that_refuses_is_asked_later_each_time(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def talk(served: Receiving) -> None:
        async with WebSubHub() as hub:
            subscriber = await asking(served, hub)
            hub.status = 500
            at = []
            for _ in range(400):
                before = len(hub.forms)
                await subscriber.ask()
                if len(hub.forms) > before:
                    at.append(served.now)
                served.now += 30.0
            gaps = [later - earlier for earlier, later in zip(at, at[1:], strict=False)]
            assert gaps == [60.0 * 2**n for n in range(len(gaps))] and len(gaps) >= 6
            assert caplog.messages.count(
                f"websub: {hub.url} answers 500 to a subscription to {TOPIC}"
            ) == len(at)
            hub.status, hub.lease = 202, 0
            served.now += websub.RETRY_MAX
            await subscriber.ask()
            await hub.settled()
            assert hub.verified == [True], "no lease named: ours"
            served.now += 0.5 * websub.LEASE_DEFAULT
            assert await hub.publish() == [202]
        await subscriber.ask()
        served.now += websub.LEASE_DEFAULT
        await subscriber.ask()
        assert "cannot be asked" in caplog.messages[-1], "a hub that is gone is a line in the log"

    talk_to(tmp_path, talk)


@pytest.mark.parametrize(
    ("line", "public"),
    [("http://a.example/feed", "http://us.example"), ("a b", "http://us.example"), (f"{TOPIC} ftp://h/", "http://u"),
     (f"{TOPIC} http://hub.example/", ""), (f"{TOPIC} http://hub.example/", "us.example:80")],
)  # fmt: skip
def test_what_cannot_be_subscribed(line: str, public: str) -> None:
    with pytest.raises(ConfigError, match=r"serve\.websub"):
        read_topics([line], public)


def test_wanting_twice_is_once() -> None:
    subscriptions = websub.Subscriptions(bytes)
    wanted: Any = [(TOPIC, "http://hub.example/")]
    for _ in range(2):
        subscriptions.want(wanted)
    assert len(subscriptions) == 1
