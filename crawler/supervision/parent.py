"""Ends a child soon after its parent has ended, even if the pipe between the two does not show this.

The pipe may be full or broken, and the child's event loop may be blocked. So a thread waits for the end of
the parent process. The thread waits on a process descriptor (on Linux: pidfd_open), which becomes readable
when the parent ends.
"""

import contextlib
import logging
import os
import select
import threading
import time
from collections.abc import Callable

log = logging.getLogger("crawler")

ORPHAN_LIMIT = 4.0  # seconds for the last commit of an orphaned child; a crash at any point loses nothing
ORPHANED = 1  # exit code of an orphan whose last commit takes too long


def watch_parent(parent: int, gone: Callable[[], object], limit: float = ORPHAN_LIMIT) -> None:
    """Start a thread that calls `gone` when process `parent` has ended, and ends this process `limit` seconds later."""
    threading.Thread(target=_watch, args=(parent, gone, limit), name="parent", daemon=True).start()


def _watch(parent: int, gone: Callable[[], object], limit: float) -> None:
    try:
        wait_for_end(parent)
    except OSError as error:  # if the kernel has no pidfd_open, only the pipe can show the end of the parent
        log.warning("cannot watch the supervisor: %s", error)
        return
    with contextlib.suppress(RuntimeError):  # if the loop is closed, this process is already ending
        gone()
    time.sleep(limit)
    os._exit(ORPHANED)


def wait_for_end(parent: int) -> None:
    """Wait until the parent of this process has ended. Return immediately if `parent` is no longer the parent."""
    try:
        descriptor = os.pidfd_open(parent)
    except ProcessLookupError:
        return
    try:
        # if the parent has changed, the process id may already belong to another process
        if os.getppid() == parent:
            ended = select.poll()
            ended.register(descriptor, select.POLLIN)
            ended.poll()
    finally:
        os.close(descriptor)
