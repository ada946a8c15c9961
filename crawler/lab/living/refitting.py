# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False, initializedcheck=False
"""Replays recorded crawls and samples with one set of constants of the correction of P(fresh).

`scripts/bench/recalibration.py` records the rows, and searches for the best constants with thousands of
replays. A replay does the same steps as `freshness/recalibration.py`, with the same results; the script
compares both.

This file is in Cython's pure-Python mode (see `freshness/value_kernel.py`).
"""

import cython
import numpy as np
from cython.cimports.libc.math import exp, expm1, log, sqrt

from crawler.freshness import recalibration
from crawler.freshness.recalibration import Constants
from crawler.lab.living import calibration

_SIZE = cython.declare(cython.int, len(recalibration.LOW))
_HAZARD_LOW = cython.declare(cython.double, recalibration.HAZARD_LOW)
_HAZARD_HIGH = cython.declare(cython.double, recalibration.HAZARD_HIGH)
_SLOPE_HIGH = cython.declare(cython.double, recalibration.HIGH[2])
_SLOPE_LEAST = cython.declare(cython.double, recalibration.SLOPE_LEAST)
_OWN_MAX = cython.declare(cython.double, recalibration.OWN_MAX)
_SCORE_FIRST = cython.declare(cython.double, recalibration.SCORE_FIRST)
_SCORE_MAX = cython.declare(cython.double, recalibration.SCORE_MAX)
_SCORE_NEEDED = cython.declare(cython.double, recalibration.SCORE_NEEDED)
_WEIGHT_MAX = cython.declare(cython.double, recalibration.WEIGHT_MAX)
_DECILES = cython.declare(cython.int, calibration.DECILES)


@cython.cfunc
@cython.exceptval(check=False)
def _limited(value: cython.double, low: cython.double, high: cython.double) -> cython.double:
    return min(max(value, low), high)


@cython.cfunc
@cython.exceptval(check=False)
def _exponent(coefficients: cython.double[::1], x: cython.double[::1], slope: cython.double) -> cython.double:
    """Return ln(H'/H), as `Recalibration` does."""
    least: cython.double = _SLOPE_LEAST - min(coefficients[7], 0.0) * x[3]
    if x[5] > 0.0:
        least += max(coefficients[5], 0.0) / 4.0
    result: cython.double = 0.0
    a: cython.int
    for a in range(_SIZE):
        result += x[a] * coefficients[a]
    return result + (_limited(coefficients[2] + slope, least, _SLOPE_HIGH) - coefficients[2]) * x[2]


@cython.cfunc
@cython.exceptval(check=False)
def _log_chance(hazard: cython.double, changed: cython.double) -> cython.double:
    hazard = _limited(hazard, _HAZARD_LOW, _HAZARD_HIGH)
    return log(-expm1(-hazard)) if changed else -hazard


@cython.cfunc
@cython.exceptval(check=False)
def _solve(
    matrix: cython.double[:, ::1], factor: cython.double[:, ::1], step: cython.double[::1]
) -> cython.void:
    """Replace the vector `step` by matrix^-1 step, by Cholesky's decomposition."""
    a: cython.int
    b: cython.int
    c: cython.int
    rest: cython.double
    for a in range(_SIZE):
        for b in range(a + 1):
            rest = matrix[a, b]
            for c in range(b):
                rest -= factor[a, c] * factor[b, c]
            factor[a, b] = sqrt(rest) if a == b else rest / factor[b, b]
        for c in range(a):
            step[a] -= factor[a, c] * step[c]
        step[a] /= factor[a, a]
    for a in range(_SIZE - 1, -1, -1):
        for c in range(a + 1, _SIZE):
            step[a] -= factor[c, a] * step[c]
        step[a] /= factor[a, a]


def replay(recorded: np.ndarray, constants: Constants, sums: np.ndarray) -> None:
    """Do the steps of `Recalibration` for all rows of a run, and add the samples to the sums of their deciles.

    Args:
        recorded: one crawl or one sample per row. The columns are sample, fresh, hearing, weight, changed, new,
            haste, reliability and site. `sample` is 0 for a crawl, 1 for a sample, and 2 for a sample whose
            probability is not corrected.
        sums: for each site, kind and decile: the number of copies, their stated probabilities, and how many were
            fresh.
    """
    rows: cython.double[:, ::1] = recorded
    # one row for each site and kind; the items of decile d begin at column 3 d
    flat: cython.double[:, ::1] = sums.reshape(2 * len(sums), -1)
    prior: cython.double[::1] = np.array(constants.prior)
    prior_precision: cython.double[::1] = np.array(constants.precision)
    beyond: cython.double[::1] = np.array(constants.beyond)
    low: cython.double[::1] = np.array(recalibration.LOW)
    high: cython.double[::1] = np.array(recalibration.HIGH)
    memory: cython.double = constants.memory
    log_centre: cython.double = log(constants.centre)
    site_precision: cython.double = constants.site_precision
    site_memory: cython.double = constants.site_memory
    slopes: cython.double[::1] = np.zeros(len(sums))
    shown: cython.double[::1] = np.zeros(len(sums))
    found: cython.double[::1] = np.array(constants.prior)
    told: cython.double[::1] = np.array(constants.prior)
    x: cython.double[::1] = np.zeros(len(constants.prior))
    step: cython.double[::1] = np.zeros(len(constants.prior))
    matrix: cython.double[:, ::1] = np.diag(constants.precision).copy()
    factor: cython.double[:, ::1] = np.zeros((len(constants.prior), len(constants.prior)))
    middle: cython.double = 0.0
    whole: cython.double = 0.0
    score: cython.double = _SCORE_FIRST
    stated: cython.double
    value: cython.double
    row: cython.Py_ssize_t
    kind: cython.int
    decile: cython.int
    a: cython.int
    b: cython.int
    for row in range(rows.shape[0]):
        fresh: cython.double = rows[row, 1]
        hearing: cython.double = rows[row, 2]
        weight: cython.double = _limited(rows[row, 3], 0.0, _WEIGHT_MAX)
        changed: cython.double = rows[row, 4]
        reliability: cython.double = rows[row, 7]
        site: cython.Py_ssize_t = cython.cast(cython.Py_ssize_t, rows[row, 8])
        said: cython.double = -log(max(fresh, 1e-300))
        log_said: cython.double = log(_limited(said, _HAZARD_LOW, _HAZARD_HIGH))
        sample: cython.bint = rows[row, 0] > 0.0
        if not sample:
            whole = min(whole + weight, memory)
            if whole > 0.0:
                middle += weight / whole * (log_said + log_centre - middle)
        far: cython.double = log_said - middle if whole > 0.0 else 0.0
        x[0] = 1.0
        x[1] = min(far, 0.0)
        x[2] = max(far, 0.0)
        x[3] = reliability if hearing == 2.0 else 0.0
        x[4] = reliability if hearing == 1.0 else 0.0
        x[5] = 1.0 / (1.0 + exp(log_said)) if rows[row, 5] > 0.0 and hearing == 0.0 else 0.0
        x[6] = log(max(rows[row, 6], 1.0))
        x[7] = x[3] * max(log_said, 0.0)
        if sample:
            stated = fresh
            if 0.0 < fresh < 1.0 and rows[row, 0] == 1.0:
                share: cython.double = _limited(score / _SCORE_NEEDED, 0.0, 1.0)
                stated = exp(-said * exp(share * _exponent(told, x, slopes[site])))
            for kind in range(2):
                value = stated if kind else fresh
                decile = min(cython.cast(cython.int, _DECILES * value), _DECILES - 1)
                flat[2 * site + kind, 3 * decile] += 1.0
                flat[2 * site + kind, 3 * decile + 1] += value
                flat[2 * site + kind, 3 * decile + 2] += 1.0 if changed == 0.0 else 0.0
            continue
        hazard: cython.double = max(said * exp(_exponent(found, x, slopes[site])), 1e-12)
        ratio: cython.double = hazard * exp(-hazard) / -expm1(-hazard)
        faded: cython.double = -expm1(-weight / memory)
        slope: cython.double = weight * (ratio if changed else -hazard)
        better: cython.double = _log_chance(hazard, changed) - _log_chance(said, changed)
        score = _limited((1.0 - faded) * score + weight * better, -_SCORE_MAX, _SCORE_MAX)
        for a in range(_SIZE):
            for b in range(_SIZE):
                matrix[a, b] = matrix[a, b] * (1.0 - faded) + weight * hazard * ratio * x[a] * x[b]
            matrix[a, a] += faded * prior_precision[a]
            step[a] = slope * x[a] - faded * prior_precision[a] * (found[a] - prior[a])
        _solve(matrix, factor, step)
        for a in range(_SIZE):
            found[a] = _limited(found[a] + step[a], low[a], high[a])
            told[a] = _limited(found[a] + beyond[a] * (found[a] - prior[a]), low[a], high[a])
        faded = -expm1(-weight / site_memory)
        shown[site] = shown[site] * (1.0 - faded) + weight * hazard * ratio * x[2] * x[2]
        pull: cython.double = slope * x[2] - faded * site_precision * slopes[site]
        slopes[site] = _limited(slopes[site] + pull / (site_precision + shown[site]), -_OWN_MAX, _OWN_MAX)
