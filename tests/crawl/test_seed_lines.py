"""Test seeds files with columns: the meaning of the columns, and the errors that are reported."""

import gzip

import pytest

from crawler.crawl.seed_lines import SeedLine, seed_lines, tables_of
from crawler.errors import UsageError


def plain(row: SeedLine) -> tuple[str, str, int, int]:
    return row.url, row.scope, row.depth, row.limit


A, B, BC = "http://a/", "http://b/", "http://b/,c"
COMMAS = f'URL,limit,Scope\n{A}?x=1,7,Host\n"{BC}",,'
TURNED = f"+http://(org,example,\n{A} org,x)/docs"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"{A}\n\n# x\n{B} ", [(A, "", -1, -1), (B, "", -1, -1)]),
        (f"url scope depth limit\n{A} prefix 3 500\n{B}", [(A, "prefix", 3, 500), (B, "", -1, -1)]),
        (COMMAS, [(f"{A}?x=1", "host", -1, 7), (BC, "", -1, -1)]),
        (f"{A} host 2 1e6", [(A, "host", 2, 1_000_000)]),
        (f"{BC} - 2", [(BC, "", 2, -1)]),
        (f"\ufeffurl\tdepth\n{A}\t0", [(A, "", 0, -1)]),
        (TURNED, [("", "http://(org,example,", -1, -1), (A, "http://(org,x,)/docs", -1, -1)]),
    ],
)
def test_rows_are_parsed(text: str, expected: list[tuple[str, str, int, int]]) -> None:
    assert [plain(row) for row in seed_lines(text.splitlines(), "f")] == expected


def test_bytes_that_are_not_utf_8_are_percent_encoded() -> None:
    """In a seeds file they once became U+FFFD, and on the command line `?`, which begins a query."""
    text = b"http://a/\xfc?\xe9=%E9".decode("utf-8", "surrogateescape")
    assert [row.url for row in seed_lines([text], "f")] == ["http://a/%FC?%E9=%E9"]


@pytest.mark.parametrize("text", ["", "\n# x\n", "url scope\n"])
def test_a_file_without_seeds_is_an_error(text: str) -> None:
    """A crawl once began without seeds, created its directory, and ended with exit code 4."""
    with pytest.raises(UsageError, match="^--seeds f: contains no seeds$"):
        list(seed_lines(text.splitlines(), "--seeds f"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "url scope color\n",
            "line 1: there is no column 'color'; the columns are url, scope, depth, limit, render",
        ),
        ("url url\n", "column url is given twice"),
        ("\nhttp://a/ hots", "line 2: scope 'hots' is not one of page, prefix, host, domain"),
        ("http://a/ host many", "depth 'many' is not a whole number"),
        ("http://a/ host 1.5", "depth '1.5' is not a whole number"),
        ("http://a/ host -1", "depth '-1' is out of range"),
        ("http://a/ host - 1e30", "limit '1e30' is out of range"),
        ("http://a/ host 1 2 auto 3", "'3' has no column"),
        ("http://a/ host 1 2 often", "render 'often' is not one of never, auto, always"),
        ("http://a/ any - - auto", "--scope any"),
        ("http://a/ any", "--scope any"),
        ("http://a/ page 1", "neither depth nor limit"),
        ("+example", "nor a SURT prefix"),
        ("+http://(org,example)x)", "nor a SURT prefix"),
    ],
)
def test_invalid_words_are_rejected_with_their_line(text: str, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        list(seed_lines(text.splitlines(), "--seeds f"))
    assert said in str(raised.value) and str(raised.value).startswith("--seeds f, line ")


def test_rows_become_override_tables() -> None:
    given = """
        http://www.a.org/docs/x prefix 3 50
        http://b.c.co.uk/ domain - 9
        http://d.org/ - 1
        https://e.org/one page
        http://f.org/ http://(org,f,)/a 4
        http://plain.org/
    """
    tables, surts = tables_of(seed_lines(given.splitlines(), "f"), "host")
    assert tables == [
        {"match": "http://(org,a,www,)/docs/", "scope": "prefix", "depth": 3, "pages": 50},
        {"match": "*.c.co.uk", "scope": "domain", "pages_per_domain": 9},
        {"match": "d.org", "depth": 1},
        {"match": "www.d.org", "depth": 1},
        {"match": "http://(org,e,)/one$", "scope": "page"},
        {"match": "http://(org,f,)/$", "scope": "page", "depth": 4},
        {"match": "http://(org,f,)/a", "depth": 4},
    ]
    assert surts == ["http://(org,f,)/a"]


def test_a_depth_or_limit_of_0_gets_a_table() -> None:
    tables, _ = tables_of([SeedLine("http://127.0.0.1/", depth=0)], "host")
    assert tables == [{"match": "127.0.0.1", "depth": 0}]
    tables, _ = tables_of([SeedLine("http://127.0.0.1/", limit=0)], "host")
    assert tables == [{"match": "127.0.0.1", "pages": 0}], "0 is a limit"


def test_a_surt_scope_without_limits_needs_no_table() -> None:
    tables, surts = tables_of([SeedLine("http://f.org/", "http://(org,f,)/a")], "host")
    assert tables == [{"match": "http://(org,f,)/$", "scope": "page"}] and surts == ["http://(org,f,)/a"]


def test_a_row_without_columns_is_plain() -> None:
    assert SeedLine(A).is_plain
    for row in (SeedLine(""), SeedLine(A, "host"), SeedLine(A, "", 0), SeedLine(A, "", -1, 0)):
        assert not row.is_plain


@pytest.mark.parametrize(
    ("url", "matches"),
    [
        ("http://127.0.0.1/", ["127.0.0.1"]),
        ("http://localhost/", ["localhost"]),
        ("http://www.a.org/", ["www.a.org", "a.org"]),
        ("http://a.org/", ["a.org", "www.a.org"]),
    ],
)
def test_a_host_is_matched_with_and_without_www(url: str, matches: list[str]) -> None:
    tables, _ = tables_of([SeedLine(url, "host", 1)], "domain")
    assert [table["match"] for table in tables] == matches


@pytest.mark.parametrize(
    ("text", "scope", "said"),
    [
        ("http://a/x/ prefix 1 2\nhttp://a/y/ prefix 1 2", "host", "a already has a limit (f, line 1)"),
        ("http://a/ - 2", "any", "give a scope, too"),
    ],
)
def test_limits_that_cannot_be_enforced_are_rejected(text: str, scope: str, said: str) -> None:
    with pytest.raises(UsageError) as raised:
        tables_of(seed_lines(text.splitlines(), "f"), scope)
    assert said in str(raised.value)


@pytest.mark.parametrize("coding", ["utf-16", "utf-16-be", "gzip"])
def test_a_file_that_is_not_text_is_named_as_such(coding: str) -> None:
    """The message was once about a scope of null characters in line 5."""
    text = "https://example.org/\r\nhttps://example.org/a b\r\n"
    data = gzip.compress(text.encode(), mtime=0) if coding == "gzip" else text.encode(coding)
    lines = data.decode("utf-8", "surrogateescape").splitlines(keepends=True)
    with pytest.raises(
        UsageError, match="^seeds.txt, line [1-9]+: has null bytes; a seeds file is text in UTF-8"
    ):
        list(seed_lines(lines, "seeds.txt"))
