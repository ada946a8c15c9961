"""The fetch slots of a process: each running fetch task holds one of `crawl.concurrency` slots.

A page holds its slot until it is committed and the user's page sink has processed it.
"""

from collections.abc import Callable

from crawler.due.eliminator import Eliminator
from crawler.frontier.frontier import Frontier
from crawler.process.fetching.fetch_tasks import FetchTasks
from crawler.process.lifecycle.background_tasks import Fail, Tasks
from crawler.process.lifecycle.limits import STOP_GRACE
from crawler.process.lifecycle.run_end import RunEnd
from crawler.turn_share import UserTurns

# maximum number of fetch tasks started per turn of the event loop; their first steps take about 5 ms
STARTS_MAX = 16
# seconds per turn for starting tasks; checking a URL takes long if the robots.txt has many rules
START_TURN = 0.008
USER_GRACE = 1.0  # number of seconds after a stop in which calls of user code still begin


class FetchSlots:
    """Starts the fetch tasks that the frontier hands out. `time` is the clock that limits the length of a turn.

    `room(n)` returns the number of fetches that the limits of the crawl allow to start now in n free slots.
    `ended` is called whenever a fetch task has ended.
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
        self.limited = False  # whether a limit kept slots empty when tasks were last started

    def __len__(self) -> int:
        return len(self.tasks)

    @property
    def fetching(self) -> int:
        """The number of running tasks, not including tasks that only wait for their commit."""
        return len(self.tasks) - self._fetch_tasks.awaiting_commit

    @property
    def free(self) -> int:
        return self.concurrency - self._frontier.requests - self._fetch_tasks.in_sink

    def room(self) -> int:
        """Return the number of requests that may start now; 0 or less means none. A full DUE blocks all slots."""
        return 0 if self._due.full else self._room(self.free)

    def start(self, now: float) -> bool:
        """Start the tasks that fit into one turn of the event loop. Return whether more tasks may be ready to start."""
        room = self.room()
        self.limited = room < self.free
        run_is_full = self.limited and room <= 0 and not self._due.full
        self._frontier.limit_requests(self._frontier.requests + room, run_is_full=run_is_full)
        until = self._time() + START_TURN
        for _ in range(STARTS_MAX):
            if (fetch_task := self._frontier.claim_next(now)) is None:
                return False
            self.tasks.start(self._fetch_tasks.run(fetch_task))
            if self._time() >= until:
                break
        return True

    async def end(self, run_end: RunEnd, user_turns: UserTurns) -> None:
        """Wait for the tasks until the grace period ends; start no calls of user code after `USER_GRACE` seconds.

        A longer grace period, which `Crawl.stop` may set, is also valid for user code. Cancel the other tasks.
        """
        if run_end.grace <= STOP_GRACE:
            await self.tasks.wait(min(USER_GRACE, run_end.grace))
            user_turns.end()
        await self.tasks.wait(max(0.0, run_end.time_left()))
        self.tasks.cancel()
