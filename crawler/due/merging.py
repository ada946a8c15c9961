"""Merges sorted runs in steps. Each step merges one window of keys, which fits into a chunk.

Each input run may use a share of the chunk, in proportion to the number of keys that are left in that run.
The window must not extend beyond the last key of a share, because the next keys of the share's run are not in
the chunk. A share that reaches the end of its run does not bound the window. So the window ends at the
smallest last key of all shares that do not reach the end of their runs. From each share, the keys up to the
end of the window are merged: first the two smallest parts, then the result with the next part, and so on.

    input 0   . . . . . . . . . e|. . . . .        e: last key of the share,
    input 1   . . . . . . .|. e                       the smallest ends the window
    input 2   . . .|. . e

If the sizes of the runs are powers of two, each key is moved about twice, whatever the number of inputs. A
merge uses as much memory as two chunks.
"""

from collections.abc import Iterator, Sequence

import numpy as np

from crawler.due import sorting
from crawler.due.run_layout import FENCE_STEP
from crawler.due.runs import Fingerprints, Run
from crawler.errors import DamageError

# Minimum number of keys that a window takes from each input. Without this minimum, a tiny run beside a huge one
# would lead to tiny windows.
_SHARE_MIN = 4096


def lower_bound(run: Run, key: int) -> int:
    """Return the number of keys of `run` that are less than `key` (0 to 2^64)."""
    if key >= 1 << 64:
        return run.count
    block = int(np.searchsorted(run.fences, np.uint64(key))) - 1
    if block < 0:
        return 0
    start = block * FENCE_STEP
    return start + int(np.searchsorted(run.read(start, min(start + FENCE_STEP, run.count)), np.uint64(key)))


class _Input:
    """A run being merged, the position reached in it, and the position where it ends."""

    __slots__ = ("run", "start", "stop")

    def __init__(self, run: Run, start: int, stop: int) -> None:
        self.run, self.start, self.stop = run, start, stop

    @property
    def left(self) -> int:
        return self.stop - self.start


def merge(
    runs: Sequence[Run], chunk_bytes: int, *, low: int = 0, high: int = 1 << 64
) -> Iterator[Fingerprints]:
    """Yield the keys of disjoint `runs` with low <= key < high, ascending, in arrays of about `chunk_bytes`.

    Each array is overwritten by the next one.

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
    """Return the slices of the next window, one per input.

    Together, the slices hold at least one and at most `size` keys.
    """
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
    """Merge ascending arrays, beginning with the first two. The results alternate between two buffers."""
    merged = slices[0]
    for index, keys in enumerate(slices[1:]):
        target = buffers[index % 2][: len(merged) + len(keys)]
        if not sorting.merge(merged, keys, target):
            raise DamageError("due: two runs have a fingerprint in common; run `crawler check`")
        merged = target
    return merged
