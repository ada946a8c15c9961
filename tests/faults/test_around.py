"""Run the scenarios of `around.py` at a small size. `scripts/bench/crash.py` runs them at full size."""

from pathlib import Path

import pytest

from tests.faults.around import PLANTED, SCENARIOS, Setting

QUICK = ("backup put back", "repair killed", "segments cut", "resharded")


@pytest.mark.parametrize("name", QUICK)
def test_no_scenario_loses_a_page(tmp_path: Path, name: str) -> None:
    verdict = SCENARIOS[name](tmp_path, Setting(pages=120))
    assert verdict.flawless, verdict


@pytest.mark.parametrize("name", QUICK)
def test_each_planted_bug_is_found(tmp_path: Path, name: str) -> None:
    try:
        flawless = SCENARIOS[name](tmp_path, Setting(pages=120, bug=PLANTED[name])).flawless
    except AssertionError:
        flawless = False
    assert not flawless
