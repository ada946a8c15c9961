"""The vital signs of a running process: lag of the event loop, times of commits, growth of counters, and warnings."""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from crawler.admin import process_metrics
from crawler.admin.health import MemberStatus, recent_requests
from crawler.admin.status import fetches
from crawler.process.answering.wait_log import HOSTS_MAX, WaitLog

if TYPE_CHECKING:
    from crawler.process.opening.stages import Stages
    from crawler.process.process import Process

log = logging.getLogger("crawler")

LAG_INTERVAL = 0.25  # number of seconds between two measurements of the event loop's lag
_GROWTH_LOOKS = 20  # number of lag measurements between two samples of the counters


class VitalSigns:
    """Measures a process while it runs. `errors` collects its warnings.

    `parents` are the warnings of the supervisor, such as the death of a process, if this process shows them
    (`supervision/child.py`).
    """

    def __init__(self, process: "Process", stages: "Stages") -> None:
        self._process, self._name = process, stages.name
        self._frontier, self._due, self._counters = stages.frontier, stages.due, stages.point.counters
        self._now: Callable[[], float] = stages.clock.now
        self._lag = 0.0
        self._waits = WaitLog()
        self._recent = process_metrics.LastMinute()
        self.errors = process_metrics.RecentErrors()
        self.parents = process_metrics.Warnings()
        self.timings = {"commit": process_metrics.Histogram(), "flush": process_metrics.Histogram()}

    def start(self) -> None:
        """Start to collect warnings, and the durations of commits and flushes."""
        logging.getLogger("crawler").addHandler(self.errors)
        self._process.commits.observe = lambda name, seconds: self.timings[name].observe(seconds)

    def close(self) -> None:
        """Stop collecting warnings."""
        logging.getLogger("crawler").removeHandler(self.errors)

    def sections(self) -> dict[str, Any]:
        """Return the sections of a status that only a running process has."""
        process = process_metrics.of_process() | {
            "name": self._name,
            "started": self._process.started,
            "loop_lag": round(self._lag, 4),
        }
        return {
            "members": [MemberStatus(process["name"], "running", self._now(), process["pid"])],
            "processes": [process],
            "run": {
                "fetched": self._grown("pages.fetched"),
                "again": self._grown("refresh.done"),
                "arriving_bytes": self._process.fetch_tasks.files.arriving_bytes,
            },
            "recent": self._recent.plain(),
            "slowest": self._frontier.views.slowest(self._now()),
            "pages_left": self._process.exchange.coordination.pages_left(self._now()),
            "timings": {name: histogram.plain() for name, histogram in self.timings.items()},
            "waited": self._frontier.views.why_slow(self._now()),
            "paused": list(self._frontier.pauses.reasons),
            "errors": [*self.errors.plain(), *self.parents.messages],
            "log": {level: n + self.parents.counts.get(level, 0) for level, n in self.errors.counts.items()},
        }

    def _grown(self, counter: str) -> int:
        return self._counters[counter] - self._process.exchange.before[counter]

    def _growing(self) -> dict[str, int]:
        """Return the counters that show the progress of the crawl by their growth."""
        return {
            "done": self._counters["urls.done"],
            "fetches": fetches(self._counters),
            "hosts": self._frontier.views.hosts_reached,
            "new": self._due.new
            - self._counters["urls.new_seeds"],  # seeds come from the user and not from pages
            "known": self._due.known,
        } | recent_requests(self._counters)

    async def watch(self) -> None:
        """Until cancelled, measure the lag of the event loop. Keep the largest recent lag, which decays with time."""
        loop, looks = asyncio.get_running_loop(), 0
        while True:
            if looks % _GROWTH_LOOKS == 0:
                self._recent.sample(self._growing(), self._now())
            due = loop.time() + LAG_INTERVAL
            await asyncio.sleep(LAG_INTERVAL)
            self._lag = max(loop.time() - due, self._lag * 0.75)
            looks += 1
            if looks % 4 == 0 and log.isEnabledFor(logging.DEBUG):
                for line in self._waits.new_lines(self._frontier.views.hosts(self._now(), HOSTS_MAX)):
                    log.debug("%s", line.text, extra={"fields": line.fields})
