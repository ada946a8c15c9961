"""Places kept free for hosts that answer soon."""

import random

from crawler.records import Errand, Fetch, Task
from tests.frontier.model import Crawl, config, fetched, link


def test_hosts_that_trickle_take_no_place_from_those_that_answer() -> None:
    """A tar pit of 40 hosts beside 4 good ones, 10 places: the good ones go on as if they were alone."""

    def answer(errand: Errand, now: float) -> Fetch:
        return fetched(errand.url, took=60.0 if errand.hostname.startswith("tar") else 0.1)

    good = [link(f"https://good{n}.g{n}.org/{k}") for k in range(300) for n in range(4)]
    tar = [link(f"https://tar{n}.t{n}.org/{k}") for n in range(40) for k in range(50)]

    def pages(*links_: list) -> int:
        crawl = Crawl(
            config(frontier={"front_factor": 12}),
            answer=answer,
            concurrency=10,
            addresses=lambda name: (f"10.{hash(name)}",),
        )
        crawl.add(links_[0][:4])  # met before the flood comes
        crawl.run(5.0)
        for some in links_:
            crawl.add(some[4:] if some is links_[0] else some)
        crawl.run(300.0)
        return sum(errand.hostname.startswith("good") and errand.task is Task.PAGE for errand in crawl.handed)

    assert pages(good, tar) >= 0.95 * pages(good)


def test_others_get_all_of_their_share_in_turn() -> None:
    crawl = Crawl(answer=lambda errand, now: fetched(errand.url, took=9.0), concurrency=10)
    urls = [f"https://h{n}.d{n}.org/{k}" for n in range(40) for k in range(3)]
    random.Random(1).shuffle(urls)
    crawl.add([link(url) for url in urls])
    most = 0
    while crawl.step(1e9):
        most = max(most, crawl.frontier.requests)
    assert sorted(crawl.done) == sorted(urls) and most == 8


def test_shared_hosting_has_a_gap_and_a_rate() -> None:
    """400 domains on one address: each of 16 places is held for the gap of 0.5 s, and 20 begin a second at most."""
    began: dict[float, list[float]] = {}
    for rate, most in ((0.0, 16 / 0.51), (20.0, 20.0)):
        crawl = Crawl(
            config(
                politeness={"shared_address_rate": rate, "delay_factor": 0.0},
                frontier={"front_factor": 12, "address_waiters_max": 64},
            ),
            answer=lambda errand, now: fetched(errand.url, took=0.01),
            addresses=lambda name: ("10.0.0.1",),
            concurrency=50,
        )
        crawl.checking = False
        crawl.add([link(f"https://h{n}.d{n}.org/{k}") for n in range(400) for k in range(4)])
        crawl.run(120.0)
        began[rate] = sorted(request.began for request in crawl.requests)
        late = [instant for instant in began[rate] if 20.0 <= instant - 1e6 < 40.0]
        assert 0.8 * most * 20 <= len(late) <= 1.01 * most * 20 + 16
