"""Test arms: several schedules that are used like one schedule.

All arms have the same rate. A host gets one request at a time, whichever arm makes it. The class `Arms`,
which holds all arms, has the methods of a schedule.
"""

import inspect

import numpy as np
import pytest

from crawler.errors import UsageError
from crawler.frontier.refresh import Arms, RefreshOutcome, Schedule, Settings
from crawler.frontier.refresh.arm_parts import ArmsOverview, ArmsRecords, ArmsSignals
from crawler.frontier.refresh.overview import Overview
from crawler.frontier.refresh.page_signals import Signals
from crawler.frontier.refresh.schedule_records import Records
from crawler.frontier.refresh.state import load, stage
from crawler.storage.kv import MemoryStore

DAY = 86_400.0
POLICIES = ("ncis", "greedy", "uniform")
GOLDEN = 0x9E3779B97F4A7C15


def filled(hosts: int = 30, size: int = 900) -> Arms:
    arms = Arms([Settings(policy=policy) for policy in POLICIES])
    keys = np.arange(1, size + 1, dtype=np.uint64) * np.uint64(GOLDEN)
    host = np.arange(size, dtype=np.uint64) % np.uint64(hosts)
    arms.add_many(keys, host, host, -np.arange(size) * DAY / 30, 1.0, 0.0)
    arms.pace.rate = size / (30 * DAY)
    return arms


@pytest.mark.parametrize(
    ("one", "joined", "left_out"),
    [
        (Schedule, Arms, set()),
        (Signals, ArmsSignals, set()),
        (Overview, ArmsOverview, {"checks", "explored"}),
        (Records, ArmsRecords, set()),
    ],
)
def test_arms_have_all_methods_of_a_schedule(one: type, joined: type, left_out: set[str]) -> None:
    public = {name for name in dir(one) if not name.startswith("_")} - left_out
    assert public <= set(dir(joined)) | set(vars(filled()))
    for name in public & set(vars(joined)):
        if inspect.isfunction(theirs := getattr(joined, name)):
            same = list(inspect.signature(getattr(one, name)).parameters)
            assert name == "add_many" or list(inspect.signature(theirs).parameters) == same, name


def test_pages_are_split_by_hash_and_found_by_fingerprint() -> None:
    arms = filled()
    sizes = [len(schedule) for schedule in arms.schedules]
    assert sum(sizes) == len(arms) == 900 and min(sizes) > 250
    for k in range(1, 901):
        key = k * GOLDEN & 0xFFFFFFFFFFFFFFFF
        page = arms.find(key)
        assert arms.overview.page(page, 0.0).fingerprint == key and key in arms
        assert key in arms.schedules[arms.numbers.arm_of(key)]
    assert arms.find(7) == -1
    with pytest.raises(RuntimeError):
        arms.add(GOLDEN, 1, 1, 0.0, 0.0)
    page = arms.add(12345, 77, 77, 0.0, 0.0)
    assert arms.host_of(page) == arms.host(77)
    arms.remove(page)
    arms._check()


def test_arms_get_equal_rates_and_one_request_per_host_is_in_flight() -> None:
    arms, rng = filled(), np.random.default_rng(1)
    gap = 10 / arms.pace.rate
    flying: list[int] = []
    ready, asked = np.full(30, -1.0), np.zeros(3, dtype=int)
    for tick in range(1, 3000):
        now = tick / arms.pace.rate
        page = arms.claim_next(now)
        if page >= 0:
            host = arms.host_of(page)
            assert ready[host] <= now and host not in {arms.host_of(other) for other in flying}
            flying.append(page)
            asked[page % 3] += 1
        while len(flying) > 3 or (page < 0 and flying):
            landed = flying.pop(int(rng.integers(len(flying))))
            host = arms.host_of(landed)
            ready[host] = now + gap
            if rng.random() < 0.1:
                arms.give_back(landed, now, now + gap)
            else:
                arms.record_outcome(landed, now, RefreshOutcome(int(rng.random() < 0.3)), now + gap)
        if tick % 500 == 0:
            arms._check()
    assert asked.sum() > 2500 and asked.max() - asked.min() <= 100


def test_a_block_holds_for_all_arms_even_while_a_page_is_in_flight() -> None:
    arms = filled(hosts=2)
    page = arms.claim_next(1.0)
    host = arms.host_of(page)
    arms.block(host, 2.0)  # the other arms must not request the blocked host either
    assert arms.host_of(arms.claim_next(3.0)) != host
    assert arms.claim_next(4.0) == -1
    arms.record_outcome(page, 5.0, RefreshOutcome.UNCHANGED, 5.0)
    assert arms.host_of(arms.peek(5.0)) == host
    arms.block(host, 9.0)
    assert arms.peek(6.0) == -1
    arms._check()
    assert arms.peek(9.0) >= 0


def test_a_page_may_be_removed_while_it_is_in_flight() -> None:
    arms = filled(hosts=2)
    page = arms.claim_next(1.0)
    arms.remove(page)
    arms.record_outcome(page, 2.0, RefreshOutcome.GONE, 3.0)
    arms._check()
    assert len(arms) == 899 and len({arms.host_of(arms.claim_next(3.0)) for _ in range(2)}) == 2


def test_signals_reach_their_arm() -> None:
    arms = filled()
    keys = np.arange(1, 901, dtype=np.uint64) * np.uint64(GOLDEN)
    arms.signals.enqueue_changes(keys, 1.0, 2)
    while arms.work(1.0):
        pass
    told = [arms.overview.page(arms.find(int(key)), 1.0).signals[2] for key in keys]
    policies = [POLICIES[arms.numbers.arm_of(int(key))] for key in keys]
    assert all(count == (policy != "uniform") for count, policy in zip(told, policies, strict=True))


def test_state_goes_to_the_store_and_back() -> None:
    arms, store = filled(), MemoryStore()
    batch = store.batch()
    for k, page in enumerate([arms.find(key * GOLDEN & 0xFFFFFFFFFFFFFFFF) for key in range(1, 901)]):
        arms.acquire(page, k * 10.0)
        arms.record_outcome(page, k * 10.0, RefreshOutcome(k % 2), k * 10.0)
        stage(arms, page, batch)
    store.write(batch)
    again = Arms([Settings(policy=policy) for policy in POLICIES])
    assert load(again, store, 1e5).pages == 900
    for key in range(1, 901):
        fingerprint = key * GOLDEN & 0xFFFFFFFFFFFFFFFF
        assert again.records.page_state(again.find(fingerprint)) == arms.records.page_state(
            arms.find(fingerprint)
        )
    again._check()


def test_the_number_of_arms_is_checked() -> None:
    for count in (0, 17):
        with pytest.raises(UsageError):
            Arms([Settings()] * count)
