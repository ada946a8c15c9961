"""Exceptions that nobody expected: each place that raises them is logged once with its traceback.

What the world sends may bring out a bug of ours, or of a library. Such a bug
must end neither the process nor silently: the work at hand ends in a counted
outcome (`internal_error`), and the log says where, once a kind and place; a
million pages with the same bug write one traceback.
"""

import logging
from traceback import walk_tb

log = logging.getLogger("crawler")

PLACES_MAX = 1000  # kinds and places remembered; beyond that nothing more is logged


class Unexpected:
    """Tells exceptions apart by type and by the line that raised them; `counts` says how often each came."""

    def __init__(self) -> None:
        self.counts: dict[tuple[str, str, int], int] = {}

    def note(self, error: BaseException, where: str) -> str:
        """Log `error` if it is the first of its kind and place; return it in one line."""
        text = f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]
        key = _place(error)
        count = self.counts.get(key, 0)
        if not count and len(self.counts) >= PLACES_MAX:
            return text
        self.counts[key] = count + 1
        if not count:
            log.error("%s: unexpected %s. Please report this", where, text, exc_info=error)
        return text

    def __repr__(self) -> str:
        return f"Unexpected({len(self.counts)} places, {sum(self.counts.values())} times)"


def _place(error: BaseException) -> tuple[str, str, int]:
    """Type of the exception, and file and line of its innermost frame."""
    file, line = "", 0
    for frame, number in walk_tb(error.__traceback__):
        file, line = frame.f_code.co_filename, number
    return type(error).__qualname__, file, line
