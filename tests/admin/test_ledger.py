"""Test the politeness ledger, which is computed from the lines of the fetch log."""

from pathlib import Path

from crawler.admin import ledger


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


def test_host_names_are_read_from_names_and_urls() -> None:
    assert ledger.host_name("EXAMPLE.org") == ledger.host_name("https://example.org/x") == "example.org"
    assert ledger.host_name("no host!") == ledger.host_name("") == ""
