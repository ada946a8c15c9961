"""The identity of the crawler: whether those who are asked can reach who asks.

A crawler that cannot be reached is a nuisance. Without a contact there is a warning
before the first public host, and scope `any` refuses to begin there.
"""

import ipaddress
import logging

from crawler.config import Config
from crawler.errors import UsageError

log = logging.getLogger("crawler")


def is_public(host: str) -> bool:
    """False for addresses of special networks and for names that only mean this machine."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_global
    except ValueError:
        return not (host == "localhost" or host.endswith((".localhost", ".test", ".internal")))


class Contact:
    """Whether those whose hosts are asked can reach who asks."""

    def __init__(self, config: Config) -> None:
        self._scope = config.crawl.scope
        self._settled = bool(config.identity.contact)

    def check(self, host: str) -> None:
        """Warn before the first public host.

        Raises:
            UsageError: the scope is `any`.
        """
        if self._settled or not is_public(host):
            return
        if self._scope == "any":
            raise UsageError("scope any on public hosts needs a way to reach you: --contact URL-or-mail")
        log.warning(
            "no contact in the User-Agent: give --contact URL-or-mail, so that site owners can reach you"
        )
        self._settled = True
