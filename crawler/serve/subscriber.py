"""Asks WebSub hubs for subscriptions, and again before their leases end; `websub.py` says when."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

import aiohttp

from crawler.errors import ConfigError
from crawler.serve.websub import Subscriptions
from crawler.urls.canonical import canonical

log = logging.getLogger("crawler")

LOOK_INTERVAL = 30.0  # seconds between looks for what is due
HUB_TIMEOUT = 20.0  # seconds for a hub's answer


def read_topics(lines: Sequence[str], public: str) -> list[tuple[str, str]]:
    """(topic, hub) of the lines "TOPIC HUB" of `serve.websub`.

    Raises:
        ConfigError: one is not so written, or `serve.public_url`, which hubs call back, is not set.
    """
    topics = []
    for line in lines:
        parts = line.split()
        if len(parts) != 2 or None in (canonical(parts[0]), canonical(parts[1])):
            raise ConfigError(f"serve.websub: {line!r} is not the URL of a feed and that of its hub")
        topics.append((parts[0], parts[1]))
    if topics and urlsplit(public).scheme not in ("http", "https"):
        raise ConfigError(
            "serve.websub: hubs call back, so serve.public_url must say under which http(s) URL"
        )
    return topics


class Subscriber:
    """Posts forms to hubs (section 5.1); `public` is the URL under which they reach our page server."""

    def __init__(self, subscriptions: Subscriptions, public: str, now: Callable[[], float]) -> None:
        self._subscriptions = subscriptions
        self._public = public.rstrip("/")
        self._now = now

    async def run(self) -> None:
        """Ask for what is due, until cancelled."""
        while True:
            await self.ask()
            await asyncio.sleep(LOOK_INTERVAL)

    async def ask(self) -> None:
        """Ask for what is due now."""
        forms = self._subscriptions.due(self._public, self._now())
        if not forms:
            return
        timeout = aiohttp.ClientTimeout(total=HUB_TIMEOUT)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            await asyncio.gather(*(self._post(session, hub, form) for hub, form in forms))

    async def _post(self, session: aiohttp.ClientSession, hub: str, form: dict[str, str]) -> None:
        try:
            async with session.post(hub, data=form) as answer:  # redirects 307 and 308 are followed (5.1)
                if answer.status != 202:
                    log.warning(
                        "websub: %s answers %d to a subscription to %s", hub, answer.status, form["hub.topic"]
                    )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            log.warning("websub: %s cannot be asked: %s", hub, error or "no answer in time")
