"""Policies side by side in one crawl: pages split by hash into arms of equal rate.

Each arm is a `Schedule` with its own settings and its own share of the pages;
arms do not learn from one another. Together they have the methods of one
`Schedule`: the arm that is behind in fetches offers first, and a host has one
request in flight over all arms.

    number of a page = its number in its arm * arms + arm
    number of a host = its number in every arm

An arm that finds no host free keeps its claim, up to CLAIM_MAX fetches: rates
stay equal under politeness, and no fetch waits for an arm.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from crawler.config.schema import ARMS_MAX
from crawler.errors import UsageError
from crawler.freshness.params import PageParameters
from crawler.frontier.refresh.schedule import Schedule
from crawler.frontier.refresh.settings import HostView, PageView, Settings

CLAIM_MAX = 100.0  # fetches that an arm may be behind
_GOLDEN = 0x9E3779B97F4A7C15
_WORD = 0xFFFFFFFFFFFFFFFF
_SHIFT = 40


class Arms:
    """Several schedules as one.

    Args:
        settings: of each arm, 1 to 16.
        level: where the level of each arm starts; 0 finds one.
    """

    def __init__(
        self, settings: Sequence[Settings], *, level: float = 0.0, seed: int = 1, track: bool = False
    ) -> None:
        if not 1 <= len(settings) <= ARMS_MAX:
            raise UsageError(f"refresh: 1 to {ARMS_MAX} arms, not {len(settings)}")
        self.settings = tuple(settings)
        self.schedules = [
            Schedule(one, level=level, seed=seed + number, track=track) for number, one in enumerate(settings)
        ]
        self._behind = [0.0] * len(settings)  # fetches, against the mean
        self._flying: dict[int, int] = {}  # page -> its host, also if the page was removed meanwhile
        self._busy: dict[int, int] = {}  # host -> arm whose page is in flight
        self._last: dict[int, int] = {}  # host -> arm that asked it last

    # -- which arm

    def arm_of(self, fingerprint: int) -> int:
        """The arm of a page: its hash decides, whoever adds it and in whatever order."""
        return ((int(fingerprint) * _GOLDEN & _WORD) >> _SHIFT) % len(self.schedules)

    def _arms_of(self, fingerprints: np.ndarray) -> np.ndarray:
        return (fingerprints * np.uint64(_GOLDEN) >> np.uint64(_SHIFT)) % np.uint64(len(self.schedules))

    def _split(self, page: int) -> tuple[Schedule, int, int]:
        """The schedule of a page, its number there, and its arm."""
        number, arm = divmod(page, len(self.schedules))
        return self.schedules[arm], number, arm

    def _joined(self, number: int, arm: int) -> int:
        return number * len(self.schedules) + arm if number >= 0 else -1

    # -- pages and hosts

    def add(
        self,
        fingerprint: int,
        host_key: int,
        directory_key: int,
        crawled_at: float,
        now: float,
        importance: float = 1.0,
    ) -> int:
        self.host(host_key)
        arm = self.arm_of(fingerprint)
        number = self.schedules[arm].add(fingerprint, host_key, directory_key, crawled_at, now, importance)
        return self._joined(number, arm)

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
        arms = self._arms_of(keys)
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
        arm = self.arm_of(fingerprint)
        return self._joined(self.schedules[arm].find(fingerprint), arm)

    def __contains__(self, fingerprint: int) -> bool:
        return fingerprint in self.schedules[self.arm_of(fingerprint)]

    def __len__(self) -> int:
        return sum(map(len, self.schedules))

    def remove(self, page: int) -> None:
        schedule, number, _ = self._split(page)
        schedule.remove(number)

    def host(self, host_key: int) -> int:
        """The host's number, made in all arms if it is new."""
        return [schedule.host(host_key) for schedule in self.schedules][0]

    def host_of(self, page: int) -> int:
        schedule, number, _ = self._split(page)
        return schedule.host_of(number)

    def set_page(self, page: int, parameters: PageParameters, now: float) -> None:
        schedule, number, _ = self._split(page)
        schedule.set_page(number, parameters, now)

    def weigh(self, page: int, importance: float, now: float) -> None:
        schedule, number, _ = self._split(page)
        schedule.weigh(number, importance, now)

    def bound_ages(self, page: int, min_age: float, max_age: float) -> None:
        schedule, number, _ = self._split(page)
        schedule.bound_ages(number, min_age, max_age)

    def show(self, page: int, found: float, now: float) -> None:
        schedule, number, _ = self._split(page)
        schedule.show(number, found, now)

    def block(self, host: int, until: float) -> None:
        for arm, schedule in enumerate(self.schedules):
            if self._busy.get(host, arm) == arm:  # the others wait for the end of its flight
                schedule.block(host, until)

    # -- signals

    def signal(self, page: int, now: float, source: int = 0) -> None:
        schedule, number, _ = self._split(page)
        schedule.signal(number, now, source)

    def signal_many(self, fingerprints: np.ndarray, now: float, source: int = 0) -> None:
        if not isinstance(fingerprints, np.ndarray) or fingerprints.dtype != np.uint64:
            raise ValueError("signal_many: fingerprints must be an array of uint64 (n,)")
        arms = self._arms_of(fingerprints)
        for arm, schedule in enumerate(self.schedules):
            schedule.signal_many(fingerprints[arms == arm], now, source)

    def signalled(self) -> list[int]:
        return [
            self._joined(number, arm)
            for arm, schedule in enumerate(self.schedules)
            for number in schedule.signalled()
        ]

    @property
    def waiting_signals(self) -> int:
        return sum(schedule.waiting_signals for schedule in self.schedules)

    def work(self, now: float) -> int:
        return sum(schedule.work(now) for schedule in self.schedules)

    @property
    def sweeping(self) -> bool:
        return any(schedule.sweeping for schedule in self.schedules)

    def renew(self) -> None:
        for schedule in self.schedules:
            schedule.renew()

    # -- the choice

    def look(self, now: float) -> int:
        """The best page of the arm that is most behind and has one to offer; -1 if none has."""
        for arm in sorted(range(len(self.schedules)), key=lambda arm: -self._behind[arm]):
            number = self.schedules[arm].look(now)
            if number >= 0:
                return self._joined(number, arm)
        return -1

    def best(self, host: int, now: float) -> int:
        """This host's best page in the arm that is most behind and has one there; -1 if none has."""
        for arm in sorted(range(len(self.schedules)), key=lambda arm: -self._behind[arm]):
            number = self.schedules[arm].best(host, now)
            if number >= 0:
                return self._joined(number, arm)
        return -1

    def take(self, now: float) -> int:
        page = self.look(now)
        if page >= 0:
            self.hold(page, now)
        return page

    def hold(self, page: int, now: float) -> None:
        schedule, number, arm = self._split(page)
        host = schedule.host_of(number)
        if host in self._busy:
            raise RuntimeError(f"host {host} is busy in {self!r}")
        schedule.hold(number, now)
        self._flying[page] = host
        self._busy[host] = self._last[host] = arm
        for other in self.schedules:
            if other is not schedule:
                other.block(host, np.inf)
        share = 1.0 / len(self.schedules)
        for k in range(len(self.schedules)):
            self._behind[k] = min(max(self._behind[k] + share, -CLAIM_MAX), CLAIM_MAX)
        self._behind[arm] = max(self._behind[arm] - 1.0, -CLAIM_MAX)

    def give_back(self, page: int, now: float, ready: float = 0.0) -> None:
        schedule, number, _ = self._split(page)
        schedule.give_back(number, now, ready)
        self._land(page, schedule, ready)

    def settle(self, page: int, now: float, result: int, ready: float = 0.0) -> None:
        schedule, number, _ = self._split(page)
        schedule.settle(number, now, result, ready)
        self._land(page, schedule, ready)

    def _land(self, page: int, schedule: Schedule, ready: float) -> None:
        host = self._flying.pop(page)
        del self._busy[host]
        for other in self.schedules:
            if other is not schedule:
                other.block(host, ready)

    def due_at(self, page: int, now: float) -> float:
        schedule, number, _ = self._split(page)
        return schedule.due_at(number, now)

    def next_wakeup(self, now: float) -> float:
        return min(schedule.next_wakeup(now) for schedule in self.schedules)

    # -- the level

    @property
    def rate(self) -> float:
        """Fetches per time over all arms."""
        return sum(schedule.rate for schedule in self.schedules)

    @rate.setter
    def rate(self, rate: float) -> None:
        for schedule in self.schedules:
            schedule.rate = rate / len(self.schedules)

    @property
    def level(self) -> float:
        """The mean of the arms' levels."""
        return sum(schedule.level for schedule in self.schedules) / len(self.schedules)

    @level.setter
    def level(self, level: float) -> None:
        for schedule in self.schedules:
            schedule.level = level

    @property
    def mean_rate(self) -> float:
        """The mean over the arms."""
        return sum(schedule.mean_rate for schedule in self.schedules) / len(self.schedules)

    @property
    def revisit(self) -> float:
        """That of the first arm: their shares of pages and rate are alike."""
        return self.schedules[0].revisit

    @revisit.setter
    def revisit(self, revisit: float) -> None:
        for schedule in self.schedules:
            schedule.revisit = revisit

    @property
    def bias(self) -> tuple[float, float]:
        """Changes found and expected by late crawls, the mean of the arms'."""
        sums = [schedule.bias for schedule in self.schedules]
        return sum(found for found, _ in sums) / len(sums), sum(told for _, told in sums) / len(sums)

    @bias.setter
    def bias(self, sums: tuple[float, float]) -> None:
        for schedule in self.schedules:
            schedule.bias = sums

    def price(self, now: float) -> float:
        """What one more fetch gains now, on average over the arms."""
        return sum(schedule.price(now) for schedule in self.schedules) / len(self.schedules)

    # -- what is known, and what a store keeps

    @property
    def takes(self) -> int:
        return sum(schedule.takes for schedule in self.schedules)

    @property
    def bytes_held(self) -> int:
        return sum(schedule.bytes_held for schedule in self.schedules)

    def page(self, page: int, now: float) -> PageView:
        schedule, number, _ = self._split(page)
        return schedule.page(number, now)

    def host_view(self, host: int) -> HostView:
        """The host as the arm sees it that asked it last."""
        return self.schedules[self._last.get(host, 0)].host_view(host)

    def quality(self, host: int) -> tuple[list[float], list[float], float]:
        """What the arm has learned of the host's signals that asked it last."""
        return self.schedules[self._last.get(host, 0)].quality(host)

    def heard_hosts(self) -> list[int]:
        """Numbers of the hosts from whose pages signals ever came, in any arm."""
        return sorted({host for schedule in self.schedules for host in schedule.heard_hosts()})

    def page_state(self, page: int) -> tuple[int, int, int, float, float, float, int, float, int]:
        schedule, number, _ = self._split(page)
        return schedule.page_state(number)

    def site_state(self, host: int) -> tuple[int, list[float]]:
        """What the arm has learned of the site that asked it last; after a restart all arms begin with that."""
        return self.schedules[self._last.get(host, 0)].site_state(host)

    def hub(self, page: int, now: float) -> dict[str, float]:
        schedule, number, _ = self._split(page)
        return schedule.hub(number, now)

    def hubs_view(self, now: float) -> dict[str, float]:
        """The sums over all arms."""
        views = [schedule.hubs_view(now) for schedule in self.schedules]
        return {name: sum(view[name] for view in views) for name in views[0]}

    def hub_state(self, page: int) -> tuple[float, float]:
        schedule, number, _ = self._split(page)
        return schedule.hub_state(number)

    def restore_hub(self, page: int, found: float, watched: float) -> None:
        schedule, number, _ = self._split(page)
        schedule.restore_hub(number, found, watched)

    def directory_state(self, page: int) -> tuple[int, tuple[float, ...]]:
        schedule, number, _ = self._split(page)
        return schedule.directory_state(number)

    def restore_site(self, host_key: int, numbers: np.ndarray) -> None:
        self.host(host_key)
        for schedule in self.schedules:
            schedule.restore_site(host_key, numbers)

    def restore_directory(
        self, directory_key: int, host_key: int, counts: tuple[float, ...], news: tuple[float, ...]
    ) -> None:
        self.host(host_key)
        for schedule in self.schedules:
            schedule.restore_directory(directory_key, host_key, counts, news)

    def _check(self) -> None:
        for arm, schedule in enumerate(self.schedules):
            schedule._check()
            hosts = {host for host, busy in self._busy.items() if busy == arm}
            assert all(schedule.host_view(host).busy for host in hosts)
        assert sorted(self._flying.values()) == sorted(self._busy)

    def __repr__(self) -> str:
        return f"Arms({', '.join(map(repr, self.schedules))})"
