"""Test the arguments that `run`, `run_async` and `Crawl` share."""

import asyncio
import inspect
from pathlib import Path
from typing import Any

import pytest

import crawler
from tests.end_to_end.web import SETTINGS, Web, page


def test_the_functions_and_the_class_take_the_same_arguments() -> None:
    """Each is a keyword with a type and a default, and `run_async` describes it."""
    run, run_async, of_class = (
        inspect.signature(taker).parameters for taker in (crawler.run, crawler.run_async, crawler.Crawl)
    )
    assert run == run_async
    shared = [name for name in run_async if name not in ("seeds", "parse", "config", "fresh", "cached")]
    assert {name: run_async[name] for name in shared} == {name: of_class[name] for name in shared}
    assert len(shared) == 8 and {run_async[name].kind for name in shared} == {inspect.Parameter.KEYWORD_ONLY}
    described = inspect.getdoc(crawler.run_async) or ""
    assert all(f" {name}:" in described or f" {name}," in described for name in run_async)


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


@pytest.mark.parametrize("follow", [True, False, ["/a$"]])
def test_sitemaps_and_feeds_are_read_only_if_all_links_are_followed(tmp_path: Path, follow: Any) -> None:
    """`follow=False` also holds for URLs that are found in sitemaps and feeds."""
    feed = '<link rel="alternate" type="application/rss+xml" href="/feed">'
    with Web({"/": page("/a", head=feed)}, other=page()) as web:
        web.routes["/robots.txt"] = f"Sitemap: {web.url('/map.xml')}\n"
        settings = SETTINGS | {"sitemaps": {"guess": True}}
        crawler.run(web.url(), follow=follow, directory=tmp_path, config=settings)
        read = {"/feed", "/map.xml", "/sitemap.xml"} if follow is True else set()
        assert set(web.paths()) == {"/", *(["/a"] if follow else []), *read}
