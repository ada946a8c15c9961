"""Looks names up: A and AAAA through c-ares, one look-up in flight a name, with its own concurrency.

    literal address -> hosts file, localhost -> cache -> look-up in flight -> name servers

A first look-up asks once for A and once for AAAA, at the same time. Dead names
hold no fetch up: look-ups wait for one another, never for fetches. Where many
wait, a caller gives a name up after `dns_patience`; the look-up goes on, and its
answer is known when the name is asked for again. Denied addresses of an answer are
skipped; if none is left the outcome is `address_denied`. The guard checks each
connection as well.
"""

import asyncio
from pathlib import Path
from typing import Any

import aiodns
import pycares

from crawler.clock import Clock
from crawler.config import NetworkConfig
from crawler.fetcher import dns_cache
from crawler.fetcher.address_guard import AddressGuard
from crawler.fetcher.dns_cache import DnsCache, Resolution
from crawler.records import Outcome

_NO_ADDRESS = frozenset((aiodns.error.ARES_ENOTFOUND, aiodns.error.ARES_ENODATA, aiodns.error.ARES_EBADNAME))
_KINDS = {"A": pycares.QUERY_TYPE_A, "AAAA": pycares.QUERY_TYPE_AAAA}
_HOSTS_FILE = Path("/etc/hosts")
_HOSTS_FILE_MAX = 16 << 20
_RESOLUTION_DELAY = 0.25  # s; that AAAA may be later than A (RFC 8305 says 0.05): many name servers drop it
_ABANDONED = 4  # look-ups that go on without a caller: this times those that have one


_Found = tuple[list[tuple[str, float]], str]  # addresses with their TTL, or why there is no answer


class Resolver:
    """Names to addresses. `resolve` never raises for anything a name server does."""

    def __init__(
        self, network: NetworkConfig, guard: AddressGuard, clock: Clock, *, hosts_file: Path = _HOSTS_FILE
    ) -> None:
        self._config = network
        self._guard = guard
        self._clock = clock
        self._cache = DnsCache(network.dns_cache_entries_max)
        self._hosts = dns_cache.local_names(_lines(hosts_file))
        self._running: dict[str, asyncio.Task[Resolution]] = {}
        self._slots = asyncio.Semaphore(_ABANDONED * network.dns_concurrency)
        self._servers: dict[int, aiodns.DNSResolver] = {}  # by the tries they make

    def cached(self, hostname: str, now: float) -> Resolution | None:
        """What is known without a look-up; None if the name must be asked for."""
        found = self._cache.get(hostname, now)
        if found is not None:
            return found
        address = dns_cache.literal(hostname)
        local = (address,) if address else self._hosts.get(hostname) or dns_cache.loopback_name(hostname)
        if local:
            records = [(address, self._config.dns_ttl_max) for address in local]
            resolution = dns_cache.conclude(hostname, records, self._guard, self._config, now)
        elif not hostname or dns_cache.looks_numeric(hostname):
            resolution = dns_cache.not_found(hostname, self._config, now)
        else:
            return None
        self._cache.put(hostname, resolution)
        return resolution

    async def resolve(self, hostname: str, *, patient: bool = True) -> Resolution:
        """The addresses of `hostname` (lower case, no trailing dot), or the outcome that there are none.

        `patient`: wait for the whole time limit, and ask twice.
        """
        known = self.cached(hostname, self._clock.now())
        if known is not None:
            return known
        task = self._running.get(hostname)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._look_up(hostname, 2 if patient else 1))
            self._running[hostname] = task
            task.add_done_callback(lambda _: self._running.pop(hostname, None))
        try:
            async with asyncio.timeout(None if patient else self._config.dns_patience):
                return await asyncio.shield(task)
        except TimeoutError:
            return _no_answer(hostname)

    async def close(self) -> None:
        """End the look-ups that run."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for servers in self._servers.values():
            await servers.close()
        self._servers.clear()

    async def _look_up(self, hostname: str, tries: int) -> Resolution:
        async with self._slots:
            try:
                async with asyncio.timeout(self._config.dns_timeout):
                    answers = await self._ask_both(hostname, tries)
            except TimeoutError:
                return _no_answer(hostname)
        now = self._clock.now()
        records = [record for found, _ in answers for record in found]
        failures = [failure for _, failure in answers if failure]
        if failures and not records:
            return Resolution((), 0.0, Outcome.DNS_ERROR, f"{hostname}: {failures[0]}")
        resolution = dns_cache.conclude(hostname, records, self._guard, self._config, now)
        self._cache.put(hostname, resolution)
        return resolution

    async def _ask_both(self, hostname: str, tries: int) -> list[_Found]:
        """What A and AAAA bring; A alone if it has addresses and the other keeps us waiting."""
        create_task = asyncio.get_running_loop().create_task
        first, second = (create_task(self._ask(hostname, kind, tries)) for kind in ("A", "AAAA"))
        try:
            found = await first
            if found[0] and not second.done():
                await asyncio.wait((second,), timeout=_RESOLUTION_DELAY)
                if not second.done():
                    return [found]
            return [found, await second]
        finally:
            first.cancel()
            second.cancel()

    async def _ask(self, hostname: str, kind: str, tries: int) -> _Found:
        """Addresses with their TTL; or why there is no answer ("" if there just are none)."""
        try:
            result: Any = await self._asking(tries).query_dns(hostname, kind)
        except aiodns.error.DNSError as error:
            if error.args[0] in _NO_ADDRESS:
                return [], ""
            return [], " ".join(str(part) for part in error.args[1:])
        except (UnicodeError, ValueError) as error:
            return [], str(error)  # no name that DNS can carry
        ttl = min((record.ttl for record in result.answer), default=0)
        return [(record.data.addr, ttl) for record in result.answer if record.type == _KINDS[kind]], ""

    def _asking(self, tries: int) -> aiodns.DNSResolver:
        """A resolver that asks the name servers that many times within the time limit."""
        servers = self._servers.get(tries)
        if servers is None:
            servers = self._servers[tries] = aiodns.DNSResolver(
                nameservers=self._config.dns_servers or None,
                timeout=self._config.dns_timeout / tries,
                tries=tries,
            )
        return servers

    def __repr__(self) -> str:
        return f"Resolver({self._cache!r}, in flight={len(self._running)}, hosts={len(self._hosts)})"


def _no_answer(hostname: str) -> Resolution:
    return Resolution((), 0.0, Outcome.DNS_ERROR, f"{hostname}: no DNS answer in time")


def _lines(path: Path) -> list[str]:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(_HOSTS_FILE_MAX).splitlines()
    except OSError:
        return []
