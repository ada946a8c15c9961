"""The next step of the commit loop: a decision of its state, without a wait or a clock.

    WAIT      nothing is queued, and the DUE does not want to flush
    GATHER    let more results come: thirty pages cost about the commit of one
    DECIDE    make the changes that are queued, so that their hosts may be asked again
    FLUSH     let the DUE find the new ones among its pending links; what it
              finds joins the queue behind what is there
    COMMIT    write the next group

The loop asks, does, and asks again. No step can keep another from its turn,
however fast results come:

* A gathering lasts at most `store.commit_delay`. It ends at once when the group is
  large, when the crawl stops, while seeds are read, and while the DUE is full.
* A wanted flush begins before the gathered group is written. The next one is not
  wanted before its change was committed, so groups and flushes (or the parts of a
  large one) take turns.
* A flush that only a dry frontier wants waits until flushes take at most a tenth of
  the time, unless nothing is in flight. While all hosts wait their gaps the frontier
  is dry between any two results, and a flush seldom helps.
* Each group holds `store.group_entries_max` changes at most, in the order in
  which they were queued.
"""

from enum import Enum

import msgspec

from crawler.config import StoreConfig

SIBLINGS = 1  # fetches in flight above which decisions wait for more results
FLUSH_SHARE = 0.1  # of the time that goes into flushes for a dry frontier, at most
DECISION_DELAY = 0.05  # seconds after which results are decided upon whatever else is in flight


class Step(Enum):
    """What the commit loop does next; see the module's list."""

    WAIT = "wait"
    GATHER = "gather"
    DECIDE = "decide"
    FLUSH = "flush"
    COMMIT = "commit"


class CommitterState(msgspec.Struct, frozen=True, gc=False):
    """What the loop sees: changes in the queue, those of them not made, fetches under way.

    `flush`: the DUE wants to flush. `hurry`: a group must not wait for more.
    """

    queued: int = 0
    undecided: int = 0
    fetching: int = 0
    flush: bool = False
    hurry: bool = False


class Committer:
    """Decides upon the steps of a commit loop.

    Args:
        config: how long and how large a group may gather.
        concurrency: fetches in flight at most; half of them make a large group.
    """

    def __init__(self, config: StoreConfig, concurrency: int) -> None:
        self._delay = config.commit_delay
        self._large = min(config.group_entries_max, concurrency // 2)
        self._gather_until: float | None = None  # None: no group is gathering
        self._decide_at = 0.0
        self.early_flush_at = 0.0  # from then on a dry frontier may have a flush while fetches are in flight

    def __repr__(self) -> str:
        return f"Committer(gathers until {self._gather_until})"

    def next_step(self, state: CommitterState, now: float) -> Step:
        """The step to take now; the loop must take it."""
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
        """How the group grows; None once it is complete."""
        if self._gather_until is None:
            self._gather_until = now + self._delay
            self._decide_at = now + min(self._delay, DECISION_DELAY)
        complete = now >= self._gather_until
        if state.undecided and (complete or now >= self._decide_at or state.fetching <= SIBLINGS):
            self._decide_at = now + DECISION_DELAY
            return Step.DECIDE
        return None if complete or not state.fetching else Step.GATHER

    def flushed(self, began: float, now: float) -> None:
        """A flush, or a part of one, has run."""
        self.early_flush_at = now + (now - began) * (1.0 / FLUSH_SHARE - 1.0)

    def pause(self, now: float) -> float:
        """Seconds that a GATHER may last, unless few fetches are left in flight before."""
        assert self._gather_until is not None, self
        decide_at = self._decide_at if self._decide_at > now else now + DECISION_DELAY
        return max(0.0, min(self._gather_until, decide_at) - now)
