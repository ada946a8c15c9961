"""Test single parts of the frontier: the fetch tasks given out, and the queue for DNS look-ups."""

import pytest

from crawler.config import Config
from crawler.frontier.discovery.entries import Todo
from crawler.frontier.hosts.addresses import Addresses
from crawler.frontier.hosts.dns_lookups import DnsLookups
from crawler.frontier.hosts.front_host import FrontHost, Refetch
from crawler.frontier.hosts.rate import Rate
from crawler.frontier.hosts.table import HostFlag, HostTable
from crawler.frontier.hosts.workbench import Workbench
from crawler.frontier.outstanding import Outstanding
from crawler.records import TaskKind


def _host(hosts: HostTable, number: int) -> FrontHost:
    host = FrontHost(hosts.insert(number), number, f"h{number}.org", 1, 0)
    host.queue.append((7, Todo("/a", 5)))
    return host


def _known(host: FrontHost) -> FrontHost:
    host.refetch = Refetch(3, 9, f"https://{host.name}/k", 2, 8, 1, 0)
    return host


@pytest.mark.parametrize(
    ("task", "places"),
    [(TaskKind.PAGE, 1), (TaskKind.ROBOTS, 1), (TaskKind.DENIED, 0), (TaskKind.RESOLVE, 0)],
)
def test_only_requests_take_a_fetch_slot(task: TaskKind, places: int) -> None:
    hosts = HostTable()
    out, host = Outstanding(hosts, 4), _host(hosts, 1)
    fetch_task = out.acquire(host, task)
    out._check()
    assert (len(out), out.requests, host.held, host.served) == (1, places, True, 1)
    out.let_go(host)
    out.release(fetch_task, host)
    out._check()
    assert (len(out), out.requests, host.held, host.given_out, out.held) == (0, 0, False, set(), {})


def test_a_known_page_goes_before_the_queue_and_is_in_no_queue() -> None:
    """Each fetch task of a known page has a negative order value of its own, which no queue entry has."""
    hosts = HostTable()
    out = Outstanding(hosts, 4)
    fetch_tasks = [out.acquire(_known(_host(hosts, number)), TaskKind.PAGE) for number in (1, 2)]
    assert [(fetch_task.order, fetch_task.url, fetch_task.depth) for fetch_task in fetch_tasks] == [
        (-1, "https://h1.org/k", 2),
        (-2, "https://h2.org/k", 2),
    ]
    assert all(len(host.queue) == 1 for host in out.held.values())


def test_a_fetch_task_that_stepped_aside_has_no_fetch_slot_until_it_returns() -> None:
    hosts = HostTable()
    out, one, two = Outstanding(hosts, 1), _host(hosts, 1), _host(hosts, 2)
    fetch_task = out.acquire(one, TaskKind.PAGE)
    assert out.is_full and out.step_aside(one.key) and not out.is_full
    assert not out.step_aside(one.key), "the task has already stepped aside"
    other = out.acquire(two, TaskKind.PAGE)
    assert out.is_full and not out.step_aside(two.key), "no more than `concurrency` are aside"
    out.let_go(two)
    out.release(other, two)
    out.come_back(one.key)
    assert out.is_full and not out.is_aside(one.key)
    out.step_aside(one.key)
    out.let_go(one)
    out.release(fetch_task, one)
    assert out.requests == 0, "a fetch task that has stepped aside has no slot to give back"
    out._check()


def test_hosts_queue_for_look_ups_and_limit_admission() -> None:
    hosts = HostTable()
    config = Config()
    addresses = Addresses(config.politeness, 10, 1)
    bench = Workbench(hosts, addresses, lambda slot: None, lambda host: None, front_max=9, turn_max=9, stay=1)
    look_ups = DnsLookups(bench, limit=1, rate=Rate(0.0))
    line = [_host(hosts, number) for number in (1, 2, 3, 4)]
    for host in line:
        bench.enter(host)
    assert look_ups.ask(line[0]) and not look_ups.ask(line[1])
    assert bench.admits == 1, "a short queue does not stop admission"
    assert not look_ups.ask(line[2]) and not look_ups.ask(line[3]) and not bench.admits
    assert look_ups.waiting == 3 and not look_ups.may_start and look_ups.next(0.0) is None
    line[1].queue.clear()
    hosts.flags[line[2].slot] |= HostFlag.BLOCKED
    look_ups.end()
    assert look_ups.next(0.0) is line[3], "a host without work and a blocked host leave the queue"
    assert (look_ups.under_way, look_ups.waiting, bench.admits) == (1, 0, 2)
    assert not any(host.waiting for host in line)
    look_ups._check()


@pytest.mark.parametrize("rate, admits", [(0.0, 30), (100.0, 30), (1.0, 5), (0.01, 1)])
def test_look_ups_stay_a_few_seconds_of_the_rate_ahead(rate: float, admits: int) -> None:
    hosts = HostTable()
    addresses = Addresses(Config().politeness, 10, 1)
    bench = Workbench(
        hosts, addresses, lambda slot: None, lambda host: None, front_max=99, turn_max=9, stay=1
    )
    look_ups = DnsLookups(bench, limit=10, rate=Rate(rate))
    assert bench.admits == bench.wanted(0.0) == admits
    for number in range(admits):
        host = _host(hosts, number + 1)
        bench.enter(host)
        look_ups.ask(host)
        look_ups._check()
    assert not bench.admits and not bench.has_room()
    look_ups.end()
    assert bench.admits == 1 == bench.wanted(0.0), "a finished look-up makes room for another host"
