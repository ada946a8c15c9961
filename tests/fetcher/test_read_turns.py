"""Test that short answers are read before long ones, and that no answer waits forever."""

import random

from crawler.fetcher.read_turns import FRESH, RESUMED_MAX, SHARE, ReadTurns


def test_a_short_answer_does_not_wait_for_long_ones() -> None:
    """An answer of two pieces is complete after two turns, although 500 answers of 3 ms per piece are queued."""
    turns: ReadTurns[str] = ReadTurns()
    for n in range(500):
        turns.rest(f"long {n}", 0.003)
    turns.read(0.003)
    for spent in (0.0, 0.001):
        turns.rest("page", spent)
        assert turns.next(0.0)[0] == "page"


def test_turns_keep_within_their_share() -> None:
    """A turn exceeds its share by at most one piece of each kind. All answers take their turns, in order."""
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
    cpu = 0.0
    for _ in range(100_000):
        if not len(turns):
            break
        chosen = turns.next(cpu)
        first = min(RESUMED_MAX, len(fresh))
        assert chosen == fresh[:first] + old[: len(chosen) - first]
        if old:
            assert any(n in old for n in chosen), "each turn resumes a long answer"
        assert len(chosen) <= RESUMED_MAX + 1
        for n in chosen:
            (fresh if n in fresh else old).remove(n)
            spent[n] += costs[n]
            left[n] -= 1
            turns.read(costs[n])
            cpu += costs[n]
            if left[n]:
                turns.rest(n, spent[n])
                (fresh if spent[n] < FRESH else old).append(n)
    assert not any(left.values()) and not len(turns)


def test_a_turn_resumes_as_many_connections_as_fit() -> None:
    turns: ReadTurns[int] = ReadTurns()
    for n in range(100):
        turns.rest(n, 1.0)
    assert len(turns.next(0.0)) == RESUMED_MAX
    turns.read(SHARE / 2.5)
    assert len(turns.next(0.0)) == 2
    turns.read(10 * SHARE)
    assert len(turns.next(0.0)) == 1


def test_long_answers_get_a_quarter_of_a_busy_loop_and_all_of_an_idle_one() -> None:
    """Beside 2 ms of other work per turn, a piece of 3 ms is read in each fifth or sixth turn; alone, in each."""
    for others, least, most in ((0.002, 0.15, 0.25), (0.0, 0.99, 1.0)):
        turns: ReadTurns[str] = ReadTurns()
        turns.rest("long", 1.0)
        cpu = went = 0.0
        for _ in range(1000):
            chosen = turns.next(cpu)
            went += len(chosen)
            for each in chosen:
                turns.read(0.003)
                cpu += 0.003
                turns.rest(each, 1.0)
            cpu += others
        assert least <= went / 1000 <= most
