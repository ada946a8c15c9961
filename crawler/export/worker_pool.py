"""Shares the work on many pieces among processes, and returns the results in the order of the pieces.

If there is more than one piece, the processes are forked, so the work may be any callable with any state.
Each process has one piece at a time. A process may end because of a crash in a parser's C code, lack of
memory or a kill. If a process ends, the other processes are not affected. A new process replaces the one that
ended, and repeats its piece of work with `careful` set, that is, by a method that cannot crash. All worker
processes end when this process ends, for any reason.
"""

import itertools
import os
import pickle
import select
import signal
import socket
import struct
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from crawler.errors import CrawlerError, StoreError
from crawler.forked_children import ForkedChild, can_fork, fork_children

Piece = TypeVar("Piece")
Result = TypeVar("Result")
Item = TypeVar("Item")
# (piece, careful) -> result; `careful` asks for the method that cannot crash.
Work = Callable[[Piece, bool], Result]

PROCESSES_MAX = 8  # further worker processes would only wait for this process, which distributes the pieces
# maximum number of pieces per process that are in progress, or finished but not yet taken by the caller
_AHEAD = 3
_LENGTH = struct.Struct(">Q")


def processes() -> int:
    """Return the number of processes to use: the number of cores available to this process."""
    return min(PROCESSES_MAX, len(os.sched_getaffinity(0)))


def batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    source = iter(items)
    while batch := list(itertools.islice(source, size)):
        yield batch


class _Task(Generic[Piece, Result]):
    """A piece of work and, once it is finished, its result."""

    __slots__ = ("careful", "done", "piece", "result")

    def __init__(self, piece: Piece) -> None:
        self.piece = piece
        self.careful = self.done = False
        self.result: Result


class WorkerPool(Generic[Piece, Result]):
    """A context manager with `count` processes that do `work`.

    If `count` is below 2, the caller does the work itself.
    """

    def __init__(self, work: Work[Piece, Result], count: int) -> None:
        self._work = work
        self._count = count
        self._busy: dict[ForkedChild, _Task[Piece, Result]] = {}
        self._idle: list[ForkedChild] = []
        self.broken = 0  # number of processes that ended while working on a piece

    def __enter__(self) -> "WorkerPool[Piece, Result]":
        return self

    def __exit__(self, *_: object) -> None:
        for child in (*self._busy, *self._idle):
            child.end()
        self._busy.clear()
        self._idle.clear()

    def results(self, pieces: Iterable[Piece]) -> Iterator[Result]:
        """Yield the result of each piece, in order. The workers are at most a few pieces ahead of the caller.

        Raises:
            CrawlerError: a process ended while it worked on a piece, and so did the process that repeated the
                piece carefully.
            StoreError: the same, but the kernel killed the process; or the system starts no process.
        """
        source = iter(pieces)
        first = list(itertools.islice(source, 2))
        source = itertools.chain(first, source)
        if self._count < 2 or len(first) < 2 or not can_fork():
            for piece in source:
                yield self._work(piece, False)
            return
        self._fork(self._count)
        pending: deque[_Task[Piece, Result]] = deque()
        left = True
        while left or pending:
            while left and self._idle and len(pending) < _AHEAD * self._count:
                for piece in itertools.islice(source, 1):
                    pending.append(_Task(piece))
                    self._give(pending[-1])
                    break
                else:
                    left = False
            if pending and pending[0].done:
                yield pending.popleft().result
            elif pending:
                self._wait()

    def _fork(self, count: int) -> None:
        with warnings.catch_warnings():
            # LevelDB may have a compaction thread. Forking is safe nevertheless, because a child never uses
            # LevelDB.
            warnings.simplefilter("ignore", DeprecationWarning)
            siblings = (*self._busy, *self._idle)
            self._idle += fork_children(self._serve, count, helpers=True, siblings=siblings)

    def _give(self, task: _Task[Piece, Result]) -> None:
        child = self._idle.pop()
        self._busy[child] = task
        try:
            _send(child.link, (task.piece, task.careful))
        except OSError:  # the child ended while it was idle
            self._replace(child)

    def _wait(self) -> None:
        """Receive the results that have arrived from busy processes. Wait until there is at least one result."""
        by_link = {child.link: child for child in self._busy}
        ready, _, _ = select.select(list(by_link), [], [])
        for link in ready:
            child = by_link[link]
            task = self._busy[child]
            try:
                failed, found = _receive(link)
            except (EOFError, OSError):
                self._replace(child)
                continue
            if isinstance(failed, MemoryError) and not task.careful:
                self._replace(child)
                continue
            if failed is not None:
                raise failed
            del self._busy[child]
            self._idle.append(child)
            task.result, task.done = found, True

    def _replace(self, child: ForkedChild) -> None:
        """Replace a process that has ended, or must end, by a new one that repeats its piece of work carefully."""
        task = self._busy.pop(child)
        child.end()
        self.broken += 1
        if task.careful:
            code = child.returncode
            cause = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
            # the kernel kills a process if memory runs out; any other end may be due to the pages
            kind = StoreError if code == -signal.SIGKILL else CrawlerError
            raise kind(
                f"a worker process was ended ({cause}), and so was its replacement on the same "
                "pages; is there too little memory? --processes 1 uses no workers"
            )
        task.careful = True
        self._fork(1)
        self._give(task)

    def _serve(self, link: socket.socket) -> int:
        """Work as a worker process until the link to the parent is closed."""
        while True:
            try:
                piece, careful = _receive(link)
            except (EOFError, ConnectionResetError):
                # the parent ended, perhaps without reading the last result
                return 0
            failed, found = None, None
            try:
                found = self._work(piece, careful)
            except Exception as error:
                failed = error
            try:
                _send(link, (failed, found))
            except (BrokenPipeError, ConnectionResetError):  # the parent no longer reads results
                return 0


def _send(link: socket.socket, value: Any) -> None:
    data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    link.sendall(_LENGTH.pack(len(data)))
    link.sendall(data)


def _receive(link: socket.socket) -> Any:
    """Receive an object that `_send` sent. Pickle is safe here, because both ends are processes of this program.

    Raises:
        EOFError: the other end is closed.
    """
    (length,) = _LENGTH.unpack(_exactly(link, _LENGTH.size))
    return pickle.loads(_exactly(link, length))


def _exactly(link: socket.socket, length: int) -> bytearray:
    data = bytearray(length)
    view = memoryview(data)
    while view:
        got = link.recv_into(view)
        if not got:
            raise EOFError
        view = view[got:]
    return data
