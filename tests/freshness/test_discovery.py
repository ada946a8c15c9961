"""Test the values, deadlines and learned rates of hubs, in both forms of the kernel."""

import math
from collections.abc import Callable
from decimal import Decimal, localcontext
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.freshness.neighbourhood import elapsed_of
from crawler.freshness.params import PageParameters
from crawler.freshness.value_kernel import ALL_TERMS, KINDS, Parameters
from tests.forms import installed, interpreted

NAME = "crawler.freshness.discovery"
FORMS = {"installed": installed(NAME), "interpreted": interpreted(NAME)}
DAY = 86_400.0
TOLERANCE = 1e-6

both = pytest.mark.parametrize("form", list(FORMS.values()), ids=list(FORMS))
powers = st.floats(-4.0, 4.0).map(lambda e: 10.0**e)


def page_of(importance: float, rate: float, recall: float = 0.0, noise: float = 0.0) -> Parameters:
    p, found = PageParameters(importance, rate, recall, noise), Parameters()
    found.assign(
        KINDS["ncis" if recall else "greedy"], ALL_TERMS, importance, rate,
        p.silent_rate, p.signal_rate, p.false_rate, p.signal_weight,
    )  # fmt: skip
    return found


class Counted:
    """A page of the interpreted kernel that counts how often its value is computed."""

    def __init__(self, page: Parameters) -> None:
        self._page, self.values = page, 0

    def value(self, elapsed: float, signals: float) -> float:
        self.values += 1
        return float(self._page.value(elapsed, signals))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._page, name)


# -- the deadline


def _root(total: Callable[[Decimal], Decimal], level: Decimal) -> float:
    """Find by bisection, in 50 digits, the argument at which an increasing function reaches the level."""
    low, high = Decimal(0), Decimal(1)
    while total(high) < level:
        high *= 2
    for _ in range(180):
        middle = (low + high) / 2
        low, high = (middle, high) if total(middle) < level else (low, middle)
    return float(high)


def _golden(importance: float, rate: float, pace: float, level: float, excess: float, scale: float) -> float:
    """Compute by the formulas the time at which V + D reaches the level.

    V is the value of GREEDY on the page's clock.
    """
    with localcontext() as context:
        context.prec = 50
        mu, delta, half = Decimal(importance), Decimal(rate), Decimal(pace) / 2

        def total(tau: Decimal) -> Decimal:
            age = tau / Decimal(scale)
            share = 1 - (1 + age if excess > 0 else 1) * (-age).exp()
            bonus = 6 * Decimal(scale) * share * Decimal(excess)
            x = delta * max(tau + bonus, tau / 20)
            return mu / delta * (1 - (-x).exp() * (1 + x)) + half * tau * tau

        return _root(total, Decimal(level))


@both
def test_the_deadline_equals_50_digits(form: ModuleType) -> None:
    rng = np.random.default_rng(1)
    for _ in range(60):
        importance, rate, pace, level = (10.0 ** rng.uniform(-3.0, 3.0, 4)).tolist()
        excess, scale = float(rng.choice([0.0, rng.uniform(-1.9, 5.0)])), float(10.0 ** rng.uniform(-1, 2))
        wait = form.hub_wait(page_of(importance, rate), level, 0.0, pace, excess, scale, 1e-9)
        assert wait == pytest.approx(_golden(importance, rate, pace, level, excess, scale), rel=1e-8)


@given(
    importance=powers, rate=powers, level=powers, pace=powers, more=powers,
    recall=st.sampled_from([0.0, 0.6]), signals=st.sampled_from([0.0, 2.0]),
    excess=st.one_of(st.just(0.0), st.floats(-1.9, 20.0)), form=st.sampled_from(list(FORMS.values())),
)  # fmt: skip
@settings(max_examples=150, deadline=None)
def test_rises_with_the_level_falls_with_the_pace_and_is_bounded(
    importance: float, rate: float, level: float, pace: float, more: float, recall: float, signals: float,
    excess: float, form: ModuleType,
) -> None:  # fmt: skip
    """At the deadline, the sum of the values V and D reaches the level, so neither of them alone reaches it earlier.

    To find the deadline, at most 40 values are computed.
    """
    page = page_of(importance, rate, recall, rate if recall else 0.0)
    counted = Counted(page) if form is FORMS["interpreted"] else page
    rest = (excess, 7.0, TOLERANCE)
    wait = form.hub_wait(counted, level, signals, pace, *rest)
    assert not isinstance(counted, Counted) or counted.values <= 40
    alone = elapsed_of(page.wait(level, signals, 0.0, TOLERANCE), excess, 7.0)
    loose = 1.0 + 1e-4
    assert 0.0 <= wait <= min(alone, form.found_by(pace, level)) * loose
    assert form.hub_wait(page, level * (1.0 + more), signals, pace, *rest) >= wait / loose
    assert form.hub_wait(page, level, signals, pace * (1.0 + more), *rest) <= wait * loose


@given(importance=powers, rate=powers, level=powers, pace=powers, form=st.sampled_from(list(FORMS.values())))
@settings(max_examples=100, deadline=None)
def test_reduces_to_its_parts(
    importance: float, rate: float, level: float, pace: float, form: ModuleType
) -> None:
    """Without new pages, the deadline depends only on V, even if the deadline is infinite.

    If the copy has no value, the deadline depends only on D.
    """
    page, empty = page_of(importance, rate), page_of(0.0, rate)
    alone = page.wait(level, 0.0, 0.0, TOLERANCE)
    assert form.hub_wait(page, level, 0.0, 0.0, 0.0, 7.0, TOLERANCE) == alone
    by_new_pages = form.found_by(pace, level)
    assert form.hub_wait(empty, level, 0.0, pace, 0.0, 7.0, TOLERANCE) == pytest.approx(
        by_new_pages, rel=1e-5
    )
    assert form.hub_value(pace, by_new_pages) == pytest.approx(level)
    never = page_of(importance, 0.0)
    assert form.hub_wait(never, level, 0.0, 0.0, 0.0, 7.0, TOLERANCE) == math.inf
    assert form.hub_wait(never, level, 0.0, pace, 0.0, 7.0, TOLERANCE) == pytest.approx(
        by_new_pages, rel=1e-5
    )


@both
def test_edges_of_the_deadline(form: ModuleType) -> None:
    page, told = page_of(1.0, 0.01), page_of(1.0, 0.01, 1.0, 0.001)  # every change of `told` is signalled
    assert form.hub_wait(page, 0.0, 0.0, 1.0, 0.0, 7.0, TOLERANCE) == 0.0
    assert form.found_by(0.0, 1.0) == math.inf and form.found_by(1.0, 0.0) == 0.0
    value = told.value(0.0, 1.0)
    wait = form.hub_wait(told, 2.0 * value, 1.0, 0.5, 0.0, 7.0, 1e-9)
    assert wait == pytest.approx(math.sqrt(2.0 * value / 0.5), rel=1e-6)
    assert form.hub_wait(told, 0.5 * value, 1.0, 0.5, 0.0, 7.0, 1e-9) == 0.0


# -- theta


def learned(form: ModuleType, *, sites: int = 1, directories: int = 1) -> Any:
    found = form.Discovery()
    for _ in range(sites):
        found.add_site()
    for _ in range(directories):
        found.add_directory()
    return found


@both
def test_theta_is_pooled_over_directory_site_and_crawl(form: ModuleType) -> None:
    """The rates per day were computed by hand from the formulas of the module.

    Observations that are 90 days old count half.
    """
    found, then, now = learned(form, sites=2, directories=3), 0.0, 90 * DAY
    found.watch(0, 0, 10 * DAY, then, False)
    found.credit(0, 0, 4.0, then, False)
    found.watch(1, 2, 20 * DAY, then, False)
    watched = [form.watched_for(days * DAY, DAY) / DAY for days in (10, 20)]
    crawl = (0.5 * 4.0 + 0.5) / (0.5 * sum(watched) + 365.0)
    site = (0.5 * 4.0 + 60.0 * crawl) / (0.5 * watched[0] + 60.0)
    directory = (0.5 * 4.0 + 30.0 * site) / (0.5 * watched[0] + 30.0)
    assert found.prior(0, 0, now) * DAY == pytest.approx(directory)
    assert found.prior(0, 1, now) * DAY == pytest.approx(site)
    hub = (0.5 * 4.0 + 15.0 * directory) / (0.5 * 8.0 + 15.0)
    assert found.theta(0, 0, 4.0, 8.0 * DAY, 90 * DAY, now) * DAY == pytest.approx(hub)
    assert found.error(0, 0, 4.0, 8.0 * DAY, 90 * DAY, now) * DAY == pytest.approx(math.sqrt(hub / 19.0))
    found._check()


@both
def test_theta_of_a_list_is_pooled_over_the_links_of_site_and_crawl(form: ModuleType) -> None:
    """The rates per day were computed by hand from the formulas of the module. Each site has one list."""
    found, now = learned(form, sites=2, directories=2), 0.0
    watched = [links * form.watched_for(days * DAY, DAY) / DAY for links, days in ((10, 30), (100, 20))]
    found.watch(0, 0, 30 * DAY, now, False, 10.0)
    found.credit(0, 0, 3.0, now, False, 10.0)
    found.watch(1, 1, 20 * DAY, now, False, 100.0)
    crawl = (3.0 + 0.5) / (sum(watched) + 1500.0)
    sites = [
        (credits + 24_000.0 * crawl) / (days + 24_000.0)
        for credits, days in zip((3.0, 0.0), watched, strict=True)
    ]
    assert found.prior(0, 0, now, 10.0) * DAY == pytest.approx(10.0 * sites[0])
    assert found.prior(1, 1, now, 100.0) * DAY == pytest.approx(100.0 * sites[1])
    # the prior of a list counts as 0.02 new pages for each link, but at least as 0.3 and at most as 1.2
    for links, shape in ((4, 0.3), (15, 0.3), (40, 0.8), (60, 1.2), (1000, 1.2)):
        weight = shape / (links * sites[1])
        theta = (2.0 + shape) / (50.0 + weight)
        assert found.theta(1, 1, 2.0, 50 * DAY, 0.0, now, links) * DAY == pytest.approx(theta)
        error = math.sqrt(theta / (50.0 + weight))
        assert found.error(1, 1, 2.0, 50 * DAY, 0.0, now, links) * DAY == pytest.approx(error)


@both
def test_a_quiet_site_lowers_its_own_lists_more_than_those_of_others(form: ModuleType) -> None:
    """For 180 days, twenty lists of 30 links on the first site show nothing new. The second site is not asked."""
    found = learned(form, sites=2, directories=2)
    before = found.prior(0, 0, 0.0, 30.0)
    for day in range(1, 181):
        for _ in range(20):
            found.watch(0, 0, DAY, day * DAY, False, 30.0)
    quiet, other = (found.prior(site, site, 180 * DAY, 30.0) for site in (0, 1))
    assert quiet < 0.5 * other < 0.5 * before


@both
def test_a_hub_is_known_after_a_month_and_does_not_speak_for_its_neighbours(form: ModuleType) -> None:
    """Of a hundred pages, one shows two new pages per day, and the others show none.

    For the others, the estimate stays below 0.001 new pages per day.
    """
    discovery, found, watched = learned(form), 0.0, 0.0
    for day in range(1, 61):
        now = day * DAY
        found, watched = form.faded(found, DAY, DAY), form.faded(watched, DAY, DAY)
        watched += form.watched_for(DAY, DAY)
        discovery.watch(0, 0, DAY, now, day > 1)
        discovery.credit(0, 0, 2.0, now, day > 1)
        found += 2.0
        for _ in range(99):
            discovery.watch(0, 0, DAY, now, False)
        if day == 30:
            assert discovery.theta(0, 0, found, watched, 0.0, now) * DAY > 1.2
    assert discovery.theta(0, 0, found, watched, 0.0, now) * DAY == pytest.approx(2.0, rel=0.3)
    assert discovery.prior(0, 0, now) * DAY < 0.001
    assert discovery.theta(0, 0, 0.0, watched, 0.0, now) < 0.3 * discovery.prior(0, 0, now)


@both
def test_the_estimate_of_a_site_without_new_pages_falls(form: ModuleType) -> None:
    found = learned(form)
    priors = []
    for day in range(0, 200, 20):
        found.watch(0, 0, 20 * DAY, day * DAY, False)
        priors.append(found.prior(0, 0, day * DAY))
    assert priors == sorted(priors, reverse=True) and priors[-1] < 0.5 * priors[0]


@both
def test_stored_sums_can_be_restored(form: ModuleType) -> None:
    one, other = learned(form), learned(form)
    one.credit(0, 0, 3.0, 5 * DAY, False)
    one.watch(0, 0, 9 * DAY, 8 * DAY, False)
    other.restore_site(0, *one.site_state(0))
    other.restore_directory(0, *one.directory_state(0))
    assert other.prior(0, 0, 50 * DAY) == pytest.approx(one.prior(0, 0, 50 * DAY))
    other.restore_site(0, *one.site_state(0))
    assert other.prior(0, 0, 50 * DAY) == pytest.approx(one.prior(0, 0, 50 * DAY))


@both
def test_the_table_of_directories_grows(form: ModuleType) -> None:
    found = learned(form)
    found.credit(0, 0, 1.0, DAY, False)
    before = found.directory_state(0)
    for number in range(1, 3000):
        assert found.add_directory() == number
    assert found.directory_state(0) == before and found.directory_state(2999) == (0.0, 0.0, 0.0)
    found._check()
