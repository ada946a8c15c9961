"""Accepts change signals from outside: `POST /signal`.

This module contains the parsing and the rate limits that all kinds of notifications share. A signal reports
that a page changed. The refresh frontier weighs the signal by the learned quality of its source. An unknown
URL becomes a link if it is in scope, so a signal cannot cause a request that a link could not.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from crawler.change_signals import Signalled
from crawler.errors import UsageError
from crawler.records import UNDECODABLE
from crawler.serve.http_error import HttpError
from crawler.urls.typed_url import some_url
from crawler.wording import wrong_field

# Number of sources remembered. The source whose last signal is the oldest is forgotten first. The token
# bucket that limits the rate of this source is full again at that time, so the source loses nothing.
SOURCES_MAX = 1024
SOURCE_CHARS_MAX = 64
# takes (URLs, source); returns the fate of each URL, once it is durable; raises HttpError (503) if this takes
# too long
Signal = Callable[[Sequence[str], str], Awaitable[Signalled]]
RETRY_AFTER = 10  # number of seconds after which a client should send rejected signals again
_TOO_MANY = "too many signals from this source or from all sources together; send these again later"
CROWD = 10  # number of sources that may send at the full rate at the same time


class Buckets:
    """A token bucket per source: `rate` signals per second, in bursts of `burst`."""

    def __init__(self, rate: float, burst: int) -> None:
        self.rate = rate
        self.burst = burst
        # source -> (number of signals left, time)
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, source: str, wanted: int, now: float) -> int:
        """Remove tokens for up to `wanted` signals; return the number of signals that may pass now."""
        left, then = self._left.pop(source, (float(self.burst), now))
        left = min(float(self.burst), left + (now - then) * self.rate)
        passed = min(wanted, int(left))
        self._left[source] = (left - passed, now)
        if len(self._left) > SOURCES_MAX:
            self._left.popitem(last=False)
        return passed

    def give_back(self, source: str, passed: int) -> None:
        """Put back the tokens of signals that passed but were not accepted."""
        left, then = self._left[source]
        self._left[source] = (min(float(self.burst), left + passed), then)


class SignalHandler:
    """Submits signals to the crawl, up to a rate per source, and up to `CROWD` times that rate for all sources together.

    The sources of `/signal` choose their own names, so a rate per source alone would not limit the total.
    """

    def __init__(self, signal: Signal, rate: float, urls_max: int) -> None:
        self._signal = signal
        self.urls_max = urls_max
        self._buckets = Buckets(rate, urls_max)
        self._all = Buckets(CROWD * rate, urls_max)

    async def handle(
        self, raw_urls: Sequence[str], source: str, now: float, *, whole: bool = False
    ) -> Signalled:
        """Submit as many signals as the rate allows, or with `whole`, all or none. The remaining signals are not parsed.

        Raises:
            HttpError: 429 if no signal may pass; 503 if the signals are not durable yet.
        """
        own = self._buckets.take(source, len(raw_urls), now)
        passed = self._all.take("", own, now)
        if raw_urls and (not passed or (whole and passed < len(raw_urls))):
            self._buckets.give_back(source, own)
            self._all.give_back("", passed)
            raise HttpError(
                429, "too_many", _TOO_MANY, fields=(("Retry-After", str(RETRY_AFTER)),), urls=len(raw_urls)
            )
        self._buckets.give_back(source, own - passed)
        said = await self._signal(raw_urls[:passed], source) if passed else Signalled()
        if passed < len(raw_urls):
            said.refuse("too_many", len(raw_urls) - passed, _TOO_MANY)
        return said


def parse(body: bytes, urls_max: int) -> tuple[list[str], str]:
    """Return (URLs, source) from the body of `POST /signal`.

    Raises:
        HttpError: 400 the JSON does not have this form, or no text is a URL; 422 too many URLs.
    """
    try:
        request = msgspec.json.decode(body, type=_Posted)
    except UNDECODABLE as error:
        why = f'expected {{"urls": [...], "source": "..."}}: {wrong_field(str(error))}'
        raise HttpError(400, "bad_request", why) from None
    if len(request.urls) > urls_max:
        raise HttpError(422, "bad_request", f"send at most {urls_max} URLs at once")
    try:
        some_url(request.urls)
    except UsageError as error:
        raise HttpError(400, "bad_request", str(error)) from None
    return request.urls, f"signal:{request.source[:SOURCE_CHARS_MAX]}"


class _Posted(msgspec.Struct, forbid_unknown_fields=True):
    urls: list[str]
    source: str = ""
