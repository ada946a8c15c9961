# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False
"""Computes the crawl value, which is the gain of one more crawl of a page, with full precision for all parameters.

Theory. `freshness/README.md`, "Symbols", defines V as a difference of two sums over all i with x_i > 0, where
x_i = iota - i beta. If the staleness u is small, the difference of the two sums loses all digits. Besides, the
sums have u/b terms, and u/b may be arbitrarily large. So:

* A small number of terms is summed one by one (`_sum`): V = mu/gamma sum_i q^i D_i(x_i), with

      D_i(x) = (gamma/a)^(i+1) R^i(a x) - exp(-alpha x) R^i(gamma x)  >= 0,  a = alpha + gamma
             = E[max(0, exp(-alpha T) - exp(-alpha x))],  T the time of signal i + 1 (Erlang).

  D_i is computed from a series or from complements, whichever has no cancellation (`gain`),
  and for i in the hundreds from an expansion of the incomplete gamma function (`late_gain`).
* In the first terms, the residuals R^i are so close to 1 that they are rounded to 1. These terms are settled:
  their sum has a closed form (`settled`).
* A large number of terms is computed by renewal theory (`_renew`). In units of beta, s = iota/beta and c = gamma beta,
  psi has the Laplace transform 1/(z (z + c (1 - exp(-z)))). Its double pole at 0 gives the fluid limit:

      psi ~ beta (s + c/(2(1+c))) / (1+c),    V ~ mu/(alpha (1+c)) R^1(u)    (b -> 0: GREEDY of u)

  The code also adds the terms of V of order b and b^2. The rest of V comes from the other poles z_k, which
  solve z + ln(1 + z/c) = 2 pi i k for k = 1, 2, ... Each pole adds a wave that decays like exp(Re z_k s).

The sum of terms and the sum of waves are dual, like the two series of a theta function. Where one of these
two sums needs many terms, the other needs few. The sum of waves needs about c / (2 pi) sqrt(exp(80/s) - 1)
waves. The sum of terms needs about 18 sqrt(s) / (1+c) terms in addition to the settled terms. So the time for
a value is bounded for any nu/Delta. Nothing overflows, because exp(+x), x^i and i! are never computed alone.

In the limits, the value has a simpler form (`freshness/README.md`, "Values by name and their edges"):

    GREEDY        no signals, or worthless signals (b = 0): only time matters
    CERTAIN       nu = 0 (b > 700): one term
    SIGNALS_ONLY  lambda = 1: the threshold is a number of signals
    NEVER         Delta = 0, or so small that mu/Delta overflows

The file is Cython in pure-Python mode. It is compiled if a C compiler was available, and otherwise
interpreted. Other compiled modules use `Parameters`, which accepts raw numbers unchecked;
`lab/refresh/crawl_value.py` accepts `Pages`, which are checked.

Relative errors are a few 1e-15 in sums and 1e-14 elsewhere.
"""

import cython
from cython.cimports.crawler.freshness.residuals import (
    below_half,
    converged_terms,
    gain,
    late_gain,
    late_residual,
    residual,
    settled,
    waves,
)
from cython.cimports.libc.math import atan2, cos, exp, expm1, floor, log, log1p, sin, sqrt

# Constants of the compiled code; other modules use KINDS and ALL_TERMS.
_GREEDY = cython.declare(cython.Py_ssize_t, 0)
_CIS = cython.declare(cython.Py_ssize_t, 1)
# assumes that no signal is false (nu = 0), so that gamma is lambda Delta
_CIS_NU0 = cython.declare(cython.Py_ssize_t, 2)
_NCIS = cython.declare(cython.Py_ssize_t, 3)
_CIS_PLUS = cython.declare(cython.Py_ssize_t, 4)

_FORM_GREEDY = cython.declare(cython.Py_ssize_t, 0)
_FORM_NOISY = cython.declare(cython.Py_ssize_t, 1)
_FORM_CERTAIN = cython.declare(cython.Py_ssize_t, 2)
_FORM_SIGNALS_ONLY = cython.declare(cython.Py_ssize_t, 3)
_FORM_NEVER = cython.declare(cython.Py_ssize_t, 4)

_ALL_TERMS = cython.declare(cython.Py_ssize_t, 1 << 40)
# the largest J for which the terms of APPROX-J are summed one by one
_CUT_TERMS_MAX = cython.declare(cython.Py_ssize_t, 64)
_inf = cython.declare(cython.double, float("inf"))
_PI = cython.declare(cython.double, 3.141592653589793)
_EXACT = cython.declare(cython.double, 1e-17)  # sums stop when the rest is smaller than the last digit

# A signal of this weight is certain: the probability that it is false, exp(-700), is near the smallest
# double.
_CERTAIN_WEIGHT = cython.declare(cython.double, 700.0)
# With a lower rate than this, gamma x would be denormal. At 1e-18 Hz, no page gets a signal within the age of
# the universe.
_NO_SIGNAL_RATE = cython.declare(cython.double, 1e-200)
# A value is below its ceiling by at most (1 + u + b) exp(-u) times the ceiling. Here, u is the staleness, and b
# the weight of a signal. If u is at least this number, the difference is negligible.
_STALE = cython.declare(cython.double, 60.0)
# Up to this number of signals, terms are summed one by one; computing a term takes about half as long as
# computing a wave.
_FEW_SIGNALS = cython.declare(cython.double, 12.0)
# With more signals than `_FEW_SIGNALS`, waves are summed instead of terms, if at most `_WAVES_MAX` waves are
# needed.
_WAVES_MAX = cython.declare(cython.double, 24.0)
# From this index on, the incomplete gamma functions are computed by their expansion, which is correct to
# 1e-13.
_LATE = cython.declare(cython.double, 300.0)

KINDS = {"greedy": _GREEDY, "cis": _CIS, "cis-nu0": _CIS_NU0, "ncis": _NCIS, "cis+": _CIS_PLUS}
ALL_TERMS = int(_ALL_TERMS)
CUT_TERMS_MAX = int(_CUT_TERMS_MAX)
GREEDY, NOISY, CERTAIN = int(_FORM_GREEDY), int(_FORM_NOISY), int(_FORM_CERTAIN)
SIGNALS_ONLY, NEVER = int(_FORM_SIGNALS_ONLY), int(_FORM_NEVER)


@cython.cfunc
@cython.exceptval(check=False)
def _gained_by_signals(
    gamma: cython.double, b: cython.double, n: cython.double, terms: cython.Py_ssize_t
) -> cython.double:
    """Return V_n / mu of a page without silent changes: (1/gamma) sum_{i < min(n, terms)} (q^i - q^n)."""
    i: cython.Py_ssize_t
    if not n > 0.0:
        return 0.0
    if b > _CERTAIN_WEIGHT:
        return 1.0 / gamma
    if n <= terms or terms >= _ALL_TERMS:
        if n * b > _CERTAIN_WEIGHT:
            return -1.0 / (gamma * expm1(-b))
        return settled(n, n * b, 0.0, b) / gamma
    total: cython.double = 0.0
    for i in range(terms):
        total += exp(-i * b) * -expm1(-(n - i) * b)
    return total / gamma


@cython.cclass
class Parameters:
    """The parameters of one page for one kind of value, and all numbers that are computed from these parameters.

    `assign` replaces the page's numbers, so one object can be used for all pages in turn. Arguments are not
    checked: rates must be finite and not negative. `form` is the limiting case that applies (see the module's
    docstring), or NOISY if none applies. `ceiling` is mu/Delta. `signal_time` is beta, which is infinite in
    the forms CERTAIN and SIGNALS_ONLY, and 0 in GREEDY.

    A state is (elapsed, signals). `signals` may be fractional, so that signals of several sources can be
    weighted.
    """

    def __init__(self) -> None:
        self.assign(_NCIS, _ALL_TERMS, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0)

    def assign(
        self,
        kind: cython.Py_ssize_t,
        terms: cython.Py_ssize_t,
        importance: cython.double,
        change_rate: cython.double,
        silent_rate: cython.double,
        signal_rate: cython.double,
        false_rate: cython.double,
        signal_weight: cython.double,
    ) -> cython.void:
        """Set the raw numbers of a page. `kind` and `terms` are as returned by `kind_of`."""
        self.terms = terms
        self.importance = importance
        self.change_rate = change_rate
        self.silent_rate = silent_rate
        self.signal_rate = signal_rate
        self.false_rate = false_rate
        self.signal_weight = signal_weight
        self._precision = _EXACT
        self.ceiling = importance / change_rate if change_rate > 0.0 else _inf
        if kind == _CIS_PLUS:  # cis+ trusts signals if precision > 0.7 and recall > 0.6
            trusted: cython.bint = (
                -expm1(-signal_weight) > 0.7 and change_rate - silent_rate > 0.6 * change_rate
            )
            kind = _CIS if trusted else _GREEDY
        if kind == _CIS_NU0:
            self.signal_rate = signal_rate = change_rate - silent_rate
        believed: cython.bint = kind != _NCIS or signal_weight > _CERTAIN_WEIGHT
        if self.ceiling == _inf:
            self.form = _FORM_NEVER
            self.ceiling = 0.0
        elif kind == _GREEDY or signal_rate < _NO_SIGNAL_RATE and not believed:
            self.form = _FORM_GREEDY
        elif believed:
            self.form = _FORM_SIGNALS_ONLY if kind == _NCIS and silent_rate <= 0.0 else _FORM_CERTAIN
        elif signal_weight <= 0.0:
            self.form = _FORM_GREEDY
        else:
            self.signal_time = signal_weight / silent_rate if silent_rate > 0.0 else _inf
            self.form = _FORM_SIGNALS_ONLY if self.signal_time == _inf else _FORM_NOISY
        if self.form == _FORM_GREEDY or self.form == _FORM_NEVER:
            self.silent_rate = change_rate
            self.signal_time = 0.0
        elif self.form != _FORM_NOISY:
            self.signal_time = _inf

    def assign_quality(
        self,
        kind: cython.Py_ssize_t,
        terms: cython.Py_ssize_t,
        importance: cython.double,
        change_rate: cython.double,
        precision: cython.double,
        recall: cython.double,
    ) -> cython.void:
        """Call `assign` for a page whose signals have this precision and recall.

        If either is 0, the page has no signals.
        """
        signalled: cython.double = recall * change_rate
        if precision <= 0.0 or signalled <= 0.0:
            self.assign(kind, terms, importance, change_rate, change_rate, 0.0, 0.0, 0.0)
            return
        silent: cython.double = (1.0 - recall) * change_rate
        weight: cython.double = -log1p(-precision) if precision < 1.0 else _inf
        signal_rate: cython.double = signalled / precision
        self.assign(
            kind, terms, importance, change_rate, silent, signal_rate, signal_rate * (1.0 - precision), weight
        )

    # -- values ------------------------------------------------------------

    def value(self, elapsed: cython.double, signals: cython.double) -> cython.double:
        """Return V, the gain of a crawl now. The last crawl was `elapsed` ago, with `signals` signals since."""
        if self.form == _FORM_GREEDY:
            return self.ceiling * residual(1, self.change_rate * elapsed)
        self._evaluate(elapsed, signals)
        return self.importance * self._gained

    def slope(self, elapsed: cython.double, signals: cython.double) -> cython.double:
        """Return the derivative of V with respect to time, mu alpha exp(-u) psi, at any state that `value` accepts."""
        self._evaluate(elapsed, signals)
        return self._slope(elapsed, signals)

    @cython.cfunc
    @cython.inline
    @cython.exceptval(check=False)
    def _slope(self, elapsed: cython.double, signals: cython.double) -> cython.double:
        """Return `slope` at the state that was evaluated last."""
        if self.form == _FORM_GREEDY or self.form == _FORM_CERTAIN:
            signals = 0.0
        staleness: cython.double = self.silent_rate * elapsed
        if signals > 0.0:
            staleness += signals * self.signal_weight
        return self.importance * self.silent_rate * exp(-staleness) * self._interval

    def interval(self, at: cython.double) -> cython.double:
        """Return psi, the expected interval for the threshold `at`. In SIGNALS_ONLY, `at` is a number of signals."""
        if self.form == _FORM_NEVER:
            return at
        if self.form == _FORM_SIGNALS_ONLY:
            return at / self.signal_rate
        self._evaluate(at, 0.0)
        return self._interval

    def fresh_time(self, at: cython.double) -> cython.double:
        """Return w, the expected time for which a copy is fresh between two crawls at the threshold `at`.

        If `at` is infinite and the signals are noisy, w is 1/Delta.
        """
        if self.form == _FORM_NEVER:
            return at
        if self.form == _FORM_SIGNALS_ONLY:
            return -expm1(-at * self.signal_weight) / self.change_rate if at > 0.0 else 0.0
        self._evaluate(at, 0.0)
        if at == _inf:
            return self._gained
        return self._gained + exp(-self.silent_rate * at) * self._interval

    def _evaluate(self, elapsed: cython.double, signals: cython.double) -> cython.void:
        """Compute V/mu into `_gained` and psi into `_interval`."""
        gamma: cython.double = self.signal_rate
        if self.form == _FORM_GREEDY:
            self._gained = residual(1, self.change_rate * elapsed) / self.change_rate
            self._interval = elapsed
        elif self.form == _FORM_NEVER:
            self._gained = 0.0
            self._interval = elapsed
        elif self.form == _FORM_CERTAIN:
            if signals > 0.0:
                self._gained = 1.0 / self.change_rate
                self._interval = 0.0
            elif self.silent_rate <= 0.0:
                self._gained = 0.0
                self._interval = elapsed
            elif gamma < _NO_SIGNAL_RATE:
                self._gained = residual(1, self.silent_rate * elapsed) / self.silent_rate
                self._interval = elapsed
            else:
                self._gained = gain(0, elapsed, self.silent_rate, gamma, self._precision) / gamma
                self._interval = residual(0, gamma * elapsed) / gamma
        elif self.form == _FORM_SIGNALS_ONLY:
            self._gained = _gained_by_signals(gamma, self.signal_weight, signals, self.terms)
            self._interval = 0.0
        else:
            staleness: cython.double = self.silent_rate * elapsed + signals * self.signal_weight
            s: cython.double = staleness / self.signal_weight
            if not staleness > 0.0:
                self._gained = 0.0
                self._interval = 0.0
            elif staleness == _inf or s == _inf:
                self._gained = 1.0 / self.change_rate
                if self.terms < _ALL_TERMS:
                    self._gained *= -expm1(-self.terms * log1p(self.change_rate / self.false_rate))
                self._interval = _inf
            elif (
                s > _FEW_SIGNALS
                and self.terms >= _ALL_TERMS
                and waves(s, gamma * self.signal_time) <= _WAVES_MAX
            ):
                self._renew(staleness)
            else:
                self._sum(elapsed, signals, staleness)
            if staleness > _STALE and self.terms >= _ALL_TERMS:
                self._gained = 1.0 / self.change_rate

    def _sum(self, elapsed: cython.double, signals: cython.double, staleness: cython.double) -> cython.void:
        """Sum the settled terms by their closed form and the other terms one by one."""
        i: cython.double
        alpha: cython.double = self.silent_rate
        gamma: cython.double = self.signal_rate
        beta: cython.double = self.signal_time
        b: cython.double = self.signal_weight
        precision: cython.double = self._precision
        limit: cython.double = self.terms if self.terms < _ALL_TERMS else _inf
        mean: cython.double = gamma * (elapsed + signals * beta)
        # Poisson counts above this have a negligible probability
        last: cython.double = min(mean + 8.0 * sqrt(mean) + 25.0, limit - 1.0)
        total: cython.double = 0.0
        intervals: cython.double = 0.0
        i = min(converged_terms(staleness / b, gamma * beta), limit)
        ratio: cython.double = log1p(alpha / gamma)
        if i > 0.0:
            total = settled(i, staleness, ratio, b)
            intervals = i
        power: cython.double = exp(-i * b)
        q: cython.double = self.false_rate / gamma
        step: cython.double = self.false_rate / (self.change_rate + self.false_rate)
        # an upper bound of the sum of the later terms
        rest: cython.double = exp(-i * (ratio + b)) * gamma / self.change_rate
        reached: cython.double = 1.0
        while i <= last:
            x: cython.double = elapsed + (signals - i) * beta
            if not x > 0.0:
                break
            gaining: cython.bint = rest > precision * total
            if not gaining and not reached > precision * intervals:
                break
            if gaining:
                term: cython.double = power * (
                    gain(cython.cast(cython.Py_ssize_t, i), x, alpha, gamma, precision)
                    if i < _LATE
                    else late_gain(i, x, alpha, gamma)
                )
                total += term
                if term < precision * total and i > (alpha + gamma) * x:
                    rest = 0.0  # from here on the terms fall faster than geometrically
            reached = (
                residual(cython.cast(cython.Py_ssize_t, i), gamma * x)
                if i < _LATE
                else late_residual(i, gamma * x)
            )
            intervals += reached
            power *= q
            rest *= step
            i += 1.0
        self._gained = total / gamma
        if self.terms >= _ALL_TERMS:
            self._gained = min(self._gained, 1.0 / self.change_rate)
        self._interval = intervals / gamma

    def _renew(self, staleness: cython.double) -> cython.void:
        """Compute the fluid limit, and add those waves (see the module docstring) that are not negligible."""
        k: cython.Py_ssize_t
        b: cython.double = self.signal_weight
        c: cython.double = self.signal_rate * self.signal_time
        s: cython.double = staleness / b
        share: cython.double = c / (1.0 + c)
        beyond: cython.double = below_half(b)
        excess: cython.double = share * (0.5 * b + beyond)
        # the remainder of the double pole
        ripple: cython.double = share * beyond + excess * excess / (1.0 - excess)
        gained: cython.double = residual(1, staleness) - 0.5 * share * b * expm1(-staleness) + ripple
        intervals: cython.double = s + 0.5 * share
        # For the wave k, Newton's method finds the complex number z = p + i r that solves the equation
        # z + ln(1 + z/c) = 2 pi i k.
        angle: cython.double
        for k in range(1, 200):
            angle = 2.0 * _PI * k
            r: cython.double = angle - atan2(angle, c)
            p: cython.double = -0.5 * log1p((angle / c) * (angle / c))
            if p * s < -60.0:
                break
            for _ in range(20):
                # f = z + ln(1 + z/c) - 2 pi i k;  f' = 1 + 1/(c + z)
                ar: cython.double = c + p
                size: cython.double = ar * ar + r * r
                fp: cython.double = p + 0.5 * log(size / (c * c))
                fr: cython.double = r + atan2(r, ar) - angle
                dp: cython.double = 1.0 + ar / size
                dr: cython.double = -r / size
                slope: cython.double = dp * dp + dr * dr
                np: cython.double = (fp * dp + fr * dr) / slope
                nr: cython.double = (fr * dp - fp * dr) / slope
                p -= np
                r -= nr
                # the next step is about the square of this one
                if np * np + nr * nr < 1e-20 * (p * p + r * r):
                    break
            fading: cython.double = exp(p * s)
            # Up to constant factors, the wave of psi is Re[e^(z s) / (z (1 + c + z))], and that of V is
            # e^(-b s) Re[e^(z s) / (z (1 + c + z) (b - z))].
            qp: cython.double = p * (1.0 + c + p) - r * r
            qr: cython.double = r * (1.0 + c + 2.0 * p)
            size = qp * qp + qr * qr
            wave_p: cython.double = fading * (cos(r * s) * qp + sin(r * s) * qr) / size
            wave_r: cython.double = fading * (sin(r * s) * qp - cos(r * s) * qr) / size
            intervals += 2.0 * (1.0 + c) * wave_p
            dp = b - p
            slope = dp * dp + r * r
            gained -= 2.0 * (1.0 + c) * b * b * exp(-staleness) * (wave_p * dp - wave_r * r) / slope
            if fading * (1.0 + c) < 1e-17 * s * sqrt(size):
                break
        alpha: cython.double = self.silent_rate
        self._gained = min(gained / (alpha * (1.0 + c)), 1.0 / self.change_rate)
        self._interval = self.signal_time * intervals / (1.0 + c)

    # -- the inverse -------------------------------------------------------

    def threshold(
        self, level: cython.double, guess: cython.double, tolerance: cython.double
    ) -> cython.double:
        """Return the effective elapsed time at which the value reaches `level`; infinity if it never does.

        In SIGNALS_ONLY, the result is a number of signals instead. A positive `guess` (such as the threshold
        of a nearby level) saves steps. `tolerance` is relative.
        """
        if self.form == _FORM_SIGNALS_ONLY:
            return self._signals_needed(level)
        return self.wait(level, 0.0, guess, tolerance)

    def wait(
        self, level: cython.double, signals: cython.double, guess: cython.double, tolerance: cython.double
    ) -> cython.double:
        """Return the plain (not the effective) time since the last crawl at which V reaches `level`, given `signals`.

        Return 0 if the signals alone reach the level. Return infinity if V never reaches the level without
        further signals.
        """
        if level <= 0.0:
            return 0.0
        if self.form == _FORM_CERTAIN and signals > 0.0:
            return 0.0 if level <= self.ceiling else _inf
        if self.form == _FORM_SIGNALS_ONLY:
            return 0.0 if self.value(0.0, signals) >= level else _inf
        if self.form == _FORM_GREEDY:
            signals = 0.0
        return self._search(level, signals, guess, tolerance)

    def _top(self) -> cython.double:
        """Return the limit of the value as time passes without further signals."""
        top: cython.double = self.ceiling
        if self.form == _FORM_CERTAIN:
            return self.importance / (self.silent_rate + self.signal_rate) if self.silent_rate > 0.0 else 0.0
        if self.form == _FORM_NOISY and self.terms < _ALL_TERMS:
            top *= -expm1(-self.terms * log1p(self.change_rate / self.false_rate))
        return top

    def _search(
        self, level: cython.double, signals: cython.double, guess: cython.double, tolerance: cython.double
    ) -> cython.double:
        """Solve V = level by Newton's method on y = -ln(1 - V/top), or on sqrt(y) if y is at most 1 at the solution.

        In its range, each of the two functions of V is nearly linear in the elapsed time. The iterate is kept
        in a bracket. The error after a Newton step is about the square of the step, so the last step needs no
        further evaluation.
        """
        top: cython.double = self._top()
        if level >= top:
            return _inf
        alpha: cython.double = self.silent_rate
        wanted: cython.double = -log1p(-level / top)
        root: cython.double = sqrt(wanted)
        late: cython.bint = wanted > 1.0
        low: cython.double = 0.0
        high: cython.double = _inf
        x: cython.double = guess
        self._precision = max(1e-3 * tolerance, _EXACT)
        if not 0.0 < guess < _inf:
            x = wanted / alpha + root * sqrt(2.0 / (alpha * self.change_rate))
            if signals > 0.0:
                if self.value(0.0, signals) >= level:
                    self._precision = _EXACT
                    return 0.0
                x = max(x - signals * self.signal_time, 1e-3 * x)
        for _ in range(200):
            self._evaluate(x, signals)
            value: cython.double = self.importance * self._gained
            if abs(value - level) <= 2e-16 * top:
                break
            if value < level:
                low = x
            else:
                high = x
            follow: cython.double = -1.0
            if 0.0 < value < top:
                slope: cython.double = self._slope(x, signals)
                got: cython.double = -log1p(-value / top)
                if slope > 0.0:
                    if late:
                        follow = x + (wanted - got) * (top - value) / slope
                    else:
                        follow = x + (root - sqrt(got)) * 2.0 * sqrt(got) * (top - value) / slope
            newton: cython.bint = low < follow < high
            if not newton:
                if high == _inf:
                    follow = 2.0 * x
                elif low > 0.0:
                    follow = 0.5 * (low + high) if high < 4.0 * low else sqrt(low * high)
                elif high < tolerance * signals * self.signal_time:
                    break  # the value of the signals and the level differ only by a rounding error
                else:
                    follow = 0.1 * high
            step: cython.double = follow - x
            x = follow
            if step * step <= (0.1 * tolerance if newton else tolerance * tolerance) * x * x:
                break
        self._precision = _EXACT
        return x

    def _signals_needed(self, level: cython.double) -> cython.double:
        """Return the smallest n with V_n >= level, by bisection."""
        if level <= 0.0:
            return 0.0
        if level >= self._top():
            return _inf
        low: cython.double = 0.0
        high: cython.double = 1.0
        while high < 1e300 and self.value(0.0, high) < level:
            low = high
            high *= 2.0
        while high - low > 1.0:
            n: cython.double = floor(0.5 * (low + high))
            if n <= low or n >= high:
                break  # above 2^53, neighbouring doubles differ by more than 1
            if self.value(0.0, n) >= level:
                high = n
            else:
                low = n
        return high

    def __repr__(self) -> str:
        form = ("greedy", "noisy", "certain", "signals only", "never")[self.form]
        return (
            f"Parameters({form}, importance {self.importance:.4g}, change rate {self.change_rate:.4g}, "
            f"silent rate {self.silent_rate:.4g}, signal rate {self.signal_rate:.4g}, weight {self.signal_weight:.4g})"
        )
