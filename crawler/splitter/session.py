"""One connection between two processes, as a state machine without input or output.

The sender of links dials. So two processes have two connections, and receiving
never waits for sending.

    dialler                                             listener
    OPENING    Open{protocol, challenge}         -->    WAITING
               <-- Challenge{challenge}                 CHALLENGING      (both sides have their keys now)
    GREETING   Hello{who, what must agree, epoch} -->   checks; DRAINING while older entries are under way
               <-- Welcome{durable} | Refuse{reason}    STREAMING
    STREAMING  Entries (at most a window unconfirmed) -->
               <-- Ack{durable, counters} after each commit and each second; Resync{accepted}
               Heartbeat{counters} each second   -->

The shell passes bytes in (`receive`), calls `tick` at `next_wakeup` and `pump`
after every commit, sends what `data_to_send` returns, and closes the transport
once `ending` is set and all was sent. Any call may end the session; none ever
raises for what a peer does.

The listener proves that it knows the secret by the tag of its first keyed
frame, the dialler by that of Hello; no link is sent before the Welcome.
"""

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
    FRAME_OVERHEAD,
    MAGIC,
    PROTOCOL,
    Ack,
    Challenge,
    Entries,
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

_FRAME_BYTES = 64 << 10  # of entries in one frame: a few, so that frames cost little and none is long


class SessionState(StrEnum):
    """Where a session is; see the picture above."""

    OPENING = "opening"
    GREETING = "greeting"
    WAITING = "waiting"
    CHALLENGING = "challenging"
    DRAINING = "draining"
    STREAMING = "streaming"
    ENDED = "ended"


class Identity(msgspec.Struct, frozen=True):
    """What a process says of itself, and what both ends must agree on.

    `canonical` is the version of the canonical form of URLs, `check` the
    fingerprint of a fixed URL, which tells seed and method apart. `incarnation`
    grows with each start of a process: of two of one name the older must stop.
    """

    crawl: str
    name: str
    boot: bytes
    canonical: int
    check: bytes
    incarnation: int = 0


class Ending(msgspec.Struct, frozen=True):
    """Why a session ended. `by_peer` if the other side said so or closed."""

    reason: Reason | None
    text: str
    by_peer: bool = False

    def __str__(self) -> str:
        said = "the peer says: " if self.by_peer and self.reason else ""
        return f"{self.reason}: {said}{self.text}" if self.reason else self.text


class Random(Protocol):
    """What sessions need of a random generator; `random.SystemRandom()` outside tests."""

    def getrandbits(self, bits: int, /) -> int: ...

    def random(self) -> float: ...


class Backoff:
    """Waits between attempts: doubling from `backoff_min` to `backoff_max`, with jitter of a half."""

    def __init__(self, config: SplitterConfig, rng: Random) -> None:
        self._config = config
        self._rng = rng
        self._delay = 0.0

    def next(self) -> float:
        """Seconds to wait before the next attempt."""
        self._delay = min(max(self._config.backoff_min, 2 * self._delay), self._config.backoff_max)
        return self._delay * (0.5 + 0.5 * self._rng.random())

    def reset(self) -> None:
        """An attempt has succeeded."""
        self._delay = 0.0


class Common(msgspec.Struct):
    """What all sessions of a process share."""

    identity: Identity
    partition: Partition
    outbox: Outbox
    inbox: Inbox
    coordination: Coordination
    config: SplitterConfig
    rng: Random
    secret: bytes = b""


class _Session:
    """What both sides have in common: frames, timers, the table of states."""

    # state -> message it takes -> method
    TABLE: dict[SessionState, dict[type, str]] = {}

    def __init__(self, common: Common, state: SessionState, now: float) -> None:
        self.common = common
        self.state = state
        self.peer = ""
        self.ending: Ending | None = None
        self._reader = FrameReader()
        self._tagger = Tagger()
        self._out = bytearray()
        self._heard_at = now
        self._told_at = now  # when counters were last sent
        self.more = False  # `pump` again once what there is has been sent
        self.step = ""  # what the bytes to send begin or end, as a fault point of `storage.faults`
        self._deadline = now + common.config.handshake_timeout  # of the handshake; infinity after it

    # -- input ------------------------------------------------------------------------------------

    def receive(self, data: bytes, now: float) -> None:
        """Take bytes from the peer."""
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
            raise ProtocolError(f"splitter: {type(message).__name__} while {self.state}")
        getattr(self, method)(message, now)

    def tick(self, now: float) -> None:
        """Time has passed: give up a silent peer, or tell it that we live. An extra call does no harm."""
        if self.ending is not None:
            return
        if now >= self._deadline:
            self._end(None, f"no handshake within {self.common.config.handshake_timeout:g} s")
        elif now - self._heard_at >= self.common.config.silence_max:
            self._end(None, f"silent for {self.common.config.silence_max:g} s")
        elif self._tells and now - self._told_at >= self.common.config.heartbeat:
            self._tell(now)
        if self.ending is None:
            self.pump(now)

    def next_wakeup(self) -> float:
        """When `tick` is due."""
        silence = self._heard_at + self.common.config.silence_max
        told = self._told_at + self.common.config.heartbeat if self._tells else self._deadline
        return min(self._deadline, silence, told)

    def connection_lost(self, text: str) -> None:
        """The transport is gone."""
        self._end(None, text or "closed", by_peer=True)

    def pump(self, now: float) -> None:
        """Send what can be sent; call it after every commit."""

    # -- output -----------------------------------------------------------------------------------

    def data_to_send(self) -> bytes:
        """What the shell is to send now; each byte is returned once."""
        data = bytes(self._out)
        self._out.clear()
        return data

    @property
    def has_news(self) -> bool:
        """Whether there is something to send, or the session has ended."""
        return bool(self._out) or self.ending is not None

    def _send(self, message: Message) -> None:
        self._out += encode_frame(message, self._tagger)

    def _tell(self, now: float) -> None:
        self._told_at = now
        self._send(Heartbeat(self.common.coordination.counters_for(self.peer)))

    def _refuse(self, reason: Reason, text: str) -> None:
        """End the session with a reason that the peer is told."""
        if self.ending is None:
            self._send(Refuse(reason, text[:256]))
            self._end(reason, text)

    def _end(self, reason: Reason | None, text: str, *, by_peer: bool = False) -> None:
        if self.ending is None:
            self.ending = Ending(reason, text, by_peer)
            self.state = SessionState.ENDED
            self._ended()

    def _ended(self) -> None:
        """The session has just ended."""

    # -- shared steps -----------------------------------------------------------------------------

    @property
    def _first_keyed(self) -> bool:
        """Whether the next frame from the peer is its first under the secret's key."""
        return self.state in (SessionState.GREETING, SessionState.CHALLENGING) and self._deadline < float(
            "inf"
        )

    @property
    def _tells(self) -> bool:
        """Whether the peer may be told our counters: it has shown the secret."""
        return self._deadline == float("inf")

    def _use_keys(self, receive_key: bytes, send_key: bytes) -> None:
        self._reader.tagger.rekey(receive_key)
        self._tagger.rekey(send_key)

    def _authenticated(self) -> None:
        self._deadline = float("inf")
        self._reader.bytes_max = self.common.config.frame_bytes_max + FRAME_OVERHEAD

    def _on_refuse(self, message: Refuse, now: float) -> None:
        self._end(message.reason, message.text, by_peer=True)

    def _on_heartbeat(self, message: Heartbeat, now: float) -> None:
        if not self._tells:
            self._authenticated()
        self.common.coordination.record_counters(self.peer, message.counters, now)

    def _nonce(self) -> bytes:
        return self.common.rng.getrandbits(256).to_bytes(32, "big")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.peer or '?'}: {self.ending or self.state})"


class Dialler(_Session):
    """Sends what the outbox holds for `peer`. Begin it only while the outbox is ready for that peer."""

    TABLE = {
        SessionState.OPENING: {Challenge: "_on_challenge", Refuse: "_on_refuse"},
        SessionState.GREETING: {Welcome: "_on_welcome", Refuse: "_on_refuse", Heartbeat: "_on_heartbeat"},
        SessionState.STREAMING: {
            Ack: "_on_ack",
            Resync: "_on_resync",
            Heartbeat: "_on_heartbeat",
            Refuse: "_on_refuse",
        },
    }

    def __init__(self, common: Common, peer: str, now: float) -> None:
        super().__init__(common, SessionState.OPENING, now)
        self.peer = peer
        self._spool = common.outbox.spools[peer]
        self._epoch = self._spool.state.epoch
        self._challenge = self._nonce()
        self._send(Open(MAGIC, PROTOCOL, self._challenge))

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
            )
        )
        self.state = SessionState.GREETING

    def _on_welcome(self, message: Welcome, now: float) -> None:
        self._authenticated()
        greeting = self.common.outbox.welcome(self.peer, self._epoch, message.durable, message.chain)
        if greeting is not Greeting.GO_ON:
            self._end(None, f"{greeting}; the outbox is renumbered")
            return
        self.state = SessionState.STREAMING
        self._tell(now)

    def _on_ack(self, message: Ack, now: float) -> None:
        self._spool.acknowledge(message.durable)
        self.common.coordination.record_counters(self.peer, message.counters, now)

    def _on_resync(self, message: Resync, now: float) -> None:
        self._spool.resync(message.accepted)

    def pump(self, now: float) -> None:
        """Send a frame of entries if the window has room; `more` says that there may be another.

        One at a time, so that the owner commits the first while the next are
        read, and a long queue does not hold up what else the process does.
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


class Listener(_Session):
    """Takes what a peer sends. `admit` says whether a Hello is welcome beside the other sessions."""

    TABLE = {
        SessionState.WAITING: {Open: "_on_open"},
        SessionState.CHALLENGING: {Hello: "_on_hello", Refuse: "_on_refuse"},
        SessionState.DRAINING: {Heartbeat: "_on_heartbeat", Refuse: "_on_refuse"},
        SessionState.STREAMING: {Entries: "_on_entries", Heartbeat: "_on_heartbeat", Refuse: "_on_refuse"},
    }

    def __init__(self, common: Common, admit: Callable[["Listener"], Refuse | None], now: float) -> None:
        super().__init__(common, SessionState.WAITING, now)
        self.boot = b""
        self.incarnation = 0
        self._admit = admit
        self._epoch = b""
        self._durable_told = 0
        self._resyncing = False

    def _on_open(self, message: Open, now: float) -> None:
        if message.magic != MAGIC or message.protocol != PROTOCOL:
            self._refuse(Reason.PROTOCOL, f"protocol {message.protocol}, here {PROTOCOL}")
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
            refusal = self._admit(self)
        if refusal is not None:
            self._refuse(refusal.reason, f"{hello.name}: {refusal.text}")
            return
        self._epoch = hello.outbox_epoch
        self._authenticated()
        self.state = SessionState.DRAINING

    def _disagreement(self, hello: Hello) -> Refuse | None:
        me, table = self.common.identity, self.common.partition
        if hello.crawl != me.crawl:
            return Refuse(Reason.CRAWL, f"crawl {hello.crawl}, here {me.crawl}")
        if hello.to != me.name:
            return Refuse(Reason.NAME, f"this is {me.name}, not {hello.to}")
        if hello.name not in self.common.coordination:
            return Refuse(Reason.NAME, f"{hello.name} is not among the peers of {me.name}")
        if (hello.table_epoch, hello.table_digest) != (table.epoch, table.digest):
            return Refuse(
                Reason.TABLE, f"bucket table {hello.table_epoch}, here {table.epoch}; or names differ"
            )
        if hello.canonical != me.canonical:
            return Refuse(Reason.CANONICAL, f"canonical form {hello.canonical}, here {me.canonical}")
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

    def _ask_again(self) -> None:
        """Ask once; what was on the way meanwhile has the same gap."""
        if not self._resyncing:
            self._resyncing = True
            self._send(Resync(self.common.inbox.accepted(self.peer)))

    def pump(self, now: float) -> None:
        """Welcome the peer once its older entries are durable; confirm what became durable."""
        if self.state is SessionState.DRAINING:
            self._welcome()
        elif (
            self.state is SessionState.STREAMING and self.common.inbox.durable(self.peer) > self._durable_told
        ):
            self._tell(now)

    def _welcome(self) -> None:
        durable = self.common.inbox.greet(self.peer, self._epoch)
        if durable is not None:
            self._durable_told = durable
            self._send(Welcome(self.common.identity.boot, durable, self.common.inbox.chain(self.peer)))
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
        """Too many connections: end this one, which has not shown the secret."""
        self._refuse(Reason.BUSY, "too many connections")

    def supersede(self) -> None:
        """The peer has come again: end this session."""
        self._end(None, "the peer has connected again")


class Doorkeeper:
    """The sessions that listen: who is in, and whether one more may come in.

    At most one session a peer: a second one of the same boot id, or of a newer
    start, takes the place of the first (its connection broke unnoticed, or it
    runs on a copy of the folder). An older start is refused for good, another
    one of the same age while the first lives: two processes of one name would
    lose links and ask the same hosts.
    """

    def __init__(self, *, sessions_max: int) -> None:
        self._sessions_max = sessions_max
        self._known: dict[str, Listener] = {}
        self._newest: dict[str, int] = {}  # the latest start of each peer that was let in
        self._strangers: dict[Listener, None] = {}  # not yet admitted, oldest first
        self._parted: list[Listener] = []  # had to go since `take_parted`

    def enter(self, session: Listener) -> None:
        """A connection has come in; beyond the limit the oldest one that has not shown the secret must go."""
        self._strangers[session] = None
        if len(self._strangers) + len(self._known) > self._sessions_max:
            oldest = next(iter(self._strangers))
            oldest.turn_away()
            self._parted.append(oldest)

    def admit(self, session: Listener) -> Refuse | None:
        """Let in a session that said Hello, or return why not."""
        newest = self._newest.get(session.peer, 0)
        if session.incarnation < newest:
            return Refuse(Reason.DOUBLE, "a newer start of that name is known; this is a copy of its folder")
        present = self._known.get(session.peer)
        if present is not None and present.ending is None:
            if present.boot != session.boot and session.incarnation == newest:
                return Refuse(Reason.DOUBLE, "another process of that name is connected")
            present.supersede()
            self._parted.append(present)
        self._newest[session.peer] = session.incarnation
        self._strangers.pop(session, None)
        self._known[session.peer] = session
        return None

    def take_parted(self) -> list[Listener]:
        """The sessions that had to go for others since the last call; their last words are to be sent."""
        parted, self._parted = self._parted, []
        return parted

    def leave(self, session: Listener) -> None:
        """The session has ended."""
        self._strangers.pop(session, None)
        if self._known.get(session.peer) is session:
            del self._known[session.peer]

    def __len__(self) -> int:
        return len(self._strangers) + len(self._known)
