"""Test the services of a running process, with real stages but without the crawl loop and without sockets."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from crawler.admin import process_metrics
from crawler.change_signals import Signalled
from crawler.clock import iso_time
from crawler.config import convert
from crawler.crawl.directory import SEED_BYTES
from crawler.errors import ConfigError, UsageError
from crawler.process.answering.wait_log import Wait
from crawler.process.live_services import LiveServices
from crawler.process.process import Process
from crawler.process.services.live_commands import live_settings
from crawler.process.services.request_counts import COUNTS_INTERVAL
from crawler.process.services.urgent_fetches import KEY_FILE_WAIT
from crawler.records import FetchTask, Outcome, TaskKind
from crawler.serve.http_error import HttpError
from crawler.serve.indexnow import KEY_AGE_MAX, REFUSED_AGE_MAX, KeyUnreadError
from crawler.serve.interfaces import Ahead
from crawler.serve.subscriber import Subscriber
from crawler.serve.websub import Subscriptions
from crawler.storage.commit import Change
from crawler.storage.keys import ASKED, TODO
from crawler.storage.kv import scan_prefix, seal, unseal
from tests.process.support import Joint, fetch, made

HOME, NEW, AWAY = "http://a.org/", "http://a.org/new", "http://elsewhere.example/"
ON = {"refresh": {"endless": True, "share": 0.5, "min_age": 0.0}}


class Shown:
    """The live services of a process whose loops do not run."""

    def __init__(self, joint: Joint) -> None:
        self.joint = joint
        self.process = Process(joint.stages, pages_file=joint.stages.directory.parent / "pages.jsonl")
        joint.users.callback(self.process.close)
        self.live = LiveServices(self.process)

    @property
    def queued(self) -> int:
        """The number of queued changes."""
        return len(self.joint.stages.point)

    @property
    def woken(self) -> bool:
        """True if the schedule was woken."""
        return self.process.run_end.news.is_set()

    def commit(self) -> None:
        """Commit the queued changes, and flush the DUE."""
        self.joint.stages.commits.commit_now(Change())

    def ask(self, command: str, **arguments: Any) -> dict[str, Any]:
        return self.process.commands.run({"command": command} | arguments)

    def request(self, url: str) -> Ahead:
        """Request a page with `refresh=1`."""
        return self.live.urgent.request(url, self.fingerprint(url))

    def fingerprint(self, url: str) -> int:
        return self.joint.fingerprint(url)


@pytest.fixture
def shown(joint: Joint) -> Shown:
    joint.store(HOME)
    return Shown(joint)


@pytest.fixture
def fresh(open_joint: Callable[..., Joint]) -> Shown:
    """Return the services of a process that refreshes known pages."""
    joint = open_joint(**ON)
    joint.store(HOME)
    return Shown(joint)


@pytest.fixture
def level() -> Iterator[logging.Logger]:
    log = logging.getLogger("crawler")
    before = log.level
    yield log
    log.setLevel(before)


# -- requests of clients


def in_loop(call: Callable[[], Any]) -> Any:
    async def play() -> Any:
        return call()

    return asyncio.run(play())


def ahead(shown: Shown, *urls: str) -> list[str]:
    """Request the pages one after another with `refresh=1`; return the state that is reported for each."""
    return in_loop(lambda: [shown.request(url).state.value for url in urls])


def test_an_unknown_page_is_fetched_soon_as_a_link_once(shown: Shown) -> None:
    assert ahead(shown, NEW, NEW) == ["queued", "queued"]
    assert shown.queued == 1
    shown.commit()
    assert shown.joint.fetch_task().depth == 1, "the depth of a link on a seed"


def test_a_waiting_page_is_not_queued_again(shown: Shown) -> None:
    shown.joint.seeds(NEW)
    assert ahead(shown, NEW) == ["queued"] and not shown.queued


def test_pages_that_may_not_be_fetched_are_not_reported_as_queued(shown: Shown) -> None:
    """If a host is blocked, or robots.txt forbids a page, `refresh=1` must not report "queued"."""
    assert ahead(shown, AWAY, HOME) == ["out_of_scope", "not_refreshed"]
    rules = b"User-agent: *\nDisallow: /no\n"
    url = "http://a.org/robots.txt"
    fetch_task = FetchTask(TaskKind.ROBOTS, shown.joint.frontier._registry.host_key("a.org"), "a.org", url)
    change = Change()
    made(shown.joint.results._record_robots(change, fetch_task, fetch(url, rules), shown.joint.clock.now()))  # type: ignore[arg-type]
    assert ahead(shown, HOME + "no/1") == ["disallowed"]
    shown.joint.frontier.blocks.block("a.org")
    assert ahead(shown, NEW) == ["blocked"]
    assert shown.request(NEW).why == "its host is blocked; `crawler unblock` lifts the block"
    shown.joint.frontier.blocks.unblock("a.org", shown.joint.clock.now())
    shown.process.run_end.reason = "signal"
    assert ahead(shown, NEW) == ["at_rest"] and not shown.queued


def test_a_page_beyond_a_limit_is_not_reported_as_queued(open_joint: Callable[..., Joint]) -> None:
    """`refresh=1` once reported "queued" for a page beyond `crawl.pages_per_host`, which is parked and not fetched."""
    shown = Shown(open_joint(crawl={"pages_per_host": 1}))
    shown.joint.seeds(HOME, NEW)
    said = in_loop(lambda: shown.request(NEW))
    assert said.state == "parked" and "crawl.pages_per_host" in said.why
    assert shown.ask("why", url=NEW)["verdict"] == f"Parked: {said.why}."


async def test_urgent_page_requests_are_bounded_in_number_and_time(open_joint: Callable[..., Joint]) -> None:
    shown = Shown(open_joint(serve={"ahead_max": 2}))
    shown.joint.store(HOME)

    loop, waits = asyncio.get_running_loop(), []
    loop.call_later = lambda *timer: waits.append(timer)  # type: ignore[method-assign,assignment]
    urls = [f"{HOME}{n}" for n in range(3)]
    said = [shown.request(url) for url in urls]
    assert [each.state for each in said] == ["queued", "queued", "full"] and said[2].wait == 60.0
    delay, forget, number = waits[0]
    assert delay == 60.0
    forget(number)
    assert shown.request(urls[2]).queued


def test_a_page_that_the_schedule_withholds_is_not_reported_as_queued(
    open_joint: Callable[..., Joint],
) -> None:
    """`refresh=1` reported "queued" for a page younger than `refresh.min_age`, and the request was then dropped."""
    joint = open_joint(refresh={"endless": True, "share": 0.5, "min_age": 3600.0})
    joint.store(HOME)
    shown = Shown(joint)
    said = in_loop(lambda: shown.request(HOME))
    assert said.state == "later" and "refresh.min_age" in said.why
    joint.clock.advance(3600.0)
    joint.stages.refresh.claims.peek(joint.clock.now())
    assert ahead(shown, HOME) == ["queued"]


def test_a_known_page_goes_to_the_refresh_schedule(fresh: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ahead(fresh, HOME) == ["queued"] and fresh.woken
    assert not fresh.queued
    monkeypatch.setattr(fresh.joint.stages.refresh.claims, "request", lambda fingerprint: False)
    assert ahead(fresh, HOME) == ["full"]


# -- signals


def test_signals_are_confirmed_once_they_are_durable(fresh: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the answer came earlier, it would confirm a signal that could still be lost in a crash."""
    said = asyncio.run(fresh.live.signal([HOME, NEW, AWAY, AWAY + "x"], "indexnow"))
    assert said.counts() == Signalled(noted=1, queued=1, out_of_scope=2).counts() and not fresh.queued
    assert fresh.joint.stages.due.pending == 1, "the new URL waits for a flush"
    # the test pretends that a commit loop runs, so queued changes are never committed
    fresh.process.commits.running = True
    monkeypatch.setattr("crawler.process.committing.commit_loop.KEPT_WAIT", 0.0)
    with pytest.raises(HttpError) as refusal:
        asyncio.run(fresh.live.signal([HOME], "indexnow"))
    assert refusal.value.status == 503 and fresh.queued


# -- importance from client requests


def test_counts_of_requests_outlast_the_run(shown: Shown) -> None:
    one, two = shown.fingerprint(HOME), shown.fingerprint(NEW)
    for fingerprint in (one, one, two):
        shown.live.counts.demand.add(fingerprint, shown.joint.clock.now())
    shown.live.counts.put()
    assert shown.queued == 1
    shown.commit()
    shown.live.counts.put()
    assert not shown.queued, "nothing has changed"
    rows = dict(scan_prefix(shown.joint.stages.store, ASKED))
    assert set(rows) == {ASKED + each.to_bytes(8, "big") for each in (one, two)}
    key = ASKED + one.to_bytes(8, "big")
    assert msgspec.msgpack.decode(unseal(key, rows[key])) == [pytest.approx(2.0), shown.joint.clock.now()]
    again = Shown(shown.joint)
    again.live.counts.load()
    now = shown.joint.clock.now()
    assert [again.live.counts.demand.count(each, now) for each in (one, two)] == pytest.approx([2.0, 1.0])


def test_requests_of_the_page_server_are_counted(shown: Shown) -> None:
    shown.live.crawl.note_request(7)
    assert shown.live.counts.demand.count(7, shown.joint.clock.now()) == pytest.approx(1.0)


def test_a_count_that_has_faded_is_forgotten(shown: Shown) -> None:
    key = ASKED + (7).to_bytes(8, "big")
    change = shown.live.counts._stored({7: 1.0}, 5.0)
    shown.joint.stages.commits.commit(change)
    assert shown.joint.stages.store.get(key) is not None
    shown.joint.stages.commits.commit(shown.live.counts._stored({7: 0.0}, 5.0))
    assert shown.joint.stages.store.get(key) is None


def test_damaged_counts_are_ignored(shown: Shown) -> None:
    batch = shown.joint.stages.store.batch()
    batch.put(ASKED + (7).to_bytes(8, "big"), seal(b"")[:-1] + b"?")
    shown.joint.stages.store.write(batch)
    shown.live.counts.load()
    assert len(shown.live.counts.demand) == 0


def test_request_counts_set_the_importance_of_refreshed_pages(
    fresh: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    weighed: list[tuple[Any, ...]] = []
    monkeypatch.setattr(
        fresh.joint.stages.refresh.outcomes, "renew_importance", lambda *what: weighed.append(what)
    )
    change = fresh.live.counts._stored({7: 1.0}, 5.0)
    assert weighed == [({7: 1.0}, fresh.joint.clock.now(), change)]


def test_request_counts_are_stored_periodically(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    naps: list[float] = []

    async def nap(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) > 2:
            raise asyncio.CancelledError

    puts: list[int] = []
    monkeypatch.setattr(asyncio, "sleep", nap)
    monkeypatch.setattr(shown.live.counts, "put", lambda: puts.append(1))
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(shown.live.counts.keep())
    assert naps == [COUNTS_INTERVAL] * 3 and len(puts) == 2


# -- key files of IndexNow clients


def key_file(
    shown: Shown, monkeypatch: pytest.MonkeyPatch, url: str, arrives: Any = None, *, key: str = ""
) -> tuple[bytes | None, int]:
    """Request a key file; return its content, and the number of times that the call waited."""
    naps = 0

    async def nap(seconds: float) -> None:
        nonlocal naps
        naps += 1
        shown.joint.clock.advance(seconds)
        if arrives is not None and naps == 3:
            arrives()

    monkeypatch.setattr(asyncio, "sleep", nap)
    return asyncio.run(shown.live.urgent.key_file(url, key)), naps


def test_a_key_file_is_fetched_like_any_link(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    def arrives() -> None:
        shown.commit()
        fetch_task = shown.joint.fetch_task()
        shown.joint.page(fetch_task, fetch(fetch_task.url, b"k" * 2000, began=shown.joint.clock.now()))

    assert key_file(shown, monkeypatch, HOME + "key.txt", arrives) == (b"k" * 1024, 3)
    assert key_file(shown, monkeypatch, HOME + "key.txt") == (b"k" * 1024, 0), "it is stored already"


def test_a_key_file_that_is_missing_or_never_arrives_counts_as_none(
    shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert key_file(shown, monkeypatch, AWAY) == (None, 0), "the key file is out of scope"
    found, naps = key_file(shown, monkeypatch, HOME + "never.txt")
    assert found is None and naps == int(KEY_FILE_WAIT) == 600


def test_no_key_file_is_awaited_once_the_crawl_stops(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    """The notice must stay undecided: if its key file counted as missing, the notice would be rejected."""
    shown.process.run_end.reason = "signal"
    with pytest.raises(KeyUnreadError):
        key_file(shown, monkeypatch, HOME + "key.txt")


def test_a_key_file_of_long_ago_or_of_an_error_does_not_count(
    shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert key_file(shown, monkeypatch, HOME) == (HOME.encode(), 0)
    fetched_at = next(iter(shown.joint.stages.pages.captures(shown.fingerprint(HOME)))).fetched_at
    shown.joint.clock.advance(fetched_at + KEY_AGE_MAX - shown.joint.clock.now())
    assert shown.joint.clock.now() - fetched_at == KEY_AGE_MAX
    assert key_file(shown, monkeypatch, HOME) == (None, 0), "nothing is refetched, so no newer file will come"
    joint = shown.joint
    joint.follow(HOME + "gone.txt", fetch(HOME + "gone.txt", b"not here", status=404, outcome=Outcome.GONE))
    assert key_file(shown, monkeypatch, HOME + "gone.txt")[0] is None


def test_an_old_key_file_is_requested_again_if_possible(
    fresh: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    fresh.joint.clock.advance(KEY_AGE_MAX + 1.0)
    # too many pages wait already
    monkeypatch.setattr(fresh.joint.stages.refresh.claims, "request", lambda fingerprint: False)
    assert key_file(fresh, monkeypatch, HOME) == (None, 600)


def test_a_file_that_lacks_the_key_counts_for_some_minutes_only(
    fresh: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some sites create their key file only after their first notice, so a failed check must not count for long."""
    text = HOME.encode()
    assert key_file(fresh, monkeypatch, HOME, key="other") == (text, 0)
    fresh.joint.clock.advance(REFUSED_AGE_MAX + 1.0)
    monkeypatch.setattr(fresh.joint.stages.refresh.claims, "request", lambda fingerprint: False)
    assert key_file(fresh, monkeypatch, HOME, key=HOME) == (text, 0)
    assert key_file(fresh, monkeypatch, HOME, key="other") == (None, 600), "the file must be fetched again"


# -- commands


def test_the_status_has_the_sections_of_a_running_process(shown: Shown) -> None:
    shown.joint.stages.frontier.pauses.pause()
    status = shown.ask("status")
    assert status["paused"] == list(shown.joint.stages.frontier.pauses.reasons) != []
    (process,) = status["processes"]
    assert (
        process["name"] == "p0" and process["started"] == shown.process.started and process["loop_lag"] == 0.0
    )
    assert status["run"] == {"fetched": 1, "again": 0, "arriving_bytes": 0} and status["serve"] == {}
    assert set(status["timings"]) == {"commit", "flush"}
    assert status["waited"] == shown.joint.stages.frontier.views.why_slow(shown.joint.clock.now())


def test_the_status_counts_only_the_pages_of_this_run(shown: Shown) -> None:
    shown.process.exchange.before["pages.fetched"] = 1
    assert shown.ask("status")["run"] == {"fetched": 0, "again": 0, "arriving_bytes": 0}


def test_a_host_is_explained_with_its_robots_txt(shown: Shown) -> None:
    facts = shown.ask("host", host="a.org")
    assert [(each["of"], each["status"]) for each in facts["robots"]] == [("http://a.org", 404)]
    assert "robots" not in shown.ask("host", host="never.example")
    with pytest.raises(UsageError, match="not a host name"):
        shown.ask("host", host="a b")


def test_settings_change_for_this_run(shown: Shown, level: logging.Logger) -> None:
    quiet = logging.Handler()
    level.addHandler(quiet)
    level.addHandler(shown.live.vital_signs.errors)
    before = shown.live.vital_signs.errors.level
    try:
        assert shown.ask("set", settings={"politeness.delay": "5", "log.level": "debug"}) == {
            "set": {"politeness.delay": "5", "log.level": "debug"}
        }
        assert quiet.level == level.level == logging.DEBUG and shown.live.vital_signs.errors.level == before
    finally:
        level.removeHandler(quiet)
        level.removeHandler(shown.live.vital_signs.errors)
    assert shown.process.context.config.politeness.delay == 5
    with pytest.raises(UsageError, match="does not refresh pages"):
        shown.ask("set", settings={"politeness.delay": "7", "refresh.share": "0.5"})
    assert shown.process.context.config.politeness.delay == 5, "all settings or none"


def test_only_live_settings_can_be_changed() -> None:
    config = convert({"crawl": {"concurrency": 8, "depth": 3}, "refresh": {"share": 0.2, "min_age": 7}})
    made = live_settings(config, {"crawl.concurrency": "8", "refresh.share": "0.5"}, 8)
    assert made == convert({"crawl": {"concurrency": 8, "depth": 3}, "refresh": {"share": 0.5, "min_age": 7}})
    with pytest.raises(UsageError, match="at most 8"):
        live_settings(config, {"crawl.concurrency": "9"}, 8)
    with pytest.raises(ConfigError):
        live_settings(config, {"politeness.delay": "soon"}, 8)


# -- start and end


async def test_live_services_collect_warnings_and_timings_while_they_run(shown: Shown) -> None:
    await shown.live.start()
    logging.getLogger("crawler").error("something")
    shown.process.commits.observe("flush", 0.5)
    await shown.live.close()
    logging.getLogger("crawler").error("later")
    sections = shown.live.sections()
    assert sections["log"] == {"error": 1} or sum(sections["log"].values()) == 1
    empty = process_metrics.Histogram().plain()
    assert sections["timings"]["commit"] == empty != sections["timings"]["flush"]


def test_lateness_fades_and_waiting_hosts_are_reported(
    shown: Shown, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    late = [0.5, 0.0, 0.0, 0.1] + [0.0] * 17
    lags: list[float] = []
    taken: list[dict[str, int]] = []

    class Loop:
        now = 0.0

        def time(self) -> float:
            return self.now

    loop = Loop()

    async def nap(seconds: float) -> None:
        lags.append(shown.live.vital_signs._lag)
        assert taken, "the first sample is taken at once, as the base for comparison"
        if not late:
            raise asyncio.CancelledError
        loop.now += seconds + late.pop(0)

    monkeypatch.setattr(asyncio, "sleep", nap)
    monkeypatch.setattr(asyncio, "get_running_loop", lambda: loop)
    monkeypatch.setattr(shown.live.vital_signs._recent, "sample", lambda counts, now: taken.append(counts))
    monkeypatch.setattr(
        shown.live.vital_signs._waits, "new_lines", lambda hosts: [Wait("a.org: waits", {"host": "a.org"})]
    )
    with caplog.at_level(logging.DEBUG, "crawler"), pytest.raises(asyncio.CancelledError):
        coroutine = shown.live.vital_signs.watch()
        while True:
            coroutine.send(None)
    assert lags[:6] == pytest.approx([0.0, 0.5, 0.375, 0.28125, 0.2109375, 0.158203125])
    assert [record.message for record in caplog.records].count("a.org: waits") == 5, "logged once per second"
    pages = {"done": 1, "hosts": 1, "new": 0, "known": 0}  # the seed was not found on a page
    assert [counts | pages for counts in taken] == taken and len(taken) == 2, "sampled every five seconds"


async def test_a_page_server_listens_and_is_shown(open_joint: Callable[..., Joint], tmp_path: Path) -> None:
    """A single process opens no socket for sibling processes. The request counts of earlier runs are loaded."""
    shown = Shown(open_joint(serve={"address": "127.0.0.1:0"}))
    shown.joint.store(HOME)
    shown.joint.stages.commits.commit(shown.live.counts._stored({7: 1.0}, shown.joint.clock.now()))

    await shown.live.start()
    assert shown.live.sections()["serve"]["counted_pages"] == 1
    served = shown.live.sections()["serve"]
    assert (served["requests"], served["connections"], served["answers"]) == (0, 0, {})
    assert not (shown.joint.stages.directory / "serve.sock").exists()
    server = shown.live.server
    assert server is not None and server._siblings is None
    (await asyncio.open_connection(*server.listener.address))[1].close()
    await shown.live.close()
    with pytest.raises(OSError):
        await asyncio.open_connection(*server.listener.address)
    assert shown.process.last_changes == [shown.live.counts.put]
    assert next(scan_prefix(shown.joint.stages.store, TODO), None) is None


@pytest.mark.parametrize("me", ["p0", "p1"])
async def test_each_topic_has_one_subscriber(
    open_joint: Callable[..., Joint], monkeypatch: pytest.MonkeyPatch, me: str
) -> None:
    """Only the process that owns a topic subscribes to it. The subscriber runs as long as the services run."""
    topics = [(f"http://{letter}.org/feed", "http://hub.example/") for letter in "abcdefgh"]
    serve = {
        "address": "127.0.0.1:0",
        "websub": [" ".join(pair) for pair in topics],
        "public_url": "http://me.example",
    }
    shown = Shown(open_joint(names=("p0", "p1"), me=me, serve=serve))
    (shown.joint.stages.directory.parent / "seed").write_text(bytes(SEED_BYTES).hex())
    wanted: list[list[tuple[str, str]]] = []
    ran: list[bool] = []

    async def run(subscriber: Subscriber) -> None:
        ran.append(True)

    monkeypatch.setattr(Subscriptions, "want", lambda self, pairs: wanted.append(pairs))
    monkeypatch.setattr(Subscriber, "run", run)

    await shown.live.start()
    await asyncio.sleep(0)
    await shown.live.close()
    owner = shown.joint.stages.topology.partition.owner
    assert wanted == [[pair for pair in topics if owner(shown.fingerprint(pair[0])) == me]] and ran == [True]
    assert 0 < len(wanted[0]) < len(topics)


async def test_requests_determine_the_importance_of_known_pages(open_joint: Callable[..., Joint]) -> None:
    fresh = Shown(open_joint(**ON, serve={"address": "127.0.0.1:0"}))
    refresh = fresh.joint.stages.refresh
    assert refresh is not None

    await fresh.live.start()
    assert refresh.importance.asked == fresh.live.counts.demand.rate
    await fresh.live.close()


async def test_background_tasks_end_before_the_server_is_closed(shown: Shown) -> None:
    ends: list[str] = []

    async def long() -> None:
        try:
            await asyncio.sleep(1000.0)
        finally:
            await asyncio.sleep(0)
            ends.append("long")

    async def short() -> None:
        ends.append("short")

    shown.live._in_background(short())
    shown.live._in_background(long())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert ends == ["short"] and len(shown.live._tasks) == 1, "tasks that have ended are forgotten"
    await shown.live.close()
    assert ends == ["short", "long"]


def test_robots_txt_of_a_host_that_has_https_alone(shown: Shown) -> None:
    joint = shown.joint
    joint.seeds("https://s.org/")
    assert shown.ask("host", host="s.org")["robots"] == []
    joint.robots(b"")
    (told,) = shown.ask("host", host="s.org")["robots"]
    assert (told["of"], told["status"]) == ("https://s.org", 200)
    assert told["fetched_at"] == iso_time(joint.clock.now())
    joint.seeds("http://new.org/")
    assert shown.ask("host", host="new.org")["robots"] == []
