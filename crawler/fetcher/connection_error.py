"""The error for a connection that could not be opened."""

import os
import re

from crawler.errors import CrawlerError
from crawler.records import Outcome


class ConnectionNotOpened(CrawlerError):
    """No connection could be opened; `outcome` gives the reason."""

    def __init__(self, outcome: Outcome, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome


def one_line(error: BaseException) -> str:
    """Return an exception's name and message on one line."""
    text = " ".join((getattr(error, "strerror", None) or str(error)).split())
    if isinstance(error, OSError) and error.errno:  # replace the event loop's wording with the system's
        text = re.sub(r"\[?Connect call failed \([^)]*\)\]?", os.strerror(error.errno), text)
    return f"{type(error).__name__}: {text}"[:300] if text else type(error).__name__
