"""Test the politeness ledger, which is computed from the lines of the fetch log."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.admin import ledger, ledger_page


def line(url: str, ts: str, took: float = 0.5, status: int = 200) -> bytes:
    return b'{"url":"%s","ts":"%s","took":%g,"status":%d,"outcome":"fetched"}\n' % (
        url.encode(),
        ts.encode(),
        took,
        status,
    )


def test_gaps_run_from_the_end_of_an_answer() -> None:
    lines = [
        line("http://a.example/1", "2026-01-01T00:00:00.000Z"),
        line("http://b.example/?a.example", "2026-01-01T00:00:00.100Z"),
        b"torn {a.example\n",
        line("http://a.example/robots.txt", "2026-01-01T00:00:01.500Z", 0.25),
        line("http://a.example/never", "2026-01-01T00:00:02.000Z", status=0),
        line("http://a.example/2", "2026-01-01T00:00:03.000Z"),
    ]
    made = ledger.of_host(lines, "a.example")
    assert made["requests"] == 3 and made["least_gap"] == 1.0
    assert [row["gap"] for row in made["rows"]] == [None, 1.0, 1.25]
    assert ledger.of_host(lines, "a.example", rows_max=1)["rows"][0]["url"] == "http://a.example/2"
    assert ledger.of_host(lines, "c.example") == {
        "host": "c.example",
        "requests": 0,
        "least_gap": None,
        "rows": [],
    }


def test_only_the_end_of_a_long_log_is_read(tmp_path: Path) -> None:
    path = tmp_path / "pages.jsonl"
    assert list(ledger.tail_lines(path)) == []
    path.write_bytes(b"".join(b"%04d\n" % n for n in range(1000)))
    assert list(ledger.tail_lines(path, 12)) == [b"0998\n", b"0999\n"]
    assert len(list(ledger.tail_lines(path))) == 1000


@given(
    st.lists(st.sampled_from([b"a", b"ab", b"", b"\n", b"\n\n", b"b"]), max_size=40),
    st.sampled_from([b"", b"a", b"ab", b"c"]),
    st.integers(1, 9),
    st.integers(1, 60),
)
def test_the_latest_lines_are_those_of_the_tail_in_reverse(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes], needle: bytes, block: int, tail: int
) -> None:
    path = tmp_path_factory.mktemp("log") / "pages.jsonl"
    path.with_name("pages.jsonl.1").write_bytes(b"".join(parts[:9]) + b"\n")
    path.write_bytes(b"".join(parts[9:]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger, "BLOCK_BYTES", block)
        found = list(ledger.latest_lines(path, tail, needle))
    whole = [line for line in ledger.tail_lines(path, tail) if line.endswith(b"\n") and needle in line]
    assert found == whole[::-1]


def test_the_latest_requests_to_a_host_have_the_gaps_of_the_ledger(tmp_path: Path) -> None:
    path = tmp_path / "pages.jsonl"
    lines = [
        line(f"http://{'a' if n % 3 else 'data'}.org/{n}", f"2026-01-01T00:{n // 60:02}:{n % 60:02}.000Z")
        for n in range(90)
    ]
    path.write_bytes(b"".join(lines))
    rows = ledger.of_host(lines, "a.org")["rows"]
    assert ledger.latest_of_host(path, "a.org", 50) == rows[:-51:-1]
    assert ledger.latest_of_host(path, "a.org", 500) == rows[::-1]
    assert ledger.latest_of_host(path, "b.org", 50) == []


def test_the_page_shows_the_requests_with_their_gaps() -> None:
    entry = {
        "ts": "2026-11-27T21:00:00Z",
        "url": "http://a.example/?a&b",
        "status": 404,
        "outcome": "client_error",
    }
    lines = [msgspec.json.encode(entry | {"took": 0.5}) + b"\n"]
    lines.append(
        msgspec.json.encode(entry | {"ts": "2026-11-27T21:00:09.5Z", "outcome": "fetched", "bytes": 1234})
        + b"\n"
    )
    robots = [{"of": "http://a.example", "outcome": "fetched"}]
    shown = ledger_page.page(
        ledger.of_host(lines, "a.example") | {"robots": robots, "missing": ["p1"]}
    ).decode()
    assert "2 requests, at least 9 s apart" in shown and "Without p1." in shown
    assert "http://a.example/?a&amp;b" in shown and "<td data-head=outcome>request refused</td>" in shown
    assert shown.index(">9.0 s<") < shown.index(">request refused<")  # the latest comes first
    assert shown.count("<td data-head=") == shown.count("<td")
    none = ledger_page.page(ledger.of_host([], "a.example") | {"robots": [], "missing": []}).decode()
    assert "No request is in the log." in none and "<table>" not in none
