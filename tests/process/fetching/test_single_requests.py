"""Test who makes the requests to hosts that no fetch task holds, at what time, and with which content.

The stages are real, and the answers and addresses are canned.
"""

import asyncio
from collections.abc import Callable

import msgspec
import pytest

from crawler.config import Seconds
from crawler.fetcher.cookies import CookieJar
from crawler.fetcher.dns_cache import Resolution
from crawler.fetcher.fetch_request import FetchRequest, split
from crawler.process.fetching import single_requests as module
from crawler.process.fetching.single_requests import HOST_WAIT_MAX, SingleRequests, is_well_formed
from crawler.process.fetching.subresources import Subresources
from crawler.records import Fetch, Outcome
from crawler.splitter.wire import AskedRequest
from tests.process.fetching.test_fetch_tasks import HOME, Run, advance_instead
from tests.process.support import Joint, fetch, made, redirect

URL, ROBOTS = "http://b.org/x.js", "http://b.org/robots.txt"
RULES = fetch(ROBOTS, b"User-agent: *\nDisallow: /no\n", headers=())
SETS = {"headers": ((b"Set-Cookie", b"a=1"),)}


@pytest.fixture
def run(joint: Joint) -> Run:
    joint.seeds(HOME)
    run = Run(joint)
    run.canned.names["b.org"] = Resolution(("127.0.0.2",), 1e12)
    return run


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch, run: Run) -> None:
    advance_instead(monkeypatch, run.joint)


def single(run: Run) -> SingleRequests:
    return run.fetch_tasks.single


def subresources(run: Run, **values: object) -> Subresources:
    """Return the subresources of a page of a.org."""
    request = FetchRequest(HOME, headers=("Secret: of a.org",), credentials=True, owner="page")
    request = msgspec.structs.replace(request, **values)
    return run.fetch_tasks._subresources(run.joint.fetch_task(), request)


def now_and_then_commit(run: Run) -> Callable[[], None]:
    """Return a function that commits what was queued, as the commit loop would."""

    def commit() -> None:
        while run.makers:
            maker = run.makers.pop(0)
            run.joint.commit(made(maker() if callable(maker) else maker)[0])

    return commit


async def committing(run: Run, work: "asyncio.Future[Fetch]") -> Fetch:
    commit = now_and_then_commit(run)
    for _ in range(10_000):
        await _turn()
        commit()
        if work.done():
            return work.result()
    raise AssertionError("the request does not end")


async def _turn() -> None:
    """Let other tasks run."""
    future = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_result, None)
    await future


def seen_through(run: Run, *works: "Callable[[], object]") -> list[Fetch]:
    """Run requests at the same time, and return their results in order."""

    async def main() -> list[Fetch]:
        tasks = [asyncio.ensure_future(work()) for work in works]  # type: ignore[arg-type]
        return [await committing(run, task) for task in tasks]

    return asyncio.run(main())


def test_the_owner_makes_the_request_and_its_cookies_reach_the_page(run: Run) -> None:
    """The owner gets neither the secrets of the page's host nor its address; it knows what is meant for its own hosts."""
    run.at_owners[URL] = fetch(URL, b"script", **SETS)
    jar = CookieJar()
    jar.store(split(URL), [b"b=2"], 0.0)
    held: list[tuple[object, int]] = []
    run.canned.hold_more = lambda *each: held.append(each)  # type: ignore[method-assign]
    work = subresources(
        run, jar=jar, total_timeout=Seconds(7), body_bytes_max=99, wire_bytes_max=98, tls="record"
    )
    (found,) = seen_through(run, lambda: work.ask(URL, "GET", ("Accept: x",), patience=Seconds(9)))
    assert (found.content, run.canned.requests, held) == (b"script", [], [("page", 12)])
    assert run.asked == [
        AskedRequest(
            URL, headers=("Accept: x",), cookies="b=2", tls="record",
            body_bytes_max=99, wire_bytes_max=98, total_timeout=7.0, patience=9.0,
        )
    ]  # fmt: skip
    assert jar.header(split(URL), 0.0) == "b=2; a=1"


def test_a_post_of_a_page_has_neither_cookies_nor_credentials(run: Run) -> None:
    run.at_owners[URL] = fetch(URL)
    jar = CookieJar()
    jar.store(split(URL), [b"b=2"], 0.0)
    seen_through(run, lambda: subresources(run, jar=jar).ask(URL, "POST", ("A: b",), b"form"))
    (asked,) = run.asked
    assert (asked.method, asked.headers, asked.body) == ("POST", ("A: b",), b"form")
    assert (asked.cookies, asked.credentials, asked.obeys_robots) == ("", False, True)


def test_a_subscription_is_requested_by_the_owner_of_the_hub(run: Run) -> None:
    run.at_owners[URL] = fetch(URL, status=202)
    task = FetchRequest(URL, headers=("A: b",), method="POST", body=b"form", total_timeout=20.0)
    assert seen_through(run, lambda: run.fetch_tasks.single.ask(task))[0].status == 202
    (asked,) = run.asked
    assert (asked.method, asked.headers, asked.body) == ("POST", ("A: b",), b"form")
    assert (asked.credentials, asked.obeys_robots, asked.patience) == (False, False, HOST_WAIT_MAX)


def test_this_process_makes_the_request_if_the_owner_has_an_earlier_version(run: Run) -> None:
    run.at_owners[URL] = None
    run.answer(RULES, fetch(URL))
    (found,) = seen_through(run, lambda: subresources(run).ask(URL, "GET", ()))
    assert found.status == 200 and [each.url for each in run.canned.requests] == [ROBOTS, URL]


def test_a_request_for_a_peer_waits_for_its_host_and_obeys_its_robots_txt(run: Run) -> None:
    """Requests that come at the same time fetch the robots.txt once. Each request leaves its host the gap."""
    other, no = "http://b.org/y.js", "http://b.org/no/z.js"
    run.answer(RULES, fetch(URL), fetch(other))
    asked = [AskedRequest(url, patience=60.0) for url in (URL, other, no)]
    found = seen_through(run, *[lambda each=each: single(run).serve(each) for each in asked])
    assert [each.outcome for each in found] == [Outcome.FETCHED, Outcome.FETCHED, Outcome.ROBOTS_DENIED]
    times = run.canned.asked_at
    assert [each.url for each in run.canned.requests] == [ROBOTS, URL, other]
    assert all(after - before >= 1.0 for before, after in zip(times, times[1:], strict=False))


def test_the_request_for_a_peer_contains_what_the_peer_gave_and_what_is_configured_for_the_host(
    open_joint: Callable[..., Joint], monkeypatch: pytest.MonkeyPatch
) -> None:
    joint = open_joint(
        fetch={"cookies": True}, override=[{"match": "b.org", "headers": ["Own: 1"], "robots": "ignore"}]
    )
    advance_instead(monkeypatch, joint)
    run = Run(joint)
    run.canned.names["b.org"] = Resolution(("127.0.0.2", "127.0.0.3"), 1e12)
    run.answer(*[fetch(URL) for _ in range(3)])
    asked = AskedRequest(
        URL,
        "PUT",
        ("Given: 2",),
        b"body",
        "c=3",
        proxy="http://p/",
        tls="record",
        total_timeout=5.0,
        patience=99.0,
    )
    plain = msgspec.structs.replace(asked, credentials=False, cookies="")
    own = msgspec.structs.replace(asked, cookies=None)
    for each in (asked, plain, own):
        seen_through(run, lambda each=each: single(run).serve(each, "charged"))
    first, second, third = run.canned.requests
    assert first.headers == ("Given: 2", "Own: 1") and second.headers == ("Given: 2",)
    assert [each.jar and each.jar.header(split(URL), 0.0) for each in (first, second, third)] == [
        "c=3",
        "",
        None,
    ]
    assert (first.method, first.body, first.proxy, first.tls, first.total_timeout) == (
        "PUT", b"body", "http://p/", "record", 5.0,
    )  # fmt: skip
    assert first.addresses == ("127.0.0.2",) and first.owner == "charged" and first.slot is None


@pytest.mark.parametrize(("patience", "most"), [(20.0, 20.0), (1e9, HOST_WAIT_MAX)])
def test_a_request_is_given_up_if_its_host_is_not_free_in_time(
    run: Run, patience: float, most: float
) -> None:
    """Then nothing is known about the robots.txt of the host."""
    run.joint.frontier.hops.borrow("b.org", run.joint.clock.now(), None, "127.0.0.2")
    before = run.joint.clock.now()
    (found,) = seen_through(run, lambda: single(run).serve(AskedRequest(URL, patience=patience)))
    assert found.outcome is Outcome.ROBOTS_DENIED and not run.canned.requests
    assert most - 3.0 <= run.joint.clock.now() - before <= most + 3.0
    assert run.joint.stages.robots.copy("http://b.org").failures == 0


def test_a_closed_host_and_a_host_without_an_address_get_no_request(run: Run) -> None:
    run.joint.frontier.blocks.block("b.org")
    run.canned.names["c.org"] = Resolution((), 0.0, Outcome.DNS_NOT_FOUND)
    asked = [
        AskedRequest(url, obeys_robots=obeys, patience=9.0)
        for url, obeys in ((URL, True), (URL, False), ("http://c.org/", False))
    ]
    found = [seen_through(run, lambda each=each: single(run).serve(each))[0] for each in asked]
    assert [each.outcome for each in found] == [Outcome.CONNECT_ERROR] * 2 + [Outcome.DNS_NOT_FOUND]
    assert "no requests" in found[0].error and not run.canned.requests


def test_a_server_that_wants_a_signature_gets_the_second_request_after_the_gap(run: Run) -> None:
    run.answer(fetch(URL, status=401, challenged=True), fetch(URL))
    (found,) = seen_through(
        run, lambda: single(run).serve(AskedRequest(URL, obeys_robots=False, patience=60.0))
    )
    first, second = run.canned.asked_at
    assert found.status == 200 and second - first >= 1.0


def test_the_redirect_of_a_robots_txt_is_followed_through_the_owner(run: Run) -> None:
    far = "http://c.org/robots.txt"
    run.at_owners[far] = fetch(far, b"User-agent: *\nDisallow: /x\n")
    run.answer(redirect(ROBOTS, far))
    (found,) = seen_through(run, lambda: single(run).serve(AskedRequest(URL, patience=60.0)))
    assert found.outcome is Outcome.ROBOTS_DENIED
    (asked,) = run.asked
    assert asked.url == far and not asked.obeys_robots
    assert asked.body_bytes_max == run.joint.stages.config.robots.bytes_max


def test_the_page_s_own_host_is_requested_by_its_fetch_task(run: Run) -> None:
    """A crawl without cookies keeps those of a page for the page's other requests (`fetch.cookies` is "auto")."""
    script, data = f"{HOME}x.js", f"{HOME}x.json"
    run.answer(fetch(script, **SETS), fetch(data))
    work = subresources(run)
    for url in (script, data):
        seen_through(run, lambda url=url: work.ask(url, "GET", ()))
    assert not run.asked and [each.url for each in run.canned.requests] == [script, data]
    jar = run.canned.requests[1].jar
    assert jar is not None and work.own_host_took == 0.5


def test_a_request_of_a_peer_is_checked(run: Run) -> None:
    good = AskedRequest(URL, "POST", ("A: b",), cookies="c=d")
    assert is_well_formed(good)
    for wrong in (
        {"method": "TRACE"},
        {"headers": ("A: b", "C: d\n")},
        {"headers": ("\r",)},
        {"cookies": "c\nd"},
    ):
        assert not is_well_formed(msgspec.structs.replace(good, **wrong))
    assert module.ASKS_MAX == 2.0
