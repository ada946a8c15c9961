"""`crawler crawl`: crawl and store the pages in a directory, until the crawl is done or stopped."""

import argparse
import contextlib
import gc
import io
import shutil
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import IO, Any

from crawler.cli import flags, options
from crawler.cli.parsing import add_option, listed, maybe_empty
from crawler.cli.summary import exit_code, incomplete
from crawler.cli.url_arguments import add_logins
from crawler.config import Config, Layers
from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.restart import rename_to_numbered
from crawler.crawl.seed_lines import TABLE_KEYS, SeedLine, seed_lines, tables_of
from crawler.crawl.seeds import Seeds
from crawler.errors import UsageError
from crawler.input_files import lines_of
from crawler.signing.key_file import with_key_file
from crawler.storage.files import atomic_write, refuse_output
from crawler.storage.parts import PARTS, part_files
from crawler.urls.typed_url import crawled

# The waits that `--check-external` sets if the user does not set them. Links often lead to hosts that are down,
# and the user waits for the report. With these waits, the crawl ends a minute after its last page at
# the latest, while a host that fails or asks for a pause still gets a pause of `politeness.backoff_first`.
_EXTERNAL_WAITS = {
    "crawl.patience": 60.0,
    "frontier.retry_delays": [5.0, 10.0],
    "robots.unreachable_delays": [5.0, 10.0, 300.0, 1800.0, 3600.0],
}
# `--spider` waits even less. An early verdict that a host is down does no harm, because the run stores no pages.
# So a host is tried three times within 15 s; the fourth try would be 20 s later. By default, the second try
# would be after 60 s.
_SPIDER_WAITS = _EXTERNAL_WAITS | {"crawl.patience": 15.0, "politeness.backoff_first": 5.0}


def main(_command: str, argv: list[str]) -> int:
    """Crawl; return 0 if done or stopped on request, 14 at a size limit, 15 at a time limit, 75 on a full disk."""
    gc.disable()  # no garbage collection during the imports; `running.run` enables it
    args = _parse(argv)
    from crawler.cli import running  # imported here, so that `--help` is fast

    directory = CrawlDirectory(args.dir)
    if args.dry_run and (
        args.fresh or args.cached or args.login is not None or args.mirror or args.report is not None
    ):
        raise UsageError(
            "--dry-run keeps nothing: it cannot be combined with --fresh, --cached, --login, --mirror or --report"
        )
    anew = args.fresh or args.cached
    layers = options.layers(args, None if anew else directory, _waits(args))
    if args.spider:
        layers.set_for_run("--spider", "pages.store", "none")
    add_logins(args, layers)
    _add_parts(args, layers)
    config = options.starting(layers)
    if not (args.urls or args.seeds or config.seeds or (directory.exists() and not anew)):
        continuable = "" if anew else ", or the --dir of a crawl to continue"
        raise UsageError(f"nothing to crawl: give URLs or --seeds FILE{continuable}")
    if args.dry_run:
        from crawler.cli.dry_run import dry_run

        return dry_run(config, directory, args, _raw_seeds(args))
    if args.login is None and args.data:
        raise UsageError("--data: needs --login URL")
    cookies = _log_in(args, layers, directory) if args.login is not None else b""
    if anew:
        config = _move_existing(args, layers, directory)
    given = seeds(config, args, layers, directory)
    directory.create()
    if args.login is not None:
        config = _with_cookies(cookies, layers, directory)
    report = running.run_and_tell(config, args, given, saved=layers.saved_config())
    if args.mirror:
        _write_mirror(args)
    if config.filter.accept and _keeps_nothing(report):
        print(f"crawler: no file matches --accept: {', '.join(config.filter.accept)}", file=sys.stderr)
    broken_off = _broken_off(directory) if report["stopped_by"] == "patience" else 0
    if broken_off:
        print(
            f"crawler: transfers of files that broke off: {broken_off:,}; run the command again to resume them",
            file=sys.stderr,
        )
    return exit_code(report) or (CUT_CODE if broken_off or _misses_files(args, config, report) else 0)


def _waits(args: argparse.Namespace) -> dict[str, Any]:
    """Return the waits that the flags imply for this run."""
    if args.spider:
        return _SPIDER_WAITS
    return _EXTERNAL_WAITS if getattr(args, "crawl.check_external") else {}


def _move_existing(args: argparse.Namespace, layers: Layers, directory: CrawlDirectory) -> Config:
    """Move the existing crawl out of the way of a new one; return the configuration of the new crawl."""
    if args.cached:
        from crawler.export.cached_runs import start_cached

        aside, answers_from = start_cached(directory)
        layers.set("--cached", "crawl.answers_from", answers_from)
    else:
        aside = rename_to_numbered(directory)
    if aside is not None and not args.quiet:
        print(f"the existing crawl was moved to {aside}", file=sys.stderr)
    return layers.config()


def _broken_off(directory: CrawlDirectory) -> int:
    """Return the number of incomplete files that will be retried in a later run."""
    return sum(1 for name in directory.process_names() for _ in part_files(directory.process(name) / PARTS))


def _misses_files(args: argparse.Namespace, config: Config, report: dict[str, Any]) -> bool:
    """Return whether a requested file is incomplete: any file with --mirror or --accept, otherwise a seed."""
    wants_files = args.mirror or bool(config.filter.accept)
    return bool(
        incomplete(report) if wants_files else report["run"].get("bodies", {}).get("asked_incomplete")
    )


def _keeps_nothing(report: dict[str, Any]) -> bool:
    """Return whether this run fetched pages but stored none of them."""
    run = report["run"]
    return bool(run.get("pages", {}).get("fetched")) and not run.get("kept", {}).get("pages")


CUT_CODE = 16  # exit code if requested files are incomplete


def _log_in(args: argparse.Namespace, layers: Layers, directory: CrawlDirectory) -> bytes:
    """Log in and return the content of a cookies file."""
    from crawler.cli import login

    config = with_key_file(layers.config(), directory.path.absolute())
    return login.log_in(args.login, login.fields(args.data), config)


def _with_cookies(cookies: bytes, layers: Layers, directory: CrawlDirectory) -> Config:
    """Keep the cookies of a login in the directory. Return the configuration of a crawl that sends them."""
    file = directory.path.absolute() / "cookies.txt"
    atomic_write(file, cookies, mode=0o600)
    layers.set("--login", "fetch.cookies_file", str(file))
    return layers.config()


def _write_mirror(args: argparse.Namespace) -> None:
    """Write the pages stored so far as files, in place of the files that an earlier run wrote."""
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
    parser.add_argument("urls", nargs="*", metavar="URL", type=options.url, help="seeds")
    groups = flags.grouped(parser)
    what = partial(add_option, groups[flags.WHAT])
    what(
        "--seeds",
        str,
        "file of seeds, one per line; columns `url scope depth limit render` are allowed; - reads standard input",
        metavar="FILE",
    )
    what("--mirror", False, "imply --requisites, and write a copy to read offline to DIR/mirror")
    what(
        "--spider",
        False,
        "follow links but store nothing; then see `crawler report`; dead hosts are tried three times in 15 s",
    )
    what("--dry-run", False, "print the URLs that would be fetched; keep nothing")
    what("--fresh", False, "start a new crawl; move the existing one to DIR.1, DIR.2, ...")
    what(
        "--cached",
        False,
        "as --fresh, but take the answers that earlier runs stored (DIR.1, DIR.2, ...) instead of requests",
    )
    flags.add_config_flags(groups, "crawl")
    what(
        "--accept",
        [],
        "store only files with these extensions or media types (pdf,image/*); pages and style sheets are fetched "
        "for their links and --requisites is implied",
        metavar="LIST",
    )
    what(
        "--reject",
        [],
        "skip files with these extensions, name patterns or media types (zip,*.iso,video/*)",
        metavar="LIST",
    )
    login = partial(add_option, groups[flags.LOGIN])
    login("--http-user", str, "user name for HTTP Basic authentication at the seeds' hosts", metavar="USER")
    login(
        "--http-password",
        str,
        "password for --http-user; a seed http://USER:PASSWORD@HOST/ works too",
        metavar="PASSWORD",
        type=maybe_empty,
    )
    login(
        "--login",
        str,
        "log in first with the form on this page, and keep its cookies",
        metavar="URL",
        type=options.url,
    )
    groups[flags.LOGIN].add_argument(
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
    output = partial(add_option, groups[flags.OUTPUT])
    about = "copy the JSON summary (DIR/report.json) to FILE; - is standard output"
    output("--report", Path, about, type=_report_file)
    output("--progress", "auto", "progress display", choices=("auto", "plain", "none"))


def _report_file(argument: str) -> Path:
    """Return the path of a report, after checking that it can be written; raise UsageError otherwise."""
    path = Path(argument)
    try:
        if path != options.STDOUT:
            refuse_output(path)
    except UsageError as error:
        raise UsageError(f"--report {error}") from None
    return path


def _parse(argv: list[str]) -> argparse.Namespace:
    """Parse the flags; a flag that sets a configuration key is stored under that key's name."""
    args = _parser().parse_args(argv)
    setattr(args, "refresh.endless", False)
    args.stdin, args.prog = None, "crawl"
    args.urls = [crawled(url) for url in args.urls]
    if accepted := listed(args.accept):
        setattr(args, "filter.accept", accepted)
        setattr(args, "crawl.requisites", True)  # as in wget, the pictures on a page also count as files
    rejected = listed(args.reject)
    if endings := [each.lstrip("*.") for each in rejected if not _is_pattern(each)]:
        setattr(args, "filter.exclude_extensions", [f".{each}" for each in endings if each])
    if patterns := [each for each in rejected if _is_pattern(each)]:
        setattr(args, "filter.reject", patterns)
    if args.spider and args.mirror:
        raise UsageError("--spider stores nothing, so it cannot be combined with --mirror")
    if args.mirror:
        setattr(args, "crawl.requisites", True)
        setattr(args, "fetch.files", "all")
    if (file := getattr(args, "fetch.cookies_file", None)) is not None:
        setattr(args, "fetch.cookies_file", str(Path(file).absolute()))
    return args


def _is_pattern(word: str) -> bool:
    """Return whether a kind of file is a media type or a pattern, rather than an extension."""
    return "/" in word or bool(set("*?[") & set(word.removeprefix("*")))


def seeds(config: Config, args: argparse.Namespace, layers: Layers, directory: CrawlDirectory) -> Seeds:
    """Return all seeds of a run.

    Raise UsageError if a seed of the command line is outside the part of the web for which the directory's
    relaxed settings were given. Seeds of a file are checked while they are read.
    """
    places = directory.settings.seed_places(config, directory.settings.given(layers))
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


# `seed_lines` percent-encodes the bytes that are not UTF-8
_SEEDS_TEXT: dict[str, Any] = {"encoding": "utf-8-sig", "errors": "surrogateescape"}


@contextlib.contextmanager
def _seed_file(args: argparse.Namespace) -> Iterator[Iterator[SeedLine]]:
    """Yield the rows of `--seeds`. The rows are read twice, so standard input or a pipe is copied to a file first."""
    name = "standard input" if args.seeds == "-" else args.seeds
    with contextlib.ExitStack() as stack:
        try:
            if args.seeds == "-" or Path(args.seeds).is_fifo():
                if args.stdin is None:
                    kept = tempfile.TemporaryFile()  # noqa: SIM115
                    if args.seeds == "-":
                        shutil.copyfileobj(sys.stdin.buffer, kept)
                    else:
                        with open(args.seeds, "rb") as pipe:
                            shutil.copyfileobj(pipe, kept)
                    # the file is closed after the last seed
                    args.stdin = io.TextIOWrapper(kept, **_SEEDS_TEXT)
                args.stdin.seek(0)
                file = args.stdin
            else:
                file = stack.enter_context(open(args.seeds, **_SEEDS_TEXT))
        except OSError as error:
            raise UsageError(f"--seeds {args.seeds}: {error.strerror}") from error
        yield seed_lines(_readable(file, f"--seeds {name}"), f"--seeds {name}")


def _readable(file: IO[str], name: str) -> Iterator[str]:
    """Yield the lines of a seeds file; raise UsageError if the file cannot be read."""
    try:
        yield from lines_of(file)
    except OSError as error:
        raise UsageError(f"{name}: {error.strerror}") from error


def _add_parts(args: argparse.Namespace, layers: Layers) -> None:
    """Turn the columns of the seeds file into overrides. Each override applies to the part of the web under its seed."""
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
