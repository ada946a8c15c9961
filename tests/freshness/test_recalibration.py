"""Test the correction of P(fresh) by the results of crawls."""

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.freshness.recalibration import (
    COEFFICIENTS,
    FITTED,
    OWN_MAX,
    RHYTHM_CENTRE,
    UNKNOWN,
    WEIGHT_MAX,
    Hearing,
    Recalibration,
    SiteSlope,
)

HEARINGS = st.sampled_from(list(Hearing))
HASTES = st.floats(0.0, 1e9)


@pytest.mark.parametrize("ratio", [0.5, 0.8, 1.0, 1.25, 2.0])
def test_a_constant_error_of_the_rates_is_corrected(ratio: float) -> None:
    """In the model, a page whose predicted freshness is P is fresh with probability P^ratio.

    The correction takes a part of this error for an error that only large hazards have, and it corrects large
    hazards by more than crawls show. So the remaining error is larger for stale pages.
    """
    rng, found = np.random.default_rng(1), Recalibration()
    for hazard in rng.gamma(1.0, 0.6, 6000):
        changed = bool(rng.random() < -math.expm1(-ratio * hazard))
        found.observe(math.exp(-hazard), Hearing.NONE, 1.0, changed)
    for fresh in (0.3, 0.8, 0.95):
        assert found.corrected(fresh, Hearing.NONE) == pytest.approx(
            fresh**ratio, abs=0.045 if fresh > 0.5 else 0.1
        )


def test_hazards_below_the_centre_are_learned_to_be_too_low() -> None:
    """In the model, the true hazard is the square root of the predicted hazard, which is at most 1."""
    rng, found = np.random.default_rng(1), Recalibration()
    for hazard in np.minimum(rng.gamma(0.7, 0.8, 20_000), 1.0):
        changed = bool(rng.random() < -math.expm1(-math.sqrt(hazard)))
        found.observe(math.exp(-hazard), Hearing.NONE, 1.0, changed)
    for fresh in (0.8, 0.9, 0.97):
        true = math.exp(-math.sqrt(-math.log(fresh)))
        assert abs(found.corrected(fresh, Hearing.NONE) - true) < 0.75 * (fresh - true)


def test_new_pages_have_a_factor_of_their_own() -> None:
    """In the model, predictions are right, except that new pages change three times as often."""
    rng, found = np.random.default_rng(1), Recalibration()
    for turn in range(6000):
        new = turn % 2 == 0
        changed = bool(rng.random() > 0.7 ** (3.0 if new else 1.0))
        found.observe(0.7, Hearing.NONE, 1.0, changed, new)
    assert found.corrected(0.7, Hearing.NONE, new=True) == pytest.approx(0.7**3, abs=0.04)
    assert found.corrected(0.7, Hearing.NONE) == pytest.approx(0.7, abs=0.04)


@pytest.mark.parametrize("hearing", [Hearing.UNSAID, Hearing.TOLD])
def test_a_new_page_whose_changes_are_announced_has_no_factor_of_its_own(hearing: Hearing) -> None:
    found = Recalibration()
    assert found.corrected(0.9, Hearing.NONE, new=True) < 0.8
    assert found.corrected(0.9, hearing, new=True) == found.corrected(0.9, hearing)


def test_changes_of_neighbours_count_for_less_than_the_clock_says() -> None:
    """A clock that is twice as fast as the time doubles the hazard; the correction takes back a part of this."""
    found, hazard = Recalibration(), 0.4
    plain = found.corrected(math.exp(-hazard), Hearing.NONE)
    hasty = found.corrected(math.exp(-2.0 * hazard), Hearing.NONE, haste=2.0)
    assert found.corrected(math.exp(-2.0 * hazard), Hearing.NONE) < hasty - 0.05 < plain - 0.05


def test_small_hazards_are_raised_before_crawls_prove_it() -> None:
    """Even before crawls show it, the correction assumes that fresh copies are predicted as too fresh.

    The crawls of this test have hazards of 1, and say little about fresh copies.
    """
    found = Recalibration()
    for changed in (True, False, True):
        found.observe(math.exp(-1.0), Hearing.NONE, 1.0, changed)
    assert found.corrected(math.exp(-0.8), Hearing.NONE) == pytest.approx(math.exp(-0.8), abs=0.01)
    assert 0.95 < found.corrected(0.98, Hearing.NONE) < 0.97


def test_pages_with_and_without_signals_have_factors_of_their_own() -> None:
    """In the model, pages with a source of signals change exactly when a signal arrives.

    Predictions for pages without a source of signals are right.
    """
    found = Recalibration()
    rng = np.random.default_rng(3)
    for _ in range(1000):
        found.observe(0.5, Hearing.TOLD, 1.0, True)
        found.observe(0.5, Hearing.UNSAID, 1.0, False)
        found.observe(0.5, Hearing.NONE, 1.0, bool(rng.random() < 0.5))
    assert found.corrected(0.5, Hearing.TOLD) < 0.03
    assert found.corrected(0.5, Hearing.UNSAID) > 0.97
    assert found.corrected(0.5, Hearing.NONE) == pytest.approx(0.5, abs=0.06)


def test_crawls_of_pages_with_good_signals_do_not_correct_pages_with_worthless_signals() -> None:
    """In the model, pages with good signals change exactly when a signal arrives; the others are predicted right.

    Pages of an unknown kind are corrected by a part of what crawls of good pages have shown.
    """
    rng, found = np.random.default_rng(8), Recalibration()
    for _ in range(1000):
        for hearing in (Hearing.TOLD, Hearing.UNSAID):
            found.observe(0.5, hearing, 1.0, hearing is Hearing.TOLD, reliability=1.0)
            found.observe(0.5, hearing, 1.0, bool(rng.random() < 0.5), reliability=0.0)
    for hearing, low, high in ((Hearing.TOLD, 0.0, 0.03), (Hearing.UNSAID, 0.97, 1.0)):
        worthless, unknown, good = (found.corrected(0.5, hearing, reliability=w) for w in (0.0, 0.5, 1.0))
        assert low < good < high
        assert worthless == pytest.approx(0.5, abs=0.04)
        assert min(good, worthless) < unknown < max(good, worthless)


def test_many_signals_are_worth_less_if_crawls_say_so() -> None:
    """In the model, one of ten pages with signals is fresh, however many signals it has."""
    rng, found = np.random.default_rng(4), Recalibration()
    for said in rng.choice([0.3, 0.02, 0.003], 3000):
        found.observe(float(said), Hearing.TOLD, 1.0, bool(rng.random() < 0.9))
    assert found.corrected(0.003, Hearing.TOLD) > 0.05
    assert found.corrected(0.003, Hearing.NONE) < 0.03


def test_stale_pages_are_corrected_by_more_than_crawls_show() -> None:
    """In the model, crawls find 4/10 of the copies fresh where 2/10 are predicted; all others are predicted right."""
    rng, found = np.random.default_rng(5), Recalibration()
    for said in rng.choice([0.2, 0.7, 0.95], 4000):
        changed = bool(rng.random() > (0.4 if said == 0.2 else said))
        found.observe(float(said), Hearing.NONE, 1.0, changed)
    shown = Recalibration(found.numbers, msgspec.structs.replace(FITTED, beyond=(0.0,) * COEFFICIENTS))
    assert 0.3 < shown.corrected(0.2, Hearing.NONE) < found.corrected(0.2, Hearing.NONE) < 0.6


def test_each_site_has_a_slope_of_its_own() -> None:
    """In the model, the true hazard is the square root of a large predicted hazard on one site, and right on the other.

    Another site, of which nothing is known, is corrected by what both sites have shown.
    """
    constants = msgspec.structs.replace(FITTED, beyond=(0.0,) * COEFFICIENTS)
    rng, found = np.random.default_rng(9), Recalibration(constants=constants)
    sites = {0.5: UNKNOWN, 1.0: UNKNOWN}
    for hazard in rng.choice([0.1, 0.5, 1.5, 3.0], 6000):
        for power, site in sites.items():
            true = hazard**power if hazard > 1.0 else hazard
            changed = bool(rng.random() < -math.expm1(-true))
            sites[power] = found.observe(math.exp(-hazard), Hearing.NONE, 1.0, changed, site=site)
    assert sites[0.5].slope < -0.1 < 0.1 < sites[1.0].slope
    for hazard in (1.5, 3.0):
        together, alone, other = (
            found.corrected(math.exp(-hazard), Hearing.NONE, site=site)
            for site in (sites[0.5], sites[1.0], UNKNOWN)
        )
        assert alone < other < together
        assert together == pytest.approx(math.exp(-math.sqrt(hazard)), abs=0.06)
    small = [found.corrected(0.95, Hearing.NONE, site=site) for site in (*sites.values(), UNKNOWN)]
    assert small[0] == small[1] == small[2]


def test_the_correction_is_not_used_where_the_predictions_of_the_model_are_right() -> None:
    """Before the first crawl, the whole correction is used. Where it improves predictions, it is used all the time."""
    rng, right, wrong = np.random.default_rng(11), Recalibration(), Recalibration()
    assert right.share == 1.0
    shares = []
    for said in rng.uniform(0.3, 0.99, 6000).tolist():
        right.observe(said, Hearing.NONE, 1.0, bool(rng.random() > said))
        wrong.observe(said, Hearing.NONE, 1.0, bool(rng.random() > said**2))
        shares.append(right.share)
    assert np.mean(shares[2000:]) < 0.3 and wrong.share == 1.0
    unused = Recalibration([*wrong.numbers[:-1], -1.0])
    assert unused.share == 0.0 and unused.corrected(0.9, Hearing.NONE) == pytest.approx(0.9)
    assert wrong.corrected(0.9, Hearing.NONE) == pytest.approx(0.81, abs=0.03)


def test_a_single_crawl_has_a_bounded_effect_on_the_score() -> None:
    """The hazard of a copy may be hundreds. A crawl that finds such a copy unchanged must not decide alone."""
    found = Recalibration()
    for _ in range(100):
        found.observe(1e-300, Hearing.NONE, 1.0, True)
    found.observe(1e-300, Hearing.NONE, 1.0, False)
    assert found.share > 0.5
    assert Recalibration(found.numbers).share == found.share


def test_a_site_forgets_its_slope() -> None:
    """In the model, all predictions are right now."""
    rng, found, site = np.random.default_rng(10), Recalibration(), SiteSlope(-1.0, 50.0)
    for said in rng.choice([0.2, 0.4, 0.7], 3000).tolist():
        site = found.observe(said, Hearing.NONE, 1.0, bool(rng.random() > said), site=site)
    assert abs(site.slope) < 0.4


@pytest.mark.parametrize("ratio", [0.6, 1.5])
def test_large_hazards_of_a_site_with_a_rhythm_are_corrected_by_its_own_crawls(ratio: float) -> None:
    """In the model, hazards above the centre are wrong by this factor, and those at night are right."""
    rng, found, site = np.random.default_rng(11), Recalibration(), UNKNOWN
    before = found.numbers
    for hazard in rng.choice([1e-3, 1.5], 4000).tolist():
        true = hazard * ratio if hazard > RHYTHM_CENTRE else hazard
        changed = bool(rng.random() < -math.expm1(-true))
        site = found.observe_in_rhythm(math.exp(-hazard), 1.0, 1e-3, changed, site)
    assert found.corrected_in_rhythm(math.exp(-1.5), site) == pytest.approx(math.exp(-1.5 * ratio), abs=0.04)
    assert found.corrected_in_rhythm(math.exp(-0.09), site) == pytest.approx(math.exp(-0.09))
    assert found.numbers == before


def test_the_correction_of_a_site_with_a_rhythm_is_remembered_for_weeks() -> None:
    found, site = Recalibration(), SiteSlope(0.5, 1000.0)
    for _ in range(5000):  # the crawls of a night, which show nothing about large hazards
        site = found.observe_in_rhythm(0.999, 1.0, 1e-5, False, site)
    assert site.slope == pytest.approx(0.5, abs=0.02)
    for _ in range(2000):
        site = found.observe_in_rhythm(0.999, 1.0, 1.0, False, site)
    assert site.slope < 0.1


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.floats(-OWN_MAX, OWN_MAX))
def test_the_correction_of_a_site_with_a_rhythm_keeps_the_order(
    one: float, other: float, slope: float
) -> None:
    found, site = Recalibration(), SiteSlope(slope, 10.0)
    low, high = sorted((one, other))
    stated = [found.corrected_in_rhythm(fresh, site) for fresh in (low, high)]
    assert 0.0 <= stated[0] <= stated[1] <= 1.0


@pytest.mark.parametrize("size", [7, 9])
def test_a_record_of_an_earlier_version_is_read(size: int) -> None:
    """Records of seven coefficients have none for pages with many signals; the last of nine is no longer used."""
    stored = np.array([-0.3, -0.4, -0.05, 0.5, 0.1, 1.0, -0.3, 0.2, -0.1])[:size]
    precision = np.diag(np.arange(1.0, size + 1.0))
    precision[1, 2] = precision[2, 1] = 0.5
    found = Recalibration([*stored, *precision.ravel(), -0.7, 900.0])
    used = min(size, COEFFICIENTS)
    assert found.coefficients == (*stored[:used], *FITTED.prior[used:])
    kept = np.array(found.numbers[COEFFICIENTS:-3]).reshape(COEFFICIENTS, COEFFICIENTS)
    assert (kept[:used, :used] == precision[:used, :used]).all()
    assert Recalibration(found.numbers).numbers == found.numbers
    assert found.corrected(0.5, Hearing.NONE) != Recalibration().corrected(0.5, Hearing.NONE)
    assert found.share == 1.0  # the versions without a score used the whole correction


@pytest.mark.parametrize("size", [0, 6, 10])
def test_a_record_of_another_size_is_ignored(size: int) -> None:
    found = Recalibration([0.1] * (size + size * size + 2))
    assert found.numbers == Recalibration().numbers


def test_a_crawl_weighs_as_much_as_the_time_it_stands_for() -> None:
    """In each round, ten crawls in quick succession find one change each.

    Then one crawl, which stands for as much time as these ten crawls together, finds no change.

    So nothing changed in half of the time, although ten of eleven crawls found a change.
    """
    found = Recalibration()
    for _ in range(600):
        for _ in range(10):
            found.observe(0.5, Hearing.NONE, 0.5, True)
        found.observe(0.5, Hearing.NONE, 5.0, False)
    assert found.corrected(0.5, Hearing.NONE) == pytest.approx(0.5, abs=0.05)
    assert WEIGHT_MAX >= 5.0


def test_the_correction_starts_from_the_model_and_forgets() -> None:
    found = Recalibration()
    assert found.corrected(0.7, Hearing.NONE) == pytest.approx(0.7)
    for _ in range(300):
        found.observe(0.5, Hearing.NONE, 1.0, True)
    assert found.corrected(0.5, Hearing.NONE) < 0.3
    rng = np.random.default_rng(2)
    for _ in range(20_000):
        found.observe(0.5, Hearing.NONE, 1.0, bool(rng.random() < 0.5))
    assert found.corrected(0.5, Hearing.NONE) == pytest.approx(0.5, abs=0.05)


@given(
    st.lists(
        st.tuples(
            st.floats(0.0, 1.0),
            HEARINGS,
            st.floats(0.0, 1e9),
            st.booleans(),
            st.booleans(),
            HASTES,
            st.floats(0.0, 1.0),
        ),
        max_size=80,
    ),
    st.lists(st.floats(0.0, 1.0), min_size=2, max_size=9),
    HEARINGS,
    st.booleans(),
    HASTES,
    st.floats(0.0, 1.0),
    st.floats(-OWN_MAX, OWN_MAX),
)
def test_corrected_values_stay_probabilities_in_the_order_of_the_model(
    crawls: list[tuple[float, Hearing, float, bool, bool, float, float]],
    asked: list[float],
    hearing: Hearing,
    new: bool,
    haste: float,
    reliability: float,
    slope: float,
) -> None:
    found, site = Recalibration(), SiteSlope(slope, 1.0)
    for crawl in crawls:
        site = found.observe(*crawl, site=site)
    said = [found.corrected(fresh, hearing, new, haste, reliability, site) for fresh in sorted(asked)]
    assert all(0.0 <= each <= 1.0 for each in said)
    assert all(low <= high + 1e-12 for low, high in zip(said[:-1], said[1:], strict=True))
    assert found.corrected(0.0, hearing) == 0.0 and found.corrected(1.0, hearing) == 1.0
    assert Recalibration(found.numbers).coefficients == found.coefficients
