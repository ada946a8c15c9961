"""Test the accuracy computed for a run: it agrees with closed forms, sums of bins, and a Monte Carlo simulation."""

import math

import numpy as np
import pytest

from crawler.lab.refresh.replay import ARRIVED, CHANGED, EMITTED, Replay
from crawler.lab.refresh.simulate import Playback

NOTHING = (np.empty(0), np.empty(0, dtype=np.int32), np.empty(0, dtype=np.int8))


def _replay(horizon: float, bins: int, alpha: float, q: float = 0.5) -> Replay:
    return Replay(np.array([1.0]), np.array([alpha]), np.array([q]), horizon, bins)


def test_freshness_without_events_is_integrated_exactly() -> None:
    replay = _replay(10.0, 5, 0.3)
    replay.run(Playback(iter([0, 0])), np.array([2.0, 5.0]), *NOTHING)
    spans = [(0.0, 2.0), (0.0, 3.0), (0.0, 5.0)]
    want = sum((math.exp(-0.3 * a) - math.exp(-0.3 * b)) / 0.3 for a, b in spans) / 10.0
    assert replay.accuracy().mean() == pytest.approx(want, rel=1e-14)
    assert replay.accuracy()[1] == pytest.approx((1.0 - math.exp(-0.6)) / 0.6)
    assert replay.rates().tolist() == [0.2]


def test_signals_scale_freshness_and_changes_end_it() -> None:
    replay = _replay(8.0, 8, 0.0, q=0.25)
    times, whats = np.array([1.0, 2.0, 5.0, 6.0]), np.array([EMITTED, EMITTED | ARRIVED, CHANGED, EMITTED])
    replay.run(Playback(iter([0])), np.array([4.0]), times, np.zeros(4, np.int32), whats.astype(np.int8))
    assert replay.accuracy().tolist() == [1.0, 0.25, 0.0625, 0.0625, 1.0, 0.0, 0.0, 0.0]


def test_the_scheduler_sees_only_arrived_signals_and_sees_them_before_the_tick() -> None:
    heard: list[tuple[int, float]] = []

    class Listener(Playback):
        def note_change(self, page: int, now: float) -> None:
            heard.append((page, now))

    replay = _replay(4.0, 1, 0.0, q=0.5)
    times = np.array([1.0, 2.0, 3.0])
    whats = np.array([EMITTED, ARRIVED, EMITTED | ARRIVED], dtype=np.int8)
    replay.run(Listener(iter([0, 0])), np.array([2.0, 3.5]), times, np.zeros(3, np.int32), whats)
    assert heard == [(0, 2.0), (0, 3.0)]


def test_no_crawl_when_the_scheduler_has_none() -> None:
    replay = _replay(2.0, 1, 0.0)
    replay.run(Playback(iter([])), np.array([1.0]), *NOTHING)
    assert replay.rates().tolist() == [0.0] and "0 crawls" in repr(replay)


def test_expected_accuracy_is_the_mean_over_simulated_runs() -> None:
    """The mean over 400 draws of true signals and silent changes is within four standard errors of the expectation."""
    rng, alpha, q, gamma, horizon = np.random.default_rng(3), 0.2, 0.4, 0.8, 40.0
    times = np.sort(rng.uniform(0.0, horizon, rng.poisson(gamma * horizon)))
    ticks = np.arange(1, 14) * 3.0

    def played(alpha: float, q: float, when: np.ndarray, what: int) -> float:
        replay = _replay(horizon, 1, alpha, q)
        whats = np.full(len(when), what, np.int8)
        replay.run(Playback(iter([0] * 13)), ticks, when, np.zeros(len(when), np.int32), whats)
        return float(replay.accuracy()[0])

    expected = played(alpha, q, times, EMITTED)
    happened = []
    for _ in range(400):
        silent = rng.uniform(0.0, horizon, rng.poisson(alpha * horizon))
        true = times[rng.random(len(times)) > q]
        happened.append(played(0.0, 1.0, np.sort(np.concatenate([silent, true])), CHANGED))
    assert np.mean(happened) == pytest.approx(expected, abs=4 * np.std(happened) / 20)
