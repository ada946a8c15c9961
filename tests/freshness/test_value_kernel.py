"""Test the kernel of crawl values over its whole domain, also where it changes from one formula to another."""

import math
from decimal import Decimal, localcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.freshness.params import PageParameters, Pages
from crawler.freshness.residuals import late_gain, late_residual
from crawler.freshness.value_kernel import CERTAIN, GREEDY, NEVER, NOISY, SIGNALS_ONLY
from crawler.lab.refresh.crawl_value import crawl_values, kind_of, parameters_of, thresholds
from tests.forms import interpreted
from tests.freshness import page_values as cv


def _residual(i: int, x: Decimal) -> Decimal:
    term = total = Decimal(1)
    for j in range(1, i + 1):
        term = term * x / j
        total += term
    return 1 - (-x).exp() * total


def _direct(page: PageParameters, elapsed: float, signals: int) -> tuple[float, float, float]:
    """Compute V, psi and w of a state by the published sums, in 90 digits (Busa-Fekete et al., Theorem 1)."""
    with localcontext() as context:
        context.prec = 90
        delta, recall, nu = Decimal(page.change_rate), Decimal(page.recall), Decimal(page.false_rate)
        alpha, gamma = (1 - recall) * delta, recall * delta + nu
        beta = (gamma / nu).ln() / alpha
        psi = w = Decimal(0)
        i = 0
        while (x := Decimal(elapsed) + (signals - i) * beta) > 0:
            psi += _residual(i, gamma * x) / gamma
            w += (nu / (delta + nu)) ** i / (delta + nu) * _residual(i, (alpha + gamma) * x)
            i += 1
        lost = (-alpha * (Decimal(elapsed) + signals * beta)).exp()
        return float(w - lost * psi), float(psi), float(w)


def _state(rng: np.random.Generator, most: float) -> tuple[PageParameters, float, int]:
    """Draw a page with signals of any quality, and a state of the page: an elapsed time and a number of signals.

    The staleness that the time and the signals cause together is at most that of `most` signals.
    """
    while True:
        delta = 10.0 ** rng.uniform(-3, 3)
        recall = rng.choice([rng.random(), 1.0 - 10.0 ** rng.uniform(-12, -1), 10.0 ** rng.uniform(-8, 0)])
        page = PageParameters(1.0, delta, float(recall), delta * 10.0 ** rng.uniform(-4, 3))
        reached = 10.0 ** rng.uniform(-3, math.log10(most))
        if reached * page.signal_weight < 50.0:
            signals = int(rng.choice([0, rng.integers(0, int(reached) + 1)]))
            return page, (reached - signals) * page.signal_time, signals


@pytest.mark.parametrize(("seed", "most", "count"), [(1, 12.0, 80), (2, 60.0, 40), (3, 300.0, 6)])
def test_equals_a_direct_summation_in_90_digits(seed: int, most: float, count: int) -> None:
    rng = np.random.default_rng(seed)
    for _ in range(count):
        page, elapsed, signals = _state(rng, most)
        value, psi, w = _direct(page, elapsed, signals)
        at = elapsed + signals * page.signal_time
        assert cv.crawl_value(page, elapsed, signals) == pytest.approx(value, rel=2e-13), page
        assert cv.expected_interval(page, at) == pytest.approx(psi, rel=2e-13), page
        assert cv.expected_fresh_time(page, at) == pytest.approx(w, rel=2e-13), page


def test_many_worthless_signals_are_not_cut_off() -> None:
    """At nu/Delta = 1e6, the value was once 0.0345 instead of 0.0902, because only 100,000 terms were summed."""
    for nu in (2e5, 1e6, 1e9, 1e12):
        page = PageParameters(1.0, 1.0, 0.5, nu)
        n = round(page.signal_rate * 0.5)
        assert cv.crawl_value(page, 0.5, n) == pytest.approx(cv.crawl_value(page, 0.5, by="greedy"), rel=1e-4)


@pytest.mark.parametrize("nu", [1e2, 1e4, 1e6, 1e12])
@pytest.mark.parametrize("recall", [1e-6, 0.3, 0.9, 0.99])
def test_the_fluid_limit_is_off_by_at_most_b(recall: float, nu: float) -> None:
    """Test that |V - (mu/Delta) R^1(u)| <= (mu/Delta) b.

    So if b is small, the value is nearly that of GREEDY at staleness u.
    """
    page = PageParameters(1.0, 1.0, recall, nu)
    for u in (1e-3, 0.1, 0.7, 3.0, 20.0):
        fluid = -math.expm1(-u) - u * math.exp(-u)
        assert abs(cv.crawl_value(page, u / page.silent_rate) - fluid) <= page.signal_weight + 1e-14


RECALLS = [0.0, 1e-12, 1e-6, 1e-3, 0.1, 0.5, 0.9, 0.98, 0.997, 1 - 1e-4, 1 - 1e-6, 1 - 1e-9, 1 - 1e-12, 1.0]
FALSE_RATES = [0.0, *(10.0**k for k in range(-12, 13))]
STALENESSES = [0.0, *(10.0 ** (k / 2) for k in range(-24, 7)), math.inf]


@pytest.mark.parametrize("recall", RECALLS)
def test_bounded_and_increasing_over_the_whole_domain(recall: float) -> None:
    """The value has no jump where another formula takes over (sum, settled terms, waves, fluid, ceiling)."""
    for nu in FALSE_RATES:
        page = PageParameters(1.0, 1.0, recall, nu)
        scale = page.silent_rate if page.silent_rate > 0.0 else 1.0
        for n in (0, 1, 7, 300):
            before = 0.0
            for u in STALENESSES:
                value = cv.crawl_value(page, u / scale, n)
                assert before * (1 - 1e-13) <= value <= 1.0 + 1e-14, (page, u, n)
                before = value
                assert value <= cv.crawl_value(page, u / scale, n + 1) * (1 + 1e-13), (page, u, n)


@pytest.mark.parametrize("recall", RECALLS)
def test_the_inverse_over_the_whole_domain(recall: float) -> None:
    for nu in FALSE_RATES:
        page = PageParameters(1.0, 1.0, recall, nu)
        for n in (0, 3):
            before = 0.0
            for level in (1e-12, 1e-6, 1e-3, 0.2, 0.5, 0.97, 0.999, 1 - 1e-9):
                at = cv.wait(page, level, n)
                assert at >= before * (1 - 1e-9), (page, level, n)
                before = at
                if at == 0.0:
                    assert cv.crawl_value(page, 0.0, n) >= level * (1 - 1e-12)
                elif at < math.inf:
                    assert cv.crawl_value(page, at, n) == pytest.approx(level, rel=1e-9, abs=1e-14)
                else:
                    assert cv.crawl_value(page, math.inf, n) <= level * (1 + 1e-12), (page, level, n)
            assert cv.wait(page, 1.0 + 1e-9, n) == math.inf


@given(
    recall=st.floats(0.85, 1 - 1e-7),
    nu=st.floats(-2, 8).map(lambda e: 10.0**e),
    u=st.floats(-2, 1).map(lambda e: 10.0**e),
)
@settings(max_examples=80, deadline=None)
def test_psi_solves_its_equation(recall: float, nu: float, u: float) -> None:
    """psi' = 1 - gamma (psi(iota) - psi(iota - beta)) also holds where the sum has too many terms to be added up."""
    page = PageParameters(1.0, 1.0, recall, nu)
    at, beta, gamma = u / page.silent_rate, page.signal_time, page.signal_rate
    step = 1e-4 * min(beta, 1.0 / gamma, at)
    rise = (cv.expected_interval(page, at + step) - cv.expected_interval(page, at - step)) / (2 * step)
    behind = cv.expected_interval(page, at - beta) if at > beta else 0.0
    reached = cv.expected_interval(page, at)
    noise = 1e-15 * max(reached / step, gamma * reached, at / step)
    assert rise == pytest.approx(1.0 - gamma * (reached - behind), rel=1e-6, abs=1e-6 + 10.0 * noise)


@given(
    recall=st.floats(0.5, 1 - 1e-7),
    nu=st.floats(-2, 8).map(lambda e: 10.0**e),
    u=st.floats(-2, 1).map(lambda e: 10.0**e),
)
@settings(max_examples=80, deadline=None)
def test_v_rises_by_psi(recall: float, nu: float, u: float) -> None:
    """Differences show that V' = mu alpha exp(-u) psi.

    Together with the equation of psi, this proves that V is right even where it is not computed as a sum.
    """
    page = PageParameters(1.0, 1.0, recall, nu)
    at = u / page.silent_rate
    step = 1e-4 * at
    low, high = cv.crawl_value(page, at - step), cv.crawl_value(page, at + step)
    slope = cv.value_slope(page, at)
    kink = page.silent_rate * step * math.exp(-u)  # psi' is at most 1
    assert (high - low) / (2 * step) == pytest.approx(slope, rel=1e-6, abs=kink + 1e-15 * high / step)


@pytest.mark.parametrize("nu", [1e-6, 0.1, 3.0, 1e3, 1e7])
@pytest.mark.parametrize("recall", [0.3, 0.9, 0.99, 0.9999, 1 - 1e-8])
def test_no_step_where_the_form_changes(recall: float, nu: float) -> None:
    """For few and for many signals, second differences stay within the bound V'' <= mu alpha, because psi' <= 1."""
    page = PageParameters(1.0, 1.0, recall, nu)
    for s in np.geomspace(2.0, 1e6, 200):
        if s * page.signal_weight > 50.0:
            break
        at = s * page.signal_time
        low, middle, high = (cv.crawl_value(page, at * (1.0 + k * 1e-7)) for k in (-1, 0, 1))
        bend = page.silent_rate * (at * 1e-7) ** 2
        assert abs(high - 2.0 * middle + low) <= 2.0 * bend + 1e-13 * middle, s


def test_the_form_follows_from_the_parameters() -> None:
    def form(*given: float, by: str = "ncis") -> int:
        return parameters_of(PageParameters(1.0, *given), by=by).form

    assert form(0.5) == form(0.5, 0.0, 3.0) == form(0.5, 0.5, 3.0, by="greedy") == GREEDY
    assert form(0.5, 0.5, 3.0) == form(0.5, 1 - 1e-12, 3.0) == form(0.5, 1e-300, 3.0) == NOISY
    assert form(0.5, 0.5, 0.0) == form(0.5, 0.5, 1e-308) == form(0.5, 0.5, 3.0, by="cis") == CERTAIN
    assert form(0.5, 1.0, 3.0) == form(0.5, 1.0, 0.0) == SIGNALS_ONLY
    assert form(0.0, 0.5, 3.0) == NEVER
    assert form(0.5, 0.9, 0.01, by="cis+") == CERTAIN and form(0.5, 0.3, 0.01, by="cis+") == GREEDY


def test_limits_are_reached_without_a_step() -> None:
    """The value at recall 1, precision 1 or recall 0 is nearly equal to the value just beside this limit."""
    for n in (0, 1, 4):
        for elapsed in (0.0, 0.3, 2.0):
            nearly = cv.crawl_value(PageParameters(1.0, 1.0, 1 - 1e-13, 0.4), elapsed, n)
            assert nearly == pytest.approx(
                cv.crawl_value(PageParameters(1.0, 1.0, 1.0, 0.4), elapsed, n), rel=1e-9, abs=1e-9
            )
            nearly = cv.crawl_value(PageParameters(1.0, 1.0, 0.5, 1e-303), elapsed, n)
            assert nearly == pytest.approx(
                cv.crawl_value(PageParameters(1.0, 1.0, 0.5, 0.0), elapsed, n), rel=1e-9, abs=1e-300
            )
            nearly = cv.crawl_value(PageParameters(1.0, 1.0, 1e-13, 0.4), elapsed, n)
            assert nearly == pytest.approx(
                cv.crawl_value(PageParameters(1.0, 1.0, 0.0, 0.4), elapsed, n), rel=1e-9, abs=1e-9
            )


def test_the_value_after_infinite_time_without_a_trusted_signal_is_a_number() -> None:
    """The value of kind `cis` at alpha = 0 and infinite elapsed time was once nan."""
    for by in ("cis", "cis-nu0", "cis+", "ncis"):
        assert cv.crawl_value(PageParameters(1.0, 1.0, 1.0, 0.3), math.inf, by=by) in (0.0, 1.0)
        assert cv.crawl_value(PageParameters(1.0, 1.0, 1.0, 0.3), 5.0, by="cis") == 0.0
        assert cv.wait(PageParameters(1.0, 1.0, 1.0, 0.3), 0.5, by="cis") == math.inf


def test_values_at_fractions_of_signals_lie_between_those_of_whole_numbers() -> None:
    """Signals of different sources have different weights, so a page can have 2.5 signals of the mean weight."""
    page = PageParameters(1.0, 0.5, 0.6, 0.3)
    values = [cv.crawl_value(page, 0.7, n) for n in (2, 2.25, 2.5, 3)]
    assert values == sorted(values) and len(set(values)) == 4
    assert cv.crawl_value(page, 0.7 + 0.5 * page.signal_time, 2) == pytest.approx(values[2], rel=1e-14)


def test_waiting_with_signals_is_waiting_less() -> None:
    page = PageParameters(1.0, 0.5, 0.6, 0.3)
    alone = cv.wait(page, 0.9)
    assert alone == cv.threshold(page, 0.9)
    assert cv.wait(page, 0.9, 1) == pytest.approx(alone - page.signal_time)
    assert cv.wait(page, 0.9, 50) == 0.0
    perfect = PageParameters(1.0, 0.5, 0.6, 0.0)
    assert cv.wait(perfect, 0.9, 1) == 0.0 and cv.wait(perfect, 2.1, 1) == math.inf
    told = PageParameters(1.0, 0.5, 1.0, 0.3)
    assert cv.wait(told, 0.9, 0) == math.inf and cv.wait(told, 0.9, 9) == 0.0


BAD = [math.nan, -1.0, math.inf, -math.inf]


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("field", ["importance", "change_rate", "recall", "false_rate"])
def test_invalid_rates_are_refused(field: str, bad: float) -> None:
    good = {"importance": 1.0, "change_rate": 0.5, "recall": 0.5, "false_rate": 0.3}
    with pytest.raises(ValueError, match=field):
        PageParameters(**(good | {field: bad}))
    columns = {name: np.array([value, value]) for name, value in good.items()}
    columns[field][1] = bad
    with pytest.raises(ValueError, match=f"{field} of page 1"):
        Pages(**columns)


@pytest.mark.parametrize("precision", [math.nan, 0.0, -0.1, 1.1])
def test_an_invalid_precision_is_refused(precision: float) -> None:
    with pytest.raises(ValueError, match="precision"):
        Pages.from_quality(*(np.array([x]) for x in (1.0, 0.5, precision, 0.5)))


@pytest.mark.parametrize("bad", [math.nan, -1.0])
def test_invalid_states_are_refused(bad: float) -> None:
    page = PageParameters(1.0, 0.5, 0.5, 0.3)
    for elapsed, signals in ((bad, 0.0), (1.0, bad)):
        with pytest.raises(ValueError, match="must be"):
            crawl_values(Pages.of([page]), elapsed, signals)
    with pytest.raises(ValueError, match="level"):
        thresholds(Pages.of([page]), math.nan)


def test_the_interpreted_kernel_gives_the_same() -> None:
    kernel = interpreted("crawler.freshness.value_kernel")
    rng = np.random.default_rng(4)
    for most in (12.0, 300.0, 1e5):
        for _ in range(20):
            page, elapsed, signals = _state(rng, most)
            slow, quick = kernel.Parameters(), parameters_of(page)
            slow.assign(
                *kind_of("ncis"), 1.0, page.change_rate, page.silent_rate, page.signal_rate, page.false_rate,
                page.signal_weight,
            )  # fmt: skip
            assert slow.value(elapsed, signals) == pytest.approx(quick.value(elapsed, signals), rel=1e-13)
            level = 0.6 * page.ceiling
            assert slow.wait(level, signals, 0.0, 1e-9) == pytest.approx(
                quick.wait(level, signals, 0.0, 1e-9), rel=1e-6
            )


@pytest.mark.parametrize("i", [300, 900])
@pytest.mark.parametrize("deviations", [-2.0, -0.5, 0.0, 0.7, 3.0])
def test_late_terms_equal_their_sums_in_90_digits(i: int, deviations: float) -> None:
    """R^i and D_i are computed by expansion, and must equal their sums.

    D_i is (gamma/a)^(i+1) R^i(a x) - exp(-alpha x) R^i(gamma x).
    """
    y = i + 1 + deviations * math.sqrt(i)
    alpha = 0.02 / math.sqrt(i)  # in this test gamma is 1
    with localcontext() as context:
        context.prec = 90
        x, a = Decimal(y), 1 + Decimal(alpha)
        residual = float(_residual(i, x))
        gain = float((1 / a) ** (i + 1) * _residual(i, a * x) - (-Decimal(alpha) * x).exp() * _residual(i, x))
    assert late_residual(float(i), y) == pytest.approx(residual, rel=1e-11)
    assert late_gain(float(i), y, alpha, 1.0) == pytest.approx(gain, rel=5e-7)
