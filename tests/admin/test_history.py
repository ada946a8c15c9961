"""Test the history behind the dashboard's curves: rates between samples, the bounded size, and the thinning."""

from hypothesis import given
from hypothesis import strategies as st

from crawler.admin.history import SERIES, History, RateSampler


def status(fetched: int, again: int = 0, name: str = "p0", now: float = 1.0) -> dict:
    counters = {"pages": {"fetched": fetched}, "refresh": {"done": again}, "frontier": {"todo": 3}}
    return {"name": name, "now": now} | counters


def alone(sampler: RateSampler, part: dict, now: float) -> dict[str, float]:
    return sampler.sample([part], part, now)


def test_rates_are_growth_over_time() -> None:
    pulse = RateSampler()
    assert alone(pulse, status(100), 10.0) == {}, "a rate needs two samples"
    point = alone(pulse, status(150, again=30), 20.0)
    assert point["pages"] == 5.0 and point["again"] == 3.0 and point["todo"] == 3.0 and point["bytes"] == 0.0
    assert alone(pulse, status(0), 30.0)["pages"] == 0.0, "a restarted process has no negative rate"
    assert alone(pulse, status(9), 30.0)["pages"] == 0.0, "no time has passed"


def test_a_process_that_appears_or_returns_adds_only_its_growth() -> None:
    """Once, after a restart, the pages of earlier runs were shown as a rate of 50,000 pages/s.

    This flattened the curve for hours.
    """
    pulse = RateSampler()

    def rate(now: float, *parts: dict) -> float:
        return pulse.sample(parts, {}, now)["pages"]

    # if p1 were left out of the totals, its return would look like a steep rise
    for now, p1 in ((9.0, 0.0), (10.0, 0.0), (11.0, 1.0)):
        assert pulse.sample([status(40_010), status(90_000, name="p1", now=p1)], {}, now) == {}
    assert rate(12.0, status(40_020), status(90_005, name="p1")) == 15.0
    assert rate(13.0, status(40_030), status(90_005, name="p1", now=0.0)) == 10.0, "p1 has died"
    assert rate(14.0, status(40_040), status(90_007, name="p1")) == 12.0, "p1 runs again"


@given(st.integers(2, 50), st.integers(1, 300), st.integers(1, 60))
def test_the_ring_is_bounded(points: int, adds: int, shown: int) -> None:
    history = History(points * 10.0, 10.0)
    for n in range(adds):
        history.add({"pages": n}, n * 10.0)
    assert len(history) <= max(2, points)
    plain = history.plain(shown)
    assert set(plain) == {"times", *SERIES} and len(plain["times"]) <= shown
    assert all(len(values) == len(plain["times"]) for values in plain.values())
    assert plain["times"] == sorted(plain["times"])


def test_points_are_a_minimum_time_apart() -> None:
    history = History(100.0, 10.0)
    assert history.add({}, 0.0)
    assert not history.add({}, 0.5)
    assert history.add({}, 1.0)


def test_curves_start_with_the_crawl_and_get_coarser_with_time() -> None:
    """At first, there is a point for each second; after a day, there is one for every ten seconds.

    The first point is kept.
    """
    history = History(86_400.0, 10.0)
    for second in range(60):
        history.add({"pages": second}, float(second))
    assert history.plain()["times"] == [float(second) for second in range(60)]
    longest = 0
    for second in range(60, 80_000):
        history.add({"pages": second}, float(second))
        longest = max(longest, len(history))
    times = history.plain(100_000)["times"]
    gaps = [after - before for before, after in zip(times, times[1:], strict=False)]
    assert times[0] == 0.0 and history.interval == 10.0 and max(gaps) <= 20.0
    assert longest <= history.points_max


def test_freshness_and_newly_found_pages_have_curves() -> None:
    refreshing = {"expected_freshness": 0.75, "news": {"per_day": 12.5}}
    pulse = RateSampler()
    alone(pulse, status(0), 0.0)
    point = alone(pulse, status(0) | {"refreshing": refreshing}, 1.0)
    assert (point["fresh"], point["found"]) == (0.75, 12.5)
    empty = {"refreshing": {"expected_freshness": None, "news": None}}
    assert alone(pulse, status(0) | empty, 1.0)["fresh"] == 0.0
