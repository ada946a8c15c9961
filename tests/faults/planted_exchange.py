"""`python -m tests.faults.planted_exchange BUG crawl ...`: several processes with a bug planted between them.

ack-before-commit    what a peer sent is confirmed as soon as it is accepted
outbox-in-memory     links for other processes wait in memory only
"""

import sys
import time
from collections.abc import Sequence
from typing import Any

from crawler.cli import main
from crawler.splitter.inbox import Inbox
from crawler.splitter.outbox import Outbox
from crawler.storage.commit import Change, CommitPoint
from crawler.storage.kv import MemoryStore
from crawler.supervision import child as worker
from crawler.supervision import supervisor


def ack_before_commit() -> None:
    """Confirm entries on acceptance: a crash before the commit loses them. A slow disk gives it time to."""
    Inbox.durable = Inbox.accepted  # type: ignore[method-assign]
    write = CommitPoint.write

    def write_slowly(self: CommitPoint, group: Sequence[Change]) -> None:
        time.sleep(0.05)
        write(self, group)

    CommitPoint.write = write_slowly  # type: ignore[method-assign]


def outbox_in_memory() -> None:
    """Keep the outbox in a store of its own that no crash outlives."""
    init, stage = Outbox.__init__, Outbox.stage

    def init_in_memory(self: Outbox, store: Any, *arguments: Any, **options: Any) -> None:
        init(self, MemoryStore(), *arguments, **options)

    def stage_in_memory(self: Outbox, batch: Any) -> None:
        own = self._store.batch()
        stage(self, own)
        self._store.write(own)

    Outbox.__init__ = init_in_memory  # type: ignore[method-assign]
    Outbox.stage = stage_in_memory  # type: ignore[method-assign]


BUGS = {"ack-before-commit": ack_before_commit, "outbox-in-memory": outbox_in_memory}

if __name__ == "__main__":
    bug, command, *arguments = sys.argv[1:]
    BUGS[bug]()
    if command == "worker":
        raise SystemExit(worker.main(arguments))
    supervisor.PROGRAM = ("-m", "tests.faults.planted_exchange", bug, "worker")
    raise SystemExit(main([command, *arguments]))
