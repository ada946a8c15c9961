"""Makes fingerprints for tests of the DUE's kernels."""

from functools import cache

import numpy as np
from hypothesis import strategies as st

LAST = 2**64 - 1
FINGERPRINTS = st.one_of(st.integers(0, 40), st.integers(0, LAST), st.integers(LAST - 40, LAST))
ARRAYS = st.lists(FINGERPRINTS, max_size=60).map(lambda numbers: np.array(numbers, np.uint64))


@cache
def spread(count: int, seed: int, shape: str) -> np.ndarray:
    """Return `count` distinct ascending uint64.

    If `shape` is "even", the numbers are evenly spread. Otherwise, all of them or half of them are in one
    bucket.
    """
    numbers = np.random.default_rng(seed).integers(0, 2**64, 2 * count + 2, dtype=np.uint64)
    clumped = {"even": 0, "one bucket": len(numbers), "half in one": count}[shape]
    numbers[:clumped] = numbers[:clumped] >> np.uint64(16) | np.uint64(0x5555 << 48)
    numbers = np.random.default_rng(seed).permutation(np.unique(numbers))[:count]
    numbers[:1], numbers[-1:] = 0, LAST
    keys = np.unique(numbers)
    keys.flags.writeable = False
    return keys
