"""Who asks, and where to begin: checks of the product token, the contact and the seeds.

A crawler that cannot be reached is a nuisance: without a contact there is a
warning before the first public host, and scope `any` refuses to begin there.
"""

import ipaddress
import itertools
import logging
import re
from collections.abc import Iterable, Iterator

from crawler.config import Config
from crawler.errors import ConfigError, UsageError
from crawler.urls.canonical import canonical, hostname

log = logging.getLogger("crawler")

SEEDS_AT_ONCE = 1000  # seeds queued for one commit
_TOKEN = re.compile(r"[A-Za-z_-]+")  # RFC 9309, section 2.2.1


def check_identity(config: Config) -> None:
    """Raises ConfigError for a product token that robots.txt cannot name."""
    if not _TOKEN.fullmatch(config.identity.token):
        raise ConfigError(
            f"configuration: identity.token {config.identity.token!r}: letters, - and _ only (RFC 9309, 2.2.1)"
        )


def is_public(host: str) -> bool:
    """False for addresses of special networks and for names that only mean this machine."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_global
    except ValueError:
        return not (host == "localhost" or host.endswith((".localhost", ".test", ".internal")))


REFUSED_SHOWN = 10  # a file that is no list of URLs must not fill screen and log


class Seeds:
    """The seeds of a run, canonical, in pieces of `SEEDS_AT_ONCE`; what is no URL is logged and counted."""

    def __init__(self, config: Config, raw_urls: Iterable[str]) -> None:
        self._scope = config.crawl.scope
        self._contact = config.identity.contact
        self._raw_urls = iter(raw_urls)
        self._warned = bool(self._contact)
        self.refused = 0

    def __iter__(self) -> Iterator[list[str]]:
        while piece := list(itertools.islice(self._raw_urls, SEEDS_AT_ONCE)):
            yield [url for raw_url in piece if (url := self._accept(raw_url))]

    def _accept(self, raw_url: str) -> str:
        url = canonical(raw_url) or ""
        if not url:
            self.refused += 1
            if self.refused <= REFUSED_SHOWN:
                log.error("seed %r is no http(s) URL", raw_url[:200])
            if self.refused == REFUSED_SHOWN:
                log.error("further seeds of this kind are only counted")
        elif not self._warned and is_public(hostname(url)):
            self._no_contact()
        return url

    def _no_contact(self) -> None:
        if self._scope == "any":
            raise UsageError("scope any on public hosts needs a way to reach you: --contact URL-or-mail")
        log.warning(
            "no contact in the User-Agent: give --contact URL-or-mail, so that site owners can reach you"
        )
        self._warned = True
