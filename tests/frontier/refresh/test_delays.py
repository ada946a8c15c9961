"""Test the histogram of delays against the delays themselves."""

import random

import pytest

from crawler.frontier.refresh.delays import bin_of, delay_within


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 1.0])
def test_a_share_of_the_delays_is_within_the_delay_that_is_returned(share: float) -> None:
    rng = random.Random(3)
    delays = sorted(rng.lognormvariate(6.0, 3.0) + 1.0 for _ in range(1001))
    histogram: dict[int, int] = {}
    for delay in delays:
        histogram[bin_of(delay)] = histogram.get(bin_of(delay), 0) + 1
    assert delay_within(histogram, share) == pytest.approx(delays[int(share * 1000)], rel=0.11)


def test_the_edges_of_the_histogram() -> None:
    assert delay_within({}, 0.5) is None
    assert bin_of(0.0) == bin_of(1.1) == 0 and bin_of(1.3) == 1
    assert bin_of(1e300) == 127
