"""Long turns are asked for without touching anything else of the process."""

import subprocess
import sys

import pytest

SCRIPT = """
import os
from crawler.supervision.time_slices import take_long_turns
os.nice(5)
asked = take_long_turns()
pid = os.fork()
if not pid:
    os._exit(0 if os.sched_getscheduler(0) == os.SCHED_BATCH else 1)
inherited = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
print(asked, os.sched_getscheduler(0) == os.SCHED_BATCH, os.getpriority(os.PRIO_PROCESS, 0), inherited)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="Linux alone has such turns")
def test_a_process_and_its_children_take_long_turns_at_their_own_priority() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "True", "5", "True"]


def test_where_nobody_knows_of_turns_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    from crawler.supervision import time_slices as slices

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr(slices.os, "sched_setscheduler", refuse)
    assert not slices.take_long_turns()
