"""Flags shared by the commands, and the configuration they make.

Flag > `CRAWLER_SECTION__KEY` environment > file > the directory's own
crawl.toml > default. A flag that sets a configuration key is a row of `FLAGS`;
the key stands nowhere else in the command line.
"""

import argparse
import logging
import sys
from pathlib import Path
from typing import Any

from crawler.cli.parsing import Parser
from crawler.config import Config, Layers, environment_overrides, read_file
from crawler.crawl.directory import CrawlDirectory
from crawler.errors import UsageError
from crawler.printable import printable, printable_text, printing
from crawler.upgrade.former_settings import renewed
from crawler.upgrade.ready import ready

# flag, key, metavar, help; a metavar of None makes a switch, a "*" before the key a repeatable flag
FLAGS: tuple[tuple[str, str, str | None, str], ...] = (
    ("--scope", "crawl.scope", "host|domain|prefix|any", "which links are followed, relative to the seeds"),
    (
        "--surt",
        "*crawl.surts",
        "PREFIX",
        "also in scope: what begins so, turned round, such as http://(org,example,",
    ),
    ("--include", "*filter.include", "RE", "only URLs that match one of these"),
    ("--exclude", "*filter.exclude", "RE", "no URL that matches one of these"),
    ("--accept-regex", "*filter.include", "RE", "the same as --include"),
    ("--reject-regex", "*filter.exclude", "RE", "the same as --exclude"),
    ("--max-pages", "crawl.max_pages", "N", "end this run after N fetches of URLs, failed ones among them"),
    ("--max-time", "crawl.max_time", "T", "end this run after T, such as 90 or '2 h'"),
    ("--max-bytes", "crawl.max_bytes", "B", "end this run after B bytes, such as '10 GB'"),
    ("--depth", "crawl.depth", "N", "link hops from a seed; URLs beyond are parked"),
    ("--pages-per-host", "crawl.pages_per_host", "N", "URLs of one host; those beyond are parked"),
    ("--pages-per-domain", "crawl.pages_per_domain", "N", "URLs of one registrable domain"),
    ("--timestamping", "crawl.timestamping", None, "ask known pages once more, and store those that changed"),
    ("--patience", "crawl.patience", "T", "end when all that is left waits longer than this (5 min)"),
    ("--requisites", "crawl.requisites", None, "also fetch images, styles, scripts and frames of pages"),
    (
        "--header",
        "*identity.headers",
        "'K: V'",
        "a header of every request; one with credentials goes to the hosts of the seeds only",
    ),
    (
        "--proxy",
        "fetch.proxy",
        "URL",
        "HTTP or SOCKS proxy for all requests, such as socks5://127.0.0.1:1080",
    ),
    (
        "--load-cookies",
        "fetch.cookies_file",
        "FILE",
        "cookies to send, as in a cookies.txt of a browser or curl",
    ),
    ("--limit-rate", "fetch.bytes_per_second", "B", "bytes received a second over all hosts, such as 200k"),
    ("--processes", "crawl.processes", "N", "processes on this machine"),
    ("--rate", "crawl.rate", "R", "pages per second over all processes, constant"),
    (
        "--order",
        "order.name",
        "NAME",
        "which new URL goes first: breadth-first, depth, opic, words, or a package's",
    ),
    (
        "--refresh-share",
        "refresh.share",
        "S",
        "share of the fetches for known pages beside new URLs; auto, or no value: whatever is worth more",
    ),
    (
        "--policy",
        "refresh.policy",
        "NAME",
        "order of refreshes: ncis, greedy, cis, azar-lds, uniform, interval",
    ),
    (
        "--arms",
        "refresh.arms",
        "A,B",
        "compare refresh policies: pages split by hash, equal rates; `status` has their freshness",
    ),
    ("--concurrency", "crawl.concurrency", "N", "fetches in flight a process (500)"),
    ("--delay", "politeness.delay", "S", "least gap between requests to a host (1 s)"),
    ("--delay-factor", "politeness.delay_factor", "K", "gap as a multiple of the last answer time (10)"),
    ("--robots", "robots.policy", "obey|ignore", "ignore is for one's own sites and benchmarks"),
    ("--allow-network", "*network.allow_networks", "CIDR", "open one of the special-purpose networks"),
    ("--token", "identity.token", "NAME", "product token in the User-Agent (crawler)"),
    ("--contact", "identity.contact", "URL-or-mail", "contact in the User-Agent"),
    ("--serve", "serve.address", "ADDRESS:PORT", "serve the stored pages over HTTP while the crawl runs"),
    ("--admin", "admin.address", "ADDRESS:PORT|off", "dashboard and metrics (127.0.0.1:8081)"),
    ("--trace", "crawl.trace", None, "log the URLs that enter the splitter for `crawler lab cache`"),
)


def url(argument: str) -> str:
    """An argument as text that can be sent on: bytes that are no UTF-8 become `?`."""
    return argument.encode("utf-8", "replace").decode()


def parser(command: str, description: str, example: str) -> argparse.ArgumentParser:
    """A parser with the common flags and an example at its end."""
    made = Parser(
        prog=f"crawler {command}",
        description=description,
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.color = False  # type: ignore[attr-defined]  # Python 3.14 colours help; control sequences are not printed
    made.add_argument(
        "--dir", type=Path, default=Path("crawl"), metavar="DIR", help="crawl directory (./crawl)"
    )
    made.add_argument(
        "--config", type=Path, metavar="FILE", help="TOML file; config/default.toml lists every key"
    )
    made.add_argument(
        "--set", action="append", default=[], metavar="SECTION.KEY=VALUE", help="override one key; repeatable"
    )
    made.add_argument(
        "--log-format", choices=("text", "json"), default="text", help="form of the log on stderr"
    )
    made.add_argument("-v", "--verbose", action="count", default=0, help="log more")
    made.add_argument("-q", "--quiet", action="store_true", help="log errors only")
    return made


def add_config_flags(made: argparse.ArgumentParser) -> None:
    """Add the rows of FLAGS."""
    for flag, key, metavar, text in FLAGS:
        target = key.lstrip("*")
        if metavar is None:
            made.add_argument(flag, dest=target, action="store_const", const=True, help=text)
        elif key.startswith("*"):
            made.add_argument(flag, dest=target, action="append", metavar=metavar, help=text)
        elif flag == "--refresh-share":
            made.add_argument(flag, dest=target, metavar=metavar, nargs="?", const="auto", help=text)
        else:
            made.add_argument(flag, dest=target, metavar=metavar, help=text)


def layers(args: argparse.Namespace, directory: CrawlDirectory | None = None) -> Layers:
    """The configuration layers of a command line, weakest first."""
    made = Layers()
    if directory is not None:
        ready(directory)
        made.add(str(directory.config_file), directory.saved_config())
    if args.config is not None:
        made.add(str(args.config), settings_of(args.config))
    for path, value in environment_overrides().items():
        made.set("environment", path, value)
    for text in args.set:
        path, equals, value = text.partition("=")
        if not equals or "." not in path:
            raise UsageError(f"--set {text!r}: expected section.key=value")
        made.set("--set", path.strip(), value.strip())
    for path, value in vars(args).items():
        if "." in path and value is not None:
            made.set("flag", path, value)
    return made


def settings_of(file: Path) -> dict[str, Any]:
    """The settings in a TOML file, under the names that they have now."""
    return renewed(read_file(file), str(file))


def starting(layers: Layers) -> Config:
    """The configuration of a crawl that is about to begin; a ConfigError says where a bad value came from."""
    from crawler.crawl.starting import check_start  # imported here, as it is slow

    config = layers.config()
    with layers.naming():
        check_start(config)
    return config


def load(args: argparse.Namespace, directory: CrawlDirectory | None = None) -> Config:
    """The configuration of a command line; a ConfigError names the key that is wrong."""
    return layers(args, directory).config()


class _PlainFormatter(logging.Formatter):
    """Lines of a log, in the file too, that no page can forge or fill with control sequences."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = printable(record.message)
        return super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        return printable_text(super().format(record))


class _JsonFormatter(logging.Formatter):
    """A JSON object a line: the fields of the plain form, and the facts of a line (`fields`) that has some.

    `process` names one of several.
    """

    def __init__(self, process: str = "") -> None:
        super().__init__()
        self._process = process

    def format(self, record: logging.LogRecord) -> str:
        import msgspec

        row: dict[str, Any] = {
            "ts": record.created,
            "process": self._process,
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        row |= getattr(record, "fields", {})
        if record.exc_info:
            row["error"] = self.formatException(record.exc_info)
        return printable_text(msgspec.json.encode(row).decode())


class _LogFile(logging.FileHandler):
    """A log that a full disk leaves behind: what fails for want of room says so itself."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            super().emit(record)
        except OSError:  # it cannot even be opened
            self.handleError(record)

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)


def set_up_log(args: argparse.Namespace, log_file: Path | None = None) -> None:
    """Send the log to standard error, and to `log_file` whatever the verbosity."""
    send_log(log_level(args), log_file, json=args.log_format == "json")


def log_level(args: argparse.Namespace) -> int:
    """What is shown of the log on standard error."""
    return logging.ERROR if args.quiet else logging.DEBUG if args.verbose else logging.WARNING


def send_log(level: int, log_file: Path | None = None, *, json: bool = False, process: str = "") -> None:
    """Send the log from `level` on to standard error, and to `log_file`; `process` names one of several."""
    name = f" {process}" if process else ""
    plain = _PlainFormatter(f"%(asctime)s{name} %(levelname)s %(name)s: %(message)s")
    shown = logging.StreamHandler(printing(sys.stderr))
    shown.setFormatter(_JsonFormatter(process) if json else plain)
    shown.setLevel(level)
    root = logging.getLogger("crawler")
    for handler in root.handlers:
        handler.close()
    root.handlers = [shown]
    root.propagate = False
    root.setLevel(min(level, logging.INFO))
    if log_file is not None:
        kept = _LogFile(log_file, encoding="utf-8", delay=True)
        kept.setFormatter(plain)
        root.addHandler(kept)
