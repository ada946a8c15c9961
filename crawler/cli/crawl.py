"""`crawler crawl`: crawl into a directory, until done or stopped."""

import argparse
import asyncio
import contextlib
import logging
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crawler import early_signals, kernel_selection
from crawler.cli import flags, options
from crawler.cli.parsing import quoted
from crawler.cli.url_arguments import add_logins, checked
from crawler.config import Config, Layers
from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.relaxed_settings import SeedPlaces, inherited
from crawler.crawl.restart import put_aside
from crawler.crawl.seed_lines import TABLE_KEYS, SeedLine, seed_lines, tables_of
from crawler.crawl.seeds import Seeds
from crawler.errors import CrawlerError, StoreError, UsageError
from crawler.process.lifecycle import shutdown
from crawler.storage.files import named_output, refuse_output

log = logging.getLogger("crawler")

STDOUT = Path("-")

if TYPE_CHECKING:
    from crawler.api import Crawl
    from crawler.forked_children import ForkedChild
    from crawler.process.exchange.exchange import Member


def main(_command: str, argv: list[str]) -> int:
    """Crawl; return 0 if done or stopped on request, 14 at a size limit, 15 at a time limit, 75 on a full disk."""
    args = _parse(argv)
    directory = CrawlDirectory(args.dir)
    if args.dry_run and (args.fresh or args.login is not None or args.mirror or args.report is not None):
        raise UsageError(
            "--dry-run keeps nothing: it cannot be combined with --fresh, --login, --mirror or --report"
        )
    if args.fresh and (aside := put_aside(directory)) is not None and not args.quiet:
        print(f"the existing crawl was moved to {aside}", file=sys.stderr)
    layers = options.layers(args, directory)
    add_logins(args, layers)
    _add_parts(args, layers)
    config = options.starting(layers)
    if not (args.urls or args.seeds or config.seeds or directory.exists()):
        raise UsageError("nothing to crawl: give URLs, --seeds FILE, or the --dir of a crawl to continue")
    if args.dry_run:
        return _dry_run(args, config, directory)
    check_report(args.report)
    if args.login is None and args.data:
        raise UsageError("--data: needs --login URL")
    given = seeds(config, args, layers, directory)
    directory.create()
    options.set_up_log(args, directory.log_file, config.logs)
    if args.login is not None:
        config = _logged_in(args, layers, directory)
    log.info("crawl in %s started", args.dir)
    report = run(config, args, given)
    log.info("crawl in %s ended: %s", args.dir, report.get("stopped_by") or "ended")
    if not args.quiet and args.report != STDOUT:
        print(summary(report, args.dir))
    if args.mirror:
        _write_mirror(args)
    if config.filter.accept and _keeps_nothing(report):
        print(
            f"crawler: no file of a kind in --accept was found: {', '.join(config.filter.accept)}",
            file=sys.stderr,
        )
    return exit_code(report) or (CUT_CODE if _misses_files(args, config, report) else 0)


def _misses_files(args: argparse.Namespace, config: Config, report: dict[str, Any]) -> bool:
    """Return whether a file that the user asked for is incomplete: any with --mirror or --accept, else a seed."""
    wants_files = args.mirror or bool(config.filter.accept)
    return bool(
        incomplete(report) if wants_files else report["run"].get("bodies", {}).get("asked_incomplete")
    )


def _keeps_nothing(report: dict[str, Any]) -> bool:
    """Return whether this run fetched pages but stored none of them."""
    run = report["run"]
    return bool(run.get("pages", {}).get("fetched")) and not run.get("kept", {}).get("pages")


CUT_CODE = 16  # files were asked for, and some of them are incomplete
LIMIT_CODES = {"disk": StoreError.exit_code, "max_bytes": 14, "max_time": 15}  # Browsertrix's two


def exit_code(report: dict[str, Any]) -> int:
    """Return the exit code of a run: if a size or time limit stopped it, the code of that limit."""
    code = LIMIT_CODES.get(report.get("stopped_by") or "", 0)
    return code if code == StoreError.exit_code or report.get("frontier", {}).get("todo") else 0


def incomplete(report: dict[str, Any]) -> str:
    """Return one line about the bodies that this run kept although they are incomplete; "" if there are none."""
    bodies = report["run"].get("bodies", {})
    kinds = [
        (
            bodies.get("cut", 0),
            "longer than fetch.body_bytes_max, fetch.wire_bytes_max, fetch.file_bytes_max or sitemaps.bytes_max",
        ),
        (bodies.get("broken_off", 0), "broken off by the server or a time limit at the last try"),
    ]
    said = ", ".join(f"{count:,} {why}" for count, why in kinds if count)
    return said and f"stored incomplete: {said}; the field truncated in pages.jsonl marks them"


def _dry_run(args: argparse.Namespace, config: Config, directory: CrawlDirectory) -> int:
    """Print the URLs that would be fetched."""
    from crawler.cli.dry_run import dry_run

    options.set_up_log(args)

    def crawl(config: Config, folder: Path) -> dict[str, Any]:
        CrawlDirectory(folder).create()
        beside = argparse.Namespace(**vars(args) | {"dir": folder, "progress": "none"})
        return run(config, beside, Seeds(config, _raw_seeds(args)))

    return dry_run(config, directory, crawl, _raw_seeds(args))


def _logged_in(args: argparse.Namespace, layers: Layers, directory: CrawlDirectory) -> Config:
    """Log in and return the configuration with the cookies of the login."""
    from crawler.cli import login

    cookies = directory.path.absolute() / "cookies.txt"
    login.log_in(args.login, login.fields(args.data), layers.config(), cookies)
    layers.set("--login", "fetch.cookies_file", str(cookies))
    return layers.config()


def _write_mirror(args: argparse.Namespace) -> None:
    """Write the pages stored so far as files, replacing the copy of an earlier run."""
    from crawler.export import worker_pool, writing

    problems: list[str] = []
    entry = writing.renew_mirror(
        args.dir, args.dir / "mirror", processes=worker_pool.processes(), report=problems.append
    )
    for problem in problems:
        print(f"crawler: {problem}", file=sys.stderr)
    if not args.quiet:
        print(f"offline copy: {entry}")


def _parser() -> argparse.ArgumentParser:
    parser = options.parser(
        "crawl",
        "Crawl into a directory. Run the same command again to continue where it stopped.",
        "crawler crawl https://example.org/ --dir example --contact you@example.org --max-pages 1000",
        settings=True,
    )
    parser.add_argument("urls", nargs="*", metavar="URL", help="seeds")
    groups = flags.grouped(parser)
    what = groups[flags.WHAT].add_argument
    what(
        "--seeds",
        metavar="FILE",
        help="file of seeds, one per line; columns `url scope depth limit` are allowed; - reads standard input",
    )
    what(
        "--mirror",
        action="store_true",
        help="imply --requisites, and write a copy to read offline to DIR/mirror",
    )
    what("--spider", action="store_true", help="follow links but store nothing; then see `crawler report`")
    what("--dry-run", action="store_true", help="print the URLs that would be fetched; keep nothing")
    what("--fresh", action="store_true", help="start a new crawl; move the existing one to DIR.1, DIR.2, ...")
    flags.add_config_flags(groups, "crawl")
    what(
        "--accept",
        action="append",
        default=[],
        metavar="LIST",
        help="store only files with these extensions or media types (pdf,image/*); pages and style sheets are fetched "
        "for their links and --requisites is implied",
    )
    what(
        "--reject",
        action="append",
        default=[],
        metavar="LIST",
        help="skip files with these extensions, name patterns or media types (zip,*.iso,video/*)",
    )
    login = groups[flags.LOGIN].add_argument
    login("--http-user", metavar="USER", help="user name for HTTP Basic authentication at the seeds' hosts")
    login(
        "--http-password",
        metavar="PASSWORD",
        help="password for --http-user; a seed http://USER:PASSWORD@HOST/ works too",
    )
    login("--login", metavar="URL", help="log in first with the form on this page, and keep its cookies")
    login(
        "-d",
        "--data",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a field of the login form; with NAME alone, the value is prompted for and not echoed",
    )
    add_output_flags(groups)
    return parser


def add_output_flags(groups: "dict[str, argparse._ArgumentGroup]") -> None:
    """Add the flags for the report and the progress display."""
    output = groups[flags.OUTPUT].add_argument
    output(
        "--report",
        type=Path,
        metavar="FILE",
        help="copy the JSON summary (DIR/report.json) to FILE; - is standard output",
    )
    output("--progress", choices=("auto", "plain", "none"), default="auto", help="progress display (auto)")


def _parse(argv: list[str]) -> argparse.Namespace:
    """Parse the flags; a flag that sets a configuration key is stored under that key's name."""
    args = _parser().parse_args(argv)
    setattr(args, "refresh.endless", False)
    args.stdin, args.prog = None, "crawl"
    args.urls = [checked(url) for url in args.urls]
    if accepted := _words(args.accept):
        setattr(args, "filter.accept", accepted)
        setattr(args, "crawl.requisites", True)  # as wget: pictures on a page are files, too
    rejected = _words(args.reject)
    if endings := [each.lstrip("*.") for each in rejected if not _is_pattern(each)]:
        setattr(args, "filter.exclude_extensions", [f".{each}" for each in endings if each])
    if patterns := [each for each in rejected if _is_pattern(each)]:
        setattr(args, "filter.reject", patterns)
    if args.spider:
        if args.mirror:
            raise UsageError("--spider stores nothing, so it cannot be combined with --mirror")
        setattr(args, "pages.store", "none")
    if args.mirror:
        setattr(args, "crawl.requisites", True)
        setattr(args, "fetch.files", "all")
    if (file := getattr(args, "fetch.cookies_file", None)) is not None:
        setattr(args, "fetch.cookies_file", str(Path(file).absolute()))
    return args


def _words(lists: list[str]) -> list[str]:
    """Return the words of comma-separated lists."""
    return [word.strip() for text in lists for word in text.split(",") if word.strip()]


def _is_pattern(word: str) -> bool:
    """Return whether a kind of file is a media type or a pattern, rather than an extension."""
    return "/" in word or bool(set("*?[") & set(word.removeprefix("*")))


def seeds(config: Config, args: argparse.Namespace, layers: Layers, directory: CrawlDirectory) -> Seeds:
    """Return all seeds of a run.

    Raises:
        UsageError: a seed of the command line is outside the part of the web for which the directory's relaxed
            settings were given. Seeds of a file are checked while they are read.
    """
    saved = str(directory.config_file)
    given = {key for key, source in layers.sources.items() if source != saved}
    places = SeedPlaces(config.crawl.scope, inherited(config, given) if directory.exists() else {})
    if directory.exists():
        places.restrict(directory.seed_places())
        places.check(args.urls)
    return Seeds(config, _raw_seeds(args), places)


def _raw_seeds(args: argparse.Namespace) -> Iterator[str]:
    """Yield the seeds of the command line, then those of the file, line by line."""
    yield from args.urls
    if args.seeds is not None:
        with _seed_file(args) as rows:
            for row in rows:
                if not row.is_plain and args.prog == "node":
                    raise UsageError(
                        f"{row.where}: columns are not read by a node; use [[override]] in its configuration"
                    )
                if row.url:
                    yield row.url
        if args.stdin is not None:
            args.stdin.close()


@contextlib.contextmanager
def _seed_file(args: argparse.Namespace) -> Iterator[Iterator[SeedLine]]:
    """Yield the rows of `--seeds`; keep a copy of standard input, because it is read twice."""
    name = "standard input" if args.seeds == "-" else args.seeds
    with contextlib.ExitStack() as stack:
        try:
            if args.seeds == "-":
                if args.stdin is None:
                    kept = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115
                    args.stdin = kept  # closed after the last seed
                    shutil.copyfileobj(sys.stdin, args.stdin)
                args.stdin.seek(0)
                file = args.stdin
            else:
                file = stack.enter_context(open(args.seeds, encoding="utf-8-sig", errors="replace"))
        except OSError as error:
            raise UsageError(f"--seeds {args.seeds}: {error.strerror}") from error
        yield seed_lines(file, f"--seeds {name}")


def _add_parts(args: argparse.Namespace, layers: Layers) -> None:
    """Apply the columns of the seeds file as overrides to the part of the web under each seed."""
    if args.seeds is None:
        return
    crawl_scope = str(layers.tree.get("crawl", {}).get("scope", "host"))
    with _seed_file(args) as rows:
        tables, surts = tables_of((row for row in rows if not row.is_plain), crawl_scope)
    if tables:
        matches = {table["match"] for table in tables}
        known = [
            own
            for own in layers.tree.get("override", [])
            if not (own.get("match") in matches and own.keys() <= TABLE_KEYS)
        ]
        layers.add(f"--seeds {args.seeds}", {"override": [*known, *tables]})
    if surts:
        before = list(layers.tree.get("crawl", {}).get("surts", []))
        layers.set(f"--seeds {args.seeds}", "crawl.surts", list(dict.fromkeys([*before, *surts])))


def run(
    config: Config, args: argparse.Namespace, seeds: Seeds, member: "Member | None" = None
) -> dict[str, Any]:
    """Crawl in this process (as `member` of several) or under a supervisor; return the report."""
    os.environ.setdefault(
        "OPENBLAS_NUM_THREADS", "1"
    )  # its threads spin at startup, and no matrix is multiplied
    if kernel_selection.are_interpreted():
        log.info(
            "the kernels run interpreted; scripts/setup compiles them if gcc and python3-dev are installed"
        )
    try:
        processes = config.crawl.processes
        report = _supervise(config, args, seeds) if processes > 1 else _run_one(config, args, seeds, member)
        if said := incomplete(report):
            log.info(said)
            print(f"crawler: {said}", file=sys.stderr)
        return report
    finally:
        if args.report is not None:
            _copy_report(CrawlDirectory(args.dir).report_file, args.report)


def _copy_report(made: Path, wanted: Path) -> None:
    """Copy the report of the run, even if the run failed."""
    if made.exists() and wanted == STDOUT:
        sys.stdout.write(made.read_text(encoding="utf-8"))
    elif made.exists():
        try:
            with named_output(wanted) as file:
                file.write(made.read_bytes())
        except CrawlerError as error:
            raise StoreError(f"--report {error}; the report is in {made}") from error


def check_report(path: Path | None) -> None:
    """Check before the crawl that the report can be written to `path`; raise UsageError otherwise."""
    try:
        if path is not None and path != STDOUT:
            refuse_output(path)
    except UsageError as error:
        raise UsageError(f"--report {error}") from None


def _run_one(
    config: Config, args: argparse.Namespace, seeds: Seeds, member: "Member | None"
) -> dict[str, Any]:
    import gc

    import uvloop

    import crawler.api  # noqa: F401
    from crawler.process.fetching.reader import fork_parser

    parser = fork_parser()
    gc.freeze()  # imported modules are never collected, so the collector need not visit them
    limit = config.crawl.shutdown_step_max
    try:
        return shutdown.run(_crawl(config, args, seeds, member, parser), uvloop.new_event_loop, limit)
    finally:  # close also if the directory cannot be opened
        if parser is not None:
            parser.end()


def _supervise(config: Config, args: argparse.Namespace, seeds: Seeds) -> dict[str, Any]:
    from crawler.cli.progress import LIVE_INTERVAL
    from crawler.supervision.supervisor import Supervisor

    supervisor = Supervisor(
        config,
        args.dir,
        seeds,
        status_interval=LIVE_INTERVAL if _progress(args) != "none" else 0.0,
        level=options.log_level(args),
        json_log=args.log_format == "json",
    )
    supervisor.fork()
    return asyncio.run(_watch(supervisor, config, args))


def _progress(args: argparse.Namespace) -> str:
    """Return the kind of progress display to use."""
    return "none" if args.quiet else args.progress


async def _watch(supervisor: Any, config: Config, args: argparse.Namespace) -> dict[str, Any]:
    from crawler.admin.status_source import SiblingProcesses
    from crawler.cli.companions import companions
    from crawler.cli.progress import show

    source = SiblingProcesses(supervisor.folders())
    with _Stopper(supervisor, args.dir, _command(config)):
        shown = asyncio.create_task(show(supervisor, _progress(args)))
        try:
            async with companions(source, config, args.dir, quiet=_progress(args) == "none"):
                return await supervisor.run()
        finally:
            shown.cancel()
            await asyncio.gather(shown, return_exceptions=True)


async def _crawl(
    config: Config,
    args: argparse.Namespace,
    seeds: Seeds,
    member: "Member | None",
    parser: "ForkedChild | None",
) -> dict[str, Any]:
    from crawler.admin.status_source import OwnProcess
    from crawler.api import Crawl
    from crawler.cli.companions import companions
    from crawler.cli.progress import show

    async with Crawl(config, directory=args.dir, seeds=seeds, member=member, parser=parser) as crawl:
        source = OwnProcess(crawl.command, lambda: "")
        with _Stopper(crawl, args.dir, _command(config)):
            shown = asyncio.create_task(show(crawl, _progress(args)))
            try:
                async with companions(source, config, args.dir, quiet=_progress(args) == "none"):
                    return await crawl.run()
            finally:
                shown.cancel()
                await asyncio.gather(shown, return_exceptions=True)


def _command(config: Config) -> str:
    """Return the command that continues this kind of run."""
    return "refresh" if config.refresh.endless else "crawl"


class _Stopper:
    """Signal handling: the first signal shuts down cleanly, the second exits immediately; neither loses data.

    The handlers are Python's own, not the event loop's, so the second signal also ends a blocked loop.
    A signal that arrives before the loop exists is noted (`early_signals.py`); the crawl stops as soon as it runs.
    """

    def __init__(self, crawl: "Crawl", directory: Path, command: str) -> None:
        self._crawl = crawl
        self._command = command
        self._directory = directory
        self._asked = False

    def __enter__(self) -> None:
        """Install the signal handlers."""
        self._loop = asyncio.get_running_loop()
        self._before = {number: signal.signal(number, self) for number in early_signals.stop_signals()}
        if early_signals.begin():
            self._loop.call_soon(self._crawl.stop, "signal")

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def __call__(self, *_: object) -> None:
        if self._asked:
            self._crawl.kill()
            os._exit(130)
        self._asked = True
        said = f"stopping; continue later with: crawler {self._command} --dir {quoted(self._directory)}\n"
        os.write(2, said.encode(errors="backslashreplace"))  # the handler may have interrupted a print
        self._loop.call_soon_threadsafe(self._crawl.stop, "signal")


def _nothing_new(report: dict[str, Any]) -> bool:
    """Return whether the crawl was already complete before the run."""
    run = report["run"]
    asked = any([*run.get("pages", {}).values(), *run.get("refresh", {}).values()])
    return report["stopped_by"] == "done" and not asked and not report["frontier"]["todo"]


def summary(report: dict[str, Any], directory: Path, command: str = "crawl") -> str:
    """Return the summary printed at the end of a run."""
    run = report["run"]
    pages = run.get("pages", {})
    failed = {name: n for name, n in sorted(pages.items()) if name in _FAILURES and n}
    frontier, where = report["frontier"], quoted(directory)
    lines = [
        f"{report['stopped_by'] or 'ended'} after {report['seconds']:.1f} s: "
        f"{pages.get('fetched', 0):,} pages fetched, "
        f"{run.get('bytes', {}).get('wire', 0) / 1e6:,.1f} MB received; "
        f"{frontier['todo']:,} URLs to do, {frontier['parked']:,} parked",
    ]
    if refreshed := run.get("refresh", {}):
        lines.append(
            f"refreshed: {refreshed.get('done', 0):,} pages fetched again; {refreshed.get('content_changed', 0):,} had "
            f"changed, {refreshed.get('content_same', 0) + refreshed.get('unchanged', 0):,} had not"
        )
    if command == "crawl" and _nothing_new(report):
        lines.append(
            "complete; known pages are not fetched again (use crawler refresh, or --fresh to start over)"
        )
    if failed:
        lines.append("not fetched: " + ", ".join(f"{name} {n:,}" for name, n in failed.items()))
    if unwritten := run.get("bodies", {}).get("unwritten"):
        lines.append(
            f"stored without their bodies because of an error in the crawler (see the log): {unwritten:,}"
        )
    if report["conservation"] != "holds":
        lines += [f"counting error: {problem}" for problem in report["conservation"]]
    lines.append(f"pages: {where}/*/warc   fetch log: {where}/pages.jsonl   report: {where}/report.json")
    if frontier["todo"] or command == "refresh":
        lines.append(f"continue with: crawler {command} --dir {where}")
    return "\n".join(lines)


_FAILURES = {
    "bad_redirect", "gone", "client_error", "temporary", "host_busy", "unexpected_status", "bad_status",
    "header_too_large", "framing", "header_timeout", "dns_error", "dns_not_found", "address_denied",
    "connect_error", "tls_error", "reset", "proxy_error", "internal_error",
    "robots_denied",
}  # fmt: skip
