"""What a store says of its copies, of a crawl at rest or in a snapshot: the schedule of a run, opened only to be asked.

    store --Refresh.open--> schedule, recalibration --RefreshViews.probability--> P[the copy is current]

A running crawl asks its own `Refresh` the same question. There is one way to rebuild the schedule and one
formula, so a page's probability does not depend on who asks. Opening costs some 3 us a page.
"""

from collections.abc import Callable, Iterable

from crawler.config import Config
from crawler.frontier.refresh.refreshing import Refresh
from crawler.records import PageRecord
from crawler.storage.keys import REFRESH
from crawler.storage.kv import KeyValue, scan_prefix
from crawler.urls.fingerprint import Fingerprinter

Stored = Callable[[], Iterable[tuple[int, Callable[[], PageRecord]]]]


def has_schedule(store: KeyValue) -> bool:
    """Whether any page of a store was ever scheduled for a refresh."""
    return next(iter(scan_prefix(store, REFRESH)), None) is not None


def stored_view(
    store: KeyValue,
    config: Config,
    fingerprinter: Fingerprinter,
    record: Callable[[int], PageRecord | None],
    stored: Stored,
    now: float,
    *,
    processes: int = 1,
    name: str = "p0",
) -> Refresh | None:
    """Return the schedule of a store, to be asked but not worked with; None if nothing was ever refreshed.

    Args:
        record: the page record of a fingerprint.
        stored: (fingerprint, what reads its record) of all records.
        processes: of the crawl, which share its rate.

    Raises:
        DamageError: a record is not whole.
    """
    if not has_schedule(store):
        return None
    view = Refresh(
        config.refresh,
        record=record,
        hash=fingerprinter.hash,
        host_key=fingerprinter.host_key_beside,
        fingerprint=fingerprinter.fingerprint,
        rate=config.crawl.rate / processes,
        name=name,
    )
    view.open(store, stored, now)
    return view
