"""The fetcher's shell: `Client.fetch` ends every request in one Fetch and never raises for the world.

    take an idle connection of the host, or open one
      -> write the request -> fill the answer -> conclude -> keep the connection idle, or close it

aiohttp opens the connections (`connector.py`): sockets, TLS, proxies. Request
heads, answers and idle connections are ours, because aiohttp's session resends
where it must not, has one idle time for all hosts, hands bytes that follow an
answer to the next request, refuses or loses answers that the web is full of
(`framing.py`), and takes twice the CPU.

A request that dies on a kept connection before any byte of its answer is sent
again, once, on a new one (RFC 9112 9.3.1): the server had closed it already.
One timer watches the time limits of all connections.
"""

import asyncio
import time
from collections import deque

import crawler
from crawler.clock import Clock
from crawler.config import FetchConfig, IdentityConfig, NetworkConfig
from crawler.errors import Unexpected
from crawler.fetcher import outcome
from crawler.fetcher.answer import Answer
from crawler.fetcher.connection import READ_BYTES, Connection
from crawler.fetcher.connector import Connector, NotOpened, check_proxy
from crawler.fetcher.cookies import CookieJar
from crawler.fetcher.guard import Guard
from crawler.fetcher.idle import IdlePool
from crawler.fetcher.request import Asking, Limits, Request, Target, split
from crawler.records import Fetch, Outcome

_TICK_MAX = 0.25  # seconds between looks at the time limits
_TICK_MIN = 0.005
_BROKEN_MAX = 10_000  # hosts remembered whose certificates do not verify


class Client:
    """Fetches URLs. `start` and `close` in the loop it runs in.

    Raises:
        ConfigError: a configured header or network cannot be used.
    """

    def __init__(
        self,
        fetch: FetchConfig,
        identity: IdentityConfig,
        network: NetworkConfig,
        clock: Clock,
        unexpected: Unexpected | None = None,
    ) -> None:
        self._config = fetch
        self._clock = clock
        self._limits = Limits.of(fetch)
        self._asking = Asking(identity, user_agent(identity))
        self._guard = Guard(network.allow_networks)
        self._view = memoryview(bytearray(READ_BYTES))
        self._active: set[Connection] = set()
        self._large: set[Connection] = set()
        self._waiting: deque[Connection] = deque()
        self._tick = _tick(self._limits)
        self._idle: IdlePool[Connection] = IdlePool(fetch.idle_connections_max)
        self._broken: dict[str, None] = {}
        self._jar = CookieJar(fetch.cookie_domains_max) if fetch.cookies else None
        self._timer: asyncio.TimerHandle | None = None
        self._unexpected = unexpected or Unexpected()
        check_proxy(fetch.proxy)
        self._connector: Connector

    async def start(self) -> None:
        """Make ready; must run in the loop that fetches."""
        self._connector = Connector(self._guard, self._config.proxy)

    async def close(self) -> None:
        """Close all connections; fetches under way end."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for connection in list(self._active):
            connection.close()
        self._idle.clear()
        await self._connector.close()

    async def fetch(self, request: Request) -> Fetch:
        """Ask for a URL and return what came of it; raises only if cancelled.

        An exception that nothing here expects closes the connection and ends in `internal_error`.
        """
        began = self._clock.now()
        try:
            fetch = await self._fetch(request, began, time.monotonic())
        except Exception as error:
            text = self._unexpected.note(error, f"fetching {request.url}")
            ended = Outcome.INTERNAL_ERROR
            fetch = Fetch(request.url, ended, outcome.blame_of(ended), error=text)
        fetch.began = began
        fetch.took = self._clock.now() - began
        return fetch

    async def _fetch(self, request: Request, began: float, started: float) -> Fetch:
        target = split(request.url)
        limits = request.limits(self._limits)
        jar = request.jar if request.jar is not None else self._jar
        cookie = jar.header(target, began) if jar is not None else ""
        head = self._asking.head(request, target, cookie=cookie)
        sent = head
        if self._connector.proxied and target.scheme == "http":
            sent = self._asking.head(
                request, target, cookie=cookie, proxied=True, authorization=self._connector.authorization
            )
        try:
            connection, answer = await self._exchange(request, target, limits, sent, started)
        except NotOpened as error:
            fetch = Fetch(request.url, error.outcome, outcome.blame_of(error.outcome), error=str(error))
        else:
            try:
                fetch = self._concluded(request, connection, answer)
                if jar is not None and answer.head is not None:
                    jar.store(target, answer.head.values(b"set-cookie"), began)
                self._release(connection, answer, request)
            except BaseException:
                connection.close()
                raise
        fetch.request_head = head
        return fetch

    async def _exchange(
        self, request: Request, target: Target, limits: Limits, sent: bytes, started: float
    ) -> tuple[Connection, Answer]:
        mode = request.tls or self._config.tls
        key = (target.scheme, target.hostname, target.port, mode)
        addresses = () if self._connector.proxied else request.addresses
        connection = self._idle.take(key, addresses, started)
        reused = connection is not None
        deadline = started + limits.total_timeout
        if connection is None:
            connection = await self._open(target, request, limits, mode, deadline)
        while True:
            answer = await self._ask(connection, sent, limits, deadline)
            if not (reused and answer.failure is Outcome.RESET and not answer.wire_bytes):
                return connection, answer
            connection.close()
            reused = False
            connection = await self._open(target, request, limits, mode, deadline)

    async def _ask(self, connection: Connection, sent: bytes, limits: Limits, deadline: float) -> Answer:
        self._active.add(connection)
        try:
            if self._timer is None:
                self._watch()
            answer = Answer(limits)
            await connection.exchange(sent, answer, limits, deadline, self._config.large_body_bytes)
            return answer
        except BaseException:
            connection.close()
            raise
        finally:
            self._active.discard(connection)
            if connection in self._large:
                self._large.discard(connection)
                self._let_next()

    def grew_large(self, connection: Connection) -> None:
        """Let `connection` receive a large body now, or when one of the others has ended."""
        if len(self._large) < self._config.large_bodies_max:
            self._large.add(connection)
        else:
            connection.pause()
            self._waiting.append(connection)

    def _let_next(self) -> None:
        while self._waiting:
            connection = self._waiting.popleft()
            if connection in self._active:
                self._large.add(connection)
                try:
                    connection.resume()
                except Exception as error:
                    connection.fail(error)
                return

    def forget(self, connection: Connection) -> None:
        """`connection` was lost."""
        self._idle.forget(connection)

    async def _open(
        self, target: Target, request: Request, limits: Limits, mode: str, deadline: float
    ) -> Connection:
        """Connect. In mode "record", a host that does not verify is connected to again without verifying."""
        key = (target.scheme, target.hostname, target.port, mode)
        verified = not (mode == "record" and target.host in self._broken)
        try:
            opened = await self._connector.open(target, request.addresses, limits, deadline, verify=verified)
        except NotOpened as error:
            if not (verified and mode == "record" and error.outcome is Outcome.TLS_ERROR):
                raise
            opened = await self._connector.open(target, request.addresses, limits, deadline, verify=False)
            verified = False
            self._broken[target.host] = None
            if len(self._broken) > _BROKEN_MAX:
                del self._broken[next(iter(self._broken))]
        try:
            return Connection(opened, key, self._view, self, tls_ok=verified)
        except BaseException:
            opened.close()
            raise

    def _release(self, connection: Connection, answer: Answer, request: Request) -> None:
        if connection.key[0] == "https" and answer.head is not None:
            self._connector.keep_session(connection.key[1], connection.transport, verify=connection.tls_ok)
        if request.keep_alive > 0.0 and answer.reusable and not connection.lost:
            keep = min(request.keep_alive, self._config.keep_alive_max)
            self._idle.add(connection, time.monotonic(), keep)
        else:
            connection.close()

    def _concluded(self, request: Request, connection: Connection, answer: Answer) -> Fetch:
        received = answer.head
        if received is None:
            ended = outcome.conclude(answer, conditional=request.conditional, location="")
            fetch = Fetch(request.url, ended, outcome.blame_of(ended))
        else:
            location = outcome.location_of(received) if 300 <= received.status < 400 else ""
            ended = outcome.conclude(answer, conditional=request.conditional, location=location)
            if received.status == 407 and self._connector.proxied:
                ended = Outcome.PROXY_ERROR
            content_type, charset = outcome.content_type_of(received)
            fetch = Fetch(
                request.url,
                ended,
                outcome.blame_of(ended),
                status=received.status,
                reason=received.reason,
                version=received.version,
                headers=received.fields,
                body=answer.body,
                content=answer.content,
                content_type=content_type,
                charset=charset,
                truncated=answer.truncated,
                location=location,
                retry_after=outcome.retry_after_of(received, self._clock.now()),
            )
        fetch.address = "" if self._connector.proxied else connection.address
        fetch.wire_bytes = answer.wire_bytes
        fetch.error = answer.error
        fetch.tls_ok = connection.tls_ok
        return fetch

    def _watch(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(self._tick, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now = time.monotonic()
        for connection in list(self._active):
            try:
                connection.check(now)
            except Exception as error:
                connection.fail(error)
        self._idle.expire(now)
        if self._active or len(self._idle):
            self._watch()

    def __repr__(self) -> str:
        return f"Client(active={len(self._active)}, {self._idle!r})"


def _tick(limits: Limits) -> float:
    """Seconds between two looks at the time limits: a tenth of the shortest, within bounds."""
    shortest = min(limits.header_timeout, limits.silence_timeout, limits.total_timeout)
    return max(min(shortest / 10.0, _TICK_MAX), _TICK_MIN)


def user_agent(identity: IdentityConfig) -> str:
    """The one User-Agent of all requests: product token, version, contact."""
    product = f"{identity.token}/{crawler.__version__}"
    return f"{product} (+{identity.contact})" if identity.contact else product
