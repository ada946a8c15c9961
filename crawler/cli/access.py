"""Access to a crawl: through the control socket of each running process, otherwise through the directory itself."""

import sys
import time
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crawler.admin import control_client
from crawler.admin.control_client import NOBODY, RESTART_WAIT
from crawler.clock import SystemClock
from crawler.crawl.directory import CrawlDirectory
from crawler.errors import BusyError, CrawlerError, DamageError, DirectoryError, UsageError
from crawler.printable import printable
from crawler.process.lifecycle.garbage_collection import uncollected
from crawler.storage.files import in_use, is_held
from crawler.upgrade.ready import ready

if TYPE_CHECKING:
    from crawler.process.opening.stages import Stages

END_WAIT = 600.0  # seconds to wait for the end of a crawl; the limits on its shutdown end it much earlier
# Requests that change nothing. If a process does not answer such a request, its directory is read instead,
# without its lock.
READING = frozenset(("status", "why", "page_url", "get", "signals", "host", "hosts"))


def ask(path: Path, request: dict[str, Any], damage: list[str] | None = None) -> list[Any]:
    """Send one request to every process of the crawl in `path`; return the answers in the order of the processes.

    If the request changes nothing, the answer of a process that is missing while others run is computed from
    the directory of that process. Each segment that such a directory lacks adds a line to `damage`.
    """
    directory = CrawlDirectory(path)
    found = {name: _ask_running(directory, name, request) for name in names(directory)}
    running = any(answer is not NOBODY for answer in found.values())
    return [
        _ask_missing(directory, name, request, running=running, damage=damage) if answer is NOBODY else answer
        for name, answer in found.items()
    ]


def _ask_missing(
    directory: CrawlDirectory,
    name: str,
    request: dict[str, Any],
    *,
    running: bool,
    damage: list[str] | None = None,
) -> Any:
    """Answer a request for a process that does not run, from the files of the process.

    If other processes run (`running`), the missing process may be starting, or the crawl may be ending.
    """
    if running and request["command"] not in READING:
        give_up = time.monotonic() + RESTART_WAIT
        while _locks(directory.path):
            if (answer := _ask_running(directory, name, request)) is not NOBODY:
                return answer
            if time.monotonic() >= give_up:
                raise DirectoryError(
                    f"{directory.process(name)}: not running, while other processes of the crawl are; try again"
                )
            time.sleep(0.1)
    try:
        return ask_at_rest(directory, name, request, damage)
    except BusyError:  # the process has started in the meantime, so send it the request
        if (answer := _ask_running(directory, name, request, wait=RESTART_WAIT)) is NOBODY:
            raise
        return answer


def names(directory: CrawlDirectory) -> list[str]:
    """Make the directory of a crawl ready; then return the names of its processes (at least one)."""
    directory.require()
    ready(directory)
    from crawler.crawl.lost_processes import begun_names

    names = begun_names(directory)
    if not names:  # the crawl was stopped before it stored anything, or its store was removed
        raise DirectoryError(f"{directory.path}: nothing was crawled here yet; start with `crawler crawl`")
    return names


class NotRunningError(UsageError):
    """The crawl is not running."""


def ask_first(path: Path, request: dict[str, Any]) -> Any:
    """Send a request to one process, which forwards it to the others; return its answer."""
    directory = CrawlDirectory(path)
    known = names(directory)
    for name in known:
        if (answer := _ask_running(directory, name, request)) is not NOBODY:
            return answer
    return _ask_missing(directory, known[0], request, running=False)


def is_running(path: Path) -> bool:
    """Return whether a process of the crawl answers, even if others do not."""
    directory = CrawlDirectory(path)
    return any(_is_crawling(directory, name) for name in names(directory))


def _is_crawling(directory: CrawlDirectory, name: str) -> bool:
    """Return whether a process runs, even if it is suspended. The page server of a crawl at rest does not count."""
    try:
        return control_client.ask(directory.process(name), command="status", hosts=0) is not NOBODY
    except BusyError:  # the process does not answer
        return True
    except CrawlerError as error:
        if error.exit_code != BusyError.exit_code:
            raise
        return False


def is_answered(path: Path) -> bool:
    """Return whether any process answers commands for the crawl: it may be crawling, or serving a crawl at rest."""
    directory = CrawlDirectory(path)
    return any(control_client.listens(directory.process(name)) for name in directory.process_names())


def ask_running(path: Path, request: dict[str, Any]) -> list[Any]:
    """Send a request to every process of a running crawl; return the answers.

    Wait for a process that does not answer, because it may be starting. The request `stop` does not wait,
    because it is enough if one process receives it: the supervisor then stops the others. A crawl can be
    stopped even if its crawl.toml is damaged.

    Raises:
        NotRunningError: the crawl is not running.
    """
    directory = CrawlDirectory(path)
    stops = request["command"] == "stop"
    known = directory.process_names() if stops else names(directory)
    found = {name: _ask_running(directory, name, request) for name in known}
    if all(answer is NOBODY for answer in found.values()):
        names(directory)  # this call raises an error if there is no crawl
        raise NotRunningError(f"{path}: the crawl is not running")
    if not stops:
        for name in [name for name, answer in found.items() if answer is NOBODY]:
            found[name] = _ask_running(directory, name, request, wait=RESTART_WAIT)
    return [answer for answer in found.values() if answer is not NOBODY]


def _ask_running(directory: CrawlDirectory, name: str, request: dict[str, Any], *, wait: float = 0.0) -> Any:
    """Return the answer of a process, or NOBODY if it does not run.

    The process may be starting, so wait for its answer for up to `wait` seconds.
    The page server of a crawl at rest refuses most requests that only read, and a suspended process does not
    answer; the caller then reads the directory instead.
    """
    give_up = time.monotonic() + wait
    try:
        while (answer := control_client.ask(directory.process(name), **request)) is NOBODY:
            if time.monotonic() >= give_up:
                break
            time.sleep(0.1)
        return answer
    except CrawlerError as error:
        if error.exit_code == BusyError.exit_code and request["command"] in READING:
            return NOBODY
        raise


def ask_at_rest(
    directory: CrawlDirectory, name: str, request: dict[str, Any], damage: list[str] | None = None
) -> Any:
    """Compute the answer for a process that does not run, from the directory of the process.

    Each segment that the directory lacks adds a line to `damage`.
    """
    with uncollected():
        from crawler.pages.archive import Archive
        from crawler.process.answering.commands import Commands

    opened = reading(directory, name) if request["command"] in READING else at_rest(directory, name)
    with opened as stages:
        if damage is not None:
            damage += Archive(directory.process(name) / "warc", stages.store).damage()
        return Commands(stages, stages.commits.commit_now).run(request)


def exit_code(damage: Iterable[str]) -> int:
    """Print the lines about missing segments and unreadable copies; return 0 if there are none, otherwise 3."""
    code = 0
    for line in damage:
        print(f"crawler: {printable(line)}", file=sys.stderr)
        code = DamageError.exit_code
    return code


def refuse_running(directory: CrawlDirectory, names: Iterable[str], command: str) -> None:
    """Raise BusyError if a process of the crawl is running."""
    for name in names:
        if _is_crawling(directory, name):
            raise BusyError(
                f"{directory.process(name)}: is crawling; `{command}` needs a crawl at rest; "
                "`crawler stop --wait` stops it"
            )


def at_rest(
    directory: CrawlDirectory, name: str, *, lasting: bool = False
) -> "AbstractContextManager[Stages]":
    """Open the stages of one process of a crawl that is not running, under its lock; `lasting` is passed to `Stages`."""
    with uncollected():
        from crawler.process.opening import stages

    config = directory.settings.config()
    return stages.at_rest(config, directory, name, clock=SystemClock(), lasting=lasting)


def reading(directory: CrawlDirectory, name: str) -> "AbstractContextManager[Stages]":
    """Open a private copy of the stages of one process. The process keeps its lock and may be running."""
    with uncollected():
        from crawler.process.opening import stages

    return stages.reading(directory.settings.config(), directory, name, clock=SystemClock())


def wait_for_end(path: Path) -> None:
    """Wait until no process holds a lock of the crawl directory.

    Raises:
        BusyError: a process still holds one after `END_WAIT` seconds.
    """
    give_up = time.monotonic() + END_WAIT
    while held := _locks(path):
        if time.monotonic() > give_up:
            raise BusyError(in_use(held[0]))
        time.sleep(0.1)


def _locks(path: Path) -> list[Path]:
    """Return the locks that the processes of a crawl hold, and the lock of its supervisor or of a command."""
    locks = (path / "supervisor.lock", *path.glob("*/node.lock"))
    return [lock for lock in locks if is_held(lock)]
