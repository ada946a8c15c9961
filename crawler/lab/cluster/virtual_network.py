"""The network between simulated processes.

The connections between processes delay bytes but keep their order. A connection may break or fall silent.

A connection has two ends. Each end is a transport for a protocol of a process. Written bytes arrive in pieces
after a latency. While the way from one machine to another is cut, its bytes wait, as with TCP, and new connections
between the two get no answer. A killed process resets its connections. A machine that has lost power is silent.
Once the machine runs again, it resets an old connection when data arrives on it.
"""

import asyncio
import random
from collections import Counter, deque
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import Any

from crawler.lab.cluster.machine import CURRENT, Life
from crawler.splitter.wire import LENGTH_BYTES, Frame

Address = tuple[str, int]
RETRANSMIT = 0.7  # bytes that were lost, or held up by a partition, are sent again after this many seconds
LATENCY = (0.0005, 0.02)  # range of the delay of sent bytes in seconds, uniformly distributed
_KINDS = frozenset(map(int, Frame))
PIECES = (1, 7, 100, 0)  # sizes in bytes of the pieces in which data arrives; 0 means all bytes in one piece


class VirtualNetwork:
    """All connections. `loss` is the share of pieces that arrive late.

    `cut` holds pairs (sender, receiver) of machines: while a pair is in it, no byte of the sender reaches the receiver.

    With `pieces`, written bytes arrive in pieces, as TCP allows. Without `pieces`, they arrive together, and
    a simulation is four times as fast.
    """

    def __init__(self, rng: random.Random, *, pieces: bool = True) -> None:
        self.rng = rng
        self.pieces = pieces
        self.cut: set[tuple[str, str]] = set()
        self.loss = 0.0
        self.listening: dict[Address, VirtualListener] = {}
        self.names: dict[str, str] = {}  # host name -> address
        self.ends: dict[VirtualTransport, None] = {}
        self.bytes: Counter[Frame] = Counter()  # bytes written by all ends, by kind of frame
        self.frames: Counter[Frame] = Counter()
        self.writes = 0

    def listen(self, address: Address) -> "VirtualListener":
        """Return a listener at `address` for the simulated process that runs now."""
        life = CURRENT.get()
        assert life is not None
        self.listening[address] = found = VirtualListener(self, address, life)
        return found

    def note(self, data: bytes) -> None:
        """Count written frames and their bytes by kind. Skip data that does not begin with a known frame."""
        self.writes += 1
        at = 0
        while at + LENGTH_BYTES < len(data) and data[at + LENGTH_BYTES] in _KINDS:
            kind = Frame(data[at + LENGTH_BYTES])
            size = LENGTH_BYTES + int.from_bytes(data[at : at + LENGTH_BYTES], "big")
            self.bytes[kind] += size
            self.frames[kind] += 1
            at += size

    def is_cut(self, sender: Life, receiver: Life) -> bool:
        """Return whether no byte of the sender's machine reaches the receiver's machine."""
        return (sender.machine.name, receiver.machine.name) in self.cut

    async def connect(
        self, factory: Callable[[], asyncio.Protocol], address: Address
    ) -> tuple["VirtualTransport", asyncio.Protocol]:
        """Connect to the listener at an address, which may contain a host name.

        Raises:
            OSError: nothing listens there.
        """
        life = CURRENT.get()
        assert life is not None
        address = self.names.get(address[0], address[0]), address[1]
        await asyncio.sleep(self.rng.uniform(*LATENCY))
        while True:
            listening = self.listening.get(address)
            if (
                listening is not None
                and not self.is_cut(life, listening.life)
                and not self.is_cut(listening.life, life)  # the answer to the SYN arrives
                and listening.life.machine.has_power
            ):
                if listening.life.dead or listening.closed:
                    raise ConnectionRefusedError("connection refused")
                break
            if listening is None:
                raise ConnectionRefusedError("connection refused")
            # wait, because TCP repeats the SYN until the caller gives up
            await asyncio.sleep(RETRANSMIT)
        near, far = VirtualTransport(self, life), VirtualTransport(self, listening.life)
        near.other, far.other = far, near
        protocol = factory()
        listening.come(far)
        near.carry(protocol)
        return near, protocol

    def reset(self, label: str, *, both: bool) -> None:
        """Break the connections of a machine.

        With `both`, the other ends notice this soon; otherwise, they notice it when they send.
        """
        for end in [end for end in self.ends if end.life.machine.label == label and not end.life.dead]:
            other = end.other
            end._close(ConnectionResetError("connection reset"))
            if both:
                other.reset_soon()

    def end_of(self, life: Life, *, silent: bool) -> None:
        """Close the connections of a life that has ended. With `silent`, the other ends do not notice this."""
        for end in [end for end in self.ends if end.life is life]:
            end.closed = True
            del self.ends[end]
            if not silent:
                end.other.reset_soon()


class VirtualListener:
    """Stands in for a listening socket."""

    def __init__(self, wire: VirtualNetwork, address: Address, life: Life) -> None:
        self.wire, self.address, self.life = wire, address, life
        self.closed = False
        self._come: deque[VirtualTransport] = deque()
        self._reader: Callable[[], object] | None = None

    def come(self, accepted: "VirtualTransport") -> None:
        self._come.append(accepted)
        if self._reader is not None:
            self._reader()

    def read_by(self, reader: Callable[[], object] | None) -> None:
        """Set the function to call when a connection can be accepted."""
        self._reader = reader
        if self._come and reader is not None:
            reader()

    def accept(self) -> tuple["VirtualTransport", Address]:
        """Accept a connection; if none waits, raise the same error as a non-blocking socket."""
        if not self._come:
            raise BlockingIOError
        return self._come.popleft(), self.address

    def getsockname(self) -> Address:
        return self.address

    def close(self) -> None:
        self.closed = True


class VirtualTransport(asyncio.Transport):
    """One end of a connection. It also stands in for the accepted socket."""

    other: "VirtualTransport"

    def __init__(self, wire: VirtualNetwork, life: Life) -> None:
        super().__init__()
        self.wire, self.life = wire, life
        self.closed = False  # once this is True, no data is received or written
        self._protocol: asyncio.Protocol | None = None
        self._context: Context | None = None
        # Data on its way to this end, as pairs (instant, bytes); None instead of bytes closes the connection.
        self._on_way: deque[tuple[float, bytes | None]] = deque()
        self._pumping = False
        self._lost = False
        wire.ends[self] = None

    def carry(self, protocol: asyncio.Protocol) -> None:
        """Serve `protocol` in the context of the simulated process that runs now."""
        self._protocol, self._context = protocol, copy_context()
        if self.closed:
            self._lose(ConnectionResetError("connection reset"))
            return
        protocol.connection_made(self)
        self._pump()

    # -- as a transport -----------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self.closed:
            return
        data, rng = bytes(data), self.wire.rng
        self.wire.note(data)
        size = rng.choice(PIECES) if self.wire.pieces and len(data) < 4000 else 0
        if len(data) > 40 * size:  # splitting data into dozens of pieces tests nothing new
            size = 0
        for start in range(0, len(data), size or len(data)):
            self.other._send(data[start : start + (size or len(data))])

    def close(self) -> None:
        if not self.closed:
            self.other._send(None)
            self._close(None)

    def abort(self) -> None:
        self.close()

    def setblocking(self, flag: bool) -> None:
        """Do nothing: this socket never blocks."""

    def is_closing(self) -> bool:
        return self.closed

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    # -- data on its way to this end --------------------------------------------------

    def _send(self, data: bytes | None) -> None:
        """Send bytes to this end, or close the connection if `data` is None."""
        rng = self.wire.rng
        at = asyncio.get_running_loop().time() + rng.uniform(*LATENCY)
        if self.wire.loss and rng.random() < self.wire.loss:
            at += RETRANSMIT * rng.choice((1, 1, 2, 4))
        self._on_way.append((max(at, self._on_way[-1][0]) if self._on_way else at, data))
        self._pump()

    def _pump(self) -> None:
        """Schedule the arrival of the next piece. If this end is closed, reset the sender instead."""
        if not self._on_way or self._pumping or self.closed or self._protocol is None:
            if self.closed and self._on_way:  # no process runs at this end any more; reset the sender
                self._on_way.clear()
                if self.life.machine.has_power:
                    self.other.reset_soon()
            return
        self._pumping = True
        loop = asyncio.get_running_loop()
        loop.call_at(self._on_way[0][0], self._arrive, context=self._context)

    def _arrive(self) -> None:
        self._pumping = False
        if self.closed or not self._on_way:
            return
        loop = asyncio.get_running_loop()
        if self.wire.is_cut(self.other.life, self.life):
            again = loop.time() + RETRANSMIT
            self._on_way = deque((max(at, again), data) for at, data in self._on_way)
            return self._pump()
        _, data = self._on_way.popleft()
        if data is None:
            self._close(None)
        else:
            assert self._protocol is not None
            self._protocol.data_received(data)
            self._pump()

    def reset_soon(self) -> None:
        """Schedule a reset of this connection, as if sent by the other end, which no longer exists."""
        if not self.closed and not self.life.dead:
            self._on_way.clear()
            context = self._context
            loop = asyncio.get_running_loop()
            loop.call_later(self.wire.rng.uniform(*LATENCY), self._reset, context=context)

    def _reset(self) -> None:
        if self.wire.is_cut(self.other.life, self.life):
            # the reset never arrives; only the silence of the peer shows that the connection is broken
            return
        if not self.closed:
            self._close(ConnectionResetError("connection reset"))

    def _close(self, error: Exception | None) -> None:
        self.closed = True
        self.wire.ends.pop(self, None)
        self._on_way.clear()
        if self._protocol is not None:
            asyncio.get_running_loop().call_soon(self._lose, error, context=self._context)

    def _lose(self, error: Exception | None) -> None:
        if not self._lost and self._protocol is not None:
            self._lost = True
            self._protocol.connection_lost(error)
