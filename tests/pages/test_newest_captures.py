"""Test that a look-up of one URL and a pass over all URLs choose the same capture."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from crawler.pages.archive import Archive
from crawler.pages.captures import capture_key, pack, record_key
from crawler.records import Capture, Outcome, PageRecord, PageState
from crawler.storage.kv import MemoryStore

URL = "http://a.org/"


@given(
    st.dictionaries(st.integers(1, 7), st.sampled_from([200, 404, 503]), min_size=1, max_size=5),
    st.none() | st.integers(0, 8),
)
def test_a_look_up_and_a_pass_choose_the_same_capture(
    statuses: dict[int, int], answered_at: int | None
) -> None:
    """The last answer may be older than all captures: the clock was ahead before, and the answer was not stored."""
    store = MemoryStore()
    batch = store.batch()
    for at, status in statuses.items():
        capture = Capture("s", 0, 1, "response", float(at), status, "text/html", b"", URL)
        batch.put(capture_key(1, capture.fetched_at), pack(capture))
    record = None
    if answered_at is not None:
        record = PageRecord(URL, PageState.STORED, Outcome.FETCHED, fetched_at=float(answered_at))
        batch.put(record_key(1), pack(record))
    store.write(batch)
    archive = Archive(Path("warc"), store)
    assert dict(archive.newest_captures()) == {1: archive.newest_capture(1, record)}
