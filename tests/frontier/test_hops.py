"""Test the turns of redirect hops, which are in no queue, and the return of a fetch task to its host."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from crawler.frontier.hops import Hops
from crawler.frontier.hosts.borrowed_hosts import ASK_AGAIN

NOW = 100.0


class Around:
    """Replaces the gates and the held tasks with fakes; the fetch task's host has key 1, `other.org` has key 2."""

    def __init__(
        self, *, aside: bool = False, requests: int = 0, own: float = 0.0, visit: float = 0.0
    ) -> None:
        self.is_away, self.requests, self.concurrency = {1: aside}, requests, 4
        self.held = {1: SimpleNamespace(slot=11)}
        self.ready = 0.0
        self.did: list[Any] = []
        gates = SimpleNamespace(
            free_at=lambda slot, now: self.ready,
            acquire_own_address=lambda host, address, now: (
                self.did.append(("address", host.slot, address)) or own
            ),
            registry=SimpleNamespace(host_key=lambda name: {"a.org": 1, "other.org": 2}[name]),
            visits=SimpleNamespace(
                borrow=lambda name, now, address: self.did.append(("visit", name)) or visit
            ),
            shares=SimpleNamespace(
                reacquire=lambda slot, now: self.did.append(("retake", slot)),
                release=lambda slot, now: self.did.append(("give", slot)),
            ),
            release_address=lambda host, ended, now: self.did.append(("release", host.slot)),
        )
        self.fetch_task = cast(Any, SimpleNamespace(host=1, hostname="a.org"))
        self.hops = Hops(cast(Any, gates), cast(Any, self), cast(Any, self))

    def is_aside(self, key: int) -> bool:
        return self.is_away.get(key, False)

    def come_back(self, key: int) -> None:
        self.did.append(("back", key))

    def step_aside(self, key: int) -> bool:
        self.did.append(("aside", key))
        return not self.is_away[key]

    def borrow(self, name: str = "a.org", *, fetch_task: bool = True) -> float:
        return self.hops.borrow(name, NOW, self.fetch_task if fetch_task else None, "1.2.3.4")


def test_a_hop_on_the_tasks_own_host_waits_for_its_gap_and_its_address() -> None:
    around = Around()
    around.ready = NOW + 3.0
    assert around.borrow() == NOW + 3.0 and around.did == []
    around.ready = NOW
    assert around.borrow() == 0.0 and around.did == [("address", 11, "1.2.3.4")]
    assert Around(own=NOW + 1.0).borrow() == NOW + 1.0


def test_a_hop_to_another_host_borrows_that_host() -> None:
    around = Around(visit=NOW + 5.0)
    assert around.borrow("other.org") == NOW + 5.0 and around.did == [("visit", "other.org")]


@pytest.mark.parametrize(("aside", "at"), [(False, NOW + ASK_AGAIN), (True, 0.0)])
def test_a_host_held_by_a_fetch_task_is_busy_unless_the_task_stepped_aside(aside: bool, at: float) -> None:
    around = Around(aside=aside)
    assert around.borrow("a.org", fetch_task=False) == at
    assert around.did == ([("visit", "a.org")] if aside else [])


@pytest.mark.parametrize(("requests", "comes"), [(4, False), (5, False), (3, True)])
def test_a_task_that_stepped_aside_continues_when_a_fetch_slot_is_free(requests: int, comes: bool) -> None:
    around = Around(aside=True, requests=requests)
    assert around.borrow() == (0.0 if comes else NOW + ASK_AGAIN)
    back = [("address", 11, "1.2.3.4"), ("back", 1), ("retake", 11)]
    assert around.did == (back if comes else [])
    around = Around(aside=True, own=NOW + 2.0)
    assert around.borrow() == NOW + 2.0 and ("back", 1) not in around.did, "its address is not free yet"


def test_stepping_aside_frees_fetch_slot_and_address_once() -> None:
    around = Around()
    around.hops.step_aside(around.fetch_task, NOW)
    assert around.did == [("aside", 1), ("give", 11), ("release", 11)]
    around = Around(aside=True)
    around.hops.step_aside(around.fetch_task, NOW)
    assert around.did == [("aside", 1)]
