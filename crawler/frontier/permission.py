"""Permission to fetch a URL: withdrawals, robots.txt, the user's overrides, and the crawl delay that is required.

A canonical URL consists of its authority (`https://host:port`) and its target (path and query). A withdrawn
URL is denied without consulting robots.txt. robots.txt is not consulted if the robots policy is `ignore`,
either for the whole crawl or for this URL (`[[override]]`).
"""

from collections.abc import Callable
from typing import Protocol

from crawler.config import Config, Override, Overrides
from crawler.frontier.discovery import entries
from crawler.frontier.hosts.politeness import NO_OVERRIDE, GapRule
from crawler.robots.cache import ALLOWED, DENIED, Verdict


class Robots(Protocol):
    """The interface of the robots cache that the frontier uses."""

    def verdict(self, authority: str, target: str, now: float) -> Verdict: ...

    def crawl_delay(self, authority: str) -> float | None: ...

    def line(self, authority: str, target: str) -> str: ...


class Permission:
    """Combines the robots cache and the overrides. It has no state of its own."""

    def __init__(
        self, robots: Robots, config: Config, withdrawn: Callable[[str], bool] = lambda url: False
    ) -> None:
        self._robots = robots
        self._withdrawn = withdrawn
        self._policy = config.robots.policy
        self._withholds = config.serve.withholds_disallowed
        self._overrides = Overrides(config.override)

    def verdict(self, name: str, authority: str, target: str, now: float) -> Verdict:
        """Return whether the target may be fetched from the authority, which belongs to the host `name`."""
        if self._withdrawn(authority + target):
            return DENIED
        if not self._asks_robots(name, authority, target):
            return ALLOWED
        return self._robots.verdict(authority, target, now)

    def binds(self, name: str, url: str) -> bool:
        """Return whether robots.txt is obeyed for a URL."""
        return self._asks_robots(name, *entries.split_authority(url))

    def disallowing_line(self, name: str, url: str) -> str:
        """Return the line that forbids a URL of the host `name` in the robots.txt fetched last; "" if no line does.

        The result is also "" if robots.txt is not obeyed for the URL.
        """
        if not self.binds(name, url):
            return ""
        line = self._robots.line(*entries.split_authority(url))
        return line if line.startswith("Disallow") else ""

    def withholding_line(self, name: str, url: str) -> str:
        """Return the line of robots.txt that withholds the copies of a URL; "" if the copies are shown."""
        return self.disallowing_line(name, url) if self._withholds else ""

    def crawl_delay(self, name: str, authority: str, target: str) -> float:
        """Return the Crawl-delay of robots.txt in seconds; 0.0 if it has none."""
        if not self._asks_robots(name, authority, target):
            return 0.0
        return self._robots.crawl_delay(authority) or 0.0

    def gap_rule(self, url: str, name: str) -> GapRule:
        """Return what robots.txt and the user's override require of the gap after the URL."""
        crawl_delay = self.crawl_delay(name, *entries.split_authority(url))
        return GapRule(crawl_delay, self.override(url, name))

    def override(self, url: str, name: str) -> Override:
        """Return the user's override for this URL."""
        return self._overrides.for_url(url, name) if self._overrides.tables else NO_OVERRIDE

    def own_delay(self, name: str) -> float | None:
        """Return the minimum gap that the user's overrides set for the host `name`; None if they set none."""
        return self.override(f"https://{name}/", name).delay

    def delay(self, url: str, name: str) -> float:
        """Return the delay in seconds that robots.txt or the user requires after the URL.

        The gap of the host is not included.
        """
        rule = self.gap_rule(url, name)
        return max(rule.crawl_delay, rule.override.delay or 0.0)

    def _asks_robots(self, name: str, authority: str, target: str) -> bool:
        policy = self._policy
        if self._overrides.tables:
            policy = self._overrides.for_url(authority + target, name).robots or policy
        return policy != "ignore"
