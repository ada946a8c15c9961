"""Test how fetches are divided between discovery and refresh if the division depends on their values.

Fixed shares are tested in `refresh/test_rate_balancing.py` and `test_machine.py`.
"""

import pytest

from crawler.frontier.share import LEAST, Share, Side


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
