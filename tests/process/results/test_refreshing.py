"""Test refreshes with the real frontier: their results, how they are stored, and gaps between all requests."""

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from crawler.frontier.refresh.rate_balancing import LevelReport
from crawler.frontier.refresh.refreshing import Refresh
from crawler.records import Blame, Extracted, Fetch, FetchTask, LinkFlag, Outcome, PageState, TaskKind
from crawler.storage import keys
from crawler.storage.commit import Change
from crawler.storage.keys import REFRESH
from crawler.storage.kv import scan_prefix
from tests.process.support import Joint, fetch

ON = {"refresh": {"endless": True, "share": 0.5, "min_age": 0.0}}
_REFRESH = LinkFlag.REFRESH
HOST = "http://a.org/"


@pytest.fixture
def on(open_joint: Callable[..., Joint]) -> Joint:
    return open_joint(**ON)


def crawl(joint: Joint, *urls: str) -> None:
    """Fetch all new URLs, and the known pages that come between them."""
    joint.seeds(*urls)
    while joint.stages.views.frontier_counts().todo:
        fetch_task = joint.fetch_task()
        joint.page(fetch_task, fetch(fetch_task.url, fetch_task.url.encode()))


def refetch(joint: Joint, body: bytes = b"", **values: Any) -> FetchTask:
    """Refetch the next known page."""
    fetch_task = joint.fetch_task()
    assert fetch_task.flags & _REFRESH
    joint.page(
        fetch_task, fetch(fetch_task.url, body or fetch_task.url.encode(), began=joint.clock.now(), **values)
    )
    return fetch_task


def refresh_of(joint: Joint) -> Refresh:
    assert joint.stages.refresh is not None
    return joint.stages.refresh


def explain(joint: Joint, url: str) -> dict[str, Any]:
    return refresh_of(joint).views.explain(joint.fingerprint(url), joint.clock.now(), joint.clock.now())


def test_pages_are_refetched_without_end_and_none_is_forgotten(on: Joint) -> None:
    urls = [f"http://{host}.org/{n}" for host in "abc" for n in range(3)]
    crawl(on, *urls)
    asked = {refetch(on).url for _ in range(60)}
    assert asked == set(urls)
    assert not on.stages.views.problems()
    refresh_of(on)._check()


def test_the_gap_of_a_host_holds_over_both_sources(on: Joint) -> None:
    """For new URLs and known pages together, a host gets one request at a time, and none within its gap."""
    crawl(on, "http://a.org/", "http://b.org/")
    on.seeds(*[f"http://{host}.org/{n}" for host in "ab" for n in range(20)])
    before: dict[str, float] = {}
    kinds = set()
    for _ in range(60):
        fetch_task = on.fetch_task()
        now = on.clock.now()
        assert now - before.get(fetch_task.hostname, 0.0) >= 1.0
        answer = fetch(fetch_task.url, took=0.01)
        on.page(fetch_task, answer)
        before[fetch_task.hostname] = now
        kinds.add(fetch_task.flags & _REFRESH)
        on.frontier._check()
    assert kinds == {0, _REFRESH}


def test_no_known_page_is_fetched_while_a_fetch_task_holds_its_host(on: Joint) -> None:
    crawl(on, "http://a.org/", "http://a.org/1")
    fetch_task = on.fetch_task()
    on.clock.advance(1000.0)
    assert on.frontier.claim_next(on.clock.now()) is None
    on.page(fetch_task, fetch(fetch_task.url))
    assert on.fetch_task().hostname == "a.org"


def test_the_share_divides_the_rate_between_new_and_known_pages(open_joint: Callable[..., Joint]) -> None:
    joint = open_joint(refresh={"share": 0.25, "endless": True, "min_age": 0.0}, crawl={"rate": 5.0})
    crawl(joint, *[f"http://k{n}.org/" for n in range(12)])
    joint.seeds(*[f"http://n{n}.org/{m}" for n in range(12) for m in range(9)])
    kinds = []
    for _ in range(80):
        fetch_task = joint.fetch_task()
        kinds.append(bool(fetch_task.flags & _REFRESH))
        joint.page(fetch_task, fetch(fetch_task.url, fetch_task.url.encode()))
    assert 10 <= sum(kinds) <= 30


def test_with_a_share_of_0_all_new_urls_go_first(open_joint: Callable[..., Joint]) -> None:
    """Known pages are fetched when no new URL can be fetched. The share can be changed while the crawl runs."""
    joint = open_joint(refresh={"share": 0.0, "endless": True, "min_age": 0.0}, crawl={"rate": 5.0})
    known = [f"http://k{n}.org/" for n in range(12)]
    crawl(joint, *known)
    joint.clock.advance(100.0)
    joint.seeds(*[f"http://n{n}.org/{m}" for n in range(12) for m in range(3)])
    kinds = []
    for _ in range(60):
        fetch_task = joint.fetch_task()
        kinds.append(bool(fetch_task.flags & _REFRESH))
        joint.page(fetch_task, fetch(fetch_task.url, fetch_task.url.encode()))
    # Known pages are fetched only while the new hosts are looked up, or while all of them wait for their gaps.
    assert sum(kinds[:40]) <= 5 and all(kinds[44:])
    refresh_of(joint).portion.configure(replace(joint.stages.config.refresh, share="default"))
    assert refresh_of(joint).portion.share.auto


def test_a_host_that_waits_with_a_known_page_comes_before_other_pages(
    open_joint: Callable[..., Joint],
) -> None:
    """If such a host came after other pages, it would wait forever for the fetch of its robots.txt.

    The other hosts would use the whole rate.
    """
    ready = [{"match": f"{host}.org", "robots": "ignore"} for host in "ab"]
    joint = open_joint(**ON, crawl={"rate": 1.5}, override=ready)
    urls = [f"http://{host}.org/{n}" for host in "abcdef" for n in range(2)]
    crawl(joint, *urls)
    refresh_of(joint).portion.share.refresh = 1.0
    joint.clock.advance(2 * 86_400.0)  # after this time, the stored robots.txt files have expired
    assert {refetch(joint).url for _ in range(60)} == set(urls)
    joint.frontier._check()


def test_refresh_state_survives_reopening(on: Joint) -> None:
    crawl(on, "http://a.org/", "http://a.org/1", "http://b.org/")
    for n in range(20):
        refetch(on, b"version %d" % n)
    known = {url: explain(on, url) for url in ("http://a.org/", "http://a.org/1", "http://b.org/")}
    assert sum(1 for _ in scan_prefix(on.stages.store, REFRESH)) == 3
    on.reopen()
    assert len(refresh_of(on)) == 3
    for url, before in known.items():
        after = explain(on, url)
        for name in ("crawled_at", "changes", "watched", "importance", "signals"):
            assert after[name] == pytest.approx(before[name]), (url, name)
    refetch(on)


def test_pages_of_a_crawl_without_refresh_join_the_schedule(open_joint: Callable[..., Joint]) -> None:
    joint = open_joint()
    crawl(joint, "http://a.org/", "http://a.org/1")
    gone = joint.follow("http://a.org/gone", fetch("http://a.org/gone", outcome=Outcome.GONE, status=404))
    assert gone.counts["pages.gone"] == 1
    joint.reopen(replace(joint.stages.config, refresh=replace(joint.stages.config.refresh, endless=True)))
    assert len(refresh_of(joint)) == 2


@pytest.mark.parametrize(
    ("answer", "state", "stored"),
    [
        ({"outcome": Outcome.GONE, "status": 404}, "away", PageState.GONE),
        ({"outcome": Outcome.REDIRECT, "status": 301, "location": "/x"}, "away", PageState.REDIRECTED),
        ({"outcome": Outcome.TEMPORARY, "status": 500, "blame": Blame.URL}, "failed", PageState.STORED),
        ({"outcome": Outcome.RESET, "status": 0, "blame": Blame.HOST}, "failed", PageState.STORED),
        (
            {"outcome": Outcome.UNCHANGED, "status": 304, "body": b"", "content": b""},
            "waits",
            PageState.STORED,
        ),
    ],
)
def test_the_effect_of_each_answer_on_a_page(
    on: Joint, answer: dict[str, Any], state: str, stored: PageState
) -> None:
    crawl(on, "http://a.org/")
    fetch_task = on.fetch_task()
    on.page(fetch_task, fetch(fetch_task.url, **answer))
    on.clock.advance(5.0)
    assert explain(on, "http://a.org/")["state"] == state
    record = on.stages.pages.record(fetch_task.fingerprint)
    assert record is not None and record.state is stored and not record.flags & _REFRESH
    assert not on.stages.views.problems()


def test_a_page_that_robots_txt_now_denies_is_refreshed_without_a_request(on: Joint) -> None:
    crawl(on, "http://a.org/")
    on.clock.advance(2 * 86_400.0)  # after this time, the stored robots.txt has expired
    on.robots(b"User-agent: *\nDisallow: /\n", content_type="text/plain")
    change = on.deny()
    assert change.counts["refresh.robots_denied"] == 1
    assert explain(on, "http://a.org/")["state"] == "away"


def test_a_blocked_host_gets_no_request_until_unblocked(on: Joint) -> None:
    crawl(on, "http://a.org/", "http://b.org/")
    on.frontier.blocks.block("a.org")
    assert {refetch(on).hostname for _ in range(10)} == {"b.org"}
    on.frontier.blocks.unblock("a.org", on.clock.now())
    assert {refetch(on).hostname for _ in range(10)} == {"a.org", "b.org"}


def test_a_requested_page_is_fetched_next(on: Joint) -> None:
    urls = [f"http://a.org/{n}" for n in range(30)]
    crawl(on, *urls)
    assert refresh_of(on).claims.request(on.fingerprint(urls[17]))
    assert not refresh_of(on).claims.request(12345)
    assert refetch(on).url == urls[17]
    refresh_of(on)._check()


def test_signals_are_stored_with_the_next_group(on: Joint) -> None:
    crawl(on, "http://a.org/", "http://a.org/1")
    assert refresh_of(on).changes.note_changes([on.fingerprint("http://a.org/1"), 99], 3, on.clock.now()) == 1
    change = Change()
    refresh_of(on).changes.stage(change)
    assert any(key.startswith(REFRESH) for key, _ in change.operations)
    assert explain(on, "http://a.org/1")["signals"][3] == 1


def test_conditions_are_those_of_the_copy_and_are_checked_periodically(on: Joint) -> None:
    crawl(on, "http://a.org/")
    tagged = {"headers": ((b"ETag", b'W/"1"'), (b"Last-Modified", b"Mon, 01 Jan 2024 00:00:00 GMT"))}
    refetch(on, b"1", **tagged)
    asked = []
    for _ in range(12):
        fetch_task = on.fetch_task()
        pair = on.earlier.conditions(fetch_task, on.clock.now())
        asked.append(pair)
        answer: Fetch = (
            fetch(fetch_task.url, b"", outcome=Outcome.UNCHANGED, status=304, **tagged)
            if any(pair)
            else fetch(fetch_task.url, b"1", **tagged)
        )
        on.page(fetch_task, answer)
    assert set(asked) == {("", ""), ('W/"1"', "Mon, 01 Jan 2024 00:00:00 GMT")}
    assert asked.count(("", "")) == 2  # a request without conditions after five answers of 304 in a row


def test_a_host_with_wrong_validators_gets_unconditional_requests(on: Joint) -> None:
    crawl(on, "http://a.org/")
    tagged = {"headers": ((b"ETag", b'"for ever"'),)}
    refetch(on, b"1", **tagged)
    for n in range(30):
        fetch_task = on.fetch_task()
        if any(on.earlier.conditions(fetch_task, on.clock.now())):
            on.page(fetch_task, fetch(fetch_task.url, b"", outcome=Outcome.UNCHANGED, status=304, **tagged))
        else:
            on.page(fetch_task, fetch(fetch_task.url, b"changed %d" % n, **tagged))
            break
    assert refresh_of(on).validators.lies == 1
    for n in range(10):
        fetch_task = on.fetch_task()
        assert on.earlier.conditions(fetch_task, on.clock.now()) == ("", "")
        on.page(fetch_task, fetch(fetch_task.url, b"again %d" % n, **tagged))


@pytest.mark.parametrize(("change", "counted"), [("text", "content_same"), ("raw", "content_changed")])
def test_a_stamp_in_the_markup_is_a_change_only_where_any_byte_counts(
    open_joint: Callable[..., Joint], change: str, counted: str
) -> None:
    joint = open_joint(**ON, pages={"change": change})
    joint.follow("http://a.org/", fetch("http://a.org/", b"<p>same</p><!-- 1 -->"))
    fetch_task = joint.fetch_task()
    said = joint.page(
        fetch_task, fetch(fetch_task.url, b"<p class=x> same</p><!-- 2 -->", began=joint.clock.now())
    )
    assert said.counts[f"refresh.{counted}"] == 1
    fetch_task = joint.fetch_task()
    said = joint.page(fetch_task, fetch(fetch_task.url, b"<p>other</p><!-- 2 -->", began=joint.clock.now()))
    assert said.counts["refresh.content_changed"] == 1


def test_small_changes_of_a_long_text_add_up_to_one(open_joint: Callable[..., Joint]) -> None:
    """By simhash, one changed word in hundreds does not count as a change.

    But a copy is compared with the copy at the last change, so changed words add up.
    """
    joint = open_joint(**ON, pages={"change": "simhash", "simhash_distance": 6})
    words = [f"word{n}" for n in range(400)]
    joint.follow("http://a.org/", fetch("http://a.org/", f"<p>{' '.join(words)}".encode()))
    said = []
    for n in range(0, 400, 4):
        words[n] = f"other{n}"
        fetch_task = joint.fetch_task()
        body = f"<p>{' '.join(words)}".encode()
        said.append(joint.page(fetch_task, fetch(fetch_task.url, body, began=joint.clock.now())))
    changed = [each.counts.get("refresh.content_changed", 0) for each in said]
    assert changed[0] == 0 and 2 <= sum(changed) <= 40


def test_an_override_bounds_the_ages_of_a_part_of_the_web(open_joint: Callable[..., Joint]) -> None:
    """A feed is fetched hourly, an archive at most daily.

    These bounds do not affect other hosts, and they still hold after reopening.
    """
    hourly = {"match": "http://a.org/feed", "max_age": 3600.0, "min_age": 600.0}
    joint = open_joint(**ON, crawl={"rate": 0.05}, override=[hourly, {"match": "b.org", "min_age": 86_400.0}])
    crawl(joint, "http://a.org/feed", *[f"http://{host}.org/{n}" for host in "abc" for n in range(6)])
    asked: dict[str, list[float]] = {}

    def watch(times: int) -> None:
        for _ in range(times):
            asked.setdefault(refetch(joint).url, []).append(joint.clock.now())

    watch(200)
    joint.reopen()
    watch(200)
    gaps = [later - earlier for earlier, later in pairwise(asked["http://a.org/feed"])]
    assert min(gaps) >= 600.0 and max(gaps) < 2 * 3600.0
    assert not any(url.startswith("http://b.org") for url in asked), "its pages are below their minimal age"
    assert sum(url.startswith("http://c.org") for url in asked) == 6


def test_an_override_can_exclude_patterns_from_the_comparison(open_joint: Callable[..., Joint]) -> None:
    joint = open_joint(**ON, override=[{"match": "a.org", "ignore": ["visits: [0-9]+"]}])
    crawl(joint, "http://a.org/", "http://b.org/")
    changed = []
    for n in range(8):
        fetch_task = joint.fetch_task()
        said = joint.page(
            fetch_task, fetch(fetch_task.url, b"<p>visits: %d</p>" % n, began=joint.clock.now())
        )
        changed.append((fetch_task.hostname, said.counts.get("refresh.content_changed", 0)))
    # only the first refetch brings different content
    assert sum(n for host, n in changed if host == "a.org") == 1
    assert all(n for host, n in changed if host == "b.org")


def test_dates_of_a_sitemap_are_signals_from_its_second_reading_on(on: Joint) -> None:
    crawl(on, "http://a.org/", "http://a.org/1")
    url, now = "http://a.org/map.xml", on.clock.now()
    dates = [("http://a.org/1", now + 0.5), ("/no/url", now + 0.5), ("http://b.org/", now + 0.5)]
    later = Extracted(
        url, dated=[("http://a.org/1", now + 500.0), ("http://a.org/", now - 500.0)], told_by="sitemap"
    )
    on.add(url, flags=LinkFlag.SITEMAP)
    for body, said in ((b"1", Extracted(url, dated=dates, told_by="sitemap")), (b"2", later)):
        assert explain(on, "http://a.org/1")["signals_by_source"] == {}
        read(on, url, body, said)
    assert explain(on, "http://a.org/1")["signals_by_source"] == {"sitemap": 1}
    assert explain(on, "http://a.org/")["signals_by_source"] == {}
    (row,) = refresh_of(on).changes.heard()
    assert row["source"] == "sitemap" and 0.0 < row["precision"] < 1.0
    refetch(on, b"its group of commits has the signal, too")
    (row,) = refresh_of(on).changes.heard()
    on.reopen()
    # all values except the delays are stored
    assert refresh_of(on).changes.heard() == [{**row, "delay": None}]


def read(on: Joint, url: str, body: bytes, said: Extracted) -> None:
    """Refetch a page every minute until `url` is refetched; answer its request with `body`, which contains `said`."""
    while (fetch_task := on.fetch_task()).url != url:
        on.page(fetch_task, fetch(fetch_task.url, fetch_task.url.encode(), began=on.clock.now()))
        on.clock.advance(60.0)
    on.page(fetch_task, fetch(url, body, began=on.clock.now()), said)


@pytest.mark.parametrize(
    ("status", "outcome"), [(404, Outcome.GONE), (500, Outcome.TEMPORARY), (0, Outcome.CONNECT_ERROR)]
)
def test_a_date_after_its_last_fetch_brings_a_url_without_a_copy_into_the_schedule(
    on: Joint, status: int, outcome: Outcome
) -> None:
    """A sitemap may list a page before it is published, and a server may fail for a while."""
    early, dead = "http://a.org/early", "http://a.org/dead"
    on.store(early, dead, status=status, outcome=outcome)
    url, now = "http://a.org/map.xml", on.clock.now()
    on.add(url, flags=LinkFlag.SITEMAP)
    read(on, url, b"1", Extracted(url, told_by="sitemap"))
    read(on, url, b"2", Extracted(url, dated=[(early, now + 500.0), (dead, now - 500.0)], told_by="sitemap"))
    assert explain(on, early)["signals_by_source"] == {"sitemap": 1}
    assert explain(on, early)["state"] == "away"
    assert explain(on, dead).get("signals_by_source", {}) == {}
    read(on, early, b"published", Extracted(early))
    assert on.record(early).state is PageState.STORED


FAILURE: dict[str, Any] = {"status": 500, "outcome": Outcome.TEMPORARY, "blame": Blame.URL}
DAY = 86_400.0


def fail(joint: Joint, url: str) -> None:
    """Crawl a URL whose tries all fail."""
    joint.seeds(url)
    while joint.stages.views.frontier_counts().todo:
        joint.page(joint.fetch_task(), fetch(url, began=joint.clock.now(), **FAILURE))


def test_a_url_whose_first_tries_failed_is_tried_for_thirty_days(on: Joint) -> None:
    """Without a signal. Then the URL leaves the schedule, also in the store."""
    url, key = "http://a.org/broken", keys.REFRESH + on.fingerprint("http://a.org/broken").to_bytes(8, "big")
    fail(on, url)
    tries = [on.clock.now()]
    while on.fingerprint(url) in refresh_of(on):
        assert explain(on, url)["state"] == "away" and on.stages.store.get(key)
        task = on.fetch_task()
        assert task.url == url and task.flags & _REFRESH
        tries.append(on.clock.now())
        if len(tries) == 4:
            on.reopen()
            task = on.fetch_task()
        on.page(task, fetch(url, began=on.clock.now(), **FAILURE))
        refresh_of(on)._check()
    waits = [later - earlier for earlier, later in pairwise(tries)]
    assert 3600.0 <= waits[0] < 3700.0 and waits == sorted(waits) and len(waits) == 7
    assert 30 * DAY <= tries[-1] - tries[0] < 60 * DAY
    on.reopen()
    assert on.stages.store.get(key) is None and on.fingerprint(url) not in refresh_of(on)
    assert not on.stages.views.problems()


def test_a_url_that_an_earlier_run_left_for_a_later_try_enters_the_schedule(
    open_joint: Callable[..., Joint],
) -> None:
    """A finite crawl does not make later tries through the schedule, even if it refreshes pages."""
    joint = open_joint(refresh={"share": 0.5})
    url = "http://a.org/broken"
    fail(joint, url)
    assert joint.fingerprint(url) not in refresh_of(joint)
    config = replace(joint.stages.config, refresh=replace(joint.stages.config.refresh, endless=True))
    joint.reopen(config)
    assert explain(joint, url)["deadline"] == pytest.approx(joint.record(url).tried_at + 3600.0)
    task = joint.fetch_task()
    joint.page(task, fetch(url, began=joint.clock.now()))
    assert joint.record(url).state is PageState.STORED and explain(joint, url)["state"] != "away"


def test_a_url_that_has_failed_for_days_enters_the_schedule_with_a_long_wait(
    open_joint: Callable[..., Joint],
) -> None:
    joint = open_joint()
    url = "http://a.org/broken"
    fail(joint, url)
    joint.clock.advance(3 * DAY)
    joint.commit(
        joint.stages.commits.queue_again([joint.record(url).link(joint.fingerprint(url), LinkFlag.AGAIN)])
    )
    while joint.stages.views.frontier_counts().todo:
        joint.page(joint.fetch_task(), fetch(url, began=joint.clock.now(), **FAILURE))
    config = replace(joint.stages.config, refresh=replace(joint.stages.config.refresh, endless=True))
    joint.reopen(config)
    wait = explain(joint, url)["deadline"] - joint.record(url).tried_at
    assert 6 * DAY <= wait <= 18 * DAY


def test_a_date_without_a_time_may_mean_the_end_of_its_day(on: Joint) -> None:
    crawl(on, "http://a.org/", "http://a.org/1")
    url, midnight = "http://a.org/map.xml", on.clock.now() // 86_400.0 * 86_400.0
    on.add(url, flags=LinkFlag.SITEMAP)
    read(on, url, b"1", Extracted(url, told_by="sitemap"))
    read(on, url, b"2", Extracted(url, dated=[("http://a.org/1", midnight)], told_by="sitemap"))
    assert explain(on, "http://a.org/1")["signals_by_source"] == {"sitemap": 1}


def test_a_sitemap_is_read_as_often_as_its_news_justify(on: Joint) -> None:
    """A sitemap that reports many changes is read more often. The counts of its news survive a restart of the process."""
    few, many = ["http://a.org/1"], [f"http://b.org/{n}" for n in range(40)]
    crawl(on, *few, *many)
    maps = [urls[0].rpartition("/")[0] + "/map.xml" for urls in (few, many)]
    for url, urls in zip(maps, (few, many), strict=True):
        on.add(url, flags=LinkFlag.SITEMAP)
        read(on, url, b"0", Extracted(url, hrefs=urls, told_by="sitemap"))
        for n in range(1, 4):
            on.clock.advance(30 * 86_400.0)
            said = [(each, on.clock.now() + 1e6) for each in urls]
            read(on, url, b"%d" % n, Extracted(url, hrefs=urls, dated=said, told_by="sitemap"))
    stored = []
    for _ in range(2):
        refresh, now = refresh_of(on), on.clock.now()
        numbers = [refresh.schedule.find(on.fingerprint(url)) for url in maps]
        assert [refresh.schedule.records.page_state(page)[4] for page in numbers] == [0.0, 0.0], (
            "no change rate is learned"
        )
        for url, page in zip(maps, numbers, strict=True):
            age = (
                refresh.schedule.overview.due_at(page, now)
                - refresh.schedule.overview.page(page, now).crawled_at
            )
            level = refresh.schedule.overview.page(page, now).level
            assert age <= 2.0 * refresh.ages.readings.interval(on.fingerprint(url), level)
        stored.append([refresh.ages.readings.interval(on.fingerprint(url), 1e5) for url in maps])
        on.reopen()
    assert stored[0] == stored[1] and 2.0 * stored[0][1] < stored[0][0]


def test_a_users_bounds_for_a_map_hold(open_joint: Callable[..., Joint]) -> None:
    rarely = {"match": "http://a.org/map", "min_age": 432_000.0}
    joint = open_joint(**ON, override=[rarely])
    urls = [f"http://a.org/{n}" for n in range(40)]
    crawl(joint, *urls)
    url = "http://a.org/map.xml"
    joint.add(url, flags=LinkFlag.SITEMAP)
    for n in range(2):
        joint.clock.advance(500_000.0)
        read(joint, url, b"%d" % n, Extracted(url, hrefs=urls, told_by="sitemap"))
    joint.clock.advance(90.0)
    assert explain(joint, url)["state"] == "too young"


def test_reported_freshness_follows_the_crawl_and_survives_reopening(on: Joint) -> None:
    """Each fetch finds that the page has changed.

    The model learns this only slowly, but the measured freshness shows it at once.
    """
    opened = refresh_of(on).news.counts.since
    crawl(on, "http://a.org/", "http://a.org/1")
    for round_ in range(30):
        on.clock.advance(86_400.0)
        refetch(on, b"%d" % round_)
    page = refresh_of(on).schedule.find(on.fingerprint("http://a.org/"))
    refresh_of(on).portion.balance.tilt = 2.5
    refetch(on)
    on.clock.advance(900.0)
    known = refresh_of(on).schedule.overview.page(page, on.clock.now())
    recalibration = refresh_of(on).expectation.recalibration
    said = refresh_of(on).views.probability(on.fingerprint("http://a.org/"), on.clock.now(), on.clock.now())
    assert said == pytest.approx(recalibration.corrected(known.fresh, known.hearing), abs=1e-9)
    assert said is not None and said < known.fresh
    on.reopen()
    assert refresh_of(on).expectation.recalibration.numbers == recalibration.numbers
    assert refresh_of(on).portion.balance.tilt == 2.5, "the process keeps its part of the rate"
    assert refresh_of(on).news.counts.since == opened, "new pages per day are counted from the first start"


def test_a_copy_from_before_the_last_answer_is_fresh_by_its_own_age(on: Joint) -> None:
    """Until an answer is committed, the page server serves the copy before it.

    So the age of that earlier copy counts.

    The freshness of such a copy was once computed by another formula.
    """
    crawl(on, "http://a.org/")
    refresh, page = refresh_of(on), on.fingerprint("http://a.org/")
    before = explain(on, "http://a.org/")["crawled_at"]
    on.clock.advance(20 * 86_400.0)
    refetch(on)
    now = on.clock.now()
    fresh = refresh.views.probability(page, now, now)
    assert fresh == pytest.approx(1.0)
    old = refresh.views.probability(page, before, now)
    assert old is not None and old < 0.9
    assert refresh.views.explain(page, before, now)["fresh"] == old
    on.clock.advance(20 * 86_400.0)
    later = on.clock.now()
    assert refresh.views.probability(page, now, later) == pytest.approx(old, abs=1e-4), "its age alone counts"


def test_served_requests_are_importance_that_outlasts_reopening(on: Joint) -> None:
    crawl(on, "http://a.org/", "http://a.org/1", "http://b.org/")
    refresh, asked = refresh_of(on), {on.fingerprint("http://a.org/1"): 2.0 / 86_400.0}
    refresh.importance.asked = lambda fingerprint, now: asked.get(fingerprint, 0.0)
    change = Change()
    stranger = on.fingerprint("http://c.org/")
    assert (
        refresh.outcomes.renew_importance(
            [on.fingerprint("http://a.org/1"), stranger], on.clock.now(), change
        )
        == 1
    )
    on.stages.commits.commit_now(change)
    assert explain(on, "http://a.org/1")["importance"] == pytest.approx(3.0, rel=1e-3)
    on.reopen()
    assert explain(on, "http://a.org/1")["importance"] == pytest.approx(3.0, rel=1e-3)
    assert explain(on, "http://b.org/")["importance"] == 1.0
    while refetch(on).url != "http://a.org/1":  # the next fetch records that requests have stopped
        pass
    assert explain(on, "http://a.org/1")["importance"] == 1.0


def test_arms_divide_the_pages_and_report_their_freshness(open_joint: Callable[..., Joint]) -> None:
    joint = open_joint(refresh={**ON["refresh"], "arms": ["ncis", "uniform"]})
    crawl(joint, *[f"http://{host}.org/{n}" for host in "abcd" for n in range(8)])
    for n in range(120):
        refetch(joint, b"version %d" % n)
    view = refresh_of(joint).views.summary(joint.clock.now())
    one, other = view["arms"]
    assert (one["policy"], other["policy"]) == ("ncis", "uniform")
    assert one["pages"] + other["pages"] == 32 and abs(one["refreshes"] - other["refreshes"]) <= 4
    for arm in view["arms"]:
        assert 0.2 < arm["seen"] < 0.7  # nearly all refreshes found a change
        assert 0.0 <= arm["expected"] <= 1.0
    assert sum(each["refreshes"] for each in view["calibration"]) >= 120
    refresh_of(joint)._check()


def test_a_process_with_unused_rate_reports_itself_idle(open_joint: Callable[..., Joint]) -> None:
    """The share of the process is proportional to its `tilt`.

    The tilt falls until other processes use the free rate.
    """
    joint = open_joint(**ON, crawl={"rate": 2.0})
    crawl(joint, *[f"http://a.org/{n}" for n in range(5)])
    refresh, waited = refresh_of(joint), 0.0
    level = refresh.portion.exchange_levels({}, 1.0, joint.clock.now()).level
    others = {"p1": LevelReport(level, 50.0)}
    for _ in range(60):
        waited += 1.0
        own = refresh.portion.exchange_levels(others, waited, joint.clock.advance(1.0))
    assert (
        own.busy
        and own.weight == pytest.approx(5.0 * refresh.portion.balance.tilt, rel=0.1)
        and own.level > 0.0
    )
    before = refresh.portion.balance.tilt
    for _ in range(60):
        own = refresh.portion.exchange_levels(others, waited, joint.clock.advance(1.0))
    assert not own.busy and refresh.portion.balance.tilt < before
    refresh.portion.divide(0.3, 0.1, 2.0)
    assert refresh.portion.share.refresh == 0.25 and refresh.schedule.pace.rate == pytest.approx(0.2)
    refresh.portion.divide(0.0, 0.0, 2.0)
    assert refresh.schedule.pace.rate == pytest.approx(0.2), (
        "a process without a share keeps its previous rate"
    )
    refresh._check()


def test_a_prediction_counts_the_signals_that_led_to_the_refresh(on: Joint) -> None:
    crawl(on, "http://a.org/")
    assert refresh_of(on).changes.note_changes([on.fingerprint("http://a.org/")] * 3, 2, on.clock.now()) == 3
    expected = 1.0 - explain(on, "http://a.org/")["fresh"]
    refetch(on, b"another")
    (row,) = refresh_of(on).views.summary(on.clock.now())["calibration"]
    assert row["found"] == 1.0 and row["predicted"] == pytest.approx(expected, abs=0.01) and expected > 0.8


def test_the_refresh_view_shows_ages_hosts_and_the_effect_of_more_rate(
    open_joint: Callable[..., Joint],
) -> None:
    joint = open_joint(**ON, crawl={"rate": 2.0})
    crawl(joint, *[f"http://{host}.org/{n}" for host in "ab" for n in range(5)])
    for n in range(50):
        refetch(joint, b"version %d" % n)
    now = joint.clock.now()
    view = refresh_of(joint).views.summary(now)
    assert view["pages"] == 10 and 0.0 < view["expected_freshness"] <= 1.0
    assert 0.0 <= view["ages"]["median"] <= view["ages"]["p90"] <= view["ages"]["oldest"]
    assert view["more_rate"]["share"] == 0.1 and 0.0 <= view["more_rate"]["gain"] < 0.1
    assert sorted(pages for pages, _ in refresh_of(joint).views.by_host(now).values()) == [5, 5]
    why = explain(joint, "http://a.org/0")
    assert why["waits_for"] and why["rate_error"] > 0.0 and 0.0 <= why["fresh"] <= 1.0


@pytest.mark.parametrize("share", [0.9, 0.5, "auto"])
@pytest.mark.parametrize("hosts", [1, 3])
def test_a_finite_crawl_goes_on_after_its_robots_txt_have_expired(
    open_joint: Callable[..., Joint], hosts: int, share: float | str
) -> None:
    """All hosts may be chosen for known pages, and wait for their robots.txt first. Their new URLs are not forgotten."""
    joint = open_joint(refresh={"share": share, "min_age": 1.0}, crawl={"scope": "any"})
    homes = [f"http://h{n}.org/" for n in range(hosts)]
    joint.store(*homes)
    new = {home + str(n) for home in homes for n in range(3)}
    joint.seeds(*new)
    joint.reopen()
    joint.clock.advance(48 * 3600.0)
    fetched, robots = set(), list[FetchTask]()
    for _ in range(500):
        if over := joint.frontier.claims.finished(joint.clock.now()):
            break
        now = joint.clock.now()
        fetch_task = joint.frontier.claim_next(now)
        if fetch_task is None and robots:
            for each in robots:
                missing = fetch(each.url, b"", outcome=Outcome.GONE, status=404)
                joint.commit(joint.results.robots(each, missing, now))
            robots = []
        elif fetch_task is None:
            wakeup = joint.frontier.next_wakeup(now)
            assert wakeup is not None
            joint.clock.advance(max(wakeup - now, 0.001))
        elif fetch_task.kind is TaskKind.RESOLVE:
            joint.frontier.resolved(fetch_task, [f"127.0.1.{fetch_task.hostname[1]}"], now + 1e6, now)
        elif fetch_task.kind is TaskKind.ROBOTS:
            robots.append(fetch_task)
        else:
            fetched.add(fetch_task.url)
            joint.page(fetch_task, fetch(fetch_task.url, b"x", began=now))
    assert over == "done" and new <= fetched
