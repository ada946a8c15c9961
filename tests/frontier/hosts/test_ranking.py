"""Compare the ranking of hosts with a list that is sorted by a simple form of the ranking rule."""

import random

import numpy as np
import pytest

from crawler.frontier.hosts.politeness import CAUSES
from crawler.frontier.hosts.ranking import ORDERS, failing, first, ranks, with_cause
from crawler.frontier.hosts.table import HostFlag, HostTable

NOW = 1000.0


def table(seed: int, size: int) -> tuple[HostTable, dict[int, tuple[int, float, str]], set[int]]:
    """Return a table of hosts in random states, the failures of single authorities, and the hosts being fetched."""
    rng = random.Random(seed)
    hosts = HostTable(capacity=4)
    for key in range(1, size + 1):
        slot = hosts.insert(key * 0x9E3779B97F4A7C15 & (1 << 64) - 1)
        hosts.todo[slot], hosts.known[slot] = rng.choice([0, 1, 5, 4_000_000_000]), rng.randrange(50)
        hosts.ready[slot] = NOW + rng.uniform(-50.0, 50.0)
        hosts.failures[slot], hosts.refusals[slot] = rng.choice([0, 0, 3, 255]), rng.choice([0, 0, 2])
        hosts.flags[slot] = rng.choice([0, 0, HostFlag.BLOCKED, HostFlag.REFUSED, HostFlag.GIVEN_UP])
        hosts.cause[slot] = rng.randrange(len(CAUSES)) if hosts.failures[slot] else 0
    slots = range(size)
    troubled = {
        slot: (rng.randrange(1, 9), NOW + rng.uniform(0, 99), rng.choice(["connect_error", "tls_error"]))
        for slot in rng.sample(slots, size // 4)
    }
    return hosts, troubled, set(rng.sample(slots, size // 5))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("seed", range(5))
def test_ranks_equal_sorting_by_the_plain_rule(order: str, seed: int) -> None:
    hosts, troubled, busy = table(seed, 60)

    def fails(slot: int) -> bool:
        gone = hosts.flags[slot] & (HostFlag.REFUSED | HostFlag.GIVEN_UP)
        return bool(hosts.failures[slot] or gone or slot in troubled)

    def place(slot: int) -> tuple[float, ...]:
        trouble, until, _ = troubled.get(slot, (0, 0.0, ""))
        if order == "busy":
            return -float(slot in busy), -hosts.todo[slot], slot
        if order == "failing":
            count = min(254, hosts.failures[slot] + hosts.refusals[slot] + trouble)
            return -float(fails(slot)), -count if fails(slot) else 0, -hosts.todo[slot], slot
        if order == "wait":
            wait = max(0.0, max(hosts.ready[slot], until) - NOW) if hosts.todo[slot] else 0.0
            return -wait, slot
        return -hosts.known[slot], slot

    found = first(ranks(order, hosts, troubled, busy, NOW), 60)
    assert found == sorted(range(60), key=place)
    assert failing(hosts, troubled).tolist() == [fails(slot) for slot in range(60)]


def test_the_first_of_the_chosen_hosts() -> None:
    values = np.array([1.0, 9.0, 3.0, 7.0])
    assert first(values, 2) == [1, 3]
    assert first(values, 2, np.array([True, False, True, True])) == [3, 2]
    assert first(values, 0) == [] and first(values[:0], 5) == []


def test_hosts_with_a_cause() -> None:
    """If an authority has failed, its host has the cause of this failure, even if the host itself failed earlier."""
    hosts = HostTable(capacity=4)
    for key in (1, 2, 3, 4):
        hosts.insert(key)
    reset = CAUSES.index("reset")
    hosts.failures[0], hosts.cause[0] = 1, reset
    hosts.cause[1] = reset  # the host has answered since its failure
    hosts.failures[2], hosts.cause[2] = 1, reset
    troubled = {2: (1, NOW, "tls_error"), 3: (1, NOW, "reset")}
    assert with_cause(hosts, troubled, "reset").tolist() == [True, False, False, True]
    assert with_cause(hosts, troubled, "tls_error").tolist() == [False, False, True, False]
    assert not with_cause(hosts, {}, "unheard of").any()
