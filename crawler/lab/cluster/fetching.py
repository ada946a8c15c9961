"""The fetchers of a simulated process, which replace the real ones through `fetcher/fetchers.py`.

`VirtualClient` and `VirtualResolver` send their requests to a `SyntheticWeb` and let virtual time pass. Every
request is recorded in the `WebLog`, which the judge uses instead of the crawler's own
counts.
"""

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Hashable

import msgspec

from crawler.fetcher.dns_cache import Resolution
from crawler.fetcher.fetch_request import FetchRequest, split
from crawler.fetcher.outcome import blame_of, of_status
from crawler.lab.cluster.machine import CURRENT
from crawler.lab.cluster.synthetic_web import SyntheticWeb, WebReply
from crawler.records import Fetch, Outcome

LOOK_UP = 0.03  # seconds
NAMES_LIVE = 3600.0
HEADER_BYTES = 200


class WebAsk(msgspec.Struct, frozen=True, gc=False):
    """A request: its times, URL, answer and sender.

    The sender is process `name` on `machine`; `life` counts the starts of this process.
    """

    at: float
    end: float
    host: str
    path: str
    status: int
    page: int
    version: int
    name: str
    machine: str
    life: int


class WebLog:
    """All requests in order, and the number of requests for each URL."""

    def __init__(self) -> None:
        self.rows: list[WebAsk] = []
        self.times: Counter[tuple[str, str]] = Counter()

    def digest(self) -> str:
        """Return a digest of all requests; two runs with equal requests have equal digests."""
        return hashlib.blake2b(msgspec.msgpack.encode(self.rows), digest_size=16).hexdigest()


class VirtualClient:
    """The "http" fetcher of a simulated process, which sends requests to the synthetic web."""

    places = 0

    def __init__(
        self, web: SyntheticWeb, log: WebLog, clock: Callable[[], float], header_timeout: float
    ) -> None:
        self._web, self._log, self._now, self._header_timeout = web, log, clock, header_timeout

    async def start(self) -> None:
        """Do nothing: there is nothing to open."""

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def hold_more(self, owner: Hashable, nbytes: int) -> None:
        """Do nothing: memory is not accounted for here."""

    def let_go(self, owner: Hashable) -> None:
        """Do nothing: memory is not accounted for here."""

    async def fetch(self, request: FetchRequest) -> Fetch:
        """Send a request to the web, wait for the delay of the answer, and return the answer as a `Fetch`."""
        target = split(request.url)
        loop, began = asyncio.get_running_loop(), self._now()
        at = loop.time()
        key = (target.hostname, target.path)
        reply = self._web.answer(*key, at, asked=self._log.times[key], etag=request.etag)
        self._log.times[key] += 1
        took = min(reply.delay, self._header_timeout)
        self._note(at, at + took, key, reply)
        await asyncio.sleep(took)
        if reply.delay > took:
            reply = WebReply(took, failure=Outcome.HEADER_TIMEOUT)
        return _fetch_of(request, reply, began, took)

    def _note(self, at: float, end: float, key: tuple[str, str], reply: WebReply) -> None:
        life = CURRENT.get()
        assert life is not None
        machine = life.machine
        row = WebAsk(
            at, end, *key, reply.status, reply.page, reply.version, machine.name, machine.label, life.number
        )
        self._log.rows.append(row)


class VirtualResolver:
    """Looks host names up in the synthetic web."""

    def __init__(self, web: SyntheticWeb, clock: Callable[[], float]) -> None:
        self._web, self._now = web, clock

    async def resolve(self, hostname: str, *, patient: bool = True) -> Resolution:
        """Return the address of a host. No two hosts have the same address."""
        await asyncio.sleep(LOOK_UP)
        if not self._web.exists(hostname):
            return Resolution(
                (), self._now() + NAMES_LIVE, Outcome.DNS_NOT_FOUND, f"{hostname}: no such name"
            )
        number = self._web.number[hostname]
        address = f"11.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
        return Resolution((address,), self._now() + NAMES_LIVE)

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


def _fetch_of(request: FetchRequest, reply: WebReply, began: float, took: float) -> Fetch:
    """Return the `Fetch` that the real client would build from an answer."""
    if reply.failure is not None:
        outcome = reply.failure
        return Fetch(
            request.url, outcome, blame_of(outcome), began=began, took=took, error="simulated failure"
        )
    outcome = of_status(
        reply.status,
        conditional=request.conditional,
        has_body=bool(reply.body),
        has_location=bool(reply.location),
    )
    headers = [(b"Content-Type", f"{reply.content_type}; charset=utf-8".encode())]
    headers += [(b"ETag", reply.etag.encode())] if reply.etag else []
    headers += [(b"Location", reply.location.encode())] if reply.location else []
    return Fetch(
        request.url,
        outcome,
        blame_of(outcome),
        status=reply.status,
        reason="simulated",
        headers=tuple(headers),
        request_head=b"GET / HTTP/1.1\r\n\r\n",
        body=reply.body,
        content=reply.body,
        content_type=reply.content_type,
        charset="utf-8",
        address=request.addresses[0] if request.addresses else "",
        location=reply.location,
        began=began,
        took=took,
        wire_bytes=len(reply.body) + HEADER_BYTES,
        connection="plain",
    )
