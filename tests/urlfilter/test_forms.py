"""Test that the kernels which turn hrefs into links give the same results, compiled or interpreted."""

from types import ModuleType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.config import FilterConfig
from crawler.errors import ConfigError
from crawler.records import LinkFlag
from tests.forms import installed, interpreted

NAMES = [
    "urls.canonical",
    "urls.fingerprint",
    "urlfilter.traps",
    "urlfilter.url_filter",
    "urlfilter.link_filter",
]
INSTALLED, INTERPRETED = (
    {name: load(f"crawler.{name}") for name in NAMES} for load in (installed, interpreted)
)
SEED = "http://www.example.com/docs/a/b.html?q"
PARTS = [
    "../", "../../", "..", ".", "/", "//", "a", "b.html", "index.php", "docs", "?x=1", "?sid=" + "0a" * 16,
    ";jsessionid=7", "(S(x))",
    "#top", "%7e", "%zz", "é", " ", "\t", ":", "@", "http:", "https://", "HTTP://", "mailto:x", "other.example",
    "www.example.com", "127.0.0.1:80", ":8080", "[::1]", "xn--", "a/" * 21, "z/z/z/", "a" * 300,
]  # fmt: skip
PLAIN = [
    "",
    "../x",
    "../../x/y?z",
    "../../../x",
    "/",
    "/x",
    "x/../y",
    "x",
    "//h/x",
    "http://h",
    "https://h.example/x",
]
HREFS = (
    st.lists(st.sampled_from(PARTS), max_size=6).map("".join) | st.sampled_from(PLAIN) | st.text(max_size=20)
)
FLAGS = st.sampled_from([0, LinkFlag.SEED, LinkFlag.SITEMAP, LinkFlag.REQUISITE, LinkFlag.EXTERNAL])


def _filter(form: dict[str, ModuleType], kind: str) -> Any:
    rules = form["urlfilter.url_filter"]
    config = FilterConfig(exclude=("b[.]html",), exclude_extensions=("php",))
    url_filter = rules.UrlFilter(rules.Scope(kind, [SEED]), config, requisites=True)
    fingerprinter = form["urls.fingerprint"].Fingerprinter(bytes(range(16)), method="blake2b")
    return form["urlfilter.link_filter"].LinkFilter(url_filter, fingerprinter, memo_bytes_max=1 << 14)


@given(
    st.lists(st.lists(HREFS, max_size=20), min_size=1, max_size=4),
    st.sampled_from(["prefix", "host", "any"]),
    FLAGS,
)
def test_links(pages: list[list[str]], kind: str, flags: int) -> None:
    one, other = _filter(INSTALLED, kind), _filter(INTERPRETED, kind)
    for number, hrefs in enumerate(pages):
        base = f"{SEED}{number}" if number % 2 else SEED
        accepted, spelled = (links.filter_spelled(base, hrefs, "utf-8", flags) for links in (one, other))
        assert accepted[1] == spelled[1]
        assert accepted[0].urls == spelled[0].urls
        assert accepted[0].fingerprints.tolist() == spelled[0].fingerprints.tolist()
        assert accepted[0].rejected == spelled[0].rejected
    assert (one.links, one.misses) == (other.links, other.misses)


@given(HREFS, HREFS)
def test_forms_of_a_url(base: str, href: str) -> None:
    one, other = INSTALLED["urls.canonical"], INTERPRETED["urls.canonical"]
    assert one.resolve_or_rule(SEED, href) == other.resolve_or_rule(SEED, href)
    url = one.resolve(SEED, base)
    assert url == other.resolve(SEED, base)
    if url is None:
        return
    assert one.plain_join(one.ancestors(url), href) == other.plain_join(other.ancestors(url), href)
    for name in ("duplicate_key", "canonical", "directory", "authority", "target", "hostname"):
        assert getattr(one, name)(url) == getattr(other, name)(url)
    for segments in (3, 20):
        rules = [
            form["urlfilter.traps"].directory_trap(one.directory(url), segments)
            for form in (INSTALLED, INTERPRETED)
        ]
        assert rules[0] == rules[1]


class Text(str):
    """A subclass of `str`, such as numpy has. Users may pass such a string as a URL."""


@pytest.mark.parametrize("form", [INSTALLED, INTERPRETED])
def test_strings_of_other_classes(form: dict[str, ModuleType]) -> None:
    links, url = _filter(form, "any"), Text("http://h.example/a/b")
    assert links.filter_links(url, [Text("c"), Text("../d?e")]).urls == [
        "http://h.example/a/c",
        "http://h.example/d?e",
    ]
    assert links.one(url) == links.one(str(url))
    forms = form["urls.canonical"]
    assert [forms.canonical(url), forms.hostname(url), forms.duplicate_key(url)] == [
        url,
        "h.example",
        url.encode(),
    ]


@pytest.mark.parametrize("method", ["mmh3", "blake2b"])
@pytest.mark.parametrize("partition", ["domain", "host"])
def test_fingerprints(method: str, partition: str) -> None:
    urls = [
        f"http://{host}/{path}"
        for host in ("h.example", "a.b.example")
        for path in ("", "x?PHPSESSID=1", "%7E")
    ]
    made = [
        form["urls.fingerprint"].Fingerprinter(b"0123456789abcdef", method=method, partition=partition)
        for form in (INSTALLED, INTERPRETED)
    ]
    assert made[0].fingerprints(urls).tolist() == made[1].fingerprints(urls).tolist()
    assert made[0].check_value == made[1].check_value
    for form in (INSTALLED, INTERPRETED):
        with pytest.raises(ConfigError):
            form["urls.fingerprint"].Fingerprinter(b"short")
