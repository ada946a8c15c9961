"""The estimate of the remaining work: a geometric series, and no number while a crawl grows."""

import pytest

from crawler.admin.eta import eta


def recent(done: float, new: float, known: float = 0.0) -> dict[str, float]:
    return {"span": 60.0, "done": done, "new": new, "known": known}


def test_each_page_that_is_left_brings_others() -> None:
    """100 URLs, each of which brings 0.5 new ones: 100 + 50 + 25 + ... = 200."""
    view = eta(100, 0, recent(done=60, new=30))
    assert (view.brings, view.left, view.seconds) == (0.5, 200.0, 200.0)


def test_pending_links_count_by_the_share_of_them_that_was_new() -> None:
    assert eta(100, 400, recent(done=100, new=25, known=75)).urls == 200.0
    assert eta(100, 400, {}).urls == 500.0, "nothing is known of them"


@pytest.mark.parametrize("new", [95, 100, 5000])
def test_a_crawl_that_grows_has_no_end_in_sight(new: int) -> None:
    view = eta(100, 0, recent(done=100, new=new))
    assert view.brings == new / 100 and view.left is None and view.seconds is None


def test_nothing_is_said_before_a_page_is_done() -> None:
    view = eta(3, 0, recent(done=0, new=3))
    assert view.urls == 3.0 and view.brings is None and view.left is None


def test_the_nearer_the_end_the_less_is_left() -> None:
    left = [eta(todo, 10, recent(done=50, new=20, known=20)).left for todo in range(200, -1, -10)]
    assert all(
        one is not None and two is not None and one > two for one, two in zip(left, left[1:], strict=False)
    )
