"""Test the request rate of the process: it is reached even if the event loop is late, and pauses cause no burst."""

from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st

from crawler.frontier.hosts.rate import Rate

SLACK = 0.1  # seconds; the module under test uses the same value


def starts(rate: float, looks: list[float]) -> list[float]:
    """Start as many requests as the rate allows at each time in `looks`; return the start times."""
    limit, started = Rate(rate), []
    for now in looks:
        while limit.ready_at() <= now:
            limit.spend(now)
            started.append(now)
    return started


def test_a_late_loop_keeps_the_rate() -> None:
    """The event loop runs up to 90 ms late.

    At 48 starts per second, about four requests become due while the loop is late.
    """
    looks = [1.0 + 0.03 * step + (0.0, 0.05, 0.025)[step % 3] for step in range(3000)]
    assert abs(len(starts(48.0, sorted(looks))) / 90.0 - 48.0) < 0.5
    rare = [1.0 + 0.09 * step for step in range(1000)]
    assert abs(len(starts(48.0, rare)) / 90.0 - 48.0) < 0.5


def test_a_pause_is_not_made_up_for() -> None:
    looks = [1.0, *(60.0 + 0.001 * step for step in range(1000))]
    assert len([start for start in starts(50.0, looks) if start < 60.5]) <= 1 + 50 * (0.5 + SLACK) + 1


@given(st.floats(0.1, 2000.0), st.lists(st.floats(0.001, 0.5), min_size=1, max_size=60))
def test_no_window_holds_more_than_the_rate_and_the_slack_allow(rate: float, waits: list[float]) -> None:
    looks, now = [], 1.0
    for wait in waits:
        now += wait
        looks.append(now)
    started = starts(rate, looks)
    for first, start in enumerate(started):
        for seconds in (0.05, 0.2, 1.0):
            count = bisect_left(started, start + seconds) - first
            assert count <= rate * (seconds + SLACK) + 1 + 1e-6
