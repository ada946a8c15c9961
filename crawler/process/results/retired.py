"""Retires waiting URLs (`crawler retire`), and finds the place of a known URL in the frontier."""

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

from crawler.due.eliminator import Eliminator
from crawler.frontier.frontier import Frontier
from crawler.process.committing import counters
from crawler.storage.commit import Change
from crawler.storage.keys import PARKED


def retiring(
    frontier: Frontier,
    now: Callable[[], float],
    matches: Callable[[str], object],
    commit: Callable[[Change], None],
) -> Generator[None, None, int]:
    """Drop matching to-do and parked URLs in portions, each with a `Change` for `commit`. Return their number."""
    count, begin = 0, PARKED
    while begin:
        change = Change()
        gone, begin = frontier.intake.retire_some(matches, change, begin)
        counters.count_retired(change, gone)
        change.after.append(partial(_tell_written, frontier, now, change))
        if gone:
            commit(change)
        count += gone
        yield
    return count


def _tell_written(frontier: Frontier, now: Callable[[], float], change: Change) -> None:
    frontier.committed(change, now())


def queue_entry(due: Eliminator, frontier: Frontier, url: str, fingerprint: int) -> dict[str, Any] | None:
    """Return the queue entry of a known URL (request form) that has no page record; {} if it is in no queue.

    Return None if the URL is not known, if it has not reached a queue yet, or if its host's queue is too long
    to be read in one turn of the loop.
    """
    if fingerprint not in due.known_set or due.waits(fingerprint):
        return None
    try:
        next(frontier.views.entry(url))
    except StopIteration as read:
        found: dict[str, Any] = read.value
        return found
    return None


def is_retired(due: Eliminator, frontier: Frontier, url: str, fingerprint: int) -> bool:
    """Return whether a URL (request form) that has no page record is known, but is certainly in no queue.

    Only `crawler retire` takes a URL out of a queue without leaving a page record.
    """
    return queue_entry(due, frontier, url, fingerprint) == {}
