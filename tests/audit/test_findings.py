"""Test the findings computed from the records and pages of a crawl."""

from typing import Any

import numpy as np

from crawler.audit import html, render
from crawler.audit.findings import Auditor
from crawler.audit.on_page import Finding, PageFacts
from crawler.pages.formats.rows import FIELDS
from crawler.records import LinkFlag


def _row(url: str, **values: Any) -> dict[str, Any]:
    known = {
        "url": url,
        "host": "h",
        "status": 200,
        "state": "stored",
        "outcome": "fetched",
        "depth": 1,
        "took": 0.1,
    }
    about = {
        "content_type": "text/html",
        "noindex": False,
        "fetched_at": "2026-11-22T06:00:00.000Z",
        "digest": url,
        "warc_file": "w.warc.gz",
    }
    return dict.fromkeys(FIELDS) | known | about | values


def _links(*fingerprints: int) -> bytes:
    return np.array(fingerprints, np.uint64).tobytes()


def _gone(url: str, **values: Any) -> dict[str, Any]:
    return _row(url, status=404, state="gone", outcome="gone", **values)


def _moved(url: str) -> dict[str, Any]:
    return _row(url, status=301, state="redirected", outcome="redirect")


def test_a_url_that_redirects_to_itself_is_a_loop_and_not_a_dead_link() -> None:
    """Such a URL fails with an error, unlike the URLs of a longer loop, which are stored as redirects."""
    auditor = Auditor()
    loop = _row("/l", status=302, state="failed", outcome="bad_redirect", error="redirect loop")
    auditor.record(loop, 1, None, 0)
    auditor.record(_row("/nowhere", status=302, state="failed", outcome="bad_redirect"), 2, None, 0)
    auditor.page(PageFacts(9, "/p", "t", _links(1, 2)))
    sections = auditor.audit().sections
    assert sections["redirect_loops"].listed == [Finding("/l", "", ("/l",), 1)]
    assert [finding.subject for finding in sections["dead_links"].listed] == ["/nowhere"]
    assert "redirect_chains" not in sections and "redirected_links" not in sections


def test_dead_links_name_the_pages_that_link_to_them() -> None:
    auditor = Auditor()
    auditor.record(_row("/a"), 1, None, 0)
    auditor.record(_gone("/x", via="/v"), 8, None, 0)
    auditor.record(_gone("/y", via="/v"), 9, None, 0)
    auditor.record(_row("/z", status=None, state="failed", outcome="connect_error"), 10, None, 0)
    assert auditor.wanted().tolist() == [8, 9, 10]
    for number in range(30):
        auditor.page(PageFacts(1, f"/p{number}", "t", _links(9)))
    found = auditor.audit().sections["dead_links"]
    assert found.total == 3
    assert found.listed[0] == Finding("/y", "404 not found", tuple(f"/p{i}" for i in range(20)), 30)
    assert found.listed[1] == Finding("/x", "404 not found", ("/v",), 1)
    assert found.listed[2] == Finding("/z", "connection refused or timed out", (), 0)


def test_redirect_chains_and_loops() -> None:
    """1 -> 2 -> 3 is a chain. 5 -> 6 -> 5 is a loop, which is listed once. 8 -> 3 is a single redirect."""
    auditor = Auditor()
    for source, target in ((1, 2), (2, 3), (5, 6), (6, 5), (8, 3)):
        auditor.record(_moved(f"/{source}"), source, (target, f"/{target}"), 0)
    auditor.page(PageFacts(4, "/p", "t", _links(1, 8)))
    sections = auditor.audit().sections
    assert sections["redirect_chains"].listed == [Finding("/1", "2", ("/2", "/3"), 2)]
    assert [finding.subject for finding in sections["redirect_loops"].listed] == ["/5"]
    assert {finding.subject: finding.value for finding in sections["redirected_links"].listed} == {
        "/1": "/3",
        "/8": "/3",
    }


def test_urls_are_compared_with_the_sitemaps() -> None:
    auditor = Auditor()
    auditor.record(_row("/start", depth=0), 1, None, 0)
    auditor.record(_row("/linked"), 2, None, 0)
    auditor.record(_row("/orphan"), 3, None, 0)
    auditor.record(_row("/hidden", noindex=True), 4, None, 0)
    auditor.record(_gone("/gone"), 5, None, 0)
    auditor.record(_row("/unlisted", via="/start"), 6, None, 0)
    auditor.sitemap(
        [(1, "/start"), (2, "/linked"), (3, "/orphan"), (4, "/hidden"), (5, "/gone"), (7, "/never")]
    )
    auditor.page(PageFacts(1, "/start", "t", _links(2, 6)))
    audit = auditor.audit()
    assert [finding.subject for finding in audit.sections["orphans"].listed] == ["/orphan"]
    assert [finding.subject for finding in audit.sections["not_in_sitemap"].listed] == ["/unlisted"]
    errors = {finding.subject: finding.value for finding in audit.sections["sitemap_errors"].listed}
    assert errors == {"/hidden": "says noindex", "/gone": "404 not found"}
    assert audit.sitemap == {"listed": 6, "listed_pages": 4, "pages_not_listed": 1, "listed_not_crawled": 1}


def test_duplicates_titles_times_and_findings_of_single_pages() -> None:
    alone = [("missing_titles", Finding("/4")), ("mixed_content", Finding("/4", "1", ("http://x/",), 1))]
    auditor = Auditor(listed_max=2)
    for number in range(5):
        auditor.record(
            _row(f"/{number}", digest="same" if number < 3 else str(number), took=number), number, None, 0
        )
        auditor.page(
            PageFacts(
                number, f"/{number}", "" if number == 4 else "Home", findings=alone if number == 4 else []
            )
        )
    auditor.record(_row("/i.png", content_type="image/png"), 9, None, LinkFlag.REQUISITE)
    audit = auditor.audit()
    assert audit.pages == 5 and audit.urls == 6
    assert audit.sections["duplicate_contents"].listed == [Finding("/0", "3", ("/1", "/2"), 3)]
    assert audit.sections["duplicate_titles"].listed[0].subject == "Home"
    assert audit.sections["missing_titles"].listed == [Finding("/4")]
    assert audit.sections["mixed_content"].listed == [Finding("/4", "1", ("http://x/",), 1)]
    slow = audit.sections["slow_pages"]
    assert (slow.total, [finding.subject for finding in slow.listed]) == (3, ["/4", "/3"]), (
        "the slowest are kept"
    )


def test_hostile_titles_and_urls_are_escaped() -> None:
    """Titles and URLs come from servers, so they must not become tags in the HTML page or formulas in the CSV table."""
    auditor = Auditor()
    evil = "=1+1<script>alert(1)</script>\"'"
    for number in (1, 2):
        auditor.page(PageFacts(number, f"http://h/{evil}", evil))
    audit = auditor.audit()
    assert "<script" not in html.page(audit)
    assert "http-equiv=Content-Security-Policy" in html.page(audit)
    assert "duplicate_titles,\"'=1+1<script>" in render.csv_table(audit)


def test_the_depths_of_an_endless_site_fill_one_line_and_one_chart() -> None:
    """The line of a calendar with 481 months was 5 kB long. The JSON report lists all depths."""
    auditor = Auditor()
    for depth in range(481):
        auditor.record(_row(f"http://h/{depth}", depth=depth), depth, None, 0)
    audit = auditor.audit()
    line = next(line for line in render.text(audit).splitlines() if line.startswith("depth:"))
    assert line.startswith("depth:    0 1, 1 1, ") and line.endswith(", 11 1, 12 to 480 469")
    assert "<span>12 to 480</span>" in html.page(audit) and "<span>13</span>" not in html.page(audit)
    assert len(audit.depths) == 481


def test_an_empty_crawl_has_a_report() -> None:
    audit = Auditor().audit()
    assert "No problems found" in render.text(audit)
    assert "No problems found" in html.page(audit)


def test_canonicals_and_translations_must_be_indexable_pages() -> None:
    auditor = Auditor()
    auditor.record(_moved("/old"), 1, (2, "/new"), 0)
    auditor.record(_gone("/gone"), 3, None, 0)
    auditor.record(_row("/hidden", noindex=True, via="/a"), 4, None, 0)
    auditor.record(_row("/forbidden", state="denied", outcome="robots_denied"), 5, None, 0)
    for number, target in enumerate(("/old", "/gone", "/hidden", "/forbidden", "/unknown"), 1):
        fingerprint = number + (number > 1)  # the fingerprints 1, 3, 4, 5 and 6
        auditor.page(PageFacts(20, f"/c{number}", "t", canonical=(fingerprint, target)))
        auditor.page(PageFacts(20, f"/h{number}", "u", alternates=[(fingerprint, target)]))
    sections = auditor.audit().sections
    why = ["redirects to /new", "404 not found", "says noindex", "blocked by robots.txt"]
    for name, letter in (("canonical_targets", "c"), ("hreflang_targets", "h")):
        assert [(each.subject, each.value) for each in sections[name].listed] == [
            (f"/{letter}{number}", words) for number, words in enumerate(why, 1)
        ]
    assert sections["noindex_pages"].listed == [Finding("/hidden", "", ("/a",), 1)]


def test_a_page_with_another_canonical_is_no_duplicate() -> None:
    auditor = Auditor()
    for number in (1, 2):
        auditor.page(PageFacts(number, f"/{number}", "Tea", description="Fine tea"))
    auditor.page(PageFacts(3, "/3", "Tea", description="Fine tea", canonical=(1, "/1")))
    sections = auditor.audit().sections
    assert sections["duplicate_titles"].listed == [Finding("Tea", "2", ("/1", "/2"), 2)]
    assert sections["duplicate_descriptions"].listed == [Finding("Fine tea", "2", ("/1", "/2"), 2)]


def test_urls_of_an_unreachable_server_are_dead_links() -> None:
    auditor = Auditor()
    auditor.waiting("http://dead/x", 7, "connection refused or timed out after 3 tries", "/a")
    auditor.waiting("http://h/later", 8, "", "/a")
    auditor.page(PageFacts(1, "/a", "t", _links(7, 8)))
    audit = auditor.audit()
    assert audit.unfetched == {"unreachable": 1, "to do": 1}
    assert audit.sections["dead_links"].listed == [
        Finding("http://dead/x", "connection refused or timed out after 3 tries", ("/a",), 1)
    ]
    assert "unreachable 1, to do 1" in render.text(audit)


def test_the_report_counts_pages_without_a_copy() -> None:
    """Checks of contents leave these pages out. If no page has a copy, the checks are not made."""
    auditor = Auditor()
    auditor.record(_row("/a"), 1, None, 0)
    auditor.record(_row("/b", warc_file=None), 2, None, 0)
    audit = auditor.audit()
    assert audit.unstored == 1 and audit.not_made == {}
    note = "Not checked, because they are not stored: the contents of 1 of 2 HTML pages."
    assert note in render.text(audit) and note in html.page(audit)
    assert Auditor().audit().not_made == {}
    assert list(Auditor(checks_external=False).audit().not_made) == ["external_dead_links"]
