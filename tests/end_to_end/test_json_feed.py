"""Test a crawl over HTTP that finds a JSON Feed by the link of a page, and pages by the feed."""

from pathlib import Path

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
