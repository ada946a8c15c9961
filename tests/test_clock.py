"""Test that the process clock shows the time that has passed, whatever happens to the wall clock or the machine."""

import time
from types import SimpleNamespace

import pytest

from crawler import clock as clocks
from crawler.clock import SystemClock

WALL, BOOT = 1_000_000.0, 500.0


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A machine with a wall clock, and a clock that also runs while the machine is suspended."""
    clock = SimpleNamespace(wall=WALL, boot=BOOT)
    read = {clocks._ELAPSED: lambda: clock.boot}
    fake = SimpleNamespace(time=lambda: clock.wall, clock_gettime=lambda number: read[number]())
    monkeypatch.setattr(clocks, "time", fake)
    return clock


def test_a_suspension_of_the_machine_counts(machine: SimpleNamespace) -> None:
    clock = SystemClock()
    machine.wall, machine.boot = WALL + 28_800, BOOT + 28_800
    assert clock.now() == WALL + 28_800


@pytest.mark.parametrize("jump", [3600.0, -3600.0, 365 * 86_400.0, -365 * 86_400.0])
def test_a_wall_clock_that_jumps_during_a_run_changes_nothing(machine: SimpleNamespace, jump: float) -> None:
    clock = SystemClock()
    machine.wall, machine.boot = WALL + jump, BOOT + 1.0
    assert clock.now() == WALL + 1.0


@pytest.mark.skipif(not hasattr(time, "CLOCK_BOOTTIME"), reason="only Linux has this clock")
def test_linux_counts_suspensions() -> None:
    """CLOCK_MONOTONIC stops while Linux is suspended."""
    assert clocks._ELAPSED == time.CLOCK_BOOTTIME
