"""Test that each peer is told the domains at each address, however connections end, within the bounds of a message."""

import random

import pytest

from crawler.splitter.coordination import Coordination, Progress
from crawler.splitter.shared_addresses import SharedAddresses
from crawler.splitter.wire import ADDRESSES_PER_MESSAGE_MAX, SKETCH_BYTES_MAX, Counters
from tests.splitter.ends import exchange, pair, streaming

SKETCH = (1 << 8 * SKETCH_BYTES_MAX) - 1


@pytest.mark.parametrize("seed", range(10))
def test_peers_learn_everything_that_is_told(seed: int) -> None:
    """Messages are lost when a connection ends. The next connection tells everything again."""
    rng = random.Random(seed)
    sender, receiver = SharedAddresses(["b", "c"], 1000), SharedAddresses(["a"], 1000)
    told: dict[str, int] = {}
    heard: dict[str, int] = {}
    for _ in range(300):
        name = f"10.0.0.{rng.randrange(60)}"
        told[name] = told.get(name, 0) | 1 << rng.randrange(1024)
        sender.tell({name: told[name]})
        message = sender.take("b")
        assert len(message) <= ADDRESSES_PER_MESSAGE_MAX
        if rng.random() < 0.1:
            sender.connected("b")
            continue
        receiver.hear(message)
        if rng.random() < 0.3:
            heard |= receiver.take_heard()
    while message := sender.take("b"):
        receiver.hear(message)
        heard |= receiver.take_heard()
    assert heard | receiver.take_heard() == told
    assert sender.take("c"), "each peer is told by itself"


def test_both_sides_are_bounded() -> None:
    sender, receiver = SharedAddresses(["b"], 20), SharedAddresses(["a"], 5)
    sender.tell({f"10.0.0.{n}": SKETCH for n in range(30)})
    sender.tell({"10.0.0.0": SKETCH, "10.0.0.29": SKETCH})
    first, second = sender.take("b"), sender.take("b")
    assert len(first | second) == 20 and not sender.take("b")
    receiver.hear(first)
    assert receiver.take_heard() == {f"10.0.0.{n}": SKETCH for n in range(5)}
    assert not receiver.take_heard()


def test_counters_carry_sketches_both_ways() -> None:
    """The sketches in a message that is older than the last one still count."""
    here = Coordination("a", ["a", "b"], b"1", Progress)
    here.addresses.tell({"10.0.0.1": 5})
    assert here.counters_for("b").addresses == {"10.0.0.1": b"\5"}
    assert not here.counters_for("b").addresses
    here.record_counters("b", Counters(b"2", 9, addresses={"10.0.0.1": b"\2"}), 0.0)
    here.record_counters("b", Counters(b"2", 8, addresses={"10.0.0.1": b"\1", "::1": b"\0\1"}), 0.0)
    assert here.addresses.take_heard() == {"10.0.0.1": 3, "::1": 256}


def test_a_new_connection_tells_everything_again() -> None:
    """Once for each connection, each end tells the other all that it knows, in heartbeats and acks."""
    one, other, ends = streaming()
    for common in (one, other):
        common.coordination.addresses.tell({"10.0.0.1": 5})
    for now, told in ((10.0, {"10.0.0.1": 5}), (20.0, {})):
        ends.dialler.tick(now)
        ends.listener.tick(now)
        exchange(ends, now)
        assert [each.coordination.addresses.take_heard() for each in (one, other)] == [told, told]
    ends.dialler.connection_lost("")
    ends.listener.connection_lost("")
    again = pair(one, other, now=30.0)
    exchange(again, 30.0)
    again.listener.tick(40.0)
    exchange(again, 40.0)
    for common in (one, other):
        assert common.coordination.addresses.take_heard() == {"10.0.0.1": 5}
