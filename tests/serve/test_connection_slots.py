"""Test that a listener's connection slots are bounded, and fair to clients that do not keep the server waiting."""

import random

from crawler.serve.connection_slots import ConnectionSlots


def test_a_slow_client_loses_its_slot_to_a_new_one() -> None:
    places: ConnectionSlots[str] = ConnectionSlots(2, 10.0)
    assert places.enter("a", 0.0) == (True, None)
    assert places.enter("b", 0.5) == (True, None)
    # at the time 0.9, no client has kept the server waiting for a whole second
    assert places.enter("c", 0.9) == (False, None)
    assert places.enter("c", 1.0) == (True, "a")
    assert places.overdue(10.4) == []
    assert places.overdue(10.5) == ["b"]


def test_a_client_that_is_being_served_keeps_its_slot() -> None:
    places: ConnectionSlots[str] = ConnectionSlots(1, 10.0)
    places.enter("a", 0.0)
    places.serve("a")
    assert places.enter("b", 100.0) == (False, None)
    assert places.overdue(100.0) == []
    places.wait("a", 100.0)
    assert places.enter("b", 101.0) == (True, "a")


def test_invariants_hold_for_random_clients() -> None:
    rng = random.Random(3)
    places: ConnectionSlots[int] = ConnectionSlots(8, 5.0)
    here: set[int] = set()
    now = 0.0
    for number in range(5000):
        now += rng.random()
        action = rng.randrange(5)
        if action == 0:
            stays, victim = places.enter(number, now)
            here -= {victim}
            here |= {number} if stays else set()
        elif action == 4:
            for late in places.overdue(now):
                places.leave(late)
                here.remove(late)
        elif here:
            one = rng.choice(sorted(here))
            if action == 1:
                places.serve(one)
            elif action == 2:
                places.wait(one, now)
            else:
                places.leave(one)
                here.remove(one)
        places._check()
        assert len(places) == len(here)
