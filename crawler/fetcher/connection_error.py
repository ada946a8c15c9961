"""The failure to open a connection."""

import os
import re

from crawler.errors import CrawlerError
from crawler.records import Outcome


class ConnectionNotOpened(CrawlerError):
    """No connection; `outcome` says why."""

    def __init__(self, outcome: Outcome, message: str) -> None:
        super().__init__(message)
        self.outcome = outcome


def one_line(error: BaseException) -> str:
    """What an exception says, with its name."""
    text = " ".join((getattr(error, "strerror", None) or str(error)).split())
    if isinstance(error, OSError) and error.errno:  # the event loop's words for an error of the system
        text = re.sub(r"\[?Connect call failed \([^)]*\)\]?", os.strerror(error.errno), text)
    return f"{type(error).__name__}: {text}"[:300] if text else type(error).__name__
