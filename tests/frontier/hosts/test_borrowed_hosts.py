"""Test hosts lent to redirect hops: one hop at a time, after the politeness gap, within the limits of the address."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from crawler.frontier.hosts.borrowed_hosts import ASK_AGAIN, BorrowedHosts

NOW = 100.0


class Around:
    """Replaces registry, politeness, addresses and workbench with fakes; the key of a host is the length of its name."""

    def __init__(self, *, ready: float = 0.0, start: float | None = 0.0, counted: bool = True) -> None:
        self.did: list[tuple[Any, ...]] = []
        self.start = start
        registry = SimpleNamespace(
            host_key=len,
            slot=lambda name: 0,
            domain_key=lambda name: 9,
            hosts=SimpleNamespace(ready=[ready]),
            note=lambda slot, name: self.did.append(("noted", name)),
        )
        addresses = SimpleNamespace(
            counted=counted,
            meet=lambda address, domain, now: self.did.append(("met", address, domain)) or address,
            start_at=lambda record: self.start,
            acquire=lambda record: self.did.append(("acquired", record)),
        )
        politeness = SimpleNamespace(hop=lambda *what: self.did.append(("hop", *what)))
        bench = SimpleNamespace(release_address=lambda *what: self.did.append(("released", *what)))
        anything: Any = (registry, politeness, addresses, bench)
        self.visits = BorrowedHosts(*anything)


def test_a_free_host_is_lent_once_and_its_gap_runs_from_the_end_of_the_hop() -> None:
    around = Around()
    assert around.visits.borrow("a.org", NOW, "1.2.3.4") == 0.0 and len(around.visits) == 1
    assert around.did == [("met", "1.2.3.4", 9), ("acquired", "1.2.3.4")]
    assert around.visits.borrow("b.org", NOW, "1.2.3.4") == NOW + ASK_AGAIN, (
        "it has the same key, so it is busy"
    )
    assert (
        around.visits.free_at(len("a.org"), NOW) == NOW + ASK_AGAIN and around.visits.free_at(99, NOW) == 0.0
    )
    assert around.visits.at(cast(Any, "1.2.3.4")) == 1 and around.visits.at(cast(Any, "5.6.7.8")) == 0
    around.did.clear()
    around.visits.give_back("a.org", NOW + 2.0, 0.5, 7.0)
    assert around.did == [
        ("hop", 0, 0.5, 7.0, NOW + 2.0),
        ("noted", "a.org"),
        ("released", "1.2.3.4", NOW + 2.0, NOW + 2.0),
    ]
    assert len(around.visits) == 0 and around.visits.borrow("a.org", NOW, "") == 0.0


@pytest.mark.parametrize(("ready", "at"), [(NOW + 3.0, NOW + 3.0), (NOW, 0.0)])
def test_a_hop_waits_for_the_gap(ready: float, at: float) -> None:
    around = Around(ready=ready)
    assert around.visits.borrow("a.org", NOW, "") == at and len(around.visits) == (at == 0.0)


@pytest.mark.parametrize(
    ("start", "at"), [(None, NOW + ASK_AGAIN), (NOW + 4.0, NOW + 4.0), (NOW, 0.0), (NOW - 1.0, 0.0)]
)
def test_an_address_at_its_limit_refuses_a_hop(start: float | None, at: float) -> None:
    around = Around(start=start)
    assert around.visits.borrow("a.org", NOW, "1.2.3.4") == at
    assert (("acquired", "1.2.3.4") in around.did) is (at == 0.0) and len(around.visits) == (at == 0.0)


@pytest.mark.parametrize(("counted", "address"), [(False, "1.2.3.4"), (True, "")])
def test_addresses_without_limits_are_not_held(counted: bool, address: str) -> None:
    around = Around(counted=counted, start=None)
    assert around.visits.borrow("a.org", NOW, address) == 0.0 and around.did == []
    around.visits.give_back("a.org", NOW, 0.5, 0.0)
    assert around.did == [("hop", 0, 0.5, 0.0, NOW), ("noted", "a.org")]
