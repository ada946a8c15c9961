"""Test the order in which hosts of different classes take turns, in the back queue and in the front."""

import random

import numpy as np
import pytest

from crawler.frontier.discovery.entries import class_in_order, make_order
from crawler.frontier.hosts.table import HostFlag, HostTable
from crawler.frontier.hosts.turns import ClassedBackQueue, DueFront


@pytest.mark.parametrize("seed", range(4))
def test_the_back_queue_against_a_list(seed: int) -> None:
    """Hosts leave in the order of their class. Hosts of the same class leave in the order of their arrival.

    In a quarter of the turns, only arrival counts. Some hosts change their class while they wait.
    """
    rng = random.Random(seed)
    hosts = HostTable(4)
    back = ClassedBackQueue(hosts, 0.25)
    # the arrival number is so high that it soon overflows to 0
    back._arrivals = 0xFFFF_FFF0 if seed % 2 else 0
    model: list[int] = []  # the slots, in order of arrival
    moved: dict[int, int] = {}  # slot -> the tick at which it entered its present class
    idle = [hosts.insert(key) for key in range(40)]
    credit = tick = 0.0

    def place(slot: int) -> int:
        return class_in_order(hosts.cursor[slot])

    for _ in range(3000):
        tick += 1
        action = rng.random()
        if action < 0.45 and idle:
            slot = idle.pop(rng.randrange(len(idle)))
            hosts.cursor[slot] = make_order(rng.choice([0, 7, 200, 255]), 0, 1)
            hosts.flags[slot] = HostFlag.PROMPT * rng.randrange(2)
            if rng.random() < 0.2:
                back.extend(np.array([slot]))
            else:
                back.append(slot)
            model.append(slot)
            moved[slot] = tick
        elif action < 0.6 and model:
            slot = rng.choice(model)
            better = min(place(slot), rng.choice([0, 3, 7]))
            if better != place(slot):
                moved[slot] = tick
            hosts.cursor[slot] = make_order(better, 0, 1)
            back.improved(slot)
        else:
            others = rng.random() < 0.7
            some = [slot for slot in model if others or hosts.flags[slot] & HostFlag.PROMPT]
            assert back.holds(others=others) == bool(some)
            if some:
                assert place(back.first(others=others)) == min(map(place, some))
                credit += 0.25
                slot = back.popleft(others=others)
                if credit >= 1:
                    credit -= 1
                    heads = {}
                    for each in sorted(some, key=lambda each: moved[each]):
                        heads.setdefault((place(each), hosts.flags[each]), each)
                    assert slot == min(heads.values(), key=model.index)
                else:
                    assert place(slot) == min(map(place, some))
                    kind = [
                        e for e in some if place(e) == place(slot) and hosts.flags[e] == hosts.flags[slot]
                    ]
                    assert slot == min(kind, key=lambda each: moved[each])
                model.remove(slot)
                idle.append(slot)
        back._check()
        assert sorted(back) == sorted(model) and len(back) == len(model)


def test_endless_better_hosts_starve_no_host() -> None:
    hosts = HostTable(4)
    back = ClassedBackQueue(hosts, 0.2)
    for key in range(12):
        hosts.cursor[hosts.insert(key)] = make_order(255 if key == 11 else 0, 0, 1)
        back.append(key)
    turns = 1
    while (slot := back.popleft(others=True)) != 11:
        back.append(slot)
        turns += 1
    assert turns <= 5 * 12


def test_due_hosts_go_by_class_or_waiting_time_and_none_twice() -> None:
    valid: set[int] = set()
    due = DueFront(0.2, lambda plan: plan[1] in valid)
    places = [3, 200, 3, 0, 200, 1, 1, 255]
    for tick, place in enumerate(places):
        due.add(place, (0.0, tick, f"host {tick}"))
        valid.add(tick)
    valid.discard(5)
    taken = []
    while (plan := due.pop()) is not None:
        valid.discard(plan[1])
        taken.append(plan[1])
    assert taken == [3, 6, 0, 2, 1, 4, 7]  # in every fifth turn, the host that has waited longest is served
    assert not due and due.first() is None
