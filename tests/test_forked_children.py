"""Test forked children: they work, exit with the code that the work returns, and notice the end of their parent."""

import asyncio
import errno
import os
import signal
import socket
from collections.abc import Sequence

import pytest

from crawler.errors import StoreError
from crawler.forked_children import ForkedChild, fork_children


def codes(children: Sequence[ForkedChild]) -> list[int]:
    """Wait for all children at once. Return their exit codes."""

    async def wait() -> list[int]:
        return await asyncio.gather(*(child.wait() for child in children))

    try:
        return asyncio.run(wait())
    finally:
        for child in children:
            child.link.close()


def test_children_talk_and_end_with_the_code_of_their_work() -> None:
    def add_one(link: socket.socket) -> int:
        (number,) = link.recv(1)
        link.sendall(bytes([number + 1]))
        return number

    children = fork_children(add_one, 3)
    for number, child in enumerate(children):
        child.link.sendall(bytes([number]))
    assert [child.link.recv(1) for child in children] == [b"\x01", b"\x02", b"\x03"]
    assert codes(children) == [0, 1, 2]


def test_each_child_sees_the_end_of_its_link_while_siblings_live() -> None:
    """If a child inherited the parent's ends of the pipes of its siblings, these siblings would wait forever."""
    children = fork_children(lambda link: 7 if link.recv(1) == b"" else 1, 3)
    for child in children:
        child.link.close()
        assert codes([child]) == [7]


def test_a_child_that_fails_ends_with_1_and_a_killed_one_with_its_signal() -> None:
    def fail(link: socket.socket) -> int:
        link.recv(1)
        raise RuntimeError("planted")

    failing, killed = fork_children(fail, 2)
    failing.link.sendall(b"x")
    killed.kill()
    assert codes([failing, killed]) == [1, -signal.SIGKILL]
    killed.kill()  # killing a child that has already been reaped is harmless


def test_a_system_that_starts_no_process_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """The children that were started before see the end of their links, and end."""
    pids: list[int] = []
    fork = os.fork

    def at_most_one() -> int:
        if pids:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        pids.append(fork())
        return pids[0]

    monkeypatch.setattr(os, "fork", at_most_one)
    with pytest.raises(StoreError, match="^cannot start a process: Resource temporarily unavailable; "):
        fork_children(lambda link: 7 if link.recv(1) == b"" else 1, 2)
    assert os.waitstatus_to_exitcode(os.waitpid(pids[0], 0)[1]) == 7
