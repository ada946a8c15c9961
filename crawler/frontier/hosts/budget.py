"""Budgets and the maximum depth, which decide whether a URL is parked.

A URL beyond the depth or a budget is never dropped: its entry is stored under `p/` instead of `t/`, and moved
to the queue when the limit is raised. Parked URLs are counted for each rule (`frontier/README.md`,
"Budgets"). In a crawl with the scope host, domain or prefix, only sitemaps are limited by default.

    depth             number of links from a seed
    pages_per_host    URLs accepted to one host's queue
    pages_per_domain  URLs accepted to all hosts of a registrable domain
    hosts_per_domain  hosts of a domain; a further host is excluded with all its URLs
    maps_per_host     sitemaps accepted to one host's queue; they use no page budget
"""

from array import array
from typing import ClassVar

import msgspec
import numpy as np

from crawler.config import Config, CrawlConfig, Overrides
from crawler.frontier.hosts.table import HostFlag, HostTable, KeyedTable
from crawler.records import LinkFlag

# A Todo stores the index of a rule, so new rules are only appended.
RULES = ("", "depth", "pages_per_host", "pages_per_domain", "hosts_per_domain", "maps_per_host")
DEPTH, PAGES_PER_HOST, PAGES_PER_DOMAIN, HOSTS_PER_DOMAIN, MAPS_PER_HOST = range(1, 6)

_IN_SCOPE_ANY = {"depth": 20, "pages_per_host": 10_000, "pages_per_domain": 20_000, "hosts_per_domain": 200}
UNLIMITED = 1 << 62
SITEMAP = LinkFlag.SITEMAP
_AGAIN = LinkFlag.AGAIN


class HostLimits(msgspec.Struct, frozen=True):
    """The limits in force; UNLIMITED stands for no limit."""

    depth: int
    pages_per_host: int
    pages_per_domain: int
    hosts_per_domain: int


def limits(crawl: CrawlConfig) -> HostLimits:
    """Return the limits that follow from the settings and the scope."""
    values = {}
    for name, in_scope_any in _IN_SCOPE_ANY.items():
        value = getattr(crawl, name)
        if value < 0:
            value = in_scope_any if crawl.scope == "any" else UNLIMITED
        values[name] = value
    return HostLimits(**values)


class DomainTable(KeyedTable):
    """For each registrable domain, the number of URLs accepted (`pages`) and of hosts counted (`hosts`)."""

    columns: ClassVar[dict[str, str]] = {"pages": "u4", "hosts": "u4"}

    pages: "array[int]"
    hosts: "array[int]"

    def fill(self, keys: np.ndarray, hosts: HostTable) -> None:
        """Build the table and link the hosts to it.

        `keys` holds the domain key of each host and has shape (len(hosts),).
        """
        unique, inverse = np.unique(keys, return_inverse=True)
        counted = (hosts.array("flags") & HostFlag.EXCLUDED) == 0
        records = np.zeros(len(unique), dtype=[("key", "u8"), ("pages", "u4"), ("hosts", "u4")])
        records["key"] = unique
        records["pages"] = np.bincount(inverse, weights=hosts.array("known"), minlength=len(unique))
        records["hosts"] = np.bincount(inverse, weights=counted, minlength=len(unique))
        self.extend(records)
        hosts.put("domain", slice(None), inverse)


class Budget:
    """Decides for each URL whether it is parked, and counts the accepted URLs.

    `binds` is False if pages have no limit at all; then `rule` returns 0 for every URL except sitemaps.
    """

    def __init__(self, config: Config, hosts: HostTable, domains: DomainTable) -> None:
        self.limits = limits(config.crawl)
        self._maps_max = config.sitemaps.maps_per_host_max
        self._overrides = Overrides(config.override)
        self.binds = bool(self._overrides) or min(msgspec.structs.astuple(self.limits)) < UNLIMITED
        self._hosts = hosts
        self._domains = domains

    def describe(self) -> str:
        """Return all settings that decide what is parked, as text; if the text changes, parked URLs are checked again."""
        tables = [
            (table.match, table.pages, table.depth, table.pages_per_domain)
            for table in self._overrides.tables
        ]
        return msgspec.json.encode([self.limits, tables, self._maps_max]).decode()

    def meet_host(self, slot: int) -> None:
        """Count a new host towards its domain's limit of hosts. If the limit is reached, exclude the host instead."""
        domain = self._hosts.domain[slot]
        if self._domains.hosts[domain] >= self.limits.hosts_per_domain:
            self._hosts.flags[slot] |= HostFlag.EXCLUDED
        else:
            self._domains.hosts[domain] += 1

    def include(self, slot: int) -> None:
        """Include an excluded host if its domain has room now."""
        if self._hosts.flags[slot] & HostFlag.EXCLUDED:
            self._hosts.flags[slot] ^= HostFlag.EXCLUDED
            self.meet_host(slot)

    def rule(self, slot: int, depth: int, url: str, name: str, flags: int = 0) -> int:
        """Return the rule that parks a URL of the host `name`; 0 if no rule parks it or if its page is already known."""
        if flags & _AGAIN:
            return 0
        hosts, limit = self._hosts, self.limits
        depth_max, pages_max, domain_max = limit.depth, limit.pages_per_host, limit.pages_per_domain
        if self._overrides.tables:
            override = self._overrides.for_url(url, name)
            depth_max = depth_max if override.depth is None else override.depth
            pages_max = pages_max if override.pages is None else override.pages
            domain_max = domain_max if override.pages_per_domain is None else override.pages_per_domain
        if depth > depth_max:
            return DEPTH
        if hosts.flags[slot] & HostFlag.EXCLUDED:
            return HOSTS_PER_DOMAIN
        if flags & SITEMAP:
            return MAPS_PER_HOST if hosts.maps[slot] >= self._maps_max else 0
        if hosts.known[slot] >= pages_max:
            return PAGES_PER_HOST
        if self._domains.pages[hosts.domain[slot]] >= domain_max:
            return PAGES_PER_DOMAIN
        return 0

    def accept(self, slot: int, flags: int = 0) -> None:
        """Count a URL that was accepted to the host's queue. A URL is counted once, even if it is queued again."""
        if flags & _AGAIN:
            return
        if flags & SITEMAP:
            self._hosts.maps[slot] += 1
            return
        self._hosts.known[slot] += 1
        self._domains.pages[self._hosts.domain[slot]] += 1
