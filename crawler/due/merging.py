"""Merging sorted runs, in windows that fit a chunk.

Each input offers a share of the chunk. The window ends at the least of the shares'
last keys; the slices below it are merged two at a time, the smallest first:

    input 0   . . . . . . . . . e|. . . . .        e: last key of the share,
    input 1   . . . . . . .|. e                       the least: the window ends here
    input 2   . . .|. . e

With sizes in powers of two a key is moved about twice, however many inputs there
are. It takes two chunks of memory.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from crawler.due import sorting
from crawler.due.fences import FENCE_STEP
from crawler.due.runs import Fingerprints, Run
from crawler.errors import DamageError

_SHARE_MIN = 4096  # keys an input offers at least: a tiny run beside a huge one makes no tiny windows


def lower_bound(run: Run, key: int) -> int:
    """How many keys of `run` are less than `key` (0 to 2^64)."""
    if key >= 1 << 64:
        return run.count
    block = int(np.searchsorted(run.fences, np.uint64(key))) - 1
    if block < 0:
        return 0
    start = block * FENCE_STEP
    return start + int(np.searchsorted(run.read(start, min(start + FENCE_STEP, run.count)), np.uint64(key)))


class _Input:
    """A run that is merged, how far it has been read, and where it ends."""

    __slots__ = ("run", "start", "stop")

    def __init__(self, run: Run, start: int, stop: int) -> None:
        self.run, self.start, self.stop = run, start, stop

    @property
    def left(self) -> int:
        return self.stop - self.start


def merge(
    runs: Sequence[Run], chunk_bytes: int, *, low: int = 0, high: int = 1 << 64
) -> Iterator[Fingerprints]:
    """The keys of disjoint `runs` with low <= key < high, ascending, in arrays of `chunk_bytes` or so.

    An array is overwritten when the next one is asked for.

    Raises:
        DamageError: two runs have a key in common.
    """
    inputs = [_Input(run, lower_bound(run, low), lower_bound(run, high)) for run in runs]
    inputs = sorted((entry for entry in inputs if entry.left), key=lambda entry: entry.left)
    size = max(chunk_bytes // 8, 2 * len(inputs))
    buffers = [np.empty(size, np.uint64), np.empty(size, np.uint64)]
    while inputs:
        yield _merge_slices(_next_window(inputs, size), buffers)
        inputs = [entry for entry in inputs if entry.left]


def _next_window(inputs: Sequence[_Input], size: int) -> list[Fingerprints]:
    """Take from each input what belongs to the next window, together at most `size` keys and at least one."""
    total = sum(entry.left for entry in inputs)
    least = min(_SHARE_MIN, size // (2 * len(inputs)))
    room = size - least * len(inputs)
    shares = [
        entry.run.read(entry.start, entry.start + min(entry.left, least + room * entry.left // total))
        for entry in inputs
    ]
    ends = [share[-1] for share, entry in zip(shares, inputs, strict=True) if len(share) < entry.left]
    if ends:
        end = min(ends)
        shares = [share[: int(np.searchsorted(share, end, side="right"))] for share in shares]
    for share, entry in zip(shares, inputs, strict=True):
        entry.start += len(share)
    return [share for share in shares if len(share)]


def _merge_slices(slices: Sequence[Fingerprints], buffers: Sequence[Fingerprints]) -> Fingerprints:
    """Merge ascending arrays, the first two first, to and fro between two buffers."""
    merged = slices[0]
    for index, keys in enumerate(slices[1:]):
        target = buffers[index % 2][: len(merged) + len(keys)]
        if not sorting.merge(merged, keys, target):
            raise DamageError("due: two runs have a fingerprint in common; run `crawler check`")
        merged = target
    return merged
