# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""The crawl value: what one more crawl of a page gains, in the form without cancellation.

Theory. A page is crawled when its effective elapsed time tau + beta n reaches
a threshold iota (tau since the last crawl, n signals since). Then, with
x_i = iota - i beta and R^i(x) = Pr[Poisson(x) > i],

    psi(iota) = E[interval]   = sum_i (1/gamma) R^i(gamma x_i)
    w(iota)   = E[fresh time] = sum_i nu^i/(Delta+nu)^(i+1) R^i((alpha+gamma) x_i)
    V(iota)   = mu (w - exp(-alpha iota) psi)

over all i with x_i > 0 (Busa-Fekete et al., Theorem 1). V is increasing, from
0 to mu/Delta, and V' = mu alpha exp(-alpha iota) psi. The two sums of V lose
all digits to each other when alpha iota is small; here V is summed term by
term as mu/gamma sum_i q^i D_i(x_i), q = nu/gamma, where each

    D_i(x) = (gamma/a)^(i+1) R^i(a x) - exp(-alpha x) R^i(gamma x)  >= 0,  a = alpha + gamma,

comes from a series or from complements, whichever has no cancellation (see
`_gain`). V of a state (tau, n) uses x_i = tau + (n - i) beta, which stays exact
when beta is huge. For iota of many beta psi is a straight line (`_many`) and V
follows from V' in closed form. Nothing ever overflows: no exp(+x), x^i or i! stands alone.

The limits, each with a rule of its own:

    no signals, or signals that tell nothing (b = 0)    V_GREEDY of the time alone
    nu = 0: a signal is certain                         one term; mu/Delta after a signal
    lambda = 1: nothing changes silently (alpha = 0)    only n counts; the threshold is a number of
                                                        signals, V_n = (mu/gamma) sum_{i<n} (q^i - q^n)
    Delta = 0                                           the page never changes: value 0

The file is Cython in pure-Python mode: compiled where a C compiler was at
hand, the same code interpreted otherwise. It takes raw parameters, which is
what other compiled modules call; `crawl_value.py` takes a `Page` or `Pages`.

Cost, compiled: GREEDY 60 ns; NCIS about 130 ns a term, usually 1 to 20 terms.
"""

import cython
from cython.cimports.libc.math import exp, expm1, lgamma, log, log1p, sqrt

# Constants of the compiled code; KINDS and ALL_TERMS are for others.
_GREEDY = cython.declare(cython.Py_ssize_t, 0)
_CIS = cython.declare(cython.Py_ssize_t, 1)
_CIS_NU0 = cython.declare(cython.Py_ssize_t, 2)  # believes in no false signal: gamma = lambda Delta
_NCIS = cython.declare(cython.Py_ssize_t, 3)
_CIS_PLUS = cython.declare(cython.Py_ssize_t, 4)
_ALL_TERMS = cython.declare(cython.Py_ssize_t, 100_000)  # summed one by one; those in closed form come on top
_MANY = cython.declare(cython.Py_ssize_t, 1 << 40)
_inf = cython.declare(cython.double, float("inf"))
_EXACT = cython.declare(cython.double, 1e-17)  # sums go on until what is left is below the last digit

# 1/j, because a division is what the loops below would wait for.
_INVERSES = cython.declare(cython.Py_ssize_t, 512)
_inverse = cython.declare(cython.double[512])
for _j in range(1, _INVERSES):
    _inverse[_j] = 1.0 / _j

KINDS = {"greedy": _GREEDY, "cis": _CIS, "cis-nu0": _CIS_NU0, "ncis": _NCIS, "cis+": _CIS_PLUS}
ALL_TERMS = int(_ALL_TERMS)


# ---------------------------------------------------------------------------
# Poisson tails


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _over(j: cython.Py_ssize_t) -> cython.double:
    """1/j."""
    return _inverse[j] if j < _INVERSES else 1.0 / j


@cython.cfunc
@cython.exceptval(check=False)
def _poisson(k: cython.Py_ssize_t, x: cython.double, y: cython.double) -> cython.double:
    """exp(-y) x^k / k! for x <= y: the probability of k, thinned by exp(x - y)."""
    j: cython.Py_ssize_t
    if k <= 40 and y < 600.0:  # exact to the last digits, and no lgamma
        p: cython.double = exp(-y)
        for j in range(1, k + 1):
            p *= x * _over(j)
        return p
    if x <= 0.0:
        return 0.0 if k > 0 else exp(-y)
    return exp(k * log(x) - y - lgamma(k + 1.0))


@cython.ccall
@cython.exceptval(check=False)
def residual(i: cython.Py_ssize_t, x: cython.double) -> cython.double:
    """R^i(x) = Pr[Poisson(x) > i], relative error a few 1e-16 also for small x; 0 for x <= 0."""
    k: cython.Py_ssize_t
    p: cython.double
    total: cython.double
    if x <= 0.0:
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
    if x == _inf or (x - i) * (x - i) > 80.0 * x:  # the lower tail is below exp(-40)
        return 1.0
    p = _poisson(i, x, x)
    total = p
    for k in range(i, 0, -1):
        p *= k / x
        total += p
        if p < 1e-18:
            break
    return 1.0 - total


@cython.cfunc
@cython.exceptval(check=False)
def _gain(
    i: cython.Py_ssize_t,
    x: cython.double,
    alpha: cython.double,
    gamma: cython.double,
    precision: cython.double,
) -> cython.double:
    """D_i(x) for x > 0 and gamma > 0, by the first of three forms that has no cancellation.

    a x < i + 6: the Taylor series, all terms positive, with
    c_j = a^j - gamma^j built without a subtraction. Else the plain difference,
    if it loses at most one bit. Else complements (1 - R), whose bracket cannot
    cancel then.
    """
    j: cython.Py_ssize_t
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
    return bracket + _complement(i, gx, ax, ratio)


@cython.cfunc
@cython.exceptval(check=False)
def _complement(
    i: cython.Py_ssize_t, gx: cython.double, ax: cython.double, ratio: cython.double
) -> cython.double:
    """exp(-a x) sum_{k<=i} (gamma x)^k/k! [1 - (gamma/a)^(i+1-k)], summed from k = i down."""
    k: cython.Py_ssize_t
    p: cython.double = _poisson(i, gx, ax)
    total: cython.double = -expm1(-ratio) * p
    for k in range(i, 0, -1):
        p *= k / gx
        total += -expm1(-(i + 2 - k) * ratio) * p
        if k < gx and p <= 1e-18 * total:  # also if all underflows
            break
    return total


# ---------------------------------------------------------------------------
# One page: value, interval, fresh time of a threshold


@cython.cfunc
@cython.exceptval(check=False)
def _last_term(gamma: cython.double, longest: cython.double) -> cython.double:
    """An i beyond which a Poisson number with mean gamma * longest does not come."""
    mean: cython.double = gamma * longest
    return mean + 8.0 * sqrt(mean) + 25.0


@cython.cfunc
@cython.exceptval(check=False)
def _settled_terms(
    limit: cython.Py_ssize_t,
    alpha: cython.double,
    gamma: cython.double,
    beta: cython.double,
    longest: cython.double,
    gap: cython.double,
) -> cython.Py_ssize_t:
    """How many first terms, at most `limit`, have both residuals 1 to the last digit and nothing to cancel.

    They add up in closed form. Term i has x = longest - i beta; wanted are
    R^i(gamma x) = 1 (lower Poisson tail below exp(-40)) and
    alpha x - (i+1) ln(a/gamma) > gap. Both fail from some i on: bisection.
    """
    low: cython.Py_ssize_t = 0
    high: cython.Py_ssize_t = limit
    middle: cython.Py_ssize_t
    if longest < 32.0 * beta or gamma * longest < 100.0:
        return 0
    if limit >= _ALL_TERMS:
        high = _MANY
    if longest < high * beta:
        high = cython.cast(cython.Py_ssize_t, longest / beta)
    ratio: cython.double = log1p(alpha / gamma)
    while low < high:
        middle = (low + high + 1) // 2
        x: cython.double = longest - (middle - 1) * beta
        beyond: cython.double = gamma * x - (middle - 1)
        settled: cython.bint = beyond > 0.0 and beyond * beyond > 80.0 * gamma * x
        if settled and alpha * x - middle * ratio > gap:
            low = middle
        else:
            high = middle - 1
    return low


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _many(c: cython.double) -> cython.double:
    """The threshold, in units of beta, from which psi is a straight line to the last digit; c = gamma beta.

    psi has the Laplace transform 1/(s (s + gamma (1 - exp(-s beta)))). Its pole
    at 0 gives (iota + gamma beta^2 / (2 (1+c))) / (1+c); the next ones, at
    s beta = W_k(c e^c) - c (Lambert), decay like exp(-1.5 iota/beta) for c = 1,
    faster for smaller c, and like exp(-2 pi^2 iota / (c^2 beta)) for large c.
    """
    return 30.0 + 2.0 * c * c


@cython.cfunc
@cython.inline
@cython.exceptval(check=False)
def _line(c: cython.double, beta: cython.double, threshold: cython.double) -> cython.double:
    """psi beyond `_many`."""
    return (threshold + 0.5 * c * beta / (1.0 + c)) / (1.0 + c)


@cython.cfunc
@cython.exceptval(check=False)
def _value_of_signals(
    mu: cython.double, gamma: cython.double, b: cython.double, n: cython.double
) -> cython.double:
    """V_n of a page that never changes silently: (mu/gamma) sum_{i<n} (q^i - q^n).

    That is mu/(gamma b) [R^1(x) + (g - 1) (1 - e^-x)] with x = n b and
    g = b / (1 - e^-b), where nothing cancels.
    """
    excess: cython.double
    if b < 0.02:
        excess = b * (0.5 + b * (1.0 / 12.0 - b * b / 720.0))
    else:
        excess = (b + expm1(-b)) / -expm1(-b)
    return mu / (gamma * b) * (residual(1, n * b) - excess * expm1(-n * b))


@cython.ccall
@cython.exceptval(check=False)
def greedy_of(mu: cython.double, delta: cython.double, elapsed: cython.double) -> cython.double:
    """V_GREEDY = (mu/Delta) R^1(Delta tau)."""
    if delta <= 0.0 or elapsed <= 0.0:
        return 0.0
    return mu / delta * residual(1, delta * elapsed)


@cython.cfunc
@cython.exceptval(check=False)
def _no_signal_value(
    mu: cython.double,
    delta: cython.double,
    alpha: cython.double,
    gamma: cython.double,
    elapsed: cython.double,
) -> cython.double:
    """The term i = 0: the value while no signal has come, if one would be believed."""
    if gamma < 1e-200:
        return greedy_of(mu, delta, elapsed)
    return mu / gamma * _gain(0, elapsed, alpha, gamma, _EXACT) if elapsed > 0.0 else 0.0


@cython.cfunc
@cython.exceptval(check=False)
def _ncis_of(
    terms: cython.Py_ssize_t,
    mu: cython.double,
    delta: cython.double,
    alpha: cython.double,
    gamma: cython.double,
    nu: cython.double,
    b: cython.double,
    elapsed: cython.double,
    n: cython.Py_ssize_t,
    precision: cython.double,
) -> cython.double:
    """V of the state (elapsed, n), up to `terms` terms, to a relative `precision`."""
    i: cython.Py_ssize_t
    if delta <= 0.0:
        return 0.0
    if b < 1e-9:
        return greedy_of(mu, delta, elapsed)
    if elapsed == _inf:
        return ceiling_of(_NCIS, terms, mu, delta, alpha, gamma, nu, b) if alpha > 0.0 else mu / delta
    if nu <= 0.0 or b > 700.0:
        return mu / delta if n > 0 else _no_signal_value(mu, delta, alpha, gamma, elapsed)
    if gamma < 1e-200:
        return greedy_of(mu, delta, elapsed)
    if alpha < 1e-9 * gamma:
        return min(_cut_value_of_signals(terms, mu, gamma, b, n), mu / delta)
    beta: cython.double = b / alpha
    q: cython.double = nu / gamma
    step: cython.double = nu / (delta + nu)
    power: cython.double = 1.0
    rest: cython.double = 1.0 / delta  # bounds the sum of all terms still to come
    total: cython.double = 0.0
    longest: cython.double = elapsed + n * beta
    c: cython.double = gamma * beta
    if terms >= _ALL_TERMS and longest > beta * _many(c):
        missing: cython.double = exp(-alpha * longest) * (1.0 / (alpha * (1.0 + c)) + _line(c, beta, longest))
        if 2.0 * delta * missing < 1.0:
            return mu * (1.0 / delta - missing)
    last: cython.double = _last_term(gamma, longest)
    first: cython.Py_ssize_t = _settled_terms(terms, alpha, gamma, beta, longest, 1.0)
    if first > 0:
        fallen: cython.double = first * log1p(delta / nu)
        total = -expm1(-fallen) / delta - first * exp(-alpha * longest) / gamma
        power = exp(-first * b)
        rest *= exp(-fallen)
    for i in range(first, terms if terms < _ALL_TERMS else first + _ALL_TERMS):
        x: cython.double = elapsed + (n - i) * beta
        if x <= 0.0 or rest < precision * total or i > last:
            break
        term: cython.double = power * _gain(i, x, alpha, gamma, precision) / gamma
        total += term
        if term < precision * total and i > (alpha + gamma) * x:
            break  # from there on the terms fall faster than geometrically
        power *= q
        rest *= step
    return mu * total


@cython.cfunc
@cython.exceptval(check=False)
def _cut_value_of_signals(
    terms: cython.Py_ssize_t, mu: cython.double, gamma: cython.double, b: cython.double, n: cython.Py_ssize_t
) -> cython.double:
    """(mu/gamma) sum_{i < min(n, terms)} (q^i - q^n)."""
    i: cython.Py_ssize_t
    if n <= terms or terms >= _ALL_TERMS:
        return _value_of_signals(mu, gamma, b, n)
    total: cython.double = 0.0
    for i in range(terms):
        total += exp(-i * b) * -expm1(-(n - i) * b)
        if i * b > 40.0:
            break
    return mu / gamma * total


@cython.ccall
@cython.exceptval(check=False)
def plain_kind(
    kind: cython.Py_ssize_t,
    delta: cython.double,
    alpha: cython.double,
    gamma: cython.double,
    b: cython.double,
) -> cython.Py_ssize_t:
    """The kind that CIS+ uses for this page: CIS if precision > 0.7 and recall > 0.6, else GREEDY."""
    if kind != _CIS_PLUS:
        return kind
    trusted: cython.bint = gamma > 0.0 and -expm1(-b) > 0.7 and delta - alpha > 0.6 * delta
    return _CIS if trusted else _GREEDY


@cython.ccall
@cython.exceptval(check=False)
def value_of(
    kind: cython.Py_ssize_t,
    terms: cython.Py_ssize_t,
    mu: cython.double,
    delta: cython.double,
    alpha: cython.double,
    gamma: cython.double,
    nu: cython.double,
    b: cython.double,
    elapsed: cython.double,
    n: cython.Py_ssize_t,
) -> cython.double:
    """The crawl value of the state (elapsed, n) by (kind, terms) of `kind_of`."""
    if kind == _CIS_PLUS:
        kind = plain_kind(kind, delta, alpha, gamma, b)
    if kind == _NCIS:
        return _ncis_of(terms, mu, delta, alpha, gamma, nu, b, elapsed, n, _EXACT)
    if kind == _GREEDY or delta <= 0.0:
        return greedy_of(mu, delta, elapsed)
    if n > 0:
        return mu / delta
    if kind == _CIS_NU0:
        gamma = delta - alpha
    return _no_signal_value(mu, delta, alpha, gamma, elapsed)


@cython.ccall
@cython.exceptval(check=False)
def interval_of(
    terms: cython.Py_ssize_t,
    alpha: cython.double,
    gamma: cython.double,
    nu: cython.double,
    b: cython.double,
    threshold: cython.double,
) -> cython.double:
    """psi: the expected interval under `threshold` (a number of signals if alpha is 0), its first terms."""
    i: cython.Py_ssize_t
    if gamma < 1e-200 or b < 1e-9:
        return threshold
    if alpha < 1e-9 * gamma:
        return threshold / gamma
    if nu <= 0.0 or b > 700.0:
        return residual(0, gamma * threshold) / gamma
    if threshold == _inf:
        return _inf
    beta: cython.double = b / alpha
    if terms >= _ALL_TERMS and threshold > beta * _many(gamma * beta):
        return _line(gamma * beta, beta, threshold)
    last: cython.double = _last_term(gamma, threshold)
    first: cython.Py_ssize_t = _settled_terms(terms, alpha, gamma, beta, threshold, -_inf)
    total: cython.double = first
    for i in range(first, terms if terms < _ALL_TERMS else first + _ALL_TERMS):
        x: cython.double = threshold - i * beta
        if x <= 0.0 or i > last:
            break
        term: cython.double = residual(i, gamma * x)
        total += term
        if term < 1e-17 * total:
            break
    return total / gamma


@cython.ccall
@cython.exceptval(check=False)
def fresh_time_of(
    delta: cython.double,
    alpha: cython.double,
    gamma: cython.double,
    nu: cython.double,
    b: cython.double,
    threshold: cython.double,
) -> cython.double:
    """w: the expected fresh time of an interval under `threshold`; 1/Delta if it is infinite."""
    i: cython.Py_ssize_t
    if delta <= 0.0:
        return interval_of(_ALL_TERMS, alpha, gamma, nu, b, threshold)
    if threshold == _inf:
        return 1.0 / delta
    if gamma < 1e-200 or b < 1e-9:
        return residual(0, delta * threshold) / delta
    if alpha < 1e-9 * gamma:
        return residual(0, threshold * b) / delta if threshold > 0.0 else 0.0
    a: cython.double = alpha + gamma
    if nu <= 0.0 or b > 700.0:
        return residual(0, a * threshold) / a
    beta: cython.double = b / alpha
    if threshold > beta * _many(gamma * beta):
        missing: cython.double = exp(-alpha * threshold) / (alpha * (1.0 + gamma * beta))
        if 2.0 * delta * missing < 1.0:
            return 1.0 / delta - missing
    step: cython.double = nu / a
    first: cython.Py_ssize_t = _settled_terms(_ALL_TERMS, alpha, gamma, beta, threshold, -_inf)
    fallen: cython.double = first * log1p(delta / nu)
    power: cython.double = exp(-fallen) / a
    total: cython.double = -expm1(-fallen) / delta
    for i in range(first, first + _ALL_TERMS):
        x: cython.double = threshold - i * beta
        if x <= 0.0:
            break
        term: cython.double = power * residual(i, a * x)
        total += term
        if term < 1e-17 * total:
            break
        power *= step
    return total


# ---------------------------------------------------------------------------
# The inverse of V


@cython.ccall
@cython.exceptval(check=False)
def ceiling_of(
    kind: cython.Py_ssize_t,
    terms: cython.Py_ssize_t,
    mu: cython.double,
    delta: cython.double,
    alpha: cython.double,
    gamma: cython.double,
    nu: cython.double,
    b: cython.double,
) -> cython.double:
    """What the value tends to as time passes (and, if alpha is 0, signals come); 0 if delta is 0.

    mu/Delta, but for GREEDY-CIS without a signal mu/(alpha + gamma), and for
    APPROX-J (mu/Delta)(1 - (nu/(Delta + nu))^J).
    """
    if delta <= 0.0:
        return 0.0
    if kind == _CIS and gamma > 0.0:
        return mu / (alpha + gamma)
    if kind == _NCIS and terms < _ALL_TERMS and nu > 0.0 and b >= 1e-9:
        return mu / delta * -expm1(-terms * log1p(delta / nu))
    return mu / delta


@cython.cfunc
@cython.exceptval(check=False)
def _signals_needed(
    mu: cython.double, gamma: cython.double, b: cython.double, level: cython.double
) -> cython.double:
    """The smallest n with V_n >= level, for a level below mu/Delta; by bisection."""
    n: cython.Py_ssize_t
    low: cython.Py_ssize_t = 0
    high: cython.Py_ssize_t = 1
    while high < _MANY and _value_of_signals(mu, gamma, b, high) < level:
        low = high
        high *= 2
    while high - low > 1:
        n = (low + high) // 2
        if _value_of_signals(mu, gamma, b, n) >= level:
            high = n
        else:
            low = n
    return high


@cython.ccall
@cython.exceptval(check=False)
def threshold_of(
    kind: cython.Py_ssize_t,
    terms: cython.Py_ssize_t,
    mu: cython.double,
    delta: cython.double,
    alpha: cython.double,
    gamma: cython.double,
    nu: cython.double,
    b: cython.double,
    level: cython.double,
    guess: cython.double,
    tolerance: cython.double,
) -> cython.double:
    """The effective elapsed time at which the value reaches `level`; infinite if it never does.

    For a page with alpha = 0 under NCIS it is a number of signals instead. A
    positive `guess` (such as the threshold of a nearby level) saves steps.
    Newton with V' = mu alpha exp(-alpha iota) psi on sqrt(-ln(1 - V/ceiling)),
    which is nearly linear at both ends, kept in a bracket; `tolerance` is
    relative. A Newton step leaves an error of about its own square, so the last
    one is not followed by another evaluation.
    """
    _step: cython.Py_ssize_t
    newton: cython.bint
    if level <= 0.0:
        return 0.0
    if kind == _CIS_PLUS:
        kind = plain_kind(kind, delta, alpha, gamma, b)
    top: cython.double = ceiling_of(kind, terms, mu, delta, alpha, gamma, nu, b)
    if level >= top:
        return _inf
    if kind == _GREEDY:
        gamma = 0.0
        alpha = delta
    elif kind == _CIS_NU0:
        gamma = delta - alpha
    if kind != _NCIS:
        if alpha < 1e-9 * gamma:
            return _inf
        nu = 0.0
        b = _inf
    if gamma > 0.0 and b >= 1e-9 and alpha < 1e-9 * gamma:
        return _signals_needed(mu, gamma, b, level)
    if gamma < 1e-200 or b < 1e-9:
        alpha = delta
    wanted: cython.double = sqrt(-log1p(-level / top))
    x: cython.double = (
        guess if 0.0 < guess < _inf else wanted * wanted / alpha + wanted * sqrt(2.0 / (alpha * delta))
    )
    low: cython.double = 0.0
    high: cython.double = _inf
    precision: cython.double = max(1e-3 * tolerance, _EXACT)
    for _step in range(200):
        value: cython.double = _ncis_of(terms, mu, delta, alpha, gamma, nu, b, x, 0, precision)
        if value < level:
            low = x
        else:
            high = x
        follow: cython.double = -1.0
        if 0.0 < value < top:
            got: cython.double = sqrt(-log1p(-value / top))
            slope: cython.double = mu * alpha * exp(-alpha * x) * interval_of(terms, alpha, gamma, nu, b, x)
            if got > 0.0 and slope > 0.0:
                follow = x + (wanted - got) * 2.0 * got * (top - value) / slope
        newton = low < follow < high
        if not newton:
            follow = 2.0 * x if high == _inf else 0.5 * (low + high)
        step: cython.double = follow - x
        if step * step <= (0.1 * tolerance if newton else tolerance * tolerance) * x * x:
            return follow
        x = follow
    return x


# ---------------------------------------------------------------------------
# For all pages at once: arrays (m,), the result into `out`


@cython.ccall
def fill_values(
    kind: cython.Py_ssize_t,
    terms: cython.Py_ssize_t,
    mu: cython.const[cython.double][::1],
    delta: cython.const[cython.double][::1],
    alpha: cython.const[cython.double][::1],
    gamma: cython.const[cython.double][::1],
    nu: cython.const[cython.double][::1],
    b: cython.const[cython.double][::1],
    elapsed: cython.const[cython.double][::1],
    signals: cython.const[cython.longlong][::1],
    out: cython.double[::1],
) -> cython.void:
    i: cython.Py_ssize_t
    for i in range(mu.shape[0]):
        out[i] = value_of(
            kind, terms, mu[i], delta[i], alpha[i], gamma[i], nu[i], b[i], elapsed[i], signals[i]
        )


@cython.ccall
def fill_thresholds(
    kind: cython.Py_ssize_t,
    terms: cython.Py_ssize_t,
    mu: cython.const[cython.double][::1],
    delta: cython.const[cython.double][::1],
    alpha: cython.const[cython.double][::1],
    gamma: cython.const[cython.double][::1],
    nu: cython.const[cython.double][::1],
    b: cython.const[cython.double][::1],
    level: cython.double,
    guess: cython.const[cython.double][::1],
    tolerance: cython.double,
    out: cython.double[::1],
) -> cython.void:
    i: cython.Py_ssize_t
    for i in range(mu.shape[0]):
        out[i] = threshold_of(
            kind, terms, mu[i], delta[i], alpha[i], gamma[i], nu[i], b[i], level, guess[i], tolerance
        )


@cython.ccall
def fill_intervals(
    alpha: cython.const[cython.double][::1],
    gamma: cython.const[cython.double][::1],
    nu: cython.const[cython.double][::1],
    b: cython.const[cython.double][::1],
    at: cython.const[cython.double][::1],
    out: cython.double[::1],
) -> cython.void:
    i: cython.Py_ssize_t
    for i in range(alpha.shape[0]):
        out[i] = interval_of(_ALL_TERMS, alpha[i], gamma[i], nu[i], b[i], at[i])


@cython.ccall
def fill_fresh_times(
    delta: cython.const[cython.double][::1],
    alpha: cython.const[cython.double][::1],
    gamma: cython.const[cython.double][::1],
    nu: cython.const[cython.double][::1],
    b: cython.const[cython.double][::1],
    at: cython.const[cython.double][::1],
    out: cython.double[::1],
) -> cython.void:
    i: cython.Py_ssize_t
    for i in range(alpha.shape[0]):
        out[i] = fresh_time_of(delta[i], alpha[i], gamma[i], nu[i], b[i], at[i])
