"""Test that before each unit cost is measured, the stages are in the state that the measurement assumes."""

from pathlib import Path

import pytest

from crawler.bench import parts
from crawler.bench.loading import Loader, numbers, url
from crawler.errors import CrawlerError


def test_a_key_in_a_run_takes_about_two_bits_more_than_its_gap(tmp_path: Path) -> None:
    assert 2.0 < parts.run_bits(tmp_path)["bits"] < 2.5


def test_the_loaded_queues_hold_exactly_the_loaded_urls(tmp_path: Path) -> None:
    parts.fill_queues(tmp_path, 3000, 300)
    found = parts.queues(tmp_path)
    assert 20.0 < found["queue"] / 3000 < 110.0
    with parts.closing(parts._opened(tmp_path)) as stages:
        assert stages.due.new == 3000
        loader = Loader(stages)
        for group in numbers(0, 3000):
            loader.take_in([url(number, 300) for number in group])
        loader.flush(dry=True)
        assert stages.due.new == 3000, "a second stream repeats the URLs of the first"


def test_a_schedule_is_measured_per_page_and_per_pick() -> None:
    """The process is new: in the process of the tests, the schedule would reuse memory that other tests freed."""
    found = parts._of(parts.schedule, numbers=(20_000, 200))
    assert 0.0 < found["pick_cpu"] < 0.1 and 20.0 < found["refreshed_memory"] < 2000.0


def test_each_state_is_built_in_its_own_process() -> None:
    assert set(parts._of(parts.run_bits)) == {"bits"}
    assert parts._of(parts.fill_queues, parts.queues, numbers=(3000, 300))["memory"] > 0.0
    with pytest.raises(CrawlerError, match="measuring schedule failed"):
        parts._of(parts.schedule)
