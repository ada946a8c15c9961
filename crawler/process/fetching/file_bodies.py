"""Decides which large answers, of files or sitemaps, are written to disk (`fetcher/file_body.py`).

This module also decides which files count as requested by the user, and which interrupted transfers are
resumed.
"""

from crawler.config import Config
from crawler.extract.feed import is_feed
from crawler.extract.sitemap import is_sitemap
from crawler.fetcher.fetch_request import FetchRequest
from crawler.fetcher.file_body import FileBody, FileRule
from crawler.records import FetchTask, LinkFlag
from crawler.storage.parts import PartFolder
from crawler.urls.file_kinds import Kinds
from crawler.urls.media_type import CSS, is_page

_SEED, _OWN_REQUEST, _SITEMAP = LinkFlag.SEED, LinkFlag.OWN_REQUEST, LinkFlag.SITEMAP


def _never(*_: object) -> bool:
    return False


class FileBodies:
    """Gives each fetch task the `FileBody` that receives a large file.

    A file counts as requested if `fetch.files` is "all", if it is a seed, or if its kind is listed in
    `filter.accept`. In the last two cases, the server must also state the length of the file. This excludes
    endless streams.
    """

    def __init__(self, config: Config, parts: PartFolder) -> None:
        self._parts = parts
        self._fetch = config.fetch
        self._feeds = config.sitemaps.feeds
        self._requisites = config.crawl.requisites
        self._off = config.pages.store == "decoded"
        self._kinds = Kinds(config.filter.accept, config.filter.reject)
        self._chosen = bool(config.filter.accept)

    @property
    def arriving_bytes(self) -> int:
        """The number of bytes of large files that have arrived and are not committed yet."""
        return self._parts.arriving_bytes

    def body(self, request: FetchRequest, fetch_task: FetchTask) -> FileBody | None:
        """Return the `FileBody` that receives the answer to a page's request; None if every answer stays in memory."""
        if self._off or fetch_task.flags & LinkFlag.EXTERNAL:
            return None
        if fetch_task.flags & _SITEMAP:  # a sitemap is parsed while it arrives
            rule = FileRule(_never, _never, self._fetch.file_held_bytes)
            return FileBody(rule, self._parts, f"{fetch_task.fingerprint:016x}", resumable=False)
        plain = request.method == "GET" and not request.conditional and not fetch_task.flags & _OWN_REQUEST
        rule = self._rule(seed=bool(fetch_task.flags & _SEED))
        return FileBody(rule, self._parts, f"{fetch_task.fingerprint:016x}", resumable=plain)

    def _rule(self, *, seed: bool) -> FileRule:
        every = self._fetch.files == "all"

        def is_asked(url: str, media_type: str) -> bool:
            return every or seed or (self._chosen and self._kinds.keeps(url, media_type))

        def parses(media_type: str, start: bytes) -> bool:
            return self._parses(media_type, start) or (seed and is_sitemap(start))

        return FileRule(
            parses=parses,
            is_asked=is_asked,
            held_bytes_max=self._fetch.file_held_bytes,
            bytes_max=self._fetch.file_bytes_max,
            any_length=every,
            rate_min=self._fetch.file_rate_min,
        )

    def _parses(self, media_type: str, start: bytes) -> bool:
        """Return whether `Reader.read` parses a body with these properties."""
        return (
            is_page(media_type, start)
            or (self._feeds and is_feed(media_type, start))
            or (self._requisites and media_type == CSS)
        )
