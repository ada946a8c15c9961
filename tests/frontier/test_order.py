"""Test the frontier with an order: the URLs of the best class are fetched first, within a host and between hosts.

URLs move to better classes, and `best_waiting` is correct.
"""

import random
from typing import Any

import pytest

from crawler.frontier.discovery.entries import class_in_order
from crawler.orders.classes import NEUTRAL, class_of, score_of, with_class
from crawler.records import FetchTask, Link, LinkFlag, TaskKind
from crawler.storage.keys import WAITING, WAITING_WHOLE
from crawler.storage.kv import MemoryStore
from tests.frontier.model import Crawl, config, crawled, link, retire

ORDER = {"name": "opic"}


def scored(url: str, place: int, depth: int = 0) -> Link:
    return link(url, depth=depth, flags=with_class(0, place))


def pages(crawl: Crawl) -> list[FetchTask]:
    return [fetch_task for fetch_task in crawl.handed if fetch_task.kind is TaskKind.PAGE]


def improve(crawl: Crawl, *links: Link) -> int:
    batch = crawl.store.batch()
    moved = crawl.frontier.intake.improve(links, batch, crawl.now)
    crawl._after(0.001, lambda: crawl._commit_add(batch))
    return moved


def index(crawl: Crawl) -> set[bytes]:
    return {key for key in crawl.store._data if key.startswith(WAITING)}


def test_within_a_host_the_best_class_goes_first_then_the_oldest_url() -> None:
    crawl = Crawl(config(order=ORDER))
    rng = random.Random(3)
    places = {f"https://a.org/{n}": rng.choice([0, 9, NEUTRAL, 254]) for n in range(60)}
    crawl.add([scored(url, place) for url, place in places.items()])
    assert crawl.run() == "done"
    assert [fetch_task.url for fetch_task in pages(crawl)] == sorted(places, key=lambda url: places[url])
    assert all(fetch_task.flags == 0 for fetch_task in pages(crawl))
    assert not index(crawl)


def test_the_best_class_goes_first_and_a_fifth_of_the_turns_by_arrival() -> None:
    """At a low rate, nearly all hosts are ready at any time, so the mean class of the requests gets worse over time."""
    order = ORDER | {"first_come": 0.2}
    crawl = Crawl(config(order=order, crawl={"rate": 2.0}, frontier={"front_factor": 12}), concurrency=4)
    urls = {f"https://h{n}.d{n}.org/{k}": 10 * n for n in range(20) for k in range(5)}
    crawl.add([scored(url, place) for url, place in urls.items()])
    assert crawl.run() == "done"
    asked = [class_in_order(fetch_task.order) for fetch_task in pages(crawl)]
    first, last = asked[:50], asked[50:]
    assert sum(first) / 50 < 75 and sum(last) / 50 > 115
    assert any(place > 100 for place in first), "no host had its turn by waiting time alone"
    assert len(pages(crawl)) == len(urls) and not index(crawl)


def test_without_an_order_classes_of_links_change_nothing() -> None:
    links = [scored(f"https://h{n % 3}.d{n % 3}.org/{n}", n % 256, n % 4) for n in range(60)]
    plain = [link(each.url, each.depth) for each in links]
    handed = []
    for some in (links, plain):
        crawl = crawled(some, config())
        handed.append([(fetch_task.url, fetch_task.order, fetch_task.flags) for fetch_task in pages(crawl)])
        assert not index(crawl) and WAITING_WHOLE not in crawl.store._data
    assert handed[0] == handed[1]
    assert {class_in_order(order) for _, order, _ in handed[0]} == {NEUTRAL}


@pytest.mark.parametrize("written", [True, False])
def test_a_better_link_moves_a_url_that_waits(written: bool) -> None:
    """The test covers a URL whose entry is in an unwritten batch, and a link with a lower depth."""
    crawl = Crawl(config(order=ORDER))
    crawl.frontier.pauses.pause()
    crawl.add([scored(f"https://a.org/{n}", 100, depth=5) for n in range(30)])
    if written:
        crawl.run(1.0)
    assert improve(crawl, scored("https://a.org/29", 98, depth=2), scored("https://a.org/28", 99)) == 1
    crawl.frontier.pauses.resume()
    assert crawl.run() == "done"
    assert [fetch_task.url for fetch_task in pages(crawl)][0] == "https://a.org/29"
    assert pages(crawl)[0].depth == 2 and class_in_order(pages(crawl)[0].order) == 98
    assert [fetch_task.url for fetch_task in pages(crawl)][1:] == [f"https://a.org/{n}" for n in range(29)]


def test_a_better_link_to_a_url_not_queued_yet_is_remembered() -> None:
    crawl = Crawl(config(order=ORDER))
    assert improve(crawl, scored("https://a.org/2", 10), scored("https://b.org/none", 3)) == 0
    crawl.add([scored(f"https://a.org/{n}", 50) for n in range(3)])
    assert crawl.run() == "done"
    assert [fetch_task.url[-1] for fetch_task in pages(crawl)] == ["2", "0", "1"]


def test_urls_done_in_flight_parked_or_tried_are_not_moved() -> None:
    crawl = Crawl(config(order=ORDER, crawl={"depth": 3}))
    crawl.add(
        [scored("https://a.org/1", 50), scored("https://a.org/2", 60), scored("https://a.org/deep", 50, 9)]
    )
    while not pages(crawl):
        crawl.step(crawl.now + 1)
    assert improve(crawl, scored("https://a.org/1", 0), scored("https://a.org/deep", 0)) == 0
    assert crawl.run() == "done"
    assert improve(crawl, scored("https://a.org/2", 0)) == 0
    crawl.run()
    assert len(pages(crawl)) == 2 and crawl.frontier.views.counters()["parked_depth"] == 1


def test_a_priority_of_the_user_shifts_a_class_and_keeps_its_place() -> None:
    """The shift by a priority is applied only once, even if a better link was found before the URL was queued."""
    ranks = {"https://a.org/1": NEUTRAL - 5, "https://a.org/2": NEUTRAL + 200}

    def priority(each: Link) -> int:
        return ranks.get(each.url, NEUTRAL) if each.flags & LinkFlag.RANKED else NEUTRAL

    crawl = Crawl(config(order=ORDER), priority=priority)
    crawl.frontier.pauses.pause()
    improve(crawl, scored("https://a.org/1", 60))
    crawl.add([link(url, flags=with_class(LinkFlag.RANKED, 100)) for url in ranks])
    crawl.run(1.0)
    assert improve(crawl, *(scored(url, 0) for url in ranks)) == 0
    crawl.frontier.pauses.resume()
    assert crawl.run() == "done"
    assert [class_in_order(fetch_task.order) for fetch_task in pages(crawl)] == [55, 255]


def test_a_url_retired_by_an_unwritten_batch_is_not_restored() -> None:
    """The store still contains the retired URL. If the URL were moved, it would be restored without being counted."""
    crawl = Crawl(config(order=ORDER))
    crawl.frontier.pauses.pause()
    crawl.add([scored(f"https://a.org/{n}", 50) for n in range(3)])
    crawl.run(1.0)
    batch = crawl.store.batch()
    assert retire(crawl.frontier, "/1", batch) == 1
    assert improve(crawl, scored("https://a.org/1", 0)) == 0
    crawl._commit_add(batch)
    crawl.frontier.pauses.resume()
    assert crawl.run() == "done"
    assert [fetch_task.url[-1] for fetch_task in pages(crawl)] == ["0", "2"]


def test_the_index_is_built_with_an_order_and_dropped_without_one() -> None:
    """A crawl directory begun without an order has no index.

    After a reshard or a repair, a directory has no index either.
    """
    store: Any = MemoryStore()
    whole: list[bool] = []
    for round_, order in enumerate([{}, ORDER, {}, ORDER | {"raise_classes": 0}, ORDER]):
        crawl = Crawl(config(order=order), store=store, now=1e6 + 1000 * round_)
        crawl.frontier.pauses.pause()
        crawl.add([scored(f"https://a.org/{round_}/{n}", 50 + n) for n in range(5)])
        crawl.run(1.0)
        crawl.stop()
        found = {key[2:10] + order for key, order in store._data.items() if key.startswith(WAITING)}
        whole.append(found == {key[2:] for key in store._data if key.startswith(b"t/")})
        assert bool(found) == whole[-1] == (WAITING_WHOLE in store._data)
    assert whole == [False, True, False, False, True]


def test_best_waiting_is_the_importance_of_the_best_url_that_may_be_fetched() -> None:
    crawl = Crawl(config(order=ORDER, politeness={"delay": 100.0}), concurrency=3)
    frontier = crawl.frontier
    assert frontier.claims.best_waiting(crawl.now) == 0.0
    crawl.add([scored("https://a.a/1", 30), scored("https://a.a/2", 40), scored("https://b.b/1", 35)])
    crawl.run(0.5)
    frontier._check()
    assert frontier.claims.best_waiting(crawl.now) == 0.0, "both hosts wait their gaps"
    crawl.add([scored("https://c.c/1", 90)])
    crawl.clock.advance(0.01)
    frontier.pauses.pause()
    crawl.step(crawl.now + 1)
    assert frontier.claims.best_waiting(crawl.now) == 0.0
    frontier.pauses.resume()
    assert frontier.claims.best_waiting(crawl.now) == score_of(90)
    improve(crawl, scored("https://c.c/1", 20))
    assert frontier.claims.best_waiting(crawl.now) == score_of(20)
    crawl.clock.advance(200.0)
    assert frontier.claims.best_waiting(crawl.now) == score_of(20)
    crawl.run(1.0)
    assert frontier.claims.best_waiting(crawl.now) == 0.0 and len(pages(crawl)) == 4


def test_without_an_order_best_waiting_falls_with_the_depth_of_the_next_hosts_first_url() -> None:
    crawl = Crawl(config(order={"depth_decay": 0.5}))
    crawl.frontier.pauses.pause()
    crawl.add([link("https://a.org/1", 3), link("https://a.org/2", 2)])
    crawl.run(1.0)
    crawl.frontier.pauses.resume()
    assert crawl.frontier.claims.best_waiting(crawl.now) == 0.25
    assert class_of(0.25) == 16


def test_requests_are_polite_under_an_order() -> None:
    """The gaps are kept although better URLs are added all the time, some of them for hosts that were just requested."""
    from tests.frontier.test_frontier import judge

    rng = random.Random(5)
    crawl = Crawl(config(order=ORDER), concurrency=6)
    crawl.add([scored(f"https://h{n % 9}.d{n % 9}.org/{n}", rng.randrange(256)) for n in range(200)])
    for round_ in range(20):
        crawl.run(5.0)
        some = [f"https://h{n % 9}.d{n % 9}.org/{n}" for n in rng.sample(range(200), 20)]
        improve(crawl, *(scored(url, rng.randrange(128)) for url in some))
        crawl.add([scored(f"https://h{k}.d{k}.org/new{round_}", 0) for k in rng.sample(range(9), 2)])
    assert crawl.run() == "done"
    judge(crawl.requests)
    asked = [fetch_task.url for fetch_task in pages(crawl)]
    assert len(asked) == len(set(asked)) == 240
