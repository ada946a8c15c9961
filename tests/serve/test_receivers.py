"""Test the POST endpoints /signal, IndexNow (its documented cases) and WebSub (with a hub as in its standard)."""

import asyncio
import hashlib
import hmac
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.change_signals import Signalled
from crawler.serve import indexnow
from crawler.serve.http_error import HttpError
from crawler.serve.notification_handlers import NotificationHandlers
from crawler.serve.signal_handler import SOURCES_MAX, Buckets
from crawler.serve.websub import Subscriptions
from tests.serve.support import Response, Served

SITE = "http://site.example/"
KEY = "0123456789abcdef"
FEED = b"""<feed xmlns="http://www.w3.org/2005/Atom"><title>f</title>
<entry><link href="http://site.example/1"/></entry><entry><link href="http://site.example/2"/></entry></feed>"""


class Kept:
    """An in-memory store of notices that records accepted URLs as signals of the crawl."""

    def __init__(self, signals: list[tuple[tuple[str, ...], str]]) -> None:
        self.stored: list[indexnow.Notice] = []
        self._signals = signals

    def load(self) -> list[indexnow.Notice]:
        return list(self.stored)

    async def keep(self, notice: indexnow.Notice) -> None:
        self.stored.append(notice)

    def judged(self, notice: indexnow.Notice, urls: Sequence[str], source: str) -> None:
        self.stored = [each for each in self.stored if each.location != notice.location]
        if urls:
            self._signals.append((tuple(urls), source))


class Receiving(Served):
    """A server with POST endpoints.

    `texts` has the files of the sites; if `stopping` is true, the crawl cannot fetch these.
    """

    def __init__(self, folder: Path, **config: Any) -> None:
        super().__init__(folder, **config)
        self.texts: dict[str, bytes] = {}
        self.fetched: list[str] = []
        self.tasks: list[asyncio.Task[None]] = []
        self.stopping = False
        self.notices = Kept(self.crawl.signals)
        self.receivers = NotificationHandlers(
            self.crawl,
            self.config,
            lambda: self.now,
            signal=self.crawl.signal,
            notices=self.notices,
            random=lambda n: bytes([len(self.fetched)]) * n,
            fetch_key_file=self._fetch,
            item_links=lambda body, url: [f"{SITE}{n}" for n in range(1, 1 + body.count(b"<entry>"))],
            in_background=lambda work: self.tasks.append(asyncio.get_running_loop().create_task(work)),
        )
        self.server._receive = self.receivers.receive

    async def _fetch(self, url: str, key: str) -> bytes | None:
        self.fetched.append(url)
        if self.stopping:
            raise indexnow.KeyUnreadError
        return self.texts.get(url)

    async def post(self, target: str, body: bytes, *lines: str) -> Response:
        head = [
            f"POST {target} HTTP/1.1",
            f"Host: 127.0.0.1:{self.port}",
            *lines,
            f"Content-Length: {len(body)}",
        ]
        return Response(await self.raw("\r\n".join([*head, "Connection: close", "", ""]).encode() + body))

    async def settle(self) -> None:
        await asyncio.gather(*self.tasks)


async def test_posted_signals(tmp_path: Path) -> None:
    async with Receiving(tmp_path, signal_urls_max=100) as served:
        said = await served.post(
            "/signal",
            b'{"urls": ["http://site.example/", "HTTP://SITE.example:80/", "junk:"], "source": "cms"}',
        )
        assert said.status == 200 and said.json == Signalled(noted=3).plain()
        assert served.crawl.signals == [((SITE, "HTTP://SITE.example:80/", "junk:"), "signal:cms")]
        for urls in (["page"], ["ftp://site.example/", "/page"]):
            refused = await served.post("/signal", msgspec.json.encode({"urls": urls}))
            assert refused.status == 400 and urls[0].partition(":")[0] in refused.json["why"]
        for body in (b"", b"[]", b'{"urls": 1}', b'{"urls": [1]}', b"[" * 100_000, b"\xff"):
            assert (await served.post("/signal", body)).status == 400, body[:10]
        assert (await served.post("/signal", msgspec.json.encode({"urls": ["x"] * 101}))).status == 422
        assert (await served.post("/signal", b" " * 2_000_000)).status == 413
        assert (await served.post("/signal", b"{}", "Content-Encoding: gzip")).status == 415
        assert (await served.get("/signal")).status == 405
        assert (await served.post("/signal", b"{}", "Transfer-Encoding: chunked")).status == 400


async def test_a_url_of_indexnow_that_is_not_escaped_is_refused(tmp_path: Path) -> None:
    """`/indexnow?url=U?a=1&b=2&key=K` reported `U?a=1`, a page that has not changed."""
    async with Receiving(tmp_path) as served:
        refused = await served.get(f"/indexnow?url={SITE}?a=1&b=2&key={KEY}")
        assert refused.status == 400 and "percent-encoded" in refused.json["why"]
        assert (await served.get(f"/indexnow?url={SITE}?a=1%26b=2&key={KEY}")).status == 202


@pytest.mark.parametrize(
    "field",
    [
        "Origin: http://evil.example",
        "Origin: null",
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Site: same-site",
    ],
)
async def test_a_page_of_another_origin_causes_no_fetch(tmp_path: Path, field: str) -> None:
    """Neither a form nor an image on a hostile page changes any state.

    The form is text/plain, so there is no preflight.
    """
    async with Receiving(tmp_path) as served:
        served.store()
        body = msgspec.json.encode({"urls": [SITE]})
        for target in ("/signal", "/indexnow", "/websub/x"):
            assert (await served.post(target, body, "Content-Type: text/plain", field)).status == 403, target
        for target in ("refresh=1", "max-stale=1"):
            assert (await served.get(f"/page?url={SITE}&{target}", field)).status == 403, target
        assert not served.crawl.signals and not served.crawl.queued
        assert (await served.get(f"/page?url={SITE}", field)).status == 200, "reading is not refused"
        own = f"Origin: http://127.0.0.1:{served.port}"
        assert (await served.post("/signal", body, own, "Sec-Fetch-Site: same-origin")).status == 200


async def test_the_rate_of_junk_signals_is_limited(tmp_path: Path) -> None:
    """Each source has a token bucket.

    The number of remembered sources is bounded, however many sources a client invents.
    """
    async with Receiving(tmp_path, signal_urls_max=100, signals_per_second=10.0) as served:
        urls = [f"{SITE}{n}" for n in range(100)]
        body = msgspec.json.encode({"urls": urls, "source": "loud"})
        assert (await served.post("/signal", body)).json["noted"] == 100
        none = await served.post("/signal", body)
        assert none.status == 429 and none.fields["retry-after"] == "10" and none.json["urls"] == 100
        served.now += 5.0
        half = (await served.post("/signal", body)).json
        assert (half["noted"], half["refused"], half["why"]) == (50, 50, {"too_many": 50})
        assert half["said"].endswith(f"\n  {none.json['why']}: 50")
        for number in range(30):  # unknown sources share one rate
            await served.post("/signal", msgspec.json.encode({"urls": urls, "source": f"s{number}"}))
        assert sum(len(urls) for urls, _ in served.crawl.signals) <= 100 + 50 + 100


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 30), st.floats(0, 5)), max_size=60))
def test_a_token_bucket_never_exceeds_its_rate(asked: list[tuple[int, int, float]]) -> None:
    buckets = Buckets(2.0, 10)
    now, passed = 0.0, [0] * 4
    for source, wanted, later in asked:
        now += later
        got = buckets.take(str(source), wanted, now)
        assert 0 <= got <= wanted
        passed[source] += got
        assert passed[source] <= 10 + 2.0 * now + 1e-6
    for number in range(2 * SOURCES_MAX):
        buckets.take(f"s{number}", 1, now)
    assert len(buckets._left) == SOURCES_MAX


def get(url: str = f"{SITE}new", key: str = KEY, **more: str) -> str:
    pairs = {"url": url, "key": key} | more
    return "/indexnow?" + "&".join(f"{name}={value}" for name, value in pairs.items())


def posted(**values: Any) -> bytes:
    return msgspec.json.encode(
        {"host": "site.example", "key": KEY, "urlList": [f"{SITE}a", f"{SITE}b"]} | values
    )


async def test_indexnow_reads_the_key_file_once_a_day(tmp_path: Path) -> None:
    """Notices get 202 until the key file is read. Then the waiting URLs are accepted, and later notices get 200.

    The key file is read again once a day.
    """
    async with Receiving(tmp_path) as served:
        served.texts[f"{SITE}{KEY}.txt"] = KEY.encode() + b"\n"
        waiting = await served.get(get())
        assert waiting.status == 202 and waiting.json == {"waiting": 1}
        await served.settle()
        assert served.crawl.signals == [((f"{SITE}new",), "indexnow:site.example")]
        taken = await served.post("/indexnow", posted())
        assert taken.status == 200 and taken.json == Signalled(noted=2).plain()
        assert served.crawl.signals[-1] == ((f"{SITE}a", f"{SITE}b"), "indexnow:site.example")
        assert served.fetched == [f"{SITE}{KEY}.txt"]
        served.now += indexnow.KEY_AGE_MAX
        del served.texts[f"{SITE}{KEY}.txt"]
        assert (await served.get(get())).status == 202
        await served.settle()
        assert (await served.get(get())).status == 403
        assert len(served.crawl.signals) == 2 and len(served.fetched) == 2
        served.receivers.keys._check()


@pytest.mark.parametrize(
    ("target", "body", "status"),
    [
        ("/indexnow?url=http://site.example/", b"", 400),
        (f"/indexnow?key={KEY}", b"", 400),
        (get(url="junk:"), b"", 400),
        (get(key="short"), b"", 422),
        (get(key="bad_key_with_underscores"), b"", 422),
        (get(key="a" * 129), b"", 422),
        (get(keyLocation="http://other.example/key.txt"), b"", 422),
        (get(keyLocation=f"{SITE}blog/key.txt"), b"", 422),
        (get(url=f"{SITE}blog/x", keyLocation=f"{SITE}blog/key.txt"), b"", 202),
        ("/indexnow", posted(urlList=["http://foreign.example/"]), 422),
        ("/indexnow", posted(urlList=[]), 400),
        ("/indexnow", posted(host="no host"), 400),
        ("/indexnow", posted(host="169.254.169.254", urlList=[f"{SITE}a"]), 422),
        ("/indexnow", b"{", 400),
        ("/indexnow", posted(urlList=[f"{SITE}{n}" for n in range(10_001)]), 400),
        ("/indexnow", posted(), 202),
    ],
)  # fmt: skip
async def test_indexnow_status_codes(tmp_path: Path, target: str, body: bytes, status: int) -> None:
    async with Receiving(tmp_path) as served:
        answer = await (served.post(target, body) if body else served.get(target))
        assert answer.status == status, answer.body
        await served.settle()


async def test_notices_wait_for_the_next_run_if_the_key_file_was_not_read(tmp_path: Path) -> None:
    """A crawl that is stopping cannot check a key, but does not reject it.

    The next run fetches the key file once.
    """
    async with Receiving(tmp_path) as served:
        served.stopping = True
        for name in ("one", "two"):
            assert (await served.get(get(f"{SITE}{name}"))).status == 202
        await served.settle()
        assert served.crawl.signals == [] and len(served.notices.stored) == 2 and len(served.fetched) == 1
        assert (await served.get(get(f"{SITE}three"))).status == 202, "the key was not judged"
        served.stopping = False
        served.texts[f"{SITE}{KEY}.txt"] = KEY.encode()
        served.receivers.keys = indexnow.Keys(served.config.key_files_max, served.config.pending_bytes_max)
        served.receivers.resume()
        await served.settle()
        assert served.crawl.signals == [
            (tuple(f"{SITE}{name}" for name in ("one", "two", "three")), "indexnow:site.example")
        ]
        assert served.notices.stored == [] and len(served.fetched) == 2
        served.receivers.keys._check()


def notice_of(host: str, count: int, *, key: str = KEY) -> indexnow.Notice:
    urls = tuple(f"http://{host}/{n:043}"[:43] for n in range(count))  # 100 bytes each
    return indexnow.Notice(host, key, f"http://{host}/{key}.txt", urls)


def status_of(keys: indexnow.Keys, notice: indexnow.Notice, now: float = 0.0) -> int:
    keys._check()
    try:
        return keys.submit(notice, now)[0]
    except HttpError as error:
        return error.status


def test_a_site_without_a_key_file_does_not_block_other_sites() -> None:
    """After one notice of 10,000 URLs, all sites once got 429 for ten minutes.

    Now the share of each site is limited.
    """
    keys = indexnow.Keys(10, 16_000)
    attack = [notice_of(f"www{n}.evil.example", 5) for n in range(10)]
    assert [status_of(keys, notice) for notice in attack] == [202] * 2 + [429] * 8
    addresses = [notice_of(f"192.0.2.{n}", 5) for n in range(10)]
    assert [status_of(keys, notice) for notice in addresses] == [202] * 2 + [429] * 8
    sites = [notice_of(f"site{n}.example", 10) for n in range(20)]
    assert [status_of(keys, notice) for notice in sites] == [202] * 14 + [429] * 6
    for notice in (*attack[:2], *addresses[:2], *sites[:14]):
        assert len(keys.found(notice, b"\xef\xbb\xbf" + KEY.encode(), 0.0)) == len(notice.urls)
        keys._check()
    assert [status_of(keys, notice) for notice in sites[14:]] == [202] * 6, "their places are free again"


def test_a_key_file_that_failed_once_is_fetched_again_after_some_minutes() -> None:
    keys, notice = indexnow.Keys(10, 16_000), notice_of("site.example", 1)
    for begin, text in ((0.0, None), (1000.0, b"another key")):
        assert status_of(keys, notice, begin) == 202
        assert keys.found(notice, text, begin) == []
        assert status_of(keys, notice, begin + indexnow.REFUSED_AGE_MAX - 1.0) == 403
    assert keys.submit(notice, 2000.0) == (202, True)
    assert keys.found(notice, KEY.encode(), 2000.0) == list(notice.urls)
    assert status_of(keys, notice, 2000.0 + indexnow.KEY_AGE_MAX - 1.0) == 200


class Hub:
    """A WebSub hub that accepts the subscriber's form, verifies its intent (5.3), and distributes content (7)."""

    def __init__(self, served: Receiving) -> None:
        self.served = served
        self.path = self.secret = self.topic = ""

    async def subscribe(self, form: dict[str, str]) -> None:
        self.path = "/websub/" + form["hub.callback"].rpartition("/")[2]
        self.secret, self.topic = form["hub.secret"], form["hub.topic"]

    async def verify(self, topic: str = "", mode: str = "subscribe") -> Response:
        query = f"?hub.mode={mode}&hub.topic={topic or self.topic}&hub.challenge=c123&hub.lease_seconds=1000"
        return await self.served.get(self.path + query)

    async def distribute(self, method: str = "sha256", secret: str = "") -> Response:
        digest = hmac.new((secret or self.secret).encode(), FEED, getattr(hashlib, method)).hexdigest()
        lines = ("Content-Type: application/atom+xml", f"X-Hub-Signature: {method}={digest}")
        return await self.served.post(self.path, FEED, *lines)


def form_for(subscriptions: Subscriptions, topic: str) -> dict[str, str]:
    """Return the form that requests a new subscription."""
    subscriptions.want([(topic, "http://hub.example/")])
    [(_, form)] = subscriptions.due("http://us.example", 0.0)
    return form


async def test_a_websub_hub_verifies_and_delivers(tmp_path: Path) -> None:
    async with Receiving(tmp_path) as served:
        hub = Hub(served)
        topic = "http://site.example/feed"
        await hub.subscribe(form_for(served.receivers.subscriptions, topic))
        assert (await hub.distribute()).status == 410, "not verified yet"
        assert (await hub.verify("http://site.example/other")).status == 404
        assert (await hub.verify(mode="unsubscribe")).status == 404
        verified = await hub.verify()
        assert (verified.status, verified.body) == (200, b"c123")
        for method in ("sha1", "sha256", "sha384", "sha512"):
            assert (await hub.distribute(method)).status == 202
        assert served.crawl.signals == [((f"{SITE}1", f"{SITE}2"), "websub:http://hub.example/")] * 4
        assert (await hub.distribute(secret="wrong")).json == {"ignored": "signature"}
        assert (await served.post(hub.path, FEED)).json == {"ignored": "signature"}
        assert len(served.crawl.signals) == 4
        assert (await served.post("/websub/" + "f" * 32, FEED)).status == 410
        served.now += 1001.0
        assert (await hub.distribute()).status == 410, "the lease has ended"


async def test_requests_for_another_process_are_answered_with_its_owner(tmp_path: Path) -> None:
    """Each process handles the key files of its own hosts, and the subscriptions whose tokens it created."""
    async with Receiving(tmp_path) as served:
        served.receivers._processes = ("p0", "p1", "p2")
        for token, owner in (("0002" + "a" * 32, "p2"), ("0001", "p1")):
            other = await served.post(f"/websub/{token}", FEED)
            assert (other.status, other.json["owner"]) == (421, owner)
            assert (await served.get(f"/websub/{token}?hub.mode=denied")).json["owner"] == owner
        for token in ("0000", "0003", "ffff", "000", "wxyz", "-001", "", "+002"):
            assert (await served.post(f"/websub/{token}", FEED)).status == 410, (
                "an unknown token of this process"
            )
        served.crawl.elsewhere = True
        for answer in (await served.get(get()), await served.post("/indexnow", posted())):
            assert (answer.status, answer.json["owner"]) == (421, "p1")
        assert served.fetched == [] and served.crawl.signals == []


async def test_notifications_are_accepted_completely_or_rejected(tmp_path: Path) -> None:
    """IndexNow clients and hubs understand only a status code. So they cannot be told how many URLs were accepted."""
    async with Receiving(tmp_path, signal_urls_max=3, signals_per_second=1.0) as served:
        served.receivers.keys._known[(f"{SITE}{KEY}.txt", KEY)] = (True, served.now)
        hub = Hub(served)
        await hub.subscribe(form_for(served.receivers.subscriptions, "t"))
        await hub.verify()
        first = posted(urlList=[f"{SITE}{n}" for n in range(2)])
        assert [(await served.post("/indexnow", first)).status for _ in range(2)] == [200, 429]
        served.now += 0.2  # lets two more signals pass at the common rate of all sources
        assert [(await hub.distribute()).status for _ in range(2)] == [202, 429]
        served.now += 0.9
        assert (await served.post("/indexnow", first)).status == 200, (
            "rejected notices do not use up the rate"
        )
        assert [len(urls) for urls, _ in served.crawl.signals] == [2, 2, 2]


def test_a_hub_may_deny() -> None:
    subscriptions = Subscriptions(bytes)
    form = form_for(subscriptions, "t")
    token = form["hub.callback"].rpartition("/")[2]
    assert subscriptions.verify(token, {"hub.mode": "denied", "hub.topic": "t"}, 0.0) == ""
    assert len(subscriptions) == 0
