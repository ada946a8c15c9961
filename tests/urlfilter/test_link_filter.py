"""Test how raw hrefs become accepted links, with and without the memo of earlier results."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from crawler.config import FilterConfig
from crawler.records import LinkFlag
from crawler.urlfilter.link_filter import LinkFilter
from crawler.urlfilter.rule_names import RULES
from crawler.urlfilter.url_filter import Scope, UrlFilter
from crawler.urls.canonical import LENGTH_MAX, canonical, resolve
from crawler.urls.equivalence import Equivalences
from crawler.urls.fingerprint import Fingerprinter

FINGERPRINTER = Fingerprinter(bytes(range(16)))
SEED = "http://www.example.com/docs/a.html"


def intake(kind: str = "host", memo_bytes_max: int = 1 << 20, exclude: tuple[str, ...] = ()) -> LinkFilter:
    url_filter = UrlFilter(Scope(kind, [SEED]), FilterConfig(exclude=exclude), requisites=True)
    return LinkFilter(url_filter, FINGERPRINTER, memo_bytes_max=memo_bytes_max)


def test_a_page() -> None:
    """Links keep their order and first spelling, without fragments. A rejected href counts once per page."""
    hrefs = [
        "b.html", "#top", "b.html#y", "http://other.example/", "?q", "../c%7e", "../c~", "mailto:x", "http://[",
        "a.html", "z/z/z/", "z/z/z/#f", "//example.com/d", "no/logout", "http://h/" + "a" * LENGTH_MAX,
    ]  # fmt: skip
    accepted = intake(exclude=("logout",)).filter_links(SEED, hrefs)
    assert accepted.urls == [
        "http://www.example.com/docs/b.html",
        "http://www.example.com/docs/a.html?q",
        "http://www.example.com/c%7e",
        "http://www.example.com/docs/a.html",
        "http://example.com/d",
    ]
    assert accepted.fingerprints.dtype == np.uint64
    assert accepted.fingerprints.tolist() == [FINGERPRINTER.fingerprint(url) for url in accepted.urls]
    assert accepted.rejected == {
        "scope": 1, "scheme": 1, "unparsable": 1, "repeated_segments": 1, "exclude": 1, "too_long": 1,
    }  # fmt: skip


def test_the_memo_is_used() -> None:
    """The links of another page in the same directory are found in the memo. Only `?x` is resolved each time."""
    links = intake()
    links.filter_links("http://www.example.com/docs/a.html", ["b.html", "../x", "?x", "", "http:y"])
    assert (links.links, links.misses) == (5, 5)
    accepted = links.filter_links(
        "http://www.example.com/docs/c.html?d=/e", ["b.html", "../x", "?x", "", "http:y"]
    )
    assert (links.links, links.misses) == (10, 8)
    assert accepted.urls == [
        "http://www.example.com/docs/b.html",
        "http://www.example.com/x",
        "http://www.example.com/docs/c.html?x",
        "http://www.example.com/docs/c.html?d=/e",
        "http://www.example.com/docs/y",
    ]


@pytest.mark.parametrize(
    "href", ["?q", " ?q", "\t?q", "ht\ntp:?q", "http:?q", "HTTP:?q", "", " ", "\x00", "\r#"]
)
def test_hrefs_that_depend_on_the_whole_base(href: str) -> None:
    """Some hrefs give different results on two pages of one directory."""
    links = intake()
    for page in ("http://www.example.com/docs/a", "http://www.example.com/docs/b"):
        assert links.filter_links(page, [href]).urls == [page + ("?q" if "q" in href else "")]


def test_encodings_do_not_mix() -> None:
    """If two pages in a directory have different encodings, the same href gives a different URL on each of them."""
    links = intake()
    for encoding, query in (
        ("utf-8", "%C3%A4"),
        ("windows-1252", "%E4"),
        ("macintosh", "%8A"),
        ("utf-16le", "%C3%A4"),
        ("UTF-8", "%C3%A4"),
    ):
        for _ in range(2):
            assert links.filter_links(SEED, ["x?ä"], encoding).urls == [
                "http://www.example.com/docs/x?" + query
            ]


def test_requisites_do_not_mix_with_links() -> None:
    links = intake()
    hrefs = ["http://other.example/x.png"]
    assert links.filter_links(SEED, hrefs).urls == []
    assert links.filter_links(SEED, hrefs, flags=LinkFlag.REQUISITE).urls == hrefs
    assert links.filter_links(SEED, hrefs).rejected == {"scope": 1}


def test_widening_empties_the_memo() -> None:
    links = intake()
    hrefs = ["http://new.example/x"]
    assert links.filter_links(SEED, hrefs).rejected == {"scope": 1}
    assert links.filter.widen("http://new.example/")
    assert links.filter_links(SEED, hrefs).urls == hrefs


def test_odd_bases() -> None:
    """The base URL has credentials or another scheme, has a fragment with slashes, or is missing."""
    links = intake("any")
    assert links.filter_links("http://u:p@h.example./a/b#/c/d", ["x", "../y"]).urls == [
        "http://h.example/a/x",
        "http://h.example/y",
    ]
    assert links.filter_links("HTTP://h.example", ["x"]).urls == ["http://h.example/x"]
    assert links.filter_links("http://h.example/a/./b/../c", ["x"]).urls == ["http://h.example/a/x"]
    for base in ("about:blank", "", "\ud800", "ftp://h/x"):
        for _ in range(2):
            accepted = links.filter_links(base, ["x", "http://h.example/"])
            assert accepted.urls == ["http://h.example/"]
            assert sum(accepted.rejected.values()) == 1
    links._check()


def test_one_and_explain_agree() -> None:
    links = intake(exclude=("secret",))
    url = "http://www.example.com/docs/%7Ex"
    assert links.one("%7Ex", base=SEED) == (url, FINGERPRINTER.fingerprint(url), "")
    assert links.one("x?ä", base=SEED, encoding="windows-1252").url == "http://www.example.com/docs/x?%E4"
    assert links.one("javascript:1") == ("", 0, "scheme")
    explained = links.explain(url)
    assert explained.key == "http://www.example.com/docs/~x"
    assert explained.reason == "it passes the URL filter"
    rejected = (
        ("x", "unparsable", ""),
        ("http://a.b/", "scope", ": host example.com"),
        (url + "secret", "exclude", ": secret"),
    )
    for raw_url, name, detail in rejected:
        explained = links.explain(raw_url)
        assert explained.rule == name
        assert explained.reason == RULES[name] + detail


BASES = (
    SEED,
    "http://www.example.com/docs/b.html",
    "http://www.example.com/docs/",
    "http://www.example.com/docs/?/x",
    "http://www.example.com/",
    "https://example.com/docs/a",
    "http://u@www.example.com./docs/x#/y",
    "about:blank",
)
SHAPES = (
    ["a", "../a", "./a", "/a/", "?q", "", " ?q", "\t?q", "#x", "a#x", "a #x", " a", "a\n", "..", ".", "\\a"]
    + ["http:a", "http:?q", "https:a", "ht\ntp:?q", "http:/a", "http:\\a", "mailto:a", "//o.example/"]
    + ["http://o.example/x", "x?ä", "x?é#é", "a;jsessionid=1", "a/../b", "%61", "a/a/a/"]
)
hrefs = st.one_of(st.sampled_from(SHAPES), st.text("a/.?#: %é\\", max_size=6))
encodings = st.sampled_from(["utf-8", "windows-1252", "shift_jis", "utf-16be"])


class MemoEqualsNoMemo(RuleBasedStateMachine):
    """For any input, filters with a small, medium or large memo give the same results as a filter without one."""

    def __init__(self) -> None:
        super().__init__()
        self.bare = intake(memo_bytes_max=0)
        self.others = [intake(memo_bytes_max=size) for size in (1500, 4000, 10**6)]

    @rule(
        base=st.sampled_from(BASES),
        page=st.lists(hrefs, max_size=8),
        encoding=encodings,
        flags=st.sampled_from([0, 0, LinkFlag.REQUISITE, LinkFlag.SITEMAP]),
    )
    def take(self, base: str, page: list[str], encoding: str, flags: int) -> None:
        wanted = self.bare.filter_links(base, page, encoding, flags)
        for other in self.others:
            got = other.filter_links(base, page, encoding, flags)
            assert got.urls == wanted.urls
            assert got.fingerprints.tolist() == wanted.fingerprints.tolist()
            assert got.rejected == wanted.rejected

    @rule(url=st.sampled_from(["http://o.example/", "http://example.com/", "https://o.example/a"]))
    def widen(self, url: str) -> None:
        for one in (self.bare, *self.others):
            one.filter.widen(url)

    @invariant()
    def within_bounds(self) -> None:
        for one in (self.bare, *self.others):
            one._check()


TestMemoEqualsNoMemo = MemoEqualsNoMemo.TestCase
TestMemoEqualsNoMemo.settings = settings(max_examples=60, stateful_step_count=12)


@given(st.sampled_from(BASES), st.lists(hrefs, max_size=8), encodings)
@settings(max_examples=200)
def test_take_is_resolve_verdict_and_fingerprint(base: str, page: list[str], encoding: str) -> None:
    """The expected results come from a model that calls `resolve` for each href, and are unique by fingerprint."""
    links = intake("any")
    links.filter_links(base, page, encoding)
    model: dict[int, str] = {}
    for href in page:
        url = resolve(base, href, encoding=encoding)
        if url and not href.startswith("#") and not links.filter.verdict(url):
            model.setdefault(FINGERPRINTER.fingerprint(url), url)
    accepted = links.filter_links(base, page, encoding)
    assert dict(zip(accepted.fingerprints.tolist(), accepted.urls, strict=True)) == model
    assert accepted.urls == list(model.values())
    assert all(canonical(url) == url for url in accepted.urls)


def test_directories_share_verdicts_on_urls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A URL is judged once for all directories that link to it, until the scope grows or the memory is full."""
    links, asked = intake("any"), list[str]()
    verdict = links.filter.verdict
    monkeypatch.setattr(
        links.filter, "verdict", lambda url, flags=0: asked.append(url) or verdict(url, flags)
    )
    results = [links.filter_links(f"http://h.example/{n}/", ["../x", "/y.zip"]) for n in range(3)]
    assert asked == ["http://h.example/x", "http://h.example/y.zip"]
    assert len({tuple(each.urls) for each in results}) == 1
    monkeypatch.setattr("crawler.urlfilter.link_filter._JUDGED_MAX", 2)
    links.filter_links("http://h.example/4/", ["../z", "../x"])
    assert asked[2:] == ["http://h.example/z", "http://h.example/x"] and len(links._judged) == 2
    links.filter_links("http://h.example/5/", ["../x"], flags=LinkFlag.SITEMAP)
    assert asked[4:] == ["http://h.example/x"]


def test_memory_is_bounded_by_bytes() -> None:
    """Hostile pages cannot exceed the memory bound, even if each is in a new directory or has the longest hrefs."""
    links = intake("any", memo_bytes_max=50_000)
    for number in range(200):
        links.filter_links(f"http://h/{number}/", [])
        links.filter_links(f"http://h/{number}/", [f"{number}" + "x" * 4000])
        links._check()
    assert len(links._tables) < 50
    assert "directories" in repr(links)


def test_a_proven_equivalence_reaches_the_memo() -> None:
    """Once http and https are proven to be equivalent, the two spellings of a link on a page count as one link."""
    equivalences = Equivalences()
    fingerprinter = Fingerprinter(bytes(16), equivalences=equivalences)
    links = LinkFilter(UrlFilter(Scope("any")), fingerprinter)
    page = ["http://h.example/x", "https://h.example/x"]
    assert links.filter_links(SEED, page).urls == page
    while not equivalences.redirected("http://h.example/", "https://h.example/"):
        pass
    assert links.filter_links(SEED, page).urls == page[:1]
    assert links.explain(page[0]).key == page[1]
