"""Test how the links of an answer are read: which of the real extractors is used, and with which arguments."""

import asyncio
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from crawler.config import convert
from crawler.extract.documents import Document, DocumentKind
from crawler.extract.sitemap import Entry
from crawler.process.fetching import reader as module
from crawler.process.fetching.reader import INLINE_BYTES_MAX, Reader, fork_parser, new_dates
from crawler.records import Extracted, Fetch, FetchTask, LinkFlag, Outcome, TaskKind
from crawler.turn_share import UserTurns
from tests.process.support import fetch

HOME = "http://a.org/"
PAGE = b'<title>T</title><a href="/x">x</a><img src="/i.png">'
SITEMAP, REQUISITE = LinkFlag.SITEMAP, LinkFlag.REQUISITE
MAP = b"<urlset><url><loc>http://a.org/1</loc></url></urlset>"
INDEX = b"<sitemapindex><sitemap><loc>http://a.org/1.xml</loc></sitemap></sitemapindex>"
FEED = b"<rss><channel><link>http://a.org/blog</link><item><link>http://a.org/1</link></item></channel></rss>"


def read(answer: Fetch, *, flags: int = 0, extractor: Any = None, **tree: Any) -> Extracted | None:
    fetch_task = FetchTask(TaskKind.PAGE, 1, "a.org", answer.url, flags=flags)

    async def once() -> Extracted | None:
        reader = Reader(convert(tree), extractor)
        try:
            return await reader.read(fetch_task, answer)
        finally:
            await reader.close()

    return asyncio.run(once())


@pytest.mark.parametrize(
    ("kind", "body", "is_read"),
    [
        ("text/html", PAGE, True),
        ("application/xhtml+xml", PAGE, True),
        ("", b"<!doctype html>" + PAGE, True),
        ("", b"plain", False),
        ("text/plain", b"<!doctype html>" + PAGE, False),
        ("image/png", PAGE, False),
    ],
)
def test_answers_that_are_read_as_html(kind: str, body: bytes, is_read: bool) -> None:
    found = read(fetch(HOME, body, content_type=kind))
    assert (found is not None) == is_read
    if found is not None:
        assert found.hrefs == ["/x"] and not found.requisites


@pytest.mark.parametrize("outcome", list(Outcome))
def test_only_answers_with_content_are_read(outcome: Outcome) -> None:
    found = read(fetch(HOME, PAGE, outcome=outcome))
    assert (found is not None) == (outcome in (Outcome.FETCHED, Outcome.TRUNCATED))


def test_a_url_requested_as_a_sitemap_is_read_as_a_sitemap() -> None:
    page = read(fetch(HOME, MAP, content_type="text/html"), flags=SITEMAP)
    assert page is not None and (page.hrefs, page.maps, page.base) == (["http://a.org/1"], [], HOME)
    index = read(fetch(HOME, INDEX, content_type="application/xml"), flags=SITEMAP)
    assert index is not None and (index.hrefs, index.maps) == ([], ["http://a.org/1.xml"])
    assert read(fetch(HOME, MAP, content_type="application/xml")) is None


def test_feeds_are_read_by_setting() -> None:
    answer = fetch(HOME, FEED, content_type="application/rss+xml")
    assert read(answer, sitemaps={"feeds": False}) is None
    found = read(answer)
    assert found is not None and (found.hrefs, found.base) == (["http://a.org/1", "http://a.org/blog"], HOME)


@pytest.mark.parametrize(
    ("flags", "kind", "body", "sought"),
    [
        (SITEMAP, "application/xml", MAP, ["http://a.org/1"]),
        (0, "application/rss+xml", FEED, ["http://a.org/1", "http://a.org/blog"]),
        (REQUISITE, "text/css", b"a { background: url(i.png) }", ["i.png"]),
    ],
)
def test_large_documents_are_read_in_a_child(flags: int, kind: str, body: bytes, sought: list[str]) -> None:
    """The child process returns the same links and dates as this process would. Pages are parsed in another child."""
    starts: list[int] = []

    async def once(answer: Fetch) -> Extracted | None:
        reader = Reader(convert({"crawl": {"requisites": True}}))
        try:
            return await reader.read(FetchTask(TaskKind.PAGE, 1, "a.org", HOME, flags=flags), answer)
        finally:
            starts.append(reader._documents.starts)
            assert not reader._worker.starts
            await reader.close()

    long = body + b" " * (INLINE_BYTES_MAX - len(body))
    small, large = (asyncio.run(once(fetch(HOME, each, content_type=kind))) for each in (long, long + b" "))
    assert small is not None and small == large and (small.hrefs or small.requisites) == sought
    assert starts == [0, 1]


def test_a_sitemap_that_the_child_cannot_parse_has_no_links() -> None:
    body = b"<urlset>" + b"<url><loc>http://a.org/1</loc></url>" * 50_000
    found = read(fetch(HOME, body), flags=SITEMAP, sitemaps={"cpu_seconds_max": 0.001})
    assert found is not None and (found.hrefs, found.parse_limit) == ([], True)


def test_requisites_are_taken_by_setting_and_have_requisites_but_no_links() -> None:
    found = read(fetch(HOME, PAGE), crawl={"requisites": True})
    assert found is not None and (found.hrefs, found.requisites) == (["/x"], ["/i.png"])
    frame = read(fetch(HOME, PAGE), flags=REQUISITE, crawl={"requisites": True})
    assert frame is not None and (frame.hrefs, frame.requisites, frame.title) == ([], ["/i.png"], "T")


def test_a_users_extractor_replaces_only_the_links() -> None:
    seen: list[str] = []

    def extractor(fetch_task: FetchTask, answer: Fetch) -> list[str]:
        seen.append(fetch_task.url + answer.url)
        return ["/1", "/2", "/1"]

    found = read(fetch(HOME, PAGE), extractor=extractor)
    assert found is not None and (found.hrefs, found.title) == (["/1", "/2"], "T") and seen == [HOME + HOME]
    assert read(fetch(HOME, MAP), flags=SITEMAP, extractor=extractor) is not None and len(seen) == 1


def test_calls_of_a_users_extractor_have_a_turn_each() -> None:
    """Pages that arrive together are parsed in one turn. The calls use up all the time of a turn."""
    turn, turns = 0, []

    async def tick() -> None:
        nonlocal turn
        while True:
            turn += 1
            await asyncio.sleep(0)

    def extractor(_: FetchTask, __: Fetch) -> list[str]:
        turns.append(turn)
        return []

    async def read_together() -> None:
        reader = Reader(convert({}), extractor, user_turns=UserTurns(0.0))
        fetch_task = FetchTask(TaskKind.PAGE, 1, "a.org", HOME)
        ticking = asyncio.create_task(tick())
        await asyncio.gather(*(reader.read(fetch_task, fetch(HOME, PAGE)) for _ in range(12)))
        ticking.cancel()
        await reader.close()

    asyncio.run(read_together())
    assert len(turns) == len({*turns}) == 12


def test_a_trace_keeps_every_mention() -> None:
    body = b'<a href="/x">1</a><a href="/x">2</a>'
    plain, traced = read(fetch(HOME, body)), read(fetch(HOME, body), crawl={"trace": True})
    assert plain is not None and plain.repeats == []
    assert traced is not None and (traced.hrefs, traced.repeats) == (["/x"], ["/x", "/x"])


def with_fields(*fields: tuple[bytes, bytes]) -> Fetch:
    return fetch(HOME, PAGE, headers=((b"Content-Type", b"text/html"), *fields))


def test_header_fields_can_contain_directives_and_links() -> None:
    refreshed = read(with_fields((b"Refresh", b"0; url=/r"), (b"REFRESH", b"0; url=/s")))
    assert refreshed is not None and refreshed.refresh == HOME + "r", "the first field is used"
    for name in (b"X-Robots-Tag", b"x-robots-tag"):
        found = read(with_fields((name, b"nofollow")))
        assert found is not None and found.nofollow
    linked = read(with_fields((b"Link", b"</c>; rel=canonical")))
    assert linked is not None and linked.canonical == "/c"


def test_directives_do_not_bind_where_robots_are_ignored() -> None:
    """If robots.txt is ignored, directives in pages have no effect, either, but they are still reported."""
    answer = with_fields((b"X-Robots-Tag", b"nofollow"))
    elsewhere = [{"match": "b.org", "robots": "ignore"}]
    here = [{"match": "a.org", "robots": "ignore"}]
    for tree, hrefs in (
        ({}, []),
        ({"override": elsewhere}, []),
        ({"override": here}, ["/x"]),
        ({"robots": {"policy": "ignore"}}, ["/x"]),
    ):
        found = read(answer, **tree)
        assert found is not None and (found.hrefs, found.nofollow) == (hrefs, True)


@pytest.mark.parametrize(("policy", "hrefs"), [("obey", []), ("ignore", ["/1"])])
def test_directives_bind_a_users_extractor_too(policy: str, hrefs: list[str]) -> None:
    answer = with_fields((b"X-Robots-Tag", b"nofollow"))
    found = read(answer, extractor=lambda *_: ["/1"], robots={"policy": policy})
    assert found is not None and found.hrefs == hrefs


def news(kind: str, before: bytes, after: bytes, flags: int = 0) -> list[tuple[str, float]]:
    """Return the dates that count as signals when a document changes from `before` to `after`."""
    fetch_task = FetchTask(TaskKind.PAGE, 1, "a.org", HOME, flags=flags | LinkFlag.REFRESH)

    async def once() -> list[tuple[str, float]]:
        reader = Reader(convert({}))
        answer = fetch(HOME, after, content_type=kind, began=1e12)
        extracted = await reader.read(fetch_task, answer)
        assert extracted is not None
        await reader.news(extracted, answer, lambda: before)
        await reader.close()
        return extracted.dated

    return asyncio.run(once())


def dated_map(**dates: str) -> bytes:
    rows = (
        f"<url><loc>http://a.org/{name}</loc><lastmod>{date}</lastmod></url>" for name, date in dates.items()
    )
    return f"<urlset>{''.join(rows)}</urlset>".encode()


def test_only_a_changed_date_of_a_sitemap_is_a_signal() -> None:
    before = dated_map(a="2024-01-01", b="2024-01-02", c="")
    after = dated_map(a="2024-01-01", b="2024-02-02", c="2024-03-03", d="2024-04-04")
    assert [loc for loc, _ in news("application/xml", before, after, SITEMAP)] == ["http://a.org/b"]
    assert news("application/xml", b"", after, SITEMAP) == []
    padded = b"<!--" + b" " * INLINE_BYTES_MAX + b"-->" + after
    assert [loc for loc, _ in news("application/xml", before, padded, SITEMAP)] == ["http://a.org/b"]


def test_a_date_shared_by_all_entries_is_no_signal() -> None:
    assert (
        news(
            "application/xml",
            dated_map(a="2024-01-01", b="2024-01-01"),
            dated_map(a="2024-02-02", b="2024-02-02"),
            SITEMAP,
        )
        == []
    )


def test_a_new_item_of_a_feed_counts_as_news() -> None:
    def feed(**dates: str) -> bytes:
        items = (
            f"<entry><link href='http://a.org/{n}'/><updated>{date}</updated></entry>"
            for n, date in dates.items()
        )
        return f"<feed xmlns='http://www.w3.org/2005/Atom'>{''.join(items)}</feed>".encode()

    before, after = feed(a="2024-01-01T00:00:00Z"), feed(a="2024-01-01T00:00:00Z", b="2024-02-02T00:00:00Z")
    assert [loc for loc, _ in news("application/atom+xml", before, after)] == ["http://a.org/b"]
    assert news("application/atom+xml", b"", after) == []


def test_a_directory_listing_gives_the_dates_of_its_files() -> None:
    row = (
        b'<a href="a.html">a.html</a>   %s 10:00  12K\n<a href="b.html">b.html</a>   02-Jan-2024 10:00  12K\n'
    )
    page = b"<title>Index of /</title><pre>" + row
    found = news("text/html", page % b"01-Jan-2024", page % b"03-Jan-2024")
    assert [loc for loc, _ in found] == ["a.html"]


class Documents:
    """Replaces both the child that parses large documents and the parsing in the event loop.

    Records its calls.
    """

    def __init__(self) -> None:
        self.done: list[Any] = []
        self.share = self

    def follow(self, document: Document, most: int) -> str:
        self.done.append((document.kind, document.url, most))
        return "stream"

    def drop(self, stream: Any) -> None:
        self.done.append("dropped")

    async def read_stream(self, stream: Any, content: Iterable[bytes], document: Document) -> str:
        self.done.append((stream.nbytes, sum(map(len, content)), document.kind))
        return "streamed"

    async def mine(self) -> None:
        self.done.append("mine")

    def __enter__(self) -> None:
        self.done.append("spends")

    def __exit__(self, *_error: object) -> None:
        self.done.append("spent")

    async def close(self) -> None:
        self.done.append("closed")


def with_documents() -> tuple[Reader, Documents]:
    reader, documents = Reader(convert({})), Documents()
    anything: Any = documents
    reader._documents = reader._worker = anything
    return reader, documents


def test_a_sitemap_is_streamed_to_the_child_while_it_arrives() -> None:
    reader, documents = with_documents()
    assert reader.follow(FetchTask(TaskKind.PAGE, 1, "a.org", HOME)) is None and not documents.done
    assert reader.follow(FetchTask(TaskKind.PAGE, 1, "a.org", HOME, flags=SITEMAP)) == "stream"
    assert documents.done == [(DocumentKind.SITEMAP, HOME, INLINE_BYTES_MAX)]


def test_an_unneeded_sitemap_stream_is_dropped() -> None:
    reader, documents = with_documents()
    reader.drop(None)
    assert not documents.done
    anything: Any = "stream"
    reader.drop(anything)
    assert documents.done == ["dropped"]


LONG = INLINE_BYTES_MAX + 1


@pytest.mark.parametrize(
    ("outcome", "fed", "size", "streamed"),
    [
        (Outcome.FETCHED, LONG, LONG, True),
        (Outcome.TRUNCATED, LONG, LONG, True),
        (Outcome.GONE, LONG, LONG, False),
        (Outcome.FETCHED, LONG - 1, LONG, False),
        (Outcome.FETCHED, LONG - 1, LONG - 1, False),
    ],
)
def test_a_completely_streamed_sitemap_is_read_by_the_child(
    outcome: Outcome, fed: int, size: int, streamed: bool
) -> None:
    """A sitemap that was not streamed completely is parsed again from its beginning, and its stream is dropped."""
    reader, documents = with_documents()
    apart: list[str] = []
    stream: Any = SimpleNamespace(nbytes=fed)
    answer = fetch(HOME, b" " * size, outcome=outcome)
    assert reader._is_streamed(answer, stream) is streamed
    if streamed:
        fetch_task = FetchTask(TaskKind.PAGE, 1, "a.org", HOME, flags=SITEMAP)
        work = reader.read(fetch_task, answer, lambda: apart.append("apart"), stream)
        assert asyncio.run(work) == "streamed" and apart == ["apart"]  # type: ignore[comparison-overlap]
        assert documents.done == [(LONG, LONG, DocumentKind.SITEMAP)]
    elif outcome is Outcome.GONE:
        assert (
            asyncio.run(reader.read(FetchTask(TaskKind.PAGE, 1, "a.org", HOME), answer, stream=stream))
            is None
        )
        assert documents.done == ["dropped"]


def test_a_small_document_takes_its_share_of_the_loop() -> None:
    reader, documents = with_documents()
    fetch_task = FetchTask(TaskKind.PAGE, 1, "a.org", HOME, flags=SITEMAP)
    found = asyncio.run(reader.read(fetch_task, fetch(HOME, MAP)))
    assert found is not None and found.hrefs == ["http://a.org/1"]
    assert documents.done == ["mine", "spends", "spent"]


def test_both_children_are_ended() -> None:
    reader, documents = with_documents()
    asyncio.run(reader.close())
    assert documents.done == ["closed", "closed"]


@pytest.mark.parametrize("can", [True, False])
def test_a_parser_is_forked_where_that_can_be(monkeypatch: pytest.MonkeyPatch, can: bool) -> None:
    forks: list[Any] = []
    monkeypatch.setattr(module, "can_fork", lambda: can)
    monkeypatch.setattr(
        module, "fork_children", lambda *asked, helpers: forks.append(asked) or ["child", "other"]
    )
    assert fork_parser() == ("child" if can else None)  # type: ignore[comparison-overlap]
    assert forks == ([(module.work, 1)] if can else [])


def test_dates_that_changed() -> None:
    known = [Entry("a", 1.0), Entry("b", None), Entry("c", 3.0)]
    dated = [("a", 1.0), ("b", 2.0), ("c", 4.0), ("d", 5.0)]
    assert new_dates(dated, known) == ([("c", 4.0)], [("b", 2.0), ("d", 5.0)])
    assert new_dates(dated, []) == ([], dated)


def map_of(**dates: str) -> bytes:
    rows = (f"<url><loc>{HOME}{name}</loc><lastmod>{date}</lastmod></url>" for name, date in dates.items())
    return b"<urlset>%s</urlset>" % "".join(rows).encode()


def feed_of(**dates: str) -> bytes:
    rows = (
        f"<item><link>{HOME}{name}</link><pubDate>{date}</pubDate></item>" for name, date in dates.items()
    )
    return b"<rss><channel>%s</channel></rss>" % "".join(rows).encode()


@pytest.mark.parametrize(
    ("form", "known", "changed", "first"),
    [
        (map_of, {"a": "2024-01-01", "c": "2024-01-02"}, ["c"], ["d"]),
        (feed_of, {"a": "2024-01-01", "c": "2024-01-02"}, ["c", "d"], []),
        (map_of, {}, [], []),
    ],
    ids=["sitemap", "feed", "sitemap without entries before"],
)
def test_a_first_date_is_a_signal_only_in_a_feed(
    form: Callable[..., bytes], known: dict[str, str], changed: list[str], first: list[str]
) -> None:
    body = form(a="2024-01-01", c="2024-01-03", d="2024-01-04")
    answer = fetch(HOME, body, content_type="application/xml", began=2e9)
    fetch_task = FetchTask(TaskKind.PAGE, 1, "a.org", HOME, flags=SITEMAP if form is map_of else 0)
    reader = Reader(convert({}))

    async def news() -> Extracted:
        found = await reader.read(fetch_task, answer)
        assert found is not None and len(found.dated) == 3
        await reader.news(found, answer, lambda: form(**known))
        return found

    found = asyncio.run(news())
    assert [url for url, _ in found.dated] == [HOME + name for name in changed]
    assert [url for url, _ in found.first_dated] == [HOME + name for name in first]


def test_dates_of_a_listing_count_if_it_is_refetched() -> None:
    listing = b'<title>Index of /</title><pre><a href="a.html">a.html</a>   01-Jan-2024 10:00  12K\n'
    refresh = LinkFlag.REFRESH
    for body, flags, told_by in ((listing, refresh, "listing"), (listing, 0, ""), (PAGE, refresh, "")):
        found = read(fetch(HOME, body, began=1e12), flags=flags)
        assert found is not None and found.told_by == told_by and bool(found.dated) == bool(told_by)
