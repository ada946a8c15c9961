"""Expectation: the probability of being fresh that users see."""

import numpy as np
import pytest
from msgspec.structs import replace

from crawler.freshness.recalibration import Hearing
from crawler.frontier.refresh import Arms, RefreshOutcome, Schedule, Settings
from crawler.frontier.refresh.expectation import Expectation

DAY = 86_400.0
STILL = Settings(explore=0.0)


def test_the_correction_for_users_respects_which_pages_have_good_signals() -> None:
    """Before each crawl, each of two pages of a site gets a signal; only those of the first page are true."""
    schedule = Schedule(Settings(explore=0.0), level=1e-3)
    expectation = Expectation(schedule, 1.0)
    pages = [schedule.add(1 + n, 1, 1, 0.0, 0.0) for n in range(2)]
    results = RefreshOutcome.CHANGED, RefreshOutcome.UNCHANGED
    now = 0.0
    for _ in range(60):
        now += 5.0 * DAY
        for page, result in zip(pages, results, strict=True):
            schedule.signals.note_change(page, now)
            known = schedule.overview.page(page, now)
            schedule.acquire(page, now)
            expectation.ended(known, result, now)
            schedule.record_outcome(page, now, result)
    for page in pages:
        schedule.signals.note_change(page, now + DAY)
    good, bad = (schedule.overview.page(page, now + DAY) for page in pages)
    assert good.hearing is bad.hearing is Hearing.TOLD
    assert good.reliability > 0.9 and bad.reliability < 0.1
    assert expectation.fresh(good) < 0.05
    assert expectation.fresh(bad) == pytest.approx(bad.fresh, abs=0.05)
    unaware = expectation.recalibration.corrected(bad.fresh, bad.hearing, bad.new, bad.haste)
    assert expectation.fresh(bad) != pytest.approx(unaware, abs=0.01)


def test_a_fast_crawl_that_has_found_no_change_is_not_called_stale() -> None:
    """The prior of the crawl's mean follows from the revisit interval, here three seconds. It is not stated."""
    schedule = Schedule(STILL)
    schedule.pace.rate = 20.0
    pages = [schedule.add(1 + n, 1, 1, 0.0, 0.0) for n in range(60)]
    expectation = Expectation(schedule, 1.0)
    assert expectation.view(10.0)["expected_freshness"] > 0.99
    for page in pages[:30]:
        schedule.acquire(page, 10.0)
        schedule.record_outcome(page, 10.0, RefreshOutcome.UNCHANGED)
    assert expectation.view(20.0)["expected_freshness"] > 0.99
    for page in pages[30:]:
        schedule.acquire(page, 20.0)
        schedule.record_outcome(page, 20.0, RefreshOutcome.CHANGED)
    assert expectation.view(40.0)["expected_freshness"] < 0.5


@pytest.mark.parametrize("arms", [1, 2])
def test_pages_that_are_away_are_not_counted_among_the_copies(arms: int) -> None:
    """The first site has 6 pages, of which 2 are away. All pages of the second site are away."""
    schedule = Schedule(STILL) if arms == 1 else Arms([STILL] * arms)
    expectation = Expectation(schedule, 1.0)
    pages = [schedule.add(1 + n, 1 + n // 6, 1 + n // 6, 0.0, 0.0, away=n % 6 in (0, 3)) for n in range(8)]
    lost = pages[7]
    schedule.acquire(lost, DAY)
    schedule.record_outcome(lost, DAY, RefreshOutcome.GONE)
    view = expectation.view(DAY)
    assert view["pages"] == 4 and view["importance"] == pytest.approx(4.0)
    assert sum(arm["pages"] for arm in view["arms"]) == (4 if arms == 2 else 0)
    assert {key: pages for key, (pages, _) in expectation.by_host(DAY).items()} == {1: 4}


@pytest.mark.parametrize("arms", [1, 2])
def test_each_site_has_a_correction_of_its_own(arms: int) -> None:
    """The pages of the first site are always fresh when they are crawled, those of the second site never."""
    schedule = Schedule(STILL) if arms == 1 else Arms([STILL] * arms)
    expectation = Expectation(schedule, 1.0)
    pages = [schedule.add(1 + n, 1 + n % 2, 1 + n % 2, 0.0, 0.0) for n in range(8)]
    views = [replace(schedule.overview.page(page, DAY), stands_for=1.0, stated=None) for page in pages]
    for turn in range(200):
        view = views[turn % 8]
        site = schedule.overview.page(pages[turn % 8], DAY).site
        known = replace(view, fresh=0.05 if turn % 16 < 8 else 0.6, site=site)
        result = RefreshOutcome.CHANGED if known.host else RefreshOutcome.UNCHANGED
        expectation.ended(known, result, DAY)
    stated = [
        expectation.fresh(replace(schedule.overview.page(page, DAY), fresh=0.05, stated=None))
        for page in pages
    ]
    assert stated == [stated[0], stated[1]] * 4
    assert stated[0] > 2.0 * stated[1]


def test_pages_of_a_site_with_a_weekly_rhythm_are_corrected_only_by_crawls_of_the_site() -> None:
    """The pages of two sites are always found changed. Only the first site has a rhythm."""
    schedule = Schedule(STILL)
    expectation = Expectation(schedule, 1.0)
    pages = [schedule.add(1 + n, 1 + n, 1 + n, 0.0, 0.0) for n in range(2)]
    host_key, numbers = schedule.records.site_state(schedule.host(1))
    rhythm = [*[0.5] * 12, *[1.5] * 12, *[1.0] * 7, 9.0, *[1.0] * 31]
    schedule.records.restore_site(host_key, np.array([*numbers, *rhythm]))
    paced, plain = (
        replace(schedule.overview.page(page, DAY), fresh=0.6, stands_for=1.0, stated=None) for page in pages
    )
    assert (paced.rhythm, plain.rhythm) == (True, False)
    for _ in range(200):
        expectation.ended(plain, RefreshOutcome.CHANGED, DAY)
    assert expectation.fresh(paced) == 0.6
    assert expectation.fresh(plain) < 0.5
    before = expectation.recalibration.numbers
    for _ in range(200):
        site = schedule.overview.page(pages[0], DAY).site
        expectation.ended(replace(paced, site=site), RefreshOutcome.CHANGED, DAY)
    assert expectation.recalibration.numbers == before
    site = schedule.overview.page(pages[0], DAY).site
    assert expectation.fresh(replace(paced, site=site)) < 0.55
    assert expectation.fresh(replace(paced, site=site, fresh=0.95)) == pytest.approx(0.95)


def test_an_announced_change_counts_for_a_page_that_was_always_found_changed() -> None:
    """Until the next crawl, a signal adds to the number of changes of a page, which is stored as -k for such a page.

    The other page differs only in that its k is positive. Signals say nothing about whether a page is restless.
    """
    schedule, now = Schedule(STILL, level=1e-3), 0.0
    told = schedule.add(1, 1, 1, 0.0, 0.0)
    for _ in range(60):  # the site's signals are true
        now += 5.0 * DAY
        schedule.signals.note_change(told, now)
        schedule.acquire(told, now)
        schedule.record_outcome(told, now, RefreshOutcome.CHANGED)
    keys, site = np.array([2, 3], np.uint64), np.ones(2, np.uint64)
    signed = np.array([-20.0, 20.0])
    pages = schedule.add_many(keys, site, site, now, 1.0, now, changes=signed, watched=np.full(2, 50 * DAY))

    schedule.records.restore_unrest(int(pages[0]), 96)

    def rates() -> tuple[float, float]:
        """Return 1 / (1 - P), where P is the probability that the first page is restless, and the rate of the second."""
        always, other = (schedule.overview.page(page, now).rate for page in pages)
        return always / other, other

    def steady() -> float:
        """Return 1 - P as the stated probabilities of being fresh tell it. Signals do not change it."""
        always, other = (schedule.overview.page(page, now + 5.0 * DAY).fresh for page in pages)
        return always / other

    before, steady_before = rates(), steady()
    for page in pages:
        schedule.signals.note_change(page, now)
    after = rates()
    assert after[1] > before[1] and after[0] == pytest.approx(before[0]) and before[0] > 1.05
    assert steady() == pytest.approx(steady_before, rel=1e-6)


@pytest.mark.parametrize("arms", [1, 2])
def test_a_guessed_level_gives_no_price(arms: int) -> None:
    """A schedule at rest that had taken no page once said that 10 % more rate would add 100 points of freshness."""
    schedule = Schedule(STILL) if arms == 1 else Arms([STILL] * arms)
    expectation = Expectation(schedule, 1.0)
    for n in range(8):
        schedule.add(1 + n, 1 + n, 1 + n, 0.0, 0.0)
    schedule.pace.rate = 1.0
    assert not schedule.pace.level_is_known and expectation.view(DAY)["more_rate"] == {}
    for _ in range(2):
        schedule.acquire(schedule.peek(DAY), DAY)
    assert schedule.pace.level_is_known and expectation.view(DAY)["more_rate"]["gain"] < 0.1
