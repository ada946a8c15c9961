"""Test the estimate of the remaining work. The estimate is the sum of a geometric series.

While a crawl grows, there is no estimate.
"""

import pytest

from crawler.admin.eta import describe_eta, eta
from crawler.admin.status import Status, merge
from crawler.records import SlowestHost


def recent(done: float, new: float, known: float = 0.0) -> dict[str, float]:
    return {"span": 60.0, "done": done, "new": new, "known": known}


def test_remaining_pages_bring_new_urls() -> None:
    """Each of 100 URLs leads to 0.5 new URLs on average, so 100 + 50 + 25 + ... = 200 URLs are left."""
    view = eta(100, 0, recent(done=60, new=30))
    assert (view.brings, view.left, view.seconds) == (0.5, 200.0, 200.0)


def test_pending_links_are_weighted_by_the_recent_share_of_new_links() -> None:
    assert eta(100, 400, recent(done=100, new=25, known=75)).urls == 200.0
    assert eta(100, 400, {}).urls == 500.0, "without recent figures, every pending link counts"


@pytest.mark.parametrize("new", [95, 100, 5000])
def test_a_growing_crawl_has_no_estimate(new: int) -> None:
    view = eta(100, 0, recent(done=100, new=new))
    assert view.brings == new / 100 and view.left is None and view.seconds is None


def test_a_crawl_that_only_refreshes_has_words_of_its_own() -> None:
    assert describe_eta(eta(0, 0, {}), 3) == "no new URLs; known pages are fetched again"
    for new in (0.0, 30.0):  # the last page of a crawl that grew until its end, or that waits for a lost peer
        assert (
            describe_eta(eta(0, 0, {"span": 60.0, "done": 30.0, "new": new, "known": 1.0})) == "no URL waits"
        )
    assert describe_eta(eta(0, 0, {})) == describe_eta(eta(1, 0, {}), 3) == ""


def test_no_estimate_before_the_first_page_is_done() -> None:
    view = eta(3, 0, recent(done=0, new=3))
    assert view.urls == 3.0 and view.brings is None and view.left is None


def test_the_estimate_falls_as_the_queue_shrinks() -> None:
    left = [eta(todo, 10, recent(done=50, new=20, known=20)).left for todo in range(200, -1, -10)]
    assert all(
        one is not None and two is not None and one > two for one, two in zip(left, left[1:], strict=False)
    )


def test_a_host_that_waits_longer_than_the_rest_decides() -> None:
    """The rate of the last minute once promised 3 s for 3 URLs of a host that waited for an hour."""
    slow = SlowestHost("https://slow.example", 3600.0)
    view = eta(3, 0, recent(done=60, new=0), slow)
    assert (view.left, view.seconds, view.host) == (3.0, 3600.0, slow.host)
    assert describe_eta(view) == (
        "about 3 URLs, at least 60.0 min because of https://slow.example; each page adds 0.00 new ones"
    )
    assert eta(7200, 0, recent(done=60, new=0), slow) == eta(7200, 0, recent(done=60, new=0))


def test_a_crawl_in_which_all_hosts_wait_has_a_least_time() -> None:
    view = eta(3, 0, recent(done=0, new=0), SlowestHost("https://slow.example", 600.0))
    assert describe_eta(view) == "about 3 URLs, at least 10.0 min because of https://slow.example"


def test_a_limit_of_pages_ends_the_estimate_earlier() -> None:
    """With --max-pages, `status` once estimated the time until all URLs of the site would be fetched."""
    growing = eta(1000, 0, recent(done=60, new=90), SlowestHost("https://slow.example", 900.0), 30)
    assert (growing.left, growing.seconds, growing.limited, growing.host) == (30, 30.0, True, "")
    assert describe_eta(growing) == "30 pages until max_pages is reached, 30 s at this rate"
    assert eta(1000, 0, recent(done=60, new=30), None, 30).left == 30
    assert eta(100, 0, recent(done=60, new=30), None, 3000) == eta(100, 0, recent(done=60, new=30))


def test_processes_share_one_limit_of_pages() -> None:
    assert merge([Status(pages_left=7), Status(), Status(pages_left=6)]).pages_left == 6


def test_the_slowest_host_of_several_processes_decides() -> None:
    one, other = SlowestHost("https://a.example", 5.0), SlowestHost("https://b.example", 9.0)
    assert merge([Status(slowest=one), Status(slowest=other), Status()]).slowest == other
    assert merge([Status(), Status()]).slowest is None
