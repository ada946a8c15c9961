"""The curves of the dashboard: series of numbers at regular intervals over the last day, in arrays.

A rate is the difference of a counter between two samples of the status, divided by the time between them.
Each point of a curve needs 4 bytes. If an array is full, its oldest point is dropped. At first, the points
are `FIRST_INTERVAL` apart, so that the curves soon have several points. Whenever there are `FINE_POINTS`
points, every second point is dropped and the interval between points doubles, until it reaches the configured
interval.
"""

from array import array
from collections.abc import Mapping, Sequence
from typing import Any

RATES = {  # series -> path of the counter whose growth the series shows
    "pages": ("pages", "fetched"),
    "again": ("refresh", "done"),
    "bytes": ("bytes", "wire"),
    "links": ("urls", "links"),
    "new": ("due", "new"),
    "failed": ("urls", "failed"),
    "requests": ("serve", "requests"),
}
LEVELS = {  # series -> path of the number that the series shows
    "todo": ("frontier", "todo"),
    "in_flight": ("frontier", "in_flight"),
    "hosts": ("frontier", "hosts"),
    "failing": ("frontier", "hosts_failing"),
    "fresh": ("refreshing", "expected_freshness"),
    "found": ("refreshing", "news", "per_day"),
}
SERIES = (*RATES, *LEVELS)
FIRST_INTERVAL = 1.0  # seconds
FINE_POINTS = 600


def number_at(status: Mapping[str, Any], path: Sequence[str]) -> float:
    """Return a number of the status tree, or 0 if it is missing."""
    node: Any = status
    for name in path:
        node = node.get(name, 0) if isinstance(node, Mapping) else 0
    return float(node) if isinstance(node, int | float) else 0.0


class RateSampler:
    """Computes rates between successive samples of the status.

    The growth of the counters is computed for each process and then summed. So when a process answers again
    after a pause, the work that it did during the pause does not appear as a peak. The curves begin when all
    processes have answered twice.
    """

    def __init__(self) -> None:
        self._before: dict[str, dict[str, float]] = {}  # process -> its counters when it last answered
        self._then = 0.0

    def sample(
        self, parts: Sequence[Mapping[str, Any]], status: Mapping[str, Any], now: float
    ) -> dict[str, float]:
        """Return the point for this instant; {} if rates are missing because a process has answered for the first time.

        Rates are never negative. `parts` are the statuses of the processes, and `status` is their sum. A part
        whose `now` is 0 is not an answer, but repeats the last figures of a process that does not run.
        """
        elapsed = now - self._then
        point = dict.fromkeys(RATES, 0.0)
        known = all(part["name"] in self._before for part in parts)
        for part in (part for part in parts if part["now"]):
            counters = {name: number_at(part, path) for name, path in RATES.items()}
            before = self._before.get(part["name"], counters)
            self._before[part["name"]] = counters
            if elapsed > 0.0:
                for name, value in counters.items():
                    point[name] += max(0.0, (value - before[name]) / elapsed)
        self._then = now
        return point | {name: number_at(status, path) for name, path in LEVELS.items()} if known else {}


class History:
    """The points of the last `length` seconds. In a long crawl, they are `interval` seconds apart."""

    def __init__(self, length: float, interval: float) -> None:
        self._longest = interval
        self.interval = min(interval, FIRST_INTERVAL)
        self.points_max = max(2, int(length / interval))
        self._times = array("d")
        self._values = {name: array("f") for name in SERIES}

    def __len__(self) -> int:
        return len(self._times)

    def add(self, point: Mapping[str, float], now: float) -> bool:
        """Store a point unless the latest one is younger than the interval; return whether it was stored."""
        if self._times and now - self._times[-1] < self.interval * 0.99:
            return False
        if self.interval < self._longest and len(self._times) >= min(FINE_POINTS, self.points_max):
            self._thin()
        if len(self._times) >= self.points_max:
            del self._times[: self.points_max // 8 + 1]
            for values in self._values.values():
                del values[: self.points_max // 8 + 1]
        self._times.append(now)
        for name, values in self._values.items():
            values.append(point.get(name, 0.0))
        return True

    def _thin(self) -> None:
        """Double the interval, and drop every second point."""
        self.interval = min(2.0 * self.interval, self._longest)
        self._times = self._times[::2]
        self._values = {name: values[::2] for name, values in self._values.items()}

    def plain(self, points_max: int = 720) -> dict[str, Any]:
        """Return {"times": [...], series: [...]}, thinned evenly to about `points_max` points."""
        step = max(1, -(-len(self._times) // points_max))
        columns = {
            name: [round(value, 3) for value in values[::step]] for name, values in self._values.items()
        }
        return {"times": [round(instant, 1) for instant in self._times[::step]], **columns}
