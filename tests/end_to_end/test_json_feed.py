"""Test a crawl over HTTP that finds a JSON Feed by the link of a page, and pages by the feed."""

from pathlib import Path

import pytest

from crawler.clock import SystemClock
from crawler.crawl.directory import CrawlDirectory
from crawler.frontier.refresh.page_ages import is_source
from crawler.process.opening.stages import at_rest
from tests.end_to_end.web import Web, crawl, lines, page

FEED = """{"version": "https://jsonfeed.org/version/1.1", "title": "News", "items": [
    {"id": "1", "url": "/news/1", "date_published": "2024-01-02T03:04:05Z"}, {"id": "2", "url": "/news/2"}]}"""


def test_the_pages_that_only_a_json_feed_lists_are_fetched(tmp_path: Path) -> None:
    link = '<link rel="alternate" type="application/feed+json" href="/feed.json">'
    routes = {
        "/": page(head=link),
        "/feed.json": (200, {"Content-Type": "application/feed+json"}, FEED),
        "/news/1": page(),
        "/news/2": page(),
    }
    with Web(routes) as web:
        crawl(tmp_path / "crawl", web.url("/"))
        assert {"/news/1", "/news/2"} <= set(web.paths())
    assert all(line["outcome"] in ("fetched", "empty") for line in lines(tmp_path / "crawl"))


RSS = "<rss><channel><item><link>/news/1</link></item></channel></rss>"


@pytest.mark.parametrize(
    ("kind", "body", "is_feed"),
    [
        ("application/feed+json", FEED, True),
        ("application/json", FEED, True),
        ("application/rss+xml", RSS, True),
        ("text/xml", RSS, True),
        ("text/xml", "<data/>", False),
        ("application/json", "{}", False),
        ("text/html", page(text="News"), False),
    ],
)
def test_every_feed_is_a_source_of_signals(tmp_path: Path, kind: str, body: str, is_feed: bool) -> None:
    """The reader decides whether a body is a feed, and its decision sets how often the feed is read."""
    with Web({"/": (200, {"Content-Type": kind}, body), "/news/1": page(), "/news/2": page()}) as web:
        crawl(tmp_path / "crawl", web.url("/"))
        url = web.url("/")
    directory = CrawlDirectory(tmp_path / "crawl")
    with at_rest(directory.settings.config(), directory, "p0", clock=SystemClock()) as stages:
        records = {record.url: record for _, record in stages.pages.all_records()}
    assert is_source(records[url]) is is_feed
