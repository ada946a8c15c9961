"""Test the parameters that are computed from other parameters, for one page at a time and for arrays of pages."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.freshness.params import PageParameters, Pages

rates = st.floats(1e-4, 1e3)
shares = st.floats(0.0, 1.0)


@given(mu=rates, delta=rates, recall=shares, nu=st.one_of(st.just(0.0), rates))
def test_array_and_scalar_agree(mu: float, delta: float, recall: float, nu: float) -> None:
    page, pages = PageParameters(mu, delta, recall, nu), Pages.of([PageParameters(mu, delta, recall, nu)])
    for name in ("silent_rate", "signal_rate", "signal_weight", "ceiling", "precision"):
        assert getattr(pages, name)[0] == pytest.approx(getattr(page, name), rel=1e-15), name
    assert pages[0] == page


@given(delta=rates, recall=shares, precision=st.floats(0.01, 1.0))
def test_precision_and_recall_can_be_computed_back_from_quality(
    delta: float, recall: float, precision: float
) -> None:
    page = Pages.from_quality(*(np.array([x]) for x in (1.0, delta, precision, recall)))[0]
    assert page.recall == recall
    if recall > 1e-12:
        assert page.precision == pytest.approx(precision)
        assert math.exp(-page.signal_weight) == pytest.approx(1.0 - precision, abs=1e-12)


def test_edges_of_the_signals() -> None:
    assert PageParameters(1.0, 1.0, 0.5, 0.0).signal_weight == math.inf
    assert PageParameters(1.0, 1.0, 0.0, 0.5).signal_weight == 0.0
    assert PageParameters(1.0, 1.0, 0.0, 0.5).signal_time == 0.0
    assert PageParameters(1.0, 1.0, 1.0, 0.5).signal_time == math.inf
    assert PageParameters(1.0, 0.0).ceiling == math.inf
    assert PageParameters(1.0, 1.0, 0.5, 0.0).freshness(3.0, 1) == 0.0
    assert PageParameters(1.0, 1.0, 0.5, 0.0).freshness(0.0, 0) == 1.0


def test_select_and_length() -> None:
    pages = Pages(np.arange(1.0, 5.0), np.full(4, 0.5), 0.25, 0.1)
    assert len(pages) == 4
    assert pages.select(np.array([2, 0])).importance.tolist() == [3.0, 1.0]
    assert "4 pages" in repr(pages)
