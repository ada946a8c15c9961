"""Vital signs of a process: memory, CPU, file descriptors, event-loop lag, durations of commits and flushes."""

import logging
import os
import resource
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import msgspec

# Bounds of the histograms, in seconds. A synced commit takes 0.2 ms on a fast disk and about 10 ms on a slow
# one. A flush takes longer, since it merges runs.
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
ERRORS_KEPT = 50
MINUTE = 60.0  # s
_ERROR_CHARS_MAX = 500
# the argument `extra` of the log message that a process died, so that this message can be recognized
DIED = {"died": True}


class Histogram:
    """Counts of durations by upper bound, like a Prometheus histogram but not cumulative."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.sum += seconds

    def plain(self) -> dict[str, Any]:
        """Return {"sum": seconds, "le": {bound: count}}, in a form that can be summed over processes."""
        names = [*map(str, BOUNDS), "+Inf"]
        return {"sum": self.sum, "le": dict(zip(names, self.counts, strict=True))}


def cumulative(plain: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """Yield (bound, number of observations up to it) from a result of `Histogram.plain`."""
    total = 0
    for bound, count in plain["le"].items():
        total += count
        yield bound, float(total)


def of_process() -> dict[str, Any]:
    """Return resident memory in bytes, CPU time in seconds, open file descriptors and their limit."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "pid": os.getpid(),
        "rss_bytes": _resident(),
        "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 3),
        "descriptors": _descriptors(),
        "descriptors_max": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
    }


def _resident() -> int:
    with suppress(OSError, ValueError, IndexError), open("/proc/self/statm", "rb") as file:
        return int(file.read().split()[1]) * resource.getpagesize()
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _descriptors() -> int:
    with suppress(OSError):
        return len(os.listdir("/proc/self/fd"))
    return 0


class LastMinute:
    """The growth of some counters in about the last minute. Call `sample` every few seconds."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, dict[str, int]]] = deque()

    def sample(self, counts: dict[str, int], now: float) -> None:
        """Record the counters' values; drop samples that are too old."""
        while len(self._looks) > 1 and self._looks[1][0] <= now - MINUTE:
            self._looks.popleft()
        self._looks.append((now, counts))

    def plain(self) -> dict[str, float]:
        """Return the growth of each counter, and the time span in seconds as `span`; {} before the second sample."""
        if len(self._looks) < 2:
            return {}
        (then, before), (now, counts) = self._looks[0], self._looks[-1]
        return {"span": now - then} | {name: n - before.get(name, 0) for name, n in counts.items()}


class Warnings(msgspec.Struct, frozen=True):
    """The latest warnings and errors of a process, oldest first, and the number of all of them by level."""

    messages: list[dict[str, Any]] = []
    counts: dict[str, int] = {}


class RecentErrors(logging.Handler):
    """The latest warnings and errors of the log, for the dashboard.

    Python shows warnings on standard error as long as no logger has a handler. `RecentErrors` shows nothing,
    but because it is a handler, Python would show no more warnings. So in a script that has not configured
    logging, it passes messages on to Python's last-resort handler. `noted` is called after each message, in
    the thread that logged it.
    """

    def __init__(self, noted: Callable[[], object] = lambda: None) -> None:
        super().__init__(logging.WARNING)
        self._noted = noted
        self._kept: deque[dict[str, Any]] = deque(maxlen=ERRORS_KEPT)
        self.counts = {"warning": 0, "error": 0}

    def emit(self, record: logging.LogRecord) -> None:
        level = "error" if record.levelno >= logging.ERROR else "warning"
        self.counts[level] += 1
        text = record.getMessage()[:_ERROR_CHARS_MAX]
        kept = {"at": record.created, "level": level, "message": text}
        self._kept.append(kept | DIED if hasattr(record, "died") else kept)
        self._noted()
        if self._is_only_handler() and logging.lastResort is not None:
            logging.lastResort.handle(record)

    def _is_only_handler(self) -> bool:
        """Return whether the log has no handlers except this one and the handlers of later crawls in this process."""
        handlers = [*logging.getLogger("crawler").handlers, *logging.getLogger().handlers]
        return handlers[:1] == [self] and all(isinstance(each, RecentErrors) for each in handlers)

    def plain(self) -> list[dict[str, Any]]:
        """Return the messages, oldest first."""
        return list(self._kept)

    def warnings(self) -> Warnings:
        """Return the messages and their numbers, for another process that shows them."""
        return Warnings(self.plain(), dict(self.counts))
