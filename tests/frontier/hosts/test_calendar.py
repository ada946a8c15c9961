"""Test the back queue and the calendar, which are linked lists in columns of the host table."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from crawler.frontier.hosts.calendar import Calendar, Chain
from crawler.frontier.hosts.table import HostTable


def table(count: int) -> HostTable:
    hosts = HostTable()
    for key in range(count):
        hosts.insert(key + 1)
    return hosts


@given(st.lists(st.booleans(), max_size=60))
def test_a_chain_is_first_in_first_out(operations: list[bool]) -> None:
    chain, model, free = Chain(table(64)), [], list(range(64))
    for put in operations:
        if put and free:
            model.append(free.pop())
            chain.append(model[-1])
        elif model:
            slot = model.pop(0)
            assert chain.popleft() == slot
            free.append(slot)
        assert list(chain) == model and len(chain) == len(model)


@given(
    st.lists(st.floats(0, 300_000), min_size=1, max_size=40), st.lists(st.floats(0.01, 90_000), max_size=12)
)
def test_hosts_are_released_on_time_and_never_early(waits: list[float], steps: list[float]) -> None:
    """If `expire` is called at the times that `next_due` returns, each host is released less than 1/16 s late."""
    hosts = table(len(waits))
    calendar, now = Calendar(hosts), 1.7e9
    for slot, wait in enumerate(waits):
        hosts.ready[slot] = now + wait
        calendar.add(slot, hosts.ready[slot], now)
    out: dict[int, float] = {}
    for step in [*steps, 4e5]:
        end = now + step
        while (due := calendar.next_due()) is not None and due <= end:
            now = max(now, due)
            out.update({slot: now for slot in calendar.expire(now)})
            assert len(calendar) == len(waits) - len(out) == len(list(calendar))
        now = end
        out.update({slot: now for slot in calendar.expire(now)})
    assert sorted(out) == list(range(len(waits)))
    for slot, instant in out.items():
        assert 0.0 <= instant - hosts.ready[slot] < 1 / 16 + 1e-6


def test_few_buckets_for_many_hosts() -> None:
    hosts = table(20_000)
    calendar = Calendar(hosts)
    for slot in range(20_000):
        hosts.ready[slot] = 1e9 + slot * 4.3
        calendar.add(slot, hosts.ready[slot], 1e9)
    assert len(calendar._buckets) < 2048 + 1360


@given(st.lists(st.floats(-10, 300_000), min_size=1, max_size=40), st.integers(0, 8))
def test_adding_many_slots_equals_adding_them_one_by_one(waits: list[float], before: int) -> None:
    """`add_many` gives the same result as calling `add` for each slot, even if some slots were added before."""
    one, many = Calendar(table(len(waits))), Calendar(table(len(waits)))
    for calendar in (one, many):
        for slot, wait in enumerate(waits):
            calendar._hosts.ready[slot] = 1.7e9 + wait
    for slot in range(len(waits)):
        one.add(slot, one._hosts.ready[slot], 1.7e9)
    for slot in range(min(before, len(waits))):
        many.add(slot, many._hosts.ready[slot], 1.7e9)
    if before < len(waits):
        many.add_many(np.arange(before, len(waits)), 1.7e9)
    assert {start: list(chain) for start, chain in one._buckets.items()} == {
        start: list(chain) for start, chain in many._buckets.items()
    }
    assert sorted(one._starts) == sorted(many._starts) and len(one) == len(many)


def test_many_hosts_due_at_once_are_released_in_portions() -> None:
    """A call of `expire` examines a bounded number of slots. Afterwards, `next_due` reports that more slots are due."""
    calendar = Calendar(table(10))
    for slot in range(10):
        calendar._hosts.ready[slot] = 1e9
        calendar.add(slot, 1e9, 1e9 - 5)
    out = []
    while calendar.next_due() is not None:
        piece = list(calendar.expire(1e9, 4))
        assert len(calendar) == 10 - len(out) - len(piece)
        out += piece
    assert out == list(range(10)) and calendar._buckets == {}
