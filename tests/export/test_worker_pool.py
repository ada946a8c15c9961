"""Test the worker pool: the order of results, the bounds of the pool, and a piece of work that kills its worker."""

import os
import signal
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from crawler.export.worker_pool import WorkerPool, _send, batches


def _square(piece: int, careful: bool) -> tuple[int, int, bool]:
    return piece * piece, os.getpid(), careful


def test_results_come_in_order_from_several_processes() -> None:
    with WorkerPool(_square, 2) as worker_pool:
        results = list(worker_pool.results(range(50)))
    assert [value for value, _, _ in results] == [n * n for n in range(50)]
    assert os.getpid() not in {pid for _, pid, _ in results}


@pytest.mark.parametrize(("count", "pieces"), [(1, 5), (2, 1), (2, 0)])
def test_a_single_piece_is_done_in_this_process(count: int, pieces: int) -> None:
    with WorkerPool(_square, count) as worker_pool:
        assert {pid for _, pid, _ in worker_pool.results(range(pieces))} <= {os.getpid()}


def test_workers_are_a_few_pieces_ahead() -> None:
    taken = []

    def pieces() -> Iterator[int]:
        for number in range(1000):
            taken.append(number)
            yield number

    with WorkerPool(_square, 2) as worker_pool:
        results = worker_pool.results(pieces())
        for _ in range(10):
            next(results)
        assert len(taken) <= 20


def _deadly(piece: int, careful: bool) -> tuple[int, bool]:
    if piece == 13 and not careful:
        os.kill(os.getpid(), signal.SIGKILL)
    if piece == 60 and not careful:
        raise MemoryError
    return piece, careful


def test_a_piece_that_kills_its_worker_affects_no_other() -> None:
    """All results arrive.

    Pieces that are in progress when the worker is killed are repeated in careful mode. Other pieces run
    normally.
    """
    with WorkerPool(_deadly, 2) as worker_pool:
        results = list(worker_pool.results(range(100)))
        assert worker_pool.broken == 2
    assert [piece for piece, _ in results] == list(range(100))
    careful = {piece for piece, was_careful in results if was_careful}
    assert {13, 60} <= careful and len(careful) <= 14


def test_a_worker_ends_silently_if_its_parent_dies_with_an_unread_result() -> None:
    """If the parent dies, the connection is reset, not closed.

    Regression: the worker of a killed export ended with a traceback.
    """
    parent, worker = socket.socketpair()
    with WorkerPool(_square, 2) as worker_pool, ThreadPoolExecutor(1) as thread:
        code = thread.submit(worker_pool._serve, worker)
        _send(parent, (3, False))
        while len(parent.recv(1 << 10, socket.MSG_PEEK)) <= 8:
            pass  # only the length of the result has arrived
        parent.close()
        assert code.result(60.0) == 0
    worker.close()


def test_an_error_of_the_work_is_raised() -> None:
    def wrong(piece: int, careful: bool) -> int:
        raise KeyError(piece)

    with WorkerPool(wrong, 2) as worker_pool, pytest.raises(KeyError):
        list(worker_pool.results(range(10)))


def test_items_are_split_into_batches() -> None:
    assert list(batches(range(5), 2)) == [[0, 1], [2, 3], [4]]
