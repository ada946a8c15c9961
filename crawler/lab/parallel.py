"""Tasks played several at a time, each in a process of its own."""

import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import TypeVar

PROCESSES_MAX = 16  # each holds the worlds of a task or two, some 50 MB

Task = TypeVar("Task")
Result = TypeVar("Result")


def cores() -> int:
    """Return the default number of tasks at a time: one a core, at most 16."""
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(own, PROCESSES_MAX)


def results(play: Callable[[Task], Result], tasks: Sequence[Task], processes: int) -> Iterator[Result]:
    """Yield `play(task)` of each task, in their order; `play` is a function of a module. One process: here."""
    if min(processes, len(tasks)) <= 1:
        yield from map(play, tasks)
        return
    context = multiprocessing.get_context("spawn")  # a fork would share LevelDB and threads of a caller
    with ProcessPoolExecutor(min(processes, len(tasks)), mp_context=context) as pool:
        try:
            yield from pool.map(play, tasks)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
