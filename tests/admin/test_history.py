"""Curves: rates between samples, the ring, thinning."""

from hypothesis import given
from hypothesis import strategies as st

from crawler.admin.history import SERIES, History, RateSampler


def status(fetched: int) -> dict:
    return {"pages": {"fetched": fetched}, "frontier": {"todo": 3}}


def test_rates_are_growth_over_time() -> None:
    pulse = RateSampler()
    assert pulse.sample(status(100), 10.0)["pages"] == 0.0
    point = pulse.sample(status(150), 20.0)
    assert point["pages"] == 5.0 and point["todo"] == 3.0 and point["bytes"] == 0.0
    assert pulse.sample(status(0), 30.0)["pages"] == 0.0, "a process that began anew has no negative rate"
    assert pulse.sample(status(9), 30.0)["pages"] == 0.0, "no time has passed"


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


def test_points_keep_their_distance() -> None:
    history = History(100.0, 10.0)
    assert history.add({}, 0.0)
    assert not history.add({}, 5.0)
    assert history.add({}, 10.0)
