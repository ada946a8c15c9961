"""Compares policies within one crawl. The pages are split by hash into arms, which fetch at equal rates.

Each arm is a `Schedule` with its own settings and its own share of the pages; arms do not learn from one
another. The arms together behave like one `Schedule`. The arm that is furthest behind in fetches offers its
page first. Each host has at most one request in flight, whichever arm made it.

    number of a page = its number in its arm * arms + arm
    number of a host = its number in every arm

If an arm finds no free host, another arm fetches, and the first arm keeps its claim to the missed fetches, up
to CLAIM_MAX. So the rates stay equal despite politeness, and a fetch never has to wait until its arm has its
turn.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from crawler.config.schema import ARMS_MAX
from crawler.errors import UsageError
from crawler.frontier.refresh.arm_parts import (
    ArmNumbers,
    ArmsFacts,
    ArmsOverview,
    ArmsPace,
    ArmsRecords,
    ArmsSignals,
)
from crawler.frontier.refresh.clock_repair import SetBack
from crawler.frontier.refresh.schedule import Schedule
from crawler.frontier.refresh.settings import Settings

CLAIM_MAX = 100.0  # maximum number of fetches by which an arm may be behind the mean


class Arms:
    """Several schedules, used as one.

    Args:
        settings: the settings of each arm, 1 to 16.
        level: the initial level of each arm; 0 lets each arm find its own.
    """

    def __init__(
        self, settings: Sequence[Settings], *, level: float = 0.0, seed: int = 1, track: bool = False
    ) -> None:
        if not 1 <= len(settings) <= ARMS_MAX:
            raise UsageError(f"refresh: there may be 1 to {ARMS_MAX} arms, not {len(settings)}")
        self.settings = tuple(settings)
        # the latest run that began with a clock behind the instants of earlier runs
        self.set_back: SetBack | None = None
        self.schedules = [
            Schedule(one, level=level, seed=seed + number, track=track) for number, one in enumerate(settings)
        ]
        self.numbers = ArmNumbers(self.schedules)
        self.signals = ArmsSignals(self.numbers)
        self.overview = ArmsOverview(self.numbers)
        self.facts = ArmsFacts(self.numbers)
        self.pace = ArmsPace(self.numbers)
        self.records = ArmsRecords(self.numbers)
        self._behind = [0.0] * len(settings)  # number of fetches by which each arm is behind the mean
        self._flying: dict[int, int] = {}  # page -> its host, even if the page was removed meanwhile
        self._busy: dict[int, int] = {}  # host -> arm whose page is in flight

    # -- pages and hosts

    def add(
        self,
        fingerprint: int,
        host_key: int,
        directory_key: int,
        crawled_at: float,
        now: float,
        importance: float = 1.0,
        *,
        away: bool = False,
        absence: float = 0.0,
    ) -> int:
        self.host(host_key)
        arm = self.numbers.arm_of(fingerprint)
        number = self.schedules[arm].add(
            fingerprint, host_key, directory_key, crawled_at, now, importance, away=away, absence=absence
        )
        return self.numbers.joined(number, arm)

    def add_many(
        self,
        fingerprints: np.ndarray,
        host_keys: np.ndarray,
        directory_keys: np.ndarray,
        crawled_at: np.ndarray,
        importance: Any,
        now: float,
        **learned: Any,
    ) -> np.ndarray:
        size, count = len(fingerprints), len(self.schedules)
        keys = np.asarray(fingerprints, np.uint64)
        hosts, directories, crawled, weights = (
            np.broadcast_to(np.asarray(column), (size,))
            for column in (host_keys, directory_keys, crawled_at, importance)
        )
        more: dict[str, Any] = {
            name: np.broadcast_to(np.asarray(column), (size,)) for name, column in learned.items()
        }
        for key in dict.fromkeys(hosts.tolist()):
            self.host(key)
        arms = self.numbers.arms_of(keys)
        numbers = np.full(size, -1, np.int32)
        for arm, schedule in enumerate(self.schedules):
            rows = np.flatnonzero(arms == arm)
            found = schedule.add_many(
                keys[rows], hosts[rows], directories[rows], crawled[rows], weights[rows], now,
                **{name: column[rows] for name, column in more.items()},
            )  # fmt: skip
            numbers[rows] = found * count + arm
        return numbers

    def find(self, fingerprint: int) -> int:
        arm = self.numbers.arm_of(fingerprint)
        return self.numbers.joined(self.schedules[arm].find(fingerprint), arm)

    def __contains__(self, fingerprint: int) -> bool:
        return fingerprint in self.schedules[self.numbers.arm_of(fingerprint)]

    def __len__(self) -> int:
        return sum(map(len, self.schedules))

    def remove(self, page: int) -> None:
        schedule, number, _ = self.numbers.split(page)
        schedule.remove(number)

    def host(self, host_key: int) -> int:
        """Return the host's number, adding the host to all arms if it is new."""
        return [schedule.host(host_key) for schedule in self.schedules][0]

    def host_of(self, page: int) -> int:
        schedule, number, _ = self.numbers.split(page)
        return schedule.host_of(number)

    def block(self, host: int, until: float) -> None:
        for arm, schedule in enumerate(self.schedules):
            # While one arm fetches a page of the host, the other arms wait for the end of this fetch anyway.
            if self._busy.get(host, arm) == arm:
                schedule.block(host, until)

    def work(self, now: float) -> int:
        return sum(schedule.work(now) for schedule in self.schedules)

    def renew(self) -> None:
        for schedule in self.schedules:
            schedule.renew()

    # -- the choice

    def peek(self, now: float) -> int:
        """Return the best page of the arm that is furthest behind, or of the next arm that has a page; else -1."""
        for arm in sorted(range(len(self.schedules)), key=lambda arm: -self._behind[arm]):
            number = self.schedules[arm].peek(now)
            if number >= 0:
                return self.numbers.joined(number, arm)
        return -1

    def claim_next(self, now: float) -> int:
        page = self.peek(now)
        if page >= 0:
            self.acquire(page, now)
        return page

    def acquire(self, page: int, now: float) -> None:
        schedule, number, arm = self.numbers.split(page)
        host = schedule.host_of(number)
        if host in self._busy:
            raise RuntimeError(f"host {host} is busy in {self!r}")
        schedule.acquire(number, now)
        self._flying[page] = host
        self._busy[host] = self.numbers.last[host] = arm
        for other in self.schedules:
            if other is not schedule:
                other.block(host, np.inf)
        share = 1.0 / len(self.schedules)
        for k in range(len(self.schedules)):
            self._behind[k] = min(max(self._behind[k] + share, -CLAIM_MAX), CLAIM_MAX)
        self._behind[arm] = max(self._behind[arm] - 1.0, -CLAIM_MAX)

    def give_back(self, page: int, now: float, ready: float = 0.0) -> None:
        schedule, number, _ = self.numbers.split(page)
        schedule.give_back(number, now, ready)
        self._land(page, schedule, ready)

    def record_outcome(self, page: int, now: float, result: int, ready: float = 0.0) -> None:
        schedule, number, _ = self.numbers.split(page)
        schedule.record_outcome(number, now, result, ready)
        self._land(page, schedule, ready)

    def _land(self, page: int, schedule: Schedule, ready: float) -> None:
        host = self._flying.pop(page)
        del self._busy[host]
        for other in self.schedules:
            if other is not schedule:
                other.block(host, ready)

    def next_wakeup(self, now: float) -> float:
        return min(schedule.next_wakeup(now) for schedule in self.schedules)

    def marginal_value(self, now: float) -> float:
        """Return the gain of one more fetch now, averaged over the arms."""
        return sum(schedule.marginal_value(now) for schedule in self.schedules) / len(self.schedules)

    def _check(self) -> None:
        for arm, schedule in enumerate(self.schedules):
            schedule._check()
            hosts = {host for host, busy in self._busy.items() if busy == arm}
            assert all(schedule.overview.host(host).busy for host in hosts)
        assert sorted(self._flying.values()) == sorted(self._busy)

    def __repr__(self) -> str:
        return f"Arms({', '.join(map(repr, self.schedules))})"
