"""Test that children end soon after their parent has ended, whatever the state of the pipe between them."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from crawler.forked_children import fork_children
from crawler.supervision.parent import ORPHAN_LIMIT, wait_for_end, watch_parent
from tests.faults.harness import TreeWeb, settings, start

SURELY = 30.0  # seconds after which waiting ends and the test fails


def children_of(pid: int) -> list[int]:
    """Return the process ids of all descendants of `pid`, beginning with its children."""
    try:
        own = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except FileNotFoundError:
        return []
    return [int(each) for each in own] + [inner for each in own for inner in children_of(int(each))]


def runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_process_that_is_not_the_parent_counts_as_ended() -> None:
    """The process id of an ended parent may belong to another process by now.

    Waiting for the end of that process might take forever.
    """
    wait_for_end(os.getpid())  # this returns, because this process is not its own parent
    other = subprocess.Popen([sys.executable, "-c", ""])
    other.wait()
    wait_for_end(other.pid)


def test_a_child_notices_the_end_of_its_parent() -> None:
    def work(link: socket.socket) -> int:
        (child,) = fork_children(lambda inner: _tell_when_alone(inner, link), 1)
        child.link.recv(1)  # the child now watches its parent
        os._exit(0)

    (parent,) = fork_children(work, 1)
    parent.link.settimeout(SURELY)
    assert parent.link.recv(1) == b"e"
    os.waitpid(parent.pid, 0)
    parent.link.close()


def test_a_child_with_a_blocked_event_loop_ends_with_its_parent() -> None:
    """When the parent ends, the child first calls `gone`.

    After the limit it ends, although its event loop is blocked.
    """

    def work(link: socket.socket) -> int:
        (child,) = fork_children(lambda inner: _stand(inner, link), 1)
        child.link.recv(1)
        os._exit(0)

    (parent,) = fork_children(work, 1)
    parent.link.settimeout(SURELY)
    assert parent.link.recv(1) == b"g"
    assert parent.link.recv(1) == b"", "the child has ended"
    os.waitpid(parent.pid, 0)
    parent.link.close()


def _stand(inner: socket.socket, link: socket.socket) -> int:
    watch_parent(os.getppid(), lambda: link.sendall(b"g"), limit=0.01)
    inner.sendall(b"w")
    time.sleep(2 * SURELY)
    return 0


def _tell_when_alone(inner: socket.socket, link: socket.socket) -> int:
    parent = os.getppid()
    inner.sendall(b"w")
    wait_for_end(parent)
    link.sendall(b"e")
    return 0


@pytest.mark.parametrize("delay", ["0.5", "30"], ids=["quick answers", "slow answers"])
def test_children_end_soon_after_a_supervisor_that_hung(tmp_path: Path, delay: str) -> None:
    """Regression: unread messages broke the pipe, and children did not recognize this error as the end of the stream."""
    with TreeWeb(tmp_path, 3000, "--fanout", "3", "--delay", delay) as web:
        talking = [flag for flag in settings("--processes", "2", "--progress", "plain") if flag != "-q"]
        process = start(tmp_path / "crawl", web.seed, *talking)
        give_up = time.monotonic() + SURELY
        sockets = [tmp_path / "crawl" / name / "control.sock" for name in ("p0", "p1")]
        while not all(path.exists() for path in sockets):
            assert process.poll() is None and time.monotonic() < give_up
            time.sleep(0.01)
        children = children_of(process.pid)
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(2.0)  # while the supervisor hangs, it does not read what the children write
        process.kill()
        process.wait()
        end = time.monotonic() + 3 * ORPHAN_LIMIT
        while any(map(runs, children)) and time.monotonic() < end:
            time.sleep(0.05)
        left = [pid for pid in children if runs(pid)]
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        process.communicate()
        assert not left
