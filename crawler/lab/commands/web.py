"""Serve the synthetic web of `crawler lab cluster` on loopback, for any crawler.

    crawler lab web --pages 5000 --hosts 200 --seed 7
    crawler lab web --pages 5000 --hosts 200 --seed 7 --latency 0 --padding 20000 --log requests.csv

The command prints the seed URL and serves until Ctrl-C (or --seconds). The sizes of hosts follow Zipf's law;
their addresses are 127.64.0.1, 127.64.0.2, ... The hosts have sitemaps, redirects, pages that fail the first
time, a robots.txt, traps, downtime, and pages that change. At the end, the command prints how many pages were
answered, and how many requests robots.txt forbids. Crawl it with

    crawler crawl URL --scope any --allow-network 127.64.0.0/10
"""

import argparse
import asyncio
import contextlib
import signal
import ssl
from pathlib import Path

import msgspec

from crawler.cli.loopback import free_port
from crawler.cli.parsing import OptionParser, result_file
from crawler.clock import SystemClock
from crawler.errors import UsageError
from crawler.lab.caches.link_locality import LinkLocality
from crawler.lab.cluster.serving import HOSTS_MAX, Served, WebServer, address, names
from crawler.lab.cluster.synthetic_web import SyntheticWeb, WebSpec
from crawler.lab.commands import synthetic
from crawler.lab.refresh import pages_file
from crawler.typed_number import within

DAY = 86_400.0
PAGES_MAX = 2_000_000


def add_arguments(parser: OptionParser) -> None:
    add = parser.option
    add("--pages", 1000, "number of pages")
    add("--hosts", 50, "number of hosts")
    add("--seed", 1, "seed of the web")
    add("--latency", 0.1, "median response time in seconds", metavar="S")
    add("--padding", 0, "bytes of text per page, in addition to its links (0)")
    add("--phrases", 1, "groups of four words in each element of that text")
    add(
        "--links",
        8.0,
        "mean number of links drawn per page, in addition to the tree; half are kept",
        metavar="N",
    )
    add("--changes", 0.0, "changes per page and day (0)")
    synthetic.add_web(parser)
    add("--plain", False, "leave out failures, slow hosts and traps")
    add("--gzip", False, "compress bodies for clients that accept it")
    add("--close", False, "close the connection after each answer, and do not resume TLS sessions")
    add(
        "--certificate",
        Path,
        "serve https with this certificate chain and key for the hosts' addresses",
        metavar="PEM",
    )
    add("--port", 0, "port to listen on (any free port)")
    add("--seconds", 0.0, "stop after this many seconds (default: on Ctrl-C)", metavar="S")
    add("--log", Path, "write all requests to FILE as CSV", type=result_file)


def run(args: argparse.Namespace) -> int:
    within("--hosts", args.hosts, 1, HOSTS_MAX)
    within("--pages", args.pages, args.hosts, PAGES_MAX)
    for name in ("latency", "padding", "links", "changes", "seconds"):
        within(f"--{name}", getattr(args, name), 0)
    within("--port", args.port, 0, 65_535)
    synthetic.check(args)
    try:
        return asyncio.run(_serve(args))
    except OSError as error:
        raise UsageError(f"cannot listen on 127.64.0.1: {error.strerror or error}") from error


def spec_of(args: argparse.Namespace) -> WebSpec:
    """Return the specification of the web that the arguments describe."""
    spec = WebSpec(
        hosts=args.hosts,
        pages=args.pages,
        latency=args.latency,
        change_rate=args.changes / DAY,
        padding=args.padding,
        phrases=max(1, args.phrases),
        scheme="https" if args.certificate else "http",
        links=synthetic.links_of(args)
        or LinkLocality(links_median=args.links / 2 + 1, links_mean=args.links + 1),
        sitemaps=args.sitemaps,
    )
    return msgspec.structs.replace(spec, slow=0.0, down=0.0, traps=0.0, flaws=False) if args.plain else spec


def tls_of(certificate: Path, *, sessions: bool) -> ssl.SSLContext:
    """Return the TLS context of a server with this certificate chain and key.

    `sessions` tells whether clients may resume sessions.

    Raises:
        UsageError: the file cannot be read.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if not sessions:
        context.num_tickets = 0
        context.options |= ssl.OP_NO_TICKET
    try:
        context.load_cert_chain(certificate)
    except OSError as error:  # includes SSLError
        raise UsageError(
            f"--certificate {certificate}: cannot read a certificate chain and its key"
        ) from error
    return context


async def _serve(args: argparse.Namespace) -> int:
    clock, port, horizon = SystemClock(), args.port or free_port(address(0)), args.seconds or 365 * DAY
    tls = tls_of(args.certificate, sessions=not args.close) if args.certificate else None
    model = SyntheticWeb(
        spec_of(args),
        args.seed,
        start=clock.now(),
        horizon=horizon,
        changes_of=synthetic.changes_of(args, horizon),
        name=names(port),
    )
    over = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, over.set)
    async with WebServer(model, clock, port, tls=tls, packed=args.gzip, closing=args.close) as server:
        print(server.seed, flush=True)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(over.wait(), args.seconds or None)
    print(summary(model, server.log))
    if args.log:
        pages_file.write_records(args.log, Served, server.log, f"command: {args.command_line}")
    return 0


def summary(model: SyntheticWeb, log: list[Served]) -> str:
    """Return one line of statistics about the requests."""
    answered = {row.page for row in log if row.status == 200 and row.page >= 0}
    forbidden = sum(row.path.startswith("/private/") for row in log)
    return (
        f"{len(log)} requests, {len(answered)} of {len(model.host_of)} pages answered, {forbidden} forbidden"
    )
