"""Detection of URLs that `crawler retire` removed."""

from crawler.due.eliminator import Eliminator
from crawler.frontier.frontier import Frontier


def is_retired(due: Eliminator, frontier: Frontier, url: str, fingerprint: int) -> bool:
    """Return whether a URL (request form) without a page record is known but in no queue.

    `crawler retire` is the only way out of a queue without a record. Return False if
    the queue of the URL's host is too long to be read in one turn of the loop.
    """
    if not due.contains(fingerprint) or due.waits(fingerprint):
        return False
    try:
        next(frontier.views.entry(url))
    except StopIteration as read:
        return not read.value
    return False
