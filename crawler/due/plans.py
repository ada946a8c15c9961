"""A flush and a compaction, as plans that any thread may run.

A plan is made by the loop and holds all it needs: runs, which never change, and
a stretch of the links log that is committed. Running it writes a file that
nothing names yet, so a plan that is dropped, or lost in a crash, has done nothing.
"""

from collections.abc import Sequence

import msgspec
import numpy as np

from crawler.due.known_set import KnownSet, unknown
from crawler.due.links_log import LinksLog
from crawler.due.runs import Fault, Run
from crawler.due.waiting import Piece
from crawler.errors import DamageError
from crawler.records import Link


class Flushed(msgspec.Struct, frozen=True, array_like=True):
    """Value of `d/flushed`: how far the links log is consumed, and what became of those links."""

    position: int = 0
    known: int = 0
    new: int = 0


class FlushPlan:
    """Find the links of new URLs among those that wait, and write the run of their fingerprints.

    After `run`:
        new_links: each new URL's first link, in the order of submission.
        new_run: the run of their fingerprints; None if there are none.
        after: how far the log is consumed then.
    """

    def __init__(
        self, pieces: Sequence[Piece], before: Flushed, known: KnownSet, log: LinksLog, fault: Fault
    ) -> None:
        self.pieces = pieces
        self.count = sum(map(len, pieces))
        self.new_links: list[Link] = []
        self.new_run: Run | None = None
        self.after = before
        self._before = before
        self._known = known
        self._runs = list(known.runs)
        self._log = log
        self._fault = fault

    def run(self) -> None:
        """Sort, join, read the new links back, write the run; then free what earlier plans left behind.

        Raises:
            StoreError: the run cannot be written. Report `flush_failed`; the links wait again.
            DamageError: the links log is not what was written.
        """
        fingerprints = np.concatenate([piece.fingerprints for piece in self.pieces])
        new, places = unknown(fingerprints, self._runs)
        self.new_links = self._read_links(places)
        self._fault("flush joined")
        if len(new):
            self.new_run = self._known.store.write([new], len(new), step="flush")
        known = self._before.known + self.count - len(new)
        self.after = Flushed(self.pieces[-1].position, known, self._before.new + len(new))
        self._free()

    def _free(self) -> None:
        """Unmap and unlink here what the loop must not wait for."""
        self._runs.clear()
        self._known.close_replaced()
        self._log.drop_before(self._before.position)

    def _read_links(self, places: np.ndarray) -> list[Link]:
        """The links at `places` (ascending; 0 is the first link of this flush)."""
        begin, end = self._before.position, self.pieces[-1].position
        links, count = self._log.read(begin, end, places.tolist())
        if count != self.count:
            raise DamageError(f"due: the links log holds {count} links where {self.count} were appended")
        return links


class CompactionPlan:
    """Merge neighbouring runs into one; `outcome` after `run`."""

    def __init__(self, inputs: Sequence[Run], known: KnownSet) -> None:
        self.inputs = inputs
        self.outcome: Run | None = None
        self._known = known

    def run(self) -> None:
        """Write the merged run; takes a second or so for 1e8 fingerprints.

        Raises:
            StoreError: it cannot be written. Report `compaction_failed`; the inputs stay.
            DamageError: two inputs hold the same fingerprint.
        """
        self.outcome = self._known.merge(self.inputs)
