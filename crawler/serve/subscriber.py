"""Requests subscriptions from WebSub hubs and renews them before their leases end; `websub.py` decides when.

A subscription is requested with a form, which the process that owns the hub's host sends
(`process/fetching/single_requests.py`). A form contains the secret with which the hub will sign its
deliveries. So a redirect is followed only within the hub's own origin, and only if it repeats the POST
(307 and 308; WebSub 5.1).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import urlencode

from crawler.fetcher.fetch_request import FetchRequest, split
from crawler.records import Fetch
from crawler.serve.websub import Subscriptions
from crawler.urls.canonical import canonical, resolve

log = logging.getLogger("crawler")

LOOK_INTERVAL = 30.0  # number of seconds between two checks for due subscriptions
HUB_TIMEOUT = 20.0  # maximum number of seconds to wait for the answer of a hub
ANSWER_BYTES_MAX = 64 << 10  # maximum number of bytes of an answer that are read; only the status is used
HOPS_MAX = 5
_FORM = ("Content-Type: application/x-www-form-urlencoded",)

Ask = Callable[[FetchRequest], Awaitable[Fetch]]


def read_topics(lines: Sequence[str]) -> list[tuple[str, str]]:
    """Return a pair (topic, hub) for each line "TOPIC HUB" of `serve.websub`, which the configuration has checked."""
    return [(topic, hub) for topic, hub in map(str.split, lines)]


class Subscriber:
    """Posts forms to hubs (WebSub 5.1). Each hub gets one form at a time.

    `public` is the URL at which hubs reach this page server. The function `ask` sends a request once the hub's
    host may be requested.
    """

    def __init__(self, subscriptions: Subscriptions, public: str, now: Callable[[], float], ask: Ask) -> None:
        self._subscriptions = subscriptions
        self._public = public.rstrip("/")
        self._now = now
        self._ask = ask

    async def run(self) -> None:
        """Send the forms to the hubs when they are due, until the task is cancelled."""
        while True:
            await self.ask()
            await asyncio.sleep(LOOK_INTERVAL)

    async def ask(self) -> None:
        """Send the forms that are due now."""
        by_hub: dict[str, list[dict[str, str]]] = {}
        for hub, form in self._subscriptions.due(self._public, self._now()):
            by_hub.setdefault(hub, []).append(form)
        await asyncio.gather(*(self._post_all(hub, forms) for hub, forms in by_hub.items()))

    async def _post_all(self, hub: str, forms: Sequence[dict[str, str]]) -> None:
        for form in forms:
            await self._post(hub, form)

    async def _post(self, hub: str, form: dict[str, str]) -> None:
        url = canonical(hub)
        for _ in range(HOPS_MAX + 1):
            assert url is not None, hub
            fetch = await self._ask(_task(url, form))
            target = resolve(url, fetch.location) if fetch.status in (307, 308) else None
            if target is None:
                return _say(hub, form["hub.topic"], fetch)
            if split(target)[:2] != split(url)[:2]:
                return log.warning(
                    "websub: %s redirects to %s, which is not followed: the secret is for that hub alone. "
                    "Name the hub's new address in serve.websub",
                    hub,
                    target,
                )
            url = target
        log.warning("websub: %s redirects more than %d times", hub, HOPS_MAX)


def _task(url: str, form: dict[str, str]) -> FetchRequest:
    return FetchRequest(
        url,
        headers=_FORM,
        method="POST",
        body=urlencode(form).encode(),
        body_bytes_max=ANSWER_BYTES_MAX,
        wire_bytes_max=ANSWER_BYTES_MAX,
        total_timeout=HUB_TIMEOUT,
    )


def _say(hub: str, topic: str, fetch: Fetch) -> None:
    """Log an answer other than 202."""
    if not fetch.status:
        log.warning("websub: %s cannot be reached: %s", hub, fetch.error or fetch.outcome)
    elif fetch.status != 202:
        log.warning("websub: %s answers %d to a subscription to %s", hub, fetch.status, topic)
