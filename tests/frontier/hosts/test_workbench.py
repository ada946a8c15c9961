"""Test the workbench, which holds hosts in several structures, and the queue of the hosts at an address."""

from crawler.config import PolitenessConfig
from crawler.frontier.hosts.addresses import Addresses
from crawler.frontier.hosts.front_host import FrontHost
from crawler.frontier.hosts.table import NO_ORDER, HostState, HostTable
from crawler.frontier.hosts.workbench import Workbench


def bench(
    count: int, front_max: int = 8, unloaded: list[int] | None = None
) -> tuple[Workbench, Addresses, list[FrontHost]]:
    """Return a workbench with `count` hosts. For each host that leaves, append its number of requests to `unloaded`."""
    hosts = HostTable()
    addresses = Addresses(PolitenessConfig(), 100, processes=1)
    front = [FrontHost(hosts.insert(n + 1), n + 1, f"h{n}.org", n, NO_ORDER) for n in range(count)]
    for host in front:
        hosts.todo[host.slot] = 1

    def unload(host: FrontHost) -> None:
        if unloaded is not None:
            unloaded.append(host.served)
        host.served = 0

    return (
        Workbench(
            hosts, addresses, lambda slot: front[slot], unload, front_max=front_max, turn_max=3, stay=35.0
        ),
        addresses,
        front,
    )


def test_hosts_at_an_address_go_in_order_of_arrival() -> None:
    """A host whose turn has come keeps its turn, even if another host of the address sends a request first."""
    work, addresses, hosts = bench(3)
    address = addresses.meet("10.0.0.1", 1, 0.0)
    for host in hosts:
        work.enter(host)
        work.plans.wait_at(host, address, 0.0)
    called = work.pop(0.5)
    assert called is hosts[0] and called.called_by is address
    addresses.acquire(address, 0.5)
    work.plans.wait_at(called, address, 0.5)
    assert work.pop(0.5) is None
    work.plans.release(address, 1.0, 1.0)
    order = []
    for now in (1.5, 2.5, 3.5):
        order.append(work.pop(now))
        work.plans.call_next(address, now)
    assert order == hosts
    work._check()


def test_a_full_front_sends_idle_hosts_away_first_then_those_that_wait_longest() -> None:
    work, _, hosts = bench(12)
    for host in hosts[:8]:
        work.enter(host)
        work.plans.wake(host, 100.0 + host.slot)
    work.hosts.todo[2] = 0
    work.sleep(hosts[2])
    for host in hosts[8:]:
        work.schedule(host.slot, 0.0)
    came = [work.pop(1.0) for _ in range(3)]
    assert came == hosts[8:11]
    assert work.hosts.place[2] == HostState.IDLE
    assert [work.hosts.place[slot] for slot in (5, 6, 7)] == [
        HostState.FRONT,
        HostState.CALENDAR,
        HostState.CALENDAR,
    ]
    work._check()


def test_a_later_plan_replaces_the_earlier_one() -> None:
    work, _, (host,) = bench(1)
    work.enter(host)
    for instant in range(1000):
        work.plans.wake(host, float(1000 - instant))
    assert len(work.plans.heap) < 200
    assert work.next_event(0.0) == 1.0
    assert work.pop(1.0) is host and work.pop(2000.0) is None


def test_hosts_that_are_soon_ready_again_stay_in_the_front() -> None:
    """Such hosts stay because their connections are still open.

    Another host enters the front only when a host of the front becomes idle or must wait for long.
    """
    work, _, hosts = bench(10)
    for host in hosts[:8]:
        work.enter(host)
        work.hosts.ready[host.slot] = 20.0 + host.slot
        work.plans.wake(host, 20.0 + host.slot)
    for host in hosts[8:]:
        work.schedule(host.slot, 0.0)
    assert work.pop(1.0) is None
    assert 1.0 < work.next_event(1.0) <= 20.0, "no busy loop while no host can leave"
    work.hosts.todo[3] = 0
    work.sleep(hosts[3])
    assert work.pop(1.0) is hosts[8] and work.hosts.place[3] == HostState.IDLE
    work.plans.wake(hosts[5], 30.0)  # the next try of the host is after its gap
    assert work.pop(1.0) is hosts[9] and work.hosts.place[5] == HostState.CALENDAR
    work._check()


def full_front(count: int, unloaded: list[int] | None = None) -> Workbench:
    """Return a workbench whose hosts are all ready: eight are in the front, the other hosts in the back queue."""
    work, _, hosts = bench(count, unloaded=unloaded)
    for host in hosts[:8]:
        work.enter(host)
        work.plans.wake(host, 0.0)
    for host in hosts[8:]:
        work.schedule(host.slot, 0.0)
    return work


def asked_every(seconds: float, count: int, work: Workbench) -> list[int]:
    """Serve one host every `seconds`; return the slots in the order in which they are served.

    A served host is ready again after 1 s.
    """
    now, asked = 0.0, []
    for _ in range(count):
        now += seconds
        host = work.pop(now)
        assert host is not None
        host.served += 1
        asked.append(host.slot)
        work.plans.wake(host, now + 1.0)
        work._check()
    return asked


def test_ready_hosts_outside_a_full_front_get_turns_too() -> None:
    """The crawl rate is so low that each host of the full front is served long after it is ready.

    Therefore, the hosts outside the front get turns, too.
    """
    turns: list[int] = []
    asked = asked_every(10.0, 400, full_front(40, turns))
    assert set(asked[-240:]) == set(range(40))
    assert min(turns) == 3, "at least a look-up, robots.txt and the first page"


def test_hosts_with_open_connections_stay_in_the_front() -> None:
    """Eight hosts take turns. Each host is ready again after 1 s, but its next turn comes only after eight intervals.

    A host stays in the front if it is served at most 35 s late (`stay`).
    """
    for seconds in (1.0, 4.4):
        assert set(asked_every(seconds, 400, full_front(40))) == set(range(8))
    assert set(asked_every(4.6, 400, full_front(40))) > set(range(8))
