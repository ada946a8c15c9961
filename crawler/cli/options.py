"""Flags shared by the commands, and the configuration that they produce.

Precedence: flag > `CRAWLER_SECTION__KEY` environment > file > the directory's own
crawl.toml > default. The flags that set a key are in `flags.py`.
"""

import argparse
import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from crawler.cli.flags import as_flags, flag_of
from crawler.cli.parsing import Parser, PlainHelp, add_option
from crawler.config import Config, Layers, LogsConfig, read_file
from crawler.config.layers import list_of_texts
from crawler.config.units import shown
from crawler.crawl.directory import CrawlDirectory
from crawler.errors import ConfigError, UsageError
from crawler.printable import printable, printable_text, printing
from crawler.storage.object_store import local_folder
from crawler.upgrade.former_settings import renewed
from crawler.upgrade.ready import ready

if TYPE_CHECKING:
    from crawler.storage.rotating_file import RotatingFile


STDOUT = Path("-")  # stands for standard output in `--report`


def url(argument: str) -> str:
    """Return an argument as valid text: bytes that are not UTF-8 are percent-encoded, as in a URL."""
    from crawler.urls.typed_url import percent_encoded  # imported here because it loads slowly

    return percent_encoded(argument)


def use(argument: str) -> str:
    """Return the argument, the name of a use of pages such as `train-ai`. This is the type of an option."""
    from crawler.config.forms import use_of  # imported here because it loads slowly

    try:
        if argument:  # an argument that is given is not empty, only the default is
            use_of(argument)
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    return argument


def parser(
    command: str,
    description: str,
    example: str,
    *,
    settings: bool = False,
    on_crawl: bool = True,
    folder: str = "crawl",
) -> Parser:
    """Return a parser with the common flags; its help ends with an example.

    Args:
        settings: the command reads settings: add `--config` and `--set`.
        on_crawl: the command works on a crawl: add `--dir` and the flags of the log.
        folder: the default of `--dir`.
    """
    made = Parser(
        prog=f"crawler {command}",
        description=description,
        epilog=f"example:\n  {example}",
        formatter_class=PlainHelp,
        allow_abbrev=False,
        add_help=False,
    )
    # Python 3.14 colours help texts, but no control sequences may be printed
    made.color = False  # type: ignore[attr-defined]
    common = made.add_argument_group("common")
    common.add_argument("-h", "--help", action="help", help="show this help and exit")
    if on_crawl:
        add_option(
            common, "--dir", Path(folder), f"crawl directory (./{folder})", metavar="DIR", type=_folder
        )
    if settings:
        add_option(common, "--config", Path, "TOML file of settings; config/default.toml lists them")
        add_set(common)
    if on_crawl:
        add_option(common, "--log-format", "text", "format of the log on stderr", choices=("text", "json"))
        common.add_argument("-v", "--verbose", action="count", default=0, help="show more")
        common.add_argument("-q", "--quiet", action="store_true", help="show errors only")
    return made


def _folder(argument: str) -> Path:
    """Return the path of a crawl directory, which must be a local folder."""
    try:
        return local_folder(argument)
    except UsageError as error:
        raise UsageError(f"--dir {error}") from None


def add_set(group: argparse._ActionsContainer) -> None:
    add_option(
        group,
        "--set",
        [],
        "override one setting; repeatable",
        metavar="SECTION.KEY=VALUE",
        type=_setting,
    )


def _setting(argument: str) -> str:
    """Return the argument of `--set`. The check of its key also says if it is not UTF-8 text."""
    return argument


def add_output(parser: argparse.ArgumentParser) -> None:
    """Add `--output` for a command that writes one file."""
    parser.add_argument(
        "-o",
        "--output",
        type=lambda text: Path(text) if output(text) else None,
        metavar="FILE",
        help="output file; - is standard output (the default)",
    )


def output(argument: str) -> str | None:
    """Return the path or URL of an output, or None for standard output, which the argument `-` stands for."""
    return None if argument == "-" else argument


def layers(
    args: argparse.Namespace,
    directory: CrawlDirectory | None = None,
    for_run: Mapping[str, object] = MappingProxyType({}),
) -> Layers:
    """Return the configuration layers of a command line, the weakest first.

    `for_run` are settings that a flag implies for this run. They replace saved settings, but not settings
    that the user gives for this run.
    """
    made = Layers()
    if directory is not None:
        ready(directory)
        made = directory.settings.layers()
    for path, value in for_run.items():
        made.set_for_run("flag", path, value)
    if args.config is not None:
        made.add(str(args.config), settings_of(args.config))
    made.add_environment()
    for text in args.set:
        path, equals, value = text.partition("=")
        if not equals or "." not in path:
            raise UsageError(f"--set {shown(text)}: expected section.key=value")
        made.set("--set", path.strip(), value.strip())
    for path, value in vars(args).items():
        if "." in path and value is not None:
            given = list_of_texts(path, value) if isinstance(value, list) else value
            made.set(flag_of(path) or "flag", path, given)
    return made


def settings_of(file: Path) -> dict[str, Any]:
    """Return the settings in a TOML file; keys with an old name are renamed."""
    return renewed(read_file(file), str(file))


def starting(layers: Layers) -> Config:
    """Return the configuration of a crawl that is about to start. A ConfigError tells where a bad value came from."""
    from crawler.crawl.start_checks import check_start  # imported here, as it is slow

    config = layers.config()
    with layers.naming():
        check_start(config)
    return config


class _PlainFormatter(logging.Formatter):
    """Formats log lines so that no page can forge a line or insert control sequences, not even in the log file."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = printable(as_flags(record.message))
        return super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        return printable_text(super().format(record))


class _JsonFormatter(logging.Formatter):
    """Formats one JSON object per line: the parts of the plain format, and the `fields` of a line if it has any.

    With several processes, `process` is the name of the process that logs.
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


class _LogFile(logging.Handler):
    """A rotated log file that ignores write errors such as a full disk, which the crawl itself reports."""

    def __init__(self, path: Path, config: LogsConfig) -> None:
        super().__init__()
        self._path, self._config = path, config
        self._file: RotatingFile | None = None  # opened when the first line is logged

    def emit(self, record: logging.LogRecord) -> None:
        config = self._config
        try:
            if self._file is None:
                # imported here, because most commands log nothing
                from crawler.storage.rotating_file import RotatingFile

                self._file = RotatingFile(
                    self._path, bytes_max=config.bytes_max, age_max=config.age_max, kept=config.log_files
                )
            line = self.format(record) + "\n"
            self._file.write(line.encode("utf-8", "backslashreplace"), record.created)
        except OSError:
            return
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        super().close()


def set_up_log(
    args: argparse.Namespace, log_file: Path | None = None, config: LogsConfig | None = None
) -> None:
    """Send the log to standard error, as verbosely as the user wants, and to `log_file`, rotated as `config` says."""
    send_log(log_level(args), log_file, config, json=args.log_format == "json")


def log_level(args: argparse.Namespace) -> int:
    """Return the lowest level of log lines that are shown on standard error."""
    return logging.ERROR if args.quiet else logging.DEBUG if args.verbose else logging.WARNING


def send_log(
    level: int,
    log_file: Path | None = None,
    config: LogsConfig | None = None,
    *,
    json: bool = False,
    process: str = "",
) -> None:
    """Send log lines of at least `level` to standard error, and to `log_file`; `process` names this process."""
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
        kept = _LogFile(log_file, config or LogsConfig())
        kept.setFormatter(plain)
        root.addHandler(kept)
