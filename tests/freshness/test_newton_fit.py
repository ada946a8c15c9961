"""Test the Newton steps of the correction of P[fresh] against numpy's linear algebra."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.freshness.newton_fit import NewtonFit

PRIOR, PRECISION = [0.5, -0.2, 0.0], [30.0, 2.0, 0.5]
LOW, HIGH = [-1.0, -1.0, -2.0], [1.0, 1.0, 2.0]
FEATURES = st.lists(st.floats(-5.0, 5.0), min_size=3, max_size=3)
OBSERVATIONS = st.lists(
    st.tuples(FEATURES, st.floats(-10.0, 10.0), st.floats(0.0, 10.0), st.floats(0.0, 1.0)), max_size=20
)


@given(OBSERVATIONS)
def test_a_step_solves_the_linear_system(observations: list[tuple[list[float], float, float, float]]) -> None:
    fit = NewtonFit(PRIOR, PRECISION, LOW, HIGH)
    coefficients, matrix = np.array(PRIOR), np.diag(PRECISION)
    for features, score, curvature, faded in observations:
        fit.observe(features, score, curvature, faded)
        x, prior = np.array(features), faded * np.array(PRECISION)
        matrix = (1.0 - faded) * matrix + np.diag(prior) + curvature * np.outer(x, x)
        step = np.linalg.solve(matrix, score * x - prior * (coefficients - PRIOR))
        coefficients = np.clip(coefficients + step, LOW, HIGH)
        assert fit.coefficients == pytest.approx(coefficients.tolist(), abs=1e-9)
        assert fit.matrix == pytest.approx(matrix.ravel().tolist(), abs=1e-9)


def test_forgotten_observations_leave_the_prior() -> None:
    fit = NewtonFit(PRIOR, PRECISION, LOW, HIGH)
    fit.observe([1.0, 2.0, 3.0], 4.0, 1.0, 0.0)
    assert fit.coefficients != pytest.approx(PRIOR, abs=1e-3)
    for _ in range(2000):
        fit.observe([0.0, 0.0, 0.0], 0.0, 0.0, 0.1)
    assert fit.coefficients == pytest.approx(PRIOR, abs=1e-9)
    assert fit.matrix == pytest.approx(np.diag(PRECISION).ravel().tolist(), abs=1e-9)


@pytest.mark.parametrize("size", [2, 3, 4])
def test_stored_coefficients_are_restored(size: int) -> None:
    """The second stored coefficient is above its bound, and is limited to it."""
    stored, rows = [0.1, 9.0, 0.3, 0.4][:size], np.diag([5.0, 6.0, 7.0, 8.0][:size])
    rows[0, 1] = rows[1, 0] = 0.5
    fit = NewtonFit(PRIOR, PRECISION, LOW, HIGH)
    fit.restore(stored, rows.ravel().tolist())
    used = min(size, 3)
    assert fit.coefficients == [0.1, HIGH[1], *stored[2:used], *PRIOR[used:]]
    kept = np.array(fit.matrix).reshape(3, 3)
    assert (kept[:used, :used] == rows[:used, :used]).all()
    assert kept.diagonal()[used:].tolist() == PRECISION[used:]
