# mypy: disable-error-code=valid-type
# cython: language_level=3, cdivision=True, boundscheck=False, wraparound=False, initializedcheck=False
"""Facts about pages that do not come from their fetches: importance, own parameters, age bounds, births, hubs, and
changed rules."""

import cython
from cython.cimports.crawler.freshness.learning import Learning
from cython.cimports.crawler.frontier.refresh.absences import RUNGS
from cython.cimports.crawler.frontier.refresh.flights import Flights, check_instant
from cython.cimports.crawler.frontier.refresh.level_controller import LevelController
from cython.cimports.crawler.frontier.refresh.queues import Queues
from cython.cimports.crawler.frontier.refresh.tables import NEW, Tables

from crawler.freshness.params import PageParameters
from crawler.freshness.recalibration import SiteSlope

_INFINITY = cython.declare(cython.double, float("inf"))
# If the first copy of a page shows fewer new URLs than this, the page becomes a hub only when one of its
# refetches finds a new page.
LINKS_LEAST = 4
LINKS_MOST = 1000  # more links than this do not increase the expected number of new pages
# A list of a whole site counts as if its first copy had shown this many more URLs. Without these additional
# URLs, no new pages would be expected on the front page or sitemap of a young site, which shows few URLs or
# none.
SITE_LIST_LINKS = 20


class Facts:
    """Records facts about pages in the parts of a schedule, and moves the deadlines of these pages."""

    def __init__(
        self,
        tables: Tables,
        controller: LevelController,
        queues: Queues,
        learning: Learning,
        flights: Flights,
    ) -> None:
        self.tables, self.controller, self.queues = tables, controller, queues
        self.learning, self.flights = learning, flights

    def set_importance(self, page: int, importance: float, now: float) -> None:
        """Set the importance of a page, and adjust the level to the importances of all pages."""
        self.flights.require_page(page)
        check_instant(now)
        check_importance(importance)
        roots: cython.double = self.tables.roots
        self.tables.set_importance(page, importance)
        self.controller.adjust(roots, self.tables.roots)
        if self.tables.owned:
            self.tables.own[page].importance = importance
        self.queues.reschedule(page, now)

    def set_page(self, page: int, parameters: PageParameters, now: float) -> None:
        """Set a page's own parameters. From now on, the results of its fetches do not change them."""
        self.flights.require_page(page)
        check_instant(now)
        p = parameters
        numbers = (p.importance, p.change_rate, p.silent_rate, p.signal_rate, p.false_rate)
        if not all(0.0 <= number < _INFINITY for number in numbers):
            raise ValueError(f"{parameters}: rates must be finite and not negative")
        self.tables.set_own(page, parameters)
        self.queues.reschedule(page, now)

    def note_new_rules(self, host: int) -> None:
        """Record that the robots.txt of a host has changed: recall the pages of the host that are away or failed."""
        self.flights.require_host(host)
        self.queues.absences.add_credit(host)
        self.queues.absences.recall(host, RUNGS, RUNGS)

    def set_slope(self, host: int, slope: SiteSlope) -> None:
        """Set the host's own part of the correction of P[fresh] (`freshness/recalibration.py`)."""
        self.flights.require_host(host)
        self.tables.host_rows[host].slope, self.tables.host_rows[host].slope_precision = slope

    def bound_ages(self, page: int, min_age: float, max_age: float) -> None:
        """Set age bounds of this page. From its next crawl on, these replace the bounds of the settings.

        Raises:
            ValueError: more than 255 different pairs, or bounds that contradict each other.
        """
        self.flights.require_page(page)
        if not 0.0 <= min_age <= max_age or min_age == _INFINITY or not max_age > 0.0:
            raise ValueError(f"invalid age bounds {min_age} .. {max_age}")
        self.tables.bound_ages(page, float(min_age), float(max_age))

    def note_birth(self, page: int) -> None:
        """Record that a page that was just added is new: it appeared while the crawl was watching its site."""
        self.flights.require_page(page)
        self.tables.states[page] |= NEW

    def expect_news(self, page: int, links: int, now: float) -> None:
        """Record that the first copy of a page contained `links` URLs that the crawl did not know.

        The page may show more new URLs later. For a list of a whole site, `links` includes `SITE_LIST_LINKS`.
        """
        self.flights.require_page(page)
        check_instant(now)
        if links >= LINKS_LEAST and self.tables.hubs.row_of(page) < 0:
            row: cython.int = self.tables.hubs.make(page, 0.0)
            self.tables.hubs.rows[row].links = min(links, LINKS_MOST)
            self.queues.reschedule(page, now)

    def credit_hub(self, page: int, found: float, now: float) -> None:
        """Credit a page with `found` new pages: a refetch of this page was the first to show their URLs."""
        self.flights.require_page(page)
        check_instant(now)
        if not 0.0 <= found < _INFINITY:
            raise ValueError(f"found {found}")
        if found > 0.0:
            host: cython.int = self.tables.owner(page)
            directory: cython.int = self.tables.page_heaps.nodes[page].owner
            watched: cython.double = self.tables.rows[page].watched
            shown: cython.bint = self.tables.hubs.has_shown(page)
            row: cython.int = self.tables.hubs.make(page, watched)
            self.tables.hubs.rows[row].found += found
            links: cython.double = self.tables.hubs.rows[row].links
            self.learning.discovery.credit(host, directory, found, now, shown, links)
            self.queues.reschedule(page, now)


def check_importance(importance: cython.double) -> cython.void:
    """Raise ValueError if an importance is negative or not finite."""
    if not 0.0 <= importance < _INFINITY:
        raise ValueError(f"importance {importance}")
