"""Compare the interval between two readings of a source of signals with closed formulas.

Some of the sources list only a share of the changes.
"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.errors import DamageError
from crawler.frontier.refresh.settings import DAY
from crawler.frontier.refresh.sources import UNPAID, Announced, Readings, ages, gains
from crawler.storage import keys
from crawler.storage.kv import MemoryStore, seal

RATE = 1.0 / (300 * DAY)
LEVEL = 50 * DAY  # the crawl value of a page with this change rate about 200 days after its crawl


def told_by(pages: int, days: float, precision: float, share: float = 1.0, level: float = LEVEL) -> float:
    """Read, every `days` days, a source that lists a `share` of the changes.

    Return the reading interval computed for this source, in days.
    """
    readings = Readings()
    interval = math.inf
    for _ in range(12):
        readings.pass_time(7, days * DAY)
        news = round(pages * RATE * days * DAY * share / precision)
        interval = readings.hear(7, Announced([1.0] * news, [RATE] * news, news), level, precision)
    return interval / DAY


def test_the_gain_of_perfect_signals_equals_the_closed_form() -> None:
    """L is the level, D is the rate of changes, and R^1(u) = L D/mu.

    The freshness is mu exp(-u) without signals, and mu (1 - L D/mu) with perfect signals. The gain is
    therefore mu u exp(-u).
    """
    for u in (0.2, 0.7, 1.5):
        level = (1.0 - (1.0 + u) * math.exp(-u)) / RATE
        gain = gains(np.array([3.0]), np.array([RATE]), 3.0 * level, 1.0)[0]
        assert gain == pytest.approx(3.0 * u * math.exp(-u), abs=0.03)


@given(st.floats(0.01, 1.0), st.floats(1e-12, 1e-3), st.floats(1e-3, 1e6), st.floats(1.0, 1e9))
def test_gains_are_never_negative_and_grow_with_precision(
    precision: float, rate: float, importance: float, level: float
) -> None:
    columns = np.array([importance]), np.array([rate])
    gain = gains(*columns, level, precision)[0]
    assert 0.0 <= gain <= importance
    assert gains(*columns, level, min(1.2 * precision, 1.0))[0] >= gain - 1e-9 * importance


def test_the_reading_interval_balances_price_and_delay() -> None:
    """The interval is sqrt(2 L/s), where L is the level of the schedule and s the sum of the change rates of 100 pages.

    If half as many changes are listed, the interval is sqrt(2) times as long.
    """
    wanted = math.sqrt(2.0 * LEVEL / (100 * RATE)) / DAY
    assert told_by(100, 60, 1.0) == pytest.approx(wanted, rel=0.15)
    assert told_by(100, 60, 1.0, share=0.5) == pytest.approx(wanted * math.sqrt(2.0), rel=0.15)
    assert told_by(400, 60, 1.0) == pytest.approx(wanted / 2.0, rel=0.15)


def test_a_source_that_does_not_pay_is_read_half_as_often() -> None:
    wanted = math.sqrt(2.0 * LEVEL / RATE) / DAY
    assert told_by(1, 600, 1.0) == pytest.approx(UNPAID * wanted, rel=0.15)


def test_a_source_without_a_gain_is_treated_as_a_page() -> None:
    assert told_by(100, 60, 0.01) == math.inf
    assert told_by(100, 60, 1.0, level=0.0) == math.inf


def test_a_source_whose_signals_are_ignored_is_read_less_and_less() -> None:
    """The source lists all its pages at each reading. The schedule ignores signals that are nearly always false."""
    readings = Readings()
    intervals = [readings.begin(7, 100, RATE, LEVEL)]
    for _ in range(30):
        readings.pass_time(7, intervals[-1])
        intervals.append(readings.hear(7, Announced([1.0] * 100, [RATE] * 100, 100), LEVEL, 0.0))
    assert intervals == sorted(intervals) and intervals[-1] > 10.0 * intervals[0]


def test_a_source_that_becomes_silent_is_read_less_and_less() -> None:
    readings = Readings()
    intervals = [readings.begin(7, 200, RATE, LEVEL)]
    for _ in range(6):
        readings.pass_time(7, 30 * DAY)
        intervals.append(readings.hear(7, Announced([], [], 0), LEVEL, 1.0))
    assert intervals == sorted(intervals) and intervals[0] < 60 * DAY and intervals[-1] > 2 * intervals[0]


@pytest.mark.parametrize("readings_before", [0, 20])
def test_a_wrong_clock_does_not_make_a_source_be_read_rarely(readings_before: int) -> None:
    """The clock of a run is a year behind, so the first reading with a right clock seems to be a year late."""
    readings = Readings()
    usual = readings.begin(7, 200, RATE, LEVEL)
    for _ in range(readings_before):
        usual = read_after(readings, 30 * DAY, pages=200)
    readings.pass_time(7, 365 * DAY)
    late = readings.hear(7, Announced([1.0] * 20, [RATE] * 20, 20), LEVEL, 1.0)
    assert late < (1.2 if readings_before else 1.9) * usual
    for _ in range(10):
        late = read_after(readings, 30 * DAY, pages=200)
    assert late == pytest.approx(usual, rel=0.35)


def read_after(readings: Readings, span: float, pages: int) -> float:
    """Read a source of `pages` pages `span` after the last reading; return the new interval."""
    readings.pass_time(7, span)
    news = round(pages * RATE * span)
    return readings.hear(7, Announced([1.0] * news, [RATE] * news, news), LEVEL, 1.0)


def test_a_long_reading_is_sampled() -> None:
    whole, sampled = Readings(), Readings()
    for readings, looked in ((whole, 1000), (sampled, 100)):
        readings.pass_time(7, 30 * DAY)
        readings.hear(7, Announced([1.0] * looked, [RATE] * looked, 1000), LEVEL, 0.9)
    assert whole.interval(7, LEVEL) == pytest.approx(sampled.interval(7, LEVEL))


@given(st.floats(0.001, 1e12), st.sampled_from([0.0, 3600.0, 1e6]), st.sampled_from([2e6, math.inf]))
def test_ages_stay_within_those_of_the_configuration(interval: float, least: float, most: float) -> None:
    earliest, latest = ages(interval, least, most)
    assert least <= earliest <= latest <= most
    if max(least, 600.0) < interval < min(most, 1e9):
        assert 0.8 * interval < latest < 1.2 * interval or latest == least


def test_there_are_few_different_age_bounds() -> None:
    assert len({ages(interval, 3600.0, math.inf) for interval in np.geomspace(1e-3, 1e15, 5000)}) < 60
    assert ages(math.inf, 3600.0, 1e9) == (3600.0, 1e9)


def test_sums_survive_a_restart() -> None:
    readings, store = Readings(), MemoryStore()
    readings.begin(7, 200, RATE, LEVEL)
    batch = store.batch()
    readings.stage(7, batch)
    readings.stage(8, batch)
    store.write(batch)
    anew = Readings()
    assert list(anew.open(store)) == [7]
    assert anew.interval(7, LEVEL) == readings.interval(7, LEVEL) < math.inf
    for value in (b"no seal", seal(b"short"), seal(b"\xff" * 24)):
        with pytest.raises(DamageError):
            list(Readings().open(MemoryStore({keys.READINGS + b"12345678": value})))
