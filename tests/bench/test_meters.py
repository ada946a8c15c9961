"""Test the meters on a process that the test starts: they agree with the values that the system reports."""

import os
import subprocess
import sys

from crawler.bench import meters

BUSY = "sum(range(10_000_000)); held = b'x' * (80 << 20); print(flush=True); input()"


def test_a_process_is_measured_with_its_children() -> None:
    before = meters.memory_below(os.getpid())
    assert before > 10 << 20
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", BUSY], stdin=pipe, stdout=pipe) as child:
        assert child.stdout is not None and child.stdout.readline()
        held = meters.memory(child.pid)
        assert 80 << 20 <= held.anonymous <= held.resident <= held.peak < 1 << 30
        assert meters.memory_below(child.pid) > 70 << 20
        assert meters.memory_below(os.getpid()) > before + (60 << 20)
        assert child.pid in meters.children(os.getpid()) and not meters.children(child.pid)
        assert meters.cpu_with_children(os.getpid()) >= meters.cpu(child.pid) > 0.0
        child.communicate(b"\n")
    assert meters.memory_below(child.pid) == 0 and meters.memory(child.pid) == (0, 0, 0)


def test_memory_is_printed_in_mib() -> None:
    assert str(meters.HeldMemory(5 << 20, 3 << 20, 9 << 20)) == "5 MiB resident (3 anonymous), peak 9"
    assert 0 < meters.anonymous_bytes() <= meters.memory().peak


def test_contenders_alternate_and_their_shortest_time_is_returned() -> None:
    order: list[str] = []
    work = {name: lambda name=name: order.append(name) for name in ("a", "b")}
    found = meters.race(work, 3)
    assert order == ["a", "b"] * 3 and all(0.0 <= took < 1.0 for took in found.values())
