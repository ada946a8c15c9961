"""Processes that share the work on many pieces; the results come in the order of the pieces.

The processes are forked when there is more than one piece, so the work may be any
callable, with all that it holds. A piece that brings its process down (a crash in a
parser's C code, memory) takes no other with it: another crew is formed, and the
pieces in work are done again the careful way.
"""

import itertools
import multiprocessing
import os
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Generic, TypeVar

Piece = TypeVar("Piece")
Result = TypeVar("Result")
Item = TypeVar("Item")
# (piece, careful) -> result; `careful` asks for the way that cannot fail.
Work = Callable[[Piece, bool], Result]

PROCESSES_MAX = 8  # more only wait for the one that hands out pieces
_AHEAD = 3  # pieces a process that wait for it, or for their turn to be taken

_own_work: list[Callable[[Any, bool], Any]] = []  # of this process, if it is one of a crew


def processes() -> int:
    """How many processes to use: the cores that this one may run on."""
    return min(PROCESSES_MAX, len(os.sched_getaffinity(0)))


def batches(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """`items` in lists of `size`."""
    source = iter(items)
    while batch := list(itertools.islice(source, size)):
        yield batch


class Crew(Generic[Piece, Result]):
    """`count` processes that do `work`; with less than two it is done here. A context manager."""

    def __init__(self, work: Work[Piece, Result], count: int) -> None:
        self._work = work
        self._count = count
        self._pool: ProcessPoolExecutor | None = None
        self.broken = 0  # times that a piece brought a process down

    def __enter__(self) -> "Crew[Piece, Result]":
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def results(self, pieces: Iterable[Piece]) -> Iterator[Result]:
        """The result of each piece, in their order; at most a few pieces ahead of the caller."""
        source = iter(pieces)
        first = list(itertools.islice(source, 2))
        source = itertools.chain(first, source)
        if self._count < 2 or len(first) < 2:
            for piece in source:
                yield self._work(piece, False)
            return
        pending: deque[tuple[Piece, Future[Result]]] = deque()
        for piece in source:
            pending.append((piece, self._submit(piece)))
            if len(pending) >= _AHEAD * self._count:
                yield self._take(pending)
        while pending:
            yield self._take(pending)

    def _take(self, pending: "deque[tuple[Piece, Future[Result]]]") -> Result:
        try:
            result = pending[0][1].result()
        except (BrokenProcessPool, MemoryError):
            self._renew(pending)
            result = pending[0][1].result()
        pending.popleft()
        return result

    def _renew(self, pending: "deque[tuple[Piece, Future[Result]]]") -> None:
        """Do what is in work again, carefully, with new processes."""
        self.broken += 1
        self._end()
        for place, (piece, _) in enumerate(pending):
            pending[place] = piece, self._submit(piece, careful=True)

    def _submit(self, piece: Piece, *, careful: bool = False) -> "Future[Result]":
        if self._pool is None:
            context = multiprocessing.get_context("fork")
            self._pool = ProcessPoolExecutor(self._count, context, _begin, (self._work,))
        with warnings.catch_warnings():
            # LevelDB may have a thread that compacts; a child never calls it.
            warnings.simplefilter("ignore", DeprecationWarning)
            try:
                return self._pool.submit(_do, piece, careful)
            except BrokenProcessPool as error:
                failed: Future[Result] = Future()
                failed.set_exception(error)
                return failed

    def _end(self) -> None:
        pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(cancel_futures=True)


def _begin(work: Work[Piece, Result]) -> None:
    _own_work[:] = [work]


def _do(piece: Any, careful: bool) -> Any:
    return _own_work[0](piece, careful)
