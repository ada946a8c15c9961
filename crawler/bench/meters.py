"""Meters of benchmarks: CPU, memory, races. Those of processes read /proc (Linux); elsewhere they say 0."""

import os
import resource
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from crawler.process.lifecycle import garbage_collection

TICKS = os.sysconf("SC_CLK_TCK")


class HeldMemory(NamedTuple):
    """Bytes of a process: resident, of them those that are no file's, and the most that were resident."""

    resident: int
    anonymous: int
    peak: int

    def __str__(self) -> str:
        now, anonymous, peak = (each >> 20 for each in self)
        return f"{now} MiB resident ({anonymous} anonymous), peak {peak}"


def memory(pid: int | str = "self") -> HeldMemory:
    """Memory that a process holds now."""
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return HeldMemory(0, 0, 0)
    fields = dict(line.split(":", 1) for line in text.splitlines())
    names = ("VmRSS", "RssAnon", "VmHWM")
    return HeldMemory(*(1024 * int(fields[name].split()[0]) if name in fields else 0 for name in names))


def anonymous_bytes() -> int:
    """Memory of this process that is no file's, once what is free was given back."""
    with suppress(OSError):
        garbage_collection.give_back()
    return memory().anonymous


def memory_below(pid: int) -> int:
    """Resident bytes of a process and all below it, shared ones counted once; 0 for one that is gone."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        below = children(pid)
    except OSError:
        return 0
    own = sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return 1024 * own + sum(map(memory_below, below))


def children(pid: int) -> list[int]:
    """The processes that a process has started and that run.

    Raises:
        OSError: it is gone.
    """
    threads = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for thread in threads for child in (thread / "children").read_text().split()]


def cpu(pid: int) -> float:
    """CPU seconds that a process has taken.

    Raises:
        OSError: it is gone.
    """
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def cpu_with_children(pid: int) -> float:
    """CPU seconds that a process and those it started have taken."""
    return sum(map(cpu, (pid, *children(pid))))


def cpu_so_far() -> float:
    """CPU seconds of this process and of those it started that have ended."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def cpu_of(work: Callable[[], object]) -> float:
    """CPU seconds of all threads of this process that `work` takes."""
    began = time.process_time()
    work()
    return time.process_time() - began


def race(contenders: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The least CPU seconds of each contender; they take turns, so that what else the machine does falls on all."""
    best = dict.fromkeys(contenders, float("inf"))
    for _ in range(rounds):
        for name, work in contenders.items():
            best[name] = min(best[name], cpu_of(work))
    return best
