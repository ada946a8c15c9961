"""Fetches pages soon if clients request them, with the same politeness as for any other page."""

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

KEY_FILE_WAIT = 600.0  # number of seconds after which a key file counts as missing if it has not been fetched
_QUEUED_AGAIN_AFTER = 60.0  # number of seconds after which an unknown page may be queued again

_FULL = Ahead(AheadState.FULL, "too many pages already wait to be fetched out of turn", 60.0)


class UrgentFetches:
    """Queues the pages that clients want fetched soon.

    At most `serve.ahead_max` pages that are new to the crawl may wait.
    """

    def __init__(self, process: "Process", stages: "Stages") -> None:
        self._process = process
        self._pages, self._due, self._refresh = stages.pages, stages.due, stages.refresh
        self._decide, self._fingerprint = (
            stages.decisions.signal_intake.decide,
            stages.fingerprinter.fingerprint,
        )
        self._waiting_max = stages.config.serve.ahead_max
        self._now: Callable[[], float] = stages.clock.now
        self._waiting: set[int] = set()

    def request(self, url: str, fingerprint: int) -> Ahead:
        """Queue a page for an early, polite fetch. A known page is refetched; an unknown page is queued as a link."""
        if self._process.run_end.stopping():
            return Ahead(AheadState.AT_REST, "the crawl has ended or is stopping")
        record = self._pages.record(fingerprint)
        verdict = self._process.commands.prospect(url, record)
        if not verdict.queued or fingerprint in self._waiting:
            return verdict
        if len(self._waiting) >= self._waiting_max:
            return _FULL
        if record is not None:
            return self._refetch(fingerprint, verdict)
        if fingerprint not in self._due.known_set:
            self._process.commits.queue(partial(self._decide, [url], "signal", Signalled()))
            self._waiting.add(fingerprint)
            loop = asyncio.get_running_loop()
            loop.call_later(_QUEUED_AGAIN_AFTER, self._waiting.discard, fingerprint)
        return verdict

    def _refetch(self, fingerprint: int, verdict: Ahead) -> Ahead:
        """Have a known page refetched as soon as its host permits, if the crawl keeps it fresh."""
        refresh = self._refresh
        if refresh is None or fingerprint not in refresh:
            return Ahead(AheadState.NOT_REFRESHED, "it is known, and this crawl does not refetch it")
        if reason := refresh.claims.withheld_by(fingerprint, self._now()):
            return Ahead(AheadState.LATER, f"it is fetched again later, because it waits for {reason}")
        taken = refresh.claims.request(fingerprint)
        self._process.run_end.wake()
        return verdict if taken else _FULL

    async def key_file(self, url: str, key: str) -> bytes | None:
        """Fetch the key file of a site like any requested page. Return None if it cannot be fetched in time.

        A stored copy may be used for a day if it contains the key, and otherwise only for a few minutes.

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
            if state not in (AheadState.QUEUED, AheadState.LATER, AheadState.FULL):
                return None
            await asyncio.sleep(1.0)
        return None
