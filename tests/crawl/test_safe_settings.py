"""Test that only the listed settings may change while a crawl runs, and that changes are saved."""

from pathlib import Path

import pytest

from crawler.config import Config, convert
from crawler.crawl.directory import CrawlDirectory
from crawler.crawl.safe_settings import LEVELS, LIVE, changed, parse, record, with_live_changes
from crawler.errors import ConfigError, UsageError


def test_settings_on_the_command_line_are_parsed() -> None:
    assert parse(["politeness.delay=5", " crawl.rate = 2=3 "]) == {
        "politeness.delay": "5",
        "crawl.rate": "2=3",
    }
    with pytest.raises(UsageError, match=r"'crawl\.rate': expected section\.key=value"):
        parse(["politeness.delay=5", "crawl.rate"])
    with pytest.raises(UsageError, match=r"'=5': expected section\.key=value"):
        parse(["=5"])
    with pytest.raises(UsageError, match=r"crawl\.rate is given twice"):
        parse(["crawl.rate=1", "crawl.rate =1"])


def test_only_the_given_settings_change() -> None:
    config = convert({"crawl": {"depth": 3, "concurrency": 7}})
    made = changed(config, {"politeness.delay": "5", "log.level": "debug"})
    assert made == convert({"crawl": {"depth": 3, "concurrency": 7}, "politeness": {"delay": 5}})
    assert config.politeness.delay != 5


@pytest.mark.parametrize("key", LIVE)
def test_each_live_setting_may_change(key: str) -> None:
    section, name = key.split(".")
    made = changed(Config(), {key: "0.5" if key != "crawl.concurrency" else "5"})
    assert getattr(getattr(made, section), name) in (0.5, 5)


@pytest.mark.parametrize("level", [*LEVELS, "loud"])
def test_log_levels_are_checked(level: str) -> None:
    if level in LEVELS:
        assert changed(Config(), {"log.level": level}) == Config()
    else:
        with pytest.raises(UsageError, match=r"one of debug, info, warning, error"):
            changed(Config(), {"log.level": level})


def test_other_settings_and_invalid_values_are_rejected() -> None:
    with pytest.raises(UsageError, match=r"crawl\.depth: cannot change .* politeness\.delay, .*log\.level"):
        changed(Config(), {"crawl.depth": "3"})
    with pytest.raises(ConfigError, match="politeness.delay"):
        changed(Config(), {"politeness.delay": "soon"})


def test_changed_settings_are_saved_for_the_next_run(tmp_path: Path) -> None:
    crawl = CrawlDirectory(tmp_path)
    crawl.create()
    crawl.settings.save(convert({"crawl": {"depth": 3}}))
    record(crawl, {"politeness.delay": "5"})
    kept = convert(crawl.settings.load())
    assert (kept.crawl.depth, kept.politeness.delay) == (3, 5)


def test_a_restarted_process_applies_only_live_settings_that_changed_during_the_run() -> None:
    """If a setting was given for this run only, its saved value is different.

    The restarted process keeps the value of the run.
    """
    before = {"politeness": {"delay": 1.0, "backoff_first": 60.0}, "crawl": {"rate": 0.0}}
    saved = {**before, "politeness": {"delay": 5.0, "backoff_first": 60.0}, "refresh": "no section"}
    saved["crawl"] = {"depth": 9, "rate": 0.0}
    run = convert({"crawl": {"depth": 3, "rate": 2}, "politeness": {"backoff_first": 5}})
    made = with_live_changes(run, before, saved)
    assert (made.politeness.delay, made.crawl.depth, made.crawl.rate) == (5.0, 3, 2)
    assert made.politeness.backoff_first == 5
