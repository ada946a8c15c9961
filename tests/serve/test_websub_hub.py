"""Test the subscriber with a small WebSub hub that follows the Recommendation: requests, verification, renewal."""

import asyncio
import contextlib
import hashlib
import hmac
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import aiohttp
import pytest
from aiohttp import web

from crawler.clock import VirtualClock
from crawler.config import IdentityConfig, NetworkConfig
from crawler.fetcher.address_guard import AddressGuard
from crawler.fetcher.direct_requests import DirectRequests
from crawler.fetcher.fetch_request import FetchRequest
from crawler.fetcher.resolver import Resolver
from crawler.records import Fetch, Outcome
from crawler.serve import websub
from crawler.serve.subscriber import Subscriber, read_topics
from tests.fetcher.scripted import make_client, small
from tests.serve.test_receivers import FEED, SITE, Receiving

TOPIC = "http://site.example/feed"


class WebSubHub:
    """A hub (sections 5 to 7) that accepts a form, verifies the intent at the callback, and distributes signed content.

    `status` is the status of the hub's answer to a form. `lease` is the lease that the hub grants; with 0, it
    states no lease.
    """

    def __init__(self) -> None:
        self.status, self.lease = 202, 1000
        self.forms: list[dict[str, str]] = []
        self.subscribers: dict[str, str] = {}  # callback -> secret; a repeated form replaces the secret (5.1)
        self.agents: list[str] = []
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
        await self.gone()

    async def gone(self) -> None:
        await self._runner.cleanup()

    async def _asked(self, request: web.BaseRequest) -> web.Response:
        assert request.method == "POST" and request.content_type == "application/x-www-form-urlencoded"
        form = {name: str(value) for name, value in (await request.post()).items()}
        assert form["hub.mode"] == "subscribe" and len(form["hub.secret"]) < 200
        self.forms.append(form)
        self.agents.append(request.headers["User-Agent"])
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
        """Send the feed to all subscribers. Remove subscribers that answer 410 (section 7)."""
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


@asynccontextmanager
async def asking(served: Receiving, *hubs: str, **fetch: Any) -> AsyncIterator[Subscriber]:
    """Yield a subscriber with the crawler's fetcher, which may connect to 127.0.0.1 but to no other special address."""
    public = f"http://127.0.0.1:{served.port}/"
    served.receivers.subscriptions.want(read_topics([f"{TOPIC} {hub}" for hub in hubs]))
    clock, network = VirtualClock(), NetworkConfig(allow_networks=("127.0.0.1/32",))
    client = make_client(
        small(**fetch), identity=IdentityConfig(token="ourbot"), network=network, clock=clock
    )
    resolver = Resolver(network, AddressGuard(network.allow_networks), clock)
    await client.start()
    direct = DirectRequests(client, resolver, proxied="proxy" in fetch)
    try:
        yield Subscriber(served.receivers.subscriptions, public, lambda: served.now, direct.ask)
    finally:
        await client.close()
        await resolver.close()


async def test_a_subscription_is_verified_used_and_renewed(tmp_path: Path) -> None:
    async with Receiving(tmp_path) as served, WebSubHub() as hub, asking(served, hub.url) as subscriber:
        await subscriber.ask()
        await hub.settled()
        assert hub.verified == [True] and await hub.publish() == [202]
        assert served.crawl.signals == [((f"{SITE}1", f"{SITE}2"), f"websub:{hub.url}")]
        await subscriber.ask()
        assert len(hub.forms) == 1, "a running lease is not requested again"
        served.now += 901.0
        await subscriber.ask()
        await hub.settled()
        assert len(hub.forms) == 2 and hub.forms[0]["hub.callback"] == hub.forms[1]["hub.callback"]
        served.now += 500.0  # after the end of the first lease, during the second
        assert await hub.publish() == [202] and len(hub.subscribers) == 1
        served.now += 1000.0
        assert await hub.publish() == [410], "without renewal the subscription ends"
        assert hub.subscribers == {}
        assert all(agent.startswith("ourbot/") for agent in hub.agents)


async def test_a_hub_that_refuses_is_asked_at_growing_intervals(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Receiving(tmp_path) as served:
        hub = WebSubHub()
        async with hub, asking(served, hub.url) as subscriber:
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
            assert hub.verified == [True], "if the hub names no lease, the requested one applies"
            served.now += 0.5 * websub.LEASE_DEFAULT
            assert await hub.publish() == [202]
            await hub.gone()
            await subscriber.ask()
            served.now += websub.LEASE_DEFAULT
            await subscriber.ask()
            assert "cannot be reached" in caplog.messages[-1], (
                "a hub that does not answer gives a line in the log"
            )


class Told:
    """A listener that gives every request the same answer and records the requests."""

    def __init__(self, answer: str = "HTTP/1.1 202 Accepted", *lines: str) -> None:
        head = "\r\n".join([answer, *lines, "Content-Length: 0", "Connection: close", "", ""])
        self.answer = head.encode()
        self.requests: list[bytes] = []

    @asynccontextmanager
    async def at(self, address: str) -> AsyncIterator[str]:
        server = await asyncio.start_server(self._take, address, 0)
        try:
            yield f"http://{address}:{server.sockets[0].getsockname()[1]}"
        finally:
            server.close()

    async def _take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = b""
        with contextlib.suppress(asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            length = next(
                (int(line[16:]) for line in head.split(b"\r\n") if line.startswith(b"Content-Length: ")), 0
            )
            head += await reader.readexactly(length)
        self.requests.append(head)
        writer.write(self.answer)
        writer.close()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2"])
async def test_a_hub_cannot_send_the_secret_elsewhere(
    tmp_path: Path, status: int, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, the subscriber followed a hub's redirect to any address. After a 307, it sent `hub.secret` to this address.

    Here, the redirect leads to a listener at a forbidden address, or at a permitted address that is not the
    hub's.
    """
    async with Receiving(tmp_path) as served:
        victim = Told()
        async with victim.at(address) as elsewhere:
            hub = Told(f"HTTP/1.1 {status} Elsewhere", f"Location: {elsewhere}/internal")
            async with hub.at("127.0.0.1") as url, asking(served, f"{url}/hub") as subscriber:
                await subscriber.ask()
        assert len(hub.requests) == 1 and b"hub.secret" in hub.requests[0]
        assert victim.requests == []
        assert caplog.messages[-1].startswith(f"websub: {url}/hub "), caplog.messages


async def test_a_hub_at_a_forbidden_address_is_not_asked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with Receiving(tmp_path) as served:
        hub = Told()
        async with hub.at("127.0.0.2") as url, asking(served, f"{url}/hub") as subscriber:
            await subscriber.ask()
        assert hub.requests == [] and "address not allowed: 127.0.0.2" in caplog.messages[-1]


async def test_a_hub_may_move_within_its_origin(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """After a 307 or 308, the form is sent again (section 5.1). A redirect loop is not followed forever."""
    async with Receiving(tmp_path) as served:
        hub = Told("HTTP/1.1 308 Moved", "Location: /new")
        async with hub.at("127.0.0.1") as url, asking(served, f"{url}/hub") as subscriber:
            await subscriber.ask()
        assert len(hub.requests) == 6 and caplog.messages[-1].endswith("redirects more than 5 times")
        first, second = hub.requests[:2]
        assert first.startswith(b"POST /hub HTTP/1.1") and second.startswith(b"POST /new HTTP/1.1")
        assert first.partition(b"\r\n\r\n")[2] == second.partition(b"\r\n\r\n")[2] != b""


async def test_hubs_are_asked_through_the_proxy(tmp_path: Path) -> None:
    async with Receiving(tmp_path) as served:
        proxy = Told()
        async with (
            proxy.at("127.0.0.1") as url,
            asking(served, "http://hub.example/hub", proxy=url) as subscriber,
        ):
            await subscriber.ask()
        (request,) = proxy.requests
        assert (
            request.startswith(b"POST http://hub.example/hub HTTP/1.1") and b"User-Agent: ourbot/" in request
        )


async def test_due_subscriptions_are_renewed_periodically(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crawler.serve.subscriber.LOOK_INTERVAL", 0.0)
    now, asked = itertools.count(0.0, 40.0), []

    subscriptions, enough = websub.Subscriptions(bytes), asyncio.Event()
    subscriptions.want([(TOPIC, "http://hub.example/")])

    async def ask(task: FetchRequest) -> Fetch:
        asked.append(task)
        if len(asked) == 3:
            enough.set()
        return Fetch(task.url, Outcome.FETCHED, status=202)

    running = asyncio.create_task(Subscriber(subscriptions, "http://us.example/", now.__next__, ask).run())
    await enough.wait()
    running.cancel()
    assert {(task.method, task.total_timeout, task.body_bytes_max) for task in asked} == {
        ("POST", 20.0, 65_536)
    }
    assert b"hub.callback=http%3A%2F%2Fus.example%2Fwebsub%2F" in asked[0].body


def test_requests_to_a_hub_are_sent_one_by_one(tmp_path: Path) -> None:
    """A hub gets only one request at a time, however many topics it serves."""
    under_way, most, asked = 0, 0, []

    async def ask(task: FetchRequest) -> Fetch:
        nonlocal under_way, most
        asked.append(task.url)
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1
        return Fetch(task.url, Outcome.FETCHED, status=202)

    subscriptions = websub.Subscriptions(bytes)
    numbers = itertools.count()
    subscriptions._random = lambda n: next(numbers).to_bytes(n, "big")
    subscriptions.want([(f"{TOPIC}{n}", "http://hub.example/") for n in range(5)])
    asyncio.run(Subscriber(subscriptions, "http://us.example", lambda: 0.0, ask).ask())
    assert len(asked) == 5 and most == 1


def test_a_topic_that_is_requested_twice_is_subscribed_once() -> None:
    subscriptions = websub.Subscriptions(bytes)
    wanted: Any = [(TOPIC, "http://hub.example/")]
    for _ in range(2):
        subscriptions.want(wanted)
    assert len(subscriptions) == 1
