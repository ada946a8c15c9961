"""Runs the tests in several processes, which are forked after the tests are collected: `pytest --forked-workers N`.

Each worker of pytest-xdist imports the modules and collects the tests for itself, which takes up to 3.4 seconds of CPU
time. With eight workers on two cores, the first test would start after 10 seconds. A forked worker starts at once, so
there may be more workers than cores.

    parent                                                 worker, forked from the parent
    owns the tests that no worker has yet    ─► numbers    runs the tests with these numbers, in this order
    passes the reports to pytest's plugins   ◄─ reports

A worker gets its tests from a block of neighbours, so that the fixtures of a module are created once. A worker whose
block is empty gets half of the largest other block. Each worker knows two tests in advance, because fixtures end with
the last test that uses them. If a worker dies, its test fails, and a new worker continues.
"""

import os
import signal
import sys
import traceback
from collections import deque
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any

import pytest
from _pytest.capture import CaptureManager
from _pytest.tmpdir import TempPathFactory

_AHEAD = 2  # number of tests that a worker knows: the one that it runs, and the next one
_SILENT = (
    "terminalreporter",
    "lfplugin",
    "nfplugin",
    "junitxml",
    "stepwiseplugin",
)  # plugins of the parent only


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--forked-workers", type=int, default=0, metavar="N", help="run the tests in N forked processes"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run all collected tests in workers. Return None if pytest itself should run them."""
    option = session.config.option
    if not option.forked_workers or option.collectonly or session.testsfailed:
        return None
    _Run(session, option.forked_workers).run()
    return True


class _Worker:
    """A worker as its parent sees it: the numbers of the tests that it knows, and those that it will get."""

    def __init__(self, number: int, process: int, pipe: Connection, block: deque[int]) -> None:
        self.number, self.process, self.pipe, self.block = number, process, pipe, block
        self.known: deque[int] = deque()


class _Run:
    """The parent's part of a run."""

    def __init__(self, session: pytest.Session, count: int) -> None:
        self._session, self._config = session, session.config
        base = self._config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        self._folder: Path = base
        size = len(session.items)
        edges = [size * number // count for number in range(count + 1)]
        self._blocks = [
            deque(range(begin, end)) for begin, end in zip(edges, edges[1:], strict=False) if begin < end
        ]
        self._workers: list[_Worker] = []
        self._started = 0

    def run(self) -> None:
        try:
            for block in self._blocks:
                self._start(block)
            while self._workers:
                ready = wait([worker.pipe for worker in self._workers])
                for worker in [worker for worker in self._workers if worker.pipe in ready]:
                    self._hear(worker)
        finally:
            for worker in self._workers:
                os.kill(worker.process, signal.SIGKILL)
                os.waitpid(worker.process, 0)
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._session.shouldstop:
            raise self._session.Interrupted(self._session.shouldstop)

    def _start(self, block: deque[int]) -> None:
        ours, theirs = Pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        process = os.fork()
        if process == 0:
            for worker in self._workers:
                worker.pipe.close()
            ours.close()
            _work(self._session, theirs, self._folder / f"worker{self._started}")
        theirs.close()
        worker = _Worker(self._started, process, ours, block)
        self._started += 1
        self._workers.append(worker)
        for _ in range(_AHEAD):
            self._send(worker)

    def _send(self, worker: _Worker) -> None:
        """Give the worker its next test, or tell it that there is none."""
        if self._session.shouldfail or self._session.shouldstop:
            worker.block.clear()
        elif not worker.block:
            self._steal(worker)
        item = worker.block.popleft() if worker.block else None
        if item is not None:
            worker.known.append(item)
        with suppress(OSError):  # if the worker has died, `_hear` reports it
            worker.pipe.send(item)

    def _steal(self, worker: _Worker) -> None:
        """Move the second half of the largest block to the worker."""
        largest = max((other.block for other in self._workers), key=len)
        for _ in range(len(largest) // 2):
            worker.block.appendleft(largest.pop())

    def _hear(self, worker: _Worker) -> None:
        """Handle a message of a worker: a report, the end of its first test, or the end of its process."""
        try:
            message: dict[str, Any] | None = worker.pipe.recv()
        except (EOFError, OSError):
            self._lose(worker)
            return
        hook = self._config.hook
        if message is None:
            worker.known.popleft()
            self._send(worker)
            return
        report = hook.pytest_report_from_serializable(config=self._config, data=message)
        hook.pytest_runtest_logreport(report=report)

    def _lose(self, worker: _Worker) -> None:
        """Handle the end of a worker. If it died in a test, this test has failed."""
        self._workers.remove(worker)
        worker.pipe.close()
        status = os.waitstatus_to_exitcode(os.waitpid(worker.process, 0)[1])
        if status == 0 and not worker.known:
            return
        where = self._session.items[worker.known[0]] if worker.known else None
        report = pytest.TestReport(
            nodeid=f"worker {worker.number}" if where is None else where.nodeid,
            location=("", None, f"worker {worker.number}") if where is None else where.location,
            keywords={},
            outcome="failed",
            longrepr=f"worker {worker.number} ended with status {status}",
            when="call",
        )
        self._config.hook.pytest_runtest_logreport(report=report)
        left = deque([*list(worker.known)[1:], *worker.block])
        if left:
            self._start(left)


class _Sender:
    """The plugin of a worker that sends the reports to the parent."""

    def __init__(self, config: pytest.Config, pipe: Connection) -> None:
        self._config, self._pipe = config, pipe

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.passed and report.when == "setup" and not self._config.option.durations:
            return  # only a report of durations reads it
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._pipe.send(data)


def _work(session: pytest.Session, pipe: Connection, folder: Path) -> None:
    """Run the tests whose numbers come through the pipe, in a forked worker. Never return."""
    status = 1
    try:
        _prepare(session.config, pipe, folder)
        _run_tests(session, pipe)
        session.config._ensure_unconfigure()  # reports exceptions that nothing else has seen
        status = 0
    except (KeyboardInterrupt, EOFError, BrokenPipeError):
        pass  # the user or a signal has ended the parent
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
    finally:
        os._exit(status)


def _prepare(config: pytest.Config, pipe: Connection, folder: Path) -> None:
    plugins = config.pluginmanager
    for name in _SILENT:
        if plugins.has_plugin(name):
            plugins.unregister(name=name)
    plugins.register(_Sender(config, pipe), "forked-sender")
    # the files that capture the output would be shared with the other workers
    capture: CaptureManager = plugins.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    folder.mkdir()
    paths: TempPathFactory = config._tmp_path_factory  # type: ignore[attr-defined]
    paths._basetemp = folder


def _run_tests(session: pytest.Session, pipe: Connection) -> None:
    known: deque[int | None] = deque(pipe.recv() for _ in range(_AHEAD))
    while (number := known.popleft()) is not None:
        following = None if known[0] is None else session.items[known[0]]
        item = session.items[number]
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        pipe.send(None)
        known.append(None if following is None else pipe.recv())
