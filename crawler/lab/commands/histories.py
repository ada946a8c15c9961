"""Make the change history of a site from a git clone, for `crawler lab league`.

    crawler lab histories --git ~/src/handbook --out histories
    crawler lab histories --git site --pages 'content/*.md' --pages '*.html' --name site --out histories
    crawler lab league --data histories --policies round-robin,nutch,ncis

The file holds only facts: times, line counts, hashes of paths. Only the main line of development is read
(--first-parent): a page changes when a commit is merged there. --pages takes git pathspecs and may be
repeated; by default, HTML, Markdown, reStructuredText and AsciiDoc files are pages. For a clone without file
contents (--filter=blob:none), use --no-sizes; otherwise, git fetches the contents. The clone is not changed.
"""

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from crawler.cli.parsing import OptionParser, result_folder
from crawler.clock import SystemClock
from crawler.errors import UsageError
from crawler.lab.league import git_log, histories
from crawler.lab.league.git_log import GitLog
from crawler.lab.progress_line import ProgressLine

CHUNK_BYTES = 1 << 18
ERROR_CHARS = 300
SPAN_LEAST = 86_400  # seconds; a shorter history is too short to compare policies


def add_arguments(parser: OptionParser) -> None:
    add = parser.option
    add("--git", Path, "a git clone with its whole history", metavar="DIR", required=True)
    add("--out", Path, "write NAME.npz to this folder", metavar="DIR", required=True, type=result_folder)
    parser.add_argument(
        "--pages",
        action="append",
        metavar="GLOB",
        help="git pathspec of the files that are pages; repeatable",
    )
    add("--name", str, "name of the site (name of the clone's folder)")
    add("--no-sizes", False, "do not count lines: faster, but sizes are unknown")


def run(args: argparse.Namespace) -> int:
    if not args.git.is_dir():
        raise UsageError(f"{args.git}: folder not found")
    name = args.name or args.git.resolve().name.removesuffix(".git")
    if not name or name.startswith(".") or "/" in name or "\0" in name:
        raise UsageError(f"--name {name!r}: not a valid file name")
    if _git(args.git, "rev-parse", "--is-shallow-repository") == "true":
        print(f"crawler: {args.git} is a shallow clone; its earlier history is missing", file=sys.stderr)
    latest = _git(args.git, "log", "-1", "--first-parent", "--no-show-signature", "--format=%ct")
    if not latest.isdigit():
        raise UsageError(f"{args.git}: the repository has no commits")
    commits = int(_git(args.git, "rev-list", "--first-parent", "--count", "HEAD"))
    log = GitLog(int(latest))
    sizes = () if args.no_sizes else (git_log.SIZES,)
    pages = args.pages or git_log.PAGES
    report = ProgressLine(f"histories {name}", SystemClock())
    log.read(_counted(_parts(args.git, *git_log.LOG, *sizes, "HEAD", "--", *pages), commits, report))
    history = log.history(name)
    path = args.out / f"{name}.npz"
    histories.write(path, history)
    changes, alive = len(history.page), int((history.died == 0).sum())
    span = history.end - int(history.born.min())
    print(
        f"{path}: {len(history.born)} pages, {alive} of them still exist, {changes} changes in {_span(span)}"
    )
    if span < SPAN_LEAST:
        print(f"crawler: {path}: too short to compare refresh policies", file=sys.stderr)
    return 0


def _span(seconds: float) -> str:
    """Return a length of time as text, in the largest unit in which it is at least 0.1."""
    for size, name in ((365.25 * 86_400, "years"), (86_400.0, "days")):
        if seconds >= 0.1 * size:
            return f"{seconds / size:.1f} {name}"
    return f"{seconds:,.0f} s"


def _counted(parts: Iterator[bytes], commits: int, report: ProgressLine) -> Iterator[bytes]:
    """Yield the parts of git's output unchanged, and report progress by the number of commits among them."""
    seen = 0
    for part in parts:
        if part.startswith(git_log.COMMIT):
            seen += 1
            report(seen / (commits + 1))
        yield part


def _command(folder: Path, *words: str) -> list[str]:
    return ["git", "-C", str(folder), "-c", "core.fsmonitor=false", *words]


def _git(folder: Path, *words: str) -> str:
    """Run git and return the line that it prints.

    Raises:
        UsageError: git is not installed, or it failed.
    """
    try:
        done = subprocess.run(
            _command(folder, *words), check=False, capture_output=True, text=True, errors="replace"
        )
    except OSError as error:
        raise UsageError(f"cannot run git: {error.strerror}") from error
    if done.returncode:
        raise UsageError(f"git in {folder}: {_first_line(done.stderr)}")
    return done.stdout.strip()


def _parts(folder: Path, *words: str) -> Iterator[bytes]:
    """Run git and yield its output, split at NULs, as it arrives."""
    with (
        # a file takes the error messages, because a pipe that is not read could fill up and block git
        tempfile.TemporaryFile() as complaints,
        subprocess.Popen(
            _command(folder, *words), stdout=subprocess.PIPE, stderr=complaints, stdin=subprocess.DEVNULL
        ) as process,
    ):
        assert process.stdout is not None
        try:
            yield from git_log.split(iter(partial(process.stdout.read, CHUNK_BYTES), b""))
        except BaseException:
            process.kill()
            raise
        if process.wait():
            complaints.seek(0)
            raise UsageError(f"git in {folder}: {_first_line(complaints.read().decode(errors='replace'))}")


def _first_line(text: str) -> str:
    return (text.strip().splitlines() or ["failed without a message"])[0][:ERROR_CHARS]
