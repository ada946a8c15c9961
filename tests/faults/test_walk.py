"""Lead an operator through a crawl at random. `scripts/bench/walks.py` makes more and longer walks."""

from pathlib import Path

import pytest

from tests.faults.walk import walk
from tests.faults.walk_hazards import make


def test_no_promise_is_broken_by_a_walk_of_commands_kills_and_restarts(tmp_path: Path) -> None:
    made = walk(tmp_path, seed=7, steps=10, processes=3)
    assert not made.problems, (made.problems, made.story)


def test_no_promise_is_broken_by_a_walk_of_damage_backups_and_wrong_clocks(tmp_path: Path) -> None:
    made = make(tmp_path, seed=9, steps=8)
    assert not made.problems, (made.problems, made.story)


@pytest.mark.parametrize("bug", ["overrides-ignored", "reshard-forgets"])
def test_a_walk_finds_a_planted_bug(tmp_path: Path, bug: str) -> None:
    """Not every walk shows the bug. `walks.py --planted` plants a bug for each new kind of step."""
    assert any(make(tmp_path / str(seed), seed, 8, bug).problems for seed in range(1, 5))
