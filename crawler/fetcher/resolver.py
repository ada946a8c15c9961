"""Resolves host names to A and AAAA addresses through c-ares (`fetcher/README.md`, "Addresses").

    literal address -> hosts file, localhost -> cache -> look-up in flight -> name servers

A look-up sends one query for A and one for AAAA at the same time. While many look-ups wait, a caller gives up
after `dns_patience`; the look-up continues, and its answer is cached for the next request for the name.
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
# seconds to wait for the AAAA answer after the A answer (RFC 8305: 0.05); many servers never answer AAAA
# queries
_RESOLUTION_DELAY = 0.25
# Maximum number of abandoned look-ups, for which no caller waits any more, per look-up for which a caller still
# waits.
_ABANDONED = 4


# (addresses with their TTL; the reason why there is no answer, or "")
_Found = tuple[list[tuple[str, float]], str]


class Resolver:
    """Resolves names to addresses. `resolve` never raises, whatever a name server does."""

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
        self._servers: dict[int, aiodns.DNSResolver] = {}  # one resolver for each number of tries

    def cached(self, hostname: str, now: float) -> Resolution | None:
        """Return the resolution if it is known without a new look-up, else None."""
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
        """Return the addresses of `hostname` (lower case, no trailing dot), or the outcome if there are none.

        If `patient`, wait for the whole time limit, and send the query twice.
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
        """End the look-ups in progress."""
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
        """Return the answers for A and AAAA. If A has addresses and the answer for AAAA is late, return A alone."""
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
        """Return (addresses with their TTL, error). If the name has no address, both are empty."""
        try:
            result: Any = await self._asking(tries).query_dns(hostname, kind)
        except aiodns.error.DNSError as error:
            if error.args[0] in _NO_ADDRESS:
                return [], ""
            return [], " ".join(str(part) for part in error.args[1:])
        except (UnicodeError, ValueError) as error:
            return [], str(error)  # the name is not valid in DNS
        ttl = min((record.ttl for record in result.answer), default=0)
        return [(record.data.addr, ttl) for record in result.answer if record.type == _KINDS[kind]], ""

    def _asking(self, tries: int) -> aiodns.DNSResolver:
        """Return a resolver that tries the name servers `tries` times within the time limit."""
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
