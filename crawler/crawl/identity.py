"""Checks that the crawler tells site owners how they can contact its operator.

A crawler whose operator cannot be contacted is a nuisance for site owners. Without a contact, a warning is
logged before the first public host is visited. With the scope `any`, there is an error instead of a warning.
"""

import ipaddress
import logging

from crawler.config import Config
from crawler.errors import UsageError

log = logging.getLogger("crawler")


def is_public(host: str) -> bool:
    """Return whether a host is public. Addresses of special networks, and names of this machine, are not public."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_global
    except ValueError:
        return not (host == "localhost" or host.endswith((".localhost", ".test", ".internal")))


class Contact:
    """Checks that site owners can contact the crawl's operator."""

    def __init__(self, config: Config) -> None:
        self._scope = config.crawl.scope
        self._settled = bool(config.identity.contact)

    def check(self, host: str) -> None:
        """Warn before the first public host is visited, unless the operator has given a contact.

        Raises:
            UsageError: there is no contact, and the scope is `any`.
        """
        if self._settled or not is_public(host):
            return
        if self._scope == "any":
            raise UsageError(
                "scope any on public hosts needs a way to reach you: identity.contact=URL-or-mail"
            )
        log.warning(
            "no contact in the User-Agent: give identity.contact=URL-or-mail, so that site owners can reach you"
        )
        self._settled = True
