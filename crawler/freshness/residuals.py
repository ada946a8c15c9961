# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""Computes Poisson residuals, and terms of the crawl value from them, in a way that avoids cancellation of digits.

    residual          R^i(x) = Pr[Poisson(x) > i], by series or complement
    gain              D_i(x), the gain of term i of the value (`value_kernel.py`)
    late_residual,    both for i in the hundreds: uniform expansions of the
    late_gain         incomplete gamma function
    settled           the sum of the first terms, whose residuals are 1 to the last digit
    waves             the number of poles of the renewal equation that still matter

Nothing overflows, because exp(+x), x^i and i! are never computed alone. Arguments are not checked.
Sources: Busa-Fekete et al., Theorem 1; Temme's expansions, DLMF 8.12.
"""

import cython
from cython.cimports.libc.math import ceil, erfc, exp, expm1, lgamma, log, log1p, sqrt

_inf = cython.declare(cython.double, float("inf"))
_PI = cython.declare(cython.double, 3.141592653589793)

# A Poisson tail that begins more than sqrt(80) standard deviations from the mean is below exp(-40).
_TAIL = cython.declare(cython.double, 80.0)

# A table of 1/j. Without this table, the loops below would wait for divisions.
_INVERSES = cython.declare(cython.Py_ssize_t, 512)
_inverse = cython.declare(cython.double[512])
for _j in range(1, _INVERSES):
    _inverse[_j] = 1.0 / _j


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _over(j: cython.Py_ssize_t) -> cython.double:
    """Return 1/j."""
    return _inverse[j] if j < _INVERSES else 1.0 / j


@cython.cfunc
@cython.exceptval(check=False)
def _poisson(k: cython.Py_ssize_t, x: cython.double, y: cython.double) -> cython.double:
    """Return exp(-y) x^k / k! for x <= y: the Poisson probability of k, times exp(x - y)."""
    j: cython.Py_ssize_t
    if k <= 40 and y < 600.0:  # exact to the last digits, without lgamma
        p: cython.double = exp(-y)
        for j in range(1, k + 1):
            p *= x * _over(j)
        return p
    if x <= 0.0:
        return 0.0 if k > 0 else exp(-y)
    return exp(k * log(x) - y - lgamma(k + 1.0))


def residual(i: cython.Py_ssize_t, x: cython.double) -> cython.double:
    """Return R^i(x) = Pr[Poisson(x) > i], or 0 if x <= 0. The relative error is a few 1e-16, even for small x."""
    k: cython.Py_ssize_t
    p: cython.double
    total: cython.double
    if not x > 0.0:
        return 0.0
    if i == 0:
        return -expm1(-x)
    if x < i + 2:
        p = _poisson(i + 1, x, x)
        total = p
        k = i + 2
        while p > 1e-17 * total:
            p *= x * _over(k)
            total += p
            k += 1
        return total
    if x == _inf or (x - i) * (x - i) > _TAIL * x:
        return 1.0
    p = _poisson(i, x, x)
    total = p
    for k in range(i, 0, -1):
        p *= k / x
        total += p
        if p < 1e-18:
            break
    return 1.0 - total


def gain(
    i: cython.Py_ssize_t,
    x: cython.double,
    alpha: cython.double,
    gamma: cython.double,
    precision: cython.double,
) -> cython.double:
    """Return D_i(x) for x > 0 and gamma > 0. Of three formulas, the first one without cancellation is used.

    If ax < i + 6, where ax = (alpha + gamma) x, the result is a Taylor series whose terms are all positive.
    Its factors c_j = a^j - gamma^j are computed without a subtraction. Otherwise, the result is the plain
    difference if this loses at most one bit. Else the result is the difference of the complements (1 - R) of
    the two residuals, which does not cancel in this case.
    """
    j: cython.Py_ssize_t
    if alpha <= 0.0:
        return 0.0
    ax: cython.double = (alpha + gamma) * x
    gx: cython.double = gamma * x
    lx: cython.double = alpha * x
    if ax < i + 6:
        term: cython.double = lx / (i + 2)
        power: cython.double = gx / (i + 2)
        total: cython.double = term
        j = i + 3
        while True:
            term = (ax * term + lx * power) * _over(j)
            power *= gx * _over(j)
            total += term
            j += 1
            if term <= precision * total:
                return _poisson(i + 1, gx, ax) * total
    ratio: cython.double = log1p(alpha / gamma)  # ln(a / gamma)
    log_first: cython.double = -(i + 1) * ratio
    first: cython.double = exp(log_first)
    lost: cython.double = exp(-lx)
    difference: cython.double = first * residual(i, ax) - lost * residual(i, gx)
    if 2.0 * difference > first or lost < 1e-300:
        return difference
    bracket: cython.double
    if lx >= -log_first:
        bracket = -expm1(-(lx + log_first)) * first
    else:
        bracket = expm1(lx + log_first) * lost
    return bracket + _complement(i, gx, ax, alpha / (alpha + gamma))


@cython.cfunc
@cython.exceptval(check=False)
def _complement(
    i: cython.Py_ssize_t, gx: cython.double, ax: cython.double, share: cython.double
) -> cython.double:
    """Return exp(-a x) sum_{k<=i} (gamma x)^k/k! [1 - (gamma/a)^(i+1-k)], from k = i down; `share` is alpha/a."""
    k: cython.Py_ssize_t
    p: cython.double = _poisson(i, gx, ax)
    kept: cython.double = 1.0 - share
    missing: cython.double = share  # 1 - (gamma/a)^(i+1-k), computed without a subtraction
    total: cython.double = missing * p
    for k in range(i, 0, -1):
        p *= k / gx
        missing = share + kept * missing
        total += missing * p
        if k < gx and p <= 1e-18 * total:  # this test is correct even if all values underflow to 0
            break
    return total


@cython.cfunc
@cython.exceptval(check=False)
def _late_probability(k: cython.double, y: cython.double) -> cython.double:
    """Return exp(-y) y^k / k! for large k, by Stirling's formula."""
    away: cython.double = (y - k) / k
    return (
        exp(-k * (away - log1p(away))) / sqrt(2.0 * _PI * k) * (1.0 - (1.0 - 1.0 / (24.0 * k)) / (12.0 * k))
    )


def late_residual(i: cython.double, y: cython.double) -> cython.double:
    """Return R^i(y) for large i, by Temme's uniform expansion of the incomplete gamma function (DLMF 8.12).

    The coefficients are computed by their Taylor series at eta = 0, since only |eta| < 0.8 matters.
    """
    k: cython.double = i + 1.0
    away: cython.double = (y - k) / k
    if (y - k) * (y - k) > 2.0 * _TAIL * (y + k):
        return 1.0 if y > k else 0.0
    half: cython.double = max(away - log1p(away), 0.0)  # eta^2 / 2
    eta: cython.double = sqrt(2.0 * half) if away > 0.0 else -sqrt(2.0 * half)
    c0: cython.double = -1.0 / 3.0 + eta * (
        1.0 / 12.0
        + eta
        * (
            -2.0 / 135.0
            + eta * (1.0 / 864.0 + eta * (1.0 / 2835.0 + eta * (-139.0 / 777600.0 + eta / 25515.0)))
        )
    )
    c1: cython.double = -1.0 / 540.0 + eta * (-1.0 / 288.0 + eta * (1.0 / 378.0 - eta * 77.0 / 77760.0))
    c2: cython.double = 25.0 / 6048.0 - eta * 139.0 / 51840.0
    rest: cython.double = exp(-k * half) / sqrt(2.0 * _PI * k) * (c0 + (c1 + c2 / k) / k)
    return 0.5 * erfc(-eta * sqrt(0.5 * k)) - rest


def late_gain(
    i: cython.double, x: cython.double, alpha: cython.double, gamma: cython.double
) -> cython.double:
    """Return D_i(x) for large i: exp(-alpha x) sum_j (alpha/gamma)^j E[M^j] / j!, M = max(0, gamma (x - T)).

    The moments of a gamma variable truncated at y = gamma x follow from one another by Stein's identity,
    M_(j+1) = (y - k - j) M_j + j y M_(j-1). The function is called only if gamma beta is above 16 sqrt(i).
    Then (alpha/gamma) M is small, and D_i is below 1e-5 of the crawl value.
    """
    y: cython.double = gamma * x
    k: cython.double = i + 1.0
    away: cython.double = y - k
    reached: cython.double = late_residual(i, y)
    first: cython.double = away * reached + k * _late_probability(k, y)
    second: cython.double = (away - 1.0) * first + y * reached
    third: cython.double = (away - 2.0) * second + 2.0 * y * first
    fourth: cython.double = (away - 3.0) * third + 3.0 * y * second
    e: cython.double = alpha / gamma
    moments: cython.double = first + e * (second / 2.0 + e * (third / 6.0 + e * fourth / 24.0))
    return max(0.0, exp(-alpha * x) * e * moments)


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _log_sinhc(x: cython.double) -> cython.double:
    """Return ln(sinh(x) / x), x >= 0."""
    if x < 0.3:
        y: cython.double = x * x
        return y * (
            1.0 / 6.0
            + y
            * (
                -1.0 / 180.0
                + y * (1.0 / 2835.0 + y * (-1.0 / 37800.0 + y * (1.0 / 467775.0 - y * 691.0 / 3831077250.0)))
            )
        )
    return x + log(-expm1(-2.0 * x) / (2.0 * x))


def settled(
    n: cython.double, staleness: cython.double, ratio: cython.double, b: cython.double
) -> cython.double:
    """Return sum_{i<n} q^i [(gamma/a)^(i+1) - exp(-alpha x_i)].

    These are the first n terms of the value if their residuals R^i are all 1. `ratio` is ln(a/gamma). Let L
    be ratio + b, and let u be `staleness`. Since q^i exp(-alpha x_i) = exp(-u) for all i, the sum is exp(-u)
    sum_{i<n} expm1(u - ratio - i L). To avoid cancellation, the geometric sum of exp(u - ratio - i L) is
    computed as n exp(m) sinhc(n L / 2) / sinhc(L / 2), where m = u - ratio - (n-1) L/2 is the exponent in the
    middle of the sum. If m is above 2, the plain difference is more accurate.
    """
    both: cython.double = ratio + b
    if staleness - ratio - (n - 1.0) * 0.5 * both > 2.0:
        return exp(-ratio) * (expm1(-n * both) / expm1(-both)) - n * exp(-staleness)
    half: cython.double = 0.5 * both
    power: cython.double = (staleness - ratio) - (n - 1.0) * half + (_log_sinhc(n * half) - _log_sinhc(half))
    return n * exp(-staleness) * expm1(power)


def converged_terms(signals: cython.double, c: cython.double) -> cython.double:
    """Return the number of leading terms in which both residuals, R^i(a x) and R^i(gamma x), are 1.

    These are the terms in which y = c (s - i) exceeds i by at least sqrt(80 y).
    """
    if c * signals < 100.0:
        return 0.0
    spread: cython.double = sqrt(_TAIL)
    scale: cython.double = 1.0 + 1.0 / c
    # sqrt(y) for the last term that is not negligible
    root: cython.double = (spread + sqrt(_TAIL + 4.0 * signals * scale)) / (2.0 * scale)
    last: cython.double = signals - root * root / c
    return ceil(last) if last > 0.0 else 0.0


def below_half(b: cython.double) -> cython.double:
    """Return 1 - p/b - b/2, where p = 1 - exp(-b) is the precision of a signal of weight b."""
    if b > 0.5:
        return (b + expm1(-b)) / b - 0.5 * b
    j: cython.Py_ssize_t
    term: cython.double = -b * b / 6.0
    total: cython.double = term
    for j in range(4, 16):
        term *= -b * _inverse[j]
        total += term
    return total


def waves(s: cython.double, c: cython.double) -> cython.double:
    """Return the approximate number of waves that are larger than exp(-40) at s."""
    return c / (2.0 * _PI) * sqrt(expm1(_TAIL / s))
