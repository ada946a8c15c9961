"""Test the page cache: storing and reading answers, revisits, flags, and the records of pages."""

import gzip
import hashlib
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crawler.config import PagesConfig
from crawler.errors import ConfigError, DamageError
from crawler.pages import warc
from crawler.pages.captures import capture_key, newest_of
from crawler.pages.change_detection import Comparison, compile_patterns
from crawler.pages.formats import rows
from crawler.pages.formats.selection import Selection
from crawler.pages.formats.warc_stream import cdxj_lines
from crawler.pages.page_cache import PageCache
from crawler.records import (
    Directives,
    Extracted,
    LinkFlag,
    Outcome,
    PageRecord,
    PageState,
    ReceiptStamp,
    Rendering,
    TaskKind,
)
from crawler.storage.kv import MemoryStore, seal
from tests.pages.support import HTML, START, Site, fetch, fetch_task, not_modified
from tests.pages.support import records as records_of

URL = "http://site.example/"
NOARCHIVE = Extracted(base=URL, noarchive=True, noindex=True)


def record_of(site: Site) -> PageRecord:
    record = site.cache.record(1)
    assert record is not None
    return record


def test_a_page_reads_back_unchanged(site: Site) -> None:
    body = gzip.compress(b"<p>hello</p>")
    headers = (*HTML, (b"Content-Encoding", b"gzip"), (b"X-8bit", b"\xe4"))
    site.visit(fetch(body=body, content=b"<p>hello</p>", headers=headers))
    page = site.cache.get(1)
    assert (page.status, page.reason, page.version) == (200, "OK", "HTTP/1.1")
    assert page.headers == headers
    assert page.payload == body
    assert page.content == b"<p>hello</p>"
    assert page.header_charset == "utf-8"
    assert page.capture.fetched_at == START
    assert page.capture.digest == hashlib.sha1(body).digest()


def test_equal_bytes_in_one_group_are_stored_once(site: Site) -> None:
    """The decision about the second page must take into account the uncommitted decision about the first page."""
    first = site.decide(fetch(URL + "a", b"same"), 1)
    second = site.decide(fetch(URL + "b", b"same"), 2)
    site.commit(first, second)
    third = site.visit(fetch(URL + "c", b"same"), 3)
    kinds = [capturing.capture.kind for capturing in (first, second, third) if capturing.capture]
    assert kinds == ["response", "revisit", "revisit"]
    for fingerprint in (1, 2, 3):
        assert site.payload(fingerprint) == b"same"
        assert site.cache.get(fingerprint).capture.url == URL + "abc"[fingerprint - 1]
    assert second.capture.refers_to == first.key


def test_decisions_of_uncommitted_groups_are_visible(site: Site) -> None:
    """A commit group is decided while the previous group is written and staged, but not yet committed."""
    groups = [[site.decide(fetch(URL + name, b"same"), number)] for number, name in enumerate("abc", 1)]
    for group in groups:
        site.cache.write(group)
        batch = site.store.batch()
        site.cache.stage(batch)
        site.store.write(batch)
    late = site.decide(fetch(URL + "d", b"same"), 4)
    for _ in groups:
        site.cache.committed()
    site.commit(late)
    assert [capturing.profile != "" for (capturing,) in groups] == [False, True, True]
    assert site.payload(4) == b"same"


def test_a_newer_record_survives_the_commit_of_an_older_one(site: Site) -> None:
    """A page is fetched again while its first record is being committed. The second record stays visible."""
    first = site.decide(fetch(body=b"one"), 1)
    site.cache.write([first])
    batch = site.store.batch()
    site.cache.stage(batch)
    second = site.decide(fetch(body=b"two"), 1)
    site.store.write(batch)
    site.cache.committed()
    assert site.cache.record(1) is second.record
    assert second.record.fetches == 2
    site.now += 1
    site.commit(second)
    assert site.cache.record(1) == second.record


def test_empty_bodies_are_not_copies_of_each_other(site: Site) -> None:
    for number in (1, 2):
        capturing = site.visit(fetch(f"{URL}{number}", b"", outcome=Outcome.EMPTY), number)
        assert capturing.capture.kind == "response"
    assert site.payload(2) == b""


def test_a_304_confirms_the_stored_copy(site: Site) -> None:
    site.visit(fetch(headers=(*HTML, (b"ETag", b'"v1"'), (b"Last-Modified", b"Tue, 14 Nov 2023"))))
    confirmed = site.visit(not_modified(headers=((b"Content-Length", b"11"),)))
    assert confirmed.unchanged
    page = site.cache.get(1)
    assert (page.status, page.payload) == (200, b"<p>page</p>")
    assert page.capture.fetched_at == START + 60
    record = site.cache.record(1)
    assert (record.state, record.fetches, record.changes, record.not_modified) == (PageState.STORED, 2, 0, 1)
    assert (record.etag, record.last_modified) == ('"v1"', "Tue, 14 Nov 2023")
    assert (record.changed_at, record.fetched_at) == (START, START + 60)
    site.visit(not_modified())
    assert site.cache.record(1).not_modified == 2
    site.visit(fetch(body=b"new"))
    assert site.cache.record(1).not_modified == 0


def test_a_304_that_confirms_nothing_is_a_response(site: Site) -> None:
    capturing = site.visit(not_modified())
    assert capturing.capture.kind == "response"
    assert site.cache.get(1).status == 304


def test_older_copies_are_found_by_time(site: Site) -> None:
    for body in (b"one", b"two", b"three"):
        site.visit(fetch(body=body))
    captures = list(site.cache.captures(1))
    assert [capture.fetched_at for capture in captures] == [START + 120, START + 60, START]
    for at, body in ((START, b"one"), (START + 119, b"two"), (START + 500, b"three")):
        assert site.payload(1, at) == body
    assert site.cache.get(1, START - 1) is None
    record = site.cache.record(1)
    assert (record.fetches, record.changes, record.changed_at) == (3, 2, START + 120)


def test_a_temporary_failure_does_not_hide_a_copy(site: Site) -> None:
    site.visit(fetch(body=b"good"))
    site.visit(fetch(body=b"oops", status=503, outcome=Outcome.HOST_BUSY, error="503"))
    assert site.payload(1) == b"good"
    assert [capture.status for _, capture in site.cache.newest_captures()] == [200]
    record = site.cache.record(1)
    assert (record.state, record.outcome, record.error) == (PageState.STORED, Outcome.HOST_BUSY, "503")
    assert record.digest == hashlib.sha1(b"good").digest()
    site.visit(fetch(body=b"not found", status=404, outcome=Outcome.GONE))
    assert site.cache.get(1).status == 404
    assert site.cache.record(1).state is PageState.GONE


def test_only_the_last_try_is_stored(site: Site) -> None:
    site.visit(fetch(body=b"half", outcome=Outcome.TRUNCATED, truncated="disconnect"), final=False)
    assert site.cache.get(1) is None
    record = site.cache.record(1)
    assert (record.state, record.attempts) == (PageState.FAILED, 1)
    assert site.segments() == []
    site.visit(fetch(body=b"half", outcome=Outcome.TRUNCATED, truncated="disconnect"))
    assert site.cache.get(1).payload == b"half"
    assert site.cache.record(1).attempts == 2


@pytest.mark.parametrize("outcome", [o for o in Outcome if o not in (Outcome.UNCHANGED,)])
def test_every_outcome_leaves_a_record(tmp_path: Path, outcome: Outcome) -> None:
    """If there is an answer, it is stored. A failure without an answer leaves only a record."""
    answered = outcome in (
        Outcome.FETCHED,
        Outcome.REDIRECT,
        Outcome.GONE,
        Outcome.CLIENT_ERROR,
        Outcome.TEMPORARY,
    )
    site = Site(tmp_path)
    answer = fetch(outcome=outcome) if answered else fetch(body=b"", outcome=outcome, status=0, headers=())
    site.visit(answer)
    record = site.cache.record(1)
    assert record.outcome is outcome
    assert (site.cache.get(1) is not None) == answered
    expected = {
        Outcome.FETCHED: PageState.STORED,
        Outcome.EMPTY: PageState.STORED,
        Outcome.REDIRECT: PageState.REDIRECTED,
        Outcome.GONE: PageState.GONE,
        Outcome.ROBOTS_DENIED: PageState.DENIED,
        Outcome.WITHDRAWN: PageState.RETIRED,
    }
    assert record.state is expected.get(outcome, PageState.FAILED)


def test_noarchive_is_stored_but_not_served(site: Site) -> None:
    site.visit(fetch(), 1, NOARCHIVE)
    assert site.cache.get(1) is None
    assert site.cache.get(1, with_noarchive=True).payload == b"<p>page</p>"
    record = site.cache.record(1)
    assert record.noarchive and record.noindex
    site.visit(not_modified())
    assert site.cache.get(1) is None, "a 304 has no directives of its own: those of the copy stay"


@pytest.mark.parametrize(("task", "given"), [(TaskKind.ROBOTS, 0), (TaskKind.SUBRESOURCE, 77)])
def test_robots_txt_and_subresources_have_a_capture_and_no_record(
    tmp_path: Path, task: TaskKind, given: int
) -> None:
    site = Site(tmp_path, fingerprint=lambda url: 77)
    site.visit(fetch(URL + "app.js", b"1"), given, task=task)
    assert site.cache.record(77) is None and site.cache.record(0) is None
    assert site.payload(77) == b"1"


def test_hostile_text_fits_into_the_store(site: Site) -> None:
    """The record is valid and small even if a header field is very long or was decoded with surrogates."""
    values = {
        "content_type": "text/\udce4" + "x" * 9000,
        "location": "/\udcff" * 9000,
        "error": "\ud800" * 9000,
    }
    site.visit(fetch(reason="\udce4\u20ac", **values))
    assert len(site.store.get(b"u/" + (1).to_bytes(8, "big")) or b"") < 30_000
    page = site.cache.get(1)
    assert page.capture.content_type.startswith("text/?x")
    assert list(rows.known_rows([site.cache], Selection())) and list(cdxj_lines([site.cache], Selection()))


def test_the_decoded_store_keeps_bodies_without_coding(tmp_path: Path) -> None:
    site = Site(tmp_path, bodies="decoded")
    coded = gzip.compress(b"<p>hello</p>")
    headers = ((b"Content-Encoding", b"gzip"), (b"Content-Length", b"%d" % len(coded)))
    site.visit(fetch(body=coded, content=b"<p>hello</p>", headers=headers))
    page = site.cache.get(1)
    assert page.payload == page.content == b"<p>hello</p>"
    assert page.headers == ((b"X-Crawler-Content-Encoding", b"gzip"), (b"Content-Length", b"12"))
    site.visit(fetch(URL + "2", b"\x1f\x8bundecodable", content=b"", headers=headers), 2)
    page = site.cache.get(2)
    assert page.header(b"content-encoding") == b"gzip", "a body that could not be decoded keeps its label"


def test_content_digest_ignores_coding_and_patterns(tmp_path: Path) -> None:
    comparison = Comparison(ignored=compile_patterns([r"served at \d+"]))
    site = Site(tmp_path, comparison=lambda url: comparison)
    site.visit(fetch(body=b"text, served at 1"))
    same = site.visit(fetch(body=gzip.compress(b"text, served at 22"), content=b"text, served at 22"))
    assert same.unchanged
    assert same.capture.kind == "response", "other bytes are stored nevertheless"
    assert site.cache.record(1).changes == 0
    assert not site.visit(fetch(body=b"other text, served at 3")).unchanged


def test_records_that_are_damaged_are_named(site: Site) -> None:
    site.visit(fetch())
    for value in (b"garbage", seal(b"garbage")):
        batch = site.store.batch()
        batch.put(b"u/" + (1).to_bytes(8, "big"), value)
        site.store.write(batch)
        with pytest.raises(DamageError, match="store: value of key"):
            site.cache.record(1)


@pytest.mark.parametrize("name", ["a b", "../x", "", "x/y"])
def test_invalid_file_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="part of a file name"):
        PageCache(tmp_path, MemoryStore(), PagesConfig(prefix=name), about=warc.SegmentFacts("p0"))


def test_keys_sort_by_page_and_time() -> None:
    assert capture_key(1, 0.001) == b"c/" + bytes(7) + b"\x01" + bytes(7) + b"\x01"
    assert capture_key(1, 9e9) < capture_key(2, 0.0)


VISIT = st.tuples(
    st.integers(1, 4),  # page
    st.sampled_from([b"", b"a", b"b", b"long " * 400]),
    st.booleans(),  # if there is a copy: whether the answer is a 304
    st.booleans(),  # whether a commit follows this answer
)


@settings(max_examples=40)
@given(visits=st.lists(VISIT, max_size=25), segment_bytes=st.sampled_from([600, 5000]))
def test_the_cache_behaves_like_a_dictionary(
    tmp_path_factory: pytest.TempPathFactory, visits: list, segment_bytes: int
) -> None:
    """After any answers and commits, and after a restart, each page has the content of its last answer."""
    directory = tmp_path_factory.mktemp("site")
    site = Site(directory, segment_bytes=segment_bytes)
    model: dict[int, bytes] = {}
    waiting = []
    for page, body, conditional, commit in visits:
        url = f"{URL}{page}"
        if conditional and page in model:
            waiting.append(site.decide(not_modified(url), page))
        else:
            outcome = Outcome.FETCHED if body else Outcome.EMPTY
            waiting.append(site.decide(fetch(url, body, outcome=outcome), page))
            model[page] = body
        site.now += 0.002
        if commit:
            site.commit(*waiting)
            waiting = []
    site.commit(*waiting)
    for cache in (site.cache, Site(directory, site.store).cache):
        for page, body in model.items():
            stored = cache.get(page)
            assert stored.payload == body
        assert list(cache.check()) == []


def _poison(monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    """Make one step of the construction of records fail for answers from `/poison`."""
    built = getattr(warc, step)

    def broken(*arguments: Any, **options: Any) -> Any:
        if b"poison" in repr(arguments).encode():
            raise RuntimeError("planted")
        return built(*arguments, **options)

    monkeypatch.setattr(warc, step, broken)


@pytest.mark.parametrize("step", ["stored_headers", "http_head", "request"])
def test_an_answer_whose_records_cannot_be_built_is_stored_without_body(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, step: str
) -> None:
    """A bug in the writer thread once ended the process, and the same page then ended each later run, too."""
    _poison(monkeypatch, step)
    site = Site(tmp_path)
    headers = (*HTML, (b"X-Name", b"poison"))
    asked = b"GET /poison HTTP/1.1\r\n\r\n"
    answers = [
        fetch(f"{URL}0"),
        fetch(f"{URL}1", b"body", headers=headers, request_head=asked),
        fetch(f"{URL}2", b"x"),
    ]
    group = [site.decide(answer, number) for number, answer in enumerate(answers)]
    site.commit(*group)
    pages = [site.cache.get(number) for number in range(3)]
    assert [page and page.payload for page in pages] == [b"<p>page</p>", b"", b"x"]
    assert pages[1].status == 200
    assert caplog.text.count("planted") and caplog.text.count("Traceback") == 1
    # the new answer must not become a revisit, because the first body was not stored
    site.visit(fetch(f"{URL}3", b"body"), 3)
    assert site.payload(3) == b"body"
    assert not [*site.cache.check()]
    assert site.cache.write([]) == 0
    again = site.decide(fetch(f"{URL}4", b"again", headers=headers, request_head=asked), 4)
    assert site.cache.write([again]) == 1, "the number of answers stored without their body"


def test_digests_made_ahead_are_those_of_the_capture(tmp_path: Path) -> None:
    site, answer = Site(tmp_path), fetch(body=b"large")
    site.cache.digests.compute_ahead(answer)
    assert answer.payload_digest == hashlib.sha1(b"large").digest()
    assert site.decide(answer, 1).payload_digest == answer.payload_digest


def test_stored_answers_are_found_by_url_only_with_fingerprints(tmp_path: Path) -> None:
    assert Site(tmp_path / "without").cache.answer_of(URL) is None
    site = Site(tmp_path / "with", fingerprint=lambda url: 1)
    site.visit(fetch(URL, b"answer"), 1)
    found = site.cache.answer_of(URL)
    assert found.payload == b"answer"


def test_new_keys_are_reported_to_the_counters(site: Site) -> None:
    """The store's counters count new keys: one record for each URL, and one capture for each URL and time."""
    first, again = site.decide(fetch(body=b"1"), 1), site.decide(fetch(body=b"2"), 1)
    assert [(each.new_record, each.new_capture) for each in (first, again)] == [(True, True), (False, False)]
    site.commit(first, again)
    site.now = START
    late = site.visit(fetch(body=b"3"), 1)
    assert (late.new_record, late.new_capture) == (False, False)
    later = site.visit(fetch(body=b"4"), 1)
    assert (later.new_record, later.new_capture) == (False, True)


def test_a_copy_names_an_uncommitted_page_that_links_to_it(site: Site) -> None:
    site.commit(site.decide(fetch(URL), 1), site.decide(fetch(URL + "a", b"other"), 2, via=1))
    content = b"".join(gzip.decompress(path.read_bytes()) for path in site.segments())
    assert b"via: " + URL.encode() in content and b"urn:fingerprint" not in content


def test_a_copy_names_the_page_that_links_to_it_after_a_restart(tmp_path: Path) -> None:
    """If the linking page was never in this store, the copy states the fingerprint of that page.

    If the page was in the store, the copy states the page's URL.
    """
    site = Site(tmp_path)
    site.visit(fetch(URL), 1)
    site.cache.close()
    later = Site(tmp_path, site.store)
    later.now = site.now
    later.visit(fetch(URL + "a", b"one"), 2, via=1)
    later.visit(fetch(URL + "b", b"two"), 3, via=9)
    content = b"".join(gzip.decompress(path.read_bytes()) for path in later.segments())
    vias = [line.split(b": ")[1].strip() for line in content.splitlines() if line.startswith(b"via: ")]
    assert vias == [URL.encode(), b"urn:fingerprint:0000000000000009"]


def test_the_media_type_decides_what_is_stored(tmp_path: Path) -> None:
    """If a page becomes a picture, it is no longer stored. The media type of a 304 is that of the stored page."""
    site = Site(tmp_path, keeps=lambda url, media_type: media_type == "text/html")
    site.visit(fetch(), 1)
    assert site.visit(not_modified(), 1).stored
    assert not site.visit(fetch(body=b"GIF89a", content_type="image/gif"), 1).stored
    assert not site.visit(not_modified(URL + "new"), 2).stored, "this 304 confirms no stored copy"


def test_a_page_with_an_unreadable_copy_is_changed(tmp_path: Path) -> None:
    site = Site(tmp_path, comparison=lambda url: Comparison("text"))
    site.visit(fetch(body=b"<p>page</p>"), 1)
    for path in site.segments():
        path.write_bytes(bytes(path.stat().st_size))
    answer = fetch(body=b"<p class=x>page</p>")
    asked = fetch_task(flags=LinkFlag.REFRESH)
    assert site.cache.shows_known(answer, asked, record_of(site)) is False
    assert site.visit(answer, 1, flags=LinkFlag.REFRESH).unchanged is False


def test_a_304_is_captured_with_type_and_digest_of_the_page(site: Site) -> None:
    first = site.visit(fetch(body=b"page"), 1)
    second = site.visit(not_modified(), 1)
    assert second.capture.content_type == first.capture.content_type == "text/html"
    assert second.capture.digest == first.capture.digest == hashlib.sha1(b"page").digest()
    other = site.visit(fetch(URL + "b", b"other", content_type="text/plain"), 2)
    assert (other.capture.content_type, other.capture.digest) == (
        "text/plain",
        hashlib.sha1(b"other").digest(),
    )


def test_bytes_stored_by_an_earlier_run_are_not_stored_again(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.visit(fetch(URL + "a", b"same"), 1)
    site.cache.close()
    assert not [path for path in site.segments() if path.name.endswith(".open")]
    later = Site(tmp_path, site.store)
    later.now = site.now
    capture = later.visit(fetch(URL + "b", b"same"), 2).capture
    assert capture.kind == "revisit"


@pytest.mark.parametrize(
    ("kind", "values", "same"),
    [
        ("text", {}, True),
        ("raw", {}, False),
        ("text", {"content_type": "text/plain"}, False),
        ("text", {"content_type": ""}, True),
        ("text", {"undecoded": True}, False),
    ],
)
def test_markup_is_not_a_change_if_only_the_text_matters(
    tmp_path: Path, kind: str, values: dict[str, Any], same: bool
) -> None:
    """The page is compared with its copy only once. `shows_known` and `capture` both use the result."""
    site = Site(tmp_path, comparison=lambda url: Comparison(kind))
    site.visit(fetch(body=b"<p>page</p>"), 1)
    answer = fetch(body=b"<p class=x>page</p>", **values)
    asked = fetch_task(flags=LinkFlag.REFRESH)
    reads: list[int] = []
    read = site.cache.digests._reads_the_same
    site.cache.digests._reads_the_same = lambda *given: reads.append(1) or read(*given)  # type: ignore[method-assign, func-returns-value]
    assert site.cache.shows_known(answer, asked, record_of(site)) is False, (
        "different bytes are parsed, because meta tags may be new"
    )
    capturing = site.visit(answer, 1, flags=LinkFlag.REFRESH)
    assert capturing.unchanged is same and len(reads) == 1
    record = record_of(site)
    assert site.cache.shows_known(answer, asked, record) is True, "the same bytes are not parsed again"
    assert site.cache.shows_known(fetch(body=b"<p>news</p>"), asked, record) is False and len(reads) == 2
    plain = Site(tmp_path / "first", comparison=lambda url: Comparison(kind))
    plain.visit(fetch(body=b"<p>page</p>"), 1)
    assert plain.visit(answer, 1).unchanged is False, "if the fetch is no refresh, any changed byte counts"


SHELL = b"<script src=app.js></script>"


def shown(text: bytes, **values: Any) -> Any:
    """Return the fetch of a page that was rendered in a browser."""
    return fetch(body=SHELL, rendering=Rendering(dom=b"<h1>%b</h1>" % text, **values))


def test_a_rendered_page_is_read_back_as_its_dom(site: Site) -> None:
    site.visit(shown(b"one"))
    page, answer = site.cache.get(1), site.cache.get(1, static=True)
    assert (page.rendered, page.content, page.header_charset) == (True, b"<h1>one</h1>", "utf-8")
    assert (answer.rendered, answer.content) == (False, SHELL)
    assert list(site.cache.check()) == []


def test_each_copy_of_a_page_has_the_dom_of_its_time(site: Site) -> None:
    """The server's answer is the same each time, so later captures are revisits.

    The DOMs of the captures are different.
    """
    for at, text in enumerate((b"one", b"two")):
        answer = shown(text, view=b"PNG"[: at * 3])
        answer.began = START + at
        site.visit(answer)
    copies = {
        capture.fetched_at - START: site.cache.read(capture).content for capture in site.cache.captures(1)
    }
    assert copies == {0.0: b"<h1>one</h1>", 1.0: b"<h1>two</h1>"}


def test_the_text_of_the_dom_decides_whether_a_rendered_page_changed(site: Site) -> None:
    for at, text in enumerate((b"one", b"one<!-- a token -->", b"two")):
        answer = shown(text)
        answer.began = START + at
        site.visit(answer, flags=LinkFlag.REFRESH)
    record = site.cache.record(1)
    assert (record.fetches, record.changes, record.rendered) == (3, 1, True)


@given(st.lists(st.sampled_from(["new", "same", "304", "500", "206", "cut", "none"]), min_size=1, max_size=8))
def test_the_newest_copy_is_found_by_one_look_up(answers: list[str]) -> None:
    """The look-up finds the same copy as a scan of all captures, whatever the answers were."""
    with tempfile.TemporaryDirectory() as folder:
        site = Site(Path(folder))
        for number, kind in enumerate(answers):
            began = site.now
            if kind == "304":
                site.visit(not_modified(URL, began=began))
                continue
            body = b"%d" % number if kind == "new" else b"same"
            values: dict[str, Any] = {
                "500": {"status": 500, "outcome": Outcome.TEMPORARY},
                "206": {"status": 206, "outcome": Outcome.UNEXPECTED_STATUS},
                "cut": {"outcome": Outcome.TRUNCATED},
                "none": {"status": 0, "outcome": Outcome.CONNECT_ERROR},
            }.get(kind, {})
            site.visit(fetch(URL, body, began=began, **values))
        assert site.cache.newest_capture(1, site.cache.record(1)) == newest_of(site.cache.captures(1))


def test_a_copy_from_a_clock_that_was_ahead_is_not_the_newest(site: Site) -> None:
    """Once a copy has a time in the future, a later answer must still become the newest copy.

    `get` and exports once showed the copy from the future, even after that time.
    """
    site.visit(fetch(URL, b"first", began=site.now))
    now = site.now
    site.now += 365 * 86_400.0
    site.visit(fetch(URL, b"from the future", began=site.now))
    page = site.cache.get(1)
    assert page.content == b"from the future", "the copy is the newest until there is another answer"
    site.now = now
    for began, status in ((now + 60.0, 200), (now + 120.0, 500)):
        site.visit(fetch(URL, b"of now", began=began, status=status))
        page = site.cache.get(1)
        assert page.content == b"of now"
        newest = site.cache.newest_capture(1, site.cache.record(1))
        assert newest.fetched_at == now + 60.0
        assert list(site.cache.newest_captures()) == [(1, newest)]
    page = site.cache.get(1, at=now + 366 * 86_400.0)
    assert page.content == b"from the future", "the copy can be requested by its time"


@pytest.mark.parametrize("kind", [TaskKind.SUBRESOURCE, TaskKind.SITE_FILE, TaskKind.HOP])
def test_a_file_of_a_page_is_withheld_if_its_header_says_noarchive(tmp_path: Path, kind: TaskKind) -> None:
    """Such a file has no record, so its capture alone says that it must not be shown."""
    site = Site(tmp_path)
    site.visit(fetch(URL + "open"), 1, task=kind, tags=Directives(noindex=True))
    site.visit(fetch(URL + "hidden"), 2, task=kind, tags=Directives(noarchive=True))
    assert site.cache.get(1) is not None and site.cache.get(2) is None
    assert site.cache.get(2, with_noarchive=True) is not None


def test_requests_with_different_bodies_are_stored_separately(tmp_path: Path) -> None:
    """Two POSTs are sent to one URL, and one of them is redirected.

    The records have the bodies, and the index distinguishes the requests.
    """
    head = b"POST /s HTTP/1.1\r\nHost: a\r\nContent-Type: application/x-www-form-urlencoded\r\n\r\n"
    site = Site(tmp_path)
    own = LinkFlag.OWN_REQUEST
    hop = fetch(body=b"moved", request_head=head, request_body=b"q=tea", outcome=Outcome.REDIRECT, status=302)
    last = fetch(URL + "home", b"home", began=START + 1)
    site.commit(
        site.decide(hop, 7, task=TaskKind.HOP, flags=own, depth=2),
        site.decide(last, 7, flags=own, depth=2, redirects=1),
        site.decide(fetch(body=b"pots", request_head=head, request_body=b"q=pot"), 8, flags=own),
    )
    assert site.cache.record(7).url == last.url
    found = [capture.query for _, capture in site.cache.all_captures()]
    assert sorted(found) == ["", "__wb_method=POST&q=pot", "__wb_method=POST&q=tea"]
    site.cache.close()
    records = list(records_of(site.segments()[0]))
    bodies = [record.block.partition(b"\r\n\r\n")[2] for record in records if record.kind == "request"]
    assert bodies == [b"q=tea", b"", b"q=pot"]
    facts = [record.block for record in records if record.kind == "metadata"]
    assert [b"requestKey: 0000000000000007\r\n" in each for each in facts] == [True, True, False]


def test_request_bodies_can_be_left_out(tmp_path: Path) -> None:
    site = Site(tmp_path, request_bodies=False)
    head = b"POST /s HTTP/1.1\r\nHost: a\r\n\r\n"
    site.visit(fetch(request_head=head, request_body=b"q=tea"))
    assert [capture.query for _, capture in site.cache.all_captures()] == ["__wb_method=POST"]
    site.cache.close()
    assert [record.block for record in records_of(site.segments()[0]) if record.kind == "request"] == [head]


def test_each_segment_explains_its_captures(tmp_path: Path) -> None:
    """Records refer to the warcinfo record of their segment.

    A segment contains each receipt to which its records refer.
    """
    site = Site(tmp_path, segment_bytes=1000)
    for number in range(6):
        capturing = site.decide(fetch(URL + str(number), b"body %d" % number), number)
        capturing.stamp = ReceiptStamp(bytes(16), "search=y", b"{}")
        site.commit(capturing)
    site.cache.close()
    assert len(site.segments()) >= 3
    for segment in site.segments():
        first, *records = records_of(segment)
        assert first.kind == "warcinfo"
        identities = {record.fields.get("warc-warcinfo-id") for record in records}
        assert identities == {first.fields["warc-record-id"]}
        uris = [record.fields["warc-target-uri"] for record in records if record.kind == "metadata"]
        assert uris.count(f"urn:consent:{bytes(16).hex()}") == 1, segment


def failed(failures: int, **values: Any) -> Any:
    """Return the fetch of a page that no browser could show."""
    tried = Rendering(dom=b"", broke="crash", why="mark", failures=failures, again_at=START + failures)
    return fetch(body=SHELL, **({"rendering": tried} | values))


def test_a_page_in_another_form_is_no_change(site: Site) -> None:
    """The page arrives unrendered, then rendered by a browser, then rendered and changed, then unrendered."""
    changes, new_form = [], []
    for at, answer in enumerate((failed(1), shown(b"one"), shown(b"two"), fetch(body=SHELL))):
        answer.began = START + at
        capturing = site.visit(answer, flags=LinkFlag.REFRESH)
        record = site.cache.record(1)
        assert not capturing.unchanged
        changes.append(record.changes)
        new_form.append(capturing.new_form)
    assert changes == [0, 0, 1, 1]
    assert new_form == [False, True, False, True]


def test_a_page_that_shows_its_earlier_content_has_returned(site: Site) -> None:
    """An answer that differs from the copy is a change. If it equals the copy before, it is a return, too."""
    found = []
    for at, text in enumerate((b"one", b"two", b"one", b"one", b"two", b"three", b"one", b"three")):
        capturing = site.visit(fetch(body=b"<h1>%b</h1>" % text, began=START + at), flags=LinkFlag.REFRESH)
        found.append((capturing.unchanged, capturing.returned))
    new, same, returned = (False, False), (True, False), (False, True)
    assert found == [new, new, returned, same, returned, new, new, returned]
    record = site.cache.record(1)
    assert record.changes == 6 and len(record.earlier_digest) == 8


def test_the_record_counts_the_failed_renderings_of_a_page(tmp_path: Path) -> None:
    """Failures are counted until a rendering succeeds. Meanwhile, the facts of an earlier rendering are kept."""
    site, seen = Site(tmp_path), []
    lost = failed(1, outcome=Outcome.NOT_RENDERED)
    held_back = fetch(body=SHELL, held_back=True)
    good = shown(b"one", why="mark", added=True, view=b"PNG")
    for at, answer in enumerate((failed(1), held_back, failed(2), good, lost, good)):
        answer.began = START + at
        site.visit(answer, flags=LinkFlag.REFRESH)
        record = site.cache.record(1)
        assert record.shown is not None
        facts = record.shown
        seen.append((record.rendered, facts.failures, facts.again_at - START, facts.added, facts.pictured))
    assert seen == [
        (False, 1, 1.0, False, False),
        (False, 1, 1.0, False, False),
        (False, 2, 2.0, False, False),
        (True, 0, -START, True, True),
        (True, 1, 1.0, True, True),
        (True, 0, -START, True, True),
    ]


@pytest.mark.parametrize("away", [(404, Outcome.GONE), (302, Outcome.REDIRECT), (403, Outcome.CLIENT_ERROR)])
def test_a_page_that_is_back_unchanged_keeps_the_time_of_its_change(
    tmp_path: Path, away: tuple[int, Outcome]
) -> None:
    """Once, the page had changed at the end of its absence, although it showed the same copy as before."""
    site, (status, outcome) = Site(tmp_path), away
    site.visit(fetch(body=b"<p>one"))
    site.visit(fetch(body=b"<p>two"))
    before = site.cache.record(1)
    assert before is not None and before.changes == 1
    for body, same in ((b"<p>two", True), (b"<p>three", False)):
        site.visit(fetch(body=b"away", status=status, outcome=outcome))
        site.visit(fetch(body=body))
        after = site.cache.record(1)
        assert after is not None and after.state is PageState.STORED
        assert ((after.changed_at, after.changes) == (before.changed_at, before.changes)) is same
        assert after.changed_at in (before.changed_at, after.fetched_at)
