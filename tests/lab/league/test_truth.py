"""Test the policy of the league that knows the parameters of each page: its parameters, and its calibration."""

import numpy as np
import pytest

from crawler.lab.league import world as worlds
from crawler.lab.league.contenders import TRUE, judged
from crawler.lab.league.truth import RATE_LEAST, true_parameters
from crawler.lab.living import calibration
from tests.lab.league.made import history

DAY = worlds.DAY


def test_the_parameters_are_those_of_the_history() -> None:
    """The feed of a site announces changes of more than ten lines; the sitemap of another site announces all pages.

    Page 0 has four changes in its life of 80 days, two of them on the same day. Page 1 has one small change.
    """
    changes = [(0, 10.1, 3, 3), (0, 20.1, 20, 0), (0, 20.3, 1, 1), (0, 30.1, 30, 0), (1, 40.1, 1, 0)]
    died = {0: 80.0}
    feed = worlds.build([history(changes, pages=3, died=died)], "feed", days=100)
    rates = np.maximum([3.0 / (80.0 * DAY), 1.0 / (100.0 * DAY), 0.0], RATE_LEAST)
    truth = true_parameters(feed)
    assert truth[:, 0] == pytest.approx(rates)
    assert truth[:, 1] == pytest.approx([0.5] * 3)  # two of four changes are announced
    assert truth[:, 2].tolist() == [0.0] * 3
    lying = worlds.build(
        [history(changes, pages=3, died=died, published=[10.2, 50.2], name="other")], "lying", days=100
    )
    # On day 10, page 0 has changed, but pages 1 and 2 have not. On day 50 and at the end, no page has changed.
    assert true_parameters(lying)[:, 1] == pytest.approx([0.25] * 3)
    assert true_parameters(lying)[:, 2] == pytest.approx([7.0 / (280.0 * DAY)] * 3)


def test_the_policy_is_calibrated_if_pages_change_independently() -> None:
    """A feed announces half of the changes of 100 pages with very different rates.

    With three fetches for ten changes, a policy that had to learn the rates would be wrong by 0.16.
    """
    rng = np.random.default_rng(5)
    changes = [
        (page, day, 20 if rng.random() < 0.5 else 2, 1)
        for page, every in enumerate(10.0 ** rng.uniform(1.0, 3.0, 100))
        for day in np.cumsum(rng.exponential(every, 500))
        if day < 1461.0
    ]
    world = worlds.build([history(changes, pages=100, days=1461.0)], "feed")
    found = calibration.deciles(judged(TRUE, world, 0.3 * world.change_rate))
    rows = [row for row in found if row.kind == "said" and row.copies > 500]
    assert len(rows) > 3
    assert max(abs(row.off) for row in rows) < 0.04
