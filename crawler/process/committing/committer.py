"""Chooses the next step of the commit loop from the state of the loop alone, without waiting or reading a clock.

    WAIT      nothing is queued, and the DUE needs no flush
    GATHER    let more results arrive: committing thirty pages costs about as much as committing one
    DECIDE    make the queued changes, so that their hosts may be fetched from again
    FLUSH     let the DUE find the new ones among its pending links; the resulting
              change goes to the end of the queue
    COMMIT    write the next group

The loop asks for the next step, carries it out, and asks again. No step starves another,
however fast results arrive:

* GATHER lasts at most `store.commit_delay`. It ends at once if the group is large, if the crawl stops, while
  seeds are being read, and while the DUE is full.
* A requested flush begins before the gathered group is written. The next flush is not requested until the
  change of this flush is committed. So groups and flushes (or the parts of a large flush) take turns.
* A frontier without a URL to fetch now is dry. Flushes that are made only because the frontier is dry may
  take at most a tenth of the time, so such a flush may have to wait. It does not wait if nothing is in
  flight. While all hosts wait for their gaps, the frontier is dry between any two results, and a flush seldom
  helps.
* Each group holds at most `store.group_entries_max` changes, in the order in which they were queued.
"""

from enum import Enum

import msgspec

from crawler.config import StoreConfig

SIBLINGS = 1  # while more fetches than this are in flight, decisions wait for more results
# Flushes that are made because the frontier has nothing to fetch may take at most this fraction of the time.
FLUSH_SHARE = 0.1
DECISION_DELAY = 0.05  # number of seconds after which results are decided even if other fetches are in flight


class Step(Enum):
    """The next action of the commit loop; see the list in the module docstring."""

    WAIT = "wait"
    GATHER = "gather"
    DECIDE = "decide"
    FLUSH = "flush"
    COMMIT = "commit"


class CommitterState(msgspec.Struct, frozen=True, gc=False):
    """The state of the loop: the numbers of queued changes, of changes that are not built yet, and of running fetches.

    `flush` is true if the DUE needs a flush. `hurry` is true if a group must not wait for more results.
    """

    queued: int = 0
    undecided: int = 0
    fetching: int = 0
    flush: bool = False
    hurry: bool = False


class Committer:
    """Chooses the steps of a commit loop.

    Args:
        config: sets how long a group may gather and how large it may grow.
        concurrency: the maximal number of fetches in flight; half as many changes make a large group.
    """

    def __init__(self, config: StoreConfig, concurrency: int) -> None:
        self._delay = config.commit_delay
        self._large = min(config.group_entries_max, concurrency // 2)
        # the instant until which a group waits for more results; None if no group waits
        self._gather_until: float | None = None
        self._decide_at = 0.0
        # If the frontier has nothing to fetch while fetches are in flight, the next flush begins at this time
        # or later.
        self.early_flush_at = 0.0

    def __repr__(self) -> str:
        return f"Committer(gathers until {self._gather_until})"

    def next_step(self, state: CommitterState, now: float) -> Step:
        """Return the step that the loop must carry out now."""
        if not state.queued:
            self._gather_until = None
            return Step.FLUSH if state.flush else Step.WAIT
        if not state.hurry and state.queued < self._large and (step := self._gather(state, now)):
            return step
        if state.flush:
            return Step.FLUSH
        self._gather_until = None
        return Step.COMMIT

    def _gather(self, state: CommitterState, now: float) -> Step | None:
        """Return the step that waits for more changes of the group; None if the group is complete."""
        if self._gather_until is None:
            self._gather_until = now + self._delay
            self._decide_at = now + min(self._delay, DECISION_DELAY)
        complete = now >= self._gather_until
        if state.undecided and (complete or now >= self._decide_at or state.fetching <= SIBLINGS):
            self._decide_at = now + DECISION_DELAY
            return Step.DECIDE
        return None if complete or not state.fetching else Step.GATHER

    def flushed(self, began: float, now: float) -> None:
        """Record that a flush, or a part of a flush, ran from `began` to `now`."""
        self.early_flush_at = now + (now - began) * (1.0 / FLUSH_SHARE - 1.0)

    def pause(self, now: float) -> float:
        """Return the number of seconds after which a GATHER ends even if fetches are still in flight."""
        assert self._gather_until is not None, self
        decide_at = self._decide_at if self._decide_at > now else now + DECISION_DELAY
        return max(0.0, min(self._gather_until, decide_at) - now)
