# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False, initializedcheck=False
"""The stored form of a schedule, and its restoration: pages, hubs, sites, directories (`state.py`)."""

from collections.abc import Sequence
from math import isfinite

import cython
import numpy as np
from cython.cimports.crawler.freshness.learning import Learning
from cython.cimports.crawler.frontier.refresh.flights import Flights
from cython.cimports.crawler.frontier.refresh.level_controller import RATIO_MAX
from cython.cimports.crawler.frontier.refresh.tables import (
    AWAY,
    DOUBLING,
    FAILED,
    NEW,
    UNSTEADY,
    WITHHELD,
    Tables,
)


class Records:
    """The learned state of a schedule, as plain numbers.

    Deadlines are not included, because they are computed from this state. Only the wait of a page whose fetch failed,
    or that was recalled, is included, because it does not begin at the last crawl.
    """

    def __init__(self, tables: Tables, learning: Learning, flights: Flights) -> None:
        self.tables, self.learning, self.flights = tables, learning, flights

    @property
    def bias(self) -> tuple[float, ...]:
        """Return four decaying sums (`freshness/biases.py`), the factor of variations and its information, and the log
        odds of restless pages and their information.

        The sums are the found and the expected number of all changes, and the same two numbers for changes without
        a signal. `freshness/change_rates.py` describes the factor.
        """
        factors = self.learning.rates.factor_state()
        return (*self.learning.biases.sums(), *factors, *self.learning.restless.state())

    @bias.setter
    def bias(self, sums: tuple[float, ...]) -> None:
        self.learning.biases.restore(*sums[:4])
        self.learning.rates.restore_factor(*sums[4:6])
        self.learning.restless.restore(*sums[6:])

    def is_away(self, page: int) -> bool:
        """Return whether the last fetch of a page found it away."""
        self.flights.require_page(page)
        return self.tables.states[page] & AWAY != 0

    def page_state(self, page: int) -> tuple[int, int, int, float, float, float, int, float, int]:
        """Return a page's fingerprint, keys of host and directory, last crawl, k, T, signals, importance, state."""
        self.flights.require_page(page)
        directory: cython.int = self.tables.page_heaps.nodes[page].owner
        state: cython.uint = self.tables.states[page]
        return (
            self.tables.pages.key_of(page),
            self.tables.hosts.key_of(self.tables.owner(page)),
            self.tables.directories.key_of(directory),
            self.tables.crawled[page],
            self.tables.rows[page].changes,
            self.tables.rows[page].watched,
            self.flights.signals_since_crawl(page),
            self.tables.importance(page),
            state & (AWAY | FAILED | 7 * DOUBLING if state & (AWAY | FAILED) else NEW | UNSTEADY),
        )

    def hub_state(self, page: int) -> tuple[float, float, float]:
        """Return (pages found, seconds watched, links of the first copy).

        For a page that is not a hub, all three are 0.
        """
        self.flights.require_page(page)
        found: tuple[float, float, float] = self.tables.hubs.state(page)
        return found

    def trust_state(self, page: int) -> int:
        """Return the evidence for the page's signals, in units of 1/16 nat; 0 if its signals were never judged."""
        self.flights.require_page(page)
        return int(self.tables.trusts[page])

    def restore_trust(self, page: int, trust: int) -> None:
        """Restore a result of `trust_state`, which is between -128 and 127."""
        self.flights.require_page(page)
        self.tables.trusts[page] = trust

    def unrest_state(self, page: int) -> int:
        """Return the evidence that the page is restless, or that its rate has turned, in units of 1/16 nat."""
        self.flights.require_page(page)
        return int(self.tables.unrests[page])

    def restore_unrest(self, page: int, unrest: int) -> None:
        """Restore a result of `unrest_state`, which is between -127 and 127."""
        self.flights.require_page(page)
        self.tables.unrests[page] = min(max(unrest, -127), 127)

    def retry_state(self, page: int) -> float:
        """Return the time from the last crawl of a failed or recalled page to the end of its wait.

        For a page that does not wait for this reason, return 0.
        """
        self.flights.require_page(page)
        state: cython.uint = self.tables.states[page]
        if not (state & FAILED and state & WITHHELD):
            return 0.0
        return self.tables.page_heaps.nodes[page].key - self.tables.crawled[page]

    def restore_retry(self, page: int, wait: float, now: float) -> None:
        """Restore a result of `retry_state` at `now`.

        The page is not withheld for longer than the longest wait that its state can stand for.
        """
        self.flights.require_page(page)
        state: cython.uint = self.tables.states[page]
        if not state & FAILED or not isfinite(wait):
            raise ValueError(f"wait {wait} of page {page} in {self.flights!r}")
        longest: cython.double = self.flights.queues.retry_age * (1 << (state // DOUBLING))
        self.flights.queues.leave(page, now)
        self.flights.queues.withhold(page, min(self.tables.crawled[page] + wait, now + longest))

    def site_state(self, host: int) -> tuple[int, list[float]]:
        """Return (the host's key, numbers of its site).

        The number in brackets is the number of values of a kind: clock (3), signals (18), boost (1), credence
        (3), hubs (3), exposure (1), pages judged (2), changes (1), score of the number of signals (1), bad pages
        (5), score of the two kinds of pages (1), own part of the correction of P[fresh] (2). If the site has a
        weekly rhythm, the numbers of the rhythm follow.
        """
        self.flights.require_host(host)
        sites = self.learning.sites
        counts = [sites.observed_counts[host], sites.expected_counts[host], sites.instants[host]]
        credence = self.learning.credence
        trials = [credence.agreements[host], credence.weights[host], credence.scores[host]]
        sums = self.learning.quality.sums_of(host).tolist()
        return self.tables.hosts.key_of(host), [
            *counts,
            *sums[:18],
            self.tables.host_rows[host].boost,
            *trials,
            *self.learning.discovery.site_state(host),
            *sums[18:],
            self.tables.host_rows[host].slope,
            self.tables.host_rows[host].slope_precision,
            *self.learning.seasons.state(host),
        ]

    def directory_state(self, page: int) -> tuple[int, tuple[float, ...]]:
        """Return the key of the page's directory, its neighbourhood counts (3 numbers) and its new pages (3 numbers)."""
        self.flights.require_page(page)
        number: cython.int = self.tables.page_heaps.nodes[page].owner
        groups = self.learning.directories
        counts = (groups.observed_counts[number], groups.expected_counts[number], groups.instants[number])
        return self.tables.directories.key_of(number), (
            *counts,
            *self.learning.discovery.directory_state(number),
        )

    def restore_site(self, host_key: int, numbers: np.ndarray) -> None:
        """Restore what `site_state` returned."""
        _finite(numbers)
        host: cython.int = self.tables.host(host_key)
        self.learning.sites.restore(host, *numbers[:3])
        self.learning.quality.restore(host, np.append(numbers[3:21], numbers[28:39]))
        self.tables.host_rows[host].boost = min(max(numbers[21], 1.0), RATIO_MAX)
        self.learning.credence.restore(host, *numbers[22:25])
        self.learning.discovery.restore_site(host, *numbers[25:28])
        self.tables.host_rows[host].slope, self.tables.host_rows[host].slope_precision = numbers[39:41]
        self.learning.seasons.restore(host, numbers[41:])

    def restore_hub(self, page: int, found: float, watched: float, links: float) -> None:
        """Restore the result of `hub_state`, and add it to the sums of the site."""
        self.flights.require_page(page)
        _finite((found, watched, links))
        self.tables.hubs.restore(page, found, watched, links)
        if links > 0.0:
            host, crawled = self.tables.owner(page), self.tables.crawled[page]
            self.learning.discovery.note_links(host, found, links * watched, crawled)

    def restore_directory(
        self, directory_key: int, host_key: int, counts: tuple[float, ...], news: tuple[float, ...]
    ) -> None:
        """Restore the result of `directory_state`, before any page of the directory is added."""
        _finite(counts)
        _finite(news)
        directory: cython.int = self.tables.directories.find(directory_key)
        if directory < 0:
            directory = self.tables.new_directory(directory_key, self.tables.host(host_key))
        self.learning.directories.restore(directory, *counts)
        self.learning.discovery.restore_directory(directory, *news)


def _finite(numbers: Sequence[float] | np.ndarray) -> None:
    if not all(map(isfinite, numbers)) or min(numbers[:2]) < 0.0:
        raise ValueError("counts must be finite and not negative")
