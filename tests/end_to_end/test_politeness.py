"""Test politeness as servers see it: no overlapping requests, no short gaps, no forbidden pages, no lost pages.

The tests read the server's log. The log contains, for each request, the time at which the request arrived and
the time at which it was answered. The tests run in real time, so delays are small. Crawler and server are
scheduled separately, so a gap may look shorter in the log than it was (`SLACK`).
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections import defaultdict
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from crawler.frontier.hosts.rate import RATE_SLACK
from tests.faults.harness import ROOT, TreeWeb, crawl, end, finish, judge, settings, several, start

# The server records the beginning of a request after it arrived, and the end before the answer was sent. So a
# gap looks longer to the server than it was for the crawler. A millisecond of slack is allowed because two
# processes read the clock.
SLACK = 0.001
LATE = 0.05  # seconds by which a busy machine may delay the first of several requests
DELAY = 0.3
FACTOR = 3.0
ONE_DOMAIN, MANY_DOMAINS = "hostN.site.localhost", "www.siteN.localhost"


def polite(*more: str) -> tuple[str, ...]:
    """Return the flags of a crawl that keeps gaps between requests. The flags in `more` override them."""
    return settings("--delay", str(DELAY), "--delay-factor", str(FACTOR), "--concurrency", "500", *more)


def by_host(web: TreeWeb) -> dict[str, list[tuple[float, float]]]:
    """Return the begin and end times of the requests to each host, in order."""
    hosts = defaultdict(list)
    for begin, ended, host, _, _ in web.requests():
        hosts[host].append((begin, ended))
    return {host: sorted(times) for host, times in hosts.items()}


@pytest.mark.parametrize("answers", [10, 60])
def test_gaps_of_fifty_hosts_survive_a_kill(tmp_path: Path, answers: int) -> None:
    """After a kill and an immediate restart, a host still gets one request at a time, with its gap after each.

    The gap is longer than the crawler takes to start, so the test shows whether the gap survives the kill. The kill
    comes during the first or the second request to each host: some answers are being received, and others are not
    committed yet.
    """
    delay, factor, longest = 0.5, 12.0, 4.0
    slow = settings(
        "--delay", str(delay), "--delay-factor", str(factor), "--set", f"politeness.delay_max={longest}",
        "--concurrency", "500",
    )  # fmt: skip
    with TreeWeb(tmp_path, 150, "--delay", "0.2", "--fanout", "50", hosts=50) as web:
        process = start(tmp_path / "crawl", web.seed, *slow)
        while len(web.requests()) < answers:
            assert process.poll() is None
            time.sleep(0.02)
        process.kill()
        end(process)
        killed = time.time()  # the kernel has closed the connections of the requests under way
        finish(web, tmp_path / "crawl", *slow)
        hosts = by_host(web)
        found = judge(web, tmp_path / "crawl")
    assert len(hosts) == 50 and found.lost == found.stored_twice == 0, found
    assert found.refetched <= 50
    for host, times in hosts.items():
        for (begin, ended), (after, _) in pairwise(times):
            stopped = min(ended, killed) if begin < killed else ended
            gap = max(delay, min(factor * (stopped - begin), longest))
            assert after - stopped >= gap - 2 * SLACK, (host, begin, ended, after, killed)


def test_hosts_on_one_address_share_a_gap(tmp_path: Path) -> None:
    """Twelve hosts on one address get one request at a time.

    The gap between requests is half the smallest gap of a host.
    """
    with TreeWeb(tmp_path, 40, "--names", ONE_DOMAIN, hosts=12) as web:
        ended = crawl(tmp_path / "crawl", web.seed, *polite())
        requests = sorted((begin, ended) for begin, ended, *_ in web.requests())
        found = judge(web, tmp_path / "crawl")
    assert ended.code == 0 and found.lost == 0, ended
    assert all(after - ended >= DELAY / 2 - SLACK for (_, ended), (after, _) in pairwise(requests))


@pytest.mark.parametrize("more", [(), several(3), (*several(3), "--set", "urls.partition=host")])
def test_hosts_of_one_domain_share_a_rate(tmp_path: Path, more: tuple[str, ...]) -> None:
    """Forty hosts could get 80 requests a second. Their domain gets 12, whichever processes own the hosts."""
    limits = ("--set", "politeness.domain_rate=12", "--set", "politeness.address_delay_share=0")
    with TreeWeb(tmp_path, 60, "--names", ONE_DOMAIN, "--fanout", "30", hosts=40) as web:
        ended = crawl(tmp_path / "crawl", web.seed, *polite(*limits, *more))
        starts = sorted(begin for begin, *_ in web.requests())
        found = judge(web, tmp_path / "crawl")
    assert ended.code == 0 and found.lost == found.stored_twice == 0, ended
    # A loaded machine may start one request a second late and the next ones on time.
    assert starts[-1] - starts[0] >= (len(starts) - 1) / 12 - 1.0, starts
    assert all(late - early >= 24 / 12 - 1.0 for early, late in zip(starts, starts[24:], strict=False)), (
        starts
    )


def test_three_processes_share_the_rate_of_an_address(tmp_path: Path) -> None:
    """80 domains on one address get 51 requests a second: 40 (the setting) times the square root of 80 / 50.

    Once, each process counted only its own 27 domains. 27 domains are too few for shared hosting, so the address
    got 7 requests a second. A process that was killed and restarted learns the domains of the other processes
    again. Until then, the other processes do not use its part of the rate.
    """
    rate, domains = 40, 80
    limits = ("--set", f"politeness.shared_address_rate={rate}", "--delay-factor", "0")
    most = rate * (domains / 50) ** 0.5 * 1.05  # 5 % are added, because the number of domains is an estimate
    with TreeWeb(tmp_path, 400, "--names", MANY_DOMAINS, "--fanout", "80", hosts=domains) as web:
        process = start(tmp_path / "crawl", web.seed, *polite(*limits, *several(3)))
        while len(web.requests()) < 250:
            assert process.poll() is None
            time.sleep(0.02)
        os.kill(pid_of(tmp_path / "crawl", "p1"), signal.SIGKILL)
        ended = end(process)
        starts = recorded_starts(web, tmp_path / "crawl")
        seen = sorted(begin for begin, *_ in web.requests())
        found = judge(web, tmp_path / "crawl", processes=3)
    assert ended.code == 0 and found.lost == found.stored_twice == 0, ended
    for times, count in ((starts, 20), (starts, 60), (starts, 200), (seen, 200)):
        took = min(late - early for early, late in zip(times, times[count:], strict=False))
        assert took >= (count - 3) / most - LATE, (times is seen, count, took)
    assert 150 / (seen[249] - seen[99]) > 15, "before the kill; 7 with separate counts"


def recorded_starts(web: TreeWeb, directory: Path) -> list[float]:
    """Return the start of each request, in order, as recorded by the crawler that sent it.

    A busy machine may delay the server, which then reads requests of several processes at once. Over few requests,
    the server's log would show a rate that no process had. A killed process did not record its last requests. They
    count from the time at which the server read them.
    """
    rows = map(json.loads, (directory / "pages.jsonl").read_text().splitlines())
    recorded = {urlsplit(row["url"]).path: datetime.fromisoformat(row["ts"]).timestamp() for row in rows}
    starts = []
    for begin, _, _, path, _ in sorted(web.requests()):
        sent = recorded.get(path, begin) < begin
        starts.append(recorded.pop(path) if sent else begin)
    assert not recorded, "a fetch that no request matches"
    return sorted(starts)


def pid_of(directory: Path, name: str) -> int:
    """Return the process number of one of the crawl's processes."""
    status = subprocess.run(
        [sys.executable, "-m", "crawler", "status", "--json", "--dir", str(directory)],
        capture_output=True, check=True, cwd=ROOT,
    )  # fmt: skip
    return int(next(row["pid"] for row in json.loads(status.stdout)["processes"] if row["name"] == name))


def test_robots_txt_is_fetched_first_and_obeyed(tmp_path: Path) -> None:
    """The Crawl-delay in robots.txt is obeyed too."""
    rules = "User-agent: *|Disallow: /forbidden|Crawl-delay: 0.7|"
    with TreeWeb(tmp_path, 30, "--robots", rules, hosts=8) as web:
        ended = crawl(tmp_path / "crawl", web.seed, *polite("--robots", "obey"))
        requests = sorted(web.requests())
        hosts = by_host(web)
        found = judge(web, tmp_path / "crawl")
    assert ended.code == 0 and found.lost == 0, ended
    first = {host: path for _, _, host, path, _ in reversed(requests)}
    assert set(first.values()) == {"/robots.txt"} and len(first) == 8
    assert not [path for _, _, _, path, _ in requests if path.startswith("/forbidden")]
    for times in hosts.values():
        assert all(after - ended >= 0.7 - SLACK for (_, ended), (after, _) in pairwise(times[1:]))


def test_requests_keep_a_constant_rate(tmp_path: Path) -> None:
    """In no period does the number of requests exceed the rate.

    The process makes up for late starts, which a busy machine causes, by at most `RATE_SLACK`.
    """
    rate = 50
    with TreeWeb(tmp_path, 200, "--fanout", "20", hosts=40) as web:
        ended = crawl(tmp_path / "crawl", web.seed, *settings("--rate", str(rate)))
    lines = (tmp_path / "crawl" / "pages.jsonl").read_text().splitlines()
    starts = sorted(datetime.fromisoformat(json.loads(line)["ts"]).timestamp() for line in lines)
    assert ended.code == 0 and len(starts) == 200
    for first, last in ((0, 10), (50, 100), (0, 199), (150, 170)):
        assert starts[last] - starts[first] >= (last - first) / rate - RATE_SLACK - LATE


def test_retry_after_of_a_429_is_obeyed(tmp_path: Path) -> None:
    """If the request rate is too high, the server answers 429 with a Retry-After.

    The crawler obeys it, and no page is lost.
    """
    limit = ("--per-minute", "10", "--window", "1.5")
    with TreeWeb(tmp_path, 45, *limit, hosts=2) as web:
        quick = ("--set", "politeness.backoff_first=0.1", "--set", "politeness.slowdown_max=2")
        ended = crawl(tmp_path / "crawl", web.seed, *settings(*quick))
        requests = sorted(web.requests())
        found = judge(web, tmp_path / "crawl")
    assert ended.code == 0 and found.lost == found.unstored == 0, (ended.err, found)
    hosts = {host for _, _, host, _, status in requests if status == 429}
    assert hosts
    for host in hosts:
        answers = [(begin, ended, status) for begin, ended, other, _, status in requests if other == host]
        for (_, ended_at, status), (after, _, _) in pairwise(answers):
            assert status != 429 or after - ended_at >= 1.0 - SLACK  # the smallest Retry-After of the server


def test_a_site_that_is_down_is_retried_later(tmp_path: Path) -> None:
    """After a 503, all requests to the host wait, and no page is lost."""
    with TreeWeb(tmp_path, 60, "--down", "1:0:3", "--down", "3:1:3", hosts=4) as web:
        quick = ("--set", "politeness.backoff_first=0.3", "--set", "politeness.slowdown_max=2")
        ended = crawl(tmp_path / "crawl", web.seed, *settings("--delay", "0.05", *quick))
        down = [row for row in web.requests() if row[4] == 503]
        found = judge(web, tmp_path / "crawl")
    assert ended.code == 0 and found.lost == found.unstored == 0, (ended.err, found)
    assert 1 <= len(down) < 20, down
