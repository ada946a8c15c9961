"""Test that a failing authority (scheme and port) of a host delays no URL of the host's other authorities."""

import itertools

from crawler.frontier.hosts.authorities import ENTRIES_MAX, Authorities, names_port
from crawler.records import Blame, Fetch, FetchTask, Outcome, TaskKind
from tests.frontier.model import Crawl, config, crawled, failed, failing, fetched
from tests.frontier.test_frontier import Robots

GOOD = [f"http://a.org/{n}" for n in range(5)]
SCHEMES = ["https://a.org/", "http://a.org/"]


def dead_ports(fetch_task: FetchTask, _now: float) -> Fetch:
    if names_port(fetch_task.url[: fetch_task.url.index("/", 8)]):
        return failed(fetch_task.url, Outcome.CONNECT_ERROR, Blame.HOST, took=0.01)
    return fetched(fetch_task.url)


def came(crawl: Crawl) -> list[str]:
    return [task.url for task in crawl.handed if task.kind is TaskKind.PAGE and task.url in GOOD]


def test_links_to_dead_ports_do_not_stop_a_host() -> None:
    for robots in (None, Robots()):
        crawl = Crawl(robots=robots, answer=dead_ports)
        crawl.add([f"http://a.org:{port}/" for port in range(1, 9)])
        crawl.add(GOOD)
        crawl.run(100.0 if robots is None else 150.0)  # the second robots cache has a Crawl-delay of 5 s
        assert sorted(came(crawl)) == GOOD


def test_hundreds_of_links_to_one_dead_port_do_not_stop_a_host() -> None:
    # for each host, up to four entries are set aside, and up to three are read ahead
    crawl = Crawl(answer=dead_ports)
    crawl.add([f"http://a.org:1/{n}" for n in range(900)])
    crawl.add(GOOD)
    crawl.run(30.0)
    assert sorted(came(crawl)) == GOOD
    assert sum(":1/" in request.url for request in crawl.requests) == 1


def test_all_urls_of_a_port_that_recovers_are_fetched() -> None:
    back_at = 1e6 + 200.0

    def answer(fetch_task: FetchTask, now: float) -> Fetch:
        return dead_ports(fetch_task, now) if now < back_at else fetched(fetch_task.url)

    crawl = Crawl(config(crawl={"patience": "1 h"}), answer=answer)
    urls = [f"http://a.org:1/{n}" for n in range(50)] + GOOD
    crawl.add(urls)
    assert crawl.run() == "done"
    assert sorted(crawl.done) == sorted(urls)


def test_a_dead_port_backs_off_like_a_dead_host() -> None:
    crawl = Crawl(config(crawl={"patience": "1 d"}), answer=dead_ports)
    crawl.add([f"http://a.org:1/{n}" for n in range(3)])
    crawl.run(900.0)
    began = [round(request.began - crawl.requests[0].began) for request in crawl.requests]
    assert began == [0, 60, 180, 420]


def test_a_failure_of_the_only_authority_is_charged_to_the_host() -> None:
    crawl = Crawl(config(crawl={"patience": "5 d"}), answer=failing(Outcome.CONNECT_ERROR, Blame.HOST))
    crawl.add(GOOD)
    crawl.run(1000.0)
    (host,) = crawl.frontier.views.hosts(crawl.now, 1)
    assert (host.failures, host.state) == (5, "backing_off")


def test_a_host_with_only_silent_schemes_is_given_up() -> None:
    silent = failing(Outcome.TLS_ERROR, Blame.HOST)
    crawl = crawled(SCHEMES, config(crawl={"patience": "9 d"}), answer=silent)
    assert next(crawl.frontier.views.hosts(crawl.now, 1)).state == "given_up"
    assert crawl.frontier.views.counters()["todo"] == 2


def test_a_host_whose_backoff_is_over_still_has_its_cause() -> None:
    crawl = Crawl(config(crawl={"patience": "9 d"}), answer=failing(Outcome.TLS_ERROR, Blame.HOST))
    crawl.add(SCHEMES)
    crawl.run(30.0)
    (host,) = crawl.frontier.views.hosts(crawl.now + 3600.0, 1)
    assert (host.state, host.cause, host.failures) == ("ready", "tls_error", 2)


def test_authorities_are_bounded() -> None:
    authorities, politeness = Authorities(), config().politeness
    for port in range(ENTRIES_MAX + 9):
        authorities.failed(1, f"http://a.org:{port}", 0.0, politeness, Outcome.CONNECT_ERROR)
    assert len(authorities) == ENTRIES_MAX
    assert authorities.charged("http://a.org:3").until == 0.0
    assert authorities.charged("http://a.org:900").until == 60.0
    authorities.answered(1, "http://a.org:900")
    assert authorities.charged("http://a.org:900").until == 0.0


def test_ports_are_distinguished_from_ipv6_addresses() -> None:
    assert names_port("http://a.org:1") and names_port("https://[::1]:8443")
    assert not names_port("http://a.org") and not names_port("http://[::1]")


def test_unknown_ports_take_one_turn_in_nine_of_a_host() -> None:
    """URLs on 40 dead ports of a host are queued before its 100 pages.

    Once the Crawl-delay of 5 s is known, at least eight times this delay passes between the first tries of
    two ports.
    """
    crawl = Crawl(robots=Robots(), answer=dead_ports)
    crawl.add([f"http://a.org:{port}/" for port in range(1, 41)])
    crawl.add([f"http://a.org/{n}" for n in range(100)])
    crawl.run(2000.0)
    began = [
        request.began for request in crawl.requests if request.url.count(":") == 2 and "robots" in request.url
    ]
    assert len(began) == 40
    assert all(later - earlier >= 40.0 for earlier, later in itertools.pairwise(began[1:]))
    assert began[1] - began[0] >= 8.0, "only the minimum gap of the host is known"


def test_a_busy_robots_txt_is_charged_to_the_host_and_not_to_one_of_its_ports() -> None:
    """Once, a 429 for robots.txt slowed down no host that had several ports or schemes."""
    crawl = Crawl(robots=Robots(), answer=failing(Outcome.HOST_BUSY, Blame.HOST, status=429))
    crawl.add(["http://a.org:8080/", "http://a.org/", "https://a.org/"])
    crawl.run(50.0)
    (host,) = crawl.frontier.views.hosts(crawl.now, 1)
    assert [request.task for request in crawl.requests] == [TaskKind.ROBOTS]
    assert (host.failures, host.slowdown, host.state) == (1, 2.0, "backing_off")
