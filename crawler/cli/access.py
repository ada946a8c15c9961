"""How a command reaches a crawl: through the control socket of a running process, else on the directory itself."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crawler.crawl.directory import CrawlDirectory
from crawler.errors import BusyError, DirectoryError, UsageError
from crawler.upgrade.ready import ready

if TYPE_CHECKING:
    from crawler.process.opening.stages import Stages

RESTART_WAIT = 10.0  # seconds for which a process may be missing while its siblings answer
# The same for what only reads: whoever starts the process waits for the lock of a reader.
READING_WAIT = 2.0
READING = frozenset(("status", "why", "get", "signals", "host"))


def ask(path: Path, request: dict[str, Any]) -> list[Any]:
    """Put one request to every process of the crawl in `path`; the answers in the order of the processes.

    A process that is missing while others run is read at rest if the request changes nothing.
    """
    directory = CrawlDirectory(path)
    found = {name: _ask_running(directory, name, request) for name in names(directory)}
    running = any(answered for answered, _ in found.values())
    reads = request["command"] in READING
    return [
        answer if answered else _ask_missing(directory, name, request, running=running, reads=reads)
        for name, (answered, answer) in found.items()
    ]


def _ask_missing(
    directory: CrawlDirectory, name: str, request: dict[str, Any], *, running: bool, reads: bool
) -> Any:
    """The answer of a process that does not run; with `running` others do, and it may be on its way up."""
    if running:
        answered, answer = _ask_running(
            directory, name, request, wait=READING_WAIT if reads else RESTART_WAIT
        )
        if answered:
            return answer
        if not reads:
            raise DirectoryError(
                f"{directory.process(name)}: not running, while others of the crawl are; try again"
            )
    try:
        return _ask_at_rest(directory, name, request)
    except BusyError:  # it came up meanwhile
        answered, answer = _ask_running(directory, name, request, wait=RESTART_WAIT)
        if not answered:
            raise
        return answer


def begun_names(directory: CrawlDirectory) -> list[str]:
    """The processes of a crawl that is ready, one whose store or folder is lost among them."""
    from crawler.config import convert
    from crawler.crawl.topology import process_names

    here = directory.process_names()
    lost = [name for name in process_names(convert(directory.saved_config())) if directory.has_begun(name)]
    return sorted({*here, *lost}, key=lambda name: (len(name), name))


def names(directory: CrawlDirectory) -> list[str]:
    """The processes of a crawl, at least one; the directory is ready then."""
    directory.require()
    ready(directory)
    names = begun_names(directory)
    if not names:  # it was stopped before it could begin, or somebody took its store away
        raise DirectoryError(f"{directory.path}: nothing was crawled here yet; `crawler crawl` begins it")
    return names


def ask_first(path: Path, request: dict[str, Any]) -> Any:
    """Put a request to one process, which lets the others know; its answer."""
    directory = CrawlDirectory(path)
    name = names(directory)[0]
    found, answer = _ask_running(directory, name, request)
    return answer if found else _ask_at_rest(directory, name, request)


def is_running(path: Path) -> bool:
    """Whether a process of the crawl answers."""
    directory = CrawlDirectory(path)
    found, _ = _ask_running(directory, names(directory)[0], {"command": "status", "hosts": 0})
    return found


def ask_running(path: Path, request: dict[str, Any]) -> list[Any]:
    """Put a request to every process of a running crawl; their answers.

    Raises:
        UsageError: it does not run.
    """
    directory = CrawlDirectory(path)
    answers = []
    for name in names(directory):
        found, answer = _ask_running(directory, name, request)
        if found:
            answers.append(answer)
    if not answers:
        raise UsageError(f"{path}: the crawl does not run")
    return answers


def _ask_running(
    directory: CrawlDirectory, name: str, request: dict[str, Any], *, wait: float = 0.0
) -> tuple[bool, Any]:
    """(whether the process runs, its answer); one that may be on its way up is given `wait` seconds."""
    from crawler.admin.control import NOBODY, ask

    give_up = time.monotonic() + wait
    while (answer := ask(directory.process(name), **request)) is NOBODY:
        if time.monotonic() >= give_up:
            return False, None
        time.sleep(0.1)
    return True, answer


def _ask_at_rest(directory: CrawlDirectory, name: str, request: dict[str, Any]) -> Any:
    from crawler.process.answering.commands import Commands

    with at_rest(directory, name) as stages:
        return Commands(stages, stages.commits.commit_now).run(request)


@contextlib.contextmanager
def at_rest(directory: CrawlDirectory, name: str, *, restore: bool = True) -> Iterator["Stages"]:
    """The stages of one process of a crawl that is not running, under its lock; `restore` as for `Stages`."""
    from crawler.clock import SystemClock
    from crawler.config import convert
    from crawler.process.opening import stages

    config = convert(directory.saved_config())
    with stages.at_rest(config, directory, name, clock=SystemClock(), restore=restore) as opened:
        yield opened
