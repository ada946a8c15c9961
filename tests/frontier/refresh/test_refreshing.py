"""Test how the parts of the refresh side are made from a configuration, and how they are rebuilt from a store."""

import math
import re
from functools import partial
from typing import Any

import numpy as np
import pytest

from crawler.config import convert
from crawler.errors import DamageError
from crawler.freshness.recalibration import Recalibration
from crawler.frontier.refresh import RefreshOutcome, state
from crawler.frontier.refresh.arms import Arms
from crawler.frontier.refresh.refreshing import settings_of
from crawler.frontier.refresh.stored_view import unopened
from crawler.records import LinkFlag, Outcome, PageRecord, PageState
from crawler.storage import keys
from crawler.storage.kv import MemoryStore
from crawler.urls.fingerprint import Fingerprinter

NAMES = Fingerprinter(bytes(16))
HOUR, START = 3600.0, 1e9


def page(name: str, age: float = 0.0, **values: Any) -> PageRecord:
    values = {"fetched_at": START - age} | values
    return PageRecord(f"http://{name}", PageState.STORED, Outcome.FETCHED, **values)


class Side:
    """A refresh side on a store in memory, with the records of its pages."""

    def __init__(self, *pages: PageRecord, store: MemoryStore | None = None, **refresh: Any) -> None:
        self.pages = {NAMES.fingerprint(each.url): each for each in pages}
        self.store = store or MemoryStore()
        override = [{"match": "own.org", "min_age": 9 * HOUR}]
        config = convert(
            {"crawl": {"rate": 6.0}, "refresh": {"endless": True} | refresh, "override": override}
        )
        values = {NAMES.fingerprint("http://a.org/dear"): 50.0}
        self.refresh = unopened(config, NAMES, self.pages.get, values, processes=3, name="p1")
        assert len(self.refresh) == self.refresh.lead == 0
        self.refresh.open(self.store, self._stored, START)
        self.refresh._check()

    def _stored(self) -> Any:
        return ((number, partial(self.pages.__getitem__, number)) for number in self.pages)

    def view(self, name: str, now: float = START) -> Any:
        return self.refresh.schedule.overview.page(
            self.refresh.schedule.find(NAMES.fingerprint(f"http://{name}")), now
        )


def test_the_configuration_reaches_the_schedule() -> None:
    config = convert({"refresh": {"max_age": 0, "min_age": 7, "policy": "uniform", "explore": 0.25}}).refresh
    made = settings_of(config)
    assert (made.max_age, made.min_age, made.policy, made.explore) == (math.inf, 7.0, "uniform", 0.25)
    assert settings_of(convert({"refresh": {"max_age": 9e9}}).refresh, "ncis").max_age == 9e9
    assert settings_of(config, "ncis").policy == "ncis"


def test_until_the_rate_is_divided_each_process_has_an_equal_part() -> None:
    """This is also what `status` shows of a crawl that does not run."""
    said = Side(page("a.org/")).refresh.views.summary(START)
    assert (said["share"], said["rate"]) == (pytest.approx(1 / 3, abs=1e-4), pytest.approx(2.0))


def test_arms_have_a_schedule_each() -> None:
    side = Side(*(page(f"a.org/{n}") for n in range(40)), arms=["ncis", "uniform"])
    arms = side.refresh.schedule
    assert isinstance(arms, Arms) and len(arms) == 40 == len(side.refresh)
    assert [len(each) > 5 for each in arms.schedules] == [True, True]
    assert [each.settings.policy for each in arms.schedules] == ["ncis", "uniform"]


def test_pages_that_were_fetched_before_there_was_a_schedule_are_adopted() -> None:
    """The chunks in which pages are adopted lose none of them. Pages without a copy to renew are left out."""
    unfit = page("a.org/gone", flags=LinkFlag.OWN_REQUEST), page("a.org/hidden", noarchive=True)
    many = [page(f"h{n}.org/d/{n}", age=n) for n in range(1030)]
    side = Side(page("a.org/old", 5 * HOUR), page("a.org/dear", -HOUR), *unfit, *many, speed=2)
    refresh = side.refresh
    assert len(refresh) == 1032 and NAMES.fingerprint("http://a.org/old") in refresh
    assert NAMES.fingerprint(unfit[0].url) not in refresh
    assert side.view("a.org/old").crawled_at == 2 * (START - 5 * HOUR)
    assert side.view("a.org/dear").crawled_at == 2 * START, "no page was fetched in the future"
    assert [side.view(f"a.org/{name}").importance for name in ("old", "dear")] == pytest.approx(
        [1.0, 50.0], rel=0.01
    )
    assert side.view("a.org/old").host == side.view("a.org/dear").host != side.view("h1.org/d/1").host
    assert refresh.portion.balance.name == "p1" and refresh.schedule.pace.rate == pytest.approx(2.0 / 2.0)
    assert refresh.news.counts.since == START and "1032 pages, 0 in flight" in repr(refresh)


def test_what_was_learned_is_rebuilt_from_the_store() -> None:
    side = Side(page("a.org/x", 30 * HOUR), min_age=0.0)
    schedule, batch = side.refresh.schedule, side.store.batch()
    row = schedule.find(NAMES.fingerprint("http://a.org/x"))
    schedule.acquire(row, START)
    schedule.record_outcome(row, START + 2 * HOUR, RefreshOutcome.CHANGED)
    state.stage(schedule, row, batch)
    state.stage_tilt(3.0, batch)
    numbers = np.arange(1.0, 1.0 + len(Recalibration().numbers)).tolist()
    state.stage_recalibration(Recalibration(numbers), batch)
    side.refresh.births.tell(7, START - HOUR, batch)
    side.store.write(batch)
    again = Side(page("a.org/x", 30 * HOUR), page("a.org/new", HOUR), store=side.store, min_age=0.0)
    assert (again.view("a.org/x").crawled_at, again.view("a.org/new").crawled_at) == (START, START - HOUR)
    assert (
        again.view("a.org/x").changes == side.view("a.org/x").changes > again.view("a.org/new").changes == 0.0
    )
    assert again.refresh.portion.balance.tilt == 3.0
    assert (
        again.refresh.expectation.recalibration.numbers
        == Recalibration(numbers).numbers
        != Recalibration().numbers
    )
    assert 7 in again.refresh.births
    assert again.refresh.lead == 2 * HOUR, "the store is ahead of the clock"


def test_pages_have_the_age_bounds_of_their_override() -> None:
    side = Side(page("own.org/", 30 * HOUR), page("a.org/", 30 * HOUR), min_age=HOUR)
    for name, min_age in (("own.org/", 9 * HOUR), ("a.org/", HOUR)):
        row = side.refresh.schedule.find(NAMES.fingerprint(f"http://{name}"))
        side.refresh.schedule.acquire(row, START)
        side.refresh.schedule.record_outcome(row, START, RefreshOutcome.UNCHANGED)
        assert side.view(name).deadline == START + min_age


@pytest.mark.parametrize("arms", [[], ["ncis", "ncis"]])
def test_pages_that_a_signal_touches_are_known_until_they_are_stored(arms: list[str]) -> None:
    schedule = Side(page("a.org/x"), arms=arms).refresh.schedule
    row = schedule.find(NAMES.fingerprint("http://a.org/x"))
    schedule.signals.note_change(row, START, 0)
    assert schedule.signals.pop_touched() == [row]


def test_requests_raise_the_importance_that_the_parts_share() -> None:
    side, number = Side(page("a.org/x")), NAMES.fingerprint("http://a.org/x")
    side.refresh.importance.asked = lambda fingerprint, now: 24.0 / (24 * HOUR)
    side.refresh.outcomes.renew_importance([number], START, side.store.batch())
    assert side.view("a.org/x").importance == pytest.approx(25.0, rel=0.01)


@pytest.mark.parametrize("prefix", [keys.REFRESH_SITE, keys.VALIDATORS, keys.BIRTHS])
def test_a_damaged_record_is_named(prefix: bytes) -> None:
    store = MemoryStore()
    batch = store.batch()
    batch.put(prefix + bytes(8), b"\x00damaged")
    store.write(batch)
    with pytest.raises(DamageError, match=re.escape(repr(prefix + bytes(8)))):
        Side(store=store)
