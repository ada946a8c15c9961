"""Test the fetch tasks of a process with real stages. Answers and addresses are canned."""

import asyncio
import gzip
import logging
import sys
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from crawler.byte_account import ByteAccount
from crawler.config import Overrides
from crawler.errors import StoreError
from crawler.fetcher.dns_cache import Resolution
from crawler.fetcher.fetch_request import HTTP, FetchRequest, split
from crawler.process.fetching.fetch_requests import FetchParts, FetchTaskSlot
from crawler.process.fetching.fetch_tasks import (
    HEAVY_BYTES,
    HEAVY_LINKS,
    HEAVY_ROBOTS,
    FetchTasks,
    is_heavy,
    size_of,
)
from crawler.process.fetching.hop_requests import HOP_BODY_BYTES_MAX, PLAIN, redirected_options
from crawler.process.fetching.reader import Reader
from crawler.process.fetching.single_requests import HOST_WAIT_MAX
from crawler.process.opening.assembly import make_file_bodies
from crawler.process.opening.environment import Environment
from crawler.records import Blame, Extracted, Fetch, FetchTask, LinkFlag, Outcome, RequestOptions, TaskKind
from crawler.splitter.wire import AskedRequest
from crawler.storage.commit import Change, Maker, Making, steps
from crawler.turn_share import UserTurns
from tests.process.support import Joint, fetch, links_of, made, redirect

HOME = "http://a.org/"
REFRESH, SITEMAP = LinkFlag.REFRESH, LinkFlag.SITEMAP
NOT_FOUND = Resolution((), 0.0, Outcome.DNS_NOT_FOUND, "no such name")


class Canned:
    """A fetcher and resolver.

    For each URL it has a canned answer or exception, and for each name canned addresses.
    """

    places = 0

    def __init__(self, joint: Joint) -> None:
        self._joint = joint
        self.answers: dict[str, list[Fetch | Exception]] = {}
        self.names: dict[str, Resolution | Exception] = {}
        self.requests: list[FetchRequest] = []
        self.asked_at: list[float] = []
        self.held_at: list[int] = []
        self.ended: list[str] = []
        self.account: ByteAccount[Any] = ByteAccount(1 << 30)

    def hold_more(self, owner: object, nbytes: int) -> None:
        pass

    def let_go(self, owner: object) -> None:
        self.account.release(owner)

    async def fetch(self, request: FetchRequest) -> Fetch:
        self.requests.append(request)
        self.held_at.append(self.account.held)
        self.asked_at.append(self._joint.clock.now())
        answer = self.answers[request.url].pop(0)
        if isinstance(answer, Exception):
            raise answer
        self.account.charge(request.owner, len(answer.body))
        if request.jar is not None:
            lines = [value for name, value in answer.headers if name == b"Set-Cookie"]
            request.jar.store(split(request.url), lines, self._joint.clock.now())
        return answer

    async def resolve(self, name: str, *, patient: bool = True) -> Resolution:
        found = self.names[name]
        if isinstance(found, Exception):
            raise found
        return found

    async def start(self) -> None:
        self.ended.append("started")

    async def close(self) -> None:
        self.ended.append("closed")


class Run:
    """Runs fetch tasks on the stages of a `Joint`. Each task ends with a change, which is kept."""

    def __init__(self, joint: Joint, **options: Any) -> None:
        self.joint = joint
        self.canned = Canned(joint)
        self.makers: list[Change | Maker] = []
        self.heavy: list[Maker] = []
        self.woken = 0
        # the answers of peers that own the hosts; None stands for a peer of the earlier version
        self.at_owners: dict[str, Fetch | None] = {}
        self.asked: list[AskedRequest] = []
        stages = joint.stages
        parts = FetchParts(
            stages.config,
            joint.clock,
            joint.frontier,
            self.canned,
            self.canned,
            Reader(stages.config),
            Environment().renderer,
            store=stages.store,
            files=make_file_bodies(stages.context, stages.pages),
            results=joint.results,
            earlier=joint.earlier,
            key=stages.fingerprinter.key,
            trusts=stages.decisions.knowledge.trusts,
            in_scope=joint.admission.in_scope,
            robots=stages.robots,
            user_turns=UserTurns(),
            is_own=lambda url: url not in self.at_owners,
            fetch_at_owner=self._fetch_at_owner,
            queue=self.makers.append,
            queue_heavy=self._queue_heavy,
            wake=self._wake,
        )
        self.fetch_tasks = FetchTasks(parts, **options)

    async def _fetch_at_owner(self, asked: AskedRequest) -> Fetch | None:
        self.asked.append(decoded(asked))
        return self.at_owners[asked.url]

    def _wake(self) -> None:
        self.woken += 1

    def _queue_heavy(self, maker: Maker) -> None:
        self.makers.append(maker)
        self.heavy.append(maker)

    def answer(self, *answers: Fetch) -> None:
        for each in answers:
            self.canned.answers.setdefault(each.url, []).append(each)

    def see_through(self, fetch_task: FetchTask) -> Change:
        """Run a fetch task and commit the single change with which it ends."""
        asyncio.run(self.fetch_tasks.run(fetch_task))
        (maker,) = self.makers
        self.makers.clear()
        return self.joint.commit(maker if isinstance(maker, Change) else made(maker())[0])

    def request(self, options: RequestOptions) -> Change:
        """Run the next fetch task as a request of the user with its own options."""
        self.fetch_tasks.request_options_of = lambda fetch_task: options
        fetch_task = self.joint.fetch_task()
        fetch_task.flags |= LinkFlag.OWN_REQUEST
        return self.see_through(fetch_task)

    def fetched(self, fetch_task: FetchTask) -> Fetch:
        return self.see_through(fetch_task).captures[0].fetch


@pytest.fixture
def run(joint: Joint) -> Run:
    joint.seeds(HOME)
    return Run(joint)


def advance_instead(monkeypatch: pytest.MonkeyPatch, joint: Joint) -> None:
    """Make `sleep` advance the virtual clock."""

    async def sleep(seconds: float) -> None:
        assert seconds > 0.0
        joint.clock.advance(seconds)

    monkeypatch.setattr("crawler.process.fetching.single_requests.asyncio.sleep", sleep)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch, joint: Joint) -> None:
    advance_instead(monkeypatch, joint)


# ---- pages ----


def test_a_page_is_fetched_read_and_turned_into_a_change(run: Run) -> None:
    run.answer(fetch(HOME, b'<a href="/x">x</a>'))
    change = run.see_through(run.joint.fetch_task())
    assert links_of(change) == [("http://a.org/x", 1, 0, 0)]
    (request,) = run.canned.requests
    assert (request.url, request.addresses) == (HOME, ("127.0.0.1",))
    kept = (request.keep_alive, request.keep_alive_factor)
    assert kept == (1.0 + 5.0, 10.0), (
        "the minimal gap plus keep_alive_extra; or ten times the duration of the exchange"
    )
    assert run.fetch_tasks.pages_ended == 1


def test_an_unchanged_refresh_is_not_read(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    run.answer(fetch(HOME, b"same"))
    run.see_through(run.joint.fetch_task())
    run.joint.add(HOME, flags=REFRESH)
    fetch_task = run.joint.fetch_task()
    run.answer(fetch(HOME, b"same"))
    read: list[FetchTask] = []
    monkeypatch.setattr(run.fetch_tasks._reader, "read", read.append)
    assert run.see_through(fetch_task).counts["refresh.content_same"] == 1 and not read


@pytest.mark.parametrize("part", ["client", "reader"])
def test_an_unexpected_exception_ends_only_its_fetch_task(
    run: Run, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    fetch_task = run.joint.fetch_task()
    if part == "client":
        run.canned.answers[HOME] = [ValueError("odd bytes")]
        change = run.see_through(fetch_task)
        answer = change.captures[0].fetch
        assert (answer.outcome, answer.blame) == (Outcome.INTERNAL_ERROR, Blame.URL)
        assert answer.error == "ValueError: odd bytes" and answer.url == HOME
        assert answer.began == run.joint.clock.now()
    else:
        run.answer(fetch(HOME, b'<a href="/x">'))

        async def read(*_: Any) -> None:
            raise ValueError("odd page")

        monkeypatch.setattr(run.fetch_tasks._reader, "read", read)
        change = run.see_through(fetch_task)
        assert change.counts["pages.fetched"] == 1 and not change.links
    assert len(run.joint.results.unexpected.counts) == 1 and run.joint.frontier.requests == 0


def test_a_failed_disk_ends_the_process(run: Run) -> None:
    run.canned.answers[HOME] = [StoreError("disk full")]
    with pytest.raises(StoreError):
        asyncio.run(run.fetch_tasks.run(run.joint.fetch_task()))


def test_sitemaps_have_a_bound_of_their_own(run: Run) -> None:
    run.joint.add(HOME + "map.xml", flags=SITEMAP)
    while (fetch_task := run.joint.fetch_task()).flags != SITEMAP:
        run.answer(fetch(fetch_task.url))
        run.see_through(fetch_task)
    run.answer(fetch(fetch_task.url, b"<urlset/>"))
    run.see_through(fetch_task)
    request, most = run.canned.requests[-1], run.joint.stages.config.sitemaps.bytes_max
    assert request.body_bytes_max == request.wire_bytes_max == most
    assert request.listener is not None, "it is parsed while it arrives"
    assert all(other.listener is None for other in run.canned.requests[:-1])


SITEMAP_BODY = b"<urlset><url><loc>http://a.org/x</loc></url></urlset>"


@pytest.mark.parametrize(
    ("body", "seed", "listed"),
    [(SITEMAP_BODY, True, True), (gzip.compress(SITEMAP_BODY), True, True), (SITEMAP_BODY, False, False)],
    ids=["xml", "gzip", "a link to it"],
)
def test_a_seed_that_is_a_sitemap_is_read_as_one(run: Run, body: bytes, seed: bool, listed: bool) -> None:
    fetch_task = run.joint.fetch_task()
    if not seed:
        fetch_task.flags = 0
    run.answer(fetch(HOME, body, content_type="application/xml"))
    change = run.see_through(fetch_task)
    assert links_of(change) == [("http://a.org/x", 1, 0, 0)] * listed


def test_bytes_are_held_until_the_commit_of_their_own_fetch_task(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next request to a host may start before the last answer is committed.

    So each fetch task holds its own bytes.
    """

    def make_nothing(*_: object) -> Making:
        yield from ()
        return Change()

    monkeypatch.setattr(run.fetch_tasks, "_promised", make_nothing)
    first, second = (fetch(HOME, b"x" * size) for size in (100, 30))
    run.answer(first, second)
    fetch_task = run.joint.fetch_task()
    asyncio.run(run.fetch_tasks.run(fetch_task))
    asyncio.run(run.fetch_tasks.run(fetch_task))
    assert run.canned.account.held == 130
    for left in (30, 0):
        change, _ = made(run.makers.pop(0)())  # type: ignore[operator]
        for act in change.after:
            act()
        assert run.canned.account.held == left


# ---- heavy answers ----


def test_a_long_robots_txt_is_a_heavy_decision(run: Run) -> None:
    """Until the decision is made, the bytes of the robots.txt stay in memory, but its fetch slot is free."""
    fetch_task = run.joint.fetch_task(TaskKind.ROBOTS)
    line = b"Disallow: /no\n"
    rules = b"User-agent: *\n" + line * (HEAVY_ROBOTS // len(line) + 1)
    run.answer(fetch(fetch_task.url, rules))
    asyncio.run(run.fetch_tasks.run(fetch_task))
    (maker,) = run.heavy
    assert run.makers == [maker] and run.canned.account.held == len(rules)
    assert run.joint.frontier.requests == 0 and run.woken == 1
    change, _ = made(maker())
    assert run.canned.account.held == len(rules)
    run.joint.commit(change)
    assert run.canned.account.held == 0
    assert run.joint.stages.robots.line("http://a.org", "/no") == "Disallow: /no"


@pytest.mark.parametrize(("size", "heavy"), [(HEAVY_ROBOTS, 0), (HEAVY_ROBOTS + 1, 1)])
def test_a_robots_txt_of_usual_length_is_decided_on_at_once(run: Run, size: int, heavy: int) -> None:
    fetch_task = run.joint.fetch_task(TaskKind.ROBOTS)
    run.answer(fetch(fetch_task.url, b"#" * size))
    asyncio.run(run.fetch_tasks.run(fetch_task))
    assert len(run.heavy) == heavy and len(run.makers) == 1


def test_a_page_with_many_links_is_a_heavy_decision(run: Run) -> None:
    hrefs = b"".join(b'<a href="/%d">x</a>' % n for n in range(HEAVY_LINKS + 1))
    run.answer(fetch(HOME, hrefs))
    asyncio.run(run.fetch_tasks.run(run.joint.fetch_task()))
    assert len(run.heavy) == 1 and run.joint.frontier.requests == 0


def test_heavy_answers_are_recognized() -> None:
    """An answer is heavy if it has over 2 MiB of body and content, over a thousand links, or over 64 KiB of robots.txt.

    At most one answer in a hundred is heavy.
    """
    assert (HEAVY_BYTES, HEAVY_LINKS, HEAVY_ROBOTS) == (2 << 20, 1000, 64 << 10)
    half = HEAVY_BYTES // 2
    assert not is_heavy(fetch(HOME, b"x" * half), None)
    assert is_heavy(fetch(HOME, b"x" * half, content=b"x" * (half + 1)), None)
    third = HEAVY_LINKS // 3
    found = Extracted(
        HOME, hrefs=["/"] * third, maps=["/"] * third, requisites=["/"] * (HEAVY_LINKS - 2 * third)
    )
    assert not is_heavy(fetch(HOME), found)
    found.maps.append("/")
    assert is_heavy(fetch(HOME), found)


def test_memory_of_links_grows_with_their_number_and_length() -> None:
    assert size_of(Extracted(HOME)) == 0
    one, two = size_of(Extracted(HOME, hrefs=["ab"])), size_of(Extracted(HOME, hrefs=["ab"], maps=["abc"]))
    assert one == sys.getsizeof("ab") + 8 and two == 2 * one + 1
    assert size_of(Extracted(HOME, requisites=["ab"], repeats=["ab"])) == 2 * one
    assert size_of(Extracted(HOME, dated=[("ab", 1.0)])) == 150


def decoded(asked: AskedRequest) -> AskedRequest:
    """Return the request as it arrives at the peer."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(asked), type=AskedRequest)


class Lent:
    """A fake frontier that frees `frees` slots on request."""

    def __init__(self, frees: int) -> None:
        self.requests, self._frees = 3, frees
        self.under_way = self.hops = self
        self.aside: list[tuple[str, float]] = []
        self.held_off: list[str] = []

    def hold_off(self, fetch_task: Any) -> None:
        self.held_off.append(fetch_task)

    def yields(self, fetch_task: Any, now: float) -> bool:
        self.requests -= self._frees
        return bool(self._frees)

    def step_aside(self, fetch_task: Any, now: float) -> None:
        self.aside.append((fetch_task, now))


@pytest.mark.parametrize(("frees", "wakes"), [(0, 0), (1, 1)])
def test_a_released_slot_wakes_the_schedule(joint: Joint, frees: int, wakes: int) -> None:
    frontier: Any = Lent(frees)
    woken: list[int] = []
    fetch_task: Any = "a fetch task"
    parts = Run(joint).fetch_tasks._parts._replace(frontier=frontier, wake=lambda: woken.append(1))
    place = FetchTaskSlot(parts, fetch_task)
    assert place.is_needed() is bool(frees) and len(woken) == wakes
    place.give()
    assert frontier.aside == [("a fetch task", joint.clock.now())]
    assert frontier.held_off == ["a fetch task"], "its request goes on, so its host takes no other request"


# ---- request options of the user ----


def test_the_users_request_options_are_applied(run: Run) -> None:
    """The options of the user are added to the configured headers. A redirect is followed within the scope."""
    seen_elsewhere = fetch(HOME, b"", outcome=Outcome.REDIRECT, status=303, location="http://a.org/found")
    run.answer(seen_elsewhere, fetch("http://a.org/found", b"found"))
    run.request(RequestOptions("POST", b"q=1", ("X-Own: 1", "Content-Type: a/b")))
    first, second = run.canned.requests
    assert (first.url, first.method, first.body) == (HOME, "POST", b"q=1")
    assert first.headers == ("X-Own: 1", "Content-Type: a/b")
    assert (second.url, second.method, second.body) == ("http://a.org/found", "GET", b"")


@pytest.mark.parametrize("location", ["http://elsewhere.example/", "http://[broken"])
def test_a_redirect_that_cannot_be_followed_is_the_answer(run: Run, location: str) -> None:
    run.answer(redirect(HOME, location))
    run.request(RequestOptions("POST", b"q=1"))
    assert not run.joint.results.unexpected.counts and len(run.canned.requests) == 1


@pytest.mark.parametrize("most", [0, 2])
def test_the_hops_of_a_users_request_are_bounded(
    run: Run, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    limited = msgspec.structs.replace(run.joint.stages.config.fetch, redirects_max=most)
    monkeypatch.setattr(run.fetch_tasks._hops, "_fetch", limited)
    urls = [HOME, *(f"http://a.org/{n}" for n in range(5))]
    run.answer(*(redirect(url, then) for url, then in zip(urls, urls[1:], strict=False)))
    run.request(RequestOptions("GET", b"", ("X: 1",)))
    assert [request.url for request in run.canned.requests] == urls[: most + 1]


def test_failed_requests_are_logged_with_v(
    run: Run, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("crawler"), "propagate", True)
    monkeypatch.setattr(logging.getLogger("crawler"), "handlers", [])
    run.canned.names["a.org"] = Resolution((), 0.0, Outcome.DNS_ERROR, "no answer")
    with caplog.at_level(logging.DEBUG, "crawler"):
        asyncio.run(run.fetch_tasks.run(FetchTask(TaskKind.RESOLVE, 1, "a.org", HOME)))
        run.makers.clear()
        run.answer(fetch(HOME))
        run.see_through(run.joint.fetch_task())
        run.joint.add(HOME + "bad")
        run.answer(
            fetch(HOME + "bad", b"", outcome=Outcome.BAD_REDIRECT, status=301, blame=Blame.URL, error="why")
        )
        asyncio.run(run.fetch_tasks.run(run.joint.fetch_task()))
    assert caplog.messages == [
        "http://a.org/: no answer from DNS: no answer",
        "http://a.org/bad: redirects badly 301: why",
    ]


@pytest.mark.parametrize(
    ("attempt", "waiting", "patient"), [(0, 0, True), (0, 3, False), (1, 3, True), (1, 0, True)]
)
def test_a_first_look_up_waits_less_while_other_hosts_wait(
    run: Run, monkeypatch: pytest.MonkeyPatch, attempt: int, waiting: int, patient: bool
) -> None:
    asked: list[bool] = []

    async def resolve(name: str, *, patient: bool = True) -> Resolution:
        asked.append(patient)
        return NOT_FOUND

    run.canned.resolve = resolve  # type: ignore[method-assign]
    monkeypatch.setattr(type(run.joint.frontier.under_way), "look_ups_waiting", waiting)
    fetch_task = FetchTask(TaskKind.RESOLVE, 1, "a.org", HOME, attempt=attempt)
    asyncio.run(run.fetch_tasks.run(fetch_task))
    assert asked == [patient]


@pytest.mark.parametrize(
    ("status", "method", "same_host", "expected"),
    [
        (303, "PUT", True, RequestOptions("GET", b"", ("X: 1", "Cookie: c"))),
        (301, "POST", True, RequestOptions("GET", b"", ("X: 1", "Cookie: c"))),
        (302, "POST", False, RequestOptions("GET", b"", ("X: 1",))),
        (302, "PUT", True, RequestOptions("PUT", b"b", ("X: 1", "Content-Type: t", "Cookie: c"))),
        (307, "POST", False, RequestOptions("POST", b"b", ("X: 1", "Content-Type: t"))),
        (308, "POST", True, RequestOptions("POST", b"b", ("X: 1", "Content-Type: t", "Cookie: c"))),
    ],
)
def test_a_redirect_is_followed_with_the_right_method_and_fields(
    status: int, method: str, same_host: bool, expected: RequestOptions
) -> None:
    """Redirects follow the Fetch Standard ("HTTP-redirect fetch").

    Credentials are sent only to the host they are for.
    """
    options = RequestOptions(method, b"b", ("X: 1", "Content-Type: t", "Cookie: c"))
    assert redirected_options(options, status, same_host=same_host) == expected
    assert redirected_options(PLAIN, status, same_host=same_host) is PLAIN


# ---- hops ----


def test_a_hop_to_the_same_key_is_followed_in_the_hosts_turn(run: Run) -> None:
    """If the target has the same key as the source, it is not queued: the DUE would drop it as a duplicate.

    The hop waits for the gap of the host.
    """
    run.joint.clock.advance(100.0)
    run.answer(redirect(HOME + "~x", HOME + "%7Ex"), fetch(HOME + "%7Ex", b"page"))
    run.joint.page(run.joint.fetch_task(), fetch(HOME))
    run.joint.add(HOME + "~x")
    run.canned.answers[HOME + "~x"][0].body = b"moved" * 1000
    moved = run.canned.answers[HOME + "~x"][0]
    answer = run.fetched(run.joint.fetch_task())
    assert run.canned.held_at == [0, 0] and not moved.body, "a waiting hop holds no bytes"
    assert (answer.outcome, answer.url) == (Outcome.FETCHED, HOME + "%7Ex")
    first, second = run.canned.asked_at
    assert second - first >= run.joint.stages.config.politeness.delay


def test_a_redirect_loop_without_new_cookies_ends(run: Run) -> None:
    run.answer(redirect(HOME, HOME))
    answer = run.fetched(run.joint.fetch_task())
    assert (answer.outcome, answer.error) == (Outcome.BAD_REDIRECT, "redirect loop")
    assert len(run.canned.requests) == 1


def test_a_page_that_first_sets_a_cookie_is_requested_again_with_it(run: Run) -> None:
    run.answer(redirect(HOME, HOME, headers=((b"Set-Cookie", b"a=1"),)), fetch(HOME, b"page"))
    assert run.fetched(run.joint.fetch_task()).outcome is Outcome.FETCHED
    jar = run.canned.requests[1].jar
    assert jar is not None and len(run.canned.requests) == 2


@pytest.mark.parametrize("most", [0, 2])
def test_a_chain_with_ever_new_cookies_ends(
    open_joint: Callable[..., Joint], monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    joint = open_joint(fetch={"redirects_max": most}, crawl={"scope": "any"})
    joint.seeds(HOME)
    run = Run(joint)
    run.answer(*[redirect(HOME, HOME, headers=((b"Set-Cookie", b"a=%d" % n),)) for n in range(9)])
    advance_instead(monkeypatch, joint)
    assert run.fetched(joint.fetch_task()).outcome is Outcome.BAD_REDIRECT
    assert len(run.canned.requests) == most + 1


# ---- robots.txt ----


def test_the_owner_of_a_host_requests_the_robots_txt_to_which_another_one_redirects(run: Run) -> None:
    """Only the owner knows when its host may be requested. This process requests neither the host nor its address."""
    fetch_task = run.joint.fetch_task(TaskKind.ROBOTS)
    run.answer(redirect(fetch_task.url, "http://b.org/robots.txt"))
    rules = b"User-agent: *\nDisallow: /no\n"
    run.at_owners["http://b.org/robots.txt"] = fetch("http://b.org/robots.txt", rules)
    run.see_through(fetch_task)
    assert [request.url for request in run.canned.requests] == [fetch_task.url]
    assert not len(run.joint.frontier._gates.visits)
    assert run.joint.stages.robots.line("http://a.org", "/no") == "Disallow: /no"


@pytest.mark.parametrize(("hops", "outcome"), [(5, Outcome.FETCHED), (6, Outcome.REDIRECT)])
def test_a_robots_txt_is_followed_for_five_hops(run: Run, hops: int, outcome: Outcome) -> None:
    fetch_task = run.joint.fetch_task(TaskKind.ROBOTS)
    urls = [fetch_task.url, *[f"http://r{n}.org/robots.txt" for n in range(hops)]]
    for url, target in zip(urls, urls[1:], strict=False):
        run.answer(redirect(url, target))
    run.answer(fetch(urls[-1], b"User-agent: *\nDisallow: /x"))
    run.canned.names = {f"r{n}.org": Resolution((f"127.0.0.{n + 2}", "127.0.9.9"), 1e12) for n in range(hops)}
    change = run.see_through(fetch_task)
    assert change.counts[f"robots.{outcome}"] == 1 and len(run.canned.requests) == 6
    assert run.canned.requests[0].body_bytes_max == run.joint.stages.config.robots.bytes_max
    assert [request.addresses for request in run.canned.requests[1:]] == [
        (f"127.0.0.{n + 2}",) for n in range(5)
    ]
    assert not len(run.joint.frontier._gates.visits), "each borrowed host was released"


@pytest.mark.parametrize("kind", [TaskKind.ROBOTS, TaskKind.PAGE])
def test_every_request_of_a_chain_is_counted(run: Run, kind: TaskKind) -> None:
    """`--max-bytes` and the figures of the report depend on these counts."""
    fetch_task = run.joint.fetch_task(kind)
    url = fetch_task.url
    moved = redirect(url, url, headers=((b"Set-Cookie", b"a=1"),))
    for answer, connection in ((moved, "plain"), (fetch(url, b"User-agent: *"), "reused")):
        run.answer(msgspec.structs.replace(answer, wire_bytes=100, connection=connection))
    change = run.see_through(fetch_task)
    assert len(run.canned.requests) == 2
    assert change.counts["bytes.wire"] == 200
    assert change.counts["connections.plain"] == change.counts["connections.reused"] == 1


def test_a_hop_to_a_host_without_an_address(run: Run) -> None:
    fetch_task = run.joint.fetch_task(TaskKind.ROBOTS)
    run.answer(redirect(fetch_task.url, "http://b.org/robots.txt"))
    run.canned.names["b.org"] = NOT_FOUND
    assert run.see_through(fetch_task).counts["robots.dns_not_found"] == 1


def test_a_hop_gives_up_a_host_that_is_never_free(run: Run) -> None:
    """The hop leads to b.org, a host that another fetch task holds."""
    run.joint.seeds("http://b.org/")
    tasks = {
        fetch_task.hostname: fetch_task
        for fetch_task in (run.joint.fetch_task(TaskKind.ROBOTS), run.joint.fetch_task(TaskKind.ROBOTS))
    }
    fetch_task = tasks["a.org"]
    run.answer(redirect(fetch_task.url, "http://b.org/robots.txt"))
    run.canned.names["b.org"] = Resolution(("127.0.0.2",), 1e12)
    before = run.joint.clock.now()
    assert run.see_through(fetch_task).counts["robots.connect_error"] == 1
    assert HOST_WAIT_MAX - 5.0 <= run.joint.clock.now() - before <= HOST_WAIT_MAX + 5.0


def test_no_hop_goes_to_a_blocked_host(run: Run) -> None:
    """A robots.txt that redirects to a blocked host is unreachable; it does not allow everything."""
    run.joint.frontier.blocks.block("b.org")
    fetch_task = run.joint.fetch_task(TaskKind.ROBOTS)
    run.answer(redirect(fetch_task.url, "http://b.org/robots.txt"))
    assert run.see_through(fetch_task).counts["robots.connect_error"] == 1
    fetch = asyncio.run(run.fetch_tasks.single.ask(FetchRequest("http://b.org/hub")))
    assert (fetch.outcome, fetch.blame) == (Outcome.CONNECT_ERROR, Blame.URL)
    assert [request.url for request in run.canned.requests] == [fetch_task.url]


def test_a_request_of_no_fetch_task_waits_for_its_host_and_leaves_it_its_gap(run: Run) -> None:
    """The hub answers 503 with a Retry-After that is longer than a hop may wait."""
    url = "http://b.org/hub"
    run.canned.names["b.org"] = Resolution(("127.0.0.2",), 1e12)
    run.answer(fetch(url), fetch(url, outcome=Outcome.HOST_BUSY, status=503, retry_after=9e4))
    answers = [asyncio.run(run.fetch_tasks.single.ask(FetchRequest(url))) for _ in range(3)]
    assert [each.status for each in answers] == [200, 503, 0] and "waited too long" in answers[2].error
    assert run.canned.asked_at[1] - run.canned.asked_at[0] >= 1.0
    run.canned.names["c.org"] = Resolution((), 0.0, Outcome.DNS_NOT_FOUND)
    missing = asyncio.run(run.fetch_tasks.single.ask(FetchRequest("http://c.org/hub")))
    assert missing.outcome is Outcome.DNS_NOT_FOUND


def test_a_hop_tries_less_and_less_often_for_a_busy_host(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The host always seems to be nearly free.

    The host is tried after 10 ms, then less and less often, but at least every 2 s.
    """
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)
        run.joint.clock.advance(seconds)

    monkeypatch.setattr("crawler.process.fetching.single_requests.asyncio.sleep", sleep)
    answers = iter([1e-9] * 16 + [0.0])
    monkeypatch.setattr(type(run.joint.frontier.hops), "borrow", lambda *_: next(answers))
    assert asyncio.run(run.fetch_tasks.single.borrow(run.joint.fetch_task(), "b.org", "", 1e12))
    assert waits == pytest.approx([min(0.01 * 1.5**n, 2.0) for n in range(16)]) and waits[-1] == 2.0


def test_a_hop_that_raises_releases_its_host_with_zero_duration(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[tuple[str, float]] = []
    give_back = type(run.joint.frontier.hops).give_back

    def noted(self: Any, fetch: Fetch, now: float) -> Any:
        given.append((fetch.url, fetch.took))
        return give_back(self, fetch, now)

    monkeypatch.setattr(type(run.joint.frontier.hops), "give_back", noted)
    fetch_task = run.joint.fetch_task(TaskKind.ROBOTS)
    run.answer(redirect(fetch_task.url, "http://b.org/robots.txt"))
    run.canned.names["b.org"] = Resolution(("127.0.0.2",), 1e12)
    run.canned.answers["http://b.org/robots.txt"] = [ValueError("odd bytes")]
    run.see_through(fetch_task)
    assert given == [("http://b.org/robots.txt", 0.0)]


# ---- look-ups, refusals ----


def test_addresses_are_handed_to_the_frontier_at_once(run: Run) -> None:
    fetch_task = run.joint.fetch_task(TaskKind.RESOLVE)
    run.canned.names["a.org"] = Resolution(("127.0.0.5",), run.joint.clock.now() + 1e6)
    asyncio.run(run.fetch_tasks.run(fetch_task))
    assert run.woken == 1 and not run.makers
    assert run.joint.fetch_task(TaskKind.ROBOTS).address == "127.0.0.5"


@pytest.mark.parametrize(
    ("found", "outcome"), [(NOT_FOUND, "dns_not_found"), (ValueError("odd answer"), "internal_error")]
)
def test_a_look_up_that_fails(run: Run, found: Resolution | Exception, outcome: str) -> None:
    run.canned.names["a.org"] = found
    change = run.see_through(run.joint.fetch_task(TaskKind.RESOLVE))
    assert change.counts == {f"hosts.{outcome}": 1} and not run.woken


def test_a_denied_url(run: Run) -> None:
    fetch_task = run.joint.fetch_task()
    fetch_task.kind = TaskKind.PAGE
    denied = FetchTask(
        **{name: getattr(fetch_task, name) for name in fetch_task.__struct_fields__}
        | {"kind": TaskKind.DENIED}
    )
    asyncio.run(run.fetch_tasks.run(denied))
    assert len(run.makers) == 1 and not run.canned.requests


# ---- the sink ----


async def test_a_page_goes_to_the_sink_once_it_is_durable(joint: Joint) -> None:
    joint.seeds(HOME)
    seen: list[tuple[str, int, int]] = []

    async def sink(fetch_task: FetchTask, answer: Fetch, _: Extracted | None) -> None:
        seen.append((answer.url, run.fetch_tasks.awaiting_commit, run.fetch_tasks.in_sink))

    run = Run(joint, sink=sink)
    run.answer(fetch(HOME, b"page"))

    task = asyncio.ensure_future(run.fetch_tasks.run(joint.fetch_task()))
    while not run.makers:
        await asyncio.get_running_loop().run_in_executor(None, lambda: None)
    assert (run.fetch_tasks.awaiting_commit, seen) == (1, [])
    maker = run.makers[0]
    assert callable(maker)
    joint.commit(made(steps(maker()))[0])
    await task
    assert seen == [(HOME, 0, 1)]
    assert (run.fetch_tasks.awaiting_commit, run.fetch_tasks.in_sink) == (0, 0)


# ---- start and end, overrides ----


async def test_all_parts_are_started_and_closed(run: Run) -> None:
    await run.fetch_tasks.start()
    await run.fetch_tasks.close()
    assert run.canned.ended == ["started", "closed", "closed"]


def test_overrides_bind_the_request(open_joint: Callable[..., Joint]) -> None:
    joint = open_joint(
        override=[
            {"match": "a.org", "headers": ["X-Key: 1"], "total_timeout": 3.0, "body_bytes_max": 999_999_999}
        ]
    )
    joint.seeds(HOME)
    run = Run(joint)
    run.answer(fetch(HOME))
    run.see_through(joint.fetch_task())
    (request,) = run.canned.requests
    assert request.headers == ("X-Key: 1",) and request.total_timeout == 3.0
    assert request.body_bytes_max == request.wire_bytes_max == 999_999_999


# ---- what requests carry ----


def test_requests_carry_their_slot_and_the_configured_fetcher(open_joint: Callable[..., Joint]) -> None:
    """Pages use the fetcher that `[[override]]` names. robots.txt is always fetched by HTTP."""
    joint = open_joint(override=[{"match": "a.org", "fetcher": "http"}])
    joint.seeds(HOME)
    requests = Run(joint).fetch_tasks._requests
    other = msgspec.structs.replace(joint.stages.config.override[0], fetcher="other")
    requests._overrides = Overrides([other])
    fetch_task, owner = joint.fetch_task(TaskKind.PAGE), object()
    page, robots = requests.make(fetch_task, owner), requests.make(fetch_task, owner, robots=True)
    assert (page.fetcher, robots.fetcher) == ("other", HTTP)
    assert isinstance(page.slot, FetchTaskSlot) and page.owner is robots.owner is owner


def test_links_out_of_scope_have_a_bound_of_their_own(run: Run) -> None:
    fetch_task = run.joint.fetch_task()
    plain = run.fetch_tasks._requests.make(fetch_task, object())
    fetch_task.flags |= LinkFlag.EXTERNAL
    external = run.fetch_tasks._requests.make(fetch_task, object())
    most = run.joint.stages.config.fetch.external_bytes_max
    assert external.body_bytes_max == external.wire_bytes_max == most != plain.body_bytes_max


@pytest.mark.parametrize("longer", [0, 1])
def test_earlier_answers_of_a_users_request_are_kept_shortened(run: Run, longer: int) -> None:
    body = b"x" * (HOP_BODY_BYTES_MAX + longer)
    found = "http://a.org/found"
    moved = fetch(HOME, body, outcome=Outcome.REDIRECT, status=301, location=found)
    run.answer(moved, fetch(found, b"found"))
    seen: list[Fetch] = []
    run.fetch_tasks.promise = lambda fetch_task, answer, change: seen.append(answer)
    run.request(RequestOptions("GET", b""))
    ((earlier,),) = [answer.earlier for answer in seen]
    assert earlier.url == HOME and earlier.body == b"x" * HOP_BODY_BYTES_MAX and not earlier.content
    assert earlier.truncated == ("length" if longer else "")


def test_failed_robots_requests_are_logged_with_v(
    run: Run, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("crawler"), "propagate", True)
    fetch_task = run.joint.fetch_task(TaskKind.ROBOTS)
    run.answer(fetch(fetch_task.url, b"", outcome=Outcome.CONNECT_ERROR, blame=Blame.HOST, error="refused"))
    with caplog.at_level(logging.DEBUG, "crawler"):
        run.see_through(fetch_task)
    assert f"{fetch_task.url}: connection refused or timed out 200: refused" in caplog.messages


def test_requests_with_the_same_jar_share_its_cookies(run: Run) -> None:
    jars = []
    for name in ("shop", "shop", ""):
        run.joint.add(f"{HOME}{len(jars)}", flags=LinkFlag.OWN_REQUEST)
        run.fetch_tasks.request_options_of = lambda fetch_task, name=name: RequestOptions(
            "GET", b"", jar=name
        )  # type: ignore[misc]
        fetch_task = run.joint.fetch_task()
        while not fetch_task.flags & LinkFlag.OWN_REQUEST:
            run.answer(fetch(fetch_task.url))
            run.see_through(fetch_task)
            fetch_task = run.joint.fetch_task()
        run.answer(fetch(fetch_task.url))
        run.see_through(fetch_task)
        jars.append(run.canned.requests[-1].jar)
    assert jars[0] is jars[1] is not None and jars[2] is None


def test_a_browser_is_prepared_only_if_a_link_asks_for_it(run: Run) -> None:
    fetch_task = run.joint.fetch_task()
    assert run.fetch_tasks._rendering(fetch_task) is None
    fetch_task.flags |= LinkFlag.RENDER
    made = run.fetch_tasks._rendering(fetch_task)
    assert made is not None and run.fetch_tasks._rendering(fetch_task) is made


@pytest.mark.parametrize(("kind", "due"), [("text/html", True), ("", True), ("text/plain", False)])
def test_a_known_page_for_a_browser_is_requested_without_conditions(run: Run, kind: str, due: bool) -> None:
    run.answer(fetch(HOME, b"<p>page", content_type=kind, headers=((b"ETag", b'"1"'),)))
    run.see_through(run.joint.fetch_task())
    run.joint.add(HOME, flags=LinkFlag.AGAIN | LinkFlag.RENDER)
    validators = run.fetch_tasks._conditions(run.joint.fetch_task(), run.joint.clock.now())
    assert validators == (("", "") if due else ('"1"', ""))


class Part:
    """The body of a large file; it records how it was ended."""

    def __init__(self) -> None:
        self.ends: list[bool] = []

    def has_left(self) -> bool:
        return False

    def can_resume(self) -> bool:
        return False

    def end(self, *, resumed_later: bool) -> None:
        self.ends.append(resumed_later)


@pytest.mark.parametrize("fails", [False, True])
def test_the_body_of_a_file_is_freed_once_and_kept_if_the_fetch_failed(
    run: Run, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """If a bug ends the fetch, the bytes are kept for the next attempt. Otherwise, the commit frees them."""
    part = Part()
    monkeypatch.setattr(run.fetch_tasks.files, "body", lambda request, fetch_task: part)
    run.answer(fetch(HOME, b"<p>page"))

    async def broken(*_: Any) -> None:
        raise ValueError("odd file")

    if fails:
        monkeypatch.setattr(run.fetch_tasks._site_files, "fetch", broken)
    run.see_through(run.joint.fetch_task())
    assert part.ends == [fails]


def test_the_browser_ends_with_the_fetch_tasks(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[str] = []

    class Browser:
        async def close(self) -> None:
            closed.append("browser")

    monkeypatch.setattr(run.fetch_tasks, "_made_rendering", Browser())
    asyncio.run(run.fetch_tasks.close())
    assert closed == ["browser"] and run.canned.ended == ["closed", "closed"]
