"""Looks names up: A and AAAA through c-ares, one look-up in flight a name, with its own concurrency.

    literal address -> hosts file, localhost -> cache -> look-up in flight -> name servers

Dead names hold no fetch up: look-ups wait for one another, never for fetches. An
answer's denied addresses are skipped, and none left is `address_denied`; the
guard still stands at the connection itself.
"""

import asyncio
from pathlib import Path
from typing import Any

import aiodns
import pycares

from crawler.clock import Clock
from crawler.config import NetworkConfig
from crawler.fetcher import dns_cache
from crawler.fetcher.dns_cache import DnsCache, Resolution
from crawler.fetcher.guard import Guard
from crawler.records import Outcome

_NO_ADDRESS = frozenset((aiodns.error.ARES_ENOTFOUND, aiodns.error.ARES_ENODATA, aiodns.error.ARES_EBADNAME))
_KINDS = {"A": pycares.QUERY_TYPE_A, "AAAA": pycares.QUERY_TYPE_AAAA}
_HOSTS_FILE = Path("/etc/hosts")
_HOSTS_FILE_MAX = 16 << 20


class Resolver:
    """Names to addresses. `resolve` never raises for anything a name server does."""

    def __init__(
        self, network: NetworkConfig, guard: Guard, clock: Clock, *, hosts_file: Path = _HOSTS_FILE
    ) -> None:
        self._config = network
        self._guard = guard
        self._clock = clock
        self._cache = DnsCache(network.dns_cache_entries_max)
        self._hosts = dns_cache.local_names(_lines(hosts_file))
        self._running: dict[str, asyncio.Task[Resolution]] = {}
        self._slots = asyncio.Semaphore(network.dns_concurrency)
        self._servers: aiodns.DNSResolver | None = None

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

    async def resolve(self, hostname: str) -> Resolution:
        """The addresses of `hostname` (lower case, no trailing dot), or the outcome that there are none."""
        known = self.cached(hostname, self._clock.now())
        if known is not None:
            return known
        task = self._running.get(hostname)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._look_up(hostname))
            self._running[hostname] = task
            task.add_done_callback(lambda _: self._running.pop(hostname, None))
        return await asyncio.shield(task)

    async def close(self) -> None:
        """End the look-ups that run."""
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        if self._servers is not None:
            await self._servers.close()
            self._servers = None

    async def _look_up(self, hostname: str) -> Resolution:
        async with self._slots:
            try:
                async with asyncio.timeout(self._config.dns_timeout):
                    answers = await asyncio.gather(self._ask(hostname, "A"), self._ask(hostname, "AAAA"))
            except TimeoutError:
                return Resolution((), 0.0, Outcome.DNS_ERROR, f"{hostname}: no DNS answer in time")
        now = self._clock.now()
        records = [record for found, _ in answers for record in found]
        failures = [failure for _, failure in answers if failure]
        if failures and not records:
            return Resolution((), 0.0, Outcome.DNS_ERROR, f"{hostname}: {failures[0]}")
        resolution = dns_cache.conclude(hostname, records, self._guard, self._config, now)
        self._cache.put(hostname, resolution)
        return resolution

    async def _ask(self, hostname: str, kind: str) -> tuple[list[tuple[str, float]], str]:
        """Addresses with their TTL; or why there is no answer ("" if there just are none)."""
        if self._servers is None:
            self._servers = self._make_servers()
        try:
            result: Any = await self._servers.query_dns(hostname, kind)
        except aiodns.error.DNSError as error:
            if error.args[0] in _NO_ADDRESS:
                return [], ""
            return [], " ".join(str(part) for part in error.args[1:])
        except (UnicodeError, ValueError) as error:
            return [], str(error)  # no name that DNS can carry
        ttl = min((record.ttl for record in result.answer), default=0)
        return [(record.data.addr, ttl) for record in result.answer if record.type == _KINDS[kind]], ""

    def _make_servers(self) -> aiodns.DNSResolver:
        return aiodns.DNSResolver(
            nameservers=self._config.dns_servers or None, timeout=self._config.dns_timeout / 2, tries=2
        )

    def __repr__(self) -> str:
        return f"Resolver({self._cache!r}, in flight={len(self._running)}, hosts={len(self._hosts)})"


def _lines(path: Path) -> list[str]:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(_HOSTS_FILE_MAX).splitlines()
    except OSError:
        return []
