"""Plans for a flush and for a compaction; any thread may run a plan.

The event loop makes a plan. The plan holds everything that it needs: runs (which never change) and a
committed stretch of the links log. Running the plan writes a file that the store does not name yet. So a plan
that is dropped or lost in a crash has no effect.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from crawler.due.known_set import KnownSet, unknown
from crawler.due.links_log import BLOCK_LINKS_MAX, LinksLog
from crawler.due.pending_links import Piece
from crawler.due.runs import Reached, Run
from crawler.errors import DamageError
from crawler.records import Link
from crawler.wording import several


class Flushed(msgspec.Struct, frozen=True, array_like=True):
    """Value of `d/flushed`: the flushed position of the links log, and the numbers of known and new links before it."""

    position: int = 0
    known: int = 0
    new: int = 0


class FlushPlan:
    """Finds the new URLs among the waiting links, and writes runs of their fingerprints, part by part.

    Before the first part, all links of the flush are compared with the runs in one pass (a join). The new
    links are returned in parts of about `part_links_max` links, and each part is committed like a flush of
    its own. So the memory for a flush, and the time for which it blocks the event loop, do not grow with the
    number of links. A part ends at a block boundary of the log.

    After each `run`:
        new_links: the first link of each new URL, in the order of submission.
        new_run: the run of their fingerprints; None if there are none.
        after: the flushed position of the log once this part is committed.
    """

    def __init__(
        self,
        pieces: Sequence[Piece],
        before: Flushed,
        known: KnownSet,
        log: LinksLog,
        *,
        part_links_max: int,
        fault: Reached,
    ) -> None:
        self.waiting = Piece(np.concatenate([piece.fingerprints for piece in pieces]), pieces[-1].position)
        self.new_links: list[Link] = []
        self.new_run: Run | None = None
        self.after = self._before = before
        self.resting = False  # True between two parts of the flush
        self._places: np.ndarray | None = None  # ascending indices of the new links in `waiting`
        self._known, self._log, self._fault = known, log, fault
        self._runs = list(known.runs)
        self._part_links_max = part_links_max

    @property
    def count(self) -> int:
        """Return the number of links in the parts that are not durable yet."""
        return len(self.waiting)

    def run(self) -> None:
        """Prepare the next part: read its new links and write their run.

        Before that, the first call joins all links with the runs. Each call also closes the runs that earlier
        plans replaced.

        Raises:
            StoreError: the run cannot be written. Call `flush_failed`; the links wait again.
            DamageError: the links log is damaged.
        """
        if self._places is None:
            _, self._places = unknown(self.waiting.fingerprints, self._runs)
            while self._runs:
                self._runs.pop().rest()
            self._fault("flush joined")
        begin, end = self._before.position, self.waiting.position
        places = self._places[: self._part_links_max + BLOCK_LINKS_MAX].tolist()
        self.new_links, passed, position = self._log.read(begin, end, places, self._part_links_max)
        if passed > self.count or (position == end and passed != self.count):
            raise DamageError(
                f"due: the links log holds {several(passed, 'link')}, but {self.count} were appended"
            )
        new = len(self.new_links)
        self.new_run = self._write_run() if new else None
        self.after = Flushed(position, self._before.known + passed - new, self._before.new + new)
        self._known.close_replaced()
        self._log.drop_before(begin)

    def _write_run(self) -> Run:
        keys = np.sort(np.array([link.fingerprint for link in self.new_links], np.uint64))
        return self._known.store.write([keys], len(keys), step="flush")

    def part_flushed(self) -> bool:
        """Record that the current part is durable, and move on to the next part.

        Returns False if there is no further part.
        """
        assert self._places is not None, "a part of a flush ended that has not run"
        new = len(self.new_links)
        passed = self.after.known - self._before.known + new
        self._places = self._places[new:] - passed
        self.waiting = Piece(self.waiting.fingerprints[passed:], self.waiting.position)
        self._before = self.after
        self.resting = self.count > 0
        return self.resting


class CompactionPlan:
    """Merges neighbouring runs into one; `run` sets `outcome`."""

    def __init__(self, inputs: Sequence[Run], known: KnownSet) -> None:
        self.inputs = inputs
        self.outcome: Run | None = None
        self._known = known

    def run(self) -> None:
        """Write the merged run. Merging takes about a second for 1e8 fingerprints.

        Raises:
            StoreError: the run cannot be written. Call `Compactor.failed`; the inputs stay.
            DamageError: two inputs hold the same fingerprint.
        """
        self.outcome = self._known.merge(self.inputs)
