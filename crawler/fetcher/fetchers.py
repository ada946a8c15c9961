"""The interface between a process and its fetchers, and the table of fetchers.

    fetch tasks, logins, hubs --FetchRequest--> the fetcher that the task names --Fetch--> them

`FETCHERS` has one line per fetcher. A process creates the fetcher "http" and those that `[[override]]` tables
name. The process contains no code for a particular fetcher. To add a fetcher, write a class with the methods
of `Fetcher` and add a line here. Simulations and tests have their own tables.

Load is limited in two ways. A fetcher that accepts few tasks at once sets `places`. A task that waits for a
place gives up its fetch slot, if fewer than `WAITING_A_PLACE` tasks per place are waiting. The memory of an
answer is charged to the owner of the answer until the owner releases it (`byte_account.py`).
"""

import asyncio
from collections.abc import Callable, Hashable, Mapping
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from crawler.clock import Clock
from crawler.config import ByteCount, Config
from crawler.errors import Unexpected, bad_setting
from crawler.fetcher.dns_cache import Resolution
from crawler.fetcher.fetch_request import HTTP, FetchRequest
from crawler.records import Fetch

# The maximum number of tasks that wait for a fetcher without holding a fetch slot, as a multiple of its
# `places`. The limit bounds the memory of these tasks.
WAITING_A_PLACE = 16


class Fetcher(Protocol):
    """Fetches pages. Every task ends in one Fetch with one outcome. `fetch` raises only for bugs and if cancelled."""

    @property
    def places(self) -> int:
        """The number of tasks that the fetcher accepts at once; 0 if only `crawl.concurrency` limits it."""

    async def start(self) -> None:
        """Prepare for fetching; call this in the event loop that fetches."""

    async def close(self) -> None:
        """End all tasks in progress and release every resource."""

    async def fetch(self, task: FetchRequest) -> Fetch:
        """Carry out one task and return its result."""

    def hold_more(self, owner: Hashable, nbytes: int) -> None:
        """Charge further memory, for data derived from an answer, to the answer's owner until `let_go`."""

    def let_go(self, owner: Hashable) -> None:
        """Release all memory charged to `owner`. Do nothing if no memory is charged to it."""


class NameResolver(Protocol):
    """Finds the addresses of a host."""

    async def resolve(self, hostname: str, *, patient: bool = True) -> Resolution:
        """Return the addresses, or the outcome that explains why there are none."""

    async def close(self) -> None:
        """End all look-ups in progress."""


class FetcherNeeds(NamedTuple):
    """The arguments for making a fetcher; `processes` is the number of processes that share the crawl's limits."""

    config: Config
    clock: Clock
    unexpected: Unexpected
    processes: int


# minimum bytes of bodies that a process may hold; enough for four bodies of the default maximum length
HELD_LEAST = 48 << 20
MakeFetcher = Callable[[FetcherNeeds], Fetcher]


def held_share(held_bytes_max: int, processes: int) -> int:
    """Return the number of bytes of bodies that each process of a machine may hold, at least `HELD_LEAST`."""
    return max(min(HELD_LEAST, held_bytes_max), held_bytes_max // processes)


def _http(needs: FetcherNeeds) -> Fetcher:
    from crawler.fetcher.client import Client

    config = needs.config
    held_bytes_max = ByteCount(held_share(config.fetch.held_bytes_max, config.crawl.processes))
    return Client(
        replace(config.fetch, held_bytes_max=held_bytes_max),
        config.identity,
        config.network,
        needs.clock,
        needs.unexpected,
        processes=needs.processes,
    )


FETCHERS: dict[str, MakeFetcher] = {HTTP: _http}


def named_fetchers(table: Mapping[str, MakeFetcher], config: Config) -> list[str]:
    """Return the names of the fetchers that a crawl needs: "http", and every name in an `[[override]]` table.

    Raises:
        ConfigError: an override names an unknown fetcher.
    """
    names = dict.fromkeys([HTTP, *(own.fetcher for own in config.override if own.fetcher)])
    for name in names:
        if name not in table:
            raise bad_setting("override.fetcher", f"unknown fetcher {name!r}; known: {', '.join(table)}")
    return list(names)


def make_fetcher(table: Mapping[str, MakeFetcher], needs: FetcherNeeds) -> Fetcher:
    """Make the fetcher of a process: "http", and every fetcher that an `[[override]]` table names.

    Raises:
        ConfigError: an override names an unknown fetcher, or one cannot be made from this configuration.
    """
    made = {name: table[name](needs) for name in named_fetchers(table, needs.config)}
    return made[HTTP] if len(made) == 1 else Fetchers(made)


class Fetchers:
    """Combines several fetchers: each task goes to the fetcher that it names."""

    places = 0

    def __init__(self, by_name: Mapping[str, Fetcher]) -> None:
        self._by_name = dict(by_name)
        self._places = {
            name: asyncio.Semaphore(fetcher.places) for name, fetcher in by_name.items() if fetcher.places
        }
        self._waiting = dict.fromkeys(self._places, 0)

    async def start(self) -> None:
        for fetcher in self._by_name.values():
            await fetcher.start()

    async def close(self) -> None:
        for fetcher in self._by_name.values():
            await fetcher.close()

    async def fetch(self, task: FetchRequest) -> Fetch:
        """Pass the task to the fetcher that it names, once that fetcher has a free place."""
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
        """Charge the memory to the fetcher "http", which receives most answers."""
        self._by_name[HTTP].hold_more(owner, nbytes)

    def let_go(self, owner: Hashable) -> None:
        """Call `let_go` of all fetchers, because any of them may have charged memory to the owner."""
        for fetcher in self._by_name.values():
            fetcher.let_go(owner)
