"""Makes answers and commit groups for the tests of the page cache."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from crawler.config import PagesConfig
from crawler.pages import reading, segments
from crawler.pages.captures import Capturing
from crawler.pages.cleaning import GRACE, Cleaner
from crawler.pages.page_cache import PageCache
from crawler.pages.warc import SegmentFacts
from crawler.records import Extracted, Fetch, FetchTask, Outcome, TaskKind
from crawler.storage.commit import CommitPoint
from crawler.storage.kv import KeyValue, MemoryStore

START = 1_700_000_000.0  # 2023-11-14T22:13:20Z
HTML = ((b"Content-Type", b"text/html; charset=utf-8"),)


def members(path: Path) -> Iterator[tuple[int, int]]:
    """Yield (offset, length) of each gzip member of a segment."""
    data, offset = path.read_bytes(), 0
    while offset < len(data):
        length = reading.member_length([data[offset:]], f"{path.name} at {offset}")
        yield offset, length
        offset += length


def records(segment: Path) -> Iterator[reading.Record]:
    """Yield the records of a segment."""
    for _, _, data in segments.contents(segment, bytes_max=reading.RECORD_BYTES_MAX):
        assert data is not None
        yield reading.parse_record(data, segment.name)


def fetch(url: str = "http://site.example/", body: bytes = b"<p>page</p>", **values: Any) -> Fetch:
    """Return the fetch of a successful answer. `values` replace the default values of its fields."""
    values = {
        "outcome": Outcome.FETCHED,
        "status": 200,
        "reason": "OK",
        "headers": HTML,
        "content_type": "text/html",
        "content": body,
        "request_head": b"GET / HTTP/1.1\r\nHost: site.example\r\n\r\n",
        "address": "127.0.0.1",
        "took": 0.25,
    } | values
    return Fetch(url=url, body=body, **values)


def not_modified(url: str = "http://site.example/", **values: Any) -> Fetch:
    """Return a 304 to a conditional request."""
    values = {
        "outcome": Outcome.UNCHANGED,
        "status": 304,
        "reason": "Not Modified",
        "content_type": "",
    } | values
    return fetch(url, b"", **values)


def fetch_task(url: str = "http://site.example/", fingerprint: int = 1, **values: Any) -> FetchTask:
    return FetchTask(
        kind=values.pop("task", TaskKind.PAGE),
        host=7,
        hostname="site.example",
        url=url,
        fingerprint=fingerprint,
        **values,
    )


class Site:
    """A page cache with a store and a clock; `visit` commits one answer as a group."""

    def __init__(self, directory: Path, store: KeyValue | None = None, **options: Any) -> None:
        config: dict[str, Any] = {
            name: options.pop(name)
            for name in ("segment_bytes", "gzip_level", "block_digests", "request_bodies")
            if name in options
        }
        about = {name: options.pop(name) for name in ("software", "operator") if name in options}
        config["store"] = options.pop("bodies", "raw")
        self.store = store if store is not None else MemoryStore(keep_durable=True)
        self.cache = PageCache(
            directory, self.store, PagesConfig(**config), about=SegmentFacts("p0", **about), **options
        )
        self.now = START

    def decide(
        self, answer: Fetch, fingerprint: int, extracted: Extracted | None = None, **values: Any
    ) -> Capturing:
        final, tags = values.pop("final", True), values.pop("tags", None)
        return self.cache.capture(
            answer, fetch_task(answer.url, fingerprint, **values), extracted, self.now, final=final, tags=tags
        )

    def commit(self, *capturings: Capturing) -> None:
        self.cache.write(list(capturings))
        batch = self.store.batch()
        self.cache.stage(batch)
        self.store.write(batch)
        self.cache.committed()
        self.cache._check()
        self.now += 60.0

    def visit(
        self, answer: Fetch, fingerprint: int = 1, extracted: Extracted | None = None, **values: Any
    ) -> Capturing:
        """Commit one answer as a group of its own, and advance the clock by a minute."""
        capturing = self.decide(answer, fingerprint, extracted, **values)
        self.commit(capturing)
        return capturing

    def payload(self, fingerprint: int, at: float | None = None) -> bytes:
        """Return the stored payload of a page, at a time or now. The page must have a copy."""
        return self.cache.get(fingerprint, at).payload

    def segments(self) -> list[Path]:
        return sorted(path for path in self.cache.folder.iterdir() if path.is_file())


class NoLinks:
    """The links log of a test whose pages have no links."""

    def append(self, links: object) -> None:
        """Do nothing, because there are no links."""

    def sync(self) -> None:
        """Do nothing, because there are no links."""

    def stage(self, batch: object) -> None:
        """Do nothing, because there are no links."""

    def committed(self) -> None:
        """Do nothing, because there are no links."""


def drop_old_copies(cache: PageCache, *, slack: int = 1000) -> None:
    """Keep only the newest copy of each page, and delete the segments that hold no captures any more."""
    point = CommitPoint(cache.store, pages=cache, due=NoLinks(), group_entries_max=8, sync=True)
    now = START
    cleaner = Cleaner(cache, 1, slack, lambda: now)
    for _ in range(2):
        for step in cleaner.steps():
            now += 1.0
            if step is not None:
                point.add(step)
                point.write(group := point.take())
                point.committed(group)
        now += GRACE
