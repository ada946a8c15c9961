"""Test how fetches are divided between discovery and refresh according to the values of the best URL and best page.

Fixed shares are tested in `refresh/test_rate_balancing.py` and `test_machine.py`.
"""

import pytest

from crawler.frontier.share import LEAST, Share, Side, UsualImportance


def test_the_more_valuable_side_goes_first_and_neither_starves() -> None:
    share = Share("auto")
    turns = []
    for _ in range(2000):
        side = share.first(discovery=True, refresh=True, new=2.0, known=1.0)
        assert side is not None
        share.spend(side, contended=True)
        turns.append(side)
    assert 0.03 < turns.count(Side.REFRESH) / len(turns) < 0.09
    assert share.refresh == pytest.approx(LEAST, abs=0.03)
    assert share.first(discovery=True, refresh=True, new=0.0, known=1.0) is Side.REFRESH
    assert share.first(discovery=True, refresh=False, new=0.0, known=1.0) is Side.DISCOVERY
    share.set(0.25)
    assert not share.auto and share.refresh == 0.25


@pytest.mark.parametrize("known", [0.5, 2.0])
def test_the_side_of_less_value_gets_its_least_share_from_the_start(known: float) -> None:
    """Otherwise, it would get no fetch in a crawl that consists of short runs."""
    share, turns = Share("auto"), []
    for _ in range(100):
        turns.append(share.first(discovery=True, refresh=True, new=1.0, known=known))
        share.spend(turns[-1] or Side.REFRESH, contended=True)
    loser = Side.REFRESH if known < 1.0 else Side.DISCOVERY
    for length in range(20, 101, 20):
        assert turns[:length].count(loser) == LEAST * length


def test_a_new_url_at_the_usual_depth_counts_as_one_page() -> None:
    """Every page is at depth 2, where `depth_decay` reduces the importance to a quarter."""
    usual = UsualImportance()
    assert usual.relative(0.25) == 0.25
    for _ in range(100):
        usual.note(0.25)
    assert usual.relative(0.25) == pytest.approx(1.0, abs=0.05)
    assert usual.relative(0.125) == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("deep", [0, 40])
def test_an_endless_frontier_is_worth_less_the_deeper_it_is(deep: int) -> None:
    """Each page links to one page at the next depth. The process was restarted when it had reached the depth `deep`."""
    usual = UsualImportance()
    for depth in range(deep, deep + 50):
        usual.note(0.5**depth)
    assert usual.relative(0.5 ** (deep + 50)) < 1e-10
