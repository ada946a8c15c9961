"""Provides the stored answers of earlier crawls, for a crawl that uses them again (`crawl.answers_from`)."""

import contextlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from crawler.errors import DamageError
from crawler.export.archives import Crawled, opened
from crawler.pages.captures import StoredPage

log = logging.getLogger("crawler")


class EarlierAnswer(NamedTuple):
    """A stored answer, and the number of seconds that its request took."""

    stored: StoredPage
    took: float


class EarlierAnswers:
    """Looks up answers in the crawl directories `folders`, in this order.

    The stores are copied, and the copies are read.

    Raises:
        DirectoryError: a folder has no crawl.
        DamageError: a store cannot be read.
    """

    def __init__(self, folders: Sequence[str]) -> None:
        self._held = contextlib.ExitStack()
        with contextlib.ExitStack() as opening:
            self._crawls: list[Crawled] = [opening.enter_context(opened(Path(each))) for each in folders]
            self._held = opening.pop_all()

    def find(self, url: str, length_max: int) -> EarlierAnswer | None:
        """Return the newest complete answer for a URL; None if there is none or its record exceeds `length_max` bytes.

        Answers that report a failure which may be temporary are not returned.
        """
        for crawled in self._crawls:
            for archive, record, capture in crawled.newest_copies(url):
                if capture.length > length_max:
                    continue
                try:
                    return EarlierAnswer(archive.read(capture, static=True), record.took if record else 0.0)
                except DamageError as error:
                    log.warning("%s; it is fetched again", error)
        return None

    def close(self) -> None:
        """Delete the copies of the stores."""
        self._held.close()
