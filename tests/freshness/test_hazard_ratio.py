"""P[fresh] is put right by how fast changes came."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.freshness.hazard_ratio import RATIO_HIGH, RATIO_LOW, HazardRatio


@pytest.mark.parametrize("ratio", [0.5, 0.8, 1.0, 1.25, 2.0])
def test_finds_by_how_much_changes_come_faster_than_expected(ratio: float) -> None:
    """Model: the page of a crawl was fresh with probability P^ratio; the estimate's error is about 3 %."""
    rng, found = np.random.default_rng(1), HazardRatio()
    for hazard in rng.gamma(1.0, 0.6, 6000):
        found.observe(math.exp(-hazard), bool(rng.random() < -math.expm1(-ratio * hazard)))
    assert found.ratio == pytest.approx(ratio, rel=0.12)
    assert found.corrected(0.8) == pytest.approx(0.8**ratio, abs=0.02)


def test_it_starts_from_the_model_and_forgets() -> None:
    found = HazardRatio()
    assert found.ratio == 1.0 and found.corrected(0.7) == pytest.approx(0.7)
    for _ in range(300):
        found.observe(0.5, True)
    high = found.ratio
    assert high > 1.5
    rng = np.random.default_rng(2)
    for _ in range(20_000):
        found.observe(0.5, bool(rng.random() < 0.5))
    assert found.ratio == pytest.approx(1.0, rel=0.15)


@given(st.lists(st.tuples(st.floats(0.0, 1.0), st.booleans()), max_size=80), st.floats(0.0, 1.0))
def test_what_is_said_stays_a_probability(crawls: list[tuple[float, bool]], fresh: float) -> None:
    found = HazardRatio()
    for before, changed in crawls:
        found.observe(before, changed)
    assert RATIO_LOW <= found.ratio <= RATIO_HIGH
    assert 0.0 <= found.corrected(fresh) <= 1.0
    assert found.corrected(0.0) == 0.0 and found.corrected(1.0) == 1.0
    assert HazardRatio(found.seen, found.told).ratio == found.ratio
