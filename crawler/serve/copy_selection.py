"""Selects the copy that answers a request: the newest or the nearest to a given time, but never a withheld copy.

A capture that does not show the whole page, such as a temporary failure, does not hide other copies
(`pages.captures.is_copy`). Of two copies that are equally near, the earlier one is chosen, because only that
copy was current at the given time.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from crawler.clock import iso_time
from crawler.pages.captures import asks_no_archive, is_copy
from crawler.pages.holdings import HeldCopies, holding_of
from crawler.pages.withdrawals import Erased, Withdrawal
from crawler.records import Capture, PageRecord
from crawler.serve.http_error import HttpError

if TYPE_CHECKING:
    from crawler.consent.use_rule import UseRule
    from crawler.pages.archive import Archive

CAPTURES_MAX = 10_000  # maximum number of captures of a URL that are examined, the newest first


def nearest_copy(newest_first: Iterable[Capture], at: float) -> Capture | None:
    """Return the copy whose time is nearest to `at`."""
    best: Capture | None = None
    failure: Capture | None = None
    for number, capture in enumerate(newest_first):
        if number >= CAPTURES_MAX:
            break
        if not is_copy(capture):
            failure = _nearer(failure, capture, at)
            continue
        best = _nearer(best, capture, at)
        if capture.fetched_at <= at:  # the remaining captures are older, so they are further away from `at`
            break
    return best or failure


def _nearer(best: Capture | None, capture: Capture, at: float) -> Capture:
    if best is None or abs(capture.fetched_at - at) <= abs(best.fetched_at - at):
        return capture
    return best


def withheld(
    record: PageRecord | None, capture: Capture | None, withdrawn: Withdrawal | Erased | None
) -> str:
    """Return the reason why no copy of the page may be shown, or "" if copies may be shown."""
    if withdrawn is not None:
        return f"withdrawn: {withdrawal_in_words(withdrawn)}"
    if asks_no_archive(record, capture):
        return "noarchive: the page's author does not want copies to be shown"
    return ""


def refusal(
    rule: "UseRule | None", archive: "Archive", fingerprint: int, capture: Capture, record: PageRecord | None
) -> str:
    """Return why a copy may not be used as `rule` says; "" if it may be used."""
    found = None if rule is None else rule.refusal(archive.store, fingerprint, capture, record)
    return "" if found is None else found.why


def newest_held(
    archive: "Archive",
    fingerprint: int,
    url: str,
    record: PageRecord | None,
    rule: "UseRule | None",
    *,
    owner: bool,
    barred: str = "",
    with_noarchive: bool = False,
) -> tuple[Capture | None, HeldCopies | None]:
    """Return the newest copy of a URL in the archive of one process, and what the process has (`pages/holdings.py`).

    Args:
        rule: says which copies may be used.
        owner: the process owns the URL.
        barred: another reason why the copies are withheld; "" if there is none.
        with_noarchive: show pages that ask not to be archived.
    """
    capture = archive.newest_capture(fingerprint, record)
    withdrawn = archive.withdrawn(fingerprint, url, capture)
    why = barred or (
        withheld(None, None, withdrawn) if with_noarchive else withheld(record, capture, withdrawn)
    )
    if not why and capture is not None:
        why = refusal(rule, archive, fingerprint, capture, record)
    return capture, holding_of(capture, why, owner=owner)


def withdrawal_in_words(withdrawn: Withdrawal | Erased) -> str:
    """Tell users when and why a page was withdrawn, without the host, prefix or URL of the rule."""
    erased = isinstance(withdrawn, Erased) or withdrawn.erasing
    said = f": {withdrawn.reason}" if withdrawn.reason else ""
    return f"the operator {'erased' if erased else 'withdrew'} this page at {iso_time(withdrawn.at)}{said}"


def check_shown(
    record: PageRecord | None, capture: Capture | None, withdrawn: Withdrawal | Erased | None = None
) -> None:
    """Raise HttpError (451) if no copy may be shown."""
    if reason := withheld(record, capture, withdrawn):
        state, _, why = reason.partition(": ")
        raise HttpError(451, state, why)


def is_fresh(max_stale: float, age: float, probability: float | None, enough: float) -> bool:
    """Return whether a copy is at most `max_stale` seconds old, or its P(fresh) is at least `enough`."""
    return age <= max_stale or (probability is not None and probability >= enough)
