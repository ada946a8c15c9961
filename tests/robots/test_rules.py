"""Test the rules of robots.txt against RFC 9309, the expectations of google/robotstxt, and a second matcher."""

import json
import re
import sys
import time
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.robots import rules as module
from crawler.robots.rules import Parsed, RobotsRules, Rule
from tests.robots.support import LIMITS, parse, read

CASES = json.loads(
    (Path(__file__).parent.parent / "data/robots/google-robotstxt-cases.part.json").read_text()
)
# Some rows have a URL that is not percent-encoded, because they assume that the caller encodes it first (see
# the README of the data). These cases expect an answer about raw bytes, but a request never contains such
# bytes. The table maps each such URL to the encoded URL of another row.
ENCODED_BY_CALLER = {
    "http://foo.bar/foo/bar/ツ": "http://foo.bar/foo/bar/%E3%83%84",
    "http://foo.bar/foo/bar/baz": "http://foo.bar/foo/bar/%62%61%7A",
}
# An extension of the RFC that this crawler does not implement: a rule that allows /dir/index.html also allows
# /dir/.
NOT_FOLLOWED = {("GoogleOnly_IndexHTMLisDirectory", "http://foo.com/allowed-slash/")}


def _target(url: str) -> str:
    parts = urlsplit(url)
    return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['test']}-{case['url'][-20:]}")
def test_google_expectations(case: dict) -> None:
    """The expected verdicts are from google/robotstxt, robots_test.cc, except for the extension named above."""
    rules = parse(case["robots"].encode(), case["agent"])
    expected = case["allowed"]
    if case["test"] == "ID_Encoding" and (encoded := ENCODED_BY_CALLER.get(case["url"])):
        beside = [row for row in CASES if row["robots"] == case["robots"] and row["url"] == encoded]
        expected = beside[0]["allowed"]
        assert rules.allowed(_target(encoded)) == expected
    exception = (case["test"], case["url"]) in NOT_FOLLOWED
    assert rules.allowed(_target(case["url"])) == (expected != exception), (
        "the verdict does not depend on the spelling of the URL"
    )


def test_rfc_example() -> None:
    """The file and the verdicts are from the example in RFC 9309, section 5.1."""
    robots = b"""User-Agent: *
Disallow: *.gif$
Disallow: /example/
Allow: /publications/

User-Agent: foobot
Disallow:/
Allow:/example/page.html
Allow:/example/allowed.gif

User-Agent: barbot
User-Agent: bazbot
Disallow: /example/page.html

User-Agent: quxbot
"""
    anyone, foobot, bazbot, quxbot = (parse(robots, name) for name in ("other", "foobot", "BazBot", "quxbot"))
    assert (
        not anyone.allowed("/x.gif") and anyone.allowed("/publications/") and not anyone.allowed("/example/")
    )
    assert foobot.allowed("/example/page.html") and not foobot.allowed("/publications/")
    assert not bazbot.allowed("/example/page.html") and bazbot.allowed("/x.gif")
    assert quxbot.allowed("/x.gif")


@pytest.mark.parametrize(
    ("pattern", "target", "matches"),
    [
        # RFC 9309, section 2.2.2, table of percent-encoding
        ("/foo/bar?baz=quz", "/foo/bar?baz=quz", True),
        ("/foo/bar/ツ", "/foo/bar/%E3%83%84", True),
        ("/foo/bar/%E3%83%84", "/foo/bar/%e3%83%84", True),
        ("/foo/bar/%62%61%7A", "/foo/bar/baz", True),
        # RFC 9309, section 2.2.3: special characters, and how to write them literally
        ("/path/file-with-a-%2A.html", "/path/file-with-a-*.html", True),
        ("/path/foo-%24", "/path/foo-$", True),
        ("/a%2Fb", "/a/b", False),
        ("/a%3Fb", "/a?b", False),
        ("/a*", "/a", True),
        ("/*/b/*/c$", "/x/b/y/z/c", True),
        ("/*/b/*/c$", "/x/b/y/z/c/", False),
        ("/a*a$", "/a", False),
        # each part between wildcards must match different octets
        ("/a*b*b", "/ab", False),
        ("/a*b*b", "/abb", True),
        ("/a*b*b$", "/ab", False),
        ("/a*bb*b$", "/abb", False),
        ("/a$b", "/a$bc", True),
        ("/A", "/a", False),
        ("/a b", "/a%20b", True),
        ("a", "/a", False),
        ("*", "/", True),
        ("$", "/", False),
        ("/**********************a", "/bca", True),
    ],
)
def test_matching(pattern: str, target: str, matches: bool) -> None:
    assert parse(f"user-agent: *\ndisallow: {pattern}".encode(), "x").allowed(target) == (not matches)


def test_longest_pattern_wins_and_allow_wins_a_tie() -> None:
    rules = parse(
        b"user-agent:*\nallow:/a\ndisallow:/a\ndisallow:/b\nallow:/b*\ndisallow:/c?d\nallow:/c*", "x"
    )
    assert rules.allowed("/a") and rules.allowed("/b") and not rules.allowed("/c?d")


def test_robots_txt_itself_is_always_allowed() -> None:
    assert parse(b"user-agent: *\ndisallow: /", "x").allowed("/robots.txt")


@pytest.mark.parametrize("line_end", ["\n", "\r", "\r\n", "\n\n", "\r\r\n"])
def test_line_ends_and_byte_order_mark(line_end: str) -> None:
    text = "\ufeff" + line_end.join(["User-agent: *", "Disallow: /a", "Allow: /b"])
    assert not parse(text.encode(), "x").allowed("/a")


def test_bytes_that_are_not_utf8_invalidate_only_their_line() -> None:
    rules = parse(b"user-agent: *\ndisallow: /a\xff\ndisallow: /b\n", "x")
    assert rules.allowed("/a") and not rules.allowed("/b")


@pytest.mark.parametrize(
    ("line", "binds"),
    [
        ("crawler", True),
        ("CRAWLER", True),
        ("crawler/1.0", True),
        ("Crawler the great", True),
        ("crawl", False),
        ("crawlers", False),
        ("my-crawler", False),
        ("crawler2", False),
        ("*", False),
        ("", False),
    ],
)
def test_agent_lines_must_name_the_whole_token(line: str, binds: bool) -> None:
    robots = f"user-agent: {line}\ndisallow: /own\n\nuser-agent: *\ndisallow: /any\n".encode()
    rules = parse(robots, "crawler")
    if line == "*":
        assert not rules.allowed("/own") and not rules.allowed("/any")
    else:
        assert rules.allowed("/own") != binds and rules.allowed("/any") == binds


def test_other_records_end_neither_group_nor_run_of_agents() -> None:
    robots = b"""user-agent: a
sitemap: http://h/s.xml
unknown: x
crawl-delay: 3

user-agent: crawler
crawl-delay: 5
disallow: /x
sitemap: http://h/t.xml
disallow: /y
user-agent: b
disallow: /z
"""
    rules = parse(robots, "crawler")
    assert [rules.allowed(path) for path in ("/x", "/y", "/z")] == [False, False, True]
    assert rules.crawl_delay == 5
    assert rules.sitemaps == ("http://h/s.xml", "http://h/t.xml")
    assert parse(robots, "a").crawl_delay == 5  # the group has two delays; the longer one is used


def test_groups_of_one_agent_are_joined_and_star_is_only_a_fallback() -> None:
    robots = b"user-agent:*\ndisallow:/any\nuser-agent:me\ndisallow:/1\n"
    robots += b"user-agent:you\ndisallow:/2\nuser-agent:me\ndisallow:/3"
    assert [parse(robots, "me").allowed(path) for path in ("/any", "/1", "/2", "/3")] == [
        True,
        False,
        True,
        False,
    ]
    assert not parse(robots, "else").allowed("/any")


def test_rules_before_any_agent_are_ignored() -> None:
    assert parse(b"disallow: /\nuser-agent: *\ndisallow: /x", "me").allowed("/y")


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("10", 10.0),
        ("0.5", 0.5),
        ("10s", 10.0),
        (".5", 0.5),
        ("-1", None),
        ("", None),
        ("1" * 400, None),
        ("inf", None),
    ],
)
def test_crawl_delay(value: str, seconds: float | None) -> None:
    assert parse(f"user-agent: *\ncrawl-delay: {value}".encode(), "x").crawl_delay == seconds


def test_sloppy_lines_are_read_as_meant() -> None:
    rules = parse(b"User Agent: *\ndisallow /a\nDissalow: /b\nSitemap https://h/s.xml\nfoo bar: baz", "x")
    assert not rules.allowed("/a") and not rules.allowed("/b") and rules.sitemaps == ("https://h/s.xml",)


def test_memory_of_a_parsed_file_is_small() -> None:
    """The file has fifty rules for this crawler and 400 kB of rules for others. Only the fifty rules are kept."""
    ours = "".join(f"disallow: /section/{number}/\n" for number in range(50))
    others = "".join(f"user-agent: bot{number}\ndisallow: /x{number}\n\n" for number in range(12_000))
    rules = parse(f"{others}user-agent: me\n{ours}".encode(), "me")
    kept = rules._plain._kept
    parts = [rules, rules.parsed, rules.parsed.rules, kept, *rules.parsed.rules]
    assert (
        sum(map(sys.getsizeof, parts)) + sum(sys.getsizeof(rule.pattern) for rule in rules.parsed.rules)
        < 12_000
    )
    assert rules.weight < 20_000


# --- many rules -------------------------------------------------------------------------------------------


def test_the_comparisons_per_verdict_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    body = b"user-agent: *\n" + b"".join(b"disallow: /*%d*x\n" % number for number in range(42_000))
    rules = parse(body, "x")
    compared = []
    monkeypatch.setattr(module, "matches", lambda pattern, target: bool(compared.append(pattern)))
    assert rules.allowed("/" + "a" * 8000) and len(compared) == LIMITS.wildcards_max
    assert rules.parsed.ignored == 42_000 - LIMITS.wildcards_max
    assert rules.allowed("/" + "a" * 8000) and len(compared) == LIMITS.wildcards_max  # it remembers


def test_only_patterns_with_a_matching_prefix_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    body = b"user-agent: *\n" + b"".join(b"disallow: /%d/*.pdf$\n" % number for number in range(900))
    rules = parse(body, "x")
    compared = []
    monkeypatch.setattr(module, "matches", lambda pattern, target: bool(compared.append(pattern)))
    assert rules.allowed("/17/x.html") and compared == ["/17/*.pdf$"]


def test_rules_beyond_the_limits_are_ignored_and_counted() -> None:
    body = b"user-agent: *\ndisallow: /*a\ndisallow: /*b\ndisallow: /c\ndisallow: /d\ncrawl-delay: 3\nsitemap: /s"
    parsed = read(body, "x", rules_max=2, wildcards_max=1)
    assert {rule.pattern for rule in parsed.rules} == {"/*a", "/c"}
    assert (parsed.ignored, parsed.crawl_delay, parsed.sitemaps) == (2, 3.0, ("/s",))


# --- a second matcher -------------------------------------------------------------------------------------

PIECES = st.text("/ab*$?=", max_size=8).map(lambda text: "/" + text)
TARGETS = st.text("/ab?=", max_size=10).map(lambda text: "/" + text)


def _regex(pattern: str) -> re.Pattern[str]:
    anchored = pattern.endswith("$")
    body = pattern[:-1] if anchored else pattern
    return re.compile(".*".join(map(re.escape, body.split("*"))) + ("$" if anchored else ""), re.DOTALL)


@given(st.lists(st.tuples(st.booleans(), PIECES), max_size=8), TARGETS)
def test_agrees_with_regular_expressions(lines: list[tuple[bool, str]], target: str) -> None:
    """Compare with a second implementation of section 2.2.2: the longest match decides, and allow wins a tie."""
    lines = [(allow, re.sub(r"\*+", "*", pattern)) for allow, pattern in lines if "$" not in pattern[:-1]]
    robots = "user-agent: *\n" + "".join(
        f"{'allow' if allow else 'disallow'}: {pattern}\n" for allow, pattern in lines
    )
    matching = [(len(pattern), allow) for allow, pattern in lines if _regex(pattern).match(target)]
    assert parse(robots.encode(), "x").allowed(target) == (max(matching)[1] if matching else True)


@given(
    st.lists(
        st.sampled_from(["user-agent: me", "user-agent: *", "allow: /a", "disallow: /", "crawl-delay: 2"])
    )
)
def test_the_stored_form_gives_the_same_verdicts(lines: list[str]) -> None:
    body = "\n".join(lines).encode()
    stored = RobotsRules(read(body, "me"))
    assert [stored.allowed(path) for path in ("/", "/a")] == [
        parse(body, "me").allowed(path) for path in ("/", "/a")
    ]


@given(
    st.lists(
        st.sampled_from(
            [
                *("User-agent: *", "User-agent: crawler", "User-agent: other", "Crawl-delay: 3", "nonsense"),
                *("Disallow: /a", "disallow:/b*", "Allow: /c$", "allow: /d%2f", "Allow:", "Disallow: /e # x"),
                *("Allow: /caf\u00e9", "Sitemap: http://a/s", "Content-Signal: search=no", ""),
            ]
        ),
        max_size=40,
    ),
    st.integers(1, 300),
    st.sampled_from(["\n", "\r\n", "\n\n"]),
)
def test_consecutive_rules_are_read_as_single_lines(
    lines: list[str], slice_bytes: int, line_end: str
) -> None:
    """Rules that are read together mean the same as rules with a leading blank, which are read one by one."""

    def parsed(mark: str) -> Parsed:
        body = line_end.join(mark + line for line in lines).encode()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "SLICE_BYTES", slice_bytes)
            return read(body, "crawler", rules_max=6, wildcards_max=2)

    assert parsed("") == parsed(" ")


def test_a_line_of_blanks_takes_linear_time() -> None:
    """The expression for lines tried all ways to divide the blanks: 500,000 of them took half an hour."""
    began = time.thread_time()
    read(b"User-agent: *\nDisallow:" + b" " * 100_000 + b"\x80", "crawler")
    assert time.thread_time() - began < 5.0


def test_statements_about_uses_are_kept_as_text() -> None:
    """These lines are kept: statements of the chosen group, signals before the first group, and all License lines."""
    file = b"""Content-Signal: search=yes
Content-Usage: / before=n
License: https://a.example/1
User-agent: other
Content-Usage: / train-ai=n
License: https://a.example/2
User-agent: crawler
Content-Signal: ai-train=no
User-agent: third
Content-Usage: /x/ train-ai=y # comment
CONTENT-USAGE : search=y
content-usage:
Disallow: /x
User-agent: fourth
Content-Usage: / search=n
"""
    parsed = read(file, "crawler")
    assert parsed.usage == ("/x/ train-ai=y", "search=y")
    assert parsed.signals == ("search=yes", "ai-train=no")
    assert parsed.licenses == ("https://a.example/1", "https://a.example/2")
    assert [rule.pattern for rule in parsed.rules] == ["/x"]
    assert read(file, "other").usage == ("/ train-ai=n",)
    assert read(file, "third").usage == parsed.usage


def test_kept_statements_are_bounded() -> None:
    """One statement more than the limit is kept, to show that the limit was exceeded."""
    count, octets = module.STATEMENTS_MAX, module.STATEMENT_OCTETS_MAX
    for name in ("Content-Usage", "Content-Signal", "License"):
        lines = f"{name}: {'x' * 2 * octets}\n" * (2 * count)
        parsed = read(f"{lines}User-agent: *\n{lines}".encode(), "crawler")
        kept = parsed.usage or parsed.signals or parsed.licenses
        assert len(kept) == count + 1
        assert {len(line) for line in kept} == {octets + 1}


def test_records_without_statements_are_still_read() -> None:
    """Records stored by earlier versions, which kept no statements, lack the last three fields."""
    stored = msgspec.msgpack.encode(([("/x", False)], 1.5, ["https://a.example/s"], 0))
    expected = Parsed((Rule("/x", False),), 1.5, ("https://a.example/s",))
    assert msgspec.msgpack.decode(stored, type=Parsed) == expected
