"""The fuzzing loop: it makes an input, runs the target, and measures the thread's CPU time.

An input is kept for mutation in two cases: if the target ended in a new way, or if it took more time per byte
than for all earlier inputs. So the search moves towards slow inputs.
"""

import gc
import random
import time
import traceback
from collections.abc import Callable, Hashable
from typing import NamedTuple, TypeVar

import msgspec

from tests.fuzz.mutation import Mutator

T = TypeVar("T")
FAILURES_MAX = 5  # number of failures kept per target, each with its input
TURN_MAX = 0.1  # CPU seconds for which the event loop may be blocked


class Clock:
    """Measures how long the turns of the event loop are, in CPU seconds of this thread."""

    def __init__(self) -> None:
        self.worst = 0.0

    def turn(self, call: Callable[..., T], *arguments: object) -> T:
        """Call a function and count its CPU time as one turn of the event loop."""
        begun = time.thread_time()
        try:
            return call(*arguments)
        finally:
            self.worst = max(self.worst, time.thread_time() - begun)


class Target(NamedTuple):
    """A parser of foreign data.

    `take` receives the input, the clock and random numbers. It returns a value that names the way in which
    the parser ended. It raises an exception only if there is a bug.
    """

    name: str
    corpus: list[bytes]
    words: list[bytes]
    size_max: int
    take: Callable[[bytes, Clock, random.Random], Hashable]


class Failure(NamedTuple):
    """An input and the traceback that it caused."""

    data: bytes
    text: str


class Tally(msgspec.Struct):
    """The result of fuzzing one target.

    `worst` is the duration of the longest turn of the event loop, in CPU seconds. `slowest` is the input that
    was parsed in this turn.
    """

    target: str
    seed: int
    runs: int = 0
    ways: int = 0
    cpu_seconds: float = 0.0
    worst: float = 0.0
    slowest: bytes = b""
    failed: int = 0
    failures: list[Failure] = []


def fuzz(target: Target, seed: int, *, runs: int = 1 << 62, cpu_seconds: float = float("inf")) -> Tally:
    """Try the inputs of the corpus, then mutations of them, up to `runs` inputs or until the CPU time is used up."""
    rng = random.Random(f"{target.name} {seed}")
    mutator = Mutator(target.corpus, target.words, target.size_max, rng)
    tally = Tally(target.name, seed)
    ways: set[Hashable] = set()
    dearest = 0.0
    begun = time.thread_time()
    while tally.runs < runs and tally.cpu_seconds < cpu_seconds:
        corpus = tally.runs < len(target.corpus)
        data = target.corpus[tally.runs][: target.size_max] if corpus else mutator.next()
        clock = Clock()
        try:
            way = target.take(data, clock, rng)
        except Exception as error:
            tally.failed += 1
            way = (type(error), traceback.extract_tb(error.__traceback__)[-1].lineno)
            if way not in ways and len(tally.failures) < FAILURES_MAX:
                tally.failures.append(Failure(data, "".join(traceback.format_exception(error, limit=-6))))
        if clock.worst > TURN_MAX:
            clock.worst = _again(target, data, rng, clock.worst)
        tally.runs += 1
        tally.cpu_seconds = time.thread_time() - begun
        if clock.worst > tally.worst:
            tally.worst, tally.slowest = clock.worst, data
        dear = clock.worst / (len(data) + 1000)
        if way not in ways or dear > dearest:
            ways.add(way)
            dearest = max(dearest, dear)
            mutator.keep(data)
    tally.ways = len(ways)
    return tally


def _again(target: Target, data: bytes, rng: random.Random, worst: float) -> float:
    """Run an input, which took `worst` seconds, twice more; return the shortest of the three times.

    The reason is that other processes or garbage collection may have slowed down a run.
    """
    for _ in range(2):
        gc.collect()
        clock = Clock()
        try:
            target.take(data, clock, rng)
        except Exception:  # the failure has already been recorded
            pass
        worst = min(worst, clock.worst)
    return worst
