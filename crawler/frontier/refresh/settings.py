"""The settings of the refresh schedule, the outcomes from which it learns, and the views that show its state."""

import math
from enum import IntEnum

import msgspec

from crawler.errors import UsageError
from crawler.freshness.recalibration import Hearing, SiteSlope

DAY = 86_400.0
POLICIES = ("ncis", "greedy", "cis", "azar-lds", "uniform", "interval")
BY_LEVEL = ("ncis", "greedy", "cis")  # policies whose level is a gain in freshness


class Settings(msgspec.Struct, frozen=True):
    """The settings of a schedule. All times are in one unit, which is seconds in a crawl.

    policy: the order in which pages are taken (`frontier/README.md`, "Refresh").
    neighbourhood: a page's clock runs faster while its directory and site are changing.
    pooling: rates and signal quality are learned by site and crawl; otherwise each page has its own
        (`Schedule.set_page`), and signals are counted regardless of their source.
    explore: share of the fetches that go to pages that teach most, and to pages longest unvisited. min_age, max_age:
    minimum and maximum time between two crawls of a page. discard_window: signals that arrive this soon after
    a crawl are ignored: the crawl has seen their change. clock_min, clock_max: bounds of the neighbourhood's
    time constant. first_interval: the initial interval of the policy `interval`. retry_age: the wait of a
    page that failed; it doubles with each further failure. It is also the first wait of a page that is away
    (gone, moved or denied). gone_age: the longest wait of a page that is away. gain: relative step of the level per take.
    new_page_weight: importance of an unknown page relative to a known page of its host; 0: hubs are ordinary
    pages. discovery_share_max: maximum share of a host's refreshes that hubs get for their new pages.
    """

    policy: str = "ncis"
    neighbourhood: bool = True
    pooling: bool = True
    explore: float = 0.05
    min_age: float = 0.0
    max_age: float = math.inf
    discard_window: float = 0.0
    clock_min: float = 60.0
    clock_max: float = 90.0 * DAY
    first_interval: float = 30.0 * DAY
    retry_age: float = 3600.0
    gone_age: float = 30.0 * DAY
    gain: float = 5e-4
    new_page_weight: float = 2.0
    discovery_share_max: float = 0.5

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            raise UsageError(f"unknown refresh policy {self.policy!r}; choose one of {', '.join(POLICIES)}")
        lengths = [self.min_age, self.discard_window, self.clock_min, self.first_interval]
        lengths += [self.clock_max, self.retry_age, self.gone_age]
        if not all(0.0 <= length < math.inf for length in lengths):
            raise UsageError("refresh: times must be finite and not negative")
        if not self.max_age > 0.0 or self.min_age > self.max_age or self.clock_min > self.clock_max:
            raise UsageError(
                "refresh: min_age must not exceed max_age, and clock_min must not exceed clock_max"
            )
        if not self.clock_min > 0.0 or not self.first_interval > 0.0:
            raise UsageError("refresh: clock_min and first_interval must be greater than 0")
        if not 0.0 <= self.new_page_weight < math.inf or not 0.0 < self.discovery_share_max <= 1.0:
            raise UsageError(
                "refresh: new_page_weight must be finite and not negative, discovery_share_max in (0, 1]"
            )
        if not 0.0 <= self.explore < 1.0 or not 0.0 < self.gain < 0.1:
            raise UsageError("refresh: explore must be in [0, 1), gain in (0, 0.1)")


class RefreshOutcome(IntEnum):
    """The result of a refetch."""

    UNCHANGED = 0
    CHANGED = 1
    FAILED = 2  # no usable answer: the fetch is retried later, and the copy keeps its age
    GONE = 3  # 404, 410
    MOVED = 4  # a redirect
    DENIED = 5  # robots.txt or noarchive denies the page
    # The copy is renewed, but does not show whether the page has changed: it cannot be compared with the stored copy,
    # because a browser made only one of the two, or the page shows the version before the stored one again.
    SILENT = 6


def policies_of(settings: Settings | tuple[Settings, ...]) -> list[str]:
    """Return the policy of a schedule, or the policies of the arms that are compared."""
    return [one.policy for one in (settings if isinstance(settings, tuple) else (settings,))]


class PageView(msgspec.Struct, frozen=True):
    """All that the schedule knows of a page.

    `signals` are counted by source, `rate` is in changes per unit of time, and `fresh` is a probability.
    `stands_for` is the time since the last crawl of its host, divided by the mean time between two crawls of
    the host; `idle_weeks` is this time in weeks, infinite if there was no crawl. `new` is True if the page
    appeared while the crawl was watching its site, and was never fetched again. `haste` is the ratio of the
    clock time (`freshness/neighbourhood.py`) to the plain time since the last crawl, at least 1. `rhythm` is
    True if the clock follows the weekly rhythm of the site (`freshness/seasons.py`). `reliability` is the
    probability that the page's signals are good (`freshness/page_kinds.py`). `site` is the host's own part of
    the correction of `fresh` (`freshness/recalibration.py`). `stated` is the probability to state instead of
    the corrected `fresh`; it is None once the crawl has learned how often pages change. `away` is True if the
    page is gone, moved or denied.
    """

    fingerprint: int
    host: int
    directory: int
    crawled_at: float
    importance: float
    changes: float
    watched: float
    signals: tuple[int, ...]
    rate: float
    clock: float
    fresh: float
    stated: float | None
    hearing: Hearing
    new: bool
    haste: float
    rhythm: bool
    reliability: float
    stands_for: float
    idle_weeks: float
    site: SiteSlope
    value: float
    ceiling: float
    level: float
    deadline: float
    state: str
    away: bool


class HostView(msgspec.Struct, frozen=True):
    """All that the schedule knows of a host. `boost` is the host's level divided by the common level."""

    key: int
    pages: int
    ready: float
    busy: bool
    level: float
    boost: float
    deadline: float
