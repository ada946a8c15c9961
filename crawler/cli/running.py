"""Runs a crawl in this process or under a supervisor, and stops it cleanly on a signal."""

import argparse
import asyncio
import gc
import logging
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crawler import early_signals
from crawler.cli import options
from crawler.cli.parsing import quoted
from crawler.cli.summary import incomplete, summary
from crawler.config import Config
from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.seeds import Seeds
from crawler.errors import CrawlerError, StoreError
from crawler.process.lifecycle import shutdown
from crawler.storage.files import named_output
from crawler.storage.rotating_file import reopen_on

log = logging.getLogger("crawler")

if TYPE_CHECKING:
    from crawler.api import Crawl
    from crawler.process.exchange.exchange import Member


def run_and_tell(
    config: Config,
    args: argparse.Namespace,
    seeds: Seeds,
    member: "Member | None" = None,
    saved: Config | None = None,
) -> dict[str, Any]:
    """Run a crawl as `run` does, with its log in the directory, and print its summary; return the report."""
    options.set_up_log(args, CrawlDirectory(args.dir).log_file, config.logs)
    log.info("%s in %s started", args.prog, args.dir)
    report = run(config, args, seeds, member, saved)
    log.info("%s in %s ended: %s", args.prog, args.dir, report.get("stopped_by") or "ended")
    if not args.quiet and args.report != options.STDOUT:
        print(summary(report, args.dir, args.prog))
    return report


def run(
    config: Config,
    args: argparse.Namespace,
    seeds: Seeds,
    member: "Member | None" = None,
    saved: Config | None = None,
) -> dict[str, Any]:
    """Crawl in this process (as `member` of several) or under a supervisor; return the report.

    If `saved` is given, the directory keeps these settings instead of `config`.
    """
    try:
        processes = config.crawl.processes
        report = (
            _supervise(config, args, seeds, saved)
            if processes > 1
            else _run_one(config, args, seeds, member, saved)
        )
        if said := incomplete(report):
            log.info(said)
            print(f"crawler: {said}", file=sys.stderr)
        return report
    finally:
        if args.report is not None:
            _copy_report(CrawlDirectory(args.dir).report_file, args.report)


def _copy_report(made: Path, wanted: Path) -> None:
    """Copy the report of the run to `wanted`, even if the run failed."""
    if made.exists() and wanted == options.STDOUT:
        sys.stdout.write(made.read_text(encoding="utf-8"))
    elif made.exists():
        try:
            with named_output(wanted) as file:
                file.write(made.read_bytes())
        except CrawlerError as error:
            raise StoreError(f"--report {error}; the report is in {made}") from error


def _run_one(
    config: Config, args: argparse.Namespace, seeds: Seeds, member: "Member | None", saved: Config | None
) -> dict[str, Any]:
    gc.disable()  # during the imports
    import uvloop

    from crawler.api import Crawl
    from crawler.process.fetching.reader import fork_parser

    parser = fork_parser()
    gc.freeze()  # imported modules never become garbage, so the garbage collector need not visit them
    gc.enable()
    limit = config.crawl.shutdown_step_max
    try:
        crawl = Crawl(config, directory=args.dir, seeds=seeds, member=member, saved=saved, parser=parser)
        return shutdown.run(_crawl(crawl, args), uvloop.new_event_loop, limit)
    finally:  # end the parser's process even if the directory could not be opened
        if parser is not None:
            parser.end()


def _supervise(
    config: Config, args: argparse.Namespace, seeds: Seeds, saved: Config | None
) -> dict[str, Any]:
    from crawler.cli.progress import LIVE_INTERVAL
    from crawler.supervision.supervisor import Supervisor

    supervisor = Supervisor(
        config,
        args.dir,
        seeds,
        saved=saved,
        status_interval=LIVE_INTERVAL if _progress(args) != "none" else 0.0,
        level=options.log_level(args),
        json_log=args.log_format == "json",
    )
    supervisor.fork()
    gc.enable()
    return asyncio.run(_watch(supervisor, config, args))


def _progress(args: argparse.Namespace) -> str:
    return "none" if args.quiet else args.progress


async def _watch(supervisor: Any, config: Config, args: argparse.Namespace) -> dict[str, Any]:
    from crawler.admin.status_source import SiblingProcesses
    from crawler.cli.companions import companions
    from crawler.cli.progress import shown

    source = SiblingProcesses(supervisor.folders(), supervisor)
    mode = _progress(args)
    with _Stopper(supervisor, args.dir, args.prog):
        async with shown(supervisor, mode):
            return await supervisor.run(companions(source, config, args.dir, quiet=mode == "none"))


async def _crawl(crawl: "Crawl", args: argparse.Namespace) -> dict[str, Any]:
    from crawler.admin.status_source import OwnProcess
    from crawler.cli.companions import companions
    from crawler.cli.progress import shown

    mode = _progress(args)
    async with crawl:
        services = companions(
            OwnProcess(crawl.command, lambda: ""), crawl.config, args.dir, quiet=mode == "none"
        )
        with _Stopper(crawl, args.dir, args.prog):
            async with shown(crawl, mode), services:
                return await crawl.run()


class _Stopper:
    """Handles signals: the first shuts down cleanly, and the second exits immediately. Neither loses data.

    The handlers are set with `signal.signal` and not in the event loop, so the second signal also ends a
    blocked loop. A signal that arrives before the loop exists is remembered (`early_signals.py`), and
    stops the crawl as soon as the loop runs. A first signal that arrives while the crawl closes changes nothing.
    `early_signals.noted` restores the previous handlers.
    """

    def __init__(self, crawl: "Crawl", directory: Path, command: str) -> None:
        self._crawl = crawl
        self._command = command
        self._directory = directory
        self._asked = self._ended = False

    def __enter__(self) -> None:
        """Install the signal handlers."""
        self._loop = asyncio.get_running_loop()
        for number in early_signals.stop_signals():
            signal.signal(number, self)
        reopen_on(early_signals.REOPEN)
        if early_signals.begin():
            self._loop.call_soon(self._crawl.stop, "signal")

    def __exit__(self, *_: object) -> None:
        self._ended = True

    def __call__(self, *_: object) -> None:
        if self._asked:
            self._crawl.kill()
            os._exit(130)
        self._asked = True
        if self._ended:
            return
        said = f"stopping; continue later with: crawler {self._command} --dir {quoted(self._directory)}\n"
        # `os.write` is used, because the handler may have interrupted a `print`
        os.write(2, said.encode(errors="backslashreplace"))
        self._loop.call_soon_threadsafe(self._crawl.stop, "signal")
