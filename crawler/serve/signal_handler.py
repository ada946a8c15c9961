"""Change signals from outside: `POST /signal`, and what all receivers share: parsing, and a rate for each source.

A signal says that a page changed. The refresh frontier believes it as far as it has
learned to believe its source. An unknown URL becomes a link if it is in scope, so a
signal causes no request that a link could not.
"""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from crawler.change_signals import Signalled
from crawler.records import UNDECODABLE
from crawler.serve.http_error import HttpError

# Sources whose rate is remembered; the one heard longest ago is forgotten, with a full bucket
SOURCES_MAX = 1024
SOURCE_CHARS_MAX = 64
# (URLs, source) -> what became of them, once it is durable; raises Refusal (503) if that takes too long.
Signal = Callable[[Sequence[str], str], Awaitable[Signalled]]
RETRY_AFTER = 10  # seconds until signals that were too many are worth sending again
CROWD = 10  # sources of full rate that may send at once


class Buckets:
    """A token bucket a source: `rate` signals a second, in bursts of `burst`."""

    def __init__(self, rate: float, burst: int) -> None:
        self.rate = rate
        self.burst = burst
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # source -> (signals left, instant)

    def take(self, source: str, wanted: int, now: float) -> int:
        """How many of `wanted` signals may pass now."""
        left, then = self._left.pop(source, (float(self.burst), now))
        left = min(float(self.burst), left + (now - then) * self.rate)
        passed = min(wanted, int(left))
        self._left[source] = (left - passed, now)
        if len(self._left) > SOURCES_MAX:
            self._left.popitem(last=False)
        return passed

    def give_back(self, source: str, passed: int) -> None:
        """Signals that `handle` let pass were not taken after all."""
        left, then = self._left[source]
        self._left[source] = (min(float(self.burst), left + passed), then)


class SignalHandler:
    """Hands signals to the crawl, as many as a source may send, and all sources together `CROWD` times as many.

    Sources of `/signal` name themselves, so a rate for each alone would bound nothing.
    """

    def __init__(self, signal: Signal, rate: float, urls_max: int) -> None:
        self._signal = signal
        self.urls_max = urls_max
        self._buckets = Buckets(rate, urls_max)
        self._all = Buckets(CROWD * rate, urls_max)

    async def handle(
        self, raw_urls: Sequence[str], source: str, now: float, *, whole: bool = False
    ) -> Signalled:
        """Hand on as many as may pass, all or none if `whole`; the others are not even looked at.

        Raises:
            Refusal: 429, not one may pass; 503, they are not durable yet.
        """
        own = self._buckets.take(source, len(raw_urls), now)
        passed = self._all.take("", own, now)
        if raw_urls and (not passed or (whole and passed < len(raw_urls))):
            self._buckets.give_back(source, own)
            self._all.give_back("", passed)
            raise _too_many(len(raw_urls))
        self._buckets.give_back(source, own - passed)
        said = await self._signal(raw_urls[:passed], source) if passed else Signalled()
        if passed < len(raw_urls):
            said.refuse("too_many", len(raw_urls) - passed)
        return said


def _too_many(n: int) -> HttpError:
    refusal = HttpError(
        429, "too_many", "this source, or all of them, sent too many signals; send these again", urls=n
    )
    refusal.fields = (("Retry-After", str(RETRY_AFTER)),)
    return refusal


def parse(body: bytes, urls_max: int) -> tuple[list[str], str]:
    """(URLs, source) of the body of `POST /signal`.

    Raises:
        Refusal: 400 no such JSON, 422 too many URLs.
    """
    try:
        request = msgspec.json.decode(body, type=_Posted)
    except UNDECODABLE as error:
        raise HttpError(400, "bad_request", f'expected {{"urls": [...], "source": "..."}}: {error}') from None
    if len(request.urls) > urls_max:
        raise HttpError(422, "bad_request", f"at most {urls_max} URLs at once")
    return request.urls, f"signal:{request.source[:SOURCE_CHARS_MAX]}"


class _Posted(msgspec.Struct):
    urls: list[str]
    source: str = ""
