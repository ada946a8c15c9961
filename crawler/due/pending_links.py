"""Links that wait for the next flush.

Their fingerprints are in memory, and the links themselves are in the links log.

    append            stage            committed             take            (put_back)
    unstaged  ----->  staged  ----->   waiting, oldest first  -----> a flush
    (of this group)   (a list a group)

The writer thread calls `append` and `stage`, and the event loop calls the other methods. The writer thread
passes the fingerprints of each commit group to the event loop through a deque.
"""

from collections import deque
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from crawler.due.runs import Fingerprints


class Piece(msgspec.Struct, frozen=True):
    """The fingerprints of the links in one stretch of the links log, in the order of the log.

    The stretch ends at `position`.
    """

    fingerprints: Fingerprints
    position: int

    def __len__(self) -> int:
        return len(self.fingerprints)


class PendingLinks:
    """The pieces of the log after the last flushed link.

    Args:
        entries_max: the maximum number of links that `take` returns, unless one piece has more.
    """

    def __init__(self, entries_max: int) -> None:
        self._entries_max = entries_max
        self._unstaged: list[Piece] = []
        self._staged: deque[list[Piece]] = deque()
        self._pieces: deque[Piece] = deque()
        self.count = 0  # the number of waiting links, which `take` can return

    def append(self, fingerprints: Sequence[int], position: int) -> None:
        """Add links of the group being written.

        In the log, these links end at `position`. The writer thread calls this.
        """
        self._unstaged.append(Piece(np.array(fingerprints, np.uint64), position))

    def stage(self) -> list[Piece]:
        """Mark the end of a group of links, and return the group's pieces. The writer thread calls this."""
        pieces = _coalesce(self._unstaged, self._entries_max)
        self._unstaged = []
        self._staged.append(pieces)
        return pieces

    def committed(self) -> None:
        """Record that the oldest staged group is durable: from now on, its links wait for a flush.

        The event loop calls this.
        """
        pieces = self._staged.popleft()
        self._pieces.extend(pieces)
        self.count += sum(map(len, pieces))

    def take(self) -> list[Piece]:
        """Remove and return the links that have waited longest, as many as fit into one flush.

        The event loop calls this.
        """
        pieces: list[Piece] = []
        taken = 0
        while self._pieces and (not pieces or taken + len(self._pieces[0]) <= self._entries_max):
            pieces.append(self._pieces.popleft())
            taken += len(pieces[-1])
        self.count -= taken
        return pieces

    def put_back(self, pieces: Sequence[Piece]) -> None:
        """Undo the last `take`. The event loop calls this."""
        self._pieces.extendleft(reversed(pieces))
        self.count += sum(map(len, pieces))

    def holds(self, fingerprint: int) -> bool:
        """Return whether a link with this fingerprint waits. The event loop calls this."""
        return hold(self._pieces, fingerprint)


def hold(pieces: Iterable[Piece], fingerprint: int) -> bool:
    """Return whether a link with this fingerprint is in `pieces`."""
    return any(bool((piece.fingerprints == np.uint64(fingerprint)).any()) for piece in pieces)


def _coalesce(pieces: Sequence[Piece], entries_max: int) -> list[Piece]:
    """Join neighbouring pieces into fewer, larger pieces of at most `entries_max` links each."""
    gathered: list[list[Piece]] = []
    count = 0
    for piece in pieces:
        if not gathered or count + len(piece) > entries_max:
            gathered.append([])
            count = 0
        gathered[-1].append(piece)
        count += len(piece)
    return [
        Piece(np.concatenate([piece.fingerprints for piece in some]), some[-1].position) for some in gathered
    ]
