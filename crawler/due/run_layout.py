"""The layout of a coded run: the bit width and the start of each block, computed from the fences."""

import numpy as np

# Number of keys per block. The first key of each block is its fence. The fences of a run stay in memory, and show
# which block may hold a key. Without coding, the keys of a block take 4 KiB, which is one page of memory.
FENCE_STEP = 512


def layout(posts, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Compute the layout of the blocks of `count` keys from their fences.

    Args:
        posts: the fences of the m blocks, followed by the last key: uint64 (m + 1,).

    Returns:
        widths: the number of low bits stored per key of each block, uint8 (m,).
        starts: the index of the first word of each block, followed by the total number of words, intp (m + 1,).
    """
    spans = posts[1:] - posts[:-1]
    counts = np.full(len(spans), FENCE_STEP, np.uint64)
    counts[-1:] = count - FENCE_STEP * (len(spans) - 1)
    rest = spans // counts
    widths = np.zeros(len(spans), np.uint64)
    for step in (32, 16, 8, 4, 2, 1):
        large = rest >> np.uint64(step) > 0
        widths[large] += np.uint64(step)
        rest[large] >>= np.uint64(step)
    bits = counts * (widths + np.uint64(1)) + (spans >> widths) + np.uint64(1)
    starts = np.zeros(len(spans) + 1, np.intp)
    np.cumsum((bits + np.uint64(63)) >> np.uint64(6), out=starts[1:])
    return widths.astype(np.uint8), starts
