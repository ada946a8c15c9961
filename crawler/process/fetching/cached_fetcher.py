"""A fetcher that answers from earlier crawls, for development: `crawler crawl --cached`, `crawler.run(cached=True)`.

    GET --> a stored answer of an earlier crawl, if there is one (no request, so no gap either)
        --> otherwise the fetcher

A request that has a condition, or its own method, header fields or cookies, is always sent, because its
answer may depend on more than the URL.
"""

from collections.abc import Hashable

from crawler.export.earlier_answers import EarlierAnswer, EarlierAnswers
from crawler.fetcher.fetch_request import FetchRequest
from crawler.fetcher.fetchers import Fetcher
from crawler.fetcher.outcome import blame_of, of_status
from crawler.records import CACHED, Fetch
from crawler.urls.media_type import field_text, media_type


class CachedFetcher:
    """Returns an answer from `answers`, if there is one of at most `bytes_max` bytes; otherwise fetches the URL."""

    def __init__(self, fetcher: Fetcher, answers: EarlierAnswers, bytes_max: int) -> None:
        self._fetcher = fetcher
        self._answers = answers
        self._bytes_max = bytes_max

    @property
    def places(self) -> int:
        return self._fetcher.places

    async def start(self) -> None:
        await self._fetcher.start()

    async def close(self) -> None:
        """Close the earlier crawls and the fetcher."""
        self._answers.close()
        await self._fetcher.close()

    async def fetch(self, task: FetchRequest) -> Fetch:
        """Return the stored answer to a plain GET if there is one, and otherwise the answer of the server."""
        plain = task.method == "GET" and not (task.conditional or task.headers or task.jar)
        found = self._answers.find(task.url, self._bytes_max) if plain else None
        if found is None:
            return await self._fetcher.fetch(task)
        fetch = _as_fetched(found, task.body_bytes_max or self._bytes_max)
        if task.owner is not None:
            self._fetcher.hold_more(task.owner, len(fetch.body) + len(fetch.content))
        return fetch

    def hold_more(self, owner: Hashable, nbytes: int) -> None:
        self._fetcher.hold_more(owner, nbytes)

    def let_go(self, owner: Hashable) -> None:
        self._fetcher.let_go(owner)


def _as_fetched(found: EarlierAnswer, content_max: int) -> Fetch:
    """Return a stored answer as the fetcher returned it in the earlier crawl, with the time of that fetch."""
    stored = found.stored
    is_redirect = 300 <= stored.status < 400
    location = field_text(stored.header(b"location")) if is_redirect else ""
    outcome = of_status(
        stored.status, conditional=False, has_body=bool(stored.payload), has_location=bool(location)
    )
    content_type, charset = media_type(
        [value for name, value in stored.headers if name.lower() == b"content-type"]
    )
    content = stored.content
    return Fetch(
        stored.capture.url,
        outcome,
        blame_of(outcome),
        status=stored.status,
        reason=stored.reason,
        version=stored.version,
        headers=stored.headers,
        body=stored.payload,
        content=content[:content_max],
        content_type=content_type,
        charset=charset,
        truncated="length" if len(content) > content_max else "",
        location=location,
        began=stored.capture.fetched_at,
        took=found.took,
        connection=CACHED,
    )
