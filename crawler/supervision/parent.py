"""A child ends soon after its parent, whatever the state of their pipe.

The pipe may be full, or broken by unread bytes, and the loop of the child may stand
still. So a thread waits for the end of the parent process: its descriptor becomes
readable then (Linux, pidfd_open).
"""

import contextlib
import logging
import os
import select
import threading
import time
from collections.abc import Callable

log = logging.getLogger("crawler")

ORPHAN_LIMIT = 4.0  # seconds that an orphan has for its last commit; a crash at any point loses nothing
ORPHANED = 1  # exit code of one that took longer


def watch_parent(parent: int, gone: Callable[[], object], limit: float = ORPHAN_LIMIT) -> None:
    """Once the process `parent` has ended, call `gone` in a thread; end this process `limit` seconds later."""
    threading.Thread(target=_watch, args=(parent, gone, limit), name="parent", daemon=True).start()


def _watch(parent: int, gone: Callable[[], object], limit: float) -> None:
    try:
        wait_for_end(parent)
    except OSError as error:  # a kernel without such descriptors: the pipe is all there is
        log.warning("cannot watch the supervisor: %s", error)
        return
    with contextlib.suppress(RuntimeError):  # the loop is closed: this process ends already
        gone()
    time.sleep(limit)
    os._exit(ORPHANED)


def wait_for_end(parent: int) -> None:
    """Return when the parent of this process has ended; at once if `parent` is not its parent any more."""
    try:
        descriptor = os.pidfd_open(parent)
    except ProcessLookupError:
        return
    try:
        if os.getppid() == parent:  # else the number may be that of another process by now
            ended = select.poll()
            ended.register(descriptor, select.POLLIN)
            ended.poll()
    finally:
        os.close(descriptor)
