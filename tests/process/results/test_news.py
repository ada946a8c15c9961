"""Test with real stages the credit that a hub gets if a new link on it leads to a new page."""

from collections.abc import Callable
from email.utils import formatdate
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from crawler.change_signals import Signalled
from crawler.frontier.refresh.delays import bin_of
from crawler.process.answering.commands import Commands
from crawler.process.opening.stages import Stages
from crawler.records import Extracted, Link, LinkFlag, Outcome, PageRecord, PageState
from crawler.splitter.inbox import Received
from crawler.storage import keys
from crawler.storage.commit import Change
from crawler.storage.kv import scan_prefix
from tests.process.results.test_refreshing import crawl, explain, read, refresh_of
from tests.process.support import Joint, fetch, made, redirect

DAY = 86_400.0
HUB, OTHER, ARTICLE = "http://a.org/hub", "http://a.org/other", "http://a.org/article"
_REFRESH = LinkFlag.REFRESH


@pytest.fixture
def on(open_joint: Callable[..., Joint]) -> Joint:
    return open_joint(refresh={"endless": True, "share": "auto", "min_age": 0.0})


def show(joint: Joint, *links: str, hub: str = HUB, **told: Any) -> None:
    """Refetch known pages until the hub is refetched, and answer the hub's request with a page that links to `links`."""
    for _ in range(50):
        joint.clock.advance(DAY)
        fetch_task = joint.fetch_task()
        assert fetch_task.flags & _REFRESH, fetch_task
        if fetch_task.url == hub:
            body = repr((joint.clock.now(), links)).encode()
            shown = fetch(hub, body, began=joint.clock.now())
            joint.page(fetch_task, shown, Extracted(hub, hrefs=list(links), **told))
            return
        joint.page(fetch_task, fetch(fetch_task.url, fetch_task.url.encode()))
    raise AssertionError("the hub was not refetched within 50 fetches")


def answer(joint: Joint, url: str, **values: Any) -> None:
    """Fetch a new URL. First, answer the requests for known pages that come before it."""
    joint.stages.commits.commit_now(Change())  # an empty commit flushes the DUE
    for _ in range(50):
        fetch_task = joint.fetch_task()
        if fetch_task.url == url:
            body = values.pop("body", url.encode())
            values.setdefault("began", joint.clock.now())
            given = redirect(url, values["location"]) if "location" in values else fetch(url, body, **values)
            joint.page(fetch_task, given)
            return
        assert fetch_task.flags & _REFRESH, fetch_task
        joint.page(fetch_task, fetch(fetch_task.url, fetch_task.url.encode()))
    raise AssertionError("the URL was not fetched within 50 fetches")


def news(joint: Joint) -> dict[str, Any]:
    seen: dict[str, Any] = refresh_of(joint).views.summary(joint.clock.now())["news"]
    return seen


def why(stages: Stages, url: str) -> dict[str, Any]:
    """Return what `crawler why` shows about the page as a hub."""
    said = Commands(stages, stages.commits.commit_now).run({"command": "why", "url": url})
    hub: dict[str, Any] = said["refresh"]["hub"]
    return hub


def is_new(joint: Joint, url: str) -> bool:
    """Return whether the schedule takes the page for one that appeared while the crawl was watching."""
    refresh = refresh_of(joint)
    page = refresh.schedule.find(joint.fingerprint(url))
    return refresh.schedule.overview.page(page, joint.clock.now()).new


@pytest.mark.parametrize(
    ("url", "told_by", "is_list"),
    [
        ("http://a.org/", "", True),
        ("http://a.org/map.xml", "sitemap", True),
        ("http://a.org/news.xml", "feed", True),
        ("http://a.org/files/", "listing", False),
        ("http://a.org/?page=2", "", False),
        (OTHER, "", False),
    ],
)
def test_new_pages_are_expected_of_a_list_of_a_whole_site_even_if_it_is_empty(
    on: Joint, url: str, told_by: str, is_list: bool
) -> None:
    on.visit(fetch(url, b"empty"), Extracted(url, told_by=told_by))
    assert bool(why(on.stages, url)) == is_list


def test_a_refetched_hub_gets_credit_for_its_new_links(on: Joint) -> None:
    """The credit appears in `why` and in the status. The status counts pages per day since the first start."""
    opened = on.clock.now()
    crawl(on, HUB, OTHER)
    assert why(on.stages, HUB) == {} and news(on)["found"] == 0
    show(on, ARTICLE)
    answer(on, ARTICLE)
    assert why(on.stages, HUB)["pages_per_day"] > 0.0
    assert why(on.stages, OTHER) == {} == why(on.stages, ARTICLE)
    assert news(on) | {"found": 1, "by_kind": {"page": 1}, "hubs": 1} == news(on)
    assert news(on)["per_day"] == pytest.approx(DAY / (on.clock.now() - opened), abs=0.01)
    assert [is_new(on, url) for url in (ARTICLE, OTHER)] == [True, False]


def test_links_in_the_first_copy_of_a_page_earn_no_credit(on: Joint) -> None:
    """The links in the first copy of a page may have been there for any length of time."""
    on.visit(fetch(HUB), Extracted(HUB, hrefs=[ARTICLE]))
    answer(on, ARTICLE)
    assert why(on.stages, HUB) == {} and news(on)["found"] == 0
    assert not is_new(on, ARTICLE)


def test_a_hub_whose_link_is_redirected_gets_the_credit(on: Joint) -> None:
    """The link is redirected twice, the second time to another host."""
    crawl(on, HUB, "http://b.org/")
    hops = ["http://a.org/1", "http://a.org/2", "http://b.org/3"]
    show(on, hops[0])
    for url, location in pairwise(hops):
        answer(on, url, location=location)
    assert why(on.stages, HUB) == {}
    answer(on, hops[-1])
    assert why(on.stages, HUB)["pages_per_day"] > 0.0 and news(on)["by_kind"] == {"page": 1}


@pytest.mark.parametrize("kind", ["sitemap", "feed"])
def test_a_sitemap_and_a_feed_are_hubs(on: Joint, kind: str) -> None:
    """The date that a sitemap or feed gives for a URL counts as the time when the page was published."""
    crawl(on, OTHER)
    url = f"http://a.org/{kind}.xml"
    on.add(url, flags=LinkFlag.SITEMAP if kind == "sitemap" else LinkFlag.FEED)
    answer(on, url)
    born = on.clock.now()
    show(on, ARTICLE, hub=url, told_by=kind, dated=[(ARTICLE, born)])
    answer(on, ARTICLE)
    assert why(on.stages, url)["pages_per_day"] > 0.0
    seen = news(on)
    assert seen["by_kind"] == {kind: 1} and seen["dated"] == 1
    assert seen["delay_median"] == pytest.approx(on.clock.now() - born, rel=0.1)


@pytest.mark.parametrize(
    "came",
    [
        {"outcome": Outcome.GONE, "status": 404},
        {"outcome": Outcome.ROBOTS_DENIED, "status": 0},
        {"body": OTHER.encode()},
        {"location": OTHER},
    ],
    ids=["gone", "denied", "duplicate", "redirect to a known page"],
)
def test_a_url_that_does_not_become_a_page_earns_no_credit(on: Joint, came: dict[str, Any]) -> None:
    crawl(on, HUB, OTHER)
    show(on, ARTICLE)
    answer(on, ARTICLE, **came)
    assert why(on.stages, HUB) == {} and news(on)["found"] == 0


def test_credit_survives_a_kill(on: Joint, tmp_path: Path) -> None:
    """The credit is on disk as soon as the article is committed. No clean stop is needed."""
    crawl(on, HUB, OTHER)
    show(on, ARTICLE)
    answer(on, ARTICLE)
    known = why(on.stages, HUB)
    killed = on.killed(tmp_path / "killed")
    assert why(killed, HUB) == pytest.approx(known)
    killed.close()


def test_the_counts_of_new_pages_survive_a_kill_and_a_restart(on: Joint, tmp_path: Path) -> None:
    """The pages per day are those since the first start."""
    crawl(on, HUB, OTHER)
    show(on, ARTICLE)
    answer(on, ARTICLE, headers=modified(on.clock.now()))
    seen = news(on)
    assert seen["found"] == seen["dated"] == sum(seen["delays"].values()) == 1 and seen["per_day"] > 0.0
    killed = on.killed(tmp_path / "killed")
    assert killed.refresh is not None
    assert killed.refresh.views.summary(on.clock.now())["news"] == seen
    killed.close()
    on.reopen()
    assert news(on) == seen


def modified(instant: float) -> tuple[tuple[bytes, bytes], ...]:
    """Return the header fields of a page with this Last-Modified."""
    return ((b"Last-Modified", formatdate(int(instant), usegmt=True).encode()),)


def test_a_page_fetched_within_two_seconds_of_its_publication_counts(on: Joint) -> None:
    """Its Last-Modified is not a strong validator, but it is a date."""
    crawl(on, HUB, OTHER)
    show(on, ARTICLE)
    shown_at = on.clock.now()
    dates = (*modified(shown_at), (b"Date", formatdate(int(shown_at) + 1, usegmt=True).encode()))
    answer(on, ARTICLE, headers=dates)
    assert on.record(ARTICLE).last_modified == ""
    assert news(on)["dated"] == 1
    assert news(on)["delay_median"] == pytest.approx(on.clock.now() - int(shown_at), rel=0.2)


def test_a_date_after_the_last_fetch_of_the_hub_is_not_the_publication(on: Joint) -> None:
    """A program that makes each page on request sends the time of the answer. The page was published before."""
    crawl(on, HUB, OTHER)
    show(on, ARTICLE)
    on.clock.advance(300.0)
    answer(on, ARTICLE, headers=modified(on.clock.now()))
    assert news(on)["found"] == 1 and news(on)["dated"] == 0


@pytest.mark.parametrize(
    ("stated", "modified_after", "counted_after"),
    [(0.0, 4e4, 4e4), (0.0, -1e5, 0.0), (1e4, 4e4, 1e4), (None, 4e4, 4e4)],
    ids=["only the day", "another day", "with the time", "no date"],
)
def test_a_date_that_states_only_the_day_leaves_the_time_to_the_page(
    on: Joint, stated: float | None, modified_after: float, counted_after: float
) -> None:
    """All times are seconds after a midnight."""
    crawl(on, HUB)
    hub, refresh, change = on.record(HUB), refresh_of(on), Change()
    midnight = hub.fetched_at // DAY * DAY
    assert midnight + 4e4 < hub.fetched_at
    fingerprint, via = on.fingerprint(ARTICLE), on.fingerprint(HUB)
    record = PageRecord(ARTICLE, PageState.STORED, Outcome.FETCHED, via=via)
    if stated is not None:
        refresh.births.tell(fingerprint, midnight + stated, change)
    now = hub.fetched_at + 100.0
    refresh.outcomes.count_delay(fingerprint, record, midnight + modified_after, now, change)
    assert refresh.news.counts.delays == {bin_of(now - midnight - counted_after): 1}


def test_links_in_a_first_copy_that_a_refetch_made_earn_no_credit(on: Joint) -> None:
    """The hub was down at its first fetch, and a signal brought it back. The page may be a list of its site."""
    crawl(on, OTHER)
    on.follow(HUB, fetch(HUB, b"down", status=500, outcome=Outcome.TEMPORARY, began=on.clock.now()))
    change = Change()
    refresh_of(on).changes.admit([on.fingerprint(HUB)], on.clock.now(), change)
    on.stages.commits.commit_now(change)
    show(on, ARTICLE, *(f"http://a.org/{n}" for n in range(9)))
    answer(on, ARTICLE)
    assert news(on)["found"] == 0 and not is_new(on, ARTICLE)
    assert why(on.stages, HUB), "new pages are expected of a page with so many links"


@pytest.mark.parametrize(("status", "outcome"), [(404, Outcome.GONE), (500, Outcome.TEMPORARY)])
def test_a_page_whose_first_fetch_failed_counts_when_it_has_a_copy(
    open_joint: Callable[..., Joint], status: int, outcome: Outcome
) -> None:
    """Otherwise the statistics would leave out the longest delays, and the hub would get no credit."""
    on = open_joint(refresh={"endless": True, "share": "auto", "min_age": 0.0, "retry_for": 0.0})
    crawl(on, OTHER)
    url = "http://a.org/map.xml"
    on.add(url, flags=LinkFlag.SITEMAP)
    answer(on, url)
    show(on, ARTICLE, hub=url, told_by="sitemap")
    answer(on, ARTICLE, status=status, outcome=outcome, body=b"not yet")
    assert news(on)["found"] == 0
    born = on.clock.now() + 0.5 * DAY
    show(on, ARTICLE, hub=url, told_by="sitemap", first_dated=[(ARTICLE, born), (OTHER, born)])
    assert on.fingerprint(ARTICLE) in refresh_of(on)
    assert explain(on, OTHER)["signals_by_source"] == {}, (
        "the first date of a page with a copy is not a signal"
    )
    answer(on, ARTICLE)
    assert on.record(ARTICLE).state is PageState.STORED
    seen = news(on)
    assert seen["by_kind"] == {"sitemap": 1} and seen["dated"] == 1
    assert seen["delay_median"] == pytest.approx(on.clock.now() - born, rel=0.1)
    for _ in range(3):
        show(on, ARTICLE, hub=url, told_by="sitemap")
    assert news(on)["found"] == 1, "later fetches earn no further credit"


@pytest.mark.parametrize("told_first", [False, True])
def test_the_birth_of_a_page_is_kept_until_a_later_try_succeeds(on: Joint, told_first: bool) -> None:
    """The sitemap states the date before the first try, which fails, or when the URL waits for its next try."""
    crawl(on, OTHER)
    url, born = "http://a.org/map.xml", on.clock.now() + DAY
    on.add(url, flags=LinkFlag.SITEMAP)
    answer(on, url)
    dates = {"dated": [(ARTICLE, born)]}
    show(on, ARTICLE, hub=url, told_by="sitemap", **(dates if told_first else {}))
    answer(on, ARTICLE, status=500, outcome=Outcome.TEMPORARY, body=b"not yet")
    assert explain(on, ARTICLE)["state"] == "away"
    if not told_first:
        change, changes = Change(), refresh_of(on).changes
        first = changes.without_copy([(ARTICLE, born), (OTHER, born)])
        assert first == [(ARTICLE, born)], "the first date of a page with a copy is not news"
        changes.note_dated(on.fingerprint(url), first, "sitemap", on.clock.now(), change)
        on.stages.commits.commit_now(change)
    on.clock.advance(DAY)
    read(on, ARTICLE, b"at last", Extracted(ARTICLE))
    seen = news(on)
    assert seen["by_kind"] == {"sitemap": 1} and seen["dated"] == 1
    assert seen["delay_median"] == pytest.approx(on.clock.now() - born, rel=0.1)


def signal(joint: Joint, *urls: str, source: str = "signal") -> Change:
    change: Change = made(joint.stages.decisions.signal_intake.decide(urls, source, Signalled()))[0]
    joint.stages.commits.commit_now(change)
    return change


def test_a_page_that_only_a_signal_names_counts_as_new(on: Joint) -> None:
    """It was published at the time of the first signal. The URL of the other signal is known, so it is not new."""
    crawl(on, OTHER)
    born = on.clock.now()
    signal(on, ARTICLE, OTHER)
    on.clock.advance(100.0)
    signal(on, ARTICLE)
    on.reopen()
    answer(on, ARTICLE)
    seen = news(on)
    assert seen["by_kind"] == {"signal": 1} and seen["dated"] == 1 and is_new(on, ARTICLE)
    assert seen["delay_median"] == pytest.approx(on.clock.now() - born, rel=0.1)
    assert not list(scan_prefix(on.stages.store, keys.BIRTHS))


def test_the_target_of_a_redirect_that_only_a_signal_names_counts_once(on: Joint) -> None:
    crawl(on, OTHER)
    signal(on, ARTICLE)
    answer(on, ARTICLE, location="http://a.org/target")
    assert news(on)["found"] == 0
    answer(on, "http://a.org/target")
    assert news(on)["by_kind"] == {"signal": 1}


@pytest.mark.parametrize("told_at", ["before", "never", "later"])
def test_the_owner_of_a_signalled_url_knows_the_time_of_the_signal(
    open_joint: Callable[..., Joint], told_at: str
) -> None:
    """Processes of earlier versions did not state it. A time in the future comes from another clock."""
    joint = open_joint(names=("p0", "p1"), refresh={"endless": True, "min_age": 0.0}, crawl={"scope": "any"})
    urls = [f"http://h{n}.org/" for n in range(40)]
    owner = joint.stages.topology.partition.owner
    url, other = (next(url for url in urls if owner(joint.fingerprint(url)) == name) for name in ("p0", "p1"))
    crawl(joint, url)
    (sent,) = signal(joint, other).foreign[0][1]
    assert sent.via == int(joint.clock.now())
    joint.clock.advance(1000.0)
    now = joint.clock.now()
    via = {"before": int(now) - 500, "never": 0, "later": int(now) + 500}[told_at]
    link = Link(joint.fingerprint(url + "new") ^ 5, url + "new", via=via, redirects=4, flags=LinkFlag.SIGNAL)
    change = made(joint.stages.decisions.received(Received("p1", bytes(8), 1, [link], 100)))[0]
    change.received = None
    joint.stages.commits.commit_now(change)
    answer(joint, url + "new")
    waited = joint.clock.now() - now + 500.0 * (told_at == "before")
    assert news(joint)["delay_median"] == pytest.approx(waited, rel=0.2, abs=2.0)


def test_the_birth_of_a_page_survives_a_kill_before_its_first_fetch(on: Joint, tmp_path: Path) -> None:
    """A feed gives the date of a page, and the process is killed before it fetches the page.

    The first date is kept.
    """
    crawl(on, OTHER)
    url = "http://a.org/feed.xml"
    on.add(url, flags=LinkFlag.FEED)
    answer(on, url)
    born = on.clock.now()
    show(on, ARTICLE, hub=url, told_by="feed", dated=[(ARTICLE, born), (OTHER, born)])
    show(on, ARTICLE, hub=url, told_by="feed", dated=[(ARTICLE, born + DAY)])
    killed = on.killed(tmp_path / "killed")
    for each in (killed, on.stages):
        assert each.refresh is not None
        change, record = Change(), PageRecord(ARTICLE, PageState.STORED, Outcome.FETCHED)
        assert len(each.refresh.births) == 1, "a known page has no stored birth"
        now = on.clock.now()
        each.refresh.outcomes.count_delay(on.fingerprint(ARTICLE), record, None, now, change)
        assert each.refresh.news.view(now)["delay_median"] == pytest.approx(now - born, rel=0.1)
        each.commits.commit(change)
        assert not each.refresh.births and not list(scan_prefix(each.store, keys.BIRTHS))
    killed.close()


def test_a_host_without_a_url_to_try_does_not_hide_the_new_urls_of_others(
    open_joint: Callable[..., Joint],
) -> None:
    """Nine hosts have the first turns. Their only new URLs wait for retries, and their known pages are worth little.

    So known pages get only their least share, 5 % of 40 fetches.
    """
    joint = open_joint(
        refresh={"endless": True, "share": "auto", "min_age": 0.0},
        politeness={"delay": 0.0, "delay_factor": 0.0, "address_delay_share": 0.0},
        frontier={"retry_delays": [DAY]},
    )
    joint.seeds(*(f"http://f{n}.org/{name}" for n in range(9) for name in ("", "fails")))
    joint.seeds(*(f"http://n.org/{k}" for k in range(30)))
    bench, refreshed = joint.frontier.claims._bench, 0
    for step in range(40):
        joint.clock.advance(2.0)
        if step >= 30:
            for host in bench.front.values():
                if host.name != "n.org":
                    bench.plans.wake(host, joint.clock.now() - 20.0)
        fetch_task = joint.fetch_task()
        refreshed += bool(fetch_task.flags & _REFRESH)
        failed = {"outcome": Outcome.TEMPORARY, "status": 500} if "fails" in fetch_task.url else {}
        joint.page(fetch_task, fetch(fetch_task.url, began=joint.clock.now(), took=0.0, **failed))
    assert refreshed <= 2
