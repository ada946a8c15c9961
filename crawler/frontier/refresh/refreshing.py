"""The refresh side of a crawl: connects the schedule of known pages to frontier, pages and store.

                    changes (change_intake.py)        importance.py
                       │                                  │
                       ▼                                  ▼
    schedule ──► claims ──► host, robots.txt, fetch ──► outcomes ──► schedule, and f/ s/ n/ in the page's change
       ▲       (refetch_claims.py)   (as for any URL)      (refetch_outcomes.py)
       │
    portion (portion.py): the rate, the level that all processes share, the price compared with new URLs

`refresh_views.py` describes the state of the known pages. The schedule runs on the clock of the sites
(`site_clock.py`).
"""

import math
from collections.abc import Callable, Iterable
from itertools import islice

import numpy as np

from crawler.config import Overrides, RefreshConfig
from crawler.frontier.later_tries import LaterTries
from crawler.frontier.refresh import state
from crawler.frontier.refresh.arms import Arms
from crawler.frontier.refresh.births import Births
from crawler.frontier.refresh.change_intake import ChangeIntake
from crawler.frontier.refresh.expectation import Expectation
from crawler.frontier.refresh.importance import Importance
from crawler.frontier.refresh.news import News
from crawler.frontier.refresh.page_ages import PageAges
from crawler.frontier.refresh.page_keys import PageKeys
from crawler.frontier.refresh.portion import Portion
from crawler.frontier.refresh.refetch_claims import RefetchClaims
from crawler.frontier.refresh.refetch_outcomes import RefetchOutcomes, is_fit, may_have_appeared
from crawler.frontier.refresh.refresh_views import RefreshViews
from crawler.frontier.refresh.schedule import Schedule
from crawler.frontier.refresh.settings import Settings
from crawler.frontier.refresh.site_clock import SiteClock
from crawler.frontier.refresh.validators import Validators
from crawler.records import PageRecord
from crawler.storage.kv import Batch, KeyValue

_ADOPTED_AT_ONCE = 1024


def settings_of(config: RefreshConfig, policy: str = "") -> Settings:
    """Return the settings of the schedule, or of the arm with this `policy`, from the configuration."""
    same = (
        "neighbourhood", "pooling", "explore", "min_age", "discard_window", "clock_min",
        "clock_max", "first_interval", "retry_age", "gone_age", "new_page_weight", "discovery_share_max",
    )  # fmt: skip
    return Settings(
        policy=policy or config.policy,
        max_age=config.max_age or math.inf,
        **{name: getattr(config, name) for name in same},
    )


def schedule_of(config: RefreshConfig) -> Schedule | Arms:
    """Return an empty schedule, or `Arms` with one schedule per arm."""
    if config.arms:
        return Arms([settings_of(config, policy) for policy in config.arms], track=True)
    return Schedule(settings_of(config), track=True)


class Refresh:
    """The parts of the refresh side, created from one configuration.

    Args:
        config: share, policy, bounds.
        record: returns the record of a page by its fingerprint, None if there is none.
        hash: keyed hash of bytes, 64 bits.
        fingerprint: maps a URL in request form to its fingerprint.
        host_key: (host name, fingerprint of one of its URLs) -> key of the host.
        importance: the importance of pages, in requests per day.
        overrides: minimum and maximum ages for parts of the web.
        is_disallowed: whether the robots.txt that was fetched last forbids a URL.
        rate: fetches per second of the whole crawl, all for refresh; 0 = not known.
        name: the name of this process among the `processes` that share the rate.
    """

    def __init__(
        self,
        config: RefreshConfig,
        *,
        record: Callable[[int], PageRecord | None],
        hash: Callable[[bytes], int],
        host_key: Callable[[str, int], int],
        fingerprint: Callable[[str], int],
        importance: Importance,
        overrides: Overrides,
        is_disallowed: Callable[[str], bool],
        rate: float,
        name: str,
        processes: int,
    ) -> None:
        self.schedule = schedule = schedule_of(config)
        self._clock = clock = SiteClock(config.speed)
        self._keys = PageKeys(hash, host_key)
        self.importance = importance
        self.validators = Validators(config)
        self.expectation = Expectation(schedule, config.speed)
        self.news = News()
        self.births = Births()
        self.lead = 0.0  # at the opening, stored instants were up to this many seconds in the future
        self.claims = RefetchClaims(schedule, clock, record)
        self.ages = PageAges(schedule, clock, config, overrides, record)
        self.changes = ChangeIntake(
            schedule, clock, fingerprint, self.ages, self.births, record,
            may_have_appeared=lambda record: may_have_appeared(record, is_disallowed),
            add_absent=self._add_absent,
        )  # fmt: skip
        self.portion = Portion(
            schedule, clock, config, self.importance, rate=rate, name=name, processes=processes
        )
        self.outcomes = RefetchOutcomes(
            schedule,
            clock,
            record,
            keys=self._keys,
            claims=self.claims,
            ages=self.ages,
            changes=self.changes,
            validators=self.validators,
            importance=self.importance,
            expectation=self.expectation,
            portion=self.portion,
            news=self.news,
            births=self.births,
            later_tries=LaterTries.of(config),
        )
        self.views = RefreshViews(schedule, clock, self.claims, self.expectation, self.portion, self.news)

    def __len__(self) -> int:
        return len(self.schedule)

    def __contains__(self, fingerprint: int) -> bool:
        return fingerprint in self.schedule

    def open(
        self,
        store: KeyValue,
        stored: Callable[[], Iterable[tuple[int, Callable[[], PageRecord]]]],
        now: float,
    ) -> None:
        """Rebuild the schedule; add missing pages of `stored`, given as (fingerprint, function that reads the record).

        In a crawl without end, this also adds URLs that earlier runs left for a later try.

        Raises:
            DamageError: a record is damaged.
        """
        self.news.open(store, now)
        self.lead = self._clock.ours(state.load(self.schedule, store, self._clock.at(now)).lead)
        self.portion.balance.tilt = state.stored_tilt(store)
        self.expectation.recalibration = state.stored_recalibration(store)
        self.validators.open(store)
        self.births.open(store)
        new = (
            (fingerprint, record)
            for fingerprint, read in stored()
            if fingerprint not in self.schedule
            and (
                is_fit(record := read())
                or (self.portion.endless and self.outcomes.later_tries.has_next(record))
            )
        )
        while chunk := list(islice(new, _ADOPTED_AT_ONCE)):
            if fit := [page for page in chunk if is_fit(page[1])]:
                self._adopt(fit, now)
            for fingerprint, record in chunk:
                if not is_fit(record):
                    self.outcomes.adopt_absent(fingerprint, record, now)
        self.ages.open(store, stored, now)

    def _adopt(self, pages: list[tuple[int, PageRecord]], now: float) -> None:
        """Add pages that were fetched before there was a schedule."""
        fingerprints = np.array([fingerprint for fingerprint, _ in pages], np.uint64)
        keys = [self._keys.of(fingerprint, record.url) for fingerprint, record in pages]
        hosts, directories = np.array(keys, np.uint64).T
        crawled = self._clock.speed * np.minimum([record.fetched_at for _, record in pages], now)
        weights = np.array([self.importance.of(fingerprint, record, now) for fingerprint, record in pages])
        self.schedule.add_many(fingerprints, hosts, directories, crawled, weights, self._clock.at(now))

    def _add_absent(self, fingerprint: int, record: PageRecord, now: float, batch: Batch) -> None:
        self.outcomes.add_absent(fingerprint, record, now, batch)

    def _check(self) -> None:
        """Assert the invariants that hold between any two calls."""
        self.schedule._check()
        self.claims._check()
        self.portion._check()

    def __repr__(self) -> str:
        return (
            f"Refresh({len(self.schedule)} pages, {len(self.claims.held)} in flight, {self.portion.share!r})"
        )
