"""Compare the bounded table of link scores with unbounded dicts."""

import random

import numpy as np
import pytest

from crawler.orders.classes import class_of
from crawler.orders.link_scores import LinkScores


@pytest.mark.parametrize("adds", [False, True])
def test_an_improvement_by_two_classes_over_the_score_last_sent_is_news(adds: bool) -> None:
    rng = random.Random(7)
    worths = LinkScores(16, adds=adds, base=2.0**-16 if adds else 0.0, news=2)
    known: dict[int, float] = {}
    told: dict[int, float] = {}
    for _ in range(400):
        some = rng.sample(range(1, 40), 5)
        scores = np.array([2.0 ** -rng.uniform(2, 14) for _ in some])
        worth, before, news = worths.add(np.array(some, np.uint64), scores)
        for i, url in enumerate(some):
            base = known.get(url, 2.0**-16 if adds else 0.0)
            expected = min(1.0, base + scores[i]) if adds else max(base, scores[i])
            assert worth[i] == pytest.approx(expected, rel=1e-4)
            assert before[i] == pytest.approx(told.get(url, 0.0), rel=1e-4)
            if url in told:
                gained = class_of(told[url]) - class_of(expected)
                assert gained >= 1 if news[i] else gained <= 2
            assert url in told or not news[i]
            known[url] = expected
            if news[i] or url not in told:
                told[url] = expected


def test_with_news_0_nothing_is_news_and_another_url_takes_over_an_entry() -> None:
    worths = LinkScores(1, adds=False, base=0.0, news=0)
    one, other = np.array([2], np.uint64), np.array([4], np.uint64)
    worths.add(one, np.array([0.001]))
    assert not worths.add(one, np.array([1.0]))[2].any()
    worths.add(other, np.array([0.5]))
    assert worths.add(one, np.array([0.25]))[0] == pytest.approx(0.25)


def test_sums_below_the_least_counted_are_equal_and_not_news() -> None:
    """A sum below `counts_from` counts as `counts_from`.

    So a link changes the score only if the sum becomes larger than `counts_from`.
    """
    worths = LinkScores(16, adds=True, base=2.0**-16, news=2, counts_from=1.5 * 2.0**-16)
    url, given = np.array([7], np.uint64), np.array([0.2 * 2.0**-16])
    seen = [worths.add(url, given) for _ in range(6)]
    assert [float(worth[0]) * 2.0**16 for worth, _, _ in seen] == pytest.approx(
        [1.5, 1.5, 1.6, 1.8, 2.0, 2.2], rel=1e-4
    )
    assert [bool(news[0]) for _, _, news in seen] == [False, False, False, True, False, True]
