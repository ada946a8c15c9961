"""`python -m tests.faults.planted BUG crawl ...`: the crawler, all its processes, with a bug planted; tests must see it.

The bugs are those of `tests/lab/cluster/planted.py`, and one fault that is not a bug:

    no-room-for-runs    the first writes of DUE runs fail
"""

import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

from crawler.cli import main
from crawler.due.runs import DiskRuns
from crawler.errors import StoreError
from crawler.storage.commit import Change, CommitPoint
from crawler.supervision import child, supervisor
from tests.lab.cluster.planted import PLANTS


def _slow_disk() -> list[tuple[Any, str, Any]]:
    """Leave time for a crash between an acknowledgement and the commit."""
    write = CommitPoint.write

    def write_slowly(self: CommitPoint, group: Sequence[Change]) -> None:
        time.sleep(0.05)
        write(self, group)

    return [(CommitPoint, "write", write_slowly)]


def _no_room_for_runs() -> list[tuple[Any, str, Any]]:
    write = DiskRuns.write
    left = [3]

    def write_or_fail(*arguments: Any, **options: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise StoreError("run: cannot write: No space left on device")
        return write(*arguments, **options)

    return [(DiskRuns, "write", write_or_fail)]


OWN: dict[str, Callable[[], list[tuple[Any, str, Any]]]] = {
    "no-room-for-runs": _no_room_for_runs,
    "ack-before-commit": lambda: [*PLANTS["ack-before-commit"].patches(), *_slow_disk()],
}


def plant(bug: str) -> None:
    """Plant a bug in this process."""
    for thing, name, value in (OWN[bug] if bug in OWN else PLANTS[bug].patches)():
        setattr(thing, name, value)


if __name__ == "__main__":
    bug, command, *arguments = sys.argv[1:]
    plant(bug)
    if command == "worker":
        raise SystemExit(child.main(arguments))
    supervisor.PROGRAM = ("-m", "tests.faults.planted", bug, "worker")
    raise SystemExit(main([command, *arguments]))
