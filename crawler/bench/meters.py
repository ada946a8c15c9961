"""Meters for benchmarks: CPU time, memory, and races between contenders.

The functions that measure other processes read /proc on Linux. On systems other than Linux, these functions
return 0.
"""

import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from crawler.process.lifecycle import garbage_collection

TICKS = os.sysconf("SC_CLK_TCK")


class HeldMemory(NamedTuple):
    """The memory of a process in bytes: resident, anonymous (not backed by a file), and the resident peak."""

    resident: int
    anonymous: int
    peak: int

    def __str__(self) -> str:
        now, anonymous, peak = (each >> 20 for each in self)
        return f"{now} MiB resident ({anonymous} anonymous), peak {peak}"


def memory(pid: int | str = "self") -> HeldMemory:
    """Return the memory that a process holds."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return HeldMemory(0, 0, 0)
    fields = dict(line.split(":", 1) for line in text.splitlines())
    names = ("VmRSS", "RssAnon", "VmHWM")
    return HeldMemory(*(1024 * int(fields[name].split()[0]) if name in fields else 0 for name in names))


def anonymous_bytes() -> int:
    """Give free memory back to the system; then return the size of this process's anonymous memory in bytes."""
    with suppress(OSError):
        garbage_collection.give_back()
    return memory().anonymous


def memory_below(pid: int) -> int:
    """Return the resident bytes of a process and its descendants; 0 if it has ended.

    Shared pages count once.
    """
    try:
        return proportional_memory(pid) + sum(map(memory_below, children(pid)))
    except OSError:
        return 0


def proportional_memory(pid: int) -> int:
    """Return the resident bytes of a process; of shared pages, only its share counts. Return 0 if it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def children(pid: int) -> list[int]:
    """Return the ids of the running processes that a process has started.

    Raises:
        OSError: the process has ended.
    """
    threads = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for thread in threads for child in (thread / "children").read_text().split()]


def cpu(pid: int) -> float:
    """Return the CPU seconds that a process has used.

    Raises:
        OSError: the process has ended.
    """
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def cpu_with_children(pid: int) -> float:
    """Return the CPU seconds that a process and its children have used."""
    return sum(map(cpu, (pid, *children(pid))))


def cpu_of(work: Callable[[], object]) -> float:
    """Run `work` and return the CPU seconds that all threads of this process used during that time."""
    began = time.process_time()
    work()
    return time.process_time() - began


def race(contenders: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Run each contender several times; return the smallest number of CPU seconds for each.

    The contenders take turns, so that other load on the machine affects all of them equally.
    """
    best = dict.fromkeys(contenders, float("inf"))
    for _ in range(rounds):
        for name, work in contenders.items():
            best[name] = min(best[name], cpu_of(work))
    return best
