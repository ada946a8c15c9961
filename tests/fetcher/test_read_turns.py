"""Short answers are read before long ones, and neither waits for ever."""

import random

from crawler.fetcher.read_turns import FRESH, GO_ON_MAX, SHARE, ReadTurns


def test_a_short_answer_waits_for_no_long_ones() -> None:
    """Behind 500 answers of 3 ms a piece, one of two pieces is over after two turns."""
    turns: ReadTurns[str] = ReadTurns()
    for n in range(500):
        turns.rest(f"long {n}", 0.003)
    turns.read(0.003)
    for spent in (0.0, 0.001):
        turns.rest("page", spent)
        assert turns.next()[0] == "page"


def test_model() -> None:
    """Random costs: each turn keeps within its share but for one piece of each kind, nobody is lost or passed over."""
    rng = random.Random(3)
    turns: ReadTurns[int] = ReadTurns()
    fresh: list[int] = []
    old: list[int] = []
    costs = {n: rng.choice([1e-5, 1e-4, 0.003, 0.008]) for n in range(200)}
    spent = dict.fromkeys(costs, 0.0)
    left = {n: rng.randrange(1, 40) for n in costs}
    for n in costs:
        turns.rest(n, 0.0)
        fresh.append(n)
    for _ in range(100_000):
        if not len(turns):
            break
        chosen = turns.next()
        first = min(GO_ON_MAX, len(fresh))
        assert chosen == fresh[:first] + old[: len(chosen) - first]
        if old:
            assert any(n in old for n in chosen), "a long answer goes on in each turn"
        assert len(chosen) <= GO_ON_MAX + 1
        for n in chosen:
            (fresh if n in fresh else old).remove(n)
            spent[n] += costs[n]
            left[n] -= 1
            turns.read(costs[n])
            if left[n]:
                turns.rest(n, spent[n])
                (fresh if spent[n] < FRESH else old).append(n)
    assert not any(left.values()) and not len(turns)


def test_as_many_go_on_as_fit_into_a_turn() -> None:
    turns: ReadTurns[int] = ReadTurns()
    for n in range(100):
        turns.rest(n, 1.0)
    assert len(turns.next()) == GO_ON_MAX
    turns.read(SHARE / 2.5)
    assert len(turns.next()) == 2
    turns.read(10 * SHARE)
    assert len(turns.next()) == 1
