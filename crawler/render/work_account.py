"""Accounts for the CPU time of each page of a browser, with its frames, workers and compositor.

The operating system counts CPU time by process, not by page. A page gets its renderer before the next page is
opened. So a renderer that appears between the opening of two pages belongs to the page that was opened first.
A renderer may appear later, for a frame of another site or a shared worker. The CPU time of a renderer that
appears later counts for every page that is open at that time. The CPU time of the browser's other processes,
for example the compositor, is divided among the open pages.
"""

from collections.abc import Iterable
from typing import NamedTuple

RENDERER = "renderer"


class ProcessTime(NamedTuple):
    """A process of the browser, and the CPU time in seconds that it has used so far."""

    pid: int
    kind: str
    seconds: float


class WorkAccount:
    """The CPU time of the open pages of one browser."""

    def __init__(self) -> None:
        self._pages: dict[str, float] = {}  # open page -> the CPU seconds that it has used
        self._times: dict[int, float] = {}  # CPU seconds of each process at the last measurement
        self._owners: dict[int, frozenset[str]] = {}  # renderer -> the pages that its CPU time counts for

    def opened(self, page: str, processes: Iterable[ProcessTime]) -> None:
        """Record that a page was opened. Renderers that have appeared since the last call belong to this page."""
        self._pages[page] = 0.0
        processes = list(processes)
        for process in processes:
            if process.kind == RENDERER and process.pid not in self._owners:
                self._owners[process.pid] = frozenset((page,))
        self.look(processes)

    def closed(self, page: str) -> None:
        """Forget a page."""
        self._pages.pop(page, None)

    def look(self, processes: Iterable[ProcessTime]) -> None:
        """Charge to the pages the CPU time that the processes have used since the last call."""
        times: dict[int, float] = {}
        everyone = frozenset(self._pages)
        for pid, kind, seconds in processes:
            times[pid] = seconds
            used = max(0.0, seconds - self._times.get(pid, 0.0))
            if kind == RENDERER:
                for page in self._owners.setdefault(pid, everyone) & everyone:
                    self._pages[page] += used
            elif pid in self._times:
                for page in everyone:
                    self._pages[page] += used / len(everyone)
        self._times = times
        self._owners = {pid: owners for pid, owners in self._owners.items() if pid in times}

    def renderers(self) -> list[int]:
        """Return the process ids of the renderers that ran at the last measurement."""
        return list(self._owners)

    def seconds(self, page: str) -> float:
        """Return the CPU time of a page, in seconds, at the last measurement."""
        return self._pages.get(page, 0.0)
