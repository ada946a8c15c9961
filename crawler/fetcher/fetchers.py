"""The seam of fetching: what a process asks of whoever gets a page, and the table of those who can.

    fetch tasks, logins, hubs --FetchRequest--> the fetcher that the task names --Fetch--> them

`FETCHERS` has a line for each. A process makes "http" and those that `[[override]]`
names, and knows none of them: another is a class with the five methods of `Fetcher` and
a line here. Simulations and tests bring a table of their own.

Back-pressure has two parts. A fetcher that takes few tasks at once says so by `places`;
tasks that wait for one give their place among the crawl's requests to others, up to
`WAITING_A_PLACE` for each. What answers hold in memory is charged to their owner until
it is let go (`byte_account.py`).
"""

import asyncio
from collections.abc import Callable, Hashable, Mapping
from typing import NamedTuple, Protocol

from crawler.clock import Clock
from crawler.config import Config
from crawler.errors import Unexpected, bad_setting
from crawler.fetcher.dns_cache import Resolution
from crawler.fetcher.fetch_request import HTTP, FetchRequest
from crawler.records import Fetch

# Tasks without a place in the crawl, for each of a fetcher's own: bounds what waits in memory
WAITING_A_PLACE = 16


class Fetcher(Protocol):
    """Gets pages. Every task ends in one Fetch with one outcome; only bugs and cancelling raise."""

    @property
    def places(self) -> int:
        """Tasks that it takes at once; 0 if `crawl.concurrency` alone bounds them."""

    async def start(self) -> None:
        """Make ready, in the loop that fetches."""

    async def close(self) -> None:
        """End what is under way and leave nothing open."""

    async def fetch(self, task: FetchRequest) -> Fetch:
        """Do one task."""

    def hold_more(self, owner: Hashable, nbytes: int) -> None:
        """Charge what was made of an answer to its owner until `let_go`."""

    def let_go(self, owner: Hashable) -> None:
        """The owner holds nothing any more; harmless if it never did."""


class NameResolver(Protocol):
    """Finds the addresses of a host."""

    async def resolve(self, hostname: str, *, patient: bool = True) -> Resolution:
        """The addresses, or the outcome that says why there are none."""

    async def close(self) -> None:
        """End look-ups under way."""


class FetcherNeeds(NamedTuple):
    """What a fetcher is made from; `processes` share the limits of the crawl."""

    config: Config
    clock: Clock
    unexpected: Unexpected
    processes: int


MakeFetcher = Callable[[FetcherNeeds], Fetcher]


def _http(needs: FetcherNeeds) -> Fetcher:
    from crawler.fetcher.client import Client

    config = needs.config
    return Client(
        config.fetch,
        config.identity,
        config.network,
        needs.clock,
        needs.unexpected,
        processes=needs.processes,
    )


FETCHERS: dict[str, MakeFetcher] = {HTTP: _http}


def named_fetchers(table: Mapping[str, MakeFetcher], config: Config) -> list[str]:
    """The names of the fetchers that a crawl needs: "http" and those that overrides name.

    Raises:
        ConfigError: there is no fetcher of such a name.
    """
    names = dict.fromkeys([HTTP, *(own.fetcher for own in config.override if own.fetcher)])
    for name in names:
        if name not in table:
            raise bad_setting("override.fetcher", f"there is no {name!r}; there are: {', '.join(table)}")
    return list(names)


def make_fetcher(table: Mapping[str, MakeFetcher], needs: FetcherNeeds) -> Fetcher:
    """The fetcher of a process: "http", and beside it those that an override names.

    Raises:
        ConfigError: there is no fetcher of such a name, or one cannot be made so.
    """
    made = {name: table[name](needs) for name in named_fetchers(table, needs.config)}
    return made[HTTP] if len(made) == 1 else Fetchers(made)


class Fetchers:
    """Several as one: each task goes to the fetcher that it names."""

    places = 0

    def __init__(self, by_name: Mapping[str, Fetcher]) -> None:
        self._by_name = dict(by_name)
        self._places = {
            name: asyncio.Semaphore(fetcher.places) for name, fetcher in by_name.items() if fetcher.places
        }
        self._waiting = dict.fromkeys(self._places, 0)

    async def start(self) -> None:
        """Start all."""
        for fetcher in self._by_name.values():
            await fetcher.start()

    async def close(self) -> None:
        """Close all."""
        for fetcher in self._by_name.values():
            await fetcher.close()

    async def fetch(self, task: FetchRequest) -> Fetch:
        """Let the fetcher that the task names do it, once that one has a place."""
        name = task.fetcher
        places = self._places.get(name)
        if places is None:
            return await self._by_name[name].fetch(task)
        few_wait = self._waiting[name] < WAITING_A_PLACE * self._by_name[name].places
        if places.locked() and few_wait and task.slot is not None:
            task.slot.give()
        self._waiting[name] += 1
        try:
            await places.acquire()
        finally:
            self._waiting[name] -= 1
        try:
            return await self._by_name[name].fetch(task)
        finally:
            places.release()

    def hold_more(self, owner: Hashable, nbytes: int) -> None:
        """Charge it where most answers come from."""
        self._by_name[HTTP].hold_more(owner, nbytes)

    def let_go(self, owner: Hashable) -> None:
        """Tell all: any of them may have been charged."""
        for fetcher in self._by_name.values():
            fetcher.let_go(owner)
