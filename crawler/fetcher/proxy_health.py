"""Whether the proxy works: said in the log at once when it stops, as without it nothing is fetched.

A proxy that is down looks like many hosts that do not answer: each waits, and is tried again. One line
with the proxy's address tells it from that; another one tells that it answers again.
"""

import logging
import math

from crawler.records import Fetch, Outcome

log = logging.getLogger("crawler.fetcher")

WORD_INTERVAL = 60.0  # seconds between two such lines: some proxies fail now and then
_ANSWERS = "the proxy answers "  # `tunnels.py`


class ProxyHealth:
    """What is known of `proxy`, its address without credentials, by the fetches through it."""

    def __init__(self, proxy: str) -> None:
        self._proxy = proxy
        self._worked = False  # ever
        self._told = False  # that it fails
        self._told_at = -math.inf

    def note(self, fetch: Fetch, now: float) -> None:
        """A fetch has ended at `now`, any time in seconds that does not step back.

        A proxy that has worked and answers 502 speaks of the host, not of itself.
        """
        if fetch.outcome is not Outcome.PROXY_ERROR:
            if self._told:
                log.warning("the proxy %s answers again", self._proxy)
            self._worked, self._told = True, False
            return
        of_host = self._worked and fetch.error.startswith(_ANSWERS) and not _wants_login(fetch)
        if not of_host and not self._told and now - self._told_at >= WORD_INTERVAL:
            self._told, self._told_at = True, now
            why = (
                "it wants a login (--proxy http://USER:PASSWORD@HOST:PORT)"
                if _wants_login(fetch)
                else fetch.error
            )
            log.error(
                "the proxy %s failed: %s (%s); hosts wait and are tried again", self._proxy, why, fetch.url
            )


def _wants_login(fetch: Fetch) -> bool:
    return fetch.status == 407 or fetch.error.startswith(_ANSWERS + "407")
