"""Test the list of hosts: hosts outside the front, failures of robots.txt and of single ports, and searching."""

from collections.abc import Generator
from typing import Any

import pytest

from crawler.frontier import host_list
from crawler.records import Blame, Fetch, FetchTask, Outcome
from tests.frontier.model import Crawl, config, failed, fetched, link


def page(crawl: Crawl, order: str = "busy", limit: int = 100, **more: str) -> dict[str, Any]:
    return ended(crawl.frontier.host_list.page(crawl.now, order, limit, **more))[1]


def ended(steps: Generator[None, None, dict[str, Any]]) -> tuple[int, dict[str, Any]]:
    """Run the generator to its end; return the number of its pauses and its result."""
    pauses = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return pauses, end.value
        pauses += 1


def names(found: dict[str, Any]) -> list[str]:
    return [row["host"] for row in found["rows"]]


def refusing(fetch_task: FetchTask, _now: float) -> Fetch:
    """Refuse connections to any port of hosts whose name begins with "dead"."""
    if fetch_task.url.split("/")[2].startswith("dead"):
        return failed(fetch_task.url, Outcome.CONNECT_ERROR, Blame.HOST, took=0.01)
    return fetched(fetch_task.url)


@pytest.fixture
def crawl() -> Crawl:
    """Return a crawl of 44 hosts with a small front.

    40 of the hosts refuse connections, half of these on an unusual port.
    """
    crawl = Crawl(config(crawl={"patience": "1 d"}), answer=refusing)
    good = [link(f"http://good{n}.org/{page}") for n in range(4) for page in range(n + 2)]
    dead = [link(f"http://dead{n}.org{':81' if n % 2 else ''}/") for n in range(40)]
    crawl.add(good + dead)
    crawl.run(60.0)
    return crawl


def test_failing_hosts_come_first_and_are_counted(crawl: Crawl) -> None:
    """Once, a host was not listed if only its robots.txt or one port was unreachable: its `failures` were 0."""
    found = page(crawl, "failing", 40)
    assert {name.startswith("dead") for name in names(found)} == {True}
    assert (found["hosts"], found["failing"], found["matched"]) == (44, 40, 44)
    assert {row["cause"] for row in found["rows"]} == {"connect_error"}
    assert crawl.frontier.views.counters()["hosts_failing"] == 40


def test_order_and_limit_apply_to_all_hosts(crawl: Crawl) -> None:
    assert names(page(crawl, "size", 3)) == ["good3.org", "good2.org", "good1.org"]
    ranks = [row["rank"] for row in page(crawl, "wait")["rows"]]
    assert ranks == sorted(ranks, reverse=True) and len(ranks) == 44


def test_search_and_cause(crawl: Crawl) -> None:
    assert sorted(names(page(crawl, search="GOOD"))) == [f"good{n}.org" for n in range(4)]
    assert names(page(crawl, search="dead17.org")) == ["dead17.org"]
    assert page(crawl, search="nowhere")["rows"] == []
    found = page(crawl, search="3", cause="connect_error")
    assert found["matched"] == 13 and all("dead" in name for name in names(found))


@pytest.mark.parametrize("clean", [True, False])
def test_hosts_that_fail_are_listed_as_failing_after_a_restart(crawl: Crawl, clean: bool) -> None:
    """Once, after a restart, 20 failing hosts with an unusual port counted as healthy until their next request.

    This request may be hours away.
    """
    if clean:
        crawl.stop()
    again = Crawl(
        config(crawl={"patience": "1 d"}), store=crawl.store, answer=refusing, now=crawl.now, clean=clean
    )
    found = page(again, "failing", 40, cause="connect_error")
    assert {name.startswith("dead") for name in names(found)} == {True}
    assert (found["hosts"], found["failing"], found["matched"]) == (44, 40, 40)
    again._answer = lambda fetch_task, now: fetched(fetch_task.url)
    again.run(100_000.0)
    assert page(again, "failing")["failing"] == 0


def test_a_search_is_bounded_and_pauses(crawl: Crawl, monkeypatch: pytest.MonkeyPatch) -> None:
    """A search reports the number of hosts that it did not examine.

    A search for the whole name of a host always finds the host.
    """
    monkeypatch.setattr(host_list, "SEARCHED_MAX", 20)
    monkeypatch.setattr(host_list, "SEARCHED_AT_ONCE", 5)
    pauses, found = ended(crawl.frontier.host_list.page(crawl.now, "busy", 100, "o"))
    assert pauses >= 4 and found["unsearched"] == 24
    assert names(page(crawl, search="dead39.org")) == ["dead39.org"]
