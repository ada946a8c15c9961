"""Handles the sockets of the host splitter: connections in both directions, reconnects, and TLS.

`session.py` decides what to send, and this module transfers the bytes. For each peer, one task dials the peer
for as long as the process lives. This task resolves the peer's name at every attempt, because addresses
change in a cluster. While a peer is missing, the task makes one attempt to connect per back-off. Nothing
waits for a write to finish: unsent entries stay in the outbox, and a transport buffers at most one window of
entries.

    process                              peers
    after each commit  ---- flush() ---> acks, entries, welcomes are sent
    on_news()          <---------------- entries were accepted, an epoch must be
                                         committed

There are three pitfalls. Under uvloop, a write to a dead peer raises RuntimeError, not ConnectionError. With
TLS, a connection must count towards the limit from the moment when it is accepted. If a connection counted
only after its TLS handshake, unidentified clients could hold any number of connections. If a `sock_accept` is
cancelled while it completes, the socket is lost. Therefore, nothing is awaited between accepting a connection
and storing it.
"""

import asyncio
import ipaddress
import logging
import os
import socket
import ssl
from collections.abc import Callable, Collection, Container, Coroutine, Iterable, Mapping
from functools import partial
from pathlib import Path

from crawler.clock import Clock
from crawler.config import SplitterConfig
from crawler.config.checks import check_limits
from crawler.config.forms import Address, host_port
from crawler.errors import BehindError, ConfigError, CrawlerError, DirectoryError, StoreError, reason_of
from crawler.records import PeerStatus
from crawler.splitter.doorkeeper import Doorkeeper
from crawler.splitter.session import Backoff, Common, Dialler, Ending, Listener, SessionState
from crawler.splitter.wire import WITHOUT_ASKS, AskedRequest, Reason
from crawler.storage.faults import reach
from crawler.wording import several

logger = logging.getLogger(__name__)

Listen = Callable[[str, int], socket.socket]
_ASK_INTERVAL = 0.2  # seconds between two looks whether a peer is connected
# A request with one of these methods may be made again if it is not known whether the first one was made.
_REPEATABLE = ("GET", "OPTIONS")
STRANGERS_EVERY = 60.0  # minimum seconds between two log lines about unidentified connections


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def listen_address(config: SplitterConfig, secret: bytes) -> Address:
    """Return the address to listen on.

    Raises:
        ConfigError: other machines could connect, and there is no secret.
    """
    host, port = host_port(config.listen)
    if not secret and not is_loopback(host):
        raise ConfigError(
            f"splitter.listen {config.listen!r}: set splitter.secret_file, or listen on 127.0.0.1"
        )
    return host, port


def listening_socket(host: str, port: int) -> socket.socket:
    """Open a socket that listens at `host` and `port`. If `host` is "::", it accepts IPv4 and IPv6.

    Raises:
        OSError: listening on the address is not possible.
    """
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    both = family == socket.AF_INET6 and host == "::" and socket.has_dualstack_ipv6()
    found = socket.create_server((host, port), family=family, dualstack_ipv6=both)
    found.setblocking(False)
    return found


def tls_contexts(config: SplitterConfig) -> tuple[ssl.SSLContext, ssl.SSLContext] | tuple[None, None]:
    """Return the contexts of mutual TLS for listening and for dialling, or (None, None) without TLS.

    Raises:
        ConfigError: a file is missing or cannot be read.
    """
    files = (config.tls_certificate, config.tls_key, config.tls_authority)
    if not any(files):
        return None, None
    try:
        return _tls_context(ssl.PROTOCOL_TLS_SERVER, *files), _tls_context(ssl.PROTOCOL_TLS_CLIENT, *files)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"splitter: TLS files {', '.join(map(str, map(Path, files)))}: {reason_of(error)}"
        ) from error


def _tls_context(protocol: int, certificate: str, key: str, authority: str) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(authority)
    context.verify_mode = ssl.CERT_REQUIRED
    return context


class TlsFiles:
    """The TLS contexts of the peers.

    If a file is replaced, later connections use the new one, because a node may run longer than a certificate is valid.
    """

    def __init__(self, config: SplitterConfig) -> None:
        self._config = config
        self._seen = self._versions()
        self._contexts = tls_contexts(config)

    @property
    def listen(self) -> ssl.SSLContext | None:
        """The context for listening; None without TLS."""
        return self._current()[0]

    @property
    def dial(self) -> ssl.SSLContext | None:
        """The context for dialling; None without TLS."""
        return self._current()[1]

    def _current(self) -> tuple[ssl.SSLContext | None, ssl.SSLContext | None]:
        if self._contexts[0] is not None and (found := self._versions()) != self._seen:
            self._seen = found
            try:
                self._contexts = tls_contexts(self._config)
            except ConfigError as error:  # perhaps only some of the files are replaced yet
                logger.error("%s; the former files stay in use", error)
        return self._contexts

    def _versions(self) -> list[tuple[int, int, int] | None]:
        config = self._config
        return [_version(name) for name in (config.tls_certificate, config.tls_key, config.tls_authority)]


def _version(name: str) -> tuple[int, int, int] | None:
    """Return numbers that change if a file is replaced; None if there is no file."""
    try:
        found = os.stat(name)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


class _Connection(asyncio.Protocol):
    """One session and its transport."""

    def __init__(self, peers: "Peers", session: Dialler | Listener) -> None:
        self.session = session
        self.closed = asyncio.Event()
        self.was_streaming = False
        # the task that creates the transport of an accepted connection
        self.opening: asyncio.Task[None] | None = None
        self._peers = peers
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._closing = False
        self._pump_scheduled = False  # whether the next `pump` is already scheduled
        self._is_full = False  # whether the transport's buffer is full

    # -- asyncio ----------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self.flush()

    def data_received(self, data: bytes) -> None:
        before = self.session.state
        if self._guarded(lambda: self.session.receive(data, self._peers.now())):
            self.flush()
        if self.session.state is not before:
            # if this session has replaced another one, write the last messages of that session
            self._peers.flush_parted()
        self._peers.tell_news()

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self.flush()

    def connection_lost(self, error: BaseException | None) -> None:
        if self.closed.is_set():
            return
        self.session.connection_lost(str(error) if error else "closed by the peer")
        if self._timer is not None:
            self._timer.cancel()
        self.closed.set()
        self._peers.left(self)

    # -- ours -------------------------------------------------------------------------------------

    def flush(self) -> None:
        """Write the session's data, close the transport if the session has ended, and set the timer."""
        transport = self._transport
        if self.closed.is_set() or self._closing:
            return
        if transport is None:
            if self.session.ending is not None and self.opening is not None:
                self.opening.cancel()  # the connection was rejected before its TLS handshake was complete
            return
        self.was_streaming = self.was_streaming or self.session.state is SessionState.STREAMING
        data = self.session.data_to_send()
        try:
            if data and not transport.is_closing():
                transport.write(data)
                self._reached()
            if self.session.ending is not None:
                self._close(transport)
                return
            if self.session.more and not self._pump_scheduled and not self._is_full:
                self._pump_scheduled = True
                asyncio.get_running_loop().call_soon(self._pump_again)
        except (RuntimeError, OSError) as error:
            self.session.connection_lost(str(error))
            transport.abort()
            return
        self._set_timer()

    def _reached(self) -> None:
        """Report that a fault point is reached. A crash test may end the process there."""
        if step := self.session.step:
            self.session.step = ""
            reach(step)

    def _close(self, transport: asyncio.Transport) -> None:
        """Close the connection after its last bytes are sent.

        If the peer does not read these bytes in time, the connection is aborted.
        """
        self._closing = True
        transport.close()
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(self._peers.linger, transport.abort)

    def _pump_again(self) -> None:
        """Send the next frame, now that other tasks have had their turn."""
        self._pump_scheduled = False
        self.pump()

    def pump(self) -> None:
        """Send the entries and acks that a commit has made ready."""
        if self._guarded(lambda: self.session.pump(self._peers.now())) and self.session.has_news:
            self.flush()

    def _guarded(self, step: Callable[[], None]) -> bool:
        """Run a step of the session.

        If the store of this process fails, end the whole process, not only the connection.
        """
        try:
            step()
        except CrawlerError as error:
            self._peers.on_failure(error)
            self.abort()
            return False
        return True

    def abort(self) -> None:
        """Close the connection immediately, without sending the rest."""
        if self._transport is not None:
            self._transport.abort()

    def _set_timer(self) -> None:
        due = self.session.next_wakeup()
        if self._timer is not None:
            if due >= self._timer_at:
                return  # the timer fires too early, and is then set again; this does no harm
            self._timer.cancel()
        self._timer_at = due
        delay = max(0.0, due - self._peers.now())
        self._timer = asyncio.get_running_loop().call_later(delay, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if self._guarded(lambda: self.session.tick(self._peers.now())):
            self.flush()


class Questions:
    """Asks peers for requests to their hosts, and answers their questions, on the connections of a process."""

    def __init__(self, connections: Collection[_Connection], now: Callable[[], float]) -> None:
        self._connections, self._now = connections, now

    async def ask(self, peer: str, request: AskedRequest, patience: float) -> bytes | None:
        """Let a peer make a request. Return its answer; None if its version of the protocol has no requests.

        Return b"" if the peer gives no answer within `patience` seconds, or if the connection breaks during a request
        that must not be made twice.
        """
        until = self._now() + patience
        while (left := until - self._now()) > 0.0:
            connection = self._streaming_to(peer)
            if connection is None:
                await asyncio.sleep(min(left, _ASK_INTERVAL))
                continue
            assert isinstance(connection.session, Dialler)
            if connection.session.protocol <= WITHOUT_ASKS:
                return None
            answered = asyncio.get_running_loop().create_future()
            connection.session.ask(request, partial(_settle, answered))
            connection.flush()
            await asyncio.wait({answered}, timeout=left)
            if answered.done() and (answer := answered.result()):
                return bytes(answer)
            if answered.done() and (connection.session.ending is None or request.method not in _REPEATABLE):
                return b""
        return b""

    def answer(self, session: Listener, number: int, fetch: bytes, sent: Callable[[], object]) -> None:
        """Answer the question of a peer; call `sent` when the answer has been sent or cannot be sent."""
        session.answer(number, fetch, sent)
        for connection in tuple(self._connections):
            if connection.session is session:
                connection.flush()

    def _streaming_to(self, peer: str) -> _Connection | None:
        """Return the connection that this process has dialled to a peer and that is in use; None if there is none."""
        for connection in self._connections:
            session = connection.session
            if (
                session.peer == peer
                and isinstance(session, Dialler)
                and session.state is SessionState.STREAMING
            ):
                return connection
        return None


async def readable(listening: socket.socket) -> None:
    """Wait until a connection can be accepted.

    Another process may still accept that connection first.
    """
    loop = asyncio.get_running_loop()
    come = asyncio.Event()
    loop.add_reader(listening, come.set)
    try:
        await come.wait()
    finally:
        loop.remove_reader(listening)


def _settle(answered: "asyncio.Future[bytes]", answer: bytes) -> None:
    if not answered.done():
        answered.set_result(answer)


class Shortage:
    """Finds out whether a process has had no file descriptor for connections for more than `limit` seconds.

    Then the process must end. Otherwise, it and its peers would wait for each other without end.
    """

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._since: float | None = None

    def lasts(self, now: float) -> bool:
        """Note that there is no descriptor; return whether there has been none for too long."""
        if self._since is None:
            self._since = now
        return now - self._since >= self._limit

    def end(self) -> None:
        """Note that there was a descriptor."""
        self._since = None

    def __repr__(self) -> str:
        return f"Shortage(since {self._since})"


class Strangers:
    """Limits the log lines about connections that never identified themselves.

    There is at most one line per minute, with the number of such connections.
    """

    def __init__(self) -> None:
        self._unsaid = 0
        self._said_at = -STRANGERS_EVERY

    def note(self, ending: str, now: float) -> str:
        """Count an unidentified connection that has ended; return a line to log, or "" if no line is due."""
        self._unsaid += 1
        if now - self._said_at < STRANGERS_EVERY:
            return ""
        count, self._unsaid, self._said_at = self._unsaid, 0, now
        return (
            f"unidentified client: {ending}"
            if count == 1
            else f"{several(count, 'unidentified client')}, the last: {ending}"
        )


class Peers:
    """All connections of a process. `addresses` contains the peers, not the process itself.

    A peer whose port is 0 is not dialled until `set_address` gives its port.

    `on_news` is called when entries of a peer have arrived and must be applied, or when a commit must store a
    fresh epoch. `on_failure` is called when the store fails and the process must end.

    Each start of a process has a number, which comes from the clock. A peer remembers the highest number of each
    process, and refuses a process that was started with a lower number. The cause may be that the clock of this
    process was set back. This is assumed if the peer is not connected to another process of the same name, and no
    peer has accepted the present start yet. Then `on_older` is called with the higher number.
    """

    def __init__(
        self,
        common: Common,
        addresses: Mapping[str, Address],
        clock: Clock,
        *,
        on_news: Callable[[], None],
        on_failure: Callable[[CrawlerError], None],
        on_older: Callable[[int], None],
        listen: Listen | None = None,
    ) -> None:
        self._listen = listen or listening_socket
        check_limits(common.config)
        self._common = common
        self._addresses = dict(addresses)
        self._on_news = on_news
        self.on_failure = on_failure
        self._shortage = Shortage(common.config.handshake_timeout)
        self._on_older = on_older
        self._was_accepted = False  # whether any peer has accepted this start of the process
        self.now = clock.now
        self.linger = float(common.config.handshake_timeout)
        self._doorkeeper = Doorkeeper(sessions_max=len(self._addresses) + common.config.strangers_max)
        # a dict, because its order is repeatable, unlike that of a set
        self._connections: dict[_Connection, None] = {}
        self.questions = Questions(self._connections.keys(), self.now)
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._socket: socket.socket | None = None
        self._tls = TlsFiles(common.config)
        self._may_dial = asyncio.Event()  # set when a peer may have become ready to be dialled
        self._closing = False
        self._strangers = Strangers()
        self._refused_by: set[str] = set()
        self._older: set[str] = set()  # peers that have refused the protocol number of this process
        # for each peer at whose address no process listens, the instant since which none has listened
        self._closed_since: dict[str, float] = {}
        self.last_ending: dict[str, str] = {}  # for each peer, the reason why its last connection ended

    async def start(self) -> Address:
        """Listen, and start to dial every peer; return the address on which the process listens.

        Raises:
            ConfigError: the process cannot listen on the address, or the address requires a secret and none is set.
        """
        host, port = listen_address(self._common.config, self._common.secret)
        try:
            self._socket = self._listen(host, port)
        except OSError as error:
            raise ConfigError(f"splitter.listen {host}:{port}: {error.strerror}") from error
        self._spawn(self._accept(self._socket))
        self.dial()
        return self._socket.getsockname()[:2]

    def dial(self) -> None:
        """Start to dial every peer."""
        for peer in self._addresses:
            self._spawn(self._keep_dialling(peer))

    def set_address(self, peer: str, address: Address) -> None:
        """Use `address` for this peer from the next attempt on."""
        self._addresses[peer] = address
        self._recheck_dialling()

    def flush(self, peers: Container[str]) -> None:
        """Send these peers the entries and acks that a commit has made ready.

        Call this after every commit.
        """
        self._recheck_dialling()
        for connection in tuple(self._connections):
            if connection.session.peer in peers:
                connection.pump()
        self.tell_news()

    async def close(self) -> None:
        """Close all connections. Entries in flight will be sent again later."""
        self._closing = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._socket is not None:
            self._socket.close()
        connections = tuple(self._connections)
        for connection in connections:
            connection.abort()
        await asyncio.gather(*(connection.closed.wait() for connection in connections))

    def status(self) -> dict[str, PeerStatus]:
        """Return, by name, the connection state of each peer and the number of links that wait for it."""
        spools = self._common.outbox.spools
        up = {
            connection.session.peer: connection
            for connection in self._connections
            if connection.was_streaming
        }
        return {
            peer: PeerStatus(
                address=f"{address[0]}:{address[1]}",
                connected=peer in up,
                last_ending=self.last_ending.get(peer, ""),
                outbox_links=spools[peer].links,
                outbox_bytes=spools[peer].bytes,
                in_flight_bytes=spools[peer].in_flight_bytes,
            )
            for peer, address in self._addresses.items()
        }

    # -- called by connections --------------------------------------------------------------------

    def left(self, connection: _Connection) -> None:
        """Remove a connection that was closed, and log the reason."""
        self._connections.pop(connection, None)
        session = connection.session
        self._doorkeeper.leave(session)
        if isinstance(session, Listener) and session.ending is not None and not self._closing:
            self._stop_if_behind(session.peer, session.ending)
            if session.peer:
                self._log(f"{session.peer} (incoming)", str(session.ending), bool(session.ending.reason))
            elif line := self._strangers.note(str(session.ending), self.now()):
                logger.log(logging.ERROR if session.ending.reason else logging.INFO, "splitter: %s", line)
        self.tell_news()

    def flush_parted(self) -> None:
        """Write the last messages of sessions that were replaced or rejected, and close their connections."""
        if parted := self._doorkeeper.take_parted():
            for connection in tuple(self._connections):
                if connection.session in parted:
                    connection.flush()

    def tell_news(self) -> None:
        """Call `on_news` if the process has something to take or to commit."""
        if self._common.inbox.waiting or self._common.outbox.urgent:
            self._on_news()

    # -- connecting -------------------------------------------------------------------------------

    async def _accept(self, listening: socket.socket) -> None:
        """Accept connections. Each connection counts towards the limit immediately, even before its TLS handshake."""
        while True:
            await readable(listening)
            try:
                accepted, _ = listening.accept()
            except BlockingIOError:  # the client has already disconnected
                continue
            except OSError as error:  # the process is out of file descriptors
                self._log("listening", str(error), True)
                if self._shortage.lasts(self.now()):
                    text = f"no connection to other processes can be made: {reason_of(error)}"
                    self.on_failure(StoreError(text))
                await asyncio.sleep(self._common.config.heartbeat)
                continue
            self._shortage.end()
            accepted.setblocking(False)
            session = Listener(self._common, self._doorkeeper.admit, self.now())
            connection = _Connection(self, session)
            connection.opening = self._spawn(self._take(connection, accepted))
            connection.opening.add_done_callback(partial(self._taken, connection, accepted))
            self._connections[connection] = None
            self._doorkeeper.enter(session)
            self.flush_parted()

    async def _take(self, connection: _Connection, accepted: socket.socket) -> None:
        """Create the transport of a connection that was accepted."""
        tls = self._tls.listen
        limit = self.linger if tls is not None else None
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection, accepted, ssl=tls, ssl_handshake_timeout=limit
            )
        except (OSError, RuntimeError) as error:
            accepted.close()
            connection.connection_lost(error)

    @staticmethod
    def _taken(connection: _Connection, accepted: socket.socket, task: "asyncio.Task[None]") -> None:
        """Clean up after an accepted connection if the creation of its transport was cancelled."""
        if task.cancelled():
            accepted.close()
            connection.connection_lost(None)

    def _recheck_dialling(self) -> None:
        self._may_dial.set()
        self._may_dial = asyncio.Event()

    async def _keep_dialling(self, peer: str) -> None:
        backoff = Backoff(self._common.config, self._common.rng)
        while True:
            while not self._common.outbox.spools[peer].ready or not self._addresses[peer][1]:
                await self._may_dial.wait()
            if await self._attempt(peer):
                backoff.reset()
            await asyncio.sleep(backoff.next())

    async def _attempt(self, peer: str) -> bool:
        """Connect once, and wait until the connection ends.

        Returns True if the connection was in use and ended without an error.
        """
        connection: _Connection | None = None
        host, port = self._addresses[peer]

        def begin() -> _Connection:
            nonlocal connection
            protocol = WITHOUT_ASKS if peer in self._older else 0
            session = Dialler(self._common, peer, self._doorkeeper.accept, self.now(), protocol)
            connection = _Connection(self, session)
            self._connections[connection] = None
            return connection

        try:
            async with asyncio.timeout(self._common.config.handshake_timeout):
                await asyncio.get_running_loop().create_connection(begin, host, port, ssl=self._tls.dial)
        except (OSError, TimeoutError, RuntimeError, UnicodeError) as error:
            if connection is not None:
                connection.connection_lost(error)
            if isinstance(error, ConnectionRefusedError):
                self._closed_since.setdefault(peer, self.now())
            else:
                self._closed_since.pop(peer, None)
            self._log(peer, f"cannot connect to {host}:{port}: {error or 'no answer'}", False)
            return False
        except asyncio.CancelledError:
            if connection is not None:
                connection.connection_lost(None)
            raise
        assert connection is not None
        self._closed_since.pop(peer, None)
        await connection.closed.wait()
        ending = connection.session.ending
        assert ending is not None
        self._log(peer, str(ending), bool(ending.reason))
        self._choose_protocol(peer, ending, connection.was_streaming)
        self._judge(peer, ending, connection.was_streaming)
        return connection.was_streaming and ending.reason is None

    def _choose_protocol(self, peer: str, ending: Ending, accepted: bool) -> None:
        """Use the other protocol number for the next connection if the peer has refused the present one."""
        if accepted:
            self._older.discard(peer)  # the peer may be started again in a newer version
        elif ending.by_peer and ending.reason is Reason.PROTOCOL:
            self._older ^= {peer}

    def _judge(self, peer: str, ending: Ending, accepted: bool) -> None:
        """Record whether the peer accepts this process.

        If the peer knows that another instance of this process was started later, stop this one.
        """
        if accepted:
            self._was_accepted = True
            self._refused_by.discard(peer)
        elif ending.by_peer and ending.reason not in (None, Reason.BUSY):
            self._refused_by.add(peer)
        self._stop_if_behind(peer, ending)
        if not (ending.by_peer and ending.reason is Reason.DOUBLE):
            return
        if ending.newest and not self._was_accepted:
            self._on_older(ending.newest)
            return
        name = self._common.identity.name
        self.on_failure(
            DirectoryError(
                f"{name}: stopped, because {peer} says: {ending.text}. Only one process of a name may run"
            )
        )

    def _stop_if_behind(self, peer: str, ending: Ending) -> None:
        """Stop this process if a peer reports that it lacks links that it had confirmed."""
        if ending.by_peer and ending.reason is Reason.BEHIND:
            self.on_failure(
                BehindError(
                    f"{self._common.identity.name}: stopped, because {peer} says: {ending.text}", peer
                )
            )

    def have_left(self, peers: Iterable[str], seconds: float) -> bool:
        """Return whether the machine of each of these peers has refused every connection for at least `seconds`.

        A machine that cannot be reached does not refuse. So a refusal shows that the network works and that
        the process does not run.
        """
        now = self.now()
        return all(now - self._closed_since.get(peer, now) >= seconds for peer in peers)

    @property
    def is_outcast(self) -> bool:
        """True if a peer refuses this process and no peer accepts its links.

        A process in this state must fetch nothing.
        """
        return bool(self._refused_by) and not any(
            connection.session.state is SessionState.STREAMING and isinstance(connection.session, Dialler)
            for connection in self._connections
        )

    def _log(self, peer: str, text: str, blame: bool) -> None:
        """Log why a connection ended.

        If the reason is the same as last time for this peer, it is not logged again.
        """
        if self.last_ending.get(peer) != text:
            self.last_ending[peer] = text
            logger.log(logging.ERROR if blame else logging.INFO, "splitter: %s: %s", peer, text)

    def _spawn(self, coroutine: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks[task] = None
        task.add_done_callback(lambda ended: self._tasks.pop(ended, None))
        return task

    def __repr__(self) -> str:
        return f"Peers({len(self._connections)} connections, {len(self._addresses)} peers)"
