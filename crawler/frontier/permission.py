"""What robots.txt and the user's overrides say of one URL: whether it may be asked, and how slowly.

A canonical URL is its authority (`https://host:port`) and its target (path and
query). robots.txt is not asked where the policy is `ignore`, for the crawl or
for the URL (`[[override]]`).
"""

from typing import Protocol

from crawler.config import Config, Override, Overrides
from crawler.frontier.discovery import entries
from crawler.frontier.hosts.politeness import NO_OVERRIDE
from crawler.records import FetchTask
from crawler.robots.cache import ALLOWED, Verdict


class Robots(Protocol):
    """What the frontier asks of the robots cache."""

    def verdict(self, authority: str, target: str, now: float) -> Verdict: ...

    def crawl_delay(self, authority: str) -> float | None: ...


class Permission:
    """Joins the robots cache and the overrides; holds nothing of its own."""

    def __init__(self, robots: Robots, config: Config) -> None:
        self._robots = robots
        self._policy = config.robots.policy
        self._overrides = Overrides(config.override)

    def verdict(self, name: str, authority: str, target: str, now: float) -> Verdict:
        """Whether the target may be asked on the authority, whose host is `name`."""
        if not self._asks_robots(name, authority, target):
            return ALLOWED
        return self._robots.verdict(authority, target, now)

    def binds(self, name: str, url: str) -> bool:
        """Whether robots.txt is obeyed for a URL."""
        return self._asks_robots(name, *entries.split_authority(url))

    def crawl_delay(self, name: str, authority: str, target: str) -> float:
        """Seconds that the Crawl-delay of robots.txt asks for; 0.0 if it has none."""
        if not self._asks_robots(name, authority, target):
            return 0.0
        return self._robots.crawl_delay(authority) or 0.0

    def crawl_delay_of(self, fetch_task: FetchTask) -> float:
        """The Crawl-delay for a fetch task's URL."""
        return self.crawl_delay(fetch_task.hostname, *entries.split_authority(fetch_task.url))

    def override(self, url: str, name: str) -> Override:
        """What the user set for the URL alone."""
        return self._overrides.for_url(url, name) if self._overrides else NO_OVERRIDE

    def delay(self, url: str, name: str) -> float:
        """Seconds that robots.txt or the user asks for behind a request for the URL, beside the host's own gap."""
        crawl_delay = self.crawl_delay(name, *entries.split_authority(url))
        return max(crawl_delay, self.override(url, name).delay or 0.0)

    def _asks_robots(self, name: str, authority: str, target: str) -> bool:
        policy = self._policy
        if self._overrides:
            policy = self._overrides.for_url(authority + target, name).robots or policy
        return policy != "ignore"
