"""Runs several tasks at the same time, each in a separate process."""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from typing import TypeVar

from crawler.lab.progress_line import OnProgress, silent

PROCESSES_MAX = 16  # a process holds the worlds of one or two tasks, which take about 50 MB

Task = TypeVar("Task")
Result = TypeVar("Result")


def cores() -> int:
    """Return the default number of tasks that run at the same time: one per core, at most 16."""
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(own, PROCESSES_MAX)


def results(
    play: Callable[[Task], Result], tasks: Sequence[Task], processes: int = 0, report: OnProgress = silent
) -> Iterator[Result]:
    """Yield `play(task)` for each task, in order. `report` gets the share of the tasks that are done.

    `play` must be a module-level function. With `processes` 0, there is a process for each core. With 1, the
    tasks run in this process.
    """
    processes = min(processes or cores(), len(tasks))
    with ExitStack() as stack:
        found: Iterator[Result] = map(play, tasks)
        if processes > 1:
            # a forked process would share LevelDB and threads with the caller
            pool = ProcessPoolExecutor(processes, mp_context=multiprocessing.get_context("spawn"))
            stack.callback(pool.shutdown, wait=False, cancel_futures=True)
            found = pool.map(play, tasks)
        for done, result in enumerate(found, 1):
            yield result
            report(done / len(tasks))
