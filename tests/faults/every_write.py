"""Kill a command before its n-th write: a write to a file, a rename, or a batch to a store.

The command runs in a fork of a server that has imported all modules and never opened a store. The fork counts
batches and file operations; it learns of file operations from Python's audit events. At the n-th write, the
fork kills itself with SIGKILL.
"""

import faulthandler
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from crawler import cli
from crawler.storage.kv import DiskStore

STUCK = 120.0  # seconds after which a command that hangs prints its stack
_CHANGES = {"os.rename", "os.remove", "os.rmdir", "os.truncate", "os.mkdir", "os.link", "shutil.rmtree"}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    [
        "crawler.admin.withdrawal", "crawler.cli.check", "crawler.cli.inspect", "crawler.cli.reshard",
        "crawler.cli.withdraw", "crawler.upkeep.behind_peers", "crawler.upkeep.check", "crawler.upkeep.recover",
        "crawler.upkeep.repair", "crawler.upkeep.reshard", "tests.upgrade.test_upgrade", __name__,
        *(f"tests.faults.test_{kind}_killed" for kind in ("moves", "repair", "withdraw")),
    ]
)  # fmt: skip


class Ran(NamedTuple):
    """The result of a command that was not killed, and the number of its writes."""

    writes: int
    result: Any


def run(folder: Path, command: Callable[..., Any], *arguments: Any, kill_at: int = 0) -> Ran | None:
    """Call `command` in a separate process, which is killed before its write number `kill_at` in `folder` (0: never).

    Return None if the process was killed.
    """
    ours, theirs = _context.Pipe()
    child = _context.Process(target=_child, args=(theirs, str(folder), kill_at, command, arguments))
    child.start()
    theirs.close()
    try:
        ran = ours.recv()
    except EOFError:
        ran = None
    child.join()
    assert child.exitcode == (0 if ran is not None else -signal.SIGKILL), child.exitcode
    return None if ran is None else Ran(*ran)


def ran(folder: Path, call: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a separate process. Return its result."""
    done = run(folder, call, *arguments)
    assert done is not None
    return done.result


def in_turn(*calls: Callable[[], Any]) -> list[Any]:
    """Make several calls, for `ran` in one process instead of several. Return their results."""
    return [call() for call in calls]


def command(*words: str) -> int:
    """Run a command of the command line; return its exit code. `check` forks no process for each core."""
    alone = ("--processes", "1") if words[0] == "check" else ()
    return cli.main([*words, *alone, "-q"])


def kill_points(writes: int, *, parts: int, last: int) -> list[int]:
    """Return the numbers of the writes before which the command is killed.

    With `CRAWLER_KILLS=N`, these are every Nth write. Otherwise, about as many writes as `parts` are chosen,
    at equal distances. In both cases, the first write and the `last` ones are among them.
    """
    step = int(os.environ.get("CRAWLER_KILLS", max(1, writes // parts)))
    return sorted({*range(1, writes + 1, step), *range(max(1, writes - last), writes + 1)})


def _child(
    pipe: Connection, folder: str, kill_at: int, command: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    faulthandler.dump_traceback_later(STUCK, exit=True)
    counted = _Counted(folder, kill_at)
    result = command(*arguments)
    pipe.send((counted.writes, result))


class _Counted:
    """Counts the writes of this process, and kills the process before one of these writes."""

    def __init__(self, folder: str, kill_at: int) -> None:
        self.writes = 0
        self._folder, self._kill_at = folder, kill_at
        real = DiskStore.write

        def write(store: DiskStore, batch: Any) -> None:
            self._count()
            real(store, batch)

        DiskStore.write = write  # type: ignore[method-assign]
        sys.addaudithook(self._audit)

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            if isinstance(path, str | Path) and str(path).startswith(self._folder) and flags & _WRITES:
                self._count()
        elif event in _CHANGES and any(str(each).startswith(self._folder) for each in arguments):
            self._count()

    def _count(self) -> None:
        self.writes += 1
        if self.writes == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
