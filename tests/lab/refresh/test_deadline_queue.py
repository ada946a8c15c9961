"""The deadline queue: random operations with `_check`, special pages, and the level it finds."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.freshness.crawl_value import crawl_value, threshold
from crawler.freshness.params import PageParameters, Pages
from crawler.lab.refresh.deadline_queue import DeadlineQueue

KINDS = [
    PageParameters(1.0, 0.3),
    PageParameters(2.0, 0.5, 0.5, 0.3),
    PageParameters(1.0, 0.5, 0.5, 0.0),  # one signal is certain
    PageParameters(1.0, 0.5, 1.0, 0.4),  # nothing changes silently
    PageParameters(1.0, 0.5, 1.0, 0.0),  # perfect signals
    PageParameters(1.0, 0.5, 0.0, 0.4),  # worthless signals
    PageParameters(1.0, 0.0, 0.5, 0.1),  # never changes
    PageParameters(0.01, 9.0, 0.2, 0.1),  # hardly ever worth it
]
steps = st.lists(
    st.tuples(
        st.sampled_from(
            ["add", "remove", "change", "signal", "signal", "take", "take", "settle", "give_back"]
        ),
        st.integers(0, 5),
        st.integers(0, len(KINDS) - 1),
        st.floats(0.0, 2.0),
    ),
    max_size=60,
)


@given(steps, st.sampled_from([0.0, 0.3, 5.0]), st.sampled_from([math.inf, 4.0]))
@settings(max_examples=100)
def test_any_sequence_of_events_keeps_the_invariants(
    events: list[tuple[str, int, int, float]], level: float, max_age: float
) -> None:
    queue = DeadlineQueue(6, level=level, max_age=max_age)
    present: set[int] = set()
    flying: list[int] = []
    now = 0.0
    for event, number, kind, wait in events:
        now += wait
        if event == "add" and number not in present:
            queue.add(number, KINDS[kind], now, now)
            present.add(number)
        elif event == "remove" and number in present:
            queue.remove(number)
            present.discard(number)
            flying = [other for other in flying if other != number]
        elif event == "change" and number in present:
            queue.change(number, KINDS[kind], now)
        elif event == "signal":
            queue.signal(number, now)
        elif event == "take":
            taken = queue.take(now)
            if taken >= 0:
                assert taken in present and taken not in flying
                flying.append(taken)
        elif flying and event in ("settle", "give_back"):
            getattr(queue, event)(flying.pop(0), now)
        queue._check()
        assert len(queue) == len(present)


def test_takes_pages_in_the_order_of_their_deadlines() -> None:
    pages = [PageParameters(1.0, 0.2), PageParameters(1.0, 0.4), PageParameters(1.5, 0.3)]
    queue = DeadlineQueue.of(Pages.of(pages), level=0.5)
    assert queue.next_wakeup() == pytest.approx(min(threshold(page, 0.5) for page in pages), rel=1e-3)
    order = sorted(range(3), key=lambda number: threshold(pages[number], 0.5))
    assert [queue.take(0.01), queue.take(0.02), queue.take(0.03), queue.take(0.04)] == [*order, -1]


def test_a_signal_moves_the_deadline_by_its_time_equivalent() -> None:
    page = PageParameters(1.0, 0.4, 0.5, 0.5)
    queue = DeadlineQueue.of(Pages.of([page]), level=1.0)
    before = queue.next_wakeup()
    assert before == pytest.approx(threshold(page, 1.0), rel=1e-3)
    queue.signal(0, 0.1)
    assert queue.next_wakeup() == pytest.approx(before - page.signal_time, rel=1e-9)
    for _ in range(20):
        queue.signal(0, 0.2)
    assert queue.next_wakeup() == 0.2  # due from the signal on, not from its past deadline


def test_a_certain_signal_makes_a_page_due() -> None:
    queue = DeadlineQueue.of(
        Pages.of([PageParameters(1.0, 0.4, 0.5, 0.0), PageParameters(1.0, 0.4)]), level=2.4
    )
    queue.signal(0, 0.5)
    assert queue.next_wakeup() == 0.5
    assert queue.take(0.6) == 0


def test_numbers_of_signals_decide_where_nothing_changes_silently() -> None:
    page = PageParameters(1.0, 0.4, 1.0, 0.8)
    needed = int(threshold(page, 1.5))
    assert needed >= 2
    queue = DeadlineQueue.of(Pages.of([page]), level=1.5)
    for _ in range(needed - 1):
        queue.signal(0, 1.0)
    assert queue.next_wakeup() == math.inf
    queue.signal(0, 1.0)
    assert queue.next_wakeup() == 1.0


def test_signals_shortly_after_a_crawl_can_be_discarded() -> None:
    queue = DeadlineQueue.of(Pages.of([PageParameters(1.0, 0.4, 0.5, 0.0)]), level=1.0, discard_window=0.5)
    queue.signal(0, 0.4)
    assert queue.next_wakeup() > 1.0
    queue.signal(0, 0.6)
    assert queue.next_wakeup() == 0.6


def test_signals_during_a_crawl_count_afterwards() -> None:
    queue = DeadlineQueue.of(Pages.of([PageParameters(1.0, 0.4, 0.5, 0.0)]), level=1.0)
    assert queue.take(5.0) == 0
    queue.signal(0, 5.1)
    queue.settle(0, 5.2)
    assert queue.next_wakeup() == 5.2


def test_a_page_given_back_is_due_as_before() -> None:
    queue = DeadlineQueue.of(Pages.of([PageParameters(1.0, 0.4)]), level=1.0)
    due = queue.next_wakeup()
    assert queue.take(1.0) == 0 and queue.take(1.0) == -1
    queue.give_back(0, 1.5)
    assert queue.next_wakeup() == pytest.approx(due, rel=1e-2)


def test_max_age_crawls_even_pages_that_are_worth_nothing() -> None:
    queue = DeadlineQueue.of(
        Pages.of([PageParameters(0.0, 5.0), PageParameters(1.0, 0.0)]), level=1.0, max_age=7.0
    )
    assert queue.next_wakeup() == 7.0
    assert {queue.take(7.0), queue.take(7.1)} == {0, 1}


def test_pages_that_never_change_are_never_taken() -> None:
    assert DeadlineQueue.of(Pages.of([PageParameters(1.0, 0.0)])).take(1e9) == -1
    assert DeadlineQueue(0).take(0.0) == -1


def test_grows() -> None:
    queue = DeadlineQueue(1, level=0.5)
    queue.add(0, PageParameters(1.0, 0.5), 0.0, 0.0)
    queue.grow(3)
    queue.add(2, PageParameters(1.0, 0.4), 0.0, 0.0)
    queue._check()
    assert len(queue) == 2 and "2 pages" in repr(queue)


def test_wrong_use_is_a_bug() -> None:
    queue = DeadlineQueue(2)
    queue.add(0, PageParameters(1.0, 0.5), 0.0, 0.0)
    for wrong in (
        lambda: queue.add(0, PageParameters(1.0, 0.5), 0.0, 0.0),
        lambda: queue.add(2, PageParameters(1.0, 0.5), 0.0, 0.0),
        lambda: queue.remove(1),
        lambda: queue.change(1, PageParameters(1.0, 0.5), 0.0),
    ):
        with pytest.raises(RuntimeError):
            wrong()


@pytest.mark.parametrize("start", [0.05, 0.0, 5.0])
def test_the_level_finds_itself_and_taken_pages_are_worth_it(start: float) -> None:
    """From far off, 30 pages: in the end half the picks have a value near the level.

    With so few pages some come too early: work conserving.
    """
    rng = np.random.default_rng(1)
    pages = Pages(rng.random(30), rng.random(30), rng.beta(0.25, 0.25, 30), rng.uniform(0.1, 0.6, 30))
    queue, values = DeadlineQueue.of(pages, level=start), []
    last, counts = np.zeros(30), np.zeros(30, dtype=int)
    for tick in range(1, 901):
        now = tick / 5
        for number in np.flatnonzero(rng.random(30) < pages.signal_rate / 5):
            queue.signal(number, now)
            counts[number] += 1
        taken = queue.take(now)
        values.append(crawl_value(pages[taken], now - last[taken], int(counts[taken])) / queue.level)
        last[taken], counts[taken] = now, 0
        queue.settle(taken, now)
    queue._check()
    assert 0.9 < np.median(values[700:]) < 1.3
