"""Test that the hosts of one registrable domain share a rate, and that no other host waits for it."""

from collections import Counter
from typing import Any

import pytest

from crawler.config import PolitenessConfig
from crawler.frontier.hosts.domain_rates import AHEAD_MAX, DomainRates
from tests.frontier.model import Crawl, config, fetched


def crawl_domain(hosts: int, pages: int, settings: dict[str, Any], **sections: Any) -> Crawl:
    """Crawl hosts of one domain, each on an address of its own, and one host of another domain."""
    crawl = Crawl(
        config(
            politeness={"delay_factor": 0.0, **settings},
            frontier={"front_factor": 12, "address_waiters_max": 64},
            **sections,
        ),
        answer=lambda fetch_task, now: fetched(fetch_task.url, took=0.01),
        addresses=lambda name: (f"10.0.{name.partition('.')[0]}",),
        concurrency=50,
    )
    urls = [f"https://h{n}.one.org/{k}" for k in range(pages) for n in range(hosts)]
    crawl.add([url for url in [*urls, *(f"https://h.other.org/{k}" for k in range(pages))]])
    return crawl


@pytest.mark.parametrize(
    ("settings", "sections", "rate"),
    [
        ({}, {}, 8.0),
        ({"domain_rate": 3.0}, {}, 3.0),
        ({"delay": 0.05}, {}, 20.0),
        ({}, {"override": [{"match": "*.one.org", "delay": 0.05}]}, 20.0),
        ({"domain_rate": 0.0}, {}, 45.0),
    ],
)
def test_hosts_of_a_domain_share_a_rate(
    settings: dict[str, Any], sections: dict[str, Any], rate: float
) -> None:
    """No window has more starts than the rate allows, and in the long run the rate is reached."""
    crawl = crawl_domain(40, 8, settings, **sections)
    crawl.run(300.0)
    assert len(crawl.done) == 41 * 8, "every page is fetched"
    began = sorted(request.began for request in crawl.requests if request.host.endswith("one.org"))
    took = began[-1] - began[0]
    assert 0.9 * rate <= (len(began) - 1) / took <= 1.02 * rate
    if rate < 45.0:
        a_second = Counter(int(each - began[0]) for each in began)
        assert max(a_second.values()) <= rate + 1


def test_another_domain_does_not_wait() -> None:
    crawl = crawl_domain(300, 2, {})
    crawl.run(30.0)
    other = [request.began for request in crawl.requests if request.host == "h.other.org"]
    assert len(other) == 2 and other[-1] - other[0] < 2.0


def test_turns_are_bounded_and_kept_until_they_are_used() -> None:
    rates = DomainRates(PolitenessConfig(), 64, 1)
    turns = [rates.turn_at(1, host, 100.0) for host in range(1000)]
    assert turns[:3] == [100.0, 100.125, 100.25] and max(turns) == 100.0 + AHEAD_MAX
    assert rates.turn_at(1, 2, 100.2) == 100.25, "a host that asks again keeps its turn"
    assert len(rates._turns) <= 1 + AHEAD_MAX * 8
    rates.start(1, 2, 100.25)
    assert rates.turn_at(1, 2, 100.25) == 130.125, "a request uses the turn"
    for number in range(1000):
        rates.turn_at(number, number, 500.0 + number)
        rates.start(number, number, 500.0 + number)
    assert len(rates._domains) <= 64 and len(rates._turns) <= 64


def test_processes_that_share_a_domain_share_its_rate() -> None:
    rates = DomainRates(PolitenessConfig(), 64, 3)
    assert [rates.turn_at(1, host, 100.0) for host in range(3)] == [100.0, 100.375, 100.75]
