"""Children forked from this process, with everything imported; and what holds for every child.

    the parent is gone    the child ends: its end of the socket pair says so, and a helper is ended by the
                          kernel as well (`end_with_parent`), whatever it is doing
    a child is gone       the parent sees the end of the socket pair: another child takes its place, or an
                          error says what happened

Importing the crawler takes half a CPU second and 60 MB that never change. Forked
children pay neither: four of them start in 0.8 CPU s instead of 2.8. A fork of a
process that runs a loop or threads is broken, so only the first start of a process that
crawls forks; a child that dies is replaced by a program of its own.

`ForkedChild` has the part of `asyncio.subprocess.Process` that a supervisor uses.
"""

import asyncio
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

_PR_SET_PDEATHSIG = 1  # linux/prctl.h
Work = Callable[[socket.socket], int]  # what a child does with its end of a socket pair; its exit code


def can_fork() -> bool:
    """Whether this system can wait for a forked child without a thread (Linux)."""
    return hasattr(os, "pidfd_open")


class ForkedChild:
    """A running child; `link` is our end of its socket pair."""

    def __init__(self, pid: int, link: socket.socket) -> None:
        self.pid = pid
        self.link = link
        self.returncode: int | None = None
        self._ended = os.pidfd_open(pid)  # readable once the child has ended

    async def wait(self) -> int:
        """Reap the child; its exit code, or less than 0 for a signal."""
        if self.returncode is None:
            loop, ended = asyncio.get_running_loop(), asyncio.Event()
            loop.add_reader(self._ended, ended.set)
            try:
                await ended.wait()
            finally:
                loop.remove_reader(self._ended)
            if self.returncode is None:  # nobody else has waited meanwhile
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
        """Kill and reap the child if nobody has; close our end. For a program that ends without a loop."""
        if self.returncode is None:
            self.kill()
            self._reap()
        self.link.close()


def end_with_parent(parent: int) -> None:
    """Let the kernel end this process, a child of `parent`, when its parent ends (Linux; elsewhere nothing)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it has ended before
            os._exit(1)


def fork_children(
    work: Work, count: int, *, helpers: bool = False, siblings: Iterable[ForkedChild] = ()
) -> list[ForkedChild]:
    """Start `count` children, each of which does `work` and ends.

    `helpers` have nothing to finish, and are ended with this process (more precisely, with
    the thread that forks them). `siblings` are the other children that run.
    """
    gc.freeze()  # a collection in a child would copy every page of what was imported
    sys.stdout.flush()
    sys.stderr.flush()
    parent = os.getpid()
    children: list[ForkedChild] = []
    for _ in range(count):
        ours, theirs = socket.socketpair()
        pid = os.fork()
        if not pid:
            ours.close()
            if helpers:
                end_with_parent(parent)
            for sibling in (*siblings, *children):
                sibling.link.close()  # else it would not see the end of its parent
            _be_child(work, theirs)
        theirs.close()
        children.append(ForkedChild(pid, ours))
    return children


def _be_child(work: Work, link: socket.socket) -> None:
    """Never returns into what the parent was doing."""
    code = 1
    try:
        os.setsid()  # signals of a terminal reach the parent alone
        early_signals.forget()
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        code = work(link)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        logging.shutdown()
        os._exit(code)
