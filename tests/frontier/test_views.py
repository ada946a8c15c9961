"""Test that each wait of a host or URL is shown with its cause and its next try, even outside the front."""

from typing import Any

import pytest

from crawler.records import Blame, HostStatus, Outcome
from crawler.robots.cache import Verdict, VerdictKind
from crawler.storage.kv import MemoryStore
from tests.frontier.model import Crawl, OpenRobots, config, failed, failing, numbered


class Unreachable(OpenRobots):
    """A robots cache whose robots.txt is retried at `until`."""

    def __init__(self, until: float) -> None:
        self.until = until

    def verdict(self, authority: str, target: str, now: float) -> Verdict:
        wait = Verdict(VerdictKind.WAIT, self.until, "host_busy")
        return wait if now < self.until else super().verdict(authority, target, now)


def seen(crawl: Crawl, url: str = "https://a.org/1") -> tuple[HostStatus, dict[str, Any]]:
    (host,) = crawl.frontier.views.hosts(crawl.now, 2)
    return host, crawl.frontier.views.explain(url, crawl.now)


def run_to_the_wait(**options: Any) -> Crawl:
    crawl = Crawl(config(crawl={"patience": "1 d"}), **options)
    crawl.add(["https://a.org/1", "https://a.org/2"])
    crawl.run(20.0)
    return crawl


@pytest.mark.parametrize(
    ("options", "state", "cause"),
    [
        ({"answer": failing(Outcome.CONNECT_ERROR, Blame.HOST)}, "backing_off", "connect_error"),
        ({"answer": failing(Outcome.HOST_BUSY, Blame.HOST, status=503)}, "backing_off", "host_busy"),
        ({"answer": failing(Outcome.TEMPORARY, Blame.URL, status=500)}, "retries", "temporary"),
        ({"robots": Unreachable(1_000_300.0)}, "waits_for_robots", "host_busy"),
        ({"addresses": lambda name: failed("", Outcome.DNS_ERROR, Blame.HOST)}, "backing_off", "dns_error"),
    ],
)
def test_each_wait_has_a_cause_and_a_next_try(options: dict[str, Any], state: str, cause: str) -> None:
    """The reported time of the next try is exact: a request is made at this time, and no request is made before."""
    crawl = run_to_the_wait(**options)
    host, url = seen(crawl)
    assert (host.state, host.cause) == (url["state"], url["cause"]) == (state, cause)
    assert host.ready_at == crawl.now + host.wait > crawl.now
    asked = len(crawl.handed)
    crawl.run(host.ready_at - crawl.now - 0.5)
    assert len(crawl.handed) == asked
    crawl.run(host.ready_at - crawl.now + 3.0)
    assert len(crawl.handed) > asked


def test_hosts_outside_the_front_report_the_same() -> None:
    """Hosts that do not fit into the front report the same waits.

    The same is true after a restart, when the queue of such a host is read from disk.
    """
    robots = Unreachable(1_000_300.0)
    crawl = Crawl(robots=robots, concurrency=1)
    crawl.add([f"https://{name}.org/{n}" for name in "abcdef" for n in range(3)])
    crawl.run(20.0)
    for opened in (crawl, Crawl(store=MemoryStore(crawl.store._data), robots=robots, now=crawl.now)):
        states = {
            (host.state, host.cause, host.ready_at) for host in opened.frontier.views.hosts(crawl.now, 9)
        }
        assert states == {("waits_for_robots", "host_busy", robots.until)}


def test_a_host_is_ready_if_one_of_its_urls_is() -> None:
    """The waiting URL is shown with its wait. Its host is shown as ready, because it has another URL."""

    class Secure(Unreachable):
        def verdict(self, authority: str, target: str, now: float) -> Verdict:
            if authority.startswith("https"):
                return OpenRobots.verdict(self, authority, target, now)
            return super().verdict(authority, target, now)

    crawl = Crawl(robots=Secure(1_000_300.0))
    crawl.add(["http://a.org/1", "https://a.org/2"])
    host, url = seen(crawl, "http://a.org/1")
    assert (host.state, host.cause) == ("ready", "")
    assert (url["state"], url["cause"], url["ready_at"]) == ("waits_for_robots", "host_busy", 1_000_300.0)
    assert crawl.frontier.views.explain("https://a.org/2", crawl.now)["state"] == "ready"


def test_good_answers_leave_no_cause() -> None:
    crawl = Crawl(answer=failing(Outcome.TEMPORARY, Blame.URL, status=500))
    crawl.add(["https://a.org/1"])
    crawl.run(1.0)
    crawl.add(["https://a.org/2"])
    assert seen(crawl)[0].cause == "" and seen(crawl)[0].state in ("ready", "waits")


def test_a_host_waiting_for_an_address_reports_its_approximate_turn() -> None:
    crawl = Crawl(concurrency=9, addresses=lambda name: ("10.0.0.1",))
    crawl.add([f"https://{name}.org/{n}" for name in "abc" for n in range(3)])
    crawl.run(3.2)
    waiting = [h for h in crawl.frontier.views.hosts(crawl.now, 9) if h.state == "waits_for_address"]
    assert waiting and all(h.ready_at >= crawl.now and h.wait <= 3.0 for h in waiting)


@pytest.mark.parametrize(
    "options",
    [
        {"answer": failing(Outcome.CONNECT_ERROR, Blame.HOST)},
        {"answer": failing(Outcome.TEMPORARY, Blame.URL, status=500)},
        {"robots": Unreachable(1_000_300.0)},
        {},
    ],
)
def test_the_slowest_host_is_never_done_before_the_stated_time(options: dict[str, Any]) -> None:
    """A host that waits for any reason keeps the crawl busy at least as long as `slowest` says."""
    crawl = Crawl(config(crawl={"patience": "1 d"}), **options)
    crawl.add(numbered(20) + ["https://b.org/1"])
    crawl.run(5.0)
    slowest = crawl.frontier.views.slowest(crawl.now)
    assert slowest is not None and slowest.host == "a.org" and slowest.seconds > 10.0
    crawl.run(slowest.seconds - 1.0)
    assert crawl.frontier.views.counters()["todo"] > 0


def test_no_host_is_slow_if_nothing_is_to_do() -> None:
    crawl = Crawl(config())
    assert crawl.frontier.views.slowest(crawl.now) is None
    crawl.add(["https://a.org/1"])
    crawl.run(60.0)
    assert crawl.frontier.views.slowest(crawl.now) is None
