"""`crawler crawl --processes N`: N children of this program on loopback, as one crawl.

    supervisor --socket pair--> p0 ... pN-1 (`worker.py`), each with its own folder in DIR
        seeds      checked here, written to DIR/seeds.run, read by every child (each queues its own)
        ports      each child listens on a port of its own and says which; all are told
        progress   the children's status, added up; at the end their reports, as one
        stop       a first signal asks all children to stop, a second kills them

Children begin as forks (`forked.py`), so that what they import is imported once.
One that dies is started again, as a program of its own, waiting longer each time
it did not last; the links of its hosts wait meanwhile in the outboxes of the
others. Exit codes 2 and 3 (usage, directory) would only come again: then all stop. A child that
stopped by itself for a limit or the disk stops all; one that knows of the end
of the crawl lets the others find it out. The parent reaps its children, so
their CPU time counts, and children whose parent is gone stop by themselves.
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
from pathlib import Path
from typing import Any

import msgspec

from crawler.admin import report, status
from crawler.clock import SystemClock, iso_time
from crawler.config import Config
from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.identity import Seeds, check_identity
from crawler.crawl.settings import live_part
from crawler.crawl.topology import check_processes, process_names, topology
from crawler.errors import CrawlerError, NoSeedError, StoreError
from crawler.process.forked import Forked, can_fork, fork_children
from crawler.splitter.crawlwide import merge_reports
from crawler.storage.files import Lock
from crawler.supervision.child import MESSAGE_BYTES_MAX, Start, warm_up, work

log = logging.getLogger("crawler")

PROGRAM = ("-m", "crawler.supervision.child")  # what a child runs that is started again
RESTARTS_MAX = 10  # of a child that never lasted `LASTED`; then the crawl ends with its exit code
LASTED = 60.0  # seconds after which a start counts as a success
RESTART_DELAY, RESTART_DELAY_MAX = 0.2, 30.0
BACKOFF_MAX = 1.0  # seconds between attempts to connect to a sibling that is being started again
_HOPELESS = (2, 3)  # exit codes that another start would end with again
_LIMITS = ("max_pages", "max_time", "max_bytes", "disk", "signal", "stopped")


class Supervisor:
    """Runs the processes of the crawl in `directory` to their common end.

    They say how they get on every `status_interval` seconds; 0 = nobody asks for `status`.
    """

    def __init__(
        self,
        config: Config,
        directory: Path,
        seeds: Iterable[str],
        *,
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
        self.failure: CrawlerError | None = None
        self.ports: dict[str, int] = {}
        self._config = config
        self._seeds = seeds
        self._seeds_file = directory / "seeds.run"
        self._refused = 0
        self._run = os.urandom(8).hex()
        self._status_interval = status_interval
        self._level, self._json_log = level, json_log
        self._children = [_Child(self, name) for name in process_names(config)]

    def fork(self) -> None:
        """Start all processes, cheaply; only before this process has a loop or threads."""
        if can_fork():
            warm_up()
            for child, forked in zip(self._children, fork_children(work, len(self._children)), strict=True):
                child.adopt(forked)

    async def run(self) -> dict[str, Any]:
        """Crawl to the end and return the report of all processes (also in DIR/report.json).

        Raises:
            UsageError: the directory holds another number of processes.
            CrawlerError: a child failed for good, with its exit code.
            NoSeedError: the crawl ended without one page fetched.
        """
        check_identity(self._config)
        check_processes(self._config, self.directory)
        topology(self._config, self.directory.path, self._children[0].name)
        self.directory.create()
        with Lock(self.directory.path / "supervisor.lock", "supervisor"):
            self.directory.save_config(self._config)
            self._write_seeds()
            try:
                await asyncio.gather(*(child.run() for child in self._children))
            finally:
                await self._reap()
            return self._finish()

    def _write_seeds(self) -> None:
        """Put the seeds of this run, canonical, where every child reads them."""
        pieces = Seeds(self._config, [*self._config.seeds, *self._seeds])
        with self._seeds_file.open("w", encoding="ascii") as file:
            for urls in pieces:
                file.writelines(f"{url}\n" for url in urls)
        self._refused = pieces.refused

    async def _reap(self) -> None:
        """Leave no child behind, whatever happened here."""
        for child in self._children:
            await child.end()

    def _finish(self) -> dict[str, Any]:
        reports = [child.report for child in self._children if child.report]
        self.report = merged_report(reports, self)
        self.directory.save_report(self.report)
        self._seeds_file.unlink(missing_ok=True)
        if self.failure is not None:
            raise self.failure
        if self.stopped_by in ("", "done", "patience") and not report.any_success(self.report):
            reasons = report.why_nothing(self.report, self._refused)
            raise NoSeedError(f"not one page could be fetched: {reasons}")
        return self.report

    # -- what children say, and what they are told ---------------------------------

    def start_of(self, name: str) -> Start:
        """What the child `name` is to do."""
        replace = msgspec.structs.replace
        splitter = self._config.splitter
        splitter = replace(splitter, listen="127.0.0.1:0", backoff_max=min(splitter.backoff_max, BACKOFF_MAX))
        config = replace(self._config, seeds=(), splitter=splitter)
        config = live_part(config, self.directory.saved_config())
        return Start(
            config=msgspec.to_builtins(config, enc_hook=lambda value: value + 0),
            directory=str(self.directory.path),
            name=name,
            crawl=self.directory.crawl_id(),
            run=self._run,
            ports=self.ports,
            seeds_file=str(self._seeds_file) if self._seeds_file.stat().st_size else "",
            ended=self.ended,
            status_interval=self._status_interval,
            level=self._level,
            json_log=self._json_log,
        )

    def listening(self, name: str, port: int) -> None:
        """A child listens: tell all where."""
        self.ports[name] = port
        self._tell({"addresses": self.ports})

    def learn_end(self) -> None:
        """One process has found out that nothing is left to do anywhere: no other need wait for its silence."""
        if not self.ended:
            self.ended = True
            self._tell({"ended": True})

    def stop(self, reason: str = "stopped") -> None:
        """Let all children take no new work, commit and end."""
        self.stopped_by = self.stopped_by or reason
        self._tell({"stop": reason})

    def kill(self) -> None:
        """End all children at once; nothing is lost."""
        for child in self._children:
            child.kill()

    def fail(self, failure: CrawlerError) -> None:
        """A child cannot go on: end the crawl with its reason."""
        self.failure = self.failure or failure
        self.stop("error")

    def _tell(self, message: dict[str, Any]) -> None:
        for child in self._children:
            child.tell(message)

    def folders(self) -> dict[str, Path]:
        """The folder of each process, in which it answers."""
        return {child.name: self.directory.process(child.name) for child in self._children}

    @property
    def process_count(self) -> int:
        return len(self._children)

    def status(self) -> dict[str, Any]:
        """What is going on in all processes together."""
        nothing = {"frontier": {"todo": 0, "hosts": 0, "in_flight": 0}, "waiting": []}
        return status.merge([nothing, *(child.status for child in self._children)])


class _Child:
    """One process: started, listened to, started again, reaped."""

    def __init__(self, supervisor: Supervisor, name: str) -> None:
        self._supervisor = supervisor
        self.name = name
        self.status: dict[str, Any] = {}
        self.report: dict[str, Any] = {}
        self._process: asyncio.subprocess.Process | Forked | None = None
        self._waiting: Forked | None = None  # started, not yet told what to do
        self._writer: asyncio.StreamWriter | None = None
        self._failures = 0

    def adopt(self, forked: Forked) -> None:
        """Take a process that has been started already."""
        self._process = self._waiting = forked

    async def run(self) -> None:
        """Keep the process alive until it ends as it should."""
        while True:
            begun = time.monotonic()
            code = await self._run_once()
            if code == 0 or self._supervisor.stopped_by:
                return self._ended(code)
            self._failures = 0 if time.monotonic() - begun >= LASTED else self._failures + 1
            if code in _HOPELESS or self._failures > RESTARTS_MAX:
                return self._supervisor.fail(_failure(self.name, code))
            delay = min(RESTART_DELAY * 2 ** max(0, self._failures - 1), RESTART_DELAY_MAX)
            log.error("%s: ended with %s; starting it again in %.1f s", self.name, _cause(code), delay)
            await self._wait(delay)

    async def _wait(self, delay: float) -> None:
        """Let time pass before another start, unless all are to stop."""
        while delay > 0.0 and not self._supervisor.stopped_by:
            await asyncio.sleep(min(delay, RESTART_DELAY))
            delay -= RESTART_DELAY

    def _ended(self, code: int) -> None:
        """The process has ended for good: for its own reason it takes the others with it."""
        if code != 0 and self._supervisor.failure is None and code != -signal.SIGKILL:
            self._supervisor.fail(_failure(self.name, code))
        stopped_by = self.report.get("stopped_by", "")
        if stopped_by in _LIMITS:
            self._supervisor.stop(stopped_by)

    async def _run_once(self) -> int:
        """Start the process and wait for its end; its exit code."""
        process, ours = await self._start()
        self._process = process
        reader, self._writer = await asyncio.open_connection(sock=ours, limit=MESSAGE_BYTES_MAX)
        self._writer.write(msgspec.json.encode(self._supervisor.start_of(self.name)) + b"\n")
        if self._supervisor.stopped_by:
            self.tell({"stop": self._supervisor.stopped_by})
        with contextlib.suppress(ConnectionError):
            await self._listen(reader)
        code = await process.wait()
        self._writer.close()
        self._writer = None
        return code

    async def _start(self) -> tuple[asyncio.subprocess.Process | Forked, socket.socket]:
        """A process that waits for what it is to do, and our end of its socket pair."""
        if self._waiting is not None:
            forked, self._waiting = self._waiting, None
            return forked, forked.link
        ours, theirs = socket.socketpair()
        environ = dict(os.environ)
        if self._process is not None:  # a fault is for the first start: each further one would end there too
            environ.pop("CRAWLER_FAULT", None)
        with theirs:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                *PROGRAM,
                str(theirs.fileno()),
                pass_fds=(theirs.fileno(),),
                stdin=asyncio.subprocess.DEVNULL,
                env=environ,
                start_new_session=True,  # signals of a terminal reach the supervisor alone
            )
        return process, ours

    async def _listen(self, reader: asyncio.StreamReader) -> None:
        while line := await reader.readline():
            message = msgspec.json.decode(line)
            if "port" in message:
                self._supervisor.listening(self.name, message["port"])
            self.status = message.get("status", self.status)
            self.report = message.get("report", self.report)
            if self.report.get("stopped_by") == "done":
                self._supervisor.learn_end()

    def tell(self, message: dict[str, Any]) -> None:
        """Say something to the process if it runs."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(msgspec.json.encode(message) + b"\n")

    def kill(self) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def end(self) -> None:
        """Kill and reap the process if it still runs."""
        self.kill()
        if self._process is not None:
            await self._process.wait()


def _cause(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _failure(name: str, code: int) -> CrawlerError:
    """The error with which the whole crawl ends for that of one process."""
    if code == StoreError.exit_code:
        return StoreError(f"{name}: the store failed; start again when it is mended")
    failure = CrawlerError(f"{name}: ended with {_cause(code)}; its own message stands above")
    failure.exit_code = code if 0 < code < 128 else 1
    return failure


def merged_report(reports: list[dict[str, Any]], supervisor: Supervisor) -> dict[str, Any]:
    """The report of the whole crawl from those of its processes."""
    merged = merge_reports(reports)
    problems = [line for each in reports if each["conservation"] != "holds" for line in each["conservation"]]
    stopped_by = supervisor.stopped_by or merged.get("stopped_by", "")
    if supervisor.ended and not problems and len(reports) == supervisor.process_count:
        problems += _on_the_way(merged.get("splitter", {}))
    ended = supervisor.clock.now()
    return merged | {
        "started": iso_time(supervisor.started),
        "ended": iso_time(ended),
        "seconds": round(ended - supervisor.started, 3),
        "stopped_by": stopped_by if isinstance(stopped_by, str) else stopped_by[0],
        "cpu_seconds": round(report.cpu_seconds(), 3),
        "splitter": report.with_share(merged.get("splitter", {})),
        "conservation": problems or "holds",
    }


def _on_the_way(splitter: dict[str, Any]) -> list[str]:
    """The law that holds once a crawl has ended: what was sent has been applied, and nothing waits."""
    sent, applied = splitter.get("sent", 0), splitter.get("applied", 0)
    return [] if sent == applied else [f"sent = applied: {sent} != {applied}"]
