"""Test which URLs a sitemap may name. The check takes linear time, and long lists are checked in portions."""

from typing import Any

import pytest

from crawler.config import RobotsConfig
from crawler.process.results import cross_submits as submitted_module
from crawler.process.results.cross_submits import CrossSubmits, other_authorities
from crawler.records import FetchTask, Outcome, TaskKind
from crawler.robots import cache as cache_module
from crawler.robots.cache import RobotsCache
from crawler.storage.kv import MemoryStore
from tests.process.support import made

MAP = "http://evil.test/map.xml"


def robots(**files: str) -> RobotsCache:
    """Return a cache that holds the robots.txt of the host `name`.test for each given name."""
    cache = RobotsCache(MemoryStore(), RobotsConfig(), "crawler", 1000)
    for name, body in files.items():
        answer: dict[str, Any] = {"status": 200, "outcome": Outcome.FETCHED, "complete": True, "now": 0.0}
        cache.record(f"http://{name}.test", body=body.encode(), **answer)
    return cache


def among(cache: RobotsCache, locs: list[str]) -> list[str]:
    task = FetchTask(TaskKind.PAGE, 1, "evil.test", MAP)
    sites = {*other_authorities(task, locs, lambda url: True)} - {""}
    submits = CrossSubmits(task, [site for site in sites if cache.names(site, MAP)])
    return list(made(submits.among(locs))[0])


@pytest.mark.parametrize(
    ("loc", "taken"),
    [
        ("http://evil.test/a", True),
        ("https://evil.test/a", True),
        ("HTTP://EVIL.test:80/a", True),
        ("http://evil.test:8080/a", True),
        ("http://evil.test", True),
        ("http://user@evil.test/a", True),
        ("//evil.test/a", True),
        ("/a", True),
        ("//victim.test/a", False),
        ("\\\\victim.test\\a", False),
        ("/\\victim.test/a", False),
        ("\t//victim.test/a", False),
        ("http://", True),
        ("http://named.test/a", True),
        ("http://NAMED.test/a", True),
        ("http://named.test:8080/a", False),  # another authority, whose robots.txt names no sitemap
        ("https://named.test/a", False),
        ("http://other.test/a", False),
        ("http://unknown.test/a", False),
        ("http://victim.test/x?u=//evil.test", False),
        ("http://victim.test/x?u=http://evil.test/", False),
        ("http://victim.test/#//evil.test/", False),
        ("http://victim.test//evil.test/", False),
        ("http://evil.test@victim.test/", False),
        ("http://evil.test.victim.test/", False),
        ("http://notevil.test/", False),
    ],
)
def test_urls_that_a_sitemap_may_name(loc: str, taken: bool) -> None:
    cache = robots(
        named=f"Sitemap: HTTP://EVIL.test:80{MAP[16:]}", other="Sitemap: http://evil.test/other.xml"
    )
    assert among(cache, [loc]) == ([loc] if taken else [])


def test_the_lines_of_a_robots_txt_are_canonicalised_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is proportional to the number of lines plus the number of URLs.

    The time was once proportional to the product of the two numbers, which blocked the event loop for 45
    minutes.
    """
    calls = 0
    for module, name in ((cache_module, "canonical"), (submitted_module, "resolve")):
        whole = getattr(module, name)

        def counted(*given: str, whole: Any = whole) -> Any:
            nonlocal calls
            calls += 1
            return whole(*given)

        monkeypatch.setattr(module, name, counted)
    lines, locs = 400, 3000
    cache = robots(named="".join(f"Sitemap: http://named.test/{n}.xml\n" for n in range(lines)))
    assert among(cache, [f"http://named.test/{n}" for n in range(locs)]) == []
    assert calls <= lines + 2, "one origin is parsed once, and so is its first URL, for the scope"
    calls = 0
    assert among(cache, ["http://named.test/x"]) == [], "the robots.txt names another sitemap"
    assert calls <= 2
    calls = 0
    assert len(among(cache, [f"http://evil.test/{n}" for n in range(locs)])) == locs
    assert calls == 0, "URLs of the sitemap's own host need no look-up"


def test_lines_beyond_the_bound_are_counted() -> None:
    most = RobotsConfig().sitemaps_max
    cache = robots(named="".join(f"Sitemap: http://named.test/{n}.xml\n" for n in range(most + 7)))
    assert len(cache.rules("http://named.test").sitemaps) == most
    assert cache.sitemaps_ignored == 7


def test_an_authority_out_of_scope_may_have_an_url_in_scope() -> None:
    """The scope may be a prefix of URLs, so each entry of a new authority is compared with it."""
    task = FetchTask(TaskKind.PAGE, 1, "evil.test", MAP)
    locs = [f"http://named.test/{part}" for part in ("out", "in/a", "in/b")]
    assert [*other_authorities(task, locs, lambda url: "/in/" in url)] == ["", "http://named.test", ""]


def test_a_long_entry_without_a_request_form_is_left_to_the_filter() -> None:
    """Its authority could be read from its origin, but the filter rejects the URL, and the summary counts it."""
    too_long = "http://named.test/" + "\u20ac" * 4000
    assert among(robots(), [too_long]) == [too_long]
    assert among(robots(), [f"http://named.test/{'a' * 4000}"]) == []
