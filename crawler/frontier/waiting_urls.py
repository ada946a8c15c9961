"""Lists the URLs that wait in a store, and whether their servers work. The crawl may be running or at rest.

A server counts as unreachable if the latest request to the URL's authority (`hosts/authorities.py`) or to its
host has failed, or if the latest request for its robots.txt has. A server also counts as unreachable if the
look-up of its host failed, or if its host was given up or has refused too many requests.
"""

from collections.abc import Iterator
from typing import NamedTuple

from crawler.frontier.discovery import entries
from crawler.frontier.hosts.authorities import Failing, stored_failing
from crawler.frontier.hosts.politeness import CAUSES
from crawler.frontier.hosts.table import GAVE_UP, stored_host
from crawler.storage.keys import TODO
from crawler.storage.kv import KeyValue, scan_prefix


class WaitingUrl(NamedTuple):
    """A URL to do; `via` is the fingerprint of the page that links to it, and `flags` are its `LinkFlag`s.

    `failing` is None if its server works.
    """

    url: str
    fingerprint: int
    depth: int
    via: int
    flags: int
    failing: Failing | None


def waiting_urls(store: KeyValue) -> Iterator[WaitingUrl]:
    """Yield the URLs to do, host by host.

    Raises:
        DamageError: a value is damaged.
    """
    host_key, name, failing = b"", "", None
    authorities: dict[str, Failing] = {}
    for key, value in scan_prefix(store, TODO):
        if key[2:10] != host_key:
            host_key = key[2:10]
            name, failing = _host(store, host_key)
            authorities = stored_failing(store, host_key)
        entry = entries.decode(key, value)
        url = entries.join_url(name, entry.tail)
        authority = entries.split_authority(url)[0]
        depth = entries.depth_of(int.from_bytes(key[10:], "big"), entry)
        failed = authorities.get(authority, failing)
        yield WaitingUrl(url, entry.fingerprint, depth, entry.via, entry.flags, failed)


def _host(store: KeyValue, host_key: bytes) -> tuple[str, Failing | None]:
    """Return the name of a host, and its failures if it does not answer or refuses requests."""
    host = stored_host(store, int.from_bytes(host_key, "big"))
    if host.failures or host.flags & GAVE_UP:
        return host.name, Failing(max(1, host.failures), CAUSES[host.cause])
    return host.name, None
