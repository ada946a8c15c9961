"""An asyncio loop without a real clock and without sockets. Time jumps to the next timer.

    time()            virtual seconds; does not advance while callbacks run
    executors         jobs run in the loop, one after the other per executor, each after the time that the machine's
                      disk takes
    connections       `virtual_network.VirtualNetwork`
    dead lives        their callbacks are dropped, their tasks never resume (`machine.py`)

Callbacks run in a fixed order: ready callbacks in the order in which they became ready, timers in the order
of their instants, and timers for the same instant in order of creation. The models for this loop are
FoundationDB's simulator and TigerBeetle's VOPR.
"""

import asyncio
import heapq
from collections.abc import Callable
from contextvars import Context, copy_context
from functools import partial
from typing import Any, TypeVarTuple

from crawler.lab.cluster.machine import CURRENT, Killed, Life
from crawler.lab.cluster.virtual_network import VirtualListener, VirtualNetwork, VirtualTransport

Ts = TypeVarTuple("Ts")


# After TURNS turns at the same instant, time advances by TICK seconds. Otherwise, a wait whose duration was
# rounded to 0 would never end.
TURNS, TICK = (1000, 1e-6)


class VirtualLoop(asyncio.BaseEventLoop):
    """The event loop of the virtual world. `wire` carries its connections; `steps` counts its callbacks."""

    def __init__(self, wire: VirtualNetwork, start: float) -> None:
        super().__init__()
        self._now = start
        self._numbers = 0
        # A heap of (instant, number, timer); timers for the same instant fire in order of creation.
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._wire = wire
        self._busy_until: dict[object, float] = {}  # executor -> the instant until which it is busy
        self.steps = 0
        self._turns = 0  # the number of turns that the loop has taken at this instant
        self.set_exception_handler(self._met)
        self.unexpected: list[str] = []

    def time(self) -> float:
        return self._now

    def close(self) -> None:
        super().close()
        self._timers.clear()

    # -- abstract methods of BaseEventLoop --------------------------------------

    def _run_once(self) -> None:
        timers, ready = self._timers, self._ready  # type: ignore[attr-defined]
        while timers and timers[0][2]._cancelled:  # type: ignore[attr-defined]
            heapq.heappop(timers)
        stopping = self._stopping  # type: ignore[attr-defined]
        if not ready and timers and not stopping and timers[0][0] > self._now:
            self._now, self._turns = timers[0][0], 0
        self._turns += 1
        if self._turns % TURNS == 0:
            self._now += TICK
        while timers and timers[0][0] <= self._now:
            ready.append(heapq.heappop(timers)[2])
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:  # type: ignore[attr-defined]
                continue
            life = handle._context.get(CURRENT)  # type: ignore[attr-defined]
            if life is not None:
                if life.dead:
                    continue
                if life.frozen_until > self._now:
                    self.call_at(life.frozen_until, self._go_on, handle, life, context=Context())
                    continue
            self.steps += 1
            handle._run()

    @staticmethod
    def _go_on(handle: asyncio.Handle, life: Life) -> None:
        """Run a callback that became ready while its life was suspended."""
        if not handle.cancelled() and not life.dead:
            handle._run()

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        timer = asyncio.TimerHandle(when, callback, args, self, context)
        self._numbers += 1
        heapq.heappush(self._timers, (when, self._numbers, timer))
        return timer

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        pass

    def _process_events(self, event_list: Any) -> None:
        pass

    def _write_to_self(self) -> None:
        pass

    def _met(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Record an exception that no code caught. The exception is a bug, unless it is `Killed`."""
        error = context.get("exception")
        if not isinstance(error, Killed) and "was destroyed but it is pending" not in context["message"]:
            self.unexpected.append(f"{context['message']}: {error!r}")

    # -- threads ------------------------------------------------------------------

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        """Run `func` in the loop, after the earlier jobs of the executor have ended."""
        life = CURRENT.get()
        took = 0.0 if life is None else life.machine.job_time()
        at = max(self._now, self._busy_until.get(executor, 0.0)) + took
        if executor is not None:
            self._busy_until[executor] = at
        done = self.create_future()
        self.call_at(at, self._work, done, func, args)
        return done

    def _work(self, done: "asyncio.Future[Any]", func: Callable[..., Any], args: Any) -> None:
        try:
            result = func(*args)
        except Exception as error:
            if not done.done():
                done.set_exception(error)
        else:
            if not done.done():
                done.set_result(result)

    # -- connections ----------------------------------------------------------------

    def add_reader(  # type: ignore[override]
        self, fd: Any, callback: Callable[..., object], *args: Any
    ) -> None:
        listening: VirtualListener = fd
        listening.read_by(partial(self.call_soon, callback, *args, context=copy_context()))

    def remove_reader(self, fd: Any) -> bool:
        listening: VirtualListener = fd
        listening.read_by(None)
        return True

    async def connect_accepted_socket(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.Protocol], sock: Any, **_: Any
    ) -> tuple[Any, Any]:
        transport: VirtualTransport = sock
        protocol = protocol_factory()
        transport.carry(protocol)
        return transport, protocol

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.Protocol], host: str, port: int, **_: Any
    ) -> tuple[Any, Any]:
        return await self._wire.connect(protocol_factory, (host, port))
