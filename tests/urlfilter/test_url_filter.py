"""Test the scope and the verdicts of the URL filter."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.config import FilterConfig, TrapsConfig
from crawler.errors import ConfigError
from crawler.records import LinkFlag
from crawler.urlfilter import url_filter as filters
from crawler.urlfilter.rule_names import RULES
from crawler.urlfilter.url_filter import SCOPES, Scope, UrlFilter

SEED = "http://www.example.co.uk/docs/index.html?x=/y"
hosts = st.sampled_from(
    ["a.example", "www.a.example", "b.a.example", "www.com", "com", "1.2.3.4", "[::1]", "c.example"]
)
urls = st.builds(
    lambda scheme, host, port, path: f"{scheme}://{host}{port}/{path}",
    st.sampled_from(["http", "https"]),
    hosts,
    st.sampled_from(["", ":8080"]),
    st.sampled_from(["", "a", "a/", "a/b/", "a/b/c?/d/", "?", "ab"]),
)


@pytest.mark.parametrize(
    ("url", "scopes"),
    [
        ("http://www.example.co.uk/docs/", "prefix host domain any"),
        ("https://www.example.co.uk/docs/a/b?c", "prefix host domain any"),
        ("http://www.example.co.uk/docs", "host domain any"),
        ("http://www.example.co.uk/docsy/", "host domain any"),
        ("http://www.example.co.uk:8080/docs/", "host domain any"),
        ("https://example.co.uk/", "host domain any"),
        ("http://en.example.co.uk/", "domain any"),
        ("http://example.co.uk.org/", "any"),
        ("http://xexample.co.uk/", "any"),
        ("http://other.co.uk/docs/", "any"),
    ],
)
def test_scopes(url: str, scopes: str) -> None:
    """Each kind of scope includes all URLs of the narrower kinds."""
    assert [kind for kind in SCOPES if Scope(kind, [SEED]).covers(url)] == scopes.split()


def test_www_is_folded_both_ways_but_not_into_a_suffix() -> None:
    assert Scope("host", ["http://example.com/"]).covers("http://www.example.com/")
    assert not Scope("host", ["http://www.com/"]).covers("http://com/")
    assert not Scope("host", ["http://example.com/"]).covers("http://wwwexample.com/")


@given(st.sampled_from(SCOPES), st.lists(urls, max_size=4), urls)
def test_scope_grows_and_survives(kind: str, seeds: list[str], url: str) -> None:
    """A scope covers its seeds, adding seeds never shrinks it, and its restored state covers the same URLs."""
    scope = Scope(kind, seeds)
    before = [probe for probe in [*seeds, url] if scope.covers(probe)]
    assert set(seeds) <= set(before)
    again = Scope.from_state(kind, json.loads(json.dumps(scope.state())))
    assert again.covers(url) == scope.covers(url)
    assert len(again) <= len(scope)
    assert scope.add(url) == (url not in before)
    assert all(scope.covers(probe) for probe in [*before, url])


@given(st.sampled_from(SCOPES), st.sampled_from(SCOPES), st.lists(urls, max_size=4))
def test_scope_can_be_widened_but_not_narrowed(old: str, new: str, seeds: list[str]) -> None:
    state = Scope(old, seeds).state()
    if SCOPES.index(new) < SCOPES.index(old):
        with pytest.raises(ConfigError, match="crawl.scope"):
            Scope.from_state(new, state)
    else:
        assert all(Scope.from_state(new, state).covers(url) for url in seeds)


def test_scope_any_keeps_nothing() -> None:
    scope = Scope("any", [f"http://h{number}.example/" for number in range(10)])
    assert len(scope) == 0
    assert scope.covers("http://x/")


def test_a_prefix_scope_takes_one_look_up_per_level() -> None:
    scope = Scope("prefix", [f"http://h/{number}/" for number in range(1000)])
    assert scope.covers("http://h/999/a/b/c/d/e")
    assert not scope.covers("http://h/1000/a")


def test_unknown_scope() -> None:
    with pytest.raises(ConfigError, match="planet"):
        Scope("planet")


CONFIG = FilterConfig(
    include=("/docs/", "^https://b"),
    exclude=(r"\?print=", "(?i)logout"),
    exclude_extensions=(".zip", "tar.GZ"),
)


def verdict(url: str, flags: int = 0, **options: bool) -> str:
    seeds = ["http://a.example/", "https://b.example/"]
    return UrlFilter(Scope("host", seeds), CONFIG, TrapsConfig(), **options).verdict(url, flags)


def test_external_links_are_those_out_of_scope() -> None:
    """Only the status of an external link is checked, so its file type and `include` do not matter."""
    config = FilterConfig(
        exclude_extensions=(".pdf",), accept=("png",), include=("docs",), exclude=("secret",)
    )
    url_filter = UrlFilter(Scope("host", ["http://a.example/"]), config)
    verdicts = {
        "http://www.a.example/x": "in_scope",
        "http://b.example/x.pdf": "",
        "http://b.example/secret": "exclude",
        "http://b.example:25/": "port",
    }
    for url, rule in verdicts.items():
        assert url_filter.verdict(url, LinkFlag.EXTERNAL) == rule, url


@pytest.mark.parametrize("flags", [0, LinkFlag.SEED, LinkFlag.SITEMAP, LinkFlag.REQUISITE])
def test_ports_of_other_protocols(flags: int) -> None:
    """Every link with such a port is rejected. The reason names the setting that allows the port."""
    url, seeds = "http://a.example:6000/docs/x?a:25/", ["http://a.example/"]
    shut = UrlFilter(Scope("host", seeds), requisites=True)
    assert shut.verdict(url, flags) == filters.PORT
    assert "network.allow_ports=[6000]" in shut.detail(url, filters.PORT)
    opened = UrlFilter(Scope("host", seeds), allow_ports=(6000,), requisites=True)
    assert opened.verdict(url, flags) == ""


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("http://a.example/docs/x", ""),
        ("https://b.example/x", ""),
        ("http://c.example/docs/x", filters.SCOPE),
        # if several rules apply, the first one decides
        ("http://c.example/docs/x?print=1", filters.SCOPE),
        ("http://c.example/x.zip", filters.SCOPE),
        ("http://c.example/a/a/a/", filters.SCOPE),
        ("http://a.example/docs/logout.zip", filters.EXTENSION),
        ("http://a.example/logout", filters.EXCLUDE),
        ("http://a.example/x/x/x/", filters.INCLUDE),
        ("http://a.example" + "/docs/t/u/v/w/w/x" * 3, "path_segments"),
        ("http://a.example/docs/x/x/x/", "repeated_segments"),
        ("http://a.example/docs/x.ZIP", filters.EXTENSION),
        ("http://a.example/docs/x.tar.gz?v=1", filters.EXTENSION),
        ("http://a.example/docs/x?f=.zip", ""),
        ("http://a.example/docs/.zip/x", ""),
        ("http://a.example/docs/x?print=1", filters.EXCLUDE),
        ("http://a.example/docs/LogOut", filters.EXCLUDE),
        ("http://a.example/x", filters.INCLUDE),
        ("http://a.example:6000/docs/x", filters.PORT),
        ("http://a.example:6001/docs/x", ""),
        ("http://a.example:6000/docs/x/x/x/", filters.PORT),
        ("http://a.example:6000/x", filters.INCLUDE),
    ],
)
def test_verdict_on_page_links(url: str, rule: str) -> None:
    """The verdict is the first rule that applies, in the order of RULES."""
    assert verdict(url) == rule
    assert verdict(url, LinkFlag.REDIRECT) == rule
    assert not rule or rule in RULES


@pytest.mark.parametrize(
    ("url", "seed", "sitemap", "requisite"),
    [
        ("http://c.example/x", "", "", ""),
        ("http://c.example/x.zip", "", "", "extension"),
        ("http://c.example/logout", "exclude", "exclude", "exclude"),
        ("http://c.example/a/a/a/", *["repeated_segments"] * 3),
    ],
)
def test_flags_lift_rules(url: str, seed: str, sitemap: str, requisite: str) -> None:
    """The rules apply as in the table in the docstring of `crawler/urlfilter/url_filter.py`."""
    assert verdict(url, LinkFlag.SEED) == seed
    assert verdict(url, LinkFlag.SITEMAP | LinkFlag.REDIRECT) == sitemap
    assert verdict(url, LinkFlag.REQUISITE, requisites=True) == requisite
    assert verdict(url, LinkFlag.REQUISITE) == "requisite"


def test_widening_changes_the_verdict_and_the_revision() -> None:
    url_filter = UrlFilter(Scope("host", ["http://a.example/"]))
    assert url_filter.verdict("https://www.b.example/x") == filters.SCOPE
    assert not url_filter.widen("https://www.a.example/")
    assert url_filter.revision == 0
    assert url_filter.widen("https://www.b.example/")
    assert url_filter.revision == 1
    assert url_filter.verdict("https://www.b.example/x") == ""


@given(st.lists(urls, max_size=30), st.sampled_from(SCOPES))
def test_remembered_directory_verdicts_change_nothing(given_urls: list[str], kind: str) -> None:
    """A filter that remembers only two directories gives the verdicts of a new filter for each URL."""
    limits = TrapsConfig(path_segments_max=2, repeated_segments_max=1)
    bound, filters._DIRECTORIES_MAX = filters._DIRECTORIES_MAX, 2
    try:
        url_filter = UrlFilter(Scope(kind, given_urls[:1]), FilterConfig(), limits)
        for url in given_urls:
            fresh = UrlFilter(Scope(kind, given_urls[:1]), FilterConfig(), limits)
            assert url_filter.verdict(url) == fresh.verdict(url)
            assert len(url_filter._directories) <= 2
    finally:
        filters._DIRECTORIES_MAX = bound


@pytest.mark.parametrize("pattern", ["(", "*", "(?P<a>x)(?P<a>y)", "a{99999999999}"])
def test_bad_pattern(pattern: str) -> None:
    """The error names the key and the pattern."""
    with pytest.raises(ConfigError, match=r"filter\.include") as caught:
        UrlFilter(Scope(), FilterConfig(include=("fine", pattern)))
    assert repr(pattern) in str(caught.value)
    with pytest.raises(ConfigError, match=r"filter\.exclude"):
        UrlFilter(Scope(), FilterConfig(exclude=(pattern,)))


def test_patterns_do_not_affect_each_other() -> None:
    """Flags, groups and back-references of one pattern do not affect others."""
    config = FilterConfig(exclude=("(?i)/ABC", "(?P<x>q)(?P=x)", r"(z)\1"))
    url_filter = UrlFilter(Scope("any"), config)
    for path, rule in (("abc", "exclude"), ("qq", "exclude"), ("zz", "exclude"), ("QQ", ""), ("zq", "")):
        assert url_filter.verdict(f"http://h/{path}") == rule


def test_every_rule_has_a_reason_for_users() -> None:
    for rule, reason in RULES.items():
        assert rule == rule.lower().replace(" ", "_")
        assert reason.startswith("it")
        assert "\n" not in reason
