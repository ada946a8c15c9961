"""Test change detection, and the record of a page after an answer."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crawler.errors import ConfigError
from crawler.frontier.refresh.page_ages import is_source
from crawler.pages import change_detection
from crawler.records import (
    META_NOARCHIVE,
    META_NOINDEX,
    Blame,
    Directives,
    Extracted,
    LinkFlag,
    Outcome,
    PageRecord,
    PageState,
    Rendering,
)
from tests.pages.support import START, fetch, fetch_task, not_modified

URL = "http://site.example/"


def _next(previous: PageRecord | None, answer: object = None, **values: object) -> PageRecord:
    answer = answer or fetch()
    digest = change_detection.content_digest(answer.content)  # type: ignore[attr-defined]
    extracted, tags = values.pop("extracted", None), values.pop("tags", None)
    return change_detection.next_record(
        previous,
        answer,  # type: ignore[arg-type]
        fetch_task(**values),  # type: ignore[arg-type]
        extracted,  # type: ignore[arg-type]
        payload_digest=b"p" * 20,
        digest=digest,
        now=START,
        tags=tags,  # type: ignore[arg-type]
    )


@given(st.binary(), st.binary())
def test_equal_content_has_an_equal_digest(one: bytes, other: bytes) -> None:
    assert (change_detection.content_digest(one) == change_detection.content_digest(other)) == (one == other)
    assert len(change_detection.content_digest(one)) == 16


def test_text_that_matches_a_pattern_is_ignored() -> None:
    patterns = change_detection.compile_patterns([r"<!--.*?-->", "token=[0-9a-f]+"])
    one = change_detection.content_digest(b"a<!-- 12:00\n -->b token=1f", patterns)
    assert one == change_detection.content_digest(b"a<!-- 12:01 -->b token=2e", patterns)
    assert one != change_detection.content_digest(b"a<!-- 12:01 -->c token=2e", patterns)
    assert one == change_detection.content_digest(b"ab ")
    with pytest.raises(ConfigError, match="to ignore in comparisons"):
        change_detection.compile_patterns(["("])


def test_a_page_is_a_feed_if_it_was_last_read_as_one() -> None:
    feed, page = Extracted(base=URL, told_by="feed"), Extracted(base=URL)
    record = _next(None, extracted=feed)
    assert is_source(record)
    for answer, extracted in (
        (fetch(), None),
        (not_modified(), None),
        (fetch(), Extracted(URL, parse_limit=True)),
    ):
        record = _next(record, answer, extracted=extracted, flags=record.flags)
        assert is_source(record)
    assert not is_source(_next(record, extracted=page, flags=record.flags))


def test_the_record_after_the_first_fetch() -> None:
    extracted = Extracted(base=URL, hrefs=["a", "b"], noindex=True)
    answer = fetch(headers=((b"etag", b'W/"1"'), (b"Last-Modified", b"Mon")), took=2.0)
    record = _next(None, answer, extracted=extracted, depth=3, via=9, redirects=1, flags=LinkFlag.SEED)
    assert (record.url, record.state, record.outcome, record.status) == (
        URL,
        PageState.STORED,
        Outcome.FETCHED,
        200,
    )
    assert (record.depth, record.via, record.redirects, record.flags) == (3, 9, 1, LinkFlag.SEED)
    assert (record.etag, record.last_modified) == ('W/"1"', "Mon")
    assert (record.links, record.noindex, record.noarchive) == (2, True, False)
    assert (record.attempts, record.fetches, record.changes, record.took) == (1, 1, 0, 2.0)
    assert record.fetched_at == record.changed_at == START


def test_a_later_answer_keeps_depth_and_origin_of_the_page() -> None:
    first = _next(None, depth=1, via=5)
    later = _next(first, fetch(body=b"new"), depth=0, via=0, flags=LinkFlag.REFRESH)
    assert (later.depth, later.via, later.changes) == (1, 5, 1)
    assert first.changes == 0, "the previous record is not changed"


def test_unchanged_needs_a_stored_copy() -> None:
    stored = _next(None)
    digest = stored.content_digest
    assert change_detection.is_unchanged(stored, fetch(), digest)
    assert change_detection.is_unchanged(stored, not_modified(), b"")
    assert not change_detection.is_unchanged(stored, fetch(), b"x" * 16)
    gone = fetch(status=404, outcome=Outcome.GONE)
    assert not change_detection.is_unchanged(stored, gone, digest)
    assert not change_detection.is_unchanged(None, not_modified(), b"")
    assert not change_detection.is_unchanged(_next(stored, gone), fetch(), digest)


def test_directives_of_an_answer_that_no_browser_could_show_are_only_added() -> None:
    lost, shown = fetch(outcome=Outcome.NOT_RENDERED), fetch(rendering=Rendering(dom=b"<p>x"))
    known = _next(None, shown, extracted=Extracted(URL, noindex=True, metas=META_NOINDEX))
    for said, tags, added in (
        (None, None, False),
        (Extracted(URL), Directives(), False),
        (Extracted(URL, noarchive=True, metas=META_NOARCHIVE), None, True),
        (Extracted(URL), Directives(noarchive=True), True),
    ):
        after = _next(known, lost, extracted=said, tags=tags)
        assert (after.noindex, after.noarchive) == (True, added)
        assert after.metas == META_NOINDEX | (said.metas if said is not None else 0)
    unread = msgspec.structs.replace(known, metas=-1)
    assert _next(unread, lost, extracted=Extracted(URL, metas=META_NOARCHIVE)).metas == -1


def test_an_answer_and_what_a_browser_shows_are_never_the_same_content() -> None:
    """The digest of a page without tags equals that of the text which a browser shows."""
    static, shown = fetch(body=b"text"), fetch(body=b"text", rendering=Rendering(dom=b"<p>text"))
    for before, after in ((static, shown), (shown, static)):
        known = _next(None, before)
        assert change_detection.is_unchanged(known, before, known.content_digest)
        assert not change_detection.is_unchanged(known, after, known.content_digest)


def test_only_an_answer_with_content_returns_to_the_earlier_content() -> None:
    one, two = fetch(body=b"one"), fetch(body=b"two")
    record = _next(_next(None, one), two)
    digest = change_detection.content_digest(one.content)
    assert change_detection.is_return(record, one, digest)
    assert record.earlier_digest == digest[: change_detection.EARLIER_BYTES]
    assert not change_detection.is_return(record, two, change_detection.content_digest(two.content))
    assert not change_detection.is_return(record, not_modified(), digest)
    assert not change_detection.is_return(record, fetch(outcome=Outcome.GONE, status=404), digest)
    assert not change_detection.is_return(None, one, digest)
    assert not change_detection.is_return(_next(None, one), one, digest)
    failed = _next(record, fetch(outcome=Outcome.HEADER_TIMEOUT, status=0, content=b"", body=b""))
    assert failed.earlier_digest == record.earlier_digest


def test_an_unchanged_page_keeps_its_time_of_change() -> None:
    first = _next(None)
    first.changed_at = START - 500
    for answer in (fetch(), not_modified()):
        again = _next(first, answer)
        assert (again.changed_at, again.changes, again.fetches) == (START - 500, 0, 2)
        assert again.fetched_at == START


@pytest.mark.parametrize("outcome", sorted(change_detection._NO_VERDICT))
def test_a_stored_page_stays_stored_after_a_failure(outcome: Outcome) -> None:
    stored = _next(None, extracted=Extracted(base=URL, hrefs=["a"], noarchive=True))
    failed = _next(stored, fetch(status=0, outcome=outcome, blame=Blame.HOST, error="why"))
    assert failed.state is PageState.STORED
    assert (failed.outcome, failed.error, failed.attempts, failed.fetches) == (outcome, "why", 2, 1)
    assert (failed.content_digest, failed.digest) == (stored.content_digest, stored.digest)
    assert (failed.noarchive, failed.links, failed.fetched_at) == (True, 1, START)
    never = PageState.RETIRED if outcome is Outcome.WITHDRAWN else PageState.FAILED
    assert _next(None, fetch(status=0, outcome=outcome)).state is never


def test_a_page_that_was_gone_and_returns() -> None:
    stored = _next(None)
    gone = _next(stored, fetch(status=404, outcome=Outcome.GONE))
    assert (gone.state, gone.digest, gone.etag) == (PageState.GONE, b"", "")
    back = _next(gone)
    assert (back.state, back.changes, back.fetches) == (PageState.STORED, 1, 2)


def test_validators_are_bounded_and_stored_byte_by_byte() -> None:
    huge = _next(None, fetch(headers=((b"ETag", b'"' + b"x" * 2000 + b'"'), (b"Last-Modified", b"\xe4"))))
    assert huge.etag == ""
    assert huge.last_modified.encode("latin-1") == b"\xe4"
    hostile = _next(None, fetch(headers=((b"ETag", b'"\x1b]0;x\x07"'), (b"Last-Modified", b"Mon\x7f"))))
    assert hostile.etag == hostile.last_modified == "", "control characters would be sent back to the server"
    renewed = _next(
        _next(None, fetch(headers=((b"ETag", b'"1"'),))), not_modified(headers=((b"ETag", b'"2"'),))
    )
    assert renewed.etag == '"2"'
    dropped = _next(renewed, fetch(body=b"new", headers=()))
    assert dropped.etag == ""


def test_the_record_of_a_redirect_has_its_target() -> None:
    record = _next(None, fetch(status=301, outcome=Outcome.REDIRECT, location=URL + "new"))
    assert (record.state, record.location, record.fetches) == (PageState.REDIRECTED, URL + "new", 0)


def directives(record: PageRecord) -> tuple[bool, bool]:
    return record.noindex, record.noarchive


def test_every_answer_renews_the_directives() -> None:
    """A `noarchive` in the header of a 304 or of an unchanged page was once ignored, so the copy was still served."""
    first = _next(None, extracted=Extracted(base=URL))
    for answer in (fetch(), not_modified()):
        again = _next(first, answer, tags=Directives(noarchive=True))
        assert directives(again) == (False, True) and again.changes == 0
        assert directives(_next(again, fetch())) == (False, False), "an answer without the field lifts it"
        assert directives(_next(again, not_modified())) == (False, True), "a 304 keeps the stored fields"
        assert directives(_next(again, not_modified(), tags=Directives())) == (False, False)


def test_the_directives_of_meta_tags_stay_with_the_content() -> None:
    own = Extracted(base=URL, noarchive=True, metas=META_NOARCHIVE)
    first = _next(None, extracted=own)
    assert directives(_next(first, fetch())) == (False, True)
    assert directives(_next(first, not_modified(), tags=Directives(noindex=True))) == (True, True)
    assert directives(_next(first, fetch(), extracted=Extracted(base=URL))) == (False, False)


def test_header_directives_apply_to_content_that_is_not_parsed() -> None:
    """An image or PDF with `X-Robots-Tag: noarchive` was once served."""
    assert directives(_next(None, tags=Directives(noarchive=True))) == (False, True)


def test_a_record_without_meta_tags_keeps_its_directives() -> None:
    """Records of earlier versions do not state whether a directive came from a meta tag or from the header."""
    first = _next(None, extracted=Extracted(base=URL, noarchive=True))
    first.metas = -1
    assert directives(_next(first, fetch())) == (False, True)
