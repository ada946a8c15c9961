"""Watches whether the proxy works, and logs at once when it fails, because nothing is fetched without it.

When the proxy fails, many hosts seem not to answer, and the requests to each of these hosts are delayed and
retried. One log line with the proxy's address shows that the proxy is the cause. Another log line reports
when the proxy answers again.
"""

import logging
import math

from crawler.records import Fetch, Outcome

log = logging.getLogger("crawler.fetcher")

WORD_INTERVAL = 60.0  # seconds between two log lines about a failure, as some proxies fail occasionally
_ANSWERS = "the proxy answers "  # `connector.py`


class ProxyHealth:
    """The state of `proxy` (without credentials), judged by fetches. `logs_in` means that it gets credentials."""

    def __init__(self, proxy: str, *, logs_in: bool = False) -> None:
        self._proxy = proxy
        self._login = (
            "it rejects the user and password that fetch.proxy contains"
            if logs_in
            else "it requires a login (fetch.proxy=http://USER:PASSWORD@HOST:PORT)"
        )
        self._worked = False  # whether the proxy has ever worked
        self._told = False  # whether the failure has been logged
        self._told_at = -math.inf

    def note(self, fetch: Fetch, now: float) -> None:
        """Record a fetch that ended at `now` (seconds on any clock that never steps back).

        A 502 from a proxy that has worked before is about the host, not the proxy.
        """
        if fetch.outcome is not Outcome.PROXY_ERROR:
            if self._told:
                log.warning("the proxy %s answers again", self._proxy)
            self._worked, self._told = True, False
            return
        of_host = self._worked and fetch.error.startswith(_ANSWERS) and not _wants_login(fetch)
        if not of_host and not self._told and now - self._told_at >= WORD_INTERVAL:
            self._told, self._told_at = True, now
            why = self._login if _wants_login(fetch) else fetch.error
            log.error("the proxy %s failed: %s (%s); hosts wait and are retried", self._proxy, why, fetch.url)


def _wants_login(fetch: Fetch) -> bool:
    return fetch.status == 407 or fetch.error.startswith(_ANSWERS + "407")
