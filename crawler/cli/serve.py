"""`crawler serve`: serve the page cache of a crawl that is not running, over HTTP."""

import asyncio
import contextlib
import signal
from typing import TYPE_CHECKING, Any

from crawler.cli import access, options
from crawler.config import Config
from crawler.crawl.directory import CrawlDirectory
from crawler.errors import BusyError

if TYPE_CHECKING:
    from crawler.admin.control import ControlServer, Handler

DEFAULT_ADDRESS = "127.0.0.1:8080"


def main(command: str, argv: list[str]) -> int:
    """Serve until a signal arrives."""
    parser = options.parser(
        command,
        "Serve the stored pages of a crawl over HTTP: /page?url=URL, Memento, and as a proxy (curl -x).",
        "crawler serve --dir example &\n  curl 'http://127.0.0.1:8080/page?url=https://example.org/'\n"
        "  curl -x 127.0.0.1:8080 http://example.org/\n"
        "crawler serve --dir example --allow search",
        settings=True,
    )
    parser.add_argument(
        "address",
        nargs="?",
        default=DEFAULT_ADDRESS,
        metavar="ADDRESS:PORT",
        help=f"address to listen on ({DEFAULT_ADDRESS})",
    )
    parser.add_argument(
        "--allow", default="", metavar="USE", help="serve only copies that may be used for USE (serve.allow)"
    )
    args = parser.parse_args(argv)
    options.set_up_log(args)
    directory = CrawlDirectory(args.dir)
    config = options.load(args, directory)
    with contextlib.ExitStack() as stack:
        names = access.names(directory)
        stages = {name: stack.enter_context(access.at_rest(directory, name)) for name in names}
        import uvloop

        uvloop.run(_serve(directory, stages, config, args))
    return 0


ANSWERED = ("withdraw", "why", "get")  # the commands that a served crawl answers; it has the crawl open


def _controls(directory: CrawlDirectory, stages: dict[str, Any]) -> "list[ControlServer]":
    """Return the control sockets through which a withdrawal reaches the page server."""
    from crawler.admin.control import ControlServer
    from crawler.process.answering.commands import Commands

    def answering(name: str) -> "Handler":
        commands = Commands(stages[name], stages[name].commits.commit_now)

        async def answer(request: dict[str, Any]) -> Any:
            if request.get("command") not in ANSWERED:
                raise BusyError(f"{directory.process(name)}: in use by `crawler serve`; stop it first")
            return commands.run(request)

        return answer

    return [ControlServer(directory.process(name), answering(name)) for name in stages]


async def _serve(directory: CrawlDirectory, stages: dict[str, Any], config: Config, args: Any) -> None:
    from crawler.clock import SystemClock
    from crawler.consent.use_rule import UseRule
    from crawler.serve.http_server import more_descriptors
    from crawler.serve.page_handler import PageHandler
    from crawler.serve.rewriting import rewriter
    from crawler.serve.server import PageServer
    from crawler.serve.stored_crawl import StoredCrawl

    more_descriptors()
    clock = SystemClock()
    crawl = StoredCrawl(stages, clock.now)
    rule = UseRule.of(args.allow or config.serve.allow, config.consent)
    server = PageServer(
        PageHandler(crawl, config.serve, rewriter(), rule), config.serve, clock.now, ready=crawl.ready
    )
    async with contextlib.AsyncExitStack() as running:
        host, port = await server.start(args.address)
        running.push_async_callback(server.close)
        for control in _controls(directory, stages):
            await control.start()
            running.push_async_callback(control.close)
        if not args.quiet:
            print(f"serving {args.dir} on http://{host}:{port}/page?url=URL", flush=True)
        stopped = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stopped.set)
        await stopped.wait()
