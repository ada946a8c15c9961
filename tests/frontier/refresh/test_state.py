"""Test the stored refresh state: a schedule that is rebuilt from its records chooses the same pages as before."""

import random
from collections.abc import Sequence

import numpy as np
import pytest

from crawler.errors import DamageError
from crawler.freshness.recalibration import SiteSlope
from crawler.frontier.refresh import RefreshOutcome, Schedule, Settings, clock_repair, state
from crawler.frontier.refresh.arms import Arms
from crawler.storage import keys
from crawler.storage.kv import MemoryStore, scan_prefix, seal, unseal

DAY = 86_400.0
STILL = Settings(explore=0.0, gain=1e-12)  # a level that does not move
FACTORS = [0.5] * 12 + [1.5] * 12 + [1.0] * 7
RHYTHM = [*FACTORS, 9.0, *[3.0] * 24, *[20.0] * 7, 60.0, 50.0, 7.0 * DAY]
# as stored by versions that kept the number of changes, here 300, instead of the information about each factor
EARLIER_RHYTHM = [*FACTORS, 300.0, 9.0]


def crawled(store: MemoryStore, *, signals: bool = True, start: float = 0.0) -> tuple[Schedule, float]:
    """Return a schedule after some crawls, and the instant of the last one.

    With `signals`, signals arrive between the crawls. Everything is stored in `store`.
    """
    rng = np.random.default_rng(4)
    schedule = Schedule(STILL, level=3e6, track=True)
    schedule.pace.rate = 60 / (10 * DAY)
    batch = store.batch()
    for number in range(60):
        page = schedule.add(
            1000 + number, number % 4, 100 + number % 12, start - rng.random() * 9 * DAY, start,
            1.0 + number % 3,
        )  # fmt: skip
        state.stage(schedule, page, batch)
    now = start
    for _ in range(400):
        now += DAY / 6
        page = schedule.claim_next(now)
        result = RefreshOutcome(int(rng.random() < 0.3))
        schedule.record_outcome(page, now, result)
        state.stage(schedule, page, batch)
        if signals:
            schedule.signals.note_change(int(rng.integers(60)), now, int(rng.integers(3)))
        state.stage_signalled(schedule, schedule.signals.pop_touched(), batch)
    assert schedule.signals.pop_touched() == []
    store.write(batch)
    return schedule, now


def put(store: MemoryStore, key: bytes, numbers: Sequence[float]) -> None:
    batch = store.batch()
    batch.put(key, seal(np.array(numbers, "<f8").tobytes()))
    store.write(batch)


def stage(store: MemoryStore, schedule: Schedule | Arms, *pages: int) -> None:
    batch = store.batch()
    for page in pages:
        state.stage(schedule, page, batch)
    store.write(batch)


def rebuilt_from(store: MemoryStore, now: float, *, pages: int = 60) -> Schedule:
    rebuilt = Schedule(STILL)
    assert state.load(rebuilt, store, now) == (pages, 0.0)
    rebuilt._check()
    return rebuilt


def test_a_rebuilt_schedule_takes_the_same_pages() -> None:
    store = MemoryStore()
    schedule, now = crawled(store)
    rebuilt = rebuilt_from(store, now)
    for fingerprint in range(1000, 1060):
        old, new = schedule.find(fingerprint), rebuilt.find(fingerprint)
        assert schedule.records.page_state(old) == rebuilt.records.page_state(new)
        assert schedule.records.trust_state(old) == rebuilt.records.trust_state(new)
    assert any(schedule.records.trust_state(page) for page in range(60))
    assert rebuilt.pace.level == schedule.pace.level
    assert rebuilt.records.bias == schedule.records.bias
    assert all(schedule.records.bias)
    taken = []
    for each in (schedule, rebuilt):
        each.pace.rate = 60 / (10 * DAY)
        for host in range(4):
            each.block(host, 0.0)
        each.renew()
        at, fingerprints = now, []
        for _ in range(60):
            at += DAY / 6
            each.pace.level = 3e6  # compute all keys again, as at opening
            while each.work(at) or each.overview.sweeping:
                pass
            page = each.claim_next(at)
            fingerprints.append(each.overview.page(page, at).fingerprint)
            each.record_outcome(page, at, RefreshOutcome.UNCHANGED)
        taken.append(fingerprints)
    assert taken[0] == taken[1]


def test_a_guessed_level_and_interval_are_not_stored() -> None:
    """Too few fetches at an unknown rate show neither, so the next run derives both from its own rate."""
    store, schedule = MemoryStore(), Schedule(STILL)
    for number in range(60):
        schedule.add(1000 + number, number % 4, number % 12, 0.0, 0.0)
    for number in range(4):
        now = DAY * (1 + number)
        page = schedule.claim_next(now)
        schedule.record_outcome(page, now, RefreshOutcome.UNCHANGED)
        stage(store, schedule, page)
    assert schedule.pace.level > 0.0 and not schedule.pace.level_is_known
    stage(store, schedule, *range(60))
    assert store.get(keys.REFRESH_LEVEL) is None and store.get(keys.REFRESH_REVISIT) is None
    rebuilt = rebuilt_from(store, now)
    assert not rebuilt.pace.level_is_known and rebuilt.pace.revisit == 0.0
    rebuilt.pace.rate = 60 / (10 * DAY)
    assert rebuilt.pace.revisit == pytest.approx(10 * DAY)
    rebuilt.peek(now)
    stage(store, rebuilt, 0)
    assert rebuilt.pace.level_is_known
    assert state.stored_number(store, keys.REFRESH_LEVEL) == rebuilt.pace.level
    assert state.stored_number(store, keys.REFRESH_REVISIT) == pytest.approx(10 * DAY)


@pytest.mark.parametrize("others", [["uniform"], ["interval"], ["uniform", "azar-lds"]])
def test_only_arms_with_the_same_unit_share_a_stored_level(others: list[str]) -> None:
    """The level of `uniform` is an age, so the stored level is the mean of the other arms only."""
    store, arms = MemoryStore(), Arms([Settings(), *(Settings(policy=policy) for policy in others)])
    for number in range(60):
        arms.add(1000 + number, number % 4, number % 12, 0.0, 0.0)
    arms.pace.rate = 60 / (10 * DAY)
    page = arms.claim_next(DAY)
    arms.record_outcome(page, DAY, RefreshOutcome.UNCHANGED)
    stage(store, arms, page)
    level = arms.schedules[0].pace.level
    assert arms.schedules[0].pace.level_is_known
    assert state.stored_number(store, keys.REFRESH_LEVEL) == level
    rebuilt = Arms(arms.settings)
    state.load(rebuilt, store, DAY)
    known = [each.pace.level_is_known for each in rebuilt.schedules]
    assert rebuilt.schedules[0].pace.level == level and known == [True, *[False] * len(others)]


@pytest.mark.parametrize(("before", "after"), [("uniform", "ncis"), ("ncis", "uniform"), ("ncis", "greedy")])
def test_a_run_with_another_policy_takes_no_level_of_another_unit(before: str, after: str) -> None:
    store, schedule = MemoryStore(), Schedule(Settings(policy=before))
    schedule.pace.rate = 1 / DAY
    for number in range(10):
        schedule.add(number, 0, 0, 0.0, 0.0)
    schedule.pace.level = 3e6
    stage(store, schedule, 0)
    rebuilt = Schedule(Settings(policy=after))
    state.load(rebuilt, store, DAY)
    assert rebuilt.pace.level_is_known == ("uniform" not in (before, after))


@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize(
    ("counted", "restless"),
    [(True, False), (True, True), (False, False)],
    ids=["links", "links, restless", "as stored before links were counted"],
)
def test_a_hub_is_rebuilt_from_its_record(counted: bool, restless: bool, trusted: bool) -> None:
    store, schedule = MemoryStore(), Schedule(STILL, level=3e6)
    page = schedule.add(1000, 1, 100, 0.0, 0.0)
    schedule.facts.expect_news(page, 40, 0.0)
    schedule.facts.credit_hub(page, 2.0, 0.0)
    if trusted:
        schedule.records.restore_trust(page, 5)
    if restless:
        schedule.records.restore_unrest(page, 96)
    stage(store, schedule, page)
    key, value = next(iter(scan_prefix(store, keys.REFRESH)))
    if not counted:
        payload, size = unseal(key, value), state._PAGE.size
        batch = store.batch()
        batch.put(key, seal(payload[: size + 8] + payload[size + 12 :]))
        store.write(batch)
    rebuilt = rebuilt_from(store, DAY, pages=1)
    assert rebuilt.records.hub_state(rebuilt.find(1000)) == (2.0, 0.0, 40.0 if counted else 0.0)
    assert rebuilt.records.trust_state(rebuilt.find(1000)) == 5 * trusted
    assert rebuilt.records.unrest_state(rebuilt.find(1000)) == 96 * restless


@pytest.mark.parametrize("hub", [False, True])
@pytest.mark.parametrize("trusted", [False, True])
@pytest.mark.parametrize("restless", [False, True])
@pytest.mark.parametrize("times", [1, 3, 9])
def test_a_failed_page_continues_its_wait(times: int, restless: bool, trusted: bool, hub: bool) -> None:
    """The copy of a page is 30 days old, and its last fetches have failed. The crawl is reopened during the wait."""
    store, schedule, failed = MemoryStore(), Schedule(STILL, level=3e6), 30 * DAY
    page = schedule.add(1000, 1, 100, 0.0, failed)
    if hub:
        schedule.facts.expect_news(page, 40, failed)
    if trusted:
        schedule.records.restore_trust(page, 5)
    if restless:
        schedule.records.restore_unrest(page, 96)
    fail(schedule, page, failed)
    for _ in range(times - 1):
        failed = schedule.overview.due_at(page, failed)
        assert schedule.peek(failed) == page
        fail(schedule, page, failed)
    stage(store, schedule, page)
    due = schedule.overview.due_at(page, failed)
    now = (failed + due) / 2
    rebuilt = rebuilt_from(store, now, pages=1)
    again = rebuilt.find(1000)
    assert rebuilt.overview.due_at(again, now) == pytest.approx(due, abs=1.0)
    assert rebuilt.records.page_state(again) == schedule.records.page_state(page)
    assert rebuilt.records.hub_state(again) == schedule.records.hub_state(page)
    assert rebuilt.records.trust_state(again) == 5 * trusted
    assert rebuilt.records.unrest_state(again) == 96 * restless
    assert rebuilt.peek(now) == -1 and rebuilt.peek(due + 1.0) == again


def fail(schedule: Schedule, page: int, now: float) -> None:
    schedule.acquire(page, now)
    schedule.record_outcome(page, now, RefreshOutcome.FAILED)


def test_a_page_that_is_recalled_continues_its_wait() -> None:
    """A signal recalls a page that is away. The crawl is reopened before the page may be fetched."""
    store, schedule, now = MemoryStore(), Schedule(STILL, level=3e6), 30 * DAY
    page = schedule.add(1000, 1, 100, 0.0, now)
    for _ in range(3):
        assert schedule.claim_next(now) == page
        schedule.record_outcome(page, now, RefreshOutcome.GONE)
        gone, now = now, schedule.overview.due_at(page, now)
    schedule.signals.note_change(page, gone + 1.0)
    due = schedule.overview.due_at(page, gone)
    assert gone + 2.0 < due < now, "the recall is earlier"
    stage(store, schedule, page)
    rebuilt = rebuilt_from(store, gone + 2.0, pages=1)
    assert rebuilt.overview.due_at(rebuilt.find(1000), gone) == pytest.approx(due, abs=1.0)


def test_a_wait_that_began_while_the_clock_was_ahead_ends_soon() -> None:
    store, schedule, ahead = MemoryStore(), Schedule(STILL, level=3e6), 365 * DAY
    page = schedule.add(1000, 1, 100, 0.0, ahead)
    fail(schedule, page, ahead)
    stage(store, schedule, page)
    rebuilt = rebuilt_from(store, DAY, pages=1)
    assert rebuilt.overview.due_at(rebuilt.find(1000), DAY) <= DAY + 2 * STILL.retry_age


def test_a_page_stays_new_until_its_first_refetch() -> None:
    store, schedule = MemoryStore(), Schedule(STILL, level=3e6)
    born, old = (schedule.add(each, 1, 100, 0.0, 0.0) for each in (1000, 1001))
    schedule.facts.note_birth(born)
    stage(store, schedule, born, old)
    rebuilt = rebuilt_from(store, DAY, pages=2)
    pages = [rebuilt.find(each) for each in (1000, 1001)]
    assert [rebuilt.overview.page(page, DAY).new for page in pages] == [True, False]
    rebuilt.acquire(pages[0], DAY)
    rebuilt.record_outcome(pages[0], DAY, RefreshOutcome.UNCHANGED)
    assert not rebuilt.overview.page(pages[0], DAY).new


def test_a_site_stored_without_its_exposure_keeps_its_recall() -> None:
    store = MemoryStore()
    schedule, now = crawled(store)
    numbers = schedule.records.site_state(0)[1]
    true, silent = sum(numbers[3:11]), numbers[19]
    assert true > 0.0 and silent > 0.0 and numbers[30] > 0.0
    records = dict(scan_prefix(store, keys.REFRESH_SITE))
    for key, value in records.items():
        put(store, key, np.frombuffer(unseal(key, value), "<f8")[:28])
    rebuilt = rebuilt_from(store, now)
    assert rebuilt.records.site_state(0)[1] == [*numbers[:28], true + silent, *[0.0] * 12]


@pytest.mark.parametrize(
    "stored",
    [31, 33, 39, 41],
    ids=["signals not counted", "one kind of page", "no correction by site", "rhythm without information"],
)
@pytest.mark.parametrize("rhythm", [[], EARLIER_RHYTHM], ids=["without rhythm", "with rhythm"])
def test_a_site_stored_with_fewer_numbers_is_read(stored: int, rhythm: list[float]) -> None:
    store = MemoryStore()
    schedule, now = crawled(store)
    key, numbers = schedule.records.site_state(0)
    assert numbers[31] > 0.0 and numbers[34] > 0.0 and len(numbers) == 41
    put(store, keys.REFRESH_SITE + key.to_bytes(8, "big"), [*numbers[:stored], *rhythm])
    rebuilt = rebuilt_from(store, now)
    found = dict(map(rebuilt.records.site_state, range(4)))
    assert found[key][:41] == pytest.approx([*numbers[:stored], *[0.0] * (41 - stored)])
    information = [factor * 300.0 / (24 if place < 24 else 7) for place, factor in enumerate(FACTORS)]
    assert found[key][41:] == pytest.approx([*FACTORS, 9.0, *information, *[0.0] * 3] if rhythm else [])


def test_a_rhythm_stored_without_the_bias_of_its_site_is_read() -> None:
    store = MemoryStore()
    schedule, now = crawled(store)
    key, numbers = schedule.records.site_state(0)
    put(store, keys.REFRESH_SITE + key.to_bytes(8, "big"), [*numbers, *RHYTHM[:63]])
    found = dict(map(rebuilt_from(store, now).records.site_state, range(4)))
    assert found[key] == pytest.approx([*numbers, *RHYTHM[:63], *[0.0] * 3])


@pytest.mark.parametrize(
    "stored", [2, 4, 6], ids=["of all changes", "without a factor of variations", "without restless pages"]
)
def test_a_bias_stored_with_fewer_numbers_is_read(stored: int) -> None:
    store = MemoryStore()
    schedule, now = crawled(store)
    put(store, keys.REFRESH_BIAS, schedule.records.bias[:stored])
    rebuilt = rebuilt_from(store, now)
    initial = Schedule(STILL).records.bias
    assert schedule.records.bias[4] != 1.0 == initial[4]
    assert rebuilt.records.bias == (*schedule.records.bias[:stored], *initial[stored:])


def test_whether_a_page_was_always_found_changed_is_stored() -> None:
    store, schedule, now = MemoryStore(), Schedule(STILL), 0.0
    for page in (schedule.add(7, 1, 1, now, now), schedule.add(8, 1, 1, now, now)):
        for changed in (True, page == 0):
            now += DAY
            schedule.acquire(page, now)
            schedule.record_outcome(page, now, changed, now)
        batch = store.batch()
        state.stage(schedule, page, batch)
        store.write(batch)
    rebuilt = rebuilt_from(store, now, pages=2)
    kept = [(found.find(7), found.find(8)) for found in (schedule, rebuilt)]
    (always, once), found = (
        [made.records.page_state(page)[4] for page in pages]
        for made, pages in zip((schedule, rebuilt), kept, strict=True)
    )
    assert always < 0.0 < once and found == [always, once]
    (always, once), found = (
        [made.records.unrest_state(page) for page in pages]
        for made, pages in zip((schedule, rebuilt), kept, strict=True)
    )
    assert always > 0 > once and found == [always, once]
    views = [
        [made.overview.page(page, now) for page in pages]
        for made, pages in zip((schedule, rebuilt), kept, strict=True)
    ]
    assert [view.ceiling for view in views[0]] == pytest.approx([view.ceiling for view in views[1]])
    assert all(view.changes > 0.0 for view in views[1])


def test_the_correction_of_a_site_is_stored() -> None:
    store = MemoryStore()
    schedule, now = crawled(store)
    schedule.facts.set_slope(0, SiteSlope(-0.25, 6.5))
    batch = store.batch()
    state.stage_site(schedule, 0, batch)
    store.write(batch)
    rebuilt = rebuilt_from(store, now)
    slopes = {
        page: (found.overview.page(found.find(page), now).site)
        for found in (schedule, rebuilt)
        for page in (1000, 1001)
    }
    assert slopes == {1000: SiteSlope(-0.25, 6.5), 1001: SiteSlope(0.0, 0.0)}


def test_the_weekly_rhythm_of_a_site_is_stored() -> None:
    store = MemoryStore()
    schedule, now = crawled(store)
    key, numbers = schedule.records.site_state(0)
    numbers[32] = 2.5  # the score of the model in which the number of signals is evidence
    schedule.records.restore_site(key, np.array([*numbers, *RHYTHM]))
    batch = store.batch()
    state.stage_site(schedule, 0, batch)
    store.write(batch)
    rebuilt = rebuilt_from(store, now)
    found = {key: numbers for key, numbers in map(rebuilt.records.site_state, range(4))}
    assert found[key] == pytest.approx([*numbers, *RHYTHM])
    assert {len(others) for other, others in found.items() if other != key} == {len(numbers)}


@pytest.mark.parametrize("quiet", [False, True], ids=["", "quiet directories"])
@pytest.mark.parametrize("result", [0, 1, 2, 3, 6], ids=lambda result: RefreshOutcome(result).name)
def test_pages_of_a_clock_that_was_ahead_are_fetched_again(result: int, quiet: bool) -> None:
    """The clock is a year ahead in one run, which is killed during a fetch, and right in the next run.

    The first run fetches pages of two hosts out of four. In the second run, no page has to wait until the clock
    shows that year, and no page seems to change far more often than before.
    """
    store = MemoryStore()
    before, right = crawled(store, signals=False)
    late, batch = Schedule(STILL, track=True), store.batch()
    assert state.load(late, store, right).lead == 0.0
    late.pace.rate, now = 60 / (10 * DAY), right + 365 * DAY
    late.block(2, np.inf)
    late.block(3, np.inf)
    for _ in range(90):
        now += DAY / 6
        page = late.claim_next(now)
        if page < 0:  # all pages are gone
            break
        late.record_outcome(page, now, result)
        if quiet:
            _, host, directory, *_ = late.records.page_state(page)
            late.records.restore_directory(directory, host, (0.0, 1e4, now), (0.0, 0.0, now))
        state.stage(late, page, batch)
    late.claim_next(now + DAY / 6)  # in flight when the run is killed
    store.write(batch)
    again, right = Schedule(STILL), right + 16 * DAY
    loaded = state.load(again, store, right)
    again._check()
    failed = result == RefreshOutcome.FAILED
    assert loaded.pages == 60 and (loaded.lead == 0.0 if failed else loaded.lead > 345 * DAY)
    for fingerprint in range(1000, 1060):
        rates = [each.overview.page(each.find(fingerprint), right).rate for each in (before, again)]
        # If all of the 90 fetches find a change, within 15 days, rates have turned (`freshness/rate_turns.py`).
        most = 32.0 if result == RefreshOutcome.CHANGED else 10.0
        assert 0.5 < rates[1] / rates[0] < most, fingerprint
    again.pace.rate, fetched, rng = 60 / (10 * DAY), set(), np.random.default_rng(5)
    for step in range(1, 300):  # 50 days
        at = right + step * DAY / 6
        page = again.claim_next(at)
        fetched.add(again.overview.page(page, at).fingerprint)
        again.record_outcome(page, at, int(rng.random() < 0.3))
    assert fetched == set(range(1000, 1060))


def test_a_clock_that_is_behind_takes_no_evidence_from_a_page() -> None:
    """A machine without a battery for its clock may start in 1970."""
    store = MemoryStore()
    before, now = crawled(store)
    behind = Schedule(STILL)
    assert state.load(behind, store, now - 50 * 365 * DAY).lead > 49 * 365 * DAY
    for fingerprint in range(1000, 1060):
        old, new = (each.records.page_state(each.find(fingerprint)) for each in (before, behind))
        assert old[4:6] == new[4:6]


def test_a_run_with_a_clock_that_was_behind_adds_no_time_to_later_crawls() -> None:
    """The clock is right in the first run, starts in 1970 in the second, and is right in the third.

    The second run crawls half of the pages. In the third run, all pages are found unchanged. No page seems to
    have been watched for fifty years, however often the second run was restarted.
    """
    store = MemoryStore()
    _, right = crawled(store, signals=False, start=50 * 365 * DAY)
    behind = 1.0
    for restart in range(2):
        wrong, batch = Schedule(STILL), store.batch()
        assert state.load(wrong, store, behind + 20 * restart * DAY).lead > 49 * 365 * DAY
        wrong.pace.rate = 60 / (10 * DAY)
        for step in range(1, 16):
            at = behind + (20 * restart + step) * DAY
            page = wrong.claim_next(at)
            wrong.record_outcome(page, at, RefreshOutcome.CHANGED)
            state.stage(wrong, page, batch)
        store.write(batch)
    known = {page: wrong.records.page_state(wrong.find(page))[5] for page in range(1000, 1060)}
    again, right, batch = Schedule(STILL), right + 40 * DAY, store.batch()
    assert state.load(again, store, right).lead == 0.0
    again.pace.rate = 60 / (10 * DAY)
    for step in range(1, 400):
        at = right + step * DAY / 6
        page = again.claim_next(at)
        again.record_outcome(page, at, RefreshOutcome.UNCHANGED)
        state.stage(again, page, batch)
    for fingerprint, watched in known.items():
        assert again.records.page_state(again.find(fingerprint))[5] - watched < 150 * DAY
    store.write(batch)
    after = Schedule(STILL)
    assert state.load(after, store, at).lead == 0.0
    for fingerprint in known:
        assert after.records.page_state(after.find(fingerprint)) == again.records.page_state(
            again.find(fingerprint)
        )


@pytest.mark.parametrize("restarts", [1, 2])
def test_a_first_run_with_a_clock_that_was_behind_adds_no_time_to_later_crawls(restarts: int) -> None:
    """The clock starts in 1970 in the first runs of the crawl, and is right in the later ones.

    No page seems to have been watched for fifty years. At the start with a right clock, each copy is as old as it
    was at the end of the last run. If the crawl is opened again later, the corrected instants are the same.
    """
    store, at = MemoryStore(), 1.0
    batch = store.batch()
    for restart in range(restarts):
        known, at = Schedule(STILL), at + DAY * restart
        known.pace.rate = 60 / (10 * DAY)
        assert state.load(known, store, at).lead == 0.0
        if restart == 0:
            for number in range(60):
                page = known.add(1000 + number, number % 4, 100 + number % 12, at, at, 1.0)
                state.stage(known, page, batch)
        for _ in range(20):
            at += DAY / 6
            page = known.claim_next(at)
            known.record_outcome(page, at, RefreshOutcome.CHANGED)
            state.stage(known, page, batch)
        store.write(batch)
        batch = store.batch()
    before = {row[0]: row for row in map(known.records.page_state, range(60))}
    right = clock_repair.EARLIEST + 400 * DAY
    again = Schedule(STILL)
    assert state.load(again, store, right) == (60, 0.0)
    again.pace.rate = known.pace.rate
    for fingerprint, row in before.items():
        found = again.records.page_state(again.find(fingerprint))
        assert right - found[3] == pytest.approx(at - row[3], abs=1.0)
    counted = [[each.records.site_state(site)[1][2] for site in range(4)] for each in (known, again)]
    ages = [(at - old, right - new) for old, new in zip(*counted, strict=True) if old > 1.0]
    assert ages and all(new == pytest.approx(old, abs=1.0) for old, new in ages)
    page = again.claim_next(right)
    again.record_outcome(page, right, RefreshOutcome.UNCHANGED)
    assert again.records.page_state(page)[5] - before[again.records.page_state(page)[0]][5] < 10 * DAY
    state.stage(again, page, batch)
    store.write(batch)
    later = Schedule(STILL)
    state.load(later, store, right + 5 * DAY)
    for fingerprint in before:
        found = (each.records.page_state(each.find(fingerprint))[3] for each in (again, later))
        assert np.ptp(list(found)) < 1.0


def test_a_pause_after_a_clock_that_was_ahead_is_time() -> None:
    """The clock is a year ahead in the first run, and right in the two later runs.

    The third run comes ten days after the second. It knows that the pages of the second run were crawled ten
    days ago.
    """
    store = MemoryStore()
    _, now = crawled(store, signals=False, start=365 * DAY)
    right = now - 365 * DAY
    second, batch = Schedule(STILL), store.batch()
    state.load(second, store, right)
    page = second.claim_next(right)
    second.record_outcome(page, right, RefreshOutcome.UNCHANGED)
    state.stage(second, page, batch)
    store.write(batch)
    third = Schedule(STILL)
    state.load(third, store, right + 10 * DAY)
    fingerprint = second.records.page_state(page)[0]
    assert third.records.page_state(third.find(fingerprint))[3] == right


def test_a_crash_restores_pages_in_flight() -> None:
    """After a crash during the fetch of a page, the page still has all signals since its last crawl."""
    schedule = Schedule(level=1e6, track=True)
    page = schedule.add(7, 1, 2, 0.0, 0.0)
    schedule.signals.note_change(page, 5.0, 1)
    before = schedule.records.page_state(page)
    assert schedule.claim_next(6.0) == page
    assert schedule.records.page_state(page) == before
    schedule.signals.note_change(page, 7.0, 1)
    assert schedule.records.page_state(page)[6] == before[6] * 2


@pytest.mark.parametrize("prefix", [keys.REFRESH, keys.REFRESH_SITE, keys.REFRESH_DIRECTORY])
def test_damaged_records_are_reported(prefix: bytes) -> None:
    for key, value in ((b"12345678", seal(b"short")), (b"12345678", b"no seal")):
        with pytest.raises(DamageError):
            state.load(Schedule(), MemoryStore({prefix + key: value}), 0.0)


def _alone(chunk: list[tuple[bytes, bytes]]) -> list[tuple[int, bytes]] | str:
    """Read the records one by one; return (fingerprint, payload) pairs or, for a damaged record, the error message."""
    try:
        return list(
            state._checked(chunk, keys.REFRESH, *(state._PAGE.size + more for more in state._PAGE_PARTS))
        )
    except DamageError as error:
        return str(error)


@pytest.mark.parametrize("seed", range(80))
def test_records_compared_by_column_are_those_read_alone(seed: int) -> None:
    """Reading many records by column gives the same result as reading them one by one, even if some are damaged.

    A record is damaged by a flipped bit, a wrong version, a key or value that is too long, or a missing end.
    """
    draw = random.Random(seed)
    payloads = [draw.randbytes(state._PAGE.size + draw.choice([0, *state._PAGE_PARTS])) for _ in range(9)]
    chunk = [(keys.REFRESH + draw.randbytes(8), seal(payload)) for payload in payloads]
    at = draw.randrange(9)
    key, value = chunk[at]
    bit = draw.randrange(8 * len(value))
    flipped = bytearray(value)
    flipped[bit // 8] ^= 1 << bit % 8
    chunk[at] = draw.choice([
        (key, value), (key, bytes(flipped)), (key, value[: draw.randrange(len(value))]), (key, value + b"x"),
        (key + b"x", value), (key[:-1], value), (key, seal(value[5:] + b"xx")),
    ])  # fmt: skip
    expected = _alone(chunk)
    if isinstance(expected, str):
        with pytest.raises(DamageError) as raised:
            state._page_rows(chunk)
        assert str(raised.value) == expected
        return
    fingerprints, rows, hubs = state._page_rows(chunk)
    assert fingerprints.tolist() == [fingerprint for fingerprint, _ in expected]
    names = list(state._PAGE_TYPE.names or ())
    assert [rows[name].tobytes() for name in names] == [
        np.frombuffer(b"".join(payload[: state._PAGE.size] for _, payload in expected), state._PAGE_TYPE)[
            name
        ].tobytes()
        for name in names
    ]
    assert hubs == [at for at, (_, payload) in enumerate(expected) if len(payload) > state._PAGE.size]
