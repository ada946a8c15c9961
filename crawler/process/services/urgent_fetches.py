"""Lets pages be fetched soon because a client requested them, but as politely as any other page."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from crawler.change_signals import Signalled
from crawler.serve.indexnow import KEY_AGE_MAX, REFUSED_AGE_MAX, KeyUnreadError, contains
from crawler.serve.interfaces import Ahead, AheadState

if TYPE_CHECKING:
    from crawler.process.opening.stages import Stages
    from crawler.process.process import Process

KEY_FILE_WAIT = 600.0  # number of seconds after which a key file that has not been fetched counts as missing
_QUEUED_AGAIN_AFTER = 60.0  # number of seconds after which an unknown page may be queued again

_FULL = Ahead(AheadState.FULL, "too many pages already wait to be fetched out of turn", 60.0)


class UrgentFetches:
    """Puts pages that clients request at the front of their hosts' queues; at most `serve.ahead_max` new pages wait."""

    def __init__(self, process: "Process", stages: "Stages") -> None:
        self._process = process
        self._pages, self._due, self._refresh = stages.pages, stages.due, stages.refresh
        self._decide, self._fingerprint = stages.signal_intake.decide, stages.fingerprinter.fingerprint
        self._waiting_max = stages.config.serve.ahead_max
        self._now: Callable[[], float] = stages.clock.now
        self._waiting: set[int] = set()

    def request(self, url: str, fingerprint: int) -> Ahead:
        """Have a page fetched soon, but politely: a known page by the refresh schedule, an unknown page as a link."""
        if self._process.stopped_by:
            return Ahead(AheadState.AT_REST, "the crawl has ended or is stopping")
        record = self._pages.record(fingerprint)
        verdict = self._process.commands.prospect(url, record)
        if not verdict.queued or fingerprint in self._waiting:
            return verdict
        if len(self._waiting) >= self._waiting_max:
            return _FULL
        if record is not None:
            return self._refetch(fingerprint, verdict)
        if not self._due.contains(fingerprint):
            self._process.queue(partial(self._decide, [url], "signal", Signalled()))
            self._waiting.add(fingerprint)
            loop = asyncio.get_running_loop()
            loop.call_later(_QUEUED_AGAIN_AFTER, self._waiting.discard, fingerprint)
        return verdict

    def _refetch(self, fingerprint: int, verdict: Ahead) -> Ahead:
        """If a known page is kept fresh, have it fetched as soon as its host permits."""
        refresh = self._refresh
        if refresh is None or fingerprint not in refresh:
            return Ahead(AheadState.NOT_REFRESHED, "it is known, and this crawl does not refetch it")
        taken = refresh.claims.request(fingerprint)
        self._process.wake()
        return verdict if taken else _FULL

    async def key_file(self, url: str, key: str) -> bytes | None:
        """Fetch the key file of a site like any link, in the crawl's order; return None if it does not arrive in time.

        A stored copy that contains the key may be used for a day, any other copy only for a few minutes.

        Raises:
            KeyUnreadError: the crawl stops.
        """
        fingerprint = self._fingerprint(url)
        asked = self._now()
        while self._now() - asked < KEY_FILE_WAIT:
            capture = next(iter(self._pages.captures(fingerprint)), None)
            if capture is not None and (age := self._now() - capture.fetched_at) < KEY_AGE_MAX:
                text = self._pages.read(capture).content[:1024] if capture.status == 200 else None
                if age < REFUSED_AGE_MAX or contains(text, key):
                    return text
            state = self.request(url, fingerprint).state
            if state is AheadState.AT_REST:
                raise KeyUnreadError
            if state not in (AheadState.QUEUED, AheadState.FULL):
                return None
            await asyncio.sleep(1.0)
        return None
