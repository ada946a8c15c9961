"""`crawler node`: one process of a crawl on many machines."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from crawler.cli import crawl, flags, options
from crawler.cli.flags import Flag
from crawler.config import Config, Layers, SplitterConfig
from crawler.crawl.directory import CrawlDirectory
from crawler.errors import ConfigError, UsageError
from crawler.urls.typed_url import crawled

if TYPE_CHECKING:
    from crawler.process.exchange.exchange import Member

# The flags that only nodes have.
NODE_FLAGS = (
    Flag("--name", "splitter.name", "NAME", "this process's name among the peers"),
    Flag("--peer", "splitter.peers", "NAME=HOST:PORT",
         "a process of the crawl, including this one; repeat for each", repeatable=True),
    Flag("--listen", "splitter.listen", "HOST:PORT", "address to listen on (that of this process's --peer)"),
    Flag("--table", "splitter.table_file", "FILE",
         "bucket table as JSON (without one: equal ranges over the sorted names)"),
    Flag("--secret-file", "splitter.secret_file", "FILE", "file with the secret shared by all processes"),
)  # fmt: skip


def main(_command: str, argv: list[str]) -> int:
    """Crawl as one of several processes; return 0 when the crawl has ended or this process was stopped."""
    args = _parse(argv)
    from crawler.cli import running  # imported here, so that `--help` is fast

    directory = CrawlDirectory(args.dir)
    layers = options.layers(args, directory)
    config = _complete(layers, options.starting(layers))
    given = crawl.seeds(config, args, layers, directory)
    member = _member(config, directory)
    running.run_and_tell(config, args, given, member, saved=layers.saved_config())
    return 0


def _parse(argv: list[str]) -> argparse.Namespace:
    parser = options.parser(
        "node",
        "Run one process of a crawl on many machines. Its peers, table and secret come from the configuration, the\n"
        "environment (CRAWLER_SPLITTER__PEERS) or flags. Links for a missing peer are kept here until it connects.",
        "crawler node --dir crawl --name a --peer a=10.0.0.1:7077 --peer b=10.0.0.2:7077 --secret-file secret",
        settings=True,
    )
    parser.add_argument(
        "urls",
        nargs="*",
        metavar="URL",
        type=options.url,
        help="seeds; each is sent to the process that owns it",
    )
    groups = flags.grouped(parser)
    groups[flags.WHAT].add_argument(
        "--seeds", metavar="FILE", help="file of seeds, one URL per line; - reads standard input"
    )
    for flag in NODE_FLAGS:
        flags.add_flag(groups[flags.PROCESSES], flag)
    flags.add_config_flags(groups, "node")
    crawl.add_output_flags(groups)
    args = parser.parse_args(argv)
    args.urls = [*map(crawled, args.urls)]
    args.stdin, args.prog = None, "node"
    return args


def _complete(layers: Layers, config: Config) -> Config:
    """Return the configuration of this run, with the address to listen on and the disk space held in reserve.

    Both are derived in each run, so a node listens on its new address if splitter.peers has changed.
    """
    from crawler.config.forms import host_port, named_addresses

    if config.crawl.processes > 1:
        raise UsageError(
            "crawl.processes applies to `crawler crawl` only; for nodes, name all processes in splitter.peers"
        )
    peers, name = named_addresses(config.splitter.peers), config.splitter.name
    if not peers:
        raise UsageError("splitter.peers: no process is named; give --peer NAME=HOST:PORT for each")
    if name not in peers:
        raise ConfigError(f"splitter.name {name!r} is not among the peers {', '.join(sorted(peers))}")
    host, port = host_port(config.splitter.listen)
    # splitter.peers gives the port to listen on, and also the host unless splitter.listen names one
    if port == 0:
        own_host, port = peers[name]
        given = config.splitter.listen != SplitterConfig().listen
        layers.set_for_run("node", "splitter.listen", f"{host if given else own_host}:{port}")
    if not config.store.ballast_bytes:
        layers.set_for_run("node", "store.ballast_bytes", "64 MiB")
    return layers.config()


def _member(config: Config, directory: CrawlDirectory) -> "Member":
    """Create the directory, with a seed derived from the shared secret, if any; return this process's `Member`."""
    from crawler.config.forms import named_addresses
    from crawler.process.exchange.exchange import Member
    from crawler.splitter.peers import listen_address
    from crawler.splitter.secret import crawl_name, fingerprint_seed, read_secret

    splitter = config.splitter
    secret = read_secret(Path(splitter.secret_file)) if splitter.secret_file else b""
    listen_address(splitter, secret)
    # A crawl that `crawler crawl` started keeps its secret seed, if `splitter.crawl` is the id of that crawl.
    grown = directory.exists() and splitter.crawl == directory.crawl_id()
    directory.create(fingerprint_seed(secret) if secret and not grown else b"")
    addresses = named_addresses(splitter.peers)
    addresses.pop(splitter.name)
    name = splitter.crawl or (crawl_name(secret) if secret else directory.crawl_id())
    return Member(name=splitter.name, crawl=name, addresses=addresses, secret=secret)
