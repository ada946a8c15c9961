"""Test that exports choose the same copy of each URL as `get` and the page server, once per URL."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from crawler.pages.archive import Archive
from crawler.pages.captures import capture_key, pack, record_key
from crawler.pages.formats.newest import chosen_copies
from crawler.pages.formats.rows import known_rows
from crawler.pages.formats.selection import Selection
from crawler.pages.holdings import answering
from crawler.records import Capture, Outcome, PageRecord, PageState
from crawler.serve.copy_selection import newest_held
from crawler.storage.kv import MemoryStore

PROCESSES = 3
# what a process has of a URL: the times of its copies with their statuses, and its record (time, noarchive)
HELD = st.tuples(
    st.dictionaries(st.integers(1, 7), st.sampled_from([200, 404, 503]), max_size=3),
    st.none() | st.tuples(st.integers(0, 8), st.booleans()),
)


def url_of(fingerprint: int) -> str:
    return f"http://a.org/{fingerprint}"


def archive_of(held: dict[int, tuple[dict[int, int], tuple[int, bool] | None]]) -> Archive:
    store = MemoryStore()
    batch = store.batch()
    for fingerprint, (copies, record) in held.items():
        url = url_of(fingerprint)
        for at, status in copies.items():
            capture = Capture("s", 0, 1, "response", float(at), status, "text/html", b"", url)
            batch.put(capture_key(fingerprint, capture.fetched_at), pack(capture))
        if record is not None:
            made = PageRecord(
                url, PageState.STORED, Outcome.FETCHED, fetched_at=float(record[0]), noarchive=record[1]
            )
            batch.put(record_key(fingerprint), pack(made))
    store.write(batch)
    return Archive(Path("warc"), store)


@given(
    st.lists(st.dictionaries(st.integers(1, 4), HELD), min_size=1, max_size=PROCESSES),
    st.lists(st.integers(-1, PROCESSES - 1), min_size=5, max_size=5),
    st.booleans(),
)
def test_each_url_is_shown_once_with_the_copy_that_get_shows(
    held: list[dict[int, tuple[dict[int, int], tuple[int, bool] | None]]],
    owners: list[int],
    with_noarchive: bool,
) -> None:
    """`get` asks each process with `newest_held`, and `answering` chooses the process."""
    archives = [archive_of(each) for each in held]
    select = Selection(with_noarchive=with_noarchive)
    chosen = list(chosen_copies(archives, select, owners.__getitem__))
    expected = {
        fingerprint
        for each in held
        for fingerprint, (copies, record) in each.items()
        if copies or record is not None
    }
    assert [each.fingerprint for each in chosen] == sorted(expected)
    for fingerprint, number, record, capture in chosen:
        shown = {}
        for position, archive in enumerate(archives):
            shown[str(position)] = newest_held(
                archive, fingerprint, url_of(fingerprint), archive.record(fingerprint), None,
                owner=owners[fingerprint] == position, with_noarchive=with_noarchive,
            )  # fmt: skip
        answers = answering({name: holding for name, (_, holding) in shown.items()})
        holding = None if answers is None else shown[answers][1]
        assert answers in (None, str(number)) and (holding is None or not holding.withheld) == (
            capture is not None or answers is None
        )
        assert capture is None or capture == shown[str(number)][0]
        assert (record is None) == all(archive.record(fingerprint) is None for archive in archives)
    rows = list(known_rows(archives, select, owners.__getitem__, want_via=False))
    assert [known.row["id"] for known in rows] == [f"{c.fingerprint:016x}" for c in chosen if c.record]
