"""`crawler crawl --processes N`: runs one crawl in N child processes, which are connected over loopback.

    supervisor --socket pair--> p0 ... pN-1 (`child.py`), each with its own folder in DIR
        seeds      checked here, written to DIR/seeds.run, read by every child (each queues its own)
        ports      each child listens on its own port and learns those of the others
        progress   the status of the children, added up; at the end their reports, merged
        pause      a child that receives `pause` or `resume` tells the supervisor, which tells all children
        stop       a first signal asks all children to stop, a second kills them

`supervision/README.md` states when children are restarted and stopped. While a child is restarted, the links
for its hosts wait in the outboxes of the other children. The supervisor reaps its children, so that their CPU
time is counted. A child that does not stop when asked is killed.
"""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Iterable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import msgspec

from crawler.admin import report
from crawler.admin.health import RESTARTING
from crawler.admin.process_metrics import DIED, RecentErrors
from crawler.admin.report import Report
from crawler.admin.status import Status, merge, resting, whole
from crawler.clock import SystemClock
from crawler.config import Config
from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.process_names import process_names
from crawler.crawl.safe_settings import with_live_changes
from crawler.crawl.seeds import SeedFile, Seeds
from crawler.crawl.shipper import Shipper
from crawler.crawl.start_checks import check_start
from crawler.crawl.topology import check_processes, topology
from crawler.errors import CrawlerError, NoSeedError, StoreError
from crawler.forked_children import ForkedChild, can_fork, cannot_start, fork_children
from crawler.kernel_selection import tell_of_kernels
from crawler.process.lifecycle.limits import STOP_GRACE
from crawler.process.lifecycle.shutdown import within
from crawler.records import SplitterCounts
from crawler.storage.files import Lock
from crawler.storage.kv import DiskStore
from crawler.supervision.child import MESSAGE_BYTES_MAX, Start, warm_up, work
from crawler.supervision.restarts import ABORTED, RESTART_DELAY, Next, Restarts
from crawler.upgrade.ready import ready

log = logging.getLogger("crawler")

PROGRAM = ("-m", "crawler.supervision")  # arguments with which a child is restarted
BACKOFF_MAX = 1.0  # seconds between attempts to connect to a sibling that is restarting
SHUTDOWN_STEPS = 10  # steps of a child's shutdown, each taking at most `crawl.shutdown_step_max`
FINISHED = ("done", "patience")  # a process that ends for one of these reasons has nothing left to do
# Libraries abort a process that gets no memory, and the kernel kills it.
_MEMORY_HINTS = {
    "SIGKILL": ", perhaps by the kernel because memory ran out",
    "SIGABRT": ", perhaps because memory ran out",
}
_LIMITS = ("max_pages", "max_time", "max_bytes", "disk", "signal", "stopped")


class Supervisor:
    """Runs the processes of the crawl in `directory` until all of them have ended.

    If `saved` is given, the directory keeps these settings instead of `config`. The processes send their
    status every `status_interval` seconds. If `status_interval` is 0, the processes send no status; a caller
    that never uses the method `status` needs none.
    """

    def __init__(
        self,
        config: Config,
        directory: Path,
        seeds: Iterable[str] | Seeds,
        *,
        saved: Config | None = None,
        status_interval: float = 0.0,
        level: int = logging.WARNING,
        json_log: bool = False,
    ) -> None:
        self.directory = CrawlDirectory(directory)
        self.clock = SystemClock()
        self.started = self.clock.now()
        self.report: dict[str, Any] = {}
        self.stopped_by = ""
        self.ended = False
        self.paused = False
        self.failure: CrawlerError | None = None
        self.ports: dict[str, int] = {}
        self._config, self._saved = config, saved or config
        self._saved_at_start: dict[str, Any] = {}
        self._seeds = seeds if isinstance(seeds, Seeds) else Seeds(config, seeds)
        self._seed_file = SeedFile(directory / "seeds.run")
        self._run = os.urandom(8).hex()
        self._status_interval = status_interval
        self._level, self._json_log = level, json_log
        crawl = config.crawl
        self._stop_limit = STOP_GRACE + crawl.drain_max + SHUTDOWN_STEPS * crawl.shutdown_step_max
        self._stopping: asyncio.TimerHandle | None = None
        self.errors = RecentErrors(self._on_warning)
        self._loop: asyncio.AbstractEventLoop | None = None  # the loop of `run`
        self._children = [_Child(self, name) for name in process_names(config)]

    def fork(self) -> None:
        """Fork all processes unless this process has an open store. Call this before any loop or thread exists."""
        if can_fork() and not DiskStore.opened:
            warm_up()
            for child, forked in zip(self._children, fork_children(work, len(self._children)), strict=True):
                child.adopt(forked)

    async def run(self, companions: AbstractAsyncContextManager[Any] | None = None) -> dict[str, Any]:
        """Crawl to the end. Return the merged report of all processes, which is also written to DIR/report.json.

        `companions`, for example the dashboard, run while this process has the lock of the directory. So if the
        crawl is already running, this is the only error.

        Raises:
            UsageError: the crawl in the directory has another number of processes.
            CrawlerError: a child failed and was not restarted; the error has the child's exit code, or
                1 if a signal ended the child.
            NoSeedError: the crawl ended without fetching a single page.
        """
        check_start(self._config, self.directory.path)
        ready(self.directory)
        check_processes(self._config, self.directory)
        topology(self._config, self.directory.path, self._children[0].name)
        self.directory.create()
        with Lock(self.directory.path / "supervisor.lock", "supervisor"):
            async with companions or contextlib.nullcontext():
                return await self._crawl()

    async def _crawl(self) -> dict[str, Any]:
        before = self.directory.settings.files()
        self.directory.settings.save(self._saved)
        self._saved_at_start = self.directory.settings.load()
        self._seeds.places.restrict(self.directory.settings.places())
        self._seeds.note = self.directory.settings.note_places
        self._seed_file.write(self._seeds)
        shipper = Shipper(self.directory.path, self._config.pages, self.clock.now)
        shipper.start()
        self._loop = asyncio.get_running_loop()
        logging.getLogger("crawler").addHandler(self.errors)
        tell_of_kernels(log.warning)
        try:
            await self._run_children()
        finally:
            logging.getLogger("crawler").removeHandler(self.errors)
            await self._reap()
            await shipper.end()
        if self.failure is not None and not self.ports and self.directory.settings.file in before:
            # no process could open its store with the new settings, so the crawl keeps the former ones
            self.directory.settings.restore(before)
        return self._finish()

    async def _run_children(self) -> None:
        """Run the children until all have ended. Children that survive a kill are not waited for."""
        self._given_up = asyncio.Event()
        running = asyncio.ensure_future(self._all_ended())
        given_up = asyncio.ensure_future(self._given_up.wait())
        await asyncio.wait((running, given_up), return_when=asyncio.FIRST_COMPLETED)
        given_up.cancel()
        if self._stopping is not None:
            self._stopping.cancel()
        if not running.done():
            running.cancel()
            self.failure = self.failure or CrawlerError("some processes did not end when killed; see the log")
        with contextlib.suppress(asyncio.CancelledError):
            await running

    async def _all_ended(self) -> None:
        await asyncio.gather(*(child.run() for child in self._children))

    async def _reap(self) -> None:
        """End and reap all children, even after an error in the supervisor."""
        limit = self._config.crawl.shutdown_step_max
        await asyncio.gather(*(within(limit, child.name, child.end()) for child in self._children))

    def _finish(self) -> dict[str, Any]:
        try:
            reports = [child.report for child in self._children if child.report]
            final = merged_report(reports, self)
            self.report = final.plain()
            self.directory.save_report(self.report)
            self._seed_file.remove()
        except CrawlerError:  # the error with which the run failed is the one to report
            if self.failure is None:
                raise
        if self.failure is not None:
            raise self.failure
        if self.stopped_by in ("", *FINISHED) and not final.any_success:
            reasons = final.why_nothing(self._seeds.refused)
            raise NoSeedError(f"no page could be fetched: {reasons}")
        return self.report

    # -- messages from and to the children ------------------------------------------

    def start_of(self, name: str) -> Start:
        """Return the first message to the child `name`."""
        replace = msgspec.structs.replace
        splitter = self._config.splitter
        splitter = replace(splitter, listen="127.0.0.1:0", backoff_max=min(splitter.backoff_max, BACKOFF_MAX))
        config = replace(self._config, seeds=(), splitter=splitter)
        config = with_live_changes(config, self._saved_at_start, self.directory.settings.load())
        return Start(
            config=msgspec.to_builtins(config, enc_hook=lambda value: value + 0),
            directory=str(self.directory.path),
            name=name,
            crawl=self.directory.crawl_id(),
            run=self._run,
            ports=self.ports,
            supervisor=os.getpid(),
            seeds_file=str(self._seed_file.path),
            ended=self.ended,
            paused=self.paused,
            status_interval=self._status_interval,
            level=self._level,
            json_log=self._json_log,
        )

    def listening(self, name: str, port: int) -> None:
        """Note the port on which a child listens, and send it to all children."""
        self.ports[name] = port
        self._tell({"addresses": self.ports})

    def learn_end(self) -> None:
        """Tell all children that the crawl has ended, so that only one of them needs to detect it."""
        if not self.ended:
            self.ended = True
            self._tell({"ended": True})

    def note_paused(self, paused: bool) -> None:
        """Tell all children that the user has paused or resumed the crawl."""
        if paused != self.paused:
            self.paused = paused
            self._tell({"paused": paused})

    def _on_warning(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.tell_warnings)

    def tell_warnings(self) -> None:
        """Tell the first child the supervisor's latest warnings, which appear in the child's status."""
        if any(self.errors.counts.values()):
            self._children[0].tell({"warnings": msgspec.to_builtins(self.errors.warnings())})

    def stop(self, reason: str = "stopped") -> None:
        """Ask all children to start no new work, to commit, and to end within the time limit."""
        self.stopped_by = self.stopped_by or reason
        self._tell({"stop": reason})
        if self._stopping is None:
            self._stopping = asyncio.get_running_loop().call_later(self._stop_limit, self._kill_stubborn)

    def _kill_stubborn(self) -> None:
        """Kill the children that have not stopped. Nothing that they have committed is lost."""
        names = [child.name for child in self._children if child.runs]
        log.error("%s: did not stop within %g s; killed", ", ".join(names), self._stop_limit)
        self.kill()
        limit = self._config.crawl.shutdown_step_max
        self._stopping = asyncio.get_running_loop().call_later(limit, self._given_up.set)

    def kill(self) -> None:
        """Kill all children immediately. Nothing that they have committed is lost."""
        for child in self._children:
            child.kill()

    def fail(self, failure: CrawlerError) -> None:
        """End the crawl with the error of a child that cannot continue."""
        self.failure = self.failure or failure
        self.stop("error")

    def _tell(self, message: dict[str, Any]) -> None:
        for child in self._children:
            child.tell(message)

    @property
    def ending(self) -> bool:
        """True if the children have been asked to end, or have found that the crawl has ended."""
        return self.ended or bool(self.stopped_by)

    def folders(self) -> dict[str, Path]:
        """Return the folder of each process. The folder contains the control socket of the process."""
        return {child.name: self.directory.process(child.name) for child in self._children}

    @property
    def process_count(self) -> int:
        return len(self._children)

    def status(self) -> Status:
        """Return the merged status of all processes."""
        return whole([child.status for child in self._children])


class _Child:
    """Starts one process, receives its messages, restarts it if needed, and reaps it."""

    def __init__(self, supervisor: Supervisor, name: str) -> None:
        self._supervisor = supervisor
        self.name = name
        self.status = Status(name=name)
        self.report: Report | None = None
        self._said = ""  # the error message with which the process ended last
        self._process: asyncio.subprocess.Process | ForkedChild | None = None
        self._waiting: ForkedChild | None = None  # forked, but not yet sent its `Start`
        self._writer: asyncio.StreamWriter | None = None
        self._restarts = Restarts()

    def adopt(self, forked: ForkedChild) -> None:
        """Take over a process that has already been forked."""
        self._process = self._waiting = forked

    async def run(self) -> None:
        """Run the process, and restart it, until it ends normally or no restart is allowed."""
        while True:
            begun = time.monotonic()
            try:
                code = await self._run_once()
            except OSError as error:
                self._said, code = str(cannot_start(error)), StoreError.exit_code
            lasted = time.monotonic() - begun
            match self._restarts.ended(code, lasted, stopping=bool(self._supervisor.stopped_by)):
                case Next.NOTHING:
                    return self._ended(code)
                case Next.FAIL:
                    return self._supervisor.fail(_failure(self.name, code, self._said))
            delay = self._restarts.delay
            why = self._said or _cause(code)
            log.error("%s: %s%s in %.1f s", self.name, why, RESTARTING, delay, extra=DIED)
            await self._wait(delay)

    async def _wait(self, delay: float) -> None:
        """Wait `delay` seconds before a restart. Wait no longer if the crawl is stopped."""
        while delay > 0.0 and not self._supervisor.stopped_by:
            await asyncio.sleep(min(delay, RESTART_DELAY))
            delay -= RESTART_DELAY

    def _ended(self, code: int) -> None:
        """Note that the process has ended for good. If the reason concerns the other processes too, stop them."""
        if code != 0 and self._supervisor.failure is None and code != -signal.SIGKILL:
            self._supervisor.fail(_failure(self.name, code, self._said))
        if self.report is not None and self.report.stopped_by in _LIMITS:
            self._supervisor.stop(self.report.stopped_by)

    async def _run_once(self) -> int:
        """Start the process, wait for its end and return its exit code."""
        process, ours = await self._start()
        self._process, self._said = process, ""
        reader, self._writer = await asyncio.open_connection(sock=ours, limit=MESSAGE_BYTES_MAX)
        self._writer.write(msgspec.json.encode(self._supervisor.start_of(self.name)) + b"\n")
        if self._supervisor.stopped_by:
            self.tell({"stop": self._supervisor.stopped_by})
        self._supervisor.tell_warnings()
        with contextlib.suppress(ConnectionError):
            await self._listen(reader)
        code = await process.wait()
        self.status = resting(self.status)
        self._writer.close()
        self._writer = None
        return code

    async def _start(self) -> tuple[asyncio.subprocess.Process | ForkedChild, socket.socket]:
        """Return a process that waits for its `Start`, and the supervisor's end of the socket pair."""
        if self._waiting is not None:
            forked, self._waiting = self._waiting, None
            return forked, forked.link
        ours, theirs = socket.socketpair()
        environ = dict(os.environ)
        # only the first start gets the faults of a test (CRAWLER_FAULT), because otherwise, restarts would
        # fail, too
        if self._process is not None:
            environ.pop("CRAWLER_FAULT", None)
        with theirs:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *PROGRAM,
                str(theirs.fileno()),
                pass_fds=(theirs.fileno(),),
                stdin=asyncio.subprocess.DEVNULL,
                env=environ,
                start_new_session=True,  # signals from a terminal reach only the supervisor
            )
        return process, ours

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            message = msgspec.json.decode(line)
            if "port" in message:
                self._supervisor.listening(self.name, message["port"])
            if "status" in message:
                self.status = msgspec.convert(message["status"], Status)
            if "paused" in message:
                self._supervisor.note_paused(message["paused"])
            if "failure" in message:
                self._said = message["failure"]
                self.tell({"reported": True})
            if "report" in message:
                self.report = msgspec.convert(message["report"], Report)
                self.tell({"reported": True})
                if self.report.stopped_by in FINISHED:
                    self._supervisor.learn_end()

    def tell(self, message: dict[str, Any]) -> None:
        """Send a message to the process if it is running."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(msgspec.json.encode(message) + b"\n")

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.returncode is None

    def kill(self) -> None:
        if self._process is not None and self.runs:
            self._process.kill()

    async def end(self) -> None:
        """Kill and reap the process if it is still running."""
        self.kill()
        if self._process is not None:
            await self._process.wait()


def _cause(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    name = signal.Signals(-code).name if -code in {*signal.Signals} else "unknown"
    hint = _MEMORY_HINTS.get(name, "")
    return f"ended with signal {-code} ({name}{hint})"


def _failure(name: str, code: int, said: str) -> CrawlerError:
    """Return the error with which the whole crawl ends after a process failed; `said` is that process's message."""
    if code == ABORTED:
        return StoreError(f"{name}: {_cause(code)}; start again when the cause is removed")
    if code == StoreError.exit_code:
        cause = f" ({said})" if said else ""
        return StoreError(f"{name}: the store failed{cause}; start again when the cause is removed")
    failure = CrawlerError(f"{name}: {said or _cause(code)}")
    failure.exit_code = code if 0 < code < 128 else 1
    return failure


def merged_report(reports: list[Report], supervisor: Supervisor) -> Report:
    """Return the report of the whole crawl, which is merged from the reports of its processes."""
    merged = merge([_nothing(supervisor), *reports])
    if supervisor.ended and not merged.problems and len(reports) == supervisor.process_count:
        merged.problems = _on_the_way(merged.splitter)
    merged.stopped_by = supervisor.stopped_by or merged.stopped_by
    merged.cpu_seconds = report.cpu_seconds()
    return merged


def _nothing(supervisor: Supervisor) -> Report:
    """Return the report of the supervisor itself, which contains only the times of the run."""
    return Report(
        crawl_id=supervisor.directory.crawl_id(),
        started=supervisor.started,
        ended=supervisor.clock.now(),
        processes=0,
        splitter=SplitterCounts(),
    )


def _on_the_way(splitter: SplitterCounts | None) -> list[str]:
    """Check that every sent link has been applied, as must be true at the end of a crawl; return any violation.

    If a process has lost its counts, the counts of the other processes do not say whether this is true.
    """
    if splitter is None or splitter.recoveries or splitter.sent == splitter.applied:
        return []
    return [f"sent = applied: {splitter.sent} != {splitter.applied}"]
