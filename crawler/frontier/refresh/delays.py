"""A histogram of delays, whose bins grow by a factor of 1.2. Bin 0 also has the delays of less than a second.

    bin n    delays from 1.2^n to 1.2^(n+1) seconds

Histograms of several processes can be added.
"""

import math
from collections.abc import Mapping

_BINS = 128  # number of bins; the last one also has all delays of more than 1.2^128 s
_GROWTH = math.log(1.2)


def bin_of(delay: float) -> int:
    """Return the number of the bin for a delay in seconds, which may be 0."""
    return min(int(math.log(max(delay, 1.0)) / _GROWTH), _BINS - 1)


def delay_within(histogram: Mapping[int, int], share: float) -> float | None:
    """Return the delay in seconds, exact to 10 %, that this share of the counted delays does not exceed.

    Return None if there are no delays.
    """
    wanted, seen = share * sum(histogram.values()), 0
    for number in sorted(histogram):
        seen += histogram[number]
        if seen >= wanted:
            return round(math.exp((number + 0.5) * _GROWTH), 1)
    return None
