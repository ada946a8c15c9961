"""Test the selection of the copy that answers a request."""

from collections.abc import Iterable

import pytest

from crawler.pages.captures import newest_of
from crawler.pages.withdrawals import Erased, Withdrawal
from crawler.records import Capture, Outcome, PageRecord, PageState
from crawler.serve import copy_selection
from crawler.serve.http_error import HttpError


def choose_copy(newest_first: Iterable[Capture], at: float | None) -> Capture | None:
    return newest_of(newest_first) if at is None else copy_selection.nearest_copy(newest_first, at)


def capture(instant: float, status: int = 200, **values: object) -> Capture:
    return Capture(
        "s", int(instant), 1, "response", instant, status, "text/html", b"d", "http://a.example/", **values
    )  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("instants", "at", "expected"),
    [
        ([30, 20, 10], None, 30),
        ([30, 20, 10], 0, 10),
        ([30, 20, 10], 99, 30),
        ([30, 20, 10], 20, 20),
        ([30, 20, 10], 24, 20),
        ([30, 20, 10], 26, 30),
        ([30, 20, 10], 25, 20),  # both copies are equally near, so the earlier one is chosen
        ([], None, None),
        ([], 5, None),
    ],
)
def test_the_newest_or_nearest_copy_is_chosen(
    instants: list[float], at: float | None, expected: float | None
) -> None:
    chosen = choose_copy(map(capture, instants), at)
    assert (None if chosen is None else chosen.fetched_at) == expected


def test_a_temporary_failure_hides_no_copy() -> None:
    copies = [capture(30, 503), capture(10, 200)]
    for at in (None, 30.0, 29.0):
        chosen = choose_copy(copies, at)
        assert chosen is not None and chosen.fetched_at == 10
    only = choose_copy([capture(30, 503)], 1.0)
    assert only is not None and only.status == 503


def test_only_the_newest_copies_are_examined() -> None:
    seen = []

    def copies():
        for instant in range(10 * copy_selection.CAPTURES_MAX, 0, -1):
            seen.append(instant)
            yield capture(instant)

    assert choose_copy(copies(), 1.0) is not None
    assert len(seen) == copy_selection.CAPTURES_MAX + 1


def record(**values: object) -> PageRecord:
    return PageRecord("http://a.example/", PageState.STORED, Outcome.FETCHED, **values)  # type: ignore[arg-type]


def test_noarchive_and_withdrawn_pages_are_withheld() -> None:
    copy_selection.check_shown(record(), capture(1))
    copy_selection.check_shown(None, None)
    for page, copy, withdrawn in [
        (record(noarchive=True), capture(1), None),
        (record(), capture(1, noarchive=True), None),
        (record(), capture(1), Withdrawal(1.0, host="a.example", reason="asked for")),
        (None, None, Withdrawal(1.0, host="a.example", erasing=True, reason="asked for")),
        (None, None, Erased("digest", 1.0, "asked for")),
    ]:
        with pytest.raises(HttpError) as caught:
            copy_selection.check_shown(page, copy, withdrawn)
        assert caught.value.status == 451
        assert ("asked for" in str(caught.value.body)) == (withdrawn is not None)


@pytest.mark.parametrize(
    ("max_stale", "age", "probability", "shown"),
    [
        (10.0, 10.0, 0.0, True),
        (10.0, 10.1, None, False),
        (10.0, 10.1, 0.94, False),
        (10.0, 10.1, 0.95, True),
        (0.0, 0.0, None, True),
    ],
)
def test_stale_copies_are_refused_unless_probably_fresh(
    max_stale: float, age: float, probability: float | None, shown: bool
) -> None:
    assert copy_selection.is_fresh(max_stale, age, probability, 0.95) == shown
