"""A cache of scripts and style sheets that pages share (RFC 9111). A thousand pages then fetch a script only once.

An answer is fresh for the time that its `Cache-Control` or `Expires` states. An answer with neither field is
fresh for an hour. The time that an answer has already spent in other caches (`Age`) is subtracted from the
time for which it is fresh. An answer is not kept if pages may not share it, because it has `private`,
`no-store` or `no-cache`, or a `Vary` that names more than the content coding. An answer that varies with
`Origin` is kept only if it allows all origins. When the cache is full, the least recently used answer is
dropped.
"""

from collections import OrderedDict
from collections.abc import Mapping

from crawler import http_dates
from crawler.records import Fetch, Outcome

SHARED = frozenset({"Script", "Stylesheet", "Font"})  # resource types that are cached
_SILENT = 3600.0  # an answer without caching fields stays fresh for this number of seconds
_AGE_MAX = 7 * 86_400.0  # seconds; longer lifetimes are reduced to this value
_HARMLESS_VARY = frozenset({"accept-encoding", "accept", "user-agent"})


class SharedCache:
    """Maps URLs to answers. All answers together have at most `bytes_max` bytes of decoded content."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._answers: OrderedDict[str, tuple[float, Fetch]] = OrderedDict()
        self._nbytes = 0

    def get(self, url: str, now: float) -> Fetch | None:
        """Return the fresh answer of a URL; None if there is none."""
        kept = self._answers.get(url)
        if kept is None:
            return None
        if kept[0] <= now:
            self.drop(url)
            return None
        self._answers.move_to_end(url)
        return kept[1]

    def add(self, url: str, fetch: Fetch, now: float, at: float | None = None) -> None:
        """Keep an answer that was received at `at` (None means now), if it is fresh and may be kept."""
        self.drop(url)
        at = now if at is None else min(at, now)
        until = at + fresh_for(fetch, at)
        if until <= now or len(fetch.content) > self._bytes_max // 4:
            return
        self._answers[url] = until, fetch
        self._nbytes += len(fetch.content)
        while self._nbytes > self._bytes_max:
            self.drop(next(iter(self._answers)))

    def drop(self, url: str) -> None:
        """Forget the answer of a URL; do nothing if there is none."""
        kept = self._answers.pop(url, None)
        if kept is not None:
            self._nbytes -= len(kept[1].content)

    def _check(self) -> None:
        assert self._nbytes == sum(len(fetch.content) for _, fetch in self._answers.values())
        assert self._nbytes <= self._bytes_max


def fresh_for(fetch: Fetch, now: float) -> float:
    """Return the seconds for which an answer received at `now` may be used again; 0.0 if it may not be reused."""
    if fetch.outcome is not Outcome.FETCHED or fetch.status != 200:
        return 0.0
    varies = directives(_field(fetch, b"vary")).keys() - _HARMLESS_VARY - {""}
    # the answer is the same for the pages of all origins
    if _field(fetch, b"access-control-allow-origin").strip() == "*":
        varies -= {"origin"}
    if varies:
        return 0.0
    said = directives(_field(fetch, b"cache-control"))
    if said.keys() & {"no-store", "no-cache", "private"}:
        return 0.0
    return min(max(0.0, _lifetime(fetch, said, now) - _seconds(_field(fetch, b"age"))), _AGE_MAX)


def _lifetime(fetch: Fetch, said: Mapping[str, str], now: float) -> float:
    """Return the number of seconds for which an answer stays fresh after the server has created it."""
    for name in ("s-maxage", "max-age"):
        if name in said:
            return _seconds(said[name])
    if "immutable" in said:
        return _AGE_MAX
    if expires := _field(fetch, b"expires"):
        return _instant(expires) - (_instant(_field(fetch, b"date")) or now)
    return _SILENT


def _field(fetch: Fetch, name: bytes) -> str:
    """Return the value of a header field. Several lines of the same field are joined to one list."""
    return ",".join(value.decode("latin-1") for field, value in fetch.headers if field.lower() == name)


def directives(field: str) -> Mapping[str, str]:
    """Return {name: value} for the members of a list field such as Cache-Control, in lower case."""
    found = {}
    for part in field.split(","):
        name, _, value = part.strip().lower().partition("=")
        found[name] = value.strip('" ')
    return found


def _seconds(text: str) -> float:
    return float(text[:12]) if text.isascii() and text.isdecimal() else 0.0


def _instant(field: str) -> float:
    """Return the time of an HTTP date. Other text gives 0.0, which counts as expired."""
    return http_dates.instant(field) or 0.0
