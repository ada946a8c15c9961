"""One connection between two processes, as a state machine without I/O.

The process that sends links opens the connection (it *dials*). So any two processes have two connections, one
for each direction, and receiving never waits for sending.

    dialler                                             listener
    OPENING    Open{protocol, challenge}         -->    WAITING
               <-- Challenge{challenge}                 CHALLENGING      (from here on both sides have keys)
    GREETING   Hello{name, facts to agree on, epoch} -> checks; DRAINING while older entries are not durable
               <-- Welcome{durable} | Refuse{reason}    STREAMING
    STREAMING  Entries (at most a window unconfirmed) -->
               <-- Ack{durable, counters} after each commit and each second; Resync{accepted}
               Heartbeat{counters} each second   -->
    Ask{request} to a host of the listener  -->
               <-- Fetched{part}, ..., later and in any order of the questions

The caller (`peers.py`) passes received bytes to `receive`. The caller must call `tick` at the time that
`next_wakeup()` returns, and `pump` after every commit. The caller sends the bytes that `data_to_send`
returns, and closes the transport once `ending` is set and everything is sent. Any call may end the session.
No call raises an exception because of the peer's behaviour.

The tag of the first frame that the listener sends with its key proves that the listener knows the secret. The
tag of the Hello proves that the dialler knows the secret. No link is sent before the Welcome.
"""

from collections import deque
from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

import msgspec

from crawler.config import SplitterConfig
from crawler.splitter.coordination import Coordination
from crawler.splitter.inbox import Arrival, Inbox
from crawler.splitter.outbox import Outbox
from crawler.splitter.partition import Partition
from crawler.splitter.secret import connection_keys
from crawler.splitter.spool import Greeting
from crawler.splitter.wire import (
    ANSWER_BYTES_MAX,
    FRAME_OVERHEAD,
    MAGIC,
    PROTOCOL,
    WITHOUT_ASKS,
    Ack,
    Ask,
    AskedRequest,
    Challenge,
    Entries,
    Fetched,
    FrameReader,
    Heartbeat,
    Hello,
    Message,
    NotOwnedError,
    Open,
    ProtocolError,
    Reason,
    Refuse,
    Resync,
    TagError,
    Tagger,
    Welcome,
    encode_frame,
)
from crawler.storage.faults import reach
from crawler.wording import several

# Maximum bytes of entries in one frame. With this size, a frame holds a few entries, and is sent in a short
# time.
_FRAME_BYTES = 64 << 10
# maximum number of requests that a session makes for its peer at the same time; further ones get an empty answer
QUESTIONS_MAX = 256


class SessionState(StrEnum):
    """The states of a session. See the diagram in the docstring of this module."""

    OPENING = "opening"
    GREETING = "greeting"
    WAITING = "waiting"
    CHALLENGING = "challenging"
    DRAINING = "draining"
    STREAMING = "streaming"
    ENDED = "ended"


class Identity(msgspec.Struct, frozen=True):
    """The identity of a process, and the facts on which both ends must agree.

    `canonical` is the version of the canonical form of URLs. `check` is the fingerprint of a fixed URL.
    Processes with different seeds or fingerprint methods compute different values. `incarnation` is a number
    that grows with each start of the process. Of two processes with the same name, the one that started
    earlier must stop.
    """

    crawl: str
    name: str
    boot: bytes
    canonical: int
    check: bytes
    incarnation: int = 0


class Ending(msgspec.Struct, frozen=True):
    """The reason why a session ended. `by_peer` is True if the peer sent the reason or closed the connection.

    `newest` is the field `newest` of the peer's `Refuse` message.
    """

    reason: Reason | None
    text: str
    by_peer: bool = False
    newest: int = 0

    def __str__(self) -> str:
        said = "the peer says: " if self.by_peer and self.reason else ""
        return f"{self.reason}: {said}{self.text}" if self.reason else self.text


class Random(Protocol):
    """The methods of a random generator that sessions need.

    Outside tests, the generator is `random.SystemRandom()`.
    """

    def getrandbits(self, bits: int, /) -> int: ...

    def random(self) -> float: ...


class Backoff:
    """Delays between attempts, which double from `backoff_min` to `backoff_max`. Up to half of a delay is random."""

    def __init__(self, config: SplitterConfig, rng: Random) -> None:
        self._config = config
        self._rng = rng
        self._delay = 0.0

    def next(self) -> float:
        """Return the number of seconds to wait before the next attempt."""
        self._delay = min(max(self._config.backoff_min, 2 * self._delay), self._config.backoff_max)
        return self._delay * (0.5 + 0.5 * self._rng.random())

    def reset(self) -> None:
        """Let the next delay be `backoff_min` again. Call this after a successful attempt."""
        self._delay = 0.0


class Common(msgspec.Struct):
    """The objects that all sessions of a process share.

    `asked` is called with (session, question) when a peer asks for a request; its answer is given to `session.answer`.
    """

    identity: Identity
    partition: Partition
    outbox: Outbox
    inbox: Inbox
    coordination: Coordination
    config: SplitterConfig
    rng: Random
    secret: bytes = b""
    shares_directory: bool = False  # whether all processes use the same crawl directory
    asked: Callable[["Listener", Ask], object] = lambda session, ask: session.answer(ask.number, b"")

    def lost_by(self, peer: str, boot: bytes, applied: int) -> str:
        """Return a message for `peer` if it has lost links that it had confirmed to this process, else "".

        `applied` is the number of links from this process that the peer reports in its Hello. The number may
        be too low: after the peer sent its Hello on this connection, it may have confirmed more links on the
        connection that this process has dialled. So links count as lost only if the peer has been restarted
        since it last confirmed links.
        """
        spool = self.outbox.spools[peer]
        missing = 0 if spool.peer_boot == boot else spool.missing(applied)
        return lost_links_text(self.identity.name, peer, missing, self.shares_directory) if missing else ""


def lost_links_text(me: str, peer: str, missing: int, shares_directory: bool) -> str:
    """Return a message that `peer` lacks links that it had confirmed to `me`, and what the user must do.

    `missing` is the number of these links; 0 means that the number is unknown.
    """
    links = several(missing, "link") if missing else "links"
    remedy = (
        "`crawler check --repair`"
        if shares_directory
        else f"stop {me} and run `crawler recover {peer}` in its directory"
    )
    return f"{peer} lacks {links} of {me} that it had confirmed: its store is of an earlier state; {remedy}"


class _Session:
    """The code that both sides of a session share: frames, timers, and the table of states."""

    # Maps each state to the types of messages that are accepted in it, and each type to the method that
    # handles it.
    TABLE: dict[SessionState, dict[type, str]] = {}

    def __init__(self, common: Common, state: SessionState, now: float) -> None:
        self.common = common
        self.state = state
        self.peer = ""
        self.ending: Ending | None = None
        self._reader = FrameReader()
        self._tagger = Tagger()
        self.boot = b""  # the boot id of the peer, once it is known
        self.incarnation = 0  # the number of the peer's start, once it is known
        self._applied = 0  # the number of links that the peer had applied when this session began
        self._out = bytearray()
        self._heard_at = now
        self._told_at = now  # the time when counters were last sent
        self.more = False  # whether `pump` must be called again after the current data is sent
        # the name of the fault point (`storage.faults`) that is reached when the bytes are sent
        self.step = ""
        # The deadline of the handshake, or infinity once the handshake is complete.
        self._deadline = now + common.config.handshake_timeout

    # -- input ------------------------------------------------------------------------------------

    def receive(self, data: bytes, now: float) -> None:
        """Process bytes from the peer."""
        if self.ending is not None:
            return
        self._heard_at = now
        self._reader.feed(data)
        try:
            while self.ending is None and (message := self._reader.next_message()) is not None:
                self._dispatch(message, now)
        except TagError as error:
            self._refuse(Reason.SECRET if self._first_keyed else Reason.PROTOCOL, str(error))
        except NotOwnedError as error:
            self._refuse(Reason.OWNER, str(error))
        except ProtocolError as error:
            self._refuse(Reason.PROTOCOL, str(error))
        if self.ending is None:
            self.pump(now)

    def _dispatch(self, message: Message, now: float) -> None:
        method = self.TABLE[self.state].get(type(message))
        if method is None:
            raise ProtocolError(f"splitter: unexpected {type(message).__name__} while {self.state}")
        getattr(self, method)(message, now)

    def tick(self, now: float) -> None:
        """End the session if the peer is silent, or send a heartbeat if one is due.

        It does no harm to call this earlier or more often than necessary.
        """
        if self.ending is not None:
            return
        if now >= self._deadline:
            self._end(None, f"no handshake within {self.common.config.handshake_timeout:g} s")
        elif now - self._heard_at >= self.common.config.silence_max:
            self._end(None, f"silent for {self.common.config.silence_max:g} s")
        elif self._may_tell and now - self._told_at >= self.common.config.heartbeat:
            self._tell(now)
        if self.ending is None:
            self.pump(now)

    def next_wakeup(self) -> float:
        """Return the time when `tick` is due."""
        silence = self._heard_at + self.common.config.silence_max
        told = self._told_at + self.common.config.heartbeat if self._may_tell else self._deadline
        return min(self._deadline, silence, told)

    def connection_lost(self, text: str) -> None:
        """End the session, because the transport is closed."""
        self._end(None, text or "closed", by_peer=True)

    @property
    def applied(self) -> int:
        """The number of links from all processes that the peer has applied, as far as it has told this process."""
        return max(self._applied, self.common.coordination.applied_by(self.peer, self.boot))

    def supersede(self, text: str) -> None:
        """End this session, because another session or a newer start of the peer replaces it."""
        self._end(None, text)

    def pump(self, now: float) -> None:
        """Send what can be sent. Call this after every commit."""

    # -- output -----------------------------------------------------------------------------------

    def data_to_send(self) -> bytes:
        """Return the bytes to send now. Each byte is returned only once."""
        data = bytes(self._out)
        self._out.clear()
        return data

    @property
    def has_news(self) -> bool:
        """True if there are bytes to send, or the session has ended."""
        return bool(self._out) or self.ending is not None

    def _send(self, message: Message) -> None:
        self._out += encode_frame(message, self._tagger)

    def _tell(self, now: float) -> None:
        self._told_at = now
        self._send(Heartbeat(self.common.coordination.counters_for(self.peer)))

    def _refuse(self, reason: Reason, text: str, newest: int = 0) -> None:
        """End the session, and send the reason to the peer."""
        if self.ending is None:
            self._send(Refuse(reason, text[:256], newest))
            self._end(reason, text)

    def _end(self, reason: Reason | None, text: str, *, by_peer: bool = False, newest: int = 0) -> None:
        if self.ending is None:
            self.ending = Ending(reason, text, by_peer, newest)
            self.state = SessionState.ENDED
            self._ended()

    def _ended(self) -> None:
        """Clean up, now that the session has ended."""

    # -- shared steps -----------------------------------------------------------------------------

    @property
    def _first_keyed(self) -> bool:
        """True if the next frame from the peer is its first frame with a key that depends on the secret."""
        return self.state in (SessionState.GREETING, SessionState.CHALLENGING) and self._deadline < float(
            "inf"
        )

    @property
    def _may_tell(self) -> bool:
        """True if the peer has proved that it knows the secret, so that our counters may be sent."""
        return self._deadline == float("inf")

    def _use_keys(self, receive_key: bytes, send_key: bytes) -> None:
        self._reader.tagger.rekey(receive_key)
        self._tagger.rekey(send_key)

    def _authenticated(self) -> None:
        self.common.coordination.addresses.connected(self.peer)
        self._deadline = float("inf")
        self._reader.bytes_max = self.common.config.frame_bytes_max + FRAME_OVERHEAD

    def _on_refuse(self, message: Refuse, now: float) -> None:
        self._end(message.reason, message.text, by_peer=True, newest=message.newest)

    def _on_heartbeat(self, message: Heartbeat, now: float) -> None:
        if not self._may_tell:
            self._authenticated()
        self.common.coordination.record_counters(self.peer, message.counters, now)

    def _nonce(self) -> bytes:
        return self.common.rng.getrandbits(256).to_bytes(32, "big")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.peer or '?'}: {self.ending or self.state})"


class Dialler(_Session):
    """Sends the outbox entries for `peer`. Start a dialler only while the outbox is ready for that peer.

    After the peer's Welcome, `accept` is called with this session. It returns None to accept the peer, or a refusal.
    `protocol` is the protocol number; 0 stands for the newest.
    """

    TABLE = {
        SessionState.OPENING: {Challenge: "_on_challenge", Refuse: "_on_refuse"},
        SessionState.GREETING: {Welcome: "_on_welcome", Refuse: "_on_refuse", Heartbeat: "_on_heartbeat"},
        SessionState.STREAMING: {
            Ack: "_on_ack",
            Resync: "_on_resync",
            Fetched: "_on_answer",
            Heartbeat: "_on_heartbeat",
            Refuse: "_on_refuse",
        },
    }

    def __init__(
        self,
        common: Common,
        peer: str,
        accept: Callable[["Dialler"], Refuse | None],
        now: float,
        protocol: int = 0,
    ) -> None:
        super().__init__(common, SessionState.OPENING, now)
        self.peer = peer
        self.protocol = protocol or PROTOCOL
        self._questions = 0  # number of requests that this session has asked for
        # for each question, the parts of its answer that have arrived, and the function that receives the answer
        self._unanswered: dict[int, tuple[bytearray, Callable[[bytes], object]]] = {}
        self._accept = accept
        self._spool = common.outbox.spools[peer]
        self._epoch = self._spool.state.epoch
        self._challenge = self._nonce()
        self._send(Open(MAGIC, self.protocol, self._challenge))

    def _on_challenge(self, message: Challenge, now: float) -> None:
        mine, theirs = connection_keys(self.common.secret, self._challenge, message.nonce)
        self._use_keys(theirs, mine)
        identity, table = self.common.identity, self.common.partition
        self._send(
            Hello(
                crawl=identity.crawl,
                name=identity.name,
                to=self.peer,
                boot=identity.boot,
                table_epoch=table.epoch,
                table_digest=table.digest,
                canonical=identity.canonical,
                check=identity.check,
                outbox_epoch=self._epoch,
                incarnation=identity.incarnation,
                applied=self.common.inbox.applied_from(self.peer),
                applied_in_all=self.common.inbox.applied,
            )
        )
        self.state = SessionState.GREETING

    def _on_welcome(self, message: Welcome, now: float) -> None:
        self._authenticated()
        self.boot, self.incarnation = message.boot, message.incarnation
        self._applied = message.applied_in_all
        if (refusal := self._accept(self)) is not None:
            self._refuse(refusal.reason, f"{self.peer}: {refusal.text}", refusal.newest)
            return
        greeting = self.common.outbox.welcome(
            self.peer, self._epoch, message.durable, message.chain, message.applied
        )
        if greeting is Greeting.BEHIND:
            missing = self._spool.missing(message.applied)
            text = lost_links_text(
                self.common.identity.name, self.peer, missing, self.common.shares_directory
            )
            self._refuse(Reason.BEHIND, text)
            return
        if greeting is not Greeting.GO_ON:
            self._end(None, f"{greeting}; the outbox is renumbered")
            return
        self._spool.peer_boot = message.boot
        self.state = SessionState.STREAMING
        self._tell(now)

    def _on_ack(self, message: Ack, now: float) -> None:
        self._spool.acknowledge(message.durable)
        self.common.coordination.record_counters(self.peer, message.counters, now)

    def ask(self, request: AskedRequest, done: Callable[[bytes], object]) -> None:
        """Ask the peer to make a request. Call `done` with the answer, or with b"" if the session ends."""
        assert self.state is SessionState.STREAMING and self.protocol > WITHOUT_ASKS, self
        self._questions += 1
        self._unanswered[self._questions] = bytearray(), done
        self._send(Ask(self._questions, request))

    def _on_answer(self, message: Fetched, now: float) -> None:
        answer, done = self._unanswered.get(message.number, (bytearray(), None))
        if done is None:
            raise ProtocolError(f"splitter: an answer to question {message.number}, which was not asked")
        if len(answer) + len(message.part) > ANSWER_BYTES_MAX:
            raise ProtocolError(f"splitter: an answer of more than {ANSWER_BYTES_MAX} bytes")
        answer += message.part
        if message.last:
            del self._unanswered[message.number]
            done(bytes(answer))

    def _on_resync(self, message: Resync, now: float) -> None:
        self._spool.resync(message.accepted)

    def pump(self, now: float) -> None:
        """Send a frame of entries if the window has room. Set `more` if there may be another frame to send.

        Each call sends only one frame. So the owner of the links can commit the first entries while this
        process reads the next ones. A long queue does not delay the other work of this process.
        """
        if self.state is not SessionState.STREAMING:
            return
        limit = min(_FRAME_BYTES, self.common.config.frame_bytes_max // 2)
        first, entries = self._spool.take_unsent(limit)
        self.more = bool(entries)
        if entries:
            self._send(Entries(first, entries))
            self.step = "entries sent"

    def _ended(self) -> None:
        if self._spool.connected:
            self._spool.disconnect()
        while self._unanswered:
            self._unanswered.popitem()[1][1](b"")


class Listener(_Session):
    """Receives the entries that a peer sends. After the peer's Hello, `admit` is called with this session.

    It returns None to admit the peer, or a refusal.
    """

    TABLE = {
        SessionState.WAITING: {Open: "_on_open"},
        SessionState.CHALLENGING: {Hello: "_on_hello", Refuse: "_on_refuse"},
        SessionState.DRAINING: {Heartbeat: "_on_heartbeat", Refuse: "_on_refuse"},
        SessionState.STREAMING: {
            Entries: "_on_entries",
            Ask: "_on_ask",
            Heartbeat: "_on_heartbeat",
            Refuse: "_on_refuse",
        },
    }

    def __init__(self, common: Common, admit: Callable[["Listener"], Refuse | None], now: float) -> None:
        super().__init__(common, SessionState.WAITING, now)
        self.loss = ""  # a message if the peer has lost confirmed links; such a peer is not admitted
        self._admit = admit
        self._epoch = b""
        self._durable_told = 0
        self._resyncing = False
        self._open_questions = 0
        # the unsent parts of answers: question, bytes, and the function to call when the answer is sent
        self._answers: deque[tuple[int, memoryview, Callable[[], object]]] = deque()

    def _on_open(self, message: Open, now: float) -> None:
        if message.magic != MAGIC or message.protocol not in (PROTOCOL, WITHOUT_ASKS):
            self._refuse(Reason.PROTOCOL, f"expected protocol {PROTOCOL}, got {message.protocol}")
            return
        challenge = self._nonce()
        self._send(Challenge(challenge))
        theirs, mine = connection_keys(self.common.secret, message.nonce, challenge)
        self._use_keys(theirs, mine)
        self.state = SessionState.CHALLENGING

    def _on_hello(self, hello: Hello, now: float) -> None:
        refusal = self._disagreement(hello)
        if refusal is None:
            self.peer, self.boot, self.incarnation = hello.name, hello.boot, hello.incarnation
            self._applied = hello.applied_in_all
            self.loss = self.common.lost_by(hello.name, hello.boot, hello.applied)
            refusal = self._admit(self)
        if refusal is not None:
            self._refuse(refusal.reason, f"{hello.name}: {refusal.text}", refusal.newest)
            return
        self._epoch = hello.outbox_epoch
        self._authenticated()
        self.state = SessionState.DRAINING

    def _disagreement(self, hello: Hello) -> Refuse | None:
        me, table = self.common.identity, self.common.partition
        if hello.crawl != me.crawl:
            return Refuse(Reason.CRAWL, f"expected crawl {me.crawl}, got {hello.crawl}")
        if hello.to != me.name:
            return Refuse(Reason.NAME, f"this is {me.name}, not {hello.to}")
        if hello.name not in self.common.coordination:
            return Refuse(Reason.NAME, f"{hello.name} is not among the peers of {me.name}")
        if (hello.table_epoch, hello.table_digest) != (table.epoch, table.digest):
            return Refuse(
                Reason.TABLE, f"expected bucket table {table.epoch}, got {hello.table_epoch}; or names differ"
            )
        if hello.canonical != me.canonical:
            return Refuse(Reason.CANONICAL, f"expected canonical form {me.canonical}, got {hello.canonical}")
        if hello.check != me.check:
            return Refuse(Reason.FINGERPRINT, "fingerprints differ in seed, method or partition")
        return None

    def _on_entries(self, message: Entries, now: float) -> None:
        for sequence, entry in enumerate(message.entries, message.first):
            arrival = self.common.inbox.accept(self.peer, sequence, entry)
            if arrival is Arrival.GAP:
                self._ask_again()
                return
            if arrival is Arrival.QUEUED:
                self._resyncing = False
                reach("entries accepted")

    def _on_ask(self, message: Ask, now: float) -> None:
        self._open_questions += 1
        if self._open_questions > QUESTIONS_MAX:
            return self.answer(message.number, b"")
        self.common.asked(self, message)

    def answer(self, number: int, fetch: bytes, sent: Callable[[], object] = lambda: None) -> None:
        """Send the result of a request that the peer has asked for, in parts. If the session has ended, do nothing.

        `sent` is called when the answer is no longer needed: it has been sent, or the session has ended.
        """
        self._open_questions -= 1
        if self.state is not SessionState.STREAMING:
            sent()
            return
        self._answers.append((number, memoryview(fetch), sent))
        self._send_part()

    def _send_part(self) -> None:
        """Send a part of the oldest answer. Set `more` if there is another part."""
        limit = min(_FRAME_BYTES, self.common.config.frame_bytes_max // 2)
        number, rest, sent = self._answers.popleft()
        self._send(Fetched(number, bytes(rest[:limit]), len(rest) <= limit))
        if len(rest) > limit:
            self._answers.appendleft((number, rest[limit:], sent))
        else:
            sent()
        self.more = bool(self._answers)

    def _ended(self) -> None:
        while self._answers:
            self._answers.popleft()[2]()

    def _ask_again(self) -> None:
        """Ask for a resync.

        Ask only once per gap. All entries that are already in transit come after the same gap, so they need
        no further request.
        """
        if not self._resyncing:
            self._resyncing = True
            self._send(Resync(self.common.inbox.accepted(self.peer)))

    def pump(self, now: float) -> None:
        """Send the Welcome once the peer's older entries are durable; later, acknowledge newly durable entries.

        Then send a part of an answer. Each call sends only one part, as the dialler sends only one frame of entries.
        """
        if self.state is SessionState.DRAINING:
            self._welcome()
        elif (
            self.state is SessionState.STREAMING and self.common.inbox.durable(self.peer) > self._durable_told
        ):
            self._tell(now)
        if self._answers and self.state is SessionState.STREAMING:
            self._send_part()

    def _welcome(self) -> None:
        durable = self.common.inbox.greet(self.peer, self._epoch)
        if durable is not None:
            self._durable_told = durable
            inbox = self.common.inbox
            self._send(
                Welcome(
                    self.common.identity.boot,
                    durable,
                    inbox.chain(self.peer),
                    inbox.applied_from(self.peer),
                    self.common.identity.incarnation,
                    inbox.applied,
                )
            )
            self.state = SessionState.STREAMING

    def _tell(self, now: float) -> None:
        if self.state is not SessionState.STREAMING:
            super()._tell(now)
            return
        self._told_at = now
        if self.common.inbox.durable(self.peer) > self._durable_told:
            self.step = "acks sent"
        self._durable_told = self.common.inbox.durable(self.peer)
        self._send(Ack(self._durable_told, self.common.coordination.counters_for(self.peer)))

    def turn_away(self) -> None:
        """End this session, because there are too many connections.

        The client of the session has not proved that it knows the secret.
        """
        self._refuse(Reason.BUSY, "too many connections")
