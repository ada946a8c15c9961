"""Named points in the write path where a test can end the process.

`CRAWLER_FAULT=point:n` in the environment sends SIGKILL to this process the n-th time `point` is reached. If
the variable is not set, which is the case outside of crash tests, a point costs one comparison.
`storage/README.md`, "Fault points", lists the points.
"""

import os
import signal
from collections.abc import Callable

# The points are in the order in which they are reached: first those of a page, then those of a flush, a
# compaction, and the end of a run.
POINTS = (
    "seeds loading",
    "fetch begun",
    "segment begun",
    "segment rolled",
    "record appended",
    "links written",
    "links synced",
    "synced",
    "batch written",
    "committed",
    "flush joined",
    "flush written",
    "flush synced",
    "flush renamed",
    "flush named",
    "flush ran",
    "flush committed",
    "flush finished",
    "flush done",
    "flush during compaction",
    "compaction written",
    "compaction synced",
    "compaction renamed",
    "compaction named",
    "compaction ran",
    "compaction committed",
    "run unlinked",
    "compaction done",
    "compaction during flush",
    "entries accepted",
    "acks sent",
    "entries sent",
    "reshard built",
    "reshard decided",
    "reshard replaced",
    "reshard renamed",
    "withdrawal recorded",
    "erasure noted",
    "erasing",
    "erased",
    "copies moved",
    "copies dropped",
    "segment released",
    "released segment deleted",
    "segment shipped",
    "shipping noted",
    "segment deleted",
    "segment fetched, written",
    "segment fetched, synced",
    "segment fetched, renamed",
    "segment fetched, named",
    "crawl moved aside",
    "stopping",
    "closing",
)


class FaultPoint:
    """Counts the visits to one named point, and kills this process at the n-th visit."""

    __slots__ = ("_left", "point", "visited")

    def __init__(self) -> None:
        name, _, count = os.environ.get("CRAWLER_FAULT", "").partition(":")
        self.point = name
        self._left = int(count or "1")
        # called with the name of every fault point that is reached; used by simulations
        self.visited: Callable[[str], None] | None = None

    def __call__(self, point: str) -> None:
        if self.visited is not None:
            self.visited(point)
        if point == self.point:
            self._left -= 1
            if self._left <= 0:
                os.kill(os.getpid(), signal.SIGKILL)


reach = FaultPoint()
