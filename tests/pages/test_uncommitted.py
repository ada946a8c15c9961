"""Test that decisions about answers are dropped at their commit, and later decisions about the same URL are not."""

from crawler.pages.captures import Capturing, Original
from crawler.pages.page_cache import Uncommitted
from crawler.records import Outcome, PageRecord, PageState
from tests.pages.support import fetch, fetch_task


def decided(uncommitted: Uncommitted, key: bytes) -> Capturing:
    """Return an answer about which the page cache has decided all that it can decide."""
    capturing = Capturing(fetch(), fetch_task(), 7, key, 1.0, True, b"", b"digest", b"")
    capturing.record = PageRecord(url="http://a.org/", state=PageState.STORED, outcome=Outcome.FETCHED)
    uncommitted.records[7] = capturing.record
    uncommitted.originals.setdefault(b"digest", Original(key, "http://a.org/", 1.0))
    assert uncommitted.add_capture(key)
    return capturing


def test_later_decisions_about_a_url_stay() -> None:
    """Two answers of a URL have the same payload; the first one is the response, the second one refers to it."""
    uncommitted = Uncommitted()
    first, second = decided(uncommitted, b"c1"), decided(uncommitted, b"c2")
    assert not uncommitted.add_capture(b"c2")
    uncommitted.drop_original(second)
    assert uncommitted.originals[b"digest"].key == b"c1"
    uncommitted.drop(first)
    assert uncommitted.records == {7: second.record} and not uncommitted.originals
    assert uncommitted.add_capture(b"c1") and not uncommitted.add_capture(b"c2")
    uncommitted.drop(second)
    assert len(uncommitted) == 1
    uncommitted.drop(first)
    assert not uncommitted
