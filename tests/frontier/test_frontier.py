"""Test the whole frontier in a simulated process (`model.py`)."""

import random
from collections import defaultdict
from typing import Any

import pytest

from crawler.errors import DamageError
from crawler.frontier.views import shares
from crawler.records import Blame, Fetch, FetchTask, Link, LinkFlag, Outcome, TaskKind
from crawler.robots.cache import ALLOWED, DENIED, FETCH, Verdict, VerdictKind
from crawler.storage.keys import FRONTIER
from crawler.storage.kv import MemoryStore
from tests.frontier.model import (
    Crawl,
    OpenRobots,
    Request,
    config,
    crawled,
    failed,
    failing,
    fetched,
    link,
    numbered,
    retire,
)

DAY = 86_400.0


def urls_of(hosts: int, each: int, scheme: str = "https") -> list[str]:
    return [f"{scheme}://h{n}.d{n % 5}.org/{k}" for k in range(each) for n in range(hosts)]


def by(requests: list[Request], field: str) -> dict[str, list[Request]]:
    groups: dict[str, list[Request]] = defaultdict(list)
    for request in sorted(requests, key=lambda request: request.began):
        groups[getattr(request, field)].append(request)
    return groups


def judge(
    requests: list[Request], *, delay: float = 1.0, factor: float = 10.0, address_gap: float = 0.5
) -> None:
    """Check with the server's log that, at each host and address, no requests overlap and no gap is too short."""
    for group in by(requests, "host").values():
        for one, two in zip(group, group[1:], strict=False):
            # RESET: the process was killed during this request
            known = 0.0 if one.outcome is Outcome.RESET else one.ended - one.began
            gap = max(delay, min(30.0, factor * known))
            assert two.began >= one.ended + gap - 1e-5, (one, two)
    for group in by(requests, "address").values():
        for one, two in zip(group, group[1:], strict=False):
            assert two.began >= one.ended + address_gap - 1e-5, (one, two)


# ---- every URL is given out once, in order ----


def test_a_fetch_task_has_all_fields_of_its_link() -> None:
    crawl = crawled([Link(2**64 - 1, "http://a.org:81/x?y", 3, 2**64 - 2, 4, 5)])
    task, kind = crawl.handed[-1], TaskKind.PAGE
    assert (task.kind, task.url, task.hostname) == (kind, "http://a.org:81/x?y", "a.org")
    assert (task.fingerprint, task.depth, task.via) == (2**64 - 1, 3, 2**64 - 2)
    assert (task.redirects, task.flags, task.attempt) == (4, 5, 0)


def test_within_a_host_breadth_first_then_by_age() -> None:
    crawl = Crawl()
    depths = [3, 0, 2, 1, 1, 0, 2, 3, 1, 0, 5, 4] * 3
    crawl.add([link(f"https://a.org/{n}", depth=depth) for n, depth in enumerate(depths)])
    crawl.run()
    expected = [f"https://a.org/{n}" for _, n in sorted((depth, n) for n, depth in enumerate(depths))]
    assert crawl.done == expected


def test_priority_comes_before_depth() -> None:
    crawl = Crawl(priority=lambda link: 0 if "first" in link.url else 255)
    crawl.add([link(f"https://a.org/{n}", depth=0) for n in range(9)])
    crawl.add([link(f"https://a.org/first{n}", depth=9) for n in range(9)])
    crawl.run()
    assert crawl.done[:9] == [f"https://a.org/first{n}" for n in range(9)]


def test_a_smaller_order_that_comes_late_is_not_missed() -> None:
    """If shallow URLs arrive while deep URLs are already in memory, the cursor moves back to the shallow URLs."""
    crawl = Crawl()
    crawl.add([link(f"https://a.org/deep{n}", depth=5) for n in range(30)])
    crawl.run(requests=10)
    crawl.add([link(f"https://a.org/flat{n}", depth=1) for n in range(30)])
    crawl.run()
    assert len(crawl.done) == len(set(crawl.done)) == 60
    assert [url for url in crawl.done[12:40] if "deep" in url] == []


def test_new_urls_of_a_host_in_memory_start_before_their_batch_is_written() -> None:
    crawl = Crawl()
    crawl.add(["https://a.org/1"], commit_after=500.0)
    crawl.run(10.0)
    assert crawl.handed[-1].url == "https://a.org/1"
    assert crawl.frontier.finished(crawl.now) == ""  # one batch is not written yet


def test_urls_on_disk_wait_for_their_batch() -> None:
    crawl = Crawl(concurrency=1)  # the front has room for two hosts
    crawl.add(urls_of(6, 2), commit_after=50.0)
    crawl.run(45.0)
    early = {fetch_task.hostname for fetch_task in crawl.handed}
    assert len(early) == 2
    crawl.run()
    assert len(crawl.done) == 12


# ---- politeness ----


FAILURES = [
    (Outcome.TEMPORARY, Blame.URL, 500),
    (Outcome.HOST_BUSY, Blame.HOST, 503),
    (Outcome.CONNECT_ERROR, Blame.HOST, 0),
]


def slow_server(rng: random.Random, failures: float) -> Any:
    def answer(fetch_task: FetchTask, now: float) -> Fetch:
        took = rng.choice([0.01, 0.05, 0.2, 1.0, 5.0])
        if rng.random() < failures:
            outcome, blame, status = rng.choice(FAILURES)
            return failed(fetch_task.url, outcome, blame, status=status, took=took)
        return fetched(fetch_task.url, took)

    return answer


@pytest.mark.parametrize("seed", range(4))
def test_no_overlap_and_no_short_gap_in_the_servers_log(seed: int) -> None:
    """Crawl 40 slow and failing hosts on 12 addresses; the process is killed and resumed twice.

    If a request ends at the moment of the kill, its result is not committed. The duration of such a request
    is then unknown, so only the minimum gap applies.
    """
    rng = random.Random(seed)
    store, log, now, clean = MemoryStore(), [], 1e9, True
    urls = urls_of(40, 6)
    done: list[str] = []
    for part in range(3):
        crawl = Crawl(
            config(crawl={"patience": "1 d"}),
            store=store,
            now=now,
            clean=clean,
            answer=slow_server(rng, 0.2),
            addresses=lambda name: (f"10.0.0.{len(name) + sum(name.encode()) % 6}",),
            concurrency=7,
            seed=seed,
        )
        crawl.checking = part == 0
        if part == 0:
            crawl.add(urls)
        reason = crawl.run(requests=10**9 if part == 2 else 120)
        log += [request for request in crawl.requests if request.ended < crawl.now or part == 2]
        log += crawl.cut_off()
        done += crawl.done
        now, clean = crawl.now + 0.01, False
        store = MemoryStore(store._data)
    assert reason == "done"
    assert sorted(done) == sorted(urls)
    judge(log)


def test_all_fetch_slots_are_used_if_there_are_enough_hosts() -> None:
    """Each of 120 hosts answers within 2 s. All ten slots are used once the hosts are known to answer."""
    crawl = Crawl(
        config(frontier={"front_factor": 12}),
        concurrency=10,
        answer=lambda fetch_task, now: fetched(fetch_task.url, 2.0),
        addresses=lambda n: (n,),
    )
    crawl.checking = False
    crawl.add(urls_of(120, 3))
    assert crawl.run() == "done"
    assert crawl.now - 1e6 < 1.15 * (120 * 2.0 / 8 + 240 * 2.0 / 10)


def test_an_address_serves_one_of_its_hosts_at_a_time() -> None:
    crawl = crawled(
        urls_of(12, 4),
        config(frontier={"address_waiters_max": 12}),
        concurrency=20,
        addresses=lambda name: ("1",),
    )
    judge(crawl.requests)
    turns = [request.host for request in crawl.requests]
    assert set(turns[:12]) == set(turns), "every host had its turn before one had its second"


def test_shared_hosting_may_have_several_in_flight() -> None:
    settings = config(politeness={"shared_address_domains": 10, "shared_address_in_flight": 4})
    crawl = crawled(
        [f"https://www.d{n}.org/{k}" for n in range(30) for k in range(3)],
        settings,
        concurrency=30,
        addresses=lambda name: ("10.0.0.1",),
    )
    most = max(sum(r.began <= s.began < r.ended for r in crawl.requests) for s in crawl.requests)
    assert 2 <= most <= 4


def test_without_delay_addresses_do_not_count() -> None:
    settings = config(politeness={"delay": 0, "delay_factor": 0})
    crawl = crawled(urls_of(10, 5), settings, concurrency=10, addresses=lambda name: ("10.0.0.1",))
    assert crawl.now - 1e6 < 5 * 0.2


def test_a_second_address_is_used_while_the_first_is_busy() -> None:
    crawl = crawled(
        [f"https://h{n}.org/" for n in range(2)],
        concurrency=4,
        addresses=lambda name: ("10.0.0.1", "10.0.0.2"),
    )
    assert {request.address for request in crawl.requests} == {"10.0.0.1", "10.0.0.2"}


def test_addresses_are_looked_up_again_when_they_expire() -> None:
    crawl = crawled(numbered(6), config(politeness={"delay": "30 min"}, crawl={"patience": "1 h"}))
    # The addresses of a host are valid for an hour.
    assert [fetch_task.kind for fetch_task in crawl.handed].count(TaskKind.RESOLVE) == 3


def test_a_proxy_needs_no_look_up() -> None:
    crawl = crawled(["https://a.org/"], config(fetch={"proxy": "http://proxy:3128"}))
    assert [(fetch_task.kind, fetch_task.address) for fetch_task in crawl.handed] == [(TaskKind.PAGE, "")]


def test_rate_spaces_the_starts_and_never_bursts() -> None:
    settings = config(crawl={"rate": 20.0}, politeness={"delay": 0, "delay_factor": 0})
    crawl = Crawl(settings, concurrency=50)
    crawl.checking = False
    crawl.add(urls_of(30, 10))
    crawl.run(5.0)
    crawl.frontier.pauses.pause()
    crawl.run(5.0)
    crawl.clock.advance(30.0)
    crawl.frontier.pauses.resume()
    assert crawl.run() == "done"
    starts = sorted(request.began for request in crawl.requests)
    assert min(later - one for one, later in zip(starts, starts[10:], strict=False)) >= 10 / 20 - 0.101
    assert len([start for start in starts if start < 1e6 + 4]) in range(78, 82)


def test_processes_share_rate_and_addresses() -> None:
    settings = config(crawl={"rate": 20.0}, politeness={"delay_factor": 0, "delay": 0.2})
    crawl = crawled(urls_of(10, 2), settings, processes=4, addresses=lambda name: ("10.0.0.1",))
    judge(crawl.requests, delay=0.2, factor=0, address_gap=0.4)
    starts = sorted(request.began for request in crawl.requests)
    assert min(two - one for one, two in zip(starts, starts[1:], strict=False)) >= 0.2 - 0.01


def test_overrides_change_the_gap_of_a_part_of_the_web() -> None:
    settings = config(politeness={"delay_factor": 0}, override=[{"match": "slow.org", "delay": 7}])
    crawl = crawled([f"https://{name}.org/{n}" for name in ("slow", "fast") for n in range(4)], settings)
    gaps = {
        host: min(two.began - one.ended for one, two in zip(group, group[1:], strict=False))
        for host, group in by(crawl.requests, "host").items()
    }
    assert gaps["slow.org"] >= 7.0 and gaps["fast.org"] < 1.1


# ---- robots.txt ----


class Robots(OpenRobots):
    """A robots cache that needs each robots.txt, denies `/no`, and lets hosts wait while robots.txt is unreachable.

    The Crawl-delay of the robots.txt is 5 s.
    """

    def __init__(self, unreachable_until: float = 0.0) -> None:
        self.known: set[str] = set()
        self.until = unreachable_until

    def verdict(self, authority: str, target: str, now: float) -> Verdict:
        if now < self.until and authority in self.known:
            return Verdict(VerdictKind.WAIT, self.until)
        if authority not in self.known:
            return FETCH
        return DENIED if target.startswith("/no") else ALLOWED

    def crawl_delay(self, authority: str) -> float | None:
        return 5.0

    def fetched(self, fetch_task: FetchTask, now: float) -> None:
        self.known.add(fetch_task.url.removesuffix("/robots.txt"))


def test_robots_txt_comes_first_for_each_authority() -> None:
    crawl = Crawl(robots=Robots())
    urls = ["http://a.org/1", "https://a.org/1", "https://a.org:444/1", "https://a.org/no", "https://a.org/2"]
    crawl.add(urls)
    assert crawl.run() == "done"
    asked = [
        (fetch_task.kind, fetch_task.url)
        for fetch_task in crawl.handed
        if fetch_task.kind is not TaskKind.RESOLVE
    ]
    for url in urls:
        authority = url[: url.index("/", 8)]
        assert asked.index((TaskKind.ROBOTS, f"{authority}/robots.txt")) < [u for _, u in asked].index(url)
    assert [url for task, url in asked if task is TaskKind.DENIED] == ["https://a.org/no"]
    assert len(asked) == 3 + 5
    judge(crawl.requests, delay=5.0)


def test_denied_urls_cost_no_request_and_almost_no_gap() -> None:
    crawl = crawled([f"https://a.org/no{n}" for n in range(200)], robots=Robots())
    assert len(crawl.requests) == 1 and len(crawl.done) == 200
    assert 5.0 + 200 * 0.01 <= crawl.now - 1e6 < 8.0


def test_urls_wait_while_robots_txt_is_unreachable() -> None:
    crawl = crawled(
        numbered(20), robots=Robots(unreachable_until=1e6 + 100.0), settings=config(crawl={"patience": 200})
    )
    assert min(r.began for r in crawl.requests if r.task is TaskKind.PAGE) >= 1e6 + 100.0


def test_ignoring_robots_txt() -> None:
    crawl = crawled(["https://a.org/no"], config(robots={"policy": "ignore"}), robots=Robots())
    assert crawl.done == ["https://a.org/no"] and len(crawl.requests) == 1


# ---- failures ----


def test_a_url_is_tried_three_times_half_a_minute_and_two_minutes_apart() -> None:
    answer = failing(Outcome.TEMPORARY, Blame.URL, status=500)
    crawl = crawled([f"https://h{n}.org/" for n in range(20)], answer=answer)
    for group in by(crawl.requests, "url").values():
        first, second = (two.began - one.ended for one, two in zip(group, group[1:], strict=False))
        # the waits differ from 30 s and 120 s because of 20 % jitter, whole seconds and a shared address
        assert 24 <= first <= 37.5 and 96 <= second <= 145.5
    assert len(crawl.requests) == 60 and len(crawl.done) == 20
    assert sorted({fetch_task.attempt for fetch_task in crawl.handed}) == [0, 1, 2]


def test_tries_are_counted_over_a_crash() -> None:
    answer = failing(Outcome.TEMPORARY, Blame.URL, status=500)
    crawl = Crawl(answer=answer)
    crawl.add(["https://a.org/"])
    crawl.run(requests=2)
    crawl.run(5.0)
    again = Crawl(store=MemoryStore(crawl.store._data), now=crawl.now, clean=False, answer=answer)
    assert again.run() == "done"
    assert len(again.requests) == 1 and again.requests[0].began - crawl.requests[1].ended > 95


def test_other_urls_continue_while_one_waits_for_its_retry() -> None:
    answer = failing(Outcome.TEMPORARY, Blame.URL, end="/bad")
    crawl = crawled(["https://a.org/bad", *numbered(100)], answer=answer)
    assert [request.url for request in crawl.requests].index("https://a.org/bad", 1) in range(15, 35)


def test_a_host_that_is_down_loses_no_page() -> None:
    """While the host is down for an hour, each retry is a single request, and no URL is blamed for the failures."""

    def answer(fetch_task: FetchTask, now: float) -> Fetch:
        if now < 1e6 + 3600:
            return failed(fetch_task.url, Outcome.CONNECT_ERROR, Blame.HOST)
        return fetched(fetch_task.url)

    crawl = crawled(numbered(50), config(crawl={"patience": "1 h"}), answer=answer)
    assert len(crawl.done) == 50
    waits = [two.began - one.ended for one, two in zip(crawl.requests, crawl.requests[1:], strict=False)][:6]
    assert waits == pytest.approx([60, 120, 240, 480, 960, 1920], abs=0.1)


def test_a_site_that_answers_429_above_thirty_a_minute_loses_no_page() -> None:
    recent: list[float] = []

    def answer(fetch_task: FetchTask, now: float) -> Fetch:
        recent[:] = [start for start in recent if start > now - 60] + [now]
        if len(recent) > 30:
            return failed(fetch_task.url, Outcome.HOST_BUSY, Blame.HOST, status=429)
        return fetched(fetch_task.url, 0.01)

    crawl = crawled(numbered(300), answer=answer)
    assert len(crawl.done) == len(set(crawl.done)) == 300
    refused = [request for request in crawl.requests if request.outcome is Outcome.HOST_BUSY]
    assert 0 < len(refused) < 20


def test_a_url_that_kills_its_host_does_not_block_the_others() -> None:
    """Every request for one page resets the connection.

    The other URLs are fetched first. After five strikes, the crawl gives up the page.
    """
    answer = failing(Outcome.RESET, Blame.HOST, end="/poison")
    crawl = crawled(["https://a.org/poison", *numbered(40)], answer=answer)
    poisoned = [n for n, request in enumerate(crawl.requests) if request.url.endswith("/poison")]
    assert poisoned[0] == 0 and poisoned[1] > 5 and len(crawl.done) == 41
    assert len(poisoned) == 5


def test_retry_after_is_kept_over_a_crash() -> None:
    crawl = Crawl(answer=failing(Outcome.HOST_BUSY, Blame.HOST, status=503, retry_after=500.0))
    crawl.add(["https://a.org/"])
    crawl.run(requests=1)
    crawl.run(1.0)
    settings = config(crawl={"patience": 1000})
    for clean in (False, True):
        store = MemoryStore(crawl.store._data)
        again = Crawl(settings, store=store, now=crawl.now + 3.0, clean=clean)
        assert again.run() == "done"
        assert again.requests[0].began >= crawl.requests[0].ended + 500.0


def test_a_name_that_does_not_exist_is_given_up_for_this_run() -> None:
    """A reader of the crawl at rest shows that the host was given up, but the next run tries it again."""

    def addresses(name: str) -> Any:
        if name == "gone.org":
            return failed("", Outcome.DNS_NOT_FOUND, Blame.NONE)
        return ("10.0.0.1",)

    crawl = crawled(["https://gone.org/1", "https://gone.org/2", "https://a.org/"], addresses=addresses)
    assert crawl.done == ["https://a.org/"]
    found = crawl.frontier.views.explain("https://gone.org/x", crawl.now)
    assert (found["state"], found["cause"], found["todo"]) == ("given_up", "dns_not_found", 2)
    assert found["failures"] == 1
    assert crawl.frontier.views.counters()["hosts_nameless"] == 1
    assert crawl.frontier.views.counters()["hosts_given_up"] == 1
    crawl.stop()
    reader = Crawl(store=MemoryStore(crawl.store._data), now=crawl.now + 3600, reading=True)
    found = reader.frontier.views.explain("https://gone.org/x", reader.now)
    assert (found["state"], found["cause"], found["todo"]) == ("given_up", "dns_not_found", 2)
    assert found["failures"] == 1
    later = Crawl(store=crawl.store, now=crawl.now + 3600)
    assert later.run() == "done" and len(later.done) == 2


def test_a_failing_look_up_backs_the_host_off() -> None:
    crawl = Crawl(addresses=lambda name: failed("", Outcome.DNS_ERROR, Blame.HOST))
    crawl.add(["https://a.org/"])
    assert crawl.run() == "patience"
    assert [fetch_task.kind for fetch_task in crawl.handed] == [TaskKind.RESOLVE] * 4
    assert crawl.now - 1e6 == pytest.approx(60 + 120 + 240, abs=1)


def test_twenty_refusals_hold_a_host_until_it_is_unblocked() -> None:
    refusing = True
    crawl = crawled(
        numbered(30),
        answer=lambda fetch_task, now: Fetch(
            fetch_task.url,
            Outcome.CLIENT_ERROR if refusing else Outcome.FETCHED,
            status=403 if refusing else 200,
        ),
    )
    assert len(crawl.requests) == 20 and crawl.frontier.views.counters()["hosts_refused"] == 1
    refusing = False
    crawl.frontier.blocks.unblock("a.org", crawl.now)
    assert crawl.run() == "done" and len(crawl.done) == 30


# ---- patience, blocks, pauses ----


def test_patience_ends_a_crawl_that_only_waits() -> None:
    answer = {
        "slow.org": lambda url: failed(url, Outcome.HOST_BUSY, Blame.HOST, status=503, retry_after=4000.0),
        "fast.org": fetched,
    }
    crawl = Crawl(answer=lambda fetch_task, now: answer[fetch_task.hostname](fetch_task.url))
    crawl.add([f"https://{name}/{n}" for name in answer for n in range(5)])
    assert crawl.run() == "patience"
    assert len(crawl.done) == 5 and crawl.frontier.views.counters()["todo"] == 5
    later = crawl.again(after=4000.0)
    assert later.run() == "done" and len(later.done) == 5


def test_a_block_keeps_the_urls_and_outlasts_a_restart() -> None:
    crawl = Crawl()
    crawl.frontier.blocks.block("a.org")
    crawl.add([f"https://{name}.org/{n}" for name in "ab" for n in range(5)])
    assert crawl.run() == "done"
    assert {request.host for request in crawl.requests} == {"b.org"}
    later = crawl.again()
    assert later.run() == "done" and later.requests == []
    assert later.frontier.views.explain("https://a.org/", later.now)["state"] == "blocked"
    later.frontier.blocks.unblock("a.org", later.now)
    assert later.run() == "done" and len(later.done) == 5


def test_a_host_can_be_blocked_while_a_request_is_in_flight() -> None:
    crawl = Crawl()
    crawl.add(numbered(5))
    crawl.run(requests=1)
    crawl.frontier.blocks.block("a.org")
    assert crawl.run() == "done" and len(crawl.requests) <= 2


def test_retire_drops_the_urls_that_match_the_pattern() -> None:
    crawl = Crawl(config(crawl={"depth": 2}))
    crawl.add([link(f"https://h{n % 5}.org/{'x' if n % 2 else 'y'}{n}", depth=n % 4) for n in range(80)])
    crawl.run(requests=8)
    batch = crawl.store.batch()
    gone = retire(crawl.frontier, r"/x\d+$", batch)
    crawl.store.write(batch)
    crawl.run()
    assert gone + len(crawl.done) + crawl.frontier.views.counters()["parked_depth"] == 80
    assert not [key for key, _ in crawl.store.scan(b"t/", b"t0")]
    assert sum("/x" in url for url in crawl.done) < 8


def test_a_crawl_paused_for_two_reasons_resumes_after_both() -> None:
    crawl = Crawl()
    crawl.add(["https://a.org/"])
    crawl.frontier.pauses.pause("disk")
    crawl.frontier.pauses.pause()
    crawl.frontier.pauses.resume("disk")
    assert crawl.frontier.pauses.reasons == ("user",)
    assert crawl.run(10.0) == "time" and not crawl.handed
    crawl.frontier.pauses.resume()
    assert crawl.run() == "done"


# ---- budgets ----


def test_urls_beyond_a_limit_are_parked_and_unparked() -> None:
    store = MemoryStore()
    steps = [
        ({"depth": 1, "pages_per_host": 6}, 2 * 6, {"parked_depth": 2 * 5, "parked_pages_per_host": 2 * 4}),
        ({"depth": 1, "pages_per_host": 6}, 0, {"parked_depth": 2 * 5}),
        ({"depth": 2, "pages_per_host": 6}, 0, {"parked_depth": 2 * 5}),
        ({"depth": 2, "pages_per_host": 8}, 2 * 2, {}),
        ({}, 2 * 7, {"parked_depth": 0, "parked_pages_per_host": 0}),
    ]
    links = [link(f"https://{name}.org/{n}", depth=n % 3) for n in range(15) for name in "ab"]
    now, total = 1e6, 0
    for number, (limits, new, parked) in enumerate(steps):
        crawl = Crawl(config(crawl=limits), store=store, now=now, clean=number % 2 == 0)
        if number == 0:
            crawl.add(links)
        assert crawl.run() == "done"
        assert len(crawl.done) == new, limits
        counters = crawl.frontier.views.counters()
        assert counters | parked == counters
        total += new
        assert total + sum(n for name, n in counters.items() if name.startswith("parked_")) == 30
        crawl.stop()
        now = crawl.now + 10
    assert total == 30


def test_scope_any_has_its_own_limits() -> None:
    crawl = Crawl(config(crawl={"scope": "any"}))
    crawl.checking = False
    crawl.add([link("https://a.org/deep", depth=21), link("https://a.org/flat", depth=20)])
    crawl.add([f"https://h{n}.b.org/" for n in range(205)])
    crawl.add([f"https://h{n}.b.org/more" for n in range(205)])
    counters = crawl.frontier.views.counters()
    assert counters["parked_depth"] == 1 and counters["parked_hosts_per_domain"] == 10
    assert counters["hosts_excluded"] == 5 and counters["todo"] == 401


def test_counts_of_pages_and_hosts_per_domain_survive_a_restart() -> None:
    crawl = crawled(
        [f"https://h{n % 3}.a.org/{n}" for n in range(12)],
        config(crawl={"pages_per_domain": 4, "hosts_per_domain": 2}),
    )
    assert len(crawl.done) == 4
    counters = crawl.frontier.views.counters()
    assert (counters["parked_pages_per_domain"], counters["parked_hosts_per_domain"]) == (4, 4)
    later = crawl.again(config(crawl={"pages_per_domain": 100, "hosts_per_domain": 3}))
    assert later.run() == "done" and len(later.done) == 8
    assert later.frontier.views.counters()["hosts_excluded"] == 0


def test_budgets_of_a_part_of_the_web() -> None:
    tables = [{"match": "https://a.org/x/", "depth": 0}, {"match": "b.org", "pages": 3}]
    crawl = Crawl(config(override=tables))
    crawl.add([link(f"https://{n}", depth=1) for n in ("a.org/x/1", "a.org/y", "b.org/1", "b.org/2")])
    crawl.add([link(f"https://b.org/{n}", depth=1) for n in range(3, 9)])
    crawl.run()
    assert sorted(crawl.done) == ["https://a.org/y", "https://b.org/1", "https://b.org/2", "https://b.org/3"]


# ---- between the end of a request and its commit ----


def test_a_host_continues_before_its_pages_are_committed() -> None:
    """A commit takes ten seconds.

    Four requests start, one for each fetch slot. A fifth request starts only when the first result is
    committed.
    """
    crawl = Crawl(config(politeness={"delay": 0.5, "delay_factor": 0}), concurrency=4, commit_delay=10.0)
    crawl.add(numbered(10), commit_after=0.0)
    assert crawl.run() == "done" and len(crawl.done) == 10
    starts = [request.began - crawl.requests[0].began for request in crawl.requests]
    assert starts[:5] == pytest.approx([0.0, 0.6, 1.2, 1.8, 10.1])


def test_a_host_that_failed_waits_for_its_commit() -> None:
    """A host is not requested again before the time of its retry is stored."""
    crawl = Crawl(answer=failing(Outcome.TEMPORARY, Blame.URL), concurrency=4, commit_delay=10.0)
    crawl.add(["https://a.org/1", "https://a.org/2"], commit_after=0.0)
    crawl.run(requests=2)
    assert crawl.requests[1].began >= crawl.requests[0].ended + 10.0


@pytest.mark.parametrize("parked", [False, True])
def test_retiring_does_not_scan_tombstones_for_parked_entries(
    parked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """If no entry is parked, a scan for parked entries would read nothing but tombstones.

    This takes 160 ms for a million URLs.
    """
    crawl = Crawl(config(crawl={"depth": 2}))
    batch = crawl.store.batch()
    links = [link(f"https://a.org/{n}", depth=3 if parked and not n else 1) for n in range(8)]
    crawl.frontier.enqueue(links, batch, crawl.now)
    crawl._commit_add(batch)
    scanned: list[bytes] = []
    scan = crawl.store.scan
    monkeypatch.setattr(
        crawl.store, "scan", lambda start, *more, **how: scanned.append(start) or scan(start, *more, **how)
    )
    batch = crawl.store.batch()
    assert retire(crawl.frontier, ".", batch) == 8
    assert [start[:2] for start in scanned] == [b"p/"] * parked + [b"t/"]


def test_a_page_that_is_done_but_still_stored_is_not_retired() -> None:
    crawl = Crawl(config(politeness={"delay": 0, "delay_factor": 0}), commit_delay=10.0)
    crawl.add(["https://a.org/1", "https://a.org/2", "https://b.org/"], commit_after=0.0)
    crawl.run(stop=lambda: len(crawl.requests) == 2)
    batch = crawl.store.batch()
    assert retire(crawl.frontier, "a.org", batch) == 1
    crawl.store.write(batch)
    crawl.frontier._check()
    assert crawl.run() == "done" and sorted(crawl.done) == ["https://a.org/1", "https://b.org/"]


def test_a_page_that_is_done_but_still_stored_is_not_given_out_again() -> None:
    """URLs with smaller order values push the rest of their host's queue out of memory.

    Then the queue is read from disk again, before the result of the page is written.
    """

    def answer(fetch_task: FetchTask, now: float) -> Fetch:
        if fetch_task.url == "https://a.org/deep":
            crawl.add([link(f"https://a.org/{n}", depth=n // 20 * 5) for n in range(40)], commit_after=0.0)
        return fetched(fetch_task.url)

    crawl = Crawl(
        config(politeness={"delay": 0, "delay_factor": 0}), answer=answer, concurrency=50, commit_delay=60.0
    )
    crawl.add([link("https://a.org/deep", depth=3)], commit_after=0.0)
    assert crawl.run() == "done"
    assert len(crawl.requests) == 41 == len({request.url for request in crawl.requests})


# ---- fairness and memory ----


def test_a_host_with_endless_links_starves_no_other_host() -> None:
    """There is one fetch slot and no delay. The host with endless links and nineteen others use the slot in turns."""
    crawl = Crawl(
        config(politeness={"delay": 0, "delay_factor": 0}),
        concurrency=1,
        links=lambda fetch_task: (
            [link(f"{fetch_task.url}x{n}") for n in range(3)] if "endless" in fetch_task.url else []
        ),
    )
    crawl.add(["https://endless.org/"])
    crawl.run(requests=30)
    crawl.add([f"https://h{n}.org/{k}" for n in range(19) for k in range(2)])
    start = len(crawl.requests)
    crawl.run(requests=start + 200)
    others = [request for request in crawl.requests[start:] if request.host != "endless.org"]
    assert len(others) == 38


def test_an_address_with_many_hosts_starves_no_other_host() -> None:
    """The 200 hosts of one domain on one address do not occupy the whole front permanently."""
    crawl = Crawl(
        concurrency=4, addresses=lambda name: ("10.0.0.1",) if name.endswith("crowd.org") else (name,)
    )
    crawl.checking = False
    crawl.add([f"https://h{n}.crowd.org/{k}" for n in range(200) for k in range(3)])
    crawl.run(requests=50)
    crawl.add([f"https://h{n}.d{n}.org/" for n in range(20)])
    before = crawl.now
    crawl.run(stop=lambda: sum(not request.host.endswith("crowd.org") for request in crawl.requests) == 20)
    assert crawl.now - before < 60


def test_the_front_stays_small() -> None:
    crawl = Crawl(concurrency=5)
    crawl.checking = False
    crawl.add([f"https://h{n}.d{n % 40}.org/{k}" for n in range(400) for k in range(4)])
    most = entries = 0
    while crawl.step(crawl.now + 1e9) and len(crawl.requests) < 800:
        front = crawl.frontier._bench.front.values()
        most = max(most, len(front))
        entries = max(entries, sum(len(host.queue) + len(host.later) for host in front))
    assert most <= 5 and entries <= 5 * 4 * 3
    assert len({request.host for request in crawl.requests}) == 400, "hosts come in turns"


# ---- fetch slots ----


def test_look_ups_continue_while_all_slots_are_taken_and_do_not_fill_the_front() -> None:
    """Only one look-up may run at a time. While two hosts wait for their look-ups, no other host enters the front."""
    crawl = Crawl(config(frontier={"front_factor": 50}, network={"dns_concurrency": 1}), concurrency=1)
    crawl.add([f"https://h{n}.org/" for n in range(3)])
    frontier, now = crawl.frontier, crawl.now
    fetch_task = frontier.claim_next(now)
    assert fetch_task is not None and fetch_task.kind is TaskKind.RESOLVE and frontier.claim_next(now) is None
    crawl.add([f"https://h{n}.org/" for n in range(3, 20)])
    assert frontier.claim_next(now) is None and frontier.next_wakeup(now) is None
    assert frontier.under_way.look_ups_waiting == 2 and len(frontier._bench.front) == 3
    frontier.resolved(fetch_task, ["1.1.1.1"], now + 60, now)
    following = [frontier.claim_next(now) for _ in range(3)]
    assert [e.kind for e in following if e is not None] == [TaskKind.RESOLVE, TaskKind.PAGE]
    assert following[0] is not None and following[0].attempt == 0
    frontier.resolved(following[0], ["2.2.2.2"], now + 60, now)
    again = frontier.claim_next(now)
    assert again is not None and again.kind is TaskKind.RESOLVE, "although the only slot is taken"
    frontier._check()


def many_seeds(hosts: int, concurrency: int, **settings: Any) -> Crawl:
    """Return a crawl with two URLs per host. Each host has a robots.txt and an address of its own."""
    crawl = Crawl(
        config(**settings),
        concurrency=concurrency,
        robots=Robots(),
        answer=lambda fetch_task, now: fetched(fetch_task.url, 0.3),
        addresses=lambda name: (name,),
    )
    crawl.checking = False
    crawl.add([f"https://h{n}.org/{path}" for n in range(hosts) for path in "ab"])
    return crawl


def test_first_pages_come_before_the_robots_txt_of_all_hosts() -> None:
    """24 of sixty hosts are in the front. The first page of a host is fetched as soon as its robots.txt is known."""
    crawl = many_seeds(60, 2, frontier={"front_factor": 12})
    assert crawl.run() == "done"
    requests = [fetch_task.kind for fetch_task in crawl.handed if fetch_task.kind is not TaskKind.RESOLVE]
    assert requests[:60].count(TaskKind.PAGE) > 15


def test_a_rate_limits_the_number_of_hosts_begun() -> None:
    """With 400 hosts at 20 requests per second, first pages are fetched before all robots.txt files are fetched."""
    crawl = many_seeds(400, 512, crawl={"rate": 20.0})
    crawl.run(requests=300)
    assert [request.task for request in crawl.requests].count(TaskKind.PAGE) >= 100
    assert len({fetch_task.host for fetch_task in crawl.handed}) <= 200
    assert crawl.run() == "done"


def test_a_new_crawl_begins_at_once_and_one_that_was_killed_waits() -> None:
    """A crawl that was killed before its first commit waits, too: it may have made requests that were not recorded."""
    new = Crawl(config(), clean=False)
    new.add(["https://a.org/"])
    began = new.now
    new.run(requests=1)
    assert new.requests[0].began - began < 0.1
    killed = Crawl(config(), clean=False)
    again = Crawl(config(), store=killed.store, clean=False)
    again.add([f"https://h{n}.org/" for n in range(99)])
    began = again.now
    assert not again.frontier._bench.front, "no host may be requested yet"
    again.run(requests=1)
    assert again.requests[0].began - began >= config().politeness.delay


# ---- views ----


def test_counters_and_explanations() -> None:
    crawl = Crawl(config(crawl={"depth": 0}))
    crawl.add(["https://a.org/", "https://a.org/x", link("https://a.org/deep", depth=1)])
    crawl.run(0.05)
    counters = crawl.frontier.views.counters()
    assert (counters["todo"], counters["in_flight"], counters["parked_depth"]) == (1, 1, 1)
    assert crawl.frontier.views.explain("https://a.org/y", crawl.now)["state"] == "in_flight"
    assert crawl.frontier.views.explain("https://never.org/", crawl.now) == {
        "host": "never.org",
        "state": "unknown",
    }
    crawl.run(0.5)
    found = crawl.frontier.views.explain("https://a.org/y", crawl.now)
    assert found["state"] == "waits" and 0 < found["wait"] <= 1.0 and found["todo"] == 1
    crawl.run()
    assert [host.state for host in crawl.frontier.views.hosts(crawl.now, 10)] == ["idle"]
    assert crawl.frontier.next_wakeup(crawl.now) is None and crawl.frontier.wants_urls(crawl.now)


def test_why_slow_distinguishes_host_gaps_address_gaps_and_rate() -> None:
    def waited(settings: Any, links: list[Link], **options: Any) -> dict[str, float]:
        crawl = crawled(links, settings, concurrency=4, **options)
        return crawl.frontier.views.why_slow(crawl.now)

    one_host = waited(config(), [link(f"https://a.org/{n}") for n in range(20)])
    assert one_host["host"] > 15 and one_host["address"] == one_host["rate"] == 0.0
    settings = config(politeness={"delay_factor": 0})
    one_address = waited(
        settings, [link(f"https://h{n}.org/") for n in range(4)], addresses=lambda name: ("1",)
    )
    assert one_address["address"] > 1.4
    limited = waited(config(crawl={"rate": 2}), [link(f"https://h{n}.org/") for n in range(10)])
    assert limited["rate"] > 4.0


def test_a_wait_counts_while_it_lasts() -> None:
    """A wait was once counted only when it ended.

    A process that started one request every three seconds therefore seemed mostly idle.
    """
    crawl = Crawl(config(crawl={"rate": 0.3}), concurrency=4)
    crawl.add([f"https://h{n}.org/" for n in range(4)])
    while crawl.frontier.views.why_slow(crawl.now)["rate"] == 0.0:
        crawl.run(0.1)
    before, begun = crawl.frontier.views.why_slow(crawl.now)["rate"], crawl.now
    assert crawl.frontier.claim_next(crawl.now) is None
    assert crawl.frontier.views.why_slow(begun + 0.5)["rate"] == pytest.approx(before + 0.5)
    assert crawl.frontier.views.why_slow(begun + 1.0)["rate"] == pytest.approx(before + 1.0)


def test_the_frontier_is_dry_until_a_host_is_ready() -> None:
    crawl = Crawl()
    assert crawl.frontier.wants_urls(crawl.now)
    crawl.add(["https://a.org/"])
    assert not crawl.frontier.wants_urls(crawl.now)


# ---- the store ----


def test_a_store_without_its_totals_is_damaged() -> None:
    crawl = crawled(["https://a.org/"])
    data = dict(crawl.store._data)
    for broken in (None, data[FRONTIER][:-1], data[FRONTIER][:4] + b"xx" + data[FRONTIER][6:]):
        store = MemoryStore({key: value for key, value in data.items() if key != FRONTIER})
        if broken is not None:
            store._data[FRONTIER] = broken
        with pytest.raises(DamageError, match="m/frontier"):
            Crawl(store=store)


def test_a_clock_jump_stalls_no_host_and_causes_no_burst() -> None:
    crawl = Crawl()
    crawl.add(urls_of(5, 6))
    crawl.run(requests=12)
    crawl.stop()
    for now in (crawl.now - 1e6 + 1, crawl.now + 1e6):
        later = Crawl(store=MemoryStore(crawl.store._data), now=now)
        assert later.run() == "done"
        judge(later.requests)
        assert later.now - now < 60


def test_a_clock_that_is_set_back_does_not_delay_retries() -> None:
    """When the clock was set back by one hour, retries were once delayed by one hour.

    The cause was that the stored times of the retries were then ahead of the clock.
    """
    crawl = Crawl(answer=failing(Outcome.TEMPORARY, Blame.URL))
    crawl.add(["https://a.org/1"])
    crawl.run(requests=1)
    later = crawl.again(after=-3600.0)
    assert later.run() == "done"
    assert later.now - (crawl.now - 3600.0) < 60.0


def test_instants_keep_their_precision_over_a_restart() -> None:
    """The gap is stored in 32 bits. Points in time were once computed in 32 bits, too, and were off by one minute."""
    answer = {"answer": lambda fetch_task, now: fetched(fetch_task.url, 0.01, retry_after=7.25)}
    crawl = Crawl(now=1_760_000_000.3, **answer)
    crawl.add(numbered(2))
    crawl.run(requests=1)
    later = crawl.again(after=1.0, **answer)
    assert later.run() == "done"
    assert 7.25 <= later.requests[0].began - crawl.requests[0].ended < 7.35


def test_a_request_cut_off_by_a_stop_is_repeated_after_its_gap() -> None:
    """Some seconds after Ctrl-C, a request to a slow server is cut off. An assertion once failed at this moment."""
    crawl = Crawl(answer=lambda fetch_task, now: fetched(fetch_task.url, 60.0))
    crawl.add(numbered(2))
    crawl.run(seconds=5.0)
    assert [request.outcome for request in crawl.cut_off()] == [Outcome.RESET]
    batch = crawl.store.batch()
    crawl.frontier.flush(batch, crawl.now)
    crawl.store.write(batch)
    later = Crawl(store=crawl.store, now=crawl.now)
    assert later.run() == "done"
    assert later.done == ["https://a.org/0", "https://a.org/1"]
    judge(crawl.cut_off() + later.requests)


def test_a_queue_is_not_read_to_its_end_while_more_is_on_the_way() -> None:
    """A queue that was read to its end would seem empty, and later entries would be ignored until the next start."""
    crawl = Crawl()
    crawl.add(numbered(20))
    crawl.run(requests=3)
    crawl.add([f"https://a.org/later{n}" for n in range(5)], commit_after=100.0)
    crawl.run(60.0)
    assert len(crawl.done) < 20
    assert crawl.run() == "done"
    assert len(crawl.done) == 25


def test_new_hosts_wait_outside_while_known_ones_are_ready() -> None:
    """Twenty hosts share one slot.

    Each host is ready again before its next turn comes, and its connections stay open. In the past, new hosts
    that were found meanwhile were served before these known hosts.
    """
    crawl = Crawl(
        config(frontier={"front_factor": 50, "turn_max": 100}),
        concurrency=1,
        answer=lambda fetch_task, now: fetched(fetch_task.url, 1.0),
    )
    urls = urls_of(20, 6)
    crawl.add(urls)
    crawl.run(40.0)
    begun = len(crawl.requests)
    new = [f"https://new{n}.org/" for n in range(30)]
    crawl.add(new)
    crawl.run(20.0)
    assert len(crawl.requests) >= begun + 15
    assert not [request.host for request in crawl.requests[begun:] if request.host.startswith("new")]
    assert crawl.run() == "done" and sorted(crawl.done) == sorted(urls + new)


def test_new_hosts_enter_at_once_while_nothing_is_ready() -> None:
    crawl = Crawl(config(frontier={"front_factor": 50}), concurrency=8)
    crawl.add(numbered(5))
    crawl.run(0.5)
    crawl.add([f"https://new{n}.org/" for n in range(4)], commit_after=100.0)
    crawl.run(5.0)
    assert {request.host for request in crawl.requests} >= {f"new{n}.org" for n in range(4)}


def test_hosts_that_have_answered_are_counted_once() -> None:
    crawl = Crawl(answer=failing(Outcome.CONNECT_ERROR, Blame.HOST, end="dead"))
    crawl.add(f"https://{host}.org/{n}{host}" for host in ("a", "b", "dead") for n in range(3))
    crawl.run(60.0)
    assert crawl.frontier.views.hosts_reached == crawl.frontier.views.counters()["hosts_reached"] == 2
    assert crawl.again().frontier.views.hosts_reached == 2


def test_why_slow_is_a_share_of_the_time() -> None:
    assert shares({"rate": 3.0, "host": 0.0, "machine": 9.0}, 4.0) == {
        "rate": 0.75,
        "host": 0.0,
        "machine": 1.0,
    }
    assert shares({"rate": 3.0}, 0.0) == {"rate": 0.0}


def test_sitemaps_of_a_robots_txt_do_not_hold_the_pages_of_their_host() -> None:
    """All 500 sitemaps named in a robots.txt were once fetched before the second page of the host."""
    crawl = Crawl(config())
    maps = [link(f"https://a.org/{n}.xml", flags=LinkFlag.SITEMAP) for n in range(500)]
    crawl.add(["https://a.org/", *maps])
    crawl.add([link(f"https://a.org/{depth}/{n}", depth=depth) for depth in range(1, 9) for n in range(5)])
    assert crawl.run() == "done"
    fetched = [fetch_task for fetch_task in crawl.handed if fetch_task.kind is TaskKind.PAGE]
    assert len(fetched) == 541
    assert all(fetch_task.depth == 0 for fetch_task in fetched if fetch_task.flags & LinkFlag.SITEMAP)
    before = [sum(bool(each.flags & LinkFlag.SITEMAP) for each in fetched[: at + 1]) for at in range(541)]
    for depth, most in ((1, 16), (2, 32), (3, 64)):
        last = max(at for at, each in enumerate(fetched) if each.url.startswith(f"https://a.org/{depth}/"))
        assert before[last] <= most, depth
