"""Test that a page's fetch task also fetches tdmrep.json and licence documents, with real stages and canned answers."""

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from crawler.consent.rsl import DOCUMENT_OCTETS_MAX
from crawler.fetcher.fetch_request import FetchRequest
from crawler.records import Fetch, FetchTask, Outcome
from crawler.storage.commit import Change
from tests.process.fetching.test_fetch_tasks import HOME, Run, advance_instead
from tests.process.support import Joint, counted, fetch, made, redirect

TDMREP = f"{HOME}.well-known/tdmrep.json"
LICENCE = f"{HOME}license.xml"
ELSEWHERE = "http://terms.org/license.xml"
RESERVED = b'[{"location": "/", "tdm-reservation": 1}]'


@pytest.fixture
def run(open_joint: Callable[..., Joint]) -> Run:
    joint = open_joint(consent={"tdmrep": True}, robots={"redirects_max": 5})
    joint.seeds(HOME)
    return Run(joint)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    advance_instead(monkeypatch, run.joint)


def page(*licences: str) -> Fetch:
    """Return a page whose Link fields announce licence documents."""
    links = [(b"Link", f'<{url}>; rel="license"; type="application/rsl+xml"'.encode()) for url in licences]
    return fetch(HOME, headers=[(b"Content-Type", b"text/html"), *links])


def all_changes(run: Run, fetch_task: FetchTask | None = None) -> list[Change]:
    """Run the next fetch task. Commit the changes of the site files, then the change of the page, and return all."""
    asyncio.run(run.fetch_tasks.run(fetch_task or run.joint.fetch_task()))
    changes = [run.joint.commit(each if isinstance(each, Change) else made(each())[0]) for each in run.makers]
    run.makers.clear()
    return changes


def asked(run: Run) -> list[str]:
    return [request.url for request in run.canned.requests]


def test_the_files_are_fetched_after_the_page_and_before_its_result(run: Run) -> None:
    run.answer(page(LICENCE), fetch(TDMREP, RESERVED), fetch(LICENCE, b"<rsl/>"))
    *files, last = all_changes(run)
    assert asked(run) == [HOME, TDMREP, LICENCE]
    assert [counted(each)["site_files.fetched"] for each in files] == [1, 1]
    (capturing,) = last.captures
    assert capturing.fetch.url == HOME and capturing.fetch.site == run.joint.results._stamping.book.note(
        "http://a.org"
    )
    assert run.canned.account.held == 0, "the bodies of the files are released"
    gaps = [
        after - before for before, after in zip(run.canned.asked_at, run.canned.asked_at[1:], strict=False)
    ]
    assert all(gap >= 1.0 for gap in gaps), "each file waits for the gap of the host"


def test_a_file_is_requested_plainly(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Validators, cookies, the body and the listener of the page's own request do not belong to the file."""
    run.answer(page(), fetch(TDMREP, RESERVED))
    seen: list[FetchRequest] = []
    begun = run.fetch_tasks._site_files.fetch

    async def begin(task: FetchTask, request: FetchRequest, *rest: object) -> None:
        special = {
            "etag": '"1"',
            "last_modified": "x",
            "listener": object(),
            "file": object(),
            "jar": object(),
        }
        seen.append(msgspec.structs.replace(request, method="POST", body=b"b", **special))
        await begun(task, seen[0], *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(run.fetch_tasks._site_files, "fetch", begin)
    all_changes(run)
    file = run.canned.requests[1]
    plain = (file.etag, file.last_modified, file.listener, file.file, file.jar, file.method, file.body)
    assert plain == ("", "", None, None, None, "GET", b"")
    assert file.body_bytes_max == DOCUMENT_OCTETS_MAX + 1
    assert file.owner is not seen[0].owner is not None


@pytest.mark.parametrize("hops", [1, 5, 6])
def test_a_file_is_followed_through_five_redirects(run: Run, hops: int) -> None:
    places = [TDMREP, *(f"{HOME}{n}" for n in range(hops))]
    chain = [redirect(one, next_one) for one, next_one in zip(places, places[1:], strict=False)]
    run.answer(page(), *chain, fetch(places[-1], RESERVED))
    outcome = "fetched" if hops <= 5 else "redirect"
    assert counted(all_changes(run)[0])[f"site_files.{outcome}"] == 1
    assert asked(run)[1:] == places[:6]


def test_a_redirect_without_a_target_ends_the_search(run: Run) -> None:
    run.answer(page(), redirect(TDMREP, "ftp://a.org/"))
    assert counted(all_changes(run)[0])["site_files.redirect"] == 1 and asked(run) == [HOME, TDMREP]


def test_a_file_that_robots_txt_forbids_is_not_requested(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    fetch_task = run.joint.fetch_task()
    monkeypatch.setattr(run.joint.frontier.hops, "may_ask", lambda url, now: url != TDMREP)
    run.answer(page(), redirect(LICENCE, TDMREP))
    files = counted(all_changes(run, fetch_task)[0])
    assert files["site_files.robots_denied"] == 1 and asked(run) == [HOME]


def test_a_document_on_another_host_is_requested_like_a_subresource(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next hop to the page's own host still waits for the gap after the last answer of that host."""
    asked_elsewhere: list[tuple[str, str]] = []
    fetch_task = run.joint.fetch_task()
    host = run.joint.frontier.hops._outstanding.held[fetch_task.host]

    class Elsewhere:
        async def ask(self, url: str, method: str, headers: object) -> Fetch:
            asked_elsewhere.append((url, method))
            assert run.joint.frontier.hops._outstanding.is_aside(fetch_task.host)
            assert host.address is None, "the other host may have the same address"
            assert host.rests_until > run.joint.clock.now()
            return fetch(url, b"<rsl/>", began=run.joint.clock.now() + 500.0)

    hopped: list[str] = []
    hop = run.fetch_tasks._site_files.hop

    async def note(task: FetchTask, request: FetchRequest, url: str, before: Fetch, options: object) -> Fetch:
        hopped.append(before.url)
        return await hop(task, request, url, before, options)  # type: ignore[arg-type]

    monkeypatch.setattr(run.fetch_tasks._site_files, "subresources", lambda task, request: Elsewhere())
    monkeypatch.setattr(run.fetch_tasks._site_files, "hop", note)
    run.answer(page(ELSEWHERE, LICENCE), fetch(TDMREP, RESERVED), fetch(LICENCE, b"<rsl/>"))
    *files, _ = all_changes(run, fetch_task)
    assert [counted(each)["site_files.fetched"] for each in files] == [1, 1, 1]
    assert asked_elsewhere == [(ELSEWHERE, "GET")]
    assert asked(run) == [HOME, TDMREP, LICENCE] and hopped == [HOME, TDMREP]


def test_a_failed_page_asks_for_no_file(run: Run) -> None:
    run.answer(fetch(HOME, outcome=Outcome.GONE, status=404))
    assert len(all_changes(run)) == 1 and asked(run) == [HOME]
