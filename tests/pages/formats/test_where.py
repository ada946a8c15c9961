"""Test the expressions that select rows: their results, and the messages for invalid ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.errors import UsageError
from crawler.pages.formats.where import compile_where

FIELDS = {"host": str, "status": int, "took": float, "noindex": bool, "title": str, "fetched_at": str}
ROW = {
    "host": "x.org",
    "status": 200,
    "took": 0.5,
    "noindex": False,
    "title": None,
    "fetched_at": "2026-11-22T06:00:00.000Z",
}


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ('host == "x.org" and status == 200', True),
        ("host == 'y.org' or status >= 400", False),
        ("not (status != 200)", True),
        ("200 <= status < 300", True),
        ("status in [200, 404] and status not in (301, 302)", True),
        ("host in {'x.org'}", True),
        ('".org" in host', True),
        ("took < 1 and took > -1", True),
        ("noindex", False),
        ("not noindex", True),
        ("noindex == false", True),
        ('title == "x"', False),
        ('title != "x"', True),
        ('"x" in title', False),
        ('"x" not in title', True),
        ("len(title) == 0", True),
        ("len(host) > 4", True),
        (r'matches(host, "^x\\.")', True),
        ('matches(title, "x")', False),
        ('fetched_at >= "2026-11" and fetched_at < "2026-12"', True),
        ('fetched_at > "2026-11-01T10:00:00.000Z"', True),
        ('fetched_at == "2026-11"', True),
        ('fetched_at == "202611"', True),
        ('fetched_at != "2026-11-22"', False),
        ('fetched_at > "2026-11-22"', False),
        ('fetched_at <= "2026-11-22"', True),
        ('"2026-11-22" >= fetched_at', True),
        ('fetched_at < "2026-11-22"', False),
        ('fetched_at >= "2026-11-22T06:00:00Z"', True),
        ('fetched_at == "2026-11-22 06"', True),
        ('fetched_at == "2026-11-22T07:00+01:00"', True),
        ('fetched_at == "2026-11-22T11:30+05:30"', True),
        ('fetched_at == "20261122060000"', True),
        ('fetched_at == "2026-11-22T06:00:00.5Z"', False),
        ('"2026-10" < fetched_at < "2026-12"', True),
        ('fetched_at in ["2025", "2026-11"]', True),
        ('fetched_at not in ["2025", "2026-11"]', False),
        ('fetched_at in ["2026-12"]', False),
        ('"2026-11-2" in fetched_at', True),
    ],
)
def test_expressions_select_rows(text: str, result: bool) -> None:
    assert compile_where(text, FIELDS).test(ROW) is result


def test_the_used_fields_are_listed() -> None:
    assert compile_where("len(title) > 3 or status == 200", FIELDS).fields == {"title", "status"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("statos == 200", "no field statos; did you mean status?"),
        ("xyz == 200", "known names: host, status, took"),
        ("xyz == 200", 'write text in quotes: "xyz"'),
        ("code == 200", "no field code; did you mean status?"),
        ("status = 200", "equality is =="),
        ("status == 200 && noindex", "write `and`"),
        ("status == 200 || noindex", "write `or`"),
        ("!noindex", "write `not`"),
        ('host ~ "x"', "write matches(url"),
        ('host == "a=b&&c" and', "; use comparisons, and, or, not"),
        ('fetched_at > "tomorrow"', "--where: fetched_at: 'tomorrow' is not a date or time; write 2026,"),
        ('"28.11.2026" < fetched_at', "'28.11.2026' is not a date or time"),
        ('fetched_at > "2026-02-30"', "'2026-02-30' is not a date or time"),
        ('fetched_at == "2026-11-22T11+05:30"', "write the minutes, because this hour begins at half past"),
        ('fetched_at == ""', "'' is not a date or time"),
        ('fetched_at in ["2026", "x"]', "'x' is not a date or time"),
        ('status == "200"', "status is a number and '200' is text"),
        ("status", "is a number, not a condition"),
        ("status == 200 and", "cannot be parsed"),
        ("", "cannot be parsed"),
        ("__import__('os').system('x')", "not supported"),
        ("host.startswith('x')", "not supported"),
        ("(lambda: 1)()", "not supported"),
        ("[x for x in host] == 1", "not supported"),
        ("status is 200", "use =="),
        ("status in 200", "`in` needs"),
        ("matches(host, '(')", "not a regular expression"),
        ("matches(status, 'x')", "write it as matches"),
        ("not " * 150 + "noindex", "nested too deeply"),
        ("(" * 300 + "noindex" + ")" * 300, "cannot be parsed"),
        ("noindex" + " " * 5000, "longer than"),
    ],
)
def test_invalid_expressions_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        compile_where(text, FIELDS)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


WORDS = [
    "status",
    "host",
    "noindex",
    "==",
    "<",
    "in",
    "not",
    "and",
    "(",
    ")",
    "[",
    "]",
    "'x'",
    "1",
    "-",
    "len",
    ",",
    "\\",
    "\0",
]


@given(st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join))
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    try:
        where = compile_where(text, FIELDS)
    except UsageError:
        return
    assert where.test(ROW) in (True, False)
    assert where.test(dict.fromkeys(FIELDS)) in (True, False)
