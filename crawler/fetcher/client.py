"""The fetcher's shell: `Client.fetch` ends every request in one Fetch and never raises for the world.

    take an idle connection of the host, or open one
      -> write the request -> fill the answer -> conclude -> keep the connection idle, or close it

aiohttp opens the connections (`connector.py`); request heads, answers and idle
connections are ours. aiohttp's session would resend where it must not, hold one
idle time for all hosts, hand bytes sent after an answer to the next request,
and cost more than the whole exchange here.

One idle connection a host is kept, for as long as the request says, and all of
them are bounded. A request that dies on a kept connection before any byte of
its answer is sent again, once, on a new one (RFC 9112 9.3.1): the server had
closed it already. One timer watches all time limits.
"""

import asyncio

import crawler
from crawler.clock import Clock
from crawler.config import FetchConfig, IdentityConfig, NetworkConfig
from crawler.fetcher import outcome
from crawler.fetcher.answer import Answer
from crawler.fetcher.connection import READ_BYTES, Connection
from crawler.fetcher.connector import Connector, NotOpened
from crawler.fetcher.guard import Guard
from crawler.fetcher.request import Asking, Limits, Request, Target, split
from crawler.records import Fetch, Outcome

_TICK_MAX = 0.25  # seconds between looks at the time limits
_TICK_MIN = 0.005

_Key = tuple[str, str, int, str]


class Client:
    """Fetches URLs. `start` and `close` in the loop it runs in.

    Raises:
        ConfigError: a configured header or network cannot be used.
    """

    def __init__(
        self, fetch: FetchConfig, identity: IdentityConfig, network: NetworkConfig, clock: Clock
    ) -> None:
        self._config = fetch
        self._clock = clock
        self._limits = Limits.of(fetch)
        self._asking = Asking(identity, user_agent(identity))
        self._guard = Guard(network.allow_networks)
        self._view = memoryview(bytearray(READ_BYTES))
        self._active: set[Connection] = set()
        self._idle: dict[str, Connection] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._connector: Connector | None = None

    async def start(self) -> None:
        """Make ready; must run in the loop that fetches."""
        self._loop = asyncio.get_running_loop()
        self._connector = Connector(self._guard, self._config.proxy)

    async def close(self) -> None:
        """Close all connections."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for connection in [*self._active, *self._idle.values()]:
            connection.close()
        self._idle.clear()
        if self._connector is not None:
            await self._connector.close()

    async def fetch(self, request: Request) -> Fetch:
        """Ask for a URL and return what came of it; raises only if cancelled."""
        assert self._loop is not None, "start the client first"
        began, started = self._clock.now(), self._loop.time()
        target = split(request.url)
        limits = request.limits(self._limits)
        head = self._asking.head(request, target)
        try:
            connection, answer = await self._exchange(request, target, limits, head, started)
        except NotOpened as error:
            return Fetch(
                request.url,
                error.outcome,
                outcome.blame_of(error.outcome),
                request_head=head,
                began=began,
                took=self._clock.now() - began,
                error=str(error),
            )
        fetch = self._concluded(request, head, connection, answer)
        fetch.began = began
        fetch.took = self._clock.now() - began
        self._release(connection, answer, request)
        return fetch

    async def _exchange(
        self, request: Request, target: Target, limits: Limits, head: bytes, started: float
    ) -> tuple[Connection, Answer]:
        mode = request.tls or self._config.tls
        key = (target.scheme, target.hostname, target.port, mode)
        connection = self._take_idle(key, request.addresses)
        reused = connection is not None
        if connection is None:
            connection = await self._open(key, target, request, limits)
        while True:
            answer = Answer(limits)
            await self._ask(connection, head, answer, limits, started + limits.total_timeout)
            if not (reused and answer.failure is Outcome.RESET and not answer.wire_bytes):
                return connection, answer
            connection.close()
            reused = False
            connection = await self._open(key, target, request, limits)

    async def _ask(
        self, connection: Connection, head: bytes, answer: Answer, limits: Limits, deadline: float
    ) -> None:
        self._active.add(connection)
        if self._timer is None:
            self._watch(limits)
        try:
            await connection.exchange(head, answer, limits, deadline)
        except BaseException:
            connection.close()
            raise
        finally:
            self._active.discard(connection)

    async def _open(self, key: _Key, target: Target, request: Request, limits: Limits) -> Connection:
        assert self._connector is not None
        opened = await self._connector.open(target, request.addresses, limits, mode="verify")
        return Connection(opened, key, self._view, self._on_lost)

    def _take_idle(self, key: _Key, addresses: tuple[str, ...]) -> Connection | None:
        """The host's idle connection if it serves: same authority, an address still asked for, not too old."""
        connection = self._idle.pop(key[1], None)
        if connection is None:
            return None
        assert self._loop is not None
        if (
            connection.key == key
            and not connection.lost
            and self._loop.time() < connection.idle_until
            and (not addresses or connection.address in addresses or self._config.proxy)
        ):
            return connection
        connection.close()
        return None

    def _release(self, connection: Connection, answer: Answer, request: Request) -> None:
        assert self._loop is not None
        if request.keep_alive <= 0.0 or not answer.reusable or connection.lost:
            connection.close()
            return
        hostname = connection.key[1]
        previous = self._idle.pop(hostname, None)
        if previous is not None:
            previous.close()
        connection.idle_until = self._loop.time() + min(request.keep_alive, self._config.keep_alive_max)
        self._idle[hostname] = connection
        if len(self._idle) > self._config.idle_connections_max:
            self._idle.pop(next(iter(self._idle))).close()

    def _on_lost(self, connection: Connection) -> None:
        if self._idle.get(connection.key[1]) is connection:
            del self._idle[connection.key[1]]

    def _concluded(self, request: Request, head: bytes, connection: Connection, answer: Answer) -> Fetch:
        received = answer.head
        if received is None:
            ended = outcome.conclude(answer, conditional=request.conditional, location="")
            fetch = Fetch(request.url, ended, outcome.blame_of(ended))
        else:
            location = outcome.location_of(received) if 300 <= received.status < 400 else ""
            ended = outcome.conclude(answer, conditional=request.conditional, location=location)
            body = answer.body
            content_type, charset = outcome.content_type_of(received)
            fetch = Fetch(
                request.url,
                ended,
                outcome.blame_of(ended),
                status=received.status,
                reason=received.reason,
                version=received.version,
                headers=received.fields,
                body=body,
                content=answer.content,
                content_type=content_type,
                charset=charset,
                truncated=answer.truncated,
                location=location,
                retry_after=outcome.retry_after_of(received, self._clock.now()),
            )
        fetch.request_head = head
        fetch.address = connection.address
        fetch.wire_bytes = answer.wire_bytes
        fetch.error = answer.error
        fetch.tls_ok = connection.tls_ok
        return fetch

    def _watch(self, limits: Limits) -> None:
        assert self._loop is not None
        shortest = min(limits.header_timeout, limits.silence_timeout, limits.total_timeout)
        tick = max(min(shortest / 10.0, _TICK_MAX), _TICK_MIN)
        self._timer = self._loop.call_later(tick, self._on_timer, limits)

    def _on_timer(self, limits: Limits) -> None:
        assert self._loop is not None
        self._timer = None
        now = self._loop.time()
        for connection in list(self._active):
            connection.check(now)
        for connection in [idle for idle in self._idle.values() if now >= idle.idle_until]:
            connection.close()
            self._on_lost(connection)
        if self._active or self._idle:
            self._watch(limits)

    def __repr__(self) -> str:
        return f"Client(active={len(self._active)}, idle={len(self._idle)})"


def user_agent(identity: IdentityConfig) -> str:
    """The one User-Agent of all requests: product token, version, contact."""
    product = f"{identity.token}/{crawler.__version__}"
    return f"{product} (+{identity.contact})" if identity.contact else product
