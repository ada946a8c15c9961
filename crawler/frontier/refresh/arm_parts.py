"""Combines the parts of several schedules: `signals`, `overview`, `pace` and `records` over all arms (`arms.py`)."""

import math

import numpy as np

from crawler.freshness.params import PageParameters
from crawler.frontier.refresh.schedule import Schedule
from crawler.frontier.refresh.settings import HostView, PageView

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


class ArmsSignals:
    """Combines the `Signals` of all schedules into one."""

    def __init__(self, arms: ArmNumbers) -> None:
        self._arms = arms

    def note_change(self, page: int, now: float, source: int = 0) -> None:
        schedule, number, _ = self._arms.split(page)
        schedule.signals.note_change(number, now, source)

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


class ArmsFacts:
    """Combines the `Facts` of all schedules into one."""

    def __init__(self, arms: ArmNumbers) -> None:
        self._arms = arms

    def set_page(self, page: int, parameters: PageParameters, now: float) -> None:
        schedule, number, _ = self._arms.split(page)
        schedule.facts.set_page(number, parameters, now)

    def set_importance(self, page: int, importance: float, now: float) -> None:
        schedule, number, _ = self._arms.split(page)
        schedule.facts.set_importance(number, importance, now)

    def bound_ages(self, page: int, min_age: float, max_age: float) -> None:
        schedule, number, _ = self._arms.split(page)
        schedule.facts.bound_ages(number, min_age, max_age)

    def note_birth(self, page: int) -> None:
        schedule, number, _ = self._arms.split(page)
        schedule.facts.note_birth(number)

    def expect_news(self, page: int, links: int, now: float) -> None:
        schedule, number, _ = self._arms.split(page)
        schedule.facts.expect_news(number, links, now)

    def credit_hub(self, page: int, found: float, now: float) -> None:
        schedule, number, _ = self._arms.split(page)
        schedule.facts.credit_hub(number, found, now)


class ArmsOverview:
    """Combines the `Overview` of all schedules into one."""

    def __init__(self, arms: ArmNumbers) -> None:
        self._arms = arms

    @property
    def takes(self) -> int:
        return sum(schedule.overview.takes for schedule in self._arms.schedules)

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

    def due_at(self, page: int, now: float) -> float:
        schedule, number, _ = self._arms.split(page)
        return schedule.overview.due_at(number, now)

    def page(self, page: int, now: float, fetched: float = math.inf) -> PageView:
        schedule, number, _ = self._arms.split(page)
        return schedule.overview.page(number, now, fetched)

    def host(self, host: int) -> HostView:
        """Return the view of the host in the arm that last fetched from it."""
        return self._arms.last_asking(host).overview.host(host)

    def quality(self, host: int) -> tuple[list[float], list[float], float]:
        """Return what is known of the host's signals, as learned by the arm that last fetched from the host."""
        return self._arms.last_asking(host).overview.quality(host)

    def heard_hosts(self) -> list[int]:
        """Return the numbers of the hosts whose pages ever had a signal, in any arm."""
        return sorted({host for schedule in self._arms.schedules for host in schedule.overview.heard_hosts()})

    def hub(self, page: int, now: float) -> dict[str, float]:
        schedule, number, _ = self._arms.split(page)
        return schedule.overview.hub(number, now)

    def hubs(self, now: float) -> dict[str, float]:
        """Return the result of `Overview.hubs`, summed over all arms."""
        views = [schedule.overview.hubs(now) for schedule in self._arms.schedules]
        return {name: sum(view[name] for view in views) for name in views[0]}


class ArmsPace:
    """Combines the `Pace` of all schedules into one."""

    def __init__(self, schedules: list[Schedule]) -> None:
        self._schedules = schedules

    @property
    def rate(self) -> float:
        """The fetches per unit of time over all arms."""
        return sum(schedule.pace.rate for schedule in self._schedules)

    @rate.setter
    def rate(self, rate: float) -> None:
        for schedule in self._schedules:
            schedule.pace.rate = rate / len(self._schedules)

    @property
    def level(self) -> float:
        """The mean of the arms' levels."""
        return sum(schedule.pace.level for schedule in self._schedules) / len(self._schedules)

    @level.setter
    def level(self, level: float) -> None:
        for schedule in self._schedules:
            schedule.pace.level = level

    @property
    def revisit(self) -> float:
        """The mean revisit interval of the first arm. Other arms have similar shares of the pages and of the rate."""
        return self._schedules[0].pace.revisit

    @revisit.setter
    def revisit(self, revisit: float) -> None:
        for schedule in self._schedules:
            schedule.pace.revisit = revisit


class ArmsRecords:
    """Combines the `Records` of all schedules into one."""

    def __init__(self, arms: ArmNumbers) -> None:
        self._arms = arms

    @property
    def bias(self) -> tuple[float, ...]:
        """Return the sums of `Records.bias`, each as the mean over the arms."""
        sums = [schedule.records.bias for schedule in self._arms.schedules]
        return tuple(sum(each) / len(sums) for each in zip(*sums, strict=True))

    @bias.setter
    def bias(self, sums: tuple[float, ...]) -> None:
        for schedule in self._arms.schedules:
            schedule.records.bias = sums

    def page_state(self, page: int) -> tuple[int, int, int, float, float, float, int, float, int]:
        schedule, number, _ = self._arms.split(page)
        return schedule.records.page_state(number)

    def site_state(self, host: int) -> tuple[int, list[float]]:
        """Return what the arm that last fetched from a site has learned of it.

        After a restart, all arms begin with this state.
        """
        return self._arms.last_asking(host).records.site_state(host)

    def hub_state(self, page: int) -> tuple[float, float, float]:
        schedule, number, _ = self._arms.split(page)
        return schedule.records.hub_state(number)

    def restore_hub(self, page: int, found: float, watched: float, links: float) -> None:
        schedule, number, _ = self._arms.split(page)
        schedule.records.restore_hub(number, found, watched, links)

    def trust_state(self, page: int) -> int:
        schedule, number, _ = self._arms.split(page)
        return schedule.records.trust_state(number)

    def restore_trust(self, page: int, trust: int) -> None:
        schedule, number, _ = self._arms.split(page)
        schedule.records.restore_trust(number, trust)

    def directory_state(self, page: int) -> tuple[int, tuple[float, ...]]:
        schedule, number, _ = self._arms.split(page)
        return schedule.records.directory_state(number)

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
