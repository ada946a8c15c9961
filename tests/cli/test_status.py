"""Test the lines that `crawler status` prints about a running crawl."""

from crawler.admin.status import Status
from crawler.cli.inspect import _summary
from crawler.records import DueCounts, FrontierCounts


def running(recent: dict[str, float]) -> Status:
    return Status(
        name="p0",
        now=700.0,
        counters={
            "pages.fetched": 900, "urls.links": 5000,
            "connections.reused": 600, "connections.full": 200, "connections.resumed": 50, "connections.plain": 150,
        },
        frontier=FrontierCounts(todo=300, in_flight=20, hosts=90, hosts_reached=60),
        due=DueCounts(pending=100, known=700, new=1300),
        processes=[{"name": "p0", "pid": 7, "started": 100.0, "loop_lag": 0.012}],
        run={"fetched": 900, "again": 300},
        recent=recent,
    )  # fmt: skip


def lines(status: Status) -> dict[str, str]:
    return {name: text.strip() for name, _, text in (line.partition(":") for line in _summary(status))}


def test_a_crawl_near_its_end_shows_the_remaining_work() -> None:
    said = lines(running({"span": 60.0, "done": 100, "fetches": 90, "hosts": 6, "new": 50, "known": 50}))
    assert said["speed"] == "1.5 pages/s, 6 new hosts per minute, event loop late by at most 12 ms"
    # (300 + 50) / 0.5
    assert said["left"] == "about 700 URLs, 7.0 min at this rate; each page adds 0.50 new ones"
    assert said["to do"] == "300 URLs, 20 of them in flight; 100 links pending"
    assert said["requests"] == (
        "60% of 1,000 over a kept connection; 200 full and 50 resumed TLS handshakes, 150 without TLS"
    )
    assert said["hosts"].startswith("90 (reached 60")


def test_a_growing_crawl_says_so() -> None:
    said = lines(running({"span": 30.0, "done": 10, "hosts": 5, "new": 130, "known": 0}))
    assert said["left"] == "about 400 URLs wait and the crawl grows: each page adds 13.0 new ones"
    assert "10 new hosts per minute" in said["speed"]


def test_unknown_figures_are_left_out() -> None:
    said = lines(running({}))
    assert "left" not in said and said["speed"] == "2.0 pages/s, event loop late by at most 12 ms"
    assert "requests" not in lines(Status(name="p0"))
