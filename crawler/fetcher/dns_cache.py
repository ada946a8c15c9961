"""Caches DNS answers: addresses until their time to live ends, and names without addresses for a while.

The cache is a plain object that receives the time as `now`; `resolver.py` does the network part. An entry
expires after the smallest TTL of its records. The TTL has an upper limit, and also a lower limit, because a
crawl does not need answers as fresh as an interactive user does. A name that does not exist is looked up
again after `negative_ttl`. Temporary failures (SERVFAIL, timeouts) need not be cached, because the frontier
delays the host after them. The oldest entries are evicted first.
"""

import ipaddress
from collections.abc import Iterable, Sequence

import msgspec

from crawler.config import NetworkConfig
from crawler.fetcher.address_guard import AddressGuard
from crawler.records import Outcome

_LOCAL = ("127.0.0.1", "::1")


class Resolution(msgspec.Struct, frozen=True, gc=False):
    """The addresses of a host, IPv4 first, until `expires`. Without addresses, fetches end with `outcome`."""

    addresses: tuple[str, ...]
    expires: float = 0.0
    outcome: Outcome | None = None
    error: str = ""


class DnsCache:
    """Holds at most `entries_max` resolutions, by host name."""

    __slots__ = ("_entries", "_entries_max")

    def __init__(self, entries_max: int) -> None:
        assert entries_max > 0
        self._entries: dict[str, Resolution] = {}
        self._entries_max = entries_max

    def get(self, hostname: str, now: float) -> Resolution | None:
        """Return the entry of `hostname`, or None if there is none or it has expired."""
        found = self._entries.get(hostname)
        if found is not None and found.expires <= now:
            del self._entries[hostname]
            return None
        return found

    def put(self, hostname: str, resolution: Resolution) -> None:
        """Store `resolution`; evict the oldest entry if the cache is full."""
        self._entries.pop(hostname, None)
        if len(self._entries) >= self._entries_max:
            del self._entries[next(iter(self._entries))]
        self._entries[hostname] = resolution

    def __len__(self) -> int:
        return len(self._entries)

    def _check(self) -> None:
        assert len(self._entries) <= self._entries_max

    def __repr__(self) -> str:
        return f"DnsCache({len(self._entries)}/{self._entries_max})"


def conclude(
    hostname: str, found: Sequence[tuple[str, float]], guard: AddressGuard, config: NetworkConfig, now: float
) -> Resolution:
    """Return the resolution of a name, given its records (address, TTL). Addresses that the guard denies are left out."""
    ttl = min((ttl for _, ttl in found), default=config.dns_negative_ttl)
    expires = now + min(max(ttl, config.dns_ttl_min), config.dns_ttl_max)
    addresses = [address for address, _ in found]
    allowed = tuple(
        sorted((address for address in dict.fromkeys(addresses) if guard.allows(address)), key=_family)
    )
    if allowed:
        return Resolution(allowed, expires)
    if addresses:
        denied = ", ".join(addresses[:4])
        return Resolution((), expires, Outcome.ADDRESS_DENIED, f"{hostname}: address not allowed: {denied}")
    return not_found(hostname, config, now)


def not_found(hostname: str, config: NetworkConfig, now: float) -> Resolution:
    """Return the resolution of a name that does not exist or has no address."""
    return Resolution((), now + config.dns_negative_ttl, Outcome.DNS_NOT_FOUND, f"{hostname}: no such host")


def _family(address: str) -> int:
    return 6 if ":" in address else 4  # IPv4 first: most crawl machines reach IPv4 addresses better


def literal(hostname: str) -> str:
    """Return the canonical address of an IP literal (with or without brackets), or "" if `hostname` is a name."""
    if not (hostname[-1:].isdigit() or ":" in hostname):
        return ""
    try:
        return str(ipaddress.ip_address(hostname.strip("[]")))
    except ValueError:
        return ""


def looks_numeric(hostname: str) -> bool:
    """Return whether a host's last label is a number. Such a host is never looked up as a name (WHATWG URL 3.5)."""
    last = hostname.rstrip(".").rpartition(".")[2]
    return last.isdigit() or last[:2].lower() == "0x"


def local_names(hosts_file: Iterable[str], *, names_max: int = 1_000_000) -> dict[str, tuple[str, ...]]:
    """Return the names in a hosts file (lines "address name ..."), in lower case, with all addresses of each name."""
    names: dict[str, tuple[str, ...]] = {}
    for line in hosts_file:
        fields = line.partition("#")[0].split()
        if len(fields) < 2 or not literal(fields[0]):
            continue
        for name in fields[1:]:
            key = name.lower().rstrip(".")
            if len(names) >= names_max and key not in names:
                return names
            names[key] = tuple(dict.fromkeys((*names.get(key, ()), literal(fields[0]))))
    return names


def loopback_name(hostname: str) -> tuple[str, ...]:
    """Return the loopback addresses for localhost and names below it; these are never looked up (RFC 6761 6.3)."""
    return _LOCAL if hostname == "localhost" or hostname.endswith(".localhost") else ()
