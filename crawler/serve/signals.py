"""Change signals from outside: `POST /signal`, and what all receivers share: parsing, and a rate for each source.

A signal says that a page changed. It is only believed as far as the refresh
frontier has learned to believe its source. A URL that nobody knew becomes a link
if it is in scope; so a signal can cause no request that a link could not.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import msgspec

from crawler.serve.refusal import Refusal
from crawler.serve.seam import Crawl, Signalled
from crawler.urls.canonical import canonical

SOURCES_MAX = (
    1024  # sources whose rate is remembered; the one heard longest ago is forgotten, with a full bucket
)
SOURCE_CHARS_MAX = 64


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
    """Hands signals to the crawl, as many as a source may send."""

    def __init__(self, crawl: Crawl, rate: float, urls_max: int) -> None:
        self._crawl = crawl
        self._urls_max = urls_max
        self._buckets = Buckets(rate, urls_max)

    def post(self, body: bytes, now: float) -> dict[str, Any]:
        """The answer to `POST /signal`.

        Raises:
            Refusal: 400 no such JSON, 422 too many URLs.
        """
        try:
            request = msgspec.json.decode(body, type=_Posted)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise Refusal(
                400, "bad_request", f'expected {{"urls": [...], "source": "..."}}: {error}'
            ) from None
        if len(request.urls) > self._urls_max:
            raise Refusal(422, "bad_request", f"at most {self._urls_max} URLs at once")
        source = f"signal:{request.source[:SOURCE_CHARS_MAX]}"
        return msgspec.to_builtins(self.take(request.urls, source, now))

    def take(self, raw_urls: Sequence[str], source: str, now: float) -> Signalled:
        """Hand on what are URLs, each once, as many as the source may send."""
        forms = [canonical(url) if len(url) <= 2 * 8192 else None for url in raw_urls]
        urls = list(dict.fromkeys(form for form in forms if form is not None))
        passed = self._buckets.take(source, len(urls), now)
        said = self._crawl.signal(urls[:passed], source) if passed else Signalled(refused={})
        if bad := forms.count(None):
            said.refuse("no_url", bad)
        if passed < len(urls):
            said.refuse("too_many", len(urls) - passed)
        return said


class _Posted(msgspec.Struct):
    urls: list[str]
    source: str = ""
