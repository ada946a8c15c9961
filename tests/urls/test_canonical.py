"""Test request forms, duplicate keys, and functions that return parts of URLs (`urls/README.md`, "Forms of a URL")."""

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from crawler.urls.canonical import (
    LENGTH_MAX,
    RAW_LENGTH_FACTOR,
    SCHEME,
    TOO_LONG,
    UNPARSABLE,
    ancestors,
    authority,
    canonical,
    directory,
    duplicate_key,
    hostname,
    parse,
    plain_join,
    resolve,
    resolve_or_rule,
    target,
)

BASE = "http://h.example/a/b?c"
# Parts of test URLs. Together, these parts reach all branches of the parser and of the functions based on it.
PIECES = (
    "http:", "HTTPS://", "//", "/", "\\", ".", "..", "%2e", "%2E%2e", "%7E", "%7e", "%2f", "%", "?", "#", ":",
    "@", "u:p@", ":80", ":443", ":8080", "h.example", "WWW.H.example.", "[::1]", "1.2.3.4", "0x7f.1", "a",
    "é", "ß.de", "\ud800", "\x00", "\t", "\n", " ", ";jsessionid=1", "?PHPSESSID=2", "&sid=" + "0f" * 16,
    "&CFID=1", "(S(x))/", "=", "&", "+", "'", '"', "<", "|", "^", "xn--", "mailto:", "javascript:", "data:",
)  # fmt: skip
texts = st.lists(st.one_of(st.sampled_from(PIECES), st.text(max_size=3)), max_size=12).map("".join)
encodings = st.sampled_from(
    ["utf-8", "windows-1252", "shift_jis", "iso-2022-jp", "gbk", "utf-16le", "big5", "no"]
)


@pytest.mark.parametrize(
    ("raw_url", "url"),
    [
        ("HTTP://User:Pw@Example.COM:80/a/./b/../c#f", "http://example.com/a/c"),
        ("https://example.com:443", "https://example.com/"),
        ("http://example.com:443/", "http://example.com:443/"),
        ("http://example.com./", "http://example.com/"),
        ("http://example.com.:8080/x", "http://example.com:8080/x"),
        ("http://u@[::1]:8080/", "http://[::1]:8080/"),
        ("http://0x7f.1/", "http://127.0.0.1/"),
        ("http://2130706433/", "http://127.0.0.1/"),
        ("http://bücher.example/ä?ö", "http://xn--bcher-kva.example/%C3%A4?%C3%B6"),
        ("http://h/a/%2e%2E/b", "http://h/b"),
        ("http://h/%7Eu%2f%27+;//?", "http://h/%7Eu%2f%27+;//?"),
        ("  http://h/a\tb\n ", "http://h/ab"),
        ("http://h/\ud800", "http://h/%EF%BF%BD"),
        ("http://h/\x00a", "http://h/%00a"),
        ("http://h/a #f", "http://h/a%20"),
        ("http://h/a?b #f", "http://h/a?b%20"),
    ],
)
def test_request_form(raw_url: str, url: str) -> None:
    """Percent-encoded characters in the path and query are unchanged, and the rest of the URL is canonical."""
    assert canonical(raw_url) == url


@pytest.mark.parametrize(
    ("raw_url", "rule"),
    [
        ("mailto:a@b", SCHEME),
        ("javascript:void(0)", SCHEME),
        ("ftp://h/", SCHEME),
        ("data:text/html,<a href=http://h/>", SCHEME),
        ("http://[::1", UNPARSABLE),
        ("http://h:99999/", UNPARSABLE),
        ("http://a b/", UNPARSABLE),
        ("http://\u00ad/", UNPARSABLE),
        ("relative", UNPARSABLE),
        ("", UNPARSABLE),
        ("http://./", UNPARSABLE),
        ("http://a../", UNPARSABLE),
        ("http://h/" + "a" * LENGTH_MAX, TOO_LONG),
        ("http://h/" + "ä" * (LENGTH_MAX // 5), TOO_LONG),
        ("http://h/" + "a/../" * LENGTH_MAX * RAW_LENGTH_FACTOR, TOO_LONG),
    ],
)
def test_each_rejected_url_names_its_rule(raw_url: str, rule: str) -> None:
    assert resolve_or_rule(None, raw_url) == ("", rule)
    assert canonical(raw_url) is None


def test_length_limit_is_inclusive() -> None:
    longest = "http://h/" + "a" * (LENGTH_MAX - 9)
    assert canonical(longest) == longest
    assert canonical(longest + "#" + "f" * 10**6) == longest
    assert canonical(longest + "a") is None


@pytest.mark.parametrize(
    ("href", "url"),
    [
        ("", "http://h.example/a/b?c"),
        ("#x", "http://h.example/a/b?c"),
        ("?d", "http://h.example/a/b?d"),
        ("../..//x", "http://h.example//x"),
        ("\\x", "http://h.example/x"),
        ("//o.example", "http://o.example/"),
        ("http:x", "http://h.example/a/x"),
        ("https:x", "https://x/"),
    ],
)
def test_relative_references(href: str, url: str) -> None:
    assert resolve(BASE, href) == url


def test_bases_other_than_http() -> None:
    assert resolve("about:blank", "http://h/") == "http://h/"
    assert resolve("about:blank", "x") is None
    assert resolve("", "x") is None


@pytest.mark.parametrize(
    ("raw_url", "key"),
    [
        ("http://h/%7eu/%2f%C3%bc", b"http://h/~u/%2F%C3%BC"),
        ("http://h/%2561%25", b"http://h/%2561%25"),
        ("http://h/?q=%41%26%zz", b"http://h/?q=A%26%zz"),
        ("http://h/?", b"http://h/?"),
        ("http://h/a;jsessionid=1A2B.node3?x=1", b"http://h/a?x=1"),
        ("http://h/a;JSESSIONID=1;v=2/b", b"http://h/a;v=2/b"),
        ("http://h/?PHPSESSID=abc", b"http://h/"),
        ("http://h/?a=1&PHPSESSID=abc&b=2", b"http://h/?a=1&b=2"),
        ("http://h/?sid=" + "0a" * 16, b"http://h/"),
        ("http://h/?sid=7", b"http://h/?sid=7"),
        ("http://h/?sid=ab12cd34ef56ab12", b"http://h/"),
        ("http://h/?x=1&SessionID=q6hg8ts0q1k2v3n4m5p6r7s8t9", b"http://h/?x=1"),
        ("http://h/?osCsid=1f2e3d4c5b6a79881f2e3d4c5b", b"http://h/"),
        ("http://h/?sid=1234567890123456", b"http://h/?sid=1234567890123456"),
        (
            "http://h/?session_id=autumn-conference-programme",
            b"http://h/?session_id=autumn-conference-programme",
        ),
        ("http://h/?basid=" + "0a" * 16, b"http://h/?basid=" + b"0a" * 16),
        ("http://h/?CFID=1&x=2&CFTOKEN=3", b"http://h/?x=2"),
        ("http://h/(S(lit3py55t21z5v55vlm25s55))/p.aspx", b"http://h/p.aspx"),
        ("http://h/(S(x))", b"http://h/"),
        ("http://h/f(S(x))/", b"http://h/f(S(x))/"),
        ("http://h/?u=;jsessionid=1", b"http://h/?u=;jsessionid=1"),
    ],
)
def test_duplicate_key(raw_url: str, key: bytes) -> None:
    url = canonical(raw_url)
    assert url is not None
    assert duplicate_key(url) == key


def test_session_ids_can_be_kept() -> None:
    url = "http://h/a;jsessionid=1?PHPSESSID=2&x=%7E"
    assert duplicate_key(url, strip_session_ids=False) == b"http://h/a;jsessionid=1?PHPSESSID=2&x=~"


@given(st.sampled_from(["/~u/a-b._c", "/x?y=~1"]), st.data())
def test_equivalent_spellings_have_one_key(path: str, data: st.DataObject) -> None:
    """The key does not depend on which unreserved characters are percent-encoded, nor on the case of hex digits."""
    spelled = "".join(
        data.draw(st.sampled_from([f"%{ord(c):02x}", f"%{ord(c):02X}", c])) if c not in "/?=" else c
        for c in path
    )
    url = canonical("http://h" + spelled)
    assert url is not None
    assert duplicate_key(url) == ("http://h" + path).encode()


@given(texts, encodings)
@example("http://u:p@h.example.:80/\ud800\x00?#", "utf-8")
@settings(max_examples=300)
def test_resolve_never_raises_and_is_idempotent(raw_url: str, encoding: str) -> None:
    """Any text gives a request form that resolves to itself and has all its parts, or the name of a rule."""
    for base in (None, BASE, "https://[::1]:8443/x/", raw_url):
        url, rule = resolve_or_rule(base, raw_url, encoding=encoding)
        assert bool(url) != bool(rule)
        if url:
            assert url.isascii()
            assert "#" not in url
            assert len(url) <= LENGTH_MAX
            assert canonical(url) == url
            assert authority(url) + target(url) == url
            assert target(url)[0] == "/"
            assert url.startswith(directory(url))
            name = hostname(url)
            assert name
            assert "@" not in authority(url)
            assert not name.endswith(".")
            assert parse(f"http://{name}/") == f"http://{name}/"
            duplicate_key(url)


@pytest.mark.parametrize(
    "unit", ["\x00", "\ud800", "é", "%2e/", "../", "//", "@", ":", "?", "a" * 64 + ".", "[", "xn--"]
)
def test_inputs_of_100_kilobytes(unit: str) -> None:
    """Long inputs are processed quickly and without an exception."""
    long = unit * (100_000 // len(unit))
    for text in (long, "http://" + long, "http://h/" + long, "//" + long, "?" + long):
        assert resolve(BASE, text, encoding="gbk") is None or len(resolve(BASE, text) or "") <= LENGTH_MAX


@pytest.mark.parametrize(
    "url",
    [
        "http://h/",
        "https://h/p",
        "http://h:8080/p?q",
        "https://[::1]/",
        "http://[::1]:8/a?b/c",
        "http://1.2.3.4:5/",
    ],
)
def test_parts_agree_with_the_parser(url: str) -> None:
    """`hostname`, `authority` and `target` agree with the parser's own getters."""
    from ada_url import URL

    parsed = URL(url)
    assert hostname(url) == parsed.hostname
    assert authority(url) == f"{parsed.protocol}//{parsed.host}"
    assert target(url) == parsed.pathname + parsed.search


def test_directory() -> None:
    assert directory("http://h/") == "http://h/"
    assert directory("http://h/a/b?c/d") == "http://h/a/"
    assert directory("http://h/?/") == "http://h/"
    assert ancestors("http://h/a/b/c?d/e") == ("http://h/a/b/", "http://h/a/", "http://h/")
    assert ancestors("http://u@h./a/../b/c") == ("http://h/b/", "http://h/")
    assert ancestors("about:blank") == ancestors("http://h" + "/a" * 4000) == ()


plain_pieces = st.sampled_from(
    ("../", "./", "/", "a", "B-1", "c.html", ".", "..", "?", "x=1", "&", "%", "%2e", ":", "~", ";", "(",
     "http://", "https://", "h.example", "1.2", "0x1", "a.0x1", "xn--a", "H",
     ":80", "@", "é", "\n", "*", "'", "[", "|", "^"),
)  # fmt: skip


@given(
    st.lists(plain_pieces, max_size=8).map("".join),
    st.sampled_from(
        ["http://h/", "https://h.example/a/", "http://h:81/a/b/c/d?e/../f", "http://[::1]/a//b/x"]
    ),
)
@settings(max_examples=500)
def test_plain_join_agrees_with_the_parser(href: str, base: str) -> None:
    """If `plain_join` returns a result, the parser returns the same result."""
    joined = plain_join(ancestors(base), href)
    assert joined in ("", resolve(base, href))


@pytest.mark.parametrize(
    "href",
    ["a.html", "../a/b-c_d.html?x=1&y=%20", "/a/", "/", "../../../x", "http://h.example", "https://a.b/c?d"],
)
def test_plain_join_handles_common_forms(href: str) -> None:
    """`plain_join` handles the most common forms of hrefs itself."""
    base = "http://h.example/a/b/c.html"
    assert plain_join(ancestors(base), href) == resolve(base, href)


@given(
    st.sampled_from(["http://", "https://", "http:/", "HTTP://", ""]),
    st.text("ab.:0189-xn", max_size=12),
    st.text("/.ab~_-%0 ", max_size=12),
)
@example("http://", "127.1", "/")
@example("http://", "h.example:80", "/a")
@example("http://", "h.example", "/a/..")
@example("http://", "h.example", "//./a")
@example("http://", "h.example.", "/a")
def test_plain_urls_are_not_parsed_but_get_the_same_form(scheme: str, host: str, path: str) -> None:
    url = f"{scheme}{host}{path}"
    assert canonical(url) == (resolve_or_rule(None, url)[0] or None)
    assert canonical(url, length_max=12) == (resolve_or_rule(None, url, length_max=12)[0] or None)
