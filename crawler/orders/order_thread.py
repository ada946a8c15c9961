"""Calls the order of a package in a thread of its own, so that a slow `score` blocks neither the event loop nor a stop.

    begin(links, page) ─► Scoring ─► the caller waits until `ended` is done, or until `left()` is 0 ─► end(scoring)

A decision on links waits at most `order.wait_max` seconds for their scores. Of all time, at most the share
`order.wait_share` is spent on such waits: each wait uses up an allowance of `order.wait_max` seconds, which
grows back by `wait_share` seconds per second. After the run was stopped, all waits together take at most
`STOP_WAIT` seconds. Links that are not scored in time have no score; they are counted as `urls.unscored`.

A call of `score` cannot be interrupted. While the thread is in a call for which no caller waits any more,
links get no scores at once. If the call never returns, the process ends without its thread.
"""

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from threading import Thread

from crawler.orders.order import FoundLink, FoundOn, Ranking
from crawler.printable import printable
from crawler.wording import several

log = logging.getLogger("crawler")

STOP_WAIT = 1.0  # number of seconds for which all decisions together may wait for scores after a stop
_TOLD_INTERVAL = 60.0  # number of seconds between two log lines about missing scores
TimeLeft = Callable[[float], float]


def unlimited(_limit: float) -> float:
    """Return the time left before a run that nothing stops ends."""
    return float("inf")


class Scoring:
    """The links of a page that the thread scores. `scores` are the scores so far, in the order of the links."""

    def __init__(
        self, links: Sequence[FoundLink], page: FoundOn, until: float, now: Callable[[], float]
    ) -> None:
        self.links, self.page = links, page
        self.scores: list[float] = []
        self.ended: Future[None] = Future()
        self.given_up = False
        self.began = now()
        self._until, self._now = until, now

    def left(self) -> float:
        """Return the number of seconds that the caller still waits; 0 if all links are scored."""
        return 0.0 if self.ended.done() else self._until - self._now()

    def run(self, order: Ranking) -> None:
        """Score the links, until the caller gives up."""
        try:
            for link in self.links:
                if self.given_up:
                    break
                self.scores.append(order.score(link, self.page))
        finally:
            self.ended.set_result(None)


class OrderThread:
    """The thread that calls `order`, named `name` in the log. One caller at a time waits for scores.

    `now` is a monotonic clock. `time_left(limit)` returns the seconds until `limit` seconds have passed since
    the run was stopped; infinity if it goes on.
    """

    def __init__(
        self, order: Ranking, name: str, wait_max: float, wait_share: float, now: Callable[[], float]
    ) -> None:
        self._order, self._name, self._now = order, name, now
        self._wait_max, self._share = wait_max, wait_share
        self._allowance, self._at = wait_max, now()
        self.time_left: TimeLeft = unlimited
        self._work: SimpleQueue[Scoring | None] = SimpleQueue()
        self._latest: Scoring | None = None
        self._thread: Thread | None = None
        self._unscored = 0  # number of links without a score since the last log line
        self._told_at = -_TOLD_INTERVAL

    def begin(self, links: Sequence[FoundLink], page: FoundOn) -> Scoring:
        """Let the thread score the links of a page. Pass the result to `end` when its time is over."""
        wait = min(self._grown(), self.time_left(STOP_WAIT))
        scoring = Scoring(links, page, self._now() + wait, self._now)
        if wait <= 0.0 or not links or (self._latest is not None and not self._latest.ended.done()):
            scoring.ended.set_result(None)
            return scoring
        if self._thread is None:
            self._thread = Thread(target=self._run, name="order", daemon=True)
            self._thread.start()
        self._latest = scoring
        self._work.put(scoring)
        return scoring

    def end(self, scoring: Scoring) -> list[float]:
        """Return the scores of the first links, as many as the thread has scored; it scores no more of them."""
        scoring.given_up = True
        scores = list(scoring.scores)
        took = self._now() - scoring.began
        self._allowance = self._grown() - took
        if missing := len(scoring.links) - len(scores):
            self._unscored += missing
            self._tell(scoring, len(scores), took)
        return scores

    def close(self) -> None:
        """Let the thread end after its present call. Do not wait for it."""
        if self._latest is not None:
            self._latest.given_up = True
        if self._thread is not None:
            self._work.put(None)

    def _grown(self) -> float:
        """Return the allowance, which has grown since the last call."""
        now = self._now()
        self._allowance = min(self._wait_max, self._allowance + self._share * (now - self._at))
        self._at = now
        return self._allowance

    def _tell(self, scoring: Scoring, scored: int, took: float) -> None:
        if self._now() < self._told_at + _TOLD_INTERVAL:
            return
        self._told_at = self._now()
        log.warning(
            "order %s took %.1f s for %d of %s of %s; links are not scored if they would have to wait longer "
            "(order.wait_max, order.wait_share): %s so far, counted in urls.unscored",
            self._name,
            took,
            scored,
            several(len(scoring.links), "link"),
            printable(scoring.page.url or "the seeds"),
            several(self._unscored, "link"),
        )

    def _run(self) -> None:
        while (scoring := self._work.get()) is not None:
            scoring.run(self._order)
