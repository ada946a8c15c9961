"""Opens the refresh schedule of a stored crawl (at rest or in a snapshot), for queries about the copies of its pages.

    store --Refresh.open--> schedule, recalibration --RefreshViews.probability--> P[the copy is current]

A running crawl queries its own `Refresh`. `unopened` makes the `Refresh` of a stored view and that of a
running crawl from the same configuration. A stored view and a running crawl rebuild the schedule with the
same code and use the same formula, so both state the same probability that a copy is current. Opening a
stored view takes about 3 us per page.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from crawler.config import Config
from crawler.config.overrides import Overrides
from crawler.errors import ConfigError
from crawler.frontier.refresh.importance import Importance, read_values
from crawler.records import PageRecord
from crawler.storage.keys import REFRESH
from crawler.storage.kv import KeyValue, scan_prefix
from crawler.urls.fingerprint import Fingerprinter

if TYPE_CHECKING:
    from crawler.frontier.refresh.refreshing import Refresh

logger = logging.getLogger(__name__)

Stored = Callable[[], Iterable[tuple[int, Callable[[], PageRecord]]]]


def has_schedule(store: KeyValue) -> bool:
    """Return whether any page of a store was ever scheduled for a refresh."""
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
) -> "Refresh | None":
    """Return the schedule of a store, for queries only. Return None if the store never had a schedule.

    Args:
        record: returns the page record of a fingerprint.
        stored: yields (fingerprint, function that reads its record) of all records.
        processes: the number of processes of the crawl, which share its rate.

    Raises:
        DamageError: a record is damaged.
    """
    if not has_schedule(store):
        return None
    try:
        values = read_values(config.refresh.importance_file, fingerprinter.fingerprint)
    except ConfigError as error:  # a program that only reads the store can do without the importance file
        logger.warning("%s; pages that are not in the schedule yet have the usual importance", error)
        values = {}
    view = unopened(config, fingerprinter, record, values, processes=processes, name=name)
    view.open(store, stored, now)
    return view


def unopened(
    config: Config,
    fingerprinter: Fingerprinter,
    record: Callable[[int], PageRecord | None],
    values: Mapping[int, float],
    *,
    processes: int,
    name: str,
    is_disallowed: Callable[[str], bool] = lambda url: True,
) -> "Refresh":
    """Return a new `Refresh` object, which has not read the store yet. Its process may be running or not.

    Args:
        values: the values in the importance file, by fingerprint.
        is_disallowed: whether the robots.txt that was fetched last forbids a URL. A stored view does not ask, because
            it receives no signals.
    """
    from crawler.frontier.refresh.refreshing import (
        Refresh,
    )  # imported here, because a crawl without refresh does not need it

    return Refresh(
        config.refresh,
        record=record,
        hash=fingerprinter.hash,
        host_key=fingerprinter.host_key_beside,
        fingerprint=fingerprinter.fingerprint,
        importance=Importance(config.refresh, values),
        overrides=Overrides(config.override),
        is_disallowed=is_disallowed,
        rate=config.crawl.rate,
        name=name,
        processes=processes,
    )
