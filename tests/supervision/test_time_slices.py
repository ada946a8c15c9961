"""Test that a process requests long time slices and changes nothing else in its scheduling."""

import struct
import subprocess
import sys
from types import SimpleNamespace

import pytest

from crawler.supervision import time_slices as slices

SCRIPT = """
import os
from crawler.supervision.time_slices import use_long_slices
before = os.nice(0)
os.nice(2)
asked = use_long_slices()
pid = os.fork()
if not pid:
    os._exit(0 if os.sched_getscheduler(0) == os.SCHED_BATCH else 1)
inherited = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
nice = os.getpriority(os.PRIO_PROCESS, 0)
print(asked, os.sched_getscheduler(0) == os.SCHED_BATCH, nice == min(before + 2, 19), inherited)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has such time slices")
def test_a_process_and_its_children_use_long_slices_at_their_own_priority() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True", "True", "True"]


@pytest.mark.parametrize(
    ("machine", "number"), [("x86_64", 314), ("aarch64", 274), ("riscv64", 274), ("other", None)]
)
def test_the_arguments_of_the_system_call(
    monkeypatch: pytest.MonkeyPatch, machine: str, number: int | None
) -> None:
    """The argument is a `struct sched_attr` (sched_setattr(2)).

    The struct contains the size 48, the policy 3 (batch), the unchanged nice value, and a time slice of 20 ms
    in ns.
    """
    calls: list[tuple[object, ...]] = []
    monkeypatch.setattr(slices.os, "sched_setscheduler", lambda *_: None)
    monkeypatch.setattr(slices.os, "getpriority", lambda *_: 7)
    monkeypatch.setattr(slices.platform, "machine", lambda: machine)
    library = SimpleNamespace(syscall=lambda *arguments: calls.append(arguments))
    monkeypatch.setattr(slices.ctypes, "CDLL", lambda name: library)
    assert slices.use_long_slices()
    attributes = struct.pack("=IIQiIQQQ", 48, 3, 0, 7, 0, 20_000_000, 0, 0)
    assert calls == ([] if number is None else [(number, 0, attributes, 0)])


def test_a_refused_system_call_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(slices.os, "sched_setscheduler", refuse)
    assert not slices.use_long_slices()
