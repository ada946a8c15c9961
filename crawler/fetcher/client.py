"""The fetcher's shell: `Client.fetch` turns every request into one Fetch.

    take an idle connection of the host, or open one
      -> write the request -> fill the answer -> conclude -> keep the connection idle, or close it

`Client.fetch` raises only for bugs and if cancelled. aiohttp's session is not used: it resends requests that must
not be resent, has one idle time for all hosts, treats bytes after an answer as the answer to the next request,
rejects or loses common answers (`framing.py`), and uses twice the CPU time.

If a GET fails on a reused connection before any byte of its answer has arrived, the server had already closed
the connection. The client then sends the GET again on another connection (RFC 9112 9.3.1). Other methods must
not be repeated, so they always use a new connection. One timer watches the time limits of all connections.
"""

import asyncio
import math
import resource
import time
from collections.abc import Hashable

from crawler.byte_account import ByteAccount
from crawler.clock import Clock
from crawler.config import FetchConfig, IdentityConfig, NetworkConfig
from crawler.errors import StoreError, Unexpected
from crawler.fetcher import outcome
from crawler.fetcher.address_guard import AddressGuard
from crawler.fetcher.answer import Answer
from crawler.fetcher.connection import RATE, READ_BYTES, Connection
from crawler.fetcher.connector import ConnectionNotOpened, Connector
from crawler.fetcher.fetch_request import FetchRequest, Target
from crawler.fetcher.idle_pool import Authority, IdlePool
from crawler.fetcher.prepared_requests import PreparedRequest, PreparedRequests, record_request
from crawler.fetcher.proxy_health import ProxyHealth
from crawler.fetcher.read_turns import SHARE, ReadTurns
from crawler.fetcher.throttle import Throttle
from crawler.records import TLS_FAILURES, Blame, Fetch, Outcome

_TICK_MAX = 0.25  # seconds between checks of the time limits
_TICK_MIN = 0.005
_STALL = 1.0  # if the timer is this many seconds late, the process did not run, for example after a SIGSTOP
# Each check of the time limits closes at most this many idle connections. With TLS, this takes about 10 ms.
_CLOSED_MAX = 32
_DESCRIPTORS = 1024  # file descriptors reserved for files, peers and requests; idle connections get the rest
# An answer with more bytes than this is large. In each turn of the event loop, the pieces of only one large
# answer are joined. For an answer of this size, this takes a millisecond.
_LARGE_BYTES = 1 << 20
_BROKEN_MAX = 10_000  # maximum number of remembered hosts whose certificates cannot be verified


class Client:
    """The fetcher "http" (`fetchers.py`). The limit of bytes per second applies to all processes together.

    Raises:
        ConfigError: a configured header, network, cookie file or signing key cannot be used.
    """

    places = 0  # no limit here; `crawl.concurrency` sets one

    def __init__(
        self,
        fetch: FetchConfig,
        identity: IdentityConfig,
        network: NetworkConfig,
        clock: Clock,
        unexpected: Unexpected | None = None,
        *,
        processes: int = 1,
    ) -> None:
        self._config = fetch
        self._throttle = Throttle(fetch.bytes_per_second / processes)
        self._clock = clock
        self._requests = PreparedRequests(fetch, identity, clock.now())
        self._guard = AddressGuard(network.allow_networks, network.allow_ports)
        self._view = memoryview(bytearray(READ_BYTES))
        self._active: set[Connection] = set()
        self.account: ByteAccount[Connection] = ByteAccount(max(1, fetch.held_bytes_max))
        self._resting: ReadTurns[Connection] = ReadTurns()
        self._joining = asyncio.Lock()
        self._spent = 0.0  # seconds spent reading in this turn of the event loop
        self._tick = _tick(fetch)
        self._idle: IdlePool[Connection] = IdlePool(fetch.idle_connections_max)
        self._broken: dict[str, None] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0  # when the timer should fire (monotonic)
        self._closing = False
        self._unexpected = unexpected or Unexpected()
        self._connector = Connector(self._guard, fetch.proxy, limited=bool(self._throttle))
        self._connectors: dict[str, Connector] = {}  # one connector for each proxy that a request has named
        self._proxy_health: ProxyHealth | None = None
        if (proxy := self._connector.proxy) is not None:
            self._proxy_health = ProxyHealth(proxy.address, logs_in="@" in fetch.proxy)

    async def start(self) -> None:
        """Prepare for fetching; call it in the event loop that fetches."""
        allowed = _allow_descriptors(_DESCRIPTORS + 2 * self._config.idle_connections_max)
        self._idle = IdlePool(min(self._config.idle_connections_max, allowed // 4))

    async def close(self) -> None:
        """Close all connections and end all fetches in progress."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._closing = True
        for connection in list(self._active):
            connection.close()
        while len(self._idle):
            self._idle.expire(math.inf, _CLOSED_MAX)
            await asyncio.sleep(0)

    def _connector_of(self, request: FetchRequest) -> Connector:
        """Return the connector for the request's proxy. Above `request_proxies_max` connectors, drop the oldest one."""
        if not request.proxy:
            return self._connector
        connector = self._connectors.pop(request.proxy, None)
        if connector is None:
            connector = self._connector.through(request.proxy)
        self._connectors[request.proxy] = connector
        if len(self._connectors) > self._config.request_proxies_max:
            del self._connectors[next(iter(self._connectors))]
        return connector

    async def fetch(self, request: FetchRequest) -> Fetch:
        """Fetch a URL; raise only if cancelled. An unexpected exception gives the outcome `internal_error`."""
        while wait := self._throttle.wait(time.monotonic()):
            await asyncio.sleep(wait)
        began, started = self._clock.now(), time.monotonic()
        try:
            fetch = await self._fetch(request, began, started)
        except StoreError:  # part of a large file could not be written
            raise
        except Exception as error:
            text = self._unexpected.note(error, f"fetching {request.url}")
            ended = Outcome.INTERNAL_ERROR
            fetch = Fetch(request.url, ended, outcome.blame_of(ended), error=text)
            fetch.took = time.monotonic() - started
        fetch.began = began
        if request.proxy:
            if fetch.outcome is Outcome.PROXY_ERROR:  # the host's other requests do not use this proxy
                fetch.blame = Blame.URL
        elif self._proxy_health is not None:
            self._proxy_health.note(fetch, time.monotonic())
        return fetch

    async def _fetch(self, request: FetchRequest, began: float, started: float) -> Fetch:
        prepared = self._requests.prepare(request, self._connector_of(request), began)
        if request.file is not None:
            request.file.began, request.file.request_head = began, prepared.shown
        try:
            connection, answer, carried = await self._exchange(request, prepared, started)
        except ConnectionNotOpened as error:
            fetch = Fetch(request.url, error.outcome, outcome.blame_of(error.outcome), error=str(error))
            fetch.took = time.monotonic() - started
        else:
            try:
                if answer.held_bytes > _LARGE_BYTES:
                    await self._join(answer)
                fetch = self._concluded(request, connection, answer)
                fetch.connection = carried
                self._requests.learn(prepared, answer, fetch)
                self._release(connection, answer, request)
            except BaseException:
                connection.close()
                raise
        record_request(fetch, request, prepared)
        return fetch

    async def _join(self, answer: Answer) -> None:
        """Join the pieces of a large answer. Only one answer per turn of the loop is joined, because 10 MB take 5 ms."""
        async with self._joining:
            answer.join()
            await asyncio.sleep(0)

    async def _exchange(
        self, request: FetchRequest, prepared: PreparedRequest, started: float
    ) -> tuple[Connection, Answer, str]:
        """Return the connection, the answer received on it, and how the request got the connection."""
        target, sent, limits = prepared.target, prepared.sent, request.limits(self._config)
        key = (target.scheme, target.hostname, target.port, request.tls or self._config.tls)
        deadline = started + limits.total_timeout
        connection = (
            self._kept(key, request, started) if request.method == "GET" and not request.proxy else None
        )
        if connection is not None:
            answer = await self._ask(connection, sent, limits, deadline, request)
            if answer.failure is not Outcome.RESET or answer.wire_bytes:
                return connection, answer, "reused"
            connection.close()
        connection = await self._open(key, target, request, limits, deadline)
        answer = await self._ask(connection, sent, limits, deadline, request)
        return connection, answer, connection.opened

    def _kept(self, key: Authority, request: FetchRequest, now: float) -> Connection | None:
        """Return the host's idle connection, unless something has arrived on it since its last answer."""
        addresses = () if self._connector.proxy is not None else request.addresses
        connection = self._idle.take(key, addresses, now)
        if connection is not None and not connection.is_quiet():
            connection.close()
            return None
        return connection

    async def _ask(
        self, connection: Connection, sent: bytes, limits: FetchConfig, deadline: float, request: FetchRequest
    ) -> Answer:
        self._active.add(connection)
        try:
            if self._timer is None:
                self._watch()
            answer = Answer(limits, request.listener, request.file, request.url)
            await connection.exchange(sent, answer, limits, deadline, request.slot)
            # `let_go` releases the memory charged to the connection. If the owner were charged only afterwards,
            # another connection could take this memory first.
            if request.owner is not None:
                self.account.release(connection)
                self.account.charge(request.owner, answer.held_bytes)
            return answer
        except BaseException:
            connection.close()
            raise
        finally:
            self._active.discard(connection)
            self.let_go(connection)

    def hold_more(self, owner: Hashable, nbytes: int) -> None:
        """Charge memory for data derived from an answer to the answer's owner, until `let_go` is called for it."""
        self.account.charge(owner, nbytes)

    def let_go(self, owner: Hashable) -> None:
        """Release all memory charged to `owner` and resume the connections that waited for it."""
        self.account.release(owner)
        while (free := self.account.next_free()) is not None:
            try:
                free.resume()
            except Exception as error:
                free.fail(error)

    def grew(self, connection: Connection, nbytes: int) -> None:
        """Account for the bytes that `connection` holds. If memory is short, pause it until other connections end."""
        if not self.account.reserve(connection, nbytes):
            connection.pause()

    def has_time(self) -> bool:
        """Return whether this turn of the event loop has time left for reading."""
        return self._spent < SHARE

    def spent(self, seconds: float) -> None:
        """Add the time that reading a piece of an answer took, in seconds, to this turn's reading time."""
        if not self._spent:
            asyncio.get_running_loop().call_soon(self._begin_turn)
        self._spent += seconds
        self._resting.read(seconds)

    def _begin_turn(self) -> None:
        self._spent = 0.0

    def rests(self, connection: Connection) -> None:
        """Queue `connection`, which has read a lot, until it may read more."""
        self._resting.rest(connection, connection.read_time)
        if len(self._resting) == 1:
            asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        for connection in self._resting.next(time.thread_time()):
            try:
                connection.go_on()
            except Exception as error:
                connection.fail(error)
        if self._resting:
            asyncio.get_running_loop().call_soon(self._go_on)

    def received(self, connection: Connection, nbytes: int) -> None:
        """Count bytes that `connection` has read, and pause it if the rate limit is exceeded."""
        if self._throttle and (wait := self._throttle.spend(nbytes, time.monotonic())):
            connection.pause(RATE)
            asyncio.get_running_loop().call_later(wait, connection.resume, RATE)

    def parts(self, connection: Connection, transport: asyncio.BaseTransport) -> None:
        """Record that `connection` has ended and that its `transport` is about to be closed."""
        self._idle.forget(connection)
        if connection.key[0] == "https" and connection.took and not self._closing:
            self._connector.keep_session(connection.key[1], transport, verify=connection.tls_ok)

    async def _open(
        self, key: Authority, target: Target, request: FetchRequest, limits: FetchConfig, deadline: float
    ) -> Connection:
        """Open a connection. In mode "record", retry without verification if verification fails."""
        records = key[3] == "record"
        verify = not (records and target.host in self._broken)
        while True:
            connection = Connection(key, self._view, self, tls_ok=verify)
            connector = self._connector_of(request)
            try:
                await connector.open(connection, target, request.addresses, limits, deadline, verify=verify)
                break
            except ConnectionNotOpened as error:
                if not (verify and records and error.outcome in TLS_FAILURES):
                    raise
                verify = False
        if not verify:
            self._broken[target.host] = None
            if len(self._broken) > _BROKEN_MAX:
                del self._broken[next(iter(self._broken))]
        return connection

    def _release(self, connection: Connection, answer: Answer, request: FetchRequest) -> None:
        """Keep the connection for its host's next request, or close it."""
        if (
            request.proxy
            or request.keep_alive <= 0.0
            or not answer.reusable
            or connection.lost
            or self._closing
        ):
            connection.close()
            return
        behind = request.keep_alive_factor * connection.took
        keep = max(request.keep_alive, behind + self._config.keep_alive_extra if behind else 0.0)
        self._idle.add(connection, time.monotonic(), min(keep, self._config.keep_alive_max))

    def _concluded(self, request: FetchRequest, connection: Connection, answer: Answer) -> Fetch:
        received, proxy = answer.head, self._connector_of(request).proxy
        ended = outcome.conclude(answer, conditional=request.conditional)
        if received is None:
            fetch = Fetch(request.url, ended, outcome.blame_of(ended))
        else:
            if received.status == 407 and proxy is not None and proxy.forwards:
                ended = Outcome.PROXY_ERROR
            content_type, charset = received.media_type()
            fetch = Fetch(
                request.url,
                ended,
                outcome.blame_of(ended),
                status=received.status,
                reason=received.reason,
                version=received.version,
                headers=received.fields,
                known=received.known,
                head_block=received.block,
                body=answer.body,
                content=answer.content,
                content_type=content_type,
                charset=charset,
                truncated=answer.truncated,
                location=outcome.location_of(received),
                part=answer.part,
                retry_after=outcome.retry_after_of(received, self._clock.now()),
            )
        fetch.address = "" if proxy is not None else connection.address
        fetch.wire_bytes = answer.wire_bytes
        fetch.error = answer.error
        fetch.undecoded = answer.undecoded
        fetch.tls_ok = connection.tls_ok
        fetch.took = connection.took
        return fetch

    def _watch(self) -> None:
        self._due = time.monotonic() + self._tick
        self._timer = asyncio.get_running_loop().call_later(self._tick, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        now = time.monotonic()
        for connection in list(self._active):
            try:
                if now - self._due > _STALL:
                    connection.excuse(now - self._due)
                connection.check(now)
            except Exception as error:
                connection.fail(error)
        self._idle.expire(now, _CLOSED_MAX)
        if self._active or len(self._idle):
            self._watch()

    def __repr__(self) -> str:
        return f"Client(active={len(self._active)}, {self._idle!r})"


def _allow_descriptors(wanted: int) -> int:
    """Ask the system for `wanted` file descriptors; return the number that this process may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft


def _tick(limits: FetchConfig) -> float:
    """Return the seconds between two checks of the time limits: a tenth of the shortest limit, within bounds."""
    shortest = min(limits.header_timeout, limits.silence_timeout, limits.total_timeout)
    return max(min(shortest / 10.0, _TICK_MAX), _TICK_MIN)
