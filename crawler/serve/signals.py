"""Change signals from outside: `POST /signal`, and what all receivers share: parsing, and a rate for each source.

A signal says that a page changed. The refresh frontier believes it as far as it has
learned to believe its source. An unknown URL becomes a link if it is in scope, so a
signal causes no request that a link could not.
"""

from collections import OrderedDict
from collections.abc import Sequence

import msgspec

from crawler.records import UNDECODABLE
from crawler.serve.refusal import Refusal
from crawler.serve.seam import ServedCrawl, Signalled
from crawler.urls.canonical import canonical

SOURCES_MAX = (
    1024  # sources whose rate is remembered; the one heard longest ago is forgotten, with a full bucket
)
SOURCE_CHARS_MAX = 64
CROWD = 10  # sources of full rate that may send at once
_URL_CHARS_MAX = 2 * 8192


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


class SignalDesk:
    """Hands signals to the crawl, as many as a source may send, and all sources together `CROWD` times as many.

    Sources of `/signal` name themselves, so a rate for each alone would bound nothing.
    """

    def __init__(self, crawl: ServedCrawl, rate: float, urls_max: int) -> None:
        self._crawl = crawl
        self.urls_max = urls_max
        self._buckets = Buckets(rate, urls_max)
        self._all = Buckets(CROWD * rate, urls_max)

    def take(self, raw_urls: Sequence[str], source: str, now: float) -> Signalled:
        """Hand on what are URLs, as many as may pass; those that may not are not even looked at."""
        passed = self._all.take("", self._buckets.take(source, len(raw_urls), now), now)
        forms = [canonical(url) if len(url) <= _URL_CHARS_MAX else None for url in raw_urls[:passed]]
        urls = list(dict.fromkeys(form for form in forms if form is not None))
        said = self._crawl.signal(urls, source) if urls else Signalled(refused={})
        if bad := forms.count(None):
            said.refuse("no_url", bad)
        if passed < len(raw_urls):
            said.refuse("too_many", len(raw_urls) - passed)
        return said


def parse(body: bytes, urls_max: int) -> tuple[list[str], str]:
    """(URLs, source) of the body of `POST /signal`.

    Raises:
        Refusal: 400 no such JSON, 422 too many URLs.
    """
    try:
        request = msgspec.json.decode(body, type=_Posted)
    except UNDECODABLE as error:
        raise Refusal(400, "bad_request", f'expected {{"urls": [...], "source": "..."}}: {error}') from None
    if len(request.urls) > urls_max:
        raise Refusal(422, "bad_request", f"at most {urls_max} URLs at once")
    return request.urls, f"signal:{request.source[:SOURCE_CHARS_MAX]}"


class _Posted(msgspec.Struct):
    urls: list[str]
    source: str = ""
