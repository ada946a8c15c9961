"""Test the fetch slots reserved for prompt hosts, which answer quickly."""

import random
from itertools import pairwise

import pytest

from crawler.frontier.hosts.front_host import FrontHost
from crawler.frontier.hosts.slot_shares import SlotShares
from crawler.frontier.hosts.table import HostFlag, HostTable
from crawler.records import Fetch, FetchTask, Outcome, TaskKind
from tests.frontier.model import Crawl, config, fetched, link


def test_trickling_hosts_take_no_fetch_slots_from_prompt_hosts() -> None:
    """40 slow hosts and 4 prompt hosts share 10 slots. The prompt hosts are fetched as fast as if they were alone."""

    def answer(fetch_task: FetchTask, now: float) -> Fetch:
        return fetched(fetch_task.url, took=60.0 if fetch_task.hostname.startswith("tar") else 0.1)

    good = [link(f"https://good{n}.g{n}.org/{k}") for k in range(300) for n in range(4)]
    tar = [link(f"https://tar{n}.t{n}.org/{k}") for n in range(40) for k in range(50)]

    def pages(*links_: list) -> int:
        crawl = Crawl(
            config(frontier={"front_factor": 12}),
            answer=answer,
            concurrency=10,
            addresses=lambda name: (f"10.{hash(name)}",),
        )
        crawl.add(links_[0][:4])  # the pages of prompt hosts are added before those of trickling hosts
        crawl.run(5.0)
        for some in links_:
            crawl.add(some[4:] if some is links_[0] else some)
        crawl.run(300.0)
        return sum(
            fetch_task.hostname.startswith("good") and fetch_task.kind is TaskKind.PAGE
            for fetch_task in crawl.handed
        )

    assert pages(good, tar) >= 0.95 * pages(good)


def test_other_hosts_use_their_whole_share_in_turn() -> None:
    crawl = Crawl(answer=lambda fetch_task, now: fetched(fetch_task.url, took=9.0), concurrency=10)
    urls = [f"https://h{n}.d{n}.org/{k}" for n in range(40) for k in range(3)]
    random.Random(1).shuffle(urls)
    crawl.add(urls)
    most = 0
    while crawl.step(1e9):
        most = max(most, crawl.frontier.requests)
    assert sorted(crawl.done) == sorted(urls) and most == 8


def test_shared_hosting_has_a_gap_and_a_rate() -> None:
    """Each of the 16 request slots of an address is held for 0.5 s.

    The rate of the address grows with the square root of the number of its domains. Requests to the address
    start at equal distances; once, 16 started together, and then none for two seconds.
    """
    for rate, domains, most in (
        (0.0, 400, 16 / 0.51),
        (8.0, 50, 8.0),
        (8.0, 80, 8.0 * 1.6**0.5),
        (4.0, 400, 4.0 * 8**0.5),
    ):
        crawl = Crawl(
            config(
                politeness={"shared_address_rate": rate, "delay_factor": 0.0},
                frontier={"front_factor": 12, "address_waiters_max": 64},
            ),
            answer=lambda fetch_task, now: fetched(fetch_task.url, took=0.01),
            addresses=lambda name: ("10.0.0.1",),
            concurrency=50,
        )
        crawl.checking = False
        crawl.add([f"https://h{n}.d{n}.org/{k}" for n in range(domains) for k in range(1600 // domains)])
        crawl.run(40.0)
        late = [request for request in crawl.requests if 20.0 <= request.began - 1e6 < 40.0]
        assert 0.8 * most * 20 <= len(late) <= 1.06 * most * 20 + 1 + 16 * (not rate), (rate, domains)
        began = sorted(request.began for request in late)
        gaps = [after - before for before, after in pairwise(began)]
        assert not rate or min(gaps) >= 0.9 / most, (rate, domains)


def test_one_fetch_slot_is_reclaimed_per_waiting_host() -> None:
    """While others wait, a host that never answered loses its slot after 5 s, and a slow host after `crowded_timeout`."""
    hosts = HostTable()
    shares = SlotShares(hosts, 4, 1.0, crowded_timeout=15.0)
    front = [FrontHost(hosts.insert(n + 1), n + 1, f"h{n}.org", 0, 0) for n in range(7)]
    hosts.flags[front[0].slot] = HostFlag.LATE
    for host in front[:4]:
        assert shares.acquire(host, 100.0)
    assert not any(shares.must_yield(host.slot, 1000.0) for host in front), "no host waits"
    assert not shares.acquire(front[4], 103.0) and not shares.acquire(front[5], 103.0)
    assert not any(shares.must_yield(host.slot, 104.9) for host in front)
    asked = [host.name for host in front if shares.must_yield(host.slot, 105.0)]
    assert asked == ["h1.org", "h2.org"], "two hosts wait, and h0 answers late"
    assert not any(shares.must_yield(host.slot, 105.0) for host in front), "each slot is reclaimed once"
    shares.release(front[1].slot, 105.5)
    assert shares.next_waiting() is front[4]
    shares.note_arrival(front[4].slot)
    assert shares.acquire(front[4], 105.5)
    assert not any(shares.must_yield(host.slot, 106.0) for host in front), (
        "one host waits; h2's slot was reclaimed"
    )
    assert not shares.acquire(front[6], 106.0)
    assert [host.name for host in front if shares.must_yield(host.slot, 110.0)] == ["h3.org"]
    shares.release(front[2].slot, 110.0)
    shares.release(front[3].slot, 110.0)
    shares.release(front[4].slot, 110.0)
    assert not shares.must_yield(front[0].slot, 200.0), "there is room for the waiting host"
    for _ in range(2):
        host = shares.next_waiting()
        assert host is not None and shares.acquire(host, 110.0)
        shares.note_arrival(host.slot)
    assert shares.acquire(front[1], 110.0) and not shares.acquire(front[2], 110.0)
    assert not shares.must_yield(front[0].slot, 114.9) and shares.must_yield(front[0].slot, 115.0)
    shares._check({host.slot for host in front})


def test_a_prompt_host_that_holds_its_slot_too_long_counts_as_other() -> None:
    """Four prompt hosts begin to send endless pages. Then two of their four slots become available to other hosts."""
    hosts = HostTable()
    shares = SlotShares(hosts, 4, 0.5)
    front = [FrontHost(hosts.insert(n + 1), n + 1, f"h{n}.org", 0, 0) for n in range(6)]
    for host in front[:5]:
        hosts.flags[host.slot] = HostFlag.PROMPT
    for at, host in enumerate(front[:4]):
        assert shares.acquire(host, 100.0 + at)
    shares.look(104.9)
    assert shares.has_room
    shares.look(106.0)
    assert not shares.has_room and not shares.acquire(front[5], 106.0)
    asked = [host.name for host in front[:4] if shares.must_yield(host.slot, 107.9, full=True)]
    assert asked == ["h0.org", "h1.org"], "one slot for the waiting host, and one beyond the share"
    asked = [host.name for host in front[:4] if shares.must_yield(host.slot, 108.0, full=True)]
    assert asked == ["h2.org"], "h3 has held its slot for long, too: two are beyond the share"
    assert not any(shares.must_yield(host.slot, 200.0) for host in front[:4]), "there are free slots"
    for host in front[:4]:
        shares.record_outcome(host.slot, fetched("http://a.org/", took=0.1), 109.0)
        assert not shares.is_prompt(host.slot), (
            "the time for which the slot was held counts, not only the answer"
        )
    shares._check(set())


def test_time_without_a_fetch_slot_is_not_counted() -> None:
    hosts = HostTable()
    shares = SlotShares(hosts, 4, 0.5)
    host = FrontHost(hosts.insert(1), 1, "a.org", 0, 0)
    assert shares.acquire(host, 100.0)
    shares.release(host.slot, 102.0)
    shares.reacquire(host.slot, 200.0)
    shares.record_outcome(host.slot, fetched("http://a.org/", took=0.1), 203.0)
    assert shares.is_prompt(host.slot)


def test_robots_txt_makes_no_host_prompt() -> None:
    """A host that answered only for robots.txt may send endless pages, so it may not take a slot of a prompt host."""
    hosts = HostTable()
    shares = SlotShares(hosts, 4, 0.5)
    slot = hosts.insert(1)
    for task, flag in (
        (TaskKind.ROBOTS, HostFlag.LATE),
        (TaskKind.PAGE, HostFlag.PROMPT),
        (TaskKind.ROBOTS, HostFlag.PROMPT),
    ):
        shares.record_outcome(slot, fetched("http://a.org/", took=0.1), 1.0, task)
        assert hosts.flags[slot] == flag


@pytest.mark.parametrize(
    ("took", "truncated", "flags"),
    [(5.0, "", HostFlag.PROMPT), (5.1, "", HostFlag.LATE), (3.0, "time", 0), (60.0, "time", 0)],
)
def test_an_answer_decides_whether_a_host_is_prompt(took: float, truncated: str, flags: int) -> None:
    hosts = HostTable()
    shares = SlotShares(hosts, 4, 1.0)
    slot = hosts.insert(1)
    hosts.flags[slot] = HostFlag.PROMPT | HostFlag.LATE | HostFlag.EXCLUDED
    shares.record_outcome(
        slot, Fetch("http://a.org/", Outcome.FETCHED, status=200, took=took, truncated=truncated), 60.0
    )
    assert hosts.flags[slot] == flags | HostFlag.EXCLUDED


def test_requests_continue_without_a_slot_before_any_must_end() -> None:
    """Twenty slow hosts share ten slots.

    Up to five requests continue without a slot. A request has to end only when more slots are needed.
    """
    crawl = Crawl(
        config(frontier={"front_factor": 12}),
        answer=lambda fetch_task, now: fetched(fetch_task.url, took=60.0),
        concurrency=10,
    )
    crawl.add([f"https://h{n}.d{n}.org/" for n in range(20)])
    crawl.run(0.1)
    frontier, ended, most = crawl.frontier, 0, 0
    for _ in range(300):
        held = [fetch_task for fetch_task, _ in crawl._fetching.values() if fetch_task.kind is TaskKind.PAGE]
        end = sum(frontier.under_way.yields(fetch_task, crawl.now) for fetch_task in held)
        ended += end
        assert not end or len(frontier._outstanding._slow) == 5, (
            "no request ends while one may continue without its slot"
        )
        most = max(most, len(held))
        assert len(held) <= 10 + 5 and frontier.requests <= 10
        frontier._check()
        crawl.run(0.0)
        crawl.clock.advance(1.0)
    assert ended and most == 8 + 5, (ended, most, len(crawl.done), crawl.now, frontier)
    assert len(crawl.done) == 20 and frontier.requests == 0


@pytest.mark.parametrize("another", [True, False])
def test_a_request_that_hangs_does_not_keep_the_last_place_of_a_run(another: bool) -> None:
    """If the run may start no further request, a request ends after 5 s if its host is new, but only for another host.

    A host that has answered before may take 15 s.
    """
    crawl = Crawl(answer=lambda fetch_task, now: fetched(fetch_task.url, took=100.0), concurrency=10)
    crawl.add(["https://new.org/", "https://known.net/"])
    frontier = crawl.frontier
    crawl.run(0.1)
    tasks = {fetch_task.hostname: fetch_task for fetch_task, _ in crawl._fetching.values()}
    new, known = tasks["new.org"], tasks["known.net"]
    assert new.kind is known.kind is TaskKind.PAGE
    hosts = frontier._registry.hosts
    hosts.flags[frontier._outstanding.held[known.host].slot] |= HostFlag.LATE
    frontier.limit_requests(2, run_is_full=True)
    if another:
        crawl.add(["https://third.com/"])
    began = crawl.now
    ends = [
        (fetch_task.hostname, seconds)
        for seconds in (4, 6, 14, 16)
        for fetch_task in (known, new)
        if frontier.under_way.yields(fetch_task, began + seconds)
    ]
    assert ends == ([("new.org", 6)] if another else [])
    frontier.limit_requests(10)
    assert not frontier.under_way.yields(known, began + 16)


def test_a_request_without_a_slot_does_not_keep_the_last_place_of_a_run_either() -> None:
    crawl = Crawl(answer=lambda fetch_task, now: fetched(fetch_task.url, took=100.0), concurrency=10)
    crawl.add(["https://new.org/"])
    crawl.run(0.1)
    ((task, _),) = crawl._fetching.values()
    crawl.add(["https://third.com/"])
    assert crawl.frontier._outstanding.go_slow(task.host)
    assert not crawl.frontier.under_way.yields(task, crawl.now + 9.0)
    crawl.frontier.limit_requests(1, run_is_full=True)
    assert crawl.frontier.under_way.yields(task, crawl.now + 9.0)
