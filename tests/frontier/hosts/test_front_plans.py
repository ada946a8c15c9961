"""Test when the hosts of the front have their turns, against a list of the plans."""

import math
import random
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.config import PolitenessConfig
from crawler.frontier.discovery.entries import DEPTH_BITS, SEQUENCE_BITS
from crawler.frontier.hosts.addresses import Addresses
from crawler.frontier.hosts.front_host import NO_PLAN, FrontHost, Refetch
from crawler.frontier.hosts.front_plans import Plans, next_instant

COUNT, CLASSES = 8, 3


class Planned(NamedTuple):
    plans: Plans
    addresses: Addresses[FrontHost]
    hosts: list[FrontHost]


def planned(first_come: float = 1.0) -> Planned:
    """Return the plans of a front, and its hosts. The class of host n is n % 3; hosts from 4 on have a known page."""
    addresses: Addresses[FrontHost] = Addresses(PolitenessConfig(), 100, processes=1)
    hosts = [
        FrontHost(n, n + 1, f"h{n}.org", n, read_to=n % CLASSES << DEPTH_BITS + SEQUENCE_BITS)
        for n in range(COUNT)
    ]
    for host in hosts[COUNT // 2 :]:
        host.refetch = Refetch(0, host.key, f"http://{host.name}/", 0, 0, 0, 0)
    return Planned(Plans(addresses, hosts, first_come), addresses, hosts)


STEPS = st.lists(st.tuples(st.integers(0, 9), st.integers(0, COUNT - 1), st.booleans()), max_size=120)


@given(STEPS, st.sampled_from([1.0, 0.0]))
def test_turns_are_in_the_order_of_the_plans(steps: list[tuple[int, int, bool]], first_come: float) -> None:
    """With an order of new URLs, the best class goes first. Known pages are always in the order of their instants."""
    plans, addresses, hosts = planned(first_come)
    wanted: dict[int, tuple[float, int]] = {}  # slot -> (instant, number of the plan)
    now = 0.0
    for number, (instant, slot, takes) in enumerate(steps):
        if not takes:
            plans.wake(hosts[slot], now + instant)
            hosts[slot].called_by = addresses.meet("10.0.0.1", 1, 0.0)
            wanted[slot] = (now + instant, number)
            continue
        now += instant
        for known in (False, True):
            ready = [
                each
                for each, plan in wanted.items()
                if plan[0] <= now and (hosts[each].refetch is not None) == known
            ]
            by_class = first_come < 1.0 and not known
            ready.sort(key=lambda each: (each % CLASSES, wanted[each][1]) if by_class else wanted[each])
            expected = hosts[ready[0]] if ready else None
            if not known:
                assert plans.first(now) is expected
                assert plans.has_ready(now) is bool(ready)
            assert (plans.pop_chosen if known else plans.pop)(now) is expected
            if expected is not None:
                assert expected.called_by is None and expected.tick == NO_PLAN
                del wanted[ready[0]]
        left = [plan[0] for each, plan in wanted.items() if hosts[each].refetch is not None]
        assert next_instant(plans.chosen) == min(left, default=math.inf)


@pytest.mark.parametrize("first_come", [1.0, 0.5])
def test_replaced_plans_do_not_fill_the_memory(first_come: float) -> None:
    """A heap holds at most four plans for each host, and 64 more. So does the front that is ordered by class."""
    plans, _, hosts = planned(first_come)
    most = 0
    for number in range(1000):
        plans.wake(hosts[number % COUNT], 0.0)
        plans.first(1.0)
        most = max(most, len(list(plans)))
    assert most == (4 * COUNT + 64) * (2 if plans.by_class else 1)


@pytest.mark.parametrize("seed", range(5))
def test_hosts_have_their_turns_in_order_after_plans_were_dropped(seed: int) -> None:
    """Replaced plans are dropped when they are too many. The other plans keep their order."""
    rng = random.Random(seed)
    plans, _, hosts = planned()
    instants: dict[str, float] = {}
    for _ in range(rng.randrange(90, 500)):
        host = rng.choice(hosts)
        instants[host.name] = rng.random()
        plans.wake(host, instants[host.name])
    for pop, some in ((plans.pop, hosts[: COUNT // 2]), (plans.pop_chosen, hosts[COUNT // 2 :])):
        turns = [host for _ in some if (host := pop(1.0)) is not None]
        assert [host.name for host in turns] == sorted((each.name for each in some), key=instants.__getitem__)


def test_a_host_at_an_address_and_a_host_with_the_same_instant_both_have_their_turns() -> None:
    plans, addresses, (one, two, *_) = planned()
    address = addresses.meet("10.0.0.1", 1, 0.0)
    assert plans.waits_for() == "host" and not plans.has_ready(9.0)
    addresses.acquire(address, 0.0)
    plans.wait_at(one, address, 0.0)
    assert one.waiting and plans.pop(9.0) is None
    plans.release(address, 1.0, 1.0)
    free = next_instant(plans.heap)
    assert 1.0 <= free < math.inf and plans.waits_for() == "address" and plans.first(free) is address
    plans.wake(two, free)
    plans.call_next(address, free + 1.0)  # a later instant does not replace an earlier one
    assert [plans.pop(free), plans.pop(free), plans.pop(free)] == [one, two, None]
    assert one.called_by is address and not one.waiting and two.called_by is None
    plans.wake(two, 7.0)
    address.wait(one, first=False)
    plans.call_next(address, 7.0)
    assert plans.waits_for() == "host" and {plans.pop(7.0), plans.pop(7.0)} == {one, two}


def test_an_address_has_the_class_of_the_first_host_that_waits_there() -> None:
    plans, addresses, hosts = planned(0.0)
    address = addresses.meet("10.0.0.1", 1, 0.0)
    plans.wake(hosts[2], 1.0)
    plans.wake(hosts[0], 50.0)
    for host in (hosts[1], hosts[5]):  # hosts of the classes 1 and 2
        plans.wait_at(host, address, 0.0)
    assert plans.first(1.0) is address, "class 1 goes before class 2, and host 0 is not ready yet"
    assert [plans.pop(1.0), plans.pop(1.0), plans.pop(1.0)] == [hosts[1], hosts[2], None]
    plans.call_next(address, 1.0)
    address.waiting.clear()
    plans.wake(hosts[2], 1.0)
    assert plans.first(1.0) is hosts[2], "an address at which no host waits any more comes last"
