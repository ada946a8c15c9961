"""Test the limits of an address that several processes share, and how they learn of each other's domains."""

import math
import random
from math import sqrt

import pytest

from crawler.config import PolitenessConfig
from crawler.frontier.hosts.addresses import Address, Addresses
from crawler.frontier.hosts.domain_counts import SKETCH_BITS, DomainCount

CONFIG = PolitenessConfig(
    shared_address_domains=50, shared_address_rate=8.0, delay=1.0, address_delay_share=0.5
)
NAME = "10.0.0.1"
ESTIMATE = 1.08  # the number of domains of a shared address is an estimate


def domains(count: int, seed: int = 0) -> list[int]:
    """Return keys of different domains, as the fingerprinter makes them."""
    return random.Random(seed).sample(range(1 << 62), count)


def process(processes: int = 3, entries_max: int = 100, config: PolitenessConfig = CONFIG) -> Addresses[str]:
    return Addresses(config, entries_max, processes)


def meet(addresses: Addresses[str], keys: list[int], name: str = NAME) -> Address[str]:
    for key in keys:
        address = addresses.meet(name, key, 0.0)
    return address


def rate_at(addresses: Addresses[str], keys: list[int]) -> float:
    """Return the starts per second that the process allows at an address after it has met the domains `keys` there."""
    address = meet(addresses, keys)
    before = address.ready
    addresses.acquire(address, before)
    addresses.release(address, before)
    return 1.0 / (address.ready - before)


@pytest.mark.parametrize("seed", range(20))
def test_processes_never_exceed_the_rate_of_an_address(seed: int) -> None:
    """Messages are lost, repeated and late, processes restart, and several processes may know the same domain."""
    rng = random.Random(seed)
    count = rng.choice((2, 3, 5))
    everyone = domains(rng.randrange(60, 400), seed)
    own = [rng.sample(everyone, len(everyone) // 2) for _ in range(count)]
    all_processes = [process(count) for _ in range(count)]
    known = [1] * count
    sent: list[dict[str, int]] = []
    met: set[int] = set()
    for _ in range(200):
        n = rng.randrange(count)
        known[n] = min(len(own[n]), known[n] + rng.randrange(12))
        if rng.random() < 0.02:
            all_processes[n], known[n] = process(count), 1
        met.update(*(keys[:number] for keys, number in zip(own, known, strict=True)))
        sent.append(all_processes[n].take_untold())
        all_processes[rng.randrange(count)].learn(rng.choice(sent))
        rates = [
            rate_at(each, keys[:number]) for each, keys, number in zip(all_processes, own, known, strict=True)
        ]
        assert sum(rates) <= max(2.0, 8.0 * sqrt(max(1.0, len(met) / 50))) * ESTIMATE


@pytest.mark.parametrize(("count", "processes"), [(80, 3), (80, 16), (1000, 3)])
def test_together_processes_get_the_rate_of_an_address(count: int, processes: int) -> None:
    """However many processes share an address, it gets 10 starts a second with 80 domains, and 36 with 1,000."""
    keys = domains(count)
    parts = [keys[n::processes] for n in range(processes)]
    crawl = [process(processes) for _ in parts]
    for each, part in zip(crawl, parts, strict=True):
        meet(each, part)
    told = [each.take_untold() for each in crawl]
    for each in crawl:
        for sketches in told:
            each.learn(sketches)
    total = sum(rate_at(each, part) for each, part in zip(crawl, parts, strict=True))
    assert total == pytest.approx(8.0 * sqrt(count / 50), rel=0.05)


@pytest.mark.parametrize("allowed", [0, 1, 2, 16])
@pytest.mark.parametrize("processes", [1, 2, 3, 5, 16, 40])
def test_processes_share_the_slots_of_an_address(processes: int, allowed: int) -> None:
    """All processes share the slots of an address.

    A slot is held for 0.5 s after an answer. Each process has at least one slot. If all processes together have
    more than the allowed number of slots, they hold each slot for longer.
    """
    config = PolitenessConfig(
        shared_address_domains=1, shared_address_rate=0.0, shared_address_in_flight=allowed
    )
    addresses = process(processes, config=config)
    address = meet(addresses, [1])
    slots = 0
    while (at := addresses.start_at(address)) is not None and at <= 100.0:
        addresses.acquire(address, 100.0)
        slots += 1
    for _ in range(slots):
        addresses.release(address, 101.0)
    freed = addresses.start_at(address)
    assert slots == max(1, allowed // processes) and freed is not None
    assert freed - 101.0 == pytest.approx(max(0.5, 0.5 * slots * processes / max(1, allowed)))


def test_addresses_are_told_when_they_have_an_eighth_more_domains() -> None:
    """No sketch of an address with fewer than 4 domains is sent, and none in a crawl of one process."""
    addresses, alone, keys = process(), process(1), domains(40)
    told = []
    for number, key in enumerate(keys, 1):
        meet(addresses, [key, key])
        meet(alone, [key])
        if untold := addresses.take_untold():
            told.append(number)
            assert untold == {NAME: counted_of(keys[:number]).sketch()}
        assert not alone.take_untold()
    assert told[:13] == [*range(4, 17)] and told[13:] == [18, 20, 22, 24, 27, 30, 33, 37]


def test_at_least_two_domains_are_told() -> None:
    """In a crawl of many processes, most addresses have one domain in each of them."""
    addresses, keys = process(50), domains(2)
    meet(addresses, keys[:1])
    assert not addresses.take_untold()
    meet(addresses, keys)
    assert addresses.take_untold()


def test_an_address_with_just_enough_domains_is_shared() -> None:
    addresses = process()
    address = meet(addresses, [0])
    for count in (48, 49):  # bits that no domain of this process sets
        addresses.learn({NAME: sum(1 << n for n in range(1, count + 1))})
        assert address.is_shared is (count == 49)


def test_a_quarter_of_the_addresses_is_forgotten_at_a_time() -> None:
    """Addresses in use stay. Of the others, the oldest are forgotten."""
    addresses = process(entries_max=8)
    used = meet(addresses, [1], "10.0.0.0")
    addresses.acquire(used, 1e6)
    for n in range(1, 9):
        addresses.meet(f"10.0.0.{n}", n, 1e6)
    assert [address.name for address in addresses] == [f"10.0.0.{n}" for n in (0, 3, 4, 5, 6, 7, 8)]


def test_addresses_with_waiting_hosts_or_a_gap_are_not_forgotten() -> None:
    addresses = process(processes=1, entries_max=4)
    line, gap, used, free = (addresses.meet(f"10.0.0.{n}", n, 0.0) for n in range(4))
    line.wait("h", first=False)
    addresses.acquire(gap, 9.0)
    addresses.release(gap, 10.0)
    addresses.acquire(used, 0.0)
    addresses.meet("10.0.0.4", 4, 10.0)
    assert set(addresses) > {line, gap, used} and free not in set(addresses) and len(addresses) == 4


@pytest.mark.parametrize("delay", [0.0, 1.0])
def test_requests_to_an_address_are_spaced_unless_there_is_no_delay(delay: float) -> None:
    config = PolitenessConfig(delay=delay, address_delay_share=0.5, shared_address_domains=50)
    addresses = process(1, config=config)
    address = addresses.meet(NAME, 1, 0.0)
    assert addresses.counted is (delay > 0.0) and addresses.start_at(address) == delay / 2
    addresses.acquire(address, 5.0)
    assert addresses.start_at(address) is None
    addresses.release(address, 6.0)
    assert addresses.start_at(address) == 6.0 + delay / 2


def test_after_a_restart_an_address_waits_for_its_gap() -> None:
    addresses = process(1)
    addresses.open(100.0)
    assert addresses.start_at(addresses.meet(NAME, 1, 100.0)) == 100.5


def test_a_request_goes_to_the_address_where_it_may_start_first() -> None:
    """If it may start at once, the first such address without waiting hosts is chosen."""
    addresses = process(1)
    busy, late, early, last = names = [f"10.0.0.{n}" for n in range(4)]
    addresses.acquire(addresses.meet(busy, 1, 0.0), 0.0)
    for name, ended in ((late, 20.0), (early, 10.0), (last, 10.0)):
        addresses.acquire(addresses.meet(name, 1, 0.0), 0.0)
        addresses.release(addresses.meet(name, 1, 0.0), ended)

    def chosen(now: float, *among: str) -> tuple[str, float]:
        address, instant = addresses.choose(among or names, 2, now)
        return address.name, instant

    assert chosen(0.0) == (early, 10.5), "of two equal addresses, the first"
    assert chosen(0.0, busy) == (busy, math.inf)
    assert chosen(0.0, late, busy) == (late, 20.5)
    assert chosen(10.5) == (early, 10.5)
    assert chosen(20.5) == chosen(30.0) == (late, 20.5), "all but one may start at once"
    addresses.meet(late, 1, 0.0).wait("h", first=False)
    assert chosen(30.0) == (early, 10.5), "a host waits at the other address"
    addresses.meet(early, 1, 0.0).wait("h", first=False)
    addresses.meet(last, 1, 0.0).wait("h", first=False)
    assert chosen(30.0) == (early, 10.5)
    assert addresses.meet(last, 9, 0.0).domains.number == 3, "each address has met the domain of the request"


@pytest.mark.parametrize("shared", [False, True])
def test_hosts_have_their_turns_at_an_address_one_after_the_other(shared: bool) -> None:
    """Two domains make the address a shared one, which allows 4 starts a second, and one for each free slot."""
    config = PolitenessConfig(
        delay=1.0, address_delay_share=0.5, shared_address_domains=2, shared_address_rate=4.0,
        shared_address_in_flight=4,
    )  # fmt: skip
    addresses: Addresses[str] = process(1, config=config)
    address = meet(addresses, [1, 2] if shared else [1])
    gap = 0.25 if shared else 0.5
    assert address.line == 0 and addresses.line_takes(address) == pytest.approx(gap, rel=0.001)
    for host in ("b", "c"):
        address.wait(host, first=False)
    address.wait("a", first=True)
    assert address.line == 3 and addresses.line_takes(address) == pytest.approx(4 * gap, rel=0.001)
    at = {host: addresses.turn_at(["10.9.9.9", NAME], host, 0.0) for host in "abc"}
    assert at == pytest.approx({"a": 0.5, "b": 0.5 + gap, "c": 0.5 + 2 * gap}, rel=0.001)
    assert addresses.turn_at([NAME], "c", 70.0) == pytest.approx(70.0 + 2 * gap, rel=1e-4)
    assert addresses.turn_at([NAME], "x", 7.0) == addresses.turn_at([], "a", 7.0) == 7.0
    addresses.acquire(address, 1.0)
    turn = addresses.turn_at([NAME], "a", 1.0)
    assert turn == pytest.approx(1.25 if shared else 1.0, rel=0.001), "the end of the request is unknown"


def test_slots_of_a_shared_address_are_held_after_each_request() -> None:
    """A slot is held for the gap. If answers end out of order, slots become free in the order of their releases."""
    config = PolitenessConfig(
        delay=1.0, address_delay_share=0.5, shared_address_domains=1, shared_address_rate=0.0,
        shared_address_in_flight=3,
    )  # fmt: skip
    addresses = process(1, config=config)
    address = meet(addresses, [1])
    for _ in range(3):
        assert addresses.start_at(address) in (0.5, 10.0)
        addresses.acquire(address, 10.0)
    assert addresses.start_at(address) is None
    free = []
    for ended in (11.0, 11.4, 11.2):
        addresses.release(address, ended)
        free.append(addresses.start_at(address))
    assert free == [11.5, 11.5, 11.5]
    for instant in (11.9, 11.9, None):
        addresses.acquire(address, 11.5)
        assert addresses.start_at(address) == instant
    for ended, held in ((11.5, 3), (11.9, 2), (12.2, 2)):  # those that have ended are not kept
        addresses.release(address, ended)
        assert address.held is not None and len(address.held) == held


@pytest.mark.parametrize("count", [48, 49])
def test_sketches_of_an_unused_address_are_joined(count: int) -> None:
    addresses = process()
    bits = [1 << n for n in range(10, 10 + count)]
    addresses.learn({NAME: sum(bits[:30])})
    addresses.learn({NAME: sum(bits[20:])})
    assert meet(addresses, [3]).is_shared is (count == 49)


def counted_of(keys: list[int]) -> DomainCount:
    """Return the count of an address at which a process has met these domains."""
    counted = DomainCount()
    for key in keys:
        counted.add(key, 50)
    return counted


def test_what_others_know_survives_that_an_address_is_forgotten() -> None:
    addresses = process(entries_max=8)
    addresses.learn({NAME: counted_of(domains(60)).sketch()})
    assert meet(addresses, [1]).is_shared
    for n in range(20):
        addresses.meet(f"10.0.1.{n}", n, 1e6)
    assert NAME not in {address.name for address in addresses}
    assert meet(addresses, [1]).is_shared


def test_sketches_of_unused_addresses_are_bounded() -> None:
    """The oldest is dropped first."""
    addresses = process(entries_max=3)
    sketch = counted_of(domains(60)).sketch()
    for n in range(5):
        addresses.learn({f"10.0.0.{n}": sketch})
    assert [meet(addresses, [1], f"10.0.0.{n}").is_shared for n in range(5)] == [
        False,
        False,
        True,
        True,
        True,
    ]


@pytest.mark.parametrize("elsewhere", [0, 1, 30, 400])
@pytest.mark.parametrize("count", [1, 49, 50, 80, 1000, 5000])
def test_domains_are_counted(count: int, elsewhere: int) -> None:
    """The lower bound is never too large, and the number is exact while one process knows fewer than 50 domains."""
    keys = domains(count)
    others = domains(elsewhere, 1)
    counted = counted_of(keys)
    counted.add_elsewhere(counted_of(others).sketch())
    counted.add_elsewhere(counted_of(keys[:20]).sketch() if elsewhere else 0)
    assert counted.least <= count + elsewhere
    assert elsewhere or count >= 50 or (counted.number, counted.least) == (count, count)
    assert counted.number == pytest.approx(
        count + elsewhere, rel=0.1, abs=0.0 if count + elsewhere < 50 else 3
    )
    assert not counted.add(keys[0], 50) and counted.add((1 << 62) + 1, 50) in (True, False)


def test_more_domains_than_a_sketch_can_count_are_a_finite_number() -> None:
    counted = counted_of([*range(SKETCH_BITS)])
    assert 7000 < counted.number < 8000
