"""`crawler serve`: serve the page cache of a crawl that is not running, over HTTP."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING, Any

from crawler.cli import access, options
from crawler.cli.companions import bot_listener
from crawler.config import Config
from crawler.crawl.directory import CrawlDirectory
from crawler.errors import BusyError, DirectoryError, StoreError, may_not_write
from crawler.pages.withdrawals import rules_changed_at
from crawler.process.lifecycle.garbage_collection import collect_briefly, frozen
from crawler.serve.host_check import parse_address
from crawler.serve.listening_socket import listen, origin
from crawler.threads_needed import check_threads

if TYPE_CHECKING:
    from crawler.admin.control import ControlServer, Handler
    from crawler.process.opening.stages import Stages
    from crawler.storage.commit import CommitPoint

log = logging.getLogger("crawler")

DEFAULT_ADDRESS = "127.0.0.1:8080"
_KEY = "serve.address"  # the configuration key that error messages about the address mention


def main(command: str, argv: list[str]) -> int:
    """Serve until a stop signal arrives."""
    parser = options.parser(
        command,
        "Serve the stored pages of a crawl over HTTP: /page?url=URL, Memento, and as a proxy (curl -x).",
        "crawler serve --dir example &\n  curl 'http://127.0.0.1:8080/page?url=https://example.org/'\n"
        "  curl -x 127.0.0.1:8080 http://example.org/\n"
        "  crawler serve --dir example --allow search",
        settings=True,
    )
    parser.add_argument(
        "address",
        nargs="?",
        default=DEFAULT_ADDRESS,
        metavar="ADDRESS:PORT",
        help=f"address to listen on ({DEFAULT_ADDRESS})",
    )
    parser.option(
        "--allow",
        "",
        "serve only copies that may be used for USE (serve.allow)",
        metavar="USE",
        type=options.use,
    )
    args = parser.parse_args(argv)
    options.set_up_log(args)
    directory = CrawlDirectory(args.dir)
    directory.require()
    config = options.layers(args, directory).config()
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(listen(*parse_address(args.address, _KEY), _KEY))
        if not args.quiet:
            print(f"opening {args.dir}, to be served on {origin(listening)}", file=sys.stderr, flush=True)
        stages, said = _opened(directory, stack)
        check_threads()
        import uvloop

        collect_briefly()
        with frozen():  # a garbage collection that visits all cached answers would block requests for 90 ms
            uvloop.run(_serve(directory, stages, config, args, listening, said))
    return 0


# `crawler serve` answers these commands, since it has the crawl open
ANSWERED = ("withdraw", "why", "get")
RULES_INTERVAL = 1.0  # seconds between two checks of whether another command has changed the withdrawals


def _opened(directory: CrawlDirectory, stack: contextlib.ExitStack) -> "tuple[dict[str, Stages], str]":
    """Open the stages of all processes under their locks. If that is impossible, open read-only copies.

    Return the stages, and a message if another process has the locks or the disk is full; otherwise, the
    message is "".
    """
    names = access.names(directory)
    try:
        with contextlib.ExitStack() as held:
            stages = {
                name: held.enter_context(access.at_rest(directory, name, lasting=True)) for name in names
            }
            stack.push(held.pop_all())
        return stages, ""
    except (DirectoryError, StoreError) as error:
        if may_not_write(error):
            why = ""
        # a reader needs neither the lock nor space on the disk of the crawl
        elif isinstance(error, BusyError | StoreError):
            why = f"{error}; the pages stored until now are served"
        else:
            raise
    return {name: stack.enter_context(access.reading(directory, name)) for name in names}, why


def _controls(directory: CrawlDirectory, stages: "dict[str, Stages]") -> "list[ControlServer]":
    """Return the control sockets through which a withdrawal reaches the page server."""
    from crawler.admin.control import ControlServer, in_turns
    from crawler.process.answering.commands import Commands

    def answering(name: str) -> "Handler":
        point = stages[name].point
        commands = Commands(stages[name], point.add)
        one_at_a_time = asyncio.Lock()

        async def answer(request: dict[str, Any]) -> Any:
            if request.get("command") not in ANSWERED:
                raise BusyError(
                    f"{directory.process(name)}: in use by `crawler serve`; `kill {os.getpid()}` or Ctrl-C stops it"
                )
            async with one_at_a_time:  # while a command pauses, requests for pages are answered
                try:
                    return await in_turns(commands.steps(request))
                finally:
                    await _commit_queued(point)

        return answer

    return [ControlServer(directory.process(name), answering(name)) for name in stages]


async def _commit_queued(point: "CommitPoint") -> None:
    """Commit all queued changes. Another thread writes them, so no request waits for the disk."""
    from crawler.admin.control import in_turns

    while len(point):
        await in_turns(point.making())
        group = point.take_made()
        await asyncio.to_thread(point.write, group)
        point.committed(group)


async def _follow_rules(directory: CrawlDirectory, stages: "dict[str, Stages]") -> None:
    """Reload the withdrawals when their file changes, since commands do not notify a process that only reads."""
    seen = rules_changed_at(directory.path)
    while True:
        await asyncio.sleep(RULES_INTERVAL)
        if (now := rules_changed_at(directory.path)) != seen:
            seen = now
            for each in stages.values():
                each.pages.withdrawals.reload()


async def _serve(
    directory: CrawlDirectory,
    stages: "dict[str, Stages]",
    config: Config,
    args: Any,
    listening: socket.socket,
    said: str,
) -> None:
    from crawler.clock import SystemClock
    from crawler.consent.use_rule import UseRule
    from crawler.process.answering.served_process import served_process
    from crawler.serve.filling import Filler
    from crawler.serve.http_server import more_descriptors
    from crawler.serve.page_handler import PageHandler
    from crawler.serve.representation import CopyForm
    from crawler.serve.rewriting import rewriter
    from crawler.serve.server import PageServer
    from crawler.serve.stored_crawl import StoredCrawl

    more_descriptors()
    clock = SystemClock()
    crawl = StoredCrawl({name: served_process(each) for name, each in stages.items()})
    rule = UseRule.of(args.allow or config.serve.allow, config.consent)
    handler = PageHandler(crawl, config.serve, rewriter(), rule, directory.path)
    server = PageServer(handler, config.serve, clock.now, ready=crawl.ready)
    async with contextlib.AsyncExitStack() as running:
        await server.listener.start_on(listening)
        running.push_async_callback(server.close)
        await running.enter_async_context(bot_listener(config, args.dir, quiet=args.quiet))
        if any(each.lock is None for each in stages.values()):
            follower = asyncio.ensure_future(_follow_rules(directory, stages))
            running.callback(follower.cancel)
        else:
            for control in _controls(directory, stages):
                await control.start()
                running.push_async_callback(control.close)
        if config.serve.fill_share > 0.0:
            form = CopyForm(origin(listening), frozenset())
            filler = Filler(handler, crawl.archives, form, config.serve, lambda: server.answered)
            filling = asyncio.ensure_future(filler.run())
            running.callback(filling.cancel)
        if said:
            log.warning("%s", said)
        if not args.quiet:
            print(f"serving {args.dir} on {origin(listening)}/page?url=URL", flush=True)
        stopped = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        await stopped.wait()
