"""Test the world of the league: signals, changes and budgets of each arm, and the score, which is computed twice."""

import math

import numpy as np
import pytest

from crawler.errors import UsageError
from crawler.lab.league import histories
from crawler.lab.league import world as worlds
from crawler.lab.league.rivals import RIVALS, RoundRobin
from crawler.lab.league.world import DAY, World
from tests.lab.league.made import EXCERPT, history, world


def _told(found: World) -> list[tuple[int, int, float]]:
    """Return for each signal the day it is heard, its page, and the date it states, in days."""
    return [
        (day, page, round(at / DAY, 6))
        for day, heard in enumerate(found.signals)
        for page, at in zip(heard.pages.tolist(), heard.at.tolist(), strict=True)
    ]


CHANGES = [(0, 10.5, 1, 1), (0, 10.75, 1, 0), (1, 20.5, 20, 0), (2, 30.5, -1, -1)]


@pytest.mark.parametrize(
    ("arm", "told"),
    [
        ("none", []),
        ("minor", []),
        ("honest", [(10, 0, 10.75), (20, 1, 20.5), (30, 2, 30.5)]),
        ("lying", [(40, page, 40.5) for page in range(3)] + [(99, page, 100.0) for page in range(3)]),
        ("directory", [(10, 0, 10.75), (20, 1, 20.5), (20, 2, 20.5), (30, 1, 30.5), (30, 2, 30.5)]),
    ],
)
def test_signals_of_each_arm(arm: str, told: list[tuple[int, int, float]]) -> None:
    """Signals are read at the end of the day: for each page, only the signal with the latest date."""
    made = history(CHANGES, dirs=[0, 1, 1], published=[40.25, 40.5])
    assert _told(worlds.build([made], arm, days=100)) == told


def test_a_feed_signals_large_changes_and_a_third_of_those_of_unknown_size() -> None:
    known = history([(page, 50.0, 5 + page, 4) for page in range(4)], pages=4)
    assert [page for _, page, _ in _told(worlds.build([known], "feed", days=100))] == [2, 3]
    unknown = history([(page, 50.0, -1, -1) for page in range(1000)], pages=1000)
    told = len(_told(worlds.build([unknown], "feed", days=100, pages=1000)))
    assert abs(told - 350) < 4 * math.sqrt(1000 * 0.35 * 0.65)
    assert told == len(_told(worlds.build([unknown], "feed", days=100, pages=1000)))


def test_minor_edits_do_not_count_in_their_arm() -> None:
    made = history([*CHANGES, (1, 60.0, 2, 1)])
    counted = [len(times) for times in worlds.build([made], "minor", days=100).changes]
    assert counted == [0, 2, 1]  # changes of at most two lines do not count, but changes of unknown size do


def test_mixed_assigns_each_kind_of_signal_to_some_sites() -> None:
    sites = [history(CHANGES, name=f"site{k}", published=[40.5]) for k in range(10)]
    found = worlds.build(sites, "mixed", days=100)
    assert sorted(found.sources).count("") == 2
    assert sorted(found.sources).count("feed") == 2


def test_zipf_weights_are_ranks() -> None:
    found = worlds.build([history(CHANGES, pages=50)], "zipf", days=100)
    assert sorted(found.importance.tolist(), reverse=True) == pytest.approx(
        [1.0 / (rank + 10.0) for rank in range(50)]
    )
    again = worlds.build([history(CHANGES, pages=50)], "zipf", days=100, seed=2)
    assert found.importance.tolist() != again.importance.tolist()


def test_budgets_count_a_page_once_a_day() -> None:
    assert worlds.build([history(CHANGES)], "none", days=100).change_rate * DAY == pytest.approx(0.03)


def test_births_deaths_and_the_window() -> None:
    """Pages that died before the window are absent.

    Changes before the window, at birth or after death do not count.
    """
    made = history(
        [(0, -5.0, 1, 1), (1, 20.0, 1, 1), (1, 30.0, 1, 1), (2, 55.0, 1, 1), (2, 40.0, 1, 1)],
        pages=4,
        born={1: 20.0},
        died={2: 50.0, 3: -1.0},
    )
    found = worlds.build([made], "honest", days=100)
    assert len(found) == 3
    assert found.born.tolist() == [0.0, 20.0 * DAY, 0.0]
    assert found.died.tolist() == [np.inf, np.inf, 50.0 * DAY]
    assert [[at / DAY for at in times] for times in found.changes] == [[], [30.0], [40.0]]
    assert [page for _, page, _ in _told(found)] == [1, 2]


def test_pages_are_chosen_by_their_hashes() -> None:
    found = worlds.build([history([(k, 50.0, 1, 1) for k in range(3)])], "none", pages=2, days=100)
    assert [len(times) for times in found.changes] == [1, 1]


def test_missing_pages_and_unknown_arms_are_reported() -> None:
    with pytest.raises(UsageError, match="'loud' is not one of "):
        worlds.build([history(CHANGES)], "loud")
    with pytest.raises(UsageError, match="no page"):
        worlds.build([history([], pages=1, died={0: -1.0})], "none", days=100)


class Listed(RoundRobin):
    """A round robin policy that records its signals and its fetches."""

    def __init__(self, world: World, rate: float) -> None:
        super().__init__(world, rate)
        self.taken: list[tuple[float, int]] = []
        self.calls: list[tuple[str, int, float]] = []

    def claim_next(self, now: float) -> int:
        page = super().claim_next(now)
        self.taken.append((now, page))
        return page

    def add(self, page: int, now: float) -> None:
        self.calls.append(("add", page, now))
        super().add(page, now)

    def note_change(self, page: int, source: str, at: float, now: float) -> None:
        self.calls.append((source, page, now))

    def remove(self, page: int, now: float) -> None:
        self.calls.append(("remove", page, now))


def _sampled_score(found: World, taken: list[tuple[float, int]], step: float) -> float:
    """Compute the score by examining every page every `step` seconds, independently of `play`."""
    current = there = 0.0
    fetched: dict[int, list[float]] = {page: [born] for page, born in enumerate(found.born.tolist())}
    for at, page in taken:
        fetched[page].append(at)
    looks = np.arange(0.2 * found.horizon + step / 2, found.horizon, step)
    for page, times in fetched.items():
        alive = looks[(looks >= found.born[page]) & (looks < found.died[page])]
        last = np.array(times)[np.searchsorted(times, alive, side="right") - 1]
        changes = np.array(found.changes[page])
        news = np.searchsorted(changes, alive, side="right") - np.searchsorted(changes, last, side="right")
        current += found.importance[page] * float((news == 0).sum())
        there += found.importance[page] * len(alive)
    return current / there


@pytest.mark.parametrize("arm", ["none", "zipf", "minor"])
def test_the_score_equals_a_dense_sampling(arm: str) -> None:
    found = worlds.build(histories.read_folder(EXCERPT), arm, pages=10)
    rate = 3 * found.change_rate
    policy = Listed(found, rate)
    outcome = worlds.play(found, policy, rate)
    current, there = outcome.by_site(found)
    assert current.sum() / there.sum() == pytest.approx(_sampled_score(found, policy.taken, 3600.0), abs=2e-4)
    assert outcome.fetches == len(policy.taken) == int(rate * found.horizon)
    assert 0 < outcome.gone < outcome.changed < outcome.fetches


def test_births_reach_the_policy_at_once_and_signals_at_the_end_of_the_day() -> None:
    made = history(CHANGES, pages=4, born={3: 60.25}, died={0: 70.0}, published=[10.5])
    found = worlds.build([made], "lying", days=100)
    policy = Listed(found, 1.0 / DAY)
    worlds.play(found, policy, 1.0 / DAY)
    assert [call for call in policy.calls if call[0] == "add"] == [
        ("add", 0, 0.0),
        ("add", 1, 0.0),
        ("add", 2, 0.0),
        ("add", 3, 60.25 * DAY),
    ]
    assert [call for call in policy.calls if call[0] == "sitemap"] == [
        ("sitemap", page, 11 * DAY) for page in range(3)
    ]
    removed = [call for call in policy.calls if call[0] == "remove"]
    assert len(removed) == 1 and removed[0][1] == 0 and removed[0][2] >= 70.0 * DAY
    assert not any(page == 0 for at, page in policy.taken if at > removed[0][2])


@pytest.mark.parametrize("name", list(RIVALS))
def test_gaps_of_polite_sites_are_kept(name: str) -> None:
    """With any policy, two fetches of a site are at least two thirds of its mean gap apart, and fetches do not stop."""
    found = worlds.build(histories.read_folder(EXCERPT), "polite", pages=10)
    rate = 3 * found.change_rate
    gap = found.gap(rate)
    policy = RIVALS[name](found, rate)
    asked: list[list[float]] = [[] for _ in found.sites]
    take = policy.claim_next

    def noted(now: float) -> int:
        page = take(now)
        if page >= 0:
            asked[int(found.site[page])].append(now)
        return page

    policy.claim_next = noted  # type: ignore[method-assign]
    outcome = worlds.play(found, policy, rate)
    assert gap == pytest.approx(len(found.sites) / (1.5 * rate))
    assert all(np.diff(times).min(initial=np.inf) >= gap - 1e-6 for times in asked)
    assert outcome.fetches > 200


def test_a_page_that_never_changes_is_always_current() -> None:
    found = world([[], [50.0]])
    outcome = worlds.play(found, RoundRobin(found, 1e-9), 1e-9)
    assert outcome.current.tolist() == pytest.approx([80 * DAY, 30 * DAY])
    assert outcome.there.tolist() == pytest.approx([80 * DAY, 80 * DAY])
    assert outcome.fetches == 0
