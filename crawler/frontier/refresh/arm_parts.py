"""Combines the parts of several schedules: `signals`, `overview`, `pace` and `records` over all arms (`arms.py`)."""

from collections.abc import Callable
from functools import wraps
from operator import attrgetter
from typing import Any

import numpy as np

from crawler.freshness.recalibration import SiteSlope
from crawler.frontier.refresh.overview import Overview
from crawler.frontier.refresh.page_facts import Facts
from crawler.frontier.refresh.page_signals import Signals
from crawler.frontier.refresh.schedule import Schedule
from crawler.frontier.refresh.schedule_records import Records
from crawler.frontier.refresh.settings import BY_LEVEL, HostView

_GOLDEN = 0x9E3779B97F4A7C15
_WORD = 0xFFFFFFFFFFFFFFFF
_SHIFT = 40


class ArmNumbers:
    """Maps pages and hosts to their arms, and pages to their numbers within the arm."""

    def __init__(self, schedules: list[Schedule]) -> None:
        self.schedules = schedules
        self.last: dict[int, int] = {}  # host -> arm that last fetched from it

    def arm_of(self, fingerprint: int) -> int:
        """Return the arm of a page, which depends only on the page's hash."""
        return ((int(fingerprint) * _GOLDEN & _WORD) >> _SHIFT) % len(self.schedules)

    def arms_of(self, fingerprints: np.ndarray) -> np.ndarray:
        """Return the arms of an array of pages, shape (n,)."""
        return (fingerprints * np.uint64(_GOLDEN) >> np.uint64(_SHIFT)) % np.uint64(len(self.schedules))

    def split(self, page: int) -> tuple[Schedule, int, int]:
        """Return (the schedule of a page's arm, the page's number in that schedule, the arm)."""
        number, arm = divmod(page, len(self.schedules))
        return self.schedules[arm], number, arm

    def joined(self, number: int, arm: int) -> int:
        """Return the number of a page among the pages of all arms. For -1, return -1."""
        return number * len(self.schedules) + arm if number >= 0 else -1

    def last_asking(self, host: int) -> Schedule:
        """Return the schedule of the arm that last fetched from the host; the first schedule if no arm has."""
        return self.schedules[self.last.get(host, 0)]


def by_page(part: type, name: str) -> Callable[..., Any]:
    """Return a method like `name` of a part of a schedule, for the pages of all arms.

    The first argument, a page, is passed on as its number in the schedule of its arm.
    """
    method_of = attrgetter(f"{part.__name__.lower()}.{name}")

    @wraps(getattr(part, name))
    def method(self: Any, page: int, *arguments: Any) -> Any:
        schedule, number, _ = self._arms.split(page)
        return method_of(schedule)(number, *arguments)

    return method


class _ArmsPart:
    """Combines the same part of all schedules into one."""

    def __init__(self, arms: ArmNumbers) -> None:
        self._arms = arms


class ArmsSignals(_ArmsPart):
    """Combines the `Signals` of all schedules into one."""

    note_change = by_page(Signals, "note_change")

    def enqueue_changes(self, fingerprints: np.ndarray, now: float, source: int = 0) -> None:
        if not isinstance(fingerprints, np.ndarray) or fingerprints.dtype != np.uint64:
            raise ValueError("enqueue_changes: fingerprints must be an array of uint64 (n,)")
        arms = self._arms.arms_of(fingerprints)
        for arm, schedule in enumerate(self._arms.schedules):
            schedule.signals.enqueue_changes(fingerprints[arms == arm], now, source)

    def pop_touched(self) -> list[int]:
        return [
            self._arms.joined(number, arm)
            for arm, schedule in enumerate(self._arms.schedules)
            for number in schedule.signals.pop_touched()
        ]

    @property
    def waiting(self) -> int:
        return sum(schedule.signals.waiting for schedule in self._arms.schedules)


class ArmsFacts(_ArmsPart):
    """Combines the `Facts` of all schedules into one."""

    set_page = by_page(Facts, "set_page")
    set_importance = by_page(Facts, "set_importance")
    bound_ages = by_page(Facts, "bound_ages")
    note_birth = by_page(Facts, "note_birth")
    expect_news = by_page(Facts, "expect_news")
    credit_hub = by_page(Facts, "credit_hub")

    def note_new_rules(self, host: int) -> None:
        for schedule in self._arms.schedules:
            schedule.facts.note_new_rules(host)

    def set_slope(self, host: int, slope: SiteSlope) -> None:
        for schedule in self._arms.schedules:
            schedule.facts.set_slope(host, slope)


class ArmsOverview(_ArmsPart):
    """Combines the `Overview` of all schedules into one."""

    @property
    def takes(self) -> int:
        return sum(schedule.overview.takes for schedule in self._arms.schedules)

    @property
    def copies(self) -> int:
        """The number of pages that are not away, in all arms."""
        return sum(schedule.overview.copies for schedule in self._arms.schedules)

    @property
    def bytes_held(self) -> int:
        return sum(schedule.overview.bytes_held for schedule in self._arms.schedules)

    @property
    def sweeping(self) -> bool:
        return any(schedule.overview.sweeping for schedule in self._arms.schedules)

    @property
    def mean_rate(self) -> float:
        """The mean change rate over the arms."""
        return sum(schedule.overview.mean_rate for schedule in self._arms.schedules) / len(
            self._arms.schedules
        )

    def first_withheld(self) -> int:
        """Return the withheld page that is released first in all arms; -1 if a page of an arm is not withheld."""
        found = []
        for arm, schedule in enumerate(self._arms.schedules):
            page = schedule.overview.first_withheld()
            if page >= 0:
                found.append((schedule.overview.due_at(page, 0.0), self._arms.joined(page, arm)))
            elif len(schedule):
                return -1
        return min(found)[1] if found else -1

    due_at = by_page(Overview, "due_at")
    page = by_page(Overview, "page")
    hub = by_page(Overview, "hub")

    def host(self, host: int) -> HostView:
        """Return the view of the host in the arm that last fetched from it."""
        return self._arms.last_asking(host).overview.host(host)

    def quality(self, host: int) -> tuple[list[float], list[float], float]:
        """Return what is known of the host's signals, as learned by the arm that last fetched from the host."""
        return self._arms.last_asking(host).overview.quality(host)

    def used_precision(self, host: int, source: int) -> float:
        return self._arms.last_asking(host).overview.used_precision(host, source)

    def heard_hosts(self) -> list[int]:
        """Return the numbers of the hosts whose pages ever had a signal, in any arm."""
        return sorted({host for schedule in self._arms.schedules for host in schedule.overview.heard_hosts()})

    def hubs(self, now: float) -> dict[str, float]:
        """Return the result of `Overview.hubs`, summed over all arms."""
        views = [schedule.overview.hubs(now) for schedule in self._arms.schedules]
        return {name: sum(view[name] for view in views) for name in views[0]}


class ArmsPace(_ArmsPart):
    """Combines the `Pace` of all schedules into one."""

    @property
    def rate(self) -> float:
        """The fetches per unit of time over all arms."""
        return sum(schedule.pace.rate for schedule in self._arms.schedules)

    @rate.setter
    def rate(self, rate: float) -> None:
        for schedule in self._arms.schedules:
            schedule.pace.rate = rate / len(self._arms.schedules)

    @property
    def level(self) -> float:
        """The mean of the levels of the arms in `_levelled`."""
        levels = [schedule.pace.level for schedule in self._levelled()]
        return sum(levels) / len(levels)

    @level.setter
    def level(self, level: float) -> None:
        for schedule in self._levelled():
            schedule.pace.level = level

    @property
    def level_is_known(self) -> bool:
        """Return whether the levels of all arms in `_levelled` are known."""
        return all(schedule.pace.level_is_known for schedule in self._levelled())

    def _levelled(self) -> list[Schedule]:
        """Return the arms whose level is a gain in freshness, or all arms if there is none.

        The level of another arm is an age or has no meaning, so a mean with it would be the level of no arm.
        """
        schedules = self._arms.schedules
        return [each for each in schedules if each.settings.policy in BY_LEVEL] or schedules

    @property
    def revisit(self) -> float:
        """The mean revisit interval of the first arm. Other arms have similar shares of the pages and of the rate."""
        return self._arms.schedules[0].pace.revisit

    @revisit.setter
    def revisit(self, revisit: float) -> None:
        for schedule in self._arms.schedules:
            schedule.pace.revisit = revisit


class ArmsRecords(_ArmsPart):
    """Combines the `Records` of all schedules into one."""

    @property
    def bias(self) -> tuple[float, ...]:
        """Return the numbers of `Records.bias`, each as the mean over the arms."""
        sums = [schedule.records.bias for schedule in self._arms.schedules]
        return tuple(sum(each) / len(sums) for each in zip(*sums, strict=True))

    @bias.setter
    def bias(self, sums: tuple[float, ...]) -> None:
        for schedule in self._arms.schedules:
            schedule.records.bias = sums

    is_away = by_page(Records, "is_away")
    page_state = by_page(Records, "page_state")
    hub_state = by_page(Records, "hub_state")
    restore_hub = by_page(Records, "restore_hub")
    trust_state = by_page(Records, "trust_state")
    restore_trust = by_page(Records, "restore_trust")
    unrest_state = by_page(Records, "unrest_state")
    restore_unrest = by_page(Records, "restore_unrest")
    retry_state = by_page(Records, "retry_state")
    restore_retry = by_page(Records, "restore_retry")
    directory_state = by_page(Records, "directory_state")

    def site_state(self, host: int) -> tuple[int, list[float]]:
        """Return what the arm that last fetched from a site has learned of it.

        After a restart, all arms begin with this state.
        """
        return self._arms.last_asking(host).records.site_state(host)

    def restore_site(self, host_key: int, numbers: np.ndarray) -> None:
        for schedule in self._arms.schedules:
            schedule.host(host_key)
        for schedule in self._arms.schedules:
            schedule.records.restore_site(host_key, numbers)

    def restore_directory(
        self, directory_key: int, host_key: int, counts: tuple[float, ...], news: tuple[float, ...]
    ) -> None:
        for schedule in self._arms.schedules:
            schedule.host(host_key)
        for schedule in self._arms.schedules:
            schedule.records.restore_directory(directory_key, host_key, counts, news)
