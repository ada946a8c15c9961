"""Test the refresh schedule by random operations, each followed by `_check`, and in special cases."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.errors import UsageError
from crawler.freshness.params import PageParameters
from crawler.frontier.refresh import RefreshOutcome, Schedule, Settings
from tests.freshness.page_values import threshold

KINDS = [
    PageParameters(1.0, 0.3),
    PageParameters(2.0, 0.5, 0.5, 0.3),
    PageParameters(1.0, 0.5, 0.5, 0.0),  # a signal is always true
    PageParameters(1.0, 0.5, 1.0, 0.4),  # every change is signalled
    PageParameters(1.0, 0.5, 1.0, 0.0),  # perfect signals
    PageParameters(1.0, 0.5, 0.0, 0.4),  # worthless signals
    PageParameters(1.0, 0.0, 0.5, 0.1),  # never changes
    PageParameters(0.01, 9.0, 0.2, 0.1),  # a page that is rarely worth a fetch
    None,  # the parameters are learned
]
PLAIN = Settings(neighbourhood=False, pooling=False, explore=0.0)
HOSTS, DIRECTORIES = 3, 6

EVENTS = ["add", "add", "bulk", "remove", "own", "weigh", "ages", "block"]
EVENTS += ["signal", "signal", "signals", "take", "take", "settle", "settle", "settle", "give_back"]

steps = st.lists(
    st.tuples(st.sampled_from(EVENTS), st.integers(0, 9), st.integers(0, 8), st.floats(0.0, 2.0)), max_size=70
)


def keys_of(fingerprint: int) -> tuple[int, int]:
    """Return the keys of a page's host and directory."""
    directory = fingerprint % DIRECTORIES
    return directory % HOSTS + 100, directory + 1000


@given(
    steps,
    st.sampled_from([0.0, 0.3, 5.0]),
    st.sampled_from(
        [
            PLAIN,
            Settings(clock_min=1.0, clock_max=5.0, explore=0.3, retry_age=1.0, gone_age=2.0),
            Settings(clock_min=1.0, clock_max=5.0, min_age=0.5, max_age=4.0, discard_window=0.1),
            Settings(policy="uniform", explore=0.2),
            Settings(policy="azar-lds"),
            Settings(policy="interval", first_interval=2.0),
        ]
    ),
)
@settings(max_examples=150, deadline=None)
def test_any_sequence_of_events_keeps_the_invariants(
    events: list[tuple[str, int, int, float]], level: float, setting: Settings
) -> None:
    schedule = Schedule(setting, level=level)
    present: dict[int, int] = {}
    flying: list[int] = []
    now = 0.0
    for event, which, kind, wait in events:
        now += wait
        fingerprint = which + 1
        page = present.get(fingerprint, -1)
        assert schedule.find(fingerprint) == page
        if event == "add" and page < 0:
            present[fingerprint] = schedule.add(fingerprint, *keys_of(fingerprint), now - wait, now, wait)
        elif event == "bulk":
            fresh = [f for f in (fingerprint, fingerprint + 10) if f not in present]
            if fresh:
                hosts, directories = zip(*map(keys_of, fresh), strict=True)
                columns = [np.array(column, np.uint64) for column in (fresh, hosts, directories)]
                numbers = schedule.add_many(*columns, np.full(len(fresh), now - wait), 1.0, now, changes=wait)
                present.update(zip(fresh, numbers.tolist(), strict=True))
        elif event == "remove" and page >= 0:
            schedule.remove(page)
            del present[fingerprint]
        elif event == "own" and page >= 0 and KINDS[kind] is not None:
            schedule.facts.set_page(page, KINDS[kind], now)
        elif event == "weigh" and page >= 0:
            schedule.facts.set_importance(page, wait, now)
        elif event == "ages" and page >= 0:
            schedule.facts.bound_ages(page, wait, wait + kind + 0.1)
        elif event == "signal" and page >= 0:
            schedule.signals.note_change(page, now, kind % 8)
        elif event == "signals":
            schedule.signals.enqueue_changes(np.arange(kind, kind + 5, dtype=np.uint64), now, kind % 8)
        elif event == "block":
            schedule.block(schedule.host(100 + kind % HOSTS), now + wait)
        elif event == "take":
            page = schedule.peek(now)
            if page >= 0:
                assert page in present.values() and page not in flying
                assert schedule.overview.sweeping or schedule.peek(now) == page  # `peek` changes nothing
                if not schedule.overview.host(schedule.host_of(page)).busy:
                    schedule.acquire(page, now)
                    flying.append(page)
        elif flying and event == "settle":
            schedule.record_outcome(flying.pop(0), now, kind % 6, now + wait * (kind & 1))
        elif flying and event == "give_back":
            schedule.give_back(flying.pop(0), now)
        schedule._check()
        assert len(schedule) == len(present)


def plain(*pages: PageParameters, level: float, **changed: Any) -> Schedule:
    """Return a schedule with pages 0, 1, ... of one host, all of which were crawled at time 0."""
    schedule = Schedule(Settings(neighbourhood=False, pooling=False, explore=0.0, **changed), level=level)
    for number, page in enumerate(pages):
        assert schedule.add(number + 1, 1, 1, 0.0, 0.0, page.importance) == number
        schedule.facts.set_page(number, page, 0.0)
    return schedule


def test_pages_are_taken_in_the_order_of_their_deadlines() -> None:
    pages = [PageParameters(1.0, 0.2), PageParameters(1.0, 0.4), PageParameters(1.5, 0.3)]
    schedule = plain(*pages, level=0.5)
    assert schedule.next_wakeup(0.0) == pytest.approx(min(threshold(page, 0.5) for page in pages), rel=1e-3)
    order = sorted(range(3), key=lambda number: threshold(pages[number], 0.5))
    for number in order:
        assert schedule.claim_next(0.01) == number
        schedule.remove(number)
        schedule.record_outcome(number, 0.01, RefreshOutcome.CHANGED)


def test_a_page_in_flight_keeps_its_host_busy() -> None:
    schedule = plain(PageParameters(1.0, 0.2), PageParameters(1.0, 0.4), level=0.5)
    other = schedule.add(9, 2, 2, 0.0, 0.0)
    first = schedule.claim_next(10.0)
    second = schedule.claim_next(10.0)
    assert {first < 2, second < 2} == {True, False} and other in (first, second)
    assert schedule.claim_next(10.0) == -1 and schedule.peek(10.0) == -1
    schedule.record_outcome(first, 10.5, RefreshOutcome.UNCHANGED, 12.0)
    assert schedule.claim_next(11.0) == -1
    assert schedule.claim_next(12.0) >= 0


def test_a_signal_moves_the_deadline_by_its_time_equivalent() -> None:
    page = PageParameters(1.0, 0.4, 0.5, 0.5)
    schedule = plain(page, level=1.0)
    before = schedule.next_wakeup(0.0)
    schedule.signals.note_change(0, 0.1)
    assert schedule.next_wakeup(0.1) == pytest.approx(before - page.signal_time, rel=1e-9)
    assert schedule.overview.due_at(0, 0.1) == pytest.approx(before - page.signal_time, rel=1e-3)


def test_a_certain_signal_makes_a_page_due_before_those_worth_less() -> None:
    schedule = plain(PageParameters(1.0, 0.4, 0.5, 0.0), PageParameters(1.0, 0.4), level=1.0)
    schedule.signals.note_change(0, 0.5)
    assert schedule.next_wakeup(0.5) <= 0.5
    assert schedule.claim_next(0.6) == 0


def test_signals_of_a_trusted_source_change_rates_before_any_crawl() -> None:
    """If one of two pages of a site got three signals since its last crawl, this page has the higher change rate."""
    schedule = Schedule(Settings(explore=0.0), level=1e-3)
    pages = [schedule.add(1 + n, 1, 1, 0.0, 0.0) for n in range(3)]
    now, rates = 0.0, []
    # the first page is crawled after each of its signals, and all of its signals are true
    for _ in range(40):
        now += 10 * 86_400.0
        schedule.signals.note_change(pages[0], now)
        schedule.acquire(pages[0], now)
        schedule.record_outcome(pages[0], now, RefreshOutcome.CHANGED)
        rates.append(schedule.overview.page(pages[2], now).rate)
    for _ in range(3):
        schedule.signals.note_change(pages[1], now)
    assert schedule.overview.page(pages[1], now).rate > 1.4 * schedule.overview.page(pages[2], now).rate
    assert rates[-1] < 0.8 * rates[0]
    schedule._check()


WORKING = [0.05] * 9 + [2.9] * 8 + [0.05] * 7
WEEK_RHYTHM = [*WORKING, *[1.4] * 5, *[0.01] * 2]


def test_a_page_of_a_site_with_a_rhythm_is_due_when_its_value_reaches_the_level() -> None:
    """Its value grows faster in the working hours of the site, so a page is due sooner in the morning than at night."""
    day, waits, level = 86_400.0, [], 100.0
    plainly = Schedule(Settings())
    plainly.add(1, 1, 1, 0.0, 0.0)
    numbers = plainly.records.site_state(0)[1]
    for crawled in (0.4 * day, 0.8 * day, 4.8 * day):  # Monday at 9:36 and 19:12, Friday at 19:12
        schedule = Schedule(Settings(explore=0.0, gain=1e-12), level=level)
        rhythm = [*WEEK_RHYTHM, 20.0, *[100.0] * 31, 0.0, 0.0, crawled]
        schedule.records.restore_site(1, np.array([*numbers, *rhythm]))
        page = schedule.add(1, 1, 1, crawled, crawled)
        due = schedule.overview.due_at(page, crawled)
        assert schedule.overview.page(page, due).rhythm
        assert schedule.next_wakeup(crawled) == pytest.approx(due, abs=60.0)
        assert schedule.overview.page(page, due).value == pytest.approx(level, rel=0.01)
        assert schedule.overview.page(page, crawled + 0.9 * (due - crawled)).value < 0.99 * level
        waits.append(due - crawled)
        schedule._check()
    assert waits[0] < 0.75 * waits[1] and waits[1] < waits[2]


@pytest.mark.parametrize("rests", [False, True])
def test_the_values_of_a_host_that_is_rarely_idle_do_not_follow_its_rhythm(rests: bool) -> None:
    schedule, now, day = Schedule(Settings(explore=0.0)), 0.0, 86_400.0
    page = schedule.add(1, 1, 1, now, now)
    for _ in range(400):  # the page is fetched as soon as its host may be requested, or much later
        now += 600.0
        schedule.acquire(page, now)
        schedule.record_outcome(page, now, RefreshOutcome.UNCHANGED, now + (1.0 if rests else 600.0))
    key, numbers = schedule.records.site_state(0)
    rhythm = [*WEEK_RHYTHM, 20.0, *[100.0] * 31, 0.0, 0.0, now]
    schedule.records.restore_site(key, np.array([*numbers[:41], *rhythm]))
    values = []
    for hour in (10.0, 20.0):
        schedule.acquire(page, now := 7.0 * day + hour * 3600.0)
        schedule.record_outcome(page, now, RefreshOutcome.UNCHANGED, now)
        values.append(schedule.overview.page(page, now + 3600.0).value)
    assert schedule.overview.page(page, now).rhythm and (values[0] > 4.0 * values[1]) == rests


def test_signals_during_a_flight_count_afterwards() -> None:
    schedule = plain(PageParameters(1.0, 0.4, 0.5, 0.0), level=1.0)
    assert schedule.claim_next(5.0) == 0
    schedule.signals.note_change(0, 5.1)
    schedule.record_outcome(0, 5.2, RefreshOutcome.CHANGED)
    assert schedule.overview.page(0, 5.2).signals == (1,)
    assert schedule.next_wakeup(5.2) <= 5.2


def test_signals_shortly_after_a_crawl_can_be_discarded() -> None:
    schedule = plain(PageParameters(1.0, 0.4, 0.5, 0.0), level=1.0, discard_window=0.5)
    schedule.signals.note_change(0, 0.4)
    assert schedule.overview.page(0, 0.4).signals == (0,)
    schedule.signals.note_change(0, 0.6)
    assert schedule.overview.page(0, 0.6).signals == (1,)


def test_a_page_given_back_is_due_as_before() -> None:
    schedule = plain(PageParameters(1.0, 0.4, 0.5, 0.5), level=1.0)
    schedule.signals.note_change(0, 0.5)
    due = schedule.overview.due_at(0, 1.0)
    assert schedule.claim_next(1.0) == 0
    schedule.signals.note_change(0, 1.2)
    schedule.give_back(0, 1.5)
    assert schedule.overview.page(0, 1.5).signals == (2,) and schedule.overview.due_at(0, 1.5) < due


def test_a_page_that_failed_waits_longer_each_time() -> None:
    schedule = plain(PageParameters(1.0, 0.4), level=0.1, retry_age=10.0, gone_age=100.0)
    waits, now = [], 50.0
    for result in [RefreshOutcome.FAILED] * 3 + [RefreshOutcome.UNCHANGED]:
        assert schedule.claim_next(now) == 0
        schedule.record_outcome(0, now, result)
        began, now = now, schedule.overview.due_at(0, now)
        waits.append(now - began)
        assert result == RefreshOutcome.UNCHANGED or schedule.claim_next((began + now) / 2) == -1
    assert waits[:3] == [10.0, 20.0, 40.0]
    assert waits[3] < 10.0
    assert schedule.overview.page(0, now).state == "waits"


def test_an_answer_of_another_form_renews_a_page_and_teaches_nothing() -> None:
    rates, crawled = {}, {}
    for result in (RefreshOutcome.UNCHANGED, RefreshOutcome.CHANGED, RefreshOutcome.SILENT):
        schedule = Schedule(Settings(), level=0.1)
        page = schedule.add(1, 100, 1000, 0.0, 0.0, 1.0)
        before = schedule.overview.page(page, 10.0)
        schedule.acquire(page, 10.0)
        schedule.record_outcome(page, 10.0, result)
        after = schedule.overview.page(page, 10.0)
        rates[result], crawled[result] = (after.changes, after.watched, after.rate), after.crawled_at
        schedule._check()
    assert set(crawled.values()) == {10.0}
    assert rates[RefreshOutcome.SILENT] == (before.changes, before.watched, before.rate)
    assert len(set(rates.values())) == 3


def test_a_signal_recalls_a_page_that_is_gone() -> None:
    """Each signal makes the next retry of the page earlier, but the waits between retries still grow."""
    schedule = Schedule(Settings(explore=0.0, retry_age=10.0, gone_age=1e9), level=1e9)
    page, other = (schedule.add(number, number, number, 0.0, 0.0) for number in (1, 2))
    waits, now = [], 1.0
    for _ in range(2):
        schedule.acquire(page, now)
        schedule.record_outcome(page, now, RefreshOutcome.GONE)
        for _ in range(100):  # these fetches allow one of a page that is gone
            schedule.acquire(other, now)
            schedule.record_outcome(other, now, RefreshOutcome.UNCHANGED, math.inf)
        schedule.signals.note_change(page, now + 1.0, 2)
        began, now = now, schedule.overview.due_at(page, now)
        waits.append(now - began)
        schedule._check()
        assert schedule.claim_next(now - 0.1) == -1 and schedule.peek(now) == page
    assert waits == [10.0, 40.0]


def test_signals_recall_few_of_many_pages_that_are_gone() -> None:
    """Pages that are still gone get 1 % of all fetches, apart from a few at the start."""
    schedule = Schedule(Settings(explore=0.0, retry_age=10.0, gone_age=10_000.0), level=1e9)
    pages = [schedule.add(number, 1, 1, 0.0, 0.0) for number in range(1, 301)]
    for page in pages:
        schedule.acquire(page, 1.0)
        schedule.record_outcome(page, 1.0, RefreshOutcome.GONE)
    for page in pages:
        schedule.signals.note_change(page, 2.0, 2)
    schedule._check()
    asked, now = 0, 2.0
    for _ in range(2000):
        now += 1.0
        page = schedule.claim_next(now)
        if page >= 0:
            schedule.record_outcome(page, now, RefreshOutcome.GONE)
            asked += 1
    assert 5 <= asked <= 12


def test_a_source_that_lies_recalls_no_page_that_is_gone() -> None:
    schedule = Schedule(Settings(explore=0.0, retry_age=10.0, gone_age=10_000.0), level=1e9)
    gone, page = (schedule.add(number, 1, 1, 0.0, 0.0) for number in (1, 2))
    now = 0.5
    for _ in range(7):
        schedule.peek(now)
        schedule.acquire(gone, now)
        schedule.record_outcome(gone, now, RefreshOutcome.GONE)
        now = schedule.overview.due_at(gone, now) + 1.0
        for _ in range(100):
            schedule.acquire(page, now)
            schedule.record_outcome(page, now, RefreshOutcome.UNCHANGED)
    due, now = now - 1.0, now - 9_000.0
    for _ in range(100):
        now += 1.0
        schedule.signals.note_change(page, now, 2)
        schedule.acquire(page, now + 0.5)
        schedule.record_outcome(page, now + 0.5, RefreshOutcome.UNCHANGED)
    schedule.signals.note_change(gone, now, 2)
    assert schedule.overview.due_at(gone, now) == due
    schedule.signals.note_change(gone, now, 3)
    assert schedule.overview.due_at(gone, now) < due - 5_000.0, "another source is believed"


def test_signals_that_are_ignored_have_no_precision_that_counts() -> None:
    schedule = Schedule(Settings(explore=0.0), level=1e9)
    page = schedule.add(1, 1, 1, 0.0, 0.0)
    unheard = schedule.overview.used_precision(0, 2)
    for n in range(1, 101):
        schedule.signals.note_change(page, float(n), 2)
        schedule.acquire(page, n + 0.5)
        schedule.record_outcome(page, n + 0.5, RefreshOutcome.UNCHANGED)
    assert 0.0 < schedule.overview.quality(0)[1][2] < 0.1
    assert schedule.overview.used_precision(0, 2) == 0.0
    assert schedule.overview.used_precision(0, 3) == unheard > 0.5


def test_ages_are_bounded_below_and_above() -> None:
    schedule = plain(PageParameters(9.0, 0.4), PageParameters(0.0, 5.0), level=1.0, min_age=2.0, max_age=7.0)
    assert schedule.claim_next(1.0) == -1
    assert schedule.claim_next(2.0) == 0
    schedule.record_outcome(0, 2.0, RefreshOutcome.CHANGED)
    schedule.facts.bound_ages(0, 1.0, math.inf)
    assert schedule.overview.due_at(1, 2.0) == 7.0
    schedule.block(schedule.host(1), 7.0)
    assert schedule.claim_next(6.9) == -1
    taken = schedule.claim_next(7.0)
    schedule.record_outcome(taken, 7.0, RefreshOutcome.CHANGED)
    assert {taken, schedule.claim_next(7.1)} == {0, 1}


def test_a_host_that_is_blocked_forever_delays_no_other_host() -> None:
    schedule = Schedule(level=0.5)
    for number in range(4):
        schedule.add(number + 1, 1 + number % 2, 1 + number % 2, 0.0, 0.0)
    schedule.block(schedule.host(1), math.inf)
    page = schedule.claim_next(1e6)
    assert schedule.host_of(page) == schedule.host(2)
    schedule.record_outcome(page, 1e6, RefreshOutcome.CHANGED)


def test_exploration_goes_to_the_page_longest_unvisited() -> None:
    """Even pages whose expected value is 0 are fetched."""
    pages = [PageParameters(1.0, 0.5)] * 5 + [PageParameters(0.0, 0.5)] * 5
    schedule = Schedule(Settings(neighbourhood=False, pooling=False, explore=0.1), level=0.5)
    for number, page in enumerate(pages):
        schedule.add(number + 1, 1, 1, -float(number), 0.0)
        schedule.facts.set_page(number, page, 0.0)
    taken = []
    for tick in range(100):
        taken.append(schedule.claim_next(float(tick)))
        schedule.record_outcome(taken[-1], float(tick), RefreshOutcome.CHANGED)
    worthless = [page for page in taken if page >= 5]
    assert worthless[:5] == [9, 8, 7, 6, 5]
    assert 8 <= len(worthless) <= 12


def test_bulk_signals_are_processed_in_slices() -> None:
    schedule = Schedule(Settings(neighbourhood=False, pooling=False), level=0.5)
    size = 5000
    keys = np.arange(1, size + 1, dtype=np.uint64)
    schedule.add_many(keys, keys * 0 + 1, keys % 7 + 1, np.zeros(size), 1.0, 0.0)
    schedule.signals.enqueue_changes(keys, 1.0)
    assert size - 600 < schedule.signals.waiting < size and schedule.next_wakeup(1.0) <= 1.0
    while schedule.work(1.0):
        pass
    assert all(schedule.overview.page(page, 1.0).signals == (1,) for page in range(0, size, 97))
    schedule._check()


NOT_NUMBERS = [math.nan, math.inf, -math.inf]


@pytest.mark.parametrize("bad", NOT_NUMBERS)
def test_instants_must_be_finite(bad: float) -> None:
    schedule = plain(PageParameters(1.0, 0.4), PageParameters(1.0, 0.3), level=1.0)
    held = schedule.claim_next(1.0)
    for wrong in (
        lambda: schedule.add(9, 1, 1, bad, 0.0),
        lambda: schedule.add(9, 1, 1, 0.0, bad),
        lambda: schedule.add(9, 1, 1, 0.0, 0.0, bad),
        lambda: schedule.add_many(*[np.array([9], np.uint64)] * 3, np.array([bad]), 1.0, 0.0),
        lambda: schedule.add_many(*[np.array([9], np.uint64)] * 3, np.zeros(1), bad, 0.0),
        lambda: schedule.signals.note_change(0, bad),
        lambda: schedule.signals.enqueue_changes(np.array([1], np.uint64), bad),
        lambda: schedule.peek(bad),
        lambda: schedule.claim_next(bad),
        lambda: schedule.acquire(1 - held, bad),
        lambda: schedule.work(bad),
        lambda: schedule.record_outcome(held, bad, 0),
        lambda: schedule.give_back(held, bad),
        lambda: schedule.facts.set_importance(0, bad, 0.0),
        lambda: schedule.facts.set_importance(0, 1.0, bad),
        lambda: schedule.facts.set_page(0, PageParameters(1.0, bad), 0.0),
        lambda: schedule.facts.set_page(0, PageParameters(bad, 1.0), 0.0),
        lambda: schedule.facts.bound_ages(0, bad, bad),
        lambda: setattr(schedule.pace, "level", bad),
        lambda: setattr(schedule.pace, "rate", bad),
        lambda: Schedule(level=bad),
    ):
        with pytest.raises(ValueError):
            wrong()
        schedule._check()
    schedule.record_outcome(held, 2.0, 0)


def test_wrong_calls_raise() -> None:
    schedule = plain(PageParameters(1.0, 0.4), PageParameters(1.0, 0.3), level=1.0)
    held = schedule.claim_next(1.0)
    for wrong in (
        lambda: schedule.add(1, 1, 1, 0.0, 0.0),
        lambda: schedule.add(8, 2, 1, 0.0, 0.0),  # a directory belongs to one host
        lambda: schedule.remove(7),
        lambda: schedule.signals.note_change(7, 1.0),
        lambda: schedule.signals.note_change(-1, 1.0),
        lambda: schedule.record_outcome(1 - held, 1.0, 0),
        lambda: schedule.give_back(1 - held, 1.0),
        lambda: schedule.acquire(held, 1.0),
        lambda: schedule.acquire(1 - held, 1.0),  # only one request to a host at a time
        lambda: schedule.block(5, 1.0),
    ):
        with pytest.raises(RuntimeError):
            wrong()
        schedule._check()
    for wrong in (
        lambda: schedule.signals.note_change(0, 1.0, 8),
        lambda: schedule.record_outcome(held, 1.0, 7),
        lambda: schedule.signals.enqueue_changes([1, 2], 1.0),
        lambda: schedule.block(0, math.nan),
        lambda: schedule.facts.set_importance(0, -1.0, 0.0),
        lambda: schedule.facts.bound_ages(0, 3.0, 2.0),
    ):
        with pytest.raises(ValueError):
            wrong()
    schedule.remove(held)
    with pytest.raises(RuntimeError):
        schedule.signals.note_change(held, 1.0)
    schedule.record_outcome(held, 2.0, 0)
    schedule._check()


def test_contradictory_settings_raise_a_usage_error() -> None:
    for wrong in (
        {"policy": "best"}, {"min_age": 5.0, "max_age": 4.0}, {"explore": 1.0}, {"explore": math.nan},
        {"clock_min": 5.0, "clock_max": 4.0}, {"gain": 0.0}, {"max_age": math.nan}, {"retry_age": -1.0},
    ):  # fmt: skip
        with pytest.raises(UsageError):
            Settings(**wrong)


@pytest.mark.parametrize("recall", [0.5, 1.0])
def test_a_page_whose_signals_are_certain_is_fresh_until_one_comes(recall: float) -> None:
    """The freshness was once nan, because zero (the number of signals) was multiplied by an infinite weight."""
    schedule = plain(PageParameters(1.0, 0.4, recall, 0.0), level=1.0)
    assert schedule.overview.page(0, 2.0).fresh == pytest.approx(math.exp(-0.4 * (1.0 - recall) * 2.0))
    schedule.signals.note_change(0, 2.0)
    assert schedule.overview.page(0, 2.0).fresh == 0.0


def test_very_noisy_signals_have_nearly_no_effect() -> None:
    """At this noise, the value was once far too low, because only the first 100,000 terms of a series were summed."""
    noisy, silent = PageParameters(1.0, 0.1, 0.5, 1e5), PageParameters(1.0, 0.1, 0.0, 0.0)
    schedule = plain(noisy, silent, level=1e-9)
    # Half of the changes of the noisy page are signalled, so its value at the time 5.0 is the value of the
    # silent page at the time 2.5.
    value = schedule.overview.page(1, 2.5).value
    assert schedule.overview.page(0, 5.0).value == pytest.approx(value, rel=1e-4)
