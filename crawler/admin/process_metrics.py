"""Vital signs of a process: memory, CPU, descriptors, lag of its loop, durations of its commits and flushes."""

import logging
import os
import resource
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

# Seconds: a synced commit takes 0.2 ms on a fast disk, some 10 ms on a slow one; flushes merge runs.
BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
ERRORS_KEPT = 50
MINUTE = 60.0  # s
_ERROR_CHARS_MAX = 500


class Histogram:
    """Counts of observed lengths of time by upper bound, as Prometheus has them but not cumulative."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count one length of time."""
        self.counts[bisect_left(BOUNDS, seconds)] += 1
        self.sum += seconds

    def plain(self) -> dict[str, Any]:
        """{"sum": seconds, "le": {bound: count}}: adds up over processes with the rest of the status."""
        names = [*map(str, BOUNDS), "+Inf"]
        return {"sum": self.sum, "le": dict(zip(names, self.counts, strict=True))}


def cumulative(plain: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """(bound, observations up to it) of what `plain` gave."""
    total = 0
    for bound, count in plain["le"].items():
        total += count
        yield bound, float(total)


def of_process() -> dict[str, Any]:
    """Resident memory in bytes, CPU in seconds, open descriptors and their limit."""
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
    """How much some counters have grown in about the last minute; `sample` them every few seconds."""

    def __init__(self) -> None:
        self._looks: deque[tuple[float, dict[str, int]]] = deque()

    def sample(self, counts: dict[str, int], now: float) -> None:
        """Note the counters as they are; looks that are not needed any more are dropped."""
        while len(self._looks) > 1 and self._looks[1][0] <= now - MINUTE:
            self._looks.popleft()
        self._looks.append((now, counts))

    def plain(self) -> dict[str, float]:
        """Growth by name, and `span`, the seconds in which it took place; {} before there are two looks."""
        if len(self._looks) < 2:
            return {}
        (then, before), (now, counts) = self._looks[0], self._looks[-1]
        return {"span": now - then} | {name: n - before.get(name, 0) for name, n in counts.items()}


class RecentErrors(logging.Handler):
    """The latest warnings and errors of the log, for the dashboard.

    Python itself shows warnings on standard error as long as nobody has given a logger a handler. This one
    is no screen: in a script that has set up no log, it hands them on to where they would have gone.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._kept: deque[dict[str, Any]] = deque(maxlen=ERRORS_KEPT)
        self.counts = {"warning": 0, "error": 0}

    def emit(self, record: logging.LogRecord) -> None:
        level = "error" if record.levelno >= logging.ERROR else "warning"
        self.counts[level] += 1
        text = record.getMessage()[:_ERROR_CHARS_MAX]
        self._kept.append({"at": record.created, "level": level, "message": text})
        if self._is_only_handler() and logging.lastResort is not None:
            logging.lastResort.handle(record)

    def _is_only_handler(self) -> bool:
        """Whether no log is set up; of several crawls in a process, the first one's handler answers for all."""
        handlers = [*logging.getLogger("crawler").handlers, *logging.getLogger().handlers]
        return handlers[:1] == [self] and all(isinstance(each, RecentErrors) for each in handlers)

    def plain(self) -> list[dict[str, Any]]:
        """The messages, oldest first."""
        return list(self._kept)
