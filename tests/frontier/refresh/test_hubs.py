"""Test hubs in the schedule. A hub is a page that linked to new pages; it is refetched to find more of them."""

import math
import random

import numpy as np
import pytest

from crawler.frontier.refresh import RefreshOutcome, Schedule, Settings

DAY = 86_400.0
UNCHANGED, CHANGED = RefreshOutcome.UNCHANGED, RefreshOutcome.CHANGED


def schedule_of(pages: int, rate: float, **settings: float) -> tuple[Schedule, list[int]]:
    made = Schedule(Settings(explore=0.0, **settings))  # type: ignore[arg-type]
    made.pace.rate = rate
    return made, [made.add(number + 1, 1 + number % 3, 10 + number % 3, 0.0, 0.0) for number in range(pages)]


def run(made: Schedule, pages: list[int], days: float, rate: float, hub: int = -1) -> dict[int, int]:
    """Fetch at a constant rate; return the number of fetches of each page.

    Only the page `hub` shows new pages: two per day.
    """
    counts = dict.fromkeys(pages, 0)
    asked_at = 0.0
    now = 0.0
    while now < days * DAY:
        now += 1.0 / rate
        page = made.claim_next(now)
        counts[page] += 1
        made.record_outcome(page, now, UNCHANGED, now)
        if page == hub:
            made.facts.credit_hub(page, 2.0 * (now - asked_at) / DAY, now)
            asked_at = now
    made._check()
    return counts


def test_a_page_that_shows_new_pages_is_fetched_more_often() -> None:
    made, pages = schedule_of(60, 20.0 / DAY)
    counts = run(made, pages, 90.0, 20.0 / DAY, hub=pages[7])
    others = [count for page, count in counts.items() if page != pages[7]]
    assert counts[pages[7]] > 4 * max(others)
    assert min(others) > 0
    view = made.overview.hub(pages[7], 91.0 * DAY)
    assert view["pages_per_day"] == pytest.approx(2.0, rel=0.3)
    assert view["value"] > 0.0
    assert made.overview.hub(pages[8], 90.0 * DAY) == {}
    assert made.overview.hubs(90.0 * DAY)["hubs"] == 1


def test_without_weight_a_hub_is_an_ordinary_page() -> None:
    made, pages = schedule_of(60, 20.0 / DAY, new_page_weight=0.0)
    counts = run(made, pages, 90.0, 20.0 / DAY, hub=pages[7])
    assert max(counts.values()) - min(counts.values()) <= 3


def test_a_far_more_valuable_hub_goes_first_while_the_level_lags() -> None:
    """For forty days there are few fetches. So all pages are late, and their keys in the heap are outdated.

    A tenth of the pages change often, but not before each visit.
    """
    made, pages = schedule_of(600, 10.0 / DAY, new_page_weight=1.0)
    rng = random.Random(3)
    hub, asked, now, most = pages[7], 0.0, 0.0, 0.0
    while now < 320 * DAY:
        now += 2 * DAY if 200 * DAY <= now < 240 * DAY else 0.1 * DAY
        page = made.peek(now)
        late = made.overview.page(hub, now)
        if page != hub and now > 200 * DAY and late.value > late.level:
            most = max(most, late.value / made.overview.page(page, now).value)
        made.acquire(page, now)
        changed = page % 10 == 0 and page != hub and rng.random() < 0.9
        made.record_outcome(page, now, CHANGED if changed else UNCHANGED, now)
        if page == hub:
            made.facts.credit_hub(page, 0.1 * (now - asked) / DAY, now)
            asked = now
    assert made.overview.hub(hub, now)["pages_per_day"] == pytest.approx(0.1, rel=0.3)
    assert most < 1.5
    made._check()


def test_a_hub_that_is_not_due_does_not_go_before_pages_that_are_worth_more() -> None:
    """From day 200, the level is twice as high as it should be. So no page is due, and the hub would be due first."""
    made, pages = schedule_of(200, 10.0 / DAY, neighbourhood=False)
    hub, rng, now, taken = pages[7], random.Random(1), 0.0, 0
    asked = dict.fromkeys(pages, 0.0)
    while now < 203.0 * DAY:
        now += 0.1 * DAY
        if 0.0 <= now - 200.0 * DAY < 0.1 * DAY:
            made.pace.level *= 2.0
            made.renew()
            made.work(now)
        page = made.claim_next(now)
        gap, asked[page] = (now - asked[page]) / DAY, now
        if page == hub and now > 200.0 * DAY:
            taken += 1
            values = [made.overview.page(other, now).value for other in pages]
            assert values[hub] > 0.2 * max(values)
        changed = page == hub or rng.random() < -math.expm1(-gap / 60.0)
        made.record_outcome(page, now, CHANGED if changed else UNCHANGED, now)
        if page == hub:
            made.facts.credit_hub(page, gap, now)
    assert taken > 0
    made._check()


def test_endless_new_pages_take_at_most_half_of_a_hosts_refreshes() -> None:
    """A calendar shows a hundred new pages at each fetch. The other pages of its host are still refreshed."""
    made = Schedule(Settings(explore=0.0))
    rate = 50.0 / DAY
    made.pace.rate = rate
    pages = [made.add(number + 1, 1, 10, 0.0, 0.0) for number in range(100)]
    hub, asked, now, total = pages[0], 0, 0.0, 0
    while now < 120 * DAY:
        now += 1.0 / rate
        page = made.claim_next(now)
        made.record_outcome(page, now, UNCHANGED, now)
        if page == hub:
            made.facts.credit_hub(page, 100.0, now)
        if now > 60 * DAY:
            total += 1
            asked += page == hub
    assert asked / total < 0.6
    made._check()


@pytest.mark.parametrize("weight", [1.0, 3.0, 10.0])
def test_no_hub_is_long_overdue(weight: float) -> None:
    """The busiest of ten hubs shows forty times as many new pages as the quietest hub.

    A hub is due when its value D reaches the level.
    """
    made, rate, rng = Schedule(Settings(new_page_weight=weight), seed=1), 16.0 / DAY, random.Random(1)
    made.pace.rate = rate
    pages = [made.add(number + 1, 1 + number % 10, 100 + number % 40, 0.0, 0.0) for number in range(600)]
    hubs = {page: 0.05 * 1.5**number for number, page in enumerate(pages[:10])}
    asked, longest, now = dict.fromkeys(pages, 0.0), dict.fromkeys(hubs, 0.0), 0.0
    while now < 250.0 * DAY:
        now += 1.0 / rate
        page = made.claim_next(now)
        gap, asked[page] = (now - asked[page]) / DAY, now
        changed = page in hubs or rng.random() < -math.expm1(-gap / 60.0)
        made.record_outcome(page, now, CHANGED if changed else UNCHANGED, now)
        if page in hubs:
            made.facts.credit_hub(page, hubs[page] * gap, now)
            longest[page] = max(longest[page], gap if now > 100.0 * DAY else 0.0)
    for page, theta in hubs.items():
        due = math.sqrt(2.0 * made.pace.level / (weight * theta / DAY)) / DAY
        assert max(longest[page], (now - asked[page]) / DAY) < 3.0 * due, (theta, due)
    made._check()


def test_a_hub_that_shows_no_new_pages_becomes_an_ordinary_page() -> None:
    made, pages = schedule_of(40, 20.0 / DAY)
    run(made, pages, 40.0, 20.0 / DAY, hub=pages[3])
    before = made.overview.hub(pages[3], 40.0 * DAY)["pages_per_day"]
    now = 40.0 * DAY
    while now < 500.0 * DAY:
        now += DAY / 20.0
        made.record_outcome(made.claim_next(now), now, UNCHANGED, now)
    assert made.overview.hub(pages[3], now)["pages_per_day"] < 0.1 * before


def test_credit_is_checked_and_rows_are_given_back() -> None:
    made, pages = schedule_of(9, 1.0)
    for wrong in (-1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="found"):
            made.facts.credit_hub(pages[0], wrong, 1.0)
    made.facts.credit_hub(pages[0], 0.0, 1.0)
    assert made.overview.hub(pages[0], 1.0) == {}
    for page in pages[:4]:
        made.facts.credit_hub(page, 3.0, 1.0)
    assert made.overview.hubs(1.0)["hubs"] == 4
    for page in pages[:3]:
        made.remove(page)
        made._check()
    assert made.overview.hubs(1.0)["hubs"] == 1
    again = made.add(100, 1, 10, 1.0, 1.0)
    assert made.overview.hub(again, 1.0) == {}, (
        "the new page reuses the row of the removed hub, but not its state"
    )
    made.facts.credit_hub(again, 1.0, 2.0)
    made._check()


def test_a_page_that_listed_many_urls_is_asked_early_until_it_proves_quiet() -> None:
    """At first, two of 600 pages listed 40 URLs each. One of the two shows new pages later; the other never does.

    The mean time between changes of a page is 60 days.
    """
    made, pages = schedule_of(600, 10.0 / DAY, neighbourhood=False)
    lists, rng, now = pages[7:9], random.Random(1), 0.0
    for page in lists:
        made.facts.expect_news(page, 40, 0.0)
    made.facts.expect_news(pages[20], 3, 0.0)
    assert made.overview.hubs(now)["hubs"] == 2 and made.overview.hub(pages[20], now) == {}
    first, counts = dict.fromkeys(lists, 0.0), dict.fromkeys(pages, 0)
    asked = dict.fromkeys(pages, 0.0)
    while now < 300.0 * DAY:
        now += 0.1 * DAY
        page = made.claim_next(now)
        gap, asked[page] = (now - asked[page]) / DAY, now
        counts[page] += 1
        if page in lists and not first[page]:
            first[page] = now
        made.record_outcome(page, now, CHANGED if rng.random() < -math.expm1(-gap / 60.0) else UNCHANGED, now)
        if page == lists[0]:
            made.facts.credit_hub(page, 0.1 * gap, now)
    assert max(first.values()) < 30.0 * DAY
    usual = sorted(counts.values())[len(pages) // 2]
    assert counts[lists[0]] > 3 * usual and counts[lists[1]] < 3 * usual
    assert made.overview.hub(lists[1], now)["pages_per_day"] < 0.01
    made._check()


@pytest.mark.parametrize("links", [0, 40])
def test_the_state_of_a_hub_is_restored(links: int) -> None:
    made, pages = schedule_of(30, 20.0 / DAY)
    made.facts.expect_news(pages[5], links, 0.0)
    run(made, pages, 30.0, 20.0 / DAY, hub=pages[5])
    now = 30.0 * DAY
    other = Schedule(Settings(explore=0.0))
    other.pace.rate = 20.0 / DAY
    key, numbers = made.records.site_state(made.host_of(pages[5]))
    other.records.restore_site(key, np.array(numbers))
    directory, counts = made.records.directory_state(pages[5])
    other.records.restore_directory(directory, key, counts[:3], counts[3:])
    row = made.records.page_state(pages[5])
    page = int(
        other.add_many([row[0]], [row[1]], [row[2]], [row[3]], row[7], now, changes=row[4], watched=row[5])[0]
    )
    other.records.restore_hub(page, *made.records.hub_state(pages[5]))
    assert other.overview.hub(page, now)["pages_per_day"] == pytest.approx(
        made.overview.hub(pages[5], now)["pages_per_day"], rel=1e-3
    )


def test_pages_that_are_gone_cost_a_hundredth_of_the_fetches() -> None:
    """100 of the 200 pages are gone.

    If these pages were fetched every 16 days (the longest wait), they would take a quarter of all fetches. The
    rate is one fetch per hour.
    """
    rate = 24.0 / DAY
    made = Schedule(Settings(explore=0.0, gone_age=DAY))
    made.pace.rate = rate
    pages = [made.add(number + 1, 1 + number % 3, 10 + number % 3, 0.0, 0.0) for number in range(200)]
    gone = set(pages[::2])
    now, asked, total = 0.0, 0, 0
    while now < 300 * DAY:
        now += 1.0 / rate
        page = made.claim_next(now)
        made.record_outcome(page, now, RefreshOutcome.GONE if page in gone else UNCHANGED, now)
        if now > 100 * DAY:
            total += 1
            asked += page in gone
    assert 0.002 < asked / total < 0.02
    made._check()
