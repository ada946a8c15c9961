"""Test redirect hops with a real frontier.

A hop is in no queue. The hop borrows its host between two fetch tasks of the host.
"""

import itertools
from typing import Any

import pytest

from crawler.frontier.hosts.borrowed_hosts import ASK_AGAIN
from crawler.frontier.hosts.table import HostFlag
from crawler.records import Blame, Fetch, FetchTask, Outcome
from crawler.robots.cache import DENIED, Verdict
from tests.frontier.model import Crawl, Hash, OpenRobots, config, crawled, failed, fetched, link

SAME = "1.1.1.1"


def started(*hosts: str, address: str = "", concurrency: int = 4) -> tuple[Crawl, dict[str, FetchTask]]:
    """Start a fetch task for each host; return the tasks by host name.

    The hosts share `address`; if it is empty, each host has an address of its own.
    """
    crawl = Crawl(config(frontier={"front_factor": 12}), concurrency=concurrency)
    crawl.add([f"https://{host}/" for host in hosts])
    for fetch_task in list(iter(lambda: crawl.frontier.claim_next(crawl.now), None)):
        crawl.frontier.resolved(fetch_task, [address or fetch_task.hostname], crawl.now + 60, crawl.now)
    fetch_tasks = iter(lambda: crawl.frontier.claim_next(crawl.now), None)
    return crawl, {fetch_task.hostname: fetch_task for fetch_task in fetch_tasks}


def test_a_borrowed_host_is_held_exclusively_and_waits_its_gap() -> None:
    crawl = Crawl()
    frontier, now = crawl.frontier, crawl.now
    visits = frontier._gates.visits
    assert frontier.hops.borrow("a.org", now, address="10.0.0.9") == 0.0 and len(visits) == 1
    assert frontier.hops.borrow("a.org", now) == now + ASK_AGAIN
    assert frontier.hops.borrow("b.org", now, address="10.0.0.9") == now + ASK_AGAIN, "its address is busy"
    assert len(visits) == 1
    crawl.add(["https://a.org/"])
    crawl.run(30.0)
    assert [fetch_task.kind for fetch_task in crawl.handed] == []
    frontier.hops.give_back(fetched("https://a.org/", 0.1, retry_after=20.0), crawl.now)
    returned = crawl.now
    assert frontier.hops.borrow("a.org", returned) == returned + 20.0 and len(visits) == 0
    assert crawl.run() == "done"
    assert crawl.requests[0].began >= returned + 20.0


def test_a_hop_keeps_the_gap_of_its_address() -> None:
    """The next hop to an address waits for the gap of this address. A hop whose address is unknown does not wait."""
    crawl = Crawl()
    hops, now = crawl.frontier.hops, crawl.now
    hops.borrow("a.org", now, address=SAME)
    hops.give_back(fetched("https://a.org/", 0.5), now + 1.0)
    at = hops.borrow("b.org", now + 1.0, address=SAME)
    assert at > now + 1.0 and at != now + 1.0 + ASK_AGAIN
    assert hops.borrow("c.org", now + 1.0) == 0.0
    assert hops.borrow("b.org", at, address=SAME) == 0.0
    crawl.frontier._check()


def test_a_hop_on_the_fetch_tasks_own_host_waits_for_its_gap_only() -> None:
    crawl, fetch_tasks = started("a.org", "b.org")
    now = crawl.now + 0.2
    fetch_task = fetch_tasks["a.org"]
    crawl.frontier.hops.pause(fetch_task, fetched(fetch_task.url, 0.2), now)
    assert crawl.frontier.hops.borrow("a.org", now, fetch_task) == now + 2.0
    assert crawl.frontier.hops.borrow("a.org", now + 2.0, fetch_task) == 0.0
    assert crawl.frontier.hops.borrow("b.org", now, fetch_task) > now, "b.org is held by another fetch task"


def test_a_task_waiting_for_a_hop_frees_fetch_slot_and_address() -> None:
    """While two fetch tasks wait for hops, a third task may use one of their slots.

    The hops continue when a slot is free.
    """
    crawl, fetch_tasks = started("a.org", "b.org", "c.org", concurrency=2)
    frontier, now = crawl.frontier, crawl.now + 5.0
    (first, second) = fetch_tasks.values()
    assert frontier.claim_next(now) is None, "there are two fetch slots"
    for fetch_task in (*fetch_tasks.values(), first):  # a second call changes nothing
        frontier.hops.step_aside(fetch_task, now)
    assert frontier.views.counters()["requests"] == 0
    frontier._check()
    third = frontier.claim_next(now)
    assert third is not None and third.hostname not in fetch_tasks
    assert frontier.hops.borrow("elsewhere.org", now, first, "9.9.9.9") == 0.0
    assert frontier.views.counters()["requests"] == 2
    assert frontier.hops.borrow("other.org", now, second, "8.8.8.8") == now + ASK_AGAIN, (
        "both fetch slots are taken"
    )
    frontier._check()


def test_a_task_that_stepped_aside_takes_its_slot_again_only_with_its_address() -> None:
    crawl, fetch_tasks = started("a.org", "b.org", address=SAME)
    (first,) = fetch_tasks.values()
    frontier, now = crawl.frontier, crawl.now + 5.0
    frontier.hops.step_aside(first, now)
    now += 10.0
    second = frontier.claim_next(now)
    assert second is not None and second.hostname != first.hostname, "it uses the address"
    assert frontier.hops.borrow(first.hostname, now, first, SAME) == now + ASK_AGAIN
    assert frontier.views.counters()["requests"] == 1, "no slot is taken"
    frontier.hops.leave_address(second, now)
    now += 10.0
    assert frontier.hops.take_address(first, SAME, now) == 0.0
    assert frontier.views.counters()["requests"] == 1, "a page in a browser needs no slot"
    assert frontier.hops.take_address(second, SAME, now) == now + ASK_AGAIN
    frontier._check()


def test_two_hosts_that_redirect_to_each_other_do_not_deadlock() -> None:
    crawl, fetch_tasks = started("a.org", "b.org")
    now = crawl.now + 5.0
    for fetch_task in fetch_tasks.values():
        crawl.frontier.hops.pause(fetch_task, fetched(fetch_task.url, 0.0), now)
        crawl.frontier.hops.step_aside(fetch_task, now)
    now += 10.0
    assert crawl.frontier.hops.borrow("b.org", now, fetch_tasks["a.org"], "b.org") == 0.0
    assert crawl.frontier.hops.borrow("a.org", now, fetch_tasks["b.org"], "a.org") > now, (
        "a.org is still busy with its own hop"
    )
    crawl.frontier.hops.give_back(fetched("https://b.org/", 0.1), now + 1.0)
    crawl.frontier.hops.step_aside(fetch_tasks["a.org"], now + 1.0)
    assert crawl.frontier.hops.borrow("a.org", now + 1.0, fetch_tasks["b.org"], "a.org") == 0.0
    crawl.frontier._check()


@pytest.mark.parametrize("aside", [True, False])
def test_robots_txt_may_borrow_the_host_of_a_task_that_stepped_aside(aside: bool) -> None:
    crawl, fetch_tasks = started("a.org")
    now = crawl.now + 5.0
    if aside:
        crawl.frontier.hops.step_aside(fetch_tasks["a.org"], now)
    now += 1.0
    assert crawl.frontier.hops.borrow("a.org", now, address="a.org") == (0.0 if aside else now + ASK_AGAIN)


def test_a_redirect_is_followed_if_the_robots_txt_that_is_obeyed_allows_it() -> None:
    class Closed(OpenRobots):
        def verdict(self, authority: str, target: str, now: float) -> Verdict:
            return DENIED

    ignored = {"match": "a.org", "robots": "ignore"}
    hops = Crawl(config(override=[ignored]), robots=Closed()).frontier.hops
    assert hops.may_ask("https://a.org/x", 0.0) and not hops.may_ask("https://b.org/x", 0.0)


def test_without_a_gap_between_requests_addresses_are_not_held() -> None:
    hops = Crawl(config(politeness={"delay": 0.0})).frontier.hops
    assert hops.borrow("a.org", 1e6, address=SAME) == hops.borrow("b.org", 1e6, address=SAME) == 0.0


@pytest.mark.parametrize("terms", [{"override": [{"match": "a.org", "delay": 7.0}]}, {}])
def test_the_gap_after_a_hop_obeys_override_and_crawl_delay(terms: dict[str, Any]) -> None:
    class Slow(OpenRobots):
        def crawl_delay(self, authority: str) -> float | None:
            return None if terms else 7.0

    hops = Crawl(config(**terms), robots=Slow()).frontier.hops
    assert hops.borrow("a.org", 1e6) == 0.0
    hops.give_back(fetched("https://a.org/"), 1e6)
    assert hops.borrow("a.org", 1e6) == 1e6 + 7.0


def test_a_failure_of_the_last_host_of_a_chain_is_not_charged_to_the_first() -> None:
    """A page of a.org was redirected to b.org, which answered 503. Only b.org may back off.

    The URL is tried `frontier.tries` times.
    """

    def redirected(fetch_task: FetchTask, _now: float) -> Fetch:
        busy = failed("https://b.org/", Outcome.HOST_BUSY, Blame.HOST, status=503, retry_after=9e4)
        return busy if fetch_task.url.endswith("/away") else fetched(fetch_task.url)

    links = [link(f"https://a.org/{path}") for path in ("away", *range(5))]
    crawl = crawled(links, answer=redirected)
    (host,) = crawl.frontier.views.hosts(crawl.now, 1)
    assert (host.failures, host.slowdown) == (0, 1.0)
    assert sum(request.url.endswith("/away") for request in crawl.requests) == 3
    gaps = [after.began - before.ended for before, after in itertools.pairwise(crawl.requests)]
    assert min(gaps) == 1.0 and max(gaps) < 200.0


def test_a_page_in_a_browser_waits_after_a_429_to_one_of_its_requests() -> None:
    crawl, fetch_tasks = started("a.org")
    hops, now, fetch_task = crawl.frontier.hops, crawl.now, fetch_tasks["a.org"]
    hops.leave_address(fetch_task, now)
    for at, answer, ready in (
        (1.0, fetched("https://a.org/x.js", 3.0), 0.0),
        (2.0, failed("https://a.org/y.js", Outcome.HOST_BUSY, Blame.HOST, status=429), now + 62.0),
    ):
        assert hops.take_address(fetch_task, "", now + at) == 0.0
        hops.end_subresource(fetch_task, answer, now + at)
        assert hops.take_address(fetch_task, "", now + at) == ready
    assert crawl.frontier.record_outcome(fetch_task, fetched(fetch_task.url), now + 3.0).until == now + 62.0


def test_other_tasks_wait_for_the_gap_of_a_host_whose_page_is_in_a_browser() -> None:
    """The page's own requests have no gap between them. Others wait for the gap after the last one, and it for theirs."""
    crawl, fetch_tasks = started("a.org")
    hops, now, fetch_task = crawl.frontier.hops, crawl.now + 50.0, fetch_tasks["a.org"]
    hops.rest(fetch_task, fetched(fetch_task.url), now)
    hops.step_aside(fetch_task, now)
    hops.leave_address(fetch_task, now)
    assert hops.borrow("a.org", now + 0.5) == now + 1.0
    assert hops.take_address(fetch_task, "", now + 0.5) == 0.0
    assert hops.borrow("a.org", now + 1.5) == now + 1.5 + ASK_AGAIN, "a request is under way"
    hops.end_subresource(fetch_task, fetched("https://a.org/x.js"), now + 2.0)
    assert hops.borrow("a.org", now + 2.9) == now + 3.0
    assert hops.borrow("a.org", now + 3.0) == 0.0
    assert hops.take_address(fetch_task, "", now + 3.1) == now + 3.1 + ASK_AGAIN
    hops.give_back(fetched("https://a.org/y.js"), now + 3.5)
    assert hops.take_address(fetch_task, "", now + 4.0) == now + 4.5
    assert hops.take_address(fetch_task, "", now + 4.5) == 0.0


@pytest.mark.parametrize("waits", [False, True])
def test_no_other_task_uses_a_host_whose_request_waits_for_memory(waits: bool) -> None:
    """When the task waits for a hop later, others may use its host after the gap."""
    crawl, fetch_tasks = started("a.org")
    hops, now, fetch_task = crawl.frontier.hops, crawl.now + 50.0, fetch_tasks["a.org"]
    if waits:
        hops.hold_off(fetch_task)
    hops.step_aside(fetch_task, now)
    assert hops.borrow("a.org", now + 9.0) == (now + 9.0 + ASK_AGAIN if waits else 0.0)
    if waits:
        hops.pause(fetch_task, fetched(fetch_task.url), now + 9.0)
        assert hops.borrow("a.org", now + 9.5) == now + 10.0
        assert hops.borrow("a.org", now + 10.0) == 0.0


def test_the_next_task_of_a_host_is_not_bound_by_the_rest_of_the_last_one() -> None:
    crawl, fetch_tasks = started("a.org")
    hops, now, fetch_task = crawl.frontier.hops, crawl.now, fetch_tasks["a.org"]
    hops.hold_off(fetch_task)
    crawl.add(["https://a.org/1"])
    crawl.frontier.record_outcome(fetch_task, fetched(fetch_task.url), now)
    after = crawl.frontier.claim_next(now + 60.0)
    assert after is not None and after.hostname == "a.org"
    hops.step_aside(after, now + 60.0)
    assert hops.borrow("a.org", now + 99.0) == 0.0


def test_hops_to_a_task_s_own_host_take_turns_of_its_domain() -> None:
    crawl, fetch_tasks = started("a.site.org")
    hops, now, fetch_task = crawl.frontier.hops, crawl.now + 100.0, fetch_tasks["a.site.org"]
    assert hops.borrow("a.site.org", now, fetch_task) == 0.0
    assert hops.borrow("b.site.org", now) == now + 1 / 8
    assert hops.take_address(fetch_task, "", now + 9.0) == 0.0
    assert hops.borrow("c.site.org", now + 9.0) == 0.0, "requests of a browser need no turn"


def test_a_host_that_was_blocked_refused_or_given_up_is_closed_for_hops() -> None:
    crawl, _ = started("a.org")
    frontier, slot = crawl.frontier, crawl.frontier._hosts.find(Hash().host_key("a.org"))
    assert not frontier.hops.is_closed("a.org") and not frontier.hops.is_closed("unknown.org")
    for flag in (HostFlag.BLOCKED, HostFlag.REFUSED, HostFlag.GIVEN_UP):
        frontier._hosts.flags[slot] = flag
        assert frontier.hops.is_closed("a.org")
    frontier._hosts.flags[slot] = HostFlag.PROMPT
    assert not frontier.hops.is_closed("a.org")
