"""A fetcher that answers from earlier crawls, for development: `crawler crawl --cached`, `crawler.run(cached=True)`.

    GET --> a stored answer of an earlier crawl, if there is one (no request, so no gap either)
        --> otherwise the fetcher

A request that has a condition, or its own method, header fields or cookies, is always sent, because its
answer may depend on more than the URL.
"""

from collections.abc import Hashable

from crawler import content_codings
from crawler.config import FetchConfig
from crawler.export.earlier_answers import EarlierAnswer, EarlierAnswers
from crawler.fetcher.fetch_request import FetchRequest
from crawler.fetcher.fetchers import Fetcher
from crawler.fetcher.framing import head_of
from crawler.fetcher.outcome import blame_of, location_of, of_head
from crawler.records import CACHED, Fetch


class CachedFetcher:
    """Returns an answer from `answers` if there is one within `limits`; otherwise fetches the URL."""

    def __init__(self, fetcher: Fetcher, answers: EarlierAnswers, limits: FetchConfig) -> None:
        self._fetcher = fetcher
        self._answers = answers
        self._limits = limits

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
        found = self._answers.find(task.url, self._limits.body_bytes_max) if plain else None
        if found is None:
            return await self._fetcher.fetch(task)
        fetch = _as_fetched(found, task.limits(self._limits))
        if task.owner is not None:
            self._fetcher.hold_more(task.owner, len(fetch.body) + len(fetch.content))
        return fetch

    def hold_more(self, owner: Hashable, nbytes: int) -> None:
        self._fetcher.hold_more(owner, nbytes)

    def let_go(self, owner: Hashable) -> None:
        self._fetcher.let_go(owner)


def _as_fetched(found: EarlierAnswer, limits: FetchConfig) -> Fetch:
    """Return a stored answer as the fetcher returned it in the earlier crawl, with the time of that fetch."""
    stored = found.stored
    head = head_of(stored.headers, version=stored.version, status=stored.status, reason=stored.reason)
    outcome = of_head(head, has_body=bool(stored.payload))
    content_type, charset = head.media_type()
    content, truncated, undecoded = stored.payload, False, False
    try:
        decoder = content_codings.decoder_for(
            head.tokens(b"content-encoding"), limit=limits.body_bytes_max, step=limits.decode_step_bytes
        )
    except content_codings.UnknownCoding:
        content, undecoded = b"", True
    else:
        if decoder is not None:
            content = b"".join((*decoder.feed(content), *decoder.finish()))
            truncated = decoder.full
        elif len(content) > limits.body_bytes_max:
            content, truncated = content[: limits.body_bytes_max], True
    return Fetch(
        stored.capture.url,
        outcome,
        blame_of(outcome),
        status=stored.status,
        reason=stored.reason,
        version=stored.version,
        headers=stored.headers,
        body=stored.payload,
        content=content,
        content_type=content_type,
        charset=charset,
        truncated="length" if truncated else "",
        undecoded=undecoded,
        location=location_of(head),
        began=stored.capture.fetched_at,
        took=found.took,
        connection=CACHED,
    )
