"""Lead an operator through a crawl at random. `scripts/bench/walks.py` makes more and longer walks."""

from pathlib import Path

from tests.faults.walk import walk


def test_no_promise_is_broken_by_a_walk_of_commands_kills_and_restarts(tmp_path: Path) -> None:
    made = walk(tmp_path, seed=7, steps=10, processes=3)
    assert not made.problems, (made.problems, made.story)
