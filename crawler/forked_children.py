"""Child processes forked from this process, with all modules already imported.

    the parent has ended  the child ends: it sees the end of the socket pair. A helper is also ended by the
                          kernel (`end_with_parent`), whatever it is doing
    a child has ended     the parent sees the end of the socket pair, and either starts another child or
                          reports an error

To import the crawler, a process needs half a CPU second and 60 MB of memory. A forked child shares this
memory with its parent, because the memory is never changed. So forked children avoid the CPU time and the
memory of the imports: four children start in 0.8 CPU seconds instead of 2.8. Forking a process that runs an
event loop or threads is unsafe. So a crawling process forks its children before its event loop begins. A
child that dies later is replaced by a newly executed program.

`ForkedChild` implements the part of `asyncio.subprocess.Process` that a supervisor uses.
"""

import ctypes
import gc
import logging
import os
import signal
import socket
import sys
import traceback
from collections.abc import Callable, Iterable

from crawler import early_signals
from crawler.errors import StoreError, blame_of_system, reason_of
from crawler.printable import flush_output

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
# runs in the child: it gets the child's end of a socket pair, and returns the exit code
Work = Callable[[socket.socket], int]


def can_fork() -> bool:
    """Return whether this system can wait for a forked child without a thread (Linux)."""
    return hasattr(os, "pidfd_open")


class ForkedChild:
    """A running child. `link` is the parent's end of the socket pair between the two processes."""

    def __init__(self, pid: int, link: socket.socket) -> None:
        self.pid = pid
        self.link = link
        self.returncode: int | None = None
        self._ended = os.pidfd_open(pid)  # this descriptor is readable once the child has ended

    async def wait(self) -> int:
        """Wait for the child to end and return its exit code, which is negative if a signal ended the child."""
        import asyncio  # imported here because commands that only export or check do not need it

        if self.returncode is None:
            loop, ended = asyncio.get_running_loop(), asyncio.Event()
            loop.add_reader(self._ended, ended.set)
            try:
                await ended.wait()
            finally:
                loop.remove_reader(self._ended)
            if self.returncode is None:  # another task may have reaped the child meanwhile
                self._reap()
        assert self.returncode is not None
        return self.returncode

    def _reap(self) -> None:
        self.returncode = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self._ended)

    def kill(self) -> None:
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)

    def end(self) -> None:
        """Kill and reap the child if it still runs, and close the link. This is for programs without an event loop."""
        if self.returncode is None:
            self.kill()
            self._reap()
        self.link.close()


def end_with_parent(parent: int) -> None:
    """Ask the kernel to end this process, which is a child of `parent`, when `parent` ends.

    This works only on Linux.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent has already ended
            os._exit(1)


def cannot_start(error: OSError) -> StoreError:
    """Return the error for a process that the system does not start."""
    return StoreError(
        f"cannot start a process: {reason_of(error)}; the user or the container may have too many (ulimit -u)"
    )


def fork_children(
    work: Work, count: int, *, helpers: bool = False, siblings: Iterable[ForkedChild] = ()
) -> list[ForkedChild]:
    """Start `count` children, each of which runs `work` and then ends.

    `helpers` means that the children have no state to save. The kernel then ends them together with this
    process (more precisely, with the thread that forks them). `siblings` are the other running children.

    Raises:
        StoreError: the system allows no further process, or has no memory for it.
    """
    gc.freeze()  # without this, a garbage collection in a child would copy all memory pages of imported modules
    flush_output()
    parent = os.getpid()
    children: list[ForkedChild] = []
    for _ in range(count):
        ours, theirs = socket.socketpair()
        try:
            pid = os.fork()
        except OSError as error:  # the children forked so far end when their links are closed
            for link in (ours, theirs, *(child.link for child in children)):
                link.close()
            raise cannot_start(error) from error
        if not pid:
            ours.close()
            if helpers:
                end_with_parent(parent)
            for sibling in (*siblings, *children):
                # if this child kept a sibling's link open, the sibling would not notice that the parent has
                # ended
                sibling.link.close()
            _be_child(work, theirs)
        theirs.close()
        children.append(ForkedChild(pid, ours))
    return children


def _be_child(work: Work, link: socket.socket) -> None:
    """Run `work` and exit; never return into the parent's code."""
    code = 1
    try:
        os.setsid()  # in a new session, a signal from the terminal does not reach the child, only the parent
        early_signals.forget()
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        code = work(link)
    except BaseException as error:
        if (expected := blame_of_system(error)) is None:
            traceback.print_exc()
        else:
            code = expected.exit_code
            print(f"crawler: {expected}", file=sys.stderr)
    finally:
        flush_output()
        logging.shutdown()
        os._exit(code)
