"""Chooses the copy of a page that answers: the newest, or the nearest to an instant; never one that is withheld.

A capture that shows no whole page, such as a temporary failure, hides no other copy
(`pages.captures.is_copy`). Of two copies equally near the earlier one is taken: it was true at the instant, the later one
was not yet.
"""

from collections.abc import Iterable

from crawler.pages.captures import is_copy, newest_of
from crawler.records import Capture, PageRecord, PageState
from crawler.serve.http_error import HttpError

CAPTURES_MAX = 10_000  # of one URL that are looked at; the newest ones


def choose_copy(newest_first: Iterable[Capture], at: float | None) -> Capture | None:
    """The copy that answers a request for the instant `at`, None = now; None if there is no copy."""
    return newest_of(newest_first) if at is None else nearest_copy(newest_first, at)


def nearest_copy(newest_first: Iterable[Capture], at: float) -> Capture | None:
    """The copy whose instant is nearest to `at`."""
    best: Capture | None = None
    failure: Capture | None = None
    for number, capture in enumerate(newest_first):
        if number >= CAPTURES_MAX:
            break
        if not is_copy(capture):
            failure = _nearer(failure, capture, at)
            continue
        best = _nearer(best, capture, at)
        if capture.fetched_at <= at:  # all that follow are older, so further away
            break
    return best or failure


def _nearer(best: Capture | None, capture: Capture, at: float) -> Capture:
    if best is None or abs(capture.fetched_at - at) <= abs(best.fetched_at - at):
        return capture
    return best


def withheld(record: PageRecord | None, capture: Capture | None) -> str:
    """Why no copy of the page may be shown, "" if one may.

    `noarchive` of the latest answer holds for all copies: its author wants
    none to be shown.
    """
    if record is not None and record.state is PageState.RETIRED:
        return "retired: the operator removed this page"
    if (record is not None and record.noarchive) or (capture is not None and capture.noarchive):
        return "noarchive: the page's author does not want copies to be shown"
    return ""


def check_shown(record: PageRecord | None, capture: Capture | None) -> None:
    """Raises Refusal (451) where no copy may be shown."""
    if reason := withheld(record, capture):
        state, _, why = reason.partition(": ")
        raise HttpError(451, state, why)


def check_fresh(
    max_stale: float | None, age: float, probability: float | None, enough: float, queued: bool
) -> None:
    """Raises Refusal (504) if the copy is older than `max_stale` and not fresh with probability `enough`."""
    if max_stale is None or age <= max_stale or (probability is not None and probability >= enough):
        return
    more = {} if probability is None else {"fresh_probability": round(probability, 3)}
    raise HttpError(
        504,
        "stale",
        f"the copy is {age:.0f} s old",
        age=round(age),
        queued=queued,
        **more,
    )
