"""Test the weekly rhythm of sites: what is learned about it, when it is used, its clock and its stored form."""

import math

import numpy as np
import pytest

from crawler.freshness.learning import Learning
from crawler.freshness.seasons import COLUMNS, Seasons

DAY = 86_400.0
HOUR = DAY / 24.0
WEEK = 7.0 * DAY
# speed of the site in working hours: all its changes happen in 40 of the 168 hours of a week
SPEED = 168.0 / 40.0


def _worked(at: float) -> float:
    """Return what a clock shows at `at` if it runs only from 9 to 17 on five days of seven.

    The mean speed of the clock is 1.
    """
    week, rest = divmod(at, WEEK)
    day, hour = divmod(rest, DAY)
    today = min(max(hour - 9.0 * HOUR, 0.0), 8.0 * HOUR) if day < 5 else 0.0
    return SPEED * (week * 40.0 * HOUR + min(day, 5.0) * 8.0 * HOUR + today)


def _learned(seasonal: bool, *, days: int = 40, every: float = DAY) -> tuple[Learning, int]:
    """Crawl 100 pages of a site about once a day. Each page changes once a day, at any hour or only in working hours."""
    rng = np.random.default_rng(1)
    learning = Learning(scale=0.25 * every)
    learning.rates.set_revisit(every)
    site, directory, none = learning.add_site(), learning.add_directory(), np.zeros(8)
    k, t, last = np.zeros(100), np.zeros(100), np.zeros(100)
    for crawl in range(100 * days):
        page, now = int(rng.integers(100)), (crawl + 1.0) * every / 100.0
        span = _worked(now) - _worked(last[page]) if seasonal else now - last[page]
        changed = bool(rng.random() < -math.expm1(-span / DAY))
        k[page] = learning.observe(site, directory, k[page], t[page], now - last[page], now, none, changed)
        t[page] = np.float32(t[page] + learning.watched)
        last[page] = now
        learning.renew(site)
        learning.renew_crawl()
    learning._check()
    return learning, site


def test_working_hours_are_learned_and_replace_the_neighbourhood() -> None:
    learning, site = _learned(seasonal=True)
    monday = 8.0 * WEEK
    working = learning.paced_clock(site, 0, 4.0 * HOUR, monday + 15.0 * HOUR)
    night = learning.paced_clock(site, 0, 4.0 * HOUR, monday + 28.0 * HOUR)
    weekend = learning.paced_clock(site, 0, DAY, monday + 6.5 * DAY)
    assert working > 6.0 * HOUR > 3.5 * HOUR > night and weekend < 0.5 * DAY
    assert learning.excess(site, 0, monday) == learning.site_lead(site, monday) == 0.0
    assert learning.directory_lead(site, 0, monday) == 0.0
    assert learning.clock(site, 0, 4.0 * HOUR, monday + 15.0 * HOUR) == 4.0 * HOUR
    value = learning.seasons.value_span(site, monday + 11.0 * HOUR, monday + 15.0 * HOUR)
    assert 4.0 * HOUR < value < working


def test_the_clock_of_working_hours_is_learned_in_forty_days() -> None:
    """The clock is nearly as good as the true one. Pages are visited once a day, so no crawl shows a single hour."""
    learning, site = _learned(seasonal=True)
    hours = [8.0 * WEEK + hour * HOUR for hour in range(168)]
    learned = np.array([learning.seasons.span(site, hour, hour + HOUR) for hour in hours])
    true = np.array([_worked(hour + HOUR) - _worked(hour) for hour in hours])
    assert learned[true > 0.0].sum() > 0.75 * WEEK
    assert np.abs(np.cumsum(learned - true)).max() < 0.4 * DAY


def test_rates_of_pages_in_working_hours_are_learned_on_their_clock() -> None:
    """All pages of the site change once a day on its clock."""
    rng = np.random.default_rng(2)
    learning, site = _learned(seasonal=True)
    directory, none, begin = learning.add_directory(), np.zeros(8), 40.0 * DAY
    k, t = 0.0, 0.0
    for crawl in range(2_000):  # in a week of 40 working hours, an interval of six hours has 0 or 1.05 days
        now = begin + 6.0 * HOUR * (crawl + 1)
        span = _worked(now) - _worked(now - 6.0 * HOUR)
        changed = bool(rng.random() < -math.expm1(-span / DAY))
        k = learning.observe(site, directory, k, t, 6.0 * HOUR, now, none, changed)
        t = float(np.float32(t + learning.watched))
    assert k / t * DAY == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("seasonal", [True, False])
def test_a_site_with_a_rhythm_has_no_part_in_the_biases(seasonal: bool) -> None:
    learning, site = _learned(seasonal=seasonal, days=20)
    before, none = learning.biases.sums(), np.zeros(8)
    stated = learning.expected(site, 3.0, 3.0 * DAY, DAY, none)
    assert (stated == pytest.approx(learning.rates.expected(site, 3.0, 3.0 * DAY, DAY), rel=1e-9)) == seasonal
    learning.observe(site, 0, 3.0, 3.0 * DAY, DAY, 21.0 * DAY, none, True)
    assert (learning.biases.sums() == before) == seasonal


def test_a_constant_rate_is_no_rhythm() -> None:
    learning, site = _learned(seasonal=False)
    assert "1 with a rhythm" in repr(learning.seasons)
    assert learning.seasons.span(site, 9.0 * HOUR, 17.0 * HOUR) == 8.0 * HOUR


def test_a_site_with_few_or_late_crawls_takes_no_memory() -> None:
    seasons = Seasons(DAY)
    site = seasons.add()
    assert not any(seasons.learns(site, WEEK) for _ in range(1000))
    assert not any(seasons.learns(site, DAY) for _ in range(49))
    assert seasons.state(site) == []
    assert seasons.learns(site, DAY) and len(seasons.state(site)) == COLUMNS


def test_a_week_has_the_length_of_a_week() -> None:
    seasons = _learned(seasonal=True, days=20)[0].seasons
    for begin in (0.0, 3.3 * DAY, 1.7e9):
        assert seasons.span(0, begin, begin + WEEK) == pytest.approx(WEEK)
        parts = [seasons.span(0, begin + k * HOUR / 3.0, begin + (k + 1) * HOUR / 3.0) for k in range(504)]
        assert min(parts) > 0.0 and sum(parts) == pytest.approx(WEEK)


def test_the_clock_of_crawl_values_is_inverted() -> None:
    seasons = _learned(seasonal=True, days=20)[0].seasons
    for begin in (0.0, 3.3 * DAY, 1.7e9 + 5.0 * HOUR):
        for span in (0.0, 0.01 * HOUR, HOUR, 10.0 * HOUR, 2.5 * DAY, WEEK, 40.0 * DAY):
            wait = seasons.value_span(0, begin, begin + span)
            assert seasons.value_end(0, begin, wait) == pytest.approx(begin + span, abs=1e-3)


@pytest.mark.parametrize("rate", [0.2, 5.0])
def test_rates_that_are_wrong_on_average_are_not_taken_for_a_rhythm(rate: float) -> None:
    """All rates are wrong by a factor of five on the first day. The factor of this day must not make up for it.

    All pages of the site change once a day, at any hour. They are visited every two hours.
    """
    rng, seasons = np.random.default_rng(3), Seasons(DAY)
    site = seasons.add()
    for crawl in range(1200):
        now = (crawl + 1.0) * DAY / 1200.0
        changed = bool(rng.random() < -math.expm1(-1.0 / 12.0))
        if seasons.learns(site, 2.0 * HOUR):
            hazard = rate / DAY * seasons.trial(site, now - 2.0 * HOUR, now)
            plain, paced = -math.expm1(-rate / 12.0), -math.expm1(-hazard)
            seasons.observe(site, now - 2.0 * HOUR, now, hazard, plain, paced, changed)
    days = seasons.state(site)[24:31]
    assert 0.5 < days[0] < 2.0 and seasons.span(site, 0.0, DAY) == DAY


def test_the_rhythm_of_a_site_with_thousands_of_crawls_a_day_is_remembered_for_weeks() -> None:
    seasons = _learned(seasonal=True, days=20)[0].seasons
    before, begin = seasons.state(0), 3.0 * WEEK
    for crawl in range(10_000):  # all of them at night, when nothing can be learned about the day
        now = begin + crawl * DAY / 3.0 / 10_000.0
        seasons.observe(0, now - HOUR, now, 1e-9, 1e-9, 1e-9, False)
    assert np.log(seasons.state(0)[:31]) == pytest.approx(np.log(before[:31]), abs=0.1)


def test_a_copy_made_after_work_is_almost_certainly_fresh_in_the_morning() -> None:
    seasons = _learned(seasonal=True, days=21, every=4.0 * HOUR)[0].seasons
    night, day = (
        seasons.span(0, 21.0 * DAY + begin * HOUR, 21.0 * DAY + (begin + 4.0) * HOUR)
        for begin in (20.0, 12.0)
    )
    assert night < 0.02 * day


def test_a_morning_that_contradicts_the_rhythm_does_not_end_it() -> None:
    """The site has a few thousand crawls a day. Its rhythm predicts a night well, but not the next morning."""
    seasons = _learned(seasonal=True, days=20)[0].seasons
    now = 3.0 * WEEK
    for _ in range(1000):
        now += 10.0
        seasons.observe(0, now - HOUR, now, 0.01, 0.3, 0.01, False)
    for _ in range(60):
        now += 10.0
        seasons.observe(0, now - HOUR, now, 0.3, 0.3, 0.1, True)
        assert seasons.span(0, 0.0, HOUR) != HOUR


def test_a_rhythm_is_stored_and_many_sites_can_have_one() -> None:
    learned = _learned(seasonal=True, days=20)[0].seasons
    again = Seasons(DAY)
    for site in range(1_100):
        again.add()
        again.restore(site, learned.state(0))
    again._check()
    assert again.state(1_099) == pytest.approx(learned.state(0))
    assert again.span(1_099, 0.0, 10.0 * HOUR) == pytest.approx(learned.span(0, 0.0, 10.0 * HOUR))
    again.restore(3, [])
    assert again.state(3) == pytest.approx(learned.state(0))
