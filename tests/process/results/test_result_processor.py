"""Test the `Change` that is made from a finished fetch: its records, captures, decisions and counts."""

import re
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from crawler.errors import StoreError
from crawler.pages.withdrawals import Subject
from crawler.process.committing.counters import broken_laws
from crawler.process.results.retired import retiring
from crawler.records import (
    META_NOINDEX,
    Blame,
    DueCounts,
    Extracted,
    Fetch,
    FetchTask,
    FrontierCounts,
    LinkFlag,
    Outcome,
    PageState,
    Rendering,
    SplitterCounts,
    TaskKind,
)
from crawler.storage.commit import Change
from crawler.storage.keys import TODO
from crawler.storage.kv import scan_prefix
from tests.process.support import Joint, counted, fetch, links_of, made, redirect

HOME = "http://a.org/"
AGAIN = LinkFlag.AGAIN
REFRESH, SEED, SITEMAP = LinkFlag.REFRESH, LinkFlag.SEED, LinkFlag.SITEMAP
OK = fetch(HOME).wire_bytes


def extracted(*hrefs: str, **values: Any) -> Extracted:
    return Extracted(HOME, hrefs=list(hrefs), **values)


# ---- pages ----


def test_a_page_is_recorded_captured_counted_and_done(joint: Joint) -> None:
    joint.seeds(HOME)
    fetch_task = joint.fetch_task()
    change = joint.page(fetch_task, fetch(HOME), extracted("/x", "/y", "http://b.org/", title="Home"))
    assert counted(change) == {
        "urls.links": 3,
        "urls.filtered.scope": 1,
        "urls.accepted": 2,
        "urls.to_due": 2,
        "pages.fetched": 1,
        "bytes.wire": OK,
        "bytes.decoded": 11,
        "urls.done": 1,
    }
    record = joint.record(fetch_task.url)
    assert (record.state, record.links) == (PageState.STORED, 2)
    assert record.flags == SEED and not record.depth
    page = joint.stages.pages.get(fetch_task.fingerprint)
    assert page is not None and page.capture.status == 200
    assert links_of(change) == [("http://a.org/x", 1, 0, 0), ("http://a.org/y", 1, 0, 0)]
    assert {link.via for link in change.links} == {fetch_task.fingerprint}
    assert not joint.stages.views.problems()
    assert joint.frontier.views.counters()["todo"] == joint.frontier.views.counters()["in_flight"] == 0
    todo = [key for key, _ in scan_prefix(joint.stages.store, TODO)]
    assert fetch_task.host.to_bytes(8, "big") not in {key[len(TODO) :][:8] for key in todo}, (
        "the decision is stored"
    )


def test_the_line_of_a_page(joint: Joint) -> None:
    joint.add(HOME + "%C3%BC", depth=3)
    fetch_task = joint.fetch_task()
    answer = fetch(fetch_task.url, b"12345", began=1.5, took=0.123456, truncated="length")
    line = joint.page(fetch_task, answer, extracted(title="Tïtle")).line
    assert line.endswith(b"}\n") and line.count(b"\n") == 1
    assert msgspec.json.decode(line) == {
        "id": f"{fetch_task.fingerprint:016x}",
        "url": "http://a.org/%C3%BC",
        "ts": "1970-01-01T00:00:01.500Z",
        "outcome": "fetched",
        "status": 200,
        "mime": "text/html",
        "bytes": 5,
        "took": 0.1235,
        "depth": 3,
        "attempt": 1,
        "decision": "done",
        "title": "Tïtle",
        "truncated": "length",
    }


@pytest.mark.parametrize(
    ("kind", "files"), [("text/html", 0), ("", 0), ("application/zip", 1), ("text/css", 1)]
)
def test_an_incomplete_page_is_no_incomplete_file(joint: Joint, kind: str, files: int) -> None:
    joint.seeds(HOME)
    fetch_task = joint.fetch_task()
    answer = fetch(fetch_task.url, b"<p>page", content_type=kind, truncated="length")
    assert joint.page(fetch_task, answer).counts.get("bodies.asked_incomplete", 0) == files


def test_the_slot_of_a_page_is_free_only_when_it_is_durable(joint: Joint) -> None:
    joint.add(HOME)
    fetch_task = joint.fetch_task()
    change, _ = made(joint.results.page(fetch_task, fetch(HOME), None, joint.clock.now()))
    assert (joint.frontier.requests, len(change.after)) == (1, 1)
    joint.stages.commits.commit(change)
    assert joint.frontier.requests == 0


@pytest.mark.parametrize(
    ("outcome", "status", "failed"),
    [
        (Outcome.FETCHED, 200, 0),
        (Outcome.EMPTY, 204, 0),
        (Outcome.UNCHANGED, 304, 0),
        (Outcome.GONE, 404, 0),
        (Outcome.ROBOTS_DENIED, 0, 0),
        (Outcome.CLIENT_ERROR, 403, 1),
        (Outcome.UNEXPECTED_STATUS, 206, 1),
        (Outcome.BAD_REDIRECT, 301, 1),
    ],
)
def test_outcomes_that_count_as_failed(joint: Joint, outcome: Outcome, status: int, failed: int) -> None:
    change = joint.follow(HOME, fetch(HOME, b"", outcome=outcome, status=status))
    assert counted(change) == {f"pages.{outcome}": 1, "bytes.wire": 100, "urls.done": 1} | (
        {"urls.failed": 1} if failed else {}
    )


@pytest.mark.parametrize(
    ("outcome", "blame", "decision"),
    [(Outcome.TEMPORARY, Blame.URL, "again"), (Outcome.HOST_BUSY, Blame.HOST, "host")],
)
def test_a_page_to_be_tried_again_is_not_done(
    joint: Joint, outcome: Outcome, blame: Blame, decision: str
) -> None:
    """No copy of the 503 page is stored, and its links are not followed."""
    answer = fetch(HOME, outcome=outcome, blame=blame, status=503)
    change = joint.follow(HOME, answer, extracted("/x"))
    assert counted(change) == {
        f"pages.{outcome}": 1,
        "pages.retried": 1,
        "bytes.wire": OK,
        "bytes.decoded": 11,
    }
    assert msgspec.json.decode(change.line)["decision"] == decision
    assert not change.captures[0].stored and not change.links
    counts = joint.stages.views.frontier_counts()
    assert counts.todo + counts.parked == 1
    record = joint.record(HOME)
    assert record.state is PageState.FAILED and record.attempts == 1


def test_a_denied_url_is_recorded_without_a_request(joint: Joint) -> None:
    joint.add(HOME, depth=2, via=7)
    now = joint.clock.now()
    denied = Fetch(url=HOME, outcome=Outcome.ROBOTS_DENIED, began=now)
    change = joint.commit(joint.results.page(joint.fetch_task(), denied, None, now))
    assert counted(change) == {"pages.robots_denied": 1, "urls.done": 1}
    record = joint.record(HOME)
    assert (record.state, record.depth, record.via) == (PageState.DENIED, 2, 7)
    assert not change.captures[0].stored
    assert msgspec.json.decode(change.line)["ts"].startswith("1970-01-12T13:46:4")


# ---- unexpected exceptions ----


def raises(error: Exception) -> Callable[..., Any]:
    def function(*_: Any, **__: Any) -> Any:
        raise error

    return function


def once(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, error: Exception) -> None:
    """Replace a method so that its first call raises an exception."""
    whole, left = getattr(owner, name), [error]

    def function(*arguments: Any, **options: Any) -> Any:
        if left:
            raise left.pop()
        return whole(*arguments, **options)

    monkeypatch.setattr(owner, name, function)


@pytest.mark.parametrize("stage", ["frontier", "pages"])
def test_a_page_that_triggers_a_bug_ends_as_an_internal_error(
    joint: Joint, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    joint.seeds(HOME)
    fetch_task = joint.fetch_task()
    owner, name = (
        (joint.frontier, "record_outcome") if stage == "frontier" else (joint.stages.pages, "capture")
    )
    once(monkeypatch, owner, name, ValueError("odd  answer"))
    answer = fetch(HOME, b"evil", began=12.0, took=0.5)
    change = joint.page(fetch_task, answer, extracted("/x"))
    assert (answer.outcome, answer.error) == (Outcome.INTERNAL_ERROR, "ValueError: odd answer")
    assert (answer.blame, answer.began, answer.took, answer.url) == (Blame.URL, 12.0, 0.5, HOME)
    assert (answer.body, answer.content, answer.headers, answer.status) == (b"", b"", (), 0)
    assert change.counts["pages.internal_error"] == 1 and not change.links
    assert joint.record(HOME).queued == (stage == "frontier"), "if deciding failed, the URL is tried again"
    assert len(joint.results.unexpected.counts) == 1


def test_links_that_trigger_a_bug_are_lost_and_counted(joint: Joint, monkeypatch: pytest.MonkeyPatch) -> None:
    """Links that were admitted before the exception stay in the change, because the caches already contain them."""
    joint.seeds(HOME)
    fetch_task = joint.fetch_task()
    intake, take = joint.stages.intake, joint.stages.intake.filter_links
    portions = iter([take, raises(ValueError("odd link"))])

    def take_or_raise(*arguments: Any) -> Any:
        return next(portions)(*arguments)

    monkeypatch.setattr(intake, "filter_links", take_or_raise)
    change = joint.page(fetch_task, fetch(HOME), extracted(*[f"/{n}" for n in range(300)]))
    assert len(change.links) == change.counts["urls.to_due"] == 256
    assert change.counts["pages.links_lost"] == change.counts["urls.done"] == 1
    assert len(joint.results.unexpected.counts) == 1
    record = joint.record(fetch_task.url)
    assert record.links == 0
    assert not [problem for problem in joint.stages.views.problems() if "accepted" in problem]


def test_sitemaps_of_a_robots_txt_that_trigger_a_bug_are_lost(
    joint: Joint, monkeypatch: pytest.MonkeyPatch
) -> None:
    joint.seeds(HOME)
    monkeypatch.setattr(joint.stages.intake, "filter_links", raises(ValueError("odd line")))
    change = joint.robots(b"Sitemap: http://a.org/map.xml")
    assert change.counts["pages.links_lost"] == change.counts["robots.fetched"] == 1


def test_a_robots_txt_that_triggers_a_bug_counts_as_unreachable(
    joint: Joint, monkeypatch: pytest.MonkeyPatch
) -> None:
    joint.add(HOME)
    once(monkeypatch, joint.stages.robots, "recording", ValueError("odd rule"))
    change = joint.robots(b"Disallow: /x")
    assert counted(change) == {"robots.internal_error": 1}
    assert not change.captures
    assert joint.stages.robots.verdict("http://a.org", "/", joint.clock.now()).kind not in (
        "allowed",
        "fetch",
    )


@pytest.mark.parametrize("where", ["record_outcome", "capture", "filter_links", "recording"])
def test_a_disk_that_fails_ends_the_process(
    joint: Joint, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    joint.seeds(HOME)
    now = joint.clock.now()
    owners = {
        "record_outcome": joint.frontier,
        "capture": joint.stages.pages,
        "filter_links": joint.stages.intake,
    }
    fetch_task = joint.fetch_task(TaskKind.ROBOTS if where == "recording" else TaskKind.PAGE)
    monkeypatch.setattr(owners.get(where, joint.stages.robots), where, raises(StoreError("disk full")))
    making = (
        joint.results.robots(fetch_task, fetch(fetch_task.url), now)
        if where == "recording"
        else joint.results.page(fetch_task, fetch(HOME), extracted("/x"), now)
    )
    with pytest.raises(StoreError):
        made(making)
    assert not joint.results.unexpected.counts


def test_a_url_whose_failed_answer_triggers_a_bug_still_waits_in_its_queue(
    joint: Joint, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record must say so, because otherwise a signal would also put the URL into the schedule."""
    joint.seeds(HOME)
    fetch_task = joint.fetch_task()
    once(monkeypatch, joint.stages.pages, "capture", ValueError("odd answer"))
    joint.page(fetch_task, fetch(HOME, status=500, outcome=Outcome.TEMPORARY, blame=Blame.URL))
    assert joint.record(HOME).outcome is Outcome.INTERNAL_ERROR and joint.record(HOME).queued
    assert joint.stages.views.frontier_counts().todo == 1


def test_an_internal_error_has_no_links(joint: Joint) -> None:
    joint.seeds(HOME)
    for _ in range(3):  # after three attempts, the URL has failed
        answer = fetch(HOME, outcome=Outcome.INTERNAL_ERROR, blame=Blame.URL, status=0)
        change = joint.page(joint.fetch_task(), answer, extracted("/x"))
    assert change.counts["urls.failed"] == 1 and "urls.links" not in change.counts


# ---- hosts ----


def test_a_robots_txt_is_obeyed_captured_and_its_sitemaps_followed(joint: Joint) -> None:
    joint.seeds(HOME)
    body = b"User-agent: *\nDisallow: /x\nSitemap: http://a.org/map.xml\nSitemap: http://b.org/map.xml"
    change = joint.robots(body, content_type="text/plain")
    assert counted(change) == {
        "robots.fetched": 1,
        "bytes.wire": len(body) + 100,
        "urls.links": 2,
        "urls.accepted": 2,
        "urls.to_due": 2,
    }
    assert links_of(change) == [
        ("http://a.org/map.xml", 0, 0, SITEMAP),
        ("http://b.org/map.xml", 0, 0, SITEMAP),
    ]
    assert {link.via for link in change.links} == {0}
    assert len(change.captures) == 1 and change.captures[0].stored and change.captures[0].record is None
    now = joint.clock.now()
    kinds = [joint.stages.robots.verdict("http://a.org", path, now).kind for path in ("/", "/x")]
    assert kinds[0] != kinds[1] and kinds[0] == "allowed"
    assert joint.frontier.requests == 0
    assert joint.fetch_task().url == HOME


@pytest.mark.parametrize(
    ("truncated", "allowed"), [("", True), ("length", True), ("disconnect", False), ("time", False)]
)
def test_a_robots_txt_that_was_cut_off_is_not_obeyed(joint: Joint, truncated: str, allowed: bool) -> None:
    joint.add(HOME)
    joint.robots(b"User-agent: *\nDisallow: /x\n", truncated=truncated)
    verdict = joint.stages.robots.verdict("http://a.org", "/", joint.clock.now())
    assert (verdict.kind == "allowed") == allowed


def test_a_robots_txt_that_was_not_answered_leaves_no_capture(joint: Joint) -> None:
    joint.add(HOME)
    fetch_task = joint.fetch_task(TaskKind.ROBOTS)
    answer = Fetch(fetch_task.url, Outcome.CONNECT_ERROR, Blame.HOST, wire_bytes=3)
    change = joint.commit(joint.results.robots(fetch_task, answer, joint.clock.now()))
    assert counted(change) == {"robots.connect_error": 1, "bytes.wire": 3} and not change.captures


@pytest.mark.parametrize("what", ["sitemaps", "rules"])
def test_lines_of_a_robots_txt_beyond_the_bound_are_counted(
    open_joint: Callable[..., Joint], what: str
) -> None:
    """The lines beyond the bound are counted for each robots.txt separately."""
    joint = open_joint(robots={f"{what}_max": 2})
    line = b"Sitemap: http://a.org/%d.xml\n" if what == "sitemaps" else b"Disallow: /%d\n"
    body = b"User-agent: *\n" + b"".join(line % n for n in range(5))
    for host in ("a", "other"):
        joint.seeds(f"http://{host}.org/")
        change = joint.robots(body)
        assert change.counts[f"robots.{what}_ignored"] == 3
        assert change.counts.get("urls.links", 0) == (2 if what == "sitemaps" else 0)


def test_a_host_without_an_address(joint: Joint) -> None:
    joint.add(HOME)
    fetch_task = joint.fetch_task(TaskKind.RESOLVE)
    failure = Fetch(fetch_task.url, Outcome.DNS_NOT_FOUND, Blame.HOST)
    change = joint.commit(joint.results.unresolved(fetch_task, failure, joint.clock.now()))
    assert counted(change) == {"hosts.dns_not_found": 1}
    counters = joint.frontier.views.counters()
    assert (counters["look_ups"], counters["requests"]) == (0, 0)
    assert (
        joint.frontier.next_wakeup(joint.clock.now()) is None
        or joint.frontier.claim_next(joint.clock.now()) is None
    )


def test_retiring_in_portions_counts_all_and_commits_each(joint: Joint) -> None:
    """The total counts equal those of a single change. A portion without any matching URL makes no change."""
    for path in ("x1", "x2", "y"):
        joint.add(HOME + path)
    changes: list[Change] = []

    def commit(change: Change) -> None:
        changes.append(change)
        joint.stages.commits.commit(change)

    retired, pauses = made(retiring(joint.frontier, joint.clock.now, re.compile("/x").search, commit))
    assert (
        retired == 2 and pauses >= len(changes) and all(change.counts["urls.retired"] for change in changes)
    )
    assert sum(change.counts["urls.done"] for change in changes) == 2
    assert joint.fetch_task().url == HOME + "y"


@pytest.mark.parametrize(
    ("outcome", "blame", "final"),
    [(Outcome.FETCHED, Blame.NONE, True), (Outcome.TEMPORARY, Blame.URL, False)],
)
def test_an_answer_records_whether_it_is_final(
    joint: Joint, outcome: Outcome, blame: Blame, final: bool
) -> None:
    joint.add(HOME)
    answer = fetch(HOME, outcome=outcome, blame=blame)
    joint.page(joint.fetch_task(), answer)
    assert answer.final is final


@pytest.mark.parametrize("values", [{"undecoded": True}, {"content": b""}])
def test_a_robots_txt_that_cannot_be_decoded_counts_as_unreachable(
    joint: Joint, values: dict[str, Any]
) -> None:
    joint.add(HOME)
    joint.robots(b"garbled", **values)
    assert joint.stages.robots.copy("http://a.org").failures == 1


def test_an_empty_robots_txt_allows_all(joint: Joint) -> None:
    joint.add(HOME)
    joint.robots(b"")
    copy = joint.stages.robots.copy("http://a.org")
    assert (copy.failures, copy.fetched_at > 0.0) == (0, True)


# ---- known pages that were queued again ----

TAG = {"headers": ((b"ETag", b'"1"'), (b"Last-Modified", b"Mon, 01 Jan 2024 00:00:00 GMT"))}


def again(joint: Joint) -> FetchTask:
    """Store a page with an ETag and queue it again; return its fetch task."""
    joint.follow(HOME, fetch(HOME, b"first", **TAG), extracted("/x"))
    joint.add(HOME, flags=AGAIN)
    fetch_task = joint.fetch_task()
    assert fetch_task.flags & AGAIN
    return fetch_task


def test_a_page_queued_again_is_requested_with_its_validators(joint: Joint) -> None:
    joint.add("http://b.org/")
    assert joint.earlier.conditions(joint.fetch_task(), joint.clock.now()) == ("", "")
    fetch_task = again(joint)
    pair = ('"1"', "Mon, 01 Jan 2024 00:00:00 GMT")
    assert joint.earlier.conditions(fetch_task, joint.clock.now()) == pair
    assert joint.earlier.known_content(fetch_task) == b"first"


def test_a_page_that_a_browser_showed_is_requested_without_validators(joint: Joint) -> None:
    """Even if the answer is unchanged, a browser may show something else."""
    shown = Rendering("always", dom=b"<p>shown")
    joint.follow(HOME, fetch(HOME, b"first", rendering=shown, **TAG), extracted())
    joint.add(HOME, flags=AGAIN)
    fetch_task = joint.fetch_task()
    record = joint.earlier.known_record(fetch_task)
    assert record is not None and record.rendered
    assert joint.earlier.conditions(fetch_task, joint.clock.now()) == ("", "")


def test_the_stored_answer_of_a_url_is_found_in_any_spelling(joint: Joint) -> None:
    assert joint.earlier.stored_answer(HOME) is None and joint.earlier.stored_answer("mailto:a") is None
    joint.follow(HOME, fetch(HOME, b"first", **TAG), extracted())
    answer = joint.earlier.stored_answer("HTTP://A.org:80/")
    assert answer is not None and (answer.status, answer.content) == (200, b"first")


def test_an_answer_that_was_fetched_before_the_instant_of_a_rule_is_withdrawn(joint: Joint) -> None:
    rule = Subject(url=HOME, before=100.0).rule(100.0)
    joint.earlier._pages.withdrawals._index((rule,))
    for began, withdrawn in ((99.0, True), (100.0, False)):
        answer = Fetch("HTTP://A.org:80/", Outcome.FETCHED, began=began)
        assert joint.earlier.is_withdrawn(answer) is withdrawn
    assert not joint.earlier.is_withdrawn(Fetch("http://b.org/", Outcome.FETCHED, began=99.0))


def test_requests_are_conditional_as_configured(open_joint: Callable[..., Joint]) -> None:
    joint = open_joint(refresh={"conditional": False})
    assert joint.earlier.conditions(again(joint), joint.clock.now()) == ("", "")


def test_a_wrong_validator_of_a_page_queued_again_is_detected(open_joint: Callable[..., Joint]) -> None:
    """If other content comes with the same ETag, later requests to the host have no validators."""
    joint = open_joint(refresh={"check_every": 1})
    fetch_task = again(joint)
    assert joint.earlier.conditions(fetch_task, joint.clock.now()) == ("", ""), (
        "this request checks the validators, so it is unconditional"
    )
    joint.page(fetch_task, fetch(HOME, b"second", **TAG), extracted())
    assert joint.results._validators.lies == 1


def test_an_unchanged_page_queued_again_is_done_and_adds_no_links(joint: Joint) -> None:
    change = joint.page(again(joint), fetch(HOME, b"first", **TAG), extracted("/new"))
    assert counted(change) == {
        "refresh.fetched": 1,
        "refresh.done": 1,
        "refresh.content_same": 1,
        "urls.done": 1,
        "bytes.wire": 105,
        "bytes.decoded": 5,
    }
    assert joint.results._validators.lies == 0 and not change.links


def test_a_page_queued_again_that_fails_is_not_done(joint: Joint) -> None:
    answer = fetch(HOME, outcome=Outcome.TEMPORARY, blame=Blame.URL, status=500)
    assert "urls.done" not in counted(joint.page(again(joint), answer))


def test_content_that_cannot_be_read_is_no_content(joint: Joint) -> None:
    fetch_task = again(joint)
    assert joint.earlier.known_content(fetch_task) == b"first"
    for segment in (joint.stages.directory / "warc").iterdir():
        segment.write_bytes(b"x" * segment.stat().st_size)
    assert joint.earlier.known_content(fetch_task) == b""
    stranger = FetchTask(
        TaskKind.PAGE, 1, "b.org", "http://b.org/", fingerprint=joint.fingerprint("http://b.org/")
    )
    assert joint.earlier.known_content(stranger) == b""


# ---- refreshes ----


def visit_home(joint: Joint) -> None:
    """Fetch a page with two links."""
    statements = [("robots", "noai")]
    found = extracted("/x", "/y", noindex=True, metas=META_NOINDEX, statements=statements)
    joint.visit(fetch(HOME, b"first"), found)
    joint.stages.commits.commit_now(Change())
    assert not joint.stages.views.problems()


@pytest.fixture
def refreshing(open_joint: Callable[..., Joint]) -> Joint:
    """Open a process that refetches its known page before it fetches new pages."""
    joint = open_joint(refresh={"endless": True, "share": 1.0, "min_age": 0.0})
    visit_home(joint)
    return joint


def refresh(joint: Joint, answer: Fetch, *hrefs: str) -> Change:
    """Refetch a page. The body is not read if the content is unchanged."""
    books = dict(joint.stages.point.counters)
    for url in ("http://a.org/x", "http://a.org/y"):
        for _ in retiring(joint.frontier, joint.clock.now, url.__eq__, joint.stages.commits.commit):
            pass
    fetch_task = joint.fetch_task()
    assert fetch_task.flags == SEED | REFRESH and fetch_task.url == HOME
    news = joint.earlier.shows_news(fetch_task, answer)
    change = joint.page(fetch_task, answer, extracted(*hrefs) if news else None)
    assert "urls.done" not in change.counts and not any(name.startswith("pages.") for name in change.counts)
    assert joint.stages.point.counters["pages.fetched"] == books["pages.fetched"] == 1
    return change


def test_an_unchanged_refresh_adds_no_links(refreshing: Joint) -> None:
    change = refresh(refreshing, fetch(HOME, b"first"), "/new")
    assert counted(change) == {
        "refresh.fetched": 1,
        "refresh.done": 1,
        "refresh.content_same": 1,
        "bytes.wire": 105,
        "bytes.decoded": 5,
    }
    record = refreshing.record(HOME)
    assert (record.links, record.noindex, record.fetches) == (2, True, 2)
    assert not refreshing.stages.views.problems()


def test_an_unchanged_refresh_that_was_read_adds_no_links(refreshing: Joint) -> None:
    """The parser may have read the answer of the refresh before the earlier answer was committed."""
    fetch_task = refreshing.fetch_task()
    assert fetch_task.flags & REFRESH
    change = refreshing.page(fetch_task, fetch(HOME, b"first"), extracted("/x", "/new"))
    assert not change.links and "urls.links" not in change.counts


def test_a_refresh_answered_304(refreshing: Joint) -> None:
    change = refresh(refreshing, fetch(HOME, b"", outcome=Outcome.UNCHANGED, status=304))
    assert counted(change) == {"refresh.unchanged": 1, "refresh.done": 1, "bytes.wire": 100}
    record = refreshing.record(HOME)
    assert (record.links, record.not_modified) == (2, 1)


@pytest.mark.parametrize("status", [200, 304])
def test_an_unchanged_page_keeps_the_receipt_of_its_markup(refreshing: Joint, status: int) -> None:
    """An unchanged page is not parsed again, so its meta elements are known only from the earlier receipt."""
    before = refreshing.stages.pages.record(refreshing.fingerprint(HOME))
    outcome, body = (Outcome.FETCHED, b"first") if status == 200 else (Outcome.UNCHANGED, b"")
    refresh(refreshing, fetch(HOME, body, outcome=outcome, status=status))
    after = refreshing.stages.pages.record(refreshing.fingerprint(HOME))
    assert before is not None and after is not None and after.fetches == 2
    assert after.receipt == before.receipt != b""


def test_new_links_of_a_changed_page_are_discovery(refreshing: Joint) -> None:
    change = refresh(refreshing, fetch(HOME, b"second"), "/x", "/new")
    assert counted(change) == {
        "refresh.fetched": 1,
        "refresh.done": 1,
        "refresh.content_changed": 1,
        "urls.links": 2,
        "urls.accepted": 2,
        "urls.cache_hits": 1,
        "urls.to_due": 1,
        "bytes.wire": 106,
        "bytes.decoded": 6,
    }
    assert links_of(change) == [("http://a.org/new", 1, 0, LinkFlag.NEWS)]
    record = refreshing.record(HOME)
    assert (record.links, record.changes) == (2, 1)
    assert not refreshing.stages.views.problems()


def test_a_refresh_that_redirects_is_followed_as_discovery(refreshing: Joint) -> None:
    change = refresh(refreshing, redirect(HOME, "/moved"))
    assert change.counts["refresh.redirect"] == change.counts["refresh.done"] == 1
    assert not {"refresh.content_same", "refresh.content_changed"} & change.counts.keys()
    assert links_of(change) == [("http://a.org/moved", 0, 1, LinkFlag.SEED | LinkFlag.REDIRECT)]


def test_a_page_that_is_not_a_refresh_is_read_even_if_its_content_is_known(joint: Joint) -> None:
    visit_home(joint)
    joint.add(HOME)
    while (fetch_task := joint.fetch_task()).url != HOME:
        joint.page(fetch_task, fetch(fetch_task.url))
    assert joint.earlier.shows_news(fetch_task, fetch(HOME, b"first"))
    change = joint.page(fetch_task, fetch(HOME, b"first"), extracted("/new"))
    assert change.counts["urls.to_due"] == 1


# ---- the counters ----


@pytest.mark.parametrize(
    "counter",
    [
        "urls.accepted", "urls.received", "urls.resharded", "urls.cache_hits", "urls.to_outbox", "urls.to_due",
        "urls.done", "refresh.done", "refresh.retried", "refresh.fetched", "refresh.robots_denied",
    ],
)  # fmt: skip
def test_a_wrong_counter_breaks_an_equation(counter: str) -> None:
    counters = {
        "urls.accepted": 10, "urls.received": 5, "urls.resharded": 2, "urls.cache_hits": 8, "urls.to_outbox": 3,
        "urls.to_due": 6, "urls.done": 1,
        "refresh.done": 3, "refresh.retried": 1, "refresh.fetched": 2, "refresh.robots_denied": 2,
    }  # fmt: skip
    due, frontier = DueCounts(pending=1, known=2, new=3), FrontierCounts(todo=1, parked=1)
    splitter = SplitterCounts(scope_told=1, sent=2, waiting=1, repeated=1, scope_heard=2, applied=7)
    assert broken_laws(counters, due, frontier) == broken_laws(counters, due, frontier, splitter) == []
    counters[counter] += 1
    alone, together = broken_laws(counters, due, frontier), broken_laws(counters, due, frontier, splitter)
    between_processes = counter in ("urls.to_outbox", "urls.received")
    assert len(alone) in (1, 2) and len(together) == len(alone) + between_processes


def test_the_equations_hold_before_a_crawl_begins() -> None:
    assert broken_laws({}, DueCounts(), FrontierCounts(), SplitterCounts()) == []


def test_the_connection_of_a_robots_txt_is_counted(joint: Joint) -> None:
    joint.add(HOME)
    change = joint.robots(b"", connection="reused")
    assert change.counts["connections.reused"] == 1


def test_the_file_of_a_site_is_counted(joint: Joint) -> None:
    joint.add(HOME)
    page, url = joint.fetch_task(), f"{HOME}.well-known/tdmrep.json"
    answer = fetch(url, b"", outcome=Outcome.GONE, status=404, connection="reused")
    change = joint.commit(joint.results.site_file(fetch(page.url), url, answer, joint.clock.now())())
    assert counted(change) == {"site_files.gone": 1, "connections.reused": 1, "bytes.wire": 100}
