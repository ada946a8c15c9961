"""Test the arguments that `run`, `run_async` and `Crawl` share."""

import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest

import crawler
from crawler.api.options import DEFAULTS, DESCRIPTION, CrawlOptions
from tests.end_to_end.web import SETTINGS, Web, page


@pytest.mark.parametrize("taker", [crawler.run, crawler.run_async, crawler.Crawl])
def test_signatures_list_the_shared_arguments_with_types_and_defaults(taker: object) -> None:
    """`help()` and completion show the arguments, because they read the signature.

    Without these signatures, they would show only `**options`.
    """
    found = inspect.signature(taker).parameters  # type: ignore[arg-type]
    assert "options" not in found
    shown = {name: found[name].default for name in DEFAULTS}
    assert shown == DEFAULTS and all(found[name].annotation is not inspect.Parameter.empty for name in shown)
    assert all(found[name].kind is inspect.Parameter.KEYWORD_ONLY for name in shown)


def test_every_shared_argument_has_a_type_a_default_and_a_description() -> None:
    names = {
        name for line in DESCRIPTION.splitlines() if line[0] != " " for name in line.split(":")[0].split(", ")
    }
    assert names == DEFAULTS.keys() == CrawlOptions.__annotations__.keys()
    help_text = inspect.getdoc(crawler.run_async) or ""
    assert "**options" not in help_text and "\n    on_error: the reaction" in help_text


def test_an_unknown_argument_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'follows'"):
        crawler.Crawl(directory=tmp_path, follows=False)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'follows'"):
        crawler.run(directory=tmp_path, follows=False)  # type: ignore[call-arg]
    with pytest.raises(
        TypeError, match=r"^run\(\) got an unexpected .* 'delay'; settings are given as config="
    ):
        crawler.run(directory=tmp_path, delay=2)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="unexpected keyword argument 'follows'"):
        asyncio.run(crawler.run_async(directory=tmp_path, follows=False))  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"seeds": None}, "seeds: expected URLs or requests, got None"),
        ({"seeds": ["http://x/", 5]}, "seeds: expected a URL or a crawler.Request, got 5"),
        ({"seeds": iter([5])}, "seeds: expected a URL or a crawler.Request, got 5"),
        ({"parse": "parse"}, "parse: expected a function, got 'parse'"),
        ({"on_error": "abort"}, "on_error: 'abort' is not one of continue, stop"),
        ({"processors": len}, "processors: expected a list of functions"),
        ({"processors": [len, None]}, "processors: expected a function, got None"),
        ({"url_filter": "x"}, "url_filter: expected a function, got 'x'"),
        ({"link_extractor": 1}, "link_extractor: expected a function, got 1"),
        ({"page_sink": []}, r"page_sink: expected a function, got \[\]"),
        ({"seeds": []}, "no page could be fetched: no seeds were given"),
        ({"config": [1]}, r"config: expected a mapping or a crawler.Config, got \[1\]"),
        ({"directory": 5}, "directory: expected a path, got 5"),
        ({"items": ["a.csv"]}, r"items: expected a path, or a mapping of classes to paths, got \['a.csv'\]"),
        ({"items": {dict: 5}}, "items: expected a path, or a mapping of classes to paths, got 5"),
        ({"follow": "/tea/"}, "follow: expected True, False or a list of rules, got '/tea/'"),
        ({"follow": [5]}, "follow: expected True, False or a list of rules"),
        ({"fresh": "no"}, "fresh: expected True or False, got 'no'"),
        ({"cached": 2}, "cached: expected True or False, got 2"),
    ],
)
def test_a_wrong_argument_is_the_fault_of_the_caller(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, arguments: dict[str, Any], said: str
) -> None:
    """The error names the argument. Before, some were reported as a bug of the crawler, and others were ignored."""
    with pytest.raises(crawler.CrawlerError, match=said):
        given = {"seeds": "http://localhost:9/", "config": SETTINGS, "directory": tmp_path}
        crawler.run(**given | arguments)
    assert "bug in the crawler" not in caplog.text


@pytest.mark.parametrize(
    "wrong",
    [
        {"url": 5}, {"meta": [1]}, {"priority": "high"}, {"method": 5}, {"body": 5}, {"headers": ["A: b"]},
        {"jar": 5}, {"proxy": 5}, {"secrets": "pin"},
    ],
)  # fmt: skip
def test_a_wrong_field_of_a_request_is_named(wrong: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=rf"^Request\(.*\): {next(iter(wrong))}: "):
        crawler.Request(**{"url": "http://localhost/"} | wrong)


@pytest.mark.parametrize("follow", [True, False])
def test_without_links_no_sitemap_or_feed_is_requested(tmp_path: Path, follow: bool) -> None:
    """`follow=False` also holds for URLs that are found in sitemaps and feeds."""
    feed = '<link rel="alternate" type="application/rss+xml" href="/feed">'
    with Web({"/": page("/a", head=feed)}, other=page()) as web:
        web.routes["/robots.txt"] = f"Sitemap: {web.url('/map.xml')}\n"
        settings = SETTINGS | {"sitemaps": {"guess": True}}
        crawler.run(web.url(), follow=follow, directory=tmp_path, config=settings)
        assert set(web.paths()) == ({"/", "/a", "/feed", "/map.xml", "/sitemap.xml"} if follow else {"/"})
