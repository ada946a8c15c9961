"""Select the captures to export, and the newest copy of each page.

A capture flagged `noarchive` is left out unless it is asked for.
"""

from collections.abc import Callable, Iterator, Sequence

from crawler.errors import DamageError
from crawler.pages.archive import Archive
from crawler.pages.captures import StoredPage
from crawler.records import Capture

Select = Callable[[Capture], bool]
Say = Callable[[str], None]


def selection(*, with_noarchive: bool = False, since: float = 0.0, until: float = float("inf")) -> Select:
    """Return a test for captures to export: by directive and time (seconds, `since` included, `until` not)."""
    return lambda capture: (with_noarchive or not capture.noarchive) and since <= capture.fetched_at < until


def ignore(message: str) -> None:
    """Report nothing."""


def shows_content(capture: Capture) -> bool:
    """Return whether a capture may hold a page's content: 2xx, or a 304 that confirms one."""
    return 200 <= capture.status < 300 or capture.status == 304


def newest_pages(
    archives: Sequence[Archive], select: Select, *, report: Say = ignore
) -> Iterator[tuple[int, StoredPage]]:
    """Yield (fingerprint, newest copy) for each URL whose newest copy is selected and has a 2xx status."""
    for archive in archives:
        for fingerprint, capture in archive.newest_captures():
            if not select(capture) or not shows_content(capture):
                continue
            try:
                page = archive.read(capture)
            except DamageError as error:
                report(str(error))
                continue
            if 200 <= page.status < 300:  # otherwise a 304 that confirms no stored response
                yield fingerprint, page
