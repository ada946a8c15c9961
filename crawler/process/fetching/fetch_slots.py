"""The places of a process: a fetch task that runs holds one of `crawl.concurrency`.

A page holds its place until it is committed and the user's page sink has taken it.
"""

from collections.abc import Callable

from crawler.due.eliminator import Eliminator
from crawler.frontier.frontier import Frontier
from crawler.process.fetching.fetch_tasks import FetchTasks
from crawler.process.lifecycle.background_tasks import Fail, Tasks

STARTS_MAX = 16  # fetch tasks begun in one turn of the loop: some 5 ms with their first steps
START_TURN = 0.008  # seconds of them: where rules of robots.txt are many, a verdict takes some


class FetchSlots:
    """Starts the fetch tasks that the frontier gives out; `time` says how long that takes.

    `room` says how many of some free places may begin a fetch now, by the
    limits of the crawl; `ended` is called whenever a fetch task has ended.
    """

    def __init__(
        self,
        concurrency: int,
        *,
        frontier: Frontier,
        due: Eliminator,
        fetch_tasks: FetchTasks,
        room: Callable[[int], int],
        ended: Callable[[], None],
        fail: Fail,
        time: Callable[[], float],
    ) -> None:
        self._time = time
        self.concurrency = concurrency
        self._frontier = frontier
        self._due = due
        self._fetch_tasks = fetch_tasks
        self._room = room
        self.tasks = Tasks(fail, ended)
        self.limited = False  # when fetch tasks were started last, a limit left places empty

    def __len__(self) -> int:
        """Tasks under way."""
        return len(self.tasks)

    @property
    def fetching(self) -> int:
        """Tasks under way, those left out that only wait for their commit."""
        return len(self.tasks) - self._fetch_tasks.awaiting_commit

    @property
    def free(self) -> int:
        """Slots that nobody holds."""
        return self.concurrency - self._frontier.requests - self._fetch_tasks.in_sink

    def room(self) -> int:
        """How many requests may begin now; not positive: none. A full DUE closes all places."""
        return 0 if self._due.full else self._room(self.free)

    def start(self, now: float) -> bool:
        """Start what may start now, but no more than one turn of the loop should; whether there may be more."""
        room = self.room()
        self.limited = room < self.free
        self._frontier.limit_requests(self._frontier.requests + room)
        until = self._time() + START_TURN
        for _ in range(STARTS_MAX):
            if (fetch_task := self._frontier.claim_next(now)) is None:
                return False
            self.tasks.start(self._fetch_tasks.run(fetch_task))
            if self._time() >= until:
                break
        return True
